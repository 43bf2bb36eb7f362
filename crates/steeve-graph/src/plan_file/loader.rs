//! The strict reader: what the graph needs, against what the file says.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::file::PlanFile;
use steeve_plan::{BlockId, Bytes, Id, Lifetime, Place, Plan};

use super::memory_loader::MemoryLoader;
use super::{MatchedMemories, PlanFault, TensorNumbers};
use crate::alias::ggml_allows_alias;
use crate::fusion::{Fusion, GroupEnds};
use crate::live_ranges::end_of_run;
use crate::liveness::{RootLifetime, root_lifetimes};
use crate::plan::{RunOrder, TensorBlock, overlaps, unlisted};
use crate::{AssignedGraph, GraphPlan, MemoryId, MemoryPlan, Named, PlanOptions, Reuse, TensorId};

/// Checks a file against the graph.
pub(super) struct PlanLoader<'a> {
    file: &'a PlanFile,
    /// The graph in the order in which the plan runs.
    pub(super) graph: &'a AssignedGraph,
    pub(super) options: PlanOptions,
    pub(super) numbers: TensorNumbers,
    pub(super) matched: MatchedMemories,
    lives: Vec<RootLifetime>,
    /// The memory that decides in ggml's plan how many bytes each tensor needs.
    pub(super) sized_by_ggml: Vec<Option<MemoryId>>,
    pub(super) end: u64,
    pub(super) group_ends: Option<GroupEnds>,
    pub(super) tensor_blocks: Vec<Option<TensorBlock>>,
}

impl<'a> PlanLoader<'a> {
    pub(super) fn new(
        file: &'a PlanFile,
        graph: &'a AssignedGraph,
        options: PlanOptions,
        numbers: TensorNumbers,
        matched: MatchedMemories,
    ) -> Self {
        let tensor_blocks = vec![None; graph.graph().tensors().len()];
        let (lives, sized_by_ggml) = (root_lifetimes(graph, options.unread).of_root, sized_by_ggml(graph));
        // The plan may keep groups that the graph's memories do not demand.
        let kept = Some(Fusion::Kept.name());
        let keeps_groups = file.memories.iter().any(|memory| memory.fusion.as_deref() == kept);
        let group_ends = keeps_groups.then(|| GroupEnds::of(graph));
        Self {
            file,
            graph,
            options,
            numbers,
            matched,
            lives,
            sized_by_ggml,
            end: end_of_run(graph),
            group_ends,
            tensor_blocks,
        }
    }

    /// Returns the proven plan of `assigned`, which is the graph in the caller's order.
    pub(super) fn plan(mut self, assigned: &AssignedGraph, run: Option<Box<RunOrder>>) -> Result<GraphPlan, PlanFault> {
        let owners: Vec<MemoryId> = self.graph.owners().collect();
        let mut memories = Vec::with_capacity(owners.len());
        for (memory_plan, memory) in (0..).zip(owners) {
            let file = self.matched.file(self.file, memory);
            memories.push(MemoryLoader::new(&self, memory, memory_plan, file)?.check(&mut self)?);
        }
        let bare =
            self.lives.iter().zip(&self.tensor_blocks).position(|(life, block)| life.is_allocated() && block.is_none());
        if let Some(tensor) = bare.and_then(TensorId::from_index) {
            return Err(PlanFault::Unplaced { tensor: self.named(tensor) });
        }
        self.check_overlaps(&memories)?;
        let in_place_aliases = self.in_place_aliases(&memories)?;
        let overlaps = overlaps(self.graph.graph(), &memories, &self.tensor_blocks);
        let Self { graph, options, tensor_blocks, .. } = self;
        Ok(GraphPlan {
            assigned: assigned.clone(),
            run,
            options,
            memories,
            tensor_blocks,
            unlisted: unlisted(graph.graph()),
            in_place_aliases,
            overlaps,
        })
    }

    pub(super) fn named(&self, tensor: TensorId) -> Named {
        Named::new(tensor, self.graph.graph().names())
    }

    pub(super) fn life(&self, tensor: TensorId) -> RootLifetime {
        self.lives[tensor.index()]
    }

    /// Returns the node that runs at a step.
    pub(super) fn node(&self, step: u64) -> Option<TensorId> {
        let index = usize::try_from(step.checked_sub(1)?).ok()?;
        self.graph.graph().nodes().get(index).copied()
    }

    /// Returns when a tensor must have its bytes, if no node is written over them.
    pub(super) fn needed(&self, tensor: TensorId, extra_lifetime: u32, group_end: u64) -> Lifetime {
        let life = self.life(tensor);
        let end = (life.last + 1).max(group_end) + u64::from(extra_lifetime);
        match Lifetime::new(life.first, end.min(self.end)) {
            Ok(needed) => needed,
            Err(_) => unreachable!("what is used is used before the run ends"),
        }
    }

    /// Returns whether `tensor` is used for the last time by `successor`, at `step`.
    pub(super) fn is_aliased(&self, tensor: TensorId, successor: TensorId, step: u64) -> bool {
        // What is kept is used last when no node runs any more.
        self.life(tensor).last == step && self.node(step) == Some(successor)
    }

    /// Returns the nodes that are computed in place of a source, whatever the file calls it. Of views nothing is
    /// demanded: what they write and what they read are needed at the same step, so the live ranges keep them apart.
    fn in_place_aliases(&self, memories: &[MemoryPlan]) -> Result<Vec<(TensorId, u32)>, PlanFault> {
        let graph = self.graph.graph();
        let mut found = Vec::new();
        for node in graph.nodes() {
            let Some(result) = self.tensor_blocks[node.index()] else { continue };
            for (slot, source) in (0..).zip(graph.sources(*node)) {
                let Some(source) = *source else { continue };
                let root = graph.root(source);
                let Some(operand) =
                    self.tensor_blocks[root.index()].filter(|it| root != *node && it.memory_plan == result.memory_plan)
                else {
                    continue;
                };
                let MemoryPlan { memory, plan, .. } = &memories[result.memory_plan as usize];
                let overlap = plan.problem().blocks()[result.block].overlaps;
                // What overlaps is certified to be far enough below, and that it may has been checked.
                if !touch(plan, result.block, operand.block) || overlap.is_some_and(|it| it.source == operand.block) {
                    continue;
                }
                if !self.may_alias(*node, slot, source, *memory) {
                    return Err(self.in_place_fault(*node, slot as usize, root));
                }
                found.push((*node, slot));
            }
        }
        Ok(found)
    }

    /// Checks that every block that may overlap another is the result of a node whose kernel allows that of a source.
    fn check_overlaps(&self, memories: &[MemoryPlan]) -> Result<(), PlanFault> {
        for it in memories {
            let blocks = it.plan.problem().blocks().pairs();
            for (block, overlap) in blocks.filter_map(|(block, it)| Some((block, it.overlaps?))) {
                let (node, root) = (it.tensors[block], it.tensors[overlap.source]);
                let slot = self.only_slot(node, root);
                if !slot.is_some_and(|slot| self.may_overlap(node, slot, it.memory, overlap.distance)) {
                    return Err(self.in_place_fault(node, slot.unwrap_or(0), root));
                }
            }
        }
        Ok(())
    }

    /// Returns the slot in which a node reads a root, if that is one slot alone.
    fn only_slot(&self, node: TensorId, root: TensorId) -> Option<usize> {
        let graph = self.graph.graph();
        let mut slots = graph.sources(node).iter().enumerate();
        let reads = |(_, source): &(usize, &Option<TensorId>)| source.is_some_and(|source| graph.root(source) == root);
        let slot = slots.find(reads)?.0;
        if slots.any(|it| reads(&it)) { None } else { Some(slot) }
    }

    /// Returns whether a result may share bytes with a source that starts `distance` bytes above it, counted from the root of
    /// the source.
    fn may_overlap(&self, node: TensorId, slot: usize, memory: MemoryId, distance: Bytes) -> bool {
        let graph = self.graph.graph();
        let Some(source) = graph.sources(node).get(slot).copied().flatten() else { return false };
        let start = distance.0.saturating_add(graph.tensors().offset(source).0);
        let free = self.options.reuse == Reuse::Extended && !self.graph.memories()[memory].keeps_ggml_in_place();
        free && graph.may_overlap(node, slot).is_some_and(|needed| needed.0 <= start)
    }

    fn in_place_fault(&self, node: TensorId, slot: usize, root: TensorId) -> PlanFault {
        let operation = self.graph.graph().tensors().op_title(self.graph.graph().tensor(node).op).into();
        let (tensor, overwritten, reuse) = (self.named(node), self.named(root), self.options.reuse.name());
        PlanFault::InPlace { reuse, tensor, slot, overwritten, operation }
    }

    /// Applies the rule that the plan says it was made with. Shapes may have no bytes here and some tomorrow, so this
    /// can't be left to the replay.
    fn may_alias(&self, node: TensorId, slot: u32, source: TensorId, memory: MemoryId) -> bool {
        let graph = self.graph.graph();
        let root = graph.root(source);
        let slots = graph.sources(node).iter().flatten().filter(|other| graph.root(**other) == root).count();
        let as_ggml = || ggml_allows_alias(self.graph, node, source);
        let allowed = match self.options.reuse {
            Reuse::Ggml => as_ggml(),
            Reuse::Extended => {
                let ours = graph.may_overwrite(node, slot as usize) && graph.tensors().offset(source) == Bytes::ZERO;
                ours && (!self.graph.memories()[memory].keeps_ggml_in_place() || as_ggml())
            }
            Reuse::None => false,
        };
        allowed && slots == 1
    }
}

/// Returns the memory that decides in ggml's plan how many bytes each tensor needs: that of its first use, as in
/// ours, but the use of a view does not count for its root.
fn sized_by_ggml(assigned: &AssignedGraph) -> Vec<Option<MemoryId>> {
    let graph = assigned.graph();
    let mut sized_by = vec![None; graph.tensors().len()];
    let mut ask = |tensor: TensorId, memory: MemoryId| {
        sized_by[tensor.index()].get_or_insert(memory);
    };
    let nodes = || graph.nodes().iter().copied().zip(assigned.assignment().nodes.iter().copied());
    graph.leafs().iter().zip(&assigned.assignment().leafs).for_each(|(leaf, memory)| ask(*leaf, *memory));
    for (node, memory) in nodes() {
        let used = core::iter::once(node).chain(graph.sources(node).iter().copied().flatten());
        used.filter(|tensor| graph.tensor(*tensor).flags.is_input()).for_each(|tensor| ask(tensor, memory));
    }
    for (node, memory) in nodes() {
        graph.sources(node).iter().copied().flatten().chain([node]).for_each(|tensor| ask(tensor, memory));
    }
    sized_by
}

/// Returns whether two blocks of a plan share bytes, or would if they had any.
fn touch(plan: &Plan, block: BlockId, other: BlockId) -> bool {
    let blocks = plan.problem().blocks();
    let (here, there) = (plan.place(block), plan.place(other));
    let end = |place: Place, block: BlockId| place.offset.0.saturating_add(blocks[block].size.0);
    let overlap = here.buffer == there.buffer
        && here.offset.0 < end(there, other)
        && there.offset.0 < end(here, block)
        // Without bytes there is nothing to share, even within another's range.
        && blocks[block].size > Bytes::ZERO
        && blocks[other].size > Bytes::ZERO;
    overlap || block == other || blocks[block].follows == Some(other)
}
