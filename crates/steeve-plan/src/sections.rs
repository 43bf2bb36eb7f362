//! Compresses time: converts lifetimes to ranges of sections. O(n), or O(n log n) where time has long gaps.
//!
//! A new section starts only where a birth follows a death, so sections are the maximal sets of items that are alive
//! together, and two items overlap in time exactly where their ranges of sections do. Deaths come before births: an item
//! that ends at 7 is out of the way of one that starts at 7.

use alloc::vec::Vec;

use crate::birth_steps::BirthSteps;
use crate::items::Item;

/// The sections of a list of items.
#[derive(Clone, Debug)]
pub(crate) struct Sections {
    pub(crate) count: usize,
    /// First section of each item, and the one behind its last.
    pub(crate) lo: Vec<u32>,
    pub(crate) hi: Vec<u32>,
    /// For items that shrink, the first section after they have shrunk; empty if none does.
    pub(crate) shrunk: Vec<u32>,
}

/// A birth at this step.
const BIRTH: u32 = 1;
/// A death, or a shrink, since the step before. What is born after it is in another section.
const DEATH: u32 = 2;

impl Sections {
    pub(crate) fn new(items: &[Item]) -> Self {
        let births = BirthSteps::new(items.iter().map(|item| item.start));
        let mut section_of = alloc::vec![0u32; births.count()];
        let die = |section_of: &mut [u32], step| {
            if let Some(marks) = section_of.get_mut(births.number(step)) {
                *marks |= DEATH;
            }
        };
        let mut shrinks = false;
        for item in items {
            section_of[births.number(item.start)] |= BIRTH;
            die(&mut section_of, item.end);
            if let Some(shrink) = item.shrinks {
                die(&mut section_of, shrink.from);
                shrinks = true;
            }
        }
        // From marks to sections: each step has that of the last birth up to it.
        let (mut section, mut died) = (0, false);
        for at in &mut section_of {
            died |= *at & DEATH != 0;
            if *at & BIRTH != 0 {
                section += u32::from(died);
                died = false;
            }
            *at = section;
        }
        let count = if items.is_empty() { 0 } else { section as usize + 1 };
        let behind = |step| section_of[births.number(step) - 1] + 1;
        let lo = items.iter().map(|item| section_of[births.number(item.start)]).collect();
        let hi = items.iter().map(|item| behind(item.end)).collect();
        // An item born before another shrinks may overlap it at its full size, so it has that size in their sections.
        let shrunk = |item: &Item| behind(item.shrinks.map_or(item.end, |shrink| shrink.from));
        let shrunk = if shrinks { items.iter().map(shrunk).collect() } else { Vec::new() };
        Self { count, lo, hi, shrunk }
    }
}
