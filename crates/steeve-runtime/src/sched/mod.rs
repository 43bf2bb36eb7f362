//! Runs one graph on several devices: assigns each operation to a worker, inserts the copies between them, and
//! allocates everything in planned memory.
//!
//! ```text
//!   Graph, where its weights are
//!     |  assign     a worker and a reason for each tensor
//!     |  cut        runs of nodes on one worker; what each of them can't read
//!     |  build      copies as nodes of a new graph: the Schedule
//!     |  alloc      all memories in one go, by the graph allocator
//!    Job
//!     |  submit     copies and runs in order, on streams that wait for each other by events
//!   results
//! ```
//!
//! A [`Scheduler`] has some [`Worker`]s in order of priority, the processor last. [`Scheduler::required`] returns the
//! bytes that each of them needs and allocates none; [`Scheduler::alloc`] returns a [`Job`], [`Scheduler::compute`]
//! computes it. A [`Schedule`] is the decision, as a table, as a drawing, and with a reason for each tensor.
//!
//! Waits between streams are not derived per kind of copy: they are computed from the bytes that each action reads and
//! writes, over consecutive runs, so that planned memory reused for a tensor of another device, caches of the caller's
//! and pipelined copies are all the same case.

mod error;
mod worker;
mod tensor_locations;
mod options;

// From the graph to its schedule.
mod placement_facts;
mod reason;
mod assign;
mod split_graph;
mod schedule;
mod build_schedule;
mod report;

// Computing it.
mod hazards;
mod vector_clock;
mod experts;
mod execution_plan;
mod job;
mod alias_check;
mod scheduler;
mod watch;

pub use assign::Offload;
pub use error::{DeviceRefusals, SchedError, WorkerRefusal};
pub use job::Job;
pub use options::SchedOptions;
pub use reason::AssignReason;
pub use schedule::{Schedule, Split, TensorCopy};
pub use scheduler::Scheduler;
pub use split_graph::SplitReason;
pub use tensor_locations::TensorLocations;
pub use watch::{ComputedNode, NodeWatcher, WatchedRun};
pub use worker::{Worker, WorkerId};
