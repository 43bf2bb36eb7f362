//! Along which dimensions an operation is row-wise: the split of the result in, what is needed of each source out.
//!
//! A row of the result depends on the same row of some sources and on all of the others. An operation without a rule, and a
//! dimension that its rule does not know, end a chain. One entry per operation in the [table](crate::Op).

use alloc::vec;
use alloc::vec::Vec;

use super::split::Split;
use crate::{Layout, Param};

/// What rows of a result need of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// All of it, or nothing at all.
    Whole,
    /// Any of its rows, as indices say, or its shape: it is not split, and a part does not read all of it.
    Lookup,
    /// The same rows.
    Rows(Split),
    /// The rows of an image under the rows of a convolution, and those around them.
    Image,
}

/// A node whose result is split.
pub(crate) struct RowInput<'a> {
    pub(crate) rows: u64,
    pub(crate) split: Split,
    pub(crate) result: Layout,
    pub(crate) sources: &'a [Option<Layout>],
    pub(crate) params: &'a [Param],
}

/// Returns what is needed of each source slot; `None` if the operation is not row-wise in that dimension.
pub(crate) type RowRule = fn(&RowInput<'_>) -> Option<Vec<Need>>;

impl RowInput<'_> {
    fn source(&self, slot: usize) -> Option<Layout> {
        self.sources.get(slot).copied().flatten()
    }

    fn ne(&self, slot: usize) -> Option<[u64; 4]> {
        self.source(slot).map(|layout| layout.ne())
    }

    /// Returns the same rows of a source along `dim`, if it has just these.
    fn along(&self, slot: usize, dim: usize) -> Option<Need> {
        Split::along(&self.source(slot)?, dim, self.rows).map(Need::Rows)
    }

    /// Returns the same rows along `dim` of a source with as many elements there for each row as the result.
    fn same_unit(&self, slot: usize, dim: usize) -> Option<Need> {
        self.along(slot, dim).filter(|need| *need == Need::Rows(Split { dim, unit: self.split.unit }))
    }

    /// Returns the same rows of a source of the result's shape.
    fn same(&self, slot: usize) -> Option<Need> {
        if self.ne(slot)? == self.result.ne() { self.along(slot, self.split.dim) } else { None }
    }

    /// Returns what is needed of a source that is repeated to the result's shape.
    fn repeated(&self, slot: usize) -> Option<Need> {
        let n = self.ne(slot)?[self.split.dim];
        match n {
            0 => None,
            _ if n == self.result.ne()[self.split.dim] => self.along(slot, self.split.dim),
            _ => self.split.unit.is_multiple_of(n).then_some(Need::Whole),
        }
    }

    /// Returns what is needed of a source that a dimension of the result goes over in runs: element `i` needs `i / ratio`.
    fn stretched(&self, slot: usize) -> Option<Need> {
        let (dim, n) = (self.split.dim, self.ne(slot)?[self.split.dim]);
        match n {
            0 => None,
            1 => Some(Need::Whole),
            _ => self.along(slot, dim).filter(|_| self.result.ne()[dim].is_multiple_of(n)),
        }
    }

    /// Returns the rows of a mask, which may have more of them than are used.
    fn mask(&self, slot: usize, dim: usize) -> Option<Need> {
        let Some(mask) = self.source(slot) else { return Some(Need::Whole) };
        let split = Split { dim, unit: self.split.unit };
        (mask.ne()[dim] >= self.rows * split.unit && dim > 0).then_some(Need::Rows(split))
    }

    /// Returns what is needed of the outer dimensions of a mask, which may be one for many.
    fn outer_mask(&self, slot: usize, dim: usize) -> Option<Need> {
        match self.ne(slot) {
            None => Some(Need::Whole),
            Some(ne) if ne[dim] == 1 => Some(Need::Whole),
            Some(_) => self.same_unit(slot, dim),
        }
    }

    /// Returns the same elements of a source with the elements of the result in their order, perhaps in another shape.
    fn in_order(&self, slot: usize) -> Option<Need> {
        let source = self.source(slot)?;
        let product = |ne: [u64; 4], dims: usize| ne[..dims].iter().product::<u64>();
        let wanted = product(self.result.ne(), self.split.dim) * self.split.unit;
        let split = (0..4).find_map(|dim| {
            let split = Split::along(&source, dim, self.rows)?;
            (product(source.ne(), dim) * split.unit == wanted).then_some(split)
        });
        split.map(Need::Rows)
    }
}

/// Elementwise: each source has the shape of the result.
pub(crate) fn same(input: &RowInput<'_>) -> Option<Vec<Need>> {
    let need = |slot| if input.source(slot).is_some() { input.same(slot) } else { Some(Need::Whole) };
    (0..input.sources.len()).map(need).collect()
}

/// Elementwise in the first source; the second is repeated.
pub(crate) fn broadcast(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(vec![input.same(0)?, input.repeated(1)?])
}

/// Elementwise in the first source; the second is one number.
pub(crate) fn with_number(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(vec![input.same(0)?, Need::Whole])
}

/// The source gives the shape, if there is one.
pub(crate) fn fill(input: &RowInput<'_>) -> Option<Vec<Need>> {
    if input.source(0).is_some() { same(input) } else { None }
}

/// Elementwise in the order of elements.
pub(crate) fn in_order(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(vec![input.in_order(0)?])
}

/// As [`in_order`]; the second source is what the result is a view of.
pub(crate) fn cpy(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(vec![input.in_order(0)?, input.same(1)?])
}

/// `a` `[n, used, token]`, `b` `[n, expert]`, `ids` `[used, token]`.
pub(crate) fn add_id(input: &RowInput<'_>) -> Option<Vec<Need>> {
    match input.split.dim {
        dim @ (1 | 2) => Some(vec![input.same(0)?, Need::Whole, input.same_unit(2, dim - 1)?]),
        _ => None,
    }
}

/// A row of the tensor is read as a whole, and no other.
pub(crate) fn of_rows(input: &RowInput<'_>) -> Option<Vec<Need>> {
    if input.split.dim == 0 { None } else { same(input) }
}

/// A number, or some, for each row of the tensor.
pub(crate) fn per_row(input: &RowInput<'_>) -> Option<Vec<Need>> {
    if input.split.dim == 0 { None } else { Some(vec![input.same_unit(0, input.split.dim)?]) }
}

/// Elementwise in planes, or reading no other plane.
pub(crate) fn of_planes(input: &RowInput<'_>) -> Option<Vec<Need>> {
    if input.split.dim < 2 { None } else { Some(vec![input.same_unit(0, input.split.dim)?]) }
}

/// Elementwise in the outermost dimension only: groups of channels, directions.
pub(crate) fn of_cubes(input: &RowInput<'_>) -> Option<Vec<Need>> {
    if input.split.dim < 3 { None } else { Some(vec![input.same_unit(0, 3)?]) }
}

/// A repeated source.
pub(crate) fn repeat(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(vec![input.repeated(0)?])
}

/// Two sources joined in another dimension than the split one, which has as many elements in all three.
pub(crate) fn concat(input: &RowInput<'_>) -> Option<Vec<Need>> {
    let dim = input.split.dim;
    let is_joined = |slot| input.ne(slot).is_none_or(|ne| ne[dim] != input.result.ne()[dim]);
    if is_joined(0) || is_joined(1) { None } else { Some(vec![input.along(0, dim)?, input.along(1, dim)?]) }
}

/// A half of each row is the gate, or the sources are two.
pub(crate) fn glu(input: &RowInput<'_>) -> Option<Vec<Need>> {
    match input.source(1) {
        Some(_) => same(input),
        None => per_row(input),
    }
}

/// `a` `[k, m, ..]` and `b` `[k, n, ..]` make `[m, n, ..]`; the outer dimensions of `a` are gone over in runs.
pub(crate) fn mul_mat(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(match input.split.dim {
        0 => vec![input.same_unit(0, 1)?, Need::Whole],
        1 => vec![Need::Whole, input.same_unit(1, 1)?],
        dim => vec![input.stretched(0)?, input.same_unit(1, dim)?],
    })
}

/// `experts` `[k, m, expert]`, `b` `[k, used or 1, token]`, `ids` `[used, token]` make `[m, used, token]`.
pub(crate) fn mul_mat_id(input: &RowInput<'_>) -> Option<Vec<Need>> {
    match input.split.dim {
        2 => Some(vec![Need::Whole, input.same_unit(1, 2)?, input.same_unit(2, 1)?]),
        _ => None,
    }
}

/// `a` `[n, row, ..]` and `ids` `[count, ..]` make `[n, count, ..]`.
pub(crate) fn get_rows(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(match input.split.dim {
        0 => return None,
        1 => vec![Need::Lookup, input.same_unit(1, 0)?],
        dim => vec![input.same_unit(0, dim)?, input.same_unit(1, dim - 1)?],
    })
}

/// A row of `[kv, query, head, ..]` needs its row of the mask. Heads are not split: a bias depends on the head's number.
pub(crate) fn soft_max(input: &RowInput<'_>) -> Option<Vec<Need>> {
    let mask = match input.split.dim {
        1 => input.mask(1, 1)?,
        3 => input.outer_mask(1, 3)?,
        _ => return None,
    };
    Some(vec![input.same(0)?, mask, Need::Whole])
}

/// `a` `[n, head, token, ..]`, and one position for each token.
pub(crate) fn rope(input: &RowInput<'_>) -> Option<Vec<Need>> {
    let positions = match input.split.dim {
        0 => return None,
        2 => input.same_unit(1, 0)?,
        _ => Need::Whole,
    };
    Some(vec![input.same(0)?, positions, Need::Whole])
}

/// `q` `[d, query, head, ..]`, `k`, `v`, a mask with a row for each query make `[dv, head, query, ..]`.
pub(crate) fn flash_attn_ext(input: &RowInput<'_>) -> Option<Vec<Need>> {
    Some(match input.split.dim {
        2 => vec![input.same_unit(0, 1)?, Need::Whole, Need::Whole, input.mask(3, 1)?, Need::Whole],
        3 => {
            let outer = |slot| input.same_unit(slot, 3);
            vec![outer(0)?, outer(1)?, outer(2)?, input.outer_mask(3, 3)?, Need::Whole]
        }
        _ => return None,
    })
}

/// Rows of `[patch, width, height]` need the rows of one image around them. Of a recording, which has no parameters, it is
/// not known which, so such a node keeps the whole image. Of the kernel only the shape is read.
pub(crate) fn im2col(input: &RowInput<'_>) -> Option<Vec<Need>> {
    let (kernel, image) = (input.ne(0)?, input.ne(1)?);
    let patch = |dims: usize| kernel[..dims].iter().try_fold(1u64, |area, &n| area.checked_mul(n));
    let is_plane = input.result.ne()[3] == 1 && image[3] == 1 && patch(3) == Some(input.result.ne()[0]);
    match (input.split.dim, ImageRows::of(input.params)) {
        (2, None) if input.params.is_empty() && is_plane => Some(vec![Need::Lookup, Need::Whole]),
        (2, Some(_)) if is_plane && image[1] > 0 => Some(vec![Need::Lookup, Need::Image]),
        _ => None,
    }
}

/// How the rows of a convolution lie in an image with padding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageRows {
    stride: u64,
    pub(crate) padding: u64,
    dilation: u64,
}

/// The rows of the image that some rows of a convolution are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImagePart {
    /// The rows of the image.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The padding on either side of them.
    pub(crate) padding: u64,
    /// How many rows they make, and how many of these come before the wanted ones.
    pub(crate) made: u64,
    pub(crate) skipped: u64,
}

impl ImageRows {
    /// The index of the vertical padding among the parameters.
    pub(crate) const PADDING: usize = 3;

    /// Reads the vertical numbers of a convolution over images.
    pub(crate) fn of(params: &[Param]) -> Option<Self> {
        let int = |index: usize| params.get(index)?.int().and_then(|value| u64::try_from(value).ok());
        let this = Self { stride: int(1)?, padding: int(Self::PADDING)?, dilation: int(5)? };
        (int(6)? == 1 && this.stride > 0).then_some(this)
    }

    /// Returns which rows of an image of `height` make the rows `rows` with a kernel of `size`. Padding is the same on both
    /// sides, so at an edge of the image a few rows more are made on the other side.
    pub(crate) fn part(self, rows: super::split::RowRange, height: u64, size: u64) -> Option<ImagePart> {
        let (stride, padding) = (i128::from(self.stride), i128::from(self.padding));
        let (start, end, height) = (i128::from(rows.start), i128::from(rows.end), i128::from(height));
        let reach = i128::from(self.dilation) * (i128::from(size) - 1) + 1;
        let (low, high) = (start * stride - padding, (end - 1) * stride - padding + reach);
        let (first, low, high, padding) = if low >= 0 && high <= height {
            (start, low, high, 0)
        } else {
            let first = (low.max(0) / stride).min((height - 1) / stride);
            (first, first * stride, high.clamp(first * stride + 1, height), padding)
        };
        let made = (high - low + 2 * padding - reach).checked_div(stride)? + 1;
        let count = |value: i128| u64::try_from(value).ok();
        let part = ImagePart {
            start: count(low)?,
            end: count(high)?,
            padding: count(padding)?,
            made: count(made)?,
            skipped: count(start - first)?,
        };
        (part.made >= part.skipped + rows.len()).then_some(part)
    }
}
