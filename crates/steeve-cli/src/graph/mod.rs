//! Graphs: what a file holds, their plans as files, and the commands on them.
//!
//! ```text
//!   recorded or text --> GraphFile --solve--> SolvedGraph --> figures, plan file
//!                            |  claims of a plan file or of ggml --> judge --> sentences
//! ```

mod check;
mod compare;
mod file;
mod judge;
mod plan_file;
mod solve;

pub(crate) use check::check;
pub(crate) use compare::{board, compare};
pub(crate) use file::GraphFile;
pub(crate) use plan_file::{BufferClaim, GraphPlanFile, TensorClaim, TensorPlan, ViewClaim};
pub(crate) use solve::{SolvedGraph, refusals, solve, solve_watched};
