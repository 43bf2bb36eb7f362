//! Elements that numbers choose, and tensors that numbers describe.

use super::layout::shape_of_input;
use crate::onnx::call::{Call, Facts, Stuck, axis_of, one, wrong};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::{Dim, Elements, Fact, count};

/// Returns slices of the first input, one for each number.
pub(super) fn gather(call: &Call<'_>) -> Facts {
    let (data, indices) = (call.dims(0)?, call.dims(1)?);
    let axis = axis_of(call.int_or("axis", 0), data.len())?;
    one(call.data_type(0), [&data[..axis], indices, &data[axis + 1..]].concat())
}

/// Returns an element for each number.
pub(super) fn gather_elements(call: &Call<'_>) -> Facts {
    one(call.data_type(0), call.dims(1)?.to_vec())
}

/// Returns a slice for each group of numbers.
pub(super) fn gather_nd(call: &Call<'_>) -> Facts {
    let (data, indices) = (call.dims(0)?, call.dims(1)?);
    let batch = usize::try_from(call.int_or("batch_dims", 0)).unwrap_or(usize::MAX);
    let Some((depth, groups)) = indices.split_last() else { return wrong("input 1: expected at least 1 dimension") };
    let depth = usize::try_from(depth.ok_or(Stuck::Unknown)?).unwrap_or(usize::MAX);
    match batch.checked_add(depth).and_then(|start| data.get(start..)) {
        Some(rest) => one(call.data_type(0), [groups, rest].concat()),
        None => wrong(format!("{depth} numbers for {} dimensions", data.len())),
    }
}

/// Returns a one among zeros for each number.
pub(super) fn one_hot(call: &Call<'_>) -> Facts {
    let mut shape = call.dims(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", -1), shape.len() + 1)?;
    let depth = match &call.fact(1)?.elements {
        Some(Elements::Ints(ints)) => ints.first().and_then(|depth| u64::try_from(*depth).ok()),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the operation does so")]
        Some(Elements::Floats(floats)) => floats.first().map(|depth| *depth as u64),
        None => None,
    };
    shape.insert(axis, depth);
    one(call.data_type(2), shape)
}

/// Returns the dimensions of the input as numbers.
pub(super) fn shape(call: &Call<'_>) -> Facts {
    let rank = call.dims(0)?.len();
    let (start, end) = shape_range(call, rank);
    one(DataType::INT64, vec![Some(end.saturating_sub(start) as u64)])
}

/// Returns which dimensions are asked for.
pub(crate) fn shape_range(call: &Call<'_>, rank: usize) -> (usize, usize) {
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let clamp = |it: i64| {
        let it = if it < 0 { it.saturating_add(signed) } else { it };
        usize::try_from(it.clamp(0, signed)).unwrap_or(0)
    };
    (clamp(call.int_or("start", 0)), clamp(call.int_or("end", i64::MAX)))
}

/// Returns the value that an attribute has, whatever its form.
pub(super) fn constant(call: &Call<'_>) -> Facts {
    if let Some(tensor) = call.tensor("value").or_else(|| call.tensor("sparse_value")) {
        return Ok(vec![Fact::of_tensor(tensor)]);
    }
    if let Some(int) = call.int("value_int") {
        return Ok(vec![Fact { elements: Some(Elements::Ints(vec![int])), ..Fact::known(DataType::INT64, &[]) }]);
    }
    if let Some(float) = call.float("value_float") {
        let elements = Some(Elements::Floats(vec![f64::from(float)]));
        return Ok(vec![Fact { elements, ..Fact::known(DataType::FLOAT, &[]) }]);
    }
    if let Some(ints) = call.ints("value_ints") {
        let fact = Fact::known(DataType::INT64, &[ints.len() as u64]);
        return Ok(vec![Fact { elements: Some(Elements::Ints(ints.to_vec())), ..fact }]);
    }
    if let Some(floats) = call.floats("value_floats") {
        let elements = Some(Elements::Floats(floats.iter().map(|it| f64::from(*it)).collect()));
        return Ok(vec![Fact { elements, ..Fact::known(DataType::FLOAT, &[floats.len() as u64]) }]);
    }
    match call.node.attributes.first().map(|attribute| attribute.name.as_str()) {
        Some("value_string") => Ok(vec![Fact::known(DataType::STRING, &[])]),
        Some("value_strings") => match call.attribute("value_strings") {
            Some(crate::onnx::model::AttributeValue::Texts(count)) => {
                Ok(vec![Fact::known(DataType::STRING, &[*count as u64])])
            }
            _ => wrong("the value is missing"),
        },
        _ => wrong("the value is missing"),
    }
}

/// Returns a tensor of a shape that is given, of one element over and over.
pub(super) fn constant_of_shape(call: &Call<'_>) -> Facts {
    let data_type = call.tensor("value").map_or(DataType::FLOAT, |tensor| tensor.data_type);
    one(data_type, shape_of_input(call, 0)?)
}

/// Returns random numbers in a shape that an attribute has.
pub(super) fn random(call: &Call<'_>) -> Facts {
    let Some(shape) = call.ints("shape") else { return wrong("the shape is missing") };
    let data_type = call.type_attribute("dtype").unwrap_or(DataType::FLOAT);
    one(data_type, shape.iter().map(|dim| u64::try_from(*dim).ok()).collect())
}

/// Returns as many samples as an attribute says for each row.
pub(super) fn samples(call: &Call<'_>) -> Facts {
    let rows = call.dims(0)?.first().copied().flatten();
    let count = u64::try_from(call.int_or("sample_size", 1)).ok();
    one(call.type_attribute("dtype").unwrap_or(DataType::INT32), vec![rows, count])
}

/// Returns how many numbers are between two, a step apart.
pub(super) fn range(call: &Call<'_>) -> Facts {
    let number = |slot: usize| Ok::<_, Stuck>(call.fact(slot)?.elements.as_ref());
    let (start, limit, step) = (number(0)?, number(1)?, number(2)?);
    let length = match (start, limit, step) {
        (Some(Elements::Ints(start)), Some(Elements::Ints(limit)), Some(Elements::Ints(step))) => {
            let first = |it: &[i64]| it.first().copied().map(i128::from);
            let (Some(start), Some(limit), Some(step)) = (first(start), first(limit), first(step)) else {
                return wrong("expected three numbers");
            };
            match step {
                0 => return wrong("a step of 0"),
                1.. => (limit - start + step - 1).div_euclid(step).max(0),
                _ => (start - limit - step - 1).div_euclid(-step).max(0),
            }
        }
        (Some(start), Some(limit), Some(step)) => {
            let (Some(start), Some(limit), Some(step)) = (start.float(0), limit.float(0), step.float(0)) else {
                return wrong("expected three numbers");
            };
            let count = ((limit - start) / step).ceil().max(0.0);
            #[allow(clippy::cast_possible_truncation, reason = "it is within the range")]
            if count.is_finite() && count < 1e15 { count as i128 } else { return wrong("a range without end") }
        }
        _ => return one(call.data_type(0), vec![None]),
    };
    one(call.data_type(0), vec![u64::try_from(length).ok()])
}

/// Returns where elements are that are not zero; how many depends on the data.
pub(super) fn nonzero(call: &Call<'_>) -> Facts {
    let fact = call.fact(0)?;
    let rank = fact.shape.as_ref().map(|shape| shape.len().max(1) as u64);
    let found = fact
        .elements
        .as_ref()
        .map(|elements| (0..elements.len()).filter(|at| elements.float(*at) != Some(0.0)).count() as u64);
    let found = found.or(if fact.count() == Some(0) { Some(0) } else { None });
    one(DataType::INT64, vec![rank, found])
}

/// Returns the elements that are chosen one by one; how many depends on the data.
pub(super) fn compress(call: &Call<'_>) -> Facts {
    let chosen = call
        .input(1)
        .and_then(|fact| fact.elements.as_ref()?.ints())
        .map(|ints| ints.iter().filter(|it| **it != 0).count() as u64);
    match call.int("axis") {
        None => one(call.data_type(0), vec![chosen]),
        Some(number) => {
            let mut shape = call.dims(0)?.to_vec();
            let axis = axis_of(number, shape.len())?;
            shape[axis] = chosen;
            one(call.data_type(0), shape)
        }
    }
}

/// Returns each element once, with where it is; how many there are depends on the data.
pub(super) fn unique(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let list = Fact::new(DataType::INT64, vec![None]);
    let (values, inverse) = match call.int("axis") {
        None => (vec![None], vec![count(dims)]),
        Some(number) => {
            let axis = axis_of(number, dims.len())?;
            let mut shape = dims.to_vec();
            let all = std::mem::take(&mut shape[axis]);
            (shape, vec![all])
        }
    };
    let inverse = Fact::new(DataType::INT64, inverse);
    Ok(vec![Fact::new(call.data_type(0), values), list.clone(), inverse, list])
}

/// Returns the boxes that are kept; how many depends on the data.
pub(super) fn non_max_suppression(_: &Call<'_>) -> Facts {
    one(DataType::INT64, vec![None, Some(3)])
}

/// Returns ones on a diagonal.
pub(super) fn eye_like(call: &Call<'_>) -> Facts {
    let data_type = call.type_attribute("dtype").unwrap_or_else(|| call.data_type(0));
    one(data_type, call.dims(0)?.to_vec())
}

/// Returns a window of a signal, as long as a number says.
pub(super) fn signal_window(call: &Call<'_>) -> Facts {
    let length = match call.int_element(0) {
        Ok(length) => u64::try_from(length).ok(),
        Err(Stuck::Unknown) => None,
        Err(wrong) => return Err(wrong),
    };
    one(call.type_attribute("output_datatype").unwrap_or(DataType::FLOAT), vec![length])
}

/// Returns weights from the bins of a spectrum to those of another.
pub(super) fn mel_weights(call: &Call<'_>) -> Facts {
    let bins = u64::try_from(call.int_element(0)?).ok();
    let length = u64::try_from(call.int_element(1)?).ok();
    let data_type = call.type_attribute("output_datatype").unwrap_or(DataType::FLOAT);
    one(data_type, vec![length.map(|length| length / 2 + 1), bins])
}

/// Returns how many tensors are in a list: no number yet, only one.
pub(super) fn single(data_type: DataType) -> Facts {
    one(data_type, Vec::<Dim>::new())
}
