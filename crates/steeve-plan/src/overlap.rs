//! The relation between a result and a source that dies as the result is born: they may share bytes at a distance.
//!
//! A kernel that walks through its source and its result in order has read the beginning of the source before it writes
//! there. So the result may start some bytes below the source, although both are alive while the kernel runs:
//!
//! ```text
//!   offset  |     [ source  ]
//!      D ---|- - -[ . . . . ]   the upper bytes of the result are written after the source's have been read
//!           |          [ result     ]
//!      0 ---|- - - - - [ . . . . .  ]      offset of the source - offset of the result >= D
//! ```
//!
//! It is a permission: a placement may also keep the two apart. [`Problem::new`](crate::Problem::new) checks with
//! [`check_overlaps`] that the relation makes sense. From these rules follows what bounds and checkers rely on: **at a
//! step, a block is in one pair at most.** A block is the source of one pair at most, at its last step, and the result of
//! one at most, at its first step; and a source starts before its result, so for the block between two pairs these are
//! different steps.

use crate::{Block, BlockId, Bytes, IdVec, Place, ProblemError};

/// A source that a block may share bytes with while both are alive: the block starts at least `distance` bytes below it.
///
/// ```
/// use steeve_plan::{Block, BlockId, Bytes, Lifetime, Problem, Strategy, plan};
/// // A kernel reads 64 bytes and writes 128. It runs at step 1, and its result may start 80 bytes below its source.
/// let source = Block::new(Bytes(64), Lifetime::new(0, 2)?);
/// let result = Block::new(Bytes(128), Lifetime::new(1, 3)?).overlapping(BlockId::FIRST, Bytes(80));
/// let plan = plan(Problem::new(vec![source, result])?, &Strategy::Fast)?;
/// assert_eq!(plan.peak(), Bytes(144));
/// assert!(plan.is_optimal());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Overlap {
    /// The block that may be overlapped. Its last step is the first step of the block that overlaps it.
    pub source: BlockId,
    /// The least offset of the source minus the offset of the block that overlaps it.
    pub distance: Bytes,
}

impl Overlap {
    /// Returns whether a block at `result` may share bytes with its source at `source`: they are in one buffer, and the
    /// result starts at least the distance below the source.
    ///
    /// ```
    /// use steeve_plan::{BlockId, Bytes, Offset, Overlap, Place};
    /// let overlap = Overlap { source: BlockId::FIRST, distance: Bytes(48) };
    /// let at = |offset| Place::first(Offset(offset));
    /// assert!(overlap.permits(at(100), at(52)));
    /// assert!(!overlap.permits(at(100), at(53)));
    /// ```
    pub fn permits(&self, source: Place, result: Place) -> bool {
        let apart = source.offset.0.checked_sub(result.offset.0);
        source.buffer == result.buffer && apart.is_some_and(|bytes| bytes >= self.distance.0)
    }
}

/// Checks every block that overlaps another: the source exists, dies at the step at which the block is born and was born
/// before; it has no follower and is overlapped by no other block; and the block follows none. O(n).
pub(crate) fn check_overlaps(blocks: &IdVec<BlockId, Block>) -> Result<(), ProblemError> {
    if !any_overlap(blocks) {
        return Ok(());
    }
    let mut follower: IdVec<BlockId, Option<BlockId>> = blocks.iter().map(|_| None).collect();
    for (block, it) in blocks.pairs() {
        // Chains are checked before, so every predecessor exists.
        if let Some(before) = it.follows {
            follower[before] = Some(block);
        }
    }
    let mut result: IdVec<BlockId, Option<BlockId>> = blocks.iter().map(|_| None).collect();
    for (block, it) in blocks.pairs() {
        let Some(Overlap { source: overlaps, .. }) = it.overlaps else { continue };
        let Some(source) = blocks.get(overlaps) else {
            return Err(ProblemError::OverlapsMissingBlock { block, overlaps, blocks: blocks.len() });
        };
        check_times(block, it, overlaps, source)?;
        if let Some(follows) = it.follows {
            return Err(ProblemError::OverlapsAndFollows { block, overlaps, follows });
        }
        if let Some(follower) = follower[overlaps] {
            return Err(ProblemError::OverlapsFollowed { block, overlaps, follower });
        }
        if let Some(other) = result[overlaps].replace(block) {
            return Err(ProblemError::OverlapsTwice { block, other, overlaps });
        }
    }
    Ok(())
}

fn check_times(block: BlockId, it: &Block, overlaps: BlockId, source: &Block) -> Result<(), ProblemError> {
    if block == overlaps {
        return Err(ProblemError::OverlapsItself { block });
    }
    let (start, first, end) = (it.life.start(), source.life.start(), source.life.end());
    if start.0 != end.0 - 1 {
        return Err(ProblemError::OverlapsAtAnotherStep { block, start, overlaps, end });
    }
    if start <= first {
        return Err(ProblemError::OverlapsNewborn { block, start, overlaps });
    }
    Ok(())
}

/// Returns whether any block may overlap another. O(n).
pub(crate) fn any_overlap(blocks: &IdVec<BlockId, Block>) -> bool {
    blocks.iter().any(|block| block.overlaps.is_some())
}
