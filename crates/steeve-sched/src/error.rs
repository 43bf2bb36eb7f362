//! The errors of a scheduler.

use std::fmt;

use steeve_alloc::{AllocError, AtPeak};
use steeve_device::{Bytes, DeviceError};
use steeve_graph::{GraphError, Named};

/// Why a graph could not be scheduled or computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedError {
    /// A scheduler without a worker.
    #[error("a scheduler needs at least one device")]
    NoWorker,
    /// An index without a worker.
    #[error("there is no worker {index}: there are {workers}")]
    UnknownWorker {
        /// Which one was asked for.
        index: usize,
        /// How many there are.
        workers: usize,
    },
    /// A node that no device can run.
    #[error("no device can run {node}, {op}: {refusals}")]
    Unsupported {
        /// The node.
        node: Named,
        /// Its operation.
        op: String,
        /// What each device says.
        refusals: DeviceRefusals,
    },
    /// A tensor that is pinned to a device that can't run it.
    #[error("{tensor} was pinned to {worker}: {why}")]
    Pinned {
        /// What was pinned.
        tensor: Named,
        /// Where.
        worker: String,
        /// Why it can't be there.
        why: String,
    },
    /// An external tensor whose memory is not known.
    #[error("{tensor} is external, and nobody has said which memory it stands in")]
    UnknownLocation {
        /// The tensor.
        tensor: Named,
    },
    /// A plan above the budget of a worker. Nothing was allocated.
    #[error("{worker} needs {needed} bytes, {} above its budget of {budget}; at the peak live {at_peak}", .needed.0.saturating_sub(.budget.0))]
    OverBudget {
        /// The worker.
        worker: String,
        /// What its buffers would take.
        needed: Bytes,
        /// What they may.
        budget: Bytes,
        /// The tensors that are live at the peak.
        at_peak: AtPeak,
    },
    /// Two external tensors on the same bytes, and a node writes one of them.
    #[error(
        "{one} and {other} are bound to the same bytes, and a node writes into one of them: make one a view of the other"
    )]
    Overlap {
        /// One of them.
        one: Named,
        /// The other.
        other: Named,
    },
    /// ggml's reuse has put a result into another memory than that of its worker.
    #[error(
        "with ggml's reuse {node} stands in the memory of its source, where its readers may not reach it; use Reuse::Extended"
    )]
    ResultInWrongMemory {
        /// The node.
        node: Named,
    },
    /// A worker that only plans.
    #[error("{worker} is there for planning and computes nothing")]
    PlanningOnly {
        /// The worker.
        worker: String,
    },
    /// A job of another scheduler, or one that this scheduler has evicted.
    #[error(
        "the job is not one of this scheduler's, or was forgotten since (by a reset, by other options, or for many other \
         graphs); allocate the graph again"
    )]
    UnknownJob,
    /// The allocator refuses.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// A device refuses.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The graph is invalid.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Why each device does not support a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRefusals(pub Vec<(String, String)>);

impl fmt::Display for DeviceRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (worker, why)) in self.0.iter().enumerate() {
            write!(f, "{}{worker}: {why}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
