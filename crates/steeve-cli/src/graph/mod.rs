//! Graphs: what a file holds, their plans as files, and the commands on them.
//!
//! ```text
//!   recorded, text or model --> GraphFile --solve--> SolvedGraph --> figures, plan file
//!                            |  claims of a plan file or of ggml --> check --> sentences
//! ```

mod check_graph;
mod compare_graph;
mod graph_csv;
mod graph_file;
mod language_file;
mod model_file;
mod onnx_file;
mod solve_graph;

pub(crate) use check_graph::{check_graph, check_recorded};
pub(crate) use compare_graph::{compare_graph, graph_comparison, model_comparison, onnx_comparison};
pub(crate) use graph_csv::graph_csv;
pub(crate) use graph_file::GraphFile;
pub(crate) use language_file::{LanguageFile, LanguageNeeds};
pub(crate) use model_file::{BESIDE_HEAD, ModelFile, describe_head};
pub(crate) use onnx_file::OnnxFile;
pub(crate) use solve_graph::{OtherOrder, SolvedGraph, capacity_errors, other_order, solve_graph, solve_graph_watched};
