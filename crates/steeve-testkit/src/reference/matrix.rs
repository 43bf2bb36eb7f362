//! Products of matrices. Tolerances are those of sums of products: relative to the sum of the products' sizes.

use steeve_graph::Op;

use super::evaluate::{Array, BoundedValue, ExpectedValues, NodeCall};
use super::reduce::terms;
use crate::formats::rounded_for;

pub(super) fn dot(a: &[f64], b: &[f64]) -> BoundedValue {
    let products = || a.iter().zip(b).map(|(x, y)| x * y);
    BoundedValue::near(products().sum(), terms(a.len()) * products().map(f64::abs).sum::<f64>())
}

/// What becomes of the other row before it is multiplied with a row of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowRounding {
    /// It is rounded to eight bits, as in ggml.
    Rounded,
    /// Nothing, which is what a device does that reads blocks as floats.
    AsItIs,
}

/// A row of weights times another row.
fn product(weights: &Array, at: [usize; 3], row: &[f64], other: RowRounding) -> BoundedValue {
    let row = match other {
        RowRounding::Rounded => rounded_for(weights.dtype, row),
        RowRounding::AsItIs => row.to_vec(),
    };
    let size = weights.row_sizes(at).iter().zip(&row).map(|(x, y)| (x * y).abs()).sum::<f64>();
    BoundedValue::near(dot(weights.row(at), &row).value, terms(row.len()) * size)
}

/// Row `m` of `a` times row `n` of `b` is element `[m, n]`. Neighbours in the outer dimensions of `b` share one of `a`.
pub(super) fn mul_mat(call: &NodeCall<'_>, other: RowRounding) -> ExpectedValues {
    let (a, b) = (call.source(0), call.source(1));
    call.each(|[m, n, i2, i3]| {
        let (outer, outermost) = (i2 / (b.ne[2] / a.ne[2]), i3 / (b.ne[3] / a.ne[3]));
        product(a, [m, outer, outermost], b.row([n, i2, i3]), other)
    })
}

/// Row `m` of the expert that `ids[used, token]` names, times row `used` of the token, or its only one.
pub(super) fn mul_mat_id(call: &NodeCall<'_>, other: RowRounding) -> ExpectedValues {
    let (experts, b, ids) = (call.source(0), call.source(1), call.source(2));
    call.each(|[m, used, token, _]| {
        let expert = ids.at([used, token, 0, 0]) as usize;
        product(experts, [m, expert, 0], b.row([used % b.ne[1], token, 0]), other)
    })
}

/// The other thing that a product with blocks may mean. A node has one of the two meanings, with all of its elements. That
/// the processor's has the first one is for a test of its own.
pub(super) fn other_meaning(call: &NodeCall<'_>) -> Option<ExpectedValues> {
    match call.op {
        Op::MulMat if call.source(0).dtype.is_quantised() => Some(mul_mat(call, RowRounding::AsItIs)),
        Op::MulMatId if call.source(0).dtype.is_quantised() => Some(mul_mat_id(call, RowRounding::AsItIs)),
        _ => None,
    }
}
