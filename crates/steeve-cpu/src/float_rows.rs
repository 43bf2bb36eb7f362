//! Elements as `f32`: whatever a tensor stores, kernels compute in `f32` on rows that were copied out of it.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use half::{bf16, f16};
use steeve_graph::DataType;

use crate::half_float::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use crate::tensor_ptr::TensorPtr;

/// Loads a row of floats, at its offset in bytes, into `row`.
///
/// # Safety
/// The row lies within the tensor, whose type [is a float](DataType::is_float).
pub(crate) unsafe fn load_row(from: TensorPtr<'_>, offset: usize, row: &mut [f32]) {
    // SAFETY: the elements of a row are its first dimension, as promised.
    unsafe { load(from.shape.dtype, from.at(offset), from.shape.nb[0], row) }
}

/// Stores a row of floats at its offset in bytes.
///
/// # Safety
/// The row lies within the tensor, which is the result of the node that runs, and whose type [is a float](DataType::is_float).
pub(crate) unsafe fn store_row(to: TensorPtr<'_>, offset: usize, row: &[f32]) {
    // SAFETY: the elements of a row are its first dimension, as promised.
    unsafe { store(to.shape.dtype, to.at(offset), to.shape.nb[0], row) }
}

/// Loads floats that are `stride` bytes apart.
///
/// # Safety
/// All of them lie within borrowed memory, and their type [is a float](DataType::is_float).
pub(crate) unsafe fn load(dtype: DataType, from: *const u8, stride: usize, row: &mut [f32]) {
    // SAFETY: as promised.
    unsafe {
        match (dtype, stride) {
            (DataType::F32, 4) => from.copy_to_nonoverlapping(row.as_mut_ptr().cast::<u8>(), 4 * row.len()),
            (DataType::F32, _) => each(row, |i| from.add(i * stride).cast::<f32>().read_unaligned()),
            (DataType::F16, 2) => widen_f16(from_raw_parts(from, 2 * row.len()), row),
            (DataType::F16, _) => each(row, |i| from.add(i * stride).cast::<f16>().read_unaligned().to_f32()),
            (DataType::Bf16, 2) => widen_bf16(from_raw_parts(from, 2 * row.len()), row),
            (DataType::Bf16, _) => each(row, |i| from.add(i * stride).cast::<bf16>().read_unaligned().to_f32()),
            _ => unreachable!("{dtype} is no float"),
        }
    }
}

/// Stores floats `stride` bytes apart.
///
/// # Safety
/// All of them lie within the result of the node that runs, and their type [is a float](DataType::is_float).
pub(crate) unsafe fn store(dtype: DataType, to: *mut u8, stride: usize, row: &[f32]) {
    let all = || row.iter().enumerate();
    // SAFETY: as promised.
    unsafe {
        match (dtype, stride) {
            (DataType::F32, 4) => to.copy_from_nonoverlapping(row.as_ptr().cast::<u8>(), 4 * row.len()),
            (DataType::F32, _) => all().for_each(|(i, x)| to.add(i * stride).cast::<f32>().write_unaligned(*x)),
            (DataType::F16, 2) => narrow_f16(row, from_raw_parts_mut(to, 2 * row.len())),
            (DataType::F16, _) => {
                all().for_each(|(i, x)| to.add(i * stride).cast::<f16>().write_unaligned(f16::from_f32(*x)));
            }
            (DataType::Bf16, 2) => narrow_bf16(row, from_raw_parts_mut(to, 2 * row.len())),
            (DataType::Bf16, _) => {
                all().for_each(|(i, x)| to.add(i * stride).cast::<bf16>().write_unaligned(bf16::from_f32(*x)));
            }
            _ => unreachable!("{dtype} is no float"),
        }
    }
}

fn each(row: &mut [f32], element: impl Fn(usize) -> f32) {
    for (i, x) in row.iter_mut().enumerate() {
        *x = element(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_type_and_stride_come_back() {
        let row: Vec<f32> = (0..200).map(|i| i as f32 - 77.5).collect();
        for dtype in [DataType::F32, DataType::F16, DataType::Bf16] {
            for stride in
                [dtype.block_bytes() as usize, 4, 6, 12].into_iter().filter(|&it| it >= dtype.block_bytes() as usize)
            {
                let (mut bytes, mut back) = (vec![0u8; 1 + 200 * stride], vec![0.0; 200]);
                // SAFETY: the buffer holds 200 elements from the second byte on.
                unsafe {
                    store(dtype, bytes.as_mut_ptr().add(1), stride, &row);
                    load(dtype, bytes.as_ptr().add(1), stride, &mut back);
                }
                assert_eq!(back, row, "{dtype} {stride}");
            }
        }
    }
}
