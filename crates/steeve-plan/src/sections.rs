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
        for (step, born) in births {
            let mut died = false;
            while let Some((_, dead)) = deaths.next_if(|death| death.0 <= step) {
                hi[dead as usize] = section + 1;
                died = true;
            }
            section += u32::from(died);
            lo[born as usize] = section;
        }
        for (_, dead) in deaths {
            hi[dead as usize] = section + 1;
        }
        let count = if items.is_empty() { 0 } else { section as usize + 1 };
        Self { count, lo, hi }
    }
}
