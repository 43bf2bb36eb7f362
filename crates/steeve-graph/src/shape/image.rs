//! Convolution, pooling, padding and interpolation.

use super::elementwise::typed;
use super::{InferredShape, ShapeError, ShapeInput, demand};
use crate::DataType;

/// Infers patches of an image. Parameters: strides, paddings, dilations (each for both directions), 1 for an image
/// and 0 for a row, ggml's number of the type of the result.
pub(crate) fn im2col(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (kernel, image) = (call.source(0)?.ne(), call.source(1)?.ne());
    let number = u32::try_from(call.count(7)?).ok();
    let dtype = number.and_then(DataType::from_ggml_id).ok_or(ShapeError::Param { index: 7 })?;
    let width = steps(call, 0, image[0], kernel[0])?;
    if call.count(6)? == 0 {
        demand(image[1] == kernel[1], "kernel and rows must have the same number of channels")?;
        demand(image[3] == 1, "the rows must have three dimensions")?;
        let patch = kernel[0].checked_mul(kernel[1]).ok_or(ShapeError::Param { index: 0 })?;
        return InferredShape::own(typed(dtype, [patch, width, image[2], 1])?);
    }
    demand(image[2] == kernel[2], "kernel and image must have the same number of channels")?;
    let height = steps(call, 1, image[1], kernel[1])?;
    let patch = kernel[0].checked_mul(kernel[1]).and_then(|area| area.checked_mul(kernel[2]));
    InferredShape::own(typed(dtype, [patch.ok_or(ShapeError::Param { index: 0 })?, width, height, image[3]])?)
}

/// Returns how many places a kernel of `size` has in a direction of `length`; at least one.
fn steps(call: &ShapeInput<'_>, direction: usize, length: u64, size: u64) -> Result<u64, ShapeError> {
    let (stride, padding) = (call.count(direction)?, call.count(2 + direction)?);
    let dilation = call.count(4 + direction)?;
    let padded = i128::from(length) + 2 * i128::from(padding);
    let room = padded - i128::from(dilation) * (i128::from(size) - 1) - 1;
    demand(room >= 0, "the kernel must fit into what it is moved over")?;
    if stride == 0 {
        return Err(ShapeError::Param { index: direction });
    }
    u64::try_from(room / i128::from(stride) + 1).map_err(|_| ShapeError::Param { index: direction })
}

/// Infers windows of a row. Parameters: which pool, window, stride, padding.
pub(crate) fn pool_1d(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let [row, rest @ ..] = call.source(0)?.ne();
    let out = windows(row, call.float(1)?, call.float(2)?, call.float(3)?)?;
    InferredShape::own(typed(DataType::F32, [out, rest[0], rest[1], rest[2]])?)
}

/// Infers windows of a plane. Parameters: which pool, windows, strides, paddings, each for both directions.
pub(crate) fn pool_2d(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let [row, column, planes, cubes] = call.source(0)?.ne();
    let across = windows(row, call.float(1)?, call.float(3)?, call.float(5)?)?;
    let down = windows(column, call.float(2)?, call.float(4)?, call.float(6)?)?;
    InferredShape::own(typed(DataType::F32, [across, down, planes, cubes])?)
}

/// Counts windows in single precision, as ggml does: a padding may be a fraction.
fn windows(length: u64, window: f32, stride: f32, padding: f32) -> Result<u64, ShapeError> {
    let count = (length as f32 + 2.0 * padding - window) / stride + 1.0;
    demand(stride > 0.0 && count >= 1.0 && count.is_finite(), "at least one window must fit")?;
    Ok(count as u64)
}

pub(crate) fn upscale(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, wanted) = (call.source(0)?, call.wanted()?);
    demand(a.elements() > 0 || wanted.elements() == 0, "nothing can't be made larger")?;
    InferredShape::own(typed(a.dtype(), wanted.ne())?)
}

/// Infers a padded shape. Parameters: zeros before and behind, for each dimension.
pub(crate) fn pad(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    let mut ne = a.ne();
    for (dim, n) in ne.iter_mut().enumerate() {
        let (before, behind) = (call.count(2 * dim)?, call.count(2 * dim + 1)?);
        let sum = n.checked_add(before).and_then(|n| n.checked_add(behind));
        *n = sum.ok_or(ShapeError::Param { index: 2 * dim })?;
    }
    InferredShape::own(typed(a.dtype(), ne)?)
}
