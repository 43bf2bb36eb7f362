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
    #[error("placement: wrong length: expected {blocks} places, got {places}")]
    Count {
        /// How many blocks the problem has.
        blocks: usize,
        /// How many places were given.
        places: usize,
    },
    /// A block is in a buffer with an index above what the blocks could fill.
    #[error("block {block}: buffer index too large: expected less than {blocks}, got {buffer}")]
    BufferIndexTooLarge {
        /// The block.
        block: BlockId,
        /// Its buffer.
        buffer: BufferId,
        /// How many blocks there are.
        blocks: usize,
    },
    /// An offset that the block's alignment forbids.
    #[error("block {block}: misaligned: expected a multiple of {align}, got offset {offset}")]
    Misaligned {
        /// The block.
        block: BlockId,
        /// Where it is placed.
        offset: Offset,
        /// Its alignment.
        align: Align,
    },
    /// A block that passes the end of the address space.
    #[error("block {block}: address space exceeded: {size} bytes at offset {offset}")]
    OutOfRange {
        /// The block.
        block: BlockId,
        /// Where it is placed.
        offset: Offset,
        /// Its size.
        size: Bytes,
    },
    /// A pinned block that is placed elsewhere.
    #[error("block {block}: not where it is pinned: expected offset {} of buffer {}, got offset {} of buffer {}", pinned.offset, pinned.buffer, place.offset, place.buffer)]
    NotAtPin {
        /// The block.
        block: BlockId,
        /// The place it is pinned to.
        pinned: Place,
        /// Where it is placed.
        place: Place,
    },
    /// A block that follows another but has a different place.
    #[error("block {block}: not at the place of block {follows}, which it follows: expected offset {} of buffer {}, got offset {} of buffer {}", expected.offset, expected.buffer, place.offset, place.buffer)]
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
    #[error("buffer {buffer}: too large: at most {limit} bytes, got {size}; its largest block has {largest}")]
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
    #[error("buffers: over capacity: at most {capacity} bytes, got {peak}")]
    OverCapacity {
        /// The sum of the buffers' sizes.
        peak: Bytes,
        /// The capacity.
        capacity: Bytes,
    },
    /// The buffers together pass the end of the address space.
    #[error("buffers: address space exceeded: 2^64 bytes or more together")]
    TotalTooLarge,
    /// A block shares bytes with the source it may overlap, and is not far enough below it.
    #[error("block {block} starts {} block {overlaps}, which it overlaps: expected at least {distance}{}", Apart(*start, *overlapped), if start > overlapped { " below" } else { "" })]
    OverlapTooClose {
        /// The block.
        block: BlockId,
        /// The source that it overlaps.
        overlaps: BlockId,
        /// The offset of the block.
        start: Offset,
        /// The offset of the source, in the same buffer.
        overlapped: Offset,
        /// How far below its source the block has to start to share bytes with it.
        distance: Bytes,
    },
    /// There are more overlaps than are listed.
    #[error("more overlaps than are listed")]
    MoreOverlaps,
    /// Two live blocks share a byte, and neither may overlap the other.
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

/// Shows how far an offset is from the one of a source: `32 bytes below`.
struct Apart(Offset, Offset);

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(start, source) = self;
        let side = if start > source { "above" } else { "below" };
        write!(f, "{} bytes {side}", start.0.abs_diff(source.0))
    }
}

impl Violation {
    /// Returns one word for what is wrong, for programs: it does not change.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Count { .. } => "count",
            Self::BufferIndexTooLarge { .. } => "buffer",
            Self::Misaligned { .. } => "misaligned",
            Self::OutOfRange { .. } | Self::TotalTooLarge => "outside",
            Self::NotAtPin { .. } => "unpinned",
            Self::NotAtPredecessor { .. } => "strayed",
            Self::BufferTooLarge { .. } => "buffer-size",
            Self::OverCapacity { .. } => "capacity",
            Self::Overlap { .. } | Self::OverlapTooClose { .. } => "overlap",
            Self::MoreOverlaps => "more",
        }
    }

    /// Returns the blocks that the violation is about: none, one or two.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> {
        let (first, second) = match self {
            Self::BufferIndexTooLarge { block, .. }
            | Self::Misaligned { block, .. }
            | Self::OutOfRange { block, .. }
            | Self::NotAtPin { block, .. } => (Some(*block), None),
            Self::NotAtPredecessor { block, follows, .. } => (Some(*follows), Some(*block)),
            Self::OverlapTooClose { block, overlaps, .. } => (Some(*overlaps), Some(*block)),
            Self::Overlap { block, other, .. } => (Some(*block), Some(*other)),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }
}
