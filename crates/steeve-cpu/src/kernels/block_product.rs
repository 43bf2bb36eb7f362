//! Matrix products with weights in blocks: the second source is rounded once, and then every unit multiplies with it.
//!
//! ```text
//!   a few columns     a unit reads some rows of weights once, and each of them is multiplied with all columns
//!   many              a unit has some rows of weights, which stay in a cache, and goes over columns, a few at a time
//! ```

use steeve_device::Shape;

use super::block_dots::{self, BlockRows, DotsFn, RoundedColumn, dots};
use super::mul_mat_id::rows_of;
use super::rounded_rows::{BlockLength, RoundedRow};
use crate::float_rows::load_row;
use crate::kernel::{Kernel, Operands, Prologue, RowUnits, ThreadScratch, UnitError};
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel for `a` `[k, m]` in blocks and `b` `[k, n]`, which make `[m, n]`; `None` for other types.
/// `repeats` is how often planes and cubes of `a` are used; the caller has checked the shapes.
pub(crate) fn mul_mat(a: &Shape, b: &Shape, repeats: [usize; 2]) -> Result<Option<Box<dyn Kernel>>, String> {
    let Some(product) = RoundedProduct::new(a, b)? else { return Ok(None) };
    let [_, n, planes, cubes] = b.ne;
    let strips = WeightStrips::new(a, n);
    let across = n.div_ceil(COLUMNS);
    let units = strips.count() * across * planes * cubes;
    Ok(Some(Box::new(MulMat { product, strips, across, units, repeats })))
}

/// Returns the kernel for `experts` `[k, m, expert]` in blocks, `b` `[k, used or 1, token]` and `ids` `[used, token]`,
/// which make `[m, used, token]`; `None` for other types. The caller has checked the shapes.
pub(crate) fn mul_mat_id(experts: &Shape, b: &Shape, ids: &Shape) -> Result<Option<Box<dyn Kernel>>, String> {
    let (Some(product), count) = (RoundedProduct::new(experts, b)?, experts.ne[2]) else { return Ok(None) };
    let strips = WeightStrips::new(experts, (ids.ne[0] * ids.ne[1]).div_ceil(count.max(1)));
    // One unit has to check the ids, even if there are no experts.
    Ok(Some(Box::new(MulMatId { product, strips, units: (strips.count() * count).max(1) })))
}

/// The largest number of columns of a unit of [`mul_mat`]; one of [`mul_mat_id`] has all of its expert's.
const COLUMNS: usize = 256;

/// The product of weights in blocks with rows that are rounded for them.
#[derive(Clone, Copy, Debug)]
struct RoundedProduct {
    blocks: BlockLength,
    dots: DotsFn,
    /// The rows of the second source.
    rows: RowUnits,
    bytes: usize,
}

impl RoundedProduct {
    fn new(a: &Shape, b: &Shape) -> Result<Option<Self>, String> {
        let (Some(blocks), Some(dots)) = (BlockLength::of(a.dtype), dots(a.dtype)) else { return Ok(None) };
        let bytes = blocks.bytes(b.rows(), b.ne[0]).ok_or("second source too large to be rounded")?;
        Ok(Some(Self { blocks, dots, rows: RowUnits::of(b), bytes }))
    }

    fn prologue(&self) -> Prologue {
        Prologue { units: self.rows.units(), bytes: self.bytes }
    }

    /// Rounds some rows of the second source.
    ///
    /// # Safety
    /// The contract of [`Kernel::run_prologue`] holds.
    unsafe fn round(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) {
        let b = operands.source(1);
        let [row] = scratch.rows([b.shape.ne[0]]);
        for index in self.rows.unit(unit) {
            // SAFETY: rows of the source, each of which has its own memory in the node scratch.
            unsafe {
                load_row(b, b.shape.row_offset(b.shape.row_at(index)), row);
                self.blocks.round(row, operands.node_scratch, index);
            }
        }
    }

    /// Returns a rounded row of the second source.
    ///
    /// # Safety
    /// All have been rounded.
    unsafe fn row<'a>(&self, operands: &Operands<'a>, [i1, i2, i3]: [usize; 3]) -> RoundedRow<'a> {
        let [k, n1, n2, _] = operands.source(1).shape.ne;
        // SAFETY: as promised.
        unsafe { self.blocks.row(operands.node_scratch, i1 + n1 * (i2 + n2 * i3), k) }
    }

    /// Multiplies rows of weights with columns.
    ///
    /// # Safety
    /// There are such rows and columns, and no other thread accesses their products.
    unsafe fn multiply<'a>(
        &self,
        weights: BlockRows,
        mut columns: impl ExactSizeIterator<Item = RoundedColumn<'a>>,
        scratch: &mut ThreadScratch,
    ) {
        // One token is what there is most often, and needs no list.
        match (columns.len(), columns.next()) {
            // SAFETY: as promised.
            (1, Some(only)) => unsafe { (self.dots)(weights, &[only], scratch) },
            (_, first) => {
                let columns: Vec<RoundedColumn<'_>> = first.into_iter().chain(columns).collect();
                // SAFETY: as promised.
                unsafe { (self.dots)(weights, &columns, scratch) }
            }
        }
    }
}

/// Rows of weights, cut into strips.
#[derive(Clone, Copy, Debug)]
struct WeightStrips {
    m: usize,
    rows: usize,
}

impl WeightStrips {
    /// Cuts rows: with few columns into what is worth waking a thread, with many into what stays in a cache of one
    /// core.
    fn new(a: &Shape, n: usize) -> Self {
        let elements = if n <= block_dots::FEW { 64 * 1024 } else { 256 * 1024 };
        Self { m: a.ne[1], rows: (elements / a.ne[0].max(1)).clamp(8, 4096) }
    }

    fn count(&self) -> usize {
        self.m.div_ceil(self.rows)
    }

    /// Returns the first row of a strip, and its weights in a plane that starts at an offset.
    ///
    /// # Safety
    /// There is such a plane.
    unsafe fn weights(&self, strip: usize, a: TensorPtr<'_>, plane: usize) -> (usize, BlockRows) {
        let (row, stride) = (strip * self.rows, a.shape.nb[1]);
        // SAFETY: as promised.
        let start = unsafe { a.at(plane + row * stride) };
        (row, BlockRows { start, stride, rows: self.rows.min(self.m - row) })
    }
}

#[derive(Debug)]
struct MulMat {
    product: RoundedProduct,
    strips: WeightStrips,
    /// The number of units that use the same rows of weights of a plane.
    across: usize,
    units: usize,
    /// How often each plane and each cube of `a` is used.
    repeats: [usize; 2],
}

impl Kernel for MulMat {
    fn units(&self) -> usize {
        self.units
    }

    fn prologue(&self) -> Prologue {
        self.product.prologue()
    }

    unsafe fn run_prologue(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) {
        // SAFETY: as promised.
        unsafe { self.product.round(operands, unit, scratch) }
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a) = (operands.result, operands.source(0));
        let [_, n, planes, _] = result.shape.ne;
        let (strip, rest) = (unit % self.strips.count(), unit / self.strips.count());
        let (first, plane) = (rest % self.across * COLUMNS, rest / self.across);
        let [i2, i3] = [plane % planes, plane / planes];
        let a_plane = a.shape.row_offset([0, i2 / self.repeats[0], i3 / self.repeats[1]]);
        // SAFETY: rows of the weights and of the result, whose parts are written by one unit each.
        unsafe {
            let (row, weights) = self.strips.weights(strip, a, a_plane);
            let columns = (first..n.min(first + COLUMNS)).map(|i1| {
                let (at, step) = ([i1, i2, i3], result.shape.nb[0]);
                let out = result.at(result.shape.row_offset(at) + row * step);
                RoundedColumn { row: self.product.row(operands, at), out, step }
            });
            self.product.multiply(weights, columns, scratch);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct MulMatId {
    product: RoundedProduct,
    strips: WeightStrips,
    units: usize,
}

impl Kernel for MulMatId {
    fn units(&self) -> usize {
        self.units
    }

    fn prologue(&self) -> Prologue {
        self.product.prologue()
    }

    unsafe fn run_prologue(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) {
        // SAFETY: as promised.
        unsafe { self.product.round(operands, unit, scratch) }
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, experts, b) = (operands.result, operands.source(0), operands.source(1));
        let (strip, expert) = (unit % self.strips.count(), unit / self.strips.count());
        // SAFETY: the ids.
        let rows = unsafe { rows_of(operands.source(2), expert, experts.shape.ne[2]) }?;
        if rows.is_empty() {
            return Ok(());
        }
        // SAFETY: rows of an expert, and of the result, whose parts are written by one unit each.
        unsafe {
            let (row, weights) = self.strips.weights(strip, experts, expert * experts.shape.nb[2]);
            let columns = rows.iter().map(|&(slot, token)| {
                let step = result.shape.nb[0];
                let out = result.at(result.shape.row_offset([slot, token, 0]) + row * step);
                // The rows of the second source are repeated over the slots.
                RoundedColumn { row: self.product.row(operands, [slot % b.shape.ne[1], token, 0]), out, step }
            });
            self.product.multiply(weights, columns, scratch);
        }
        Ok(())
    }
}
