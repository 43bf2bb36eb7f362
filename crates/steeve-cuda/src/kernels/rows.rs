//! Norms, soft-max, masks, sums and orders of rows.

use steeve_graph::{DataType, Order, SoftMax, TensorId};

use super::{demand, divides};
use crate::command::Kernel;
use crate::command_list::{ACROSS, CommandList, NodeCall, args, floats};
use crate::shape::{Operand, is_float};

/// As many threads for a row as it has groups of `each` elements, in whole warps.
fn threads(length: u64, each: u64, most: u64) -> u32 {
    length.div_ceil(each).next_power_of_two().clamp(32, most) as u32
}

/// If rows fit into registers, and four elements can be read at once: as many threads, and as many groups of four for each.
fn held(length: u64, operands: &[Operand]) -> Option<(u32, u64)> {
    let is_held = |operand: &Operand| operand.shape.has_dense_rows() && operand.is_aligned(4 * operand.shape.size());
    let groups = length / 4;
    let block = groups.div_ceil(4).next_power_of_two().clamp(32, 512);
    let fits = divides(4, length) && groups <= 8 * 512 && operands.iter().all(is_held);
    fits.then_some((block as u32, groups.div_ceil(block)))
}

/// What a row is divided by: its deviation, its root mean square or its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norm {
    Deviation,
    Rms,
    L2,
}

/// Each row less its mean, or not, divided by its deviation, its root mean square or its length.
pub(crate) fn norm(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    norm: Norm,
    a: TensorId,
    epsilon: f32,
) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    floats([result, a])?;
    let mut args = args(result, &[Some(a)]);
    args.f[0] = epsilon;
    args.i[0] = match norm {
        Norm::Deviation => 0,
        Norm::Rms => 1,
        Norm::L2 => 2,
    };
    let (length, rows) = (result.shape.ne[0], [result.shape.rows(), 1, 1]);
    if let Some((block, groups)) = held(length, &[a, result]) {
        let kernel = match groups {
            ..=1 => Kernel::Norm1,
            2 => Kernel::Norm2,
            3..=4 => Kernel::Norm4,
            _ => Kernel::Norm8,
        };
        return commands.launch(kernel, rows, block, args);
    }
    commands.launch(Kernel::Norm, rows, threads(length, 4, 1024), args)
}

/// The gradient of rms_norm.
pub(crate) fn rms_norm_back(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    gradient: TensorId,
    a: TensorId,
    epsilon: f32,
) -> Result<(), String> {
    let [gradient, x] = node.operands([gradient, a])?;
    floats([node.result, gradient, x])?;
    let mut args = args(node.result, &[Some(gradient), Some(x)]);
    args.f[0] = epsilon;
    let shape = node.result.shape;
    commands.launch(Kernel::RmsNormBack, [shape.rows(), 1, 1], threads(shape.ne[0], 4, 1024), args)
}

/// Norms over groups of the third dimension.
pub(crate) fn group_norm(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    groups: u32,
    epsilon: f32,
) -> Result<(), String> {
    let (a, groups) = (node.operand(a)?, u64::from(groups));
    floats([node.result, a])?;
    let [n0, n1, channels, outer] = node.result.shape.ne;
    let per_group = channels.div_ceil(groups).max(1);
    let groups = channels.div_ceil(per_group);
    let mut args = args(node.result, &[Some(a)]);
    (args.i[0], args.i[1], args.f[0]) = (per_group.cast_signed(), groups.cast_signed(), epsilon);
    commands.launch(Kernel::GroupNorm, [groups * outer, 1, 1], threads(n0 * n1 * per_group, 4, 1024), args)
}

/// Soft-max of each row after a scale; a mask is added first, times the slope of its head, and a sink takes its share.
pub(crate) fn soft_max(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    [mask, sinks]: [Option<TensorId>; 2],
    numbers: SoftMax,
) -> Result<(), String> {
    let (a, shape) = (node.operand(a)?, node.result.shape);
    let (mask, sinks) = (node.optional(mask)?, node.optional(sinks)?);
    floats([node.result, a])?;
    demand(mask.is_none_or(|mask| is_float(mask.shape.dtype)), "the mask must be f32, f16 or bf16")?;
    demand(sinks.is_none_or(|sinks| sinks.shape.dtype == DataType::F32), "the sinks must be f32")?;
    let mut args = args(node.result, &[Some(a), mask, sinks]);
    (args.f[0], args.f[1]) = (numbers.scale, numbers.max_bias);
    let rows = [shape.rows(), 1, 1];
    let operands: Vec<Operand> = [a, node.result].into_iter().chain(mask).collect();
    if let Some((block, groups)) = held(shape.ne[0], &operands) {
        let kernel = match groups {
            ..=1 => Kernel::SoftMax1,
            2..=4 => Kernel::SoftMax4,
            _ => Kernel::SoftMax8,
        };
        return commands.launch(kernel, rows, block, args);
    }
    commands.launch(Kernel::SoftMax, rows, threads(shape.ne[0], 4, 1024), args)
}

/// The gradient of soft-max.
pub(crate) fn soft_max_back(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    gradient: TensorId,
    y: TensorId,
    numbers: SoftMax,
) -> Result<(), String> {
    let [gradient, y] = node.operands([gradient, y])?;
    floats([node.result, gradient, y])?;
    demand(numbers.max_bias == 0.0, "only without a bias")?;
    let mut args = args(node.result, &[Some(gradient), Some(y)]);
    args.f[0] = numbers.scale;
    let shape = node.result.shape;
    commands.launch(Kernel::SoftMaxBack, [shape.rows(), 1, 1], threads(shape.ne[0], 4, 1024), args)
}

/// Minus infinity or zero above the diagonal that starts at a column.
pub(crate) fn diag_mask(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    past: u32,
    value: f32,
) -> Result<(), String> {
    let a = node.operand(a)?;
    floats([node.result, a])?;
    let mut args = args(node.result, &[Some(a)]);
    args.f[0] = value;
    let elements = node.result.shape.elements();
    (args.i[0], args.i[1]) = (past.into(), elements.cast_signed());
    commands.launch(Kernel::DiagMask, [elements.div_ceil(256), 1, 1], 256, args)
}

/// Fewer elements than this are not worth another block.
const PART: u64 = 8192;

/// As many blocks are enough for every GPU. They do not depend on which one it is, so that sums do not either.
const PARTS: u64 = 2048;

/// What is added up, and whether the sum is divided by how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    All,
    Rows,
    Mean,
}

/// The sum of all elements, or the sum or the mean of each row.
pub(crate) fn sum(node: &NodeCall<'_>, commands: &mut CommandList, sum: Sum, a: TensorId) -> Result<(), String> {
    let mut source = node.operand(a)?;
    let (a, result) = (source.shape, node.result.shape);
    let (is_all, is_mean) = (sum == Sum::All, sum == Sum::Mean);
    let fits = match (a.dtype, result.dtype) {
        (DataType::I32, DataType::I32) => !is_mean,
        (DataType::I32, to) => is_float(to),
        (from, to) => is_float(from) && is_float(to),
    };
    demand(fits, &format!("no {} is made of {} this way", result.dtype, a.dtype))?;
    if is_all && a.is_dense() {
        source.shape = a.line();
    }
    let (length, sums) = (if is_all { a.elements() } else { a.ne[0] }, result.elements());
    let parts = length.div_ceil(PART).min(PARTS / sums.max(1)).max(1);
    let mut args = args(node.result, &[Some(source)]);
    let divisor = if is_mean { a.ne[0].cast_signed() } else { 1 };
    args.i[..3].copy_from_slice(&[i64::from(is_all), divisor, parts.cast_signed()]);
    args.i[3] = length.div_ceil(parts).cast_signed();
    if parts == 1 {
        return commands.launch(Kernel::Sum, [sums, 1, 1], threads(length, 16, 256), args);
    }
    args.i[4] = commands.scratch(8 * sums * parts, 0).cast_signed();
    commands.launch(Kernel::Sum, [sums * parts, 1, 1], 256, args)?;
    commands.launch(Kernel::SumParts, [sums, 1, 1], threads(parts, 4, 256), args)
}

/// As many words are sorted by one block, in the memory that its threads share.
const CHUNK: u64 = 2048;

/// As many words are merged at a time, if rows are not longer.
const WORDS: u64 = 1 << 24;

/// The order that sorts each row, or where its largest elements stand.
pub(crate) fn order(node: &NodeCall<'_>, commands: &mut CommandList, a: TensorId, order: Order) -> Result<(), String> {
    let source = node.operand(a)?;
    let (a, result) = (source.shape, node.result.shape);
    demand(is_float(a.dtype) || a.dtype == DataType::I32, "only f32, f16, bf16 and i32")?;
    demand(result.dtype == DataType::I32, "the result must be i32")?;
    demand(a.ne[0] <= i32::MAX as u64, "places in rows of more than 2147483647 elements are no i32")?;
    let (n, rows) = (a.ne[0], a.rows());
    if result.elements() == 0 {
        return Ok(());
    }
    let chunk = n.next_power_of_two().min(CHUNK);
    let (block, shared) = ((chunk / 2).clamp(32, 512) as u32, 8 * chunk as u32);
    let mut args = args(node.result, &[Some(source)]);
    (args.i[0], args.i[3]) = (i64::from(order == Order::Descending), chunk.cast_signed());
    if n <= chunk {
        args.i[2] = rows.cast_signed();
        return commands.launch_sharing(Kernel::OrderChunks, [1, rows.min(ACROSS), 1], block, args, shared);
    }
    // Some rows at a time, so that their words fit into a limited memory; and not too often.
    let together = (WORDS / n).max(rows.div_ceil(64)).max(1);
    let passes = n.div_ceil(chunk).next_power_of_two().trailing_zeros();
    let mut room = || commands.scratch(8 * n * together, 0).cast_signed();
    let rooms = [room(), if passes > 1 { room() } else { 0 }];
    for first in (0..rows).step_by(together as usize) {
        let some = (rows - first).min(together);
        (args.i[1], args.i[2]) = (first.cast_signed(), some.cast_signed());
        (args.i[3], args.i[4], args.i[5]) = (chunk.cast_signed(), 0, rooms[0]);
        let lines = some.min(ACROSS);
        commands.launch_sharing(Kernel::OrderChunks, [n.div_ceil(chunk), lines, 1], block, args, shared)?;
        for pass in 0..passes {
            let (from, to) = (rooms[pass as usize % 2], rooms[(pass as usize + 1) % 2]);
            args.i[3] = (chunk << pass).cast_signed();
            (args.i[4], args.i[5]) = (from, if pass + 1 == passes { 0 } else { to });
            commands.launch(Kernel::OrderRuns, [n.div_ceil(256), lines, 1], 256, args)?;
        }
    }
    Ok(())
}
