//! A device with memory of its own that can be reached by copies only: for tests.
//!
//! Its addresses are made up, so whoever takes one for a pointer gets nowhere; its bytes are garbage until they are written;
//! and it fails when it is told to.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use steeve_graph::{Align, Bytes, Fusion, Graph, Offset, TensorId, Tensors};

use crate::ledger::LedgerEntry;
use crate::{
    Backend, Buffer, BufferType, Device, DeviceError, DeviceKind, InitTensor, Ledger, MemoryInfo, MemorySpec, Padding,
};

/// A device for tests: memory apart from the host's, with limits and faults as one likes.
///
/// ```
/// use steeve_device::{Bytes, Device, DiscreteDevice, MemorySpec, SharedBuffer, Usage};
/// let device = DiscreteDevice::new(MemorySpec::new("gpu").with_max_size(Bytes(4096)));
/// let memory = &device.buffer_types()[0];
/// device.faults().fail_after(1);
/// assert!(SharedBuffer::allocate(memory, Bytes(1024), Usage::Any).is_ok());
/// let error = SharedBuffer::allocate(memory, Bytes(1024), Usage::Any).unwrap_err();
/// assert_eq!(error.to_string(), "gpu: injected fault: allocation 1");
/// assert_eq!(device.ledger().live(), Bytes(0));
/// # Ok::<(), steeve_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct DiscreteDevice {
    spec: MemorySpec,
    ledger: Ledger,
    faults: Faults,
    inits: Option<InitLog>,
    types: [Arc<dyn BufferType>; 1],
}

impl DiscreteDevice {
    /// A device with one such memory.
    pub fn new(spec: impl Into<MemorySpec>) -> Self {
        Self::with(spec.into(), Ledger::default(), Faults::default(), None)
    }

    /// The same with buffers that want to see each tensor that is placed in them.
    #[must_use]
    pub fn with_init_hook(self) -> Self {
        Self::with(self.spec, self.ledger, self.faults, Some(InitLog::default()))
    }

    fn with(spec: MemorySpec, ledger: Ledger, faults: Faults, inits: Option<InitLog>) -> Self {
        let memory = DiscreteMemory {
            spec: spec.clone(),
            ledger: ledger.clone(),
            faults: faults.clone(),
            inits: inits.clone(),
            next_address: AtomicU64::new(1),
        };
        Self { spec, ledger, faults, inits, types: [Arc::new(memory)] }
    }

    /// What it has given out.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What it is told to fail at.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The tensors that its buffers have seen since they were last reset, in order.
    pub fn seen(&self) -> Vec<(TensorId, Offset)> {
        self.inits.as_ref().map(InitLog::list).unwrap_or_default()
    }
}

impl Device for DiscreteDevice {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Gpu
    }

    fn memory(&self) -> MemoryInfo {
        self.ledger.info(self.spec.capacity)
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        Err(DeviceError::unsupported(&self.spec.name, graph, node, NO_COMPUTE))
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        Err(DeviceError::Failed { device: self.spec.name.clone(), why: NO_COMPUTE.into() })
    }
}

const NO_COMPUTE: &str = "this device has memory only";

/// What a device is told to fail at. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<PendingFaults>>);

#[derive(Clone, Copy, Debug, Default)]
struct PendingFaults {
    /// How many more allocations succeed; `None` for all.
    allocations: Option<u64>,
    /// Buffers above this are refused.
    refuse_above: Option<Bytes>,
    /// How many more transfers succeed; `None` for all.
    transfers: Option<u64>,
}

impl Faults {
    /// The next `count` allocations succeed; the one behind them fails, and those behind that succeed again.
    pub fn fail_after(&self, count: u64) {
        self.with(|fault| fault.allocations = Some(count));
    }

    /// Buffers above `size` are refused.
    pub fn refuse_above(&self, size: Bytes) {
        self.with(|fault| fault.refuse_above = Some(size));
    }

    /// The next `count` reads, writes, fills and copies succeed; the one behind them fails, and those behind that succeed
    /// again. A copy between two buffers reads one and writes the other; what moves no byte does not count.
    pub fn fail_transfer_after(&self, count: u64) {
        self.with(|fault| fault.transfers = Some(count));
    }

    /// Nothing fails any more.
    pub fn clear(&self) {
        self.with(|fault| *fault = PendingFaults::default());
    }

    fn allocation_fails(&self) -> bool {
        self.with(|fault| count_down(&mut fault.allocations))
    }

    fn transfer_fails(&self) -> bool {
        self.with(|fault| count_down(&mut fault.transfers))
    }

    fn with<R>(&self, act: impl FnOnce(&mut PendingFaults) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether it was zero; then it counts no more.
fn count_down(count: &mut Option<u64>) -> bool {
    match count {
        Some(0) => {
            *count = None;
            true
        }
        Some(more) => {
            *more -= 1;
            false
        }
        None => false,
    }
}

#[derive(Debug)]
struct DiscreteMemory {
    spec: MemorySpec,
    ledger: Ledger,
    faults: Faults,
    inits: Option<InitLog>,
    next_address: AtomicU64,
}

impl BufferType for DiscreteMemory {
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
        self.spec.as_padding()
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let number = self.ledger.ask();
        let memory = self.spec.name.clone();
        if self.faults.allocation_fails() {
            return Err(DeviceError::Failed { device: memory, why: format!("injected fault: allocation {number}") });
        }
        if let Some(max) = self.faults.with(|fault| fault.refuse_above).filter(|max| size > *max) {
            return Err(DeviceError::TooLarge { memory, asked: size, max });
        }
        let entry = self.ledger.enter(&self.spec, size)?;
        let bytes = garbage(&memory, size)?;
        // Far from each other and from anything that could be a pointer here.
        let address =
            self.next_address.fetch_add(1, Ordering::Relaxed).wrapping_mul(1 << 48) & !(self.spec.align.get() - 1);
        let (spec, faults, inits) = (self.spec.clone(), self.faults.clone(), self.inits.clone());
        Ok(Box::new(DiscreteBuffer { spec, address, bytes, faults, inits, entry }))
    }
}

/// Nobody may count on zeros. An error if the host itself has not so much.
fn garbage(memory: &str, size: Bytes) -> Result<Vec<u8>, DeviceError> {
    let (len, mut bytes) = (usize::try_from(size.0).unwrap_or(usize::MAX), Vec::new());
    let out_of_memory = |_| DeviceError::OutOfMemory { memory: memory.into(), asked: size, left: None };
    bytes.try_reserve_exact(len).map_err(out_of_memory)?;
    bytes.resize(len, 0xA5);
    Ok(bytes)
}

#[derive(Debug)]
struct DiscreteBuffer {
    spec: MemorySpec,
    address: u64,
    bytes: Vec<u8>,
    faults: Faults,
    inits: Option<InitLog>,
    entry: LedgerEntry,
}

impl DiscreteBuffer {
    /// The bytes of a transfer that is about to be made.
    fn transfer(&self, offset: Offset, size: Bytes) -> Result<Range<usize>, DeviceError> {
        let range = self.range(offset, size)?;
        self.fail_if_told(size)?;
        Ok(range)
    }

    fn range(&self, offset: Offset, size: Bytes) -> Result<Range<usize>, DeviceError> {
        DeviceError::check_bounds(&self.spec.name, offset, size, Bytes(self.bytes.len() as u64))?;
        // Both are at most the length of a vector.
        Ok(offset.0 as usize..(offset.0 + size.0) as usize)
    }

    fn fail_if_told(&self, size: Bytes) -> Result<(), DeviceError> {
        if size > Bytes::ZERO && self.faults.transfer_fails() {
            return Err(DeviceError::Failed { device: self.spec.name.clone(), why: "injected fault: transfer".into() });
        }
        Ok(())
    }
}

impl Buffer for DiscreteBuffer {
    fn size(&self) -> Bytes {
        Bytes(self.bytes.len() as u64)
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = self.transfer(offset, Bytes(into.len() as u64))?;
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let range = self.transfer(offset, Bytes(from.len() as u64))?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        let range = self.transfer(offset, size)?;
        self.bytes[range].fill(byte);
        Ok(())
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        let (from, to) = (self.range(from, size)?, self.range(to, size)?);
        self.fail_if_told(size)?;
        self.bytes.copy_within(from, to.start);
        Ok(())
    }

    fn grow(&mut self, size: Bytes) -> Result<bool, DeviceError> {
        if !self.spec.grows {
            return Ok(false);
        }
        let more = garbage(&self.spec.name, Bytes(size.0.saturating_sub(self.bytes.len() as u64)))?;
        self.entry.grow(&self.spec, size)?;
        self.bytes.extend(more);
        Ok(true)
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        if let Some(inits) = &self.inits {
            inits.with(Vec::clear);
        }
        Ok(())
    }

    fn init_hook(&mut self) -> Option<&mut dyn InitTensor> {
        self.inits.as_mut().map(|inits| inits as &mut dyn InitTensor)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The tensors that were set up since the last reset.
#[derive(Clone, Debug, Default)]
struct InitLog(Arc<Mutex<Vec<(TensorId, Offset)>>>);

impl InitLog {
    fn list(&self) -> Vec<(TensorId, Offset)> {
        self.with(|list| list.clone())
    }

    fn with<R>(&self, act: impl FnOnce(&mut Vec<(TensorId, Offset)>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl InitTensor for InitLog {
    fn init_tensor(&mut self, _: &Tensors, tensor: TensorId, offset: Offset) -> Result<(), DeviceError> {
        self.with(|list| list.push((tensor, offset)));
        Ok(())
    }
}
