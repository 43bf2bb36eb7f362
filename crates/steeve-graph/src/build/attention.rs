//! Soft-max, positions and attention, with their many numbers under names.

use alloc::vec::Vec;

use crate::{Context, GraphError, Op, Param, TensorId};

/// The numbers of a soft-max. The default leaves everything as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftMax {
    /// What the source is multiplied by.
    pub scale: f32,
    /// The largest slope of ALiBi; zero for none.
    pub max_bias: f32,
}

impl Default for SoftMax {
    fn default() -> Self {
        Self { scale: 1.0, max_bias: 0.0 }
    }
}

/// The numbers of a rotary position embedding. The default is that of the first llama.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// How many elements of a row are rotated.
    pub dims: u32,
    /// ggml's number of the kind: 0 rotates neighbours, 2 the halves; with 8 a position has four parts.
    pub mode: u32,
    /// The length of the context the model was trained with.
    pub context: u32,
    /// The base of the frequencies.
    pub freq_base: f32,
    /// What positions are multiplied by.
    pub freq_scale: f32,
    /// How much YaRN extrapolates.
    pub ext_factor: f32,
    /// What the result is multiplied by.
    pub attn_factor: f32,
    /// Where YaRN starts.
    pub beta_fast: f32,
    /// Where YaRN ends.
    pub beta_slow: f32,
    /// How many dimensions each part of a position rotates.
    pub sections: [u32; 4],
}

impl Default for Rope {
    fn default() -> Self {
        Self {
            dims: 0,
            mode: 0,
            context: 0,
            freq_base: 10000.0,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            sections: [0; 4],
        }
    }
}

/// The numbers of an attention in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashAttention {
    /// What the scores are multiplied by.
    pub scale: f32,
    /// The largest slope of ALiBi; zero for none.
    pub max_bias: f32,
    /// What the scores are softly limited to; zero for nothing.
    pub softcap: f32,
}

impl Context {
    /// Soft-max of each row of `a`, scaled and with `mask` added.
    pub fn soft_max(&mut self, a: TensorId, mask: Option<TensorId>, numbers: SoftMax) -> Result<TensorId, GraphError> {
        let params = [numbers.scale.into(), numbers.max_bias.into()];
        match mask {
            Some(mask) => self.apply(Op::SoftMax, &[Some(a), Some(mask)], &params),
            None => self.apply(Op::SoftMax, &[Some(a)], &params),
        }
    }

    /// Rotates `a` `[dim, head, token]` by the positions of its tokens.
    pub fn rope(
        &mut self,
        a: TensorId,
        positions: TensorId,
        factors: Option<TensorId>,
        numbers: Rope,
    ) -> Result<TensorId, GraphError> {
        let ints = [numbers.dims, numbers.mode, numbers.context].map(|value| Param::Int(value.into()));
        let floats = [
            numbers.freq_base,
            numbers.freq_scale,
            numbers.ext_factor,
            numbers.attn_factor,
            numbers.beta_fast,
            numbers.beta_slow,
        ];
        let sections = numbers.sections.map(|value| Param::Int(value.into()));
        let params: Vec<_> = ints.into_iter().chain(floats.map(Param::Float)).chain(sections).collect();
        match factors {
            Some(factors) => self.apply(Op::Rope, &[Some(a), Some(positions), Some(factors)], &params),
            None => self.apply(Op::Rope, &[Some(a), Some(positions)], &params),
        }
    }

    /// Attention in one step: `q` `[d, token, head]`, `k` `[d, kv, head]` and `v` `[dv, kv, head]` make
    /// `[dv, head, token]`.
    pub fn flash_attn_ext(
        &mut self,
        q: TensorId,
        k: TensorId,
        v: TensorId,
        mask: Option<TensorId>,
        numbers: FlashAttention,
    ) -> Result<TensorId, GraphError> {
        let params = [numbers.scale, numbers.max_bias, numbers.softcap].map(Param::Float);
        match mask {
            Some(mask) => self.apply(Op::FlashAttnExt, &[Some(q), Some(k), Some(v), Some(mask)], &params),
            None => self.apply(Op::FlashAttnExt, &[Some(q), Some(k), Some(v)], &params),
        }
    }
}
