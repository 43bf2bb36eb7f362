//! The strict reader, one memory: its blocks as a certified plan, each live when its tensor is.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::file::{FileBlock, FileMemory};
use steeve_plan::{Block, BlockId, Id, IdVec, Overlap, Place, Placement, Plan, Problem, Verdict, certify};

use super::loader::PlanLoader;
use super::{PlanFault, fusion};
use crate::fusion::{Fusion, GroupEnds};
use crate::plan::TensorBlock;
use crate::{GraphStrategy, Memory, MemoryId, MemoryPlan, Reuse, TensorId};

/// One memory of the file.
pub(super) struct MemoryLoader<'a> {
    memory: MemoryId,
    memory_plan: u32,
    file: &'a FileMemory,
    /// The memory that the plan was made for.
    planned_for: Memory,
    /// The extra lifetime and the fusion that the plan keeps to.
    extra_lifetime: u32,
    fusion: Fusion,
    keeps_extra_lifetime: bool,
}

impl<'a> MemoryLoader<'a> {
    pub(super) fn new(
        loader: &PlanLoader<'_>,
        memory: MemoryId,
        memory_plan: u32,
        file: &'a FileMemory,
    ) -> Result<Self, PlanFault> {
        let keeps_extra_lifetime = !file.ggml_layout && loader.options.strategy != GraphStrategy::Ggml;
        let (align, extra_lifetime, fusion) = (file.alignment, file.hold, fusion(file)?);
        let planned_for = Memory { align, extra_lifetime, fusion, ..loader.graph.memories()[memory].clone() };
        let (extra_lifetime, fusion) = if keeps_extra_lifetime { (extra_lifetime, fusion) } else { (0, Fusion::None) };
        Ok(Self { memory, memory_plan, file, planned_for, extra_lifetime, fusion, keeps_extra_lifetime })
    }

    pub(super) fn check(self, loader: &mut PlanLoader<'_>) -> Result<MemoryPlan, PlanFault> {
        let mut tensors = IdVec::new();
        let mut blocks = Vec::with_capacity(self.file.blocks.len());
        for (index, block) in self.file.blocks.iter().enumerate() {
            tensors.push(self.block(loader, index, block)?);
            let align = block.alignment.unwrap_or(self.file.alignment).max(self.file.alignment);
            let overlaps = block.overlaps.map(Overlap::from);
            blocks.push(Block {
                follows: block.follows,
                overlaps,
                ..Block::new(block.size, block.live).aligned(align)
            });
        }
        self.add_prefixes(loader, &mut blocks, &mut tensors);
        let plan = self.proven(loader, blocks, &tensors)?;
        self.check_lives(loader, &plan.problem().blocks().as_slice()[..self.file.blocks.len()], &tensors)?;
        if let Some(fault) = self.file.figure_faults().into_iter().next() {
            return Err(PlanFault::Figure { memory: self.name(), fault });
        }
        let verdict = if plan.is_optimal() { Verdict::Optimal } else { Verdict::Fits };
        let Self { memory, planned_for, keeps_extra_lifetime, .. } = self;
        Ok(MemoryPlan {
            memory,
            at_least: plan.bound().bytes,
            plan,
            verdict,
            tensors,
            keeps_extra_lifetime,
            planned_for,
        })
    }

    fn name(&self) -> String {
        self.planned_for.name.clone()
    }

    /// Adds the prefixes that outlive their blocks, in the order of planning.
    fn add_prefixes(&self, loader: &PlanLoader<'_>, blocks: &mut Vec<Block>, tensors: &mut IdVec<BlockId, TensorId>) {
        let Some(ends) = loader.group_ends.as_ref().filter(|_| self.fusion == Fusion::Kept) else { return };
        let mut aliased = vec![false; blocks.len()];
        for before in blocks.iter().filter_map(|block| block.follows) {
            if let Some(aliased) = aliased.get_mut(before.index()) {
                *aliased = true;
            }
        }
        let mut until: Vec<u64> = Vec::with_capacity(blocks.len());
        for (index, aliased) in aliased.into_iter().enumerate() {
            let Some(block) = BlockId::from_index(index) else { continue };
            let before = blocks[index].follows.and_then(|before| until.get(before.index()).copied()).unwrap_or(0);
            until.push(ends.prefix[tensors[block].index()].max(before));
            if aliased {
                continue;
            }
            let tensor = loader.graph.graph().tensor(tensors[block]);
            if let Some(prefix) = GroupEnds::kept_prefix(tensor, block, &blocks[index], until[index]) {
                blocks.push(prefix);
                tensors.push(tensors[block]);
            }
        }
    }

    /// Checks one block by itself: its tensor, its memory, its size.
    fn block(&self, loader: &mut PlanLoader<'_>, index: usize, block: &FileBlock) -> Result<TensorId, PlanFault> {
        let tensor = self.tensor(loader, index, block)?;
        let belongs_to = loader.life(tensor).memory.unwrap_or(self.memory);
        if let Some(follows) = block.follows.filter(|before| before.index() >= index) {
            return Err(PlanFault::Order { memory: self.name(), block: index, name: block.name.clone(), follows });
        }
        // In ggml's plans, what is written over a source goes to the memory of the source, wherever it was assigned.
        let follows = block
            .follows
            .filter(|_| loader.options.reuse == Reuse::Ggml || loader.graph.owner(belongs_to) == self.memory);
        let before = follows.and_then(|before| self.file.blocks.get(before.index()));
        let (sized_by, before) =
            (self.sized_by(loader, block), before.and_then(|before| self.sized_by(loader, before)));
        let is_allowed =
            |it: MemoryId| it == belongs_to || Some(it) == loader.sized_by_ggml[tensor.index()] || Some(it) == before;
        let sized_by = match sized_by.filter(|it| loader.graph.owner(*it) == self.memory) {
            Some(sized_by) if is_allowed(sized_by) => sized_by,
            sized_by => {
                let (memory, named) = (self.name(), loader.named(tensor));
                let name = |id: MemoryId| loader.graph.memories()[id].name.clone();
                let belongs_to_owner = loader.graph.owner(belongs_to);
                return Err(match sized_by {
                    // The size is another memory's, and the bytes are where they belong.
                    sized_by if belongs_to_owner == self.memory => {
                        let sized_by = sized_by.map_or_else(|| "unknown".to_owned(), name);
                        PlanFault::SizedBy { memory, tensor: named, sized_by }
                    }
                    _ => PlanFault::Elsewhere { memory, tensor: named, belongs_to: name(belongs_to) },
                });
            }
        };
        let needed = loader.graph.alloc_size(tensor, sized_by);
        if block.size < needed {
            let (memory, tensor, size) = (self.name(), loader.named(tensor), block.size);
            return Err(PlanFault::TooSmall { memory, tensor, needed, size });
        }
        // Beyond what ids can count there is no problem, and that is said later.
        let tensor_block = BlockId::from_index(index);
        let tensor_block =
            tensor_block.map(|id| TensorBlock { memory_plan: self.memory_plan, block: id, sized_by, size: block.size });
        if core::mem::replace(&mut loader.tensor_blocks[tensor.index()], tensor_block).is_some() {
            return Err(PlanFault::Duplicate { memory: self.name(), tensor: loader.named(tensor) });
        }
        Ok(tensor)
    }

    /// Returns the memory of the graph that decides on the size of a block.
    fn sized_by(&self, loader: &PlanLoader<'_>, block: &FileBlock) -> Option<MemoryId> {
        match block.tensor.as_ref()?.sized_by {
            None => Some(self.memory),
            Some(index) => loader.matched.of_file.get(index as usize).copied(),
        }
    }

    fn tensor(&self, loader: &PlanLoader<'_>, block: usize, it: &FileBlock) -> Result<TensorId, PlanFault> {
        let tensors = loader.graph.graph().tensors();
        let tensor = it.tensor.as_ref().map(|tensor| tensor.id);
        let Some(id) = it.tensor.as_ref().and_then(|tensor| loader.numbers.tensor(loader.graph, tensor)) else {
            let (memory, name, tensors) = (self.name(), it.name.clone(), tensors.len());
            return Err(PlanFault::UnknownTensor { memory, block, name, tensor, tensors });
        };
        if !loader.life(id).is_allocated() {
            return Err(PlanFault::Unneeded { memory: self.name(), tensor: loader.named(id) });
        }
        Ok(id)
    }

    /// Returns the certified plan of the blocks where the file puts them.
    fn proven(
        &self,
        loader: &PlanLoader<'_>,
        blocks: Vec<Block>,
        tensors: &IdVec<BlockId, TensorId>,
    ) -> Result<Plan, PlanFault> {
        let place = |it: &FileBlock| Place { buffer: it.buffer, offset: it.offset };
        // A prefix is located where the block is that it outlives.
        let located = |(index, block): (usize, &Block)| {
            self.file.blocks.get(index).or_else(|| self.file.blocks.get(block.follows?.index()))
        };
        let places: Vec<Place> = blocks.iter().enumerate().filter_map(located).map(place).collect();
        let placement = Placement::new(places);
        let problem = Problem::new(blocks).map_err(|error| PlanFault::Problem { memory: self.name(), error })?;
        let proven = match self.planned_for.max_buffer {
            None => certify(problem, placement),
            Some(limit) => match certify(problem.clone().with_max_buffer(limit), placement.clone()) {
                // ggml's last chunk ignores the limit, and that is its answer all the same.
                Err(_) if !self.keeps_extra_lifetime => certify(problem, placement),
                proven => proven,
            },
        };
        proven.map_err(|violations| {
            let violation = violations.list().first().cloned();
            let tensors = violation.iter().flat_map(|it| it.blocks()).filter_map(|block| tensors.get(block));
            let tensors = tensors.map(|it| loader.named(*it)).collect();
            PlanFault::Invalid { memory: self.name(), tensors, violation: Box::new(violation) }
        })
    }

    /// Checks that each block is live when its tensor is, and no longer.
    fn check_lives(
        &self,
        loader: &PlanLoader<'_>,
        blocks: &[Block],
        tensors: &IdVec<BlockId, TensorId>,
    ) -> Result<(), PlanFault> {
        let mut successors: Vec<Option<TensorId>> = vec![None; blocks.len()];
        for (it, tensor) in blocks.iter().zip(tensors) {
            if let Some(successor) = it.follows.and_then(|before| successors.get_mut(before.index())) {
                *successor = Some(*tensor);
            }
        }
        let group_ends = loader.group_ends.as_ref().filter(|_| self.fusion == Fusion::Kept);
        let mut until: Vec<u64> = Vec::with_capacity(blocks.len());
        for ((it, tensor), successor) in blocks.iter().zip(tensors).zip(successors) {
            let tensor = *tensor;
            let before = it.follows.and_then(|before| until.get(before.index()).copied()).unwrap_or(0);
            let group_end = group_ends.map_or(0, |ends| ends.whole[tensor.index()].max(before));
            until.push(group_end);
            let (start, end) = (it.life.start().0, it.life.end().0);
            let needed = loader.needed(tensor, self.extra_lifetime, group_end);
            let ends = match successor {
                Some(successor) => loader.is_aliased(tensor, successor, end),
                // What ggml never frees ends with the run.
                None => end == needed.end().0 || end == loader.end,
            };
            if loader.life(tensor).first != start || !ends {
                let (memory, tensor) = (self.name(), loader.named(tensor));
                return Err(PlanFault::Lifetime { memory, tensor, needed, found: it.life });
            }
        }
        Ok(())
    }
}
