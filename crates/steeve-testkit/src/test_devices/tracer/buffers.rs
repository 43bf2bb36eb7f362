//! Memories and buffers that are watched.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use steeve_device::{Align, Buffer, BufferType, Bytes, DeviceError, Fusion, InitTensor, Offset, Padding};

use super::{Access, HOST, TraceAction, TraceLog};
use crate::test_devices::trace::AccessKind;

/// A memory whose buffers are watched.
pub(super) struct TracedMemory {
    log: Arc<TraceLog>,
    inner: Arc<dyn BufferType>,
}

impl TracedMemory {
    pub(super) fn new(log: Arc<TraceLog>, inner: Arc<dyn BufferType>) -> Self {
        Self { log, inner }
    }
}

impl BufferType for TracedMemory {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn align(&self) -> Align {
        self.inner.align()
    }

    fn max_size(&self) -> Option<Bytes> {
        self.inner.max_size()
    }

    fn is_host(&self) -> bool {
        self.inner.is_host()
    }

    fn hold(&self) -> u32 {
        self.inner.hold()
    }

    fn fusion(&self) -> Fusion {
        self.inner.fusion()
    }

    fn padding(&self) -> Option<&dyn Padding> {
        self.inner.padding()
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let inner = self.inner.allocate(size)?;
        let number = self.log.number(&self.inner, inner.address());
        Ok(Box::new(TracedBuffer { log: Arc::clone(&self.log), number, inner }))
    }
}

impl fmt::Debug for TracedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TracedMemory").field(&self.inner).finish()
    }
}

/// A buffer that is watched.
struct TracedBuffer {
    log: Arc<TraceLog>,
    number: usize,
    inner: Box<dyn Buffer>,
}

thread_local! {
    /// The depth of backend calls on this thread: accesses within them are not the host's.
    static WITHIN: Cell<usize> = const { Cell::new(0) };
    /// Whether buffers show themselves instead of the buffer within.
    static UNVEILED: Cell<bool> = const { Cell::new(false) };
}

/// Calls a backend, which may use the methods of buffers itself.
pub(super) fn quietly<R>(act: impl FnOnce() -> R) -> R {
    struct LeaveCall;
    impl Drop for LeaveCall {
        fn drop(&mut self) {
            WITHIN.set(WITHIN.get() - 1);
        }
    }
    WITHIN.set(WITHIN.get() + 1);
    let _leave = LeaveCall;
    act()
}

/// The wrapper, where a buffer has one.
fn unveiled(buffer: &dyn Buffer) -> Option<&TracedBuffer> {
    UNVEILED.set(true);
    let found = buffer.as_any().downcast_ref();
    UNVEILED.set(false);
    found
}

impl TracedBuffer {
    fn access(&self, offset: Offset, size: Bytes, kind: AccessKind) -> Access {
        Access { buffer: self.number, range: offset.0..offset.0.saturating_add(size.0), kind }
    }

    /// The host has done something.
    fn touch(&self, how: &'static str, accesses: Vec<Access>) {
        if WITHIN.get() == 0 && accesses.iter().any(|access| !access.range.is_empty()) {
            self.log.enter(HOST, TraceAction::Touch(how), accesses);
        }
    }
}

impl Buffer for TracedBuffer {
    fn size(&self) -> Bytes {
        self.inner.size()
    }

    fn address(&self) -> u64 {
        self.inner.address()
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, into)?;
        self.touch("read", vec![self.access(offset, Bytes(into.len() as u64), AccessKind::Read)]);
        Ok(())
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(offset, from)?;
        self.touch("write", vec![self.access(offset, Bytes(from.len() as u64), AccessKind::Write)]);
        Ok(())
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        self.inner.fill(offset, size, byte)?;
        self.touch("fill", vec![self.access(offset, size, AccessKind::Write)]);
        Ok(())
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        self.inner.copy_within(from, to, size)?;
        self.touch("copy", vec![self.access(from, size, AccessKind::Read), self.access(to, size, AccessKind::Write)]);
        Ok(())
    }

    fn copy_from(&mut self, to: Offset, source: &dyn Buffer, from: Offset, size: Bytes) -> Result<(), DeviceError> {
        let write = self.access(to, size, AccessKind::Write);
        let Some(source) = unveiled(source) else {
            self.inner.copy_from(to, source, from, size)?;
            self.touch("copy", vec![write]);
            return Ok(());
        };
        self.inner.copy_from(to, &*source.inner, from, size)?;
        self.touch("copy", vec![source.access(from, size, AccessKind::Read), write]);
        Ok(())
    }

    fn clear(&mut self, byte: u8) -> Result<(), DeviceError> {
        self.inner.clear(byte)?;
        self.touch("fill", vec![self.access(Offset(0), self.size(), AccessKind::Write)]);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.inner.reset()
    }

    fn init_hook(&mut self) -> Option<&mut dyn InitTensor> {
        self.inner.init_hook()
    }

    fn as_any(&self) -> &dyn Any {
        if UNVEILED.get() { self } else { self.inner.as_any() }
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self.inner.as_any_mut()
    }
}

impl Drop for TracedBuffer {
    /// No stream may work on released bytes.
    fn drop(&mut self) {
        self.touch("free", vec![self.access(Offset(0), self.size(), AccessKind::Write)]);
    }
}

impl fmt::Debug for TracedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TracedBuffer").field(&self.inner).finish()
    }
}
