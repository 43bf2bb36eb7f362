//! Tensors where they stand, as numbers that address memory, and as kernels are given them.

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
        // Strides of dimensions that nobody steps along may be anything.
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

    /// Whether the elements of a row stand side by side.
    pub(crate) fn has_dense_rows(&self) -> bool {
        self.nb[0] == self.size()
    }

    /// Whether all elements stand side by side.
    pub(crate) fn is_dense(&self) -> bool {
        let row = self.ne[0] / self.dtype.block_len() * self.size();
        let wanted = [self.size(), row, row * self.ne[1], row * self.ne[1] * self.ne[2]];
        (0..4).all(|dim| self.ne[dim] == 1 && dim > 0 || self.nb[dim] == wanted[dim])
    }

    /// The same elements as one row; they stand side by side.
    pub(crate) fn line(&self) -> Self {
        Self { ne: [self.elements(), 1, 1, 1], nb: [self.nb[0], 0, 0, 0], ..*self }
    }

    /// The same elements of another type, side by side.
    pub(crate) fn dense(&self, dtype: DataType) -> Self {
        let row = self.ne[0] / dtype.block_len() * dtype.block_bytes();
        self.with_rows(dtype, row)
    }

    /// The same elements of another type, with so many bytes from row to row.
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

    /// The same with a shape that counts blocks.
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

/// As `struct Tensor` in `cuda/common.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tensor {
    p: u64,
    ne: [i64; 4],
    nb: [i64; 4],
    kind: i32,
    size: i32,
}

impl From<Operand> for Tensor {
    fn from(Operand { address, shape }: Operand) -> Self {
        // All are below 2^62.
        let [ne, nb] = [shape.ne, shape.nb].map(|all| all.map(u64::cast_signed));
        Self { p: address, ne, nb, kind: kind(shape.dtype), size: shape.size() as i32 }
    }
}

/// As `enum Type` in `cuda/common.cu`.
pub(crate) fn kind(dtype: DataType) -> i32 {
    match dtype {
        DataType::F32 => 0,
        DataType::F16 => 1,
        DataType::Bf16 => 2,
        DataType::I32 => 3,
        DataType::I64 => 4,
        DataType::Q8_0 => 5,
        DataType::Q4_0 => 6,
        DataType::I8 => 7,
        DataType::I16 => 8,
        DataType::F64 => 9,
        DataType::Q4_1 => 10,
        DataType::Q5_0 => 11,
        DataType::Q5_1 => 12,
        DataType::Mxfp4 => 13,
        DataType::Q2K => 14,
        DataType::Q3K => 15,
        DataType::Q4K => 16,
        DataType::Q5K => 17,
        DataType::Q6K => 18,
        _ => 19,
    }
}

/// Types that kernels compute with.
pub(crate) fn is_float(dtype: DataType) -> bool {
    matches!(dtype, DataType::F32 | DataType::F16 | DataType::Bf16)
}

/// Types that can be read as floats, and written by rounding.
pub(crate) fn can_be_rounded_to(dtype: DataType) -> bool {
    is_float(dtype) || matches!(dtype, DataType::Q8_0 | DataType::Q4_0)
}

/// Blocks that only weights have: they are read, and nothing is rounded to them.
pub(crate) fn is_weight_block(dtype: DataType) -> bool {
    use DataType::{Mxfp4, Q2K, Q3K, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K};
    matches!(dtype, Q4_1 | Q5_0 | Q5_1 | Mxfp4 | Q2K | Q3K | Q4K | Q5K | Q6K)
}

/// Types that weights can have: all that can be read as floats.
pub(crate) fn is_weight(dtype: DataType) -> bool {
    can_be_rounded_to(dtype) || is_weight_block(dtype)
}

/// As `struct Args` in `cuda/common.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Args {
    pub(crate) r: Tensor,
    pub(crate) s: [Tensor; 5],
    pub(crate) i: [i64; 20],
    pub(crate) f: [f32; 12],
    pub(crate) flag: u64,
    pub(crate) number: u64,
}

/// As `struct Map` in `cuda/elementwise.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Map {
    pub(crate) p: [u64; 3],
    pub(crate) nb: [[i64; 8]; 3],
    pub(crate) ne: [u64; 8],
    pub(crate) n: u64,
    pub(crate) dims: i32,
    pub(crate) op: i32,
    pub(crate) kind: [i32; 3],
    pub(crate) splat: i32,
    pub(crate) f: [f32; 4],
    pub(crate) flag: u64,
    pub(crate) number: u64,
}

const _: () = assert!(size_of::<Tensor>() == 80 && size_of::<Args>() == 704 && size_of::<Map>() == 344);

#[cfg(test)]
mod tests {
    use super::*;

    /// LoadedKernels know types by the place of their names in a list.
    #[test]
    fn types_have_the_numbers_that_kernels_know_them_by() {
        let source = include_str!("../cuda/common.cu");
        let list = source.split_once("enum Type {").unwrap().1.split_once('}').unwrap().0;
        let lines = list.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let list = lines.collect::<String>().to_lowercase();
        let names: Vec<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let known = DataType::ALL.iter().filter(|dtype| kind(**dtype) as usize != names.len() - 1);
        assert_eq!(known.clone().count(), names.len() - 1);
        for dtype in known {
            assert_eq!(names[kind(*dtype) as usize], dtype.name().to_lowercase());
        }
    }
}
