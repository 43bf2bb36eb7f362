//! Model files of other engines: read as tensor graphs, and written back with memory plans.
//!
//! Each format is a module behind a feature of the same name. What comes out is a
//! [`TensorGraph`](steeve_graph::TensorGraph), so that planning, certification and replay are those of every other graph.
//!
//! | feature | module | engine |
//! |---|---|---|
//! | `tflite` (default) | [`tflite`] | TensorFlow Lite Micro, which takes a plan from the model file |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(feature = "tflite")]
pub mod tflite;
#[cfg(feature = "fuzz")]
pub mod fuzz;
