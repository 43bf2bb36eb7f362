//! Convolutions, pools, and other windows that slide over an image.

use super::layout::{axis_count, unknown_dims};
use crate::onnx::call::{Call, Facts, Stuck, axis_of, one, signed, times, wrong};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::{Dim, Fact};

/// How a window slides along each axis.
struct Window {
    kernel: Vec<Dim>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// The starts of all axes, then their ends.
    pads: Vec<i64>,
    auto_pad: AutoPad,
    rounds_up: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AutoPad {
    Given,
    Valid,
    SameUpper,
    SameLower,
}

impl Window {
    fn new(call: &Call<'_>, kernel: Vec<Dim>) -> Result<Self, Stuck> {
        let axes = kernel.len();
        let ints = |name: &str, count: usize, default: i64| match call.ints(name) {
            None | Some([]) => Ok(vec![default; count]),
            Some(ints) if ints.len() == count => Ok(ints.to_vec()),
            Some(ints) => wrong(format!("{name}: expected {count} numbers, got {}", ints.len())),
        };
        let (strides, dilations) = (ints("strides", axes, 1)?, ints("dilations", axes, 1)?);
        if strides.iter().chain(&dilations).any(|it| *it < 1) {
            return wrong("strides and dilations: expected at least 1");
        }
        let auto_pad = match call.text("auto_pad") {
            "" | "NOTSET" => AutoPad::Given,
            "VALID" => AutoPad::Valid,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            other => {
                return wrong(format!("auto_pad: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER, got {other:?}"));
            }
        };
        let pads = if auto_pad == AutoPad::Given { ints("pads", 2 * axes, 0)? } else { vec![0; 2 * axes] };
        Ok(Self { kernel, strides, dilations, pads, auto_pad, rounds_up: call.is_set("ceil_mode") })
    }

    /// Returns how many places the window has along an axis.
    fn places(&self, axis: usize, input: Dim) -> Result<Dim, Stuck> {
        let (Some(input), stride) = (input, i128::from(self.strides[axis])) else { return Ok(None) };
        let input = i128::from(input);
        let count = if matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
            (input + stride - 1) / stride
        } else {
            let Some(reach) = self.reach(axis) else { return Ok(None) };
            let (before, after) = (i128::from(self.pads[axis]), i128::from(self.pads[self.kernel.len() + axis]));
            let room = (input + before + after).saturating_sub(reach);
            if room < 0 {
                return wrong(format!(
                    "window of {reach}: expected an input of at least that, got {input} with {} of padding",
                    before + after
                ));
            }
            let down = room / stride;
            // A window that would start in the padding behind the input does not count.
            let up = (room + stride - 1) / stride;
            let up = if up * stride >= input + before { up - 1 } else { up };
            1 + if self.rounds_up { up.max(down) } else { down }
        };
        u64::try_from(count).map(Some).or_else(|_| wrong(format!("a dimension of {count}")))
    }

    /// Returns how far the window reaches, with its holes.
    fn reach(&self, axis: usize) -> Option<i128> {
        let kernel = i128::from(self.kernel[axis]?);
        Some((kernel - 1).saturating_mul(i128::from(self.dilations[axis])).saturating_add(1))
    }

    fn slide(&self, input: &[Dim]) -> Result<Vec<Dim>, Stuck> {
        input.iter().enumerate().map(|(axis, dim)| self.places(axis, *dim)).collect()
    }
}

/// Returns batch, channels and the axes of an image.
fn image<'a>(call: &Call<'a>, slot: usize) -> Result<(Dim, Dim, &'a [Dim]), Stuck> {
    match call.dims(slot)? {
        [batch, channels, axes @ ..] => Ok((*batch, *channels, axes)),
        dims => wrong(format!("input {slot}: expected at least 2 dimensions, got {}", dims.len())),
    }
}

/// Returns the kernel of a filter: the attribute, or else the axes of the weights.
fn kernel_shape(call: &Call<'_>, weights: &[Dim], axes: usize) -> Result<Vec<Dim>, Stuck> {
    let kernel: Vec<Dim> = match call.ints("kernel_shape") {
        Some(ints) if !ints.is_empty() => ints.iter().map(|it| u64::try_from(*it).ok()).collect(),
        _ => weights.to_vec(),
    };
    if kernel.len() == axes {
        Ok(kernel)
    } else {
        wrong(format!("kernel: expected {axes} dimensions, got {}", kernel.len()))
    }
}

/// Returns the result of a convolution whose weights are in this input.
pub(super) fn convolution(call: &Call<'_>, weights: usize, data_type: DataType) -> Facts {
    let (batch, _, axes) = image(call, 0)?;
    let (filters, _, kernel) = image(call, weights)?;
    let window = Window::new(call, kernel_shape(call, kernel, axes.len())?)?;
    one(data_type, [vec![batch, filters], window.slide(axes)?].concat())
}

/// Returns the result of a convolution whose channels are last; its weights have their own first.
pub(super) fn convolution_channels_last(call: &Call<'_>, weights: usize, data_type: DataType) -> Facts {
    let [batch, axes @ .., _] = call.dims(0)? else { return wrong("input 0: expected at least 2 dimensions") };
    let (filters, _, kernel) = image(call, weights)?;
    // In some sets of operations the weights have their channels last as well.
    let kernel = match call.ints("kernel_shape") {
        Some(_) => kernel,
        None => kernel.get(..axes.len()).unwrap_or(kernel),
    };
    let window = Window::new(call, kernel_shape(call, kernel, axes.len())?)?;
    one(data_type, [vec![*batch], window.slide(axes)?, vec![filters]].concat())
}

/// Returns the result of a convolution that spreads its input.
pub(super) fn transposed_convolution(call: &Call<'_>) -> Facts {
    let (batch, _, axes) = image(call, 0)?;
    let (_, filters, kernel) = image(call, 1)?;
    let group = u64::try_from(call.int_or("group", 1)).ok();
    let window = Window::new(call, kernel_shape(call, kernel, axes.len())?)?;
    let mut shape = vec![batch, times(filters, group)];
    let extra = call.ints("output_padding").unwrap_or(&[]);
    let given = call.ints("output_shape").unwrap_or(&[]);
    for (axis, dim) in axes.iter().enumerate() {
        // Some writers name batch and channels as well.
        let given = given.get((given.len() + axis).wrapping_sub(axes.len()));
        let extra = i128::from(extra.get(axis).copied().unwrap_or(0));
        let stride = i128::from(window.strides[axis]);
        let spread = || {
            let (input, reach) = (i128::from((*dim)?), window.reach(axis)?);
            Some(match window.auto_pad {
                AutoPad::SameUpper | AutoPad::SameLower => input * stride,
                AutoPad::Valid | AutoPad::Given => {
                    let pads = i128::from(window.pads[axis]) + i128::from(window.pads[axes.len() + axis]);
                    stride.saturating_mul(input - 1).saturating_add(extra).saturating_add(reach) - pads
                }
            })
        };
        shape.push(match given {
            Some(given) => u64::try_from(*given).ok(),
            None => spread().and_then(|it| u64::try_from(it).ok()),
        });
    }
    one(call.data_type(0), shape)
}

/// Returns the results of a pool: the values, and where the largest were.
pub(super) fn pool(call: &Call<'_>) -> Facts {
    let is_last = call.is_set("channels_last");
    let dims = call.dims(0)?;
    let (lead, axes, tail) = match (is_last, dims) {
        (false, [batch, channels, axes @ ..]) => (vec![*batch, *channels], axes, vec![]),
        (true, [batch, axes @ .., channels]) => (vec![*batch], axes, vec![*channels]),
        _ => return wrong(format!("input 0: expected at least 2 dimensions, got {}", dims.len())),
    };
    let window = Window::new(call, kernel_shape(call, &[], axes.len())?)?;
    let shape = [lead, window.slide(axes)?, tail].concat();
    Ok(vec![Fact::new(call.data_type(0), shape.clone()), Fact::new(DataType::INT64, shape)])
}

/// Returns the result of a pool with its channels last.
pub(super) fn pool_channels_last(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let [batch, axes @ .., channels] = dims else { return wrong("input 0: expected at least 2 dimensions") };
    let window = Window::new(call, kernel_shape(call, &[], axes.len())?)?;
    one(call.data_type(0), [vec![*batch], window.slide(axes)?, vec![*channels]].concat())
}

/// Returns the result of a pool over the whole image.
pub(super) fn global_pool(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let kept = |axis: usize| match call.is_set("channels_last") {
        true => axis == 0 || axis + 1 == dims.len(),
        false => axis < 2,
    };
    one(call.data_type(0), dims.iter().enumerate().map(|(axis, dim)| if kept(axis) { *dim } else { Some(1) }).collect())
}

/// Returns the result of a pool over regions: a list of them in the second input.
pub(super) fn regions(call: &Call<'_>) -> Facts {
    let (_, channels, _) = image(call, 0)?;
    let count = call.dims(1)?.first().copied().flatten();
    let size = |name: &str| u64::try_from(call.int_or(name, 1)).ok();
    let (height, width) = match call.ints("pooled_shape") {
        Some([height, width]) => (u64::try_from(*height).ok(), u64::try_from(*width).ok()),
        _ => (size("output_height"), size("output_width")),
    };
    one(call.data_type(0), vec![count, channels, height, width])
}

/// Returns what a pool was made of, with its largest values back in their places.
pub(super) fn unpool(call: &Call<'_>) -> Facts {
    if let Some(shape) = call.int_elements(2)? {
        return one(call.data_type(0), shape.iter().map(|it| u64::try_from(*it).ok()).collect());
    }
    let (batch, channels, axes) = image(call, 0)?;
    let window = Window::new(call, kernel_shape(call, &[], axes.len())?)?;
    let mut shape = vec![batch, channels];
    for (axis, dim) in axes.iter().enumerate() {
        let of = || {
            let pads = i128::from(window.pads[axis]) + i128::from(window.pads[axes.len() + axis]);
            let steps = (i128::from((*dim)?) - 1).saturating_mul(i128::from(window.strides[axis]));
            u64::try_from(steps.saturating_add(window.reach(axis)?) - pads).ok()
        };
        shape.push(of());
    }
    one(call.data_type(0), shape)
}

/// Returns the image that columns of it add up to.
pub(super) fn columns_to_image(call: &Call<'_>) -> Facts {
    let [batch, columns, _] = call.dims(0)? else { return wrong("input 0: expected 3 dimensions") };
    let (image, block) = match (call.int_elements(1), call.int_elements(2)) {
        (Err(Stuck::Unknown), _) | (_, Err(Stuck::Unknown)) => {
            return unknown_dims(call, axis_count(call, 1)?.checked_add(2));
        }
        (image, block) => (image?.unwrap_or(&[]), block?.unwrap_or(&[])),
    };
    let block =
        block.iter().try_fold(1i64, |product, dim| product.checked_mul(*dim)).and_then(|it| u64::try_from(it).ok());
    let channels = columns.and_then(|columns| columns.checked_div(block?));
    let image = image.iter().map(|it| u64::try_from(*it).ok());
    one(call.data_type(0), [*batch, channels].into_iter().chain(image).collect())
}

/// Returns an image at places that a grid says.
pub(super) fn grid_sample(call: &Call<'_>) -> Facts {
    let (batch, channels, _) = image(call, 0)?;
    let grid = call.dims(1)?;
    let [_, axes @ .., _] = grid else { return wrong("input 1: expected at least 2 dimensions") };
    one(call.data_type(0), [&[batch, channels], axes].concat())
}

/// Returns the grid of a transform.
pub(super) fn affine_grid(call: &Call<'_>) -> Facts {
    let size = match call.int_elements(1) {
        Err(Stuck::Unknown) => {
            // Four numbers are those of an image, five of a volume.
            return match axis_count(call, 1)? {
                4 => one(call.data_type(0), vec![None, None, None, Some(2)]),
                5 => one(call.data_type(0), vec![None, None, None, None, Some(3)]),
                _ => Err(Stuck::Unknown),
            };
        }
        size => size?.unwrap_or(&[]),
    };
    let [batch, _, axes @ ..] = size else { return wrong("input 1: expected at least 2 numbers") };
    let dim = |it: &i64| u64::try_from(*it).ok();
    let shape = [dim(batch)].into_iter().chain(axes.iter().map(dim)).chain([Some(axes.len() as u64)]);
    one(call.data_type(0), shape.collect())
}

/// Returns the dimensions of an image, and the pixels of a block: along a side, and all.
fn image_blocks<'a>(call: &Call<'a>) -> Result<(&'a [Dim; 4], u64, Dim), Stuck> {
    let Some(dims) = call.dims(0)?.first_chunk().filter(|_| call.dims(0).is_ok_and(|dims| dims.len() == 4)) else {
        return wrong("input 0: expected 4 dimensions");
    };
    match u64::try_from(call.int_or("blocksize", 0)) {
        Ok(block @ 1..) => Ok((dims, block, block.checked_mul(block))),
        _ => wrong("blocksize: expected at least 1"),
    }
}

/// Returns channels as blocks of pixels.
pub(super) fn depth_to_space(call: &Call<'_>) -> Facts {
    let ([batch, depth, height, width], block, area) = image_blocks(call)?;
    let depth = depth.and_then(|depth| depth.checked_div(area?));
    one(call.data_type(0), vec![*batch, depth, times(*height, Some(block)), times(*width, Some(block))])
}

/// Returns blocks of pixels as channels.
pub(super) fn space_to_depth(call: &Call<'_>) -> Facts {
    let ([batch, depth, height, width], block, area) = image_blocks(call)?;
    one(call.data_type(0), vec![*batch, times(*depth, area), height.map(|it| it / block), width.map(|it| it / block)])
}

/// Returns the convolution of a sequence with what was before it, and what the next part has before it.
pub(super) fn causal_convolution(call: &Call<'_>) -> Facts {
    let data = call.fact(0)?.without_elements();
    let [batch, channels, _] = call.dims(0)? else { return wrong("input 0: expected 3 dimensions") };
    let kept = call.dims(1)?.last().copied().flatten().map(|kernel| kernel.saturating_sub(1));
    let state = Fact::new(data.data_type, vec![*batch, *channels, kept]);
    Ok(vec![data, state])
}

/// Returns an image whose size depends on the data.
pub(super) fn decoded_image(call: &Call<'_>) -> Facts {
    let channels = if call.text("pixel_format") == "Grayscale" { 1 } else { 3 };
    one(DataType::UINT8, vec![None, None, Some(channels)])
}

/// Returns the frames of a signal, transformed.
pub(super) fn short_time_fourier(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let [batch, length, ..] = dims else { return wrong("input 0: expected at least 2 dimensions") };
    let step = call.int_element(1)?;
    let window = match (call.input(3), call.input(2)) {
        (Some(_), _) => Some(call.int_element(3)?),
        (None, Some(window)) => match window.shape.as_deref() {
            Some([Some(length)]) => Some(signed(*length)?),
            _ => return Err(Stuck::Unknown),
        },
        (None, None) => None,
    };
    let (Some(length), Some(window)) = (*length, window) else { return Err(Stuck::Unknown) };
    let (length, window, step) = (i128::from(length), i128::from(window), i128::from(step));
    if step < 1 || window < 1 || window > length {
        return wrong(format!("frames of {window} every {step}: expected them inside a signal of {length}"));
    }
    let is_onesided = call.int_or("onesided", 1) != 0;
    let bins = if is_onesided { window / 2 + 1 } else { window };
    let dim = |it: i128| u64::try_from(it).ok();
    one(call.data_type(0), vec![*batch, dim((length - window) / step + 1), dim(bins), Some(2)])
}

/// Returns a signal transformed along an axis.
pub(super) fn fourier(call: &Call<'_>) -> Facts {
    let mut shape = call.dims(0)?.to_vec();
    let rank = shape.len();
    let number = match call.input(2) {
        Some(_) => match call.int_element(2) {
            Err(Stuck::Unknown) => return one(call.data_type(0), vec![None; rank]),
            number => number?,
        },
        None => call.int_or("axis", if call.version < 20 { 1 } else { -2 }),
    };
    let axis = axis_of(number, rank)?;
    let is_inverse = call.is_set("inverse");
    let is_real = call.is_set("onesided") && is_inverse;
    shape[axis] = match call.input(1) {
        Some(_) => match call.int_element(1) {
            Err(Stuck::Unknown) => None,
            length => u64::try_from(length?).ok(),
        },
        // Half of a spectrum stands for all of it.
        None if is_real => shape[axis].and_then(|dim| dim.saturating_sub(1).checked_mul(2)),
        None => shape[axis],
    };
    if call.is_set("onesided") && !is_inverse {
        shape[axis] = shape[axis].map(|dim| dim / 2 + 1);
    }
    if let Some(last) = shape.last_mut() {
        *last = Some(if is_real { 1 } else { 2 });
    }
    one(call.data_type(0), shape)
}

/// Returns a region that is cut out of an image, or that it is padded to.
pub(super) fn cropped_or_padded(call: &Call<'_>) -> Facts {
    let mut shape = call.dims(0)?.to_vec();
    let axes: Vec<i64> = match call.ints("axes") {
        Some(axes) => axes.to_vec(),
        None => (0..).take(shape.len()).collect(),
    };
    let sizes = match call.int_elements(1) {
        Err(Stuck::Unknown) => None,
        sizes => Some(sizes?.unwrap_or(&[])),
    };
    for (index, axis) in axes.iter().enumerate() {
        let axis = axis_of(*axis, shape.len())?;
        shape[axis] = sizes.and_then(|sizes| u64::try_from(*sizes.get(index)?).ok());
    }
    one(call.data_type(0), shape)
}
