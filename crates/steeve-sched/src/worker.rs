//! Who computes: a device, a stream of work on it, and the memory that its results stand in.

use std::sync::Arc;

use steeve_device::{Backend, BufferType, Device, DeviceError};
use steeve_graph::IdVec;

use crate::SchedError;

steeve_plan::id_type! {
    /// A worker of a scheduler. Those with lower numbers come first where several could do the work.
    pub struct WorkerId;
}

/// All workers of a scheduler, in order of priority.
pub(crate) type Workers = IdVec<WorkerId, Worker>;

/// A device, a stream of work on it, and the memory that its results stand in.
///
/// ```
/// use std::sync::Arc;
/// use steeve_cpu::CpuDevice;
/// use steeve_device::Device;
/// use steeve_sched::Worker;
/// let device: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(2));
/// let worker = Worker::new(&device)?;
/// assert_eq!(worker.name(), "CPU");
/// # Ok::<(), steeve_sched::SchedError>(())
/// ```
#[derive(Debug)]
pub struct Worker {
    device: Arc<dyn Device>,
    memory: Arc<dyn BufferType>,
    backend: Option<Box<dyn Backend>>,
}

impl Worker {
    /// A new stream of work on a device, in the device's own kind of memory.
    pub fn new(device: &Arc<dyn Device>) -> Result<Self, SchedError> {
        Ok(Self::with_backend(device, device.backend()?))
    }

    /// A stream of work that exists already.
    pub fn with_backend(device: &Arc<dyn Device>, backend: Box<dyn Backend>) -> Self {
        Self { device: Arc::clone(device), memory: backend.buffer_type(), backend: Some(backend) }
    }

    /// Nobody who works: graphs can be assigned, split and planned, and not computed.
    pub fn for_planning(device: &Arc<dyn Device>) -> Result<Self, SchedError> {
        let Some(memory) = device.default_buffer_type().cloned() else {
            let why = "it has no memory to plan for".into();
            return Err(DeviceError::Failed { device: device.name().into(), why }.into());
        };
        Ok(Self { device: Arc::clone(device), memory, backend: None })
    }

    /// The same with its results in another kind of memory, which its device must be able to read and write.
    #[must_use]
    pub fn with_memory(self, memory: &Arc<dyn BufferType>) -> Self {
        Self { memory: Arc::clone(memory), ..self }
    }

    /// What to call it: the name of its device.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Its device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The memory that its results stand in.
    pub fn memory(&self) -> &Arc<dyn BufferType> {
        &self.memory
    }

    /// Its stream of work.
    pub fn backend(&self) -> Result<&dyn Backend, SchedError> {
        self.backend.as_deref().ok_or_else(|| SchedError::PlanningOnly { worker: self.name().into() })
    }

    /// Whether work may still be under way when a call to it returns.
    pub(crate) fn is_async(&self) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.is_async())
    }

    /// Whether it can enqueue a copy between two kinds of memory.
    pub(crate) fn can_copy(&self, to: &Arc<dyn BufferType>, from: &Arc<dyn BufferType>) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.can_copy(to, from))
    }
}
