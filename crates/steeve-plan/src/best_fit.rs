//! The online strategy: blocks in the order of their births, each where ggml's free list puts it.

use alloc::vec;
use alloc::vec::Vec;

use crate::bound::occupied;
use crate::free_list::FreeList;
use crate::greedy::{Fit, Limits, Order, greedy, order};
use crate::items::Items;
use crate::sections::Sections;
use crate::{BlockId, Bytes, Id, Offset, Place, Placement, Problem};

/// Never fails on a problem whose pinned blocks agree, except for want of address space.
pub(crate) fn best_fit(problem: &Problem, items: &Items) -> Option<Placement> {
    online(problem, items).or_else(|| in_birth_order(problem, items))
}

/// With the free list itself. It knows one alignment and nothing of pins, and its last chunk ignores the limit: `None`
/// in those cases.
fn online(problem: &Problem, items: &Items) -> Option<Placement> {
    let blocks = problem.blocks();
    let align = blocks.iter().map(|block| block.align).next().unwrap_or_default();
    if items.has_pins() || blocks.iter().any(|block| block.align != align) {
        return None;
    }
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
    let mut free = FreeList::new(align, problem.max_buffer());
    let mut places = vec![Place::ORIGIN; blocks.len()];
    let mut largest: Vec<u64> = Vec::new();
    let mut deaths = deaths.into_iter().peekable();
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
            None => free.take(block.size)?,
        };
        places[id.index()] = place;
        let buffer = place.buffer.index();
        largest.resize(largest.len().max(buffer + 1), 0);
        largest[buffer] = largest[buffer].max(occupied(block));
    }
    let limit = problem.max_buffer().map_or(u64::MAX, |limit| limit.0);
    let within = free.chunks().zip(&largest).all(|(size, largest)| size.0 <= limit.max(*largest));
    within.then(|| Placement::new(places))
}

/// The same idea with the placer that knows pins and mixed alignments.
fn in_birth_order(problem: &Problem, items: &Items) -> Option<Placement> {
    let sections = Sections::new(&items.items);
    let births = order(&items.items, &sections, Order::Birth);
    let limits = Limits { buffer: problem.max_buffer().map(|limit| limit.0), peak: u64::MAX, looks: u64::MAX };
    let places = greedy(&items.items, &sections, &births, Fit::Best, limits)?;
    Some(items.placement(problem, &places))
}
