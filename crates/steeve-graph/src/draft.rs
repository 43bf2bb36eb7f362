//! Which tensor needs which bytes when: what liveness and aliases decide, before anything is placed.
//!
//! Step 0 is before the run, node `t` runs at step `t + 1`. A [`Share`] is the bytes of a tensor from the step at which
//! they are first needed to the step at which they are free again:
//!
//! ```text
//!   step   0        1        2        3        4
//!          before   node 0   node 1   node 2   end
//!   input  [----------------)                        read last by node 0
//!   node 0          [----------------)               read last by node 1
//!   node 1                   [---------------)       nobody reads it: it lives to the end
//! ```

use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::{Block, BlockId, Bytes, Id, IdVec, Lifetime, Problem};

use crate::fusion::GroupEnds;
use crate::{AssignedGraph, Fusion, GraphPlanError, MemoryId, TensorId};

steeve_plan::id_type! {
    /// A piece of memory that a tensor has for a while.
    pub(crate) struct ShareId;
}

/// The bytes of a tensor, from one step to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The first tensor that has them.
    pub(crate) tensor: TensorId,
    /// The memory they are in; never one that shares another's.
    pub(crate) memory: MemoryId,
    /// The memory it was asked for, which may share the other; it decides how many bytes the tensor needs.
    pub(crate) asked: MemoryId,
    pub(crate) size: Bytes,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The share whose bytes it takes over in place.
    pub(crate) follows: Option<ShareId>,
}

/// All shares, and which one each tensor has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) shares: IdVec<ShareId, Share>,
    pub(crate) of_tensor: Vec<Option<ShareId>>,
}

/// For each share the step up to which a prefix of it outlives it; 0 where none does.
#[derive(Default)]
pub(crate) struct Prefixes(IdVec<ShareId, u64>);

/// The placement problem of one memory.
pub(crate) struct MemoryProblem {
    pub(crate) memory: MemoryId,
    pub(crate) problem: Problem,
    /// The share of each block. Prefixes that outlive their share come last.
    pub(crate) shares: Vec<ShareId>,
}

/// The step behind the last node: what is never freed ends there.
pub(crate) fn end_of_run(assigned: &AssignedGraph) -> u64 {
    assigned.graph().nodes().len() as u64 + 1
}

impl Draft {
    /// No share yet for any of so many tensors, and room for `shares`.
    pub(crate) fn with_room(tensors: usize, shares: usize) -> Self {
        Self { shares: Vec::with_capacity(shares).into(), of_tensor: vec![None; tensors] }
    }

    /// Extends what no node takes over by the `hold` of its memory, and to the end of the fused groups that read it. Returns for
    /// each share until when a prefix of it is kept.
    pub(crate) fn extend_by_hold(&mut self, assigned: &AssignedGraph) -> Prefixes {
        let memories = assigned.memories();
        let ends = GroupEnds::new(assigned);
        if ends.is_none() && memories.iter().all(|memory| memory.hold == 0) {
            return Prefixes::default();
        }
        let (end, taken) = (end_of_run(assigned), self.taken());
        let whole = ends.as_ref().map(|ends| self.until(&ends.whole));
        for id in self.shares.ids().filter(|id| !taken[*id]) {
            let share = &mut self.shares[id];
            let memory = &memories[share.memory];
            if let Some(whole) = whole.as_ref().filter(|_| memory.fusion == Fusion::Kept) {
                share.end = share.end.max(whole[id]);
            }
            share.end = (share.end + u64::from(memory.hold)).min(end.max(share.end));
        }
        let Some(ends) = ends else { return Prefixes::default() };
        let mut prefixes = self.until(&ends.prefix);
        for id in self.shares.ids() {
            if taken[id] || memories[self.shares[id].memory].fusion != Fusion::Kept {
                prefixes[id] = 0;
            }
        }
        Prefixes(prefixes)
    }

    /// The ends of tensors as those of their shares. A node of a group may take a source over, and then its result is what must
    /// stay.
    fn until(&self, ends: &[u64]) -> IdVec<ShareId, u64> {
        let mut until: IdVec<ShareId, u64> = vec![0; self.shares.len()].into();
        for (share, end) in self.of_tensor.iter().zip(ends) {
            if let Some(share) = *share {
                until[share] = until[share].max(*end);
            }
        }
        // What follows a share comes after it.
        for (id, share) in self.shares.pairs() {
            until[id] = share.follows.map_or(until[id], |before| until[id].max(until[before]));
        }
        until
    }

    /// Whether a node takes over each share.
    pub(crate) fn taken(&self) -> IdVec<ShareId, bool> {
        let mut taken: IdVec<ShareId, bool> = vec![false; self.shares.len()].into();
        for before in self.shares.iter().filter_map(|share| share.follows) {
            taken[before] = true;
        }
        taken
    }

    /// One problem for each memory that is not shared with an earlier one, in order.
    pub(crate) fn problems(
        &self,
        assigned: &AssignedGraph,
        prefixes: &Prefixes,
    ) -> Result<Vec<MemoryProblem>, GraphPlanError> {
        let memories = assigned.memories();
        let mut blocks: IdVec<MemoryId, Vec<Block>> = memories.iter().map(|_| Vec::new()).collect();
        let mut shares: IdVec<MemoryId, Vec<ShareId>> = memories.iter().map(|_| Vec::new()).collect();
        let mut block_of: IdVec<ShareId, Option<BlockId>> = IdVec::from(vec![None; self.shares.len()]);
        for (id, share) in self.shares.pairs() {
            let Ok(life) = Lifetime::new(share.start, share.end.max(share.start + 1)) else { continue };
            let mut block = Block::new(share.size, life).aligned(memories[share.memory].align);
            block.follows = share.follows.and_then(|before| block_of[before]);
            block_of[id] = BlockId::from_index(blocks[share.memory].len());
            blocks[share.memory].push(block);
            shares[share.memory].push(id);
        }
        for (id, end) in prefixes.0.pairs().filter(|(_, end)| **end > 0) {
            let (share, Some(block)) = (&self.shares[id], block_of[id]) else { continue };
            let blocks = &mut blocks[share.memory];
            let tensor = assigned.graph().tensor(share.tensor);
            if let Some(kept) = GroupEnds::kept_prefix(tensor, block, &blocks[block.index()], *end) {
                blocks.push(kept);
                shares[share.memory].push(id);
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
            problems.push(MemoryProblem { memory: id, problem, shares: core::mem::take(&mut shares[id]) });
        }
        Ok(problems)
    }
}
