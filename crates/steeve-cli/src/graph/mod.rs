//! Graphs: what a file holds, their plans as files, and the commands on them.
//!
//! ```text
//!   recorded or text --> GraphFile --solve--> SolvedGraph --> figures, plan file
//!                            |  claims of a plan file or of ggml --> check --> sentences
//! ```

mod check;
mod compare;
mod csv;
mod file;
mod solve;

pub(crate) use check::check;
pub(crate) use compare::{board, compare};
pub(crate) use csv::csv;
pub(crate) use file::GraphFile;
pub(crate) use solve::{SolvedGraph, refusals, solve, solve_watched};
