//! The online strategy: allocates blocks in the order of their births, each where ggml's free list puts it.

use alloc::vec;
use alloc::vec::Vec;

use crate::bound::occupied;
use crate::free_list::FreeList;
use crate::greedy::{GapFit, PassLimits, PlacementOrder, greedy, order};
use crate::items::ItemSet;
use crate::problem::heads;
use crate::sections::Sections;
use crate::{BlockId, Bytes, Id, Offset, Place, Placement, Problem};

/// How much work a pass may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassEffort {
    /// No limit: the result of this pass is needed.
    Unlimited,
    /// A fraction of a second: other passes exist.
    Bounded,
}

impl PassEffort {
    /// Returns the maximum number of probes.
    pub(crate) fn probes(self) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::Bounded => 80_000_000,
        }
    }
}

/// Subtracts `probes` from what is left. Returns false if that is not enough.
fn spend(left: &mut u64, probes: usize) -> bool {
    let enough = *left >= probes as u64;
    *left = left.saturating_sub(probes as u64);
    enough
}

/// Places all blocks online. Returns `None` if the result would not be below the peak `below`, or if the address space
/// is too small; otherwise never fails on a problem whose pinned blocks are consistent.
pub(crate) fn best_fit(
    problem: &Problem,
    items: &ItemSet,
    below: Option<Bytes>,
    effort: PassEffort,
) -> Option<Placement> {
    let below = below.map_or(u64::MAX, |peak| peak.0);
    if suits_the_free_list(problem, items) {
        let align = problem.blocks().iter().map(|block| block.align).next().unwrap_or_default();
        let ggml = FreeList::new(align, problem.max_buffer());
        // ggml's last chunk ignores the limit; if that matters, run again with as many chunks as it takes.
        for free in [ggml.clone(), ggml.with_any_number_of_chunks()] {
            match with_free_list(problem, free, below, effort) {
                FreeListResult::Placed(placement) => return Some(placement),
                FreeListResult::TooHigh => return None,
                FreeListResult::OverLimit | FreeListResult::NoRoom => {}
            }
        }
    }
    in_birth_order(problem, items, below, effort)
}

/// Returns whether the free list can place this problem: it supports one alignment and no pins.
pub(crate) fn suits_the_free_list(problem: &Problem, items: &ItemSet) -> bool {
    let mut aligns = problem.blocks().iter().map(|block| block.align);
    let first = aligns.next();
    !items.has_pins() && aligns.all(|align| Some(align) == first)
}

/// The result of placing blocks with the free list.
enum FreeListResult {
    Placed(Placement),
    /// Abandoned: the peak would not be below the given one, or the probes are used up.
    TooHigh,
    /// The free list ends at half the address space.
    NoRoom,
    /// The free list's last chunk ignores the limit of a buffer.
    OverLimit,
}

/// Places the blocks with the free list itself.
fn with_free_list(problem: &Problem, mut free: FreeList, below: u64, effort: PassEffort) -> FreeListResult {
    let blocks = problem.blocks();
    let real = |id: &BlockId| blocks[*id].size > Bytes::ZERO;
    let mut births: Vec<BlockId> = blocks.ids().filter(real).collect();
    let mut deaths = births.clone();
    births.sort_by_key(|id| blocks[*id].life.start());
    deaths.sort_by_key(|id| blocks[*id].life.end());
    // A block with a follower frees only the bytes that its follower does not keep.
    let mut kept = vec![0; blocks.len()];
    for block in blocks {
        if let Some(before) = block.follows {
            kept[before.index()] = occupied(block);
        }
    }
    // Only blocks of no bytes are pinned here, or keep this place.
    let mut places: Vec<Place> = blocks.iter().map(|it| it.pinned.unwrap_or(Place::ORIGIN)).collect();
    let mut largest: Vec<u64> = Vec::new();
    let mut deaths = deaths.into_iter().peekable();
    let mut probes = effort.probes();
    for id in births {
        let block = &blocks[id];
        while let Some(dead) = deaths.next_if(|dead| blocks[*dead].life.end() <= block.life.start()) {
            let (place, kept) = (places[dead.index()], kept[dead.index()]);
            let rest = occupied(&blocks[dead]) - kept;
            if rest > 0 {
                let offset = Offset(place.offset.0 + kept);
                free.release(Place { offset, ..place }, Bytes(rest));
            }
        }
        let place = match block.follows {
            Some(before) => places[before.index()],
            None => match free.take(block.size) {
                Some(place) if free.total().0 < below && spend(&mut probes, free.ranges()) => place,
                Some(_) => return FreeListResult::TooHigh,
                None => return FreeListResult::NoRoom,
            },
        };
        places[id.index()] = place;
        let buffer = place.buffer.index();
        largest.resize(largest.len().max(buffer + 1), 0);
        largest[buffer] = largest[buffer].max(occupied(block));
    }
    // A follower of no bytes is placed where its chain is.
    for (id, head) in heads(blocks).pairs() {
        places[id.index()] = places[head.index()];
    }
    let limit = problem.max_buffer().map_or(u64::MAX, |limit| limit.0);
    let within = free.chunks().zip(&largest).all(|(size, largest)| size.0 <= limit.max(*largest));
    if within { FreeListResult::Placed(Placement::new(places)) } else { FreeListResult::OverLimit }
}

/// Places the blocks in the order of their births with the greedy placer, which supports pins and mixed alignments.
fn in_birth_order(problem: &Problem, items: &ItemSet, below: u64, effort: PassEffort) -> Option<Placement> {
    let sections = Sections::new(&items.items);
    let births = order(&items.items, &sections, PlacementOrder::Birth);
    let limits = PassLimits { buffer: problem.max_buffer().map(|limit| limit.0), peak: below, probes: effort.probes() };
    let places = greedy(&items.items, &sections, &births, GapFit::Best, limits)?;
    Some(items.placement(problem, &places))
}
