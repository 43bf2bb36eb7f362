//! Products of blocks of 32 elements.

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

/// A block format of 32 elements whose blocks can be loaded. Its functions need AVX2 and F16C and a pointer to a block.
pub(super) trait LoadBlock32: Block32 {
    /// Loads the scale, and the least element where the format has one.
    unsafe fn numbers(block: *const u8) -> [f32; 2];

    /// The offset to subtract from the quants of `quants`, which are then from zero on.
    const ABOVE: i8 = 0;

    /// Loads the quants as bytes: signed, unless the format has a least element or an offset.
    unsafe fn quants(block: *const u8) -> __m256i;
}

/// # Safety
/// The contract of [`DotsFn`](super::DotsFn) holds, and the processor has AVX2 and F16C.
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
/// The contract of [`DotsFn`](super::DotsFn) holds, and the processor has AVX2, F16C, and AVX-512 with VNNI and short
/// vectors.
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
/// The contract of [`block32`] holds.
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

/// The number of columns from which it pays to unpack rows of weights once for all.
const MANY: usize = 8;

/// Multiplies one row at a time, because memory is read fastest in order.
///
/// # Safety
/// The contract of [`block32`] holds.
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
                    // Cheaper than signs, where those are not known yet.
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

/// Unpacks all rows, and then multiplies them with the columns.
///
/// # Safety
/// The contract of [`block32`] holds, `M` fits the processor, and this is inlined into a function that is compiled for
/// it.
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
        // SAFETY: a block of a row, and memory for its quants.
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

/// An unpacked row.
#[derive(Clone, Copy)]
struct UnpackedRow<'a> {
    quants: &'a [[i8; 32]],
    scales: &'a [f32],
    leasts: &'a [f32],
}

/// Computes the sums of [`block32_row`], with scales multiplied eight at a time.
///
/// # Safety
/// The contract of [`block32_many_columns`] holds.
#[inline(always)]
unsafe fn row_apart<F: LoadBlock32, M: QuantProduct, const C: usize>(
    apart: UnpackedRow<'_>,
    i: usize,
    columns: &[RoundedColumn<'_>; C],
) {
    // SAFETY: the processor has this feature.
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

/// The product of 32 quants with elements of several rows. Its functions need the instructions that they use.
trait QuantProduct {
    /// Returns what is derived from the quants alone.
    unsafe fn ready<F: LoadBlock32>(quants: __m256i) -> __m256i;

    /// Returns sums of four products each.
    unsafe fn sums<F: LoadBlock32>(quants: __m256i, ready: __m256i, x: __m256i) -> __m256;
}

/// The product with AVX2.
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

/// The product with one instruction for products and sums of four. One factor is unsigned: the quants, or the elements
/// with 128 added, for which sums start that much lower.
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

/// Returns sums of four products each. `size` is the quants without their sign.
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

/// Adds sums of two to sums of four.
#[inline]
#[target_feature(enable = "avx2")]
fn whole_sums(pairs: __m256i) -> __m256 {
    _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// Unpacks the nibbles of 16 bytes, the low ones first.
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

/// Unpacks 32 bits as bytes of 0 or 16.
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
