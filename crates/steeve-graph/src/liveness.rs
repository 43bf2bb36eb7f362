//! Graph in, the first and the last use of every root out. O(edges). Knows no operation, only who reads and who writes.
//!
//! A root lives until the last node that reads or writes it, itself or through a view. What ggml never frees lives to
//! the end: outputs, nodes and leafs that no node reads, and roots of views that no node reads. By default inputs that no
//! node touches are an exception: they live at step 0 alone, see [`Unread`].

use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::Id;

use crate::draft::end_of_run;
use crate::{AssignedGraph, MemoryId, Op, TensorId, Unread};

/// When and where a root is needed. Steps as in [`draft`](crate::draft).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// The memory it belongs to; `None` for what no node and no leaf touches.
    pub(crate) home: Option<MemoryId>,
    /// The first step at which it must have its bytes.
    pub(crate) first: u64,
    /// The last step at which it is used.
    pub(crate) last: u64,
    /// Whether it lives to the end.
    pub(crate) kept: bool,
    /// Whether its bytes are ours to plan.
    pub(crate) planned: bool,
}

/// The life of every root; of views, nothing.
pub(crate) fn lives(assigned: &AssignedGraph, unread: Unread) -> Vec<Life> {
    let graph = assigned.graph();
    let tensors = graph.tensors();
    let mut lives = vec![Life::default(); tensors.len()];
    let mut readers = vec![0u32; tensors.len()];
    let assignment = assigned.assignment();
    let mut meet = |root: TensorId, step: u64, memory: MemoryId| {
        let life = &mut lives[root.index()];
        if life.home.is_none() {
            let planned = tensors[root].is_planned();
            *life = Life { home: Some(memory), first: step, planned, ..*life };
        }
        life.last = life.last.max(step);
    };
    // Leafs, then inputs: they have their bytes before the run.
    for (leaf, memory) in graph.leafs().iter().zip(&assignment.leafs) {
        meet(tensors.root(*leaf), 0, *memory);
    }
    // So has what no node makes: a constant that a node reads, perhaps through a view, and that is in neither list.
    let mut listed = vec![false; tensors.len()];
    graph.nodes().iter().for_each(|node| listed[node.index()] = true);
    for (node, memory) in graph.nodes().iter().zip(&assignment.nodes) {
        for tensor in core::iter::once(*node).chain(graph.sources(*node).iter().copied().flatten()) {
            let root = tensors.root(tensor);
            let it = graph.tensor(root);
            if it.flags.is_input() || (it.op == Op::None && !listed[root.index()]) {
                meet(root, 0, *memory);
            }
        }
    }
    for (step, (node, memory)) in (1..).zip(graph.nodes().iter().zip(&assignment.nodes)) {
        for source in graph.sources(*node).iter().copied().flatten() {
            readers[source.index()] += 1;
            meet(tensors.root(source), step, *memory);
        }
        meet(tensors.root(*node), step, *memory);
    }
    keep(assigned, &readers, unread, &mut lives);
    lives
}

/// Marks what lives to the end.
fn keep(assigned: &AssignedGraph, readers: &[u32], unread: Unread, lives: &mut [Life]) {
    let graph = assigned.graph();
    // A root without readers of its own is in use if a view of it is read. A view without an operation is no more than
    // a mark that its root is needed until then (ggml's scheduler makes such nodes), and keeps nothing.
    let mut viewed = vec![false; lives.len()];
    for node in graph.nodes() {
        let it = graph.tensor(*node);
        if let Some(view) = it.view
            && it.op != Op::None
        {
            viewed[view.root.index()] = true;
        }
    }
    let end = end_of_run(assigned);
    for tensor in graph.leafs().iter().chain(graph.nodes()) {
        let it = graph.tensor(*tensor);
        let is_unread = match it.view {
            None => readers[tensor.index()] == 0 && !viewed[tensor.index()],
            Some(_) => readers[tensor.index()] == 0 && it.op != Op::None,
        };
        let life = &mut lives[graph.root(*tensor).index()];
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
