//! Graph in, the first and the last use of every root out. O(edges). Independent of operations: only which nodes read
//! and write which tensors counts.
//!
//! A root lives until the last node that reads or writes it, itself or through a view. What ggml never frees lives to
//! the end: outputs, nodes and leafs that no node reads, and roots of views that no node reads. By default inputs that no
//! node touches are an exception: they live at step 0 alone, see [`Unread`].

use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::Id;

use crate::live_ranges::end_of_run;
use crate::{AssignedGraph, Graph, MemoryId, Op, TensorId, Unread};

/// When and where a root is needed. Steps as in [`live_ranges`](crate::live_ranges).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RootLifetime {
    /// The memory it belongs to; `None` for what no node and no leaf touches.
    pub(crate) memory: Option<MemoryId>,
    /// The first step at which it must have its bytes.
    pub(crate) first: u64,
    /// The last step at which it is used.
    pub(crate) last: u64,
    /// Whether it lives to the end.
    pub(crate) kept: bool,
    /// Whether its bytes are ours to plan.
    pub(crate) planned: bool,
}

impl RootLifetime {
    /// Returns whether a plan must place it: it is used, and its memory is planned.
    pub(crate) fn is_allocated(&self) -> bool {
        self.memory.is_some() && self.planned
    }
}

/// All lives of a graph.
pub(crate) struct RootLifetimes {
    /// The life of every root, by the number of the tensor; of views, nothing.
    pub(crate) of_root: Vec<RootLifetime>,
    /// Every root whose memory is planned, once, in the order in which they get their bytes.
    pub(crate) births: Vec<TensorId>,
}

/// Finds the life of every root. O(edges).
pub(crate) fn root_lifetimes(assigned: &AssignedGraph, unread: Unread) -> RootLifetimes {
    let graph = assigned.graph();
    let assignment = assigned.assignment();
    let mut walk = LivenessWalk::new(graph);
    // Leafs, then inputs: they have their bytes before the run.
    for (leaf, memory) in graph.leafs().iter().zip(&assignment.leafs) {
        walk.use_root(graph.root(*leaf), 0, *memory);
    }
    for (step, (node, memory)) in (1..).zip(graph.nodes().iter().zip(&assignment.nodes)) {
        let it = graph.tensor(*node);
        let root = it.view.map_or(*node, |view| view.root);
        if it.view.is_some() && it.op != Op::None {
            walk.marks[root.index()] |= VIEWED;
        }
        // Whatever has its bytes before the run gets them in the order of nodes, each in front of its sources.
        if walk.is_unused(root) && walk.is_early(root) {
            walk.use_root(root, step, *memory);
        }
        for source in graph.sources(*node).iter().copied().flatten() {
            walk.marks[source.index()] |= READ;
            walk.use_root(graph.root(source), step, *memory);
        }
        walk.use_root(root, step, *memory);
    }
    walk.mark_kept(end_of_run(assigned), unread);
    walk.early.append(&mut walk.later);
    RootLifetimes { of_root: walk.lives, births: walk.early }
}

/// The tensor is a node.
const NODE: u8 = 1;
/// A node reads the tensor.
const READ: u8 = 2;
/// A node is a view of the tensor. A view without an operation is no more than a mark that its root is needed until then
/// (ggml's scheduler makes such nodes), and keeps nothing.
const VIEWED: u8 = 4;

struct LivenessWalk<'a> {
    graph: &'a Graph,
    lives: Vec<RootLifetime>,
    marks: Vec<u8>,
    /// Roots that have their bytes before the run, and the others.
    early: Vec<TensorId>,
    later: Vec<TensorId>,
}

impl<'a> LivenessWalk<'a> {
    fn new(graph: &'a Graph) -> Self {
        let tensors = graph.tensors().len();
        let mut marks = vec![0; tensors];
        graph.nodes().iter().for_each(|node| marks[node.index()] = NODE);
        let later = Vec::with_capacity(graph.nodes().len());
        Self { graph, lives: vec![RootLifetime::default(); tensors], marks, early: Vec::new(), later }
    }

    fn is_unused(&self, root: TensorId) -> bool {
        self.lives[root.index()].memory.is_none()
    }

    /// Returns whether a root has its bytes before the run: inputs, and what no node makes, such as a constant that a
    /// node reads, perhaps through a view, and that is in neither list.
    fn is_early(&self, root: TensorId) -> bool {
        let it = self.graph.tensor(root);
        it.flags.is_input() || (it.op == Op::None && self.marks[root.index()] & NODE == 0)
    }

    /// Notes a use. Steps never fall from one call to the next.
    #[inline(always)]
    fn use_root(&mut self, root: TensorId, step: u64, memory: MemoryId) {
        if self.is_unused(root) {
            self.begin(root, step, memory);
        }
        self.lives[root.index()].last = step;
    }

    #[inline(never)]
    fn begin(&mut self, root: TensorId, step: u64, memory: MemoryId) {
        let first = if step > 0 && self.is_early(root) { 0 } else { step };
        let planned = self.graph.tensor(root).is_planned();
        let life = &mut self.lives[root.index()];
        *life = RootLifetime { memory: Some(memory), first, planned, ..*life };
        if planned {
            let births = if first == 0 { &mut self.early } else { &mut self.later };
            births.push(root);
        }
    }

    /// Marks what lives to the end.
    fn mark_kept(&mut self, end: u64, unread: Unread) {
        let graph = self.graph;
        for tensor in graph.leafs().iter().chain(graph.nodes()) {
            let it = graph.tensor(*tensor);
            let marks = self.marks[tensor.index()];
            // A root without readers of its own is in use if a view of it is read.
            let is_unread = match it.view {
                None => marks & (READ | VIEWED) == 0,
                Some(_) => marks & READ == 0 && it.op != Op::None,
            };
            if !is_unread && !it.flags.is_output() {
                continue;
            }
            let life = &mut self.lives[graph.root(*tensor).index()];
            let kept = match unread {
                Unread::Keep => is_unread,
                // No node has met it after step 0.
                Unread::FreeInputs => is_unread && !(it.flags.is_input() && life.last == 0),
                Unread::Free => false,
            };
            if kept || it.flags.is_output() {
                (life.kept, life.last) = (true, end);
            }
        }
    }
}
