//! Uses of roots in, live ranges out: which node's result aliases a source that dies at it. O(edges).
//!
//! As a register allocator coalesces a copy, a node may write its result over a source that no later node needs. The
//! source may be a view, as long as it starts where its root starts and the whole root dies with it:
//! `rope(reshape(q))` runs in the bytes of `q`. Each dying root has only one node whose result could alias it, so an
//! alias never prevents another, and each one lowers the number of live bytes at its step.

use steeve_plan::{Bytes, Id};

use crate::live_ranges::{LiveRange, LiveRangeId, LiveRanges, RangeOverlap, end_of_run};
use crate::liveness::{RootLifetime, RootLifetimes};
use crate::{AssignedGraph, MemoryId, TensorId};

/// Which in-place aliases are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasRule {
    /// All that the table of operations allows.
    Extended,
    /// Those of ggml's rule, as far as they are safe: within one memory, and nothing that must survive.
    Ggml,
    /// None.
    None,
}

/// The number of slots that are considered for an alias, so that a node with very many sources costs no more than
/// others.
pub(crate) const MAX_SLOTS: usize = 16;

/// What our own liveness and rules say.
pub(crate) struct AliasedRanges {
    pub(crate) live_ranges: LiveRanges,
    /// Whether ggml makes an alias that is not made here, so that its plan may be smaller.
    pub(crate) differs: bool,
}

/// Computes the live ranges of all tensors by our own liveness, with the in-place aliases that `rule` allows.
pub(crate) fn alias_in_place(assigned: &AssignedGraph, rule: AliasRule, lives: &RootLifetimes) -> AliasedRanges {
    let graph = assigned.graph();
    let live_ranges = LiveRanges::with_capacity(lives.of_root.len(), lives.births.len());
    let mut walk = AliasWalk { assigned, rule, lives: &lives.of_root, live_ranges, end: end_of_run(assigned) };
    let mut differs = false;
    for &root in &lives.births {
        let step = lives.of_root[root.index()].first;
        // Only a node that is the first to touch its own bytes can alias those of a source.
        let node = step.checked_sub(1).and_then(|index| graph.nodes().get(index as usize));
        let is_fresh = rule != AliasRule::None && node == Some(&root);
        let choice = if is_fresh { walk.choose(root, step) } else { AliasChoice::default() };
        differs |= choice.is_ggml_ahead;
        walk.begin_range(root, step, choice);
    }
    AliasedRanges { live_ranges: walk.live_ranges, differs }
}

/// The live range that the result of a node aliases.
#[derive(Clone, Copy, Default)]
struct AliasChoice {
    source_range: Option<LiveRangeId>,
    /// The live range that it may overlap instead.
    overlap: Option<RangeOverlap>,
    /// Whether ggml aliases a source here and our choice is none or a smaller one, so that fewer bytes may be live in
    /// ggml's plan.
    is_ggml_ahead: bool,
}

struct AliasWalk<'a> {
    assigned: &'a AssignedGraph,
    rule: AliasRule,
    lives: &'a [RootLifetime],
    live_ranges: LiveRanges,
    end: u64,
}

impl AliasWalk<'_> {
    /// Gives a root bytes: those of the source that it aliases, or its own.
    fn begin_range(&mut self, root: TensorId, step: u64, choice: AliasChoice) {
        let Some(memory) = self.lives[root.index()].memory else { return };
        if let Some(source_range) = choice.source_range {
            self.live_ranges.ranges[source_range].end = step;
        }
        let range = self.range_of(root, self.assigned.owner(memory), step, choice);
        self.live_ranges.of_tensor[root.index()] = self.live_ranges.ranges.push(range);
    }

    fn range_of(&self, tensor: TensorId, memory: MemoryId, start: u64, choice: AliasChoice) -> LiveRange {
        let life = self.lives[tensor.index()];
        let end = (life.last + 1).min(self.end);
        let sized_by = life.memory.unwrap_or(memory);
        let size = self.assigned.alloc_size(tensor, sized_by);
        let AliasChoice { source_range: alias_of, overlap, .. } = choice;
        LiveRange { tensor, memory, sized_by, size, start, end, alias_of, overlap }
    }

    /// Returns the source that the result of `node` may overlap, of all that die at `step` the one that saves most.
    fn best_overlap(&self, node: TensorId, step: u64) -> Option<RangeOverlap> {
        let graph = self.assigned.graph();
        let sized_by = self.lives[node.index()].memory?;
        let memory = self.assigned.owner(sized_by);
        if self.rule != AliasRule::Extended || self.assigned.memories()[memory].keeps_ggml_in_place() {
            return None;
        }
        let (sources, size) = (graph.sources(node), self.assigned.alloc_size(node, sized_by));
        let mut best: Option<(Bytes, RangeOverlap)> = None;
        for (slot, distance) in graph.tensors().permitted_overlaps(node) {
            let Some(source) = sources.get(slot).copied().flatten() else { continue };
            let Some(range) = self.dying_range(source, sources, step) else { continue };
            let it = &self.live_ranges.ranges[range];
            if it.memory != memory || it.start >= step || it.end != step + 1 {
                continue;
            }
            // A view may start within its root, and what is below it is no longer needed.
            let distance = Bytes(distance.0.saturating_sub(graph.tensors().offset(source).0));
            let shared = Bytes(it.size.0.min(size.0.saturating_sub(distance.0)));
            if shared > best.map_or(Bytes::ZERO, |it| it.0) {
                best = Some((shared, RangeOverlap { source: range, distance }));
            }
        }
        best.map(|(_, overlap)| overlap)
    }

    fn choose(&self, node: TensorId, step: u64) -> AliasChoice {
        let graph = self.assigned.graph();
        let op = graph.tensor(node).op;
        let (theirs, ours) = (op.ggml_in_place(), op.ggml_in_place() || graph.overwrites_any_slot(node));
        let theirs = if theirs { self.ggml_choice(node, step) } else { None };
        let source_range = if ours { self.best_source(node, step) } else { None };
        let reads_itself = || graph.sources(node).iter().flatten().any(|source| graph.root(*source) == node);
        let overlap = if source_range.is_none() { self.best_overlap(node, step) } else { None };
        if (theirs, source_range, overlap) == (None, None, None) || reads_itself() {
            return AliasChoice::default();
        }
        // Where both give up the same number of bytes of the same memory, as many are alive at every step.
        let given_up =
            |range: LiveRangeId| (self.live_ranges.ranges[range].memory, self.live_ranges.ranges[range].size);
        AliasChoice {
            source_range,
            overlap,
            is_ggml_ahead: theirs.is_some() && source_range.map(given_up) != theirs.map(given_up),
        }
    }

    /// Returns the live range of the smallest source that dies at `step` and that the node may write its result over;
    /// of equal ones, the first.
    fn best_source(&self, node: TensorId, step: u64) -> Option<LiveRangeId> {
        let memory = self.lives[node.index()].memory?;
        let owner = self.assigned.owner(memory);
        let size = self.assigned.alloc_size(node, memory);
        let sources = self.assigned.graph().sources(node);
        let mut found: Option<(Bytes, LiveRangeId)> = None;
        for (slot, source) in sources.iter().enumerate().take(MAX_SLOTS) {
            let Some(source) = *source else { continue };
            let Some(range) = self.dying_range(source, sources, step) else { continue };
            if !allows_alias(self.assigned, self.rule, node, slot, source, owner) {
                continue;
            }
            let it = &self.live_ranges.ranges[range];
            if it.memory == owner && it.size >= size && it.start < step && found.is_none_or(|best| it.size < best.0) {
                found = Some((it.size, range));
            }
        }
        found.map(|(_, range)| range)
    }

    /// Returns the live range of the root behind `source`, if that root is used for the last time at `step` and by
    /// one slot only.
    fn dying_range(&self, source: TensorId, sources: &[Option<TensorId>], step: u64) -> Option<LiveRangeId> {
        let graph = self.assigned.graph();
        let root = graph.root(source);
        let life = &self.lives[root.index()];
        if life.last != step || life.kept || !life.planned {
            return None;
        }
        let mut slots = sources.iter().flatten().filter(|other| graph.root(**other) == root);
        slots.next();
        if slots.next().is_none() { self.live_ranges.of_tensor[root.index()] } else { None }
    }

    /// Returns the live range that ggml's rule aliases, perhaps in another memory or through a slot that our rule
    /// excludes.
    fn ggml_choice(&self, node: TensorId, step: u64) -> Option<LiveRangeId> {
        let sources = self.assigned.graph().sources(node);
        let chosen = |source: &TensorId| {
            let dying = self.dying_range(*source, sources, step);
            dying.filter(|_| ggml_allows_alias(self.assigned, node, *source))
        };
        sources.iter().take(MAX_SLOTS).flatten().find_map(chosen)
    }
}

/// Returns whether a rule allows an alias, apart from liveness. Where nodes are fused or run side by side, only aliases of
/// ggml's own rule are allowed.
pub(crate) fn allows_alias(
    assigned: &AssignedGraph,
    rule: AliasRule,
    node: TensorId,
    slot: usize,
    source: TensorId,
    memory: MemoryId,
) -> bool {
    let graph = assigned.graph();
    let ggml = || ggml_allows_alias(assigned, node, source);
    if rule == AliasRule::Ggml {
        return ggml();
    }
    let ours = graph.may_overwrite(node, slot) && graph.tensors().offset(source) == Bytes::ZERO;
    ours && (!assigned.memories()[memory].keeps_ggml_in_place() || ggml())
}

/// Returns whether ggml's own rule allows an alias, apart from liveness: an operation of its list, and a source of
/// equal layout that owns its bytes.
pub(crate) fn ggml_allows_alias(assigned: &AssignedGraph, node: TensorId, source: TensorId) -> bool {
    let graph = assigned.graph();
    let (tensor, parent) = (graph.tensor(node), graph.tensor(source));
    tensor.op.ggml_in_place() && !parent.is_view() && !parent.flags.is_output() && parent.layout == tensor.layout
}
