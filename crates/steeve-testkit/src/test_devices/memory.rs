//! The memory of a device: the host reaches it by copies only.
//!
//! The bytes of a buffer have a lock of their own. So the handle of a buffer is borrowed while work is
//! enqueued, and a stream works on the bytes later without it, as the hardware would.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steeve_device::{
    Align, Buffer, BufferType, Bytes, DeviceError, Fusion, MemoryInfo, MemorySpec, Offset, Padding, SharedBuffer, Span,
    SpanMut,
};

use super::faults::{FaultPoint, Faults};
use super::host_gate::HostGate;
use super::{TestSystem, lock};

/// The value of bytes before they are written.
const GARBAGE: u8 = 0xA5;

/// The value of bytes after they are released, for streams that still work on them.
const GONE: u8 = 0xDD;

#[derive(Debug)]
pub(super) struct TestMemory {
    spec: MemorySpec,
    number: u64,
    world: std::sync::Weak<super::SystemState>,
    faults: Faults,
    counts: Arc<Mutex<MemoryCounts>>,
}

/// The bytes and buffers that are allocated.
#[derive(Clone, Copy, Debug, Default)]
struct MemoryCounts {
    bytes: u64,
    peak: u64,
    buffers: u64,
}

impl TestMemory {
    pub(super) fn new(world: &TestSystem, spec: MemorySpec, faults: Faults) -> Self {
        let number = world.number();
        Self { spec, number, world: Arc::downgrade(&world.0), faults, counts: Arc::default() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn live(&self) -> Bytes {
        Bytes(lock(&self.counts).bytes)
    }

    pub(super) fn peak(&self) -> Bytes {
        Bytes(lock(&self.counts).peak)
    }

    pub(super) fn buffers(&self) -> u64 {
        lock(&self.counts).buffers
    }

    pub(super) fn info(&self) -> MemoryInfo {
        let total = self.spec.capacity.unwrap_or(Bytes(u64::MAX));
        MemoryInfo { free: Bytes(total.0.saturating_sub(self.live().0)), total }
    }

    fn enter(&self, size: Bytes) -> Result<MemoryCharge, DeviceError> {
        let mut counts = lock(&self.counts);
        let left = Bytes(self.spec.capacity.map_or(u64::MAX, Bytes::get).saturating_sub(counts.bytes));
        if size > left {
            let memory = self.spec.name.clone();
            return Err(DeviceError::OutOfMemory { memory, asked: size, left: Some(left) });
        }
        counts.bytes += size.0;
        counts.buffers += 1;
        counts.peak = counts.peak.max(counts.bytes);
        Ok(MemoryCharge { counts: Arc::clone(&self.counts), size })
    }
}

impl BufferType for TestMemory {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn align(&self) -> Align {
        self.spec.align
    }

    fn max_size(&self) -> Option<Bytes> {
        self.spec.max_size
    }

    fn is_host(&self) -> bool {
        false
    }

    fn hold(&self) -> u32 {
        self.spec.hold
    }

    fn fusion(&self) -> Fusion {
        self.spec.fusion
    }

    fn padding(&self) -> Option<&dyn Padding> {
        self.spec.padding.is_some().then_some(&self.spec as &dyn Padding)
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let memory = self.spec.name.clone();
        self.faults.check(FaultPoint::Allocation, &memory)?;
        if let Some(max) = self.spec.max_size.filter(|max| size > *max) {
            return Err(DeviceError::TooLarge { memory, asked: size, max });
        }
        let given = self.enter(size)?;
        let Some(bytes) = garbage(size) else {
            return Err(DeviceError::OutOfMemory { memory, asked: size, left: None });
        };
        // Far from each other, and from anything that could be a pointer here. Numbers are those of the system, so no two
        // buffers ever share an address, on any of its devices.
        let number = self.world.upgrade().map_or(0, |world| TestSystem(world).number());
        let address = (1 << 63 | number << 40) & !(self.spec.align.get() - 1);
        let storage = Arc::new(Storage { memory: self.number, bytes: Mutex::new(bytes) });
        Ok(Box::new(TestBuffer { name: memory, address, size, storage, faults: self.faults.clone(), _given: given }))
    }
}

/// `None` if the host itself has not so much.
fn garbage(size: Bytes) -> Option<Vec<u8>> {
    let (len, mut bytes) = (usize::try_from(size.0).ok()?, Vec::new());
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, GARBAGE);
    Some(bytes)
}

/// Bytes that count as given out until this is dropped.
#[derive(Debug)]
struct MemoryCharge {
    counts: Arc<Mutex<MemoryCounts>>,
    size: Bytes,
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.bytes -= self.size.0;
        counts.buffers -= 1;
    }
}

/// The bytes of a buffer, and of which memory they are.
#[derive(Debug)]
pub(super) struct Storage {
    memory: u64,
    bytes: Mutex<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct TestBuffer {
    name: String,
    address: u64,
    size: Bytes,
    storage: Arc<Storage>,
    faults: Faults,
    _given: MemoryCharge,
}

impl TestBuffer {
    fn range(&self, offset: Offset, size: Bytes) -> Result<Range<usize>, DeviceError> {
        let room = self.size;
        match offset.0.checked_add(size.0).filter(|end| *end <= room.0) {
            // Both are at most the length of a vector.
            Some(end) => Ok(offset.0 as usize..end as usize),
            None => Err(DeviceError::Outside { memory: self.name.clone(), offset, size, room }),
        }
    }

    fn fail_if_told(&self, size: Bytes) -> Result<(), DeviceError> {
        if size > Bytes::ZERO { self.faults.check(FaultPoint::Copy, &self.name) } else { Ok(()) }
    }

    /// The bytes of a transfer that is about to be made.
    fn transfer(&self, offset: Offset, size: Bytes) -> Result<Range<usize>, DeviceError> {
        let range = self.range(offset, size)?;
        self.fail_if_told(size)?;
        Ok(range)
    }
}

impl Buffer for TestBuffer {
    fn size(&self) -> Bytes {
        self.size
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = self.transfer(offset, Bytes(into.len() as u64))?;
        into.copy_from_slice(&lock(&self.storage.bytes)[range]);
        Ok(())
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let range = self.transfer(offset, Bytes(from.len() as u64))?;
        lock(&self.storage.bytes)[range].copy_from_slice(from);
        Ok(())
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        let range = self.transfer(offset, size)?;
        lock(&self.storage.bytes)[range].fill(byte);
        Ok(())
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        let (from, to) = (self.range(from, size)?, self.range(to, size)?);
        self.fail_if_told(size)?;
        lock(&self.storage.bytes).copy_within(from, to.start);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Drop for TestBuffer {
    fn drop(&mut self) {
        // Only a stream can still have them.
        if Arc::strong_count(&self.storage) > 1 {
            lock(&self.storage.bytes).fill(GONE);
        }
    }
}

/// Bytes that streams work on, whatever has become of the handle.
#[derive(Clone, Debug)]
pub(super) enum BufferBytes {
    /// In the memory of a device.
    Device(Arc<Storage>),
    /// In host memory. Its handle is borrowed for each piece of work.
    Host(SharedBuffer),
}

/// Whose memory a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryOwner {
    /// The device's own.
    Own,
    /// That of another device of this kind.
    Peer,
    /// The host's.
    Host,
    /// The memory of a device outside of this group.
    Foreign,
}

/// How a task uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferUse {
    Read,
    Write,
}

/// How long a stream tries to borrow a host buffer.
const PATIENCE: Duration = Duration::from_secs(5);

impl BufferBytes {
    /// The bytes behind a handle, which must be free for such a use now; `None` for memory of a device that is not of
    /// this kind.
    pub(super) fn of(buffer: &SharedBuffer, usage: BufferUse) -> Result<Option<Self>, DeviceError> {
        let storage = |buffer: &dyn Buffer| {
            buffer.as_any().downcast_ref::<TestBuffer>().map(|buffer| Arc::clone(&buffer.storage))
        };
        let storage = match usage {
            BufferUse::Read => storage(&*buffer.borrow()?),
            BufferUse::Write => storage(&*buffer.borrow_mut()?),
        };
        Ok(match storage {
            Some(storage) => Some(Self::Device(storage)),
            None => buffer.memory().is_host().then(|| Self::Host(buffer.clone())),
        })
    }

    /// Whose it is, for the device whose memory has this number.
    pub(super) fn whose(&self, own: u64) -> MemoryOwner {
        match self {
            Self::Host(_) => MemoryOwner::Host,
            Self::Device(storage) if storage.memory == own => MemoryOwner::Own,
            Self::Device(_) => MemoryOwner::Peer,
        }
    }

    /// Returns whether both are the same bytes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device(one), Self::Device(other)) => Arc::ptr_eq(one, other),
            (Self::Host(one), Self::Host(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// Copies bytes out. A stream comes through its gate.
    pub(super) fn load(&self, gate: Option<&HostGate>, offset: usize, into: &mut [u8]) -> Result<(), DeviceError> {
        match self {
            Self::Device(storage) => {
                into.copy_from_slice(&lock(&storage.bytes)[offset..offset + into.len()]);
                Ok(())
            }
            Self::Host(buffer) => through(gate, || {
                let (offset, size) = (Offset(offset as u64), Bytes(into.len() as u64));
                let reading = patiently(|| buffer.borrow())?;
                // Not by the buffer's own methods, which a tracer may count as the host's.
                match Span::of(&*reading, offset, size) {
                    Some(span) => into.copy_from_slice(span?.as_slice()),
                    None => reading.read(offset, into)?,
                }
                Ok(())
            }),
        }
    }

    /// Copies bytes in. A stream comes through its gate.
    pub(super) fn store(&self, gate: Option<&HostGate>, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        match self {
            Self::Device(storage) => {
                lock(&storage.bytes)[offset..offset + from.len()].copy_from_slice(from);
                Ok(())
            }
            Self::Host(buffer) => through(gate, || {
                let (offset, size) = (Offset(offset as u64), Bytes(from.len() as u64));
                let mut writing = patiently(|| buffer.borrow_mut())?;
                if let Some(span) = SpanMut::of(&mut *writing, offset, size) {
                    span?.as_slice_mut().copy_from_slice(from);
                    return Ok(());
                }
                writing.write(offset, from)
            }),
        }
    }
}

fn through<R>(gate: Option<&HostGate>, act: impl FnOnce() -> R) -> R {
    match gate {
        Some(gate) => gate.pass(act),
        None => act(),
    }
}

/// Other streams may be at work in the same buffer, for a moment.
fn patiently<R>(borrow: impl Fn() -> Result<R, DeviceError>) -> Result<R, DeviceError> {
    let start = Instant::now();
    loop {
        match borrow() {
            Err(DeviceError::InUse { .. }) if start.elapsed() < PATIENCE => std::thread::yield_now(),
            other => return other,
        }
    }
}
