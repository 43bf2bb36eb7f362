//! How a tensor is split into rows: along which dimension, and what a part of a view looks like.
//!
//! All tensors of a chain have the same number of rows. A row is some consecutive elements of one dimension, with all that
//! the other dimensions have there:
//!
//! ```text
//!   root   f32[64,4096]          64 rows, 64 elements of dimension 1 each
//!   view   f32[64,64,64] of it   64 rows, one element of dimension 2 each: the same bytes
//! ```
//!
//! Nothing here knows operations: which rows of a root a view has follows from its strides and its offset.

use steeve_plan::Bytes;

use crate::{Layout, LayoutError};

/// Along which dimension a tensor is split, and how many elements of it are a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) dim: usize,
    pub(crate) unit: u64,
}

/// Some of the rows of a chain: from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl RowRange {
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns part `part` of `parts`: none of them is empty if there are as many rows.
    pub(crate) fn part(rows: u64, part: u64, parts: u64) -> Self {
        let bound = |part: u64| (u128::from(rows) * u128::from(part) / u128::from(parts)) as u64;
        Self { start: bound(part), end: bound(part + 1) }
    }
}

/// A root that is split: where its rows are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootRows {
    rows: u64,
    /// The bytes of a row, without gaps.
    row: u64,
    /// The bytes of all rows that are next to each other.
    plane: u64,
}

impl Split {
    /// Returns the split of `layout` along `dim`, if its elements make so many rows. A row is never a part of a block.
    pub(crate) fn along(layout: &Layout, dim: usize, rows: u64) -> Option<Self> {
        let n = *layout.ne().get(dim)?;
        let whole_blocks = dim > 0 || layout.dtype().block_len() == 1;
        (rows > 0 && n > 0 && n.is_multiple_of(rows) && whole_blocks).then(|| Self { dim, unit: n / rows })
    }

    /// Returns whether no dimension behind the split one has more than one element, so that rows are consecutive.
    pub(crate) fn is_outermost(self, layout: &Layout) -> bool {
        layout.ne()[self.dim + 1..].iter().all(|&n| n == 1)
    }

    /// Returns the rows of a tensor with the strides it has, and by how many bytes they start behind it.
    pub(crate) fn row_view(self, layout: &Layout, rows: RowRange) -> Result<(Layout, Bytes), LayoutError> {
        let (mut ne, nb) = (layout.ne(), layout.nb());
        let offset = rows.start * self.unit * nb[self.dim];
        ne[self.dim] = rows.len() * self.unit;
        Ok((Layout::new(layout.dtype(), ne, nb)?, Bytes(offset)))
    }
}

impl RootRows {
    /// Returns where the rows of a root are; `None` if it has gaps or no elements.
    pub(crate) fn new(root: &Layout, split: Split, rows: u64) -> Option<Self> {
        if !root.has_default_strides() || root.elements() == 0 || Split::along(root, split.dim, rows) != Some(split) {
            return None;
        }
        let plane = root.nb()[split.dim].checked_mul(root.ne()[split.dim])?;
        Some(Self { rows, row: plane / rows, plane })
    }

    /// Returns the split of a view with these rows: its row `r` has bytes of row `r` of the root only. `offset` is that of
    /// the view in the root.
    pub(crate) fn split_of(&self, view: &Layout, offset: Bytes) -> Option<Split> {
        (0..4).find_map(|dim| {
            let split = Split::along(view, dim, self.rows)?;
            let stride = view.nb()[dim];
            let is_row = split.unit.checked_mul(stride) == Some(self.row);
            (is_row && self.stays_within(view, split, offset)).then_some(split)
        })
    }

    /// Returns whether the first row of a view lies within the first row of the root, and of its planes.
    fn stays_within(&self, view: &Layout, split: Split, offset: Bytes) -> bool {
        let dtype = view.dtype();
        let mut extent = offset.get() % self.plane + dtype.block_bytes();
        for dim in 0..4 {
            let n = match dim {
                _ if dim == split.dim => split.unit,
                0 => view.ne()[0] / dtype.block_len(),
                _ => view.ne()[dim],
            };
            if n == 0 {
                return false;
            }
            if n > 1 && !self.is_outer(view.nb()[dim]) {
                extent = extent.saturating_add((n - 1).saturating_mul(view.nb()[dim]));
            }
        }
        extent <= self.row
    }

    /// Returns whether a stride is one from plane to plane.
    fn is_outer(&self, stride: u64) -> bool {
        stride > 0 && stride.is_multiple_of(self.plane)
    }

    /// Returns a view, split in this way, of some rows that have memory of their own: its layout and its offset there.
    pub(crate) fn own_part(
        &self,
        view: &Layout,
        split: Split,
        offset: Bytes,
        rows: RowRange,
    ) -> Result<(Layout, Bytes), LayoutError> {
        let plane = self.row * rows.len();
        let (mut ne, mut nb) = (view.ne(), view.nb());
        ne[split.dim] = rows.len() * split.unit;
        for stride in &mut nb {
            if self.is_outer(*stride) {
                *stride = *stride / self.plane * plane;
            }
        }
        let offset = offset.get() / self.plane * plane + offset.get() % self.plane;
        let layout = match view.has_default_strides() {
            true => Layout::contiguous(view.dtype(), &ne)?,
            false => Layout::new(view.dtype(), ne, nb)?,
        };
        Ok((layout, Bytes(offset)))
    }
}
