//! Tensor graphs, and proven plans for them: when each tensor is live, which tensors may have the same bytes, and
//! where each is located.
//!
//! A [`Context`] builds [`Tensor`]s and checks their shapes; a [`Graph`] is some of them in the order in which they run;
//! an [`AssignedGraph`] says which [`Memory`] each leaf and node belongs to. Graphs also come from a [`text`]
//! form and (with the feature `json`) from recordings of ggml's own allocator.
//!
//! [`plan_graph`] computes when each tensor needs its bytes and which node's result may be written over a source, and
//! gives each memory a certified plan; [`replay`](replay()) checks it once more, without live ranges;
//! [`GraphPlan::fits`] checks that a plan may be used again. [`ggml_placement`] is what ggml's own allocator
//! computes, to the byte.
//!
//! An engine that has a graph already implements [`TensorGraph`] for it; [`plan_tensor_graph`] returns its plan by its own keys.
//!
//! ```
//! use steeve_graph::{AssignedGraph, Context, DataType, Graph, PlanOptions, plan_graph, replay};
//!
//! let mut context = Context::new();
//! let weights = context.external(DataType::F32, &[64, 64])?;
//! let x = context.input(DataType::F32, &[64, 32])?;
//! let q = context.mul_mat(weights, x)?;
//! let y = context.silu(q)?;
//! context.set_output(y)?;
//!
//! let graph = AssignedGraph::from(Graph::from_outputs(&context, &[y])?);
//! let plan = plan_graph(&graph, &PlanOptions::default())?;
//! replay(&graph, &plan.places())?;
//! assert_eq!(plan.peak().get(), 2 * 64 * 32 * 4); // `y` takes over the bytes of `q`
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;

mod build;
mod call;
mod compact;
mod context;
mod custom_op;
mod dependencies;
mod dtype;
mod error;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod fusion;
mod graph;
mod graphviz;
mod interval_map;
mod layout;
mod memory;
mod names;
mod op;
mod order;
mod param;
mod graph_parts;
#[cfg(feature = "json")]
pub mod recorded;
mod shape;
mod tensor;
pub mod text;

// From the graph to an order of its nodes that needs fewer bytes.
mod reorder;

// From the graph to its plan.
mod live_ranges;
mod liveness;
mod alias;
mod ggml;
mod plan;
mod together;
mod size_class;
mod fits;
mod fingerprint;
#[cfg(feature = "json")]
mod plan_file;
mod survivors;
mod replay;

// From a graph to one that computes the same in less memory.
mod tile;
mod fit;

// From a caller's own graph to a plan by its keys.
mod tensor_graph;
mod keyed_plan;
#[cfg(all(test, feature = "fuzz"))]
mod mutants;

pub use build::{Convolution, FlashAttention, Interpolation, Pool, Rope, RopeMode, SoftMax, SortOrder, Window};
pub use call::{CallError, Directions, Gated, OpCall, SwigluOai};
pub use context::{Context, ContextMark};
pub use custom_op::CustomOp;
pub use dependencies::{Dependency, Hazard};
pub use dtype::{DataType, UnknownDataType};
pub use error::{ErrorChain, GraphError, Named, OperandLayouts};
pub use fingerprint::Fingerprint;
pub use fit::{DoesNotFit, FitAction, FitCost, FitError, FitOptions, FitStep, Fitted, fit};
pub use fits::{PlanMismatch, TensorChange};
pub use fusion::Fusion;
pub use ggml::{GgmlPlace, GgmlPlacement, ggml_placement};
pub use graph::Graph;
pub use graph_parts::GraphParts;
pub use interval_map::IntervalMap;
pub use keyed_plan::{KeyedPlan, plan_tensor_graph};
pub use layout::{Layout, LayoutError, MAX_DIMS};
pub use memory::{AllocSizes, AssignedGraph, Assignment, Memory, MemoryId};
pub use names::Names;
pub use op::{Glu, Op, OtherName, Unary};
pub use order::OrderFault;
pub use param::Param;
pub use plan::{
    GraphPlan, GraphPlanError, GraphStrategy, MemoryPlan, Order, PlanBesideGgml, PlanOptions, Reuse, TensorPlace,
    Unread, plan_beside_ggml, plan_beside_ggml_watched, plan_graph, plan_graph_watched,
};
#[cfg(feature = "json")]
pub use plan_file::{MatchMemories, PlacementClaim, PlanFault, check_plan_file};
#[cfg(feature = "json")]
pub use recorded::{RecordError, RecordedGraph};
pub use reorder::{FoundOrder, MovedNode, NodeOrder, NodeOrderError, OrderPeak, OrderSearch, best_order};
pub use replay::{LastWriter, PlaceFault, ReplayFault, ReplayFaults, TensorPlaces, replay};
pub use shape::ShapeError;
pub use size_class::{SizeClass, SizeClasses};
#[cfg(feature = "json")]
pub use steeve_plan::file::JsonMessage;
#[cfg(feature = "json")]
pub use steeve_plan::file::{self, PlanFile, PlanFileError};
pub use steeve_plan::{
    Align, Best, BlockId, Budget, BufferId, Bytes, Id, IdVec, InputLimit, InputTooLarge, Offset, Plan, SearchProgress,
    Verdict,
};
pub use survivors::Survivors;
pub use tensor::{Flags, Tensor, TensorId, Tensors, View};
pub use tensor_graph::{KeyedGraph, TensorGraph, TensorGraphError};
pub use text::{TextError, TextFault};
pub use tile::{RowChain, RowChains, TileError, tile};
pub use together::{PlansTogether, TogetherError, fit_buffers, plan_together, share_buffers};

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
