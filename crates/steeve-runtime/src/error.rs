//! The errors of allocators and allocations.

use std::fmt;
#[cfg(feature = "json")]
use std::{error::Error, sync::Arc};

use steeve_device::DeviceError;
use steeve_graph::{Bytes, DataType, GraphError, GraphPlanError, Named, PlanMismatch};
#[cfg(feature = "json")]
use steeve_graph::{ErrorChain, PlanFault};

/// An error of an allocator, or of an allocation.
///
/// Each displays as one line, `thing: what is wrong: expected, got`; an error that caused it is its
/// [`source`](std::error::Error::source) and not part of the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The graph has no plan.
    #[error(transparent)]
    Plan(#[from] GraphPlanError),
    /// The graph, its assignment or the context is invalid.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A device refused a transfer, or a buffer that exists.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A device could not allocate a buffer.
    #[error("{what}: allocation failed: requested {size} bytes")]
    Buffer {
        /// What it is for.
        what: String,
        /// The requested bytes.
        size: Bytes,
        /// The error of the device.
        #[source]
        error: Box<DeviceError>,
    },
    /// An allocator without a buffer type.
    #[error("allocator: no buffer type: expected at least one")]
    NoBufferType,
    /// An index without a buffer.
    #[error("buffer {index}: does not exist: there are {buffers}")]
    BufferIndex {
        /// The index.
        index: usize,
        /// How many buffers there are.
        buffers: usize,
    },
    /// The buffer of a linear allocator is full.
    #[error("{tensor}: does not fit into the buffer: needs {needed} bytes, {left} left")]
    Full {
        /// The tensor.
        tensor: Named,
        /// The bytes that it needs.
        needed: Bytes,
        /// The bytes that are left.
        left: Bytes,
    },
    /// A view has no memory of its own.
    #[error("{tensor}: view without memory of its own: allocate {root} instead")]
    IsView {
        /// The view.
        tensor: Named,
        /// The tensor that owns the memory.
        root: Named,
    },
    /// The sizes of tensors pass the end of the address space.
    #[error("{tensor}: passes the end of the address space: needs {size} bytes")]
    AddressSpace {
        /// The first tensor that does.
        tensor: Named,
        /// Its size.
        size: Bytes,
    },
    /// A plan above the budget of a memory. Nothing was allocated.
    #[error("{memory}: over budget: needs {needed} bytes, {budget} allowed; live at the peak: {at_peak}")]
    OverBudget {
        /// The name of the memory.
        memory: String,
        /// Its index among the allocator's.
        index: usize,
        /// The bytes that all of its buffers need together.
        needed: Bytes,
        /// The bytes that they may take.
        budget: Bytes,
        /// The tensors that are live at the peak.
        at_peak: AtPeak,
    },
    /// A graph that fits no reserved plan, with several memories: its assignment is needed to plan it.
    #[error("graph: fits no reserved plan: reserve it with its assignment, or plan again with Replan::Always")]
    NeedsReserve {
        /// How it differs from the graph of the latest plan.
        #[source]
        misfit: PlanMismatch,
    },
    /// Nothing has been reserved, and the allocator may not plan by itself.
    #[error("graph: nothing is reserved: reserve it first, with several memories together with its assignment")]
    NothingReserved,
    /// A plan that was made for other memories.
    #[error("plan: made for other memories: expected {own}, got {planned}")]
    OtherMemories {
        /// The memories of the plan.
        planned: String,
        /// The memories of the allocator.
        own: String,
    },
    /// A plan whose places are too small for the memories of the allocator.
    #[error("plan: does not fit the memories of this allocator")]
    PlanMisfit(#[source] PlanMismatch),
    /// An external tensor without memory.
    #[error("{tensor}: external tensor without memory: expected it among the bindings")]
    Unbound {
        /// The tensor.
        tensor: Named,
    },
    /// An external tensor with too little memory.
    #[error("{tensor}: bound to too little memory: expected at least {needed} bytes, got {bound}")]
    BoundTooSmall {
        /// The tensor.
        tensor: Named,
        /// The bytes that it needs.
        needed: Bytes,
        /// The bytes that are bound to it.
        bound: Bytes,
    },
    /// An external tensor in a buffer that is planned for the tensors of graphs.
    #[error(
        "{tensor}: bound to a buffer of this allocator, which is planned for other tensors: expected another buffer"
    )]
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
    #[error(
        "memory {memory}: planned with ggml's own layout: expected an extra lifetime of {extra_lifetime}, got none"
    )]
    NoExtraLifetime {
        /// The name of the memory.
        memory: String,
        /// For how many nodes sources must stay alive.
        extra_lifetime: u32,
    },
    /// The graph does not use the tensor.
    #[error("{tensor}: no address: the graph does not use it")]
    NotPlaced {
        /// The tensor.
        tensor: Named,
    },
    /// The memory has been written or run in through a later handle, or has grown.
    #[error("allocation: stale: the memory has been used through a later one, has grown, or its allocator is gone")]
    Stale,
    /// A run is in progress.
    #[error("allocation: a run is in progress in this memory")]
    Running,
    /// An input without contents.
    #[error("{tensor}: not written yet")]
    NotWritten {
        /// The tensor.
        tensor: Named,
    },
    /// An input whose memory the last run has reused.
    #[error("{tensor}: consumed by the last run, which has reused its memory: write it again, or keep it")]
    Consumed {
        /// The tensor.
        tensor: Named,
    },
    /// A result that no run has computed.
    #[error("{tensor}: not computed yet")]
    NotComputed {
        /// The tensor.
        tensor: Named,
    },
    /// A result whose memory the run has reused.
    #[error("{tensor}: overwritten later in the run: set it as output to read it after a run")]
    Reused {
        /// The tensor.
        tensor: Named,
    },
    /// A result of a run that did not finish, or that inputs of the next run have been written over.
    #[error("{tensor}: contents lost: the last run did not finish, or inputs have been written since: run again")]
    Lost {
        /// The tensor.
        tensor: Named,
    },
    /// A result, which the run writes and a caller need not.
    #[error("{tensor}: computed by the run: expected an input or an external tensor")]
    Computed {
        /// The tensor.
        tensor: Named,
    },
    /// A view of an input that has no contents yet: only a part of it would have some.
    #[error("{tensor}: part of {root}, which is not written yet: write all of it first")]
    PartOfUnwritten {
        /// The view.
        tensor: Named,
        /// The tensor that owns the memory.
        root: Named,
    },
    /// Elements of another type than the tensor's.
    #[error("{tensor}: wrong element type: expected {dtype}, got {given}")]
    ElementType {
        /// The tensor.
        tensor: Named,
        /// Its type.
        dtype: DataType,
        /// The type of the elements that were given or asked for.
        given: DataType,
    },
    /// Another number of elements or bytes than the tensor's.
    #[error("{tensor}: wrong length: expected {wanted} {unit}, got {given}")]
    Length {
        /// The tensor.
        tensor: Named,
        /// `elements` or `bytes`.
        unit: &'static str,
        /// How many it has.
        wanted: u64,
        /// How many were given.
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

/// The tensors that are live when most bytes are, the largest first.
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
