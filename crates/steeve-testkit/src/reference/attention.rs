//! Soft-max, positions and attention.
//!
//! Tolerances: an error in a score becomes a relative error of its exponential, so that the size of the scores counts. An
//! angle is a position times a power, which a kernel may find by multiplying again and again: its relative error grows
//! with the index of the pair, and the error of sine and cosine is that times the angle.

use super::element_codec::ROUNDING;
use super::evaluate::{Array, BoundedValue, ExpectedValues, NodeCall};
use super::matrix::dot;
use super::reduce::terms;

/// The slope of a head, after ALiBi (Press, Smith, Lewis, "Train Short, Test Long", 2022).
fn slope(head: usize, heads: usize, max_bias: f64) -> f64 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    let whole = 1usize << heads.ilog2();
    if head < whole {
        2f64.powf(-max_bias / whole as f64).powi(head as i32 + 1)
    } else {
        2f64.powf(-max_bias / 2.0 / whole as f64).powi(2 * (head - whole) as i32 + 1)
    }
}

/// Slots: scores, mask, one sink for each head. Parameters: scale, bias.
pub(super) fn soft_max(call: &NodeCall<'_>) -> ExpectedValues {
    let (a, mask, sinks) = (call.source(0), call.maybe(1), call.maybe(2));
    let [n0, n1, n2, n3] = a.ne;
    let (scale, max_bias) = (call.float(0), call.float(1));
    let mut exact = ExpectedValues::default();
    for (i3, i2, i1) in (0..n3).flat_map(|i3| (0..n2).flat_map(move |i2| (0..n1).map(move |i1| (i3, i2, i1)))) {
        let slope = slope(i2, n2, max_bias);
        let added = |i0: usize| mask.map_or(0.0, |mask| slope * mask.at([i0, i1, i2 % mask.ne[2], i3 % mask.ne[3]]));
        let scores: Vec<f64> = (0..n0).map(|i0| a.at([i0, i1, i2, i3]) * scale + added(i0)).collect();
        // A slope is a power of a rounded number, whose error grows with the exponent: at most twice the heads.
        let of_slope = if max_bias > 0.0 { 1.0 + n2 as f64 / 8.0 } else { 1.0 };
        let size = (0..n0).map(|i0| (a.at([i0, i1, i2, i3]) * scale).abs() + of_slope * added(i0).abs());
        let size = size.filter(|size| size.is_finite()).fold(0.0, f64::max);
        let sink = sinks.map(|sinks| sinks.at([i2, 0, 0, 0]));
        let most = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let sum = scores.iter().copied().chain(sink).map(|score| (score - most).exp()).sum::<f64>();
        for score in scores {
            let value = (score - most).exp() / sum;
            exact.push(BoundedValue::near(value, value * (terms(n0) + 16.0 * ROUNDING * (1.0 + size))));
        }
    }
    exact
}

/// Slot 0 is the gradient of the result, slot 1 the result. Parameter: scale.
pub(super) fn soft_max_back(call: &NodeCall<'_>) -> ExpectedValues {
    let (gradient, result) = (call.source(0), call.source(1));
    let mut exact = ExpectedValues::default();
    for (dy, y) in gradient.rows().zip(result.rows()) {
        let BoundedValue { value: sum, slack } = dot(dy, y);
        for (dy, y) in dy.iter().zip(y) {
            let value = call.float(0) * (dy - sum) * y;
            let scale = (call.float(0) * y).abs();
            exact.push(BoundedValue::near(value, scale * (slack + 8.0 * ROUNDING * (dy.abs() + sum.abs()))));
        }
    }
    exact
}

/// A rotation by an angle, with the factor that goes with it.
#[derive(Clone, Copy)]
struct Rotation {
    angle: f64,
    factor: f64,
    /// How far the angle may be off.
    slack: f64,
}

/// Slots: rows `[dim, head, token]`, positions, a factor for each frequency. Parameters as in the builder.
pub(super) fn rope(call: &NodeCall<'_>, sign: f64) -> ExpectedValues {
    let (a, positions) = (call.source(0), call.source(1));
    let (dims, mode, n0) = (call.count(0), call.int(1), a.ne[0]);
    let vision = mode == 24;
    // Which element an element is turned with, as a pair: neighbours, halves of what is rotated, halves of the row.
    let apart = match mode {
        0 => None,
        24 => Some(dims),
        _ => Some(dims / 2),
    };
    let rotated = if vision { n0 } else { dims };
    call.each(|index| {
        let [i0, i1, i2, i3] = index;
        if i0 >= rotated {
            return BoundedValue::exact(a.at(index));
        }
        let (pair, is_second, other) = match apart {
            None => (i0 / 2, i0 % 2 == 1, i0 ^ 1),
            Some(apart) => (i0 % apart, i0 >= apart, if i0 >= apart { i0 - apart } else { i0 + apart }),
        };
        let turn = turn(call, positions, a.ne[2], i2, pair);
        let (sin, cos) = (sign * turn.angle.sin(), turn.angle.cos());
        let (mine, theirs) = (a.at(index), a.at([other, i1, i2, i3]));
        let value = if is_second { theirs * sin + mine * cos } else { mine * cos - theirs * sin };
        let scale = (mine.abs() + theirs.abs()) * turn.factor.abs();
        BoundedValue::near(value * turn.factor, scale * (turn.slack + 16.0 * ROUNDING))
    })
}

fn turn(call: &NodeCall<'_>, positions: &Array, tokens: usize, token: usize, pair: usize) -> Rotation {
    let (dims, mode) = (call.count(0), call.int(1));
    let [base, freq_scale, ext_factor, attn_factor] = [3, 4, 5, 6].map(|index| call.float(index));
    let position = |part: usize| positions.at([part * tokens + token, 0, 0, 0]);
    // With sections, each pair belongs to one part of the position.
    let (part, steps) = if mode & 8 == 0 { (0, pair) } else { section(call, mode, pair) };
    let step = base.powf(-2.0 / dims as f64);
    let factor = call.maybe(2).map_or(1.0, |factors| factors.at([pair, 0, 0, 0]));
    let far = position(part) * step.powi(steps as i32) / factor;
    let near = far * freq_scale;
    let (mut angle, mut size) = (near, attn_factor);
    if ext_factor != 0.0 {
        let mix = ramp(call, pair) * ext_factor;
        angle = near * (1.0 - mix) + far * mix;
        size *= 1.0 + 0.1 * (1.0 / freq_scale).ln();
    }
    let slack = angle.abs().max(far.abs()) * (8.0 + 3.0 * steps as f64) * ROUNDING;
    Rotation { angle, factor: size, slack }
}

/// Which part of the position turns a pair, and how often its frequency has been divided.
fn section(call: &NodeCall<'_>, mode: i64, pair: usize) -> (usize, usize) {
    let [s0, s1, s2, s3] = [9, 10, 11, 12].map(|index| call.count(index));
    let sector = pair % (s0 + s1 + s2 + s3);
    if mode == 40 {
        let part = match sector % 3 {
            1 if sector < 3 * s1 => 1,
            2 if sector < 3 * s2 => 2,
            0 if sector < 3 * s0 => 0,
            _ => 3,
        };
        return (part, pair);
    }
    let starts = [0, s0, s0 + s1, s0 + s1 + s2];
    let part = starts.iter().rposition(|start| sector >= *start).unwrap_or(0);
    // In a vision model each section starts anew.
    (part, if mode == 24 { sector - starts[part] } else { pair })
}

/// Returns how much of a pair's frequency is extrapolated, after YaRN (Peng et al., 2023).
fn ramp(call: &NodeCall<'_>, pair: usize) -> f64 {
    let (dims, context, base) = (call.float(0), call.float(2), call.float(3));
    let turns = |count: f64| dims * (context / (count * 2.0 * std::f64::consts::PI)).ln() / (2.0 * base.ln());
    let low = turns(call.float(7)).floor().max(0.0);
    let high = turns(call.float(8)).ceil().min(dims - 1.0);
    1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
}

/// Slots: `q` `[d, token, head]`, `k` `[d, kv, head]`, `v` `[dv, kv, head]`, mask. Parameters: scale, bias, soft limit.
pub(super) fn flash(call: &NodeCall<'_>) -> ExpectedValues {
    let (q, k, v, mask) = (call.source(0), call.source(1), call.source(2), call.maybe(3));
    let (scale, max_bias, limit) = (call.float(0), call.float(1), call.float(2));
    let (heads, keys) = (q.ne[2], k.ne[1]);
    let [dv, _, tokens, outer] = call.ne();
    let mut exact = ExpectedValues::default();
    for (i3, token, head) in
        (0..outer).flat_map(|i3| (0..tokens).flat_map(move |t| (0..heads).map(move |head| (i3, t, head))))
    {
        let slope = slope(head, heads, max_bias);
        let (k_head, v_head) = (head / (heads / k.ne[2]), head / (heads / v.ne[2]));
        let (mut scores, mut off) = (Vec::new(), 0.0f64);
        for key in 0..keys {
            let BoundedValue { value, slack } = dot(q.row([token, head, i3]), k.row([key, k_head, i3]));
            let mut score = value * scale;
            if limit != 0.0 {
                score = limit * (score / limit).tanh();
            }
            let added = mask.map_or(0.0, |it| slope * it.at([key, token, head % it.ne[2], i3 % it.ne[3]]));
            if added > f64::NEG_INFINITY {
                off = off.max(slack * scale.abs() + 16.0 * ROUNDING * (score.abs() + added.abs()));
            }
            scores.push(score + added);
        }
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum = weights.iter().sum::<f64>();
        for i0 in 0..dv {
            // A query that sees no key at all makes zeros.
            let all = || {
                (0..keys)
                    .filter(|_| most > f64::NEG_INFINITY)
                    .map(|key| weights[key] / sum * v.at([i0, key, v_head, i3]))
            };
            let size = all().map(f64::abs).sum::<f64>();
            exact.push(BoundedValue::near(all().sum(), size * (off + terms(keys))));
        }
    }
    exact
}
