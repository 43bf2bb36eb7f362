//! Patches of images, windows on them, and images of another size.

use steeve_graph::{Convolution, Directions, Interpolation, Pool, TensorId, Window};

use super::demand;
use crate::command_list::{CommandList, NodeCall, floats};
use crate::kernel_list as kernel;
use crate::operand::{signed, unsigned};
use crate::params::{Im2colParams, PadParams, PoolParams, UpscaleParams};

/// The patches of an image under a convolution kernel, one in each row.
pub(crate) fn im2col(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    operands: [TensorId; 2],
    Convolution { stride, padding, dilation }: Convolution,
    directions: Directions,
) -> Result<(), String> {
    let ([kernel, image], result) = (node.operands(operands)?, node.result);
    floats([image, result])?;
    let flat = directions == Directions::One;
    // A row is an image of height one, whose channels are its second dimension.
    let spread = |all: [usize; 4], one: usize| if flat { [all[0], one, all[1], all[2]] } else { all };
    let (size, source) = (spread(kernel.shape.ne, 1), spread(image.shape.ne, 1));
    let steps = spread(image.shape.nb, 0);
    // There is one direction only, whatever the parameters say about the other.
    let both = |[across, down]: [u32; 2], alone: i64| [across.into(), if flat { alone } else { down.into() }];
    let count = result.shape.elements();
    let params = Im2colParams {
        result: result.into(),
        image: image.into(),
        count: unsigned(count),
        kernel_size: [size[0], size[1]].map(signed),
        stride: both(stride, 1),
        padding: both(padding, 0),
        dilation: both(dilation, 1),
        image_size: [source[0], source[1]].map(signed),
        image_steps: steps.map(signed),
        is_flat: flat.into(),
    };
    commands.launch_each(kernel::im2col, count, params)
}

/// The maximum or the mean of each window of a row: its size, its stride and the padding.
pub(crate) fn pool_1d(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    pool: Pool,
    [size, stride, padding]: [u32; 3],
) -> Result<(), String> {
    let window = [[size.into(), 1], [stride.into(), 1], [padding.into(), 0]];
    pooled(node, commands, a, pool, window, false)
}

/// The maximum or the mean of each window of a plane.
pub(crate) fn pool_2d(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    pool: Pool,
    window: Window,
) -> Result<(), String> {
    // ggml counts with a fraction of the padding when it makes the result, and leaves it out when it fills it.
    let [p0, p1] = window.padding.map(|padding| padding as i64);
    demand(p0.abs().max(p1.abs()) < 1 << 31, "padding: expected less than 2147483648")?;
    let window = [window.size.map(i64::from), window.stride.map(i64::from), [p0, p1]];
    pooled(node, commands, a, pool, window, true)
}

/// Sizes, strides and paddings, each across and down.
fn pooled(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    pool: Pool,
    [size, stride, padding]: [[i64; 2]; 3],
    goes_down: bool,
) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    floats([a, result])?;
    let count = result.shape.elements();
    let (is_mean, goes_down) = ((pool == Pool::Mean).into(), goes_down.into());
    let (result, source) = (result.into(), a.into());
    let params = PoolParams { result, source, count: unsigned(count), size, stride, padding, is_mean, goes_down };
    commands.launch_each(kernel::pool, count, params)
}

/// An image of another size.
pub(crate) fn upscale(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    interpolation: Interpolation,
) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    let factors = std::array::from_fn(|dim| result.shape.ne[dim] as f32 / a.shape.ne[dim] as f32);
    let count = result.shape.elements();
    let params = UpscaleParams { result: result.into(), source: a.into(), count: unsigned(count), factors };
    let kernel = match interpolation {
        Interpolation::Nearest => {
            let plain = a.shape.dtype == result.shape.dtype && a.shape.dtype.block_len() == 1;
            demand(plain, "data types: expected one plain type")?;
            kernel::upscale_nearest
        }
        Interpolation::Bilinear => {
            floats([a, result])?;
            kernel::upscale_bilinear
        }
    };
    commands.launch_each(kernel, count, params)
}

/// Zeros before and behind the elements of each dimension.
pub(crate) fn pad(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    before: [u32; 4],
) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    let plain = a.shape.dtype == result.shape.dtype && a.shape.dtype.block_len() == 1;
    demand(plain, "data types: expected one plain type")?;
    let count = result.shape.elements();
    let params =
        PadParams { result: result.into(), source: a.into(), count: unsigned(count), before: before.map(i64::from) };
    commands.launch_each(kernel::pad, count, params)
}
