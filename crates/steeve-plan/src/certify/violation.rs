//! What can be wrong with a placement, with the blocks and the numbers.

use alloc::vec::Vec;
use core::fmt;

use crate::{Align, BlockId, BufferId, Bytes, Offset, Place, Step};

/// Everything that is wrong with a placement; at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(pub(super) Vec<Violation>);

impl Violations {
    /// Returns the single violations: those of one block first, in the order of the blocks, then overlaps in the order
    /// of time.
    pub fn list(&self) -> &[Violation] {
        &self.0
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        for (index, violation) in self.0.iter().take(SHOWN).enumerate() {
            let gap = if index == 0 { "" } else { "; " };
            write!(f, "{gap}{violation}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl core::error::Error for Violations {}

/// One thing that is wrong with a placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The number of places differs from the number of blocks.
    #[error("there are {blocks} blocks but {places} places")]
    Count {
        /// How many blocks the problem has.
        blocks: usize,
        /// How many places were given.
        places: usize,
    },
    /// A block is in a buffer with an index above what the blocks could fill.
    #[error("block {block} stands in buffer {buffer}, but {blocks} blocks fill at most {blocks} buffers")]
    BufferIndexTooLarge {
        /// The block.
        block: BlockId,
        /// Its buffer.
        buffer: BufferId,
        /// How many blocks there are.
        blocks: usize,
    },
    /// An offset that the block's alignment forbids.
    #[error("block {block} stands at offset {offset}, which is no multiple of its alignment {align}")]
    Misaligned {
        /// The block.
        block: BlockId,
        /// Where it is placed.
        offset: Offset,
        /// Its alignment.
        align: Align,
    },
    /// A block that passes the end of the address space.
    #[error("block {block} of {size} bytes at offset {offset} passes the end of the address space")]
    OutOfRange {
        /// The block.
        block: BlockId,
        /// Where it is placed.
        offset: Offset,
        /// Its size.
        size: Bytes,
    },
    /// A pinned block that is placed elsewhere.
    #[error("block {block} is pinned to offset {} of buffer {} but stands at offset {} of buffer {}", pinned.offset, pinned.buffer, place.offset, place.buffer)]
    NotAtPin {
        /// The block.
        block: BlockId,
        /// The place it is pinned to.
        pinned: Place,
        /// Where it is placed.
        place: Place,
    },
    /// A block that follows another but has a different place.
    #[error("block {block} follows block {follows} but stands at offset {} of buffer {} instead of offset {} of buffer {}", place.offset, place.buffer, expected.offset, expected.buffer)]
    NotAtPredecessor {
        /// The follower.
        block: BlockId,
        /// Its predecessor.
        follows: BlockId,
        /// The place of the follower.
        place: Place,
        /// The place of its predecessor.
        expected: Place,
    },
    /// A buffer above the limit that no single block excuses.
    #[error("buffer {buffer} has {size} bytes, above the limit of {limit}, and its largest block has only {largest}")]
    BufferTooLarge {
        /// The buffer.
        buffer: BufferId,
        /// Its size.
        size: Bytes,
        /// The limit.
        limit: Bytes,
        /// The most bytes that a block in it occupies.
        largest: Bytes,
    },
    /// The buffers together pass the capacity.
    #[error("the buffers have {peak} bytes together, {} more than the capacity of {capacity}", peak.0 - capacity.0)]
    OverCapacity {
        /// The sum of the buffers' sizes.
        peak: Bytes,
        /// The capacity.
        capacity: Bytes,
    },
    /// The buffers together pass the end of the address space.
    #[error("the buffers have more than 2^64 bytes together")]
    TotalTooLarge,
    /// There are more overlaps than are listed.
    #[error("there are more overlaps than these")]
    MoreOverlaps,
    /// Two live blocks share a byte.
    #[error("blocks {block} and {other} share byte {offset} of buffer {buffer} at step {step}")]
    Overlap {
        /// The one that was alive first (at equal births, the one with the smaller id).
        block: BlockId,
        /// The other one.
        other: BlockId,
        /// Their buffer.
        buffer: BufferId,
        /// The first byte they share.
        offset: Offset,
        /// The first step at which they do.
        step: Step,
    },
}

impl Violation {
    /// Returns the blocks that the violation is about: none, one or two.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> {
        let (first, second) = match self {
            Self::BufferIndexTooLarge { block, .. }
            | Self::Misaligned { block, .. }
            | Self::OutOfRange { block, .. }
            | Self::NotAtPin { block, .. } => (Some(*block), None),
            Self::NotAtPredecessor { block, follows, .. } => (Some(*follows), Some(*block)),
            Self::Overlap { block, other, .. } => (Some(*block), Some(*other)),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }
}
