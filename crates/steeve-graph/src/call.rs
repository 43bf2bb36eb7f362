//! A node as kernels take it: operands and parameters under names, checked.
//!
//! Graph and node in, [`OpCall`] out. The rule of the operation, which builders and text go through as well, is
//! applied to the node's sources, parameters and result; the parameters, which a table of tensors keeps as plain
//! numbers, get their types. So a backend that has a call has neither shapes nor parameters to check. What is left to
//! a backend is what depends on its kernels: data types, strides and alignment.
//!
//! Planning needs no call: recordings have no parameters, and can be planned all the same.

pub(crate) mod read;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use steeve_plan::Bytes;

use crate::shape::{OperandChecks, ShapeInput};
use crate::{Graph, GraphError, Layout, ShapeError, TensorId};

pub use crate::op::OpCall;
pub(crate) use read::{NodeReader, ReadCall};

/// How many directions a convolution kernel is moved in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Along a row `[length, channel, n]`.
    One,
    /// Over an image `[w, h, channel, n]`.
    Two,
}

/// What a gated linear unit takes as its gate, and what the gate is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gated {
    /// The first half of each row of `a` is the gate.
    Halves {
        /// A tensor with rows of an even length.
        a: TensorId,
    },
    /// The second half of each row of `a` is the gate.
    SwappedHalves {
        /// A tensor with rows of an even length.
        a: TensorId,
    },
    /// `a` is the gate of `b`, which has the same shape.
    Split {
        /// The gate.
        a: TensorId,
        /// What it is multiplied by.
        b: TensorId,
    },
}

/// The numbers of the gated linear unit `SWIGLU_OAI`. The default is that of gpt-oss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwigluOai {
    /// The slope of the logistic function.
    pub alpha: f32,
    /// What both operands are limited to.
    pub limit: f32,
}

impl Default for SwigluOai {
    fn default() -> Self {
        Self { alpha: 1.702, limit: 7.0 }
    }
}

/// Why a node is no call that a backend could run. It can be planned all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// An id that is not one of this graph's.
    #[error(transparent)]
    Unknown(GraphError),
    /// An operation that is not in the table.
    #[error("{op}: no rule that says what it makes")]
    NoRule {
        /// The operation.
        op: String,
    },
    /// Sources or parameters that the operation can't be applied to.
    #[error(transparent)]
    Refused(#[from] ShapeError),
    /// A parameter that the operation needs is missing or out of range.
    #[error("parameter {index} ({name}): missing or out of range")]
    Param {
        /// Which one, from 0.
        index: usize,
        /// Its name.
        name: &'static str,
    },
    /// Parameters that make no sense together.
    #[error("{0}")]
    Params(String),
    /// A node of another operation than the declared one.
    #[error("node: another operation: expected {expected}, got {found}")]
    OtherOp {
        /// The name of the declared operation.
        expected: String,
        /// The name of the node's operation.
        found: String,
    },
    /// A node that the declaration of a caller's operation does not describe.
    #[error("{op}: {reason}")]
    Custom {
        /// The operation.
        op: String,
        /// What does not fit.
        reason: String,
    },
    /// The node has another shape than its operation gives it.
    #[error("result: another shape than the operation makes: expected {expected:?}, got {found:?}")]
    Result {
        /// The shape by the rule.
        expected: [u64; 4],
        /// The shape of the node.
        found: [u64; 4],
    },
    /// The node is a view of other bytes than its operation says.
    #[error("result: a view of other bytes than the operation writes: expected those of source {slot}")]
    View {
        /// The source whose memory the result must be a view of.
        slot: usize,
    },
}

/// The number of layouts that are collected without an allocation.
const FEW: usize = 6;

impl Graph {
    /// Returns the operation of a node with its operands and parameters, under names and checked by the operation's rule.
    ///
    /// Data types and strides, of the result too, are for kernels to look at: a result may be a view of its source with all
    /// its gaps. Costs a few tests and no allocation.
    ///
    /// # Errors
    ///
    /// If the operation is not in the table, a source or a parameter is missing (recordings have none), or the shapes do not
    /// fit together.
    pub fn call(&self, node: TensorId) -> Result<OpCall, CallError> {
        let tensor = *self.tensors().find(node).map_err(CallError::Unknown)?;
        let (sources, params) = (self.sources(node), self.params(node));
        let entry = tensor.op.entry();
        let Some(read) = entry.read else {
            return Err(CallError::NoRule { op: self.tensors().op_title(tensor.op).to_string() });
        };
        let call = read(&mut NodeReader::new(tensor.op, sources, params))?;
        let Some(rule) = entry.rule else { return Ok(call) };
        let layout = |source: &Option<TensorId>| source.map(|source| self.tensor(source).layout);
        let (mut few, many): ([Option<Layout>; FEW], Vec<_>);
        let layouts = if sources.len() <= FEW {
            few = [None; FEW];
            few.iter_mut().zip(sources).for_each(|(slot, source)| *slot = layout(source));
            &few[..sources.len()]
        } else {
            many = sources.iter().map(layout).collect();
            &many[..]
        };
        let inferred = rule(&ShapeInput {
            sources: layouts,
            params,
            wanted: Some(tensor.layout),
            checks: OperandChecks::ShapesOnly,
        })?;
        if inferred.layout.ne() != tensor.layout.ne() {
            return Err(CallError::Result { expected: inferred.layout.ne(), found: tensor.layout.ne() });
        }
        if let Some((slot, offset)) = inferred.shares {
            self.check_view(node, slot, offset)?;
        }
        Ok(call)
    }

    /// Checks that a view is one of the bytes that the operation says. A copy that owns its result is no view.
    fn check_view(&self, node: TensorId, slot: usize, offset: Bytes) -> Result<(), CallError> {
        let (tensor, source) = (self.tensor(node), self.sources(node).get(slot).copied().flatten());
        let is_right = match (tensor.view, source) {
            _ if tensor.nbytes() == Bytes::ZERO => true,
            (Some(view), Some(source)) => {
                let start = self.tensors().offset(source);
                let at = if source == node { Some(start) } else { start.checked_add(offset) };
                view.root == self.root(source) && Some(view.offset) == at
            }
            // A cast fills its result; a write of some rows leaves the others as they are in the target.
            _ => tensor.op == crate::Op::Cpy,
        };
        if is_right { Ok(()) } else { Err(CallError::View { slot }) }
    }
}
