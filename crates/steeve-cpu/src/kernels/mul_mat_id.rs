//! The matrix product with experts that ids select.
//!
//! The rows of one expert are gathered for one product; a unit is a tile of an expert. The ids decide which rows an
//! expert gets, so units are cut for an even distribution, and some have nothing to do.

use steeve_graph::{DataType, TensorId};

use super::block_product;
use super::gather::id_at;
use super::gemm::{MatrixView, ProductOutput, ProductSize, product, readable};
use super::mul_mat::{FillZeros, Tiling};
use crate::float_rows::{load_row, store};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel for `experts` `[k, m, expert]`, `b` `[k, used or 1, token]` and `ids` `[used, token]`, which make
/// `[m, used, token]`.
pub(crate) fn mul_mat_id(
    node: &NodeCall<'_>,
    experts: TensorId,
    b: TensorId,
    ids: TensorId,
) -> Result<Box<dyn Kernel>, String> {
    let ([experts, b, ids], result) = (node.shapes([experts, b, ids])?, node.result);
    readable(&experts)?;
    if !b.dtype.is_float() || ids.dtype != DataType::I32 || result.dtype != DataType::F32 {
        return Err("data types: expected a second source of f32, f16 or bf16, ids of i32 and a result of f32".into());
    }
    let ([k, m, count, _], [used, tokens, ..]) = (experts.ne, ids.ne);
    if k == 0 {
        return Ok(Box::new(FillZeros { rows: RowUnits::of(&result) }));
    }
    if let Some(kernel) = block_product::mul_mat_id(&experts, &b, &ids)? {
        return Ok(kernel);
    }
    let tiles = Tiling::new(ProductSize { m, n: (used * tokens).div_ceil(count.max(1)), k });
    // One unit has to check the ids, even if there are no experts.
    Ok(Box::new(MulMatId { tiles, units: (tiles.down() * count).max(1) }))
}

#[derive(Debug)]
struct MulMatId {
    tiles: Tiling,
    units: usize,
}

/// The number of rows that are gathered at a time.
const TOGETHER: usize = 512;

impl Kernel for MulMatId {
    fn units(&self) -> usize {
        self.units
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (experts, b, ids) = (operands.source(0), operands.source(1), operands.source(2));
        let expert = unit / self.tiles.down();
        // SAFETY: the ids.
        let rows = unsafe { rows_of(ids, expert, experts.shape.ne[2]) }?;
        let tile = self.tiles.strip(unit % self.tiles.down());
        let (k, start) = (tile.size.k, experts.shape.row_offset([tile.row, 0, 0]) + expert * experts.shape.nb[2]);
        for rows in rows.chunks(TOGETHER) {
            let size = ProductSize { n: rows.len(), ..tile.size };
            let [gathered, out, workspace] = scratch.rows([size.n * k, size.m * size.n, size.workspace()]);
            for (row, &(slot, token)) in gathered.chunks_mut(k).zip(rows) {
                // SAFETY: a row of the second source, whose rows are repeated over the slots.
                unsafe { load_row(b, b.shape.row_offset([slot, token, 0]), row) };
            }
            // SAFETY: a tile of an expert, with what was gathered.
            unsafe {
                let a = MatrixView::new(experts, start);
                product(a, MatrixView::loaded(gathered, k), size, ProductOutput::dense(out, size.m), workspace);
            }
            let result = operands.result;
            for (column, &(slot, token)) in out.chunks(size.m.max(1)).zip(rows) {
                let offset = result.shape.row_offset([slot, token, 0]) + tile.row * result.shape.nb[0];
                // SAFETY: a part of a row of the result that only this unit writes.
                unsafe { store(DataType::F32, result.at(offset), result.shape.nb[0], column) };
            }
        }
        Ok(())
    }
}

/// Returns the slots and tokens whose id is that of an expert.
///
/// # Errors
///
/// If an id is that of none of `count` experts.
///
/// # Safety
/// The ids are not written meanwhile.
pub(crate) unsafe fn rows_of(ids: TensorPtr<'_>, expert: usize, count: usize) -> Result<Vec<(usize, usize)>, String> {
    let [used, tokens, ..] = ids.shape.ne;
    let mut rows = Vec::new();
    for (slot, token) in (0..tokens).flat_map(|token| (0..used).map(move |slot| (slot, token))) {
        let offset = slot * ids.shape.nb[0] + token * ids.shape.nb[1];
        // SAFETY: an element of the ids.
        let id = unsafe { id_at(ids, offset, count) }.map_err(|why| why.replace("no such row", "no such expert"))?;
        if id == expert {
            rows.push((slot, token));
        }
    }
    Ok(rows)
}
