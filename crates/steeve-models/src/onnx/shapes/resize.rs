//! Images of another size.

use super::layout::dim_of;
use crate::onnx::call::{Call, Facts, Stuck, axis_of, one, wrong};
use crate::onnx::fact::{Dim, Elements};

/// Returns an image of another size: what factors make of it, or sizes that are given.
pub(super) fn resize(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let is_upsample = call.node.op_type == "Upsample";
    let (scales_slot, sizes_slot) = if is_upsample || call.version < 11 { (1, usize::MAX) } else { (2, 3) };
    let axes = match call.ints("axes") {
        Some(axes) => axes.iter().map(|axis| axis_of(*axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).collect(),
    };
    let mut shape = dims.to_vec();
    let is_empty = |slot: usize| call.input(slot).is_none_or(|fact| fact.count() == Some(0));
    if !is_empty(sizes_slot) {
        let unknown = || one(call.data_type(0), vec![None; dims.len()]);
        let sizes = match call.int_elements(sizes_slot) {
            Err(Stuck::Unknown) => return unknown(),
            sizes => sizes?.unwrap_or(&[]),
        };
        if sizes.len() != axes.len() {
            return wrong(format!("sizes: expected {} numbers, got {}", axes.len(), sizes.len()));
        }
        let sizes = sizes.iter().map(|size| dim_of(*size, "sizes")).collect::<Result<Vec<_>, _>>()?;
        return one(call.data_type(0), fit_sizes(call, shape, &axes, &sizes));
    }
    let scales: Vec<f64> = match (call.floats("scales"), call.input(scales_slot)) {
        (Some(scales), _) => scales.iter().map(|it| f64::from(*it)).collect(),
        (None, Some(fact)) => match &fact.elements {
            Some(Elements::Floats(floats)) => floats.clone(),
            _ => return one(call.data_type(0), vec![None; dims.len()]),
        },
        // The first version had one factor for each axis of the image.
        (None, None) => match (call.float("height_scale"), call.float("width_scale")) {
            (Some(height), Some(width)) => vec![1.0, 1.0, f64::from(height), f64::from(width)],
            _ => return wrong("neither sizes nor factors are given"),
        },
    };
    if scales.len() != axes.len() {
        return wrong(format!("scales: expected {} numbers, got {}", axes.len(), scales.len()));
    }
    let crops = call.text("coordinate_transformation_mode") == "tf_crop_and_resize";
    for (index, (axis, scale)) in axes.iter().zip(scales).enumerate() {
        let region = if crops { region_of(call, index, axes.len()) } else { Some(1.0) };
        shape[*axis] = shape[*axis].and_then(|dim| scaled(dim, scale * region?));
    }
    one(call.data_type(0), shape)
}

/// Returns the part of an axis that a region of interest has.
fn region_of(call: &Call<'_>, index: usize, count: usize) -> Option<f64> {
    let elements = call.input(1)?.elements.as_ref()?;
    Some(elements.float(count + index)? - elements.float(index)?)
}

/// Returns a dimension times a factor, rounded down. Runtimes multiply in 32 bits, where ten times 0.7 is 7.
fn scaled(dim: u64, scale: f64) -> Option<u64> {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "runtimes compute so")]
    let size = (dim as f32 * scale as f32).floor();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the range")]
    (size.is_finite() && (0.0..1e15).contains(&size)).then_some(size as u64)
}

/// Returns a shape with these sizes, or with their sides in the proportions of before.
fn fit_sizes(call: &Call<'_>, mut shape: Vec<Dim>, axes: &[usize], sizes: &[u64]) -> Vec<Dim> {
    let policy = call.text("keep_aspect_ratio_policy");
    #[allow(clippy::cast_precision_loss, reason = "the operation computes so")]
    let ratios =
        || axes.iter().zip(sizes).map(|(axis, size)| Some(*size as f64 / shape[*axis].filter(|it| *it > 0)? as f64));
    let scale: Option<f64> = match policy {
        "not_larger" => ratios().try_fold(f64::INFINITY, |least, ratio| Some(least.min(ratio?))),
        "not_smaller" => ratios().try_fold(0.0, |most: f64, ratio| Some(most.max(ratio?))),
        _ => {
            axes.iter().zip(sizes).for_each(|(axis, size)| shape[*axis] = Some(*size));
            return shape;
        }
    };
    for axis in axes {
        // To the nearest whole number, halves up.
        #[allow(clippy::cast_precision_loss, reason = "the operation computes so")]
        let size = shape[*axis].zip(scale).and_then(|(dim, scale)| scaled(1, (scale * dim as f64 + 0.5).floor()));
        shape[*axis] = size;
    }
    shape
}
