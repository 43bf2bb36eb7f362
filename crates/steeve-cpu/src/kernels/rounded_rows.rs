//! Rows of activations rounded to eight bits, for products with blocks: whole numbers are multiplied and added exactly,
//! and many at a time.
//!
//! ```text
//!   a row:   quants i8, one for each element | scales f32, one for each block | sums
//!            element = scale * quant, where the one farthest from zero is 127 or -127
//! ```
//!
//! As in ggml, blocks are those of the weights: 32 elements, or 256. Scales stay in `f32`, because no file has to hold
//! them; ggml rounds those of 32 to `f16`, which loses small numbers. The sums are what weights with a least element
//! need: of a block of 32 `scale * (sum of the quants)`, and of a block of 256 those of its 16 groups, the even ones
//! before the odd ones, as vector instructions need them.

use steeve_graph::DataType;

use crate::multiversion::multiversion;
use crate::tensor_ptr::NodeScratch;

/// The length of the blocks that are rounded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockLength {
    /// 32 elements.
    Block32,
    /// 256 elements.
    Block256,
}

impl BlockLength {
    /// Returns the length that a format of weights is multiplied with; `None` for types without blocks.
    pub(crate) fn of(dtype: DataType) -> Option<Self> {
        match dtype.block_len() {
            32 => Some(Self::Block32),
            256 => Some(Self::Block256),
            _ => None,
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Block32 => 32,
            Self::Block256 => 256,
        }
    }

    /// Returns the offsets of scales and sums of a row of `k` elements, and the distance to the next row.
    fn places(self, k: usize) -> [usize; 3] {
        let (blocks, scales) = (k / self.len(), k);
        let sums = scales + 4 * blocks;
        let end = sums + blocks * if self == Self::Block32 { 4 } else { 32 };
        [scales, sums, end.next_multiple_of(64)]
    }

    /// Returns the bytes of `rows` rows of `k` elements; `None` for more than can be counted.
    pub(crate) fn bytes(self, rows: usize, k: usize) -> Option<usize> {
        // Scales, sums and what is rounded up take less than the elements and a line.
        k.checked_mul(2)?.checked_add(64)?;
        rows.checked_mul(self.places(k)[2])
    }

    /// Rounds a row into the node scratch.
    ///
    /// # Safety
    /// The node scratch has memory for rows of this length, and no other thread accesses this one.
    pub(crate) unsafe fn round(self, row: &[f32], node_scratch: NodeScratch<'_>, index: usize) {
        let [scales, sums, bytes] = self.places(row.len());
        let (start, blocks) = (index * bytes, row.len() / self.len());
        // SAFETY: as promised; a row starts at a multiple of 64, and all parts of it are multiples of 4 long.
        unsafe {
            let (quants, scales) = (node_scratch.write(start, row.len()), node_scratch.write(start + scales, blocks));
            match self {
                Self::Block32 => round_block32(row, quants, scales, node_scratch.write(start + sums, blocks)),
                Self::Block256 => round_block256(row, quants, scales, node_scratch.write(start + sums, 16 * blocks)),
            }
        }
    }

    /// Returns a rounded row of `k` elements.
    ///
    /// # Safety
    /// It has been rounded, and is not written while it is in use.
    pub(crate) unsafe fn row(self, node_scratch: NodeScratch<'_>, index: usize, k: usize) -> RoundedRow<'_> {
        let [scales, sums, bytes] = self.places(k);
        let (start, blocks) = (index * bytes, k / self.len());
        // SAFETY: as promised, and as it was written.
        unsafe {
            RoundedRow {
                quants: node_scratch.read(start, k),
                scales: node_scratch.read(start + scales, blocks),
                sums: match self {
                    Self::Block32 => BlockSums { block32: node_scratch.read(start + sums, blocks), block256: &[] },
                    Self::Block256 => BlockSums { block32: &[], block256: node_scratch.read(start + sums, blocks) },
                },
            }
        }
    }
}

/// A rounded row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundedRow<'a> {
    pub(crate) quants: &'a [i8],
    /// One for each block.
    pub(crate) scales: &'a [f32],
    pub(crate) sums: BlockSums<'a>,
}

/// One entry for each block, in the slice of its kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSums<'a> {
    pub(crate) block32: &'a [f32],
    pub(crate) block256: &'a [[i16; 16]],
}

multiversion! {
    fn round_block32(row: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [f32]) {
        let blocks = row.as_chunks::<32>().0.iter().zip(quants.as_chunks_mut::<32>().0);
        for ((row, quants), (scale, sum)) in blocks.zip(scales.iter_mut().zip(sums)) {
            *scale = round_block(row, quants);
            *sum = *scale * quants.iter().map(|quant| i32::from(*quant)).sum::<i32>() as f32;
        }
    }
}

multiversion! {
    fn round_block256(row: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
        let blocks = row.as_chunks::<256>().0.iter().zip(quants.as_chunks_mut::<256>().0);
        for ((row, quants), (scale, sums)) in blocks.zip(scales.iter_mut().zip(sums.as_chunks_mut::<16>().0)) {
            *scale = round_block(row, quants);
            for (group, quants) in quants.as_chunks::<16>().0.iter().enumerate() {
                sums[group / 2 + group % 2 * 8] = quants.iter().map(|quant| i16::from(*quant)).sum();
            }
        }
    }
}

/// Rounds a block to the nearest, halves away from zero, and returns its scale. That is NaN or infinite where an
/// element is, so that products with it are NaN.
#[inline(always)]
fn round_block<const N: usize>(row: &[f32; N], quants: &mut [i8; N]) -> f32 {
    // By their bits: then NaN counts as larger than all others.
    let mut most = [0; 8];
    for part in row.as_chunks::<8>().0 {
        for (most, x) in most.iter_mut().zip(part) {
            *most = (x.to_bits() & 0x7fff_ffff).max(*most);
        }
    }
    let scale = f32::from_bits(most.into_iter().fold(0, u32::max)) / 127.0;
    // The inverse of a subnormal number may be infinite.
    let inverse = if scale.is_normal() { 1.0 / scale } else { 0.0 };
    for (quant, x) in quants.iter_mut().zip(row) {
        let x = if inverse == 0.0 { 0.0 } else { x * inverse };
        // Half less one bit, or what is just below a half would reach one. Adding the other number leaves a small integer in
        // the lowest bits, which vector instructions can do.
        let whole = (x + 0.499_999_97_f32.copysign(x)).trunc();
        *quant = (whole + 12_582_912.0).to_bits() as i8;
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor_ptr::CacheLine;

    #[test]
    fn every_element_is_within_half_a_step() {
        for blocks in [BlockLength::Block32, BlockLength::Block256] {
            let row: Vec<f32> = (0..512).map(|i| ((i * 37 % 101) as f32 - 50.0) * 1.5f32.powi(i / 32)).collect();
            let mut lines = vec![CacheLine([0; 64]); blocks.bytes(2, 512).unwrap() / 64];
            let node_scratch = NodeScratch::new(&mut lines);
            // SAFETY: memory for two such rows.
            let rounded = unsafe {
                blocks.round(&row, node_scratch, 1);
                blocks.row(node_scratch, 1, 512)
            };
            for (i, (x, quant)) in row.iter().zip(rounded.quants).enumerate() {
                let scale = rounded.scales[i / blocks.len()];
                assert!((x - scale * f32::from(*quant)).abs() <= 0.500_01 * scale, "{i}: {x}, {quant} times {scale}");
            }
        }
    }

    #[test]
    fn what_is_no_number_makes_no_scale() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut row = [1.0; 32];
            row[5] = odd;
            let scale = round_block(&row, &mut [0; 32]);
            assert!(!scale.is_finite());
        }
        assert_eq!(round_block(&[0.0; 32], &mut [1; 32]), 0.0);
        assert!(round_block(&[1e-44; 32], &mut [1; 32]) < 1e-44);
    }
}
