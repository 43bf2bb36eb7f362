//! Elements of small tensors in, elements of results out: so that shapes which a model computes are known. O(elements).
//!
//! Only what exporters compute shapes with is here: a result that is missing is one whose elements are not known.

mod arithmetic;
mod movement;

use super::call::Call;
use super::fact::{Elements, Fact};

/// Returns the elements of the only result of a node, of which type and shape are known; `None` if they depend on more than is
/// known, or are too many.
pub(super) fn fold(call: &Call<'_>, result: &Fact) -> Option<Elements> {
    let shape = result.known_shape()?;
    let count = result.count().filter(|count| Elements::are_few(result.data_type, *count))?;
    if !call.node.domain.is_empty() {
        return None;
    }
    let op = call.node.op_type.as_str();
    let makes = matches!(op, "Shape" | "Size" | "SequenceLength" | "Constant");
    if count > 0
        && !makes
        && call.inputs.iter().flatten().any(|fact| fact.elements.is_none() && fact.count() != Some(0))
    {
        return None;
    }
    let elements = match op {
        // Nothing has only one form.
        _ if count == 0 && result.data_type.is_int() => Some(Elements::Ints(Vec::new())),
        _ if count == 0 => Some(Elements::Floats(Vec::new())),
        "Constant" => result.elements.clone(),
        "Shape" | "Size" | "SequenceLength" | "ConstantOfShape" | "Range" | "EyeLike" => movement::made(call, &shape),
        "Identity" | "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => call.input(0)?.elements.clone(),
        "Transpose" => movement::transpose(call),
        "Slice" => movement::slice(call),
        "Concat" => movement::concat(call, &shape),
        "Split" => None,
        "Gather" => movement::gather(call),
        "GatherND" | "GatherElements" => movement::gather_each(call, &shape),
        "Expand" | "Tile" => movement::stretch(call, &shape),
        "ScatterND" | "ScatterElements" => movement::scatter(call),
        "NonZero" => movement::nonzero(call),
        "Pad" => None,
        _ => arithmetic::fold(call, result, &shape),
    };
    elements.filter(|elements| elements.len() as u64 == count)
}

/// Returns the elements of each result of a split.
pub(super) fn fold_split(call: &Call<'_>, results: &[Fact]) -> Option<Vec<Elements>> {
    if call.node.op_type != "Split" || !call.node.domain.is_empty() {
        return None;
    }
    movement::split(call, results)
}
