//! Depth-first search for offsets within a capacity, in one buffer and a fixed order of the items.
//!
//! Each item is tried at both ends of every gap that the items before it leave: on top of something, or right below
//! something. In a chain of operators, where every result overlaps its source, that covers all that matters: the lowest
//! and the highest start of a block decide where the next one can be. In general it does not, so the end of the search
//! proves nothing.
//!
//! What is below a node depends only on the *frontier*: the placed items that meet an item still to place. So a state is
//! (depth, offsets of the frontier), dead ones are remembered by their hash, and where a dead state does not depend on
//! the item before it, that item is not tried elsewhere (Gaschnig's and Dechter's backjumping, by the graph).

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::clearances::{Clearances, ForbiddenStarts};
use crate::random::RandomGenerator;

/// The order in which the starts of an item are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOrder {
    /// The closest to an end of the buffer first.
    Outer,
    /// The lowest first.
    Low,
    /// The highest first.
    High,
    /// In random order, from this seed.
    Random(u64),
}

/// The outcome of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SearchEnd {
    /// Offsets within the capacity.
    Found(Vec<u64>),
    /// All was tried; a solution may exist all the same.
    Exhausted,
    /// Out of nodes.
    Stopped,
}

/// Remembered dead states: a power of two.
const MAX_REMEMBERED: usize = 1 << 20;

/// A search in one order, for any capacity.
pub(super) struct Backtracking<'a> {
    clearances: &'a Clearances,
    order: Vec<u32>,
    /// For each item its position in the order, and the position of the last item that it meets.
    position: Vec<u32>,
    last: Vec<u32>,
    /// For each position, the items that leave the frontier behind it.
    leaving: Vec<Vec<u32>>,
}

/// An item of the current path: the starts still to try, the next one last.
#[derive(Default)]
struct Frame {
    starts: Vec<u64>,
    /// The hash of the frontier before the item is placed.
    state: u64,
}

impl<'a> Backtracking<'a> {
    /// Prepares a search. Pinned items come first, whatever the order says.
    pub(super) fn new(clearances: &'a Clearances, order: &[u32]) -> Self {
        let pinned = |item: &u32| clearances.items[*item as usize].pinned.is_some();
        let mut order = order.to_vec();
        order.sort_by_key(|item| !pinned(item));
        let mut position = vec![0; order.len()];
        for (at, item) in (0..).zip(&order) {
            position[*item as usize] = at;
        }
        let mut last = position.clone();
        let mut leaving = vec![Vec::new(); order.len()];
        for item in &order {
            let own = &mut last[*item as usize];
            *own = clearances.neighbours(*item).iter().fold(*own, |own, it| own.max(position[it.item as usize]));
            leaving[*own as usize].push(*item);
        }
        Self { clearances, order, position, last, leaving }
    }

    /// Searches for offsets with all ends within `capacity`, for at most `nodes` nodes. Returns how many were visited as
    /// well.
    pub(super) fn search(&self, capacity: u64, starts: StartOrder, nodes: u64) -> (SearchEnd, u64) {
        let count = self.order.len();
        let mut walk = Walk::new(self, capacity, starts, nodes);
        let (mut depth, mut visited) = (0, 0);
        walk.open(0);
        loop {
            if depth == count {
                return (SearchEnd::Found(walk.offsets), visited);
            }
            if visited >= nodes {
                return (SearchEnd::Stopped, visited);
            }
            let Some(start) = walk.frames[depth].starts.pop() else {
                walk.dead.insert(walk.frames[depth].state, depth);
                let Some(before) = depth.checked_sub(1) else { return (SearchEnd::Exhausted, visited) };
                // Elsewhere the item before would leave the same frontier.
                if (self.last[self.order[before] as usize] as usize) < depth {
                    walk.frames[before].starts.clear();
                }
                depth = before;
                continue;
            };
            visited += 1;
            walk.offsets[self.order[depth] as usize] = start;
            let state = self.state_behind(depth, walk.frames[depth].state, &walk.offsets);
            if !walk.dead.contains(state, depth + 1) {
                depth += 1;
                walk.frames[depth].state = state;
                walk.open(depth);
            }
        }
    }

    /// Returns the hash of the frontier behind the item at `depth`.
    fn state_behind(&self, depth: usize, state: u64, offsets: &[u64]) -> u64 {
        let hash = |item: u32| mix(offsets[item as usize] ^ mix(u64::from(item) + 1));
        self.leaving[depth].iter().fold(state ^ hash(self.order[depth]), |state, item| state ^ hash(*item))
    }
}

/// One search: the current path and what is known of others.
struct Walk<'a> {
    search: &'a Backtracking<'a>,
    capacity: u64,
    starts: StartOrder,
    random: RandomGenerator,
    /// The offsets of the items on the path.
    offsets: Vec<u64>,
    /// One for each depth, and one for the end.
    frames: Vec<Frame>,
    dead: DeadStates,
    forbidden: ForbiddenStarts,
}

impl<'a> Walk<'a> {
    fn new(search: &'a Backtracking<'a>, capacity: u64, starts: StartOrder, nodes: u64) -> Self {
        let count = search.order.len();
        let seed = if let StartOrder::Random(seed) = starts { seed } else { 0 };
        let mut frames = Vec::new();
        frames.resize_with(count + 1, Frame::default);
        Self {
            search,
            capacity,
            starts,
            random: RandomGenerator::new(seed),
            offsets: vec![0; count],
            frames,
            dead: DeadStates::new(nodes),
            forbidden: ForbiddenStarts::default(),
        }
    }

    /// Lists the starts of the item at `depth`, the first to try last.
    fn open(&mut self, depth: usize) {
        let found = &mut self.frames[depth].starts;
        found.clear();
        let Some(index) = self.search.order.get(depth) else { return };
        let clearances = self.search.clearances;
        let item = &clearances.items[*index as usize];
        let Some(last) = self.capacity.checked_sub(item.bytes) else { return };
        self.forbidden.clear();
        for neighbour in clearances.neighbours(*index) {
            if (self.search.position[neighbour.item as usize] as usize) < depth {
                self.forbidden.add(neighbour, self.offsets[neighbour.item as usize]);
            }
        }
        self.forbidden.gaps(item.align, last, |low, high| {
            match item.pinned {
                Some(place) if low <= place.offset.0 && place.offset.0 <= high => found.push(place.offset.0),
                Some(_) => {}
                None if low == high => found.push(low),
                None => found.extend([low, high]),
            }
            true
        });
        match self.starts {
            StartOrder::Low => found.reverse(),
            StartOrder::High => {}
            StartOrder::Outer => found.sort_by_key(|start| Reverse((*start).min(last - *start))),
            StartOrder::Random(_) => {
                for at in (1..found.len()).rev() {
                    found.swap(at, (self.random.next() % (at as u64 + 1)) as usize);
                }
            }
        }
    }
}

/// Dead states in a table that forgets: each slot keeps the latest.
struct DeadStates {
    slots: Vec<u64>,
}

impl DeadStates {
    fn new(nodes: u64) -> Self {
        let wanted = usize::try_from(nodes).unwrap_or(MAX_REMEMBERED).clamp(64, MAX_REMEMBERED);
        Self { slots: vec![0; wanted.next_power_of_two()] }
    }

    fn key(&self, state: u64, depth: usize) -> (usize, u64) {
        let key = mix(state ^ (depth as u64).rotate_left(40)) | 1;
        ((key >> 20) as usize & (self.slots.len() - 1), key)
    }

    fn insert(&mut self, state: u64, depth: usize) {
        let (slot, key) = self.key(state, depth);
        self.slots[slot] = key;
    }

    fn contains(&self, state: u64, depth: usize) -> bool {
        let (slot, key) = self.key(state, depth);
        self.slots[slot] == key
    }
}

/// Spreads the bits of a number (splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
fn mix(number: u64) -> u64 {
    let mut it = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    it ^ (it >> 31)
}
