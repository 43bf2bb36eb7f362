//! A device that only counts bytes: for planning.

use std::any::Any;
use std::sync::Arc;

use steeve_graph::{Align, Bytes, Fusion, Graph, Offset, TensorId};

use crate::device::is_large_product;
use crate::ledger::LedgerEntry;
use crate::{Backend, Buffer, BufferType, Device, DeviceError, DeviceKind, Ledger, MemoryInfo, MemorySpec, Padding};

/// A device whose buffers are numbers. It answers every question about memory, and nothing is allocated.
///
/// ```
/// use steeve_device::{Bytes, Device, MemorySpec, NullDevice, SharedBuffer, Usage};
/// let device = NullDevice::new(MemorySpec::new("gpu").with_capacity(Bytes(80 << 30)));
/// let memory = &device.buffer_types()[0];
/// let buffer = SharedBuffer::allocate(memory, Bytes(50 << 30), Usage::Compute)?;
/// assert_eq!(device.ledger().live(), Bytes(50 << 30));
/// let error = SharedBuffer::allocate(memory, Bytes(50 << 30), Usage::Compute).unwrap_err();
/// assert_eq!(error.to_string(), "gpu: out of memory: requested 53687091200 bytes, 32212254720 bytes available");
/// # Ok::<(), steeve_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct NullDevice {
    spec: MemorySpec,
    ledger: Ledger,
    types: [Arc<dyn BufferType>; 1],
    supports_all: bool,
    offloads: bool,
}

impl NullDevice {
    /// Returns a device with one memory of these properties.
    pub fn new(spec: impl Into<MemorySpec>) -> Self {
        Self::with_memory(spec.into(), Ledger::default(), HostAccess::None)
    }

    fn with_memory(spec: MemorySpec, ledger: Ledger, host: HostAccess) -> Self {
        let memory = NullMemory { spec: spec.clone(), ledger: ledger.clone(), host };
        Self { spec, ledger, types: [Arc::new(memory)], supports_all: false, offloads: false }
    }

    /// Returns this device as a stand-in for one that runs every operation, so that a graph can be scheduled on devices
    /// that do not exist. It still computes nothing.
    #[must_use]
    pub fn as_if_it_computed(self) -> Self {
        Self { supports_all: true, ..self }
    }

    /// Returns this device as a stand-in for a fast one, which wants products with many columns even if their weights are in host
    /// memory and have to be copied for it.
    #[must_use]
    pub fn with_offload(self) -> Self {
        Self { offloads: true, ..self }
    }

    /// Returns this device as a stand-in for the processor, whose memory is the host's. There are still no bytes in it.
    #[must_use]
    pub fn in_host_memory(self) -> Self {
        let Self { spec, ledger, supports_all, offloads, .. } = self;
        Self { supports_all, offloads, ..Self::with_memory(spec, ledger, HostAccess::Direct) }
    }

    /// Returns the ledger of its allocations.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl Device for NullDevice {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Planning
    }

    fn memory(&self) -> MemoryInfo {
        self.ledger.info(self.spec.capacity)
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        if self.supports_all {
            return Ok(());
        }
        Err(DeviceError::unsupported(&self.spec.name, graph, node, NO_COMPUTE))
    }

    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        self.offloads && is_large_product(graph, node)
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        Err(DeviceError::Failed { device: self.spec.name.clone(), why: NO_COMPUTE.into() })
    }
}

const NO_COMPUTE: &str = "this device computes nothing";

#[derive(Debug)]
struct NullMemory {
    spec: MemorySpec,
    ledger: Ledger,
    host: HostAccess,
}

/// Whether a memory stands for one that the host reads and writes directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostAccess {
    None,
    Direct,
}

impl BufferType for NullMemory {
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
        self.host == HostAccess::Direct
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
        self.ledger.ask();
        let entry = self.ledger.enter(&self.spec, size)?;
        Ok(Box::new(NullBuffer { name: self.spec.name.clone(), size, _entry: entry }))
    }
}

#[derive(Debug)]
struct NullBuffer {
    name: String,
    size: Bytes,
    _entry: LedgerEntry,
}

impl NullBuffer {
    /// Returns the error of a transfer: out of bounds first, else that there are no bytes. An empty transfer succeeds.
    fn refuse(&self, offset: Offset, size: Bytes) -> Result<(), DeviceError> {
        self.fits(offset, size)?;
        if size == Bytes::ZERO { Ok(()) } else { Err(DeviceError::NoBytes { memory: self.name.clone() }) }
    }

    fn fits(&self, offset: Offset, size: Bytes) -> Result<(), DeviceError> {
        DeviceError::check_bounds(&self.name, offset, size, self.size)
    }
}

impl Buffer for NullBuffer {
    fn size(&self) -> Bytes {
        self.size
    }

    fn address(&self) -> u64 {
        0
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        self.refuse(offset, Bytes(into.len() as u64))
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.refuse(offset, Bytes(from.len() as u64))
    }

    fn fill(&mut self, offset: Offset, size: Bytes, _byte: u8) -> Result<(), DeviceError> {
        self.refuse(offset, size)
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        self.fits(from, size)?;
        self.refuse(to, size)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
