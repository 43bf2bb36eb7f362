//! Sums, means and orders.

use super::elementwise::typed;
use super::{Call, Made, Refusal, demand};
use crate::DataType;

pub(crate) fn sum(call: &Call<'_>) -> Result<Made, Refusal> {
    Made::own(typed(call.source(0)?.dtype(), [1; 4])?)
}

pub(crate) fn sum_rows(call: &Call<'_>) -> Result<Made, Refusal> {
    per_row(call, call.source(0)?.dtype())
}

pub(crate) fn mean(call: &Call<'_>) -> Result<Made, Refusal> {
    per_row(call, DataType::F32)
}

fn per_row(call: &Call<'_>, dtype: DataType) -> Result<Made, Refusal> {
    let [_, rest @ ..] = call.source(0)?.ne();
    Made::own(typed(dtype, [1, rest[0], rest[1], rest[2]])?)
}

pub(crate) fn argsort(call: &Call<'_>) -> Result<Made, Refusal> {
    let a = call.source(0)?;
    demand(a.ne()[0] <= i32::MAX as u64, "a row must be short enough to be numbered by i32")?;
    Made::own(typed(DataType::I32, a.ne())?)
}

pub(crate) fn top_k(call: &Call<'_>) -> Result<Made, Refusal> {
    let ([row, rest @ ..], k) = (call.source(0)?.ne(), call.count(0)?);
    demand(k <= row, "a row must have at least k elements")?;
    Made::own(typed(DataType::I32, [k, rest[0], rest[1], rest[2]])?)
}
