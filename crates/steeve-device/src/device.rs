//! Devices and their registry.

use std::fmt::Debug;
use std::sync::Arc;

use steeve_graph::{Bytes, Graph, Op, TensorId};

use crate::{Backend, BufferType, DeviceError};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A graphics processor with memory of its own.
    Gpu,
    /// A graphics processor that shares the host's memory.
    IntegratedGpu,
    /// An accelerator that helps the processor with some operations.
    Accelerator,
    /// The processor.
    Cpu,
    /// A device that computes nothing: for planning.
    Planning,
}

/// The memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The bytes that can still be allocated.
    pub free: Bytes,
    /// All bytes.
    pub total: Bytes,
}

/// A device: some memory, and perhaps backends that run graphs.
pub trait Device: Send + Sync + Debug {
    /// Returns a short name that no other device has: `CUDA0`.
    fn name(&self) -> &str;

    /// Returns a name for people: that of the product.
    fn description(&self) -> &str {
        self.name()
    }

    /// Returns the kind of device.
    fn kind(&self) -> DeviceKind;

    /// Returns how much memory the device has.
    fn memory(&self) -> MemoryInfo;

    /// Returns the types of memory it can allocate. The first is the default.
    fn buffer_types(&self) -> &[Arc<dyn BufferType>];

    /// Returns the type of memory that its backends compute in by default.
    fn default_buffer_type(&self) -> Option<&Arc<dyn BufferType>> {
        self.buffer_types().first()
    }

    /// Returns host memory that the device copies to and from by itself while other devices work (pinned memory), if it
    /// has such. Results of work on the host are best kept there.
    fn host_memory(&self) -> Option<&Arc<dyn BufferType>> {
        None
    }

    /// Returns whether its backends can read and write memory of this type, its own or another's.
    fn reads(&self, memory: &Arc<dyn BufferType>) -> bool {
        self.buffer_types().iter().any(|own| Arc::ptr_eq(own, memory))
    }

    /// Returns whether its backends can run a node.
    ///
    /// # Errors
    ///
    /// If they can't, with the reason.
    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError>;

    /// Returns whether it is worth moving a node here although its weights are in host memory and have to be copied for
    /// it, as for a product with many columns on a fast device.
    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        let _ = (graph, node);
        false
    }

    /// Returns a new stream of work on the device.
    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError>;
}

/// Returns whether a node is a product with so many columns that a fast device computes it sooner than the host, although the
/// weights have to be copied for it: what [`Device::offloads`] is for such devices.
pub fn is_large_product(graph: &Graph, node: TensorId) -> bool {
    const MANY: u64 = 32;
    let columns = |dim: usize| graph.tensor(node).layout.ne()[dim];
    match graph.tensor(node).op {
        Op::MulMat => columns(1) >= MANY,
        Op::MulMatId => columns(2) >= MANY,
        _ => false,
    }
}

/// The registered devices, in order of registration.
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
    /// Returns a registry without devices.
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

    /// Returns all devices.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// Returns the device called `name`.
    pub fn by_name(&self, name: &str) -> Option<&Arc<dyn Device>> {
        self.devices.iter().find(|device| device.name() == name)
    }

    /// Returns the device of one kind that has the most free memory; the first of equals.
    pub fn best_of(&self, kind: DeviceKind) -> Option<&Arc<dyn Device>> {
        let of_kind = self.devices.iter().filter(|device| device.kind() == kind);
        // `max_by_key` returns the last of equals, so the order is reversed.
        of_kind.rev().max_by_key(|device| device.memory().free)
    }

    /// Returns the best device that computes: a GPU, else an integrated one, else an accelerator, else the processor.
    pub fn best(&self) -> Option<&Arc<dyn Device>> {
        [DeviceKind::Gpu, DeviceKind::IntegratedGpu, DeviceKind::Accelerator, DeviceKind::Cpu]
            .into_iter()
            .find_map(|kind| self.best_of(kind))
    }
}
