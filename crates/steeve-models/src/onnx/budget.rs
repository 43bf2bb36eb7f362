//! How much work a file may make its reader do, in proportion to its length.
//!
//! Functions are computed at each call, and bodies of loops more than once, so a small file can stand for more nodes than any memory
//! holds. Whatever is looked at or kept is paid for here, in units of about a byte; models that are anywhere near their limit are made
//! for it.

use super::call::attribute_size;
use super::error::OnnxError;
use super::fact::{Fact, ListFact};
use super::model::{Model, Node};

/// How deep functions and graphs may be inside each other: both are followed by recursion.
const MOST_NESTED: usize = 100;

/// What is left of the work that a file may cause.
#[derive(Clone, Debug)]
pub(super) struct WalkBudget {
    /// The units that there were.
    most: u64,
    left: u64,
    /// How many elements may still be computed.
    elements: u64,
    /// How many functions and graphs are around what is looked at.
    pub(super) depth: usize,
    /// The bytes of the file.
    file: usize,
}

impl WalkBudget {
    pub(super) fn of(model: &Model) -> Self {
        let most = model.structure_bytes.saturating_mul(64).saturating_add(1 << 24);
        Self { most, left: most, elements: most, depth: 0, file: model.bytes }
    }

    /// Takes units.
    pub(super) fn spend(&mut self, units: usize) -> Result<(), OnnxError> {
        let left = self.left.checked_sub(units as u64);
        self.left = left.ok_or(OnnxError::TooLong { most: self.most, file: self.file })?;
        Ok(())
    }

    /// Takes what looking at a node costs; `of_inputs` is how many dimensions its inputs have.
    pub(super) fn spend_node(&mut self, node: &Node, of_inputs: usize) -> Result<(), OnnxError> {
        let attributes: usize = node.attributes.iter().map(|it| 1 + attribute_size(&it.value)).sum();
        let items = 1 + node.inputs.len() + node.outputs.len();
        let names = node.name.len() + node.op_type.len() + node.outputs.first().map_or(0, String::len);
        self.spend((8 * items.saturating_add(attributes).saturating_add(of_inputs)).saturating_add(names))
    }

    /// Takes what keeping a value costs.
    pub(super) fn spend_value(&mut self, name: &str, fact: &Fact) -> Result<(), OnnxError> {
        self.spend(name.len().saturating_add(64).saturating_add(fact_size(fact)))
    }

    /// Takes elements that are computed from others, if there are as many left.
    pub(super) fn take_elements(&mut self, count: u64) -> bool {
        match self.elements.checked_sub(count) {
            None => false,
            Some(left) => {
                self.elements = left;
                true
            }
        }
    }

    /// Goes into a function or a graph; [`leave`](Self::leave) goes back.
    pub(super) fn enter(&mut self, title: impl FnOnce() -> String) -> Result<(), OnnxError> {
        if self.depth >= MOST_NESTED {
            return Err(OnnxError::Calls { node: title(), most: MOST_NESTED });
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// Returns about how many bytes a fact takes.
pub(super) fn fact_size(fact: &Fact) -> usize {
    let dims = fact.shape.as_ref().map_or(0, |shape| 16 * shape.len());
    let elements = fact.elements.as_ref().map_or(0, |elements| 8 * elements.len());
    let items = match &fact.list {
        Some(ListFact::Items(items)) => items.iter().map(|item| 64 + fact_size(item)).sum(),
        _ => 0,
    };
    dims + elements + items
}
