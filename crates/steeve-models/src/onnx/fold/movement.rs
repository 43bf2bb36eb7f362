//! Elements that are moved, repeated or chosen, and elements that a shape has.

use crate::onnx::call::{Call, axis_of};
use crate::onnx::fact::{Elements, Fact, ListFact};
use crate::onnx::shapes::gather::shape_range;
use crate::onnx::shapes::layout::{permutation, slice_ranges};

/// Returns how many elements lie between neighbours along each axis.
pub(super) fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = u64::saturating_mul(strides[axis], shape[axis].max(1));
    }
    strides
}

/// Returns how many elements a shape has, at most as many as can be counted.
pub(super) fn product(shape: &[u64]) -> u64 {
    if shape.contains(&0) { 0 } else { shape.iter().copied().fold(1, u64::saturating_mul) }
}

/// Returns where an element of a shape is among elements that are so many steps apart along each axis.
pub(super) fn position(at: u64, shape: &[u64], steps: &[u64]) -> usize {
    let (mut rest, mut found) = (at, 0u64);
    for (dim, step) in shape.iter().zip(steps).rev() {
        let dim = (*dim).max(1);
        found = found.saturating_add((rest % dim).saturating_mul(*step));
        rest /= dim;
    }
    usize::try_from(found).unwrap_or(usize::MAX)
}

/// Returns elements that are made of shapes and numbers.
pub(super) fn made(call: &Call<'_>, shape: &[u64]) -> Option<Elements> {
    let count = usize::try_from(product(shape)).ok()?;
    let int = |number: u64| i64::try_from(number).ok();
    match call.node.op_type.as_str() {
        "Shape" => {
            let dims = call.input(0)?.shape.as_ref()?;
            let (start, end) = shape_range(call, dims.len());
            let asked = dims.get(start..end.max(start))?;
            asked.iter().map(|dim| int((*dim)?)).collect::<Option<_>>().map(Elements::Ints)
        }
        "Size" => Some(Elements::Ints(vec![int(call.input(0)?.count()?)?])),
        "SequenceLength" => match call.input(0)?.list.as_ref()? {
            ListFact::Items(items) => Some(Elements::Ints(vec![int(items.len() as u64)?])),
            ListFact::Unknown => None,
        },
        "ConstantOfShape" => match call.tensor("value") {
            None => Some(Elements::Floats(vec![0.0; count])),
            Some(tensor) => match tensor.elements.as_ref()? {
                Elements::Ints(ints) => Some(Elements::Ints(vec![*ints.first()?; count])),
                Elements::Floats(floats) => Some(Elements::Floats(vec![*floats.first()?; count])),
            },
        },
        "Range" => match (call.input(0)?.elements.as_ref()?, call.input(2)?.elements.as_ref()?) {
            (Elements::Ints(start), Elements::Ints(step)) => {
                let (start, step) = (*start.first()?, *step.first()?);
                let number = |at: usize| Some(start.wrapping_add(step.wrapping_mul(int(at as u64)?)));
                (0..count).map(number).collect::<Option<_>>().map(Elements::Ints)
            }
            (Elements::Floats(start), Elements::Floats(step)) => {
                let (start, step) = (*start.first()?, *step.first()?);
                #[allow(clippy::cast_precision_loss, reason = "the operation computes so")]
                Some(Elements::Floats((0..count).map(|at| start + step * at as f64).collect()))
            }
            _ => None,
        },
        // A diagonal of a few numbers: nothing computes a shape from it.
        _ => None,
    }
}

pub(super) fn transpose(call: &Call<'_>) -> Option<Elements> {
    let source = call.input(0)?;
    let shape = source.known_shape()?;
    let order = permutation(call, shape.len()).ok()?;
    let own = strides(&shape);
    let turned: Vec<u64> = order.iter().map(|axis| shape[*axis]).collect();
    let steps: Vec<u64> = order.iter().map(|axis| own[*axis]).collect();
    let count = product(&shape);
    source.elements.as_ref()?.pick((0..count).map(|at| position(at, &turned, &steps)))
}

pub(super) fn slice(call: &Call<'_>) -> Option<Elements> {
    let source = call.input(0)?;
    let shape = source.known_shape()?;
    let mut starts = vec![0i128; shape.len()];
    let mut counts = shape.clone();
    let mut by = vec![1i128; shape.len()];
    for range in slice_ranges(call, shape.len()).ok()? {
        let (start, count) = range.of(shape[range.axis]);
        starts[range.axis] = start;
        counts[range.axis] = count;
        by[range.axis] = i128::from(range.step);
    }
    let own = strides(&shape);
    let count = product(&counts);
    let place = |at: u64| {
        let (mut rest, mut found) = (at, 0i128);
        for axis in (0..counts.len()).rev() {
            let index = i128::from(rest % counts[axis].max(1));
            rest /= counts[axis].max(1);
            found += (starts[axis] + index * by[axis]) * i128::from(own[axis]);
        }
        usize::try_from(found).unwrap_or(usize::MAX)
    };
    source.elements.as_ref()?.pick((0..count).map(place))
}

pub(super) fn concat(call: &Call<'_>, shape: &[u64]) -> Option<Elements> {
    let axis = axis_of(call.int_or("axis", if call.version < 4 { 1 } else { 0 }), shape.len()).ok()?;
    let lines = product(&shape[..axis]);
    let (mut ints, mut floats) = (Vec::new(), Vec::new());
    for line in 0..usize::try_from(lines).ok()? {
        for fact in &call.inputs {
            let fact = (*fact)?;
            let own = fact.known_shape()?;
            let length = usize::try_from(product(own.get(axis..)?)).ok()?;
            let range = line.checked_mul(length)?..line.checked_add(1)?.checked_mul(length)?;
            match fact.elements.as_ref() {
                Some(Elements::Ints(all)) => ints.extend_from_slice(all.get(range)?),
                Some(Elements::Floats(all)) => floats.extend_from_slice(all.get(range)?),
                None if length == 0 => {}
                None => return None,
            }
        }
    }
    match (ints.is_empty(), floats.is_empty()) {
        (_, true) => Some(Elements::Ints(ints)),
        (true, false) => Some(Elements::Floats(floats)),
        (false, false) => None,
    }
}

pub(super) fn split(call: &Call<'_>, results: &[Fact]) -> Option<Vec<Elements>> {
    let source = call.input(0)?;
    let (shape, elements) = (source.known_shape()?, source.elements.as_ref()?);
    let axis = axis_of(call.int_or("axis", 0), shape.len()).ok()?;
    let own = strides(&shape);
    let mut start = 0;
    let mut parts = Vec::with_capacity(results.len());
    for result in results {
        let part = result.known_shape()?;
        let count = product(&part);
        let base = usize::try_from(u64::checked_mul(start, *own.get(axis)?)?).ok()?;
        parts.push(elements.pick((0..count).map(|at| base.saturating_add(position(at, &part, &own))))?);
        start = start.checked_add(*part.get(axis)?)?;
    }
    Some(parts)
}

/// Returns an index that counts from the end if it is negative.
fn index_of(index: i64, dim: u64) -> Option<u64> {
    let dim = i64::try_from(dim).ok()?;
    let index = if index < 0 { index + dim } else { index };
    u64::try_from(index).ok().filter(|_| index < dim)
}

/// Returns where the slice is that a group of indices, one for each of the first axes, chooses.
fn place_of(group: &[i64], shape: &[u64], strides: &[u64]) -> Option<u64> {
    group.iter().enumerate().try_fold(0u64, |place, (axis, index)| {
        place.checked_add(index_of(*index, *shape.get(axis)?)?.checked_mul(*strides.get(axis)?)?)
    })
}

pub(super) fn gather(call: &Call<'_>) -> Option<Elements> {
    let source = call.input(0)?;
    let shape = source.known_shape()?;
    let axis = axis_of(call.int_or("axis", 0), shape.len()).ok()?;
    let indices = call.input(1)?.elements.as_ref()?.ints()?;
    let inner = product(&shape[axis + 1..]);
    let outer = product(&shape[..axis]);
    let mut places = Vec::new();
    for line in 0..outer {
        for index in indices {
            let row = line.checked_mul(shape[axis])?.checked_add(index_of(*index, shape[axis])?)?;
            let start = row.checked_mul(inner)?;
            places.extend((start..start.checked_add(inner)?).map(|at| usize::try_from(at).unwrap_or(usize::MAX)));
        }
    }
    source.elements.as_ref()?.pick(places.into_iter())
}

/// Returns an element, or a slice, for each group of indices.
pub(super) fn gather_each(call: &Call<'_>, shape: &[u64]) -> Option<Elements> {
    let (source, indices) = (call.input(0)?, call.input(1)?);
    let (data, elements) = (source.known_shape()?, source.elements.as_ref()?);
    let (groups, numbers) = (indices.known_shape()?, indices.elements.as_ref()?.ints()?);
    let own = strides(&data);
    if call.node.op_type == "GatherElements" {
        let axis = axis_of(call.int_or("axis", 0), data.len()).ok()?;
        let mut steps = own.clone();
        steps[axis] = 0;
        let place = |at: usize| {
            let index = index_of(*numbers.get(at)?, data[axis])?;
            usize::try_from(index.checked_mul(own[axis])?).ok()?.checked_add(position(at as u64, shape, &steps))
        };
        let places = (0..numbers.len()).map(place).collect::<Option<Vec<_>>>()?;
        return elements.pick(places.into_iter());
    }
    let depth = usize::try_from(*groups.last()?).ok().filter(|depth| *depth > 0 && !call.is_set("batch_dims"))?;
    let length = product(data.get(depth..)?);
    let mut places = Vec::new();
    for group in numbers.chunks(depth) {
        let start = place_of(group, &data, &own)?;
        places.extend((start..start.checked_add(length)?).map(|at| usize::try_from(at).unwrap_or(usize::MAX)));
    }
    elements.pick(places.into_iter())
}

/// Returns the input stretched or repeated to a shape.
pub(super) fn stretch(call: &Call<'_>, shape: &[u64]) -> Option<Elements> {
    if call.node.op_type == "Expand" {
        return super::arithmetic::broadcast(call, 0, shape);
    }
    let source = call.input(0)?;
    let own = source.known_shape()?;
    let strides = strides(&own);
    let place = |at: u64| {
        let (mut rest, mut found) = (at, 0);
        for axis in (0..shape.len()).rev() {
            found += rest % shape[axis].max(1) % own[axis].max(1) * strides[axis];
            rest /= shape[axis].max(1);
        }
        usize::try_from(found).unwrap_or(usize::MAX)
    };
    let count = product(shape);
    if own.len() == shape.len() { source.elements.as_ref()?.pick((0..count).map(place)) } else { None }
}

/// Returns the first input with some elements replaced.
pub(super) fn scatter(call: &Call<'_>) -> Option<Elements> {
    let (source, indices, updates) = (call.input(0)?, call.input(1)?, call.input(2)?);
    if !matches!(call.text("reduction"), "" | "none") {
        return None;
    }
    let (data, groups) = (source.known_shape()?, indices.known_shape()?);
    let (numbers, own) = (indices.elements.as_ref()?.ints()?, strides(&data));
    let updates = updates.elements.as_ref()?;
    let mut targets = Vec::with_capacity(updates.len());
    if call.node.op_type == "ScatterElements" {
        let axis = axis_of(call.int_or("axis", 0), data.len()).ok()?;
        if numbers.len() != updates.len() || groups.len() != data.len() {
            return None;
        }
        let mut steps = own.clone();
        steps[axis] = 0;
        for (at, index) in numbers.iter().enumerate() {
            let start = usize::try_from(index_of(*index, data[axis])?.checked_mul(own[axis])?).ok()?;
            targets.push(start.checked_add(position(at as u64, &groups, &steps))?);
        }
    } else {
        let depth = usize::try_from(*groups.last()?).ok().filter(|depth| *depth > 0)?;
        let length = product(data.get(depth..)?);
        // As many targets as updates: the indices alone could name far more.
        if ((numbers.len() / depth) as u64).checked_mul(length) != Some(updates.len() as u64) {
            return None;
        }
        for group in numbers.chunks(depth) {
            let start = place_of(group, &data, &own)?;
            targets.extend((start..start.checked_add(length)?).map(|at| usize::try_from(at).unwrap_or(usize::MAX)));
        }
    }
    match (source.elements.clone()?, updates) {
        (Elements::Ints(mut all), Elements::Ints(new)) => {
            for (at, new) in targets.into_iter().zip(new) {
                *all.get_mut(at)? = *new;
            }
            Some(Elements::Ints(all))
        }
        (Elements::Floats(mut all), Elements::Floats(new)) => {
            for (at, new) in targets.into_iter().zip(new) {
                *all.get_mut(at)? = *new;
            }
            Some(Elements::Floats(all))
        }
        _ => None,
    }
}

/// Returns the indices of elements that are not zero, axis by axis.
pub(super) fn nonzero(call: &Call<'_>) -> Option<Elements> {
    let source = call.input(0)?;
    let (shape, elements) = (source.known_shape()?, source.elements.as_ref()?);
    let found: Vec<u64> =
        (0..elements.len()).filter(|at| elements.float(*at) != Some(0.0)).map(|at| at as u64).collect();
    let own = strides(&shape);
    let along = |axis: usize| found.iter().map(move |at| (axis, *at));
    let places = (0..shape.len()).flat_map(along);
    let index = |(axis, at): (usize, u64)| i64::try_from(at / own[axis] % shape[axis].max(1)).ok();
    match shape.is_empty() {
        true => Some(Elements::Ints(vec![0; found.len()])),
        false => places.map(index).collect::<Option<_>>().map(Elements::Ints),
    }
}
