//! Soft-max, positions and attention.

use super::elementwise::typed;
use super::matrix::fit;
use super::{Call, Made, Refusal, demand, divides};
use crate::{DataType, Layout};

/// The bit of a rope's mode that says that each position has four parts.
const MULTI_SECTION: i64 = 8;

pub(crate) fn soft_max(call: &Call<'_>) -> Result<Made, Refusal> {
    let a = call.source(0)?;
    demand(a.is_contiguous(), "the source must have no gaps")?;
    match call.maybe(1) {
        Some(mask) => mask_fits(&mask, &a)?,
        None => demand(call.float(1).unwrap_or(0.0) <= 0.0, "a bias needs a mask")?,
    }
    if let Some(sinks) = call.maybe(2) {
        demand(sinks.dtype() == DataType::F32, "the sinks must be f32")?;
        demand(sinks.ne() == [a.ne()[2], 1, 1, 1], "there must be one sink for each head")?;
    }
    Made::own(a.packed()?)
}

fn mask_fits(mask: &Layout, a: &Layout) -> Result<(), Refusal> {
    let (m, a) = (mask.ne(), a.ne());
    demand(matches!(mask.dtype(), DataType::F16 | DataType::F32), "the mask must be f16 or f32")?;
    demand(mask.is_contiguous(), "the mask must have no gaps")?;
    demand(m[0] == a[0], "mask and source must have rows of one length")?;
    demand(m[1] >= a[1], "the mask must have a row for each of the source")?;
    demand(divides(m[2], a[2]) && divides(m[3], a[3]), "the outer dimensions of the mask must divide the source's")
}

pub(crate) fn rope(call: &Call<'_>) -> Result<Made, Refusal> {
    let (a, positions) = (call.source(0)?, call.source(1)?);
    let given = |index: usize| call.params.get(index).and_then(|param| param.int());
    let sections = if given(1).is_some_and(|mode| mode & MULTI_SECTION != 0) { 4 } else { 1 };
    demand(positions.dtype() == DataType::I32, "the positions must be i32")?;
    demand(positions.ne()[1..] == [1; 3], "the positions must be one row")?;
    // Without parameters, as in recorded graphs, it is not known how many parts a position has.
    if !call.params.is_empty() {
        let wanted = a.ne()[2].checked_mul(sections);
        demand(wanted == Some(positions.ne()[0]), "there must be one position for each token")?;
    }
    if let Some(factors) = call.maybe(2) {
        let pairs = given(0).and_then(|dims| u64::try_from(dims).ok()).unwrap_or(0) / 2;
        demand(factors.dtype() == DataType::F32, "the frequency factors must be f32")?;
        demand(factors.ne()[0] >= pairs, "there must be one frequency factor for each pair")?;
    }
    Made::own(a.packed()?)
}

/// `q` `[d, token, head]`, `k` `[d, kv, head]`, `v` `[dv, kv, head]` make `[dv, head, token]`.
pub(crate) fn flash_attn_ext(call: &Call<'_>) -> Result<Made, Refusal> {
    let (q, k, v) = (call.source(0)?, call.source(1)?, call.source(2)?);
    fit(&k, &q)?;
    demand(q.ne()[3] == k.ne()[3] && q.ne()[3] == v.ne()[3], "all must have the same outermost dimension")?;
    demand(k.ne()[1] == v.ne()[1], "there must be as many keys as values")?;
    match call.maybe(3) {
        Some(mask) => {
            demand(mask.dtype() == DataType::F16, "the mask must be f16")?;
            demand(mask.is_contiguous(), "the mask must have no gaps")?;
            let (m, q) = (mask.ne(), q.ne());
            demand(m[1] >= q[1], "the mask must have a row for each query")?;
            demand(divides(m[2], q[2]) && divides(m[3], q[3]), "the outer dimensions of the mask must divide q's")?;
        }
        None => demand(call.float(1).unwrap_or(0.0) <= 0.0, "a bias needs a mask")?,
    }
    let [_, tokens, heads, outer] = q.ne();
    Made::own(typed(DataType::F32, [v.ne()[0], heads, tokens, outer])?)
}
