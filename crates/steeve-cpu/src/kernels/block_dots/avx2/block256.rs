//! Products of blocks of 256 elements.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_cvtepu8_epi16, _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm_loadu_si128,
    _mm_set1_epi8, _mm_set1_epi16, _mm_slli_epi16, _mm_srai_epi16, _mm_srli_epi16, _mm_sub_epi8, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16,
    _mm256_mul_ps, _mm256_or_si256, _mm256_set_m128i, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sll_epi16, _mm256_sll_epi32, _mm256_srl_epi16,
    _mm256_sub_epi32, _mm256_sub_ps,
};

use super::super::{BlockRows, RoundedColumn};
use super::{TOGETHER, bytes_32, half_at, total};
use crate::kernel::ThreadScratch;
use crate::quant::block256::{Block256, Q2K, Q3K, Q4K, Q5K, Q6K, six_bits_of};

/// A block format of 256 elements whose blocks can be loaded. Its functions need AVX2 and F16C and a pointer to a
/// block.
pub(super) trait LoadBlock256: Block256 {
    unsafe fn head(block: *const u8) -> BlockHeader;

    /// Loads 32 quants as bytes, from zero on.
    unsafe fn quants<const PART: i32>(block: *const u8) -> __m256i;
}

/// The numbers of a block besides its quants.
pub(super) struct BlockHeader {
    scale: f32,
    step: f32,
    /// 16 bits for each group: those of the even groups, then those of the odd ones.
    factors: __m256i,
    /// The least elements, or the factors again where quants have an offset.
    taken: __m256i,
}

/// # Safety
/// The contract of [`DotsFn`](super::DotsFn) holds, and the processor has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn block256<F: LoadBlock256>(
    weights: BlockRows,
    columns: &[RoundedColumn<'_>],
    _: &mut ThreadScratch,
) {
    for columns in columns.chunks(TOGETHER) {
        for i in 0..weights.rows {
            // SAFETY: as promised.
            unsafe {
                match *columns {
                    [a] => block256_row::<F, 1>(weights, i, &[a]),
                    [a, b] => block256_row::<F, 2>(weights, i, &[a, b]),
                    [a, b, c] => block256_row::<F, 3>(weights, i, &[a, b, c]),
                    [a, b, c, d] => block256_row::<F, 4>(weights, i, &[a, b, c, d]),
                    _ => unreachable!("{} columns", columns.len()),
                }
            }
        }
    }
}

/// # Safety
/// The contract of [`block256`] holds.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn block256_row<F: LoadBlock256, const C: usize>(
    weights: BlockRows,
    i: usize,
    columns: &[RoundedColumn<'_>; C],
) {
    let mut lanes = [_mm256_setzero_ps(); C];
    // SAFETY: as promised: there are so many blocks in the row.
    unsafe {
        let row = weights.start.add(i * weights.stride);
        for b in 0..columns[0].row.scales.len() {
            let block = row.add(b * F::BYTES);
            let BlockHeader { scale, step, factors, taken } = F::head(block);
            let mut sums = [_mm256_setzero_si256(); C];
            macro_rules! add_parts {
                ($($part:literal)*) => {
                    $(
                        let quants = F::quants::<$part>(block);
                        // The factors of the two groups, at all of their elements.
                        let places = _mm256_set1_epi16(0x0100 + 0x0202 * $part);
                        let of_both = _mm256_shuffle_epi8(factors, places);
                        for c in 0..C {
                            let x = bytes_32(columns[c].row.quants.as_ptr().cast(), 256 * b + 32 * $part);
                            let products = _mm256_madd_epi16(_mm256_maddubs_epi16(quants, x), of_both);
                            sums[c] = _mm256_add_epi32(sums[c], products);
                        }
                    )*
                };
            }
            add_parts!(0 1 2 3 4 5 6 7);
            for c in 0..C {
                let row = &columns[c].row;
                let x = *row.scales.get_unchecked(b);
                let groups = _mm256_loadu_si256(row.sums.block256.as_ptr().add(b).cast());
                let rest = _mm256_madd_epi16(taken, groups);
                let scale = _mm256_set1_ps(scale * x);
                if F::OFFSET == 0 {
                    let sum = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[c]), scale);
                    let rest = _mm256_mul_ps(_mm256_cvtepi32_ps(rest), _mm256_set1_ps(step * x));
                    lanes[c] = _mm256_sub_ps(_mm256_add_ps(lanes[c], sum), rest);
                } else {
                    // An offset is a power of two.
                    let rest = _mm256_sll_epi32(rest, _mm_cvtsi32_si128(F::OFFSET.ilog2().cast_signed()));
                    let sum = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(sums[c], rest)), scale);
                    lanes[c] = _mm256_add_ps(lanes[c], sum);
                }
            }
        }
        for c in 0..C {
            columns[c].write(i, total(lanes[c]));
        }
    }
}

/// Extracts `bits` of each of 32 bytes, above the lowest `shift`.
///
/// # Safety
/// There are 32 bytes, and the machine has AVX2.
#[inline(always)]
unsafe fn bits_of(block: *const u8, at: usize, shift: i32, bits: u32) -> __m256i {
    // SAFETY: as promised.
    unsafe {
        let shifted = _mm256_srl_epi16(bytes_32(block, at), _mm_cvtsi32_si128(shift));
        _mm256_and_si256(shifted, _mm256_set1_epi8((1i8 << bits) - 1))
    }
}

/// Extracts `bits` of each of 32 bytes, above the lowest `shift`, and moves them up by `up`.
///
/// # Safety
/// The contract of [`bits_of`] holds.
#[inline(always)]
unsafe fn high_bits_of(block: *const u8, at: usize, shift: i32, bits: u32, up: i32) -> __m256i {
    // SAFETY: as promised.
    unsafe { _mm256_sll_epi16(bits_of(block, at, shift, bits), _mm_cvtsi32_si128(up)) }
}

/// Widens factors, or leasts, of 16 groups from unsigned bytes to 16 bits each, those of the even groups first.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn even_and_odd(bytes: __m128i) -> __m256i {
    // SAFETY: as promised.
    unsafe { _mm256_set_m128i(_mm_srli_epi16::<8>(bytes), _mm_and_si128(bytes, _mm_set1_epi16(0xff))) }
}

/// Widens factors of 16 groups from signed bytes to 16 bits each, those of the even groups first.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn even_and_odd_signed(bytes: __m128i) -> __m256i {
    // SAFETY: as promised.
    unsafe { _mm256_set_m128i(_mm_srai_epi16::<8>(bytes), _mm_srai_epi16::<8>(_mm_slli_epi16::<8>(bytes))) }
}

/// Widens eight bytes, each of which is for two groups, to 16 bits each, those of the even groups first.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn for_two_groups(bytes: u64) -> __m256i {
    // SAFETY: as promised.
    unsafe {
        let words = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(bytes.cast_signed()));
        _mm256_set_m128i(words, words)
    }
}

/// # Safety
/// The block starts with the numbers of q4_K and q5_K, and the machine has AVX2 and F16C.
#[inline(always)]
unsafe fn six_bit_head(block: *const u8) -> BlockHeader {
    // SAFETY: as promised.
    unsafe {
        let words = block.add(4).cast::<[u32; 3]>().read_unaligned();
        let [factors, leasts] = six_bits_of(words.map(u32::from_le)).map(|bytes| for_two_groups(bytes));
        BlockHeader { scale: half_at(block, 0), step: half_at(block, 2), factors, taken: leasts }
    }
}

impl LoadBlock256 for Q2K {
    #[inline(always)]
    unsafe fn head(block: *const u8) -> BlockHeader {
        // SAFETY: as promised.
        unsafe {
            let (both, low) = (_mm_loadu_si128(block.cast()), _mm_set1_epi8(15));
            let factors = even_and_odd(_mm_and_si128(both, low));
            let taken = even_and_odd(_mm_and_si128(_mm_srli_epi16::<4>(both), low));
            BlockHeader { scale: half_at(block, 80), step: half_at(block, 82), factors, taken }
        }
    }

    #[inline(always)]
    unsafe fn quants<const PART: i32>(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe { bits_of(block, 16 + 32 * (PART as usize / 4), 2 * (PART % 4), 2) }
    }
}

impl LoadBlock256 for Q3K {
    #[inline(always)]
    unsafe fn head(block: *const u8) -> BlockHeader {
        // SAFETY: as promised.
        unsafe {
            let low = u64::from_le(block.add(96).cast::<u64>().read_unaligned());
            let high = u64::from(u32::from_le(block.add(104).cast::<u32>().read_unaligned()));
            // Two bits of each of four factors at one byte: those of factors 0 to 3 are the lowest.
            let pair = |shift: u32| (high >> shift | high >> (shift + 2) << 32) & 0x0303_0303_0303_0303;
            let nibbles = |shift: u32| low >> shift & 0x0f0f_0f0f_0f0f_0f0f;
            let (first, last) = (nibbles(0) | pair(0) << 4, nibbles(4) | pair(4) << 4);
            let bytes = [first.to_le_bytes(), last.to_le_bytes()];
            let bytes = _mm_sub_epi8(_mm_loadu_si128(bytes.as_ptr().cast()), _mm_set1_epi8(32));
            let factors = even_and_odd_signed(bytes);
            BlockHeader { scale: half_at(block, 108), step: 0.0, factors, taken: factors }
        }
    }

    #[inline(always)]
    unsafe fn quants<const PART: i32>(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe {
            let low = bits_of(block, 32 + 32 * (PART as usize / 4), 2 * (PART % 4), 2);
            _mm256_or_si256(low, high_bits_of(block, 0, PART, 1, 2))
        }
    }
}

impl LoadBlock256 for Q4K {
    #[inline(always)]
    unsafe fn head(block: *const u8) -> BlockHeader {
        // SAFETY: as promised.
        unsafe { six_bit_head(block) }
    }

    #[inline(always)]
    unsafe fn quants<const PART: i32>(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe { bits_of(block, 16 + 32 * (PART as usize / 2), 4 * (PART % 2), 4) }
    }
}

impl LoadBlock256 for Q5K {
    #[inline(always)]
    unsafe fn head(block: *const u8) -> BlockHeader {
        // SAFETY: as promised.
        unsafe { six_bit_head(block) }
    }

    #[inline(always)]
    unsafe fn quants<const PART: i32>(block: *const u8) -> __m256i {
        // SAFETY: as promised.
        unsafe {
            let low = bits_of(block, 48 + 32 * (PART as usize / 2), 4 * (PART % 2), 4);
            _mm256_or_si256(low, high_bits_of(block, 16, PART, 1, 4))
        }
    }
}

impl LoadBlock256 for Q6K {
    #[inline(always)]
    unsafe fn head(block: *const u8) -> BlockHeader {
        // SAFETY: as promised.
        unsafe {
            let factors = even_and_odd_signed(_mm_loadu_si128(block.add(192).cast()));
            BlockHeader { scale: half_at(block, 208), step: 0.0, factors, taken: factors }
        }
    }

    #[inline(always)]
    unsafe fn quants<const PART: i32>(block: *const u8) -> __m256i {
        let (half, quarter) = (PART as usize / 4, PART % 4);
        // SAFETY: as promised.
        unsafe {
            let low = bits_of(block, 64 * half + 32 * (quarter as usize % 2), 4 * (quarter / 2), 4);
            _mm256_or_si256(low, high_bits_of(block, 128 + 32 * half, 2 * quarter, 2, 4))
        }
    }
}
