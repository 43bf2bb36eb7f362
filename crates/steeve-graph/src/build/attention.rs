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

/// Which elements of a row a rotary position embedding rotates together, and by which part of a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RopeMode {
    /// Neighbours are a pair.
    #[default]
    Normal,
    /// Elements at equal places in both halves of what is rotated are a pair, as in GPT-NeoX.
    Neox,
    /// Pairs as [`Neox`](Self::Neox); a position has four parts, which rotate sections one behind another.
    Sections,
    /// Pairs are the same place in both halves of a whole row; the frequencies start over in each section.
    Vision,
    /// Pairs as [`Neox`](Self::Neox); the first three parts of a position rotate pairs in turn.
    InterleavedSections,
}

impl RopeMode {
    /// Every mode.
    pub const ALL: [Self; 5] = [Self::Normal, Self::Neox, Self::Sections, Self::Vision, Self::InterleavedSections];

    /// Returns ggml's number of it, as files have it.
    pub const fn ggml_id(self) -> u32 {
        match self {
            Self::Normal => 0,
            Self::Neox => 2,
            Self::Sections => 8,
            Self::Vision => 24,
            Self::InterleavedSections => 40,
        }
    }

    /// Returns the mode of ggml's number.
    pub fn from_ggml_id(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| i64::from(mode.ggml_id()) == number)
    }

    /// Returns whether a position has four parts.
    pub const fn has_sections(self) -> bool {
        matches!(self, Self::Sections | Self::Vision | Self::InterleavedSections)
    }

    /// Returns how many numbers a position has.
    pub const fn parts(self) -> u64 {
        if self.has_sections() { 4 } else { 1 }
    }

    /// Returns how many pairs of a row of `length` are rotated if `dims` elements are; `None` if they are no pairs.
    pub fn pairs(self, dims: u64, length: u64) -> Option<u64> {
        match self {
            Self::Vision => (dims.checked_mul(2) == Some(length)).then_some(dims),
            _ => (dims <= length && dims.is_multiple_of(2)).then_some(dims / 2),
        }
    }
}

/// The numbers of a rotary position embedding. The default is that of the first llama.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// How many elements of a row are rotated.
    pub dims: u32,
    /// Which elements are rotated together.
    pub mode: RopeMode,
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
            mode: RopeMode::Normal,
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
    /// Appends the soft-max of each row of `a`, scaled and with `mask` added.
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
        let ints = [numbers.dims, numbers.mode.ggml_id(), numbers.context].map(|value| Param::Int(value.into()));
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

    /// Appends attention in one step: `q` `[d, token, head]`, `k` `[d, kv, head]` and `v` `[dv, kv, head]` make `[dv,
    /// head, token]`.
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
