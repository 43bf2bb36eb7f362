//! Layers that are one operation: normalisations, attention, quantised ones, and those of classical models.

use super::elementwise::{broadcast, same, same_shape};
use super::{matrix, window};
use crate::onnx::call::{Call, Facts, Stuck, axis_of, one, plus, times, wrong};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::{Dim, Fact};

/// Returns a normalised input; while it is trained also its means and variances.
pub(super) fn batch_normalization(call: &Call<'_>) -> Facts {
    let data = call.fact(0)?.without_elements();
    let channels = call.input(3).map_or_else(Fact::default, Fact::without_elements);
    let mut facts = vec![data];
    facts.extend((0..4).map(|_| channels.clone()));
    Ok(facts)
}

/// Returns the sum of two inputs, normalised, with the mean and the deviation of each row and the sum itself.
pub(super) fn skip_layer_normalization(call: &Call<'_>) -> Facts {
    let mut facts = layer_normalization(call, 2)?;
    facts.push(call.fact(0)?.without_elements());
    Ok(facts)
}

/// Returns the input normalised from an axis on, with so many statistics of each row.
pub(super) fn layer_normalization(call: &Call<'_>, stats: usize) -> Facts {
    let data = call.fact(0)?.without_elements();
    let mut rows = data.clone();
    rows.data_type = DataType::FLOAT;
    if let Some(shape) = rows.shape.as_mut() {
        let axis = axis_of(call.int_or("axis", -1), shape.len())?;
        shape[axis..].iter_mut().for_each(|dim| *dim = Some(1));
    }
    let mut facts = vec![data];
    facts.extend((0..stats).map(|_| rows.clone()));
    Ok(facts)
}

/// Returns the result of an embedding of words, positions and segments, the lengths of what is masked, and the sum.
pub(super) fn embed_layer_normalization(call: &Call<'_>) -> Facts {
    let [batch, length] = call.dims(0)? else { return wrong("input 0: expected 2 dimensions") };
    let hidden = call.dims(2)?.last().copied().flatten();
    let data = Fact::new(call.data_type(2), vec![*batch, *length, hidden]);
    Ok(vec![data.clone(), Fact::new(DataType::INT32, vec![*batch]), data])
}

/// Returns the results of an attention whose projections are in it: the context and the keys and values so far.
pub(super) fn projected_attention(call: &Call<'_>, past_slot: usize) -> Facts {
    let [batch, length, _] = call.dims(0)? else { return wrong("input 0: expected 3 dimensions") };
    let sizes = call.ints("qkv_hidden_sizes").filter(|sizes| sizes.len() == 3);
    let all = call.dims(1)?.last().copied().flatten();
    let hidden = match sizes {
        Some(sizes) => u64::try_from(sizes[2]).ok(),
        None => all.map(|all| all / 3),
    };
    let heads = u64::try_from(call.int_or("num_heads", 0)).ok().filter(|heads| *heads > 0);
    let past = call.input(past_slot).and_then(|past| past.shape.as_ref()?.get(3).copied()).unwrap_or(Some(0));
    let head = hidden.and_then(|hidden| hidden.checked_div(heads?));
    let data_type = if call.node.op_type == "QAttention" { call.data_type(3) } else { call.data_type(0) };
    let present = vec![Some(2), *batch, heads, plus(past, *length), head];
    Ok(vec![Fact::new(data_type, vec![*batch, *length, hidden]), Fact::new(data_type, present)])
}

/// Returns the results of an attention over queries, keys and values: the context, the keys and the values so far. `past` is the
/// input with the keys of before, that of the values is next to it.
pub(super) fn attention(call: &Call<'_>, past: usize, heads: [&str; 2]) -> Facts {
    let query = call.dims(0)?;
    let data_type = call.data_type(0);
    let past_length = call.input(past).and_then(|past| past.shape.as_ref()?.get(2).copied());
    let number = |name: &str| call.int(name).and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0);
    let query_heads = number(heads[0]);
    let kv_heads = number(heads[1]).or(query_heads);
    let mut facts = match *query {
        // With a dimension of its own for heads.
        [batch, heads, length, depth] => {
            let (key, value) = (call.dims(1)?, call.dims(2)?);
            let at = |dims: &[Dim], axis: usize| dims.get(axis).copied().flatten();
            let total = plus(past_length.unwrap_or(Some(0)), at(key, 2));
            let context = vec![batch, heads, length, at(value, 3).or(depth)];
            vec![
                Fact::new(data_type, context),
                Fact::new(data_type, vec![batch, at(key, 1), total, at(key, 3)]),
                Fact::new(data_type, vec![batch, at(value, 1), total, at(value, 3)]),
            ]
        }
        [batch, length, width] => {
            let packed = call.input(1).is_none();
            // Queries, keys and values are in one tensor: as many parts as there are heads.
            let parts = query_heads.zip(kv_heads).and_then(|(query, kv)| query.checked_add(kv.checked_mul(2)?));
            let head = if packed {
                width.and_then(|it| it.checked_div(parts?))
            } else {
                width.and_then(|it| it.checked_div(query_heads?))
            };
            let value = call.input(2).and_then(|fact| fact.shape.as_deref());
            let value_width = match value {
                Some([_, _, width]) => *width,
                Some([_, heads, _, depth]) => times(*heads, *depth),
                _ => times(kv_heads, head),
            };
            let value_head = value_width.and_then(|it| it.checked_div(kv_heads?)).or(head);
            let new = match call.input(1).and_then(|fact| fact.shape.as_deref()) {
                Some([_, length, _]) => *length,
                Some([_, _, length, _]) => *length,
                _ => length,
            };
            let total = plus(past_length.unwrap_or(Some(0)), new);
            let present = |depth: Dim| Fact::new(data_type, vec![batch, kv_heads, total, depth]);
            let context = vec![batch, length, times(query_heads, value_head)];
            vec![Fact::new(data_type, context), present(head), present(value_head)]
        }
        // Queries, keys and values in one tensor, beside each other: batch, length, heads, 3, depth.
        [batch, length, heads, Some(3), depth] => {
            let present = Fact::new(data_type, vec![batch, heads, plus(past_length.unwrap_or(Some(0)), length), depth]);
            vec![Fact::new(data_type, vec![batch, length, times(heads, depth)]), present.clone(), present]
        }
        _ => return wrong(format!("input 0: expected 3 to 5 dimensions, got {}", query.len())),
    };
    // What is kept is written over what was kept before, if that has room for the longest.
    if call.node.op_type == "GroupQueryAttention" {
        for (slot, fact) in [(past, 1), (past + 1, 2)] {
            let (Some(old), Some(new)) =
                (call.input(slot).and_then(|it| it.shape.as_ref()?.get(2).copied().flatten()), facts.get_mut(fact))
            else {
                continue;
            };
            let total = call.input(past + 3).and_then(|it| it.elements.as_ref()?.ints()?.first().copied());
            let length = total.and_then(|it| u64::try_from(it).ok()).map(|total| old.max(total));
            if let (Some(dim), Some(length)) = (new.shape.as_mut().and_then(|it| it.get_mut(2)), length) {
                *dim = Some(length);
            }
        }
    }
    // The standard's own attention also returns the scores.
    if call.node.domain.is_empty() {
        let shape = |index: usize| facts[index].shape.clone().unwrap_or_default();
        let (context, keys) = (shape(0), shape(1));
        let length = if query.len() == 4 { query[2] } else { query[1] };
        let heads = if query.len() == 4 { query[1] } else { query_heads };
        let scores = vec![context.first().copied().flatten(), heads, length, keys.get(2).copied().flatten()];
        facts.push(Fact::new(data_type, scores));
    }
    Ok(facts)
}

/// Returns the results of an attention whose memory is a matrix for each head: the context, and the matrices.
pub(super) fn linear_attention(call: &Call<'_>) -> Facts {
    let [batch, length, _] = call.dims(0)? else { return wrong("input 0: expected 3 dimensions") };
    let width = |slot: usize| Ok::<_, Stuck>(call.dims(slot)?.last().copied().flatten());
    let number = |name: &str| call.int(name).and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0);
    let (query_heads, heads) = (number("q_num_heads"), number("kv_num_heads"));
    let head = |width: Dim| width.and_then(|width| width.checked_div(heads?));
    let (of_keys, of_values) = (head(width(1)?), head(width(2)?));
    let context = Fact::new(call.data_type(0), vec![*batch, *length, times(query_heads, of_values)]);
    let data_type = if call.input(3).is_some() { call.data_type(3) } else { call.data_type(0) };
    Ok(vec![context, Fact::new(data_type, vec![*batch, heads, of_keys, of_values])])
}

/// Returns a score for each row and target, of the type of the input.
pub(super) fn trees(call: &Call<'_>) -> Facts {
    one(call.data_type(0), vec![rows(call)?, u64::try_from(call.int_or("n_targets", 1)).ok()])
}

/// Returns the input as small numbers, of the type of the zero point.
pub(super) fn quantize(call: &Call<'_>) -> Facts {
    let named = call.type_attribute("output_dtype").filter(|it| it.is_known());
    let of_zero = call.input(2).map(|zero| zero.data_type);
    same_shape(call, of_zero.or(named).unwrap_or(DataType::UINT8))
}

/// Returns small numbers as numbers of the type of the scale.
pub(super) fn dequantize(call: &Call<'_>) -> Facts {
    let named = call.type_attribute("output_dtype").filter(|it| it.is_known());
    same_shape(call, named.unwrap_or_else(|| call.data_type(1)))
}

/// Returns the input as small numbers, with the scale and zero point that fit it.
pub(super) fn dynamic_quantize(call: &Call<'_>) -> Facts {
    let data = Fact { data_type: DataType::UINT8, ..call.fact(0)?.without_elements() };
    Ok(vec![data, Fact::known(DataType::FLOAT, &[]), Fact::known(DataType::UINT8, &[])])
}

/// Returns an operation of two quantised inputs: each has its scale and zero point behind it.
pub(super) fn quantized_binary(call: &Call<'_>) -> Facts {
    one(call.data_type(0), broadcast([call.dims(0)?, call.dims(3)?])?)
}

/// Returns a choice between two quantised inputs.
pub(super) fn quantized_choice(call: &Call<'_>) -> Facts {
    one(call.data_type(1), broadcast([call.dims(0)?, call.dims(1)?, call.dims(4)?])?)
}

/// Returns quantised inputs one behind the other; first come scale and zero point of the result.
pub(super) fn quantized_concat(call: &Call<'_>) -> Facts {
    let facts = (2..call.inputs.len()).step_by(3).map(|slot| call.fact(slot)).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![super::layout::joined(&facts, call.int_or("axis", 0))?])
}

/// Returns a quantised convolution.
pub(super) fn quantized_convolution(call: &Call<'_>) -> Facts {
    let data_type = call.data_type(7);
    match call.is_set("channels_last") {
        true => window::convolution_channels_last(call, 3, data_type),
        false => window::convolution(call, 3, data_type),
    }
}

/// Returns the parts of the inputs that classical models score: rows and columns.
fn rows(call: &Call<'_>) -> Result<Dim, Stuck> {
    match call.dims(0)? {
        [rows, _, ..] => Ok(*rows),
        _ => Ok(Some(1)),
    }
}

/// Returns the class of each row, and a score for each class.
pub(super) fn classifier(call: &Call<'_>) -> Facts {
    let rows = rows(call)?;
    let ints =
        ["classlabels_int64s", "classlabels_ints"].iter().find_map(|name| call.ints(name)).filter(|it| !it.is_empty());
    let texts = |name: &&str| match call.attribute(name) {
        Some(crate::onnx::model::AttributeValue::Texts(count)) => Some(*count),
        _ => None,
    };
    let (data_type, classes) = match (ints, ["classlabels_strings"].iter().find_map(texts)) {
        (Some(ints), _) => (DataType::INT64, ints.len()),
        (None, Some(count)) => (DataType::STRING, count),
        _ => return Err(Stuck::Unknown),
    };
    Ok(vec![Fact::new(data_type, vec![rows]), Fact::new(DataType::FLOAT, vec![rows, Some(classes as u64)])])
}

/// Returns a score for each row and target.
pub(super) fn regressor(call: &Call<'_>) -> Facts {
    let targets = ["n_targets", "targets"].iter().find_map(|name| call.int(name)).unwrap_or(1);
    one(DataType::FLOAT, vec![rows(call)?, u64::try_from(targets).ok()])
}

/// Returns scores with their names: of each row, a map from names to numbers. The numbers are counted.
pub(super) fn named_scores(call: &Call<'_>) -> Facts {
    same(call)
}

/// Returns columns of the input.
pub(super) fn chosen_columns(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let count = call.fact(1)?.count();
    match dims {
        [] | [_] => one(call.data_type(0), vec![Some(1), count]),
        [lead @ .., _] => one(call.data_type(0), [lead, &[count]].concat()),
    }
}

/// Returns columns of all inputs beside each other.
pub(super) fn joined_columns(call: &Call<'_>) -> Facts {
    let widths = (0..call.inputs.len()).map(|slot| Ok(call.dims(slot)?.last().copied().flatten()));
    let widths = widths.collect::<Result<Vec<Dim>, Stuck>>()?;
    one(DataType::FLOAT, vec![rows(call)?, widths.into_iter().fold(Some(0), plus)])
}

/// Returns a column for each category.
pub(super) fn categories(call: &Call<'_>) -> Facts {
    let count = match (call.ints("cats_int64s"), call.attribute("cats_strings")) {
        (Some(ints), _) if !ints.is_empty() => ints.len(),
        (_, Some(crate::onnx::model::AttributeValue::Texts(count))) => *count,
        _ => return Err(Stuck::Unknown),
    };
    one(DataType::FLOAT, [call.dims(0)?, &[Some(count as u64)]].concat())
}

/// Returns labels as others: the type is that of the lists of values.
pub(super) fn labels(call: &Call<'_>) -> Facts {
    let data_type = if call.attribute("values_int64s").is_some() {
        DataType::INT64
    } else if call.attribute("values_floats").is_some() {
        DataType::FLOAT
    } else if let Some(tensor) = call.tensor("values_tensor") {
        tensor.data_type
    } else if call.attribute("values_strings").is_some() || call.data_type(0) == DataType::INT64 {
        DataType::STRING
    } else {
        DataType::INT64
    };
    same_shape(call, data_type)
}

/// Returns counts of words.
pub(super) fn word_counts(call: &Call<'_>) -> Facts {
    let Some(indexes) = call.ints("ngram_indexes") else { return wrong("ngram_indexes are missing") };
    let width = indexes.iter().max().and_then(|it| u64::try_from(*it).ok()).map_or(Some(0), |it| it.checked_add(1));
    match call.dims(0)? {
        [rows, _] => one(DataType::FLOAT, vec![*rows, width]),
        _ => one(DataType::FLOAT, vec![width]),
    }
}

/// Returns the loss of a prediction.
pub(super) fn loss(call: &Call<'_>) -> Facts {
    let scores = call.fact(0)?.without_elements();
    let data_type = scores.data_type;
    let loss = match call.text("reduction") {
        "none" => Fact::new(data_type, call.dims(1)?.to_vec()),
        _ => Fact::known(data_type, &[]),
    };
    Ok(vec![loss, scores])
}

/// Returns a product with a matrix that is quantised as the product is computed.
pub(super) fn dynamic_quantize_matmul(call: &Call<'_>) -> Facts {
    matrix::matmul(call, [0, 1], DataType::FLOAT)
}

/// Returns rows of a table whose numbers are packed.
pub(super) fn gather_packed(call: &Call<'_>) -> Facts {
    let (data, indices) = (call.dims(0)?, call.dims(1)?);
    let axis = axis_of(call.int_or("gather_axis", 0), data.len())?;
    let mut shape = [&data[..axis], indices, &data[axis + 1..]].concat();
    // Of bytes, each has as many elements as fit into it.
    let bits = u64::try_from(call.int_or("bits", 4)).ok().filter(|bits| (1..=8).contains(bits)).unwrap_or(4);
    if call.data_type(0) == DataType::UINT8
        && let Some(last) = shape.last_mut()
    {
        *last = times(*last, Some(8 / bits));
    }
    one(call.data_type(2), shape)
}
