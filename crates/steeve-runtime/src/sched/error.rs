//! The errors of a scheduler.

use std::fmt;

use crate::{AllocError, AtPeak};
use steeve_device::{Bytes, DeviceError};
use steeve_graph::{GraphError, Named};

/// Why a graph could not be scheduled or computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedError {
    /// A scheduler without a worker.
    #[error("scheduler: no device: expected at least one")]
    NoWorker,
    /// An index without a worker.
    #[error("worker {index}: does not exist: there are {workers}")]
    UnknownWorker {
        /// Which one was asked for.
        index: usize,
        /// How many there are.
        workers: usize,
    },
    /// A node that no device can run.
    #[error("{node}, {op}: no device can run it: {refusals}")]
    Unsupported {
        /// The node.
        node: Named,
        /// Its operation.
        op: String,
        /// What each device says.
        refusals: DeviceRefusals,
    },
    /// A tensor that is pinned to a device that can't run it.
    #[error("{tensor}: can't be on {worker}, which it is pinned to")]
    Pinned {
        /// What was pinned.
        tensor: Named,
        /// Where.
        worker: String,
        /// Why it can't be there.
        #[source]
        refusal: Box<WorkerRefusal>,
    },
    /// An external tensor whose memory is not known.
    #[error("{tensor}: unknown memory: an external tensor must be bound, or its location given")]
    UnknownLocation {
        /// The tensor.
        tensor: Named,
    },
    /// A plan above the budget of a worker. Nothing was allocated.
    #[error("{worker}: over budget: needs {needed} bytes, {budget} allowed; live at the peak: {at_peak}")]
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
        "{one} and {other}: bound to the same bytes, and a node writes into one of them: make one a view of the other"
    )]
    Overlap {
        /// One of them.
        one: Named,
        /// The other.
        other: Named,
    },
    /// A plan file in another order of the nodes than the schedule's.
    #[error(
        "plan file: in another order than the schedule: expected a plan made with order keep, of the graph that assign() returns"
    )]
    PlanOrder,
    /// ggml's reuse has put a result into another memory than that of its worker.
    #[error(
        "{node}: located in the memory of its source, where its readers may not reach it: use Reuse::Extended instead of ggml's reuse"
    )]
    ResultInWrongMemory {
        /// The node.
        node: Named,
    },
    /// A worker that only plans.
    #[error("{worker}: can't compute: it was made for planning")]
    PlanningOnly {
        /// The worker.
        worker: String,
    },
    /// A job of another scheduler, or one that this scheduler has evicted.
    #[error(
        "job: unknown: it is of another scheduler, or was evicted (by a reset, by other options, or for many other graphs); allocate the graph again"
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

/// Why a worker can't have a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerRefusal {
    /// The device does not support the node.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The tensor shares its memory with a node that the device does not support.
    #[error("its memory is shared with {other}, which is not supported there")]
    SharedMemory {
        /// The other node.
        other: Named,
        /// Why the device does not support it.
        #[source]
        error: DeviceError,
    },
    /// The tensor shares its memory with one that is pinned to another worker.
    #[error("its memory is shared with a tensor that is pinned to {worker}")]
    PinnedElsewhere {
        /// The other worker.
        worker: String,
    },
    /// The worker can't reach the memory that the tensor is located in.
    #[error("the memory of {root} is out of reach")]
    OutOfReach {
        /// The tensor that owns the memory.
        root: Named,
    },
}

impl WorkerRefusal {
    /// Writes the refusal without the name of the device and of the node, for lists that have them already.
    fn write_short(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |error: &DeviceError| match error {
            DeviceError::Unsupported { why, .. } => why.clone(),
            other => other.to_string(),
        };
        match self {
            Self::Device(error) => f.write_str(&short(error)),
            Self::SharedMemory { error, .. } => write!(f, "{self}: {}", short(error)),
            other => write!(f, "{other}"),
        }
    }
}

/// Why each device does not support a node, by the names of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRefusals(pub Vec<(String, WorkerRefusal)>);

impl fmt::Display for DeviceRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (worker, refusal)) in self.0.iter().enumerate() {
            write!(f, "{}{worker}: ", if index == 0 { "" } else { "; " })?;
            refusal.write_short(f)?;
        }
        Ok(())
    }
}
