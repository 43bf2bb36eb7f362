//! Functions of one number, as ggml defines them.
//!
//! The exponential function and what is made of it is plain arithmetic here, without branches and calls, so that loops
//! over it become vector instructions and are equal to the bit on every machine. The polynomials are minimax fits
//! (Remez) in the form that each function names. All are inlined, so that they become part of loops for wide registers.

use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

/// Computes `e` to the power of `x`, to about one unit in the last place.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Beyond these there is nothing but zero and infinity. NaN passes both.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    // Adding it leaves the nearest integer in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * LOG2_E + ROUND;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let whole = shifted - ROUND;
    // The first part of ln 2 is short enough for its product to be exact.
    let r = x - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    let p = 1.395_060_3e-3;
    let p = p * r + 8.368_954e-3;
    let p = p * r + 4.166_620_5e-2;
    let p = p * r + 1.666_651_8e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    // In two steps, because 2^n itself may be too large or too small.
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127).cast_unsigned()) << 23)
}

/// Computes the hyperbolic tangent: `x + x^3 P(x^2)` near zero, where the other form would lose digits.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let z = x * x;
    let p = -5.717_045e-3;
    let p = p * z + 2.065_058_7e-2;
    let p = p * z - 5.374_35e-2;
    let p = p * z + 1.333_149_1e-1;
    let p = p * z - 3.333_328_4e-1;
    let near = p * z * x + x;
    let far = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// Computes the error function: `x + x P(x^2)` near zero, and farther out `1 - exp(-P(x))`.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let z = x * x;
    let p = -5.976_896_3e-4;
    let p = p * z + 4.990_981e-3;
    let p = p * z - 2.676_556_7e-2;
    let p = p * z + 1.128_180_3e-1;
    let p = p * z - 3.761_249_4e-1;
    let p = p * z + 1.283_791_5e-1;
    let near = p * x + x;
    let t = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let q = -1.949_449_6e-4;
    let q = q * t + 3.033_676e-3;
    let q = q * t - 2.218_971_6e-2;
    let q = q * t + 1.038_562_6e-1;
    let q = q * t + 6.372_659e-1;
    let q = q * t + 1.127_627_3;
    let q = q * t + 2.070_243e-4;
    let far = (1.0 - exp(-q)).copysign(x);
    if x.abs() < 0.925 { near } else { far }
}

#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Computes the gradient of silu at `x`, for a gradient of its result.
#[inline(always)]
pub(crate) fn silu_back(gradient: f32, x: f32) -> f32 {
    let s = sigmoid(x);
    gradient * s * (1.0 + x * (1.0 - s))
}

/// Computes `x / 2 * (1 + tanh(u))`, which is `x * sigmoid(2 u)`.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    let u = SQRT_2_OVER_PI * x * (1.0 + 0.044_715 * x * x);
    x / (1.0 + exp(-2.0 * u))
}

#[inline(always)]
pub(crate) fn gelu_erf(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

#[inline(always)]
pub(crate) fn gelu_quick(x: f32) -> f32 {
    x * (1.0 / (1.0 + exp(-1.702 * x)))
}

#[inline(always)]
pub(crate) fn hardsigmoid(x: f32) -> f32 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

#[inline(always)]
pub(crate) fn relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}

#[inline(always)]
pub(crate) fn sgn(x: f32) -> f32 {
    let (above, below) = (f32::from(u8::from(x > 0.0)), f32::from(u8::from(x < 0.0)));
    above - below
}

#[inline(always)]
pub(crate) fn step(x: f32) -> f32 {
    f32::from(u8::from(x > 0.0))
}

#[inline(always)]
pub(crate) fn elu(x: f32) -> f32 {
    if x > 0.0 { x } else { x.exp_m1() }
}

/// Above twenty the one is lost in single precision, as in ggml.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { (1.0 + x.exp()).ln() }
}

/// The parameters of xielu, derived from those of its builder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xielu {
    negative: f32,
    positive: f32,
    beta: f32,
    epsilon: f32,
}

impl Xielu {
    /// In the order of `ggml_xielu`, which keeps both slopes positive by softplus.
    #[inline(always)]
    pub(crate) fn new([negative, positive, beta, epsilon]: [f32; 4]) -> Self {
        Self { negative: beta + softplus(negative), positive: softplus(positive), beta, epsilon }
    }

    #[inline(always)]
    pub(crate) fn at(&self, x: f32) -> f32 {
        if x > 0.0 {
            self.positive * x * x + self.beta * x
        } else {
            (x.min(self.epsilon).exp_m1() - x) * self.negative + self.beta * x
        }
    }
}

/// Limits `x` to at most `max` and then to at least `min`, also where `max` is below.
#[inline(always)]
pub(crate) fn clamp(x: f32, min: f32, max: f32) -> f32 {
    let x = if x < max { x } else { max };
    if x > min { x } else { min }
}

/// Computes `x`, and `x * slope` where that is negative.
#[inline(always)]
pub(crate) fn leaky_relu(x: f32, slope: f32) -> f32 {
    if x < 0.0 { x * slope } else { x }
}

/// Computes the gated unit of gpt-oss: both sides are limited, and one is added to the second.
#[inline(always)]
pub(crate) fn swiglu_oai(x: f32, y: f32, alpha: f32, limit: f32) -> f32 {
    let x = if limit < x { limit } else { x };
    let y = if y < -limit { -limit } else { y };
    let y = if y > limit { limit } else { y };
    x / (1.0 + exp(alpha * -x)) * (y + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the largest error in units in the last place of the exact result.
    fn worst(range: std::ops::RangeInclusive<f32>, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> f64 {
        let (low, high) = range.into_inner();
        let steps = 400_000;
        let mut worst = 0.0f64;
        for i in 0..=steps {
            let x = low + (high - low) * (i as f32 / steps as f32);
            let wanted = exact(f64::from(x));
            let near = (wanted.abs() as f32).max(f32::MIN_POSITIVE);
            let unit = f64::from(near.next_up()) - f64::from(near);
            worst = worst.max((f64::from(f(x)) - wanted).abs() / unit);
        }
        worst
    }

    /// Computes the error function by its series.
    fn exact_erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn functions_are_right_to_a_few_units_in_the_last_place() {
        let exponential = worst(-104.0..=88.7, exp, f64::exp);
        assert!(exponential < 1.5, "exp {exponential}");
        let tangent = worst(-12.0..=12.0, tanh, f64::tanh);
        assert!(tangent < 3.0, "tanh {tangent}");
        let error = worst(-4.0..=4.0, erf, exact_erf);
        assert!(error < 3.0, "erf {error}");
    }

    #[test]
    fn the_ends_of_the_exponential_function_are_exact() {
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        assert_eq!((exp(f32::INFINITY), exp(89.0)), (f32::INFINITY, f32::INFINITY));
        assert_eq!((exp(f32::NEG_INFINITY), exp(-104.0)), (0.0, 0.0));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && erf(f32::NAN).is_nan());
        assert!(exp(-100.0) > 0.0, "numbers below the normal ones are not lost");
        assert_eq!((tanh(f32::INFINITY), erf(f32::NEG_INFINITY), tanh(20.0)), (1.0, -1.0, 1.0));
    }
}
