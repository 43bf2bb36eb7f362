//! The input of the planner: blocks with a size, an alignment and a lifetime.
//!
//! [`Problem::new`] checks the blocks once, and no later stage checks them again. Above all, no stack of blocks can
//! overflow an offset, in whatever order and in however many buffers they are stacked:
//!
//! ```text
//!   pinned end  +  (occupied + padding)  +  (occupied + padding)  + ...  <  2^64
//! ```
//!
//! A block that rests on another starts at the next multiple of its alignment. What it rests on ends at a multiple of the
//! least alignment of all blocks, so the padding between them is at most the difference of the two alignments: nothing,
//! where all alignments are equal.

mod error;

use alloc::vec::Vec;

pub use error::ProblemError;

use crate::overlap::{any_overlap, check_overlaps};
use crate::{Align, BlockId, BufferId, Bytes, Id, IdVec, Lifetime, Offset, Overlap, Step};

/// A piece of memory that is needed for a while.
///
/// A block *occupies* its size rounded up to its alignment, as in every common allocator: with an alignment of 32, two
/// blocks of 10 bytes that are alive together need 64 bytes, not 42.
///
/// ```
/// use steeve_plan::{Align, Block, Bytes, Lifetime};
/// let block = Block::new(Bytes(100), Lifetime::new(3, 8)?).aligned(Align::new(64)?);
/// assert_eq!(block.occupied(), Some(Bytes(128)));
/// # Ok::<(), steeve_plan::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Block {
    /// How many bytes are used.
    pub size: Bytes,
    /// What its offset must be a multiple of.
    #[cfg_attr(feature = "serde", serde(default))]
    pub align: Align,
    /// When they are used.
    pub life: Lifetime,
    /// The place it must have, if the caller has decided that already.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub pinned: Option<Place>,
    /// The block whose bytes it reuses in place: this one starts where and when that one ends, and is not larger.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub follows: Option<BlockId>,
    /// The block that it may share bytes with at its first step, which is the last step of that one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub overlaps: Option<Overlap>,
}

impl Block {
    /// Creates a block of `size` bytes that may be placed anywhere.
    pub const fn new(size: Bytes, life: Lifetime) -> Self {
        Self { size, align: Align::ONE, life, pinned: None, follows: None, overlaps: None }
    }

    /// Returns this block aligned to `align`.
    pub const fn aligned(mut self, align: Align) -> Self {
        self.align = align;
        self
    }

    /// Returns this block pinned to `place`.
    pub const fn pinned_at(mut self, place: Place) -> Self {
        self.pinned = Some(place);
        self
    }

    /// Returns this block with `predecessor` as the block whose bytes it reuses in place.
    pub const fn following(mut self, predecessor: BlockId) -> Self {
        self.follows = Some(predecessor);
        self
    }

    /// Returns this block with `source` as the block that it may share bytes with, if it starts at least `distance` bytes
    /// below it. The last step of `source` must be the first step of this block.
    ///
    /// ```
    /// use steeve_plan::{Block, BlockId, Bytes, Lifetime, Problem, lower_bound};
    /// let source = Block::new(Bytes(100), Lifetime::new(0, 2)?);
    /// let result = Block::new(Bytes(100), Lifetime::new(1, 3)?);
    /// assert_eq!(lower_bound(&Problem::new(vec![source, result])?).bytes, Bytes(200));
    /// let result = result.overlapping(BlockId::FIRST, Bytes(10));
    /// assert_eq!(lower_bound(&Problem::new(vec![source, result])?).bytes, Bytes(110));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn overlapping(mut self, source: BlockId, distance: Bytes) -> Self {
        self.overlaps = Some(Overlap { source, distance });
        self
    }

    /// Returns the bytes that the block keeps others from using: its size rounded up to its alignment; `None` beyond
    /// 2^64 - 1, which no block of a [`Problem`] reaches.
    pub fn occupied(&self) -> Option<Bytes> {
        self.align.round_up(self.size)
    }
}

/// The location of a block: a buffer and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
    /// The buffer.
    pub buffer: BufferId,
    /// The offset from the beginning of the buffer.
    pub offset: Offset,
}

impl Place {
    /// The beginning of the first buffer.
    pub const ORIGIN: Self = Self::first(Offset(0));

    /// Creates a place in the first buffer.
    pub const fn first(offset: Offset) -> Self {
        Self { buffer: BufferId::FIRST, offset }
    }
}

/// Blocks to place, and the limits of the memory they go to.
///
/// ```
/// use steeve_plan::{Block, Bytes, Lifetime, Problem};
/// let problem = Problem::new(vec![
///     Block::new(Bytes(4), Lifetime::new(0, 2)?),
///     Block::new(Bytes(4), Lifetime::new(1, 3)?),
/// ])?
/// .with_capacity(Bytes(8));
/// assert_eq!(problem.blocks().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "UncheckedProblem", into = "UncheckedProblem")
)]
pub struct Problem {
    blocks: IdVec<BlockId, Block>,
    max_buffer: Option<Bytes>,
    capacity: Option<Bytes>,
    /// Whether any block may overlap another: known once, since most problems have no such block.
    has_overlaps: bool,
}

impl Problem {
    /// Creates a problem. Checks the blocks one by one and together, and fails with the first error. O(n).
    pub fn new(blocks: impl Into<IdVec<BlockId, Block>>) -> Result<Self, ProblemError> {
        let blocks = blocks.into();
        check(&blocks)?;
        let has_overlaps = any_overlap(&blocks);
        Ok(Self { blocks, max_buffer: None, capacity: None, has_overlaps })
    }

    /// Returns this problem with a limit on each buffer. A single block above it still gets a buffer of its size.
    #[must_use]
    pub fn with_max_buffer(mut self, bytes: Bytes) -> Self {
        self.max_buffer = Some(bytes);
        self
    }

    /// Returns this problem with a limit on all buffers together.
    #[must_use]
    pub fn with_capacity(mut self, bytes: Bytes) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Returns this problem without a limit on one buffer.
    #[must_use]
    pub fn without_max_buffer(mut self) -> Self {
        self.max_buffer = None;
        self
    }

    /// Returns this problem without a limit on all buffers together.
    #[must_use]
    pub fn without_capacity(mut self) -> Self {
        self.capacity = None;
        self
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> &IdVec<BlockId, Block> {
        &self.blocks
    }

    /// Returns the limit on one buffer.
    pub fn max_buffer(&self) -> Option<Bytes> {
        self.max_buffer
    }

    /// Returns the limit on all buffers together.
    pub fn capacity(&self) -> Option<Bytes> {
        self.capacity
    }

    /// Returns whether any block may overlap another.
    pub(crate) fn has_overlaps(&self) -> bool {
        self.has_overlaps
    }

    /// Returns this problem with blocks that overlap none: each of its plans is a plan of this one, too.
    pub(crate) fn without_overlaps(&self) -> Self {
        let apart = |block: &Block| Block { overlaps: None, ..*block };
        Self { blocks: self.blocks.iter().map(apart).collect(), has_overlaps: false, ..*self }
    }

    /// Returns the blocks that are alive at `step`, in order. O(n).
    pub fn alive_at(&self, step: Step) -> Vec<BlockId> {
        let alive = |(_, block): &(BlockId, &Block)| block.life.contains(step);
        self.blocks.pairs().filter(alive).map(|(id, _)| id).collect()
    }
}

/// A [`Problem`] before it is checked.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct UncheckedProblem {
    blocks: IdVec<BlockId, Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_buffer: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity: Option<Bytes>,
}

#[cfg(feature = "serde")]
impl TryFrom<UncheckedProblem> for Problem {
    type Error = ProblemError;

    fn try_from(data: UncheckedProblem) -> Result<Self, ProblemError> {
        let mut problem = Self::new(data.blocks)?;
        problem.max_buffer = data.max_buffer;
        problem.capacity = data.capacity;
        Ok(problem)
    }
}

#[cfg(feature = "serde")]
impl From<Problem> for UncheckedProblem {
    fn from(problem: Problem) -> Self {
        Self { blocks: problem.blocks, max_buffer: problem.max_buffer, capacity: problem.capacity }
    }
}

/// Checks all blocks. The sum of what blocks occupy, of the padding below them and of pinned ends is an upper limit on
/// every stack of blocks. O(n).
fn check(blocks: &IdVec<BlockId, Block>) -> Result<(), ProblemError> {
    let count = blocks.len();
    if count > 0 && BlockId::from_index(count - 1).is_none() {
        return Err(ProblemError::TooMany { blocks: count });
    }
    let mut reach = AddressReach::new(blocks);
    for (block, it) in blocks.pairs() {
        if let Some(place) = it.pinned {
            check_pin(block, it, place, count)?;
        }
        reach.add(it).and_then(|()| reach.extend(it, it.pinned)).ok_or_else(|| too_large(blocks, block))?;
    }
    // Blocks that overlap are counted in full: a strategy may keep them apart, and the padding below a block that rests
    // on a distance is no more than that of one that rests on the whole block.
    check_chains(blocks, reach)?;
    check_overlaps(blocks)
}

/// Returns the error for the block with which the sum passes 2^64. It names the widest alignment where the bytes alone
/// would fit.
fn too_large(blocks: &IdVec<BlockId, Block>, block: BlockId) -> ProblemError {
    let seen = || blocks.pairs().take(block.index() + 1);
    let end = |it: &Block| it.pinned.map_or(0, |place| u128::from(place.offset.0));
    let bytes: u128 = seen().map(|(_, it)| u128::from(it.size.0) + end(it)).sum();
    match seen().map(|(id, it)| (id, it.align)).max_by_key(|(_, align)| *align) {
        Some((widest, align)) if bytes < u128::from(u64::MAX) => ProblemError::TooMuchPadding { block, widest, align },
        _ => ProblemError::TooLarge { block, size: blocks[block].size },
    }
}

/// How high the blocks seen so far can be stacked at most.
struct AddressReach {
    /// The least alignment of a block with bytes: every stack ends at a multiple of it.
    least: u64,
    /// What the blocks occupy, and the padding below them.
    stack: u64,
    /// How far the pinned blocks reach in each buffer, and in all of them together.
    ends: Vec<u64>,
    pinned: u64,
}

impl AddressReach {
    fn new(blocks: &IdVec<BlockId, Block>) -> Self {
        let real = blocks.iter().filter(|it| it.size > Bytes::ZERO);
        let least = real.map(|it| it.align).min().unwrap_or_default().get();
        Self { least, stack: 0, ends: Vec::new(), pinned: 0 }
    }

    /// Puts a block on the stack. Returns `None` where that exceeds the address space.
    fn add(&mut self, block: &Block) -> Option<()> {
        // A block of no bytes is nowhere in a stack, but as a follower it may ask its chain for a wider alignment.
        if block.size > Bytes::ZERO || block.follows.is_some() {
            let padding = block.align.get().saturating_sub(self.least);
            self.stack = block.occupied()?.0.checked_add(padding)?.checked_add(self.stack)?;
        }
        self.within()
    }

    /// Extends a buffer to where a pinned block ends. Returns `None` where that exceeds the address space.
    fn extend(&mut self, block: &Block, pinned: Option<Place>) -> Option<()> {
        let Some(place) = pinned else { return Some(()) };
        let (buffer, end) = (place.buffer.index(), place.offset.checked_add(block.occupied()?)?.0);
        self.ends.resize(self.ends.len().max(buffer + 1), 0);
        let growth = end.saturating_sub(self.ends[buffer]);
        self.ends[buffer] += growth;
        self.pinned = self.pinned.checked_add(growth)?;
        self.within()
    }

    /// Returns `None` if the sum reaches 2^64 - 1, which the strategies use for the walls around the stacks.
    fn within(&self) -> Option<()> {
        self.stack.checked_add(self.pinned).filter(|sum| *sum < u64::MAX).map(|_| ())
    }
}

fn check_pin(block: BlockId, it: &Block, place: Place, blocks: usize) -> Result<(), ProblemError> {
    if !it.align.accepts(place.offset) {
        let (offset, align) = (place.offset, it.align);
        return Err(ProblemError::PinnedUnaligned { block, offset, align });
    }
    if place.buffer.index() >= blocks {
        let buffer = place.buffer;
        return Err(ProblemError::PinnedBufferTooLarge { block, buffer, blocks });
    }
    Ok(())
}

fn check_chains(blocks: &IdVec<BlockId, Block>, mut reach: AddressReach) -> Result<(), ProblemError> {
    if blocks.iter().all(|block| block.follows.is_none()) {
        return Ok(());
    }
    let mut follower: IdVec<BlockId, Option<BlockId>> = blocks.iter().map(|_| None).collect();
    for (block, it) in blocks.pairs() {
        let Some(follows) = it.follows else { continue };
        let Some(before) = blocks.get(follows) else {
            let blocks = blocks.len();
            return Err(ProblemError::FollowsMissingBlock { block, follows, blocks });
        };
        if let Some(other) = follower[follows].replace(block) {
            return Err(ProblemError::FollowsTwice { block, other, follows });
        }
        let (start, end) = (it.life.start(), before.life.end());
        if start != end {
            return Err(ProblemError::FollowsAtAnotherStep { block, start, follows, end });
        }
        if it.size > before.size {
            let (size, room) = (it.size, before.size);
            return Err(ProblemError::FollowsSmaller { block, size, follows, room });
        }
    }
    // Each chain moves forward in time, so it has a first block, and that one decides the place of all of it.
    for (block, head) in heads(blocks).pairs() {
        let (it, pinned) = (&blocks[block], blocks[*head].pinned);
        if it.pinned.is_some() && it.pinned != pinned {
            return Err(ProblemError::FollowsElsewhere { block, head: *head });
        }
        if let Some(place) = pinned
            && !it.align.accepts(place.offset)
        {
            let (block, offset, align) = (*head, place.offset, it.align);
            return Err(ProblemError::PinnedUnaligned { block, offset, align });
        }
        if pinned.is_some() {
            // A follower with a wider alignment may occupy more than its head.
            reach.extend(it, pinned).ok_or_else(|| too_large(blocks, block))?;
        }
    }
    Ok(())
}

/// Returns, for each block, the first one of its chain; the block itself where it follows none. O(n).
pub(crate) fn heads(blocks: &IdVec<BlockId, Block>) -> IdVec<BlockId, BlockId> {
    let mut heads: IdVec<BlockId, BlockId> = blocks.ids().collect();
    let mut known: IdVec<BlockId, bool> = blocks.iter().map(|block| block.follows.is_none()).collect();
    let mut path = Vec::new();
    for (start, block) in blocks.pairs() {
        if let Some(before) = block.follows
            && known[before]
        {
            // Most blocks follow one that is listed before them.
            (heads[start], known[start]) = (heads[before], true);
            continue;
        }
        let mut at = start;
        while !known[at]
            && let Some(before) = blocks[at].follows
        {
            path.push(at);
            at = before;
        }
        let head = heads[at];
        for block in path.drain(..) {
            heads[block] = head;
            known[block] = true;
        }
    }
    heads
}
