//! Lives in, shares out: which node takes over the bytes of a source that dies at it. O(edges).
//!
//! As a register allocator coalesces a copy, a node may write its result over a source that nobody needs any more. The
//! source may be a view, as long as it starts where its root starts and the whole root dies with it: `rope(reshape(q))`
//! runs in the bytes of `q`. Each dying root has only one node that could take it over, so taking one never spoils
//! another, and every one taken lowers what is alive at that step.

use steeve_plan::{Bytes, Id};

use crate::draft::{Draft, Share, ShareId, end_of_run};
use crate::liveness::{Life, lives};
use crate::{AssignedGraph, MemoryId, TensorId, Unread};

/// Which take-overs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeOver {
    /// All that the table of operations allows.
    More,
    /// Those of ggml's rule, as far as they are safe: within one memory, and nothing that must survive.
    Ggml,
    /// None.
    None,
}

/// No operation takes over a source behind these slots, so a node with very many sources costs no more than others.
const MOST_SLOTS: usize = 16;

/// What our own liveness and rules say.
pub(crate) struct OurShares {
    pub(crate) draft: Draft,
    /// Whether ggml makes a take-over that is not made here, so that its plan may be smaller.
    pub(crate) differs: bool,
}

/// The shares of all tensors, by our own liveness.
pub(crate) fn shares(assigned: &AssignedGraph, rule: TakeOver, unread: Unread) -> OurShares {
    let graph = assigned.graph();
    let lives = lives(assigned, unread);
    let mut walk = Walk { assigned, rule, lives: &lives, draft: Draft::new(lives.len()), end: end_of_run(assigned) };
    let mut differs = false;
    for leaf in graph.leafs() {
        walk.open(graph.root(*leaf));
    }
    // Inputs have their bytes before the run; opening them in node order keeps the order of births.
    for node in graph.nodes() {
        for tensor in core::iter::once(*node).chain(graph.sources(*node).iter().copied().flatten()) {
            let root = graph.root(tensor);
            if lives[root.index()].first == 0 {
                walk.open(root);
            }
        }
    }
    for (step, node) in (1..).zip(graph.nodes()) {
        for source in graph.sources(*node).iter().copied().flatten() {
            walk.open(graph.root(source));
        }
        let tensor = graph.tensor(*node);
        if rule != TakeOver::None && tensor.is_planned() && walk.draft.of_tensor[node.index()].is_none() {
            let theirs = walk.ggml_choice(*node, step);
            let ours = walk.take_over(*node, step);
            differs |= theirs.is_some() && theirs != ours;
        }
        walk.open(graph.root(*node));
    }
    OurShares { draft: walk.draft, differs }
}

struct Walk<'a> {
    assigned: &'a AssignedGraph,
    rule: TakeOver,
    lives: &'a [Life],
    draft: Draft,
    end: u64,
}

impl Walk<'_> {
    /// Gives a root bytes of its own, unless it has some or needs none.
    fn open(&mut self, root: TensorId) {
        let life = self.lives[root.index()];
        let Some(memory) = life.home else { return };
        if self.draft.of_tensor[root.index()].is_some() || !self.assigned.graph().tensor(root).is_planned() {
            return;
        }
        let share = self.share(root, self.assigned.owner(memory), life.first, None);
        self.draft.of_tensor[root.index()] = self.draft.shares.push(share);
    }

    fn share(&self, tensor: TensorId, memory: MemoryId, start: u64, follows: Option<ShareId>) -> Share {
        let life = self.lives[tensor.index()];
        let hold = u64::from(self.assigned.memories()[memory].hold);
        let end = (life.last + 1 + hold).min(self.end);
        let asked = life.home.unwrap_or(memory);
        let size = self.assigned.alloc_size(tensor, asked);
        Share { tensor, memory, asked, size, start, end, follows }
    }

    /// Takes over a source that dies at `step`, if there is one; whose share that was.
    fn take_over(&mut self, node: TensorId, step: u64) -> Option<ShareId> {
        let memory = self.lives[node.index()].home?;
        let owner = self.assigned.owner(memory);
        let size = self.assigned.alloc_size(node, memory);
        let sources = self.assigned.graph().sources(node);
        let mut found: Option<(Bytes, ShareId)> = None;
        for (slot, source) in sources.iter().enumerate().take(MOST_SLOTS) {
            let Some(source) = *source else { continue };
            if !self.rule_allows(node, slot, source, owner) {
                continue;
            }
            let Some(share) = self.dying(source, sources, step) else { continue };
            let it = self.draft.shares[share];
            // Of several, the one that fits best; the first of equals.
            if it.memory == owner && it.size >= size && it.start < step && found.is_none_or(|best| it.size < best.0) {
                found = Some((it.size, share));
            }
        }
        let (_, before) = found?;
        self.draft.shares[before].end = step;
        let share = self.share(node, owner, step, Some(before));
        self.draft.of_tensor[node.index()] = self.draft.shares.push(share);
        Some(before)
    }

    /// Where nodes are fused or run side by side (`hold`), only what ggml itself takes over.
    fn rule_allows(&self, node: TensorId, slot: usize, source: TensorId, memory: MemoryId) -> bool {
        let graph = self.assigned.graph();
        let ggml = || ggml_allows(self.assigned, node, source);
        if self.rule == TakeOver::Ggml {
            return ggml();
        }
        let ours = graph.may_overwrite(node, slot) && graph.tensors().offset(source) == Bytes::ZERO;
        ours && (self.assigned.memories()[memory].hold == 0 || ggml())
    }

    /// The share of the root behind `source`, if that root is used for the last time at `step` and by one slot only.
    fn dying(&self, source: TensorId, sources: &[Option<TensorId>], step: u64) -> Option<ShareId> {
        let graph = self.assigned.graph();
        let root = graph.root(source);
        let life = self.lives[root.index()];
        if life.last != step || life.kept || !graph.tensor(root).is_planned() {
            return None;
        }
        let mut slots = sources.iter().flatten().filter(|other| graph.root(**other) == root);
        slots.next();
        if slots.next().is_none() { self.draft.of_tensor[root.index()] } else { None }
    }

    /// What ggml's rule takes over, perhaps in another memory or through a slot that we leave alone.
    fn ggml_choice(&self, node: TensorId, step: u64) -> Option<ShareId> {
        let graph = self.assigned.graph();
        if !graph.tensor(node).op.ggml_in_place() {
            return None;
        }
        let sources = graph.sources(node);
        let allowed = |source: &&TensorId| ggml_allows(self.assigned, node, **source);
        sources.iter().take(MOST_SLOTS).flatten().filter(allowed).find_map(|source| self.dying(*source, sources, step))
    }
}

/// ggml's own rule, apart from who is still alive: an operation of its list, and a source of equal layout that owns its
/// bytes.
pub(crate) fn ggml_allows(assigned: &AssignedGraph, node: TensorId, source: TensorId) -> bool {
    let graph = assigned.graph();
    let (tensor, parent) = (graph.tensor(node), graph.tensor(source));
    tensor.op.ggml_in_place() && !parent.is_view() && !parent.flags.is_output() && parent.layout == tensor.layout
}
