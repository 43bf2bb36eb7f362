//! What graphs mean: an evaluator in f64, too simple to be wrong, and the proofs that the tests here share.
//!
//! ```text
//!   graph, contents of its leafs ---> Memory --evaluate--> every node's values, with how far a kernel may be from them
//!                                                             |  judge
//!   the same ------- each Way: a plan, threads ---> Ran ------+--- equal to the bit in every way
//! ```
//!
//! Nothing here is shared with the kernels: operations are written from what they mean in ggml, one plain loop each.

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

pub use crate::formats::FORMATS;
pub use case::{Case, Sketch, Values, named};
pub use generate::{Census, Size, random_case};
pub use judge::judge;
pub use memory::{Memory, pack};
pub use prove::{Crew, judge_run, judge_whole, prove, same};
pub use way::{Bound, Ran, Way, allocator, bind, contents_of, run, run_in, ways};

/// So many seeds, or as many as the environment asks for.
pub fn seeds(usual: u64) -> u64 {
    std::env::var("STEEVE_PROOF").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
