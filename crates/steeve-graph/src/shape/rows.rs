//! Rows taken, written, joined and repeated.

use steeve_plan::Bytes;

use super::elementwise::typed;
use super::{InferredShape, ShapeError, ShapeInput, demand, divides, repeats_to};
use crate::DataType;

pub(crate) fn get_rows(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, ids) = (call.source(0)?, call.source(1)?);
    let ([row, _, planes, cubes], [count, outer, last, extra]) = (a.ne(), ids.ne());
    demand(planes == outer && cubes == last && extra == 1, "the ids must have the outer dimensions of the rows")?;
    call.demand_ggml(ids.dtype() == DataType::I32, "the ids must be i32")?;
    let dtype = if a.dtype() == DataType::I32 { DataType::I32 } else { DataType::F32 };
    InferredShape::own(typed(dtype, [row, count, outer, last])?)
}

/// Infers written rows. Slots as in ggml: the rows, where they go, and the tensor that is written.
pub(crate) fn set_rows(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (rows, ids, target) = (call.source(0)?, call.source(1)?, call.source(2)?);
    let (r, i, t) = (rows.ne(), ids.ne(), target.ne());
    demand(t[0] == r[0], "rows and target must have rows of one length")?;
    demand(t[2] == r[2] && t[3] == r[3], "rows and target must have equal outer dimensions")?;
    demand(r[1] == i[0], "there must be one id for each row")?;
    demand(divides(i[1], r[2]) && divides(i[2], r[3]) && i[3] == 1, "the ids must fill the rows when repeated")?;
    call.demand_ggml(matches!(rows.dtype(), DataType::F32 | DataType::F16), "the rows must be f32 or f16")?;
    call.demand_ggml(matches!(ids.dtype(), DataType::I64 | DataType::I32), "the ids must be i64 or i32")?;
    call.demand_ggml(rows.has_contiguous_rows() && target.has_contiguous_rows(), "rows must have no gaps")?;
    InferredShape::shared(target, 2, Bytes::ZERO)
}

pub(crate) fn concat(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, b) = (call.source(0)?, call.source(1)?);
    let dim = usize::try_from(call.count(0)?).map_err(|_| ShapeError::Param { index: 0 })?;
    call.demand_ggml(a.dtype() == b.dtype(), "both types must be equal")?;
    let mut ne = a.ne();
    for (index, (joined, other)) in ne.iter_mut().zip(b.ne()).enumerate() {
        if index == dim {
            *joined = joined.checked_add(other).ok_or(ShapeError::Param { index: 0 })?;
        } else {
            demand(*joined == other, "all dimensions but the joined one must be equal")?;
        }
    }
    if dim >= ne.len() { Err(ShapeError::Param { index: 0 }) } else { InferredShape::own(typed(a.dtype(), ne)?) }
}

pub(crate) fn repeat(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, wanted) = (call.source(0)?, call.wanted()?);
    demand(repeats_to(&a, &wanted), "the source must fill the result when it is repeated")?;
    InferredShape::own(typed(a.dtype(), wanted.ne())?)
}
