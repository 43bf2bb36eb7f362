//! Up to 64 consecutive units in, an order of them with a lower peak out.
//!
//! A state is the set of units that are done, one bit each; live bytes depend on the set alone and not on the order in which
//! its units were done. States are taken by the least peak on the way to them, so the first complete one is the best.
//!
//! *The eager rule*: a ready unit that frees at least as much as it makes, and stays below the peak that is to be beaten, is
//! done at once. Whatever order beats that peak from here still does with this unit moved to its front: nothing after it has
//! more live bytes, and sources die no later.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::cmp::Reverse;
use core::ops::Range;

use super::live_bytes::UnitOrder;
use super::model::{OrderModel, RootId, UnitId};
use crate::MemoryId;

/// The most units that a window has: the bits of a state.
pub(super) const MAX_UNITS: usize = 64;

/// Consecutive units of one run.
pub(super) struct Window<'a> {
    model: &'a OrderModel,
    units: &'a [UnitId],
    /// By unit: those of the window that it must wait for.
    before: Vec<u64>,
    /// By unit: the bytes that it makes.
    made: Vec<u64>,
    /// By unit: the roots of the memory that it uses, in `roots`.
    uses: Vec<Range<usize>>,
    used: Vec<usize>,
    roots: Vec<WindowRoot>,
    /// How many units were tried.
    steps: Cell<u64>,
}

struct WindowRoot {
    root: RootId,
    size: u64,
    /// The units of the window that use it; none where others use it later.
    users: Option<u64>,
}

/// What a search in a window has found.
pub(super) struct WindowAnswer {
    /// An order whose peak is below the one to be beaten.
    pub(super) order: Option<Vec<UnitId>>,
    /// Whether all was searched: without an order there is none.
    pub(super) is_complete: bool,
    /// How many units were tried after some others.
    pub(super) steps: u64,
}

/// Units that are done, and the bytes that are live then.
#[derive(Clone, Copy)]
struct DoneUnits {
    set: u64,
    live: u64,
    /// The most bytes that were live on the way.
    peak: u64,
}

struct WindowState {
    done: DoneUnits,
    from: Option<usize>,
    /// The units done since `from`, in `steps`.
    steps: Range<usize>,
}

impl<'a> Window<'a> {
    /// Returns the window of the units at these places, for one memory.
    pub(super) fn new(model: &'a OrderModel, order: &'a UnitOrder, places: Range<usize>, memory: MemoryId) -> Self {
        let units = &order.units[places.clone()];
        let mut window = Self {
            model,
            units,
            before: Vec::new(),
            made: Vec::new(),
            uses: Vec::new(),
            used: Vec::new(),
            roots: Vec::new(),
            steps: Cell::new(0),
        };
        for (index, &unit) in units.iter().enumerate() {
            let place = |before: &UnitId| (order.place[*before] as usize).checked_sub(places.start);
            let bits = model.before(unit).iter().filter_map(place).filter(|local| *local < units.len());
            window.before.push(bits.fold(0, |set, local| set | 1 << local));
            let made = model.units[unit].makes.map(|root| &model.roots[root]).filter(|root| root.memory == memory);
            window.made.push(made.map_or(0, |root| root.size));
            let first = window.used.len();
            for &root in model.uses(unit).iter().filter(|root| model.roots[**root].memory == memory) {
                let local = window.root(order, root, places.end);
                if let Some(users) = &mut window.roots[local].users {
                    *users |= 1 << index;
                }
                window.used.push(local);
            }
            window.uses.push(first..window.used.len());
        }
        window
    }

    fn root(&mut self, order: &UnitOrder, root: RootId, end: usize) -> usize {
        if let Some(known) = self.roots.iter().position(|it| it.root == root) {
            return known;
        }
        let it = &self.model.roots[root];
        let is_needed_later = it.is_kept || order.last[root].is_some_and(|last| last as usize >= end);
        self.roots.push(WindowRoot { root, size: it.size, users: (!is_needed_later).then_some(0) });
        self.roots.len() - 1
    }

    /// Searches for an order whose peak is below `limit`, from `live` bytes at the window's start. Keeps at most `states`, and
    /// tries about as many as `most_steps` units.
    pub(super) fn search(&self, live: u64, limit: u64, states: usize, most_steps: u64) -> WindowAnswer {
        let full = if self.units.len() == MAX_UNITS { u64::MAX } else { (1 << self.units.len()) - 1 };
        let mut search = WindowSearch::new(states);
        let mut steps = Vec::new();
        let start = self.run_eagerly(DoneUnits { set: 0, live, peak: 0 }, limit, &mut steps);
        search.push(start, None, &steps);
        while let Some(index) = search.pop() {
            let done = search.states[index].done;
            if done.set == full {
                return search.answer(Some(index), self);
            }
            if self.steps.get() >= most_steps {
                search.is_complete = false;
                break;
            }
            for unit in self.ready(done.set) {
                let next = self.done(done, unit);
                if next.peak >= limit {
                    continue;
                }
                steps.clear();
                steps.push(unit as u8);
                let next = self.run_eagerly(next, limit, &mut steps);
                search.push(next, Some(index), &steps);
            }
        }
        search.answer(None, self)
    }

    /// Returns the units that wait for none that is not done.
    fn ready(&self, set: u64) -> impl Iterator<Item = usize> {
        (0..self.units.len()).filter(move |unit| set >> unit & 1 == 0 && self.before[*unit] & !set == 0)
    }

    /// Does what can be done without needing more bytes afterwards.
    fn run_eagerly(&self, mut done: DoneUnits, limit: u64, steps: &mut Vec<u8>) -> DoneUnits {
        loop {
            let candidates = self.ready(done.set).map(|unit| (unit, self.done(done, unit)));
            let Some((unit, next)) = { candidates }.find(|(_, next)| next.live <= done.live && next.peak < limit)
            else {
                return done;
            };
            steps.push(unit as u8);
            done = next;
        }
    }

    /// Returns the state after one more unit.
    fn done(&self, done: DoneUnits, unit: usize) -> DoneUnits {
        self.steps.set(self.steps.get() + 1);
        let set = done.set | 1 << unit;
        let during = done.live + self.made[unit];
        let (mut live, mut saved) = (during, 0);
        for &local in &self.used[self.uses[unit].clone()] {
            let root = &self.roots[local];
            live -= if root.users.is_some_and(|users| users & !set == 0) { root.size } else { 0 };
        }
        if live < during && self.made[unit] > 0 {
            saved = self.model.saved(self.units[unit], |root| self.dies(unit, root, set));
        }
        DoneUnits { set, live, peak: done.peak.max(during - saved) }
    }

    fn dies(&self, unit: usize, root: RootId, set: u64) -> bool {
        let mut used = self.used[self.uses[unit].clone()].iter().map(|local| &self.roots[*local]);
        used.find(|it| it.root == root).is_some_and(|it| it.users.is_some_and(|users| users & !set == 0))
    }
}

/// The states of a search, by their sets.
struct WindowSearch {
    most: usize,
    is_complete: bool,
    states: Vec<WindowState>,
    steps: Vec<u8>,
    /// The least peak first; of equal ones the one with most units done, and then the oldest.
    open: BinaryHeap<(Reverse<u64>, u32, Reverse<usize>)>,
    /// Where the state of a set is, as one more than its index, by the hash of the set; a power of two, never full.
    table: Vec<u32>,
}

impl WindowSearch {
    fn new(most: usize) -> Self {
        let table = vec![0; (most + 1).saturating_mul(2).next_power_of_two()];
        let (states, steps, open) = (Vec::new(), Vec::new(), BinaryHeap::new());
        Self { most, is_complete: true, states, steps, open, table }
    }

    /// Returns the slot of a set: its own, or the free one where it belongs.
    fn slot(&self, set: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = (set.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.table[slot] != 0 && self.states[self.table[slot] as usize - 1].done.set != set {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn push(&mut self, done: DoneUnits, from: Option<usize>, steps: &[u8]) {
        let slot = self.slot(done.set);
        let known = (self.table[slot] as usize).checked_sub(1);
        if known.is_some_and(|known| self.states[known].done.peak <= done.peak) {
            return;
        }
        let first = self.steps.len();
        let state = WindowState { done, from, steps: first..first + steps.len() };
        let index = match known {
            Some(known) => {
                self.states[known] = state;
                known
            }
            None if self.states.len() >= self.most => {
                self.is_complete = false;
                return;
            }
            None => {
                self.states.push(state);
                self.table[slot] = self.states.len() as u32;
                self.states.len() - 1
            }
        };
        self.steps.extend_from_slice(steps);
        self.open.push((Reverse(done.peak), done.set.count_ones(), Reverse(index)));
    }

    fn pop(&mut self) -> Option<usize> {
        while let Some((Reverse(peak), _, Reverse(index))) = self.open.pop() {
            // A state that was reached with a lower peak since is open a second time.
            if self.states[index].done.peak == peak {
                return Some(index);
            }
        }
        None
    }

    fn answer(self, complete: Option<usize>, window: &Window<'_>) -> WindowAnswer {
        let units = window.units;
        let order = complete.map(|last| {
            let (mut order, mut at) = (Vec::with_capacity(units.len()), Some(last));
            while let Some(index) = at {
                let state = &self.states[index];
                order.extend(self.steps[state.steps.clone()].iter().rev().map(|step| units[*step as usize]));
                at = state.from;
            }
            order.reverse();
            order
        });
        WindowAnswer { order, is_complete: self.is_complete, steps: window.steps.get() }
    }
}
