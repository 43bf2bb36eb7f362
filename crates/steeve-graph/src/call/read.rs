//! From sources and parameters by number to those by name: what the table of operations reads its calls with. The numbers are
//! ggml's order, and so are they in files; nothing else of the crate but the builders knows it.

use steeve_plan::Bytes;

use super::{CallError, Directions, Gated, SwigluOai};
use crate::{
    Convolution, DataType, FlashAttention, Interpolation, Op, OpCall, Param, Pool, Rope, RopeMode, ShapeError, SoftMax,
    SortOrder, TensorId, Unary, Window,
};

/// Makes the call of one operation of its node's sources and parameters.
pub(crate) type ReadCall = fn(&mut NodeReader<'_>) -> Result<OpCall, CallError>;

/// Reads the operands of a node one after another, and its parameters by their index.
pub(crate) struct NodeReader<'a> {
    op: Op,
    sources: core::slice::Iter<'a, Option<TensorId>>,
    slot: usize,
    params: &'a [Param],
}

impl<'a> NodeReader<'a> {
    pub(crate) fn new(op: Op, sources: &'a [Option<TensorId>], params: &'a [Param]) -> Self {
        Self { op, sources: sources.iter(), slot: 0, params }
    }

    /// Reads the next operand.
    pub(crate) fn operand(&mut self) -> Result<TensorId, CallError> {
        let slot = self.slot;
        self.optional_operand().ok_or(CallError::Refused(ShapeError::Missing { slot }))
    }

    /// Reads the next operand, which the node may lack.
    pub(crate) fn optional_operand(&mut self) -> Option<TensorId> {
        self.slot += 1;
        self.sources.next().copied().flatten()
    }

    pub(crate) fn float(&self, index: usize, name: &'static str) -> Result<f32, CallError> {
        self.params.get(index).map(|param| param.float()).ok_or(CallError::Param { index, name })
    }

    /// Reads a parameter that may be left out; the type of one that is there does not matter.
    pub(crate) fn float_or(&self, index: usize, default: f32) -> Result<f32, CallError> {
        Ok(self.params.get(index).map_or(default, |param| param.float()))
    }

    fn int(&self, index: usize, name: &'static str) -> Result<i64, CallError> {
        self.params.get(index).and_then(|param| param.int()).ok_or(CallError::Param { index, name })
    }

    pub(crate) fn count<T: TryFrom<i64>>(&self, index: usize, name: &'static str) -> Result<T, CallError> {
        T::try_from(self.int(index, name)?).map_err(|_| CallError::Param { index, name })
    }

    fn counts<const N: usize>(&self, first: usize, name: &'static str) -> Result<[u32; N], CallError> {
        let mut counts = [0; N];
        for (index, count) in (first..).zip(&mut counts) {
            *count = self.count(index, name)?;
        }
        Ok(counts)
    }

    /// Reads an integer that is the number of one of some choices.
    fn choice<T>(
        &self,
        index: usize,
        name: &'static str,
        from_ggml_id: impl Fn(i64) -> Option<T>,
    ) -> Result<T, CallError> {
        from_ggml_id(self.int(index, name)?).ok_or(CallError::Param { index, name })
    }

    pub(crate) fn offset(&self) -> Result<Bytes, CallError> {
        Ok(Bytes(self.count(0, "offset")?))
    }

    pub(crate) fn axes(&self) -> Result<[usize; 4], CallError> {
        let mut axes = [0; 4];
        for (index, axis) in axes.iter_mut().enumerate() {
            *axis = self.count(index, "axis")?;
        }
        Ok(axes)
    }

    pub(crate) fn groups(&self) -> Result<u32, CallError> {
        match self.count(0, "groups")? {
            0 => Err(CallError::Param { index: 0, name: "groups" }),
            groups => Ok(groups),
        }
    }

    pub(crate) fn soft_max(&self) -> Result<SoftMax, CallError> {
        Ok(SoftMax { scale: self.float(0, "scale")?, max_bias: self.float_or(1, 0.0)? })
    }

    pub(crate) fn soft_max_back(&self) -> Result<SoftMax, CallError> {
        Ok(SoftMax { scale: self.float_or(0, 1.0)?, max_bias: self.float_or(1, 0.0)? })
    }

    pub(crate) fn rope(&self) -> Result<Rope, CallError> {
        let number = self.int(1, "mode")?;
        let mode = RopeMode::from_ggml_id(number).ok_or_else(|| {
            CallError::Params(alloc::format!("mode: unknown: expected 0, 2, 8, 24 or 40, got {number}"))
        })?;
        // Without sections ggml's own graphs have any numbers there, or none.
        let sections = self.counts(9, "sections");
        let sections = if mode.has_sections() { sections? } else { sections.unwrap_or([0; 4]) };
        // Sums of them stay small this way.
        let makes_sense = sections.iter().any(|&pairs| pairs > 0) && sections.iter().all(|&pairs| pairs <= 1 << 30);
        if mode.has_sections() && !makes_sense {
            return Err(CallError::Params(alloc::format!(
                "sections: no pairs or too many: expected at most 2^30 in each, got {sections:?}"
            )));
        }
        Ok(Rope {
            dims: self.count(0, "dims")?,
            mode,
            context: self.count(2, "context")?,
            freq_base: self.float(3, "freq_base")?,
            freq_scale: self.float(4, "freq_scale")?,
            ext_factor: self.float(5, "ext_factor")?,
            attn_factor: self.float(6, "attn_factor")?,
            beta_fast: self.float(7, "beta_fast")?,
            beta_slow: self.float(8, "beta_slow")?,
            sections,
        })
    }

    pub(crate) fn attention(&self) -> Result<FlashAttention, CallError> {
        let (scale, max_bias) = (self.float(0, "scale")?, self.float(1, "max_bias")?);
        Ok(FlashAttention { scale, max_bias, softcap: self.float(2, "softcap")? })
    }

    pub(crate) fn convolution(&self) -> Result<Convolution, CallError> {
        let (stride, padding) = (self.counts(0, "stride")?, self.counts(2, "padding")?);
        Ok(Convolution { stride, padding, dilation: self.counts(4, "dilation")? })
    }

    pub(crate) fn directions(&self) -> Result<Directions, CallError> {
        Ok(if self.int(6, "directions")? == 0 { Directions::One } else { Directions::Two })
    }

    pub(crate) fn dtype(&self, index: usize) -> Result<DataType, CallError> {
        self.choice(index, "dtype", |id| DataType::from_ggml_id(u32::try_from(id).ok()?))
    }

    pub(crate) fn pool(&self) -> Result<Pool, CallError> {
        self.choice(0, "pool", Pool::from_ggml_id)
    }

    pub(crate) fn window(&self) -> Result<Window, CallError> {
        let padding = [self.float(5, "padding")?, self.float(6, "padding")?];
        Ok(Window { size: self.counts(1, "size")?, stride: self.counts(3, "stride")?, padding })
    }

    pub(crate) fn interpolation(&self) -> Result<Interpolation, CallError> {
        self.choice(0, "interpolation", Interpolation::from_ggml_id)
    }

    /// Reads the padding on one side of each dimension: 0 is before its elements, 1 behind them.
    pub(crate) fn padding(&self, side: usize) -> Result<[u32; 4], CallError> {
        let mut padding = [0; 4];
        for (dim, size) in padding.iter_mut().enumerate() {
            *size = self.count(2 * dim + side, "padding")?;
        }
        Ok(padding)
    }

    pub(crate) fn order(&self) -> Result<SortOrder, CallError> {
        self.choice(0, "order", SortOrder::from_ggml_id)
    }

    pub(crate) fn unary(&mut self) -> Result<OpCall, CallError> {
        let a = self.operand()?;
        match self.op {
            Op::Unary(Unary::Xielu) => {
                let float = |index| self.float(index, ["alpha_n", "alpha_p", "beta", "epsilon"][index]);
                Ok(OpCall::Xielu { a, numbers: [float(0)?, float(1)?, float(2)?, float(3)?] })
            }
            Op::Unary(kind) => Ok(OpCall::Unary { kind, a }),
            _ => Err(ShapeError::Undetermined.into()),
        }
    }

    /// Reads a gated linear unit. ggml's parameters behind the kind: 1 if the halves are swapped, and the two numbers of
    /// swiglu_oai.
    pub(crate) fn glu(&mut self) -> Result<OpCall, CallError> {
        let Op::Glu(kind) = self.op else { return Err(ShapeError::Undetermined.into()) };
        let (a, b) = (self.operand()?, self.optional_operand());
        let is_swapped = self.int(0, "swapped").is_ok_and(|swapped| swapped != 0);
        let gated = match b {
            Some(b) => Gated::Split { a, b },
            None if is_swapped => Gated::SwappedHalves { a },
            None => Gated::Halves { a },
        };
        let SwigluOai { alpha, limit } = SwigluOai::default();
        let swiglu = SwigluOai { alpha: self.float_or(1, alpha)?, limit: self.float_or(2, limit)? };
        Ok(OpCall::Glu { kind, gated, swiglu })
    }
}
