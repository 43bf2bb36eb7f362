//! What the allocators refuse.

use std::fmt;
#[cfg(feature = "json")]
use std::{error::Error, sync::Arc};

use steeve_device::DeviceError;
use steeve_graph::{Bytes, DataType, GraphError, GraphPlanError, Named, PlanMismatch};
#[cfg(feature = "json")]
use steeve_graph::{ErrorChain, PlanFault};

/// Why an allocator did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The graph has no plan.
    #[error(transparent)]
    Plan(#[from] GraphPlanError),
    /// The graph, its assignment or the context is not in order.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A device refused a transfer or a buffer that exists.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A device refused to make a buffer.
    #[error("no buffer of {size} bytes for {what}: {error}")]
    Buffer {
        /// What it was for.
        what: String,
        /// How large it should have been.
        size: Bytes,
        /// What the device said.
        error: Box<DeviceError>,
    },
    /// An allocator needs at least one buffer type.
    #[error("there is no buffer type to allocate from")]
    NoBufferType,
    /// There is no such buffer.
    #[error("buffer {index} is asked for, and there are {buffers}")]
    BufferIndex {
        /// Which one.
        index: usize,
        /// How many there are.
        buffers: usize,
    },
    /// The linear allocator has no room.
    #[error("{tensor} needs {needed} bytes, and the buffer has {left} left")]
    Full {
        /// The tensor.
        tensor: Named,
        /// What it needs.
        needed: Bytes,
        /// What is left.
        left: Bytes,
    },
    /// A view has no memory of its own.
    #[error("{tensor} is a view of {root} and stands where that does")]
    IsView {
        /// The view.
        tensor: Named,
        /// Who owns the memory.
        root: Named,
    },
    /// The sizes of tensors pass the end of the address space.
    #[error("{tensor} of {size} bytes passes the end of the address space")]
    AddressSpace {
        /// The first tensor that does.
        tensor: Named,
        /// Its size.
        size: Bytes,
    },
    /// A plan above the budget of a memory. Nothing was allocated.
    #[error("{memory} needs {needed} bytes, {} above its budget of {budget}; at the peak live {at_peak}", .needed.0.saturating_sub(.budget.0))]
    OverBudget {
        /// The memory.
        memory: String,
        /// Its place among the allocator's.
        index: usize,
        /// What all of its buffers would take.
        needed: Bytes,
        /// What they may.
        budget: Bytes,
        /// Who lives when most is live.
        at_peak: AtPeak,
    },
    /// Several memories, and no plan that fits: who goes where must be said again.
    #[error(
        "no reserved plan fits: {misfit}; call reserve_with for this graph, or allow planning again with Replan::Always"
    )]
    NeedsReserve {
        /// What does not fit the plan used last.
        misfit: PlanMismatch,
    },
    /// Nothing has been reserved, and the allocator may not plan by itself.
    #[error(
        "nothing is reserved: call reserve first, or with several memories reserve_with, which says who goes where"
    )]
    NothingReserved,
    /// A plan that was made for other memories.
    #[error("the plan was made for {planned}, and this allocator has {own}")]
    OtherMemories {
        /// The memories of the plan.
        planned: String,
        /// Those of the allocator.
        own: String,
    },
    /// A plan whose places are too small for the memories it is to be used with.
    #[error("the plan can't be used here: {0}")]
    PlanMisfit(PlanMismatch),
    /// The caller provides its memory, and has not.
    #[error("{tensor} is external, and no memory is bound to it")]
    Unbound {
        /// The tensor.
        tensor: Named,
    },
    /// What the caller provides is too small.
    #[error("{tensor} needs {needed} bytes, and {bound} are bound to it")]
    BoundTooSmall {
        /// The tensor.
        tensor: Named,
        /// What it needs.
        needed: Bytes,
        /// What it has.
        bound: Bytes,
    },
    /// An external tensor can't stand where graphs are planned.
    #[error("{tensor} is external, and is bound to a buffer of this allocator, which is planned for other tensors")]
    BoundToPlanned {
        /// The tensor.
        tensor: Named,
    },
    /// A plan file that is no plan, or none of this graph.
    #[cfg(feature = "json")]
    #[error("plan file: not usable for this graph")]
    PlanFile(#[source] PlanFileFault),
    /// A plan file whose plan frees more of what no node reads than the allocator's options allow.
    #[cfg(feature = "json")]
    #[error("plan file: frees more unread memory than this allocator: expected unread {kept} or less, got {freed}")]
    PlanFileUnread {
        /// The rule of the file.
        freed: &'static str,
        /// The rule of the allocator.
        kept: &'static str,
    },
    /// A plan with ggml's own layout for a memory whose backends read sources late.
    #[error("the plan has ggml's own layout in {memory}, where sources must be held for {hold} nodes")]
    IgnoresHold {
        /// The memory.
        memory: String,
        /// For how many nodes.
        hold: u32,
    },
    /// The tensor is not part of the graph.
    #[error("{tensor} has no place: the graph does not use it")]
    NotPlaced {
        /// The tensor.
        tensor: Named,
    },
    /// Another handle has written or run in the same memory, or it has grown.
    #[error(
        "the allocation is stale: the memory has been used through a later one, has grown, or its allocator is gone"
    )]
    Stale,
    /// A run is in progress.
    #[error("a run is in progress in this memory")]
    Running,
    /// Nobody has written the input.
    #[error("{tensor} has not been written")]
    NotWritten {
        /// The tensor.
        tensor: Named,
    },
    /// The last run has reused the input's memory.
    #[error("{tensor} was consumed: the last run has reused its memory; write it again, or keep it")]
    Consumed {
        /// The tensor.
        tensor: Named,
    },
    /// No run has computed it.
    #[error("{tensor} has not been computed yet")]
    NotComputed {
        /// The tensor.
        tensor: Named,
    },
    /// The run has reused its memory for something else.
    #[error("the memory of {tensor} has been reused; set it as output to read it after a run")]
    Reused {
        /// The tensor.
        tensor: Named,
    },
    /// The last run did not finish, or inputs of the next one have been written over its results.
    #[error("{tensor} is lost: the last run did not finish, or inputs have been written since; run again")]
    Lost {
        /// The tensor.
        tensor: Named,
    },
    /// The run computes it.
    #[error("{tensor} is computed by the run, so writing it is in vain")]
    Computed {
        /// The tensor.
        tensor: Named,
    },
    /// Only a part of an input would have contents.
    #[error("{tensor} is a part of {root}, which has not been written: write all of that first")]
    Part {
        /// The view.
        tensor: Named,
        /// Who owns the memory.
        root: Named,
    },
    /// Elements of another type.
    #[error("{tensor} has elements of type {dtype}, not {given}")]
    ElementType {
        /// The tensor.
        tensor: Named,
        /// Its type.
        dtype: DataType,
        /// The type asked for.
        given: DataType,
    },
    /// Not as many elements, or bytes.
    #[error("{tensor} has {wanted} {unit}, and {given} are given")]
    Length {
        /// The tensor.
        tensor: Named,
        /// `elements` or `bytes`.
        unit: &'static str,
        /// How many it has.
        wanted: u64,
        /// How many came.
        given: u64,
    },
}

/// What is wrong with a plan file, shared by the clones of an [`AllocError`]. Two are equal if their messages are.
#[cfg(feature = "json")]
#[derive(Clone, Debug)]
pub struct PlanFileFault(Arc<PlanFault>);

#[cfg(feature = "json")]
impl PlanFileFault {
    pub(crate) fn new(fault: PlanFault) -> Self {
        Self(Arc::new(fault))
    }

    /// Returns the fault.
    pub fn get(&self) -> &PlanFault {
        &self.0
    }
}

#[cfg(feature = "json")]
impl fmt::Display for PlanFileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "json")]
impl Error for PlanFileFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[cfg(feature = "json")]
impl PartialEq for PlanFileFault {
    fn eq(&self, other: &Self) -> bool {
        ErrorChain(self).to_string() == ErrorChain(other).to_string()
    }
}

#[cfg(feature = "json")]
impl Eq for PlanFileFault {}

/// The tensors that live when most bytes are live, the largest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtPeak(pub Vec<(Named, Bytes)>);

impl fmt::Display for AtPeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (index, (tensor, size)) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{tensor} with {size} bytes", if index == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
