//! Lists of tensors: made, taken apart, and joined.

use super::layout::{dim_of, joined};
use crate::onnx::call::{Call, Facts, Stuck, axis_of, wrong};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::{Fact, ListFact};

/// Returns a list of the inputs.
pub(super) fn list_of(call: &Call<'_>) -> Facts {
    let items = call.inputs.iter().flatten().map(|fact| tensor(fact)).collect::<Result<Vec<Fact>, Stuck>>()?;
    let of_empty = call.type_attribute("dtype").unwrap_or(DataType::FLOAT);
    list(items.first().map_or(of_empty, |item| item.data_type), items)
}

/// Returns the list of the first input, and the number of an item in it or behind it that an input says.
fn list_place<'a>(call: &Call<'a>, slot: usize, behind: usize) -> Result<(&'a [Fact], usize), Stuck> {
    let Some(ListFact::Items(items)) = &call.fact(0)?.list else { return Err(Stuck::Unknown) };
    let places = items.len() + behind;
    match call.input(slot) {
        Some(_) => Ok((items, axis_of(call.int_element(slot)?, places)?)),
        None if places > 0 => Ok((items, places - 1)),
        None => wrong("expected a list with at least 1 tensor, got 0"),
    }
}

/// Returns what a list keeps of a tensor. There are no lists of lists.
fn tensor(fact: &Fact) -> Result<Fact, Stuck> {
    if fact.list.is_some() { wrong("expected tensors, got a list") } else { Ok(fact.without_elements()) }
}

fn list(data_type: DataType, items: Vec<Fact>) -> Facts {
    Ok(vec![Fact { list: Some(ListFact::Items(items)), ..Fact::of_type(data_type) }])
}

/// Returns the list of the first input with one tensor more.
pub(super) fn longer_list(call: &Call<'_>) -> Facts {
    let (items, at) = list_place(call, 2, 1)?;
    let new = tensor(call.fact(1)?)?;
    list(new.data_type, [&items[..at], &[new], &items[at..]].concat())
}

/// Returns the list of the first input with one tensor fewer.
pub(super) fn shorter_list(call: &Call<'_>) -> Facts {
    let (items, at) = list_place(call, 1, 0)?;
    list(call.data_type(0), [&items[..at], &items[at + 1..]].concat())
}

/// Returns a tensor of a list.
pub(super) fn list_item(call: &Call<'_>) -> Facts {
    let Some(ListFact::Items(items)) = &call.fact(0)?.list else { return Err(Stuck::Unknown) };
    match call.int_element(1) {
        Ok(number) => Ok(vec![items[axis_of(number, items.len())?].clone()]),
        // Whichever it is, if all are alike.
        Err(Stuck::Unknown) => match items.split_first() {
            Some((first, rest)) if rest.iter().all(|item| item == first) => Ok(vec![first.clone()]),
            _ => Err(Stuck::Unknown),
        },
        Err(wrong) => Err(wrong),
    }
}

/// Returns a list of parts of the input.
pub(super) fn split_to_list(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let data_type = call.data_type(0);
    let axis = axis_of(call.int_or("axis", 0), dims.len())?;
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
                Some(all) => list(data_type, vec![item; all]),
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
    list(data_type, sizes.into_iter().map(part).collect())
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
