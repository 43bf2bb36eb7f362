//! What no order can avoid.
//!
//! - *At a unit*, in whatever order: the bytes of what it uses and makes, of what its predecessors made and its successors
//!   use, and of what is kept. If that is the peak, no order is better.
//! - *Between cuts*: a unit that every other one of its run comes before or after, in whatever order, cuts the run in two. So
//!   an order of the units between two cuts can be judged by itself, and a search through all of them proves that no order
//!   is better.
//!
//! ```text
//!     o   o             o             every path passes through c and d, so the units
//!      \ / \           / \            between them are done between them
//!       c   o   ->  ..c   d..
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::{Id, IdVec};

use super::live_bytes::UnitOrder;
use super::model::{OrderModel, RootId, UnitId};
use crate::MemoryId;

/// Returns the least number of bytes of a memory that are live during `unit`, in whatever order. O(edges).
pub(super) fn least_during(model: &OrderModel, unit: UnitId, memory: MemoryId) -> u64 {
    let ordered = RunNeighbours::new(model, unit);
    let mut is_made: IdVec<RootId, bool> = model.roots.iter().map(|root| root.is_early).collect::<Vec<_>>().into();
    let mut is_needed: IdVec<RootId, bool> = vec![false; model.roots.len()].into();
    for id in model.units.ids() {
        if id == unit || ordered.precedes[id] {
            model.units[id].makes.into_iter().for_each(|root| is_made[root] = true);
        }
        if ordered.follows[id] {
            model.uses(id).iter().for_each(|root| is_needed[*root] = true);
        }
    }
    let may_die = |root: RootId| !model.roots[root].is_kept && !is_needed[root];
    let in_memory = |root: &RootId| model.roots[*root].memory == memory;
    let makes_here = model.units[unit].makes.as_ref().is_some_and(in_memory);
    // Whichever is chosen, it saves no more than the largest.
    let savings = model.savings(unit).iter().filter(|saving| makes_here && may_die(saving.root));
    let saved = savings.map(|saving| saving.bytes).max().unwrap_or(0);
    let uses = model.uses(unit);
    let is_live = |root: &RootId| {
        let it = &model.roots[*root];
        it.memory == memory && is_made[*root] && (is_needed[*root] || it.is_kept || uses.contains(root))
    };
    let live: u64 = model.roots.ids().filter(is_live).map(|root| model.roots[root].size).sum();
    live.saturating_sub(saved)
}

/// Which units come before and after one, whatever the order.
struct RunNeighbours {
    precedes: IdVec<UnitId, bool>,
    follows: IdVec<UnitId, bool>,
}

impl RunNeighbours {
    fn new(model: &OrderModel, unit: UnitId) -> Self {
        let run = run_of(model, unit.index());
        let mark = |units: Range<usize>| -> IdVec<UnitId, bool> {
            (0..model.units.len()).map(|index| units.contains(&index)).collect::<Vec<_>>().into()
        };
        // All other runs are where they are.
        let (mut precedes, mut follows) = (mark(0..run.start), mark(run.end..model.units.len()));
        mark_reached(&mut precedes, unit, |unit| model.before(unit));
        mark_reached(&mut follows, unit, |unit| model.after(unit));
        Self { precedes, follows }
    }
}

fn mark_reached<'m>(marks: &mut IdVec<UnitId, bool>, start: UnitId, next: impl Fn(UnitId) -> &'m [UnitId]) {
    let mut path = vec![start];
    while let Some(unit) = path.pop() {
        for &other in next(unit) {
            if !core::mem::replace(&mut marks[other], true) {
                path.push(other);
            }
        }
    }
}

/// Returns the run of a unit, or of a place: runs stay where they are.
pub(super) fn run_of(model: &OrderModel, place: usize) -> Range<usize> {
    let index = model.runs.partition_point(|run| run.end <= place);
    model.runs.get(index).cloned().unwrap_or(place..place + 1)
}

/// Returns the places between two cuts, or the ends of its run, around `place`. Units of other places are done before or after
/// these, in whatever order. O(edges of the run).
pub(super) fn section(model: &OrderModel, order: &UnitOrder, place: usize) -> Range<usize> {
    let run = run_of(model, place);
    let at = |unit: &UnitId| order.place[*unit] as usize;
    let units = || run.clone().map(|place| order.units[place]);
    // Each must be waited for by one up to the cut, and wait for one from the cut on.
    let mut needed_by: Vec<usize> =
        units().map(|unit| model.after(unit).iter().map(at).min().unwrap_or(usize::MAX)).collect();
    let mut waits_for: Vec<Option<usize>> =
        units().map(|unit| model.before(unit).iter().map(at).max().filter(|at| *at >= run.start)).collect();
    for index in 1..needed_by.len() {
        needed_by[index] = needed_by[index].max(needed_by[index - 1]);
    }
    for index in (1..waits_for.len()).rev() {
        waits_for[index - 1] = waits_for[index - 1].min(waits_for[index]);
    }
    let is_cut = |place: &usize| {
        let index = place - run.start;
        let is_end = index == 0 || needed_by[index - 1] <= *place;
        is_end && waits_for.get(index + 1).is_none_or(|least| least.is_some_and(|least| least >= *place))
    };
    let start = (run.start..place).rev().find(is_cut).map_or(run.start, |cut| cut + 1);
    let end = (place..run.end).find(is_cut).map_or(run.end, |cut| cut + 1);
    start..end
}
