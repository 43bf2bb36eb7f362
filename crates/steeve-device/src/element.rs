//! Rust types that elements of tensors are read and written as.

use half::{bf16, f16};
use steeve_graph::DataType;

/// A Rust type whose bytes are an element of a tensor.
///
/// ```
/// use steeve_device::Element;
/// use steeve_graph::DataType;
/// assert_eq!((f32::TYPE, i64::TYPE), (DataType::F32, DataType::I64));
/// ```
pub trait Element: bytemuck::Pod {
    /// The data type of a tensor with such elements.
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
