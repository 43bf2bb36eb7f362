//! A device with memory of its own, which computes.

use std::fmt;
use std::sync::Arc;

use steeve_cpu::CpuBackend;
use steeve_device::{
    Backend, BufferType, Bytes, Device, DeviceError, DeviceKind, Graph, MemoryInfo, MemorySpec, TensorId,
};

use super::TestSystem;
use super::backend::TestBackend;
use super::faults::Faults;
use super::latency::Latency;
use super::memory::TestMemory;
use super::staged_nodes::own_error;

/// A question about a node.
type Predicate = Arc<dyn Fn(&Graph, TensorId) -> bool + Send + Sync>;

/// A device with memory that the host reaches by copies only. It computes by the kernels of the processor, to the bit.
///
/// ```text
/// let world = TestSystem::new();
/// let gpu = world.device("gpu").asynchronous(true).jitter(7, 50).without(|graph, node| ..);
/// gpu.faults().fail_submit_after(3);
/// ```
#[derive(Clone)]
pub struct TestDevice {
    config: DeviceConfig,
    memory: Arc<TestMemory>,
    types: [Arc<dyn BufferType>; 1],
    faults: Faults,
    cpu: Arc<CpuBackend>,
}

/// The properties of a test device.
#[derive(Clone)]
pub(super) struct DeviceConfig {
    pub(super) world: TestSystem,
    pub(super) name: String,
    kind: Option<DeviceKind>,
    missing: Option<Predicate>,
    offloaded: Option<Predicate>,
    pub(super) asynchronous: bool,
    pub(super) nodes: Latency,
    pub(super) copies: Latency,
    pub(super) copies_host: bool,
    pub(super) copies_peers: bool,
    pub(super) reads_host: bool,
    pub(super) host: Option<Arc<dyn BufferType>>,
}

impl TestDevice {
    pub(super) fn new(world: &TestSystem, spec: MemorySpec) -> Self {
        let (name, faults) = (spec.name.clone(), Faults::default());
        let memory = Arc::new(TestMemory::new(world, spec, faults.clone()));
        let shown: Arc<dyn BufferType> = Arc::<TestMemory>::clone(&memory);
        world.add_memory(&shown);
        Self::with(world, name, memory, shown, faults)
    }

    /// Returns another device that computes in the memory of this one. Allocations and accesses by the host fail by the
    /// faults of this one.
    pub fn sharing(&self, name: &str) -> Self {
        let (memory, shown) = (Arc::clone(&self.memory), Arc::clone(&self.types[0]));
        Self::with(&self.config.world, name.into(), memory, shown, Faults::default())
    }

    fn with(
        world: &TestSystem,
        name: String,
        memory: Arc<TestMemory>,
        shown: Arc<dyn BufferType>,
        faults: Faults,
    ) -> Self {
        let config = DeviceConfig {
            world: world.clone(),
            name,
            kind: None,
            missing: None,
            offloaded: None,
            asynchronous: false,
            nodes: Latency::Quick,
            copies: Latency::Quick,
            copies_host: true,
            copies_peers: true,
            reads_host: false,
            host: None,
        };
        Self { config, memory, types: [shown], faults, cpu: Arc::new(CpuBackend::new(1)) }
    }

    /// It is of this kind. Otherwise it is a GPU, or an integrated one if it reads host memory.
    #[must_use]
    pub fn of_kind(mut self, kind: DeviceKind) -> Self {
        self.config.kind = Some(kind);
        self
    }

    /// It can't run these nodes.
    #[must_use]
    pub fn without(mut self, missing: impl Fn(&Graph, TensorId) -> bool + Send + Sync + 'static) -> Self {
        self.config.missing = Some(Arc::new(missing));
        self
    }

    /// It is worth moving these nodes here.
    #[must_use]
    pub fn offloading(mut self, offloaded: impl Fn(&Graph, TensorId) -> bool + Send + Sync + 'static) -> Self {
        self.config.offloaded = Some(Arc::new(offloaded));
        self
    }

    /// Sets whether each of its backends has a thread that does the work.
    #[must_use]
    pub fn asynchronous(mut self, asynchronous: bool) -> Self {
        self.config.asynchronous = asynchronous;
        self
    }

    /// Sets how long each node waits before it reads, and before it writes.
    #[must_use]
    pub fn slow_nodes(mut self, pace: Latency) -> Self {
        self.config.nodes = pace;
        self
    }

    /// Sets how long each half of a copy, write or read waits.
    #[must_use]
    pub fn slow_copies(mut self, pace: Latency) -> Self {
        self.config.copies = pace;
        self
    }

    /// Nodes and copies let wait for 0 to below `micros` microseconds, by the seed.
    #[must_use]
    pub fn jitter(self, seed: u64, micros: u64) -> Self {
        self.slow_nodes(Latency::Jitter { seed, micros }).slow_copies(Latency::Jitter { seed: !seed, micros })
    }

    /// Its backends can't enqueue copies from or to host memory.
    #[must_use]
    pub fn without_host_copies(mut self) -> Self {
        self.config.copies_host = false;
        self
    }

    /// Its backends can't enqueue copies from or to the memory of other devices.
    #[must_use]
    pub fn without_peer_copies(mut self) -> Self {
        self.config.copies_peers = false;
        self
    }

    /// It computes in host memory too.
    #[must_use]
    pub fn reading_host(mut self) -> Self {
        self.config.reads_host = true;
        self
    }

    /// It copies to and from this memory of the host by itself.
    #[must_use]
    pub fn with_host_memory(mut self, memory: &Arc<dyn BufferType>) -> Self {
        self.config.host = Some(Arc::clone(memory));
        self
    }

    /// Returns its injected faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Its memory.
    pub fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.types[0]
    }

    /// The bytes of all buffers that exist.
    pub fn live(&self) -> Bytes {
        self.memory.live()
    }

    /// The most bytes there ever were at a time.
    pub fn peak(&self) -> Bytes {
        self.memory.peak()
    }

    /// Returns how many buffers exist.
    pub fn buffers(&self) -> u64 {
        self.memory.buffers()
    }
}

impl DeviceConfig {
    /// Checks that it runs a node, which the kernels of `cpu` must support.
    pub(super) fn supports(&self, cpu: &CpuBackend, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        cpu.supports(graph, node).map_err(|error| own_error(&self.name, error))?;
        match &self.missing {
            Some(missing) if missing(graph, node) => {
                Err(DeviceError::unsupported(&self.name, graph, node, "this device is made without it"))
            }
            _ => Ok(()),
        }
    }
}

impl Device for TestDevice {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn description(&self) -> &str {
        "a device for tests"
    }

    fn kind(&self) -> DeviceKind {
        let usual = if self.config.reads_host { DeviceKind::IntegratedGpu } else { DeviceKind::Gpu };
        self.config.kind.unwrap_or(usual)
    }

    fn memory(&self) -> MemoryInfo {
        self.memory.info()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn host_memory(&self) -> Option<&Arc<dyn BufferType>> {
        self.config.host.as_ref()
    }

    fn reads(&self, memory: &Arc<dyn BufferType>) -> bool {
        Arc::ptr_eq(memory, &self.types[0]) || self.config.reads_host && memory.is_host()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.config.supports(&self.cpu, graph, node)
    }

    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        self.config.offloaded.as_ref().is_some_and(|offloaded| offloaded(graph, node))
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        let (memory, shown) = (self.memory.number(), &self.types[0]);
        Ok(Box::new(TestBackend::new(self.config.clone(), memory, shown, self.faults.clone())?))
    }
}

impl fmt::Debug for TestDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDevice").field("name", &self.config.name).finish_non_exhaustive()
    }
}
