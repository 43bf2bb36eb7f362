//! The same graphs planned by ggml's own allocator and by steeve, in one process.
//!
//! ```text
//!   AssignedGraph --Ggml::new--> a real ggml graph, one buffer type per memory, an allocator
//!                                     |  fresh            as a program that builds the graph again has it
//!                                   Fresh --reserve-->    sizes of the memories
//!                                     |  alloc
//!                                  Placed                 where ggml put each tensor
//! ```
//!
//! Memory is never touched: ggml's buffers start at an address that nobody reads, so graphs of any size can be planned.
//! [`GgmlSched`] is ggml's scheduler over the same graphs, with several devices that compute nothing.
//! [`Products`] are matrix products, which both sides really compute.
//! [`Verdict`] compares ggml's answer with `steeve_graph::ggml_placement`; [`measure`] takes times of both sides in turn.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod abi;
mod memory;
mod op;
mod mirror;
mod ggml;
mod verdict;

mod spread;
mod device;
mod sched;

pub mod corpus;
mod counted;
mod ours;
mod our_sched;
mod products;
pub mod measure;
pub mod transformer;

pub use ggml::{Fresh, Ggml, GgmlError, Placed, Spot, hush, version};
pub use mirror::ClampRule;
pub use our_sched::OurSched;
pub use ours::{OurError, Ours, rebuilt};
pub use products::{GgmlProducts, Numbers, OurProductError, OurProducts, Products};
pub use sched::{Cut, FreshSched, GgmlSched, Split};
pub use spread::Spread;
pub use verdict::{Difference, Failure, Verdict, verdict};
