//! A graph spread over workers: its splits, the copies between them, and the graph with those copies in it.

use std::ops::Range;

use steeve_graph::{Assignment, Bytes, Graph, Id, IdVec, TensorId};

use crate::{AssignReason, SplitReason, WorkerId};

/// A graph spread over workers. Its tensors have the caller's ids; copies come behind them.
///
/// As text it is a table of the splits; [`to_graphviz`](Self::to_graphviz) draws it, and [`why`](Self::why) tells the reason
/// for each tensor.
#[derive(Debug)]
pub struct Schedule {
    pub(crate) graph: Graph,
    pub(crate) assignment: Assignment,
    pub(crate) names: IdVec<WorkerId, String>,
    /// By tensor of the caller's.
    pub(crate) workers: Vec<Option<(WorkerId, AssignReason)>>,
    pub(crate) splits: Vec<Split>,
    pub(crate) copies: Vec<TensorCopy>,
    /// For each tensor behind the caller's the copy that it is, or is a view of.
    pub(crate) copy_of: Vec<usize>,
    /// How many copies of what is copied are used in turn.
    pub(crate) pipeline_depth: usize,
}

/// Consecutive nodes on one worker, and what is copied for them before they run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Split {
    /// Who runs it.
    pub worker: WorkerId,
    /// Why it starts where it does.
    pub reason: SplitReason,
    /// Its nodes, as places in the nodes of [`Schedule::graph`]. What only describes memory is among them.
    pub nodes: Range<usize>,
    /// What is copied first, as places in [`Schedule::copies`].
    pub copies: Range<usize>,
}

/// A copy of some bytes of a tensor in the memory of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorCopy {
    /// Whose bytes are copied.
    pub root: TensorId,
    /// Where in it they start.
    pub start: Bytes,
    /// How many they are.
    pub size: Bytes,
    /// The copy. Where several are used in turn, all of them.
    pub tensors: Vec<TensorId>,
    /// The worker in whose memory the copy stands.
    pub to: WorkerId,
    /// The worker that computes the tensor; nothing if the caller provides it.
    pub from: Option<WorkerId>,
    /// The memory that it stands in.
    pub from_memory: String,
    /// Whether it is a weight, or a part of one.
    pub is_weight: bool,
    /// Whether the caller alone writes it, so that it is copied before the caller may write it again.
    pub is_input: bool,
    /// Whose experts it has, if those that nobody asks for need not be copied: the tensors that ask.
    pub ids: Vec<TensorId>,
}

impl Schedule {
    /// The graph that is planned and run: the caller's, with copies as nodes and in the place of sources.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The memory of each leaf and node: that of the worker with the same number.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// The splits, in the order in which they run.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// All copies, in the order in which they are made.
    pub fn copies(&self) -> &[TensorCopy] {
        &self.copies
    }

    /// The names of the workers.
    pub fn worker_names(&self) -> &IdVec<WorkerId, String> {
        &self.names
    }

    /// The worker that computes a tensor, or in whose memory it is planned; nothing for external tensors that no node
    /// writes. Tensors are known by their numbers, for a schedule serves all graphs that are alike.
    pub fn worker(&self, tensor: TensorId) -> Option<WorkerId> {
        self.workers.get(tensor.index()).copied().flatten().map(|(worker, _)| worker)
    }

    /// Why a tensor has the worker that it has.
    pub fn reason(&self, tensor: TensorId) -> Option<AssignReason> {
        self.workers.get(tensor.index()).copied().flatten().map(|(_, reason)| reason)
    }

    /// Says in words why a tensor has the worker that it has.
    pub fn why(&self, tensor: TensorId) -> Option<String> {
        self.reason(tensor).map(|reason| reason.words(&self.graph, &self.names))
    }

    /// The bytes that a run copies; of experts all, as if each were asked for.
    pub fn copied(&self) -> Bytes {
        Bytes(self.copies.iter().fold(0, |sum: u64, copy| sum.saturating_add(copy.size.0)))
    }

    /// How many copies of what is copied are used in turn.
    pub fn pipeline_depth(&self) -> usize {
        self.pipeline_depth
    }

    /// How many tensors are the caller's; copies come behind them.
    pub(crate) fn callers(&self) -> usize {
        self.workers.len()
    }

    /// The copy that a tensor is, or is a view of.
    pub(crate) fn copy_of(&self, tensor: TensorId) -> Option<&TensorCopy> {
        let index = tensor.index().checked_sub(self.callers())?;
        self.copy_of.get(index).map(|copy| &self.copies[*copy])
    }
}
