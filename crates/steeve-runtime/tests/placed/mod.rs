//! The laws of an allocation, judged by where its tensors really stand.

use std::sync::Arc;

use steeve_device::{Bindings, BufferType, SharedBuffer};
use steeve_graph::{
    AllocSizes, AssignedGraph, Assignment, BufferId, Bytes, GraphStrategy, Id, IdVec, Memory, MemoryId, NodeOrder,
    PlanOptions, TensorId, TensorPlace, TensorPlaces, replay,
};
use steeve_runtime::Allocation;

/// What an allocation must keep to.
pub(crate) struct Laws<'a> {
    pub(crate) memories: &'a [Arc<dyn BufferType>],
    pub(crate) assignment: &'a Assignment,
    pub(crate) options: &'a PlanOptions,
    pub(crate) bindings: &'a Bindings,
}

impl Laws<'_> {
    /// Every tensor that the graph touches is placed, within its buffer and not above what its memory allows; external
    /// ones where they were bound; and `replay` accepts the places.
    pub(crate) fn check(&self, allocation: &Allocation) -> Result<(), String> {
        let graph = allocation.graph();
        let mut buffers: Vec<SharedBuffer> = Vec::new();
        let mut places: IdVec<TensorId, Option<TensorPlace>> = IdVec::from(vec![None; graph.tensors().len()]);
        for tensor in touched(allocation) {
            let address = allocation.address(tensor).map_err(|error| error.to_string())?;
            if address.offset.0 + address.size.0 > address.buffer.size().0 {
                return Err(format!("{address:?} passes the end of its buffer"));
            }
            let (root, start) = (graph.root(tensor), graph.tensors().offset(tensor));
            if graph.tensor(root).external {
                let bound = self.bindings.get(root).ok_or("an external tensor without memory is placed")?;
                let there = bound.buffer.is_same(address.buffer) && bound.offset.0 + start.0 == address.offset.0;
                if !there {
                    return Err(format!("external tensor {tensor} was moved to {address:?}"));
                }
                continue;
            }
            let owner = allocation.address(root).map_err(|error| error.to_string())?;
            if !owner.buffer.is_same(address.buffer) || owner.offset.0 + start.0 != address.offset.0 {
                return Err(format!("view {tensor} is not where its root is"));
            }
            if tensor != root {
                continue;
            }
            let memory = self.memory_of(address.buffer)?;
            let known = buffers.iter().position(|buffer| buffer.is_same(address.buffer));
            let index = known.unwrap_or_else(|| {
                buffers.push(address.buffer.clone());
                buffers.len() - 1
            });
            let buffer = BufferId::from_index(index).ok_or("too many buffers")?;
            places[tensor] = Some(TensorPlace::new(memory, buffer, address.offset, address.size));
        }
        let PlanOptions { strategy, reuse, unread, .. } = *self.options;
        let assigned = self.assigned(allocation)?;
        let (reuse, without_extra_lifetime) = match strategy {
            GraphStrategy::Ggml => (steeve_graph::Reuse::Ggml, assigned.memories().ids().collect()),
            _ => (reuse, Vec::new()),
        };
        let order = run_order(allocation)?;
        replay(&assigned, &TensorPlaces { places, order, reuse, unread, without_extra_lifetime })
            .map_err(|faults| faults.to_string())
    }

    /// The graph with the memories as devices have them, whatever the allocator made of those.
    fn assigned(&self, allocation: &Allocation) -> Result<AssignedGraph, String> {
        let graph = allocation.graph();
        let memories: Vec<Memory> = (0..self.memories.len())
            .map(|index| {
                let (it, first) = (&self.memories[index], self.first(&self.memories[index]));
                let shared_with = if first < index { MemoryId::from_index(first) } else { None };
                let (max_buffer, hold, fusion) = (it.max_size(), it.hold(), it.fusion());
                Memory { max_buffer, extra_lifetime: hold, fusion, shared_with, ..Memory::new(it.name(), it.align()) }
            })
            .collect();
        let mut sizes = AllocSizes::new(memories.len());
        for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| tensor.is_planned()) {
            let row: Vec<Bytes> = self.memories.iter().map(|it| it.alloc_size(graph.tensors(), id)).collect();
            sizes.set(id, tensor, &row).map_err(|error| error.to_string())?;
        }
        AssignedGraph::new(graph.clone(), memories, self.assignment.clone(), sizes).map_err(|error| error.to_string())
    }

    fn first(&self, memory: &Arc<dyn BufferType>) -> usize {
        let same = |other: &Arc<dyn BufferType>| std::ptr::addr_eq(Arc::as_ptr(memory), Arc::as_ptr(other));
        self.memories.iter().position(same).unwrap_or(usize::MAX)
    }

    fn memory_of(&self, buffer: &SharedBuffer) -> Result<MemoryId, String> {
        MemoryId::from_index(self.first(buffer.memory())).ok_or_else(|| "a buffer of another memory".into())
    }
}

/// Returns the order in which the nodes of an allocation run, if it is not that of its graph.
fn run_order(allocation: &Allocation) -> Result<Option<NodeOrder>, String> {
    let (own, run) = (allocation.graph(), allocation.in_run_order().map_err(|error| error.to_string())?);
    if own.nodes() == run.nodes() {
        return Ok(None);
    }
    let position = |node: &TensorId| own.nodes().iter().position(|it| it == node).map(|position| position as u32);
    let positions: Option<Vec<u32>> = run.nodes().iter().map(position).collect();
    NodeOrder::new(positions.ok_or("a node that the graph does not have")?).map(Some).map_err(|error| error.to_string())
}

/// All tensors that leafs and nodes are, that nodes read, and that either stand in; each once.
pub(crate) fn touched(allocation: &Allocation) -> Vec<TensorId> {
    let graph = allocation.graph();
    let used = graph.nodes().iter().flat_map(|node| graph.sources(*node).iter().copied().flatten().chain([*node]));
    let all = used.chain(graph.leafs().iter().copied());
    let mut touched: Vec<TensorId> = all.flat_map(|id| [id, graph.root(id)]).collect();
    touched.sort_unstable();
    touched.dedup();
    touched
}
