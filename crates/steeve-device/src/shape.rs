//! Type, shape and strides of a tensor as the numbers that kernels address memory with.
//!
//! A [`Layout`] keeps every number as it was given, up to 2^64. A [`Shape`] is made of one once, when a tensor is located,
//! and has only numbers that kernels can use: all of them stay below 2^62, so offsets are `usize`, fit an `i64`, and may be
//! added; and a stride that no element is reached by is zero, so equal shapes reach the same bytes.

use steeve_graph::{DataType, Layout};

/// Type, shape and strides.
///
/// Sizes are `usize`: operands lie in memory that a process or its GPU has mapped, and both count with 64 bits.
///
/// ```
/// use steeve_device::Shape;
/// use steeve_graph::{DataType, Layout};
/// // Every second row of a matrix, whose outer strides reach no element.
/// let layout = Layout::new(DataType::F32, [64, 16, 1, 1], [4, 512, 7, 7])?;
/// let shape = Shape::new(&layout).expect("it is small");
/// assert_eq!((shape.rows(), shape.nb), (16, [4, 512, 0, 0]));
/// assert!(shape.has_dense_rows() && !shape.is_dense() && !shape.overlaps_itself());
/// assert_eq!(shape.row_offset(shape.row_at(3)), 3 * 512);
/// # Ok::<(), steeve_graph::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of elements in each dimension.
    pub ne: [usize; 4],
    /// The stride of each dimension in bytes; that of the first steps over a block. Zero in dimensions after the first that
    /// have no second element.
    pub nb: [usize; 4],
    /// The type of the elements.
    pub dtype: DataType,
    /// The bytes from the first to the last.
    pub bytes: usize,
}

impl Shape {
    /// Returns the shape of a layout; `None` if a number is beyond what memory of this machine can have.
    pub fn new(layout: &Layout) -> Option<Self> {
        let (ne, nb, bytes) = (layout.ne(), layout.nb(), layout.nbytes().get());
        let nb = std::array::from_fn(|dim| if ne[dim] > 1 || dim == 0 { nb[dim] } else { 0 });
        // Also of a tensor without elements some dimensions are multiplied.
        let elements = ne.iter().try_fold(1u64, |product, &n| product.checked_mul(n.max(1)))?;
        // What has the bits of all numbers is not below any of them.
        let bits = ne.iter().chain(&nb).fold(elements | bytes, |bits, number| bits | number);
        let fits = bits < 1 << 62 && usize::try_from(bits).is_ok();
        let [ne, nb] = [ne, nb].map(|numbers| numbers.map(|number| number as usize));
        fits.then_some(Self { ne, nb, dtype: layout.dtype(), bytes: bytes as usize })
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.ne.iter().product()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// Returns the number of planes, each of some rows.
    pub fn planes(&self) -> usize {
        self.ne[2] * self.ne[3]
    }

    /// Returns the bytes of an element, or of a block.
    pub fn size(&self) -> usize {
        self.dtype.block_bytes() as usize
    }

    /// Returns the position of a row in the outer three dimensions.
    pub fn row_at(&self, row: usize) -> [usize; 3] {
        let [_, n1, n2, _] = self.ne;
        [row % n1, row / n1 % n2, row / n1 / n2]
    }

    /// Returns where a row starts, in bytes. Indices beyond the shape wrap around, as those of a repeated source do.
    pub fn row_offset(&self, [i1, i2, i3]: [usize; 3]) -> usize {
        let [_, n1, n2, n3] = self.ne;
        self.offset([0, i1 % n1, i2 % n2, i3 % n3])
    }

    /// Returns where the block at a position within the shape starts, in bytes. The first index counts blocks.
    pub fn offset(&self, [i0, i1, i2, i3]: [usize; 4]) -> usize {
        i0 * self.nb[0] + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3]
    }

    /// Returns whether the elements of a row have no gaps between them.
    pub fn has_dense_rows(&self) -> bool {
        self.nb[0] == self.size()
    }

    /// Returns whether there are no gaps at all and the dimensions are in order.
    pub fn is_dense(&self) -> bool {
        let wanted = strides(self.ne, self.size(), row_bytes(self.dtype, self.ne[0]));
        (0..4).all(|dim| self.ne[dim] == 1 && dim > 0 || self.nb[dim] == wanted[dim])
    }

    /// Returns whether two elements may share bytes, as far as strides tell.
    pub fn overlaps_itself(&self) -> bool {
        let mut dims = [0, 1, 2, 3];
        dims.sort_by_key(|&dim| self.nb[dim]);
        let block = self.dtype.block_len() as usize;
        // What the dimensions so far span; the next must step over it.
        let mut span = self.size();
        dims.into_iter().any(|dim| {
            let steps = if dim == 0 { self.ne[0].div_ceil(block) } else { self.ne[dim] }.saturating_sub(1);
            let shares = steps > 0 && self.nb[dim] < span;
            span = span.saturating_add(steps.saturating_mul(self.nb[dim]));
            shares
        })
    }

    /// Returns what addresses and strides must be multiples of so that devices can read each number at once: the size of an
    /// element, or that of the numbers in a block.
    pub fn unit(&self) -> usize {
        match (self.dtype.is_quantised(), self.size()) {
            (false, size) => size,
            (true, size) => 1 << size.trailing_zeros().min(1),
        }
    }

    /// Returns these elements as one row. They have no gaps between them.
    pub fn line(&self) -> Self {
        Self { ne: [self.elements(), 1, 1, 1], nb: [self.nb[0], 0, 0, 0], ..*self }
    }

    /// Returns as many elements of another type, without gaps.
    pub fn dense(&self, dtype: DataType) -> Self {
        self.with_rows(dtype, row_bytes(dtype, self.ne[0]))
    }

    /// Returns as many elements of another type, with `row` bytes from row to row. A tensor that passes the address space
    /// because of that has as many bytes as can be counted.
    pub fn with_rows(&self, dtype: DataType, row: usize) -> Self {
        let nb = strides(self.ne, dtype.block_bytes() as usize, row);
        Self { ne: self.ne, nb, dtype, bytes: row.saturating_mul(self.rows()) }
    }

    /// Returns this memory with the first dimension counted in blocks; `None` unless rows are whole blocks without
    /// gaps.
    /// An element of a plain type is a block of one.
    pub fn in_blocks(self) -> Option<Self> {
        let [n0, n1, n2, n3] = self.ne;
        let length = self.dtype.block_len() as usize;
        let is_whole = length == 1 || n0.is_multiple_of(length) && self.has_dense_rows();
        is_whole.then_some(Self { ne: [n0 / length, n1, n2, n3], ..self })
    }

    /// Returns these blocks in this order with fewer and longer rows, where there are no gaps between them. The first
    /// dimension [counts blocks](Self::in_blocks).
    pub fn merged(self) -> Self {
        let (mut ne, mut nb, mut last) = ([1; 4], [self.size(), 0, 0, 0], 0);
        for dim in (0..4).filter(|&dim| self.ne[dim] != 1) {
            if ne[last] == 1 {
                (ne[last], nb[last]) = (self.ne[dim], self.nb[dim]);
            } else if Some(self.nb[dim]) == ne[last].checked_mul(nb[last]) {
                ne[last] *= self.ne[dim];
            } else {
                last += 1;
                (ne[last], nb[last]) = (self.ne[dim], self.nb[dim]);
            }
        }
        Self { ne, nb, ..self }
    }
}

/// The bytes of a row without gaps.
fn row_bytes(dtype: DataType, elements: usize) -> usize {
    (elements / dtype.block_len() as usize).saturating_mul(dtype.block_bytes() as usize)
}

/// The strides of blocks of `size` bytes in rows of `row` bytes. Those of a tensor without elements may pass the largest
/// number, and are then not equal to any.
fn strides(ne: [usize; 4], size: usize, row: usize) -> [usize; 4] {
    let plane = row.saturating_mul(ne[1]);
    [size, row, plane, plane.saturating_mul(ne[2])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dtype: DataType, ne: [u64; 4], nb: [u64; 4]) -> Shape {
        Shape::new(&Layout::new(dtype, ne, nb).unwrap()).unwrap()
    }

    fn contiguous(dtype: DataType, ne: &[u64]) -> Shape {
        Shape::new(&Layout::contiguous(dtype, ne).unwrap()).unwrap()
    }

    #[test]
    fn strides_that_reach_nothing_do_not_count() {
        let one = shape(DataType::F32, [8, 1, 3, 1], [4, 99, 32, 7]);
        assert_eq!(one, shape(DataType::F32, [8, 1, 3, 1], [4, 0, 32, 1 << 63]));
        assert!(one.is_dense());
    }

    #[test]
    fn what_no_memory_holds_has_no_shape() {
        let far = |ne, nb| Shape::new(&Layout::new(DataType::I8, ne, nb).unwrap());
        assert!(far([2, 1, 1, 1], [1 << 62, 1, 1, 1]).is_none());
        assert!(far([1 << 62, 1, 1, 1], [0, 0, 0, 0]).is_none());
        assert!(far([0, 1 << 31, 1 << 31, 1], [1, 1, 1, 1]).is_none(), "some dimensions are multiplied");
        assert!(far([1 << 61, 1, 1, 1], [1, 0, 0, 0]).is_some());
    }

    #[test]
    fn dense_and_in_order_is_more_than_dense_rows() {
        let q4 = contiguous(DataType::Q4_0, &[64, 3, 2]);
        assert!(q4.is_dense() && q4.has_dense_rows());
        assert_eq!((q4.elements(), q4.rows(), q4.planes(), q4.size()), (384, 6, 2, 18));
        let turned = shape(DataType::F32, [2, 8, 1, 1], [32, 4, 64, 64]);
        assert!(!turned.has_dense_rows() && !turned.is_dense());
        let padded = shape(DataType::F32, [8, 2, 2, 1], [4, 64, 128, 256]);
        assert!(padded.has_dense_rows() && !padded.is_dense());
    }

    #[test]
    fn other_shapes_of_the_same_elements() {
        let f32s = contiguous(DataType::F32, &[64, 3, 2]);
        assert_eq!(f32s.dense(DataType::Q8_0), contiguous(DataType::Q8_0, &[64, 3, 2]).with_rows(DataType::Q8_0, 68));
        assert_eq!(f32s.dense(DataType::F16).bytes, 768);
        assert_eq!((f32s.line().ne, f32s.line().nb), ([384, 1, 1, 1], [4, 0, 0, 0]));
        assert_eq!(f32s.with_rows(DataType::F16, 256).nb, [2, 256, 768, 1536]);
    }

    #[test]
    fn blocks_are_counted_where_rows_are_whole_ones() {
        assert_eq!(contiguous(DataType::Q4K, &[512, 3]).in_blocks().map(|it| it.ne), Some([2, 3, 1, 1]));
        assert_eq!(contiguous(DataType::F16, &[5]).in_blocks().map(|it| it.ne), Some([5, 1, 1, 1]));
        assert_eq!(shape(DataType::Q8_0, [64, 1, 1, 1], [68, 136, 136, 136]).in_blocks(), None);
        assert_eq!(shape(DataType::Q8_0, [48, 1, 1, 1], [34, 68, 68, 68]).in_blocks(), None);
    }

    #[test]
    fn rows_without_gaps_become_one() {
        let merged = contiguous(DataType::F32, &[8, 3, 2]).merged();
        assert_eq!((merged.ne, merged.nb), ([48, 1, 1, 1], [4, 0, 0, 0]));
        let padded = shape(DataType::F32, [8, 2, 1, 5], [4, 64, 128, 128]).merged();
        assert_eq!((padded.ne, padded.nb), ([8, 10, 1, 1], [4, 64, 0, 0]));
    }

    #[test]
    fn elements_share_bytes_where_a_stride_is_too_short() {
        assert!(shape(DataType::F32, [8, 2, 1, 1], [4, 16, 0, 0]).overlaps_itself());
        assert!(shape(DataType::F32, [8, 2, 1, 1], [4, 0, 0, 0]).overlaps_itself());
        assert!(!shape(DataType::F32, [2, 8, 1, 1], [32, 4, 0, 0]).overlaps_itself());
        assert!(!shape(DataType::F32, [1, 1, 1, 1], [0, 0, 0, 0]).overlaps_itself());
    }

    #[test]
    fn a_unit_is_what_numbers_are_aligned_to() {
        let unit = |dtype| contiguous(dtype, &[256]).unit();
        let units = [DataType::F64, DataType::F16, DataType::I8, DataType::Q8_0, DataType::Mxfp4].map(unit);
        assert_eq!(units, [8, 2, 1, 2, 1]);
    }

    #[test]
    fn a_repeated_source_starts_over() {
        let rows = contiguous(DataType::F32, &[4, 3, 2]);
        assert_eq!(rows.row_at(4), [1, 1, 0]);
        assert_eq!(rows.row_offset([4, 3, 7]), rows.offset([0, 1, 1, 0]));
        assert_eq!(rows.offset([2, 1, 1, 0]), 8 + 16 + 48);
    }
}
