//! What can go wrong in a replay: which node reads, what overwrote, where.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use steeve_plan::{Align, BufferId, Bytes, Clipped, Offset};

use crate::{MemoryId, Named, NodeOrderError};

/// Everything that went wrong in a replay; at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayFaults(pub(super) Vec<ReplayFault>);

impl ReplayFaults {
    /// Returns the single faults, in the order in which they happened.
    pub fn list(&self) -> &[ReplayFault] {
        &self.0
    }
}

impl fmt::Display for ReplayFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (index, fault) in self.0.iter().take(SHOWN).enumerate() {
            let gap = if index == 0 { "" } else { "; " };
            write!(f, "{gap}{fault}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl core::error::Error for ReplayFaults {}

/// One thing that went wrong in a replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayFault {
    /// A node read bytes that another write had overwritten.
    #[error("node {node} ({reader}): reads {tensor}, but {by} has overwritten byte {offset} of buffer {buffer} in {memory}", memory = Clipped(memory))]
    Overwritten {
        /// The position of the node that reads.
        node: usize,
        /// The node.
        reader: Named,
        /// What it reads.
        tensor: Named,
        /// The last write there.
        by: LastWriter,
        /// The name of the memory.
        memory: String,
        /// The buffer.
        buffer: BufferId,
        /// The first byte that is wrong.
        offset: Offset,
    },
    /// A source of a group of nodes that a backend runs as one is overwritten before the last of them has run, so that the
    /// backend can't fuse them.
    #[error("nodes {node} to {last}: can't be fused: node {node} ({reader}) reads {tensor}, and {by} overwrites it before the last of them is done (memory {memory}, buffer {buffer}, byte {offset})", memory = Clipped(memory))]
    Fusion {
        /// The position of the first node of the group, which reads.
        node: usize,
        /// The position of the last.
        last: usize,
        /// The node.
        reader: Named,
        /// What it reads.
        tensor: Named,
        /// The last write there.
        by: LastWriter,
        /// The name of the memory.
        memory: String,
        /// The buffer.
        buffer: BufferId,
        /// The first byte that is overwritten.
        offset: Offset,
    },
    /// A node read bytes that neither a node nor the caller had written.
    #[error("node {node} ({reader}): reads {tensor}, but nothing has written its byte {byte}")]
    Unwritten {
        /// The position of the node that reads.
        node: usize,
        /// The node.
        reader: Named,
        /// What it reads.
        tensor: Named,
        /// The first byte that is not written, counted from the start of the tensor.
        byte: Offset,
    },
    /// Two tensors that the caller writes before the run share a byte.
    #[error("{tensor}: there before the run, as {other}, with which it shares byte {offset} of buffer {buffer} in {memory}", memory = Clipped(memory))]
    InitialOverlap {
        /// The one that is listed later.
        tensor: Named,
        /// The one that is listed first.
        other: Named,
        /// The name of the memory.
        memory: String,
        /// The buffer.
        buffer: BufferId,
        /// The first byte that they share.
        offset: Offset,
    },
    /// Something that must survive the run did not.
    #[error("{tensor}: must survive the run, but {by} has overwritten byte {offset} of buffer {buffer} in {memory}", memory = Clipped(memory))]
    Lost {
        /// What was lost.
        tensor: Named,
        /// The last write there.
        by: LastWriter,
        /// The name of the memory.
        memory: String,
        /// The buffer.
        buffer: BufferId,
        /// The first byte that is wrong.
        offset: Offset,
    },
    /// A node writes over a source that its operation may still read.
    #[error("node {node} ({writer}): writes over its source in slot {slot}, {tensor}, which {operation} may not", operation = Clipped(operation))]
    InPlace {
        /// The position of the node.
        node: usize,
        /// The node.
        writer: Named,
        /// The slot of the source.
        slot: usize,
        /// The source.
        tensor: Named,
        /// The operation's name.
        operation: String,
    },
    /// A tensor is located where it can't be: the place does not make sense by itself.
    #[error("{tensor}: can't be at offset {offset} of memory {memory} with {size} bytes: {why}")]
    Place {
        /// The tensor.
        tensor: Named,
        /// The memory it is said to be in.
        memory: MemoryId,
        /// Its offset by the claim.
        offset: Offset,
        /// The bytes it is said to have.
        size: Bytes,
        /// What is wrong with that.
        why: PlaceFault,
    },
    /// In the order that a plan runs in, a node reads what another write left, or the end of the run does.
    #[error("{}: reads byte {byte} of {tensor} as {found} left it: expected {expected}, as in the graph's own order", reader.as_ref().map_or_else(|| String::from("after the run"), |(node, reader)| alloc::format!("node {node} ({reader})")))]
    Reordered {
        /// The node that reads, with its position in the graph's own order; `None` for what is there after the run.
        reader: Option<(usize, Named)>,
        /// What it reads.
        tensor: Named,
        /// The first byte of its root that differs.
        byte: Offset,
        /// The last write there.
        found: LastWriter,
        /// The write that it reads in the graph's own order.
        expected: LastWriter,
    },
    /// The order of a plan is none of the graph's nodes.
    #[error(transparent)]
    Order(NodeOrderError),
    /// A node reads or writes a tensor that has no place.
    #[error("node {node}: uses {tensor}, which has no place")]
    Unplaced {
        /// The position of the node.
        node: usize,
        /// The tensor.
        tensor: Named,
    },
}

impl ReplayFault {
    /// Returns the tensor that is overwritten, lost or missing; `None` if it is about none.
    pub const fn tensor(&self) -> Option<&Named> {
        match self {
            Self::Order(_) => None,
            Self::Overwritten { tensor, .. }
            | Self::Fusion { tensor, .. }
            | Self::Unwritten { tensor, .. }
            | Self::InitialOverlap { tensor, .. }
            | Self::Lost { tensor, .. }
            | Self::InPlace { tensor, .. }
            | Self::Place { tensor, .. }
            | Self::Reordered { tensor, .. }
            | Self::Unplaced { tensor, .. } => Some(tensor),
        }
    }
}

/// Why a tensor can't be located at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceFault {
    /// There is no such memory.
    #[error("no such memory")]
    NoMemory,
    /// Its memory demands another alignment.
    #[error("expected an alignment of {0}")]
    Misaligned(Align),
    /// It needs more.
    #[error("expected at least {0} bytes")]
    TooSmall(Bytes),
}

/// The last write of a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LastWriter {
    /// A node, by its position and tensor.
    Node(usize, Named),
    /// The caller, before the run.
    Caller(Named),
    /// Nothing.
    Nothing,
}

impl fmt::Display for LastWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node, tensor) => write!(f, "node {node} ({tensor})"),
            Self::Caller(tensor) => write!(f, "the caller's {tensor}"),
            Self::Nothing => write!(f, "nothing"),
        }
    }
}
