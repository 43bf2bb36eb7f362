//! One graph in memory, to be written, run and read.

use steeve_device::Bindings;
use steeve_graph::{Graph, TensorId};
use steeve_runtime::{Allocation, GraphAllocator};

use crate::graphs::{graph, host, tensor};

/// A graph in memory of its own, with the allocator that owns it.
pub(crate) struct World {
    pub(crate) graph: Graph,
    pub(crate) allocator: GraphAllocator,
    pub(crate) allocation: Allocation,
}

impl World {
    /// In memory of this process.
    pub(crate) fn new(text: &str) -> Self {
        Self::with(graph(text), &Bindings::new())
    }

    /// The same with external memory.
    pub(crate) fn with(graph: Graph, bindings: &Bindings) -> Self {
        let mut allocator = GraphAllocator::new(&host());
        let allocation = allocator.alloc(&graph, bindings).unwrap();
        Self { graph, allocator, allocation }
    }

    pub(crate) fn id(&self, name: &str) -> TensorId {
        tensor(&self.graph, name)
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<f32>, String> {
        self.allocation.read(self.id(name)).map_err(|error| error.to_string())
    }

    pub(crate) fn write(&self, name: &str, data: &[f32]) -> Result<(), String> {
        self.allocation.write(self.id(name), data).map_err(|error| error.to_string())
    }

    /// A run in which nobody computes anything.
    pub(crate) fn run(&self) -> Result<(), String> {
        self.allocation.begin().map(|run| run.finish()).map_err(|error| error.to_string())
    }
}
