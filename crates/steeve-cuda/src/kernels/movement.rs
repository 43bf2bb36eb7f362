//! Copies of tensors, and rows that ids name.

use steeve_graph::{DataType, TensorId};

use super::{demand, divides};
use crate::command::Kernel;
use crate::command_list::{ACROSS, CommandList, NodeCall, args};
use crate::shape::{Operand, Shape, can_be_rounded_to, is_float, is_weight, is_weight_block};

/// `cpy`, `cont` and `dup`: the first source into the result, of another type perhaps.
pub(crate) fn copy(node: &NodeCall<'_>, commands: &mut CommandList, a: TensorId) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    convert(commands, a, result)
}

/// The elements of one tensor, in order, as those of another.
pub(crate) fn convert(commands: &mut CommandList, a: Operand, result: Operand) -> Result<(), String> {
    let (from, to) = (a.in_blocks()?, result.in_blocks()?);
    let (kinds, elements) = ((a.shape.dtype, result.shape.dtype), a.shape.elements());
    let both = [Some(a)];
    if kinds.0 == kinds.1 {
        if a.shape.is_dense() && result.shape.is_dense() {
            commands.copy(result.address, a.address, result.shape.bytes);
            return Ok(());
        }
        if let Some(kernel) = turn(&a.shape, &result.shape) {
            let mut args = args(result, &both);
            args.i[0] = result.shape.planes().cast_signed();
            let tiles = |n: u64| n.div_ceil(32);
            let grid = [tiles(result.shape.ne[0]), tiles(result.shape.ne[1]), result.shape.planes().min(ACROSS)];
            return commands.launch(kernel, grid, 256, args);
        }
        return commands.launch_each(Kernel::CopyBlocks, to.shape.elements(), args(to, &[Some(from)]));
    }
    if is_weight(kinds.0) && is_float(kinds.1) {
        let in_fours = divides(4, elements)
            && a.shape.is_dense()
            && result.shape.is_dense()
            && result.address.is_multiple_of(4 * result.shape.size())
            && (!is_float(kinds.0) || a.address.is_multiple_of(4 * a.shape.size()));
        if in_fours {
            return commands.launch_each(Kernel::CopyFloats4, elements / 4, args(result, &both));
        }
        return commands.launch_each(Kernel::CopyFloats, elements, args(result, &both));
    }
    if is_weight(kinds.0) && can_be_rounded_to(kinds.1) {
        return commands.launch_each(Kernel::CopyEncode, to.shape.elements(), args(to, &both));
    }
    if is_plain(kinds.0) && is_plain(kinds.1) {
        return commands.launch_each(Kernel::CopyCast, elements, args(result, &both));
    }
    Err(format!("{} can't become {} here", kinds.0, kinds.1))
}

fn is_plain(dtype: DataType) -> bool {
    use DataType::{Bf16, F16, F32, F64, I8, I16, I32, I64};
    matches!(dtype, F32 | F16 | Bf16 | F64 | I8 | I16 | I32 | I64)
}

/// The kernel that exchanges the first two dimensions, where that pays.
fn turn(a: &Shape, result: &Shape) -> Option<Kernel> {
    let is_turned = a.ne == result.ne && a.nb[1] == a.size() && a.nb[0] != a.size() && result.has_dense_rows();
    let is_large = a.ne[0] >= 16 && a.ne[1] >= 16 && a.ne[1].div_ceil(32) <= ACROSS;
    match a.size() {
        2 if is_turned && is_large => Some(Kernel::Turn2),
        4 if is_turned && is_large => Some(Kernel::Turn4),
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
    demand(a.shape.dtype == dtype && b.shape.dtype == dtype, "all types must be equal")?;
    let (to, parts) = (node.result.in_blocks()?, [a.in_blocks()?, b.in_blocks()?]);
    let mut args = args(to, &parts.map(Some));
    args.i[1] = dim as i64;
    commands.launch_each(Kernel::Concat, to.shape.elements(), args)
}

/// A tensor again and again until it fills the result.
pub(crate) fn repeat(node: &NodeCall<'_>, commands: &mut CommandList, a: TensorId) -> Result<(), String> {
    let a = node.operand(a)?;
    demand(a.shape.dtype == node.result.shape.dtype, "both types must be equal")?;
    let (to, from) = (node.result.in_blocks()?, a.in_blocks()?);
    commands.launch_each(Kernel::Repeat, to.shape.elements(), args(to, &[Some(from)]))
}

fn demand_ids(ids: &Operand) -> Result<(), String> {
    let is_id = matches!(ids.shape.dtype, DataType::I32 | DataType::I64);
    demand(is_id, &format!("ids must be i32 or i64, not {}", ids.shape.dtype))
}

/// Whether rows can be read as floats and written by rounding, as caches are, and say so if not.
pub(crate) fn demand_cache(operand: &Operand) -> Result<(), String> {
    demand(can_be_rounded_to(operand.shape.dtype), &unreadable(operand))?;
    operand.in_blocks().map(drop)
}

/// Whether rows can be read as floats, and say so if not.
pub(crate) fn demand_weights(operand: &Operand) -> Result<(), String> {
    demand(is_weight(operand.shape.dtype), &unreadable(operand))?;
    operand.in_blocks().map(drop)
}

fn unreadable(operand: &Operand) -> String {
    format!("{} can't be read as f32 here", operand.shape.dtype)
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
    demand(result.shape.dtype == wanted, &format!("rows of {} are taken as {wanted}", a.shape.dtype))?;
    let parts = result.shape.ne[0].div_ceil(1024).clamp(1, 64);
    commands.launch(Kernel::GetRows, [result.shape.rows(), parts, 1], 256, args(result, &[Some(a), Some(ids)]))
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
    demand(is_float(rows.shape.dtype), &format!("rows must be f32, f16 or bf16, not {}", rows.shape.dtype))?;
    demand(!is_weight_block(target.shape.dtype), &format!("nothing is rounded to {} here", target.shape.dtype))?;
    demand_cache(&target)?;
    if rows.shape.elements() == 0 {
        return Ok(());
    }
    let threads = rows.shape.ne[0].next_multiple_of(32).min(256) as u32;
    commands.launch(Kernel::SetRows, [rows.shape.rows(), 1, 1], threads, args(target, &[Some(rows), Some(ids)]))
}
