//! Streams of work, events in them, and work that was captured.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Context, DriverError, DriverHandle, Function, call, lock};

/// Work in order.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<Context>,
    raw: DriverHandle<sys::CUstream_st>,
}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        let stream = Self::unwatched(context)?;
        lock(&context.streams).push(stream.raw);
        Ok(stream)
    }

    /// Returns a stream that is not waited for before memory is given back, because nothing ever runs on it: waiting would
    /// end what is being captured there.
    pub(crate) fn unwatched(context: &Arc<Context>) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        let mut raw = null_mut();
        call!(cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))?;
        Ok(Self { context: Arc::clone(context), raw: DriverHandle(raw) })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw.0
    }

    pub(crate) fn synchronise(&self) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        call!(cuStreamSynchronize(self.raw.0))
    }

    /// Enqueues a copy within the memory of GPUs; the two sides are apart.
    ///
    /// # Safety
    /// Both ranges are memory of GPUs, and stay so until the copy is done.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, size: u64) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        call!(cuMemcpyDtoDAsync_v2(to, from, size as usize, self.raw.0))
    }

    /// Enqueues a copy between the memory of two GPUs, or within one.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn copy_between(
        &self,
        to: u64,
        target: &Context,
        from: u64,
        source: &Context,
        size: u64,
    ) -> Result<(), DriverError> {
        if std::ptr::eq(target, source) {
            // SAFETY: as promised.
            return unsafe { self.copy(to, from, size) };
        }
        let _entered = self.context.enter()?;
        call!(cuMemcpyPeerAsync(to, target.raw.0, from, source.raw.0, size as usize, self.raw.0))
    }

    /// Enqueues a copy from the host.
    ///
    /// # Safety
    /// The target is memory of a GPU, and the source can be read; both until the copy is done.
    pub(crate) unsafe fn upload(&self, to: u64, from: *const u8, size: u64) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        call!(cuMemcpyHtoDAsync_v2(to, from.cast::<c_void>(), size as usize, self.raw.0))
    }

    /// Enqueues a copy to the host.
    ///
    /// # Safety
    /// The source is memory of a GPU, and the target can be written; both until the copy is done.
    pub(crate) unsafe fn download(&self, to: *mut u8, from: u64, size: u64) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        call!(cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), from, size as usize, self.raw.0))
    }

    /// Enqueues setting bytes.
    ///
    /// # Safety
    /// They are memory of a GPU, and stay so until they are set.
    pub(crate) unsafe fn fill(&self, to: u64, size: u64, byte: u8) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        call!(cuMemsetD8Async(to, byte, size as usize, self.raw.0))
    }

    /// Enqueues a kernel with one parameter, a structure. It may be there before what is ahead of it is done, if it is
    /// `early`.
    ///
    /// # Safety
    /// The context is current, the module of the kernel is loaded, `parameter` is the structure that it was compiled with,
    /// and all memory that the kernel reaches through it is memory of the GPU, and stays so until it is done. A kernel that is early waits by itself.
    pub(crate) unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        parameter: *const c_void,
        early: bool,
    ) -> Result<(), DriverError> {
        let (mut parameters, [x, y, z]) = ([parameter.cast_mut()], grid);
        let (parameters, none) = (parameters.as_mut_ptr(), null_mut());
        if !early {
            return call!(cuLaunchKernel(function.0.0, x, y, z, block, 1, 1, shared, self.raw.0, parameters, none));
        }
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: self.raw.0,
            attrs: &mut attribute,
            numAttrs: 1,
        };
        call!(cuLaunchKernelEx(&config, function.0.0, parameters, none))
    }

    /// An event that happens when all that was enqueued so far is done.
    pub(crate) fn record(&self) -> Result<CudaEvent, DriverError> {
        let _entered = self.context.enter()?;
        let mut raw = null_mut();
        call!(cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32))?;
        let event = CudaEvent { context: Arc::clone(&self.context), raw: DriverHandle(raw) };
        call!(cuEventRecord(raw, self.raw.0))?;
        Ok(event)
    }

    /// What is enqueued from now on waits for the event, which may be of another GPU.
    pub(crate) fn wait(&self, event: &CudaEvent) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        call!(cuStreamWaitEvent(self.raw.0, event.raw.0, 0))
    }

    /// Captures what `enqueue` enqueues here instead of running it.
    pub(crate) fn capture<E: From<DriverError>>(
        &self,
        enqueue: impl FnOnce() -> Result<(), E>,
    ) -> Result<CapturedGraph, E> {
        let _entered = self.context.enter()?;
        let _quiet = self.context.quiet();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        call!(cuStreamBeginCapture_v2(self.raw.0, mode))?;
        let enqueued = enqueue();
        let mut graph = null_mut();
        let ended = call!(cuStreamEndCapture(self.raw.0, &mut graph));
        let mut exec = null_mut();
        let made = match (enqueued, ended) {
            (Ok(()), Ok(())) => call!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)).map_err(E::from),
            (Err(error), _) => Err(error),
            (_, Err(fault)) => Err(fault.into()),
        };
        if !graph.is_null() {
            let _ = call!(cuGraphDestroy(graph));
        }
        made?;
        Ok(CapturedGraph { context: Arc::clone(&self.context), raw: DriverHandle(exec) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Before memory is freed meanwhile this stream is waited for, as long as it is in the list.
        let entered = self.context.enter();
        if entered.is_ok() {
            let _ = call!(cuStreamSynchronize(self.raw.0));
        }
        lock(&self.context.streams).retain(|stream| stream.0 != self.raw.0);
        if entered.is_ok() {
            let _ = call!(cuStreamDestroy_v2(self.raw.0));
        }
    }
}

/// An event in a stream.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    context: Arc<Context>,
    raw: DriverHandle<sys::CUevent_st>,
}

impl CudaEvent {
    /// Waits until it has happened.
    pub(crate) fn synchronise(&self) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        call!(cuEventSynchronize(self.raw.0))
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            let _ = call!(cuEventDestroy_v2(self.raw.0));
        }
    }
}

/// Work that was captured, to be run with one launch.
#[derive(Debug)]
pub(crate) struct CapturedGraph {
    context: Arc<Context>,
    raw: DriverHandle<sys::CUgraphExec_st>,
}

impl CapturedGraph {
    /// Enqueues all of it.
    ///
    /// # Safety
    /// All memory that was there when it was captured is still there, and stays until it is done.
    pub(crate) unsafe fn launch(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let _entered = stream.context.enter()?;
        call!(cuGraphLaunch(self.raw.0, stream.raw.0))
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            let _ = call!(cuGraphExecDestroy(self.raw.0));
        }
    }
}
