//! Block formats, one element at a time, from their descriptions. Nothing here is shared with the kernels, nor quick.

use half::f16;
use steeve_graph::DataType;

/// All formats that there are kernels for.
pub const FORMATS: [DataType; 11] = [
    DataType::Q8_0,
    DataType::Q4_0,
    DataType::Q4_1,
    DataType::Q5_0,
    DataType::Q5_1,
    DataType::Mxfp4,
    DataType::Q2K,
    DataType::Q3K,
    DataType::Q4K,
    DataType::Q5K,
    DataType::Q6K,
];

/// An element is a product, and something is added to it, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct ElementParts {
    pub product: f64,
    pub added: f64,
}

impl ElementParts {
    pub fn value(self) -> f64 {
        self.product + self.added
    }

    /// Returns how large the numbers are that make the element.
    pub fn size(self) -> f64 {
        self.product.abs() + self.added.abs()
    }
}

/// Element `i` of a block; `None` for types that are no blocks.
pub fn parts(dtype: DataType, block: &[u8], i: usize) -> Option<ElementParts> {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f64();
    let bits = |byte: u8, shift: usize, count: usize| f64::from(byte >> shift & ((1 << count) - 1));
    // In 16 bytes: the low nibbles first.
    let nibble = |from: usize| bits(block[from + i % 16], i / 16 * 4, 4);
    let fifth = |from: usize| 16.0 * bits(block[from + i / 8], i % 8, 1);
    let simple = |product: f64| Some(ElementParts { product, added: 0.0 });
    // Blocks of 256: halves of 128, parts of 32, groups of 16.
    let (half_of_it, part, group, within) = (i / 128, i / 32, i / 16, i % 32);
    match dtype {
        DataType::Q8_0 => simple(half(0) * f64::from(block[2 + i].cast_signed())),
        DataType::Q4_0 => simple(half(0) * (nibble(2) - 8.0)),
        DataType::Q5_0 => simple(half(0) * (nibble(6) + fifth(2) - 16.0)),
        DataType::Q4_1 => Some(ElementParts { product: half(0) * nibble(4), added: half(2) }),
        DataType::Q5_1 => Some(ElementParts { product: half(0) * (nibble(8) + fifth(4)), added: half(2) }),
        DataType::Mxfp4 => {
            let number = nibble(1) as usize;
            let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][number % 8];
            simple(if number < 8 { size } else { -size } * 2f64.powi(i32::from(block[0]) - 127))
        }
        DataType::Q2K => {
            let quant = bits(block[16 + 32 * half_of_it + within], part % 4 * 2, 2);
            let (factor, least) = (bits(block[group], 0, 4), bits(block[group], 4, 4));
            Some(ElementParts { product: half(80) * factor * quant, added: -half(82) * least })
        }
        DataType::Q3K => {
            let low = bits(block[32 + 32 * half_of_it + within], part % 4 * 2, 2);
            let quant = low + 4.0 * bits(block[within], part, 1) - 4.0;
            let low = bits(block[96 + group % 8], group / 8 * 4, 4);
            let factor = low + 16.0 * bits(block[104 + group % 4], group / 4 * 2, 2) - 32.0;
            simple(half(108) * factor * quant)
        }
        DataType::Q4K | DataType::Q5K => {
            let from = if dtype == DataType::Q4K { 16 } else { 48 };
            let mut quant = bits(block[from + 32 * (i / 64) + within], part % 2 * 4, 4);
            if dtype == DataType::Q5K {
                quant += 16.0 * bits(block[16 + within], part, 1);
            }
            let packed = &block[4..16];
            let (factor, least) = if part < 4 {
                (bits(packed[part], 0, 6), bits(packed[4 + part], 0, 6))
            } else {
                let (low, first) = (packed[4 + part], part - 4);
                (
                    bits(low, 0, 4) + 16.0 * bits(packed[first], 6, 2),
                    bits(low, 4, 4) + 16.0 * bits(packed[4 + first], 6, 2),
                )
            };
            Some(ElementParts { product: half(0) * factor * quant, added: -half(2) * least })
        }
        DataType::Q6K => {
            let low = bits(block[64 * half_of_it + i % 64], i % 128 / 64 * 4, 4);
            let quant = low + 16.0 * bits(block[128 + 32 * half_of_it + within], part % 4 * 2, 2) - 32.0;
            simple(half(208) * f64::from(block[192 + group].cast_signed()) * quant)
        }
        _ => None,
    }
}

/// What products with weights of a type make of the other row. With blocks it is rounded to eight bits first, as in ggml: each
/// element to a multiple of the 127th part of the one farthest from zero, of 32 or 256 together. So this is part of what the
/// operation means, and not of its tolerance: kernels must be as near to the product with what was rounded as they were to
/// that of exact rows. The rounding itself is in f32, as where blocks are stored.
pub fn rounded_for(dtype: DataType, row: &[f64]) -> Vec<f64> {
    if !dtype.is_quantised() {
        return row.to_vec();
    }
    row.chunks(dtype.block_len() as usize).flat_map(rounded_block).collect()
}

fn rounded_block(block: &[f64]) -> Vec<f64> {
    if !block.iter().all(|x| x.is_finite()) {
        return vec![f64::NAN; block.len()];
    }
    let scale = block.iter().fold(0.0f32, |most, x| most.max((*x as f32).abs())) / 127.0;
    let inverse = if scale.is_normal() { 1.0 / scale } else { 0.0 };
    let rounded: Vec<f64> = block.iter().map(|x| f64::from(scale) * f64::from((*x as f32 * inverse).round())).collect();
    let within = |(x, y): (&f64, &f64)| (x - y).abs() <= 0.5001 * f64::from(scale) || scale < f32::MIN_POSITIVE;
    assert!(block.iter().zip(&rounded).all(within), "half a step is the most that is lost");
    rounded
}

/// Random bytes with scales that make elements of about this size.
pub fn random_blocks(dtype: DataType, count: usize, about: f64, mut random: impl FnMut() -> u8) -> Vec<u8> {
    let size = dtype.block_bytes() as usize;
    let mut bytes: Vec<u8> = (0..count * size).map(|_| random()).collect();
    let halves: &[(usize, f64)] = match dtype {
        DataType::Q8_0 => &[(0, 1.0 / 128.0)],
        DataType::Q4_0 => &[(0, 1.0 / 8.0)],
        DataType::Q5_0 => &[(0, 1.0 / 16.0)],
        DataType::Q4_1 => &[(0, 1.0 / 8.0), (2, -1.0)],
        DataType::Q5_1 => &[(0, 1.0 / 16.0), (2, -1.0)],
        DataType::Q2K => &[(80, 1.0 / 24.0), (82, 1.0 / 8.0)],
        DataType::Q3K => &[(108, 1.0 / 128.0)],
        DataType::Q4K => &[(0, 1.0 / 512.0), (2, 1.0 / 64.0)],
        DataType::Q5K => &[(0, 1.0 / 1024.0), (2, 1.0 / 64.0)],
        DataType::Q6K => &[(208, 1.0 / 4096.0)],
        _ => &[],
    };
    for block in bytes.chunks_mut(size) {
        for (at, scale) in halves {
            let scale = about * scale * (0.5 + f64::from(random()) / 256.0);
            block[*at..at + 2].copy_from_slice(&f16::from_f64(scale).to_le_bytes());
        }
        if dtype == DataType::Mxfp4 {
            block[0] = (124 + about.log2() as i32 + i32::from(random() % 4)) as u8;
        }
    }
    bytes
}
