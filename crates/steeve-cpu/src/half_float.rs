//! Conversions of dense rows of `f16` and `bf16` to `f32` and back. Rows are bytes, because they may start at any
//! address.

use half::f16;

use crate::multiversion::multiversion;

/// Converts `f16` to `f32`.
pub(crate) fn widen_f16(bytes: &[u8], row: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has these features.
        return unsafe { f16c::widen(bytes, row) };
    }
    for (x, bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
        *x = f16::from_ne_bytes(*bytes).to_f32();
    }
}

/// Converts `f32` to `f16`, to the nearest, ties to even.
pub(crate) fn narrow_f16(row: &[f32], bytes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has these features.
        return unsafe { f16c::narrow(row, bytes) };
    }
    for (x, bytes) in row.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = f16::from_f32(*x).to_ne_bytes();
    }
}

multiversion! {
    /// Converts `bf16` to `f32`.
    pub(crate) fn widen_bf16(bytes: &[u8], row: &mut [f32]) {
        for (x, bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
            *x = f32::from_bits(u32::from(u16::from_ne_bytes(*bytes)) << 16);
        }
    }
}

multiversion! {
    /// Converts `f32` to `bf16`, to the nearest, ties to even.
    pub(crate) fn narrow_bf16(row: &[f32], bytes: &mut [u8]) {
        for (x, bytes) in row.iter().zip(bytes.as_chunks_mut().0) {
            let bits = x.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            // What is no number must not round to infinity.
            let no_number = bits >> 16 | 0x40;
            *bytes = (if bits << 1 > 0xff00_0000 { no_number } else { rounded } as u16).to_ne_bytes();
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_storeu_ps,
    };

    #[target_feature(enable = "avx,f16c")]
    pub(super) fn widen(bytes: &[u8], row: &mut [f32]) {
        let (rows, row_rest) = row.as_chunks_mut();
        let (chunks, rest) = bytes[..2 * (8 * rows.len() + row_rest.len())].as_chunks();
        for (bytes, row) in chunks.iter().zip(rows) {
            *row = widen_8(bytes);
        }
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        row_rest.copy_from_slice(&widen_8(&last)[..row_rest.len()]);
    }

    #[target_feature(enable = "avx,f16c")]
    fn widen_8(bytes: &[u8; 16]) -> [f32; 8] {
        let mut row = [0.0; 8];
        // SAFETY: 16 bytes at any address.
        let halves = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        // SAFETY: 32 bytes at any address.
        unsafe { _mm256_storeu_ps(row.as_mut_ptr(), _mm256_cvtph_ps(halves)) };
        row
    }

    #[target_feature(enable = "avx,f16c")]
    pub(super) fn narrow(row: &[f32], bytes: &mut [u8]) {
        let (rows, row_rest) = row.as_chunks();
        let (chunks, rest) = bytes[..2 * row.len()].as_chunks_mut();
        for (row, bytes) in rows.iter().zip(chunks) {
            *bytes = narrow_8(row);
        }
        let mut last = [0.0; 8];
        last[..row_rest.len()].copy_from_slice(row_rest);
        rest.copy_from_slice(&narrow_8(&last)[..rest.len()]);
    }

    #[target_feature(enable = "avx,f16c")]
    fn narrow_8(row: &[f32; 8]) -> [u8; 16] {
        let mut bytes = [0; 16];
        // SAFETY: 32 bytes at any address.
        let floats = unsafe { _mm256_loadu_ps(row.as_ptr()) };
        // SAFETY: 16 bytes at any address.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(floats)) };
        bytes
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn every_half_widens_as_the_library_says() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let bytes: Vec<u8> = all.iter().flat_map(|half| half.to_ne_bytes()).collect();
        let (mut f16s, mut bf16s) = (vec![0.0; all.len()], vec![0.0; all.len()]);
        widen_f16(&bytes, &mut f16s);
        widen_bf16(&bytes, &mut bf16s);
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        for ((&half, &x), &y) in all.iter().zip(&f16s).zip(&bf16s) {
            assert!(same(x, f16::from_bits(half).to_f32()), "{half:#x}");
            assert!(same(y, bf16::from_bits(half).to_f32()), "{half:#x}");
        }
    }

    #[test]
    fn floats_narrow_as_the_library_says() {
        // Steps that meet every exponent and ties.
        let mut row: Vec<f32> = (0..=u32::MAX).step_by(0x1000 - 1).map(f32::from_bits).collect();
        row.extend([0.0, -0.0, f32::INFINITY, 65504.0, 65519.9, 65520.0, 2049.0, 2051.0, 1e-8, f32::MAX]);
        let (mut f16s, mut bf16s) = (vec![0; 2 * row.len()], vec![0; 2 * row.len()]);
        narrow_f16(&row, &mut f16s);
        narrow_bf16(&row, &mut bf16s);
        for (i, &x) in row.iter().enumerate() {
            let (a, b) = (f16::from_ne_bytes([f16s[2 * i], f16s[2 * i + 1]]), f16::from_f32(x));
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{x} to f16");
            let (a, b) = (bf16::from_ne_bytes([bf16s[2 * i], bf16s[2 * i + 1]]), bf16::from_f32(x));
            assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{x} to bf16");
        }
    }
}
