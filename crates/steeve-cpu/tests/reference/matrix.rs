//! Products of matrices. Tolerances are those of sums of products: relative to the sum of the products' sizes.

use super::call::{Call, Element, Exact};
use super::reduce::terms;

pub(crate) fn dot(a: &[f64], b: &[f64]) -> Element {
    let products = || a.iter().zip(b).map(|(x, y)| x * y);
    Element::near(products().sum(), terms(a.len()) * products().map(f64::abs).sum::<f64>())
}

/// Row `m` of `a` times row `n` of `b` is element `[m, n]`. Neighbours in the outer dimensions of `b` share one of `a`.
pub(crate) fn mul_mat(call: &Call<'_>) -> Exact {
    let (a, b) = (call.source(0), call.source(1));
    call.each(|[m, n, i2, i3]| {
        let (outer, outermost) = (i2 / (b.ne[2] / a.ne[2]), i3 / (b.ne[3] / a.ne[3]));
        dot(a.row([m, outer, outermost]), b.row([n, i2, i3]))
    })
}

/// Row `m` of the expert that `ids[used, token]` names, times row `used` of the token, or its only one.
pub(crate) fn mul_mat_id(call: &Call<'_>) -> Exact {
    let (experts, b, ids) = (call.source(0), call.source(1), call.source(2));
    call.each(|[m, used, token, _]| {
        let expert = ids.at([used, token, 0, 0]) as usize;
        dot(experts.row([m, expert, 0]), b.row([used % b.ne[1], token, 0]))
    })
}
