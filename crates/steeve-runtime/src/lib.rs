//! Allocates the memory of tensor graphs by proven plans, and runs them in it: on one device, or on several.
//!
//! ```text
//!   GraphPlan --reserve--> buffers          GraphAllocator   owns them; grows them only when it must
//!                             |  alloc
//!                         Allocation        a cheap handle: the addresses of all tensors, reading and writing them
//!
//!   Graph, locations of its weights --sched::Scheduler--> Job: an Allocation over the memories of several devices
//! ```
//!
//! [`TensorAllocator`] places tensors one behind another in a buffer; [`allocate_context`] allocates all tensors of a
//! context (weights, caches); [`GraphAllocator`] plans graphs and keeps the buffers they run in; `sched::Scheduler` (feature
//! `sched`) spreads a graph over several devices. Every mistake is an error that names the tensor and the numbers, and changes
//! nothing.
//!
//! Allocators and scheduler are one crate because the scheduler uses an allocation in ways whose contracts depend on how the
//! graph was planned and on what is enqueued: it reads results during a run, lets inputs be written before the run is done,
//! and enqueues a run behind itself. A caller could not meet these contracts, so the methods are private to the crate.
//!
//! | feature | what |
//! |---|---|
//! | `json` (default) | plan files: `GraphAllocator::load_plan` and `read_plan` |
//! | `sched` (default) | the module `sched` |
//!
//! ```
//! use std::sync::Arc;
//! use steeve_runtime::{GraphAllocator, allocate_context};
//! use steeve_device::{BufferType, HostMemory};
//! use steeve_graph::{Bytes, Context, DataType, Graph};
//!
//! let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
//! let mut context = Context::new();
//! let weights = context.external(DataType::F32, &[64, 64])?;
//! let bindings = allocate_context(&mut context, &memory)?;
//!
//! let x = context.input(DataType::F32, &[64, 8])?;
//! let q = context.mul_mat(weights, x)?;
//! let y = context.silu(q)?;
//! context.set_output(y)?;
//! let graph = Graph::from_outputs(&context, &[y])?;
//!
//! let mut allocator = GraphAllocator::new(&memory);
//! allocator.reserve(&graph)?;
//! assert_eq!(allocator.buffer_size(0)?, Bytes(2 * 64 * 8 * 4)); // `y` takes over the bytes of `q`
//! let allocation = allocator.alloc(&graph, &bindings)?;
//! allocation.write(weights, &[0.5f32; 64 * 64])?;
//! allocation.write(x, &[1.0f32; 64 * 8])?;
//! assert_eq!(allocation.read::<f32>(x)?, [1.0; 64 * 8]);
//! let error = allocation.read::<f32>(y).unwrap_err();
//! assert_eq!(error.to_string(), "tensor 3: not computed yet");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod error;
mod linear;
mod context;
mod bound;

// Graphs.
mod options;
mod request;
mod memories;
mod pool;
mod planned;
mod shared_externals;
mod graph;
#[cfg(feature = "json")]
mod plan_file;
mod contents;
mod allocation;
mod element;
mod compute;

// Several devices.
#[cfg(feature = "sched")]
pub mod sched;

pub use allocation::{Allocation, RunGuard};
pub use bound::{read_tensor, write_tensor};
pub use compute::Computation;
pub use context::{allocate_context, allocate_context_on, allocate_rest_of_context, context_size};
#[cfg(feature = "json")]
pub use error::PlanFileFault;
pub use error::{AllocError, AtPeak};
pub use graph::GraphAllocator;
pub use linear::TensorAllocator;
pub use options::{AllocOptions, Replan, SmallGraphs};
pub use request::GraphRequest;
pub use steeve_device::Element;
