//! Why a graph has no plan.

use alloc::string::String;

use steeve_plan::{Bytes, Clipped, PlaceError, ProblemError, Violations};

use crate::Named;

/// Why a graph has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphPlanError {
    /// The tensors of a memory are no problem that could be solved.
    #[error("memory {memory}: its tensors can't be planned", memory = Clipped(memory))]
    Problem {
        /// The memory's name.
        memory: String,
        /// The cause.
        #[source]
        error: ProblemError,
    },
    /// The tensors of a memory can't be placed.
    #[error("memory {memory}: its tensors can't be placed", memory = Clipped(memory))]
    Place {
        /// The memory's name.
        memory: String,
        /// The cause.
        #[source]
        error: PlaceError,
    },
    /// ggml's own answer overwrites live bytes.
    #[error("memory {memory}: ggml's plan is wrong for this graph", memory = Clipped(memory))]
    GgmlFails {
        /// The memory's name.
        memory: String,
        /// The blocks that overlap, or are misplaced.
        #[source]
        violations: Violations,
    },
    /// ggml's own answer does not keep the bytes of a tensor for as long as they are needed.
    #[error("{tensor}: ggml's plan frees its bytes while they are needed")]
    GgmlFrees {
        /// The tensor that owns the bytes.
        tensor: Named,
    },
    /// A tensor passes the end of the address space.
    #[error("memory {memory}: no room for {tensor}: expected an end within 2^64 bytes, got {size} bytes more", memory = Clipped(memory))]
    AddressSpace {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// What it needs.
        size: Bytes,
    },
}
