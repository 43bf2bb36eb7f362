//! Patches of images, windows on them, and images of another size.

use steeve_graph::Op;

use super::demand;
use crate::act::Kernel;
use crate::recipe::{Ask, Recipe, args, floats};

/// The patches of an image under a convolution kernel, one in each row.
pub(crate) fn im2col(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let (kernel, image, result) = (ask.source(0)?, ask.source(1)?, ask.result);
    floats([image, result])?;
    let flat = ask.count(6)? == 0;
    // A row is an image of height one, whose channels are its second dimension.
    let spread = |all: [u64; 4], one: u64| if flat { [all[0], one, all[1], all[2]] } else { all };
    let (size, source) = (spread(kernel.shape.ne, 1), spread(image.shape.ne, 1));
    let steps = spread(image.shape.nb, 0);
    let images = if flat { result.shape.ne[2] } else { result.shape.ne[3] };
    let patch = size[0].checked_mul(size[1]).and_then(|area| area.checked_mul(size[2]));
    let fits = patch == Some(result.shape.ne[0]) && source[2] == size[2] && source[3] == images;
    demand(fits && !(flat && result.shape.ne[3] != 1), "kernel, image and result do not fit together")?;
    let mut args = args(result, &[None, Some(image)]);
    let way = |index: usize, alone: i64| if flat && index % 2 == 1 { Ok(alone) } else { ask.count(index) };
    let numbers = [
        0,
        size[0].cast_signed(),
        size[1].cast_signed(),
        size[2].cast_signed(),
        way(0, 1)?,
        way(1, 1)?,
        way(2, 0)?,
        way(3, 0)?,
        way(4, 1)?,
        way(5, 1)?,
        source[0].cast_signed(),
        source[1].cast_signed(),
        steps[0].cast_signed(),
        steps[1].cast_signed(),
        steps[2].cast_signed(),
        steps[3].cast_signed(),
        i64::from(flat),
    ];
    args.i[..17].copy_from_slice(&numbers);
    recipe.launch_each(Kernel::Im2col, result.shape.elements(), args)
}

/// The maximum or the mean of each window.
pub(crate) fn pool(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let (a, result) = (ask.source(0)?, ask.result);
    floats([a, result])?;
    let mean = ask.int(0)?;
    demand(mean == 0 || mean == 1, "the pool is neither 0 nor 1")?;
    // ggml counts with a fraction of the padding when it makes the result, and leaves it out when it fills it.
    let padding = |index: usize| ask.float(index).map(|padding| padding as i64);
    let row = ask.op == Op::Pool1d;
    let [size, stride, padding] = if row {
        [[ask.count(1)?, 1], [ask.count(2)?, 1], [padding(3)?, 0]]
    } else {
        [[ask.count(1)?, ask.count(2)?], [ask.count(3)?, ask.count(4)?], [padding(5)?, padding(6)?]]
    };
    demand(padding.iter().all(|it| it.abs() < 1 << 31), "the padding makes no sense")?;
    let kept = if row { 1 } else { 2 };
    let fits = result.shape.ne[kept..] == a.shape.ne[kept..];
    demand(fits, "the result must have the outer dimensions of the source")?;
    let mut args = args(result, &[Some(a)]);
    let numbers = [mean, size[0], size[1], stride[0], stride[1], padding[0], padding[1], i64::from(!row)];
    args.i[1..9].copy_from_slice(&numbers);
    recipe.launch_each(Kernel::Pool, result.shape.elements(), args)
}

/// An image of another size.
pub(crate) fn upscale(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let (a, result) = (ask.source(0)?, ask.result);
    demand(a.shape.elements() > 0 || result.shape.elements() == 0, "nothing can be made larger")?;
    let mut args = args(result, &[Some(a)]);
    for dim in 0..4 {
        args.f[dim] = result.shape.ne[dim] as f32 / a.shape.ne[dim] as f32;
    }
    let kernel = match ask.int(0)? {
        0 => {
            let plain = a.shape.dtype == result.shape.dtype && a.shape.dtype.block_len() == 1;
            demand(plain, "both must be of one plain type")?;
            Kernel::UpscaleNearest
        }
        1 => {
            floats([a, result])?;
            Kernel::UpscaleBilinear
        }
        mode => return Err(format!("mode {mode} is neither 0 nor 1")),
    };
    recipe.launch_each(kernel, result.shape.elements(), args)
}

/// Zeros before and behind the elements of each dimension.
pub(crate) fn pad(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let (a, result) = (ask.source(0)?, ask.result);
    let plain = a.shape.dtype == result.shape.dtype && a.shape.dtype.block_len() == 1;
    demand(plain, "both must be of one plain type")?;
    let mut args = args(result, &[Some(a)]);
    for dim in 0..4 {
        let (before, behind) = (ask.count(2 * dim)?, ask.count(2 * dim + 1)?);
        let padded = a.shape.ne[dim].checked_add((before + behind).cast_unsigned());
        let fits = padded == Some(result.shape.ne[dim]);
        demand(fits, &format!("dimension {dim} of the result is not what the padding makes it"))?;
        args.i[1 + dim] = before;
    }
    recipe.launch_each(Kernel::Pad, result.shape.elements(), args)
}
