//! Elements in another shape or order, or some of them.

use crate::onnx::call::{Call, Facts, Stuck, axis_of, one, plus, signed, times, wrong};
use crate::onnx::fact::{Dim, Fact, count};

/// Returns a number as a dimension.
pub(super) fn dim_of(number: i64, what: &str) -> Result<u64, Stuck> {
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
            return unknown_dims(call, Some(axis_count(call, 1)?));
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
    let all = input.and_then(count);
    match left {
        Some(left) => {
            let others: Vec<Dim> =
                shape.iter().enumerate().filter(|(axis, _)| *axis != left).map(|(_, dim)| *dim).collect();
            shape[left] = match (all, count(&others)) {
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
            if let (Some(all), Some(wanted_count)) = (all, count(&shape))
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
    let (all, others) = (count(&input)?, count(&others)?);
    if others > 0 && all % others == 0 { Some(all / others) } else { None }
}

/// Returns the input as a matrix.
pub(super) fn flatten(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let number = call.int_or("axis", 1);
    let axis = if usize::try_from(number) == Ok(dims.len()) { dims.len() } else { axis_of(number, dims.len())? };
    one(call.data_type(0), vec![count(&dims[..axis]), count(&dims[axis..])])
}

/// Returns how many axes an input names that is not known itself.
pub(super) fn axis_count(call: &Call<'_>, slot: usize) -> Result<usize, Stuck> {
    let count = call.fact(slot)?.count().and_then(|count| usize::try_from(count).ok());
    count.filter(|count| *count <= 64).ok_or(Stuck::Unknown)
}

/// Returns so many dimensions of which none is known.
pub(super) fn unknown_dims(call: &Call<'_>, rank: Option<usize>) -> Facts {
    one(call.data_type(0), vec![None; rank.ok_or(Stuck::Unknown)?])
}

/// Returns the input without dimensions of 1.
pub(super) fn squeeze(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let mut removed = vec![false; dims.len()];
    let axes = match call.attribute_or_input("axes", 1) {
        Err(Stuck::Unknown) => return unknown_dims(call, dims.len().checked_sub(axis_count(call, 1)?)),
        axes => axes?,
    };
    // No axes mean all of them.
    match axes.filter(|axes| !axes.is_empty()) {
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
    let axes = match call.attribute_or_input("axes", 1) {
        Err(Stuck::Unknown) => return unknown_dims(call, dims.len().checked_add(axis_count(call, 1)?)),
        axes => axes?,
    };
    let Some(axes) = axes else { return wrong("axes are missing") };
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
    let sizes = match call.attribute_or_input("split", 1) {
        Err(Stuck::Unknown) => return Ok(vec![part(None); results]),
        sizes => sizes?,
    };
    if let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) {
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
            // The standard's ends: a start before the first element is the first, an end before it is none.
            let start = start.clamp(0, (dim - 1).max(0));
            (start, if dim == 0 { 0 } else { start - end.clamp(-1, dim - 1) })
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
            let rank = shape.len();
            match call.attribute_or_input("axes", 3).ok().flatten() {
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
    let shape = shape_of_input(call, 1)?;
    let dims = call.dims(0)?;
    // Of a shape that is not known, a dimension of the input that is not 1 is.
    one(call.data_type(0), super::elementwise::broadcast([dims, &shape])?)
}

/// Returns a tensor of a shape that an input has the numbers of.
pub(super) fn shape_of_input(call: &Call<'_>, slot: usize) -> Result<Vec<Dim>, Stuck> {
    match call.int_elements(slot) {
        Ok(Some(shape)) => shape.iter().map(|dim| dim_of(*dim, "shape").map(Some)).collect(),
        Ok(None) => wrong("the shape is missing"),
        Err(Stuck::Unknown) => Ok(vec![None; axis_count(call, slot)?]),
        Err(wrong) => Err(wrong),
    }
}
