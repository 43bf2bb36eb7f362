//! Patches of images, windows on them, and images of another size.

use steeve_graph::{Convolution, Directions, Interpolation, Pool, TensorId, Window};

use super::demand;
use crate::command::Kernel;
use crate::command_list::{CommandList, NodeCall, args, floats};

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
    let spread = |all: [u64; 4], one: u64| if flat { [all[0], one, all[1], all[2]] } else { all };
    let (size, source) = (spread(kernel.shape.ne, 1), spread(image.shape.ne, 1));
    let steps = spread(image.shape.nb, 0);
    let mut args = args(result, &[None, Some(image)]);
    // There is one direction only, whatever the parameters say about the other.
    let down = |number: u32, alone: i64| if flat { alone } else { number.into() };
    let numbers = [
        0,
        size[0].cast_signed(),
        size[1].cast_signed(),
        size[2].cast_signed(),
        stride[0].into(),
        down(stride[1], 1),
        padding[0].into(),
        down(padding[1], 0),
        dilation[0].into(),
        down(dilation[1], 1),
        source[0].cast_signed(),
        source[1].cast_signed(),
        steps[0].cast_signed(),
        steps[1].cast_signed(),
        steps[2].cast_signed(),
        steps[3].cast_signed(),
        i64::from(flat),
    ];
    args.i[..17].copy_from_slice(&numbers);
    commands.launch_each(Kernel::Im2col, result.shape.elements(), args)
}

/// The maximum or the mean of each window of a row: its size, its stride and the padding.
pub(crate) fn pool_1d(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    pool: Pool,
    [size, stride, padding]: [u32; 3],
) -> Result<(), String> {
    pooled(node, commands, a, pool, [size.into(), 1, stride.into(), 1, padding.into(), 0, 0])
}

/// The maximum or the mean of each window of a plane.
pub(crate) fn pool_2d(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    pool: Pool,
    window: Window,
) -> Result<(), String> {
    let ([k0, k1], [s0, s1]) = (window.size.map(i64::from), window.stride.map(i64::from));
    // ggml counts with a fraction of the padding when it makes the result, and leaves it out when it fills it.
    let [p0, p1] = window.padding.map(|padding| padding as i64);
    demand(p0.abs().max(p1.abs()) < 1 << 31, "the padding makes no sense")?;
    pooled(node, commands, a, pool, [k0, k1, s0, s1, p0, p1, 1])
}

/// Sizes, strides and paddings for both directions, and 1 if there are two.
fn pooled(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    pool: Pool,
    window: [i64; 7],
) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    floats([a, result])?;
    let mut args = args(result, &[Some(a)]);
    args.i[1] = i64::from(pool == Pool::Mean);
    args.i[2..9].copy_from_slice(&window);
    commands.launch_each(Kernel::Pool, result.shape.elements(), args)
}

/// An image of another size.
pub(crate) fn upscale(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    interpolation: Interpolation,
) -> Result<(), String> {
    let (a, result) = (node.operand(a)?, node.result);
    let mut args = args(result, &[Some(a)]);
    for dim in 0..4 {
        args.f[dim] = result.shape.ne[dim] as f32 / a.shape.ne[dim] as f32;
    }
    let kernel = match interpolation {
        Interpolation::Nearest => {
            let plain = a.shape.dtype == result.shape.dtype && a.shape.dtype.block_len() == 1;
            demand(plain, "both must be of one plain type")?;
            Kernel::UpscaleNearest
        }
        Interpolation::Bilinear => {
            floats([a, result])?;
            Kernel::UpscaleBilinear
        }
    };
    commands.launch_each(kernel, result.shape.elements(), args)
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
    demand(plain, "both must be of one plain type")?;
    let mut args = args(result, &[Some(a)]);
    args.i[1..5].copy_from_slice(&before.map(i64::from));
    commands.launch_each(Kernel::Pad, result.shape.elements(), args)
}
