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

/// The placement problem of one memory.
pub(crate) struct MemoryProblem {
    pub(crate) memory: MemoryId,
    pub(crate) problem: Problem,
    /// The share of each block. Prefixes that outlive their share come last.
    pub(crate) shares: Vec<ShareId>,
}

/// Whether shares are extended by what their memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extend {
    ByHold,
    /// ggml knows no backend that reads late.
    AsGgml,
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

    /// Extends what no node takes over by the `hold` of its memory, and to the end of the fused groups that read it.
    pub(crate) fn extend_by_hold(&mut self, assigned: &AssignedGraph) {
        let memories = assigned.memories();
        if memories.iter().all(|memory| memory.hold == 0 && memory.fusion != Fusion::Kept) {
            return;
        }
        let (end, taken) = (end_of_run(assigned), self.taken());
        if let Some(ends) = GroupEnds::new(assigned) {
            let mut until: IdVec<ShareId, u64> = vec![0; self.shares.len()].into();
            for (share, end) in self.of_tensor.iter().zip(ends.whole) {
                if let Some(share) = *share {
                    until[share] = until[share].max(end);
                }
            }
            for id in self.shares.ids() {
                let share = &mut self.shares[id];
                // A node of the group may take the source over, and then its result is what must stay.
                until[id] = share.follows.map_or(until[id], |before| until[id].max(until[before]));
                if !taken[id] && memories[share.memory].fusion == Fusion::Kept {
                    share.end = share.end.max(until[id]);
                }
            }
        }
        for id in self.shares.ids().filter(|id| !taken[*id]) {
            let share = &mut self.shares[id];
            let hold = u64::from(memories[share.memory].hold);
            share.end = (share.end + hold).min(end.max(share.end));
        }
    }

    /// Whether a node takes over each share.
    fn taken(&self) -> IdVec<ShareId, bool> {
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
        extend: Extend,
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
        if extend == Extend::ByHold
            && let Some(ends) = GroupEnds::new(assigned)
        {
            let taken = self.taken();
            for (id, share) in self.shares.pairs().filter(|(id, _)| !taken[*id]) {
                let blocks = &mut blocks[share.memory];
                let Some(block) = block_of[id].filter(|_| memories[share.memory].fusion == Fusion::Kept) else {
                    continue;
                };
                if let Some(kept) = ends.kept_prefix(assigned.graph(), share.tensor, block, &blocks[block.index()]) {
                    blocks.push(kept);
                    shares[share.memory].push(id);
                }
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
