//! Devices, and the list of those there are.

use std::fmt::Debug;
use std::sync::Arc;

use steeve_graph::{Bytes, Graph, TensorId};

use crate::{Backend, BufferType, DeviceError};

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A graphics processor with memory of its own.
    Gpu,
    /// A graphics processor that shares the host's memory.
    IntegratedGpu,
    /// Something that helps the processor with some operations.
    Accelerator,
    /// The processor.
    Cpu,
    /// Nothing that computes: for planning.
    Planning,
}

/// How much memory a device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What can still be had.
    pub free: Bytes,
    /// All of it.
    pub total: Bytes,
}

/// Something with memory that perhaps runs graphs.
pub trait Device: Send + Sync + Debug {
    /// A short name that no other device has: `CUDA0`.
    fn name(&self) -> &str;

    /// A name for people: that of the product.
    fn description(&self) -> &str {
        self.name()
    }

    /// What it is.
    fn kind(&self) -> DeviceKind;

    /// How much memory it has.
    fn memory(&self) -> MemoryInfo;

    /// The kinds of memory it gives out. The first is the default.
    fn buffer_types(&self) -> &[Arc<dyn BufferType>];

    /// The kind of memory it computes in, unless told otherwise.
    fn default_buffer_type(&self) -> Option<&Arc<dyn BufferType>> {
        self.buffer_types().first()
    }

    /// Memory of the host that it copies to and from by itself, while others work, if it has such: pinned memory. Who
    /// computes on the host beside it does well to keep results there.
    fn host_memory(&self) -> Option<&Arc<dyn BufferType>> {
        None
    }

    /// Whether its backends can read and write memory of this type, its own or another's.
    fn reads(&self, memory: &Arc<dyn BufferType>) -> bool {
        self.buffer_types().iter().any(|own| Arc::ptr_eq(own, memory))
    }

    /// Whether its backends can run a node; if not, why.
    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError>;

    /// Whether it is worth moving a node here although its weights are in the memory of the host and have to be copied for
    /// it. A product with many columns is, on a fast device.
    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        let _ = (graph, node);
        false
    }

    /// A stream of work on it.
    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError>;
}

/// The devices there are, in the order in which they were registered.
///
/// ```
/// use std::sync::Arc;
/// use steeve_device::{Bytes, DeviceKind, DiscreteDevice, MemorySpec, NullDevice, Registry};
/// let gpu = |name: &str, bytes| Arc::new(DiscreteDevice::new(MemorySpec::new(name).with_capacity(Bytes(bytes))));
/// let mut registry = Registry::new();
/// registry.register(Arc::new(NullDevice::new("plan")));
/// registry.register(gpu("small", 1 << 20));
/// registry.register(gpu("large", 1 << 30));
/// assert_eq!(registry.best_of(DeviceKind::Gpu).map(|device| device.name()), Some("large"));
/// assert_eq!(registry.best().map(|device| device.name()), Some("large"));
/// assert!(registry.by_name("CUDA7").is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    devices: Vec<Arc<dyn Device>>,
}

impl Registry {
    /// No device yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device; one of the same name is replaced.
    pub fn register(&mut self, device: Arc<dyn Device>) {
        match self.devices.iter_mut().find(|known| known.name() == device.name()) {
            Some(known) => *known = device,
            None => self.devices.push(device),
        }
    }

    /// All of them.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// The one called `name`.
    pub fn by_name(&self, name: &str) -> Option<&Arc<dyn Device>> {
        self.devices.iter().find(|device| device.name() == name)
    }

    /// Of those of one kind the one with the most free memory; the first of equals.
    pub fn best_of(&self, kind: DeviceKind) -> Option<&Arc<dyn Device>> {
        let of_kind = self.devices.iter().filter(|device| device.kind() == kind);
        // `max_by_key` takes the last of equals, so ask from behind.
        of_kind.rev().max_by_key(|device| device.memory().free)
    }

    /// The best device that computes: a GPU, else an integrated one, else an accelerator, else the processor.
    pub fn best(&self) -> Option<&Arc<dyn Device>> {
        [DeviceKind::Gpu, DeviceKind::IntegratedGpu, DeviceKind::Accelerator, DeviceKind::Cpu]
            .into_iter()
            .find_map(|kind| self.best_of(kind))
    }
}
