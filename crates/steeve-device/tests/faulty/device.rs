//! A device that is wrong in one way.

use std::sync::{Arc, Mutex};

use steeve_device::{
    Align, Backend, Buffer, BufferType, Bytes, Device, DeviceError, DeviceKind, DiscreteDevice, Graph, HostMemory,
    MemoryInfo, MemorySpec, TensorId,
};

/// In which way a device is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceFault {
    None,
    NoName,
    NoDescription,
    TwinTypes,
    FreeAboveTotal,
    DefaultIsLast,
    NoDefault,
    CantReadItself,
    SupportsWithoutBackend,
    KeepsBuffers,
    /// Keeps what it has counted for a buffer that it then refuses.
    KeepsRefusals,
    CountsHalf,
}

/// A discrete device, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct FaultyDevice {
    inner: DiscreteDevice,
    types: Vec<Arc<dyn BufferType>>,
    fault: DeviceFault,
}

impl FaultyDevice {
    pub(crate) fn new(fault: DeviceFault) -> Self {
        let spec = MemorySpec::new("gpu").with_capacity(Bytes(1 << 28)).with_max_size(Bytes(1 << 23));
        let inner = DiscreteDevice::new(spec);
        let first = Arc::clone(&inner.buffer_types()[0]);
        let kept = Arc::new(LeakingMemory { inner: Arc::clone(&first), fault, kept: Mutex::default() });
        let second = if fault == DeviceFault::TwinTypes { "gpu" } else { "pinned" };
        let types: Vec<Arc<dyn BufferType>> = vec![kept, Arc::new(HostMemory::named(second))];
        Self { inner, types, fault }
    }
}

impl Device for FaultyDevice {
    fn name(&self) -> &str {
        if self.fault == DeviceFault::NoName { "" } else { "GPU0" }
    }

    fn description(&self) -> &str {
        if self.fault == DeviceFault::NoDescription { "" } else { "a test" }
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Gpu
    }

    fn memory(&self) -> MemoryInfo {
        let info = self.inner.memory();
        match self.fault {
            DeviceFault::FreeAboveTotal => MemoryInfo { total: Bytes(info.free.0 - 1), ..info },
            DeviceFault::CountsHalf => {
                MemoryInfo { free: Bytes(info.total.0 - (info.total.0 - info.free.0) / 2), ..info }
            }
            _ => info,
        }
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn default_buffer_type(&self) -> Option<&Arc<dyn BufferType>> {
        match self.fault {
            DeviceFault::DefaultIsLast => self.types.last(),
            DeviceFault::NoDefault => None,
            _ => self.types.first(),
        }
    }

    fn reads(&self, memory: &Arc<dyn BufferType>) -> bool {
        self.fault != DeviceFault::CantReadItself || memory.name() != "gpu"
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        if self.fault == DeviceFault::SupportsWithoutBackend { Ok(()) } else { self.inner.supports(graph, node) }
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        self.inner.backend()
    }
}

/// A memory that keeps some of what it should give back.
#[derive(Debug)]
struct LeakingMemory {
    inner: Arc<dyn BufferType>,
    fault: DeviceFault,
    kept: Mutex<Vec<Box<dyn Buffer>>>,
}

impl BufferType for LeakingMemory {
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
        false
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let keep = |size| -> Result<(), DeviceError> {
            self.kept.lock().unwrap().push(self.inner.allocate(Bytes(size))?);
            Ok(())
        };
        let buffer = self.inner.allocate(size);
        match self.fault {
            DeviceFault::KeepsBuffers => keep(16)?,
            DeviceFault::KeepsRefusals if buffer.is_err() => keep(16)?,
            _ => {}
        }
        buffer
    }
}
