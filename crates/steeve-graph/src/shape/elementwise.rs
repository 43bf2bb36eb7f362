//! Results with the shape of the first source, without gaps.

use super::{InferredShape, ShapeError, ShapeInput, demand, repeats_to};
use crate::{DataType, Layout};

pub(crate) fn same(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    InferredShape::own(call.source(0)?.packed()?)
}

/// Infers a result of the shape that two sources share.
pub(crate) fn same_pair(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, b) = (call.source(0)?, call.source(1)?);
    demand(a.same_shape(&b), "both shapes must be equal")?;
    InferredShape::own(a.packed()?)
}

pub(crate) fn add1(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, b) = (call.source(0)?, call.source(1)?);
    demand(b.ne() == [1; 4], "the second must be one number")?;
    InferredShape::own(a.packed()?)
}

/// Infers added rows: `a` `[n, used, token]`, `b` `[n, expert]` and `ids` `[used, token]` make `[n, used, token]`.
pub(crate) fn add_id(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, b, ids) = (call.source(0)?, call.source(1)?, call.source(2)?);
    demand(a.ne()[0] == b.ne()[0], "both must have rows of one length")?;
    demand(b.ne()[2..] == [1; 2], "the rows to add must have two dimensions")?;
    demand(ids.ne()[..2] == a.ne()[1..3] && ids.ne()[2..] == [1; 2], "there must be one id for each row")?;
    InferredShape::own(a.packed()?)
}

pub(crate) fn broadcast(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, b) = (call.source(0)?, call.source(1)?);
    demand(repeats_to(&b, &a), "the second must fill the first when it is repeated")?;
    InferredShape::own(a.packed()?)
}

pub(crate) fn unary(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    call.demand_ggml(a.has_contiguous_rows(), "rows must have no gaps")?;
    InferredShape::own(a.packed()?)
}

pub(crate) fn scale(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    call.demand_ggml(a.is_padded_rows(), "there must be no gaps but between rows")?;
    InferredShape::own(a.packed()?)
}

/// Infers the shape of the source, or another one with as many elements.
pub(crate) fn cont(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    let ne = call.wanted.map_or(a.ne(), |wanted| wanted.ne());
    let layout = typed(a.dtype(), ne)?;
    demand(layout.elements() == a.elements(), "the number of elements must stay the same")?;
    InferredShape::own(layout)
}

/// Infers the shape of the source, or the one the caller wants.
pub(crate) fn fill(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    match call.maybe(0) {
        Some(like) => InferredShape::own(like.packed()?),
        None => InferredShape::own(call.wanted()?),
    }
}

pub(crate) fn glu(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    call.demand_ggml(a.has_contiguous_rows(), "rows must have no gaps")?;
    let [row, rest @ ..] = a.ne();
    match call.maybe(1) {
        Some(b) => {
            call.demand_ggml(b.has_contiguous_rows(), "rows must have no gaps")?;
            demand(a.same_shape(&b), "both shapes must be equal")?;
            call.demand_ggml(a.dtype() == b.dtype(), "both types must be equal")?;
            InferredShape::own(a.packed()?)
        }
        None => {
            demand(row.is_multiple_of(2), "a row must have two halves")?;
            InferredShape::own(typed(a.dtype(), [row / 2, rest[0], rest[1], rest[2]])?)
        }
    }
}

pub(crate) fn typed(dtype: DataType, ne: [u64; 4]) -> Result<Layout, ShapeError> {
    Ok(Layout::contiguous(dtype, &ne)?)
}
