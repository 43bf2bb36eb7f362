//! A stream of work on a GPU.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use steeve_device::{
    Backend, BufferType, Bytes, DeviceError, Event, Locate, Offset, Prepared, SharedBuffer, Span, SpanMut, UsedBuffer,
};
use steeve_graph::{Graph, TensorId};

use crate::blas::{Blas, NoBlas};
use crate::command::{CommandQueue, EnqueueError, LoadedKernels};
use crate::command_list::GpuProfile;
use crate::custom::CustomKernels;
use crate::device::Core;
use crate::driver::{Context, CudaEvent, DriverError, Stream, is_pinned};
use crate::kernel_asserts::KernelAsserts;
use crate::launches::{Capture, Counters};
use crate::memory::CudaBuffer;
use crate::prepared::{CudaPrepared, NodeLowering, supports};
use crate::scratch::Scratch;
use crate::upload_ring::UploadRing;

/// Runs graphs on a GPU. Calls return before their work is done.
#[derive(Debug)]
pub struct CudaBackend {
    core: Arc<Core>,
    capture: Capture,
    counters: Arc<Counters>,
    kernels: Arc<LoadedKernels>,
    custom: CustomKernels,
    asserts: Arc<KernelAsserts>,
    scratch: Scratch,
    uploads: RefCell<UploadRing>,
    /// Made when the first product for it is prepared.
    blas: RefCell<Option<Blas>>,
    /// Set if the driver captures kernels that start before the one ahead of them is done, as far as is known.
    can_capture_early: Cell<bool>,
    /// Where work is captured. Nothing ever runs there.
    recorder: Stream,
    stream: Stream,
}

impl CudaBackend {
    pub(crate) fn new(
        core: &Arc<Core>,
        capture: Capture,
        counters: &Arc<Counters>,
        custom: &CustomKernels,
    ) -> Result<Self, DeviceError> {
        let (name, context) = (&core.name, &core.context);
        let fail = |fault: DriverError| fault.on(name);
        Ok(Self {
            core: Arc::clone(core),
            capture,
            counters: Arc::clone(counters),
            kernels: core.kernels()?,
            custom: custom.clone(),
            asserts: Arc::new(KernelAsserts::new(Arc::clone(name), context).map_err(fail)?),
            scratch: Scratch::new(name, context),
            uploads: RefCell::new(UploadRing::new(context).map_err(fail)?),
            blas: RefCell::default(),
            can_capture_early: Cell::new(true),
            recorder: Stream::unwatched(context).map_err(fail)?,
            stream: Stream::new(context).map_err(fail)?,
        })
    }

    fn fail(&self, why: impl Into<String>) -> DeviceError {
        DeviceError::Failed { device: self.core.name.to_string(), why: why.into() }
    }

    fn on(&self, fault: DriverError) -> DeviceError {
        fault.on(&self.core.name)
    }

    /// Chooses kernels, and locates all operands.
    fn lower(&self, graph: &Graph, nodes: Range<usize>, tensors: &dyn Locate) -> Result<CudaPrepared, DeviceError> {
        let lowering = NodeLowering {
            name: &self.core.name,
            machine: GpuProfile { arch: self.kernels.arch, ..self.core.machine() },
            context: &self.core.context,
            asserts: &self.asserts,
            scratch: &self.scratch,
            custom: &self.custom,
            compile: &|kernel, call| self.core.custom_function(kernel, call),
        };
        lowering.prepare(graph, nodes, tensors)
    }

    /// Makes the library ready. Where it is installed and does not work, products on this GPU are made without it from then on.
    fn start_blas(&self) -> Result<bool, DeviceError> {
        let mut blas = self.blas.borrow_mut();
        if blas.is_none() {
            match Blas::new(&self.core.name, &self.core.context, &self.stream) {
                Ok(new) => *blas = Some(new),
                Err(NoBlas::Memory(error)) => return Err(error),
                Err(NoBlas::Broken(why)) => {
                    self.core.do_without_blas(why);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Enqueues the commands of prepared nodes.
    ///
    /// # Safety
    /// All memory in them exists and stays until they are done, unless they are captured.
    unsafe fn enqueue(&self, prepared: &CudaPrepared, stream: &Stream, early: bool) -> Result<(), EnqueueError> {
        let blas = self.blas.borrow();
        let blas = blas.as_ref().filter(|_| prepared.commands.has_products());
        if let Some(blas) = blas {
            blas.turn_to(stream).map_err(|why| EnqueueError { command: None, why })?;
        }
        let queue = CommandQueue { stream, kernels: &self.kernels, blas, early };
        // SAFETY: as promised.
        unsafe { queue.enqueue(&prepared.commands) }
    }

    /// Captures all commands, if there are several. What can't be captured is launched one by one, now and later, and the device
    /// can say why.
    fn capture(&self, prepared: &mut CudaPrepared) {
        if prepared.commands.len() < 2 {
            return;
        }
        let try_it = |early: bool| {
            let enqueue = || {
                // SAFETY: nothing runs now; before a launch the buffers are looked at.
                unsafe { self.enqueue(prepared, &self.recorder, early) }.map_err(|stopped| prepared.blame(&stopped))
            };
            self.recorder.capture::<String>(enqueue)
        };
        let mut captured = try_it(self.can_capture_early.get());
        if let Err(why) = &captured
            && self.can_capture_early.get()
        {
            // Drivers that are not the newest can't capture kernels that start early.
            let later = try_it(false).map_err(|other| format!("{why}; and without early starts: {other}"));
            if later.is_ok() {
                self.can_capture_early.set(false);
                self.counters.note(|launches| launches.not_early = Some(why.clone()));
            }
            captured = later;
        }
        match captured {
            Ok(captured) => {
                self.counters.note(|launches| launches.captured += 1);
                prepared.captured = Some(captured);
            }
            Err(why) => self.counters.note(|launches| launches.refused = Some(why)),
        }
    }

    /// Enqueues a copy from the host; `from` has been read when this returns.
    ///
    /// # Safety
    /// The target is memory of this GPU, and stays so until the copy is done.
    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: as promised.
        unsafe { self.uploads.borrow_mut().upload(&self.stream, to, from) }.map_err(|fault| self.on(fault))
    }

    /// Enqueues a copy between memory of this GPU, of another one, and of the host; `None` if it is neither.
    fn enqueue_copy(
        &self,
        to: (&SharedBuffer, Offset),
        from: (&SharedBuffer, Offset),
        size: Bytes,
    ) -> Result<Option<()>, DeviceError> {
        let source = from.0.borrow()?;
        let mut target = to.0.borrow_mut()?;
        let cuda = |buffer: &dyn steeve_device::Buffer, offset: Offset| {
            let cuda = buffer.as_any().downcast_ref::<CudaBuffer>();
            cuda.map(|it| Ok::<_, DeviceError>((it.range(offset, size)?, Arc::clone(it.context())))).transpose()
        };
        let own = |context: &Arc<Context>| Arc::ptr_eq(context, &self.core.context);
        let (into, out) = (cuda(&*target, to.1)?, cuda(&*source, from.1)?);
        let done = match (into, out) {
            (Some((to, its)), Some((from, other))) if own(&its) || own(&other) => {
                // SAFETY: ranges of buffers that are borrowed while the copy is enqueued, and that give their memory back
                // only when all that is enqueued is done.
                unsafe { self.stream.copy_between(to, &its, from, &other, size.0) }
            }
            (Some((to, context)), None) if own(&context) => {
                let Some(span) = Span::of(&*source, from.1, size) else { return Ok(None) };
                let span = span?;
                if !is_pinned(&self.core.context, span.start()) {
                    // SAFETY: as above.
                    return unsafe { self.upload(to, span.as_slice()) }.map(Some);
                }
                // SAFETY: as above, and pinned memory is given back like that of a GPU.
                unsafe { self.stream.upload(to, span.start(), size.0) }
            }
            (None, Some((from, context))) if own(&context) => {
                let Some(span) = SpanMut::of(&mut *target, to.1, size) else { return Ok(None) };
                let start = span?.start();
                // SAFETY: as above; plain memory stays borrowed until it is written.
                let done = unsafe { self.stream.download(start, from, size.0) };
                done.and_then(
                    |()| if is_pinned(&self.core.context, start) { Ok(()) } else { self.stream.synchronise() },
                )
            }
            _ => return Ok(None),
        };
        done.map(Some).map_err(|fault| self.on(fault))
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &str {
        &self.core.name
    }

    fn buffer_type(&self) -> Arc<dyn BufferType> {
        Arc::clone(&self.core.memory)
    }

    fn is_async(&self) -> bool {
        true
    }

    fn can_copy(&self, to: &Arc<dyn BufferType>, from: &Arc<dyn BufferType>) -> bool {
        let own = |memory: &Arc<dyn BufferType>| Arc::ptr_eq(memory, &self.core.memory);
        let reaches = |memory: &Arc<dyn BufferType>| own(memory) || memory.is_host() || self.core.is_peer(memory);
        own(to) && reaches(from) || own(from) && reaches(to)
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        supports(&self.core.name, self.core.machine(), &self.custom, graph, node)
    }

    fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError> {
        let mut prepared = self.lower(graph, nodes.clone(), tensors)?;
        if prepared.commands.has_products() && !self.start_blas()? {
            prepared = self.lower(graph, nodes, tensors)?;
        }
        if self.capture == Capture::AtOnce {
            self.capture(&mut prepared);
        }
        Ok(Box::new(prepared))
    }

    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError> {
        let prepared = prepared.as_any_mut().downcast_mut::<CudaPrepared>();
        let Some(prepared) = prepared.filter(|prepared| prepared.registered.is_of(&self.asserts)) else {
            return Err(self.fail("nodes that another backend has prepared"));
        };
        if self.capture == Capture::WhenRepeated && prepared.has_run && !prepared.was_tried {
            prepared.was_tried = true;
            self.capture(prepared);
        }
        prepared.has_run = true;
        // Borrowed until all is enqueued: before memory is given back, what was enqueued is waited for.
        let (mut reading, mut writing) = (Vec::new(), Vec::new());
        for UsedBuffer { buffer, is_written } in &prepared.buffers {
            match is_written {
                true => writing.push(buffer.borrow_mut()?),
                false => reading.push(buffer.borrow()?),
            }
        }
        if let Some(captured) = &mut prepared.captured {
            self.counters.note(|launches| launches.whole += 1);
            // SAFETY: all buffers are borrowed, and scratch memory belongs to the prepared nodes.
            return unsafe { captured.launch(&self.stream) }.map_err(|fault| self.on(fault));
        }
        self.counters.note(|launches| launches.apart += 1);
        // SAFETY: as above.
        let enqueued = unsafe { self.enqueue(prepared, &self.stream, true) };
        enqueued.map_err(|stopped| self.fail(prepared.blame(&stopped)))
    }

    fn write(&self, buffer: &SharedBuffer, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let size = Bytes(from.len() as u64);
        {
            let writing = buffer.borrow_mut()?;
            if let Some(own) = CudaBuffer::of(&*writing, &self.core.context) {
                let to = own.range(offset, size)?;
                // SAFETY: a range of a buffer that is borrowed while the copy is enqueued, and that gives its memory back only
                // when all that is enqueued is done.
                return unsafe { self.upload(to, from) };
            }
        }
        self.synchronise()?;
        buffer.write(offset, from)
    }

    fn read(&self, buffer: &SharedBuffer, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let size = Bytes(into.len() as u64);
        {
            let reading = buffer.borrow()?;
            if let Some(own) = CudaBuffer::of(&*reading, &self.core.context) {
                let from = own.range(offset, size)?;
                if !into.is_empty() {
                    // SAFETY: a range of a buffer that is borrowed, and a slice, both until all is done below.
                    let done = unsafe { self.stream.download(into.as_mut_ptr(), from, size.0) };
                    done.map_err(|fault| self.on(fault))?;
                }
                return self.synchronise();
            }
        }
        self.synchronise()?;
        buffer.read(offset, into)
    }

    fn copy(&self, to: (&SharedBuffer, Offset), from: (&SharedBuffer, Offset), size: Bytes) -> Result<(), DeviceError> {
        to.0.check_bounds(to.1, size)?;
        from.0.check_bounds(from.1, size)?;
        if size == Bytes::ZERO {
            return Ok(());
        }
        if !to.0.is_same(from.0) && self.enqueue_copy(to, from, size)?.is_some() {
            return Ok(());
        }
        self.synchronise()?;
        to.0.copy_from(to.1, from.0, from.1, size)
    }

    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        let event = self.stream.record().map_err(|fault| self.on(fault))?;
        Ok(Arc::new(BackendEvent { name: Arc::clone(&self.core.name), event, asserts: Arc::clone(&self.asserts) }))
    }

    fn wait(&self, event: &dyn Event) -> Result<(), DeviceError> {
        match event.as_any().downcast_ref::<BackendEvent>() {
            Some(event) => self.stream.wait(&event.event).map_err(|fault| self.on(fault)),
            None => event.synchronise(),
        }
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        self.stream.synchronise().map_err(|fault| self.on(fault))?;
        self.asserts.take()
    }
}

/// An event in the stream of a GPU.
#[derive(Debug)]
struct BackendEvent {
    name: Arc<str>,
    event: CudaEvent,
    asserts: Arc<KernelAsserts>,
}

impl Event for BackendEvent {
    fn synchronise(&self) -> Result<(), DeviceError> {
        self.event.synchronise().map_err(|fault| fault.on(&self.name))?;
        self.asserts.look()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
