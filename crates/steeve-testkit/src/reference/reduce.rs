//! Sums, norms and orders: all of a row, or of a group, makes each element.
//!
//! Tolerances: a sum of `n` terms rounds `n` times. Roundings go up and down, so that they grow with the root of `n`,
//! relative to the sum of the terms' sizes; a kernel that adds in several lanes, or in f64, is better than that.

use super::element_codec::ROUNDING;
use super::evaluate::{Array, BoundedValue, ExpectedValues, NodeCall};

/// Returns how far a sum of that many terms may be off, relative to the sum of their sizes.
pub(super) fn terms(count: usize) -> f64 {
    (4.0 + (count as f64).sqrt()) * ROUNDING
}

pub(super) fn sum(call: &NodeCall<'_>) -> ExpectedValues {
    let all = &call.source(0).values;
    let mut exact = ExpectedValues::default();
    exact.push(BoundedValue::near(all.iter().sum(), terms(all.len()) * size(all)));
    exact
}

pub(super) fn sum_rows(call: &NodeCall<'_>, divisor: f64) -> ExpectedValues {
    let mut exact = ExpectedValues::default();
    for row in call.source(0).rows() {
        exact.push(BoundedValue::near(row.iter().sum::<f64>() / divisor, terms(row.len()) * size(row) / divisor));
    }
    exact
}

fn size(values: &[f64]) -> f64 {
    values.iter().map(|x| x.abs()).sum()
}

fn squares(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum()
}

/// `(x - mean) / sqrt(variance + epsilon)`, for numbers that share both.
fn normed(values: &[f64], epsilon: f64) -> Vec<BoundedValue> {
    let (count, spread) = (values.len() as f64, terms(values.len()));
    let mean = values.iter().sum::<f64>() / count;
    let (mean_size, variance) = (size(values) / count, values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count);
    let inverse = 1.0 / (variance + epsilon).sqrt();
    let element = |x: &f64| {
        let value = (x - mean) * inverse;
        BoundedValue::near(value, spread * (inverse * (x.abs() + mean_size) + value.abs()))
    };
    values.iter().map(element).collect()
}

pub(super) fn norm(call: &NodeCall<'_>) -> ExpectedValues {
    let mut exact = ExpectedValues::default();
    for row in call.source(0).rows() {
        normed(row, call.float(0)).into_iter().for_each(|element| exact.push(element));
    }
    exact
}

pub(super) fn rms_norm(call: &NodeCall<'_>) -> ExpectedValues {
    let mut exact = ExpectedValues::default();
    for row in call.source(0).rows() {
        let inverse = 1.0 / (squares(row) / row.len() as f64 + call.float(0)).sqrt();
        row.iter().for_each(|x| exact.push(BoundedValue::near(x * inverse, terms(row.len()) * (x * inverse).abs())));
    }
    exact
}

pub(super) fn l2_norm(call: &NodeCall<'_>) -> ExpectedValues {
    let mut exact = ExpectedValues::default();
    for row in call.source(0).rows() {
        let inverse = 1.0 / squares(row).sqrt().max(call.float(0));
        row.iter().for_each(|x| exact.push(BoundedValue::near(x * inverse, terms(row.len()) * (x * inverse).abs())));
    }
    exact
}

/// Slot 0 is the gradient of the result, slot 1 the source.
pub(super) fn rms_norm_back(call: &NodeCall<'_>) -> ExpectedValues {
    let (gradient, source) = (call.source(0), call.source(1));
    let mut exact = ExpectedValues::default();
    for (dz, x) in gradient.rows().zip(source.rows()) {
        let (count, epsilon) = (x.len() as f64, call.float(0));
        let (all, dot) = (squares(x), dz.iter().zip(x).map(|(dz, x)| dz * x).sum::<f64>());
        let dot_size = dz.iter().zip(x).map(|(dz, x)| (dz * x).abs()).sum::<f64>();
        let (inverse, share) = (1.0 / (all / count + epsilon).sqrt(), all + epsilon * count);
        for (dz, x) in dz.iter().zip(x) {
            let scale = inverse * (dz.abs() + x.abs() * dot_size / share);
            exact.push(BoundedValue::near((dz - x * dot / share) * inverse, 2.0 * terms(count as usize) * scale));
        }
    }
    exact
}

/// Channels are cut into groups of equal size, but the last; each group of each image is normed by itself.
pub(super) fn group_norm(call: &NodeCall<'_>) -> ExpectedValues {
    let a = call.source(0);
    let [n0, n1, n2, n3] = a.ne;
    let channels = n2.div_ceil(call.count(0));
    let mut exact = ExpectedValues::default();
    for image in 0..n3 {
        for start in (0..n2).step_by(channels.max(1)) {
            let (start, end) = (image * n2 + start, image * n2 + (start + channels).min(n2));
            let group = &a.values[start * n0 * n1..end * n0 * n1];
            normed(group, call.float(1)).into_iter().for_each(|element| exact.push(element));
        }
    }
    exact
}

/// Parameter 0: the smallest first, 1: the largest first. Equal ones keep their order here; elsewhere they may not.
pub(super) fn argsort(call: &NodeCall<'_>) -> ExpectedValues {
    orders(call.source(0), call.int(0) == 1, call.ne()[0])
}

/// Returns the positions of the largest elements, in any order.
pub(super) fn top_k(call: &NodeCall<'_>) -> ExpectedValues {
    orders(call.source(0), true, call.ne()[0])
}

fn orders(a: &Array, descending: bool, count: usize) -> ExpectedValues {
    let mut exact = ExpectedValues::default();
    for row in a.rows() {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|i, j| if descending { row[*j].total_cmp(&row[*i]) } else { row[*i].total_cmp(&row[*j]) });
        order[..count].iter().for_each(|i| exact.push(BoundedValue::exact(*i as f64)));
    }
    exact
}
