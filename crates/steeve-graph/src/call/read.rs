//! From sources and parameters by number to those by name, one reader per operation. The numbers are ggml's order, and so
//! are they in files; nothing else of the crate but the builders knows it.

use steeve_plan::Bytes;

use super::{CallError, Directions, Gated, OpCall, SwigluOai};
use crate::{
    Convolution, DataType, FlashAttention, Interpolation, Op, Order, Param, Pool, Refusal, Rope, RopeMode, SoftMax,
    TensorId, Unary, Window,
};

/// Makes the call of one operation of what its node has.
pub(crate) type Reader = fn(&Given<'_>) -> Result<OpCall, CallError>;

/// What a node has.
pub(crate) struct Given<'a> {
    pub(crate) op: Op,
    pub(crate) sources: &'a [Option<TensorId>],
    pub(crate) params: &'a [Param],
}

type Read = Result<OpCall, CallError>;

impl Given<'_> {
    pub(crate) fn source(&self, slot: usize) -> Result<TensorId, CallError> {
        self.optional(slot).ok_or(CallError::Refused(Refusal::Missing { slot }))
    }

    fn optional(&self, slot: usize) -> Option<TensorId> {
        self.sources.get(slot).copied().flatten()
    }

    fn float(&self, index: usize, name: &'static str) -> Result<f32, CallError> {
        self.params.get(index).map(|param| param.float()).ok_or(CallError::Param { index, name })
    }

    /// A parameter that may be left out; the type of one that is there does not matter.
    fn float_or(&self, index: usize, default: f32) -> f32 {
        self.params.get(index).map_or(default, |param| param.float())
    }

    fn int(&self, index: usize, name: &'static str) -> Result<i64, CallError> {
        self.params.get(index).and_then(|param| param.int()).ok_or(CallError::Param { index, name })
    }

    fn count<T: TryFrom<i64>>(&self, index: usize, name: &'static str) -> Result<T, CallError> {
        T::try_from(self.int(index, name)?).map_err(|_| CallError::Param { index, name })
    }

    fn counts<const N: usize>(&self, first: usize, name: &'static str) -> Result<[u32; N], CallError> {
        let mut counts = [0; N];
        for (index, count) in (first..).zip(&mut counts) {
            *count = self.count(index, name)?;
        }
        Ok(counts)
    }
}

/// The reader of an operation that has no parameters: the name of each operand, and its slot.
macro_rules! reader {
    ($variant:ident { $($field:ident: $slot:literal),* }) => {
        |given| Ok($crate::OpCall::$variant { $($field: given.source($slot)?),* })
    };
}
pub(crate) use reader;

pub(crate) fn none(_: &Given<'_>) -> Read {
    Ok(OpCall::None)
}

pub(crate) fn custom(_: &Given<'_>) -> Read {
    Ok(OpCall::Custom)
}

pub(crate) fn unary(given: &Given<'_>) -> Read {
    let a = given.source(0)?;
    match given.op {
        Op::Unary(Unary::Xielu) => {
            let float = |index| given.float(index, ["alpha_n", "alpha_p", "beta", "epsilon"][index]);
            Ok(OpCall::Xielu { a, numbers: [float(0)?, float(1)?, float(2)?, float(3)?] })
        }
        Op::Unary(kind) => Ok(OpCall::Unary { kind, a }),
        _ => Err(Refusal::Unsaid.into()),
    }
}

/// ggml's parameters behind the kind: 1 if the halves are swapped, and the two numbers of swiglu_oai.
pub(crate) fn glu(given: &Given<'_>) -> Read {
    let Op::Glu(kind) = given.op else { return Err(Refusal::Unsaid.into()) };
    let a = given.source(0)?;
    let is_swapped = given.params.first().and_then(|param| param.int()).is_some_and(|swapped| swapped != 0);
    let gated = match given.optional(1) {
        Some(b) => Gated::Split { a, b },
        None if is_swapped => Gated::SwappedHalves { a },
        None => Gated::Halves { a },
    };
    let SwigluOai { alpha, limit } = SwigluOai::default();
    Ok(OpCall::Glu {
        kind,
        gated,
        swiglu: SwigluOai { alpha: given.float_or(1, alpha), limit: given.float_or(2, limit) },
    })
}

pub(crate) fn scale(given: &Given<'_>) -> Read {
    Ok(OpCall::Scale { a: given.source(0)?, factor: given.float(0, "factor")?, bias: given.float_or(1, 0.0) })
}

pub(crate) fn clamp(given: &Given<'_>) -> Read {
    Ok(OpCall::Clamp { a: given.source(0)?, min: given.float(0, "min")?, max: given.float(1, "max")? })
}

pub(crate) fn fill(given: &Given<'_>) -> Read {
    Ok(OpCall::Fill { like: given.optional(0), value: given.float(0, "value")? })
}

pub(crate) fn norm(given: &Given<'_>) -> Read {
    Ok(OpCall::Norm { a: given.source(0)?, epsilon: given.float(0, "epsilon")? })
}

pub(crate) fn rms_norm(given: &Given<'_>) -> Read {
    Ok(OpCall::RmsNorm { a: given.source(0)?, epsilon: given.float(0, "epsilon")? })
}

pub(crate) fn l2_norm(given: &Given<'_>) -> Read {
    Ok(OpCall::L2Norm { a: given.source(0)?, epsilon: given.float(0, "epsilon")? })
}

pub(crate) fn rms_norm_back(given: &Given<'_>) -> Read {
    let (gradient, a) = (given.source(0)?, given.source(1)?);
    Ok(OpCall::RmsNormBack { gradient, a, epsilon: given.float(0, "epsilon")? })
}

pub(crate) fn group_norm(given: &Given<'_>) -> Read {
    let groups = given.count(0, "groups")?;
    if groups == 0 {
        return Err(CallError::Param { index: 0, name: "groups" });
    }
    Ok(OpCall::GroupNorm { a: given.source(0)?, groups, epsilon: given.float(1, "epsilon")? })
}

pub(crate) fn diag_mask_inf(given: &Given<'_>) -> Read {
    Ok(OpCall::DiagMaskInf { a: given.source(0)?, past: given.count(0, "past")? })
}

pub(crate) fn diag_mask_zero(given: &Given<'_>) -> Read {
    Ok(OpCall::DiagMaskZero { a: given.source(0)?, past: given.count(0, "past")? })
}

pub(crate) fn soft_max(given: &Given<'_>) -> Read {
    let soft_max = SoftMax { scale: given.float(0, "scale")?, max_bias: given.float_or(1, 0.0) };
    Ok(OpCall::SoftMax { a: given.source(0)?, mask: given.optional(1), sinks: given.optional(2), soft_max })
}

pub(crate) fn soft_max_back(given: &Given<'_>) -> Read {
    let soft_max = SoftMax { scale: given.float_or(0, 1.0), max_bias: given.float_or(1, 0.0) };
    Ok(OpCall::SoftMaxBack { gradient: given.source(0)?, result: given.source(1)?, soft_max })
}

pub(crate) fn rope(given: &Given<'_>) -> Read {
    let (a, positions, factors) = (given.source(0)?, given.source(1)?, given.optional(2));
    Ok(OpCall::Rope { a, positions, factors, rope: rotation(given)? })
}

pub(crate) fn rope_back(given: &Given<'_>) -> Read {
    let (a, positions, factors) = (given.source(0)?, given.source(1)?, given.optional(2));
    Ok(OpCall::RopeBack { a, positions, factors, rope: rotation(given)? })
}

fn rotation(given: &Given<'_>) -> Result<Rope, CallError> {
    let number = given.int(1, "mode")?;
    let mode = RopeMode::from_ggml_id(number)
        .ok_or_else(|| CallError::Params(alloc::format!("mode {number} is none of 0, 2, 8, 24 and 40")))?;
    // Without sections ggml's own graphs have any numbers there, or none.
    let sections =
        if mode.has_sections() { given.counts(9, "sections")? } else { given.counts(9, "sections").unwrap_or([0; 4]) };
    // Sums of them stay small this way.
    let makes_sense = sections.iter().any(|&pairs| pairs > 0) && sections.iter().all(|&pairs| pairs <= 1 << 30);
    if mode.has_sections() && !makes_sense {
        return Err(CallError::Params(alloc::format!("sections of {sections:?} pairs make no sense")));
    }
    Ok(Rope {
        dims: given.count(0, "dims")?,
        mode,
        context: given.count(2, "context")?,
        freq_base: given.float(3, "freq_base")?,
        freq_scale: given.float(4, "freq_scale")?,
        ext_factor: given.float(5, "ext_factor")?,
        attn_factor: given.float(6, "attn_factor")?,
        beta_fast: given.float(7, "beta_fast")?,
        beta_slow: given.float(8, "beta_slow")?,
        sections,
    })
}

pub(crate) fn flash_attn_ext(given: &Given<'_>) -> Read {
    let attention = FlashAttention {
        scale: given.float(0, "scale")?,
        max_bias: given.float(1, "max_bias")?,
        softcap: given.float(2, "softcap")?,
    };
    let (q, k, v) = (given.source(0)?, given.source(1)?, given.source(2)?);
    Ok(OpCall::FlashAttnExt { q, k, v, mask: given.optional(3), sinks: given.optional(4), attention })
}

pub(crate) fn concat(given: &Given<'_>) -> Read {
    Ok(OpCall::Concat { a: given.source(0)?, b: given.source(1)?, dim: given.count(0, "dim")? })
}

pub(crate) fn view(given: &Given<'_>) -> Read {
    Ok(OpCall::View { a: given.source(0)?, offset: Bytes(given.count(0, "offset")?) })
}

pub(crate) fn permute(given: &Given<'_>) -> Read {
    let mut axes = [0; 4];
    for (index, axis) in axes.iter_mut().enumerate() {
        *axis = given.count(index, "axis")?;
    }
    Ok(OpCall::Permute { a: given.source(0)?, axes })
}

pub(crate) fn im2col(given: &Given<'_>) -> Read {
    let convolution = Convolution {
        stride: given.counts(0, "stride")?,
        padding: given.counts(2, "padding")?,
        dilation: given.counts(4, "dilation")?,
    };
    let directions = if given.int(6, "directions")? == 0 { Directions::One } else { Directions::Two };
    let dtype = DataType::from_ggml_id(given.count(7, "dtype")?).ok_or(CallError::Param { index: 7, name: "dtype" })?;
    Ok(OpCall::Im2col { kernel: given.source(0)?, image: given.source(1)?, convolution, directions, dtype })
}

fn pool(given: &Given<'_>) -> Result<Pool, CallError> {
    Pool::from_ggml_id(given.int(0, "pool")?).ok_or(CallError::Param { index: 0, name: "pool" })
}

pub(crate) fn pool_1d(given: &Given<'_>) -> Read {
    let [size, stride, padding] = given.counts(1, "window")?;
    Ok(OpCall::Pool1d { a: given.source(0)?, pool: pool(given)?, size, stride, padding })
}

pub(crate) fn pool_2d(given: &Given<'_>) -> Read {
    let padding = [given.float(5, "padding")?, given.float(6, "padding")?];
    let window = Window { size: given.counts(1, "size")?, stride: given.counts(3, "stride")?, padding };
    Ok(OpCall::Pool2d { a: given.source(0)?, pool: pool(given)?, window })
}

pub(crate) fn upscale(given: &Given<'_>) -> Read {
    let interpolation = Interpolation::from_ggml_id(given.int(0, "interpolation")?)
        .ok_or(CallError::Param { index: 0, name: "interpolation" })?;
    Ok(OpCall::Upscale { a: given.source(0)?, interpolation })
}

pub(crate) fn pad(given: &Given<'_>) -> Read {
    let (mut before, mut behind) = ([0; 4], [0; 4]);
    for dim in 0..4 {
        [before[dim], behind[dim]] = given.counts(2 * dim, "padding")?;
    }
    Ok(OpCall::Pad { a: given.source(0)?, before, behind })
}

pub(crate) fn argsort(given: &Given<'_>) -> Read {
    let order = Order::from_ggml_id(given.int(0, "order")?).ok_or(CallError::Param { index: 0, name: "order" })?;
    Ok(OpCall::Argsort { a: given.source(0)?, order })
}

pub(crate) fn top_k(given: &Given<'_>) -> Read {
    Ok(OpCall::TopK { a: given.source(0)?, k: given.count(0, "k")? })
}
