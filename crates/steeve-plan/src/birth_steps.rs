//! Numbers the steps at which blocks are born, so that per-step data fits in a vector. O(n), or O(n log n) where time
//! has long gaps.
//!
//! Between two births blocks only die, so births are the only steps that matter. Where time is dense, every step from
//! the first birth to the last has a number, and nothing is sorted:
//!
//! ```text
//!   step       7  8  9 10 11 12           7  90  9000
//!   births     x  x     x     x           x   x     x
//!   number     0  1  2  3  4  5           0   1     2
//! ```

use alloc::vec::Vec;

use crate::Step;

/// A numbering of the steps at which blocks are born.
pub(crate) struct BirthSteps {
    first: u64,
    count: usize,
    /// The step of each number, where not every step has one.
    sparse: Vec<u64>,
}

impl BirthSteps {
    /// Numbers the steps of these births.
    pub(crate) fn new(steps: impl Iterator<Item = Step> + Clone) -> Self {
        let (mut first, mut last, mut things) = (u64::MAX, 0, 0usize);
        for step in steps.clone() {
            (first, last, things) = (first.min(step.0), last.max(step.0), things + 1);
        }
        if things == 0 {
            return Self { first: 0, count: 0, sparse: Vec::new() };
        }
        let most = things.saturating_mul(4).saturating_add(1024);
        match usize::try_from(last - first) {
            Ok(span) if span < most => Self { first, count: span + 1, sparse: Vec::new() },
            _ => {
                let mut sparse: Vec<u64> = steps.map(|step| step.0).collect();
                sparse.sort_unstable();
                sparse.dedup();
                Self { first, count: sparse.len(), sparse }
            }
        }
    }

    /// Returns how many numbers there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of the first birth that is not before `step` (or of a step without births up to it), or the
    /// count if there is none. `step` must not be before the first birth.
    pub(crate) fn number(&self, step: Step) -> usize {
        match self.sparse.is_empty() {
            true => usize::try_from(step.0 - self.first).map_or(self.count, |number| number.min(self.count)),
            false => self.sparse.partition_point(|birth| *birth < step.0),
        }
    }

    /// Returns the step of a number.
    pub(crate) fn step(&self, number: usize) -> Step {
        Step(self.sparse.get(number).copied().unwrap_or(self.first + number as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::BirthSteps;
    use crate::Step;

    #[test]
    fn steps_in_between_have_the_number_of_the_next_birth_or_one_of_their_own() {
        for births in [&[3, 5, 4, 9][..], &[3, 50_000, 4, 9_000_000]] {
            let numbers = BirthSteps::new(births.iter().map(|step| Step(*step)));
            let mut sorted = births.to_vec();
            sorted.sort_unstable();
            for pair in sorted.windows(2) {
                let (one, other) = (numbers.number(Step(pair[0])), numbers.number(Step(pair[1])));
                assert!(one < other);
                assert_eq!((numbers.step(one), numbers.step(other)), (Step(pair[0]), Step(pair[1])));
                let between = numbers.number(Step(pair[0] + 1));
                assert!(one < between && between <= other);
            }
            assert_eq!(numbers.number(Step(u64::MAX)), numbers.count());
        }
        assert_eq!(BirthSteps::new(core::iter::empty()).count(), 0);
    }
}
