//! Block formats, as in GGUF files: elements that share a scale.
//!
//! The layout of a block is defined once for each format, in [`block32`] and [`block256`]; elements as `f32` are made
//! of that here, and products of whole numbers in `kernels::block_dots`. Rounding to blocks is that of ggml's
//! reference, to the bit.

pub(crate) mod block32;
pub(crate) mod block256;

use half::f16;
use steeve_graph::DataType;

use crate::multiversion::multiversion;
use block32::{Block32, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use block256::{Q2K, Q3K, Q4K, Q5K, Q6K};

/// Decodes blocks to floats.
type Decode = fn(&[u8], &mut [f32]);

/// Rounds floats to blocks.
pub(crate) type Encode = fn(&[f32], &mut [u8]);

/// The conversions of a block format. Both sides hold the same whole number of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codec {
    pub(crate) decode: Decode,
    /// `None` for formats of weights, which are never computed.
    pub(crate) encode: Option<Encode>,
}

/// Returns the codec of a type; `None` for plain types and formats without one.
pub(crate) fn codec(dtype: DataType) -> Option<Codec> {
    let decode: Decode = match dtype {
        DataType::Q8_0 => decode_q8_0,
        DataType::Q4_0 => decode_q4_0,
        DataType::Q4_1 => decode_q4_1,
        DataType::Q5_0 => decode_q5_0,
        DataType::Q5_1 => decode_q5_1,
        DataType::Mxfp4 => decode_mxfp4,
        DataType::Q2K => decode_q2_k,
        DataType::Q3K => decode_q3_k,
        DataType::Q4K => decode_q4_k,
        DataType::Q5K => decode_q5_k,
        DataType::Q6K => decode_q6_k,
        _ => return None,
    };
    let encode: Option<Encode> = match dtype {
        DataType::Q8_0 => Some(encode_q8_0),
        DataType::Q4_0 => Some(encode_q4_0),
        _ => None,
    };
    Some(Codec { decode, encode })
}

/// Returns the rounding of floats to blocks of a type, if there is one.
pub(crate) fn encoder(dtype: DataType) -> Option<Encode> {
    codec(dtype).and_then(|codec| codec.encode)
}

macro_rules! decoders {
    ($($name:ident: $way:ident $format:ty;)*) => {
        $(multiversion! {
            fn $name(bytes: &[u8], row: &mut [f32]) {
                $way::decode::<$format>(bytes, row);
            }
        })*
    };
}

decoders! {
    decode_q8_0: block32 Q8_0;
    decode_q4_0: block32 Q4_0;
    decode_q4_1: block32 Q4_1;
    decode_q5_0: block32 Q5_0;
    decode_q5_1: block32 Q5_1;
    decode_mxfp4: block32 Mxfp4;
    decode_q2_k: block256 Q2K;
    decode_q3_k: block256 Q3K;
    decode_q4_k: block256 Q4K;
    decode_q5_k: block256 Q5K;
    decode_q6_k: block256 Q6K;
}

multiversion! {
    fn encode_q8_0(row: &[f32], bytes: &mut [u8]) {
        for (row, block) in row.as_chunks().0.iter().zip(bytes.as_chunks_mut::<{ Q8_0::BYTES }>().0) {
            let scale = largest(row) / 127.0;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            [block[0], block[1]] = f16::from_f32(scale).to_ne_bytes();
            for (q, x) in block[2..].iter_mut().zip(row) {
                let x = x * inverse;
                // To the nearest, halves away from zero: half less one bit, or what is just below a half would reach one.
                *q = low_byte((x + 0.499_999_97_f32.copysign(x)).trunc());
            }
        }
    }
}

multiversion! {
    fn encode_q4_0(row: &[f32], bytes: &mut [u8]) {
        for (row, block) in row.as_chunks().0.iter().zip(bytes.as_chunks_mut::<{ Q4_0::BYTES }>().0) {
            // The first element that is farthest from zero becomes -8 exactly, whatever its sign.
            let largest = largest(row);
            // A row of zeros has a positive one, as in ggml, whatever their signs.
            let farthest = row.iter().find(|x| largest > 0.0 && x.abs() == largest).copied().unwrap_or(0.0);
            let scale = farthest / -8.0;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            [block[0], block[1]] = f16::from_f32(scale).to_ne_bytes();
            let nibble = |x: f32| low_byte(if x < 15.0 { x.trunc() } else { 15.0 });
            let nibbles = row.map(|x| nibble(x * inverse + 8.5));
            for (i, pair) in block[2..].iter_mut().enumerate() {
                *pair = nibbles[i] | nibbles[16 + i] << 4;
            }
        }
    }
}

/// Returns the lowest byte of a small integer: adding this leaves it in the lowest bits, and vector instructions can.
#[inline(always)]
fn low_byte(x: f32) -> u8 {
    (x + 12_582_912.0).to_bits() as u8
}

/// Returns the largest magnitude of a block. Values that are no numbers do not count.
#[inline(always)]
fn largest(row: &[f32; 32]) -> f32 {
    let mut most = [0.0; 8];
    for part in row.as_chunks::<8>().0 {
        for (most, x) in most.iter_mut().zip(part) {
            *most = if *most < x.abs() { x.abs() } else { *most };
        }
    }
    most.into_iter().fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(dtype: DataType, row: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0; row.len() / 32 * dtype.block_bytes() as usize];
        codec(dtype).unwrap().encode.unwrap()(row, &mut bytes);
        bytes
    }

    fn floats(dtype: DataType, bytes: &[u8]) -> Vec<f32> {
        let mut row = vec![0.0; bytes.len() / dtype.block_bytes() as usize * 32];
        (codec(dtype).unwrap().decode)(bytes, &mut row);
        row
    }

    #[test]
    fn blocks_stand_as_in_files() {
        let mut q8 = f16::from_f32(0.5).to_ne_bytes().to_vec();
        q8.extend((0..32).map(|i| (i as i8 - 16).cast_unsigned()));
        assert_eq!(floats(DataType::Q8_0, &q8), (0..32).map(|i| 0.5 * (i - 16) as f32).collect::<Vec<_>>());
        let mut q4 = f16::from_f32(2.0).to_ne_bytes().to_vec();
        q4.extend((0..16).map(|i| i | (15 - i) << 4));
        let wanted: Vec<f32> = (0..16).chain((0..16).rev()).map(|i| 2.0 * (i - 8) as f32).collect();
        assert_eq!(floats(DataType::Q4_0, &q4), wanted);
    }

    #[test]
    fn what_a_block_can_hold_comes_back_as_it_was() {
        let row: Vec<f32> = (0..64).map(|i| if i == 7 { 127.0 } else { (i * 5 % 120) as f32 - 60.0 }).collect();
        let back = floats(DataType::Q8_0, &blocks(DataType::Q8_0, &row));
        assert_eq!(back[..32], row[..32]);
        let row: Vec<f32> = (0..32).map(|i| (i % 16) as f32 - 8.0).collect();
        assert_eq!(floats(DataType::Q4_0, &blocks(DataType::Q4_0, &row)), row);
        let zeros = [0.0; 32];
        assert_eq!(floats(DataType::Q8_0, &blocks(DataType::Q8_0, &zeros)), zeros);
        assert_eq!(floats(DataType::Q4_0, &blocks(DataType::Q4_0, &zeros)), zeros);
    }

    #[test]
    fn halves_round_away_from_zero_as_in_the_reference() {
        let mut row = [0.0; 32];
        (row[0], row[1], row[2], row[3]) = (127.0, 0.5, -0.5, 2.5);
        let q8 = blocks(DataType::Q8_0, &row);
        assert_eq!(q8[2..6], [127, 1, 255, 3]);
        (row[0], row[1], row[2], row[3]) = (-8.0, 0.5, -0.5, 7.5);
        let q4 = blocks(DataType::Q4_0, &row);
        assert_eq!(q4[2..6].iter().map(|pair| pair & 15).collect::<Vec<_>>(), [0, 9, 8, 15]);
    }
}
