//! An ordered set for the sweep (small numbers as bits), and a radix sort to number blocks with.

use alloc::vec;
use alloc::vec::Vec;

/// A set of ranks as bits: level 0 has one bit per rank, each level above one bit per word that is not zero. Its functions
/// are inlined into both sweeps, which spend a good part of their time here.
pub(super) struct RankSet {
    levels: Vec<Vec<u64>>,
}

impl RankSet {
    pub(super) fn new(count: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = count.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
            words = words.div_ceil(64);
        }
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, rank: u32) {
        let mut at = rank as usize;
        for level in &mut self.levels {
            let was_empty = level[at / 64] == 0;
            level[at / 64] |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, rank: u32) {
        let mut at = rank as usize;
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Returns the largest rank below `rank`.
    #[inline(always)]
    pub(super) fn before(&self, rank: u32) -> Option<u32> {
        let mut at = rank as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let below = level[at / 64] & ((1 << (at % 64)) - 1);
            if below != 0 {
                let found = at / 64 * 64 + 63 - below.leading_zeros() as usize;
                let last = |word: u64| 63 - word.leading_zeros() as usize;
                return Some(self.descend(height, found, last));
            }
            at /= 64;
        }
        None
    }

    /// Returns the smallest rank above `rank`.
    #[inline(always)]
    pub(super) fn after(&self, rank: u32) -> Option<u32> {
        let mut at = rank as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let above = level[at / 64] & (!1 << (at % 64));
            if above != 0 {
                let found = at / 64 * 64 + above.trailing_zeros() as usize;
                let first = |word: u64| word.trailing_zeros() as usize;
                return Some(self.descend(height, found, first));
            }
            at /= 64;
        }
        None
    }

    #[inline(always)]
    fn descend(&self, height: usize, found: usize, pick: impl Fn(u64) -> usize) -> u32 {
        let mut at = found;
        for level in self.levels[..height].iter().rev() {
            at = at * 64 + pick(level[at]);
        }
        at as u32
    }
}

/// Sorts stably by a number: least-significant-digit radix sort (Knuth, "The Art of Computer Programming" 3, 5.2.5).
pub(super) fn sort_by_number<T: Copy>(things: &mut Vec<T>, number: impl Fn(&T) -> u64) {
    const BITS: u32 = 11;
    if things.is_sorted_by_key(&number) {
        return;
    }
    // Addresses are multiples of their alignment, so the lowest bits may all be zero.
    let used = things.iter().fold(0, |used, thing| used | number(thing));
    let (low, high) = (used.trailing_zeros(), u64::BITS - used.leading_zeros());
    if things.len() < 128 * (high - low).div_ceil(BITS) as usize {
        things.sort_by_key(number);
        return;
    }
    let mut other = things.clone();
    for shift in (low..high).step_by(BITS as usize) {
        let digit = |thing: &T| (number(thing) >> shift) as usize & ((1 << BITS) - 1);
        let mut starts = [0u32; 1 << BITS];
        things.iter().for_each(|thing| starts[digit(thing)] += 1);
        let mut sum = 0;
        for start in &mut starts {
            (*start, sum) = (sum, sum + *start);
        }
        for thing in things.iter() {
            let start = &mut starts[digit(thing)];
            other[*start as usize] = *thing;
            *start += 1;
        }
        core::mem::swap(things, &mut other);
    }
}
