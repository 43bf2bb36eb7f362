//! Results that are views of a source, and those whose shape only the caller knows.

use steeve_plan::Bytes;

use super::{InferredShape, ShapeError, ShapeInput, demand};
use crate::Layout;

/// Infers a view. The caller gives layout and offset; whether they stay within the root is checked where the root is
/// known.
pub(crate) fn view(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, wanted) = (call.source(0)?, call.wanted()?);
    demand(a.dtype() == wanted.dtype(), "a view has the type of its source")?;
    let offset = if call.params.is_empty() { 0 } else { call.count(0)? };
    InferredShape::shared(wanted, 0, Bytes(offset))
}

pub(crate) fn reshape(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, wanted) = (call.source(0)?, call.wanted()?);
    demand(a.is_contiguous(), "the source must have no gaps")?;
    demand(a.elements() == wanted.elements(), "the number of elements must stay the same")?;
    InferredShape::shared(Layout::contiguous(a.dtype(), &wanted.ne())?, 0, Bytes::ZERO)
}

/// Infers permuted dimensions. Parameter `i` says where dimension `i` of the source goes.
pub(crate) fn permute(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    let (mut ne, mut nb, mut taken) = ([0; 4], [0; 4], [false; 4]);
    for index in 0..4 {
        let axis = usize::try_from(call.count(index)?).ok().filter(|&axis| axis < 4);
        let axis = axis.ok_or(ShapeError::Param { index })?;
        if core::mem::replace(&mut taken[axis], true) {
            return Err(ShapeError::Param { index });
        }
        (ne[axis], nb[axis]) = (a.ne()[index], a.nb()[index]);
    }
    InferredShape::shared(Layout::new(a.dtype(), ne, nb)?, 0, Bytes::ZERO)
}

pub(crate) fn transpose(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let a = call.source(0)?;
    let (mut ne, mut nb) = (a.ne(), a.nb());
    ne.swap(0, 1);
    nb.swap(0, 1);
    InferredShape::shared(Layout::new(a.dtype(), ne, nb)?, 0, Bytes::ZERO)
}

pub(crate) fn cpy(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    let (a, b) = (call.source(0)?, call.source(1)?);
    demand(a.elements() == b.elements(), "both must have the same number of elements")?;
    InferredShape::shared(b, 1, Bytes::ZERO)
}

pub(crate) fn custom(call: &ShapeInput<'_>) -> Result<InferredShape, ShapeError> {
    InferredShape::own(call.wanted()?)
}
