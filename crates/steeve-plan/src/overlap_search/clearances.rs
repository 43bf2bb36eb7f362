//! How far apart items have to be, pair by pair. O(n log n) and the number of pairs that are alive together.
//!
//! Of two items that are alive together, one is below the other. The *clearance* is how far below at least: the bytes
//! of the lower item, or the distance where the lower one may overlap the upper. Between chains it is that of the blocks
//! that meet, so a chain that shrinks leaves its tail to others.

use alloc::vec;
use alloc::vec::Vec;

use crate::bound::occupied;
use crate::items::{ItemId, ItemSet};
use crate::{BlockId, BufferId, Bytes, Id, Place, Problem, Step};

/// More pairs than this take longer to list than a quick strategy may.
const MAX_PAIRS: usize = 2_000_000;

/// The items of a problem with the clearances between them.
#[derive(Clone, Debug)]
pub(super) struct Clearances {
    pub(super) items: Vec<ClearedItem>,
    /// Where each item's neighbours begin; one more at the end.
    first: Vec<usize>,
    neighbours: Vec<Neighbour>,
}

/// An item to place.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClearedItem {
    pub(super) bytes: u64,
    pub(super) align: u64,
    pub(super) start: Step,
    pub(super) end: Step,
    pub(super) pinned: Option<Place>,
}

/// An item that is alive together with another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbour {
    pub(super) item: u32,
    /// The least offset of the neighbour minus that of the item, where the item is the lower one.
    below: u64,
    /// The least offset of the item minus that of the neighbour, where the item is the upper one.
    above: u64,
}

/// Two items that meet: the first below the second, and the other way round.
type Meeting = (u32, u32, u64, u64);

impl Clearances {
    /// Lists the pairs of items that meet. Returns `None` if there are too many.
    pub(super) fn new(problem: &Problem, set: &ItemSet) -> Option<Self> {
        let item = |it: &crate::items::Item| ClearedItem {
            bytes: it.bytes,
            align: it.align,
            start: it.start,
            end: it.end,
            pinned: it.pinned,
        };
        let items: Vec<ClearedItem> = set.items.iter().map(item).collect();
        let mut meetings = meetings(problem, set)?;
        if problem.blocks().iter().any(|block| block.follows.is_some()) {
            merge_repeated(&mut meetings);
        }
        Some(Self::of_meetings(items, meetings))
    }

    /// Lists the neighbours of each item. No two items may meet twice.
    fn of_meetings(items: Vec<ClearedItem>, meetings: Vec<Meeting>) -> Self {
        let mut first = vec![0; items.len() + 1];
        for (a, b, ..) in &meetings {
            first[*a as usize + 1] += 1;
            first[*b as usize + 1] += 1;
        }
        for item in 0..items.len() {
            first[item + 1] += first[item];
        }
        let mut fill = first.clone();
        let mut neighbours = vec![Neighbour { item: 0, below: 0, above: 0 }; 2 * meetings.len()];
        for (a, b, a_below, b_below) in meetings {
            for (item, other, below, above) in [(a, b, a_below, b_below), (b, a, b_below, a_below)] {
                let at = &mut fill[item as usize];
                neighbours[*at] = Neighbour { item: other, below, above };
                *at += 1;
            }
        }
        Self { items, first, neighbours }
    }

    /// Returns some of the items alone. Item `i` of the result is the item at `members[i]`.
    pub(super) fn of_members(&self, members: &[u32]) -> Self {
        let mut number = vec![None; self.items.len()];
        for (new, old) in (0u32..).zip(members) {
            number[*old as usize] = Some(new);
        }
        let mut meetings = Vec::new();
        for (new, old) in (0u32..).zip(members) {
            for it in self.neighbours(*old) {
                if let Some(other) = number[it.item as usize]
                    && new < other
                {
                    meetings.push((new, other, it.below, it.above));
                }
            }
        }
        Self::of_meetings(members.iter().map(|old| self.items[*old as usize]).collect(), meetings)
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the items that are alive together with an item.
    pub(super) fn neighbours(&self, item: u32) -> &[Neighbour] {
        &self.neighbours[self.first[item as usize]..self.first[item as usize + 1]]
    }

    /// Returns how many items an item meets on average.
    pub(super) fn mean_degree(&self) -> u64 {
        (self.neighbours.len() / self.items.len().max(1)) as u64
    }

    /// Returns how many bytes the items reach up to.
    pub(super) fn peak(&self, offsets: &[u64]) -> u64 {
        offsets.iter().zip(&self.items).map(|(offset, item)| offset + item.bytes).max().unwrap_or(0)
    }

    /// Returns whether no pin names another buffer than the first.
    pub(super) fn pins_are_in_the_first_buffer(&self) -> bool {
        self.items.iter().all(|item| item.pinned.is_none_or(|place| place.buffer == BufferId::FIRST))
    }
}

/// Sweeps over time and lists each block with those that are alive at its birth.
fn meetings(problem: &Problem, set: &ItemSet) -> Option<Vec<Meeting>> {
    let blocks = problem.blocks();
    let real = |id: &BlockId| blocks[*id].size > Bytes::ZERO && set.owner(*id).is_some();
    let mut births: Vec<BlockId> = blocks.ids().filter(real).collect();
    births.sort_by_key(|id| (blocks[*id].life.start(), *id));
    let mut alive: Vec<(BlockId, ItemId)> = Vec::new();
    let mut meetings = Vec::new();
    for id in births {
        let (block, Some(item)) = (&blocks[id], set.owner(id)) else { continue };
        alive.retain(|(other, _)| blocks[*other].life.end() > block.life.start());
        if meetings.len() + alive.len() > MAX_PAIRS {
            return None;
        }
        for (other_id, other) in &alive {
            // A source is born first, so only the new block may overlap.
            let distance = block.overlaps.filter(|it| it.source == *other_id).map_or(u64::MAX, |it| it.distance.0);
            let (below, above) = (occupied(block).min(distance), occupied(&blocks[*other_id]));
            let (new, old) = (item.index() as u32, other.index() as u32);
            meetings.push(if new < old { (new, old, below, above) } else { (old, new, above, below) });
        }
        alive.push((id, item));
    }
    Some(meetings)
}

/// Merges the meetings of two chains of which several blocks meet: the largest clearances hold.
fn merge_repeated(meetings: &mut Vec<Meeting>) {
    meetings.sort_unstable();
    meetings.dedup_by(|next, kept| {
        let same = (next.0, next.1) == (kept.0, kept.1);
        if same {
            (kept.2, kept.3) = (kept.2.max(next.2), kept.3.max(next.3));
        }
        same
    });
}

/// The offsets at which an item can't start, because of items that are placed.
#[derive(Clone, Debug, Default)]
pub(super) struct ForbiddenStarts {
    /// The first offset that is forbidden, and the next one that is not.
    ranges: Vec<(u64, u64)>,
}

impl ForbiddenStarts {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Forbids what is too close to a neighbour at `offset`.
    pub(super) fn add(&mut self, neighbour: &Neighbour, offset: u64) {
        let first = offset.checked_sub(neighbour.below).map_or(0, |last_free| last_free + 1);
        let next = offset + neighbour.above;
        if first < next {
            self.ranges.push((first, next));
        }
    }

    /// Calls `take` with the lowest and the highest start in each gap, from below, up to the start `last`, until it
    /// returns false.
    pub(super) fn gaps(&mut self, align: u64, last: u64, mut take: impl FnMut(u64, u64) -> bool) {
        self.ranges.sort_unstable();
        let mask = align - 1;
        let mut from = 0u64;
        let end = [(u64::MAX, u64::MAX)];
        for (first, next) in self.ranges.iter().chain(&end) {
            if from > last {
                return;
            }
            if *first > from {
                let (low, high) = (from.checked_add(mask).map(|it| it & !mask), last.min(first - 1) & !mask);
                if let Some(low) = low
                    && low <= high
                    && !take(low, high)
                {
                    return;
                }
            }
            from = from.max(*next);
        }
    }
}
