//! Converts a problem to the items to place: chains merged, blocks of no bytes left out, padding included.
//!
//! A chain of blocks that follow each other moves as one, so it is one item as large as its largest block. (Descents
//! and greedy passes use one step at which a chain shrinks, and the free list of `BestFit` all of them.) O(n).
//!
//! An item says nothing of overlaps: what works on items keeps them apart, and `overlap_search` finds the distances of
//! the blocks that meet.

use alloc::vec::Vec;

use crate::bound::occupied;
use crate::problem::heads;
use crate::{Block, BlockId, Bytes, Id, IdVec, Place, Placement, Problem, Step};

crate::id_type! {
    /// An item to place.
    pub(crate) struct ItemId;
}

/// A chain of blocks, or a single block, as the strategies place it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) start: Step,
    pub(crate) end: Step,
    /// Above 0, and a multiple of the alignment of the block that needs them.
    pub(crate) bytes: u64,
    pub(crate) align: u64,
    pub(crate) pinned: Option<Place>,
    /// A chain that needs less from some step on.
    pub(crate) shrinks: Option<ShrinkPoint>,
}

/// The step from which an item needs only some of its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShrinkPoint {
    pub(crate) from: Step,
    pub(crate) bytes: u64,
}

/// The items of a problem, and which block belongs to which.
#[derive(Clone, Debug)]
pub(crate) struct ItemSet {
    pub(crate) items: Vec<Item>,
    /// For each block its item; `None` for blocks that need no bytes.
    owner: Vec<Option<ItemId>>,
    /// Whether every item is used to its last byte all the time: no chain has a tail.
    exact: bool,
}

impl ItemSet {
    pub(crate) fn new(problem: &Problem) -> Self {
        let blocks = problem.blocks();
        let heads = heads(blocks);
        let mut items: Vec<Item> = Vec::with_capacity(blocks.len());
        let mut owner: Vec<Option<ItemId>> = Vec::with_capacity(blocks.len());
        owner.resize(blocks.len(), None);
        let mut exact = true;
        // A head may be listed after its followers, so heads come first.
        for (id, block) in blocks.pairs() {
            if heads[id] != id || block.size == Bytes::ZERO {
                continue;
            }
            owner[id.index()] = ItemId::from_index(items.len());
            items.push(Item {
                start: block.life.start(),
                end: block.life.end(),
                bytes: occupied(block),
                align: block.align.get(),
                pinned: block.pinned,
                shrinks: None,
            });
        }
        for (id, block) in blocks.pairs() {
            let head = heads[id];
            if head == id {
                continue;
            }
            // A follower is not larger than its head, so a head of no bytes has only such followers.
            let Some(item) = owner[head.index()] else {
                continue;
            };
            owner[id.index()] = Some(item);
            let item = &mut items[item.index()];
            exact &= occupied(block) == item.bytes;
            item.end = item.end.max(block.life.end());
            item.bytes = item.bytes.max(occupied(block));
            item.align = item.align.max(block.align.get());
        }
        if !exact {
            find_shrinks(problem, &owner, &mut items);
        }
        Self { items, owner, exact }
    }

    /// Returns the item of a block; `None` if the block needs no bytes.
    pub(crate) fn owner(&self, block: BlockId) -> Option<ItemId> {
        self.owner.get(block.index()).copied().flatten()
    }

    pub(crate) fn has_pins(&self) -> bool {
        self.items.iter().any(|item| item.pinned.is_some())
    }

    /// Returns whether a plan of the items can be as small as one of the blocks: merging has lost no tail.
    pub(crate) fn are_exact(&self) -> bool {
        self.exact
    }

    /// Returns the items' places, given those of the blocks.
    pub(crate) fn places(&self, placement: &Placement) -> Vec<Place> {
        let mut places = alloc::vec![Place::ORIGIN; self.items.len()];
        for (owner, place) in self.owner.iter().zip(&placement.places) {
            if let Some(item) = owner {
                places[item.index()] = *place;
            }
        }
        places
    }

    /// Returns the blocks' places, given those of the items. A block of no bytes is placed where it is pinned, else at
    /// the origin; in a chain, where the chain is.
    pub(crate) fn placement(&self, problem: &Problem, places: &[Place]) -> Placement {
        let blocks = problem.blocks();
        let heads = self.owner.iter().any(Option::is_none).then(|| heads(blocks));
        let place_of = |(block, owner): (BlockId, &Option<ItemId>)| match owner {
            Some(item) => places[item.index()],
            None => {
                let head = heads.as_ref().map_or(block, |heads| heads[block]);
                blocks[head].pinned.unwrap_or(Place::ORIGIN)
            }
        };
        Placement::new(blocks.ids().zip(&self.owner).map(place_of).collect::<IdVec<_, _>>())
    }
}

/// Sets, for each chain that shrinks, the step that gains most: bytes freed, times the steps until the end.
fn find_shrinks(problem: &Problem, owner: &[Option<ItemId>], items: &mut [Item]) {
    let member = |(block, owner): (&Block, &Option<ItemId>)| Some(((*owner)?, block.life.start(), occupied(block)));
    let mut members: Vec<(ItemId, Step, u64)> = problem.blocks().iter().zip(owner).filter_map(member).collect();
    members.sort_unstable();
    let mut gains = alloc::vec![0u128; items.len()];
    // From the end of each chain, so that `needed` is the most that any later block needs.
    let mut last: Option<(ItemId, u64)> = None;
    for (owner, from, bytes) in members.into_iter().rev() {
        let needed = last.filter(|it| it.0 == owner).map_or(bytes, |it| it.1.max(bytes));
        last = Some((owner, needed));
        let item = &mut items[owner.index()];
        let gain = u128::from(item.bytes - needed) * u128::from(item.end.0 - from.0);
        if from > item.start && gain > gains[owner.index()] {
            gains[owner.index()] = gain;
            item.shrinks = Some(ShrinkPoint { from, bytes: needed });
        }
    }
}

/// Returns the least multiple of `align`, a power of two, that is not below `offset`.
pub(crate) fn up(offset: u64, align: u64) -> u64 {
    (offset + (align - 1)) & !(align - 1)
}
