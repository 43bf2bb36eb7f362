//! steeve's side: what a program does with it in the place of ggml's allocator.

use std::sync::Arc;

use steeve_device::{Bindings, BufferType, Device, DeviceError, NullDevice, SharedBuffer, Usage};
use steeve_graph::{AssignedGraph, Bytes, Context, DataType, Graph, GraphError, GraphPlan, Id, MemoryId, Offset};
use steeve_runtime::sched::SchedError;
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator};

use crate::counted::CountedMemory;

/// An allocator that keeps one plan, and memory for what is external.
pub struct Ours {
    allocator: GraphAllocator,
    bindings: Bindings,
    other: Graph,
}

/// Why steeve has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OurError {
    /// The allocator's.
    #[error(transparent)]
    Alloc(Box<AllocError>),
    /// The device's.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The scheduler's.
    #[error(transparent)]
    Sched(Box<SchedError>),
    /// A graph could not be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl Ours {
    /// An allocator with a device for each memory of a graph, and memory for its external tensors.
    pub fn new(assigned: &AssignedGraph) -> Result<Self, OurError> {
        let memory = |id: MemoryId| -> Arc<dyn BufferType> { Arc::new(CountedMemory::new(assigned, id)) };
        let memories: Vec<_> = assigned.memories().ids().map(memory).collect();
        let owner = |id: MemoryId| Arc::clone(&memories[assigned.owner(id).index()]);
        let allocator = GraphAllocator::with_buffers(assigned.memories().ids().map(owner))?;
        let mut context = Context::new();
        let any = context.input(DataType::F32, &[1])?;
        Ok(Self {
            allocator: allocator.with_options(AllocOptions::new().with_plans(1)),
            bindings: bindings(assigned.graph())?,
            other: Graph::from_outputs(&context, &[any])?,
        })
    }

    /// Forgets the plan and keeps the buffers. Otherwise reserving the same graph would find that nothing is to do.
    pub fn forget(&mut self) -> Result<(), OurError> {
        Ok(self.allocator.reserve(&self.other)?)
    }

    /// Plans the graph and proves the plan, unless it has one, and makes buffers where they are too small.
    pub fn reserve(&mut self, assigned: &AssignedGraph) -> Result<(), OurError> {
        Ok(self.allocator.reserve((assigned.graph(), assigned.assignment()))?)
    }

    /// Says where the tensors of a graph stand whose plan there is: one that was built again, say.
    pub fn alloc(&mut self, graph: &Graph) -> Result<(), OurError> {
        self.allocator.alloc(graph, &self.bindings)?;
        Ok(())
    }

    /// The bytes that a graph needs in all memories; none if it has no plan.
    pub fn peak(&self, graph: &Graph) -> Bytes {
        self.allocator.plan_of(graph).map_or(Bytes::ZERO, GraphPlan::peak)
    }
}

/// The same graph built again: equal, and with no memory in common.
pub fn rebuilt(graph: &Graph) -> Result<Graph, GraphError> {
    graph.clone().into_parts().finish()
}

/// Every external tensor in one large buffer.
fn bindings(graph: &Graph) -> Result<Bindings, OurError> {
    let external = || graph.tensors().pairs().filter(|(_, tensor)| tensor.external);
    let all = external().fold(0u64, |sum, (_, tensor)| sum.saturating_add(tensor.nbytes().0));
    let host = Arc::clone(&NullDevice::new("external").buffer_types()[0]);
    let buffer = SharedBuffer::allocate(&host, Bytes(all), Usage::Weights)?;
    let mut bindings = Bindings::new();
    let mut offset = 0;
    for (id, tensor) in external() {
        bindings.bind(id, &buffer, Offset(offset), tensor.nbytes())?;
        offset += tensor.nbytes().0;
    }
    Ok(bindings)
}

impl From<AllocError> for OurError {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error.into())
    }
}

impl From<SchedError> for OurError {
    fn from(error: SchedError) -> Self {
        Self::Sched(error.into())
    }
}
