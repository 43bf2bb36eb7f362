//! Norms, soft-max, masks, sums and orders of rows.

use steeve_graph::{DataType, SoftMax, SortOrder, TensorId};

use super::{demand, divides};
use crate::command_list::{ACROSS, CommandList, NodeCall, floats};
use crate::cuda_c::{DevicePointer, cuda_enum};
use crate::kernel_list as kernel;
use crate::operand::{Operand, signed, unsigned};
use crate::params::{
    DiagMaskParams, GroupNormParams, NormParams, OrderParams, RmsNormBackParams, SoftMaxBackParams, SoftMaxParams,
    SumParams, Tensor,
};

/// As many threads for a row as it has groups of `each` elements, in whole warps.
fn threads(length: usize, each: usize, most: usize) -> u32 {
    length.div_ceil(each).next_power_of_two().clamp(32, most) as u32
}

/// If rows fit into registers, and four elements can be read at once: as many threads, and as many groups of four for each.
fn held(length: usize, operands: &[Operand]) -> Option<(u32, usize)> {
    let is_held = |operand: &Operand| operand.shape.has_dense_rows() && operand.is_aligned(4 * operand.shape.size());
    let groups = length / 4;
    let block = groups.div_ceil(4).next_power_of_two().clamp(32, 512);
    let fits = divides(4, length) && groups <= 8 * 512 && operands.iter().all(is_held);
    fits.then_some((block as u32, groups.div_ceil(block)))
}

cuda_enum! {
    /// What a row is divided by: its deviation, its root mean square or its length.
    Norm { Deviation, Rms, L2, }
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
    let params = NormParams { result: result.into(), source: a.into(), norm, epsilon };
    let (length, rows) = (result.shape.ne[0], [result.shape.rows(), 1, 1]);
    if let Some((block, groups)) = held(length, &[a, result]) {
        let kernel = match groups {
            ..=1 => kernel::norm_1,
            2 => kernel::norm_2,
            3..=4 => kernel::norm_4,
            _ => kernel::norm_8,
        };
        return commands.launch(kernel, rows, block, params);
    }
    commands.launch(kernel::norm, rows, threads(length, 4, 1024), params)
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
    let params = RmsNormBackParams { result: node.result.into(), gradient: gradient.into(), source: x.into(), epsilon };
    let shape = node.result.shape;
    commands.launch(kernel::rms_norm_back, [shape.rows(), 1, 1], threads(shape.ne[0], 4, 1024), params)
}

/// Norms over groups of the third dimension.
pub(crate) fn group_norm(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    groups: u32,
    epsilon: f32,
) -> Result<(), String> {
    let (a, groups) = (node.operand(a)?, groups as usize);
    floats([node.result, a])?;
    let [n0, n1, channels, outer] = node.result.shape.ne;
    let per_group = channels.div_ceil(groups).max(1);
    let groups = channels.div_ceil(per_group);
    let params = GroupNormParams {
        result: node.result.into(),
        source: a.into(),
        channels: signed(per_group),
        groups: signed(groups),
        epsilon,
    };
    commands.launch(kernel::group_norm, [groups * outer, 1, 1], threads(n0 * n1 * per_group, 4, 1024), params)
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
    demand(mask.is_none_or(|mask| mask.shape.dtype.is_float()), "mask: expected f32, f16 or bf16")?;
    demand(sinks.is_none_or(|sinks| sinks.shape.dtype == DataType::F32), "sinks: expected f32")?;
    let params = SoftMaxParams {
        result: node.result.into(),
        scores: a.into(),
        mask: Tensor::optional(mask),
        sinks: Tensor::optional(sinks),
        scale: numbers.scale,
        max_bias: numbers.max_bias,
    };
    let rows = [shape.rows(), 1, 1];
    if let Some((block, groups)) = held(shape.ne[0], &[a, node.result, mask.unwrap_or(a)]) {
        let kernel = match groups {
            ..=1 => kernel::soft_max_1,
            2..=4 => kernel::soft_max_4,
            _ => kernel::soft_max_8,
        };
        return commands.launch(kernel, rows, block, params);
    }
    commands.launch(kernel::soft_max, rows, threads(shape.ne[0], 4, 1024), params)
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
    demand(numbers.max_bias == 0.0, "bias: expected none")?;
    let (result, scale) = (node.result.into(), numbers.scale);
    let params = SoftMaxBackParams { result, gradient: gradient.into(), output: y.into(), scale };
    let shape = node.result.shape;
    commands.launch(kernel::soft_max_back, [shape.rows(), 1, 1], threads(shape.ne[0], 4, 1024), params)
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
    let count = node.result.shape.elements();
    let params = DiagMaskParams {
        result: node.result.into(),
        source: a.into(),
        past: past.into(),
        count: unsigned(count),
        value,
    };
    commands.launch_each(kernel::diag_mask, count, params)
}

/// Fewer elements than this are not worth another block.
const PART: usize = 8192;

/// As many blocks are enough for every GPU. They do not depend on which one it is, so that sums do not either.
const PARTS: usize = 2048;

/// What is added up; a mean is divided by how many there are.
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
        (DataType::I32, to) => to.is_float(),
        (from, to) => from.is_float() && to.is_float(),
    };
    demand(fits, &format!("data types: no sum of {} as {}", a.dtype, result.dtype))?;
    if is_all && a.is_dense() {
        source.shape = a.line();
    }
    let (length, sums) = (if is_all { a.elements() } else { a.ne[0] }, result.elements());
    let parts = length.div_ceil(PART).min(PARTS / sums.max(1)).max(1);
    let mut params = SumParams {
        result: node.result.into(),
        source: source.into(),
        divisor: if is_mean { signed(a.ne[0]) } else { 1 },
        parts: signed(parts),
        part_length: signed(length.div_ceil(parts)),
        partial: DevicePointer::NULL,
        is_all: is_all.into(),
    };
    if parts == 1 {
        return commands.launch(kernel::sum, [sums, 1, 1], threads(length, 16, 256), params);
    }
    params.partial = commands.scratch_values(sums * parts);
    commands.launch(kernel::sum, [sums * parts, 1, 1], 256, params)?;
    commands.launch(kernel::sum_parts, [sums, 1, 1], threads(parts, 4, 256), params)
}

/// As many words are sorted by one block, in the memory that its threads share.
const CHUNK: usize = 2048;

/// As many words are merged at a time, if rows are not longer.
const WORDS: usize = 1 << 24;

/// Writes the order that sorts each row, or the places of its largest elements.
pub(crate) fn order(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    order: SortOrder,
) -> Result<(), String> {
    let source = node.operand(a)?;
    let (a, result) = (source.shape, node.result.shape);
    demand(a.dtype.is_float() || a.dtype == DataType::I32, "data type: expected f32, f16, bf16 or i32")?;
    demand(result.dtype == DataType::I32, "result: expected i32")?;
    demand(a.ne[0] <= i32::MAX as usize, "row too long: expected indices that fit i32")?;
    let (n, rows) = (a.ne[0], a.rows());
    if result.elements() == 0 {
        return Ok(());
    }
    let chunk = n.next_power_of_two().min(CHUNK);
    let (block, shared) = ((chunk / 2).clamp(32, 512) as u32, 8 * chunk as u32);
    let mut params = OrderParams {
        result: node.result.into(),
        source: source.into(),
        first_row: 0,
        rows: signed(rows),
        run: signed(chunk),
        from: DevicePointer::NULL,
        to: DevicePointer::NULL,
        is_descending: (order == SortOrder::Descending).into(),
    };
    if n <= chunk {
        return commands.launch_sharing(kernel::order_chunks, [1, rows.min(ACROSS), 1], block, shared, params);
    }
    // Some rows at a time, so that their words fit into a limited memory; and not too often.
    let together = (WORDS / n).max(rows.div_ceil(64)).max(1);
    let passes = n.div_ceil(chunk).next_power_of_two().trailing_zeros();
    let mut room = || commands.scratch_values(n * together);
    let rooms = [room(), if passes > 1 { room() } else { DevicePointer::NULL }];
    for first in (0..rows).step_by(together) {
        let some = (rows - first).min(together);
        let lines = some.min(ACROSS);
        params = OrderParams { first_row: signed(first), rows: signed(some), ..params };
        params = OrderParams { run: signed(chunk), from: DevicePointer::NULL, to: rooms[0], ..params };
        commands.launch_sharing(kernel::order_chunks, [n.div_ceil(chunk), lines, 1], block, shared, params)?;
        for pass in 0..passes {
            params.run = signed(chunk << pass);
            params.from = rooms[pass as usize % 2];
            params.to = if pass + 1 == passes { DevicePointer::NULL } else { rooms[(pass as usize + 1) % 2] };
            commands.launch(kernel::order_runs, [n.div_ceil(256), lines, 1], 256, params)?;
        }
    }
    Ok(())
}
