//! ONNX files: how much memory the activations of a model need.
//!
//! ```text
//!   file --Model::read--> Model --OnnxGraph::new, sizes of free dimensions--> OnnxGraph --plan_tensor_graph--> KeyedPlan
//! ```
//!
//! The reader is one of our own, as that of TFLite is: it checks every length, keeps no weights, copies nothing but names and small
//! tensors, and adds no dependency. (`rten-onnx` copies what it reads, and the rules of `rten-shape-inference` have expressions of
//! symbols where here all dimensions are numbers.) See [`OnnxGraph`] for an example.

// From the file to its nodes.
mod data_type;
mod error;
mod protobuf;
mod model;
mod read;

// What is known of each value before the model runs.
mod dims;
mod fact;
mod call;
mod shapes;
mod fold;

// What runs, in which order, and where.
mod operators;
mod program;
mod budget;
mod scope;
mod known_sizes;
mod walk;
mod subgraphs;
mod loops;
mod graph;

mod small_model;

pub use data_type::DataType;
pub use dims::DimSizes;
pub use error::{FreeDim, OnnxError};
pub use graph::{OnnxGraph, Weights};
pub use model::Model;
pub use program::OnnxKey;
pub use read::is_onnx;
pub use small_model::{SmallAttribute, SmallModel};
