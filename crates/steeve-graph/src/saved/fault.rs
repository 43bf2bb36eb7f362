//! What is wrong with a saved plan.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use steeve_plan::{Bytes, Clipped, InputTooLarge, Lifetime, ProblemError, UnitError, Verdict, Violations};

use super::GRAPH_PLAN_VERSION;
use crate::error::JsonMessage;
use crate::{Fingerprint, Memory, Misfit, Named, ReplayFaults};

/// Why a file is no plan for a graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedPlanError {
    /// It is no JSON, or a field is missing, unknown or of another kind.
    #[error("not a saved plan: {}", JsonMessage(.0))]
    Json(#[from] serde_json::Error),
    /// A text that is longer than is read.
    #[error(transparent)]
    InputTooLarge(#[from] InputTooLarge),
    /// Written by another version.
    #[error("the plan has version {found}, and this program reads version {GRAPH_PLAN_VERSION}")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// Made for a graph with other operations, edges, flags or assignment.
    #[error(
        "the plan was made for another graph (fingerprint {saved}; this one has {graph}): operations, edges, views, flags, external tensors or assignment differ",
        saved = Clipped(saved)
    )]
    Fingerprint {
        /// The fingerprint in the file.
        saved: String,
        /// That of the graph.
        graph: Fingerprint,
    },
    /// Not as many memories.
    #[error("the plan has {saved} memories, and the graph has {graph} that do not share another's")]
    Memories {
        /// How many the file has.
        saved: usize,
        /// How many the graph has.
        graph: usize,
    },
    /// A memory is not what it was.
    #[error("the plan was made for {saved}, and the graph has {graph} there")]
    Memory {
        /// The memory in the file.
        saved: Box<Memory>,
        /// That of the graph.
        graph: Box<Memory>,
    },
    /// A tensor that does not exist.
    #[error("memory {memory}: block {block} is said to be tensor {tensor}'s, but there are only {tensors} tensors", memory = Clipped(memory))]
    UnknownTensor {
        /// The memory's name.
        memory: String,
        /// The block.
        block: usize,
        /// The tensor that is named.
        tensor: u32,
        /// How many there are.
        tensors: usize,
    },
    /// A place for what needs none.
    #[error("memory {memory} has a block for {tensor}, which needs none: it is external, a view, or never used", memory = Clipped(memory))]
    Needless {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
    },
    /// A tensor stands at two places.
    #[error("memory {memory} has a block for {tensor}, which has one already", memory = Clipped(memory))]
    Twice {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
    },
    /// A tensor stands nowhere.
    #[error("{tensor} has no block, and the graph uses it")]
    Unplaced {
        /// The tensor.
        tensor: Named,
    },
    /// A tensor stands in a memory that it does not belong to, nor what it takes over.
    #[error(
        "memory {memory} has a block for {tensor}, which belongs to memory {home}; the file says that it was asked for in memory number {asked}",
        memory = Clipped(memory),
        home = Clipped(home)
    )]
    Elsewhere {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// The name of the memory it belongs to.
        home: String,
        /// The memory that the file says.
        asked: u32,
    },
    /// A block is too small for its tensor.
    #[error("memory {memory}: {tensor} needs {needed} bytes, and its block has {size}", memory = Clipped(memory))]
    TooSmall {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// What it needs.
        needed: Bytes,
        /// What it has.
        size: Bytes,
    },
    /// Steps that are no lifetime.
    #[error("memory {memory}, {tensor}: {error}", memory = Clipped(memory))]
    Steps {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// What is wrong.
        error: UnitError,
    },
    /// The blocks of a memory are no problem that could have a plan.
    #[error("memory {memory}: {error}", memory = Clipped(memory))]
    Problem {
        /// The memory's name.
        memory: String,
        /// What is wrong.
        error: ProblemError,
    },
    /// The blocks of a memory stand where they can't.
    #[error("memory {memory}: {violations}{}", listed(tensors), memory = Clipped(memory))]
    Invalid {
        /// The memory's name.
        memory: String,
        /// The tensors of the first violation.
        tensors: Vec<Named>,
        /// What is wrong.
        violations: Violations,
    },
    /// A block is there for another time than its tensor is needed.
    #[error("memory {memory}: {tensor} is needed in {needed}, and its block is there in {saved}", memory = Clipped(memory))]
    Lifetime {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// From where to where the graph needs it, unless its last reader takes it over.
        needed: Lifetime,
        /// What the file says.
        saved: Lifetime,
    },
    /// A node stands on a source that it may not write over.
    #[error("{tensor} stands on the bytes of its source in slot {slot}, {taken}, which {operation} may not", operation = Clipped(operation))]
    TakeOver {
        /// The node.
        tensor: Named,
        /// The slot of the source.
        slot: usize,
        /// The tensor whose bytes they are.
        taken: Named,
        /// The node's operation.
        operation: String,
    },
    /// The file claims more of its plan, or less, than the plan can be.
    #[error(
        "memory {memory}: a plan of {peak} bytes with a bound of {bound} can't be \"{verdict}\" with at least {at_least}",
        memory = Clipped(memory)
    )]
    Claim {
        /// The memory's name.
        memory: String,
        /// What the plan needs.
        peak: Bytes,
        /// What every plan needs.
        bound: Bytes,
        /// The verdict in the file.
        verdict: Verdict,
        /// The file's word for what every plan needs.
        at_least: Bytes,
    },
    /// The plan does not fit the graph.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The plan does not hold.
    #[error("the plan does not hold: {0}")]
    Replay(#[from] ReplayFaults),
}

fn listed(tensors: &[Named]) -> String {
    let names: Vec<String> = tensors.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { alloc::format!(" ({})", names.join(", ")) }
}
