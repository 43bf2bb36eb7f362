//! Formats with blocks of 256 elements in 16 groups, which have scales of a few bits that share a scale themselves:
//! `element = scale * (factor of the group) * quant - step * (least of the group)`.
//!
//! ```text
//!   q2_K   16 x (factor, least: a nibble each), 64 bytes of quants, scale f16, step f16
//!   q3_K   32 bytes of third bits, 64 bytes of quants, 12 bytes of factors, scale f16     quant - 4, factor - 32
//!   q4_K   scale f16, step f16, 12 bytes of factors and leasts, 128 bytes of nibbles
//!   q5_K   scale f16, step f16, 12 bytes of factors and leasts, 32 bytes of fifth bits, 128 bytes of nibbles
//!   q6_K   128 bytes of nibbles, 64 bytes of fifth and sixth bits, 16 x factor i8, scale f16   quant - 32
//! ```
//!
//! Quants are cut into 32 at a time, and those in one byte are elements 32, or 64, apart: byte `i` of the first 32 of
//! q2_K has elements `i`, `32 + i`, `64 + i` and `96 + i`, the lowest bits first.

use steeve_graph::DataType;

use super::block32::half_at;

/// A block format, and how it is unpacked.
pub(crate) trait Block256 {
    /// The type that tensors of such blocks have.
    const TYPE: DataType;

    /// The size of a block.
    const BYTES: usize = Self::TYPE.block_bytes() as usize;

    /// The offset that is subtracted from every quant; a format that has one has no leasts.
    const OFFSET: i8 = 0;

    /// Unpacks a block.
    fn unpack(block: &[u8]) -> UnpackedBlock256;
}

/// An unpacked block. Quants are as stored, from zero on, and [`Block256::OFFSET`] is still to be subtracted.
pub(crate) struct UnpackedBlock256 {
    pub(crate) scale: f32,
    pub(crate) step: f32,
    /// One for each group of 16 elements.
    pub(crate) factors: [i8; 16],
    pub(crate) leasts: [i8; 16],
    pub(crate) quants: [i8; 256],
}

pub(crate) struct Q2K;
pub(crate) struct Q3K;
pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

impl Block256 for Q2K {
    const TYPE: DataType = DataType::Q2K;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock256 {
        let nibble = |shift: u32| std::array::from_fn(|i| (block[i] >> shift & 15).cast_signed());
        let quants = two_bits(&block[16..80]);
        UnpackedBlock256 {
            scale: half_at(block, 80),
            step: half_at(block, 82),
            factors: nibble(0),
            leasts: nibble(4),
            quants,
        }
    }
}

impl Block256 for Q3K {
    const TYPE: DataType = DataType::Q3K;
    const OFFSET: i8 = 4;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock256 {
        let mut quants = two_bits(&block[32..96]);
        for (part, quants) in quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (quant, bits) in quants.iter_mut().zip(&block[..32]) {
                *quant |= ((bits >> part & 1) << 2).cast_signed();
            }
        }
        // Four bits of each factor, eight in the low nibbles and eight in the high ones; then two bits of each, of four
        // factors at one byte.
        let packed = &block[96..108];
        let factors = std::array::from_fn(|i| {
            let low = packed[i % 8] >> (4 * (i / 8)) & 15;
            let high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
            (low | high << 4).cast_signed() - 32
        });
        UnpackedBlock256 { scale: half_at(block, 108), step: 0.0, factors, leasts: [0; 16], quants }
    }
}

impl Block256 for Q4K {
    const TYPE: DataType = DataType::Q4K;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock256 {
        let [factors, leasts] = six_bits(&block[4..16]);
        let quants = nibbles(&block[16..144]);
        UnpackedBlock256 { scale: half_at(block, 0), step: half_at(block, 2), factors, leasts, quants }
    }
}

impl Block256 for Q5K {
    const TYPE: DataType = DataType::Q5K;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock256 {
        let [factors, leasts] = six_bits(&block[4..16]);
        let mut quants = nibbles(&block[48..176]);
        for (part, quants) in quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (quant, bits) in quants.iter_mut().zip(&block[16..48]) {
                *quant |= ((bits >> part & 1) << 4).cast_signed();
            }
        }
        UnpackedBlock256 { scale: half_at(block, 0), step: half_at(block, 2), factors, leasts, quants }
    }
}

impl Block256 for Q6K {
    const TYPE: DataType = DataType::Q6K;
    const OFFSET: i8 = 32;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock256 {
        let mut quants = [0; 256];
        for (part, quants) in quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            // Of each half of the block: 64 bytes of nibbles, of which the low ones come first, and 32 of the other bits.
            let (half, quarter) = (part / 4, part % 4);
            let low = &block[64 * half + 32 * (quarter % 2)..][..32];
            let high = &block[128 + 32 * half..][..32];
            for ((quant, low), high) in quants.iter_mut().zip(low).zip(high) {
                let low = low >> (4 * (quarter / 2)) & 15;
                *quant = (low | (high >> (2 * quarter) & 3) << 4).cast_signed();
            }
        }
        let factors = std::array::from_fn(|i| block[192 + i].cast_signed());
        UnpackedBlock256 { scale: half_at(block, 208), step: 0.0, factors, leasts: [0; 16], quants }
    }
}

/// Unpacks 256 quants of two bits each from 64 bytes.
#[inline(always)]
fn two_bits(bytes: &[u8]) -> [i8; 256] {
    let mut quants = [0; 256];
    for (part, quants) in quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (quant, byte) in quants.iter_mut().zip(&bytes[32 * (part / 4)..][..32]) {
            *quant = (byte >> (2 * (part % 4)) & 3).cast_signed();
        }
    }
    quants
}

/// Unpacks 256 quants of four bits each from 128 bytes.
#[inline(always)]
fn nibbles(bytes: &[u8]) -> [i8; 256] {
    let mut quants = [0; 256];
    for (part, quants) in quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (quant, byte) in quants.iter_mut().zip(&bytes[32 * (part / 2)..][..32]) {
            *quant = (byte >> (4 * (part % 2)) & 15).cast_signed();
        }
    }
    quants
}

/// Unpacks eight factors and eight leasts of six bits each from 12 bytes, one for 32 elements. The first four of each
/// are the low bits of bytes 0 to 3 and 4 to 7; the others have their low bits in bytes 8 to 11 and their high ones
/// above the first four.
#[inline(always)]
fn six_bits(bytes: &[u8]) -> [[i8; 16]; 2] {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let [factors, leasts] = six_bits_of([word(0), word(4), word(8)]);
    [factors, leasts].map(|all| std::array::from_fn(|i| all.to_le_bytes()[i / 2].cast_signed()))
}

/// Unpacks the factors and leasts of `six_bits` as eight bytes each.
#[inline(always)]
pub(crate) fn six_bits_of([a, b, c]: [u32; 3]) -> [u64; 2] {
    let high = |word: u32| word >> 2 & 0x3030_3030;
    let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let factors = both(a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | high(a));
    let leasts = both(b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | high(b));
    [factors, leasts]
}

/// Decodes whole blocks.
#[inline(always)]
pub(super) fn decode<F: Block256>(bytes: &[u8], row: &mut [f32]) {
    for (block, row) in bytes.chunks_exact(F::BYTES).zip(row.as_chunks_mut::<256>().0) {
        let UnpackedBlock256 { scale, step, factors, leasts, quants } = F::unpack(block);
        let groups = row.as_chunks_mut::<16>().0.iter_mut().zip(quants.as_chunks::<16>().0);
        for ((row, quants), (factor, least)) in groups.zip(factors.into_iter().zip(leasts)) {
            let (factor, least) = (scale * f32::from(factor), step * f32::from(least));
            for (x, quant) in row.iter_mut().zip(quants) {
                *x = factor * f32::from(quant - F::OFFSET) - least;
            }
        }
    }
}
