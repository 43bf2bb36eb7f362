//! What a tensor looks like in memory: type, shape and byte strides.
//!
//! [`Layout::new`] checks that the number of elements and of bytes stay below 2^64, so no code that reads a layout
//! checks it again.

use core::fmt;

use steeve_plan::Bytes;

use crate::DataType;

/// Tensors have this many dimensions; a smaller tensor has ones at the end.
pub const MAX_DIMS: usize = 4;

/// Type, shape and strides of a tensor, and the bytes they span.
///
/// ```
/// use steeve_graph::{Bytes, DataType, Layout};
/// let rows = Layout::contiguous(DataType::F32, &[64, 32])?;
/// assert_eq!(rows.nb(), [4, 256, 8192, 8192]);
/// assert_eq!(rows.nbytes(), Bytes(8192));
/// // Every second row of it.
/// let half = Layout::new(DataType::F32, [64, 16, 1, 1], [4, 512, 8192, 8192])?;
/// assert_eq!(half.nbytes(), Bytes(15 * 512 + 64 * 4));
/// # Ok::<(), steeve_graph::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    ne: [u64; MAX_DIMS],
    nb: [u64; MAX_DIMS],
    bytes: Bytes,
    dtype: DataType,
}

impl Layout {
    /// Returns a layout with these strides in bytes.
    ///
    /// # Errors
    ///
    /// If it has, or spans, 2^64 bytes or more.
    pub fn new(dtype: DataType, ne: [u64; MAX_DIMS], nb: [u64; MAX_DIMS]) -> Result<Self, LayoutError> {
        let too_large = LayoutError::TooLarge { dtype, ne };
        let bytes = match (elements(ne), span(dtype, ne, nb)) {
            (Some(_), Some(bytes)) => Bytes(bytes),
            _ => return Err(too_large),
        };
        Ok(Self { ne, nb, bytes, dtype })
    }

    /// Returns a layout without gaps.
    ///
    /// # Errors
    ///
    /// If the shape has more than four dimensions, its rows are no whole blocks, or it has 2^64 bytes or more.
    pub fn contiguous(dtype: DataType, shape: &[u64]) -> Result<Self, LayoutError> {
        let ne = padded(shape)?;
        if !ne[0].is_multiple_of(dtype.block_len()) {
            return Err(LayoutError::PartialBlock { dtype, row: ne[0] });
        }
        let nb = contiguous_strides(dtype, ne).ok_or(LayoutError::TooLarge { dtype, ne })?;
        Self::new(dtype, ne, nb)
    }

    /// Returns the type of the elements.
    pub const fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Returns the number of elements in each dimension.
    pub const fn ne(&self) -> [u64; MAX_DIMS] {
        self.ne
    }

    /// Returns the stride of each dimension in bytes. The first one steps over a block, not over an element.
    pub const fn nb(&self) -> [u64; MAX_DIMS] {
        self.nb
    }

    /// Returns the bytes from the first byte of the first element to the last byte of the last; none if there are no
    /// elements.
    pub const fn nbytes(&self) -> Bytes {
        self.bytes
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        self.ne.iter().product()
    }

    /// Returns whether there are no gaps and the dimensions are in order. A dimension of one element may have any
    /// stride.
    pub fn is_contiguous(&self) -> bool {
        let (block, size) = (self.dtype.block_len(), self.dtype.block_bytes());
        if self.ne[0] != block && self.nb[0] != size {
            return false;
        }
        let mut next = u128::from(size) * u128::from(self.ne[0] / block);
        (1..MAX_DIMS).filter(|&dim| self.ne[dim] != 1).all(|dim| {
            let fits = u128::from(self.nb[dim]) == next;
            next = next.saturating_mul(u128::from(self.ne[dim]));
            fits
        })
    }

    /// Returns whether the elements of a row have no gaps between them.
    pub fn has_contiguous_rows(&self) -> bool {
        self.ne[0] == self.dtype.block_len() || self.nb[0] == self.dtype.block_bytes()
    }

    /// Returns whether the strides are those of [`contiguous`](Self::contiguous) to the last one, which is more than
    /// [`is_contiguous`](Self::is_contiguous) demands.
    pub fn has_default_strides(&self) -> bool {
        self.ne[0].is_multiple_of(self.dtype.block_len()) && contiguous_strides(self.dtype, self.ne) == Some(self.nb)
    }

    /// Returns whether the first dimension takes larger steps than the second.
    pub fn is_transposed(&self) -> bool {
        self.nb[0] > self.nb[1]
    }

    /// Returns whether only rows may have gaps behind them.
    pub(crate) fn is_padded_rows(&self) -> bool {
        let product = |dim: usize| self.nb[dim].checked_mul(self.ne[dim]);
        self.nb[0] == self.dtype.block_bytes() && product(1) == Some(self.nb[2]) && product(2) == Some(self.nb[3])
    }

    /// Returns whether both have the same number of elements in each dimension.
    pub fn same_shape(&self, other: &Self) -> bool {
        self.ne == other.ne
    }

    /// Returns the layout of this shape and type without gaps, which is that of most results.
    pub(crate) fn packed(&self) -> Result<Self, LayoutError> {
        Self::contiguous(self.dtype, &self.ne)
    }

    /// Returns where each block starts, in bytes from the first and in the order of the elements. An element of a
    /// plain type is a block of one.
    pub fn block_offsets(&self) -> impl Iterator<Item = u64> + use<> {
        self.offsets(self.ne[0] / self.dtype.block_len())
    }

    /// Returns where each run of bytes without gaps starts, in bytes from the first and in the order of the elements;
    /// and how long all of them are. A run is a row, or a block where those have gaps between them.
    ///
    /// ```
    /// use steeve_graph::{DataType, Layout};
    /// let padded = Layout::new(DataType::F32, [3, 2, 2, 1], [4, 16, 64, 128])?;
    /// let (starts, len) = padded.runs();
    /// assert_eq!((starts.collect::<Vec<_>>(), len), (vec![0, 16, 64, 80], 12));
    /// # Ok::<(), steeve_graph::LayoutError>(())
    /// ```
    pub fn runs(&self) -> (impl Iterator<Item = u64> + use<>, u64) {
        let blocks = self.ne[0] / self.dtype.block_len();
        let (columns, len) = if self.has_contiguous_rows() { (1, blocks) } else { (blocks, 1) };
        (self.offsets(columns), len * self.dtype.block_bytes())
    }

    /// Returns where each of the first blocks of all rows starts.
    fn offsets(&self, columns: u64) -> impl Iterator<Item = u64> + use<> {
        let ([_, n1, n2, n3], [s0, s1, s2, s3]) = (self.ne, self.nb);
        (0..n3).flat_map(move |i3| {
            (0..n2).flat_map(move |i2| {
                (0..n1).flat_map(move |i1| (0..columns).map(move |i0| i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3))
            })
        })
    }

    /// Returns the shape without the ones at the end, but at least one dimension.
    pub fn shape(&self) -> &[u64] {
        let used = self.ne.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
        &self.ne[..used]
    }
}

fn padded(shape: &[u64]) -> Result<[u64; MAX_DIMS], LayoutError> {
    let mut ne = [1; MAX_DIMS];
    match ne.get_mut(..shape.len()) {
        Some(used) => used.copy_from_slice(shape),
        None => return Err(LayoutError::TooManyDimensions { dimensions: shape.len() }),
    }
    Ok(ne)
}

fn elements(ne: [u64; MAX_DIMS]) -> Option<u64> {
    ne.iter().try_fold(1u64, |product, &n| product.checked_mul(n))
}

fn contiguous_strides(dtype: DataType, ne: [u64; MAX_DIMS]) -> Option<[u64; MAX_DIMS]> {
    let row = dtype.block_bytes().checked_mul(ne[0] / dtype.block_len())?;
    let plane = row.checked_mul(ne[1])?;
    Some([dtype.block_bytes(), row, plane, plane.checked_mul(ne[2])?])
}

/// Returns the bytes of `ggml_nbytes`: a plain type steps from the first element to the last in every dimension, a
/// block type takes its first dimension as whole blocks.
fn span(dtype: DataType, ne: [u64; MAX_DIMS], nb: [u64; MAX_DIMS]) -> Option<u64> {
    if ne.contains(&0) {
        return Some(0);
    }
    let (first, rest) = if dtype.block_len() == 1 {
        (dtype.block_bytes(), 0)
    } else {
        (ne[0].checked_mul(nb[0])? / dtype.block_len(), 1)
    };
    let steps = ne.iter().zip(nb).skip(rest);
    steps.into_iter().try_fold(first, |sum, (&n, stride)| sum.checked_add((n - 1).checked_mul(stride)?))
}

/// `f32[64,32]`, with the strides in braces where they are not the default ones.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        numbers(f, self.shape())?;
        f.write_str("]")?;
        if !self.has_default_strides() {
            f.write_str("{")?;
            numbers(f, &self.nb)?;
            f.write_str("}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn numbers(f: &mut fmt::Formatter<'_>, numbers: &[u64]) -> fmt::Result {
    for (index, number) in numbers.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{number}")?;
    }
    Ok(())
}

/// A shape that no tensor can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// More dimensions than tensors have.
    #[error("shape: too many dimensions: expected at most 4, got {dimensions}")]
    TooManyDimensions {
        /// How many were given.
        dimensions: usize,
    },
    /// A row that ends within a block.
    #[error("{dtype}: a row is no whole number of blocks: expected a multiple of {} elements, got {row}", .dtype.block_len())]
    PartialBlock {
        /// The type.
        dtype: DataType,
        /// The elements of a row.
        row: u64,
    },
    /// A tensor that would pass the end of the address space.
    #[error("{dtype}{ne:?}: too large: expected fewer than 2^64 bytes")]
    TooLarge {
        /// The type.
        dtype: DataType,
        /// The shape.
        ne: [u64; MAX_DIMS],
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_types_count_whole_blocks() {
        let layout = Layout::contiguous(DataType::Q4K, &[512, 3]).unwrap();
        assert_eq!(layout.nb(), [144, 288, 864, 864]);
        assert_eq!(layout.nbytes(), Bytes(864));
        assert_eq!(
            Layout::contiguous(DataType::Q4K, &[100]),
            Err(LayoutError::PartialBlock { dtype: DataType::Q4K, row: 100 })
        );
    }

    #[test]
    fn an_empty_tensor_has_no_bytes() {
        assert_eq!(Layout::contiguous(DataType::F32, &[4, 0, 3]).unwrap().nbytes(), Bytes(0));
    }

    #[test]
    fn nothing_overflows() {
        let huge = u64::MAX / 2;
        for shape in [&[huge, 3][..], &[huge, 1], &[u64::MAX], &[1 << 32, 1 << 32], &[1, 1, 1, 1, 1]] {
            assert!(Layout::contiguous(DataType::F32, shape).is_err(), "{shape:?}");
        }
        assert!(Layout::new(DataType::I8, [2, 1, 1, 1], [u64::MAX, 1, 1, 1]).is_err());
    }

    #[test]
    fn offsets_are_in_the_order_of_the_elements() {
        let turned = Layout::new(DataType::F32, [2, 3, 1, 1], [12, 4, 24, 24]).unwrap();
        assert!(turned.block_offsets().eq([0, 12, 4, 16, 8, 20]));
        let (starts, len) = turned.runs();
        assert!(starts.eq(turned.block_offsets()) && len == 4);
        let blocks = Layout::contiguous(DataType::Q8_0, &[64, 2]).unwrap();
        assert!(blocks.block_offsets().eq([0, 34, 68, 102]));
        let (starts, len) = blocks.runs();
        assert!(starts.eq([0, 68]) && len == 68);
        assert_eq!(Layout::contiguous(DataType::F32, &[4, 0]).unwrap().block_offsets().count(), 0);
    }

    #[test]
    fn contiguity_ignores_the_strides_of_single_elements() {
        let odd = Layout::new(DataType::F32, [8, 1, 1, 1], [4, 7, 9, 11]).unwrap();
        assert!(odd.is_contiguous() && !odd.has_default_strides());
        let gaps = Layout::new(DataType::F32, [8, 2, 1, 1], [4, 64, 128, 128]).unwrap();
        assert!(!gaps.is_contiguous() && gaps.has_contiguous_rows() && gaps.is_padded_rows());
        let turned = Layout::new(DataType::F32, [2, 8, 1, 1], [32, 4, 64, 64]).unwrap();
        assert!(turned.is_transposed() && !turned.has_contiguous_rows());
    }
}
