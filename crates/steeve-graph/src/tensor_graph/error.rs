//! What can be wrong with a caller's graph or its plan, in the names of its tensors.

use alloc::boxed::Box;
use alloc::string::String;

use steeve_plan::{Bytes, Clipped};

use crate::{GraphError, GraphPlanError, MemoryId, PlanMismatch, ReplayFaults};

/// Why a [`TensorGraph`](crate::TensorGraph) is no graph, has no plan, or does not go with one. Tensors are called what
/// [`TensorGraph::name`](crate::TensorGraph::name) calls them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorGraphError {
    /// A node reads a tensor that nothing makes.
    #[error("node {node}: unknown source in slot {slot}: expected a node, an input, a view or an external tensor, got tensor {tensor}", node = Clipped(node), tensor = Clipped(tensor))]
    UnknownSource {
        /// The node.
        node: String,
        /// The position among its sources.
        slot: usize,
        /// The tensor.
        tensor: String,
    },
    /// An output that nothing makes.
    #[error("output {tensor}: unknown: expected a node, an input, a view or an external tensor", tensor = Clipped(tensor))]
    UnknownOutput {
        /// The output.
        tensor: String,
    },
    /// One of more tensors that nothing makes.
    #[error("tensor {tensor}: unknown: expected a node, an input, a view or an external tensor", tensor = Clipped(tensor))]
    UnknownTensor {
        /// The tensor.
        tensor: String,
    },
    /// A view of a tensor that nothing makes.
    #[error("tensor {tensor}: unknown root: expected a node, an input or an external tensor, got tensor {root}", tensor = Clipped(tensor), root = Clipped(root))]
    UnknownRoot {
        /// The view.
        tensor: String,
        /// The tensor whose bytes it is a view of.
        root: String,
    },
    /// A view of a view of ... itself.
    #[error("tensor {tensor}: a view of itself, directly or through other views", tensor = Clipped(tensor))]
    ViewCycle {
        /// The view.
        tensor: String,
    },
    /// A tensor that is written before the run and in it.
    #[error("tensor {tensor}: listed as an input and as a node", tensor = Clipped(tensor))]
    InputAndNode {
        /// The tensor.
        tensor: String,
    },
    /// A tensor in a memory that does not exist.
    #[error("tensor {tensor}: unknown memory: expected one of {memories} memories, got {memory}", tensor = Clipped(tensor))]
    UnknownMemory {
        /// The tensor.
        tensor: String,
        /// The memory that is named.
        memory: MemoryId,
        /// How many there are.
        memories: usize,
    },
    /// The sizes pass the end of the address space.
    #[error("tensors: too large: expected fewer than 2^64 bytes in all, got tensor {tensor} of {size} bytes and others", tensor = Clipped(tensor))]
    TooLarge {
        /// The largest tensor.
        tensor: String,
        /// Its size.
        size: Bytes,
        /// What the planner says of it.
        source: Box<GraphPlanError>,
    },
    /// A node is listed twice or out of order, or a view is outside its root.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The graph has no plan.
    #[error(transparent)]
    Plan(#[from] GraphPlanError),
    /// The plan does not fit the graph.
    #[error(transparent)]
    Fit(#[from] PlanMismatch),
    /// A replay of the plan has found faults.
    #[error(transparent)]
    Replay(#[from] ReplayFaults),
    /// A file is no plan of the graph.
    #[cfg(feature = "json")]
    #[error(transparent)]
    File(#[from] crate::PlanFault),
}
