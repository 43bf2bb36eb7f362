//! The state at a node of the search, and what follows from it without branching.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::packing::Packing;

/// Heights in units: a common divisor of all sizes.
pub(super) type Height = i64;

/// The most items, each counted once for each of its sections, that can be searched: a node scans all of them several
/// times.
const MAX_CELLS: u64 = 20_000_000;

/// Above every height.
const NEVER: Height = Height::MAX;

/// The packing, the skyline, and the derived floors and lowest offsets.
#[derive(Clone, Debug)]
pub(super) struct SearchState {
    lo: Vec<u32>,
    hi: Vec<u32>,
    size: Vec<Height>,
    /// The alignment of each offset, where stacks are not aligned by themselves: powers of two.
    align: Option<Vec<Height>>,
    load: Vec<Height>,
    capacity: Height,
    /// The top of what is placed over each section.
    pub(super) skyline: Vec<Height>,
    /// No unplaced item over the section starts lower. Not below `sky`.
    pub(super) floor: Vec<Height>,
    /// What must still be placed over the section.
    pub(super) remaining: Vec<Height>,
    /// For each unplaced item, the highest floor over its sections: it can't start lower.
    pub(super) lowest_offset: Vec<Height>,
    offset: Vec<Height>,
    failures: FailureWeights,
    /// Scratch memory: one number per section, used within a function.
    scratch: Vec<Height>,
}

/// A range of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectionRange {
    pub(super) lo: usize,
    pub(super) hi: usize,
}

impl SectionRange {
    pub(super) fn range(self) -> Range<usize> {
        self.lo..self.hi
    }

    pub(super) fn contains(self, section: usize) -> bool {
        self.lo <= section && section < self.hi
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.lo < other.hi && other.lo < self.hi
    }

    fn meet(self, other: Self) -> Self {
        Self { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    fn join(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }
}

/// Failures per section, later ones with more weight (the dom/wdeg rule of constraint solvers: Boussemart et al.,
/// "Boosting systematic search by weighting constraints", ECAI 2004).
#[derive(Clone, Debug)]
pub(super) struct FailureWeights {
    weight: Vec<f64>,
    step: f64,
}

impl FailureWeights {
    pub(super) fn at(&self, section: usize) -> f64 {
        self.weight[section]
    }

    /// Returns the largest weight over a range, relative to the largest anywhere.
    pub(super) fn over(&self, span: SectionRange) -> f64 {
        let most = self.weight.iter().copied().fold(1e-300, f64::max);
        self.weight[span.range()].iter().copied().fold(0.0, f64::max) / most
    }

    fn count(&mut self, section: usize) {
        self.weight[section] += self.step;
    }

    /// Makes later failures count a little more.
    fn age(&mut self) {
        self.step *= 1.05;
        if self.step > 1e100 {
            self.weight.iter_mut().for_each(|weight| *weight *= 1e-100);
            self.step *= 1e-100;
        }
    }
}

impl SearchState {
    /// Creates the state of an empty skyline. Returns `None` if the heights do not fit their type with room to add two,
    /// or if a single node would take too long.
    pub(super) fn new(packing: &Packing, unit: u64, capacity: u64) -> Option<Self> {
        let align: Option<Vec<Height>> =
            packing.align.as_ref().map(|align| align.iter().map(|it| (it / unit) as Height).collect());
        let padding = packing.align.iter().flatten().map(|align| align / unit);
        let heights = packing.size.iter().map(|size| size / unit).chain(padding);
        let total = heights.into_iter().try_fold(0u64, |sum, height| sum.checked_add(height))?;
        if total >= Height::MAX as u64 / 4 || packing.len() >= u32::MAX as usize {
            return None;
        }
        let size: Vec<Height> = packing.size.iter().map(|size| (size / unit) as Height).collect();
        let width: u64 = packing.lo.iter().zip(&packing.hi).map(|(lo, hi)| u64::from(hi - lo)).sum();
        if width > MAX_CELLS {
            return None;
        }
        let mut load = vec![0; packing.sections];
        for (item, size) in size.iter().enumerate() {
            let span = packing.lo[item] as usize..packing.hi[item] as usize;
            load[span].iter_mut().for_each(|load| *load += size);
        }
        let sections = packing.sections;
        Some(Self {
            lo: packing.lo.clone(),
            hi: packing.hi.clone(),
            align,
            load,
            // A capacity above one stack of everything is never needed.
            capacity: (capacity / unit).min(total) as Height,
            skyline: vec![0; sections],
            floor: vec![0; sections],
            remaining: vec![0; sections],
            lowest_offset: vec![0; size.len()],
            offset: vec![0; size.len()],
            failures: FailureWeights { weight: vec![0.0; sections], step: 1.0 },
            scratch: vec![0; sections + 2],
            size,
        })
    }

    /// Resets to the empty skyline. Keeps the failure weights.
    pub(super) fn reset(&mut self) {
        self.skyline.fill(0);
        self.floor.fill(0);
        self.lowest_offset.fill(0);
        self.remaining.copy_from_slice(&self.load);
        self.failures.age();
    }

    pub(super) fn items(&self) -> Range<usize> {
        0..self.size.len()
    }

    pub(super) fn sections(&self) -> usize {
        self.load.len()
    }

    pub(super) fn capacity(&self) -> Height {
        self.capacity
    }

    pub(super) fn span(&self, item: usize) -> SectionRange {
        SectionRange { lo: self.lo[item] as usize, hi: self.hi[item] as usize }
    }

    pub(super) fn length(&self, item: usize) -> u32 {
        self.hi[item] - self.lo[item]
    }

    pub(super) fn size(&self, item: usize) -> Height {
        self.size[item]
    }

    pub(super) fn offset(&self, item: usize) -> Height {
        self.offset[item]
    }

    pub(super) fn failures(&self) -> &FailureWeights {
        &self.failures
    }

    pub(super) fn highest_load(&self, item: usize) -> Height {
        self.load[self.span(item).range()].iter().copied().max().unwrap_or(0)
    }

    /// Returns how much of a section may still be wasted.
    pub(super) fn slack(&self, section: usize) -> Height {
        self.capacity - self.floor[section] - self.remaining[section]
    }

    /// Places an item at `height`, on all floors below it.
    pub(super) fn place(&mut self, item: usize, height: Height) {
        let (span, size) = (self.span(item), self.size[item]);
        self.offset[item] = height;
        self.skyline[span.range()].fill(height + size);
        self.floor[span.range()].fill(height + size);
        self.remaining[span.range()].iter_mut().for_each(|remaining| *remaining -= size);
    }

    /// Counts an item as unplaced again. The caller restores skyline and floors.
    pub(super) fn unplace(&mut self, item: usize) {
        let (span, size) = (self.span(item), self.size[item]);
        self.remaining[span.range()].iter_mut().for_each(|remaining| *remaining += size);
    }

    /// Raises floors and lowest offsets to a fixpoint. The floors in `changed` have moved since the last call. Returns
    /// the range of all that moved, or `None` if a section can't hold what is left.
    pub(super) fn propagate(&mut self, unplaced: &[u32], changed: SectionRange) -> Option<SectionRange> {
        let mut moved = changed;
        let mut changed = changed;
        if let Some(section) = changed.range().find(|at| self.floor[*at] + self.remaining[*at] > self.capacity) {
            self.failures.count(section);
            return None;
        }
        loop {
            let mut stirred = changed;
            for item in unplaced {
                let (item, span) = (*item as usize, self.span(*item as usize));
                if span.overlaps(changed) {
                    let floors = &self.floor[span.meet(changed).range()];
                    let mut lowest_offset = floors.iter().copied().fold(self.lowest_offset[item], Height::max);
                    if let Some(align) = &self.align {
                        lowest_offset = (lowest_offset + align[item] - 1) & -align[item];
                    }
                    if lowest_offset > self.lowest_offset[item] {
                        self.lowest_offset[item] = lowest_offset;
                        stirred = stirred.join(span);
                    }
                }
            }
            self.scratch[stirred.range()].fill(NEVER);
            for item in unplaced {
                let (lowest_offset, span) = (self.lowest_offset[*item as usize], self.span(*item as usize));
                if span.overlaps(stirred) {
                    for least in &mut self.scratch[span.meet(stirred).range()] {
                        *least = lowest_offset.min(*least);
                    }
                }
            }
            let mut next: Option<SectionRange> = None;
            for section in stirred.range() {
                let least = self.scratch[section];
                if least == NEVER || least <= self.floor[section] {
                    continue;
                }
                self.floor[section] = least;
                if least + self.remaining[section] > self.capacity {
                    self.failures.count(section);
                    return None;
                }
                let here = SectionRange { lo: section, hi: section + 1 };
                next = Some(next.map_or(here, |span| span.join(here)));
            }
            match next {
                None => return Some(moved),
                Some(span) => {
                    changed = span;
                    moved = moved.join(span);
                }
            }
        }
    }

    /// Returns whether an unplaced item fits wholly between the skyline and the floors: then another branch, which
    /// fills that hole, is at least as good. Only items that overlap `moved` can have come to fit.
    pub(super) fn is_dominated(&self, unplaced: &[u32], moved: SectionRange) -> bool {
        unplaced.iter().any(|item| {
            let (size, span) = (self.size[*item as usize], self.span(*item as usize));
            // Almost always the first section decides.
            if self.skyline[span.lo] + size > self.floor[span.lo] || !span.overlaps(moved) {
                return false;
            }
            let highest = self.skyline[span.range()].iter().copied().max().unwrap_or(0);
            let lowest_offset = self.floor[span.range()].iter().copied().min().unwrap_or(NEVER);
            highest + size <= lowest_offset
        })
    }

    /// Returns whether some section can't hold its unplaced items one on top of the other, each no lower than its
    /// lowest offset (a one-machine schedule with release times, solved exactly by earliest release). `unplaced` must
    /// be in the order of the lowest offsets.
    pub(super) fn exceeds_one_machine_bound(&mut self, unplaced: &[u32], span: SectionRange) -> bool {
        self.scratch[span.range()].fill(0);
        for item in unplaced {
            let item = *item as usize;
            let (lowest_offset, size) = (self.lowest_offset[item], self.size[item]);
            for top in &mut self.scratch[self.lo[item] as usize..self.hi[item] as usize] {
                *top = lowest_offset.max(*top) + size;
            }
        }
        match span.range().find(|section| self.scratch[*section] > self.capacity) {
            Some(section) => {
                self.failures.count(section);
                true
            }
            None => false,
        }
    }

    /// Finds the sections at which the unplaced items split into independent sets, and stores them in `cuts`, with the
    /// end of the last set as the last entry. Returns the range of all unplaced items.
    pub(super) fn split_points(&mut self, unplaced: &[u32], cuts: &mut Vec<usize>) -> SectionRange {
        cuts.clear();
        let mut all = SectionRange { lo: usize::MAX, hi: 0 };
        for item in unplaced {
            all = all.join(self.span(*item as usize));
        }
        let crossing = &mut self.scratch;
        crossing[all.lo..all.hi + 1].fill(0);
        for item in unplaced {
            let (lo, hi) = (self.lo[*item as usize] as usize, self.hi[*item as usize] as usize);
            crossing[lo + 1] += 1;
            crossing[hi] -= 1;
        }
        let mut open = 0;
        for (section, change) in crossing.iter().enumerate().take(all.hi).skip(all.lo + 1) {
            open += change;
            if open == 0 {
                cuts.push(section);
            }
        }
        cuts.push(all.hi);
        all
    }
}
