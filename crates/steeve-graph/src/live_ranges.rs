//! Live ranges before placement: which tensor needs which bytes when, as liveness and aliases decide.
//!
//! Step 0 is before the run, node `t` runs at step `t + 1`. A [`LiveRange`] is the bytes of a tensor from the step at which
//! they are first needed to the step at which they are free again:
//!
//! ```text
//!   step   0        1        2        3        4
//!          before   node 0   node 1   node 2   end
//!   input  [----------------)                        read last by node 0
//!   node 0          [----------------)               read last by node 1
//!   node 1                   [---------------)       no node reads it: it lives to the end
//! ```

use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::{Block, BlockId, Bytes, Id, IdVec, Lifetime, Overlap, Problem};

use crate::fusion::GroupEnds;
use crate::{AssignedGraph, Fusion, GraphPlanError, MemoryId, TensorId};

steeve_plan::id_type! {
    /// A piece of memory that a tensor has for a while.
    pub(crate) struct LiveRangeId;
}

/// The bytes of a tensor, from one step to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveRange {
    /// The first tensor that has them.
    pub(crate) tensor: TensorId,
    /// The memory they are in; never one that is another under a second id.
    pub(crate) memory: MemoryId,
    /// The memory that decides how many bytes the tensor needs; `memory` under another id, perhaps.
    pub(crate) sized_by: MemoryId,
    pub(crate) size: Bytes,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The live range whose bytes it is written over in place.
    pub(crate) alias_of: Option<LiveRangeId>,
    /// The live range that it may share bytes with at its first step, which is the last one of that range.
    pub(crate) overlap: Option<RangeOverlap>,
}

/// Bytes that a result may share with a source while that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeOverlap {
    /// The live range of the source.
    pub(crate) source: LiveRangeId,
    /// By how many bytes the source must start above the result.
    pub(crate) distance: Bytes,
}

/// All live ranges, and which one each tensor has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveRanges {
    pub(crate) ranges: IdVec<LiveRangeId, LiveRange>,
    pub(crate) of_tensor: Vec<Option<LiveRangeId>>,
}

/// For each live range the step up to which a prefix of it outlives it; 0 where none does.
#[derive(Default)]
pub(crate) struct PrefixEnds(IdVec<LiveRangeId, u64>);

/// The placement problem of one memory.
pub(crate) struct MemoryProblem {
    pub(crate) memory: MemoryId,
    pub(crate) problem: Problem,
    /// The live range of each block. Prefixes that outlive their live range come last.
    pub(crate) ranges: Vec<LiveRangeId>,
}

/// Returns the step behind the last node: what is never freed ends there.
pub(crate) fn end_of_run(assigned: &AssignedGraph) -> u64 {
    assigned.graph().nodes().len() as u64 + 1
}

impl LiveRanges {
    /// Returns no live range for any of so many tensors, and capacity for `ranges`.
    pub(crate) fn with_capacity(tensors: usize, ranges: usize) -> Self {
        Self { ranges: Vec::with_capacity(ranges).into(), of_tensor: vec![None; tensors] }
    }

    /// Extends what no node is written over by the extra lifetime of its memory, and to the end of the fused groups
    /// that read it. Returns for each live range until when a prefix of it is kept.
    pub(crate) fn extend(&mut self, assigned: &AssignedGraph) -> PrefixEnds {
        let memories = assigned.memories();
        let ends = GroupEnds::new(assigned);
        if ends.is_none() && memories.iter().all(|memory| memory.extra_lifetime == 0) {
            return PrefixEnds::default();
        }
        let (end, aliased) = (end_of_run(assigned), self.aliased());
        let whole = ends.as_ref().map(|ends| self.range_ends(&ends.whole));
        for id in self.ranges.ids().filter(|id| !aliased[*id]) {
            let range = &mut self.ranges[id];
            let memory = &memories[range.memory];
            if let Some(whole) = whole.as_ref().filter(|_| memory.fusion == Fusion::Kept) {
                range.end = range.end.max(whole[id]);
            }
            range.end = (range.end + u64::from(memory.extra_lifetime)).min(end.max(range.end));
        }
        let Some(ends) = ends else { return PrefixEnds::default() };
        let mut prefixes = self.range_ends(&ends.prefix);
        for id in self.ranges.ids() {
            if aliased[id] || memories[self.ranges[id].memory].fusion != Fusion::Kept {
                prefixes[id] = 0;
            }
        }
        PrefixEnds(prefixes)
    }

    /// Returns the ends of tensors as those of their live ranges. A node of a group may be written over a source, and
    /// then its result is what must be kept.
    fn range_ends(&self, ends: &[u64]) -> IdVec<LiveRangeId, u64> {
        let mut range_ends: IdVec<LiveRangeId, u64> = vec![0; self.ranges.len()].into();
        for (range, end) in self.of_tensor.iter().zip(ends) {
            if let Some(range) = *range {
                range_ends[range] = range_ends[range].max(*end);
            }
        }
        // A live range comes after the one that it aliases.
        for (id, range) in self.ranges.pairs() {
            range_ends[id] =
                range.alias_of.map_or(range_ends[id], |source_range| range_ends[id].max(range_ends[source_range]));
        }
        range_ends
    }

    /// Returns whether a later live range aliases each one.
    pub(crate) fn aliased(&self) -> IdVec<LiveRangeId, bool> {
        let mut aliased: IdVec<LiveRangeId, bool> = vec![false; self.ranges.len()].into();
        for source_range in self.ranges.iter().filter_map(|range| range.alias_of) {
            aliased[source_range] = true;
        }
        aliased
    }

    /// Returns the overlap of a live range as one of blocks; `None` where the source is kept longer than it is read.
    fn block_overlap(&self, range: &LiveRange, block_of: &IdVec<LiveRangeId, Option<BlockId>>) -> Option<Overlap> {
        let RangeOverlap { source, distance } = range.overlap?;
        let it = &self.ranges[source];
        let meets = it.memory == range.memory && it.end == range.start + 1;
        let block = block_of[source].filter(|_| meets)?;
        Some(Overlap { source: block, distance })
    }

    /// Returns one problem for each memory that is not an earlier one under another id, in order.
    pub(crate) fn problems(
        &self,
        assigned: &AssignedGraph,
        prefixes: &PrefixEnds,
    ) -> Result<Vec<MemoryProblem>, GraphPlanError> {
        let memories = assigned.memories();
        let mut blocks: IdVec<MemoryId, Vec<Block>> = memories.iter().map(|_| Vec::new()).collect();
        let mut ranges: IdVec<MemoryId, Vec<LiveRangeId>> = memories.iter().map(|_| Vec::new()).collect();
        let mut block_of: IdVec<LiveRangeId, Option<BlockId>> = IdVec::from(vec![None; self.ranges.len()]);
        for (id, range) in self.ranges.pairs() {
            let Ok(life) = Lifetime::new(range.start, range.end.max(range.start + 1)) else { continue };
            let mut block = Block::new(range.size, life).aligned(memories[range.memory].align);
            block.follows = range.alias_of.and_then(|source_range| block_of[source_range]);
            block.overlaps = self.block_overlap(range, &block_of);
            block_of[id] = BlockId::from_index(blocks[range.memory].len());
            blocks[range.memory].push(block);
            ranges[range.memory].push(id);
        }
        for (id, end) in prefixes.0.pairs().filter(|(_, end)| **end > 0) {
            let (range, Some(block)) = (&self.ranges[id], block_of[id]) else { continue };
            let blocks = &mut blocks[range.memory];
            let tensor = assigned.graph().tensor(range.tensor);
            if let Some(kept) = GroupEnds::kept_prefix(tensor, block, &blocks[block.index()], *end) {
                blocks.push(kept);
                ranges[range.memory].push(id);
            }
        }
        let owners = memories.pairs().filter(|(_, memory)| memory.shared_with.is_none());
        let mut problems = Vec::with_capacity(memories.len());
        for (id, memory) in owners {
            let blocks = core::mem::take(&mut blocks[id]);
            let mut problem = Problem::new(blocks).map_err(|error| {
                let memory = memory.name.clone();
                GraphPlanError::Problem { memory, error }
            })?;
            if let Some(limit) = memory.max_buffer {
                problem = problem.with_max_buffer(limit);
            }
            problems.push(MemoryProblem { memory: id, problem, ranges: core::mem::take(&mut ranges[id]) });
        }
        Ok(problems)
    }
}
