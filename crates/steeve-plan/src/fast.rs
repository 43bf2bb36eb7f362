//! The default strategy: runs several quick passes and keeps the best; stops as soon as one reaches the bound.
//!
//! Descents and greedy orders each win on problems that the others lose, and all are quick. The bound is the proof: a
//! pass that reaches it can't be beaten. In one buffer a pass is abandoned once it can't beat the best one so far. If
//! none reaches the bound, a small problem gets one short niche search, and at last ggml's free list is tried.

use alloc::vec;
use alloc::vec::Vec;

use crate::best_fit::{PassEffort, best_fit, suits_the_free_list};
use crate::descent::{DescentKey, GroupedPacking};
use crate::greedy::{GapFit, PassLimits, PlacementOrder, greedy, order};
use crate::items::{Item, ItemSet, up};
use crate::niche::{NicheOutcome, NicheSearch};
use crate::overlap_search::quick_overlap_passes;
use crate::packing::Packing;
use crate::sections::Sections;
use crate::strategy::Solution;
use crate::{Bound, BufferId, Bytes, Id, Offset, Place, Problem, lower_bound};

/// The descents, in the order of how often they are the first to reach the bound.
const DESCENTS: [(DescentKey, TimeDirection); 6] = [
    (DescentKey::Size, TimeDirection::Backward),
    (DescentKey::Length, TimeDirection::Forward),
    (DescentKey::Area, TimeDirection::Backward),
    (DescentKey::Size, TimeDirection::Forward),
    (DescentKey::Length, TimeDirection::Backward),
    (DescentKey::Area, TimeDirection::Forward),
];

/// The greedy passes for one buffer: one packs what grows and shrinks with the largest blocks, the other what is full of long-lived small ones.
const ORDERS: [(PlacementOrder, GapFit); 2] =
    [(PlacementOrder::Size, GapFit::First), (PlacementOrder::Length, GapFit::Best)];

/// The greedy passes with pins or several buffers, where descents do not apply.
const ALL_ORDERS: [(PlacementOrder, GapFit); 7] = [
    (PlacementOrder::Size, GapFit::First),
    (PlacementOrder::Length, GapFit::Best),
    (PlacementOrder::Size, GapFit::Best),
    (PlacementOrder::Area, GapFit::First),
    (PlacementOrder::Area, GapFit::Best),
    (PlacementOrder::Length, GapFit::First),
    (PlacementOrder::Birth, GapFit::Best),
];

/// Above this many items a descent takes a good part of a second, and only two are run.
const MAX_ITEMS_ALL_DESCENTS: usize = 150_000;

/// From this many items on, the search for the tightest gap takes longer than all other passes together.
const MAX_ITEMS_BEST_GAP: usize = 50_000;

/// Up to this many items one restart of niche search is as quick as a few passes.
const MAX_ITEMS_SHORT_SEARCH: usize = 256;

/// Whether a descent runs in the order of time or against it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeDirection {
    Forward,
    Backward,
}

/// Runs the passes for blocks that overlap, and all others with every block kept apart from its source; returns the best
/// result. Returns `None` only if no pass could place the blocks at all.
pub(crate) fn fast_with_overlaps(problem: &Problem, items: &ItemSet, bound: Bound) -> Option<Solution> {
    let overlapping = quick_overlap_passes(problem, items, bound.bytes, bound.step, None);
    let apart = problem.without_overlaps();
    let apart_bound = lower_bound(&apart).bytes;
    // Pinned blocks may overlap, and then blocks apart are bounded by more than some plan needs.
    let at_bound = |found: &Solution| found.peak <= apart_bound && !items.has_pins() || found.peak <= bound.bytes;
    if overlapping.as_ref().is_some_and(at_bound) {
        return overlapping;
    }
    let apart = fast(&apart, items, apart_bound);
    [overlapping, apart].into_iter().flatten().min_by_key(|it| it.peak)
}

/// Runs all passes and returns the best result. Returns `None` only if no pass could place the blocks at all.
pub(crate) fn fast(problem: &Problem, items: &ItemSet, bound: Bytes) -> Option<Solution> {
    let Some(one) = in_one_buffer(problem, items, bound) else { return several_buffers(problem, items, bound) };
    if one.peak <= bound {
        return Some(one);
    }
    let online =
        best_fit(problem, items, Some(one.peak), PassEffort::Bounded).and_then(|it| Solution::new(problem, it));
    online.filter(|online| online.peak < one.peak).or(Some(one))
}

/// Packs everything into one buffer. Returns `None` with pins, or if one buffer would exceed its limit.
fn in_one_buffer(problem: &Problem, items: &ItemSet, bound: Bytes) -> Option<Solution> {
    // One buffer within its limit is a plan, and no plan is below the bound.
    if items.has_pins() || problem.max_buffer().is_some_and(|limit| bound > limit) {
        return None;
    }
    let mut stack = pack_one_buffer(&items.items, bound.0);
    if stack.peak > bound.0
        && let Some(lower) = short_niche_search(&items.items, bound.0)
    {
        stack = lower;
    }
    if problem.max_buffer().is_some_and(|limit| stack.peak > limit.0) {
        return None;
    }
    let places: Vec<Place> = stack.offsets.iter().map(|offset| Place::first(Offset(*offset))).collect();
    Solution::new(problem, items.placement(problem, &places))
}

/// Offsets of items in one buffer, and their peak.
pub(crate) struct BufferLayout {
    pub(crate) offsets: Vec<u64>,
    pub(crate) peak: u64,
}

/// Packs items into one buffer with descents, then greedy orders, until one reaches the bound.
pub(crate) fn pack_one_buffer(items: &[Item], bound: u64) -> BufferLayout {
    let packing = Packing::with_shrinks(items);
    // An item that shrinks several times is lower than its packing says.
    let shrinks = !packing.steps.is_empty();
    let bound = if shrinks { bound } else { bound.max(packing.bound()) };
    let mut best: Option<BufferLayout> = None;
    let mut keep = |offsets: Option<Vec<u64>>| {
        if let Some(offsets) = offsets {
            let peak = packing.peak(&offsets);
            if best.as_ref().is_none_or(|best| peak < best.peak) {
                best = Some(BufferLayout { offsets, peak });
            }
        }
        best.as_ref().map_or(u64::MAX, |best| best.peak)
    };
    let mut lowest = u64::MAX;
    let (mut forward, mut backward) = (None, None);
    let passes = if items.len() > MAX_ITEMS_ALL_DESCENTS { 2 } else { DESCENTS.len() };
    for (key, time) in &DESCENTS[..passes] {
        let grouped = match time {
            TimeDirection::Forward => forward.get_or_insert_with(|| GroupedPacking::new(packing.clone())),
            TimeDirection::Backward => backward.get_or_insert_with(|| GroupedPacking::new(packing.mirrored())),
        };
        lowest = keep(grouped.descend(*key, lowest));
        if lowest <= bound {
            break;
        }
    }
    if lowest > bound {
        let sections = if shrinks { Sections::new(items) } else { packing.sections() };
        let orders = match items.len() {
            _ if shrinks => &ALL_ORDERS[..],
            MAX_ITEMS_BEST_GAP.. => &ORDERS[..1],
            _ => &ORDERS,
        };
        for (by, fit) in orders.iter().copied() {
            let limits = PassLimits { buffer: None, peak: lowest, probes: PassEffort::Bounded.probes() };
            let places = greedy(items, &sections, &order(items, &sections, by), fit, limits);
            let offsets = places.map(|places| places.iter().map(|place| place.offset.0).collect());
            lowest = keep(offsets);
            if lowest <= bound {
                break;
            }
        }
    }
    // Stacking everything on everything is always possible.
    best.unwrap_or_else(|| stack_all(items))
}

/// Runs one restart of niche search at the bound, where a problem is so small that this takes no longer than the
/// passes.
fn short_niche_search(items: &[Item], bound: u64) -> Option<BufferLayout> {
    if items.len() > MAX_ITEMS_SHORT_SEARCH {
        return None;
    }
    let packing = Packing::new(items);
    let mut search = NicheSearch::new(&packing, bound, 1)?;
    match search.restart(2 * items.len() as u64, &mut |_| false) {
        (NicheOutcome::Found(offsets), _) => Some(BufferLayout { peak: packing.peak(&offsets), offsets }),
        _ => None,
    }
}

fn stack_all(items: &[Item]) -> BufferLayout {
    let mut peak = 0u64;
    let mut offsets = Vec::with_capacity(items.len());
    for item in items {
        let offset = up(peak, item.align);
        offsets.push(offset);
        peak = offset + item.bytes;
    }
    BufferLayout { offsets, peak }
}

/// Runs greedy passes over buffers of limited size or around pinned items, then packs each buffer without pins again.
fn several_buffers(problem: &Problem, items: &ItemSet, bound: Bytes) -> Option<Solution> {
    let sections = Sections::new(&items.items);
    let limit = problem.max_buffer().map(|limit| limit.0);
    // The free list always comes to an end, and then the passes need not.
    let free_list =
        suits_the_free_list(problem, items).then(|| best_fit(problem, items, None, PassEffort::Unlimited)).flatten();
    let mut best = free_list.and_then(|placement| Solution::new(problem, placement));
    for (by, fit) in ALL_ORDERS {
        if best.as_ref().is_some_and(|best| best.peak <= bound) {
            break;
        }
        // The first pass must come to an end however long it takes: without it there may be nothing.
        let probes = if best.is_none() { PassEffort::Unlimited.probes() } else { PassEffort::Bounded.probes() };
        let limits = PassLimits { buffer: limit, peak: u64::MAX, probes };
        let order = order(&items.items, &sections, by);
        let Some(mut places) = greedy(&items.items, &sections, &order, fit, limits) else {
            continue;
        };
        let mut found = Solution::new(problem, items.placement(problem, &places));
        // At the bound there is nothing to gain.
        if found.as_ref().is_none_or(|found| found.peak > bound) {
            pack_each_buffer(&items.items, &mut places);
            found = Solution::new(problem, items.placement(problem, &places));
        }
        if let Some(found) = found
            && best.as_ref().is_none_or(|best| found.peak < best.peak)
        {
            best = Some(found);
        }
    }
    best
}

/// Packs each buffer without pins again. Every item stays in its buffer; a worse packing is discarded.
pub(crate) fn pack_each_buffer(items: &[Item], places: &mut [Place]) {
    let buffers = places.iter().map(|place| place.buffer.index() + 1).max().unwrap_or(0);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); buffers];
    for (index, place) in places.iter().enumerate() {
        members[place.buffer.index()].push(index);
    }
    for (buffer, members) in members.iter().enumerate() {
        let these: Vec<Item> = members.iter().map(|index| items[*index]).collect();
        if these.iter().any(|item| item.pinned.is_some()) {
            continue;
        }
        let top = members.iter().map(|index| places[*index].offset.0 + items[*index].bytes).max();
        let stack = pack_one_buffer(&these, 0);
        if let Some(buffer) = BufferId::from_index(buffer)
            && top.is_some_and(|top| stack.peak < top)
        {
            for (index, offset) in members.iter().zip(stack.offsets) {
                places[*index] = Place { buffer, offset: Offset(offset) };
            }
        }
    }
}
