//! A node as kernels take it: operands and parameters under names, checked.
//!
//! Graph and node in, [`OpCall`] out. The rule of the operation, the same that builders and text go through, is applied to
//! the node's sources, parameters and result; the parameters, which a table of tensors keeps as plain numbers, get their
//! types. So a backend that holds a call has neither shapes nor parameters to check. What is left to a backend is what
//! depends on its kernels: data types, strides and alignment.
//!
//! Planning never asks for a call: recordings have no parameters, and can be planned all the same.

pub(crate) mod read;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use steeve_plan::Bytes;

use crate::shape::{Call, Strides};
use crate::{
    Convolution, DataType, FlashAttention, Glu, Graph, GraphError, Interpolation, Layout, Order, Pool, Refusal, Rope,
    SoftMax, TensorId, Unary, Window,
};

pub(crate) use read::{Given, Reader, reader};

/// An operation with its operands and parameters. Shapes fit together, and parameters are in their range.
///
/// Made by [`Graph::call`]. Operands that a node may lack are options.
///
/// ```
/// use steeve_graph::{Graph, OpCall};
/// let graph: Graph = "x = input f32[4,2]; y = scale(0.5, 1.0) x".parse()?;
/// let [x, y] = [graph.leafs()[0], graph.nodes()[0]];
/// assert_eq!(graph.call(y)?, OpCall::Scale { a: x, factor: 0.5, bias: 1.0 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named as the operands and parameters of the builders")]
pub enum OpCall {
    /// No operation: a leaf, or a plain view.
    None,
    /// A copy.
    Dup { a: TensorId },
    /// `a + b`; `b` is repeated to the shape of `a`.
    Add { a: TensorId, b: TensorId },
    /// Adds to each row of `a` the row of `b` that `ids` names.
    AddId { a: TensorId, b: TensorId, ids: TensorId },
    /// Adds the one number in `b` to all elements.
    Add1 { a: TensorId, b: TensorId },
    /// `a - b`; `b` is repeated to the shape of `a`.
    Sub { a: TensorId, b: TensorId },
    /// `a * b`; `b` is repeated to the shape of `a`.
    Mul { a: TensorId, b: TensorId },
    /// `a / b`; `b` is repeated to the shape of `a`.
    Div { a: TensorId, b: TensorId },
    /// The square.
    Sqr { a: TensorId },
    /// The square root.
    Sqrt { a: TensorId },
    /// The natural logarithm.
    Log { a: TensorId },
    /// The sum of all elements.
    Sum { a: TensorId },
    /// The sum of each row.
    SumRows { a: TensorId },
    /// The mean of each row.
    Mean { a: TensorId },
    /// `a` again and again until it fills the result.
    Repeat { a: TensorId },
    /// `a` and then `b` along dimension `dim`, which is below 4.
    Concat { a: TensorId, b: TensorId, dim: usize },
    /// The gradient of silu at `a`.
    SiluBack { gradient: TensorId, a: TensorId },
    /// Each row less its mean, divided by its deviation.
    Norm { a: TensorId, epsilon: f32 },
    /// Each row divided by its root mean square.
    RmsNorm { a: TensorId, epsilon: f32 },
    /// The gradient of rms_norm at `a`.
    RmsNormBack { gradient: TensorId, a: TensorId, epsilon: f32 },
    /// The norm over groups of the third dimension; there is at least one group.
    GroupNorm { a: TensorId, groups: u32, epsilon: f32 },
    /// Each row divided by its length.
    L2Norm { a: TensorId, epsilon: f32 },
    /// The matrix product, with the rows of `a` as columns.
    MulMat { a: TensorId, b: TensorId },
    /// The matrix product with the experts that `ids` names.
    MulMatId { experts: TensorId, b: TensorId, ids: TensorId },
    /// `a * factor + bias`.
    Scale { a: TensorId, factor: f32, bias: f32 },
    /// Copies `a` into the result, which is a view of `b` unless it owns its memory.
    Cpy { a: TensorId, b: TensorId },
    /// A copy without gaps, in another shape perhaps.
    Cont { a: TensorId },
    /// The same elements in another shape.
    Reshape { a: TensorId },
    /// A part of `a`, `offset` bytes from its start.
    View { a: TensorId, offset: Bytes },
    /// Dimension `i` of `a` becomes dimension `axes[i]` of the result.
    Permute { a: TensorId, axes: [usize; 4] },
    /// The first two dimensions exchanged.
    Transpose { a: TensorId },
    /// The rows of `a` that `ids` names.
    GetRows { a: TensorId, ids: TensorId },
    /// Writes `rows` into `target`, which is the result, where `ids` says.
    SetRows { rows: TensorId, ids: TensorId, target: TensorId },
    /// Minus infinity above the diagonal that starts at column `past`.
    DiagMaskInf { a: TensorId, past: u32 },
    /// Zero above the diagonal that starts at column `past`.
    DiagMaskZero { a: TensorId, past: u32 },
    /// Soft-max of each row of `a`, scaled and with `mask` added; `sinks` has one more score for each head.
    SoftMax { a: TensorId, mask: Option<TensorId>, sinks: Option<TensorId>, soft_max: SoftMax },
    /// The gradient of soft_max, from that of its result and its result.
    SoftMaxBack { gradient: TensorId, result: TensorId, soft_max: SoftMax },
    /// Rotates `a` by `positions`; `factors` divide the frequencies.
    Rope { a: TensorId, positions: TensorId, factors: Option<TensorId>, rope: Rope },
    /// The gradient of rope, which rotates back.
    RopeBack { a: TensorId, positions: TensorId, factors: Option<TensorId>, rope: Rope },
    /// Each element at least `min` and at most `max`.
    Clamp { a: TensorId, min: f32, max: f32 },
    /// The patches of `image` under `kernel`, as `dtype`.
    Im2col { kernel: TensorId, image: TensorId, convolution: Convolution, directions: Directions, dtype: DataType },
    /// One element of each window of a row.
    Pool1d { a: TensorId, pool: Pool, size: u32, stride: u32, padding: u32 },
    /// One element of each window of a plane.
    Pool2d { a: TensorId, pool: Pool, window: Window },
    /// A larger image.
    Upscale { a: TensorId, interpolation: Interpolation },
    /// Zeros before and behind the elements of each dimension.
    Pad { a: TensorId, before: [u32; 4], behind: [u32; 4] },
    /// The order that sorts each row.
    Argsort { a: TensorId, order: Order },
    /// Where the `k` largest elements of each row are.
    TopK { a: TensorId, k: u64 },
    /// `value` everywhere; `like` only gives the shape.
    Fill { like: Option<TensorId>, value: f32 },
    /// Attention in one step; `sinks` has one more score for each head.
    FlashAttnExt {
        q: TensorId,
        k: TensorId,
        v: TensorId,
        mask: Option<TensorId>,
        sinks: Option<TensorId>,
        attention: FlashAttention,
    },
    /// An elementwise function without parameters.
    Unary { kind: Unary, a: TensorId },
    /// The trainable activation, with the numbers that [`Context::xielu`](crate::Context::xielu) takes.
    Xielu { a: TensorId, numbers: [f32; 4] },
    /// A gated linear unit.
    Glu { kind: Glu, gated: Gated, swiglu: SwigluOai },
    /// An operation of the caller's; its operands are the [sources](Graph::sources) of the node.
    Custom,
}

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
    #[error("{op} has no rule that says what it makes")]
    NoRule {
        /// The operation.
        op: String,
    },
    /// Sources or parameters that the operation can't be applied to.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A parameter that the operation needs is missing or out of range.
    #[error("parameter {index} ({name}) is missing or out of range")]
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
    #[error("the node is another operation: expected {expected}, got {found}")]
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
    #[error("the result has another shape than the operation makes: expected {expected:?}, got {found:?}")]
    Result {
        /// The shape by the rule.
        expected: [u64; 4],
        /// The shape of the node.
        found: [u64; 4],
    },
    /// The node is a view of other bytes than its operation says.
    #[error("the result is a view of other bytes than the operation writes: expected source {slot}")]
    View {
        /// The source that the result shares memory with.
        slot: usize,
    },
}

/// As many layouts are found without an allocation.
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
        let call = read(&Given { op: tensor.op, sources, params })?;
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
        let made = rule(&Call { sources: layouts, params, wanted: Some(tensor.layout), strides: Strides::Any })?;
        if made.layout.ne() != tensor.layout.ne() {
            return Err(CallError::Result { expected: made.layout.ne(), found: tensor.layout.ne() });
        }
        if let Some((slot, offset)) = made.shares {
            self.check_view(node, slot, offset)?;
        }
        Ok(call)
    }

    /// A view must be one of the bytes that the operation says. A copy that owns its result is none.
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
