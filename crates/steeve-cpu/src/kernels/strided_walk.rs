//! A walk over the elements of several tensors at once.
//!
//! Dimensions without gaps between them become one, and those of one element none: a tensor of many short rows is then a
//! few long ones. A dimension in which an operand is repeated has no step in that operand.

use steeve_device::Shape;

/// Each dimension may become two, where an operand is repeated.
const MOST: usize = 8;

/// Dimensions, the innermost first, with the steps that each of `N` operands takes along them, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StridedWalk<const N: usize> {
    dims: usize,
    ne: [usize; MOST],
    steps: [[usize; N]; MOST],
}

impl<const N: usize> StridedWalk<N> {
    /// Returns a walk of one position.
    pub(crate) fn new() -> Self {
        Self { dims: 0, ne: [1; MOST], steps: [[0; N]; MOST] }
    }

    /// Returns a walk over all elements of operands of one shape.
    pub(crate) fn elements(shapes: [&Shape; N]) -> Self {
        let mut walk = Self::new();
        (0..4).for_each(|dim| walk.push(shapes[0].ne[dim], shapes.map(|shape| shape.nb[dim])));
        walk
    }

    /// Returns a walk over the rows of operands with equal outer dimensions.
    pub(crate) fn rows(shapes: [&Shape; N]) -> Self {
        let mut walk = Self::new();
        (1..4).for_each(|dim| walk.push(shapes[0].ne[dim], shapes.map(|shape| shape.nb[dim])));
        walk
    }

    /// Adds an outer dimension of `n` steps.
    pub(crate) fn push(&mut self, n: usize, steps: [usize; N]) {
        if n == 1 {
            return;
        }
        if let Some(last) = self.dims.checked_sub(1) {
            let ends = self.steps[last].map(|step| step.checked_mul(self.ne[last]));
            if ends == steps.map(Some) {
                self.ne[last] *= n;
                return;
            }
        }
        (self.ne[self.dims], self.steps[self.dims]) = (n, steps);
        self.dims += 1;
    }

    /// Adds an outer dimension for operands of which the last is repeated every `part` steps.
    pub(crate) fn push_repeated(&mut self, n: usize, steps: [usize; N], part: usize) {
        let mut inner = steps;
        if part == 1 {
            inner[N - 1] = 0;
            return self.push(n, inner);
        }
        let mut outer = steps.map(|step| step.wrapping_mul(part));
        outer[N - 1] = 0;
        self.push(part, inner);
        self.push(n / part, outer);
    }

    /// Splits off the innermost dimension with its steps. Where it is short, another takes its place: elements may be
    /// visited in any order.
    pub(crate) fn split(mut self) -> (usize, [usize; N], Self) {
        const SHORT: usize = 16;
        let longest = (0..self.dims).max_by_key(|&dim| (self.ne[dim], MOST - dim)).unwrap_or(0);
        if self.ne[0] < SHORT {
            self.ne.swap(0, longest);
            self.steps.swap(0, longest);
        }
        self.split_in_order()
    }

    /// Splits off the innermost dimension with its steps, and keeps the order of the elements.
    pub(crate) fn split_in_order(self) -> (usize, [usize; N], Self) {
        let mut rest = Self::new();
        (1..self.dims).for_each(|dim| rest.push(self.ne[dim], self.steps[dim]));
        (self.ne[0], self.steps[0], rest)
    }

    /// Returns the number of positions.
    pub(crate) fn count(&self) -> usize {
        self.ne[..self.dims].iter().product()
    }

    /// Returns the offsets of the operands at each position from `index` on, in bytes from their starts.
    pub(crate) fn from(&self, index: usize) -> WalkOffsets<'_, N> {
        let mut places = WalkOffsets { walk: self, at: [0; MOST], offsets: [0; N] };
        let mut rest = index;
        for dim in 0..self.dims {
            // There may be no position at all.
            let n = self.ne[dim].max(1);
            let at = rest % n;
            rest /= n;
            places.at[dim] = at;
            for (offset, step) in places.offsets.iter_mut().zip(self.steps[dim]) {
                *offset += at * step;
            }
        }
        places
    }
}

/// The positions of a [`StridedWalk`], without end: the last is followed by the first.
pub(crate) struct WalkOffsets<'a, const N: usize> {
    walk: &'a StridedWalk<N>,
    at: [usize; MOST],
    offsets: [usize; N],
}

impl<const N: usize> Iterator for WalkOffsets<'_, N> {
    type Item = [usize; N];

    fn next(&mut self) -> Option<[usize; N]> {
        let here = self.offsets;
        for dim in 0..self.walk.dims {
            let (n, steps) = (self.walk.ne[dim], &self.walk.steps[dim]);
            self.at[dim] += 1;
            for (offset, step) in self.offsets.iter_mut().zip(steps) {
                *offset = offset.wrapping_add(*step);
            }
            if self.at[dim] < n {
                break;
            }
            self.at[dim] = 0;
            for (offset, step) in self.offsets.iter_mut().zip(steps) {
                *offset = offset.wrapping_sub(step.wrapping_mul(n));
            }
        }
        Some(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places<const N: usize>(walk: &StridedWalk<N>) -> Vec<[usize; N]> {
        walk.from(0).take(walk.count()).collect()
    }

    #[test]
    fn dimensions_without_gaps_are_one() {
        let mut walk = StridedWalk::new();
        walk.push(1, [4, 4]);
        walk.push(3, [4, 8]);
        walk.push(5, [12, 24]);
        walk.push(2, [60, 0]);
        assert_eq!((walk.dims, walk.count()), (2, 30));
        assert_eq!(places(&walk)[16], [64, 8]);
    }

    #[test]
    fn a_repeated_operand_starts_over() {
        let mut walk = StridedWalk::new();
        walk.push_repeated(6, [4, 2], 3);
        walk.push_repeated(2, [24, 6], 1);
        let offsets: Vec<usize> = places(&walk).iter().map(|place| place[1]).collect();
        assert_eq!(offsets, [0, 2, 4, 0, 2, 4, 0, 2, 4, 0, 2, 4]);
    }

    #[test]
    fn every_start_sees_the_same_places() {
        let mut walk = StridedWalk::new();
        for (n, steps) in [(2, [4, 100]), (3, [9, 1]), (4, [50, 7])] {
            walk.push(n, steps);
        }
        let all = places(&walk);
        for start in 0..all.len() {
            assert_eq!(walk.from(start).take(24 - start).collect::<Vec<_>>(), all[start..]);
        }
    }

    #[test]
    fn a_short_inner_dimension_goes_outside() {
        let mut walk = StridedWalk::new();
        for (n, steps) in [(2, [4]), (3, [9]), (40, [50])] {
            walk.push(n, steps);
        }
        let (length, steps, rest) = walk.split();
        assert_eq!((length, steps, rest.count()), (40, [50], 6));
    }
}
