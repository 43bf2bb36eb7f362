//! Types that elements of tensors are read and written as.

use half::{bf16, f16};
use steeve_device::{Bytes, DeviceError};
use steeve_graph::{DataType, Layout};

use crate::AllocError;

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

/// As many zeros; an error where the host has no room for them.
pub(crate) fn zeroed<T: bytemuck::Pod>(len: u64) -> Result<Vec<T>, AllocError> {
    let asked = Bytes(len.saturating_mul(size_of::<T>() as u64));
    let out_of_memory = || DeviceError::OutOfMemory { memory: "this process".into(), asked, left: None };
    let len = usize::try_from(len).map_err(|_| out_of_memory())?;
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|_| out_of_memory())?;
    data.resize(len, T::zeroed());
    Ok(data)
}

/// The bytes of a tensor without gaps: those of all its [runs].
pub(crate) fn packed_size(layout: &Layout) -> u64 {
    let (ne, dtype) = (layout.ne(), layout.dtype());
    let blocks = [ne[0] / dtype.block_len(), ne[1], ne[2], ne[3]];
    blocks.iter().fold(dtype.block_bytes(), |product, count| product.saturating_mul(*count))
}

/// Where the last of the [runs] ends.
pub(crate) fn end_of_runs(layout: &Layout) -> u64 {
    let (ne, nb, dtype) = (layout.ne(), layout.nb(), layout.dtype());
    let blocks = [ne[0] / dtype.block_len(), ne[1], ne[2], ne[3]];
    if blocks.contains(&0) {
        return 0;
    }
    // Within a row without gaps blocks are as far apart as they are long, whatever the stride says of a single one.
    let first = if layout.has_contiguous_rows() { dtype.block_bytes() } else { nb[0] };
    let steps = blocks.iter().zip([first, nb[1], nb[2], nb[3]]);
    steps.fold(dtype.block_bytes(), |end, (count, stride)| end.saturating_add((count - 1).saturating_mul(stride)))
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
