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

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::live_bytes::UnitOrder;
use super::model::{OrderModel, RootId, UnitId};
use crate::MemoryId;

/// Returns the least number of bytes of a memory that are live during `unit`, in whatever order. `section` has its place, and
/// `live` bytes are live before that. O(edges of the section).
pub(super) fn least_during(
    model: &OrderModel,
    order: &UnitOrder,
    section: &Range<usize>,
    live: u64,
    unit: UnitId,
    memory: MemoryId,
) -> u64 {
    let ordered = SectionNeighbours::new(model, order, section, unit);
    let mut touched: BTreeMap<RootId, TouchedRoot> = BTreeMap::new();
    for place in section.clone() {
        let id = order.units[place];
        let (is_done, is_later) =
            (id == unit || ordered.precedes[place - section.start], ordered.follows[place - section.start]);
        for root in model.uses(id).iter().filter(|root| model.roots[**root].memory == memory) {
            let is_needed =
                model.roots[*root].is_kept || order.last[*root].is_some_and(|last| last as usize >= section.end);
            let it = touched.entry(*root).or_insert(TouchedRoot { is_before: true, is_made: true, is_needed });
            it.is_needed |= is_later;
            if model.units[id].makes == Some(*root) {
                (it.is_before, it.is_made) = (false, is_done);
            }
        }
    }
    let may_die = |root: RootId| touched.get(&root).is_some_and(|it| !it.is_needed);
    let makes_here = model.units[unit].makes.is_some_and(|root| model.roots[root].memory == memory);
    // Whichever is chosen, it saves no more than the largest.
    let savings = model.savings(unit).iter().filter(|saving| makes_here && may_die(saving.root));
    let saved = savings.map(|saving| saving.bytes).max().unwrap_or(0);
    let uses = model.uses(unit);
    let sum = |is: &dyn Fn(&RootId, &TouchedRoot) -> bool| -> u64 {
        touched.iter().filter(|(root, it)| is(root, it)).map(|(root, _)| model.roots[*root].size).sum()
    };
    let beside = live.saturating_sub(sum(&|_, it| it.is_before));
    (beside + sum(&|root, it| it.is_made && (it.is_needed || uses.contains(root)))).saturating_sub(saved)
}

/// What is known of a root that a section touches.
struct TouchedRoot {
    /// Whether it is there before the section.
    is_before: bool,
    /// Whether it is there at the unit, whatever the order.
    is_made: bool,
    /// Whether it is needed behind the unit, whatever the order.
    is_needed: bool,
}

/// Which units of a section come before and after one, whatever the order; by their places in it. All other units are where
/// they are.
struct SectionNeighbours {
    precedes: Vec<bool>,
    follows: Vec<bool>,
}

impl SectionNeighbours {
    fn new(model: &OrderModel, order: &UnitOrder, section: &Range<usize>, unit: UnitId) -> Self {
        let precedes = reached(order, section, unit, |unit| model.before(unit));
        let follows = reached(order, section, unit, |unit| model.after(unit));
        Self { precedes, follows }
    }
}

fn reached<'m>(
    order: &UnitOrder,
    section: &Range<usize>,
    start: UnitId,
    next: impl Fn(UnitId) -> &'m [UnitId],
) -> Vec<bool> {
    let (mut marks, mut path) = (vec![false; section.len()], vec![start]);
    while let Some(unit) = path.pop() {
        for &other in next(unit) {
            let place = order.place[other] as usize;
            if section.contains(&place) && !core::mem::replace(&mut marks[place - section.start], true) {
                path.push(other);
            }
        }
    }
    marks
}

/// The places between two cuts, or the ends of a run: the units there are done there in whatever order.
pub(super) struct Sections {
    /// Where each section starts, and the end of the last.
    bounds: Vec<usize>,
}

impl Sections {
    /// Finds all cuts. O(edges).
    pub(super) fn new(model: &OrderModel, order: &UnitOrder) -> Self {
        let mut bounds = vec![0];
        for run in &model.runs {
            bounds.extend(cuts(model, order, run).map(|cut| cut + 1));
            bounds.push(run.end);
        }
        bounds.dedup();
        Self { bounds }
    }

    /// Returns the section of a place.
    pub(super) fn at(&self, place: usize) -> Range<usize> {
        let index = self.bounds.partition_point(|bound| *bound <= place);
        self.bounds[index - 1]..self.bounds.get(index).copied().unwrap_or(place + 1)
    }
}

/// Returns the places of a run whose unit all others come before or after, in whatever order.
fn cuts(model: &OrderModel, order: &UnitOrder, run: &Range<usize>) -> impl Iterator<Item = usize> {
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
    let start = run.start;
    run.clone().filter(move |place| {
        let index = place - start;
        let is_end = index == 0 || needed_by[index - 1] <= *place;
        is_end && waits_for.get(index + 1).is_none_or(|least| least.is_some_and(|least| least >= *place))
    })
}
