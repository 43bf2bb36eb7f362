//! Results with fewer elements along some axes: sums, means, the largest, the first few.

use super::layout::{axis_count, unknown_dims};
use crate::onnx::call::{Call, Facts, Stuck, axis_of, one};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::Fact;

/// Returns which axes of an input are reduced; all if none is named and the attribute does not say otherwise.
fn reduced_axes(call: &Call<'_>, rank: usize, slot: usize) -> Result<Vec<bool>, Stuck> {
    let axes = call.attribute_or_input("axes", slot)?.unwrap_or(&[]);
    if axes.is_empty() {
        return Ok(vec![!call.is_set("noop_with_empty_axes"); rank]);
    }
    let mut reduced = vec![false; rank];
    for axis in axes {
        reduced[axis_of(*axis, rank)?] = true;
    }
    Ok(reduced)
}

/// Returns the sum, mean, ... over axes, which are an attribute or in the input `slot`.
pub(super) fn reduce(call: &Call<'_>, slot: usize) -> Facts {
    let dims = call.dims(0)?;
    let keeps = call.int_or("keepdims", 1) != 0;
    let reduced = match reduced_axes(call, dims.len(), slot) {
        // The rank is known all the same, or may be by how many axes there are.
        Err(Stuck::Unknown) if keeps => return one(call.data_type(0), vec![None; dims.len()]),
        Err(Stuck::Unknown) => {
            let axes = axis_count(call, slot)?;
            return unknown_dims(call, dims.len().checked_sub(axes).filter(|_| axes > 0));
        }
        reduced => reduced?,
    };
    let dims = dims.iter().zip(&reduced);
    let shape = dims.filter_map(|(dim, is_reduced)| match (is_reduced, keeps) {
        (false, _) => Some(*dim),
        (true, true) => Some(Some(1)),
        (true, false) => None,
    });
    one(call.data_type(0), shape.collect())
}

/// Returns where the largest elements along an axis are.
pub(super) fn position(call: &Call<'_>) -> Facts {
    let mut shape = call.dims(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", 0), shape.len())?;
    if call.int_or("keepdims", 1) != 0 {
        shape[axis] = Some(1);
    } else {
        shape.remove(axis);
    }
    one(DataType::INT64, shape)
}

/// Returns the largest elements along an axis, and where they are.
pub(super) fn top(call: &Call<'_>) -> Facts {
    let mut shape = call.dims(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", -1), shape.len())?;
    shape[axis] = match call.int("k") {
        Some(count) => u64::try_from(count).ok(),
        None => match call.int_element(1) {
            Ok(count) => u64::try_from(count).ok(),
            Err(Stuck::Unknown) => None,
            Err(wrong) => return Err(wrong),
        },
    };
    Ok(vec![Fact::new(call.data_type(0), shape.clone()), Fact::new(DataType::INT64, shape)])
}
