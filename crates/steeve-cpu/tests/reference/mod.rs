//! What graphs mean: an evaluator in f64, too simple to be wrong, and the proofs that the tests here share.
//!
//! ```text
//!   graph, contents of its leafs ---> Memory --evaluate--> every node's values, with how far a kernel may be from them
//!                                                             |  judge
//!   the same ------- each Way: a plan, threads ---> Ran ------+--- equal to the bit in every way
//! ```
//!
//! Nothing here is shared with the kernels: operations are written from what they mean in ggml, one plain loop each.
#![allow(dead_code, unused_imports)] // Each test uses a part of it.

#[path = "../formats/mod.rs"]
mod formats;
mod number;
mod memory;
mod call;
mod elementwise;
mod reduce;
mod movement;
mod matrix;
mod attention;
mod image;
mod judge;
mod case;
mod way;
mod prove;
mod generate;
mod recipes;
mod functions;
mod places;
mod layers;

pub(crate) use case::{Case, Sketch, Values, named};
pub(crate) use formats::FORMATS;
pub(crate) use generate::{Census, Size, random_case};
pub(crate) use judge::judge;
pub(crate) use memory::{Memory, pack};
pub(crate) use prove::{Crew, judge_run, judge_whole, prove, same};
pub(crate) use way::{Bound, Ran, Way, allocator, bind, contents_of, run, run_in, ways};

/// So many seeds, or as many as the environment asks for.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("STEEVE_PROOF").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
