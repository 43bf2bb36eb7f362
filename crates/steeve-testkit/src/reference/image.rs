//! Patches, windows and interpolation.

use super::element_codec::ROUNDING;
use super::evaluate::{BoundedValue, ExpectedValues, NodeCall};
use super::reduce::terms;

/// An index that may lie outside.
fn within(at: i64, count: usize) -> Option<usize> {
    usize::try_from(at).ok().filter(|at| *at < count)
}

/// Slots: kernel (its shape alone), image. Parameters: strides, paddings, dilations, whether it has two directions.
///
/// Elements of a row are those of a patch: across, then down, then through the channels.
pub(super) fn im2col(call: &NodeCall<'_>) -> ExpectedValues {
    let (kernel, image) = (call.source(0), call.source(1));
    let [s0, s1, p0, p1, d0, d1, plane] = [0, 1, 2, 3, 4, 5, 6].map(|index| call.int(index));
    let is_plane = plane == 1;
    let (kw, kh) = (kernel.ne[0], if is_plane { kernel.ne[1] } else { 1 });
    call.each(|[at, x, y, n]| {
        let (kx, ky, channel) = (at % kw, at / kw % kh, at / kw / kh);
        let column = within(x as i64 * s0 + kx as i64 * d0 - p0, image.ne[0]);
        if !is_plane {
            // Rows `[length, channel, n]`: what would be the height is the count.
            return BoundedValue::exact(column.map_or(0.0, |column| image.at([column, channel, y, n])));
        }
        let row = within(y as i64 * s1 + ky as i64 * d1 - p1, image.ne[1]);
        BoundedValue::exact(match (column, row) {
            (Some(column), Some(row)) => image.at([column, row, channel, n]),
            _ => 0.0,
        })
    })
}

/// Parameters: which pool, window, stride, padding. A mean is of what lies within the row.
pub(super) fn pool_1d(call: &NodeCall<'_>) -> ExpectedValues {
    let a = call.source(0);
    let [kind, size, stride, padding] = [0, 1, 2, 3].map(|index| call.int(index));
    call.each(|[x, i1, i2, i3]| {
        let columns = (0..size).filter_map(|k| within(x as i64 * stride - padding + k, a.ne[0]));
        let window: Vec<f64> = columns.map(|column| a.at([column, i1, i2, i3])).collect();
        pooled(kind, &window, window.len().max(1))
    })
}

/// Parameters: which pool, windows, strides, paddings. A mean counts what lies outside as zeros.
pub(super) fn pool_2d(call: &NodeCall<'_>) -> ExpectedValues {
    let a = call.source(0);
    let [kind, k0, k1, s0, s1] = [0, 1, 2, 3, 4].map(|index| call.int(index));
    // ggml cuts a padding that is a fraction.
    let [p0, p1] = [5, 6].map(|index| call.float(index) as i64);
    call.each(|[x, y, i2, i3]| {
        let mut window = Vec::new();
        for row in (0..k1).filter_map(|k| within(y as i64 * s1 - p1 + k, a.ne[1])) {
            for column in (0..k0).filter_map(|k| within(x as i64 * s0 - p0 + k, a.ne[0])) {
                window.push(a.at([column, row, i2, i3]));
            }
        }
        pooled(kind, &window, (k0 * k1) as usize)
    })
}

fn pooled(kind: i64, window: &[f64], count: usize) -> BoundedValue {
    if kind == 0 {
        // ggml starts with the least number there is, which stays if the window is empty.
        return BoundedValue::exact(window.iter().copied().fold(-f64::from(f32::MAX), f64::max));
    }
    let size = window.iter().map(|x| x.abs()).sum::<f64>();
    BoundedValue::near(window.iter().sum::<f64>() / count as f64, terms(window.len()) * size / count as f64)
}

/// Parameter: 0 takes the nearest element, 1 a mean of the four around.
pub(super) fn upscale(call: &NodeCall<'_>) -> ExpectedValues {
    let (a, ne) = (call.source(0), call.ne());
    let below = |index: usize, dim: usize| index * a.ne[dim] / ne[dim];
    call.each(|[x, y, i2, i3]| {
        let (i2, i3) = (below(i2, 2), below(i3, 3));
        if call.int(0) == 0 {
            return BoundedValue::exact(a.at([below(x, 0), below(y, 1), i2, i3]));
        }
        // The middle of an element in the source, the two elements around, and the distance from the first.
        let place = |index: usize, dim: usize| {
            let at = (index as f64 + 0.5) * a.ne[dim] as f64 / ne[dim] as f64 - 0.5;
            let last = a.ne[dim] as f64 - 1.0;
            let (first, second) = (at.floor().clamp(0.0, last), (at.floor() + 1.0).clamp(0.0, last));
            (first as usize, second as usize, (at - first).clamp(0.0, 1.0), at.abs())
        };
        let ((x0, x1, dx, far_x), (y0, y1, dy, far_y)) = (place(x, 0), place(y, 1));
        let corners = [
            (x0, y0, (1.0 - dx) * (1.0 - dy)),
            (x1, y0, dx * (1.0 - dy)),
            (x0, y1, (1.0 - dx) * dy),
            (x1, y1, dx * dy),
        ];
        let value = corners.iter().map(|(x, y, weight)| weight * a.at([*x, *y, i2, i3])).sum();
        let size = corners.iter().map(|(x, y, _)| a.at([*x, *y, i2, i3]).abs()).sum::<f64>();
        // The weights are what is left of the place, so they are as far off as that is.
        BoundedValue::near(value, size * (8.0 + 4.0 * (far_x + far_y)) * ROUNDING)
    })
}

/// Parameters: zeros before and behind, for each dimension.
pub(super) fn pad(call: &NodeCall<'_>) -> ExpectedValues {
    let a = call.source(0);
    call.each(|index| {
        let at: [Option<usize>; 4] =
            std::array::from_fn(|dim| within(index[dim] as i64 - call.int(2 * dim), a.ne[dim]));
        BoundedValue::exact(match at {
            [Some(i0), Some(i1), Some(i2), Some(i3)] => a.at([i0, i1, i2, i3]),
            _ => 0.0,
        })
    })
}
