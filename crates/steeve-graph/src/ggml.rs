//! ggml's own plan, to the byte: its order of events on its free list. O(edges), plus the free list's searches.
//!
//! First leafs and inputs get their bytes, then each node in order; a source is freed when its last reader has run.
//! The counts of readers and views are ggml's, and so are its mistakes: where an output is a view that is read, or an
//! input flag is on a node that computes something, its placement may be wrong, and planning with
//! [`GraphStrategy::Ggml`](crate::GraphStrategy::Ggml) is an error there.

use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::{Bytes, FreeList, Id, IdVec, Offset, Place};

use crate::alias::ggml_allows_alias;
use crate::live_ranges::{LiveRange, LiveRangeId, LiveRanges, end_of_run};
use crate::{AssignedGraph, GraphPlanError, MemoryId, TensorId};

/// The placement that ggml's allocator computes for a graph. It is not proven.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GgmlPlacement {
    /// Where each tensor is located; nothing for views and external tensors, and for what the allocator never
    /// reaches.
    pub places: IdVec<TensorId, Option<GgmlPlace>>,
    /// The sizes of each memory's chunks. A memory that is another under a second id has none of its own.
    pub chunks: IdVec<MemoryId, Vec<Bytes>>,
}

/// Where ggml places a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GgmlPlace {
    /// The memory that decides how many bytes the tensor needs: its own, or that of the source it is written over.
    pub memory: MemoryId,
    /// Chunk and offset.
    pub place: Place,
    /// The bytes it needs there.
    pub size: Bytes,
}

/// Computes the placement of ggml's allocator for a graph, to the byte. O(edges), plus the searches of the free list.
///
/// ```
/// use steeve_graph::{AssignedGraph, Bytes, ggml_placement};
/// let graph: AssignedGraph = "a = input f32[4]; b = neg a; c = neg b !output".parse()?;
/// let answer = ggml_placement(&graph)?;
/// // Each one takes over the bytes of the one before.
/// assert_eq!(answer.chunks.as_slice()[0], [Bytes(16)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If a chunk passes the end of the address space.
pub fn ggml_placement(assigned: &AssignedGraph) -> Result<GgmlPlacement, GraphPlanError> {
    let run = simulate(assigned)?;
    let place = |range: &Option<LiveRangeId>| {
        let range = (*range)?;
        let size = run.live_ranges.ranges[range].size;
        Some(GgmlPlace { memory: run.live_ranges.ranges[range].sized_by, place: run.places[range], size })
    };
    Ok(GgmlPlacement {
        places: run.live_ranges.of_tensor.iter().map(place).collect(),
        chunks: run.free.iter().map(|free| free.chunks().collect()).collect(),
    })
}

/// The live ranges that follow from ggml's events, and where its free list places them.
pub(crate) struct GgmlSimulation {
    pub(crate) live_ranges: LiveRanges,
    pub(crate) places: IdVec<LiveRangeId, Place>,
    pub(crate) free: IdVec<MemoryId, FreeList>,
}

/// Runs ggml's events on the free lists.
pub(crate) fn simulate(assigned: &AssignedGraph) -> Result<GgmlSimulation, GraphPlanError> {
    let graph = assigned.graph();
    let assignment = assigned.assignment();
    let mut run = GgmlAllocatorRun::new(assigned);
    for (leaf, memory) in graph.leafs().iter().zip(&assignment.leafs) {
        run.give(*leaf, *memory, 0)?;
    }
    for (node, memory) in graph.nodes().iter().zip(&assignment.nodes) {
        let tensor = graph.tensor(*node);
        if let Some(view) = tensor.view
            && tensor.op != crate::Op::None
        {
            run.counts[view.root.index()].views += 1;
        }
        if tensor.flags.is_input() {
            run.give(*node, *memory, 0)?;
        }
        for source in graph.sources(*node).iter().copied().flatten() {
            run.counts[source.index()].readers += 1;
            if graph.tensor(source).flags.is_input() {
                run.give(source, *memory, 0)?;
            }
        }
    }
    for (step, (node, memory)) in (1..).zip(graph.nodes().iter().zip(&assignment.nodes)) {
        for source in graph.sources(*node).iter().copied().flatten() {
            run.give(source, *memory, step)?;
        }
        run.give(*node, *memory, step)?;
        for source in graph.sources(*node).iter().copied().flatten() {
            run.read(source, step);
        }
    }
    Ok(run.simulation)
}

struct GgmlAllocatorRun<'a> {
    assigned: &'a AssignedGraph,
    counts: Vec<UseCounts>,
    simulation: GgmlSimulation,
    end: u64,
}

/// Readers and views still to come. Signed: a graph may count a view down that was never counted up, and then it is
/// neither freed nor aliased.
#[derive(Clone, Copy, Default)]
struct UseCounts {
    readers: i32,
    views: i32,
    /// Whether it has bytes now.
    owned: bool,
}

impl<'a> GgmlAllocatorRun<'a> {
    fn new(assigned: &'a AssignedGraph) -> Self {
        let tensors = assigned.graph().tensors().len();
        let free = assigned.memories().iter().map(|memory| FreeList::new(memory.align, memory.max_buffer));
        let simulation = GgmlSimulation {
            live_ranges: LiveRanges::with_capacity(tensors, tensors),
            places: Vec::with_capacity(tensors).into(),
            free: free.collect(),
        };
        Self { assigned, counts: vec![UseCounts::default(); tensors], simulation, end: end_of_run(assigned) }
    }

    /// Allocates bytes for a tensor that needs some and has none.
    fn give(&mut self, tensor: TensorId, memory: MemoryId, step: u64) -> Result<(), GraphPlanError> {
        let it = self.assigned.graph().tensor(tensor);
        if self.counts[tensor.index()].owned || !it.is_planned() {
            return Ok(());
        }
        self.counts[tensor.index()].owned = true;
        if it.op.ggml_in_place() && self.alias_source(tensor, step) {
            return Ok(());
        }
        let owner = self.assigned.owner(memory);
        let size = self.assigned.alloc_size(tensor, memory);
        let Some(place) = self.simulation.free[owner].take(size) else {
            let (memory, tensor) = (self.assigned.memories()[memory].name.clone(), self.named(tensor));
            return Err(GraphPlanError::AddressSpace { memory, tensor, size });
        };
        let range = LiveRange {
            tensor,
            memory: owner,
            sized_by: memory,
            size,
            start: step,
            end: self.end,
            alias_of: None,
            overlap: None,
        };
        self.record(range, place);
        Ok(())
    }

    fn named(&self, tensor: TensorId) -> crate::Named {
        crate::Named::new(tensor, self.assigned.graph().names())
    }

    fn record(&mut self, range: LiveRange, place: Place) {
        let simulation = &mut self.simulation;
        simulation.live_ranges.of_tensor[range.tensor.index()] = simulation.live_ranges.ranges.push(range);
        simulation.places.push(place);
    }

    /// Aliases the first source that qualifies: its tail, if it has one, is free again. Returns whether there is one.
    fn alias_source(&mut self, node: TensorId, step: u64) -> bool {
        let graph = self.assigned.graph();
        for source in graph.sources(node).iter().copied().flatten() {
            let counts = self.counts[source.index()];
            let last = counts.owned && counts.readers == 1 && counts.views == 0;
            if !last || !ggml_allows_alias(self.assigned, node, source) {
                continue;
            }
            let Some(source_range) = self.simulation.live_ranges.of_tensor[source.index()] else { continue };
            let memory = self.simulation.live_ranges.ranges[source_range].sized_by;
            let size = self.assigned.alloc_size(node, memory);
            if size > self.assigned.alloc_size(source, memory) {
                continue;
            }
            self.counts[source.index()].owned = false;
            self.alias_to(node, source_range, step, size);
            return true;
        }
        false
    }

    fn alias_to(&mut self, node: TensorId, source_range: LiveRangeId, step: u64, size: Bytes) {
        let simulation = &mut self.simulation;
        let place = simulation.places[source_range];
        let old = &mut simulation.live_ranges.ranges[source_range];
        let (owner, sized_by, align) = (old.memory, old.sized_by, self.assigned.memories()[old.memory].align);
        let padded = |bytes: Bytes| align.round_up(bytes).unwrap_or(bytes).0;
        let (kept, had) = (padded(size), padded(old.size));
        if had > kept {
            let tail = Place { offset: Offset(place.offset.0 + kept), ..place };
            simulation.free[owner].release(tail, Bytes(had - kept));
        }
        if old.start >= step {
            // Allocated and aliased at one step: the two have the same bytes for the same time.
            old.size = size;
            simulation.live_ranges.of_tensor[node.index()] = Some(source_range);
            return;
        }
        old.end = step;
        let alias_of = Some(source_range);
        let range = LiveRange {
            tensor: node,
            memory: owner,
            sized_by,
            size,
            start: step,
            end: self.end,
            alias_of,
            overlap: None,
        };
        self.record(range, place);
    }

    /// Counts one reader less. The last one frees the source, or the root that no view of it needs any more.
    fn read(&mut self, source: TensorId, step: u64) {
        let counts = &mut self.counts[source.index()];
        counts.readers -= 1;
        if counts.readers != 0 || counts.views != 0 {
            return;
        }
        match self.assigned.graph().tensor(source).view {
            None => self.release(source, step),
            Some(view) => {
                let root = &mut self.counts[view.root.index()];
                root.views -= 1;
                if root.views == 0 && root.readers == 0 {
                    self.release(view.root, step);
                }
            }
        }
    }

    fn release(&mut self, tensor: TensorId, step: u64) {
        let counts = &mut self.counts[tensor.index()];
        if !counts.owned || self.assigned.graph().tensor(tensor).flags.is_output() {
            return;
        }
        counts.owned = false;
        let simulation = &mut self.simulation;
        if let Some(range) = simulation.live_ranges.of_tensor[tensor.index()] {
            let it = &mut simulation.live_ranges.ranges[range];
            it.end = step + 1;
            simulation.free[it.memory].release(simulation.places[range], it.size);
        }
    }
}
