//! The strict reader: what the graph needs, against what the file says.

use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::file::PlanFile;
use steeve_plan::{BlockId, Bytes, Id, Lifetime, Place, Plan};

use super::memory_loader::MemoryLoader;
use super::{Matched, PlanFault, TensorNumbers};
use crate::alias::ggml_allows;
use crate::draft::end_of_run;
use crate::fusion::{Fusion, GroupEnds};
use crate::liveness::{Life, lives};
use crate::plan::{Given, unlisted};
use crate::{AssignedGraph, GraphPlan, MemoryId, MemoryPlan, Named, PlanOptions, Reuse, TensorId};

/// Holds a file to the graph.
pub(super) struct PlanLoader<'a> {
    file: &'a PlanFile,
    pub(super) graph: &'a AssignedGraph,
    pub(super) options: PlanOptions,
    pub(super) numbers: TensorNumbers,
    pub(super) matched: Matched,
    lives: Vec<Life>,
    /// The memory that ggml asks for each tensor's bytes.
    pub(super) asked_by_ggml: Vec<Option<MemoryId>>,
    pub(super) end: u64,
    pub(super) group_ends: Option<GroupEnds>,
    pub(super) given: Vec<Option<Given>>,
}

impl<'a> PlanLoader<'a> {
    pub(super) fn new(
        file: &'a PlanFile,
        graph: &'a AssignedGraph,
        options: PlanOptions,
        numbers: TensorNumbers,
        matched: Matched,
    ) -> Self {
        let given = vec![None; graph.graph().tensors().len()];
        let (lives, asked_by_ggml) = (lives(graph, options.unread).of_root, asked_by_ggml(graph));
        // The plan may keep groups that the graph's memories do not ask for.
        let kept = Some(Fusion::Kept.name());
        let keeps_groups = file.memories.iter().any(|memory| memory.fusion.as_deref() == kept);
        let group_ends = keeps_groups.then(|| GroupEnds::of(graph));
        Self { file, graph, options, numbers, matched, lives, asked_by_ggml, end: end_of_run(graph), group_ends, given }
    }

    pub(super) fn plan(mut self) -> Result<GraphPlan, PlanFault> {
        let owners: Vec<MemoryId> = self.graph.owners().collect();
        let mut memories = Vec::with_capacity(owners.len());
        for (part, memory) in (0..).zip(owners) {
            let file = self.matched.file(self.file, memory);
            memories.push(MemoryLoader::new(&self, memory, part, file)?.check(&mut self)?);
        }
        let bare = self.lives.iter().zip(&self.given).position(|(life, given)| life.is_allocated() && given.is_none());
        if let Some(tensor) = bare.and_then(TensorId::from_index) {
            return Err(PlanFault::Unplaced { tensor: self.named(tensor) });
        }
        let take_overs = self.take_overs(&memories)?;
        let Self { graph, options, given, .. } = self;
        Ok(GraphPlan {
            assigned: graph.clone(),
            options,
            memories,
            given,
            unlisted: unlisted(graph.graph()),
            take_overs,
        })
    }

    pub(super) fn named(&self, tensor: TensorId) -> Named {
        Named::new(tensor, self.graph.graph().names())
    }

    pub(super) fn life(&self, tensor: TensorId) -> Life {
        self.lives[tensor.index()]
    }

    /// The node that runs at a step.
    pub(super) fn node(&self, step: u64) -> Option<TensorId> {
        let index = usize::try_from(step.checked_sub(1)?).ok()?;
        self.graph.graph().nodes().get(index).copied()
    }

    /// When a tensor must have its bytes, if no node takes them over.
    pub(super) fn needed(&self, tensor: TensorId, hold: u32, group_end: u64) -> Lifetime {
        let life = self.life(tensor);
        let end = (life.last + 1).max(group_end) + u64::from(hold);
        match Lifetime::new(life.first, end.min(self.end)) {
            Ok(needed) => needed,
            Err(_) => unreachable!("what is used is used before the run ends"),
        }
    }

    /// Whether `tensor` is used for the last time by `taker`, at `step`.
    pub(super) fn is_taken_over(&self, tensor: TensorId, taker: TensorId, step: u64) -> bool {
        // What is kept is used last when no node runs any more.
        self.life(tensor).last == step && self.node(step) == Some(taker)
    }

    /// Nodes that are computed in place of a source, whatever the file calls it. Of views nothing is asked: what they write
    /// and what they read are needed at the same step, so the lifetimes keep them apart.
    fn take_overs(&self, memories: &[MemoryPlan]) -> Result<Vec<(TensorId, u32)>, PlanFault> {
        let graph = self.graph.graph();
        let mut found = Vec::new();
        for node in graph.nodes() {
            let Some(given) = self.given[node.index()] else { continue };
            for (slot, source) in (0..).zip(graph.sources(*node)) {
                let Some(source) = *source else { continue };
                let root = graph.root(source);
                let Some(taken) = self.given[root.index()].filter(|it| root != *node && it.part == given.part) else {
                    continue;
                };
                let MemoryPlan { memory, plan, .. } = &memories[given.part as usize];
                if !touch(plan, given.block, taken.block) {
                    continue;
                }
                if !self.may_take_over(*node, slot, source, *memory) {
                    let operation = graph.tensors().op_title(graph.tensor(*node).op).into();
                    let (tensor, taken, slot) = (self.named(*node), self.named(root), slot as usize);
                    let reuse = self.options.reuse.name();
                    return Err(PlanFault::TakeOver { reuse, tensor, slot, taken, operation });
                }
                found.push((*node, slot));
            }
        }
        Ok(found)
    }

    /// By the rule that the plan says it was made with. Shapes may have no bytes here and some tomorrow, so this can't be
    /// left to the replay.
    fn may_take_over(&self, node: TensorId, slot: u32, source: TensorId, memory: MemoryId) -> bool {
        let graph = self.graph.graph();
        let root = graph.root(source);
        let slots = graph.sources(node).iter().flatten().filter(|other| graph.root(**other) == root).count();
        let as_ggml = || ggml_allows(self.graph, node, source);
        let allowed = match self.options.reuse {
            Reuse::Ggml => as_ggml(),
            Reuse::More => {
                let ours = graph.may_overwrite(node, slot as usize) && graph.tensors().offset(source) == Bytes::ZERO;
                ours && (!self.graph.memories()[memory].keeps_ggml_in_place() || as_ggml())
            }
            Reuse::None => false,
        };
        allowed && slots == 1
    }
}

/// Where ggml asks for each tensor's bytes: as we do, where it is first used, but a view does not speak for its root.
fn asked_by_ggml(assigned: &AssignedGraph) -> Vec<Option<MemoryId>> {
    let graph = assigned.graph();
    let mut asked = vec![None; graph.tensors().len()];
    let mut ask = |tensor: TensorId, memory: MemoryId| {
        asked[tensor.index()].get_or_insert(memory);
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
    asked
}

/// Whether two blocks of a plan share bytes, or would if they had any.
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
