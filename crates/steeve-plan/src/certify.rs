//! Checks a placement against its problem: returns a proven plan, or everything that is wrong. O(n log n).
//!
//! A sweep over time. At each step the live blocks are kept in an ordered set, so a new block can overlap only its two
//! neighbours:
//!
//! ```text
//!   offset   | live ... [ before )   [ born )   [ after ) ... |
//!                                ^ not beyond ^          ^ not before the end
//! ```
//!
//! (Two blocks that may overlap do so at one step, and count as one range there: `overlap_sweep`.)
//!
//! The set holds ranks (positions in the order of buffers and offsets) as bits in a tree of 64-bit words: an ordered
//! map whose every operation touches four words for a million blocks. No code here is shared with the strategies that
//! make placements; the live bytes are counted again as well. (What the bound adds to them for pins, limited buffers and
//! chains that overlap comes from `bound`; it decides only whether a plan may be called optimal.)

mod overlap_sweep;
mod rank_set;
mod violation;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

pub use violation::{Violation, Violations};

use rank_set::{RankSet, sort_by_number};

use crate::bound::bound_above;
use crate::plan::Plan;
use crate::{Block, BlockId, BufferId, Bytes, Id, IdVec, Offset, Overlap, Place, Placement, Problem, Step};

/// Proves that `placement` solves `problem`: the only way to a [`Plan`].
///
/// Every block is aligned, in range and where it is pinned; a block that follows another has the same place; no two
/// live blocks share a byte, unless one [overlaps](crate::Overlap) the other and starts far enough below it; no buffer,
/// and not their sum, exceeds its limit. Fails with every violation found. O(n log n).
///
/// ```
/// use steeve_plan::{Block, Bytes, Lifetime, Offset, Place, Placement, Problem, certify};
/// let problem = Problem::new(vec![
///     Block::new(Bytes(4), Lifetime::new(0, 2)?),
///     Block::new(Bytes(4), Lifetime::new(1, 3)?),
/// ])?;
/// let at = |offsets: [u64; 2]| Placement::new(offsets.map(|it| Place::first(Offset(it))).to_vec());
/// assert!(certify(problem.clone(), at([0, 4])).is_ok());
/// let wrong = certify(problem, at([0, 3])).unwrap_err();
/// assert_eq!(wrong.to_string(), "blocks 0 and 1 share byte 3 of buffer 0 at step 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn certify(problem: Problem, placement: Placement) -> Result<Plan, Violations> {
    let (blocks, places) = (problem.blocks(), &placement.places);
    if blocks.len() != places.len() {
        let (blocks, places) = (blocks.len(), places.len());
        return Err(Violations(vec![Violation::Count { blocks, places }]));
    }
    let mut wrong = Vec::new();
    for (block, it) in blocks.pairs() {
        check_place(&problem, places, block, it, &mut wrong);
    }
    let off_the_map =
        |it: &Violation| matches!(it, Violation::OutOfRange { .. } | Violation::BufferIndexTooLarge { .. });
    if wrong.iter().any(off_the_map) {
        // Block ends are out of range, or there are too many buffers to sweep.
        return Err(Violations(wrong));
    }
    let buffers = buffer_sizes(&problem, places, &mut wrong);
    let Some(peak) = buffers.iter().try_fold(Bytes::ZERO, |sum, size| sum.checked_add(*size)) else {
        wrong.push(Violation::TotalTooLarge);
        find_overlaps(&problem, places, &mut wrong);
        return Err(Violations(wrong));
    };
    if let Some(capacity) = problem.capacity()
        && peak > capacity
    {
        wrong.push(Violation::OverCapacity { peak, capacity });
    }
    let sweep = LivenessSweep::new(&problem, places, &buffers);
    let most_live = if problem.has_overlaps() { sweep.sweep_with_overlaps(&problem, places) } else { sweep.sweep() };
    match most_live {
        Some((live, step)) if wrong.is_empty() => {
            let bound = bound_above(&problem, live, step);
            Ok(Plan::proven(problem, placement, buffers, peak, bound))
        }
        Some(_) => Err(Violations(wrong)),
        None => {
            find_overlaps(&problem, places, &mut wrong);
            Err(Violations(wrong))
        }
    }
}

/// Checks alignment, range, pin and predecessor of one block.
fn check_place(
    problem: &Problem,
    places: &IdVec<BlockId, Place>,
    block: BlockId,
    it: &Block,
    wrong: &mut Vec<Violation>,
) {
    let place = places[block];
    let (offset, align) = (place.offset, it.align);
    if place.buffer.index() >= places.len() {
        let (buffer, blocks) = (place.buffer, places.len());
        wrong.push(Violation::BufferIndexTooLarge { block, buffer, blocks });
    }
    if !align.accepts(offset) {
        wrong.push(Violation::Misaligned { block, offset, align });
    }
    if it.occupied().and_then(|bytes| offset.checked_add(bytes)).is_none() {
        let size = it.size;
        wrong.push(Violation::OutOfRange { block, offset, size });
    }
    if let Some(pinned) = it.pinned
        && pinned != place
    {
        wrong.push(Violation::NotAtPin { block, pinned, place });
    }
    if let Some(follows) = it.follows
        && problem.blocks().get(follows).is_some()
        && places[follows] != place
    {
        let expected = places[follows];
        wrong.push(Violation::NotAtPredecessor { block, follows, place, expected });
    }
}

/// Returns the end of a block whose range [`check_place`] has checked.
fn end(place: Place, block: &Block) -> u64 {
    block.occupied().map_or(u64::MAX, |bytes| place.offset.0 + bytes.0)
}

/// Computes the size of each buffer, up to the last one in use.
fn buffer_sizes(
    problem: &Problem,
    places: &IdVec<BlockId, Place>,
    wrong: &mut Vec<Violation>,
) -> IdVec<BufferId, Bytes> {
    let count = places.iter().map(|place| place.buffer.index() + 1).max().unwrap_or(0);
    let mut sizes = vec![Bytes::ZERO; count];
    let mut largest = vec![Bytes::ZERO; count];
    for (block, place) in problem.blocks().iter().zip(places) {
        if block.size == Bytes::ZERO {
            continue;
        }
        let (buffer, end) = (place.buffer.index(), Bytes(end(*place, block)));
        sizes[buffer] = sizes[buffer].max(end);
        largest[buffer] = largest[buffer].max(Bytes(end.0 - place.offset.0));
    }
    let sizes = IdVec::from(sizes);
    if let Some(limit) = problem.max_buffer() {
        for ((buffer, size), largest) in sizes.pairs().zip(largest) {
            if *size > limit.max(largest) {
                let size = *size;
                wrong.push(Violation::BufferTooLarge { buffer, size, limit, largest });
            }
        }
    }
    sizes
}

/// Births and deaths in the order of time, and each block's rank in the order of addresses. Addresses count through all
/// buffers, one behind the other, so that blocks of different buffers never meet.
struct LivenessSweep {
    births: Vec<(u64, u32)>,
    deaths: Vec<(u64, u32)>,
    /// By block: its rank among those that have bytes.
    ranks: Vec<u32>,
    /// By rank: first address and end.
    spans: Vec<(u64, u64)>,
}

impl LivenessSweep {
    /// Sorts births, deaths and addresses. The buffers' sizes must have a sum below 2^64.
    fn new(problem: &Problem, places: &IdVec<BlockId, Place>, buffers: &IdVec<BufferId, Bytes>) -> Self {
        let blocks = problem.blocks().as_slice();
        let places = places.as_slice();
        let mut bases = Vec::with_capacity(buffers.len());
        let mut base = 0;
        for size in buffers {
            bases.push(base);
            base += size.0;
        }
        let count = blocks.iter().filter(|it| it.size > Bytes::ZERO).count();
        let mut order: Vec<(u64, u64, u32)> = Vec::with_capacity(count);
        // In the order of the blocks, which is often that of their births, and then these are sorted already.
        let mut births = Vec::with_capacity(count);
        let mut deaths = Vec::with_capacity(count);
        for (index, (block, place)) in (0..).zip(blocks.iter().zip(places)) {
            if block.size > Bytes::ZERO {
                let base = bases[place.buffer.index()];
                order.push((base + place.offset.0, base + end(*place, block), index));
                births.push((block.life.start().0, index));
                deaths.push((block.life.end().0, index));
            }
        }
        sort_by_number(&mut births, |birth| birth.0);
        sort_by_number(&mut deaths, |death| death.0);
        sort_by_number(&mut order, |span| span.0);
        let mut ranks = vec![0; blocks.len()];
        let mut spans = Vec::with_capacity(count);
        for (rank, (start, end, index)) in (0..).zip(order) {
            ranks[index as usize] = rank;
            spans.push((start, end));
        }
        Self { births, deaths, ranks, spans }
    }

    /// Returns the most live bytes and their first step, or `None` if two live blocks share a byte.
    fn sweep(&self) -> Option<(Bytes, Option<Step>)> {
        let mut alive = RankSet::new(self.spans.len());
        let (mut live, mut most) = (0u64, 0u64);
        let mut step = self.births.first().map(|birth| Step(birth.0));
        let mut deaths = self.deaths.iter().peekable();
        for (at, born) in &self.births {
            // Deaths come before births: a block that ends at 7 is out of the way of one that starts at 7.
            while let Some((_, dead)) = deaths.next_if(|death| death.0 <= *at) {
                let rank = self.ranks[*dead as usize];
                alive.remove(rank);
                let (start, end) = self.spans[rank as usize];
                live -= end - start;
            }
            let rank = self.ranks[*born as usize];
            let (start, end) = self.spans[rank as usize];
            let pushed = alive.before(rank).is_some_and(|it| start < self.spans[it as usize].1);
            let pushes = alive.after(rank).is_some_and(|it| self.spans[it as usize].0 < end);
            if pushed || pushes {
                return None;
            }
            alive.insert(rank);
            live += end - start;
            if live > most {
                (most, step) = (live, Some(Step(*at)));
            }
        }
        Some((Bytes(most), step))
    }
}

/// At most this many violations are listed: pairs grow with the square of the blocks.
const MAX_VIOLATIONS: usize = 100_000;

/// Returns whether a block at `result` is as far below its source at `source`, of the same buffer, as it has to be.
fn keeps_distance(overlap: Overlap, source: u64, result: u64) -> bool {
    result <= source && source - result >= overlap.distance.0
}

/// Finds every pair of live blocks that share a byte without permission, in the order of time. Only for placements that are known to be
/// wrong: each new block is compared with all live blocks of its buffer that start close enough to reach it.
fn find_overlaps(problem: &Problem, places: &IdVec<BlockId, Place>, wrong: &mut Vec<Violation>) {
    let blocks = problem.blocks();
    let real = |id: &BlockId| blocks[*id].size > Bytes::ZERO;
    let mut births: Vec<BlockId> = blocks.ids().filter(real).collect();
    let mut deaths = births.clone();
    births.sort_by_key(|id| (blocks[*id].life.start(), *id));
    deaths.sort_by_key(|id| (blocks[*id].life.end(), *id));
    let tallest = births.iter().map(|id| end(places[*id], &blocks[*id]) - places[*id].offset.0).max();
    let mut alive: BTreeMap<(BufferId, u64, BlockId), u64> = BTreeMap::new();
    let key = |id: BlockId| (places[id].buffer, places[id].offset.0, id);
    let mut deaths = deaths.into_iter().peekable();
    for other in births {
        let step = blocks[other].life.start();
        while let Some(dead) = deaths.next_if(|dead| blocks[*dead].life.end() <= step) {
            alive.remove(&key(dead));
        }
        let (buffer, first, last) = (places[other].buffer, places[other].offset.0, end(places[other], &blocks[other]));
        let reach = first.saturating_sub(tallest.unwrap_or(0));
        let near = alive.range((buffer, reach, BlockId::FIRST)..(buffer, last, BlockId::FIRST));
        let mut hit: Vec<(BlockId, u64)> =
            near.filter(|(_, end)| first < **end).map(|((_, start, block), _)| (*block, *start)).collect();
        hit.sort_unstable();
        for (block, start) in hit {
            if wrong.len() >= MAX_VIOLATIONS {
                wrong.push(Violation::MoreOverlaps);
                return;
            }
            let offset = Offset(first.max(start));
            // A source is born before the block that overlaps it, so `other` is never the source of `block`.
            match blocks[other].overlaps.filter(|overlap| overlap.source == block) {
                None => wrong.push(Violation::Overlap { block, other, buffer, offset, step }),
                Some(overlap) if keeps_distance(overlap, start, first) => {}
                Some(Overlap { distance, .. }) => {
                    let (start, overlapped) = (Offset(first), Offset(start));
                    wrong.push(Violation::OverlapTooClose {
                        block: other,
                        overlaps: block,
                        start,
                        overlapped,
                        distance,
                    });
                }
            }
        }
        alive.insert(key(other), last);
    }
}
