//! Computes the fewest bytes that any plan of a problem needs. O(n log n).
//!
//! Four arguments, and the strongest wins:
//! - blocks that are alive at the same step must not overlap, so their bytes add up; of two that may, what they can
//!   share at most counts once;
//! - along a chain of blocks that overlap, each as low as it may be, they run out of room (`chain_bound`);
//! - a buffer extends at least to the end of its last pinned block;
//! - two blocks above half the size of the largest possible buffer never share one at the same time. For each size,
//!   as many buffers reach it as there are such blocks alive together, and the buffers' sizes are the sum over sizes:
//!
//! ```text
//!   limit 8     step 1: a = 8     step 2: b = 5, c = 5
//!   at least one buffer of 6 to 8, at least two of 1 to 5: 3 + 2 * 5 = 13 bytes, though 10 are alive at most
//! ```

use alloc::vec;
use alloc::vec::Vec;

use crate::birth_steps::BirthSteps;
use crate::chain_bound::chain_bound;
use crate::{Block, BlockId, Bytes, Id, Lifetime, Overlap, Problem, Step};

/// A number of bytes below which no plan exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bound {
    /// The fewest bytes that any plan needs.
    pub bytes: Bytes,
    /// The first step at which the most bytes are alive; `None` if no block has bytes. [`Problem::alive_at`] lists them.
    pub step: Option<Step>,
    /// The most bytes alive at a step. Equal to `bytes` unless another reason asks for more.
    pub live: Bytes,
    /// Why no plan can do with less.
    pub reason: BoundReason,
}

/// What makes a [`Bound`] as high as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum BoundReason {
    /// This many bytes are alive at one step.
    Live,
    /// A pinned block ends there.
    Pinned,
    /// Along a chain of blocks that overlap, each as close to the one before as it may be, they reach that far.
    Overlaps,
    /// The blocks can't share buffers of limited size better.
    BufferLimit,
}

/// Computes the fewest bytes that any plan of `problem` needs. O(n log n).
///
/// ```
/// use steeve_plan::{Block, Bytes, Lifetime, Problem, Step, lower_bound};
/// let problem = Problem::new(vec![
///     Block::new(Bytes(4), Lifetime::new(0, 2)?),
///     Block::new(Bytes(3), Lifetime::new(1, 3)?),
///     Block::new(Bytes(2), Lifetime::new(2, 4)?),
/// ])?;
/// let bound = lower_bound(&problem);
/// assert_eq!((bound.bytes, bound.step), (Bytes(7), Some(Step(1))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lower_bound(problem: &Problem) -> Bound {
    let (live, step) = most_live(problem);
    bound_above(problem, live, step)
}

/// Computes the bound from the maximum of live bytes and its step.
pub(crate) fn bound_above(problem: &Problem, live: Bytes, step: Option<Step>) -> Bound {
    let mut bound = Bound { bytes: live, step, live, reason: BoundReason::Live };
    if problem.has_overlaps() {
        let chains = chain_bound(problem, live);
        if chains > bound.bytes {
            (bound.bytes, bound.reason) = (chains, BoundReason::Overlaps);
        }
    }
    let pinned = pinned_reach(problem);
    if pinned > bound.bytes {
        (bound.bytes, bound.reason) = (pinned, BoundReason::Pinned);
    }
    if let Some(limit) = problem.max_buffer() {
        let apart = limited_buffers_bound(problem, limit);
        if apart > bound.bytes {
            (bound.bytes, bound.reason) = (apart, BoundReason::BufferLimit);
        }
    }
    bound
}

/// Returns the bytes that a block of a checked problem keeps others from using. [`Problem::new`] has checked that they
/// fit.
pub(crate) fn occupied(block: &Block) -> u64 {
    let mask = block.align.get() - 1;
    (block.size.0 + mask) & !mask
}

/// A source and the block that may overlap it.
struct SharingPair {
    source: BlockId,
    result: BlockId,
    /// The most bytes that they can share; above 0.
    shared: u64,
}

/// Returns the pairs of blocks that can share bytes.
///
/// Say the result starts `d` bytes below its source and overlaps it. Then `d` is at least the distance and a multiple of
/// the smaller alignment, and they share at most all bytes of the source, and at most all of the result but the lowest
/// `d`.
fn sharing_pairs(problem: &Problem) -> impl Iterator<Item = SharingPair> {
    let blocks = problem.blocks();
    blocks.pairs().filter_map(|(id, result)| {
        let Overlap { source: source_id, distance } = result.overlaps?;
        let source = &blocks[source_id];
        let least = source.align.min(result.align).round_up(distance)?.0;
        let shared = occupied(source).min(occupied(result).saturating_sub(least));
        (shared > 0).then_some(SharingPair { source: source_id, result: id, shared })
    })
}

/// Computes the most bytes alive at a step, and the first such step. [`Problem::new`] keeps the sum in range.
fn most_live(problem: &Problem) -> (Bytes, Option<Step>) {
    let blocks = || problem.blocks().iter().filter(|it| it.size > Bytes::ZERO);
    let births = BirthSteps::new(blocks().map(|it| it.life.start()));
    // How the live bytes change. Deaths count at the next birth: a block that ends at 7 is out of the way of one that
    // starts at 7. The sum of all sizes is below 2^64, so the differences wrap but the prefix sums do not.
    let mut change = vec![0u64; births.count() + 1];
    for block in blocks() {
        let (start, end) = (births.number(block.life.start()), births.number(block.life.end()));
        change[start] = change[start].wrapping_add(occupied(block));
        change[end] = change[end].wrapping_sub(occupied(block));
    }
    // Pairs that share bytes do so at one step. At a step no block is in two pairs, so what they share adds up.
    for SharingPair { source, result, shared } in sharing_pairs(problem) {
        let (source, result) = (&problem.blocks()[source], &problem.blocks()[result]);
        let (start, end) = (births.number(result.life.start()), births.number(source.life.end()));
        change[start] = change[start].wrapping_sub(shared);
        change[end] = change[end].wrapping_add(shared);
    }
    let (mut live, mut most, mut step) = (0u64, 0, None);
    for (number, change) in change.iter().enumerate() {
        live = live.wrapping_add(*change);
        if live > most {
            (most, step) = (live, Some(births.step(number)));
        }
    }
    (Bytes(most), step)
}

/// Computes the sum over buffers of where their last pinned block ends.
fn pinned_reach(problem: &Problem) -> Bytes {
    let mut reach: Vec<u64> = Vec::new();
    for block in problem.blocks() {
        let Some(place) = block.pinned else { continue };
        if block.size == Bytes::ZERO {
            continue;
        }
        let buffer = place.buffer.index();
        if reach.len() <= buffer {
            reach.resize(buffer + 1, 0);
        }
        reach[buffer] = reach[buffer].max(place.offset.0 + occupied(block));
    }
    Bytes(reach.iter().fold(0, |sum: u64, end| sum.saturating_add(*end)))
}

/// Computes the bound from blocks above half of the largest possible buffer. For each size, from the largest down, the
/// most such blocks alive together is the number of buffers of at least that size.
fn limited_buffers_bound(problem: &Problem, limit: Bytes) -> Bytes {
    let largest = problem.blocks().iter().map(occupied).max().unwrap_or(0);
    let most = limit.0.max(largest);
    let mut big: Vec<(u64, Lifetime)> = single_lives(problem, most).filter(|(bytes, _)| *bytes > most / 2).collect();
    big.sort_by_key(|(bytes, _)| core::cmp::Reverse(*bytes));
    let mut starts: Vec<Step> = big.iter().map(|(_, life)| life.start()).collect();
    starts.sort_unstable();
    starts.dedup();
    // The most are alive together at some start, so starts are the only steps to count at.
    let at = |step| starts.partition_point(|start| *start < step);
    let mut alive = MaxCountTree::new(starts.len());
    let mut total = 0u64;
    let mut blocks = big.iter().peekable();
    while let Some((bytes, life)) = blocks.next() {
        alive.add(at(life.start()), at(life.end()));
        let next = blocks.peek().map_or(0, |(next, _)| *next);
        total = total.saturating_add(alive.most().saturating_mul(bytes - next));
    }
    Bytes(total)
}

/// Returns what each block occupies, and when it shares its buffer with no other large block: all its life, but for the
/// step at which it may be overlapped within a buffer of `most` bytes. Without that step a life is not empty, since a
/// source is born before the block that overlaps it.
fn single_lives(problem: &Problem, most: u64) -> impl Iterator<Item = (u64, Lifetime)> {
    let blocks = problem.blocks();
    let mut lives: Vec<Lifetime> = blocks.iter().map(|it| it.life).collect();
    for SharingPair { source, result, shared } in sharing_pairs(problem) {
        let together = occupied(&blocks[source]) + (occupied(&blocks[result]) - shared);
        let life = &mut lives[source.index()];
        if together <= most
            && let Ok(shorter) = Lifetime::new(life.start(), blocks[result].life.start())
        {
            *life = shorter;
        }
    }
    blocks.iter().map(occupied).zip(lives)
}

/// Counts over steps, as a tree of maxima with pending sums: adds one to a range and returns the maximum in O(log n).
struct MaxCountTree {
    leaves: usize,
    most: Vec<u64>,
}

impl MaxCountTree {
    fn new(steps: usize) -> Self {
        let leaves = steps.next_power_of_two();
        Self { leaves, most: vec![0; 2 * leaves] }
    }

    /// Adds one to the counts of a range. `most[n]` is the largest count below `n`, less what is pending at the nodes
    /// above it. A range is a few whole nodes; above them the maxima are recomputed as the sum pending there (the old
    /// maximum less that of its children) plus the children's maximum.
    fn add(&mut self, start: usize, end: usize) {
        let (mut low, mut high) = (start + self.leaves, end + self.leaves);
        let mut whole = Vec::new();
        while low < high {
            if low & 1 == 1 {
                whole.push(low);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                whole.push(high);
            }
            (low, high) = (low / 2, high / 2);
        }
        for node in whole {
            self.raise(node);
        }
    }

    fn raise(&mut self, mut node: usize) {
        let mut rise = 1;
        while rise > 0 {
            let (parent, sibling) = (node / 2, node ^ 1);
            let before = self.most[node];
            self.most[node] += rise;
            if node == 1 {
                return;
            }
            // The parent's maximum rises by what the larger of its children rises.
            let other = self.most[sibling];
            rise = self.most[node].max(other) - before.max(other);
            node = parent;
        }
    }

    fn most(&self) -> u64 {
        self.most[1]
    }
}
