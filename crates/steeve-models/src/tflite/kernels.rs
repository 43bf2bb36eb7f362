//! What kernels do with an operand that shares bytes with their result. O(rows + columns) for each operator.
//!
//! Two sets of kernels are known. Of [`KernelSet::Any`] nothing is assumed but that `RESHAPE` and its kin leave the bytes what
//! they are. Of [`KernelSet::TflmReference`] the loops are known, so that each operator has a [`Walk`]. An operator whose loops
//! differ from version to version, or that copies with `memcpy`, has none.

use super::model::{Model, Operator, Tensor, TensorIndex};
use super::names::{BuiltinOp, DataType};
use super::options::{Options, Window};
use super::sizes::byte_count;
use super::walk::{Axis, PadDim, PadWalk, RowWalk, Walk, WindowWalk};

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

/// An operator with one result, and one of the slots of its operands.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'m> {
    model: &'m Model,
    subgraph: usize,
    op: &'m Operator,
    slot: usize,
}

impl<'m> Operand<'m> {
    pub(crate) const fn new(model: &'m Model, subgraph: usize, op: &'m Operator, slot: usize) -> Self {
        Self { model, subgraph, op, slot }
    }

    /// Returns whether the result may be written over the operand, both starting at the same byte.
    pub(crate) fn may_be_overwritten(self, set: KernelSet) -> bool {
        self.moves_no_bytes()
            || (set == KernelSet::TflmReference && self.walk().is_some_and(|walk| walk.distance() == 0))
    }

    /// Returns how many bytes below the operand the result has to start, if they may overlap.
    pub(crate) fn overlap(self, set: KernelSet) -> Option<u64> {
        match set {
            KernelSet::Any => None,
            KernelSet::TflmReference => self.walk().and_then(|walk| u64::try_from(walk.distance()).ok()),
        }
    }

    fn builtin(self) -> BuiltinOp {
        self.model.builtin(self.op)
    }

    fn tensor(self, tensor: usize) -> Option<&'m Tensor> {
        self.model.tensor(TensorIndex::new(self.subgraph, tensor))
    }

    fn input(self, slot: usize) -> Option<&'m Tensor> {
        self.tensor(self.op.inputs.get(slot).copied().flatten()?)
    }

    /// Returns the operand and the result.
    fn ends(self) -> Option<(&'m Tensor, &'m Tensor)> {
        match self.op.outputs.as_slice() {
            [output] => Some((self.input(self.slot)?, self.tensor(*output)?)),
            _ => None,
        }
    }

    /// Returns whether the result is the operand's bytes. The kernels copy them, from a place to the same place.
    pub(crate) fn moves_no_bytes(self) -> bool {
        let is_view = matches!(self.builtin(), BuiltinOp::RESHAPE | BuiltinOp::SQUEEZE | BuiltinOp::EXPAND_DIMS);
        let same = |(a, b): (&Tensor, &Tensor)| elements(a) == elements(b) && a.data_type == b.data_type;
        is_view && self.slot == 0 && self.ends().is_some_and(same)
    }

    /// Returns the order in which the reference kernel reads the operand and writes the result.
    pub(crate) fn walk(self) -> Option<Walk> {
        let (input, output) = self.ends()?;
        match self.builtin() {
            BuiltinOp::CONV_2D => self.convolution(input, output),
            BuiltinOp::DEPTHWISE_CONV_2D => self.depthwise(input, output),
            BuiltinOp::AVERAGE_POOL_2D | BuiltinOp::MAX_POOL_2D => self.pool(input, output),
            BuiltinOp::FULLY_CONNECTED => self.fully_connected(input, output),
            BuiltinOp::PAD | BuiltinOp::PADV2 => self.pad(input, output),
            op if is_unary(op) && self.slot == 0 => elementwise(input, output),
            op if is_binary(op) && self.slot < 2 => elementwise(input, output),
            _ => None,
        }
    }

    /// For each pixel and channel of the result, the window is read in the channels of its group.
    fn convolution(self, input: &Tensor, output: &Tensor) -> Option<Walk> {
        let Options::Convolution { window, dilation, .. } = self.op.options else { return None };
        let filter = dims4(self.input(1)?)?;
        let (image, result) = (dims4(input)?, dims4(output)?);
        let is_known =
            self.slot == 0 && is_image_type(input, output) && result[3] == filter[0] && result[0] == image[0];
        if !is_known || filter[3] < 1 || image[3] % filter[3] != 0 {
            return None;
        }
        let groups = image[3] / filter[3];
        if groups < 1 || result[3] % groups != 0 {
            return None;
        }
        self.window(window, dilation, [filter[1], filter[2]], groups, [filter[3], result[3] / groups], input, output)
    }

    /// Each channel is a group, of as many channels in the result as the multiplier says.
    fn depthwise(self, input: &Tensor, output: &Tensor) -> Option<Walk> {
        let Options::Convolution { window, dilation, depth_multiplier } = self.op.options else { return None };
        let filter = dims4(self.input(1)?)?;
        let (image, result) = (dims4(input)?, dims4(output)?);
        let is_known =
            self.slot == 0 && is_image_type(input, output) && filter[3] == result[3] && result[0] == image[0];
        if !is_known || image[3] < 1 || result[3] % image[3] != 0 {
            return None;
        }
        let channels = [1, result[3] / image[3]];
        if i64::from(depth_multiplier) != channels[1] {
            return None;
        }
        self.window(window, dilation, [filter[1], filter[2]], image[3], channels, input, output)
    }

    /// Each channel is a group of one.
    fn pool(self, input: &Tensor, output: &Tensor) -> Option<Walk> {
        let Options::Pool { window, filter } = self.op.options else { return None };
        let (image, result) = (dims4(input)?, dims4(output)?);
        if !is_image_type(input, output) || image[3] != result[3] || image[0] != result[0] {
            return None;
        }
        self.window(window, [1, 1], filter.map(i64::from), image[3], [1, 1], input, output)
    }

    #[expect(clippy::too_many_arguments, reason = "three operators have these parameters, each from elsewhere")]
    fn window(
        self,
        window: Window,
        dilation: [i32; 2],
        filter: [i64; 2],
        groups: i64,
        channels: [i64; 2],
        input: &Tensor,
        output: &Tensor,
    ) -> Option<Walk> {
        let (image, result) = (dims4(input)?, dims4(output)?);
        let along = |dim: usize| axis(window, dim, dilation[dim], filter[dim], image[dim + 1], result[dim + 1]);
        let (rows, columns) = (along(0)?, along(1)?);
        Some(Walk::Window(WindowWalk { images: image[0], rows, columns, groups, channels, element: element(input)? }))
    }

    /// For each row, all of it is read for each element of the result's row.
    fn fully_connected(self, input: &Tensor, output: &Tensor) -> Option<Walk> {
        let weights = self.input(1)?;
        let [written, read] = *dims(weights)?.as_slice() else { return None };
        let (inputs, outputs) = (elements(input)?, elements(output)?);
        let is_known = self.slot == 0 && is_image_type(input, output) && weights.data_type != DataType::INT4;
        if !is_known || read < 1 || written < 1 || inputs % read != 0 || inputs / read * written != outputs {
            return None;
        }
        let size = element(input)?;
        Some(Walk::Rows(RowWalk { rows: inputs / read, reads: read, writes: written, elements: [size, size] }))
    }

    /// Element by element, in the order of the result; what is added is not read.
    fn pad(self, input: &Tensor, output: &Tensor) -> Option<Walk> {
        let paddings = self.input(1)?;
        let data = self.model.data(paddings).filter(|_| paddings.data_type == DataType::INT32)?;
        let numbers =
            data.chunks_exact(4).filter_map(|it| it.try_into().ok()).map(|it| i64::from(i32::from_le_bytes(it)));
        let numbers: Vec<i64> = numbers.collect();
        let (from, to) = (dims(input)?, dims(output)?);
        if self.slot != 0
            || numbers.len() != 2 * from.len()
            || from.len() != to.len()
            || input.data_type != output.data_type
        {
            return None;
        }
        let mut found = Vec::with_capacity(from.len());
        for ((size, pair), padded) in from.iter().zip(numbers.chunks_exact(2)).zip(&to) {
            let (before, behind) = (pair[0], pair[1]);
            if before < 0 || behind < 0 || before + size + behind != *padded {
                return None;
            }
            found.push(PadDim { size: *size, before, behind });
        }
        Some(Walk::Pad(PadWalk { dims: found, element: element(input)? }))
    }
}

/// Loops that read an element and write the one of the same number.
fn is_unary(op: BuiltinOp) -> bool {
    matches!(
        op,
        BuiltinOp::RELU
            | BuiltinOp::RELU6
            | BuiltinOp::LEAKY_RELU
            | BuiltinOp::PRELU // The slopes are operand 1, and may be broadcast.
            | BuiltinOp::ELU
            | BuiltinOp::HARD_SWISH
            | BuiltinOp::LOGISTIC
            | BuiltinOp::TANH
            | BuiltinOp::ABS
            | BuiltinOp::NEG
            | BuiltinOp::EXP
            | BuiltinOp::LOG
            | BuiltinOp::SIN
            | BuiltinOp::COS
            | BuiltinOp::SQRT
            | BuiltinOp::RSQRT
            | BuiltinOp::SQUARE
            | BuiltinOp::FLOOR
            | BuiltinOp::CEIL
            | BuiltinOp::ROUND
            | BuiltinOp::LOGICAL_NOT
            | BuiltinOp::EXPAND_DIMS // A loop and not `memcpy`, unlike RESHAPE and SQUEEZE.
            | BuiltinOp::QUANTIZE
            | BuiltinOp::DEQUANTIZE
    )
}

/// Loops that read an element of both operands and write the one of the same number. An operand that is broadcast is read again
/// and again, and may not overlap.
fn is_binary(op: BuiltinOp) -> bool {
    matches!(
        op,
        BuiltinOp::ADD
            | BuiltinOp::SUB
            | BuiltinOp::MUL
            | BuiltinOp::DIV
            | BuiltinOp::MAXIMUM
            | BuiltinOp::MINIMUM
            | BuiltinOp::SQUARED_DIFFERENCE
    )
}

fn elementwise(input: &Tensor, output: &Tensor) -> Option<Walk> {
    let (from, to) = (input.data_type, output.data_type);
    // A compiler may take numbers of different types not to share bytes, unless one of them has a single byte.
    let is_byte = |it: DataType| matches!(it, DataType::INT8 | DataType::UINT8);
    let is_same = from == to || is_byte(from) || is_byte(to);
    if !is_same || from == DataType::INT4 || to == DataType::INT4 {
        return None;
    }
    let count = elements(output)?;
    let sizes = [element(input)?, element(output)?];
    let walk = RowWalk { rows: count, reads: 1, writes: 1, elements: sizes };
    (elements(input)? == count && count > 0).then_some(Walk::Rows(walk))
}

/// The most positions of a result along one dimension for which the order is evaluated, so that no file makes it take long.
const MOST_POSITIONS: i64 = 1 << 18;

/// Computes how a window moves along one dimension, as TFLite does; `None` if the result's size is another.
fn axis(window: Window, dim: usize, dilation: i32, filter: i64, input: i64, output: i64) -> Option<Axis> {
    let (stride, dilation) = (i64::from(window.stride[dim]), i64::from(dilation));
    if stride < 1 || dilation < 1 || filter < 1 || input < 1 || !(1..=MOST_POSITIONS).contains(&output) {
        return None;
    }
    let reach = (filter - 1) * dilation + 1;
    let expected = if window.same_padding { (input + stride - 1) / stride } else { (input + stride - reach) / stride };
    let pad = ((output - 1) * stride + reach - input).max(0) / 2;
    (expected == output).then_some(Axis { input, output, filter, stride, dilation, pad })
}

/// Types for which kernels have the same loops: 32-bit floating point, and 8 and 16-bit integers.
fn is_image_type(input: &Tensor, output: &Tensor) -> bool {
    input.data_type == output.data_type
        && matches!(input.data_type, DataType::FLOAT32 | DataType::INT8 | DataType::INT16)
}

fn element(tensor: &Tensor) -> Option<i64> {
    i64::try_from(tensor.data_type.size()?).ok()
}

fn dims(tensor: &Tensor) -> Option<Vec<i64>> {
    tensor.shape.iter().map(|dim| Some(i64::from(*dim)).filter(|dim| *dim >= 0)).collect()
}

fn dims4(tensor: &Tensor) -> Option<[i64; 4]> {
    dims(tensor)?.try_into().ok()
}

/// Returns the number of elements, if a tensor of so many can be planned.
fn elements(tensor: &Tensor) -> Option<i64> {
    let bytes = byte_count(TensorIndex::new(0, 0), tensor).ok()?;
    Some(i64::try_from(bytes).ok()? / element(tensor)?)
}
