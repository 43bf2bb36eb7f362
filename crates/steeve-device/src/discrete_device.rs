//! A device for tests whose memory is reached by copies only.
//!
//! Its addresses are made up, so they are of no use as pointers; its bytes are garbage until they are written; and
//! faults can be injected.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use steeve_graph::{Align, Bytes, Fusion, Graph, Offset, TensorId, Tensors};

use crate::ledger::LedgerEntry;
use crate::{
    Backend, Buffer, BufferType, Device, DeviceError, DeviceKind, InitTensor, Ledger, MemoryInfo, MemorySpec, Padding,
};

/// A device for tests with memory apart from the host's, limits and injected faults.
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
    /// Returns a device with one memory of these properties.
    pub fn new(spec: impl Into<MemorySpec>) -> Self {
        Self::with(spec.into(), Ledger::default(), Faults::default(), None)
    }

    /// Returns this device with buffers that record each tensor that is placed in them.
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

    /// Returns the ledger of its allocations.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns its injected faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the tensors placed in its buffers since they were last reset, in order.
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

/// The faults to inject into a device. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<PendingFaults>>);

#[derive(Clone, Copy, Debug, Default)]
struct PendingFaults {
    /// The number of allocations that succeed before one fails; `None` for all.
    allocations: Option<u64>,
    /// The size above which buffers are refused.
    refuse_above: Option<Bytes>,
    /// The number of transfers that succeed before one fails; `None` for all.
    transfers: Option<u64>,
}

impl Faults {
    /// Makes the allocation after the next `count` ones fail, and none after it.
    pub fn fail_after(&self, count: u64) {
        self.with(|fault| fault.allocations = Some(count));
    }

    /// Refuses buffers larger than `size`.
    pub fn refuse_above(&self, size: Bytes) {
        self.with(|fault| fault.refuse_above = Some(size));
    }

    /// Makes the transfer (read, write, fill or copy) after the next `count` ones fail, and none after it. A copy
    /// between two buffers reads one and writes the other; transfers of no bytes do not count.
    pub fn fail_transfer_after(&self, count: u64) {
        self.with(|fault| fault.transfers = Some(count));
    }

    /// Removes all faults.
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

/// Counts down. Returns whether the count was zero, and stops counting then.
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
        // Far from each other and from any valid pointer.
        let address =
            self.next_address.fetch_add(1, Ordering::Relaxed).wrapping_mul(1 << 48) & !(self.spec.align.get() - 1);
        let (spec, faults, inits) = (self.spec.clone(), self.faults.clone(), self.inits.clone());
        Ok(Box::new(DiscreteBuffer { spec, address, bytes, faults, inits, entry }))
    }
}

/// Returns bytes that are not zero, so that code which relies on zeros fails.
///
/// # Errors
///
/// If the host has not enough memory.
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
    /// Returns the range of a transfer, which fails here if a fault is injected.
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

/// The tensors placed since the last reset.
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
