//! Why a graph has no plan.

use alloc::string::String;

use steeve_plan::{Bytes, Clipped, PlaceError, ProblemError, Violations};

use crate::Named;

/// Why a graph has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphPlanError {
    /// The tensors of a memory are no problem that could be solved.
    #[error("memory {memory}: {error}", memory = Clipped(memory))]
    Problem {
        /// The memory's name.
        memory: String,
        /// What is wrong.
        error: ProblemError,
    },
    /// The tensors of a memory can't be placed.
    #[error("memory {memory}: {error}", memory = Clipped(memory))]
    Place {
        /// The memory's name.
        memory: String,
        /// What is wrong.
        error: PlaceError,
    },
    /// ggml's own answer overwrites live bytes.
    #[error("memory {memory}: ggml's plan does not hold for this graph: {violations}", memory = Clipped(memory))]
    GgmlFails {
        /// The memory's name.
        memory: String,
        /// What is wrong.
        violations: Violations,
    },
    /// ggml's own answer does not keep the bytes of a tensor for as long as they are needed.
    #[error("{tensor}: ggml's plan gives its bytes to others while they are needed")]
    GgmlFrees {
        /// The tensor that owns the bytes.
        tensor: Named,
    },
    /// A tensor passes the end of the address space.
    #[error("memory {memory} has no room for {tensor} of {size} bytes within the address space", memory = Clipped(memory))]
    AddressSpace {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// What it needs.
        size: Bytes,
    },
}
