//! Soft-max, positions and attention.

use super::elementwise::typed;
use super::matrix::fit;
use super::{InferredShape, ShapeError, ShapeInput, demand, divides};
use crate::{DataType, Layout, RopeMode};

pub(crate) fn soft_max(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    call.demand_ggml(a.is_contiguous(), "the source must have no gaps")?;
    match call.maybe(1) {
        Some(mask) => mask_fits(call, &mask, &a)?,
        None => demand(call.float(1).unwrap_or(0.0) <= 0.0, "a bias needs a mask")?,
    }
    if let Some(sinks) = call.maybe(2) {
        call.demand_ggml(sinks.dtype() == DataType::F32, "the sinks must be f32")?;
        demand(sinks.ne() == [a.ne()[2], 1, 1, 1], "there must be one sink for each head")?;
    }
    InferredShape::own(a.packed()?)
}

fn mask_fits(call: &ShapeInput<'_>, mask: &Layout, a: &Layout) -> Result<(), ShapeError> {
    let (m, a) = (mask.ne(), a.ne());
    call.demand_ggml(matches!(mask.dtype(), DataType::F16 | DataType::F32), "the mask must be f16 or f32")?;
    call.demand_ggml(mask.is_contiguous(), "the mask must have no gaps")?;
    demand(m[0] == a[0], "mask and source must have rows of one length")?;
    demand(m[1] >= a[1], "the mask must have a row for each of the source")?;
    demand(divides(m[2], a[2]) && divides(m[3], a[3]), "the outer dimensions of the mask must divide the source's")
}

pub(crate) fn rope(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, positions) = (call.source(0)?, call.source(1)?);
    let mode = call.given_int(1).and_then(RopeMode::from_ggml_id).unwrap_or_default();
    call.demand_ggml(positions.dtype() == DataType::I32, "the positions must be i32")?;
    demand(positions.ne()[1..] == [1; 3], "the positions must be one row")?;
    // Without parameters, as in recorded graphs, it is not known how many parts a position has.
    if !call.params.is_empty() {
        let wanted = a.ne()[2].checked_mul(mode.parts());
        demand(wanted == Some(positions.ne()[0]), "there must be one position for each token")?;
    }
    let dims = call.given_int(0).and_then(|dims| u64::try_from(dims).ok()).unwrap_or(0);
    let pairs = match mode.pairs(dims, a.ne()[0]) {
        Some(pairs) => pairs,
        None if call.params.is_empty() => 0,
        None => return Err(ShapeError::Unfit("the rotated elements of a row must be pairs")),
    };
    if let Some(factors) = call.maybe(2) {
        call.demand_ggml(factors.dtype() == DataType::F32, "the frequency factors must be f32")?;
        let enough = factors.ne()[0] >= pairs && !factors.ne()[1..].contains(&0);
        demand(enough, "there must be one frequency factor for each pair")?;
    }
    InferredShape::own(a.packed()?)
}

/// Infers attention: `q` `[d, token, head]`, `k` `[d, kv, head]`, `v` `[dv, kv, head]` make `[dv, head, token]`.
pub(crate) fn flash_attn_ext(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (q, k, v) = (call.source(0)?, call.source(1)?, call.source(2)?);
    fit(&k, &q)?;
    demand(q.ne()[3] == k.ne()[3] && q.ne()[3] == v.ne()[3], "all must have the same outermost dimension")?;
    demand(k.ne()[1] == v.ne()[1], "there must be as many keys as values")?;
    demand(divides(v.ne()[2], q.ne()[2]), "the heads of the values must divide those of the queries")?;
    match call.maybe(3) {
        Some(mask) => {
            call.demand_ggml(mask.dtype() == DataType::F16, "the mask must be f16")?;
            call.demand_ggml(mask.is_contiguous(), "the mask must have no gaps")?;
            let (m, q) = (mask.ne(), q.ne());
            demand(m[0] >= k.ne()[1], "the mask must have an element for each key")?;
            demand(m[1] >= q[1], "the mask must have a row for each query")?;
            demand(divides(m[2], q[2]) && divides(m[3], q[3]), "the outer dimensions of the mask must divide q's")?;
        }
        None => demand(call.float(1).unwrap_or(0.0) <= 0.0, "a bias needs a mask")?,
    }
    let [_, tokens, heads, outer] = q.ne();
    if let Some(sinks) = call.maybe(4) {
        demand(sinks.ne() == [heads, 1, 1, 1], "there must be one sink for each head")?;
    }
    InferredShape::own(typed(DataType::F32, [v.ne()[0], heads, tokens, outer])?)
}
