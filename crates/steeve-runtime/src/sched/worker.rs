//! A worker: a device, a stream of work on it, and the memory for its results.

use std::sync::Arc;

use steeve_device::{Backend, BufferType, Device, DeviceError};
use steeve_graph::IdVec;

use crate::sched::SchedError;

steeve_plan::id_type! {
    /// A worker of a scheduler. Those with lower numbers come first where several could do the work.
    pub struct WorkerId;
}

/// All workers of a scheduler, in order of priority.
pub(crate) type Workers = IdVec<WorkerId, Worker>;

/// A device, a stream of work on it, and the memory for its results.
///
/// ```
/// use std::sync::Arc;
/// use steeve_cpu::CpuDevice;
/// use steeve_device::Device;
/// use steeve_runtime::sched::Worker;
/// let device: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(2));
/// let worker = Worker::new(&device)?;
/// assert_eq!(worker.name(), "CPU");
/// # Ok::<(), steeve_runtime::sched::SchedError>(())
/// ```
#[derive(Debug)]
pub struct Worker {
    device: Arc<dyn Device>,
    memory: Arc<dyn BufferType>,
    backend: Option<Box<dyn Backend>>,
}

impl Worker {
    /// Creates a worker with a new stream of work on a device, in the device's own kind of memory.
    pub fn new(device: &Arc<dyn Device>) -> Result<Self, SchedError> {
        Ok(Self::with_backend(device, device.backend()?))
    }

    /// Creates a worker from an existing stream of work.
    pub fn with_backend(device: &Arc<dyn Device>, backend: Box<dyn Backend>) -> Self {
        Self { device: Arc::clone(device), memory: backend.buffer_type(), backend: Some(backend) }
    }

    /// Creates a worker without a stream of work: graphs can be assigned, split and planned, but not computed. Fails if
    /// the device has no memory.
    pub fn for_planning(device: &Arc<dyn Device>) -> Result<Self, SchedError> {
        let Some(memory) = device.default_buffer_type().cloned() else {
            let why = "it has no memory to plan for".into();
            return Err(DeviceError::Failed { device: device.name().into(), why }.into());
        };
        Ok(Self { device: Arc::clone(device), memory, backend: None })
    }

    /// Returns this worker with another kind of memory for its results, which its device must be able to read and
    /// write.
    #[must_use]
    pub fn with_memory(self, memory: &Arc<dyn BufferType>) -> Self {
        Self { memory: Arc::clone(memory), ..self }
    }

    /// Returns the name of the worker, which is that of its device.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Returns the memory for its results.
    pub fn memory(&self) -> &Arc<dyn BufferType> {
        &self.memory
    }

    /// Returns its stream of work. Fails if the worker only plans.
    pub fn backend(&self) -> Result<&dyn Backend, SchedError> {
        self.backend.as_deref().ok_or_else(|| SchedError::PlanningOnly { worker: self.name().into() })
    }

    /// Returns whether work may still be running when a call to the worker returns.
    pub(crate) fn is_async(&self) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.is_async())
    }

    /// Returns whether the worker can enqueue a copy between two kinds of memory.
    pub(crate) fn can_copy(&self, to: &Arc<dyn BufferType>, from: &Arc<dyn BufferType>) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.can_copy(to, from))
    }
}
