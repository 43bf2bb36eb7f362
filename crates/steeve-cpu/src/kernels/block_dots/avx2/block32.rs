//! Blocks of 32.

use std::arch::x86_64::{
    __m256, __m256i, _mm_loadu_si128, _mm_srli_epi16, _mm256_add_ps, _mm256_and_si256, _mm256_broadcast_ss,
    _mm256_cmpeq_epi8, _mm256_cvtepi32_ps, _mm256_dpbusd_epi32, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set_m128i, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setr_epi64x, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_sign_epi8, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi8, _mm256_sub_epi16,
    _mm256_sub_epi32, _mm256_xor_si256,
};

use super::super::{BlockRows, RoundedColumn};
use super::{TOGETHER, bytes_32, half_at, total};
use crate::kernel::ThreadScratch;
use crate::quant::block32::{Block32, E2M1, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, half_of_power};

/// A format whose blocks of 32 can be loaded. Its functions are for machines with AVX2 and F16C alone, and are given blocks.
pub(super) trait LoadBlock32: Block32 {
    /// The scale, and the least element where there are such.
    unsafe fn numbers(block: *const u8) -> [f32; 2];

    /// What is still to be taken from the quants below, which are then from zero on.
    const ABOVE: i8 = 0;

    /// The quants as bytes: with a sign, unless there is a least element or they are above what they stand for.
    unsafe fn quants(block: *const u8) -> __m256i;
}

/// # Safety
/// As for [`DotsFn`](super::DotsFn), on a machine with AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn block32<F: LoadBlock32>(
    weights: BlockRows,
    columns: &[RoundedColumn<'_>],
    scratch: &mut ThreadScratch,
) {
    if columns.len() >= MANY {
        // SAFETY: as promised.
        return unsafe { block32_many_columns::<F, Avx2Product>(weights, columns, scratch) };
    }
    // SAFETY: as promised.
    unsafe { block32_few_columns::<F>(weights, columns) }
}

/// # Safety
/// As for [`DotsFn`](super::DotsFn), on a machine with AVX2, F16C, and AVX-512 with VNNI and short vectors.
#[target_feature(enable = "avx2,f16c,avx512vl,avx512vnni")]
pub(super) unsafe fn block32_vnni<F: LoadBlock32>(
    weights: BlockRows,
    columns: &[RoundedColumn<'_>],
    scratch: &mut ThreadScratch,
) {
    if columns.len() >= MANY {
        // SAFETY: as promised.
        return unsafe { block32_many_columns::<F, VnniProduct>(weights, columns, scratch) };
    }
    // SAFETY: as promised.
    unsafe { block32_few_columns::<F>(weights, columns) }
}

/// # Safety
/// As for [`block32`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn block32_few_columns<F: LoadBlock32>(weights: BlockRows, columns: &[RoundedColumn<'_>]) {
    for columns in columns.chunks(TOGETHER) {
        for i in 0..weights.rows {
            // SAFETY: as promised.
            unsafe {
                match *columns {
                    [a] => block32_row::<F, 1>(weights, i, &[a]),
                    [a, b] => block32_row::<F, 2>(weights, i, &[a, b]),
                    [a, b, c] => block32_row::<F, 3>(weights, i, &[a, b, c]),
                    [a, b, c, d] => block32_row::<F, 4>(weights, i, &[a, b, c, d]),
                    _ => unreachable!("{} columns", columns.len()),
                }
            }
        }
    }
}

/// For so many columns rows of weights are better taken apart once and for all.
const MANY: usize = 8;

/// One row at a time, because memory likes to be read in order.
///
/// # Safety
/// As for [`block32`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn block32_row<F: LoadBlock32, const C: usize>(weights: BlockRows, i: usize, columns: &[RoundedColumn<'_>; C]) {
    let mut lanes = [_mm256_setzero_ps(); C];
    let mut leasts = [0.0; C];
    // SAFETY: as promised: there are so many blocks in the row.
    unsafe {
        let row = weights.start.add(i * weights.stride);
        for b in 0..columns[0].row.scales.len() {
            let block = row.add(b * F::BYTES);
            let (quants, [scale, least]) = (F::quants(block), F::numbers(block));
            let (size, scale) = (_mm256_sign_epi8(quants, quants), _mm256_set1_ps(scale));
            for c in 0..C {
                let row = &columns[c].row;
                let x = _mm256_loadu_si256(row.quants.as_ptr().add(32 * b).cast());
                let sums = if F::ABOVE == 0 {
                    multiply::<F>(quants, size, x)
                } else {
                    // Cheaper than signs, where nobody has found those out before.
                    let above = _mm256_maddubs_epi16(_mm256_set1_epi8(F::ABOVE), x);
                    whole_sums(_mm256_sub_epi16(_mm256_maddubs_epi16(quants, x), above))
                };
                let scale = _mm256_mul_ps(scale, _mm256_broadcast_ss(row.scales.get_unchecked(b)));
                lanes[c] = _mm256_add_ps(lanes[c], _mm256_mul_ps(sums, scale));
                if F::LEAST {
                    leasts[c] += least * row.sums.block32.get_unchecked(b);
                }
            }
        }
        for c in 0..C {
            let sum = total(lanes[c]);
            columns[c].write(i, if F::LEAST { sum + leasts[c] } else { sum });
        }
    }
}

/// Takes all rows apart, and then multiplies them with the columns.
///
/// # Safety
/// As for [`block32`], on a machine that `M` is for, within a function that is compiled for it.
#[inline(always)]
unsafe fn block32_many_columns<F: LoadBlock32, M: QuantProduct>(
    weights: BlockRows,
    columns: &[RoundedColumn<'_>],
    scratch: &mut ThreadScratch,
) {
    let Some(first) = columns.first() else { return };
    let (k, blocks) = (first.row.quants.len(), first.row.scales.len());
    let (quants, numbers) = scratch.bytes_and_row(weights.rows * k, 2 * weights.rows * blocks);
    let (scales, leasts) = numbers.split_at_mut(weights.rows * blocks);
    let apart = quants.as_chunks_mut::<32>().0.iter_mut().zip(scales.iter_mut().zip(leasts.iter_mut()));
    for (index, (quants, (scale, least))) in apart.enumerate() {
        // SAFETY: a block of a row, and room for its quants.
        unsafe {
            let block = weights.start.add(index / blocks * weights.stride + index % blocks * F::BYTES);
            let signed = _mm256_sub_epi8(F::quants(block), _mm256_set1_epi8(F::ABOVE));
            _mm256_storeu_si256(quants.as_mut_ptr().cast(), signed);
            [*scale, *least] = F::numbers(block);
        }
    }
    for columns in columns.chunks(TOGETHER) {
        for i in 0..weights.rows {
            let part = i * blocks..(i + 1) * blocks;
            let row = UnpackedRow {
                quants: &quants.as_chunks::<32>().0[part.clone()],
                scales: &scales[part.clone()],
                leasts: &leasts[part],
            };
            // SAFETY: as promised.
            unsafe {
                match *columns {
                    [a] => row_apart::<F, M, 1>(row, i, &[a]),
                    [a, b] => row_apart::<F, M, 2>(row, i, &[a, b]),
                    [a, b, c] => row_apart::<F, M, 3>(row, i, &[a, b, c]),
                    [a, b, c, d] => row_apart::<F, M, 4>(row, i, &[a, b, c, d]),
                    _ => unreachable!("{} columns", columns.len()),
                }
            }
        }
    }
}

/// A row that was taken apart.
#[derive(Clone, Copy)]
struct UnpackedRow<'a> {
    quants: &'a [[i8; 32]],
    scales: &'a [f32],
    leasts: &'a [f32],
}

/// The same sums as [`block32_row`], where scales are multiplied eight at a time.
///
/// # Safety
/// As for [`block32_many_columns`].
#[inline(always)]
unsafe fn row_apart<F: LoadBlock32, M: QuantProduct, const C: usize>(
    apart: UnpackedRow<'_>,
    i: usize,
    columns: &[RoundedColumn<'_>; C],
) {
    // SAFETY: the machine has it.
    let mut lanes = unsafe { [_mm256_setzero_ps(); C] };
    let mut leasts = [0.0; C];
    let blocks = apart.scales.len();
    // SAFETY: as promised: both sides have so many blocks.
    unsafe {
        for first in (0..blocks).step_by(8) {
            let count = (blocks - first).min(8);
            let mut scales = [[0.0; 8]; C];
            for c in 0..C {
                let (ours, theirs) = (apart.scales.as_ptr().add(first), columns[c].row.scales.as_ptr().add(first));
                if count == 8 {
                    let products = _mm256_mul_ps(_mm256_loadu_ps(ours), _mm256_loadu_ps(theirs));
                    _mm256_storeu_ps(scales[c].as_mut_ptr(), products);
                } else {
                    (0..count).for_each(|b| scales[c][b] = *ours.add(b) * *theirs.add(b));
                }
            }
            for b in 0..count {
                let at = first + b;
                let quants = _mm256_loadu_si256(apart.quants.as_ptr().add(at).cast());
                let ready = M::ready::<F>(quants);
                for c in 0..C {
                    let row = &columns[c].row;
                    let x = _mm256_loadu_si256(row.quants.as_ptr().add(32 * at).cast());
                    let sums = M::sums::<F>(quants, ready, x);
                    let scale = _mm256_broadcast_ss(scales[c].get_unchecked(b));
                    lanes[c] = _mm256_add_ps(lanes[c], _mm256_mul_ps(sums, scale));
                    if F::LEAST {
                        leasts[c] += apart.leasts.get_unchecked(at) * row.sums.block32.get_unchecked(at);
                    }
                }
            }
        }
        for c in 0..C {
            let sum = total(lanes[c]);
            columns[c].write(i, if F::LEAST { sum + leasts[c] } else { sum });
        }
    }
}

/// How 32 quants are multiplied with elements of several rows. For machines with what it uses.
trait QuantProduct {
    /// What can be found out about the quants alone.
    unsafe fn ready<F: LoadBlock32>(quants: __m256i) -> __m256i;

    /// The sums of four products each.
    unsafe fn sums<F: LoadBlock32>(quants: __m256i, ready: __m256i, x: __m256i) -> __m256;
}

/// By AVX2.
struct Avx2Product;

impl QuantProduct for Avx2Product {
    #[inline(always)]
    unsafe fn ready<F: LoadBlock32>(quants: __m256i) -> __m256i {
        // SAFETY: as promised.
        unsafe { _mm256_sign_epi8(quants, quants) }
    }

    #[inline(always)]
    unsafe fn sums<F: LoadBlock32>(quants: __m256i, size: __m256i, x: __m256i) -> __m256 {
        // SAFETY: as promised.
        unsafe { multiply::<F>(quants, size, x) }
    }
}

/// By one instruction for products and sums of four. One factor has no sign: the quants, or the elements with 128 added, for
/// which sums start that much lower.
struct VnniProduct;

impl QuantProduct for VnniProduct {
    #[inline(always)]
    unsafe fn ready<F: LoadBlock32>(quants: __m256i) -> __m256i {
        // SAFETY: as promised.
        unsafe {
            let zero = _mm256_setzero_si256();
            if F::LEAST {
                return zero;
            }
            _mm256_sub_epi32(zero, _mm256_dpbusd_epi32(zero, _mm256_set1_epi8(i8::MIN), quants))
        }
    }

    #[inline(always)]
    unsafe fn sums<F: LoadBlock32>(quants: __m256i, start: __m256i, x: __m256i) -> __m256 {
        // SAFETY: as promised.
        unsafe {
            let sums = if F::LEAST {
                _mm256_dpbusd_epi32(start, quants, x)
            } else {
                _mm256_dpbusd_epi32(start, _mm256_xor_si256(x, _mm256_set1_epi8(i8::MIN)), quants)
            };
            _mm256_cvtepi32_ps(sums)
        }
    }
}

/// The sums of four products each. `size` is the quants without their sign.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply<F: LoadBlock32>(quants: __m256i, size: __m256i, x: __m256i) -> __m256 {
    let pairs = if F::LEAST {
        _mm256_maddubs_epi16(quants, x)
    } else {
        _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, quants))
    };
    whole_sums(pairs)
}

/// Sums of two as sums of four.
#[inline]
#[target_feature(enable = "avx2")]
fn whole_sums(pairs: __m256i) -> __m256 {
    _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// The nibbles of 16 bytes, the low ones first.
///
/// # Safety
/// There are 16 bytes, and the machine has AVX2.
#[inline(always)]
unsafe fn nibbles(block: *const u8, at: usize) -> __m256i {
    // SAFETY: as promised.
    unsafe {
        let pairs = _mm_loadu_si128(block.add(at).cast());
        _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(pairs), pairs), _mm256_set1_epi8(15))
    }
}

/// 32 bits as bytes of 0 or 16.
///
/// # Safety
/// There are four bytes, and the machine has AVX2.
#[inline(always)]
unsafe fn fifth_bits(block: *const u8, at: usize) -> __m256i {
    // SAFETY: as promised.
    unsafe {
        let bits = _mm256_set1_epi32(block.add(at).cast::<i32>().read_unaligned());
        // The byte that has the bit of an element, at that element.
        let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
        let set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, places), bit), bit);
        _mm256_and_si256(set, _mm256_set1_epi8(16))
    }
}

impl LoadBlock32 for Q8_0 {
    #[inline(always)]
    unsafe fn numbers(block: *const u8) -> [f32; 2] {
        // SAFETY: as promised.
        [unsafe { half_at(block, 0) }, 0.0]
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe { bytes_32(block, 2) }
    }
}

impl LoadBlock32 for Q4_0 {
    const ABOVE: i8 = 8;

    #[inline(always)]
    unsafe fn numbers(block: *const u8) -> [f32; 2] {
        // SAFETY: as promised.
        [unsafe { half_at(block, 0) }, 0.0]
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe { nibbles(block, 2) }
    }
}

impl LoadBlock32 for Q4_1 {
    #[inline(always)]
    unsafe fn numbers(block: *const u8) -> [f32; 2] {
        // SAFETY: as promised.
        unsafe { [half_at(block, 0), half_at(block, 2)] }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe { nibbles(block, 4) }
    }
}

impl LoadBlock32 for Q5_0 {
    const ABOVE: i8 = 16;

    #[inline(always)]
    unsafe fn numbers(block: *const u8) -> [f32; 2] {
        // SAFETY: as promised.
        [unsafe { half_at(block, 0) }, 0.0]
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe { _mm256_or_si256(nibbles(block, 6), fifth_bits(block, 2)) }
    }
}

impl LoadBlock32 for Q5_1 {
    #[inline(always)]
    unsafe fn numbers(block: *const u8) -> [f32; 2] {
        // SAFETY: as promised.
        unsafe { [half_at(block, 0), half_at(block, 2)] }
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe { _mm256_or_si256(nibbles(block, 8), fifth_bits(block, 4)) }
    }
}

impl LoadBlock32 for Mxfp4 {
    #[inline(always)]
    unsafe fn numbers(block: *const u8) -> [f32; 2] {
        // SAFETY: as promised.
        [half_of_power(unsafe { block.read() }), 0.0]
    }

    #[inline(always)]
    unsafe fn quants(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe {
            let numbers = _mm_loadu_si128(E2M1.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_set_m128i(numbers, numbers), nibbles(block, 1))
        }
    }
}
