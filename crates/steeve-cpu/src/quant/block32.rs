//! Formats with blocks of 32 elements: `element = scale * quant + least`, where only some formats have a least element.
//!
//! ```text
//!   q8_0   scale f16, 32 x i8
//!   q4_0   scale f16, 16 bytes                       quant = nibble - 8
//!   q4_1   scale f16, least f16, 16 bytes            quant = nibble
//!   q5_0   scale f16, 32 bits, 16 bytes              quant = (nibble, with a fifth bit) - 16
//!   q5_1   scale f16, least f16, 32 bits, 16 bytes   quant = nibble, with a fifth bit
//!   mxfp4  exponent u8, 16 bytes                     quant = twice the e2m1 number that the nibble is
//! ```
//!
//! The low nibbles of the 16 bytes are the first half of the elements, the high ones the second. Bit `i` of 32 belongs to
//! element `i`. The scale of mxfp4 is 2 to the power of its exponent less 127, and half of that here, since quants are whole.

use half::f16;
use steeve_graph::DataType;

/// A block format, and how it is unpacked.
pub(crate) trait Block32 {
    /// The type that tensors of such blocks have.
    const TYPE: DataType;

    /// The size of a block.
    const BYTES: usize = Self::TYPE.block_bytes() as usize;

    /// Whether blocks have a least element; otherwise it is zero.
    const LEAST: bool = false;

    /// Unpacks a block.
    fn unpack(block: &[u8]) -> UnpackedBlock32;
}

/// An unpacked block.
pub(crate) struct UnpackedBlock32 {
    pub(crate) scale: f32,
    pub(crate) least: f32,
    pub(crate) quants: [i8; 32],
}

pub(crate) struct Q8_0;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;
pub(crate) struct Q5_1;
pub(crate) struct Mxfp4;

impl Block32 for Q8_0 {
    const TYPE: DataType = DataType::Q8_0;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock32 {
        let mut quants = [0; 32];
        quants.iter_mut().zip(&block[2..34]).for_each(|(quant, byte)| *quant = byte.cast_signed());
        UnpackedBlock32 { scale: half_at(block, 0), least: 0.0, quants }
    }
}

impl Block32 for Q4_0 {
    const TYPE: DataType = DataType::Q4_0;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock32 {
        let quants = nibbles(&block[2..18]).map(|quant| quant - 8);
        UnpackedBlock32 { scale: half_at(block, 0), least: 0.0, quants }
    }
}

impl Block32 for Q4_1 {
    const TYPE: DataType = DataType::Q4_1;
    const LEAST: bool = true;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock32 {
        UnpackedBlock32 { scale: half_at(block, 0), least: half_at(block, 2), quants: nibbles(&block[4..20]) }
    }
}

impl Block32 for Q5_0 {
    const TYPE: DataType = DataType::Q5_0;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock32 {
        let quants = fifth_bits(&block[2..6], nibbles(&block[6..22])).map(|quant| quant - 16);
        UnpackedBlock32 { scale: half_at(block, 0), least: 0.0, quants }
    }
}

impl Block32 for Q5_1 {
    const TYPE: DataType = DataType::Q5_1;
    const LEAST: bool = true;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock32 {
        let quants = fifth_bits(&block[4..8], nibbles(&block[8..24]));
        UnpackedBlock32 { scale: half_at(block, 0), least: half_at(block, 2), quants }
    }
}

impl Block32 for Mxfp4 {
    const TYPE: DataType = DataType::Mxfp4;

    #[inline(always)]
    fn unpack(block: &[u8]) -> UnpackedBlock32 {
        let quants = nibbles(&block[1..17]).map(|nibble| E2M1[nibble as usize & 15]);
        UnpackedBlock32 { scale: half_of_power(block[0]), least: 0.0, quants }
    }
}

/// The e2m1 numbers (sign, two exponent bits, one mantissa bit), doubled.
pub(crate) const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Returns 2 to the power of `exponent - 128`. The two smallest are subnormal.
#[inline(always)]
pub(crate) fn half_of_power(exponent: u8) -> f32 {
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { u32::from(exponent - 1) << 23 })
}

#[inline(always)]
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_ne_bytes([block[at], block[at + 1]]).to_f32()
}

#[inline(always)]
fn nibbles(pairs: &[u8]) -> [i8; 32] {
    let mut nibbles = [0; 32];
    for (i, pair) in pairs[..16].iter().enumerate() {
        nibbles[i] = (pair & 15).cast_signed();
        nibbles[16 + i] = (pair >> 4).cast_signed();
    }
    nibbles
}

#[inline(always)]
fn fifth_bits(bits: &[u8], mut quants: [i8; 32]) -> [i8; 32] {
    let bits = u32::from_le_bytes([bits[0], bits[1], bits[2], bits[3]]);
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= ((bits >> i & 1) << 4) as i8;
    }
    quants
}

/// Decodes whole blocks.
#[inline(always)]
pub(super) fn decode<F: Block32>(bytes: &[u8], row: &mut [f32]) {
    for (block, row) in bytes.chunks_exact(F::BYTES).zip(row.as_chunks_mut::<32>().0) {
        let UnpackedBlock32 { scale, least, quants } = F::unpack(block);
        for (x, quant) in row.iter_mut().zip(quants) {
            // Adding zero would turn a negative zero into a positive one.
            *x = if F::LEAST { scale * f32::from(quant) + least } else { scale * f32::from(quant) };
        }
    }
}
