//! Products of matrices, cut into tiles that depend on shapes alone.

use steeve_graph::{DataType, TensorId};

use super::block_product;
use super::gemm::{FEW, MatrixView, ProductOutput, ProductSize, product, readable};
use crate::float_rows::store_row;
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};

/// Returns the kernel for `a` `[k, m]` and `b` `[k, n]`, which make `[m, n]`; `a` is repeated over the outer
/// dimensions.
pub(crate) fn mul_mat(node: &NodeCall<'_>, a: TensorId, b: TensorId) -> Result<Box<dyn Kernel>, String> {
    let ([a, b], result) = (node.shapes([a, b])?, node.result);
    readable(&a)?;
    if !b.dtype.is_float() || result.dtype != DataType::F32 {
        return Err("data types: expected a second source of f32, f16 or bf16 and a result of f32".into());
    }
    let [k, m, ..] = a.ne;
    let [_, n, planes, cubes] = b.ne;
    if k == 0 {
        return Ok(Box::new(FillZeros { rows: RowUnits::of(&result) }));
    }
    let repeats = [planes / a.ne[2].max(1), cubes / a.ne[3].max(1)];
    if let Some(kernel) = block_product::mul_mat(&a, &b, repeats)? {
        return Ok(kernel);
    }
    let tiles = Tiling::new(ProductSize { m, n, k });
    Ok(Box::new(MulMat { tiles, planes, units: tiles.count() * planes * cubes, repeats }))
}

#[derive(Debug)]
struct MulMat {
    tiles: Tiling,
    planes: usize,
    units: usize,
    /// How often each plane and each cube of `a` is used.
    repeats: [usize; 2],
}

impl Kernel for MulMat {
    fn units(&self) -> usize {
        self.units
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, b) = (operands.result, operands.source(0), operands.source(1));
        let (tile, plane) = (self.tiles.tile(unit % self.tiles.count()), unit / self.tiles.count());
        let [i2, i3] = [plane % self.planes, plane / self.planes];
        let a_offset = a.shape.row_offset([tile.row, i2 / self.repeats[0], i3 / self.repeats[1]]);
        let b_offset = b.shape.row_offset([tile.column, i2, i3]);
        let [workspace] = scratch.rows([tile.size.workspace()]);
        let [element, column, ..] = result.shape.nb;
        // SAFETY: tiles lie within the matrices, and each is written by one unit.
        unsafe {
            let start = result.at(tile.row * element + result.shape.row_offset([tile.column, i2, i3]));
            let out = ProductOutput { start, row: element, column };
            product(MatrixView::new(a, a_offset), MatrixView::new(b, b_offset), tile.size, out, workspace);
        }
        Ok(())
    }
}

/// The product of matrices with `k = 0`: sums without terms.
#[derive(Debug)]
pub(crate) struct FillZeros {
    pub(crate) rows: RowUnits,
}

impl Kernel for FillZeros {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let result = operands.result;
        let [zeros] = scratch.rows([result.shape.ne[0]]);
        zeros.fill(0.0);
        for row in self.rows.unit(unit) {
            // SAFETY: a row of the result, which one unit writes.
            unsafe { store_row(result, result.shape.row_offset(result.shape.row_at(row)), zeros) };
        }
        Ok(())
    }
}

/// A matrix product in tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiling {
    size: ProductSize,
    rows: usize,
    columns: usize,
}

/// A tile, which starts at `row` of the first matrix and at `column`, which is a row, of the second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) size: ProductSize,
}

impl Tiling {
    /// Cuts a product into tiles. With few rows on one side a tile has enough of the other to be worth waking a thread;
    /// otherwise its size keeps the library near its best speed: it reorders the rows it is given, which must be used
    /// by enough columns, and each core has a cache of its own.
    pub(crate) fn new(size: ProductSize) -> Self {
        const ELEMENTS: usize = 64 * 1024;
        let enough = (ELEMENTS / size.k.max(1)).clamp(16, 4096);
        let (rows, columns) = match size {
            ProductSize { n: ..=FEW, .. } => (enough, FEW),
            ProductSize { m: ..=FEW, .. } => (FEW, enough),
            _ => (128, 512),
        };
        Self { size, rows, columns }
    }

    pub(crate) fn count(&self) -> usize {
        self.down() * self.size.n.div_ceil(self.columns)
    }

    /// Returns the number of tiles along the first matrix.
    pub(crate) fn down(&self) -> usize {
        self.size.m.div_ceil(self.rows)
    }

    /// Returns a tile of all columns of some rows of the first matrix.
    pub(crate) fn strip(&self, index: usize) -> Tile {
        let row = index * self.rows;
        Tile { row, column: 0, size: ProductSize { m: self.rows.min(self.size.m - row), ..self.size } }
    }

    /// Returns a tile by number. Tiles that share columns of the result follow one another.
    pub(crate) fn tile(&self, index: usize) -> Tile {
        let (strip, column) = (self.strip(index % self.down()), index / self.down() * self.columns);
        Tile { column, size: ProductSize { n: self.columns.min(self.size.n - column), ..strip.size }, ..strip }
    }
}
