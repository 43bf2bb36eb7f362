//! Copies of tensors, and rows that ids name.

use steeve_device::Shape;
use steeve_graph::{DataType, TensorId};

use super::{demand, divides};
use crate::command_list::{ACROSS, CommandList, NodeCall};
use crate::data_types::{can_be_rounded_to, is_weight, is_weight_block};
use crate::kernel_list::{self as kernel, Kernel};
use crate::operand::{Operand, signed, unsigned};
use crate::params::{ConcatParams, CopyParams, RowsParams, TurnParams};

/// `cpy`, `cont` and `dup`: the first source into the result, of another type perhaps.
pub(crate) fn copy(node: &NodeCall<'_>, commands: &mut CommandList, a: TensorId) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    convert(commands, a, result)
}

/// Makes the elements of one tensor, in order, the elements of another.
pub(crate) fn convert(commands: &mut CommandList, a: Operand, result: Operand) -> Result<(), String> {
    let (from, to) = (a.in_blocks()?, result.in_blocks()?);
    let (kinds, elements) = ((a.shape.dtype, result.shape.dtype), a.shape.elements());
    let mut each = |kernel, count, from: Operand, to: Operand| {
        commands.launch_each(
            kernel,
            count,
            CopyParams { result: to.into(), source: from.into(), count: unsigned(count) },
        )
    };
    if kinds.0 == kinds.1 {
        if a.shape.is_dense() && result.shape.is_dense() {
            commands.copy(result.address, a.address, result.shape.bytes);
            return Ok(());
        }
        if let Some(kernel) = turn(&a.shape, &result.shape) {
            let planes = signed(result.shape.planes());
            let params = TurnParams { result: result.into(), source: a.into(), planes };
            let tiles = |n: usize| n.div_ceil(32);
            let grid = [tiles(result.shape.ne[0]), tiles(result.shape.ne[1]), result.shape.planes().min(ACROSS)];
            return commands.launch(kernel, grid, 256, params);
        }
        return each(kernel::copy_blocks, to.shape.elements(), from, to);
    }
    if is_weight(kinds.0) && kinds.1.is_float() {
        let in_fours = divides(4, elements)
            && a.shape.is_dense()
            && result.shape.is_dense()
            && result.starts_at(4 * result.shape.size())
            && (!kinds.0.is_float() || a.starts_at(4 * a.shape.size()));
        if in_fours {
            return each(kernel::copy_floats_4, elements / 4, a, result);
        }
        return each(kernel::copy_floats, elements, a, result);
    }
    if is_weight(kinds.0) && can_be_rounded_to(kinds.1) {
        return each(kernel::copy_encode, to.shape.elements(), a, to);
    }
    if is_plain(kinds.0) && is_plain(kinds.1) {
        return each(kernel::copy_cast, elements, a, result);
    }
    Err(format!("no conversion of {} to {}", kinds.0, kinds.1))
}

fn is_plain(dtype: DataType) -> bool {
    use DataType::{Bf16, F16, F32, F64, I8, I16, I32, I64};
    matches!(dtype, F32 | F16 | Bf16 | F64 | I8 | I16 | I32 | I64)
}

/// The kernel that exchanges the first two dimensions, where that pays.
fn turn(a: &Shape, result: &Shape) -> Option<Kernel<TurnParams>> {
    let is_turned = a.ne == result.ne && a.nb[1] == a.size() && a.nb[0] != a.size() && result.has_dense_rows();
    let is_large = a.ne[0] >= 16 && a.ne[1] >= 16 && a.ne[1].div_ceil(32) <= ACROSS;
    match a.size() {
        2 if is_turned && is_large => Some(kernel::turn_2),
        4 if is_turned && is_large => Some(kernel::turn_4),
        _ => None,
    }
}

/// One tensor behind another along a dimension.
pub(crate) fn concat(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    b: TensorId,
    dim: usize,
) -> Result<(), String> {
    let [a, b] = node.operands([a, b])?;
    let dtype = node.result.shape.dtype;
    demand(a.shape.dtype == dtype && b.shape.dtype == dtype, "data types: expected equal ones")?;
    let (to, parts) = (node.result.in_blocks()?, [a.in_blocks()?, b.in_blocks()?]);
    let (count, [first, second]) = (to.shape.elements(), parts.map(Into::into));
    let params = ConcatParams { result: to.into(), first, second, count: unsigned(count), dim: signed(dim) };
    commands.launch_each(kernel::concat, count, params)
}

/// A tensor again and again until it fills the result.
pub(crate) fn repeat(node: &NodeCall<'_>, commands: &mut CommandList, a: TensorId) -> Result<(), String> {
    let a = node.operand(a)?;
    demand(a.shape.dtype == node.result.shape.dtype, "data types: expected equal ones")?;
    let (to, from) = (node.result.in_blocks()?, a.in_blocks()?);
    let count = to.shape.elements();
    commands.launch_each(
        kernel::repeat,
        count,
        CopyParams { result: to.into(), source: from.into(), count: unsigned(count) },
    )
}

fn demand_ids(ids: &Operand) -> Result<(), String> {
    let is_id = matches!(ids.shape.dtype, DataType::I32 | DataType::I64);
    demand(is_id, &format!("ids: expected i32 or i64, got {}", ids.shape.dtype))
}

/// Returns an error unless rows can be read as floats and written by rounding, as those of caches are.
pub(crate) fn demand_cache(operand: &Operand) -> Result<(), String> {
    demand(can_be_rounded_to(operand.shape.dtype), &unreadable(operand))?;
    operand.in_blocks().map(drop)
}

/// Returns an error unless rows can be read as floats.
pub(crate) fn demand_weights(operand: &Operand) -> Result<(), String> {
    demand(is_weight(operand.shape.dtype), &unreadable(operand))?;
    operand.in_blocks().map(drop)
}

fn unreadable(operand: &Operand) -> String {
    format!("no conversion of {} to f32", operand.shape.dtype)
}

/// The rows of `a` `[k, rows, ..]` that `ids` `[n, ..]` names make `[k, n, ..]`.
pub(crate) fn get_rows(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    ids: TensorId,
) -> Result<(), String> {
    let ([a, ids], result) = (node.operands([a, ids])?, node.result);
    demand_ids(&ids)?;
    let wanted = if a.shape.dtype == DataType::I32 { DataType::I32 } else { DataType::F32 };
    if wanted == DataType::F32 {
        demand_weights(&a)?;
    }
    demand(result.shape.dtype == wanted, &format!("result: expected {wanted} for rows of {}", a.shape.dtype))?;
    let parts = result.shape.ne[0].div_ceil(1024).clamp(1, 64);
    commands.launch(
        kernel::get_rows,
        [result.shape.rows(), parts, 1],
        256,
        RowsParams { result: result.into(), rows: a.into(), ids: ids.into() },
    )
}

/// `rows` `[k, n, ..]` go where `ids` `[n, ..]` says in the target `[k, m, ..]`, which is the result.
pub(crate) fn set_rows(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    rows: TensorId,
    ids: TensorId,
) -> Result<(), String> {
    let ([rows, ids], target) = (node.operands([rows, ids])?, node.result);
    demand_ids(&ids)?;
    demand(rows.shape.dtype.is_float(), &format!("rows: expected f32, f16 or bf16, got {}", rows.shape.dtype))?;
    demand(!is_weight_block(target.shape.dtype), &format!("no rounding to {}", target.shape.dtype))?;
    demand_cache(&target)?;
    if rows.shape.elements() == 0 {
        return Ok(());
    }
    let threads = rows.shape.ne[0].next_multiple_of(32).min(256) as u32;
    commands.launch(
        kernel::set_rows,
        [rows.shape.rows(), 1, 1],
        threads,
        RowsParams { result: target.into(), rows: rows.into(), ids: ids.into() },
    )
}
