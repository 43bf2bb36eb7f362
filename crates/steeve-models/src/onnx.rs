//! ONNX files: how much memory the activations of a model need.
//!
//! ```text
//!   file --Model::read--> Model --OnnxGraph::new, sizes of free dimensions--> OnnxGraph --plan_tensor_graph--> KeyedPlan
//! ```
//!
//! The reader is one of our own, as that of TFLite is: it checks every length, keeps no weights, copies nothing but names and
//! small tensors, bounds what functions and loops make it do, and adds no dependency. (`rten-onnx` 0.27 copies the data of every
//! tensor, sets no limit to how deep messages are nested, and has no functions, sparse tensors and lists of tensors.
//! `rten-shape-inference` 0.27 has 58 rules, none of them of classical models, computes with
//! expressions of symbols where here all dimensions are numbers, and brings `rten-tensor`, which has `unsafe` code, and `rayon`:
//! twelve crates.)
//!
//! What is known of a value before anything runs is a fact: type, shape, and the elements if they are few. Rules make facts of
//! facts. They are checked against what ONNX Runtime produces, and against the tests that come with each operator
//! (`proofs/onnx_shapes.py`).
//!
//! See [`OnnxGraph`] for an example.

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
