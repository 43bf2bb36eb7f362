//! Patches of images, and pooling windows.

use std::ops::Range;

use steeve_device::Shape;
use steeve_graph::{Convolution, DataType, Directions, Pool, TensorId};

use super::map::floats;
use super::strided_walk::StridedWalk;
use crate::float_rows::{load, load_row, store_row};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};

/// Returns the kernel for the patches of an image under a convolution kernel, one in each row.
pub(crate) fn im2col(
    node: &NodeCall<'_>,
    kernel: TensorId,
    image: TensorId,
    convolution: Convolution,
    directions: Directions,
) -> Result<Box<dyn Kernel>, String> {
    let ([kernel, image], result) = (node.shapes([kernel, image])?, node.result);
    floats([image, result])?;
    let [stride, padding, dilation] =
        [convolution.stride, convolution.padding, convolution.dilation].map(|both| both.map(|number| number as usize));
    let flat = directions == Directions::One;
    // A row is an image of height one, whose channels are its second dimension.
    let spread = |ne: [usize; 4]| if flat { [ne[0], 1, ne[1], ne[2]] } else { ne };
    let (size, source) = (spread(kernel.ne), spread(image.ne));
    let image_steps = if flat { [image.nb[0], 0, image.nb[1], image.nb[2]] } else { image.nb };
    let (places, steps) = if flat {
        ([result.ne[1], 1, result.ne[2]], [result.nb[1], 0, result.nb[2]])
    } else {
        ([result.ne[1], result.ne[2], result.ne[3]], [result.nb[1], result.nb[2], result.nb[3]])
    };
    // The last three operands count: the place across, the place down, the image.
    let mut walk = StridedWalk::new();
    walk.push(places[0], [steps[0], 1, 0, 0]);
    walk.push(places[1], [steps[1], 0, 1, 0]);
    walk.push(places[2], [steps[2], 0, 0, 1]);
    let axes = [0, 1].map(|i| match i {
        // There is one direction only, whatever the parameters say about the other.
        1 if flat => ConvolutionAxis { stride: 1, padding: 0, dilation: 1, length: 1 },
        i => ConvolutionAxis { stride: stride[i], padding: padding[i], dilation: dilation[i], length: source[i] },
    });
    let size = [size[0], size[1], size[2]];
    Ok(Box::new(Im2col { size, axes, image_steps, walk, rows: RowUnits::of(&result) }))
}

/// How a convolution kernel moves along one axis of an image.
#[derive(Clone, Copy, Debug)]
struct ConvolutionAxis {
    stride: usize,
    padding: usize,
    dilation: usize,
    /// The length of the image.
    length: usize,
}

impl ConvolutionAxis {
    /// Returns the image position of the kernel's element `at` for output `place`; `None` for the padding.
    fn position(&self, place: usize, at: usize) -> Option<usize> {
        let padded = place.checked_mul(self.stride)?.checked_add(at.checked_mul(self.dilation)?)?;
        padded.checked_sub(self.padding).filter(|&position| position < self.length)
    }

    /// Returns which of the kernel's `size` elements lie within the image.
    fn inside(&self, place: usize, size: usize) -> Range<usize> {
        if self.dilation == 0 {
            // All elements are at one position.
            return 0..if self.position(place, 0).is_some() { size } else { 0 };
        }
        let start = place.saturating_mul(self.stride);
        let before = |end: usize| end.saturating_sub(start).div_ceil(self.dilation).min(size);
        before(self.padding)..before(self.padding.saturating_add(self.length))
    }
}

#[derive(Debug)]
struct Im2col {
    /// The size of the convolution kernel: across, down, channels.
    size: [usize; 3],
    axes: [ConvolutionAxis; 2],
    /// The strides of the image: across, down, channel, image.
    image_steps: [usize; 4],
    /// Result, place across, place down, image.
    walk: StridedWalk<4>,
    rows: RowUnits,
}

impl Kernel for Im2col {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, image, rows) = (operands.result, operands.source(1), self.rows.unit(unit));
        let ([width, height, channels], [step, down, channel_step, outer]) = (self.size, self.image_steps);
        let [across_axis, down_axis] = self.axes;
        let [patch] = scratch.rows([result.shape.ne[0]]);
        for [r, across, place, number] in self.walk.from(rows.start).take(rows.len()) {
            let inside = across_axis.inside(across, width);
            let mut rest = &mut *patch;
            for channel in 0..channels {
                for at in 0..height {
                    let (row, behind) = rest.split_at_mut(width);
                    rest = behind;
                    let first = across_axis.position(across, inside.start);
                    let (Some(y), Some(x)) = (down_axis.position(place, at), first) else {
                        row.fill(0.0);
                        continue;
                    };
                    row[..inside.start].fill(0.0);
                    row[inside.end..].fill(0.0);
                    let offset = number * outer + channel * channel_step + y * down + x * step;
                    let part = &mut row[inside.clone()];
                    let stride = step.wrapping_mul(across_axis.dilation);
                    // SAFETY: elements of one row of the image. Few of them are not worth a call.
                    unsafe {
                        if image.shape.dtype == DataType::F32 && part.len() < 8 {
                            (0..part.len()).for_each(|i| part[i] = image.read(offset + i * stride));
                        } else {
                            load(image.shape.dtype, image.at(offset), stride, part);
                        }
                    }
                }
            }
            // SAFETY: a row of the result.
            unsafe { store_row(result, r, patch) };
        }
        Ok(())
    }
}

/// Returns the kernel for the maximum or the mean of each window of a row: its size, its stride and the padding.
pub(crate) fn pool_1d(
    node: &NodeCall<'_>,
    a: TensorId,
    pool: Pool,
    [size, stride, padding]: [u32; 3],
) -> Result<Box<dyn Kernel>, String> {
    let across = PoolWindow { size: size as usize, stride: stride as usize, padding: padding.into() };
    pooled(node, &node.shape(a)?, pool, [across, PoolWindow { size: 1, stride: 1, padding: 0 }], None)
}

/// Returns the kernel for the maximum or the mean of each window of a plane.
pub(crate) fn pool_2d(
    node: &NodeCall<'_>,
    a: TensorId,
    pool: Pool,
    window: steeve_graph::Window,
) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    let steeve_graph::Window { size, stride, padding } = window;
    // ggml counts with a fraction of the padding when it makes the result, and leaves it out when it fills it.
    let windows =
        [0, 1].map(|i| PoolWindow { size: size[i] as usize, stride: stride[i] as usize, padding: padding[i] as i64 });
    pooled(node, &a, pool, windows, Some(a.ne[1]))
}

fn pooled(
    node: &NodeCall<'_>,
    a: &Shape,
    pool: Pool,
    windows: [PoolWindow; 2],
    plane: Option<usize>,
) -> Result<Box<dyn Kernel>, String> {
    let result = node.result;
    floats([*a, result])?;
    let kept = if plane.is_some() { 2 } else { 1 };
    // Down the plane the source does not step with the result.
    let mut walk = StridedWalk::new();
    for dim in 1..4 {
        let (step, row) = if dim < kept { (0, 1) } else { (a.nb[dim], 0) };
        walk.push(result.ne[dim], [result.nb[dim], step, row]);
    }
    let elements = result.ne[0].saturating_mul(windows[0].size).saturating_mul(windows[1].size);
    Ok(Box::new(PoolRows {
        mean: pool == Pool::Mean,
        windows,
        plane,
        walk,
        rows: RowUnits::new(result.rows(), elements),
    }))
}

#[derive(Clone, Copy, Debug)]
struct PoolWindow {
    size: usize,
    stride: usize,
    padding: i64,
}

impl PoolWindow {
    /// Returns the elements that the window covers, of `length`.
    fn at(&self, place: usize, length: usize) -> Range<usize> {
        let within = |edge: i128| usize::try_from(edge.max(0)).map_or(length, |edge| edge.min(length));
        let start = place as i128 * self.stride as i128 - i128::from(self.padding);
        within(start)..within(start + self.size as i128)
    }
}

#[derive(Debug)]
struct PoolRows {
    mean: bool,
    windows: [PoolWindow; 2],
    /// The height of a plane, if windows go down.
    plane: Option<usize>,
    /// Result, source, row within the plane.
    walk: StridedWalk<3>,
    rows: RowUnits,
}

impl Kernel for PoolRows {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, rows) = (operands.result, operands.source(0), self.rows.unit(unit));
        let (length, [across, down]) = (a.shape.ne[0], self.windows);
        let [x, out] = scratch.rows([length, result.shape.ne[0]]);
        for [r, a_, row] in self.walk.from(rows.start).take(rows.len()) {
            out.fill(if self.mean { 0.0 } else { f32::MIN });
            // A row without elements has no address.
            let covered = if length == 0 { 0..0 } else { self.plane.map_or(0..1, |height| down.at(row, height)) };
            for y in covered {
                let offset = if self.plane.is_some() { a_ + y * a.shape.nb[1] } else { a_ };
                // SAFETY: a row of the source.
                unsafe { load_row(a, offset, x) };
                for (place, out) in out.iter_mut().enumerate() {
                    let window = &x[across.at(place, length)];
                    *out = match self.mean {
                        true => window.iter().fold(*out, |sum, x| sum + x),
                        false => window.iter().fold(*out, |max, x| if *x > max { *x } else { max }),
                    };
                }
            }
            if self.mean {
                for (place, out) in out.iter_mut().enumerate() {
                    *out = match (self.plane, across.at(place, length).len()) {
                        // ggml divides by the whole window in a plane, and in a row by what it covers.
                        (Some(_), _) => *out / (across.size as f32 * down.size as f32),
                        (None, 0) => 0.0,
                        (None, covered) => *out / covered as f32,
                    };
                }
            }
            // SAFETY: a row of the result.
            unsafe { store_row(result, r, out) };
        }
        Ok(())
    }
}
