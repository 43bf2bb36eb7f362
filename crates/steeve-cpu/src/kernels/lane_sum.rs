//! Sums in double precision, in an order that depends on nothing but the position of an element.

use crate::multiversion::multiversion;

/// The number of partial sums, so that they become vector instructions.
const LANES: usize = 8;

/// A sum to which rows are added one after another; how they are cut makes no difference.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneSum {
    lanes: [f64; LANES],
    next: usize,
}

impl LaneSum {
    /// Adds a term for each element.
    #[inline(always)]
    pub(crate) fn add(&mut self, row: &[f32], term: impl Fn(f32) -> f64) {
        let (head, rest) = row.split_at(row.len().min((LANES - self.next) % LANES));
        self.add_some(head, &term);
        let (blocks, tail) = rest.as_chunks::<LANES>();
        let mut lanes = self.lanes;
        for block in blocks {
            lanes.iter_mut().zip(block).for_each(|(lane, x)| *lane += term(*x));
        }
        self.lanes = lanes;
        self.add_some(tail, &term);
    }

    #[inline(always)]
    fn add_some(&mut self, row: &[f32], term: &impl Fn(f32) -> f64) {
        for x in row {
            self.lanes[self.next] += term(*x);
            self.next = (self.next + 1) % LANES;
        }
    }

    pub(crate) fn total(&self) -> f64 {
        let [a, b, c, d, e, f, g, h] = self.lanes;
        ((a + b) + (c + d)) + ((e + f) + (g + h))
    }
}

multiversion! {
    /// Adds the elements of a row.
    pub(crate) fn add_row(sum: &mut LaneSum, row: &[f32]) {
        sum.add(row, itself);
    }
}

/// Returns the sum of a term for each element of a row.
#[inline(always)]
pub(crate) fn sum(row: &[f32], term: impl Fn(f32) -> f64) -> f64 {
    let mut sum = LaneSum::default();
    sum.add(row, term);
    sum.total()
}

/// Returns the sum of the products of two rows.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0; LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        (0..LANES).for_each(|i| lanes[i] += f64::from(a[i]) * f64::from(b[i]));
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_tail.iter().zip(b_tail)) {
        *lane += f64::from(*a) * f64::from(*b);
    }
    LaneSum { lanes, next: 0 }.total()
}

#[inline(always)]
pub(crate) fn itself(x: f32) -> f64 {
    f64::from(x)
}

#[inline(always)]
pub(crate) fn square(x: f32) -> f64 {
    f64::from(x) * f64::from(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_row_is_cut_makes_no_difference() {
        let row: Vec<f32> = (0..100).map(|i| 1.0 / (i as f32 + 1.0)).collect();
        let whole = sum(&row, itself);
        for cut in 0..=row.len() {
            let mut parts = LaneSum::default();
            parts.add(&row[..cut], itself);
            parts.add(&row[cut..], itself);
            assert_eq!(parts.total().to_bits(), whole.to_bits());
        }
        assert_eq!(dot(&row, &row).to_bits(), sum(&row, square).to_bits());
    }
}
