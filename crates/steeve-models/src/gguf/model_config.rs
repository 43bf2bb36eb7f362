//! What a header says of a language model: its family and the numbers of its layers.

use std::fmt;

use steeve_graph::{Rope, RopeMode};

use super::error::GgufError;
use super::header::GgufHeader;

/// A family of language models that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama and what is built like it (SmolLM2, Mistral, Mixtral).
    Llama,
    /// Qwen 2 and 2.5: biases for queries, keys and values.
    Qwen2,
    /// Qwen 3: queries and keys are normalised.
    Qwen3,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Gemma 3: sliding windows, and norms behind attention and feed-forward network.
    Gemma3,
}

impl Architecture {
    /// Every family.
    pub const ALL: [Self; 5] = [Self::Llama, Self::Qwen2, Self::Qwen3, Self::Qwen3Moe, Self::Gemma3];

    pub(super) const LIST: &str = "llama, qwen2, qwen3, qwen3moe or gemma3";

    /// Returns its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Moe => "qwen3moe",
            Self::Gemma3 => "gemma3",
        }
    }

    /// Returns which elements of a row its positions rotate together.
    fn rope_mode(self) -> RopeMode {
        match self {
            Self::Llama => RopeMode::Normal,
            Self::Qwen2 | Self::Qwen3 | Self::Qwen3Moe | Self::Gemma3 => RopeMode::Neox,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The numbers of a language model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// The longest text it was trained with, in tokens.
    pub trained_context: u64,
    /// The number of layers.
    pub layers: u64,
    /// The elements of a token between layers.
    pub width: u64,
    /// The elements between the two products of a feed-forward network.
    pub hidden: u64,
    /// The heads of the queries.
    pub heads: u64,
    /// The heads of keys and values, each of which serves several of the queries.
    pub kv_heads: u64,
    /// The elements of a query or key of one head.
    pub key_length: u64,
    /// The elements of a value of one head.
    pub value_length: u64,
    /// The number that norms add to a mean square.
    pub epsilon: f32,
    /// How positions rotate queries and keys.
    pub rope: Rope,
    /// What scores of attention are multiplied by.
    pub attention_scale: f32,
    /// What embeddings are multiplied by.
    pub embedding_scale: f32,
    /// What the scores of tokens are softly limited to; zero for nothing.
    pub softcap: f32,
    /// The experts, where feed-forward networks are made of such.
    pub experts: Option<Experts>,
    /// The layers that see the last tokens only, where there are any.
    pub sliding: Option<SlidingWindow>,
}

/// The feed-forward networks of which each token uses some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// How many a token uses.
    pub used: u64,
}

/// The most experts that a token may use: as many as llama.cpp allows a model to have.
const MOST_USED: u64 = 512;

/// The layers that see the last tokens only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlidingWindow {
    /// How many tokens they see, the last one included.
    pub tokens: u64,
    /// The last of so many layers sees everything, the ones before it do not.
    pub pattern: u64,
    /// How positions rotate their queries and keys.
    pub rope: Rope,
}

impl ModelConfig {
    /// Returns the numbers of the model in a file.
    ///
    /// # Errors
    ///
    /// If it is of a family that is not known, has a variant that is not supported, or its numbers make no model.
    pub fn of(header: &GgufHeader) -> Result<Self, GgufError> {
        let architecture = architecture(header)?;
        let keys = ModelKeys { header, architecture };
        let parts = header.value("split.count").and_then(|value| value.as_u64()).unwrap_or(0);
        if parts > 1 {
            return Err(GgufError::Split { parts });
        }
        let (width, heads) = (keys.positive("embedding_length")?, keys.positive("attention.head_count")?);
        let kv_heads = keys.optional("attention.head_count_kv")?.unwrap_or(heads);
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(keys.wrong("attention.head_count_kv", "a divisor of attention.head_count"));
        }
        let length = |name| match keys.optional(name)?.unwrap_or(width / heads) {
            0 => Err(keys.wrong(name, "a number above 0")),
            length => Ok(length),
        };
        let (key_length, value_length) = (length("attention.key_length")?, length("attention.value_length")?);
        let layers = keys.positive("block_count")?;
        let rope = keys.rope(key_length)?;
        let experts = keys.experts()?;
        Ok(Self {
            architecture,
            trained_context: keys.positive("context_length")?,
            layers,
            width,
            hidden: keys.hidden(experts)?,
            heads,
            kv_heads,
            key_length,
            value_length,
            epsilon: keys.needed_float("attention.layer_norm_rms_epsilon")?,
            rope,
            attention_scale: match architecture {
                // The largest of the family scales by what each head gets of the width.
                Architecture::Gemma3 if layers == 62 => 1.0 / ((width / heads) as f32).sqrt(),
                _ => 1.0 / (key_length as f32).sqrt(),
            },
            embedding_scale: if architecture == Architecture::Gemma3 { (width as f32).sqrt() } else { 1.0 },
            softcap: match architecture {
                Architecture::Gemma3 => keys.float("final_logit_softcapping")?.unwrap_or(0.0),
                _ => 0.0,
            },
            experts,
            sliding: keys.sliding(&rope)?,
        })
    }

    /// Returns whether a layer sees the last tokens only.
    pub fn slides(&self, layer: u64) -> bool {
        self.sliding.is_some_and(|sliding| layer % sliding.pattern < sliding.pattern - 1)
    }

    /// Returns how positions rotate the queries and keys of a layer.
    pub fn rope_of(&self, layer: u64) -> Rope {
        self.sliding.filter(|_| self.slides(layer)).map_or(self.rope, |sliding| sliding.rope)
    }
}

fn architecture(header: &GgufHeader) -> Result<Architecture, GgufError> {
    const KEY: &str = "general.architecture";
    let value = header.value(KEY).ok_or_else(|| GgufError::MissingValue { key: KEY.to_owned() })?;
    let wrong = || GgufError::Value { key: KEY.to_owned(), expected: "a text", got: value.to_string() };
    let found = value.as_text().ok_or_else(wrong)?;
    let known = Architecture::ALL.into_iter().find(|known| known.name() == found);
    known.ok_or_else(|| GgufError::Architecture { found: found.to_owned() })
}

/// The values of a header under the name of its family.
struct ModelKeys<'a> {
    header: &'a GgufHeader,
    architecture: Architecture,
}

impl ModelKeys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Returns the error for a value that is there and is wrong.
    fn wrong(&self, name: &str, expected: &'static str) -> GgufError {
        let key = self.key(name);
        let got = self.header.value(&key).map_or_else(|| "none".to_owned(), ToString::to_string);
        GgufError::Value { key, expected, got }
    }

    /// Returns a number. An array with the same number for every layer is that number.
    fn optional(&self, name: &str) -> Result<Option<u64>, GgufError> {
        use super::value::GgufValue;
        let Some(value) = self.header.value(&self.key(name)) else { return Ok(None) };
        let number = match value {
            GgufValue::Numbers(numbers) => {
                let mut all = numbers.iter().map(|number| number.as_u64());
                let first = all.next().flatten();
                first.filter(|first| all.all(|other| other == Some(*first)))
            }
            value => value.as_u64(),
        };
        number.map(Some).ok_or_else(|| self.wrong(name, "a number, the same for all layers"))
    }

    fn positive(&self, name: &str) -> Result<u64, GgufError> {
        match self.optional(name)? {
            Some(0) => Err(self.wrong(name, "a number above 0")),
            Some(number) => Ok(number),
            None => Err(GgufError::MissingValue { key: self.key(name) }),
        }
    }

    fn float(&self, name: &str) -> Result<Option<f32>, GgufError> {
        let Some(value) = self.header.value(&self.key(name)) else { return Ok(None) };
        let number = value.as_f32().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| self.wrong(name, "a finite number"))
    }

    fn needed_float(&self, name: &str) -> Result<f32, GgufError> {
        self.float(name)?.ok_or_else(|| GgufError::MissingValue { key: self.key(name) })
    }

    /// Returns the elements between the two products of a feed-forward network, or of each of the experts.
    fn hidden(&self, experts: Option<Experts>) -> Result<u64, GgufError> {
        let whole = "feed_forward_length";
        let Some(experts) = experts else { return self.positive(whole) };
        match self.optional("expert_feed_forward_length")?.filter(|length| *length > 0) {
            Some(length) => Ok(length),
            // The experts that a token uses share the length of the whole.
            None if self.architecture == Architecture::Qwen3Moe => match self.positive(whole)? / experts.used {
                0 => Err(self.wrong(whole, "as many as the experts that a token uses, or more")),
                length => Ok(length),
            },
            None => self.positive(whole),
        }
    }

    fn rope(&self, key_length: u64) -> Result<Rope, GgufError> {
        let dims = self.optional("rope.dimension_count")?.unwrap_or(key_length);
        let pairs = u32::try_from(dims).ok().filter(|dims| dims.is_multiple_of(2) && u64::from(*dims) <= key_length);
        let dims = pairs.ok_or_else(|| self.wrong("rope.dimension_count", "an even number up to that of a key"))?;
        let plain = Rope {
            dims,
            mode: self.architecture.rope_mode(),
            freq_base: self.float("rope.freq_base")?.unwrap_or(1e4),
            ..Rope::default()
        };
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.float("rope.scale_linear")?,
        };
        let factor = factor.filter(|factor| *factor != 0.0).unwrap_or(1.0);
        if factor < 0.0 {
            return Err(self.wrong("rope.scaling.factor", "a number above 0"));
        }
        let scaling = self.header.value(&self.key("rope.scaling.type")).and_then(|value| value.as_text());
        match scaling.unwrap_or("linear") {
            "none" => Ok(plain),
            "linear" => Ok(Rope { freq_scale: 1.0 / factor, ..plain }),
            "yarn" => {
                let trained = match self.optional("rope.scaling.original_context_length")? {
                    Some(context) => context,
                    None => self.positive("context_length")?,
                };
                let context = u32::try_from(trained).ok();
                let context =
                    context.ok_or_else(|| self.wrong("rope.scaling.original_context_length", "a number of 32 bits"))?;
                let attn_factor = self.float("rope.scaling.attn_factor")?.unwrap_or(1.0);
                Ok(Rope { context, freq_scale: 1.0 / factor, ext_factor: 1.0, attn_factor, ..plain })
            }
            _ => Err(self.wrong("rope.scaling.type", "none, linear or yarn")),
        }
    }

    fn experts(&self) -> Result<Option<Experts>, GgufError> {
        let count = self.optional("expert_count")?.unwrap_or(0);
        if count == 0 {
            let is_made_of_them = self.architecture == Architecture::Qwen3Moe;
            return if is_made_of_them { Err(self.wrong("expert_count", "a number above 0")) } else { Ok(None) };
        }
        let used = self.positive("expert_used_count")?;
        // A graph has nodes for each expert that is used, so a header must not be able to ask for any number of them.
        if used > count.min(MOST_USED) {
            return Err(self.wrong("expert_used_count", "at most expert_count, and at most 512"));
        }
        Ok(Some(Experts { count, used }))
    }

    fn sliding(&self, rope: &Rope) -> Result<Option<SlidingWindow>, GgufError> {
        let tokens = self.optional("attention.sliding_window")?.unwrap_or(0);
        if self.architecture != Architecture::Gemma3 || tokens == 0 {
            return Ok(None);
        }
        let pattern = self.optional("attention.sliding_window_pattern")?.unwrap_or(6);
        if pattern == 0 {
            return Err(self.wrong("attention.sliding_window_pattern", "a number above 0"));
        }
        let freq_base = self.float("rope.freq_base_swa")?.unwrap_or(1e4);
        // Only the layers that see everything are stretched to longer texts.
        Ok(Some(SlidingWindow { tokens, pattern, rope: Rope { freq_base, freq_scale: 1.0, ext_factor: 0.0, ..*rope } }))
    }
}
