//! Elements as bytes in memory.

use half::{bf16, f16};
use steeve_graph::DataType;

use crate::formats::{ElementParts, parts};

/// Half of the distance between two neighbours around 1 in f32: the error of one rounding.
pub(super) const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// The elements of one block.
pub(super) fn decode(dtype: DataType, block: &[u8]) -> Vec<f64> {
    match dtype {
        DataType::F32 => vec![f64::from(f32::from_le_bytes(array(block)))],
        DataType::F64 => vec![f64::from_le_bytes(array(block))],
        DataType::F16 => vec![f16::from_le_bytes(array(block)).to_f64()],
        DataType::Bf16 => vec![bf16::from_le_bytes(array(block)).to_f64()],
        DataType::I8 => vec![f64::from(i8::from_le_bytes(array(block)))],
        DataType::I16 => vec![f64::from(i16::from_le_bytes(array(block)))],
        DataType::I32 => vec![f64::from(i32::from_le_bytes(array(block)))],
        DataType::I64 => vec![i64::from_le_bytes(array(block)) as f64],
        _ => {
            let part = |i| parts(dtype, block, i).unwrap_or_else(|| panic!("the evaluator has no {dtype}"));
            (0..dtype.block_len() as usize).map(|i| part(i).value()).collect()
        }
    }
}

/// Returns how large the numbers are of which each element of a block is made: products and what is added to them are
/// rounded apart.
pub(super) fn sizes(dtype: DataType, block: &[u8]) -> Vec<f64> {
    match parts(dtype, block, 0) {
        None => decode(dtype, block).into_iter().map(f64::abs).collect(),
        Some(_) => {
            (0..dtype.block_len() as usize).filter_map(|i| parts(dtype, block, i)).map(ElementParts::size).collect()
        }
    }
}

/// One block of these elements, rounded as ggml does it.
pub(super) fn encode(dtype: DataType, values: &[f64]) -> Vec<u8> {
    let value = values[0];
    match dtype {
        DataType::F32 => (value as f32).to_le_bytes().into(),
        DataType::F64 => value.to_le_bytes().into(),
        DataType::F16 => f16::from_f64(value).to_le_bytes().into(),
        DataType::Bf16 => bf16::from_f64(value).to_le_bytes().into(),
        DataType::I8 => (value as i8).to_le_bytes().into(),
        DataType::I16 => (value as i16).to_le_bytes().into(),
        DataType::I32 => (value as i32).to_le_bytes().into(),
        DataType::I64 => (value as i64).to_le_bytes().into(),
        DataType::Q8_0 => encode_q8_0(values),
        DataType::Q4_0 => encode_q4_0(values),
        _ => panic!("the evaluator has no {dtype}"),
    }
}

/// A block's rounding is defined by f32 arithmetic: in f64 a few elements would fall on the other side of a half.
fn encode_q8_0(values: &[f64]) -> Vec<u8> {
    let most = values.iter().fold(0.0f32, |most, x| most.max((*x as f32).abs()));
    let (scale, inverse) = scales(most / 127.0);
    let quants = values.iter().map(|x| ((*x as f32 * inverse).round() as i8).cast_unsigned());
    f16::from_f32(scale).to_le_bytes().into_iter().chain(quants).collect()
}

fn encode_q4_0(values: &[f64]) -> Vec<u8> {
    let farthest = values.iter().fold(0.0f32, |far, x| if (*x as f32).abs() > far.abs() { *x as f32 } else { far });
    let (scale, inverse) = scales(farthest / -8.0);
    let nibble = |x: f64| (x as f32 * inverse + 8.5).trunc().clamp(0.0, 15.0) as u8;
    let pairs = (0..16).map(|i| nibble(values[i]) | nibble(values[16 + i]) << 4);
    f16::from_f32(scale).to_le_bytes().into_iter().chain(pairs).collect()
}

fn scales(scale: f32) -> (f32, f32) {
    (scale, if scale == 0.0 { 0.0 } else { 1.0 / scale })
}

/// Returns how far the nearest number of a type may be from a value, and a bit more: half of the distance between
/// neighbours.
/// Integers and blocks must be exact.
pub(super) fn half_step(dtype: DataType, value: f64) -> f64 {
    // The bits of the significand, with the leading one, and the exponent of the smallest normal number.
    let (bits, least) = match dtype {
        DataType::F32 => (24, -126),
        DataType::F16 => (11, -14),
        DataType::Bf16 => (8, -126),
        DataType::F64 => (53, -1022),
        _ => return 0.0,
    };
    let scale = value.abs().max(2f64.powi(least));
    1.001 * scale * 2f64.powi(-bits)
}

/// The value as the type stores it.
pub(super) fn stored(dtype: DataType, value: f64) -> f64 {
    decode(dtype, &encode(dtype, &[value]))[0]
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("a block has as many bytes as its type says")
}
