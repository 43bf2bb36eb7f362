//! GGUF files: the header read, and the language model in it as a graph whose weights are in the file.
//!
//! ```text
//!   file --GgufHeader::read--> GgufHeader --LanguageModel::new--> LanguageModel --step--> Step (a graph)
//!                                  |                                (weights and caches are external)
//!                                  '--ModelMemory::plan--> weights, caches and compute of each device
//! ```
//!
//! Weights are not copied: a tensor is bound at its [position](GgufTensor::position) in the mapped file. The example
//! `generate` of `steeve` runs models so.

// From the file to its values and tensors.
mod error;
mod value;
mod header;

// From these to a model, its graphs and what they take.
mod model_config;
mod language_model;
mod layer_graph;
mod model_memory;

mod small_gguf;

pub use error::GgufError;
pub use header::{GgufHeader, GgufTensor, is_gguf};
pub use language_model::{LanguageModel, ModelTensor, SessionSize};
pub use layer_graph::{Step, StepMasks, StepShape, WindowInputs};
pub use model_config::{Architecture, Experts, ModelConfig, SlidingWindow};
pub use model_memory::{DeviceMemory, ModelMemory};
pub use small_gguf::SmallGguf;
pub use value::{GgufNumbers, GgufTexts, GgufValue, ValueKind};
