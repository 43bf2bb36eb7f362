//! Computes what chains of blocks that overlap need: the lower bound along a path of sources and results. O(n log n) and
//! some work for each full step.
//!
//! Two blocks that overlap need little, but then the lower one is at the bottom, and the next result can't start below
//! it. A *path* is a sequence of blocks, each alive together with the one before as it is born (its source, or else the
//! largest block that dies there), or following it. Within a capacity, only the lowest and the highest possible offset
//! of a block matter for the next one, so the least capacity that a path fits is easy to find:
//!
//! ```text
//!   capacity |  . . high                   the next block may start anywhere from 0 to `high - distance`,
//!            |  [ source ]                 and anywhere from `low + source` up
//!          0 |  . . low
//! ```
//!
//! **Why it is a bound.** Put the buffers one behind the other: what was in different ones is disjoint, so nothing breaks.
//! Blocks that are alive at all births of the path but the first, and in no overlapping pair with a block of it, are
//! disjoint from every block of the path and from each other (a pair shares one step, and these share two). Cut their
//! bytes out and close the gaps: offsets on one side of a cut keep their difference, and blocks on both sides stay
//! disjoint. What is left is a placement of the path, so the peak is at least the bytes cut out plus what the path needs.
//! Offsets are multiples of the least alignment, before and after.
//!
//! Along a path only those links matter whose step would be above the bound if nothing overlapped.

use alloc::vec;
use alloc::vec::Vec;

use crate::birth_steps::BirthSteps;
use crate::bound::occupied;
use crate::{Block, BlockId, Bytes, IdVec, Problem, Step};

/// The longest path, in blocks.
const MAX_PATH: usize = 48;

/// How much work the bound may be, in visits of blocks.
const MAX_WORK: usize = 8_000_000;

/// How a block is bound to the one before on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It follows the block: both have one offset.
    Follows(BlockId),
    /// Both are alive at its birth, and it is at least this far below the block, or above all of it.
    Meets(BlockId, u64),
}

impl Link {
    fn block(self) -> BlockId {
        match self {
            Self::Follows(block) | Self::Meets(block, _) => block,
        }
    }
}

/// Computes a number of bytes, above `bound`, that no plan goes below; `bound` itself if paths do not raise it.
pub(crate) fn chain_bound(problem: &Problem, bound: Bytes) -> Bytes {
    let live = live_bytes_apart(problem);
    let mut paths = Paths { problem, links: links(problem), live, grain: grain(problem), results: results(problem) };
    // What is far below the bound without any overlap is no matter.
    for (id, link) in paths.links.ids().zip(paths.links.as_slice().to_vec()) {
        if matches!(link, Some(Link::Meets(..))) && paths.live[id] <= bound.0 {
            paths.links[id] = None;
        }
    }
    let (mut least, mut work) = (bound.0, 0);
    for id in problem.blocks().ids() {
        if matches!(paths.links[id], Some(Link::Meets(..))) {
            least = paths.raise(id, least, &mut work);
        }
        if work > MAX_WORK {
            break;
        }
    }
    Bytes(least)
}

/// The links of a problem.
struct Paths<'a> {
    problem: &'a Problem,
    links: IdVec<BlockId, Option<Link>>,
    /// The bytes alive at each block's birth, if nothing overlaps.
    live: IdVec<BlockId, u64>,
    /// Every offset is a multiple of this.
    grain: u64,
    /// The block that overlaps each.
    results: IdVec<BlockId, Option<BlockId>>,
}

impl Paths<'_> {
    /// Raises `least` to what the paths that end at a block need.
    fn raise(&self, end: BlockId, mut least: u64, work: &mut usize) -> u64 {
        let blocks = self.problem.blocks();
        // From the end to the beginning.
        let mut path = vec![end];
        let last = blocks[end].life.start();
        let mut others: Vec<BlockId> =
            blocks.pairs().filter(|(_, it)| it.life.contains(last) && it.size > Bytes::ZERO).map(|it| it.0).collect();
        *work += blocks.len();
        while let Some(link) = path.last().and_then(|first| self.links[*first])
            && path.len() < MAX_PATH
        {
            let second = path.len() - 1;
            path.push(link.block());
            // The first block is alive at the birth of the second one, which a follower's predecessor is not.
            if matches!(link, Link::Follows(_)) || path.len() < 3 {
                continue;
            }
            let from = blocks[path[second]].life.start();
            others.retain(|it| blocks[*it].life.start() <= from);
            let beside = others.iter().filter(|it| self.is_beside(**it, &path)).map(|it| occupied(&blocks[*it])).sum();
            *work += path.len() * (1 + others.len());
            least = least.max(self.needed(&path, least.saturating_sub(beside)).saturating_add(beside));
            if *work > MAX_WORK {
                break;
            }
        }
        least
    }

    /// Returns whether a block is not on a path, nor in an overlapping pair with a block of it.
    fn is_beside(&self, block: BlockId, path: &[BlockId]) -> bool {
        let source = self.problem.blocks()[block].overlaps.map(|overlap| overlap.source);
        let related = |it: &BlockId| *it == block || Some(*it) == source || Some(*it) == self.results[block];
        !path.iter().any(related)
    }

    /// Returns the least capacity for a path that is not below `least`, which is one that may do.
    fn needed(&self, path: &[BlockId], least: u64) -> u64 {
        if self.fits(path, least) {
            return least;
        }
        let blocks = self.problem.blocks();
        // Next to each other at both ends, in turn, the blocks of each link always fit.
        let most = path.windows(2).map(|it| occupied(&blocks[it[0]]) + occupied(&blocks[it[1]])).max();
        let (mut low, mut high) = (least, most.unwrap_or(least).max(least));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.fits(path, middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }

    /// Returns whether the blocks of a path, which is given from its end, can be placed within a capacity.
    fn fits(&self, path: &[BlockId], capacity: u64) -> bool {
        let blocks = self.problem.blocks();
        let down = |offset: u64| offset - offset % self.grain;
        let highest = |block: BlockId| capacity.checked_sub(occupied(&blocks[block])).map(down);
        let Some(mut high) = path.last().and_then(|first| highest(*first)) else { return false };
        let mut low = 0;
        for block in path.iter().rev().skip(1) {
            let (Some(link), Some(most)) = (self.links[*block], highest(*block)) else { return false };
            let Link::Meets(source, distance) = link else {
                // A wider alignment may make a follower occupy more.
                high = high.min(most);
                if low > high {
                    return false;
                }
                continue;
            };
            let below = high.checked_sub(distance).map(|start| start.min(most));
            let above = Some(low + occupied(&blocks[source])).filter(|start| *start <= most);
            (low, high) = match (below, above) {
                (Some(_), Some(_)) => (0, most),
                (Some(below), None) => (0, below),
                (None, Some(above)) => (above, most),
                (None, None) => return false,
            };
        }
        true
    }
}

/// Returns the link of each block with bytes to the one before on its path, which is born earlier.
fn links(problem: &Problem) -> IdVec<BlockId, Option<Link>> {
    let blocks = problem.blocks();
    let grain = grain(problem);
    let real = |block: &Block| block.size > Bytes::ZERO;
    // By their last step, the largest last. What has only one step is not born before what is born at its last.
    let last_step = |it: &Block| Step(it.life.end().0 - 1);
    let older = blocks.pairs().filter(|(_, it)| real(it) && it.life.start() < last_step(it));
    let mut dying: Vec<(Step, u64, BlockId)> = older.map(|(id, it)| (last_step(it), occupied(it), id)).collect();
    dying.sort_unstable();
    let link = |block: &Block| {
        if !real(block) {
            return None;
        }
        if let Some(before) = block.follows {
            return Some(Link::Follows(before));
        }
        if let Some(overlap) = block.overlaps.filter(|it| real(&blocks[it.source])) {
            let distance = overlap.distance.0.div_ceil(grain).checked_mul(grain);
            let distance = distance.map_or(occupied(block), |distance| distance.min(occupied(block)));
            return Some(Link::Meets(overlap.source, distance));
        }
        let start = block.life.start();
        let behind = dying.partition_point(|it| it.0 <= start);
        let (_, _, before) = *dying[..behind].last().filter(|it| it.0 == start)?;
        Some(Link::Meets(before, occupied(block)))
    };
    blocks.iter().map(link).collect()
}

/// Returns the least alignment of a block with bytes.
fn grain(problem: &Problem) -> u64 {
    let real = problem.blocks().iter().filter(|it| it.size > Bytes::ZERO);
    real.map(|it| it.align.get()).min().unwrap_or(1)
}

fn results(problem: &Problem) -> IdVec<BlockId, Option<BlockId>> {
    let mut results: IdVec<BlockId, Option<BlockId>> = problem.blocks().iter().map(|_| None).collect();
    for (id, block) in problem.blocks().pairs() {
        if let Some(overlap) = block.overlaps {
            results[overlap.source] = Some(id);
        }
    }
    results
}

/// Returns the bytes alive at the birth of each block, if nothing overlaps.
fn live_bytes_apart(problem: &Problem) -> IdVec<BlockId, u64> {
    let blocks = || problem.blocks().iter();
    let births = BirthSteps::new(blocks().map(|it| it.life.start()));
    let mut live = vec![0u64; births.count() + 1];
    for block in blocks() {
        let (start, end) = (births.number(block.life.start()), births.number(block.life.end()));
        live[start] = live[start].wrapping_add(occupied(block));
        live[end] = live[end].wrapping_sub(occupied(block));
    }
    let mut sum = 0u64;
    for entry in &mut live {
        sum = sum.wrapping_add(*entry);
        *entry = sum;
    }
    blocks().map(|it| live[births.number(it.life.start())]).collect()
}
