//! Norms, whose divisors are computed in double precision.

use steeve_device::Shape;
use steeve_graph::TensorId;

use super::lane_sum::{LaneSum, add_row, dot, itself, square, sum};
use super::map::floats;
use super::row_map::{each_pair, each_row};
use super::strided_walk::StridedWalk;
use crate::float_rows::{load, store};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::multiversion::multiversion;

/// Each row less its mean, divided by its deviation.
pub(crate) fn norm(node: &NodeCall<'_>, a: TensorId, epsilon: f32) -> Result<Box<dyn Kernel>, String> {
    each_row(node, a, move |row| norm_row(row, epsilon))
}

multiversion! {
    fn norm_row(row: &mut [f32], epsilon: f32) {
        let count = row.len() as f64;
        let mean = (sum(row, itself) / count) as f32;
        row.iter_mut().for_each(|x| *x -= mean);
        let variance = (sum(row, square) / count) as f32;
        scale(row, 1.0 / (variance + epsilon).sqrt());
    }
}

/// Each row divided by its root mean square.
pub(crate) fn rms_norm(node: &NodeCall<'_>, a: TensorId, epsilon: f32) -> Result<Box<dyn Kernel>, String> {
    each_row(node, a, move |row| rms_norm_row(row, epsilon))
}

multiversion! {
    fn rms_norm_row(row: &mut [f32], epsilon: f32) {
        let mean = (sum(row, square) / row.len() as f64) as f32;
        scale(row, 1.0 / (mean + epsilon).sqrt());
    }
}

/// Each row divided by its length, or by epsilon if that is larger.
pub(crate) fn l2_norm(node: &NodeCall<'_>, a: TensorId, epsilon: f32) -> Result<Box<dyn Kernel>, String> {
    each_row(node, a, move |row| l2_norm_row(row, epsilon))
}

multiversion! {
    fn l2_norm_row(row: &mut [f32], epsilon: f32) {
        let length = sum(row, square).sqrt() as f32;
        scale(row, 1.0 / length.max(epsilon));
    }
}

/// The gradient of [`rms_norm`]: `dx = (dz - x * sum(x dz) / sum(x x + epsilon)) / rms`.
pub(crate) fn rms_norm_back(
    node: &NodeCall<'_>,
    gradient: TensorId,
    a: TensorId,
    epsilon: f32,
) -> Result<Box<dyn Kernel>, String> {
    each_pair(node, gradient, a, move |gradient, x| rms_norm_back_row(gradient, x, epsilon))
}

multiversion! {
    fn rms_norm_back_row(gradient: &mut [f32], x: &[f32], epsilon: f32) {
        let count = x.len() as f64;
        let squares = sum(x, square);
        let factor = 1.0 / ((squares / count) as f32 + epsilon).sqrt();
        let share = (dot(x, gradient) / (squares + f64::from(epsilon) * count)) as f32;
        gradient.iter_mut().zip(x).for_each(|(dz, x)| *dz = (*dz - x * share) * factor);
    }
}

#[inline(always)]
fn scale(row: &mut [f32], factor: f32) {
    row.iter_mut().for_each(|x| *x *= factor);
}

/// [`norm`] over groups of the third dimension.
pub(crate) fn group_norm(
    node: &NodeCall<'_>,
    a: TensorId,
    groups: u32,
    epsilon: f32,
) -> Result<Box<dyn Kernel>, String> {
    let (a, groups) = (node.shape(a)?, groups as usize);
    floats([node.result, a])?;
    let [n0, n1, channels, outer] = node.result.ne;
    let per_group = channels.div_ceil(groups).max(1);
    let groups = channels.div_ceil(per_group);
    Ok(Box::new(GroupNorm {
        epsilon,
        per_group,
        groups,
        whole: ChannelGroup::new(&node.result, &a, per_group),
        last: ChannelGroup::new(&node.result, &a, channels - groups.saturating_sub(1) * per_group),
        rows: RowUnits::new(groups * outer, n0 * n1 * per_group),
    }))
}

#[derive(Debug)]
struct GroupNorm {
    epsilon: f32,
    /// The number of channels of a group.
    per_group: usize,
    /// The number of groups; the last may be smaller.
    groups: usize,
    whole: ChannelGroup,
    last: ChannelGroup,
    rows: RowUnits,
}

impl Kernel for GroupNorm {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a) = (operands.result, operands.source(0));
        let (r, s) = (result.shape, a.shape);
        let [x] = scratch.rows([PART]);
        for index in self.rows.unit(unit) {
            let (number, outer) = (index % self.groups, index / self.groups);
            let group = if number + 1 == self.groups { &self.last } else { &self.whole };
            let start = |shape: &Shape| number * self.per_group * shape.nb[2] + outer * shape.nb[3];
            let starts = [start(r), start(s)];
            let mut sum = LaneSum::default();
            // SAFETY: parts of the group, in the source.
            group.each_part(starts, |[_, a_], n| unsafe {
                load(s.dtype, a.at(a_), group.steps[1], &mut x[..n]);
                add_row(&mut sum, &x[..n]);
            });
            let mean = (sum.total() / group.count() as f64) as f32;
            let mut squares = LaneSum::default();
            // SAFETY: parts of the group, in the source.
            group.each_part(starts, |[_, a_], n| unsafe {
                load(s.dtype, a.at(a_), group.steps[1], &mut x[..n]);
                add_squares(&mut squares, &x[..n], mean);
            });
            let variance = (squares.total() / group.count() as f64) as f32;
            let factor = 1.0 / (variance + self.epsilon).sqrt();
            // SAFETY: parts of both; the source's is copied before the result's is written, and no other group reads it.
            group.each_part(starts, |[r_, a_], n| unsafe {
                load(s.dtype, a.at(a_), group.steps[1], &mut x[..n]);
                x[..n].iter_mut().for_each(|x| *x = (*x - mean) * factor);
                store(r.dtype, result.at(r_), group.steps[0], &x[..n]);
            });
        }
        Ok(())
    }
}

multiversion! {
    fn add_squares(sum: &mut LaneSum, row: &[f32], mean: f32) {
        sum.add(row, |x| square(x - mean));
    }
}

/// The elements of a group, as lines that are as long as they can be.
#[derive(Debug)]
struct ChannelGroup {
    length: usize,
    /// Along a line, in the result and in the source.
    steps: [usize; 2],
    walk: StridedWalk<2>,
}

/// The number of elements that are loaded at a time.
const PART: usize = 1024;

impl ChannelGroup {
    fn new(result: &Shape, a: &Shape, channels: usize) -> Self {
        let mut walk = StridedWalk::new();
        for (dim, n) in [result.ne[0], result.ne[1], channels].into_iter().enumerate() {
            walk.push(n, [result.nb[dim], a.nb[dim]]);
        }
        let (length, steps, walk) = walk.split_in_order();
        Self { length, steps, walk }
    }

    fn count(&self) -> usize {
        self.length * self.walk.count()
    }

    /// Calls `act` for parts of the group, in order: the offsets of each in the result and in the source, and its
    /// length.
    fn each_part(&self, starts: [usize; 2], mut act: impl FnMut([usize; 2], usize)) {
        for offsets in self.walk.from(0).take(self.walk.count()) {
            for at in (0..self.length).step_by(PART) {
                let place = |i: usize| starts[i] + offsets[i] + at * self.steps[i];
                act([place(0), place(1)], PART.min(self.length - at));
            }
        }
    }
}
