//! Products of blocks with rounded rows: whole numbers within a block, and `f32` from block to block.
//!
//! ```text
//!   blocks of 32     8 lanes of whole numbers, each the sum of 4 products        lane of f32 += lane * (scale * scale)
//!   blocks of 256    8 lanes, each the sum of 32 products times their factors    the same
//! ```
//!
//! Every element of a result is computed by itself and in one order, whatever is computed beside it: lanes by lanes,
//! then their sum, halved again and again. So every implementation on every machine gives one result, to the bit
//! (except for which NaN it is, where there is one).

#[cfg(target_arch = "x86_64")]
mod avx2;

use steeve_graph::DataType;

use super::rounded_rows::RoundedRow;
use crate::kernel::ThreadScratch;
use crate::quant::block32::{Block32, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, UnpackedBlock32};
use crate::quant::block256::{Block256, Q2K, Q3K, Q4K, Q5K, Q6K, UnpackedBlock256};

/// Rows of weights in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRows {
    pub(crate) start: *const u8,
    /// The bytes from one row to the next.
    pub(crate) stride: usize,
    /// The number of rows.
    pub(crate) rows: usize,
}

/// A rounded row, and the destination of its products.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundedColumn<'a> {
    pub(crate) row: RoundedRow<'a>,
    pub(crate) out: *mut u8,
    /// The bytes from one product to the next.
    pub(crate) step: usize,
}

/// Multiplies each row of weights with each column, all of one length.
///
/// # Safety
/// There are such rows, as long as those of the columns, which are rounded as the format needs it. There is memory for
/// the products, and no other thread accesses it. The processor is one that [`dots`] has chosen the function for.
pub(crate) type DotsFn = unsafe fn(BlockRows, &[RoundedColumn<'_>], &mut ThreadScratch);

/// The largest number of columns that counts as few.
pub(crate) const FEW: usize = 4;

/// Returns how blocks of a type are multiplied on this machine; `None` for other types.
pub(crate) fn dots(dtype: DataType) -> Option<DotsFn> {
    ways(dtype).next()
}

/// Returns all implementations that this machine can run, the best first.
fn ways(dtype: DataType) -> impl Iterator<Item = DotsFn> {
    #[cfg(target_arch = "x86_64")]
    let quick = {
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        let has_vnni = is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512vnni");
        [avx2::dots_vnni(dtype).filter(|_| has_avx2 && has_vnni), avx2::dots(dtype).filter(|_| has_avx2)]
    };
    #[cfg(not(target_arch = "x86_64"))]
    let quick = [None; 0];
    quick.into_iter().flatten().chain(plain(dtype))
}

/// Returns the portable implementation.
fn plain(dtype: DataType) -> Option<DotsFn> {
    Some(match dtype {
        DataType::Q8_0 => each_block32::<Q8_0>,
        DataType::Q4_0 => each_block32::<Q4_0>,
        DataType::Q4_1 => each_block32::<Q4_1>,
        DataType::Q5_0 => each_block32::<Q5_0>,
        DataType::Q5_1 => each_block32::<Q5_1>,
        DataType::Mxfp4 => each_block32::<Mxfp4>,
        DataType::Q2K => each_block256::<Q2K>,
        DataType::Q3K => each_block256::<Q3K>,
        DataType::Q4K => each_block256::<Q4K>,
        DataType::Q5K => each_block256::<Q5K>,
        DataType::Q6K => each_block256::<Q6K>,
        _ => return None,
    })
}

/// # Safety
/// The contract of [`DotsFn`] holds.
unsafe fn each_block32<F: Block32>(weights: BlockRows, columns: &[RoundedColumn<'_>], _: &mut ThreadScratch) {
    // SAFETY: as promised.
    unsafe { each(weights, columns, |row| row.quants.len() / 32 * F::BYTES, block32::<F>) }
}

/// # Safety
/// The contract of [`DotsFn`] holds.
unsafe fn each_block256<F: Block256>(weights: BlockRows, columns: &[RoundedColumn<'_>], _: &mut ThreadScratch) {
    // SAFETY: as promised.
    unsafe { each(weights, columns, |row| row.quants.len() / 256 * F::BYTES, block256::<F>) }
}

/// # Safety
/// The contract of [`DotsFn`] holds; `bytes` is the length of a row of weights.
unsafe fn each(
    weights: BlockRows,
    columns: &[RoundedColumn<'_>],
    bytes: impl Fn(&RoundedRow<'_>) -> usize,
    dot: impl Fn(&[u8], &RoundedRow<'_>) -> f32,
) {
    for i in 0..weights.rows {
        for column in columns {
            // SAFETY: as promised.
            unsafe {
                let row = std::slice::from_raw_parts(weights.start.add(i * weights.stride), bytes(&column.row));
                column.write(i, dot(row, &column.row));
            }
        }
    }
}

impl RoundedColumn<'_> {
    /// # Safety
    /// There is such a product, and no other thread accesses it.
    unsafe fn write(&self, i: usize, value: f32) {
        // SAFETY: as promised.
        unsafe { self.out.add(i * self.step).cast::<f32>().write_unaligned(value) }
    }
}

fn block32<F: Block32>(weights: &[u8], row: &RoundedRow<'_>) -> f32 {
    let (mut lanes, mut leasts) = ([0.0; 8], 0.0);
    for (b, (block, x)) in weights.chunks_exact(F::BYTES).zip(row.quants.as_chunks::<32>().0).enumerate() {
        let UnpackedBlock32 { scale, least, quants } = F::unpack(block);
        let scale = scale * row.scales[b];
        for (lane, sum) in lanes.iter_mut().enumerate() {
            let products = (4 * lane..4 * lane + 4).map(|i| i32::from(quants[i]) * i32::from(x[i]));
            *sum += products.sum::<i32>() as f32 * scale;
        }
        if F::LEAST {
            leasts += least * row.sums.block32[b];
        }
    }
    if F::LEAST { total(lanes) + leasts } else { total(lanes) }
}

fn block256<F: Block256>(weights: &[u8], row: &RoundedRow<'_>) -> f32 {
    let mut lanes = [0.0; 8];
    for (b, (block, x)) in weights.chunks_exact(F::BYTES).zip(row.quants.as_chunks::<256>().0).enumerate() {
        let UnpackedBlock256 { scale, step, factors, leasts, quants } = F::unpack(block);
        let mut sums = [0; 8];
        for (i, (quant, x)) in quants.iter().zip(x).enumerate() {
            sums[i % 32 / 4] += i32::from(factors[i / 16]) * i32::from(*quant) * i32::from(*x);
        }
        // For each group what is subtracted: an offset of its quants, or its least element.
        let taken = if F::OFFSET == 0 { leasts } else { factors };
        let mut rest = [0; 8];
        for (group, sum) in row.sums.block256[b].iter().enumerate() {
            // The even ones come first.
            let number = group % 8 * 2 + group / 8;
            rest[group / 2] += i32::from(taken[number]) * i32::from(*sum);
        }
        let scale = scale * row.scales[b];
        if F::OFFSET == 0 {
            let step = step * row.scales[b];
            for ((lane, sum), rest) in lanes.iter_mut().zip(sums).zip(rest) {
                *lane += sum as f32 * scale;
                *lane -= rest as f32 * step;
            }
        } else {
            for ((lane, sum), rest) in lanes.iter_mut().zip(sums).zip(rest) {
                *lane += (sum - i32::from(F::OFFSET) * rest) as f32 * scale;
            }
        }
    }
    total(lanes)
}

/// Returns the sum of the lanes, halved again and again.
fn total(lanes: [f32; 8]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    let [a, b, c, d] = [a + e, b + f, c + g, d + h];
    (a + c) + (b + d)
}

#[cfg(test)]
mod tests {
    use super::super::rounded_rows::BlockLength;
    use super::*;
    use crate::quant::codec;
    use crate::tensor_ptr::{CacheLine, NodeScratch};

    fn random(state: &mut u64) -> u8 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 56) as u8
    }

    /// Computes every product of some rows with some columns.
    fn products(dots: DotsFn, blocks: &[u8], rows: usize, columns: &[RoundedRow<'_>]) -> Vec<f32> {
        let mut out = vec![f32::NAN; rows * columns.len()];
        let columns: Vec<RoundedColumn<'_>> = out
            .chunks_mut(rows)
            .zip(columns)
            .map(|(out, row)| RoundedColumn { row: *row, out: out.as_mut_ptr().cast(), step: 4 })
            .collect();
        let weights = BlockRows { start: blocks.as_ptr(), stride: blocks.len() / rows, rows };
        // SAFETY: so many rows of whole blocks, and a place for each product.
        unsafe { dots(weights, &columns, &mut ThreadScratch::default()) };
        out
    }

    /// Returns all formats, with any bytes as blocks: scales may be infinite or NaN.
    #[test]
    fn all_ways_give_the_same_bits() {
        let mut state = 1;
        for &dtype in DataType::ALL {
            let (Some(plain), Some(kind)) = (plain(dtype), BlockLength::of(dtype)) else { continue };
            for (count, rows, n) in [(1, 1, 1), (3, 7, 1), (2, 5, 2), (4, 3, 3), (2, 6, 4), (9, 4, 4), (19, 3, 11)] {
                let k = count * kind.len();
                let blocks: Vec<u8> =
                    (0..rows * count * dtype.block_bytes() as usize).map(|_| random(&mut state)).collect();
                let mut lines = vec![CacheLine([0; 64]); kind.bytes(n, k).unwrap() / 64];
                let room = NodeScratch::new(&mut lines);
                for index in 0..n {
                    let row: Vec<f32> = (0..k).map(|_| f32::from(random(&mut state).cast_signed()) / 16.0).collect();
                    // SAFETY: there is room for so many rows of this length.
                    unsafe { kind.round(&row, room, index) };
                }
                // SAFETY: they have been rounded.
                let columns: Vec<_> = (0..n).map(|index| unsafe { kind.row(room, index, k) }).collect();
                let plain = products(plain, &blocks, rows, &columns);
                for (way, quick) in ways(dtype).enumerate() {
                    let quick = products(quick, &blocks, rows, &columns);
                    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                    let all = quick.iter().zip(&plain).all(same);
                    assert!(all, "{dtype}, way {way}, {rows} rows of {k}: {quick:?} {plain:?}");
                }
            }
        }
    }

    #[test]
    fn every_format_that_can_be_read_can_be_multiplied() {
        for &dtype in DataType::ALL {
            assert_eq!(codec(dtype).is_some(), dots(dtype).is_some(), "{dtype}");
            assert_eq!(codec(dtype).is_some(), plain(dtype).is_some(), "{dtype}");
        }
    }
}
