//! Lives in, shares out: which node takes over the bytes of a source that dies at it. O(edges).
//!
//! As a register allocator coalesces a copy, a node may write its result over a source that nobody needs any more. The
//! source may be a view, as long as it starts where its root starts and the whole root dies with it: `rope(reshape(q))`
//! runs in the bytes of `q`. Each dying root has only one node that could take it over, so taking one never spoils
//! another, and every one taken lowers what is alive at that step.

use steeve_plan::{Bytes, Id};

use crate::draft::{Draft, Share, ShareId, end_of_run};
use crate::liveness::{Life, Lives};
use crate::{AssignedGraph, MemoryId, TensorId};

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
pub(crate) fn shares(assigned: &AssignedGraph, rule: TakeOver, lives: &Lives) -> OurShares {
    let graph = assigned.graph();
    let draft = Draft::with_room(lives.of_root.len(), lives.births.len());
    let mut walk = Walk { assigned, rule, lives: &lives.of_root, draft, end: end_of_run(assigned) };
    let mut differs = false;
    for &root in &lives.births {
        let step = lives.of_root[root.index()].first;
        // Only a node that is the first to touch its own bytes can take over those of a source.
        let node = step.checked_sub(1).and_then(|before| graph.nodes().get(before as usize));
        let is_fresh = rule != TakeOver::None && node == Some(&root);
        let choice = if is_fresh { walk.choose(root, step) } else { Choice::default() };
        differs |= choice.is_ggml_ahead;
        walk.open(root, step, choice.before);
    }
    OurShares { draft: walk.draft, differs }
}

/// What a node takes over.
#[derive(Clone, Copy, Default)]
struct Choice {
    before: Option<ShareId>,
    /// Whether ggml takes over a source here, and ours is none or a smaller one, so that ggml may have fewer bytes alive.
    is_ggml_ahead: bool,
}

struct Walk<'a> {
    assigned: &'a AssignedGraph,
    rule: TakeOver,
    lives: &'a [Life],
    draft: Draft,
    end: u64,
}

impl Walk<'_> {
    /// Gives a root bytes: those of `before`, or its own.
    fn open(&mut self, root: TensorId, step: u64, before: Option<ShareId>) {
        let Some(memory) = self.lives[root.index()].home else { return };
        if let Some(before) = before {
            self.draft.shares[before].end = step;
        }
        let share = self.share(root, self.assigned.owner(memory), step, before);
        self.draft.of_tensor[root.index()] = self.draft.shares.push(share);
    }

    fn share(&self, tensor: TensorId, memory: MemoryId, start: u64, follows: Option<ShareId>) -> Share {
        let life = self.lives[tensor.index()];
        let end = (life.last + 1).min(self.end);
        let asked = life.home.unwrap_or(memory);
        let size = self.assigned.alloc_size(tensor, asked);
        Share { tensor, memory, asked, size, start, end, follows }
    }

    fn choose(&self, node: TensorId, step: u64) -> Choice {
        let graph = self.assigned.graph();
        let op = graph.tensor(node).op;
        let (theirs, ours) = (op.ggml_in_place(), op.ggml_in_place() || graph.overwrites_any_slot(node));
        let theirs = if theirs { self.ggml_choice(node, step) } else { None };
        let before = if ours { self.source_to_take_over(node, step) } else { None };
        let reads_itself = || graph.sources(node).iter().flatten().any(|source| graph.root(*source) == node);
        if (theirs, before) == (None, None) || reads_itself() {
            return Choice::default();
        }
        // Where both give up the same number of bytes of the same memory, as many are alive at every step.
        let given_up = |share: ShareId| (self.draft.shares[share].memory, self.draft.shares[share].size);
        Choice { before, is_ggml_ahead: theirs.is_some() && before.map(given_up) != theirs.map(given_up) }
    }

    /// The share of a source that dies at `step` and that the node takes over: the one that fits best, the first of
    /// equals.
    fn source_to_take_over(&self, node: TensorId, step: u64) -> Option<ShareId> {
        let memory = self.lives[node.index()].home?;
        let owner = self.assigned.owner(memory);
        let size = self.assigned.alloc_size(node, memory);
        let sources = self.assigned.graph().sources(node);
        let mut found: Option<(Bytes, ShareId)> = None;
        for (slot, source) in sources.iter().enumerate().take(MOST_SLOTS) {
            let Some(source) = *source else { continue };
            let Some(share) = self.dying(source, sources, step) else { continue };
            if !self.rule_allows(node, slot, source, owner) {
                continue;
            }
            let it = &self.draft.shares[share];
            if it.memory == owner && it.size >= size && it.start < step && found.is_none_or(|best| it.size < best.0) {
                found = Some((it.size, share));
            }
        }
        found.map(|(_, share)| share)
    }

    /// Where nodes are fused or run side by side, only what ggml itself takes over.
    fn rule_allows(&self, node: TensorId, slot: usize, source: TensorId, memory: MemoryId) -> bool {
        let graph = self.assigned.graph();
        let ggml = || ggml_allows(self.assigned, node, source);
        if self.rule == TakeOver::Ggml {
            return ggml();
        }
        let ours = graph.may_overwrite(node, slot) && graph.tensors().offset(source) == Bytes::ZERO;
        ours && (!self.assigned.memories()[memory].keeps_ggml_in_place() || ggml())
    }

    /// The share of the root behind `source`, if that root is used for the last time at `step` and by one slot only.
    fn dying(&self, source: TensorId, sources: &[Option<TensorId>], step: u64) -> Option<ShareId> {
        let graph = self.assigned.graph();
        let root = graph.root(source);
        let life = &self.lives[root.index()];
        if life.last != step || life.kept || !life.planned {
            return None;
        }
        let mut slots = sources.iter().flatten().filter(|other| graph.root(**other) == root);
        slots.next();
        if slots.next().is_none() { self.draft.of_tensor[root.index()] } else { None }
    }

    /// What ggml's rule takes over, perhaps in another memory or through a slot that we leave alone.
    fn ggml_choice(&self, node: TensorId, step: u64) -> Option<ShareId> {
        let sources = self.assigned.graph().sources(node);
        let chosen = |source: &TensorId| {
            let dying = self.dying(*source, sources, step);
            dying.filter(|_| ggml_allows(self.assigned, node, *source))
        };
        sources.iter().take(MOST_SLOTS).flatten().find_map(chosen)
    }
}

/// ggml's own rule, apart from who is still alive: an operation of its list, and a source of equal layout that owns its
/// bytes.
pub(crate) fn ggml_allows(assigned: &AssignedGraph, node: TensorId, source: TensorId) -> bool {
    let graph = assigned.graph();
    let (tensor, parent) = (graph.tensor(node), graph.tensor(source));
    tensor.op.ggml_in_place() && !parent.is_view() && !parent.flags.is_output() && parent.layout == tensor.layout
}
