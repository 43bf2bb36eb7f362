//! A better order in, one nearer to the caller's with no higher peak out: neighbours in the caller's order may be what a
//! backend fuses, and what is near in time is near in caches.
//!
//! Neighbours that the caller has the other way round are exchanged where neither waits for the other and the peak allows it,
//! as in insertion sort. Every exchange removes one inversion, so there is an end.

use alloc::vec::Vec;

use super::live_bytes::{LiveProfile, UnitOrder};
use super::model::{OrderModel, RootId, UnitId};
use crate::MemoryId;

/// Moves units back. `limits` has the most bytes that may be live in each memory; no more than `tries` pairs are looked at.
pub(super) fn settle(model: &OrderModel, order: &mut UnitOrder, limits: &[(MemoryId, u64)], mut tries: u64) {
    let mut live: Vec<(MemoryId, u64, Vec<u64>)> = Vec::new();
    for &(memory, limit) in limits {
        live.push((memory, limit, LiveProfile::new(model, order, memory).before));
    }
    loop {
        let mut has_moved = false;
        for run in &model.runs {
            for first in run.start + 1..run.end {
                let mut place = first;
                while place > run.start && tries > 0 {
                    tries -= 1;
                    if !exchange(model, order, &mut live, place - 1) {
                        break;
                    }
                    (has_moved, place) = (true, place - 1);
                }
            }
        }
        if !has_moved || tries == 0 {
            return;
        }
    }
}

/// Exchanges the units at `place` and behind it, if the caller has them the other way round and no memory needs more than it
/// may. Returns whether it has.
fn exchange(model: &OrderModel, order: &mut UnitOrder, live: &mut [(MemoryId, u64, Vec<u64>)], place: usize) -> bool {
    let (one, other) = (order.units[place], order.units[place + 1]);
    if one < other {
        return false;
    }
    debug_assert!(!model.before(other).contains(&one), "a unit waits only for those that the caller has before it");
    let uses = |unit: UnitId, root: RootId| model.uses(unit).contains(&root);
    let last = |root: RootId| order.last[root].map_or(usize::MAX, |last| last as usize);
    let frees = |root: RootId, is_freed: bool| !model.roots[root].is_kept && is_freed;
    let dies_first = |root: RootId| frees(root, last(root) == place + 1 && !uses(one, root));
    let dies_then = |root: RootId| frees(root, last(root) <= place + 1);
    let mut between = Vec::with_capacity(live.len());
    for (memory, limit, before) in live.iter() {
        let (during_other, after_other) = step(model, before[place], other, *memory, dies_first);
        let (during_one, _) = step(model, after_other, one, *memory, dies_then);
        if during_other.max(during_one) > *limit {
            return false;
        }
        between.push(after_other);
    }
    for ((.., before), bytes) in live.iter_mut().zip(between) {
        before[place + 1] = bytes;
    }
    order.exchange(model, place);
    true
}

/// Returns the bytes that are live during and after a unit.
fn step(model: &OrderModel, live: u64, unit: UnitId, memory: MemoryId, dies: impl Fn(RootId) -> bool) -> (u64, u64) {
    let made = model.units[unit].makes.filter(|root| model.roots[*root].memory == memory);
    let during = live + made.map_or(0, |root| model.roots[root].size);
    let saved = if made.is_some() { model.saved(unit, &dies) } else { 0 };
    let freed = model.uses(unit).iter().filter(|root| model.roots[**root].memory == memory && dies(**root));
    (during - saved, during - freed.map(|root| model.roots[*root].size).sum::<u64>())
}

impl UnitOrder {
    fn exchange(&mut self, model: &OrderModel, place: usize) {
        let (one, other) = (self.units[place], self.units[place + 1]);
        self.units.swap(place, place + 1);
        (self.place[one], self.place[other]) = (place as u32 + 1, place as u32);
        let (first, second) = (Some(place as u32), Some(place as u32 + 1));
        for &root in model.uses(other) {
            if self.last[root] == second && !model.uses(one).contains(&root) {
                self.last[root] = first;
            }
        }
        for &root in model.uses(one) {
            if self.last[root] == first && !model.uses(other).contains(&root) {
                self.last[root] = second;
            }
        }
    }
}
