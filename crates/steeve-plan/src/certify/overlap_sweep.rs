//! The sweep over problems in which some blocks may overlap a source that dies at their first step.
//!
//! A source and the block that overlaps it share bytes at one step only, and at that step neither is in another such
//! pair. So as soon as the result is born the two count as one range; when the source dies, the result is alone again:
//!
//! ```text
//!   step before      the shared step             step after
//!   [ source )       [ result + source     )     [ result   )
//! ```
//!
//! The ranges in the set are disjoint at every moment, and the argument of the ordinary sweep holds: a new range can
//! overlap only its two neighbours. The range of a pair has the rank of the result, which starts at or below its source.

use alloc::vec;
use alloc::vec::Vec;

use super::{LivenessSweep, RankSet, keeps_distance};
use crate::{Block, BlockId, Bytes, Id, IdVec, Place, Problem, Step};

/// What is known of the block that may overlap a source.
#[derive(Clone, Copy)]
struct OverlappingResult {
    block: u32,
    /// By how much the bound counts the two as less than apart.
    saving: u64,
}

impl LivenessSweep {
    /// Does what [`LivenessSweep::sweep`] does, with permission for blocks to overlap their sources: returns the least
    /// bytes that any placement of the live blocks needs, at their most, and the first step at which it does. Returns
    /// `None` if two live blocks share a byte without permission.
    pub(super) fn sweep_with_overlaps(
        mut self,
        problem: &Problem,
        places: &IdVec<BlockId, Place>,
    ) -> Option<(Bytes, Option<Step>)> {
        let results = results_by_source(problem);
        let mut alive = RankSet::new(self.spans.len());
        let (mut live, mut most) = (0u64, 0u64);
        let mut step = self.births.first().map(|birth| Step(birth.0));
        let mut dead = 0;
        for at in 0..self.births.len() {
            let (now, born) = self.births[at];
            while let Some((_, block)) = self.deaths.get(dead).filter(|death| death.0 <= now).copied() {
                dead += 1;
                live -= self.bury(block, &results, problem, places, &mut alive);
            }
            let rank = self.ranks[born as usize];
            let bytes = bytes(&problem.blocks().as_slice()[born as usize]);
            let saving = self.join_source(born, &results, problem, places, &mut alive);
            let (start, end) = self.spans[rank as usize];
            let pushed = alive.before(rank).is_some_and(|it| start < self.spans[it as usize].1);
            let pushes = alive.after(rank).is_some_and(|it| self.spans[it as usize].0 < end);
            if pushed || pushes {
                return None;
            }
            alive.insert(rank);
            live += bytes - saving;
            if live > most {
                (most, step) = (live, Some(Step(now)));
            }
        }
        Some((Bytes(most), step))
    }

    /// Removes a dead block, and leaves the block that overlapped it alone. Returns by how much that lowers the live
    /// bytes.
    fn bury(
        &mut self,
        block: u32,
        results: &[Option<OverlappingResult>],
        problem: &Problem,
        places: &IdVec<BlockId, Place>,
        alive: &mut RankSet,
    ) -> u64 {
        let rank = self.ranks[block as usize];
        // A source that is part of another range is not in the set, and removing it changes nothing.
        alive.remove(rank);
        let (blocks, places) = (problem.blocks().as_slice(), places.as_slice());
        // Not those of its range, of which its source may still be a part: both may die at the same step.
        let bytes = bytes(&blocks[block as usize]);
        let Some(result) = results[block as usize] else { return bytes };
        let result_rank = self.ranks[result.block as usize] as usize;
        let at = result.block as usize;
        if blocks[at].size > Bytes::ZERO {
            let base = self.spans[result_rank].0 - places[at].offset.0;
            self.spans[result_rank].1 = base + super::end(places[at], &blocks[at]);
        }
        bytes - result.saving
    }

    /// Makes one range of a new block and its source if they share bytes and may. Returns by how much the bound counts
    /// the two as less than apart, whether they share bytes here or not.
    fn join_source(
        &mut self,
        born: u32,
        results: &[Option<OverlappingResult>],
        problem: &Problem,
        places: &IdVec<BlockId, Place>,
        alive: &mut RankSet,
    ) -> u64 {
        let block = &problem.blocks().as_slice()[born as usize];
        let Some(overlap) = block.overlaps else { return 0 };
        let source = overlap.source.index();
        if problem.blocks()[overlap.source].size > Bytes::ZERO {
            let (source_place, place) = (places[overlap.source], places.as_slice()[born as usize]);
            let (rank, source_rank) = (self.ranks[born as usize], self.ranks[source]);
            let (_, end) = self.spans[rank as usize];
            let (source_start, source_end) = self.spans[source_rank as usize];
            let permitted = keeps_distance(overlap, source_place.offset.0, place.offset.0);
            if source_place.buffer == place.buffer && permitted && source_start < end {
                alive.remove(source_rank);
                self.spans[rank as usize].1 = end.max(source_end);
            }
        }
        results[source].map_or(0, |result| result.saving)
    }
}

/// Returns, for each block, the one that may overlap it.
fn results_by_source(problem: &Problem) -> Vec<Option<OverlappingResult>> {
    let blocks = problem.blocks();
    let mut results = vec![None; blocks.len()];
    for (block, it) in (0..).zip(blocks) {
        if let Some(overlap) = it.overlaps {
            let saving = saving(&blocks[overlap.source], it, overlap.distance);
            results[overlap.source.index()] = Some(OverlappingResult { block, saving });
        }
    }
    results
}

/// Returns the most bytes that a source and its result can share. Offsets are multiples of both alignments' smaller one,
/// and so is their difference, which is at least the distance.
fn saving(source: &Block, result: &Block, distance: Bytes) -> u64 {
    let grain = source.align.get().min(result.align.get());
    let Some(apart) = distance.0.div_ceil(grain).checked_mul(grain) else { return 0 };
    bytes(source).min(bytes(result).saturating_sub(apart))
}

fn bytes(block: &Block) -> u64 {
    block.occupied().map_or(0, Bytes::get)
}
