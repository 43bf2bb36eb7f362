//! Types that elements of tensors are read and written as.

use half::{bf16, f16};
use steeve_graph::{DataType, Layout};

/// A Rust type whose bytes are an element of a tensor.
pub trait Element: bytemuck::Pod {
    /// The type that tensors call it.
    const TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident,)*) => {
        $(impl Element for $rust {
            const TYPE: DataType = DataType::$dtype;
        })*
    };
}

elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
}

/// The bytes of a tensor without gaps.
pub(crate) fn packed_size(layout: &Layout) -> u64 {
    layout.elements() / layout.dtype().block_len() * layout.dtype().block_bytes()
}

/// For each run of bytes without gaps where it starts within the tensor, in the order of the elements, and how long all
/// of them are.
pub(crate) fn runs(layout: &Layout) -> (impl Iterator<Item = usize>, usize) {
    let (ne, nb, dtype) = (layout.ne(), layout.nb(), layout.dtype());
    let blocks = ne[0] / dtype.block_len();
    // A row is one run, or one for each block where those have gaps.
    let (columns, len) = match layout.has_contiguous_rows() {
        true => (1, blocks * dtype.block_bytes()),
        false => (blocks, dtype.block_bytes()),
    };
    let starts = (0..ne[3]).flat_map(move |i3| {
        (0..ne[2]).flat_map(move |i2| {
            (0..ne[1]).flat_map(move |i1| {
                (0..columns).map(move |i0| (i0 * nb[0] + i1 * nb[1] + i2 * nb[2] + i3 * nb[3]) as usize)
            })
        })
    });
    (starts, len as usize)
}
