//! Files in: model files of other engines, and every other file that can be planned.
//!
//! Each format of models is a module behind a feature of the same name. What comes out is a
//! [`TensorGraph`](steeve_graph::TensorGraph), so that planning, certification and replay are those of every other graph.
//! [`FileReader`] opens a file, whatever it is, and says what it holds.
//!
//! | feature | what | |
//! |---|---|---|
//! | `tflite` (default) | [`tflite`] | models for TensorFlow Lite Micro, which takes a plan from the file |
//! | `gguf` | [`gguf`] | language models, whose weights are computed with where they are in the file |
//! | `onnx` | [`onnx`] | models in the format that most tools export |
//! | `files` | [`FileReader`], [`FileContent`], [`FileIdentity`], [`write_atomically`] | models, recorded ggml graphs, graphs as text, block lists and plan files, plain or gzip |
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(feature = "files")]
mod file;
#[cfg(feature = "gguf")]
pub mod gguf;
#[cfg(feature = "onnx")]
pub mod onnx;
#[cfg(feature = "tflite")]
pub mod tflite;
#[cfg(feature = "fuzz")]
pub mod fuzz;

#[cfg(feature = "files")]
pub use file::{FileContent, FileError, FileIdentity, FileReader, InputLength, write_atomically};
