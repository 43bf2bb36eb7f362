//! A graph spread over workers: its splits, the copies between them, and the graph with those copies in it.

use std::ops::Range;

use steeve_graph::{Assignment, Bytes, Graph, Id, IdVec, TensorId};

use crate::sched::{AssignReason, SplitReason, WorkerId};

/// A graph spread over workers. Its tensors have the caller's ids; copies come after them.
///
/// As text it is a table of the splits; [`to_graphviz`](Self::to_graphviz) draws it, and [`why`](Self::why) returns the
/// reason for each tensor.
#[derive(Debug)]
pub struct Schedule {
    pub(crate) graph: Graph,
    pub(crate) assignment: Assignment,
    pub(crate) names: IdVec<WorkerId, String>,
    /// The worker and the reason, by tensor of the caller's graph.
    pub(crate) workers: Vec<Option<(WorkerId, AssignReason)>>,
    pub(crate) splits: Vec<Split>,
    pub(crate) copies: Vec<TensorCopy>,
    /// For each tensor after the caller's, the copy that it is, or is a view of.
    pub(crate) copy_of: Vec<usize>,
    /// How many copies of what is copied are used in turn.
    pub(crate) pipeline_depth: usize,
}

/// Consecutive nodes on one worker, and what is copied for them before they run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Split {
    /// The worker that runs it.
    pub worker: WorkerId,
    /// The reason why it starts at its first node.
    pub reason: SplitReason,
    /// Its nodes, as positions in the nodes of [`Schedule::graph`]. Nodes that only describe memory are among them.
    pub nodes: Range<usize>,
    /// What is copied first, as positions in [`Schedule::copies`].
    pub copies: Range<usize>,
}

/// A copy of some bytes of a tensor in the memory of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorCopy {
    /// The tensor whose bytes are copied.
    pub root: TensorId,
    /// The offset of the bytes in that tensor.
    pub start: Bytes,
    /// The number of bytes.
    pub size: Bytes,
    /// The copy. With pipelined copies, all of them.
    pub tensors: Vec<TensorId>,
    /// The worker whose memory has the copy.
    pub to: WorkerId,
    /// The worker that computes the tensor; `None` if the caller provides it.
    pub from: Option<WorkerId>,
    /// The name of the memory that is copied from.
    pub from_memory: String,
    /// Whether it is a weight, or a part of one.
    pub is_weight: bool,
    /// Whether the caller alone writes it, so that it is copied before the caller may write it again.
    pub is_input: bool,
    /// The tensors of expert ids, if only the experts that they request need to be copied.
    pub ids: Vec<TensorId>,
}

impl Schedule {
    /// Returns the graph that is planned and run: the caller's, with copies as nodes and in the place of sources.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the memory of each leaf and node: that of the worker with the same number.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// Returns the splits, in the order in which they run.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// Returns all copies, in the order in which they are made.
    pub fn copies(&self) -> &[TensorCopy] {
        &self.copies
    }

    /// Returns the names of the workers.
    pub fn worker_names(&self) -> &IdVec<WorkerId, String> {
        &self.names
    }

    /// Returns the worker that computes a tensor, or owns the memory in which it is planned; `None` for external
    /// tensors that no node writes. Tensors are identified by their numbers, since a schedule serves all graphs that
    /// are alike.
    pub fn worker(&self, tensor: TensorId) -> Option<WorkerId> {
        self.workers.get(tensor.index()).copied().flatten().map(|(worker, _)| worker)
    }

    /// Returns the reason for the worker of a tensor.
    pub fn reason(&self, tensor: TensorId) -> Option<AssignReason> {
        self.workers.get(tensor.index()).copied().flatten().map(|(_, reason)| reason)
    }

    /// Returns the reason for the worker of a tensor in words.
    pub fn why(&self, tensor: TensorId) -> Option<String> {
        self.reason(tensor).map(|reason| reason.words(&self.graph, &self.names))
    }

    /// Returns the bytes that a run copies; of experts all, as if each were requested.
    pub fn copied(&self) -> Bytes {
        Bytes(self.copies.iter().fold(0, |sum: u64, copy| sum.saturating_add(copy.size.0)))
    }

    /// Returns how many copies of what is copied are used in turn.
    pub fn pipeline_depth(&self) -> usize {
        self.pipeline_depth
    }

    /// Returns how many tensors are the caller's; copies come after them.
    pub(crate) fn callers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the copy that a tensor is, or is a view of.
    pub(crate) fn copy_of(&self, tensor: TensorId) -> Option<&TensorCopy> {
        let index = tensor.index().checked_sub(self.callers())?;
        self.copy_of.get(index).map(|copy| &self.copies[*copy])
    }
}
