//! What a scheduler refuses.

use std::fmt;

use steeve_alloc::AllocError;
use steeve_device::DeviceError;
use steeve_graph::{GraphError, Named};

/// Why a graph could not be scheduled or computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedError {
    /// Nobody to compute.
    #[error("a scheduler needs at least one device")]
    NoWorker,
    /// There is no such worker.
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
        refusals: Refusals,
    },
    /// The caller wants a node on a device that can't run it.
    #[error("{tensor} was pinned to {worker}: {why}")]
    Pinned {
        /// What was pinned.
        tensor: Named,
        /// Where.
        worker: String,
        /// Why it can't be there.
        why: String,
    },
    /// The caller provides its memory, and nobody knows which.
    #[error("{tensor} is external, and nobody has said which memory it stands in")]
    NoHome {
        /// The tensor.
        tensor: Named,
    },
    /// A worker that only plans.
    #[error("{worker} is there for planning and computes nothing")]
    PlanningOnly {
        /// The worker.
        worker: String,
    },
    /// The job is another scheduler's, or this one has forgotten it.
    #[error("the job is not one of this scheduler's, or it was reset since; allocate the graph again")]
    UnknownJob,
    /// The allocator refuses.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// A device refuses.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The graph is none.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// What each device says about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals(pub Vec<(String, String)>);

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (worker, why)) in self.0.iter().enumerate() {
            write!(f, "{}{worker}: {why}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
