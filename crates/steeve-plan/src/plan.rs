//! A proven plan, its profile and its figures.

use alloc::vec::Vec;

use crate::bound::occupied;
use crate::{BlockId, Bound, BufferId, Bytes, Id, IdVec, Place, Placement, Problem, Step};

/// A proven plan: aligned, in range, within its limits, and no two live blocks share a byte.
///
/// Only [`certify`](crate::certify) makes one, so a `Plan` need not be checked again. As a file it is a `PlanFile`
/// (feature `json`), and is certified again when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    problem: Problem,
    placement: Placement,
    buffers: IdVec<BufferId, Bytes>,
    peak: Bytes,
    bound: Bound,
}

impl Plan {
    /// Creates a plan. Only for [`certify`](crate::certify), which has proven each of these.
    pub(crate) fn proven(
        problem: Problem,
        placement: Placement,
        buffers: IdVec<BufferId, Bytes>,
        peak: Bytes,
        bound: Bound,
    ) -> Self {
        Self { problem, placement, buffers, peak, bound }
    }

    /// Returns the problem that the plan solves.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the place of each block.
    pub fn places(&self) -> &IdVec<BlockId, Place> {
        &self.placement.places
    }

    /// Returns the place of `block`.
    ///
    /// # Panics
    /// On a block of another, larger problem, as indexing does.
    pub fn place(&self, block: BlockId) -> Place {
        self.placement.places[block]
    }

    /// Returns the size of each buffer.
    pub fn buffers(&self) -> &IdVec<BufferId, Bytes> {
        &self.buffers
    }

    /// Returns the bytes that the plan needs: the sum of its buffers' sizes.
    pub fn peak(&self) -> Bytes {
        self.peak
    }

    /// Returns the fewest bytes that any plan of this problem needs.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Returns whether the plan needs no byte more than its bound, which proves that no plan is smaller.
    pub fn is_optimal(&self) -> bool {
        self.peak == self.bound.bytes
    }

    /// Computes live and wasted bytes over time: one entry for each step at which a block is born or dies. O(n log n).
    pub fn profile(&self) -> Vec<ProfilePoint> {
        let blocks = self.problem.blocks();
        let mut events: Vec<(Step, LifetimeEvent, BlockId)> = Vec::with_capacity(2 * blocks.len());
        for (id, block) in blocks.pairs().filter(|it| it.1.size > Bytes::ZERO) {
            events.push((block.life.start(), LifetimeEvent::Birth, id));
            events.push((block.life.end(), LifetimeEvent::Death, id));
        }
        events.sort_unstable();
        let mut tops: Vec<alloc::collections::BTreeSet<(u64, BlockId)>> = Vec::new();
        tops.resize_with(self.buffers.len(), Default::default);
        let mut shared_by_source = alloc::vec![0; blocks.len()];
        for (id, block) in blocks.pairs() {
            if let Some(overlap) = block.overlaps {
                shared_by_source[overlap.source.index()] = self.shared_with_source(id);
            }
        }
        let (mut live, mut top) = (0, 0);
        let mut points: Vec<ProfilePoint> = Vec::new();
        for (step, change, id) in events {
            let (bytes, place) = (occupied(&blocks[id]), self.place(id));
            let ends = &mut tops[place.buffer.index()];
            top -= ends.last().map_or(0, |end| end.0);
            match change {
                LifetimeEvent::Birth => {
                    live += bytes - self.shared_with_source(id);
                    ends.insert((place.offset.0 + bytes, id));
                }
                LifetimeEvent::Death => {
                    live -= bytes - shared_by_source[id.index()];
                    ends.remove(&(place.offset.0 + bytes, id));
                }
            }
            top += ends.last().map_or(0, |end| end.0);
            let point = ProfilePoint { step, live: Bytes(live), wasted: Bytes(top.saturating_sub(live)) };
            match points.last_mut() {
                Some(last) if last.step == step => *last = point,
                _ => points.push(point),
            }
        }
        points
    }

    /// Returns how many bytes a block shares with the source that it overlaps. They count once while both are alive.
    fn shared_with_source(&self, id: BlockId) -> u64 {
        let blocks = self.problem.blocks();
        let Some(overlap) = blocks[id].overlaps else { return 0 };
        let (place, source) = (self.place(id), self.place(overlap.source));
        if place.buffer != source.buffer {
            return 0;
        }
        let ends = [(place, id), (source, overlap.source)].map(|(place, id)| place.offset.0 + occupied(&blocks[id]));
        ends[0].min(ends[1]).saturating_sub(place.offset.0.max(source.offset.0))
    }

    /// Returns the figures of the plan as one plain value.
    pub fn report(&self) -> PlanReport {
        let alive = self.bound.step.map(|step| self.problem.alive_at(step));
        PlanReport {
            blocks: self.problem.blocks().len(),
            buffers: self.buffers.as_slice().to_vec(),
            peak: self.peak,
            bound: self.bound,
            optimal: self.is_optimal(),
            alive_at_bound: alive.unwrap_or_default(),
        }
    }
}

/// An event of the profile. Deaths sort before births.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LifetimeEvent {
    Death,
    Birth,
}

/// Live and wasted bytes of a plan from one step on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProfilePoint {
    /// From this step until the next entry's.
    pub step: Step,
    /// The bytes that live blocks occupy; those that two of them share count once.
    pub live: Bytes,
    /// The bytes of holes below the highest live block, summed over the buffers.
    pub wasted: Bytes,
}

/// The figures of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PlanReport {
    /// How many blocks it places.
    pub blocks: usize,
    /// The size of each buffer.
    pub buffers: Vec<Bytes>,
    /// Their sum.
    pub peak: Bytes,
    /// The fewest bytes that any plan needs.
    pub bound: Bound,
    /// Whether the peak is at the bound.
    pub optimal: bool,
    /// The blocks alive at the bound's step.
    pub alive_at_bound: Vec<BlockId>,
}
