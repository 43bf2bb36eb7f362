//! An order in, how many bytes are live at each of its places out. O(edges).
//!
//! *Before* a unit are the bytes of all roots that are made and not freed; *during* it those, what it makes, less what its
//! result shares with a source that dies at it.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::IdVec;

use super::model::{OrderModel, RootId, UnitId};
use crate::MemoryId;

/// Units in an order, and the last place at which each root is used.
#[derive(Clone, Debug)]
pub(super) struct UnitOrder {
    pub(super) units: Vec<UnitId>,
    pub(super) place: IdVec<UnitId, u32>,
    /// The last place that uses each root; `None` if no unit does.
    pub(super) last: IdVec<RootId, Option<u32>>,
}

impl UnitOrder {
    pub(super) fn new(model: &OrderModel, units: Vec<UnitId>) -> Self {
        let place = IdVec::from(vec![0; units.len()]);
        let last = IdVec::from(vec![None; model.roots.len()]);
        let mut order = Self { units, place, last };
        order.update(model, 0..order.units.len());
        order
    }

    /// Puts other units at the places from `first`, which are those there in another order. O(edges of these).
    pub(super) fn replace(&mut self, model: &OrderModel, first: usize, units: &[UnitId]) {
        let places = first..first + units.len();
        self.units[places.clone()].copy_from_slice(units);
        self.update(model, places);
    }

    fn update(&mut self, model: &OrderModel, places: Range<usize>) {
        for place in places.clone() {
            let unit = self.units[place];
            self.place[unit] = place as u32;
            // What is used behind these places, too, is freed there.
            for root in model.uses(unit) {
                let last = &mut self.last[*root];
                if last.is_none_or(|last| (last as usize) < places.end) {
                    *last = Some(place as u32);
                }
            }
        }
    }

    /// Returns whether a root that is used at `place` is freed after it.
    pub(super) fn dies(&self, model: &OrderModel, root: RootId, place: usize) -> bool {
        !model.roots[root].is_kept && self.last[root] == Some(place as u32)
    }
}

/// The live bytes of one memory.
#[derive(Clone, Debug)]
pub(super) struct LiveProfile {
    /// Before the run, when all inputs are written.
    pub(super) at_start: u64,
    pub(super) before: Vec<u64>,
    pub(super) during: Vec<u64>,
}

impl LiveProfile {
    pub(super) fn new(model: &OrderModel, order: &UnitOrder, memory: MemoryId) -> Self {
        let (mut at_start, mut live) = (0, 0);
        for (id, root) in model.roots.pairs().filter(|(_, root)| root.memory == memory && root.is_early) {
            at_start += root.size;
            // What no unit uses is needed before the run alone.
            if root.is_kept || order.last[id].is_some() {
                live += root.size;
            }
        }
        let (mut before, mut during) = (Vec::with_capacity(order.units.len()), Vec::with_capacity(order.units.len()));
        for (place, &unit) in order.units.iter().enumerate() {
            before.push(live);
            let made = model.units[unit].makes.filter(|root| model.roots[*root].memory == memory);
            let saved = if made.is_some() { model.saved(unit, |root| order.dies(model, root, place)) } else { 0 };
            live += made.map_or(0, |root| model.roots[root].size);
            during.push(live - saved);
            for root in model.uses(unit).iter().filter(|root| order.dies(model, **root, place)) {
                let it = &model.roots[*root];
                live -= if it.memory == memory { it.size } else { 0 };
            }
        }
        Self { at_start, before, during }
    }

    /// Returns the most bytes that are live at once, and the first place where they are; `None` if that is before the run.
    pub(super) fn peak(&self) -> (u64, Option<usize>) {
        let mut peak = (self.at_start, None);
        for (place, &bytes) in self.during.iter().enumerate() {
            if bytes > peak.0 {
                peak = (bytes, Some(place));
            }
        }
        peak
    }
}
