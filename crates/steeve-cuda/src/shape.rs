//! Tensors where they are located, as numbers that address memory.

use steeve_graph::{DataType, Layout};

/// Type, shape and strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) ne: [u64; 4],
    pub(crate) nb: [u64; 4],
    pub(crate) dtype: DataType,
    /// From the first byte to the last.
    pub(crate) bytes: u64,
}

impl Shape {
    /// `None` for what no memory holds.
    pub(crate) fn new(layout: &Layout) -> Option<Self> {
        // Strides of dimensions without a second element may be anything.
        let nb = std::array::from_fn(|dim| if layout.ne()[dim] > 1 || dim == 0 { layout.nb()[dim] } else { 0 });
        let elements = layout.ne().iter().try_fold(1u64, |product, &n| product.checked_mul(n.max(1)))?;
        let fits = |value: u64| value < 1 << 62;
        let bytes = layout.nbytes().get();
        (fits(elements) && fits(bytes) && nb.iter().all(|&step| fits(step))).then_some(Self {
            ne: layout.ne(),
            nb,
            dtype: layout.dtype(),
            bytes,
        })
    }

    pub(crate) fn elements(&self) -> u64 {
        self.ne.iter().product()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    pub(crate) fn planes(&self) -> u64 {
        self.ne[2] * self.ne[3]
    }

    /// The bytes of an element, or of a block.
    pub(crate) fn size(&self) -> u64 {
        self.dtype.block_bytes()
    }

    /// Returns whether the elements of a row are adjacent.
    pub(crate) fn has_dense_rows(&self) -> bool {
        self.nb[0] == self.size()
    }

    /// Returns whether all elements are adjacent.
    pub(crate) fn is_dense(&self) -> bool {
        let row = self.ne[0] / self.dtype.block_len() * self.size();
        let wanted = [self.size(), row, row * self.ne[1], row * self.ne[1] * self.ne[2]];
        (0..4).all(|dim| self.ne[dim] == 1 && dim > 0 || self.nb[dim] == wanted[dim])
    }

    /// Returns the same elements, which are adjacent, as one row.
    pub(crate) fn line(&self) -> Self {
        Self { ne: [self.elements(), 1, 1, 1], nb: [self.nb[0], 0, 0, 0], ..*self }
    }

    /// Returns as many elements of another type, without gaps.
    pub(crate) fn dense(&self, dtype: DataType) -> Self {
        let row = self.ne[0] / dtype.block_len() * dtype.block_bytes();
        self.with_rows(dtype, row)
    }

    /// Returns as many elements of another type, with so many bytes from row to row.
    pub(crate) fn with_rows(&self, dtype: DataType, row: u64) -> Self {
        let nb = [dtype.block_bytes(), row, row * self.ne[1], row * self.ne[1] * self.ne[2]];
        Self { ne: self.ne, nb, dtype, bytes: row * self.rows() }
    }

    /// Whether two of its elements may share bytes, as far as strides tell.
    pub(crate) fn overlaps_itself(&self) -> bool {
        let mut dims = [0, 1, 2, 3];
        dims.sort_by_key(|&dim| self.nb[dim]);
        let block = self.dtype.block_len();
        // What the dimensions so far span; the next must step over it.
        let mut span = self.size();
        dims.into_iter().any(|dim| {
            let steps = if dim == 0 { self.ne[0].div_ceil(block) } else { self.ne[dim] }.saturating_sub(1);
            let shares = steps > 0 && self.nb[dim] < span;
            span = span.saturating_add(steps.saturating_mul(self.nb[dim]));
            shares
        })
    }

    /// What addresses must be multiples of: a GPU reads no number across such a border.
    pub(crate) fn unit(&self) -> u64 {
        match (self.dtype.block_len(), self.size()) {
            (1, size) => size,
            (_, size) => 1 << size.trailing_zeros().min(1),
        }
    }
}

/// A tensor in memory of the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) address: u64,
    pub(crate) shape: Shape,
}

impl Operand {
    /// Whether the address and all strides are such multiples.
    pub(crate) fn is_aligned(&self, align: u64) -> bool {
        self.address.is_multiple_of(align) && self.shape.nb[1..].iter().all(|step| step.is_multiple_of(align))
    }

    /// Whether every element can be read at once.
    pub(crate) fn is_at_its_unit(&self) -> bool {
        let unit = self.shape.unit();
        self.address.is_multiple_of(unit) && self.shape.nb.iter().all(|step| step.is_multiple_of(unit))
    }

    /// Returns the operand with a shape that counts blocks.
    pub(crate) fn in_blocks(self) -> Result<Self, String> {
        let (length, size) = (self.shape.dtype.block_len(), self.shape.size());
        let mut shape = self.shape;
        if length > 1 && (!shape.ne[0].is_multiple_of(length) || shape.nb[0] != size) {
            return Err(format!("rows of {} must be whole blocks without gaps", shape.dtype));
        }
        shape.ne[0] /= length;
        Ok(Self { shape, ..self })
    }
}
