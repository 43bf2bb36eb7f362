//! Sums, means and orders.

use super::elementwise::typed;
use super::{InferredShape, ShapeError, ShapeInput, demand};
use crate::DataType;

pub(crate) fn sum(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    InferredShape::own(typed(call.source(0)?.dtype(), [1; 4])?)
}

pub(crate) fn sum_rows(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    per_row(call, call.source(0)?.dtype())
}

pub(crate) fn mean(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    per_row(call, DataType::F32)
}

fn per_row(call: &ShapeInput<'_>, dtype: DataType) -> Result<InferredShape, ShapeError> {
    let [_, rest @ ..] = call.source(0)?.ne();
    InferredShape::own(typed(dtype, [1, rest[0], rest[1], rest[2]])?)
}

pub(crate) fn argsort(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    demand(a.ne()[0] <= i32::MAX as u64, "a row must be short enough to be numbered by i32")?;
    InferredShape::own(typed(DataType::I32, a.ne())?)
}

pub(crate) fn top_k(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let ([row, rest @ ..], k) = (call.source(0)?.ne(), call.count(0)?);
    demand(k <= row, "a row must have at least k elements")?;
    InferredShape::own(typed(DataType::I32, [k, rest[0], rest[1], rest[2]])?)
}
