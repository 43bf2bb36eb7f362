//! Soft-max, its gradient, and masks of the part above the diagonal.

use steeve_graph::{DataType, SoftMax as Numbers, TensorId};

use super::functions::exp;
use super::lane_sum::{dot, itself, sum};
use super::map::floats;
use super::row_map::each_pair;
use super::strided_walk::StridedWalk;
use crate::float_rows::{load_row, store_row};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::multiversion::multiversion;

/// Returns the kernel for soft-max of each row after a scale; a mask is added first, times the slope of its head, and a
/// sink takes its share.
pub(crate) fn soft_max(
    node: &NodeCall<'_>,
    a: TensorId,
    mask: Option<TensorId>,
    sinks: Option<TensorId>,
    numbers: Numbers,
) -> Result<Box<dyn Kernel>, String> {
    let (a, result) = (node.shape(a)?, node.result);
    floats([result, a])?;
    let (mask, sinks) = (node.optional(mask)?, node.optional(sinks)?);
    if mask.is_some_and(|mask| !mask.dtype.is_float()) {
        return Err("mask: expected f32, f16 or bf16".into());
    }
    if sinks.is_some_and(|sinks| sinks.dtype != DataType::F32) {
        return Err("sinks: expected f32".into());
    }
    // The mask has at least as many rows as the source, and is repeated over heads and batches. The last operand counts
    // heads.
    let mut walk = StridedWalk::new();
    for dim in 1..4 {
        let (n, mask) = (result.ne[dim], mask.as_ref().map_or((1, 0), |mask| (mask.ne[dim], mask.nb[dim])));
        let part = if dim == 1 { n } else { mask.0 };
        let steps = [result.nb[dim], a.nb[dim], usize::from(dim == 2), mask.1];
        walk.push_repeated(n, steps, part.max(1));
    }
    let slopes = AlibiSlopes::new(numbers.max_bias, result.ne[2]);
    Ok(Box::new(SoftMax { scale: numbers.scale, slopes, walk, rows: RowUnits::of(&result) }))
}

#[derive(Debug)]
struct SoftMax {
    scale: f32,
    slopes: AlibiSlopes,
    /// Result, source, head, mask.
    walk: StridedWalk<4>,
    rows: RowUnits,
}

impl Kernel for SoftMax {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, rows) = (operands.result, operands.source(0), self.rows.unit(unit));
        let (mask, sinks) = (operands.optional(1), operands.optional(2));
        let n = result.shape.ne[0];
        let [x, m] = scratch.rows([n, if mask.is_some() { n } else { 0 }]);
        for [r, a_, head, mask_] in self.walk.from(rows.start).take(rows.len()) {
            // SAFETY: rows of the operands and a sink; all are copied before the result's is written.
            unsafe {
                load_row(a, a_, x);
                if let Some(mask) = mask {
                    load_row(mask, mask_, m);
                    scale_and_mask(x, self.scale, m, self.slopes.of(head));
                } else {
                    scale_row(x, self.scale);
                }
                let sink = sinks.map(|sinks| sinks.read::<f32>(head * sinks.shape.nb[0]));
                soft_max_row(x, sink);
                store_row(result, r, x);
            }
        }
        Ok(())
    }
}

multiversion! {
    fn scale_and_mask(row: &mut [f32], scale: f32, mask: &[f32], slope: f32) {
        row.iter_mut().zip(mask).for_each(|(x, mask)| *x = *x * scale + slope * mask);
    }
}

multiversion! {
    fn scale_row(row: &mut [f32], scale: f32) {
        row.iter_mut().for_each(|x| *x *= scale);
    }
}

multiversion! {
    fn soft_max_row(row: &mut [f32], sink: Option<f32>) {
        let max = largest(row).max(sink.unwrap_or(f32::NEG_INFINITY));
        row.iter_mut().for_each(|x| *x = exp(*x - max));
        let total = sum(row, itself) + sink.map_or(0.0, |sink| f64::from(exp(sink - max)));
        let factor = (1.0 / total) as f32;
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

/// Returns the largest element; minus infinity if there is none.
#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (blocks, tail) = row.as_chunks::<16>();
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, x)| *lane = larger(*lane, *x));
    }
    lanes.iter().chain(tail).fold(f32::NEG_INFINITY, |max, x| larger(max, *x))
}

/// The slopes of ALiBi: powers of one number for the first heads, as many as the largest power of two in their count, and
/// the odd powers of its root for the others.
#[derive(Clone, Copy, Debug)]
struct AlibiSlopes {
    /// Both bases, and how many heads have the first; `None` if every slope is one.
    bases: Option<(f32, f32, usize)>,
}

impl AlibiSlopes {
    fn new(max_bias: f32, heads: usize) -> Self {
        let first = 1 << heads.max(1).ilog2();
        let base = |bias: f32| 2.0f32.powf(-bias / first as f32);
        Self { bases: (max_bias > 0.0).then(|| (base(max_bias), base(max_bias / 2.0), first)) }
    }

    fn of(&self, head: usize) -> f32 {
        match self.bases {
            None => 1.0,
            Some((base, _, first)) if head < first => base.powf((head + 1) as f32),
            Some((_, base, first)) => base.powf((2 * (head - first) + 1) as f32),
        }
    }
}

/// Returns the kernel for the gradient of soft-max: `dx = scale * y * (dy - sum(y dy))`.
pub(crate) fn soft_max_back(
    node: &NodeCall<'_>,
    gradient: TensorId,
    y: TensorId,
    Numbers { scale, max_bias }: Numbers,
) -> Result<Box<dyn Kernel>, String> {
    if max_bias != 0.0 {
        return Err("bias: expected none".into());
    }
    each_pair(node, gradient, y, move |gradient, y| soft_max_back_row(gradient, y, scale))
}

multiversion! {
    fn soft_max_back_row(gradient: &mut [f32], y: &[f32], scale: f32) {
        let mean = dot(y, gradient) as f32;
        gradient.iter_mut().zip(y).for_each(|(dy, y)| *dy = scale * (*dy - mean) * y);
    }
}

/// Returns the kernel that writes minus infinity or zero above the diagonal that starts at a column.
pub(crate) fn diag_mask(node: &NodeCall<'_>, a: TensorId, past: u32, value: f32) -> Result<Box<dyn Kernel>, String> {
    let (a, past) = (node.shape(a)?, past as usize);
    floats([node.result, a])?;
    let mut walk = StridedWalk::new();
    for dim in 1..4 {
        walk.push(node.result.ne[dim], [node.result.nb[dim], a.nb[dim], usize::from(dim == 1)]);
    }
    Ok(Box::new(DiagMask { past, value, walk, rows: RowUnits::of(&node.result) }))
}

#[derive(Debug)]
struct DiagMask {
    past: usize,
    value: f32,
    /// Result, source, row of the plane.
    walk: StridedWalk<3>,
    rows: RowUnits,
}

impl Kernel for DiagMask {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, rows) = (operands.result, operands.source(0), self.rows.unit(unit));
        let [x] = scratch.rows([result.shape.ne[0]]);
        for [r, a_, row] in self.walk.from(rows.start).take(rows.len()) {
            let first = self.past.saturating_add(row).saturating_add(1).min(x.len());
            // SAFETY: rows of the operands; the source's is copied before the result's is written.
            unsafe {
                load_row(a, a_, x);
                x[first..].fill(self.value);
                store_row(result, r, x);
            }
        }
        Ok(())
    }
}
