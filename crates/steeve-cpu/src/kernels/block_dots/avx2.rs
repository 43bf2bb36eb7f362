//! Products of blocks with vector instructions: 32 products at a time.
//!
//! `vpmaddubsw` multiplies bytes without a sign by bytes with one, and adds two neighbours into 16 bits. So quants are from zero
//! on, or their sign goes to the other factor. No sum of two passes 16 bits: 2 * 128 * 127 is the most. `vpdpbusd` adds four
//! neighbours into 32 bits at once, on machines that have it.

mod block32;
mod block256;

use std::arch::x86_64::{
    __m256, __m256i, _mm_add_ps, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps,
    _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_loadu_si256,
};

use steeve_graph::DataType;

use self::block32::{block32, block32_vnni};
use self::block256::block256;
use super::DotsFn;
use crate::quant::block32::{Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::quant::block256::{Q2K, Q3K, Q4K, Q5K, Q6K};

/// Returns how blocks of a type are multiplied with AVX2 and F16C; the caller has checked that the processor has them.
pub(super) fn dots(dtype: DataType) -> Option<DotsFn> {
    Some(match dtype {
        DataType::Q8_0 => block32::<Q8_0>,
        DataType::Q4_0 => block32::<Q4_0>,
        DataType::Q4_1 => block32::<Q4_1>,
        DataType::Q5_0 => block32::<Q5_0>,
        DataType::Q5_1 => block32::<Q5_1>,
        DataType::Mxfp4 => block32::<Mxfp4>,
        DataType::Q2K => block256::<Q2K>,
        DataType::Q3K => block256::<Q3K>,
        DataType::Q4K => block256::<Q4K>,
        DataType::Q5K => block256::<Q5K>,
        DataType::Q6K => block256::<Q6K>,
        _ => return None,
    })
}

/// Returns how blocks of a type are multiplied with AVX-512's VNNI for short vectors besides. Formats of 256 do not
/// profit from it.
pub(super) fn dots_vnni(dtype: DataType) -> Option<DotsFn> {
    Some(match dtype {
        DataType::Q8_0 => block32_vnni::<Q8_0>,
        DataType::Q4_0 => block32_vnni::<Q4_0>,
        DataType::Q4_1 => block32_vnni::<Q4_1>,
        DataType::Q5_0 => block32_vnni::<Q5_0>,
        DataType::Q5_1 => block32_vnni::<Q5_1>,
        DataType::Mxfp4 => block32_vnni::<Mxfp4>,
        _ => return dots(dtype),
    })
}

/// The number of columns that are multiplied together: as many sums as stay in registers.
const TOGETHER: usize = 4;

/// Returns the sum of the lanes, halved again and again.
#[inline]
#[target_feature(enable = "avx2")]
fn total(lanes: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ps(two, _mm_shuffle_ps::<1>(two, two)))
}

/// # Safety
/// There is an `f16` at `at`, and the machine has F16C.
#[inline(always)]
unsafe fn half_at(block: *const u8, at: usize) -> f32 {
    // SAFETY: as promised.
    unsafe {
        let bits = block.add(at).cast::<u16>().read_unaligned();
        _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits.into())))
    }
}

/// # Safety
/// There are 32 bytes, and the machine has AVX2.
#[inline(always)]
unsafe fn bytes_32(block: *const u8, at: usize) -> __m256i {
    // SAFETY: as promised.
    unsafe { _mm256_loadu_si256(block.add(at).cast()) }
}
