//! Blocks with lifetimes in, a proven memory plan out.
//!
//! A [`Block`] is some bytes that are needed from one step to another. Blocks that are never needed at the same time
//! may share memory; a plan gives each one an offset so that all fit into as little memory as possible.
//!
//! ```text
//!   offset
//!      8 |      [ b         ]
//!      4 | [ a      ][ c    ]         width is lifetime, height is size
//!      0 | [ d                 ]      step ->
//! ```
//!
//! Every arrow is one function, and nothing writes back:
//!
//! ```text
//!   Problem --place--> Placement --certify--> Plan
//!      |                (a claim)             (proven: aligned, in range, no two live blocks share a byte)
//!      +--lower_bound--> Bound                 no plan is smaller
//! ```
//!
//! ```
//! use steeve_plan::{Align, Block, Bytes, Lifetime, Problem, Strategy, plan};
//!
//! // A tensor that lives through steps 0 and 1, and so on. Step `end` is the first at which it is not needed.
//! let align = Align::new(64)?;
//! let block = |bytes, start, end| Ok::<_, steeve_plan::UnitError>(
//!     Block::new(Bytes(bytes), Lifetime::new(start, end)?).aligned(align),
//! );
//! let problem = Problem::new(vec![block(1000, 0, 2)?, block(500, 1, 3)?, block(1000, 2, 4)?])?;
//!
//! let plan = plan(problem, &Strategy::Fast)?;
//! assert_eq!(plan.peak(), Bytes(1536));
//! assert!(plan.is_optimal());
//! for (block, place) in plan.places().pairs() {
//!     println!("block {block} is at offset {}", place.offset);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which strategy
//!
//! | strategy | how | for |
//! |---|---|---|
//! | [`Strategy::BestFit`] | online, ggml's free list ([`FreeList`]) | comparison |
//! | [`Strategy::Fast`] | descents and greedy orders, the best of them | everyday use: under a millisecond for a thousand blocks |
//! | [`Strategy::Best`] | `Fast`, then niche search with a [`Budget`] | the last percent, or the proof that there is none |
//!
//! All of them support alignments, pinned blocks, blocks that reuse another's bytes in place, buffers of limited size
//! and a capacity. All but `BestFit`, which keeps blocks apart, let a block [overlap](Overlap) a source that dies as it is
//! born. They return a [`PlaceOutcome`] with a [`Verdict`]: optimal, fits, proved not to fit, or not found.
//! [`plan()`] places and certifies in one call.
//!
//! # Features
//!
//! - `std` (default): time budgets and threads. Without it the crate needs only `alloc`.
//! - `serde`: problems and placements as data.
//! - `json`: plans as files; reading one certifies it again.
//! - `fuzz`: random problems and the bodies of the fuzz targets, for tests.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;

// The values, in the order in which they follow from each other.
mod units;
mod id;
mod input_limit;
mod clipped;
mod problem;
mod overlap;
mod birth_steps;
mod bound;
mod chain_bound;
mod placement;
mod certify;
mod plan;
pub mod csv;
#[cfg(feature = "json")]
pub mod file;

// The strategies: from the problem to what they work on, then from the simple to the thorough.
mod strategy;
mod items;
mod sections;
mod packing;
mod free_list;
mod best_fit;
mod descent;
mod greedy;
mod overlap_search;
mod fast;
mod best;
#[cfg(feature = "std")]
mod parse_budget;
mod random_greedy;
mod capacity_search;
mod parallel_search;
mod niche;
mod search_budget;
mod random;

#[cfg(feature = "fuzz")]
pub mod fuzz;

pub use best::{Best, Budget};
pub use bound::{Bound, BoundReason, lower_bound};
pub use certify::{Violation, Violations, certify};
pub use clipped::Clipped;
pub use free_list::FreeList;
pub use id::{BlockId, BufferId, Id, IdVec};
pub use input_limit::{InputLimit, InputTooLarge};
pub use overlap::Overlap;
#[cfg(feature = "std")]
pub use parse_budget::BudgetError;
pub use placement::Placement;
pub use plan::{Plan, PlanReport, ProfilePoint};
pub use problem::{Block, Place, Problem, ProblemError};
pub use strategy::{PlaceError, PlaceOutcome, SearchProgress, Strategy, Verdict, place, place_watched, plan};
pub use units::{Align, Bytes, Lifetime, Offset, Step, UnitError};

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
