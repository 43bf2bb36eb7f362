//! The same elements in another shape or order, or some of them.

use crate::onnx::call::{Call, Facts, Stuck, axis_of, one, plus, signed, times, wrong};
use crate::onnx::fact::{Dim, Elements, Fact, ListFact, count};

/// Returns the product of dimensions.
fn product(dims: &[Dim]) -> Dim {
    count(dims)
}

fn dim_of(number: i64, what: &str) -> Result<u64, Stuck> {
    u64::try_from(number).or_else(|_| wrong(format!("{what}: expected at least 0, got {number}")))
}

/// Returns the input in another shape, in which 0 copies a dimension and one -1 takes what is left.
pub(super) fn reshape(call: &Call<'_>) -> Facts {
    let data_type = call.data_type(0);
    let wanted = match call.attribute_or_input("shape", 1) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return wrong("the shape is missing"),
        Err(Stuck::Unknown) => {
            // How many dimensions there are may be known all the same.
            let rank = call.input(1).and_then(Fact::count).and_then(|rank| usize::try_from(rank).ok());
            return match rank.filter(|rank| *rank <= 64) {
                Some(rank) => one(data_type, vec![None; rank]),
                None => Err(Stuck::Unknown),
            };
        }
        Err(wrong) => return Err(wrong),
    };
    let input = call.fact(0)?.shape.as_deref();
    let copies_zero = !call.is_set("allowzero");
    let mut shape: Vec<Dim> = Vec::with_capacity(wanted.len());
    let mut left = None;
    for (axis, dim) in wanted.iter().enumerate() {
        shape.push(match dim {
            -1 if left.is_some() => return wrong(format!("shape {wanted:?}: expected at most one -1")),
            -1 => {
                left = Some(axis);
                None
            }
            0 if copies_zero => match input {
                Some(input) => *input.get(axis).ok_or_else(|| {
                    Stuck::Wrong(format!(
                        "shape {wanted:?}: dimension {axis} is copied, and the input has {}",
                        input.len()
                    ))
                })?,
                None => None,
            },
            dim => Some(dim_of(*dim, "shape")?),
        });
    }
    let all = input.and_then(product);
    match left {
        Some(left) => {
            let others: Vec<Dim> =
                shape.iter().enumerate().filter(|(axis, _)| *axis != left).map(|(_, dim)| *dim).collect();
            shape[left] = match (all, product(&others)) {
                (Some(0), Some(0)) => Some(0),
                (Some(all), Some(others)) if others > 0 && all % others == 0 => Some(all / others),
                (Some(all), Some(others)) => {
                    return wrong(format!(
                        "{all} elements can't be reshaped to {wanted:?}: {others} do not divide them"
                    ));
                }
                // What is copied cancels out.
                _ => divide_copied(input, wanted, left, copies_zero),
            };
        }
        None => {
            if let (Some(all), Some(wanted_count)) = (all, product(&shape))
                && all != wanted_count
            {
                return wrong(format!("{all} elements can't be reshaped to {wanted:?}, which has {wanted_count}"));
            }
        }
    }
    one(data_type, shape)
}

/// Returns the dimension that takes what is left where dimensions that are not known are copied to where they were.
fn divide_copied(input: Option<&[Dim]>, wanted: &[i64], left: usize, copies_zero: bool) -> Dim {
    let copied = |axis: usize| copies_zero && wanted.get(axis) == Some(&0);
    let input: Vec<Dim> = input?.iter().enumerate().filter(|(axis, _)| !copied(*axis)).map(|(_, dim)| *dim).collect();
    let others = wanted.iter().enumerate().filter(|(axis, _)| !copied(*axis) && *axis != left);
    let others: Vec<Dim> = others.map(|(_, dim)| u64::try_from(*dim).ok()).collect();
    let (all, others) = (product(&input)?, product(&others)?);
    if others > 0 && all % others == 0 { Some(all / others) } else { None }
}

/// Returns the input as a matrix.
pub(super) fn flatten(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let number = call.int_or("axis", 1);
    let axis = if usize::try_from(number) == Ok(dims.len()) { dims.len() } else { axis_of(number, dims.len())? };
    one(call.data_type(0), vec![product(&dims[..axis]), product(&dims[axis..])])
}

/// Returns the input without dimensions of 1.
pub(super) fn squeeze(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let mut removed = vec![false; dims.len()];
    match call.attribute_or_input("axes", 1)? {
        Some(axes) => {
            for axis in axes {
                let axis = axis_of(*axis, dims.len())?;
                if let Some(dim) = dims[axis].filter(|dim| *dim != 1) {
                    return wrong(format!("axis {axis}: expected a dimension of 1, got {dim}"));
                }
                removed[axis] = true;
            }
        }
        None if dims.iter().any(Option::is_none) => return Err(Stuck::Unknown),
        None => removed.iter_mut().zip(dims).for_each(|(removed, dim)| *removed = *dim == Some(1)),
    }
    one(call.data_type(0), dims.iter().zip(&removed).filter(|(_, removed)| !**removed).map(|(dim, _)| *dim).collect())
}

/// Returns the input with new dimensions of 1.
pub(super) fn unsqueeze(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let Some(axes) = call.attribute_or_input("axes", 1)? else { return wrong("axes are missing") };
    let rank = dims.len() + axes.len();
    let mut is_new = vec![false; rank];
    for axis in axes {
        let axis = axis_of(*axis, rank)?;
        if std::mem::replace(&mut is_new[axis], true) {
            return wrong(format!("axes {axes:?}: expected each once"));
        }
    }
    let mut old = dims.iter().copied();
    one(call.data_type(0), is_new.iter().map(|is_new| if *is_new { Some(1) } else { old.next().flatten() }).collect())
}

/// Returns the order of axes that a transposition has.
pub(crate) fn permutation(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, Stuck> {
    match call.ints("perm") {
        None | Some([]) => Ok((0..rank).rev().collect()),
        Some(perm) => {
            let axes = perm.iter().map(|axis| axis_of(*axis, rank)).collect::<Result<Vec<_>, _>>()?;
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            if sorted.into_iter().eq(0..rank) {
                Ok(axes)
            } else {
                wrong(format!("perm {perm:?}: expected each of {rank} axes once"))
            }
        }
    }
}

/// Returns the input with its axes in another order.
pub(super) fn transpose(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let order = permutation(call, dims.len())?;
    one(call.data_type(0), order.into_iter().map(|axis| dims[axis]).collect())
}

/// Returns facts joined along an axis.
pub(super) fn joined(facts: &[&Fact], axis: i64) -> Result<Fact, Stuck> {
    let Some(first) = facts.first() else { return wrong("expected at least 1 input, got 0") };
    let mut shape = first.shape.clone().ok_or(Stuck::Unknown)?;
    let axis = axis_of(axis, shape.len())?;
    for fact in &facts[1..] {
        let other = fact.shape.as_deref().ok_or(Stuck::Unknown)?;
        if other.len() != shape.len() {
            return wrong(format!("expected inputs of {} dimensions, got {}", shape.len(), other.len()));
        }
        for (at, dim) in other.iter().enumerate() {
            match (shape[at], *dim) {
                _ if at == axis => shape[at] = plus(shape[at], *dim),
                (Some(a), Some(b)) if a != b => {
                    return wrong(format!("dimension {at}: expected it to be equal in all inputs, got {a} and {b}"));
                }
                (None, known) => shape[at] = known,
                _ => {}
            }
        }
    }
    Ok(Fact::new(first.data_type, shape))
}

/// Returns the inputs one behind the other.
pub(super) fn concat(call: &Call<'_>) -> Facts {
    let facts = (0..call.inputs.len()).map(|slot| call.fact(slot)).collect::<Result<Vec<_>, _>>()?;
    let default = if call.version < 4 { 1 } else { 0 };
    Ok(vec![joined(&facts, call.int_or("axis", default))?])
}

/// Returns parts of the input along an axis.
pub(super) fn split(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let results = call.node.outputs.len();
    let axis = axis_of(call.int_or("axis", 0), dims.len())?;
    let part = |size: Dim| {
        let mut shape = dims.to_vec();
        shape[axis] = size;
        Fact::new(call.data_type(0), shape)
    };
    if let Some(sizes) = call.attribute_or_input("split", 1)?.filter(|sizes| !sizes.is_empty()) {
        if sizes.len() < results {
            return wrong(format!("split: expected {results} sizes, got {}", sizes.len()));
        }
        return Ok(sizes.iter().map(|size| part(u64::try_from(*size).ok())).collect());
    }
    let count = call.int("num_outputs").and_then(|it| u64::try_from(it).ok()).unwrap_or(results as u64).max(1);
    let size = |index: u64| {
        let all = dims[axis]?;
        let each = all.div_ceil(count);
        Some(each.min(all.saturating_sub(each.saturating_mul(index))))
    };
    Ok((0..results as u64).map(|index| part(size(index))).collect())
}

/// What is taken along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceRange {
    pub(crate) axis: usize,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) step: i64,
}

impl SliceRange {
    /// Returns which of so many elements are taken: the first, and how many.
    pub(crate) fn of(self, dim: u64) -> (i128, u64) {
        let (dim, step) = (i128::from(dim), i128::from(self.step));
        let from_end = |it: i64| if it < 0 { i128::from(it) + dim } else { i128::from(it) };
        let (start, end) = (from_end(self.start), from_end(self.end));
        let (start, length) = if step > 0 {
            let start = start.clamp(0, dim);
            (start, end.clamp(0, dim) - start)
        } else {
            let start = start.clamp(-1, dim - 1);
            (start, start - end.clamp(-1, dim - 1))
        };
        let count = if length <= 0 { 0 } else { (length + step.abs() - 1) / step.abs() };
        (start, u64::try_from(count).unwrap_or(0))
    }
}

/// Returns what a node takes along each axis; `None` where it is not known along which.
pub(crate) fn slice_ranges(call: &Call<'_>, rank: usize) -> Result<Vec<SliceRange>, Stuck> {
    let (starts, ends) = (call.attribute_or_input("starts", 1)?, call.attribute_or_input("ends", 2)?);
    let (Some(starts), Some(ends)) = (starts, ends) else { return wrong("starts or ends are missing") };
    let (axes, steps) = (call.attribute_or_input("axes", 3)?, call.int_elements(4)?);
    let axes = axes.filter(|axes| !axes.is_empty());
    if starts.len() != ends.len() || axes.is_some_and(|axes| axes.len() != starts.len()) {
        return wrong(format!("expected as many ends and axes as starts, got {} and {}", ends.len(), starts.len()));
    }
    let range = |index: usize| {
        let axis = axes.map_or_else(|| signed(index as u64), |axes| Ok(axes[index]))?;
        let step = steps.and_then(|steps| steps.get(index)).copied().unwrap_or(1);
        if step == 0 {
            return wrong("steps: expected none of 0");
        }
        Ok(SliceRange { axis: axis_of(axis, rank)?, start: starts[index], end: ends[index], step })
    };
    (0..starts.len()).map(range).collect()
}

/// Returns a part of the input.
pub(super) fn slice(call: &Call<'_>) -> Facts {
    let mut shape = call.dims(0)?.to_vec();
    let ranges = match slice_ranges(call, shape.len()) {
        Ok(ranges) => ranges,
        Err(Stuck::Unknown) => {
            // Axes that are not sliced keep their size.
            let axes = call.attribute_or_input("axes", 3)?;
            let rank = shape.len();
            match axes {
                Some(axes) => {
                    for axis in axes {
                        shape[axis_of(*axis, rank)?] = None;
                    }
                }
                None => shape.iter_mut().for_each(|dim| *dim = None),
            }
            return one(call.data_type(0), shape);
        }
        Err(wrong) => return Err(wrong),
    };
    for range in ranges {
        shape[range.axis] = shape[range.axis].map(|dim| range.of(dim).1);
    }
    one(call.data_type(0), shape)
}

/// Returns the input with more, or less, around it.
pub(super) fn pad(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let pads = match call.ints("paddings") {
        Some(pads) => Some(pads),
        None => match call.attribute_or_input("pads", 1) {
            Err(Stuck::Unknown) => return one(call.data_type(0), vec![None; dims.len()]),
            pads => pads?,
        },
    };
    let Some(pads) = pads else { return wrong("pads are missing") };
    let axes = match call.int_elements(3)? {
        Some(axes) => axes.iter().map(|axis| axis_of(*axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return wrong(format!("pads: expected {} numbers, got {}", 2 * axes.len(), pads.len()));
    }
    let mut shape = dims.to_vec();
    for (index, axis) in axes.iter().enumerate() {
        let more = i128::from(pads[index]) + i128::from(pads[axes.len() + index]);
        if let Some(dim) = shape[*axis] {
            let size = i128::from(dim) + more;
            shape[*axis] = Some(
                u64::try_from(size).or_else(|_| wrong(format!("pads: a dimension of {dim} becomes one of {size}")))?,
            );
        }
    }
    one(call.data_type(0), shape)
}

/// Returns the input several times along each axis.
pub(super) fn tile(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    if call.node.domain.is_empty() && call.version < 6 && call.inputs.len() == 3 {
        let (times_of, axis) = (call.int_element(1)?, call.int_element(2)?);
        let mut shape = dims.to_vec();
        let axis = axis_of(axis, shape.len())?;
        shape[axis] = times(shape[axis], Some(dim_of(times_of, "tiles")?));
        return one(call.data_type(0), shape);
    }
    let repeats = match call.int_elements(1) {
        Ok(Some(repeats)) => repeats,
        Ok(None) => return wrong("repeats are missing"),
        Err(Stuck::Unknown) => return one(call.data_type(0), vec![None; dims.len()]),
        Err(wrong) => return Err(wrong),
    };
    if repeats.len() != dims.len() {
        return wrong(format!("repeats: expected {} numbers, got {}", dims.len(), repeats.len()));
    }
    let repeats = repeats.iter().map(|it| dim_of(*it, "repeats")).collect::<Result<Vec<_>, _>>()?;
    one(call.data_type(0), dims.iter().zip(repeats).map(|(dim, by)| times(*dim, Some(by))).collect())
}

/// Returns the input stretched to a shape.
pub(super) fn expand(call: &Call<'_>) -> Facts {
    let Some(shape) = call.int_elements(1)? else { return wrong("the shape is missing") };
    let shape = shape.iter().map(|dim| dim_of(*dim, "shape").map(Some)).collect::<Result<Vec<_>, _>>()?;
    one(call.data_type(0), super::elementwise::broadcast([call.dims(0)?, &shape])?)
}

/// Returns a tensor of a shape that an input has the numbers of.
pub(super) fn shape_of_input(call: &Call<'_>, slot: usize) -> Result<Vec<Dim>, Stuck> {
    match call.int_elements(slot) {
        Ok(Some(shape)) => shape.iter().map(|dim| dim_of(*dim, "shape").map(Some)).collect(),
        Ok(None) => wrong("the shape is missing"),
        Err(Stuck::Unknown) => {
            let rank = call.input(slot).and_then(Fact::count).and_then(|rank| usize::try_from(rank).ok());
            rank.filter(|rank| *rank <= 64).map(|rank| vec![None; rank]).ok_or(Stuck::Unknown)
        }
        Err(wrong) => Err(wrong),
    }
}

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

/// Returns a dimension times a factor, rounded down.
fn scaled(dim: u64, scale: f64) -> Option<u64> {
    #[allow(clippy::cast_precision_loss, reason = "the operation computes so")]
    let size = (dim as f64 * scale).floor();
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

/// Returns a list of parts of the input.
pub(super) fn split_to_list(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let data_type = call.data_type(0);
    let axis = axis_of(call.int_or("axis", 0), dims.len())?;
    let list = |items| Ok(vec![Fact { list: Some(ListFact::Items(items)), ..Fact::of_type(data_type) }]);
    let all = dims[axis].ok_or(Stuck::Unknown)?;
    let part = |size: u64| {
        let mut shape = dims.to_vec();
        shape[axis] = Some(size);
        Fact::new(data_type, shape)
    };
    let sizes: Vec<u64> = match call.input(1) {
        None => {
            let mut item = part(1);
            if let Some(shape) = item.shape.as_mut().filter(|_| call.int_or("keepdims", 1) == 0) {
                shape.remove(axis);
            }
            // Lists that are longer than anything that is kept of a tensor are not written down one by one.
            return match usize::try_from(all).ok().filter(|all| *all <= 1 << 16) {
                Some(all) => list(vec![item; all]),
                None => Err(Stuck::Unknown),
            };
        }
        Some(fact) => match (call.int_elements(1)?.unwrap_or(&[]), fact.shape.as_deref()) {
            ([each], Some([])) if *each > 0 => {
                let each = dim_of(*each, "split")?;
                if all.div_ceil(each) > 1 << 16 {
                    return Err(Stuck::Unknown);
                }
                (0..all.div_ceil(each)).map(|index| each.min(all - index * each)).collect()
            }
            (sizes, _) => sizes.iter().map(|size| dim_of(*size, "split")).collect::<Result<_, _>>()?,
        },
    };
    list(sizes.into_iter().map(part).collect())
}

/// Returns the tensors of a list one behind the other.
pub(super) fn concat_list(call: &Call<'_>) -> Facts {
    let Some(ListFact::Items(items)) = &call.fact(0)?.list else { return Err(Stuck::Unknown) };
    let axis = call.int_or("axis", 0);
    if !call.is_set("new_axis") {
        return Ok(vec![joined(&items.iter().collect::<Vec<_>>(), axis)?]);
    }
    let stretched = items.iter().map(|item| {
        let mut shape = item.shape.clone().ok_or(Stuck::Unknown)?;
        let axis = axis_of(axis, shape.len() + 1)?;
        shape.insert(axis, Some(1));
        Ok(Fact::new(item.data_type, shape))
    });
    let stretched = stretched.collect::<Result<Vec<_>, Stuck>>()?;
    Ok(vec![joined(&stretched.iter().collect::<Vec<_>>(), axis)?])
}
