//! Describes buffer types to the planner. A type that is listed twice is one memory.

use std::sync::Arc;

use steeve_device::BufferType;
use steeve_graph::{AllocSizes, AssignedGraph, Assignment, Bytes, Graph, Id, IdVec, Memory, MemoryId, TensorId};

use crate::AllocError;

/// The buffer types of an allocator, and their descriptions for the planner.
#[derive(Debug)]
pub(crate) struct Memories {
    types: IdVec<MemoryId, Arc<dyn BufferType>>,
    planned: IdVec<MemoryId, Memory>,
    /// Whether a tensor may take more bytes than it spans.
    padded: bool,
}

impl Memories {
    pub(crate) fn new(types: Vec<Arc<dyn BufferType>>) -> Result<Self, AllocError> {
        if types.is_empty() {
            return Err(AllocError::NoBufferType);
        }
        let padded = types.iter().any(|memory| memory.padding().is_some());
        let first = |memory: &Arc<dyn BufferType>| types.iter().position(|other| Arc::ptr_eq(memory, other));
        let planned = types.iter().enumerate().map(|(index, memory)| {
            let shared_with = first(memory).filter(|first| *first < index).and_then(MemoryId::from_index);
            let (max_buffer, hold, fusion) = (memory.max_size(), memory.hold(), memory.fusion());
            Memory {
                max_buffer,
                extra_lifetime: hold,
                fusion,
                shared_with,
                ..Memory::new(memory.name(), memory.align())
            }
        });
        let planned: IdVec<MemoryId, Memory> = planned.collect::<Vec<_>>().into();
        Ok(Self { types: types.into(), planned, padded })
    }

    /// Returns the descriptions for the planner.
    pub(crate) fn planned(&self) -> &IdVec<MemoryId, Memory> {
        &self.planned
    }

    pub(crate) fn memory_type(&self, memory: MemoryId) -> &Arc<dyn BufferType> {
        &self.types[memory]
    }

    /// Returns the memories that share no other's, in order: the planner has a plan for each of these.
    pub(crate) fn owners(&self) -> impl Iterator<Item = MemoryId> {
        self.planned.pairs().filter(|(_, memory)| memory.shared_with.is_none()).map(|(id, _)| id)
    }

    /// Returns whether there is one memory, under however many indices.
    pub(crate) fn is_single(&self) -> bool {
        self.owners().count() == 1
    }

    /// Returns the bytes that a tensor of `graph` takes in a memory.
    #[inline]
    pub(crate) fn size(&self, graph: &Graph, tensor: TensorId, memory: MemoryId) -> Bytes {
        let bytes = graph.tensor(tensor).nbytes();
        if self.padded { self.types[memory].alloc_size(graph.tensors(), tensor) } else { bytes }
    }

    /// Returns a graph with its memories, assignment and sizes, for the planner.
    pub(crate) fn assign(&self, graph: &Graph, assignment: Assignment) -> Result<AssignedGraph, AllocError> {
        let mut sizes = AllocSizes::new(self.types.len());
        if self.padded {
            for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| tensor.is_planned()) {
                let row: Vec<Bytes> = self.types.ids().map(|memory| self.size(graph, id, memory)).collect();
                sizes.set(id, tensor, &row)?;
            }
        }
        Ok(AssignedGraph::new(graph.clone(), self.planned.clone(), assignment, sizes)?)
    }
}
