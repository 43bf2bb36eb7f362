//! Lifetimes in, sections out: time with everything squeezed out that does not matter. O(n log n).
//!
//! Births and deaths are sorted, deaths first at equal steps. A new section starts only where a birth follows a death,
//! so sections are the maximal sets of items that are alive together, and two items overlap in time exactly where
//! their ranges of sections do.

use alloc::vec::Vec;

use crate::Step;
use crate::items::Item;

#[derive(Clone, Debug)]
pub(crate) struct Sections {
    pub(crate) count: usize,
    /// First section of each item, and the one behind its last.
    pub(crate) lo: Vec<u32>,
    pub(crate) hi: Vec<u32>,
    /// For items that shrink, the first section at which they have; empty if none does.
    pub(crate) shrunk: Vec<u32>,
}

impl Sections {
    pub(crate) fn new(items: &[Item]) -> Self {
        let mut births: Vec<(Step, u32)> = (0..).zip(items).map(|(index, it)| (it.start, index)).collect();
        let mut deaths: Vec<(Step, u32)> = (0..).zip(items).map(|(index, it)| (it.end, index)).collect();
        births.sort_unstable();
        deaths.sort_unstable();
        let mut lo = alloc::vec![0; items.len()];
        let mut hi = alloc::vec![0; items.len()];
        let mut section = 0;
        let mut deaths = deaths.into_iter().peekable();
        // To shrink is to die a little: what is born after it stands in another section.
        let mut shrinking: Vec<Step> = items.iter().filter_map(|item| Some(item.shrinks?.from)).collect();
        shrinking.sort_unstable();
        let shrinks = !shrinking.is_empty();
        let mut shrinking = shrinking.into_iter().peekable();
        let mut times: Vec<(Step, u32)> = Vec::new();
        for (step, born) in births {
            let mut died = false;
            while shrinking.next_if(|from| *from <= step).is_some() {
                died = true;
            }
            while let Some((_, dead)) = deaths.next_if(|death| death.0 <= step) {
                hi[dead as usize] = section + 1;
                died = true;
            }
            section += u32::from(died);
            lo[born as usize] = section;
            if shrinks {
                times.push((step, section));
            }
        }
        for (_, dead) in deaths {
            hi[dead as usize] = section + 1;
        }
        let count = if items.is_empty() { 0 } else { section as usize + 1 };
        // Who was born before an item shrinks may meet it at its full size, so it has that in their sections.
        let shrunk = |item: &Item| {
            let from = item.shrinks.map_or(item.end, |shrink| shrink.from);
            let before = times.partition_point(|birth| birth.0 < from);
            before.checked_sub(1).map_or(0, |last| times[last].1 + 1)
        };
        let shrunk = if shrinks { items.iter().map(shrunk).collect() } else { Vec::new() };
        Self { count, lo, hi, shrunk }
    }
}
