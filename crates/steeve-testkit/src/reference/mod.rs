//! The meaning of graphs: an evaluator in f64, too simple to be wrong, and the proofs that the tests here share.
//!
//! ```text
//!   graph, contents of its leafs ---> EvalMemory --evaluate--> every node's values, with how far a kernel may be from them
//!                                                                   |  judge
//!   the same ---- each PlanVariant: a plan, threads ---> RunResult -+--- equal to the bit in all variants
//! ```
//!
//! Nothing here is shared with the kernels: operations are written from what they mean in ggml, one plain loop each.

mod element_codec;
mod eval_memory;
mod evaluate;
mod elementwise;
mod reduce;
mod movement;
mod matrix;
mod attention;
mod image;
mod tolerance;
mod case;
mod plan_variant;
mod prove_case;
mod random_case;
mod op_generators;
mod function_generators;
mod copy_generators;
mod product_generators;

pub use crate::formats::FORMATS;
pub use case::{Case, CaseBuilder, Values, named};
pub use eval_memory::{EvalMemory, pack};
pub use plan_variant::{
    BoundTensors, PlanVariant, RunResult, allocator, bind, contents_of, in_another_order, plan_variants, run, run_in,
};
pub use prove_case::{ThreadedBackends, judge_run, judge_whole, prove, same};
pub use random_case::{CaseSize, OpCoverage, random_case};
pub use tolerance::judge;

/// Returns `usual` seeds, or as many as the environment asks for.
pub fn seeds(usual: u64) -> u64 {
    std::env::var("STEEVE_PROOF").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
