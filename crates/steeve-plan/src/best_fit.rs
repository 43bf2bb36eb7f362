//! The online strategy: blocks in the order of their births, each where ggml's free list puts it.

use alloc::vec;
use alloc::vec::Vec;

use crate::bound::occupied;
use crate::free_list::FreeList;
use crate::greedy::{GapFit, PassLimits, PlacementOrder, greedy, order};
use crate::items::ItemSet;
use crate::problem::heads;
use crate::sections::Sections;
use crate::{BlockId, Bytes, Id, Offset, Place, Placement, Problem};

/// How long a pass may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassEffort {
    /// As long as it needs: there is nothing else.
    Unlimited,
    /// A fraction of a second: it is one of many.
    Bounded,
}

impl PassEffort {
    /// How often it may look at something.
    pub(crate) fn probes(self) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::Bounded => 80_000_000,
        }
    }
}

/// Takes from what is left; false if it is not enough.
fn spend(left: &mut u64, probes: usize) -> bool {
    let enough = *left >= probes as u64;
    *left = left.saturating_sub(probes as u64);
    enough
}

/// Never fails on a problem whose pinned blocks agree, except for want of address space, or if it does not get below
/// the peak it is given.
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
        // ggml's last chunk ignores the limit; if that matters, once more with as many chunks as it takes.
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

/// It knows one alignment and nothing of pins.
pub(crate) fn suits_the_free_list(problem: &Problem, items: &ItemSet) -> bool {
    let mut aligns = problem.blocks().iter().map(|block| block.align);
    let first = aligns.next();
    !items.has_pins() && aligns.all(|align| Some(align) == first)
}

enum FreeListResult {
    Placed(Placement),
    /// Given up: it would not get below the peak it was given, or not in time.
    TooHigh,
    /// The free list ends at half the address space.
    NoRoom,
    /// The free list's last chunk ignores the limit of a buffer.
    OverLimit,
}

/// With the free list itself.
fn with_free_list(problem: &Problem, mut free: FreeList, below: u64, effort: PassEffort) -> FreeListResult {
    let blocks = problem.blocks();
    let real = |id: &BlockId| blocks[*id].size > Bytes::ZERO;
    let mut births: Vec<BlockId> = blocks.ids().filter(real).collect();
    let mut deaths = births.clone();
    births.sort_by_key(|id| blocks[*id].life.start());
    deaths.sort_by_key(|id| blocks[*id].life.end());
    // A block that is taken over gives back only what its follower does not keep.
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
    // A follower of no bytes stands where its chain stands.
    for (id, head) in heads(blocks).pairs() {
        places[id.index()] = places[head.index()];
    }
    let limit = problem.max_buffer().map_or(u64::MAX, |limit| limit.0);
    let within = free.chunks().zip(&largest).all(|(size, largest)| size.0 <= limit.max(*largest));
    if within { FreeListResult::Placed(Placement::new(places)) } else { FreeListResult::OverLimit }
}

/// The same idea with the placer that knows pins and mixed alignments.
fn in_birth_order(problem: &Problem, items: &ItemSet, below: u64, effort: PassEffort) -> Option<Placement> {
    let sections = Sections::new(&items.items);
    let births = order(&items.items, &sections, PlacementOrder::Birth);
    let limits = PassLimits { buffer: problem.max_buffer().map(|limit| limit.0), peak: below, probes: effort.probes() };
    let places = greedy(&items.items, &sections, &births, GapFit::Best, limits)?;
    Some(items.placement(problem, &places))
}
