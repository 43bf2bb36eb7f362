//! Places items one after the other in a given order, each into a gap between those already placed.
//!
//! This placer supports everything: pinned items, any mix of alignments, buffers of limited size. Time is cut into
//! slices, and each slice lists its used ranges in the order of offsets, so an item scans only its own slices. Ranges
//! that fill a whole slice of time are merged with their neighbours, which keeps the lists short however many items
//! live long:
//!
//! ```text
//!   offset  |#######|#######|##  [b]|          slice 1 sees one solid range instead of three items,
//!           |#######|#######|  [ c ]|          slice 2 sees each of b, c and the end of the solid ones
//!             slice 0   1       2     time ->
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::items::{Item, up};
use crate::sections::Sections;
use crate::{BufferId, Id, Offset, Place};

/// The order in which items are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementOrder {
    /// The largest first.
    Size,
    /// The longest-lived first.
    Length,
    /// The largest product of both first.
    Area,
    /// The earliest first.
    Birth,
}

/// Which gap an item goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GapFit {
    /// The lowest.
    First,
    /// The tightest.
    Best,
}

/// What a pass may cost and must stay below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassLimits {
    /// The most bytes of one buffer, unless a single item needs more.
    pub(crate) buffer: Option<u64>,
    /// The pass is abandoned when the buffers' sum reaches this.
    pub(crate) peak: u64,
    /// The pass is abandoned after this many probes of used ranges.
    pub(crate) probes: u64,
}

/// Returns the items' indices in an order; ties are broken by the other properties, then by index, so that the order is
/// total.
pub(crate) fn order(items: &[Item], sections: &Sections, by: PlacementOrder) -> Vec<u32> {
    let length = |item: usize| sections.hi[item] - sections.lo[item];
    let bytes = |item: usize| items[item].bytes;
    let area = |item: usize| u128::from(bytes(item)) * u128::from(length(item));
    match by {
        PlacementOrder::Size if !sections.shrunk.is_empty() => order_of_shrinking(items, sections),
        PlacementOrder::Size => sorted(items.len(), |item| (Reverse(bytes(item)), sections.lo[item])),
        PlacementOrder::Length => sorted(items.len(), |item| Reverse((length(item), bytes(item)))),
        PlacementOrder::Area => sorted(items.len(), |item| Reverse(area(item))),
        PlacementOrder::Birth => sorted(items.len(), |item| (sections.lo[item], Reverse(bytes(item)))),
    }
}

/// Returns the items largest first, except that an item that shrinks comes right before the largest one that is born
/// beside its remainder: that one can then rest on the remainder, and neither leaves a hole.
fn order_of_shrinking(items: &[Item], sections: &Sections) -> Vec<u32> {
    let mut born = vec![0u64; sections.count];
    for (item, lo) in items.iter().zip(&sections.lo) {
        born[*lo as usize] = born[*lo as usize].max(item.bytes);
    }
    sorted(items.len(), |index| {
        let (bytes, from, hi) = (items[index].bytes, sections.shrunk[index], sections.hi[index]);
        if items[index].shrinks.is_none() || from >= hi {
            return (Reverse(bytes), sections.lo[index], true);
        }
        let beside = born[from as usize..hi as usize].iter().copied().max().unwrap_or(0);
        (Reverse(bytes.max(beside)), from, false)
    })
}

/// Sorts by keys that are computed once and move with the items.
fn sorted<K: Ord>(count: usize, key: impl Fn(usize) -> K) -> Vec<u32> {
    let mut keyed: Vec<(K, u32)> = (0..count).map(|item| (key(item), item as u32)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, item)| item).collect()
}

/// Places all items. Returns `None` if the pass exceeds its limits or pinned items overlap.
pub(crate) fn greedy(
    items: &[Item],
    sections: &Sections,
    order: &[u32],
    fit: GapFit,
    limits: PassLimits,
) -> Option<Vec<Place>> {
    let mut gaps = GapIndex::new(items.len(), sections, limits);
    let mut places = vec![Place::ORIGIN; items.len()];
    for (index, item) in items.iter().enumerate() {
        if let Some(place) = item.pinned {
            gaps.put_item(place, index, item, sections)?;
            places[index] = place;
        }
    }
    for index in order {
        let index = *index as usize;
        let item = &items[index];
        if item.pinned.is_none() {
            let (lo, hi) = (sections.lo[index], sections.hi[index]);
            let shrunk = sections.shrunk.get(index).copied().filter(|from| *from < hi);
            let place = match shrunk.zip(item.shrinks) {
                Some((from, shrink)) => gaps.find_shrinking(item, shrink.bytes, lo..from, from..hi)?,
                None => gaps.find(item, lo, hi, fit)?,
            };
            gaps.put_item(place, index, item, sections)?;
            places[index] = place;
        }
    }
    Some(places)
}

/// At most this many buffers are probed for a gap.
const MAX_BUFFERS_PROBED: usize = 256;

/// The used ranges of all buffers, indexed by slices of time.
struct GapIndex {
    buffers: Vec<BufferGaps>,
    slices: usize,
    width: u32,
    limits: PassLimits,
    peak: u64,
    /// Positions of the last scan, kept to reuse their memory.
    cursor_positions: Vec<usize>,
}

/// The used ranges of one buffer, by slice.
struct BufferGaps {
    slices: Vec<Vec<UsedRange>>,
    top: u64,
    /// The maximum size: the limit, or its largest item.
    room: u64,
}

/// Bytes in use for some sections of a slice.
#[derive(Clone, Copy)]
struct UsedRange {
    start: u64,
    end: u64,
    lo: u32,
    hi: u32,
}

impl GapIndex {
    fn new(items: usize, sections: &Sections, limits: PassLimits) -> Self {
        // Short slices mean short lists, but an item that lives long is listed in many of them.
        let slices = (items / 256).clamp(1, 160).min(sections.count.max(1));
        let width = (sections.count.max(1)).div_ceil(slices) as u32;
        Self { buffers: Vec::new(), slices, width, limits, peak: 0, cursor_positions: Vec::new() }
    }

    fn range(&self, lo: u32, hi: u32) -> core::ops::RangeInclusive<usize> {
        (lo / self.width) as usize..=((hi - 1) / self.width) as usize
    }

    /// Finds a place in the buffer that grows least; on a tie in the earlier one; in a new one if it fits into none.
    fn find(&mut self, item: &Item, lo: u32, hi: u32, fit: GapFit) -> Option<Place> {
        let mut found: Option<(u64, Place)> = None;
        // Of very many buffers the older ones are full; probing all of them would take quadratic time.
        for index in self.buffers.len().saturating_sub(MAX_BUFFERS_PROBED)..self.buffers.len() {
            let offset = self.gap(index, item, lo, hi, fit)?;
            let buffer = &self.buffers[index];
            let end = offset + item.bytes;
            if end > buffer.room.max(item.bytes) {
                continue;
            }
            let growth = end.saturating_sub(buffer.top);
            if found.is_none_or(|(least, _)| growth < least) {
                let place = Place { buffer: BufferId::from_index(index)?, offset: Offset(offset) };
                found = Some((growth, place));
            }
            if growth == 0 {
                break;
            }
        }
        match found {
            Some((_, place)) => Some(place),
            None => {
                let buffer = BufferId::from_index(self.buffers.len())?;
                Some(Place { buffer, offset: Offset(0) })
            }
        }
    }

    /// Finds the lowest place for an item that needs only its first `kept` bytes in the sections of `tail`.
    fn find_shrinking(&mut self, item: &Item, kept: u64, body: Range<u32>, tail: Range<u32>) -> Option<Place> {
        let mut found: Option<(u64, Place)> = None;
        for index in self.buffers.len().saturating_sub(MAX_BUFFERS_PROBED)..self.buffers.len() {
            let lists = &self.buffers[index].slices[self.range(body.start, tail.end)];
            // How many bytes of the item must not overlap a used range.
            let needed = |it: &UsedRange| match () {
                () if it.lo < body.end && body.start < it.hi => item.bytes,
                () if it.lo < tail.end && tail.start < it.hi => kept,
                () => 0,
            };
            let mut used: Vec<(UsedRange, u64)> = lists.iter().flatten().map(|it| (*it, needed(it))).collect();
            used.retain(|(_, needed)| *needed > 0);
            let mut starts: Vec<u64> = used.iter().map(|(it, _)| up(it.end, item.align)).chain([0]).collect();
            starts.sort_unstable();
            let is_free = |start: u64| !used.iter().any(|(it, needed)| it.start < start + needed && start < it.end);
            let at = starts.iter().position(|start| is_free(*start))?;
            self.limits.probes = self.limits.probes.checked_sub((at as u64 + 1) * (used.len() as u64 + 1))?;
            let (offset, buffer) = (starts[at], &self.buffers[index]);
            let end = offset + item.bytes;
            if end > buffer.room.max(item.bytes) {
                continue;
            }
            let growth = end.saturating_sub(buffer.top);
            if found.is_none_or(|(least, _)| growth < least) {
                found = Some((growth, Place { buffer: BufferId::from_index(index)?, offset: Offset(offset) }));
            }
            if growth == 0 {
                break;
            }
        }
        let new = || Some(Place { buffer: BufferId::from_index(self.buffers.len())?, offset: Offset(0) });
        found.map(|(_, place)| place).or_else(new)
    }

    /// Finds the gap that `fit` chooses in one buffer. Returns `None` when the probes are used up.
    fn gap(&mut self, buffer: usize, item: &Item, lo: u32, hi: u32, fit: GapFit) -> Option<u64> {
        let range = self.range(lo, hi);
        let lists = &self.buffers[buffer].slices[range];
        let mut cursor = GapCursor::new(lists, &mut self.cursor_positions, lo, hi, item);
        let mut best: Option<(u64, u64)> = None;
        loop {
            let start = cursor.next_gap();
            if fit == GapFit::First {
                best = Some((0, start));
                break;
            }
            let Some(end) = cursor.end_of_gap(start) else {
                // The gap above everything: only if there is no other.
                best = best.or(Some((u64::MAX, start)));
                break;
            };
            let room = end - start;
            if best.is_none_or(|(least, _)| room < least) {
                best = Some((room, start));
            }
            if room == item.bytes {
                break;
            }
            cursor.skip_to(end);
        }
        let probes = cursor.probes;
        self.limits.probes = self.limits.probes.checked_sub(probes)?;
        best.map(|(_, start)| start)
    }

    /// Marks an item's bytes as used: all of them at first, fewer once it has shrunk.
    fn put_item(&mut self, place: Place, index: usize, item: &Item, sections: &Sections) -> Option<()> {
        let (lo, hi) = (sections.lo[index], sections.hi[index]);
        match (item.shrinks, sections.shrunk.get(index)) {
            (Some(shrink), Some(from)) if *from < hi => {
                self.put(place, item.bytes, lo, *from)?;
                if shrink.bytes > 0 {
                    self.put(place, shrink.bytes, *from, hi)?;
                }
                Some(())
            }
            _ => self.put(place, item.bytes, lo, hi),
        }
    }

    /// Marks bytes as used. Returns `None` if the buffers' sum reaches the limit, or the probes are used up.
    fn put(&mut self, place: Place, bytes: u64, lo: u32, hi: u32) -> Option<()> {
        let index = place.buffer.index();
        while self.buffers.len() <= index {
            let room = self.limits.buffer.unwrap_or(u64::MAX);
            let slices = vec![Vec::new(); self.slices];
            self.buffers.push(BufferGaps { slices, top: 0, room });
        }
        let range = self.range(lo, hi);
        let width = self.width;
        let buffer = &mut self.buffers[index];
        let (start, end) = (place.offset.0, place.offset.0 + bytes);
        buffer.room = buffer.room.max(bytes);
        self.peak += end.saturating_sub(buffer.top);
        buffer.top = buffer.top.max(end);
        for slice in range {
            let first = slice as u32 * width;
            let (lo, hi) = (lo.max(first), hi.min(first + width));
            self.limits.probes = self.limits.probes.checked_sub(1)?;
            insert(&mut buffer.slices[slice], UsedRange { start, end, lo, hi });
        }
        (self.peak < self.limits.peak).then_some(())
    }
}

/// Inserts a range in the order of starts, and merges it with an adjacent range that is used at the same time.
fn insert(list: &mut Vec<UsedRange>, new: UsedRange) {
    let at = list.partition_point(|it| it.start < new.start);
    let same_time = |it: &UsedRange| it.lo == new.lo && it.hi == new.hi;
    let joins_before = at > 0 && same_time(&list[at - 1]) && list[at - 1].end == new.start;
    let joins_after = list.get(at).is_some_and(|it| same_time(it) && it.start == new.end);
    match (joins_before, joins_after) {
        (true, true) => {
            list[at - 1].end = list[at].end;
            list.remove(at);
        }
        (true, false) => list[at - 1].end = new.end,
        (false, true) => list[at].start = new.start,
        (false, false) => list.insert(at, new),
    }
}

/// A scan up the offsets of several slices at once.
struct GapCursor<'a> {
    lists: &'a [Vec<UsedRange>],
    /// For each slice, how far the scan has come.
    at: &'a mut [usize],
    lo: u32,
    hi: u32,
    bytes: u64,
    align: u64,
    run: u64,
    probes: u64,
}

impl<'a> GapCursor<'a> {
    fn new(lists: &'a [Vec<UsedRange>], at: &'a mut Vec<usize>, lo: u32, hi: u32, item: &Item) -> Self {
        at.clear();
        at.resize(lists.len(), 0);
        Self { lists, at, lo, hi, bytes: item.bytes, align: item.align, run: 0, probes: lists.len() as u64 }
    }

    /// Advances to the next offset at which as many bytes as the item needs are free, and returns it.
    fn next_gap(&mut self) -> u64 {
        loop {
            let before = self.run;
            for (list, at) in self.lists.iter().zip(self.at.iter_mut()) {
                let from = *at;
                while let Some(it) = list.get(*at)
                    && it.start < self.run + self.bytes
                {
                    *at += 1;
                    if self.run < it.end && it.lo < self.hi && self.lo < it.hi {
                        self.run = up(it.end, self.align);
                    }
                }
                self.probes += (*at - from) as u64;
            }
            if self.run == before {
                return self.run;
            }
        }
    }

    /// Returns where the gap at `start` ends, which is the first use after it, or `None` if there is none.
    fn end_of_gap(&mut self, start: u64) -> Option<u64> {
        let mut end = u64::MAX;
        for (list, at) in self.lists.iter().zip(self.at.iter_mut()) {
            // Ranges that are skipped here do not overlap the item in time, so the cursor may stay behind them.
            while let Some(it) = list.get(*at)
                && !(it.lo < self.hi && self.lo < it.hi)
            {
                *at += 1;
                self.probes += 1;
            }
            end = list.get(*at).map_or(end, |it| end.min(it.start));
        }
        (start < end && end < u64::MAX).then_some(end)
    }

    fn skip_to(&mut self, offset: u64) {
        self.run = up(offset, self.align);
    }
}
