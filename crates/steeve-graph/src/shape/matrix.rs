//! Products of matrices.

use super::elementwise::typed;
use super::{InferredShape, ShapeError, ShapeInput, demand, divides};
use crate::{DataType, Layout};

/// Checks that `a` and `b` can be multiplied, as `ggml_can_mul_mat` does: equal first dimensions, and `a` repeated
/// over the outer ones.
pub(crate) fn fit(a: &Layout, b: &Layout) -> Result<(), ShapeError> {
    let (a, b) = (a.ne(), b.ne());
    demand(a[0] == b[0], "the first dimensions must be equal")?;
    demand(divides(a[2], b[2]) && divides(a[3], b[3]), "the outer dimensions of the first must divide the second's")
}

pub(crate) fn mul_mat(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, b) = (call.source(0)?, call.source(1)?);
    fit(&a, &b)?;
    call.demand_ggml(!a.is_transposed(), "the first must not be transposed")?;
    let [_, columns, planes, cubes] = b.ne();
    InferredShape::own(typed(DataType::F32, [a.ne()[1], columns, planes, cubes])?)
}

/// Infers products with experts: `experts` `[k, m, expert]`, `b` `[k, used or 1, token]`, `ids` `[used, token]` make
/// `[m, used, token]`.
pub(crate) fn mul_mat_id(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (experts, b, ids) = (call.source(0)?, call.source(1)?, call.source(2)?);
    call.demand_ggml(!experts.is_transposed(), "the experts must not be transposed")?;
    call.demand_ggml(ids.dtype() == DataType::I32, "the ids must be i32")?;
    let (e, x, i) = (experts.ne(), b.ne(), ids.ne());
    demand(e[3] == 1 && x[3] == 1, "experts and second source must have three dimensions")?;
    demand(i[2] == 1 && i[3] == 1, "the ids must have two dimensions")?;
    demand(i[1] == x[2], "there must be one row of ids for each token")?;
    demand(e[0] == x[0], "the first dimensions must be equal")?;
    demand(divides(x[1], i[0]), "the ids of a token must be a multiple of its rows")?;
    InferredShape::own(typed(DataType::F32, [e[1], i[0], x[2], 1])?)
}
