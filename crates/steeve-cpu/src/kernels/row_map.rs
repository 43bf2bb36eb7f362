//! Kernels that compute each row of the result from a row of each source. A row is copied before its result is written.

use std::fmt;

use steeve_graph::TensorId;

use super::map::floats;
use super::strided_walk::StridedWalk;
use crate::float_rows::{load_row, store_row};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};

/// Returns the kernel of a function that changes a row of the first source.
pub(crate) fn each_row(
    node: &NodeCall<'_>,
    a: TensorId,
    function: impl RowFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    floats([node.result, a])?;
    Ok(Box::new(RowMap { function, walk: StridedWalk::rows([&node.result, &a]), rows: RowUnits::of(&node.result) }))
}

/// Returns the kernel of a function that changes a row of the first source with one of the second, which has the same
/// shape.
pub(crate) fn each_pair(
    node: &NodeCall<'_>,
    a: TensorId,
    b: TensorId,
    function: impl RowPairFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    let [a, b] = node.shapes([a, b])?;
    floats([node.result, a, b])?;
    Ok(Box::new(RowPairMap {
        function,
        walk: StridedWalk::rows([&node.result, &a, &b]),
        rows: RowUnits::of(&node.result),
    }))
}

pub(crate) trait RowFn: Fn(&mut [f32]) + Send + Sync {}
impl<F: Fn(&mut [f32]) + Send + Sync> RowFn for F {}

pub(crate) trait RowPairFn: Fn(&mut [f32], &[f32]) + Send + Sync {}
impl<F: Fn(&mut [f32], &[f32]) + Send + Sync> RowPairFn for F {}

struct RowMap<F> {
    function: F,
    walk: StridedWalk<2>,
    rows: RowUnits,
}

impl<F: RowFn> Kernel for RowMap<F> {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, rows) = (operands.result, operands.source(0), self.rows.unit(unit));
        let [x] = scratch.rows([result.shape.ne[0]]);
        for [r, a_] in self.walk.from(rows.start).take(rows.len()) {
            // SAFETY: rows of the operands; the source's is copied before the result's is written.
            unsafe {
                load_row(a, a_, x);
                (self.function)(x);
                store_row(result, r, x);
            }
        }
        Ok(())
    }
}

struct RowPairMap<F> {
    function: F,
    walk: StridedWalk<3>,
    rows: RowUnits,
}

impl<F: RowPairFn> Kernel for RowPairMap<F> {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, b, rows) = (operands.result, operands.source(0), operands.source(1), self.rows.unit(unit));
        let [x, y] = scratch.rows([result.shape.ne[0]; 2]);
        for [r, a_, b_] in self.walk.from(rows.start).take(rows.len()) {
            // SAFETY: rows of the operands; the sources' are copied before the result's is written.
            unsafe {
                load_row(a, a_, x);
                load_row(b, b_, y);
                (self.function)(x, y);
                store_row(result, r, x);
            }
        }
        Ok(())
    }
}

impl<F> fmt::Debug for RowMap<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachRow").field("walk", &self.walk).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for RowPairMap<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachPair").field("walk", &self.walk).finish_non_exhaustive()
    }
}
