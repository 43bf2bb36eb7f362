//! Blocks with lifetimes in, a proven memory plan out.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod meter;
mod crew;
mod ladder;
mod shuffle;
mod best;
mod best_fit;
mod bound;
mod certify;
pub mod csv;
mod descent;
mod fast;
mod free_list;
mod greedy;
mod id;
mod items;
mod niche;
mod packing;
mod placement;
mod plan;
mod problem;
mod random;
mod sections;
mod strategy;
mod units;

pub use best::{Best, Budget};
pub use bound::{Bound, BoundReason, lower_bound};
pub use certify::{Violation, Violations, certify};
pub use free_list::FreeList;
pub use id::{BlockId, BufferId, Id, IdVec};
pub use placement::Placement;
#[cfg(feature = "serde")]
pub use plan::PlanFileError;
pub use plan::{Moment, PLAN_VERSION, Plan, Report};
pub use problem::{Block, Place, Problem, ProblemError};
pub use strategy::{Outcome, PlaceError, Progress, Strategy, Verdict, place, place_watched, plan};
pub use units::{Align, Bytes, Lifetime, Offset, Step, UnitError};
