//! A node as the rules of its operation see it: what is known of its inputs, and its attributes.

use std::collections::BTreeMap;

use super::data_type::DataType;
use super::fact::{Dim, Fact};
use super::model::{AttributeValue, Node, Tensor};

/// Why a rule has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// Something that it depends on is not known.
    Unknown,
    /// The node is wrong: what is expected, what is there.
    Wrong(String),
}

/// What a rule says of the results of a node.
pub(crate) type Facts = Result<Vec<Fact>, Stuck>;

/// The attributes of a call of a function, for the nodes in it.
pub(crate) type CallAttributes<'m> = BTreeMap<&'m str, &'m AttributeValue>;

/// A node with what is known of its inputs.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) node: &'a Node,
    /// The version of the set of operations.
    pub(crate) version: i64,
    /// `None` for what is left out.
    pub(crate) inputs: Vec<Option<&'a Fact>>,
    /// The attributes of the function around the node.
    pub(crate) around: Option<&'a CallAttributes<'a>>,
}

/// Returns a node that is wrong.
pub(crate) fn wrong<T>(what: impl Into<String>) -> Result<T, Stuck> {
    Err(Stuck::Wrong(what.into()))
}

/// Returns what is known of one result.
pub(crate) fn one(data_type: DataType, shape: Vec<Dim>) -> Facts {
    Ok(vec![Fact::new(data_type, shape)])
}

/// Returns the value of an attribute, also if it is that of the function around the node.
pub(crate) fn attribute<'a>(
    node: &'a Node,
    around: Option<&CallAttributes<'a>>,
    name: &str,
) -> Option<&'a AttributeValue> {
    let attribute = node.attribute(name)?;
    match attribute.reference.as_str() {
        "" => Some(&attribute.value),
        reference => around.and_then(|around| around.get(reference)).copied(),
    }
}

/// Returns how many numbers or names a value has that a rule may look at.
pub(crate) fn attribute_size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::Ints(ints) => ints.len(),
        AttributeValue::Floats(floats) => floats.len(),
        AttributeValue::Text(text) => text.len(),
        AttributeValue::Tensor(tensor) => {
            tensor.dims.len() + tensor.elements.as_ref().map_or(0, |elements| elements.len())
        }
        _ => 0,
    }
}

impl<'a> Call<'a> {
    pub(crate) fn attribute(&self, name: &str) -> Option<&'a AttributeValue> {
        attribute(self.node, self.around, name)
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        match self.attribute(name)? {
            AttributeValue::Int(int) => Some(*int),
            _ => None,
        }
    }

    pub(crate) fn int_or(&self, name: &str, default: i64) -> i64 {
        self.int(name).unwrap_or(default)
    }

    /// Returns whether a number is there and is not 0.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.int_or(name, 0) != 0
    }

    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        match self.attribute(name)? {
            AttributeValue::Float(float) => Some(*float),
            _ => None,
        }
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        match self.attribute(name)? {
            AttributeValue::Ints(ints) => Some(ints),
            AttributeValue::Int(int) => Some(std::slice::from_ref(int)),
            _ => None,
        }
    }

    pub(crate) fn floats(&self, name: &str) -> Option<&'a [f32]> {
        match self.attribute(name)? {
            AttributeValue::Floats(floats) => Some(floats),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> &'a str {
        match self.attribute(name) {
            Some(AttributeValue::Text(text)) => text,
            _ => "",
        }
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&'a Tensor> {
        match self.attribute(name)? {
            AttributeValue::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Returns the type that an attribute names.
    pub(crate) fn type_attribute(&self, name: &str) -> Option<DataType> {
        self.int(name).and_then(|number| i32::try_from(number).ok()).map(DataType)
    }

    pub(crate) fn input(&self, slot: usize) -> Option<&'a Fact> {
        self.inputs.get(slot).copied().flatten()
    }

    /// Returns what is known of an input that has to be there.
    pub(crate) fn fact(&self, slot: usize) -> Result<&'a Fact, Stuck> {
        match self.input(slot) {
            Some(fact) => Ok(fact),
            None => wrong(format!("input {slot} is missing: expected at least {}", slot + 1)),
        }
    }

    /// Returns the type of an input, which may be unknown.
    pub(crate) fn data_type(&self, slot: usize) -> DataType {
        self.input(slot).map_or(DataType::UNDEFINED, |fact| fact.data_type)
    }

    /// Returns the dimensions of an input whose rank has to be known.
    pub(crate) fn dims(&self, slot: usize) -> Result<&'a [Dim], Stuck> {
        self.fact(slot)?.shape.as_deref().ok_or(Stuck::Unknown)
    }

    /// Returns the elements of an input; `None` if it is left out.
    pub(crate) fn int_elements(&self, slot: usize) -> Result<Option<&'a [i64]>, Stuck> {
        match self.input(slot) {
            None => Ok(None),
            Some(fact) => match &fact.elements {
                Some(elements) => match elements.ints() {
                    Some(ints) => Ok(Some(ints)),
                    None => wrong(format!("input {slot}: expected whole numbers, got {fact}")),
                },
                // Nothing of a type that is not kept is known as well.
                None if fact.count() == Some(0) => Ok(Some(&[])),
                None => Err(Stuck::Unknown),
            },
        }
    }

    /// Returns the only element of an input that has to be known.
    pub(crate) fn int_element(&self, slot: usize) -> Result<i64, Stuck> {
        match self.int_elements(slot)? {
            Some([only]) => Ok(*only),
            Some(elements) => wrong(format!("input {slot}: expected one number, got {}", elements.len())),
            None => wrong(format!("input {slot} is missing")),
        }
    }

    /// Returns numbers that are an attribute in older versions of an operation and an input in newer ones.
    pub(crate) fn attribute_or_input(&self, name: &str, slot: usize) -> Result<Option<&'a [i64]>, Stuck> {
        match self.ints(name) {
            Some(ints) => Ok(Some(ints)),
            None => self.int_elements(slot),
        }
    }
}

/// Returns which axis of a tensor a number is; those below zero count from the end.
pub(crate) fn axis_of(number: i64, rank: usize) -> Result<usize, Stuck> {
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let axis = if number < 0 { number.saturating_add(signed) } else { number };
    match usize::try_from(axis) {
        Ok(axis) if axis < rank => Ok(axis),
        _ => wrong(format!("axis {number}: expected one from -{rank} to {}", signed - 1)),
    }
}

/// Returns a dimension as a number with a sign.
pub(crate) fn signed(dim: u64) -> Result<i64, Stuck> {
    i64::try_from(dim).or_else(|_| wrong(format!("a dimension of {dim}")))
}

/// Returns the product of two dimensions; unknown if one is, or if it can't be counted.
pub(crate) fn times(a: Dim, b: Dim) -> Dim {
    a?.checked_mul(b?)
}

/// Returns the sum of two dimensions; unknown if one is, or if it can't be counted.
pub(crate) fn plus(a: Dim, b: Dim) -> Dim {
    a?.checked_add(b?)
}
