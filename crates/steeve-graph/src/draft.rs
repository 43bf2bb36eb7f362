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

use crate::{AssignedGraph, GraphPlanError, MemoryId, TensorId};

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
    /// The share of each block.
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

    /// One problem for each memory that is not shared with an earlier one, in order.
    pub(crate) fn problems(&self, assigned: &AssignedGraph) -> Result<Vec<MemoryProblem>, GraphPlanError> {
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
