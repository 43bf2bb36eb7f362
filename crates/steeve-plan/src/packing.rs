//! Items of one buffer without pins, as rectangles over sections: the form that descents and the search work on.

use alloc::vec;
use alloc::vec::Vec;

use crate::items::Item;
use crate::sections::Sections;

/// Rectangles to stack. All vectors are indexed by the item.
#[derive(Clone, Debug)]
pub(crate) struct Packing {
    pub(crate) sections: usize,
    pub(crate) lo: Vec<u32>,
    pub(crate) hi: Vec<u32>,
    pub(crate) size: Vec<u64>,
    /// The alignment of each item; `None` where all sizes are multiples of all alignments, so that every stack is
    /// aligned.
    pub(crate) align: Option<Vec<u64>>,
    /// For items that shrink, where they do; empty where all are plain rectangles.
    pub(crate) steps: Vec<Option<SizeStep>>,
    /// The bytes alive in each section.
    pub(crate) load: Vec<u64>,
}

/// An item of two sizes, one on each side of a section. The larger is the size of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeStep {
    /// The first section at which it has the second size.
    pub(crate) at: u32,
    pub(crate) first: u64,
    pub(crate) second: u64,
}

impl Packing {
    /// Converts every item to one rectangle, as large as the item ever is.
    pub(crate) fn new(items: &[Item]) -> Self {
        let Sections { count, lo, hi, .. } = Sections::new(items);
        Self::of_rectangles(items, count, lo, hi, Vec::new())
    }

    /// Converts items that shrink to two adjacent rectangles, which descents can stack.
    pub(crate) fn with_shrinks(items: &[Item]) -> Self {
        let Sections { count, lo, mut hi, shrunk } = Sections::new(items);
        let mut steps = vec![None; shrunk.len()];
        for (index, at) in shrunk.into_iter().enumerate() {
            match items[index].shrinks {
                Some(shrink) if shrink.bytes == 0 => hi[index] = at,
                Some(shrink) if at < hi[index] => {
                    steps[index] = Some(SizeStep { at, first: items[index].bytes, second: shrink.bytes });
                }
                _ => {}
            }
        }
        Self::of_rectangles(items, count, lo, hi, steps)
    }

    fn of_rectangles(
        items: &[Item],
        sections: usize,
        lo: Vec<u32>,
        hi: Vec<u32>,
        steps: Vec<Option<SizeStep>>,
    ) -> Self {
        let size: Vec<u64> = items.iter().map(|item| item.bytes).collect();
        let widest = items.iter().map(|item| item.align).max().unwrap_or(1);
        let mut sizes = size.iter().copied().chain(steps.iter().flatten().map(|step| step.second));
        let stacks_aligned = sizes.all(|size| size % widest == 0);
        let align = (!stacks_aligned).then(|| items.iter().map(|item| item.align).collect());
        let mut packing = Self { sections, lo, hi, size, align, steps, load: Vec::new() };
        packing.load = packing.loads();
        packing
    }

    pub(crate) fn len(&self) -> usize {
        self.size.len()
    }

    /// Returns where an item changes its size.
    pub(crate) fn step(&self, item: usize) -> Option<SizeStep> {
        self.steps.get(item).copied().flatten()
    }

    /// Returns the sections of items that do not shrink.
    pub(crate) fn sections(&self) -> Sections {
        Sections { count: self.sections, lo: self.lo.clone(), hi: self.hi.clone(), shrunk: Vec::new() }
    }

    /// Returns the most bytes alive in a section: no stack is lower.
    pub(crate) fn bound(&self) -> u64 {
        self.load.iter().copied().max().unwrap_or(0)
    }

    /// Returns the end of the highest item.
    pub(crate) fn peak(&self, offsets: &[u64]) -> u64 {
        offsets.iter().zip(&self.size).map(|(offset, size)| offset + size).max().unwrap_or(0)
    }

    /// Returns some of the items alone, over their own sections. They must be in the order of this packing, and no
    /// other item may overlap their sections.
    pub(crate) fn part(&self, items: &[u32]) -> Self {
        let of = |values: &[u32]| items.iter().map(|item| values[*item as usize]).collect::<Vec<_>>();
        let (mut lo, mut hi) = (of(&self.lo), of(&self.hi));
        let first = lo.iter().copied().min().unwrap_or(0);
        let last = hi.iter().copied().max().unwrap_or(0);
        lo.iter_mut().chain(&mut hi).for_each(|section| *section -= first);
        let size = items.iter().map(|item| self.size[*item as usize]).collect();
        let align = self.align.as_ref().map(|align| items.iter().map(|item| align[*item as usize]).collect());
        let load = self.load[first as usize..last as usize].to_vec();
        // Only plain rectangles are searched.
        Self { sections: load.len(), lo, hi, size, align, steps: Vec::new(), load }
    }

    /// Returns this packing mirrored in time. Offsets of one are offsets of the other.
    pub(crate) fn mirrored(&self) -> Self {
        let last = self.sections as u32;
        let flip = |section: &u32| last - section;
        let flip_step = |step: &SizeStep| SizeStep { at: last - step.at, first: step.second, second: step.first };
        Self {
            sections: self.sections,
            lo: self.hi.iter().map(flip).collect(),
            hi: self.lo.iter().map(flip).collect(),
            size: self.size.clone(),
            align: self.align.clone(),
            steps: self.steps.iter().map(|step| step.as_ref().map(flip_step)).collect(),
            load: self.load.iter().rev().copied().collect(),
        }
    }

    fn loads(&self) -> Vec<u64> {
        // The sum of all sizes is below 2^64, so the differences wrap but the prefix sums do not.
        let mut load = vec![0u64; self.sections + 1];
        for (item, size) in self.size.iter().enumerate() {
            let (lo, hi) = (self.lo[item] as usize, self.hi[item] as usize);
            load[lo] = load[lo].wrapping_add(*size);
            load[hi] = load[hi].wrapping_sub(*size);
            if let Some(step) = self.step(item) {
                // Loads are computed once, before any mirroring, so the first size is the larger one.
                load[step.at as usize] = load[step.at as usize].wrapping_sub(size - step.second);
                load[hi] = load[hi].wrapping_add(size - step.second);
            }
        }
        let mut sum = 0u64;
        for entry in &mut load {
            sum = sum.wrapping_add(*entry);
            *entry = sum;
        }
        load.truncate(self.sections);
        load
    }
}
