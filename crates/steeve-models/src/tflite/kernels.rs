//! What kernels do with operands that share bytes with their result.

use super::model::{Model, Operator};
use super::names::BuiltinOp;

/// Whose kernels run a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KernelSet {
    /// Nothing is known but that they compute what they should: only what moves no bytes is done in place.
    #[default]
    Any,
    /// TensorFlow Lite Micro's reference kernels, which its interpreter for Python has.
    TflmReference,
}

impl KernelSet {
    /// Returns the kernels with a name: `any` or `tflm-reference`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Any, Self::TflmReference].into_iter().find(|set| set.name() == name)
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::TflmReference => "tflm-reference",
        }
    }
}

pub(crate) fn may_overwrite(model: &Model, _subgraph: usize, op: &Operator, slot: usize, _set: KernelSet) -> bool {
    slot == 0
        && op.outputs.len() == 1
        && matches!(model.builtin(op), BuiltinOp::RESHAPE | BuiltinOp::SQUEEZE | BuiltinOp::EXPAND_DIMS)
}

pub(crate) fn overlap(_model: &Model, _subgraph: usize, _op: &Operator, _slot: usize, _set: KernelSet) -> Option<u64> {
    None
}
