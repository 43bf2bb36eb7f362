//! Rows selected by ids: read from a tensor, and written into one.

use std::ops::Range;

use steeve_device::Shape;
use steeve_graph::{DataType, TensorId};

use super::gemm::{MatrixView, readable};
use crate::float_rows::{load_row, store};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::quant::encoder;
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel for the rows of `a` `[k, rows, ..]` that `ids` `[n, ..]` select: `[k, n, ..]`.
pub(crate) fn get_rows(node: &NodeCall<'_>, a: TensorId, ids: TensorId) -> Result<Box<dyn Kernel>, String> {
    let ([a, ids], result) = (node.shapes([a, ids])?, node.result);
    is_id(&ids)?;
    if a.dtype != DataType::I32 {
        readable(&a)?;
    }
    let wanted = if a.dtype == DataType::I32 { DataType::I32 } else { DataType::F32 };
    if result.dtype != wanted {
        return Err(format!("result: expected {wanted} for rows of {}", a.dtype));
    }
    Ok(Box::new(GetRows { rows: RowUnits::of(&result) }))
}

fn is_id(ids: &Shape) -> Result<(), String> {
    match ids.dtype {
        DataType::I32 | DataType::I64 => Ok(()),
        dtype => Err(format!("ids: expected i32 or i64, got {dtype}")),
    }
}

/// Reads the id at an offset.
///
/// # Errors
///
/// If there is no such row, with the id.
///
/// # Safety
/// There is an id at the offset.
pub(crate) unsafe fn id_at(ids: TensorPtr<'_>, offset: usize, rows: usize) -> Result<usize, String> {
    // SAFETY: as promised.
    let id: i64 = unsafe {
        match ids.shape.dtype {
            DataType::I64 => ids.read(offset),
            _ => ids.read::<i32>(offset).into(),
        }
    };
    let row = usize::try_from(id).ok().filter(|&row| row < rows);
    row.ok_or_else(|| format!("no such row: expected an id below {rows}, got {id}"))
}

#[derive(Debug)]
struct GetRows {
    rows: RowUnits,
}

impl Kernel for GetRows {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, ids) = (operands.result, operands.source(0), operands.source(1));
        let [row] = scratch.rows([result.shape.ne[0]]);
        for index in self.rows.unit(unit) {
            let at @ [i1, i2, i3] = result.shape.row_at(index);
            let [n0, n1, n2, _] = ids.shape.nb;
            // SAFETY: there is an id for each row of the result.
            let id = unsafe { id_at(ids, i1 * n0 + i2 * n1 + i3 * n2, a.shape.ne[1]) }?;
            let (from, to) = (a.shape.row_offset([id, i2, i3]), result.shape.row_offset(at));
            // SAFETY: rows of both, and each of the result's is written by one unit.
            unsafe {
                if a.shape.dtype == DataType::I32 {
                    for i in 0..result.shape.ne[0] {
                        result.write(to + i * result.shape.nb[0], a.read::<i32>(from + i * a.shape.nb[0]));
                    }
                } else {
                    MatrixView::new(a, from).load(0, 0, row);
                    store(DataType::F32, result.at(to), result.shape.nb[0], row);
                }
            }
        }
        Ok(())
    }
}

/// Returns the kernel that writes `rows` `[k, n, ..]` to the rows that `ids` `[n, ..]` select in the target `[k, m,
/// ..]`, which is the result.
pub(crate) fn set_rows(node: &NodeCall<'_>, rows: TensorId, ids: TensorId) -> Result<Box<dyn Kernel>, String> {
    let ([rows, ids], target) = (node.shapes([rows, ids])?, node.result);
    is_id(&ids)?;
    if !rows.dtype.is_float() {
        return Err(format!("rows: expected f32, f16 or bf16, got {}", rows.dtype));
    }
    readable(&target)?;
    if !target.dtype.is_float() && encoder(target.dtype).is_none() {
        return Err(format!("no rounding to {}", target.dtype));
    }
    let parts = target.ne[0].div_ceil(SetRows::PART);
    Ok(Box::new(SetRows { parts, planes: target.ne[2], units: parts * target.ne[2] * target.ne[3] }))
}

/// Writes selected rows. A unit writes a part of every row of a plane, in the order of the ids. So of two rows with one
/// id the later one stays, whatever the threads.
#[derive(Debug)]
struct SetRows {
    parts: usize,
    planes: usize,
    units: usize,
}

impl SetRows {
    /// The elements of a part; a whole number of blocks of every type.
    const PART: usize = 1024;
}

impl Kernel for SetRows {
    fn units(&self) -> usize {
        self.units
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (target, rows, ids) = (operands.result, operands.source(0), operands.source(1));
        let (first, plane) = (unit % self.parts * Self::PART, unit / self.parts);
        let part = first..target.shape.ne[0].min(first + Self::PART);
        let [i2, i3] = [plane % self.planes, plane / self.planes];
        let [row] = scratch.rows([part.len()]);
        for i1 in 0..rows.shape.ne[1] {
            let [n0, n1, n2, _] = ids.shape.nb;
            let offset = i1 * n0 + i2 % ids.shape.ne[1] * n1 + i3 % ids.shape.ne[2] * n2;
            let from = rows.shape.row_offset([i1, i2, i3]) + part.start * rows.shape.nb[0];
            // SAFETY: there is an id for each row, which is a row of the target; and a plane's part is one unit's.
            unsafe {
                let id = id_at(ids, offset, target.shape.ne[1])?;
                load_row(rows, from, row);
                write_part(target, target.shape.row_offset([id, i2, i3]), part.clone(), row);
            }
        }
        Ok(())
    }
}

/// Writes a part of a row that starts at `offset`.
///
/// # Safety
/// There is such a part of a row, it starts and ends between blocks, and no other thread accesses it.
unsafe fn write_part(to: TensorPtr<'_>, offset: usize, part: Range<usize>, row: &[f32]) {
    let (block, step) = (to.shape.dtype.block_len() as usize, to.shape.nb[0]);
    let start = offset + part.start / block * step;
    // SAFETY: as promised.
    unsafe {
        match encoder(to.shape.dtype) {
            None => store(to.shape.dtype, to.at(start), step, row),
            Some(encode) => encode(row, to.bytes_mut(start, part.len() / block * step)),
        }
    }
}
