//! Results whose elements each come from the elements at the same position of the inputs.

use crate::onnx::call::{Call, Facts, Stuck, one, wrong};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::{Dim, Fact};
use crate::onnx::model::AttributeValue;

/// Returns the shape that shapes are stretched to, from the last dimension on.
pub(crate) fn broadcast<'a>(shapes: impl IntoIterator<Item = &'a [Dim]>) -> Result<Vec<Dim>, Stuck> {
    let mut result: Vec<Dim> = Vec::new();
    for shape in shapes {
        if shape.len() > result.len() {
            let new = shape.len() - result.len();
            result.splice(0..0, std::iter::repeat_n(Some(1), new));
        }
        let start = result.len() - shape.len();
        for (axis, dim) in shape.iter().enumerate() {
            let known = &mut result[start + axis];
            *known = match (*known, *dim) {
                (Some(1), other) | (other, Some(1)) => other,
                (Some(a), Some(b)) if a != b => {
                    return wrong(format!(
                        "shapes can't be broadcast: expected dimensions that are equal or 1, got {a} and {b}"
                    ));
                }
                (Some(a), _) => Some(a),
                (None, other) => other,
            };
        }
    }
    Ok(result)
}

/// Returns the first input's type and shape.
pub(super) fn same(call: &Call<'_>) -> Facts {
    Ok(vec![call.fact(0)?.without_elements()])
}

/// Returns the first input's shape with another type.
pub(super) fn same_shape(call: &Call<'_>, data_type: DataType) -> Facts {
    Ok(vec![Fact { data_type, list: None, ..call.fact(0)?.without_elements() }])
}

fn broadcast_inputs(call: &Call<'_>, slots: std::ops::Range<usize>) -> Result<Vec<Dim>, Stuck> {
    let shapes = slots.map(|slot| call.dims(slot)).collect::<Result<Vec<_>, _>>()?;
    broadcast(shapes)
}

/// Returns all inputs broadcast, with this type.
pub(super) fn broadcast_all(call: &Call<'_>, data_type: DataType) -> Facts {
    one(data_type, broadcast_inputs(call, 0..call.inputs.len())?)
}

/// Returns two inputs broadcast. Before version 7, the second one was always stretched to the first.
pub(super) fn binary(call: &Call<'_>, data_type: DataType) -> Facts {
    if call.node.domain.is_empty() && call.version < 7 {
        return same_shape(call, data_type);
    }
    one(data_type, broadcast_inputs(call, 0..2)?)
}

/// Returns a choice between the second and the third input.
pub(super) fn choice(call: &Call<'_>) -> Facts {
    one(call.data_type(1), broadcast_inputs(call, 0..3)?)
}

/// Returns a type that an attribute names, or else that of the first input.
pub(super) fn type_or_first(call: &Call<'_>, name: &str) -> DataType {
    call.type_attribute(name).filter(|data_type| data_type.is_known()).unwrap_or_else(|| call.data_type(0))
}

/// Returns several results like the first input: that of dropping, with the mask. Before version 10 the mask was made of numbers.
pub(super) fn dropout(call: &Call<'_>) -> Facts {
    let data = call.fact(0)?.without_elements();
    let is_number = call.node.domain.is_empty() && call.version < 10;
    let mask = Fact { data_type: if is_number { data.data_type } else { DataType::BOOL }, ..data.clone() };
    Ok(vec![data, mask])
}

/// Returns the input without the words that are left out: how many are left depends on the data.
pub(super) fn normalized_words(call: &Call<'_>) -> Facts {
    let mut fact = call.fact(0)?.without_elements();
    let drops = matches!(call.attribute("stopwords"), Some(AttributeValue::Texts(1..)));
    if let Some(last) = fact.shape.as_mut().and_then(|shape| shape.last_mut()).filter(|_| drops) {
        *last = None;
    }
    Ok(vec![fact])
}

/// Returns the parts of each text, and how many each has: the most depends on the data.
pub(super) fn text_parts(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    Ok(vec![Fact::new(DataType::STRING, [dims, &[None]].concat()), Fact::new(DataType::INT64, dims.to_vec())])
}
