//! Kinds of memory: the GPU's own, and the host's that GPUs copy to and from by themselves.

use std::any::Any;
use std::sync::Arc;

use steeve_device::{
    Align, Buffer, BufferType, Bytes, DeviceError, HostBuffer, HostMemory, Offset, Span, copy_through_host,
};

use crate::driver::{Context, DeviceBytes, DriverError, PinnedBytes, Stream};

/// The alignment of tensors, which the driver's own memory has.
pub(crate) const ALIGN: Align = match Align::new(256) {
    Ok(align) => align,
    Err(_) => Align::ONE,
};

/// Memory of a GPU.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    name: Arc<str>,
    context: Arc<Context>,
    /// For transfers outside of any backend.
    stream: Arc<Stream>,
}

impl CudaMemory {
    pub(crate) fn new(name: Arc<str>, context: &Arc<Context>) -> Result<Self, DriverError> {
        Ok(Self { name, context: Arc::clone(context), stream: Arc::new(Stream::new(context)?) })
    }
}

impl BufferType for CudaMemory {
    fn name(&self) -> &str {
        &self.name
    }

    fn align(&self) -> Align {
        ALIGN
    }

    fn is_host(&self) -> bool {
        false
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let bytes = match size.0 {
            0 => None,
            len => Some(allocate(&self.name, &self.context, len)?),
        };
        Ok(Box::new(CudaBuffer { name: Arc::clone(&self.name), stream: Arc::clone(&self.stream), bytes }))
    }
}

/// Memory of a GPU, or an error that says what was asked and what is left.
pub(crate) fn allocate(name: &str, context: &Arc<Context>, len: u64) -> Result<DeviceBytes, DeviceError> {
    // The driver calls some of these numbers invalid instead.
    if context.memory().is_ok_and(|(_, total)| len > total) {
        return Err(out_of_memory(name, context, len));
    }
    DeviceBytes::new(context, len).map_err(|fault| said(fault, name, context, len))
}

/// Returns the error for a request of so many bytes.
pub(crate) fn said(fault: DriverError, name: &str, context: &Context, asked: u64) -> DeviceError {
    if fault.is_out_of_memory() { out_of_memory(name, context, asked) } else { fault.on(name) }
}

pub(crate) fn out_of_memory(name: &str, context: &Context, asked: u64) -> DeviceError {
    let left = context.memory().ok().map(|(free, _)| Bytes(free));
    DeviceError::OutOfMemory { memory: name.into(), asked: Bytes(asked), left }
}

/// A piece of a GPU's memory. What is read and written here is done when a call returns; no other work is waited for.
#[derive(Debug)]
pub(crate) struct CudaBuffer {
    name: Arc<str>,
    stream: Arc<Stream>,
    bytes: Option<DeviceBytes>,
}

impl CudaBuffer {
    /// A buffer in the memory of this GPU.
    pub(crate) fn of<'a>(buffer: &'a dyn Buffer, context: &Arc<Context>) -> Option<&'a Self> {
        buffer.as_any().downcast_ref::<Self>().filter(|own| Arc::ptr_eq(own.context(), context))
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.stream.context()
    }

    fn len(&self) -> u64 {
        self.bytes.as_ref().map_or(0, DeviceBytes::len)
    }

    /// The address of a range that lies within.
    pub(crate) fn range(&self, offset: Offset, size: Bytes) -> Result<u64, DeviceError> {
        DeviceError::check_bounds(&self.name, offset, size, Bytes(self.len()))?;
        Ok(self.address() + offset.0)
    }

    /// What `enqueue` enqueues is done when this returns. It is not asked for nothing.
    fn now(&self, size: u64, enqueue: impl FnOnce() -> Result<(), DriverError>) -> Result<(), DeviceError> {
        if size == 0 {
            return Ok(());
        }
        enqueue().and_then(|()| self.stream.synchronise()).map_err(|fault| fault.on(&self.name))
    }
}

impl Buffer for CudaBuffer {
    fn size(&self) -> Bytes {
        Bytes(self.len())
    }

    fn address(&self) -> u64 {
        // No memory, but an address that is aligned.
        self.bytes.as_ref().map_or(ALIGN.get(), DeviceBytes::address)
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let size = into.len() as u64;
        let from = self.range(offset, Bytes(size))?;
        // SAFETY: a range of this buffer, and a slice that is borrowed until the copy is done.
        self.now(size, || unsafe { self.stream.download(into.as_mut_ptr(), from, size) })
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let size = from.len() as u64;
        let to = self.range(offset, Bytes(size))?;
        // SAFETY: a range of this buffer, and a slice that is borrowed until the copy is done.
        self.now(size, || unsafe { self.stream.upload(to, from.as_ptr(), size) })
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        let to = self.range(offset, size)?;
        // SAFETY: a range of this buffer.
        self.now(size.0, || unsafe { self.stream.fill(to, size.0, byte) })
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        let (source, target) = (self.range(from, size)?, self.range(to, size)?);
        let distance = source.abs_diff(target);
        if distance >= size.0 {
            // SAFETY: ranges of this buffer that are apart.
            return self.now(size.0, || unsafe { self.stream.copy(target, source, size.0) });
        }
        if distance == 0 {
            return Ok(());
        }
        // Pieces that are apart from where they go, from the end whose bytes are not needed later.
        let piece = distance.max(MIN_PIECE);
        let mut done = 0;
        while done < size.0 {
            let len = piece.min(size.0 - done);
            let start = if target < source { done } else { size.0 - done - len };
            if len <= distance {
                // SAFETY: ranges of this buffer that are apart.
                self.now(len, || unsafe { self.stream.copy(target + start, source + start, len) })?;
            } else {
                let mut bytes = vec![0; len as usize];
                self.read(Offset(from.0 + start), &mut bytes)?;
                self.write(Offset(to.0 + start), &bytes)?;
            }
            done += len;
        }
        Ok(())
    }

    fn grow(&mut self, size: Bytes) -> Result<bool, DeviceError> {
        let Some(bytes) = &mut self.bytes else { return Ok(false) };
        let more = size.0.saturating_sub(bytes.len());
        bytes.grow(size.0).map_err(|fault| said(fault, &self.name, self.stream.context(), more))
    }

    fn copy_from(&mut self, to: Offset, source: &dyn Buffer, from: Offset, size: Bytes) -> Result<(), DeviceError> {
        let target = self.range(to, size)?;
        if let Some(other) = Self::of(source, self.context()) {
            let address = other.range(from, size)?;
            // SAFETY: ranges of two buffers of this GPU.
            return self.now(size.0, || unsafe { self.stream.copy(target, address, size.0) });
        }
        if let Some(span) = Span::of(source, from, size) {
            return self.write(to, span?.as_slice());
        }
        copy_through_host(self, to, source, from, size)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Smaller pieces are not worth a copy of their own.
const MIN_PIECE: u64 = 1 << 20;

/// Memory of the host that GPUs copy to and from by themselves; plain memory where there is no more of it.
///
/// Its buffers are [`HostBuffer`]s like any other, so that the processor computes in them.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    name: Arc<str>,
    context: Arc<Context>,
}

impl PinnedMemory {
    pub(crate) fn new(name: Arc<str>, context: &Arc<Context>) -> Self {
        Self { name, context: Arc::clone(context) }
    }
}

impl BufferType for PinnedMemory {
    fn name(&self) -> &str {
        &self.name
    }

    fn align(&self) -> Align {
        ALIGN
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let pinned = usize::try_from(size.0).ok().filter(|len| *len > 0);
        match pinned.map(|len| PinnedBytes::new(&self.context, len)) {
            Some(Ok(pinned)) => Ok(Box::new(HostBuffer::owned(&self.name, pinned))),
            Some(Err(_)) | None => HostMemory::named(&self.name).with_align(ALIGN).allocate(size),
        }
    }
}
