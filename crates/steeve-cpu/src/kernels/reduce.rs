//! Sums and means, in double precision and in the order of the elements.

use steeve_device::Shape;
use steeve_graph::{DataType, TensorId};

use super::lane_sum::{LaneSum, add_row};
use super::strided_walk::StridedWalk;
use crate::float_rows::{load, store};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel for the sum of all elements.
pub(crate) fn sum(node: &NodeCall<'_>, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    let mut all = StridedWalk::new();
    (0..4).for_each(|dim| all.push(a.ne[dim], [a.nb[dim]]));
    total(node, &a, None, all, StridedWalk::new(), RowUnits::new(1, 1))
}

/// Returns the kernel for the sum of each row.
pub(crate) fn sum_rows(node: &NodeCall<'_>, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    of_rows(node, &node.shape(a)?, None)
}

/// Returns the kernel for the mean of each row.
pub(crate) fn mean(node: &NodeCall<'_>, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    of_rows(node, &a, Some(a.ne[0] as f64))
}

/// Returns the kernel for one number of each row.
fn of_rows(node: &NodeCall<'_>, a: &Shape, divisor: Option<f64>) -> Result<Box<dyn Kernel>, String> {
    let result = node.result;
    let mut row = StridedWalk::new();
    row.push(a.ne[0], [a.nb[0]]);
    total(node, a, divisor, row, StridedWalk::rows([&result, a]), RowUnits::new(result.rows(), a.ne[0]))
}

/// Returns the kernel that makes one number of each `part`, divided by `divisor`.
fn total(
    node: &NodeCall<'_>,
    a: &Shape,
    divisor: Option<f64>,
    part: StridedWalk<1>,
    walk: StridedWalk<2>,
    rows: RowUnits,
) -> Result<Box<dyn Kernel>, String> {
    let (from, to) = (a.dtype, node.result.dtype);
    let fits = match (from, to) {
        (DataType::I32, DataType::I32) => divisor.is_none(),
        (DataType::I32, to) => to.is_float(),
        (from, to) => from.is_float() && to.is_float(),
    };
    if !fits {
        return Err(format!("data types: no sum of {from} as {to}"));
    }
    let (length, [step], part) = part.split_in_order();
    Ok(Box::new(SumElements { from, to, divisor, length, step, part, walk, rows }))
}

#[derive(Debug)]
struct SumElements {
    from: DataType,
    to: DataType,
    /// The divisor of a sum.
    divisor: Option<f64>,
    /// The elements of a sum: lines, the steps along them, and the walk from line to line.
    length: usize,
    step: usize,
    part: StridedWalk<1>,
    /// The walk from one such part to the next: result, source.
    walk: StridedWalk<2>,
    rows: RowUnits,
}

/// The number of elements that are loaded at a time.
const PIECE: usize = 1024;

impl SumElements {
    /// # Safety
    /// The part lies within the source.
    unsafe fn floats(&self, a: TensorPtr<'_>, start: usize, x: &mut [f32]) -> f64 {
        let mut sum = LaneSum::default();
        for [line] in self.part.from(0).take(self.part.count()) {
            for at in (0..self.length).step_by(PIECE) {
                let x = &mut x[..PIECE.min(self.length - at)];
                // SAFETY: elements of the part.
                unsafe { load(self.from, a.at(start + line + at * self.step), self.step, x) };
                add_row(&mut sum, x);
            }
        }
        sum.total()
    }

    /// # Safety
    /// The part lies within the source.
    unsafe fn ints(&self, a: TensorPtr<'_>, start: usize) -> i64 {
        let mut sum = 0i64;
        for [line] in self.part.from(0).take(self.part.count()) {
            for i in 0..self.length {
                // SAFETY: an element of the part.
                sum = sum.wrapping_add(unsafe { a.read::<i32>(start + line + i * self.step) }.into());
            }
        }
        sum
    }
}

impl Kernel for SumElements {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, rows) = (operands.result, operands.source(0), self.rows.unit(unit));
        let [x] = scratch.rows([PIECE]);
        for [r, a_] in self.walk.from(rows.start).take(rows.len()) {
            // SAFETY: a part of the source, and the element of the result that it makes.
            unsafe {
                let sum = match (self.from, self.to) {
                    (DataType::I32, DataType::I32) => {
                        // As if every addition had wrapped.
                        result.write(r, self.ints(a, a_) as i32);
                        continue;
                    }
                    (DataType::I32, _) => self.ints(a, a_) as f64,
                    _ => self.floats(a, a_, x),
                };
                let value = self.divisor.map_or(sum, |divisor| sum / divisor);
                store(self.to, result.at(r), 4, &[value as f32]);
            }
        }
        Ok(())
    }
}
