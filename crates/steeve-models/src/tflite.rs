//! TensorFlow Lite files: read, planned for TensorFlow Lite Micro, and written with the plan.
//!
//! TensorFlow Lite Micro plans its arena when a model is loaded, greedily, unless the file says where each tensor is: in a
//! *record* that the runtime takes as it is, without a check.
//!
//! ```text
//!   file --Model::read--> Model --TfliteGraph::new--> TfliteGraph --plan_tensor_graph--> KeyedPlan
//!                           |                              |--head_plan-----> HeadPlan (the record)
//!                           |                              '--check_record--> RecordReport (of any record)
//!                           |--tflm_placement--> what the runtime does by itself, or with a record
//!                           '--with_record-----> the file with the record
//! ```
//!
//! See [`TfliteGraph`] for an example of all of it.

// From the file to its tensors and operators.
mod names;
mod options;
mod error;
mod flatbuffer;
mod model;
mod sizes;

// What the runtime does with them.
mod program;
mod lifetimes;
mod scratch;
mod greedy;

// From the graph to the record of its plan.
mod walk;
mod kernels;
mod graph;
mod record;
mod judge;
mod head_plan;
mod replay;

// Back to a file.
mod writer;
mod write;
mod small_model;

pub use error::TfliteError;
pub use graph::{GraphOptions, TfliteGraph, TfliteKey};
pub use greedy::{TflmPlacement, tflm_placement};
pub use head_plan::HeadPlan;
pub use judge::{RecordFault, RecordReport};
pub use kernels::KernelSet;
pub use model::{Buffer, Metadata, Model, Operator, OperatorCode, Subgraph, Tensor, TensorIndex, is_tflite};
pub use names::{BuiltinOp, DataType};
pub use options::{Options, Window};
pub use record::HeadRecord;
pub use replay::OverlapFault;
pub use scratch::{ScratchBuffer, reference_scratch, uniform_scratch};
pub use sizes::HEAD_ALIGN;
pub use small_model::SmallModel;
