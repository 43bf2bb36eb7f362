//! One element of each source makes one of the result.
//!
//! Tolerances: sums, products and square roots are rounded once by the processor. Functions are made of an exponential or
//! a polynomial of a few operations, each of which rounds: sixteen roundings relative to the result. Where two numbers
//! almost cancel (`gelu` far below zero, `exp(x) - 1` near zero) they are relative to those.

use steeve_graph::{Glu, Op, Unary};

use super::element_codec::ROUNDING;
use super::evaluate::{BoundedValue, ExpectedValues, NodeCall};

/// Returns how many roundings a function of one number may take.
const FUNCTION: f64 = 16.0 * ROUNDING;

pub(super) fn binary(call: &NodeCall<'_>) -> ExpectedValues {
    let (a, b) = (call.source(0), call.source(1));
    call.each(|index| {
        let (x, y) = (a.at(index), b.wrapped(index));
        BoundedValue::exact(match call.op {
            Op::Add => x + y,
            Op::Sub => x - y,
            Op::Mul => x * y,
            _ => x / y,
        })
    })
}

pub(super) fn add_one(call: &NodeCall<'_>) -> ExpectedValues {
    let (a, b) = (call.source(0), call.source(1).values[0]);
    call.each(|index| BoundedValue::exact(a.at(index) + b))
}

/// `a[i0, used, token] + b[i0, ids[used, token]]`
pub(super) fn add_id(call: &NodeCall<'_>) -> ExpectedValues {
    let (a, b, ids) = (call.source(0), call.source(1), call.source(2));
    call.each(|index| {
        let [i0, i1, i2, _] = index;
        BoundedValue::exact(a.at(index) + b.at([i0, ids.at([i1, i2, 0, 0]) as usize, 0, 0]))
    })
}

pub(super) fn diag_mask(call: &NodeCall<'_>, masked: f64) -> ExpectedValues {
    let (a, past) = (call.source(0), call.count(0));
    call.each(|index| {
        let [i0, i1, ..] = index;
        BoundedValue::exact(if i0 > past + i1 { masked } else { a.at(index) })
    })
}

/// One number everywhere; a source gives only the shape.
pub(super) fn fill(call: &NodeCall<'_>) -> ExpectedValues {
    call.each(|_| BoundedValue::exact(call.float(0)))
}

pub(super) fn unary(call: &NodeCall<'_>) -> ExpectedValues {
    let a = call.source(0);
    let numbers: [f64; 4] = std::array::from_fn(|index| call.float(index));
    call.each(|index| {
        let x = a.at(index);
        match call.op {
            Op::Sqr => BoundedValue::exact(x * x),
            Op::Sqrt => BoundedValue::exact(x.sqrt()),
            Op::Log => BoundedValue::near(x.ln(), FUNCTION * x.ln().abs()),
            Op::Scale => {
                let [factor, bias, ..] = numbers;
                BoundedValue::near(x * factor + bias, ROUNDING * (x * factor).abs())
            }
            Op::Clamp => BoundedValue::exact(if x.is_nan() { x } else { x.min(numbers[1]).max(numbers[0]) }),
            Op::LeakyRelu => {
                BoundedValue::near(if x < 0.0 { x * numbers[0] } else { x }, ROUNDING * (x * numbers[0]).abs())
            }
            Op::Unary(kind) => function(kind, x, numbers),
            op => panic!("{op:?} is no function of one element"),
        }
    })
}

fn function(kind: Unary, x: f64, numbers: [f64; 4]) -> BoundedValue {
    let relative = |value: f64| BoundedValue::near(value, FUNCTION * value.abs());
    let absolute = |value: f64, scale: f64| BoundedValue::near(value, FUNCTION * scale.abs());
    match kind {
        Unary::Abs => BoundedValue::exact(x.abs()),
        Unary::Sgn => BoundedValue::exact(if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else {
            0.0
        }),
        Unary::Neg => BoundedValue::exact(-x),
        Unary::Step => BoundedValue::exact(if x > 0.0 { 1.0 } else { 0.0 }),
        Unary::Relu => BoundedValue::exact(if x > 0.0 { x } else { 0.0 }),
        Unary::Floor => BoundedValue::exact(x.floor()),
        Unary::Ceil => BoundedValue::exact(x.ceil()),
        Unary::Round => BoundedValue::exact(x.round()),
        Unary::Trunc => BoundedValue::exact(x.trunc()),
        Unary::Tanh => relative(x.tanh()),
        Unary::Exp => absolute(x.exp(), x.exp() * (1.0 + x.abs() / 4.0)),
        // ggml subtracts one from the exponential, which loses the digits below the one.
        Unary::Expm1 => absolute(x.exp_m1(), x.exp_m1().abs() + 1.0),
        Unary::Elu if x > 0.0 => BoundedValue::exact(x),
        Unary::Elu => relative(x.exp_m1()),
        Unary::Sigmoid => relative(sigmoid(x)),
        Unary::Silu => absolute(x * sigmoid(x), x * sigmoid(x)),
        Unary::Gelu => gelu(x),
        Unary::GeluErf => absolute(0.5 * x * (1.0 + erf(x / 2f64.sqrt())), x),
        Unary::GeluQuick => steep(x, 1.702),
        Unary::Hardsigmoid => relative(hard_sigmoid(x)),
        Unary::Hardswish => absolute(x * hard_sigmoid(x), x),
        Unary::Softplus => absolute(if x > 20.0 { x } else { x.exp().ln_1p() }, 1.0 + x.max(0.0)),
        Unary::Xielu => xielu(x, numbers),
        _ => panic!("{kind:?} has no meaning here"),
    }
}

/// NaN stays NaN, where ggml takes it for zero.
fn hard_sigmoid(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `x * sigmoid(slope * x)`. The product is rounded, and its exponential has a relative error as large as that is.
fn steep(x: f64, slope: f64) -> BoundedValue {
    let value = x * sigmoid(slope * x);
    BoundedValue::near(value, value.abs() * (FUNCTION + 2.0 * ROUNDING * (slope * x).abs()))
}

fn gelu(x: f64) -> BoundedValue {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * x * (1.0 + 0.044715 * x * x);
    BoundedValue::near(0.5 * x * (1.0 + inner.tanh()), FUNCTION * x.abs())
}

/// The numbers are those that ggml's function takes; both slopes go through a softplus.
fn xielu(x: f64, [negative, positive, linear, epsilon]: [f64; 4]) -> BoundedValue {
    let (negative, positive) = (linear + negative.exp().ln_1p(), positive.exp().ln_1p());
    let (value, parts) = if x > 0.0 {
        (positive * x * x + linear * x, positive.abs() * x * x)
    } else {
        let bent = x.min(epsilon).exp_m1();
        ((bent - x) * negative + linear * x, (bent.abs() + x.abs()) * negative.abs())
    };
    BoundedValue::near(value, FUNCTION * (parts + (linear * x).abs()))
}

/// The error function, from its series where that is short and from its continued fraction elsewhere.
fn erf(x: f64) -> f64 {
    let far = x.abs();
    if far > 6.0 {
        return x.signum();
    }
    if far < 2.5 {
        // 2/sqrt(pi) * sum of (-1)^n x^(2n+1) / (n! (2n+1))
        let (mut power, mut sum) = (x, x);
        for n in 1..80 {
            power *= -x * x / f64::from(n);
            sum += power / f64::from(2 * n + 1);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    // erfc(x) = exp(-x^2) / sqrt(pi) / (x + (1/2)/(x + 1/(x + (3/2)/(x + ...))))
    let mut tail = far;
    for n in (1..120).rev() {
        tail = far + f64::from(n) / 2.0 / tail;
    }
    x.signum() * (1.0 - (-far * far).exp() / std::f64::consts::PI.sqrt() / tail)
}

/// `dy * s * (1 + x * (1 - s))`, where `s` is the logistic function of `x`; slot 0 is `dy`.
pub(super) fn silu_back(call: &NodeCall<'_>) -> ExpectedValues {
    let (gradient, source) = (call.source(0), call.source(1));
    call.each(|index| {
        let (dy, x) = (gradient.at(index), source.at(index));
        let s = sigmoid(x);
        let value = dy * s * (1.0 + x * (1.0 - s));
        BoundedValue::near(value, FUNCTION * dy.abs() * s * (1.0 + x.abs()))
    })
}

/// A function of the first source, or of the first half of a row, times the second. Parameters as ggml has them behind the
/// kind: 1 if the halves are swapped, then the two numbers of `swiglu_oai`.
pub(super) fn glu(call: &NodeCall<'_>, kind: Glu) -> ExpectedValues {
    let (a, half, swapped) = (call.source(0), call.ne()[0], call.int(0) == 1);
    call.each(|index| {
        let [i0, i1, i2, i3] = index;
        let (x, gate) = match call.maybe(1) {
            Some(b) => (a.at(index), b.at(index)),
            None if swapped => (a.at([half + i0, i1, i2, i3]), a.at(index)),
            None => (a.at(index), a.at([half + i0, i1, i2, i3])),
        };
        let plain = |kind: Unary| {
            let BoundedValue { value, slack } = function(kind, x, [0.0; 4]);
            BoundedValue::near(value * gate, slack * gate.abs() + FUNCTION * (value * gate).abs())
        };
        match kind {
            Glu::Reglu => BoundedValue::exact(if x > 0.0 { x * gate } else { 0.0 }),
            Glu::Geglu => plain(Unary::Gelu),
            Glu::GegluErf => plain(Unary::GeluErf),
            Glu::GegluQuick => plain(Unary::GeluQuick),
            Glu::Swiglu => plain(Unary::Silu),
            Glu::SwigluOai => swiglu_oai(call, x, gate),
            _ => panic!("{kind:?} has no meaning here"),
        }
    })
}

/// The slope of the logistic function, and what both sources are limited to. Without any they are those of the model that
/// brought it.
fn swiglu_oai(call: &NodeCall<'_>, x: f64, gate: f64) -> BoundedValue {
    let given = |index: usize, default: f32| f64::from(call.params.get(index).map_or(default, |it| it.float()));
    let (slope, limit) = (given(1, 1.702), given(2, 7.0));
    let (x, gate) = (if x > limit { limit } else { x }, gate.clamp(-limit, limit));
    let BoundedValue { value, slack } = steep(x, slope);
    BoundedValue::near(value * (gate + 1.0), slack * (gate.abs() + 1.0))
}
