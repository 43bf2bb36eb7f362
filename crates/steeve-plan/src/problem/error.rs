//! Why some blocks are no problem, with the blocks and the numbers.

use crate::{Align, BlockId, BufferId, Bytes, Offset, Step};

/// Why some blocks are no [`Problem`](crate::Problem).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// More blocks than ids can count.
    #[error("blocks: too many: at most 4294967295, got {blocks}")]
    TooMany {
        /// How many there are.
        blocks: usize,
    },
    /// Stacked on each other the blocks would pass the end of the address space.
    #[error("block {block}: address space exceeded: with its {size} bytes, the blocks so far take 2^64 bytes or more")]
    TooLarge {
        /// The block that passes the limit.
        block: BlockId,
        /// Its size.
        size: Bytes,
    },
    /// Stacked on each other the blocks, with the padding that their alignments ask for, would pass the end of the
    /// address space.
    #[error(
        "block {block}: address space exceeded: with padding, the blocks so far take 2^64 bytes or more; block {widest} is aligned to {align}"
    )]
    TooMuchPadding {
        /// The block that passes the limit.
        block: BlockId,
        /// The block with the widest alignment so far.
        widest: BlockId,
        /// That alignment.
        align: Align,
    },
    /// A block follows one that does not exist.
    #[error("block {block}: follows block {follows}, which does not exist: there are {blocks} blocks")]
    FollowsMissingBlock {
        /// The follower.
        block: BlockId,
        /// The block it names.
        follows: BlockId,
        /// How many blocks there are.
        blocks: usize,
    },
    /// Two blocks follow the same one.
    #[error("block {block}: follows block {follows}, which block {other} follows already")]
    FollowsTwice {
        /// The later follower.
        block: BlockId,
        /// The earlier one.
        other: BlockId,
        /// The block both name.
        follows: BlockId,
    },
    /// A follower starts at another step than its predecessor ends.
    #[error(
        "block {block}: starts at another step than block {follows} ends, which it follows: expected {end}, got {start}"
    )]
    FollowsAtAnotherStep {
        /// The follower.
        block: BlockId,
        /// Where it starts.
        start: Step,
        /// Its predecessor.
        follows: BlockId,
        /// Where that ends.
        end: Step,
    },
    /// A follower is larger than its predecessor.
    #[error("block {block}: larger than block {follows}, which it follows: at most {room} bytes, got {size}")]
    FollowsSmaller {
        /// The follower.
        block: BlockId,
        /// Its size.
        size: Bytes,
        /// Its predecessor.
        follows: BlockId,
        /// That one's size.
        room: Bytes,
    },
    /// A block of a chain is pinned to another place than the first block of the chain.
    #[error("block {block}: pinned to another place than block {head}, the first of its chain")]
    FollowsElsewhere {
        /// The pinned block.
        block: BlockId,
        /// The first block of its chain.
        head: BlockId,
    },
    /// A block overlaps one that does not exist.
    #[error("block {block}: overlaps block {overlaps}, which does not exist: there are {blocks} blocks")]
    OverlapsMissingBlock {
        /// The block.
        block: BlockId,
        /// The block it names.
        overlaps: BlockId,
        /// How many blocks there are.
        blocks: usize,
    },
    /// A block overlaps itself.
    #[error("block {block}: overlaps itself")]
    OverlapsItself {
        /// The block.
        block: BlockId,
    },
    /// A block starts at another step than the last one of the block it overlaps.
    #[error(
        "block {block}: starts at another step than the last of block {overlaps}, which it overlaps: expected {}, got {start}",
        end.0 - 1
    )]
    OverlapsAtAnotherStep {
        /// The block.
        block: BlockId,
        /// Where it starts.
        start: Step,
        /// The block it overlaps.
        overlaps: BlockId,
        /// Where that ends; its last step is the one before.
        end: Step,
    },
    /// A block overlaps one that starts at the same step.
    #[error("block {block}: starts together with block {overlaps}, which it overlaps: expected a step after {start}")]
    OverlapsNewborn {
        /// The block.
        block: BlockId,
        /// Where both start.
        start: Step,
        /// The block it overlaps.
        overlaps: BlockId,
    },
    /// A block overlaps one and follows another: its place would be that of the one it follows.
    #[error("block {block}: overlaps block {overlaps} and follows block {follows}: expected at most one of them")]
    OverlapsAndFollows {
        /// The block.
        block: BlockId,
        /// The block it overlaps.
        overlaps: BlockId,
        /// The block it follows.
        follows: BlockId,
    },
    /// A block overlaps one that has a follower, which would reuse the overlapped bytes.
    #[error("block {block}: overlaps block {overlaps}, which block {follower} follows")]
    OverlapsFollowed {
        /// The block.
        block: BlockId,
        /// The block it overlaps.
        overlaps: BlockId,
        /// The block that follows that one.
        follower: BlockId,
    },
    /// Two blocks overlap the same one.
    #[error("block {block}: overlaps block {overlaps}, which block {other} overlaps already")]
    OverlapsTwice {
        /// The later block.
        block: BlockId,
        /// The earlier one.
        other: BlockId,
        /// The block both name.
        overlaps: BlockId,
    },
    /// A block is pinned to an offset that its alignment forbids.
    #[error("block {block}: pinned to a misaligned offset: expected a multiple of {align}, got {offset}")]
    PinnedUnaligned {
        /// The block.
        block: BlockId,
        /// Where it is pinned.
        offset: Offset,
        /// The alignment it, or a block that follows it, asks for.
        align: Align,
    },
    /// A block is pinned to a buffer far beyond those that the blocks could fill.
    #[error("block {block}: pinned to a buffer index that is too large: expected less than {blocks}, got {buffer}")]
    PinnedBufferTooLarge {
        /// The block.
        block: BlockId,
        /// The buffer it names.
        buffer: BufferId,
        /// How many blocks there are.
        blocks: usize,
    },
}
