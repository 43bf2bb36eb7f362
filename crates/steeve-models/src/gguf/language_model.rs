//! A language model as external tensors of a context: its weights, as they are in the file, and its caches.
//!
//! ```text
//!   GgufHeader --ModelConfig--> LanguageModel::new --> weights, caches (external) --step--> Step (a graph, see `step`)
//! ```

use steeve_graph::{Context, DataType, TensorId};

use super::error::GgufError;
use super::header::{GgufHeader, GgufTensor};
use super::model_config::{Architecture, Experts, ModelConfig};

/// How long a text may get, and how many tokens of it are computed at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSize {
    /// The tokens that the caches have room for.
    pub context: u64,
    /// The most tokens of one graph.
    pub batch: u64,
}

/// The longest text of a model that is asked for no other.
const CONTEXT: u64 = 4096;

/// The tokens that are computed at a time by default.
const BATCH: u64 = 512;

impl SessionSize {
    /// Returns the size for a model that is asked for no other: 4096 tokens, or what it was trained with, if that is less, and batches
    /// of 512.
    ///
    /// # Errors
    ///
    /// If the header has no model of a family that is known, see [`ModelConfig::of`].
    pub fn usual(header: &GgufHeader) -> Result<Self, GgufError> {
        Ok(Self::new(ModelConfig::of(header)?.trained_context.min(CONTEXT), BATCH))
    }

    /// Returns this size with what is asked for instead.
    #[must_use]
    pub fn with(self, context: Option<u64>, batch: Option<u64>) -> Self {
        Self::new(context.unwrap_or(self.context), batch.unwrap_or(BATCH))
    }

    /// Returns a size, with a batch that is not above the context.
    pub fn new(context: u64, batch: u64) -> Self {
        Self { context, batch: batch.min(context) }
    }
}

/// A model of a file.
#[derive(Clone, Debug)]
pub struct LanguageModel {
    config: ModelConfig,
    size: SessionSize,
    tensors: Vec<ModelTensor>,
    pub(super) embedding: TensorId,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: TensorId,
    /// With the embedding, where the file has no other weight.
    pub(super) output: Projection,
    pub(super) rope_factors: Option<TensorId>,
    vocabulary: u64,
}

/// A tensor of a model whose memory the caller provides.
#[derive(Clone, Debug)]
pub struct ModelTensor {
    /// Its id in the context.
    pub id: TensorId,
    /// The layer that it belongs to; `None` for what all layers share.
    pub layer: Option<u64>,
    /// Where its data are in the file; `None` for caches.
    pub data: Option<GgufTensor>,
}

impl ModelTensor {
    /// Returns whether it is a cache, not a weight.
    pub fn is_cache(&self) -> bool {
        self.data.is_none()
    }
}

/// The tensors of one layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) number: u64,
    pub(super) norm: TensorId,
    pub(super) q: Projection,
    pub(super) k: Projection,
    pub(super) v: Projection,
    pub(super) q_norm: Option<TensorId>,
    pub(super) k_norm: Option<TensorId>,
    pub(super) out: Projection,
    pub(super) post_norm: Option<TensorId>,
    pub(super) hidden_norm: TensorId,
    pub(super) hidden: Hidden,
    pub(super) hidden_post_norm: Option<TensorId>,
    pub(super) k_cache: TensorId,
    pub(super) v_cache: TensorId,
    /// The rows of the caches.
    pub(super) rows: u64,
}

/// A matrix and what is added to its product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Projection {
    pub(super) weight: TensorId,
    pub(super) bias: Option<TensorId>,
}

/// A feed-forward network: one, or experts among which `router` chooses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    pub(super) gate: Projection,
    pub(super) up: Projection,
    pub(super) down: Projection,
    pub(super) router: Option<(TensorId, Experts)>,
}

/// The number to which the rows of windows and what is seen of a cache are rounded up, so that one graph serves many tokens.
pub(super) const PAD: u64 = 256;

impl LanguageModel {
    /// Builds the weights and caches of the model of a file in `context`.
    ///
    /// # Errors
    ///
    /// If it is no model of a family that is known, a weight is missing, has another shape, or is one that the family does not
    /// have; or if a size is zero.
    pub fn new(context: &mut Context, header: &GgufHeader, size: SessionSize) -> Result<Self, GgufError> {
        let config = ModelConfig::of(header)?;
        let most = u64::from(i32::MAX.unsigned_abs());
        for (what, got) in [("context", size.context), ("batch", size.batch)] {
            if got == 0 || got > most {
                return Err(GgufError::Size { what, expected: format!("1 to {most}"), got });
            }
        }
        let size = SessionSize::new(size.context, size.batch);
        let mut builder = ModelBuilder::new(context, header, &config, size);
        let (width, key) = (config.width, config.rope.dims);
        let vocabulary = builder.vocabulary()?;
        let embedding = builder.weight("token_embd.weight", &[width, vocabulary])?;
        let norm = builder.vector("output_norm.weight", width)?;
        let output = Projection {
            weight: builder.optional("output.weight", &[width, vocabulary])?.unwrap_or(embedding),
            bias: builder.vector_if(&[Architecture::Qwen2], "output.bias", vocabulary)?,
        };
        let rope_factors = match config.architecture {
            Architecture::Llama => builder.optional_vector("rope_freqs.weight", u64::from(key / 2))?,
            _ => None,
        };
        let layers = (0..config.layers).map(|layer| builder.layer(layer)).collect::<Result<Vec<_>, _>>()?;
        let tensors = builder.finish()?;
        Ok(Self { config, size, tensors, embedding, layers, norm, output, rope_factors, vocabulary })
    }

    /// Returns the numbers of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns how long a text may get.
    pub fn size(&self) -> SessionSize {
        self.size
    }

    /// Returns how many tokens there are to choose from.
    pub fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    /// Returns all weights and caches.
    pub fn tensors(&self) -> &[ModelTensor] {
        &self.tensors
    }

    /// Returns whether a tensor is on the GPU when the last `layers` layers are: theirs is, and what all layers share is if all
    /// layers are.
    pub fn is_on_gpu(&self, tensor: &ModelTensor, layers: u64) -> bool {
        let first = self.config.layers.saturating_sub(layers);
        tensor.layer.map_or(first == 0, |layer| layer >= first)
    }
}

/// The rows of a cache that sees the last `window` tokens: those that the first token of a batch sees, and the batch.
fn window_rows(window: u64, size: SessionSize) -> u64 {
    let needed = window.saturating_add(size.batch) - 1;
    needed.checked_next_multiple_of(PAD).unwrap_or(needed).min(size.context)
}

struct ModelBuilder<'a> {
    context: &'a mut Context,
    header: &'a GgufHeader,
    config: &'a ModelConfig,
    size: SessionSize,
    tensors: Vec<ModelTensor>,
    /// Of each tensor of the file, whether it was taken.
    taken: Vec<bool>,
    layer: Option<u64>,
}

/// The families that norm queries and keys head by head.
const NORMED_HEADS: &[Architecture] = &[Architecture::Qwen3, Architecture::Qwen3Moe, Architecture::Gemma3];

impl<'a> ModelBuilder<'a> {
    fn new(context: &'a mut Context, header: &'a GgufHeader, config: &'a ModelConfig, size: SessionSize) -> Self {
        let taken = vec![false; header.tensors().len()];
        Self { context, header, config, size, tensors: Vec::new(), taken, layer: None }
    }

    /// Returns how many rows the embedding has.
    fn vocabulary(&self) -> Result<u64, GgufError> {
        const NAME: &str = "token_embd.weight";
        let found = self.header.tensor(NAME).ok_or_else(|| GgufError::MissingTensor { tensor: NAME.to_owned() })?;
        match found.layout.ne()[1] {
            0 => Err(GgufError::Size { what: "rows of the embedding", expected: "1 or more".to_owned(), got: 0 }),
            rows => Ok(rows),
        }
    }

    fn layer(&mut self, number: u64) -> Result<Layer, GgufError> {
        self.layer = Some(number);
        let ModelConfig { width, heads, kv_heads, key_length, value_length, .. } = *self.config;
        let product = |a: u64, b: u64| a.saturating_mul(b);
        let (q, k, v) = (product(heads, key_length), product(kv_heads, key_length), product(kv_heads, value_length));
        let name = |name: &str| format!("blk.{number}.{name}");
        let rows = match self.config.sliding {
            Some(sliding) if self.config.slides(number) => window_rows(sliding.tokens, self.size),
            _ => self.size.context,
        };
        let layer = Layer {
            number,
            norm: self.vector(&name("attn_norm.weight"), width)?,
            q: self.projection(&name("attn_q"), width, q)?,
            k: self.projection(&name("attn_k"), width, k)?,
            v: self.projection(&name("attn_v"), width, v)?,
            q_norm: self.vector_of(NORMED_HEADS, &name("attn_q_norm.weight"), key_length)?,
            k_norm: self.vector_of(NORMED_HEADS, &name("attn_k_norm.weight"), key_length)?,
            out: self.projection(&name("attn_output"), product(heads, value_length), width)?,
            post_norm: self.vector_of(&[Architecture::Gemma3], &name("post_attention_norm.weight"), width)?,
            hidden_norm: self.vector(&name("ffn_norm.weight"), width)?,
            hidden: self.hidden(&name)?,
            hidden_post_norm: self.vector_of(&[Architecture::Gemma3], &name("post_ffw_norm.weight"), width)?,
            k_cache: self.cache(&format!("cache_k_l{number}"), k, rows)?,
            v_cache: self.cache(&format!("cache_v_l{number}"), v, rows)?,
            rows,
        };
        self.layer = None;
        Ok(layer)
    }

    fn hidden(&mut self, name: &impl Fn(&str) -> String) -> Result<Hidden, GgufError> {
        let ModelConfig { width, hidden, experts, .. } = *self.config;
        let Some(experts) = experts else {
            let mut projection = |kind: &str, from, to| {
                let weight = self.weight(&name(&format!("{kind}.weight")), &[from, to])?;
                let bias = self.vector_if(&[Architecture::Llama], &name(&format!("{kind}.bias")), to)?;
                Ok::<_, GgufError>(Projection { weight, bias })
            };
            return Ok(Hidden {
                gate: projection("ffn_gate", width, hidden)?,
                up: projection("ffn_up", width, hidden)?,
                down: projection("ffn_down", hidden, width)?,
                router: None,
            });
        };
        let mut projection = |kind: &str, from, to| {
            let weight = self.weight(&name(kind), &[from, to, experts.count])?;
            Ok::<_, GgufError>(Projection { weight, bias: None })
        };
        Ok(Hidden {
            gate: projection("ffn_gate_exps.weight", width, hidden)?,
            up: projection("ffn_up_exps.weight", width, hidden)?,
            down: projection("ffn_down_exps.weight", hidden, width)?,
            router: Some((self.weight(&name("ffn_gate_inp.weight"), &[width, experts.count])?, experts)),
        })
    }

    fn projection(&mut self, name: &str, from: u64, to: u64) -> Result<Projection, GgufError> {
        let weight = self.weight(&format!("{name}.weight"), &[from, to])?;
        Ok(Projection { weight, bias: self.optional_vector(&format!("{name}.bias"), to)? })
    }

    /// Returns a weight that models of some families may have.
    fn vector_if(&mut self, families: &[Architecture], name: &str, length: u64) -> Result<Option<TensorId>, GgufError> {
        if families.contains(&self.config.architecture) { self.optional_vector(name, length) } else { Ok(None) }
    }

    /// Returns a weight that all models of some families have.
    fn vector_of(&mut self, families: &[Architecture], name: &str, length: u64) -> Result<Option<TensorId>, GgufError> {
        families.contains(&self.config.architecture).then(|| self.vector(name, length)).transpose()
    }

    /// Builds a weight that is added or multiplied element by element.
    fn vector(&mut self, name: &str, length: u64) -> Result<TensorId, GgufError> {
        self.optional_vector(name, length)?.ok_or_else(|| GgufError::MissingTensor { tensor: name.to_owned() })
    }

    fn optional_vector(&mut self, name: &str, length: u64) -> Result<Option<TensorId>, GgufError> {
        match self.header.tensor(name).map(|tensor| tensor.layout.dtype()) {
            None | Some(DataType::F32) => self.optional(name, &[length]),
            Some(got) => Err(GgufError::WeightType { tensor: name.to_owned(), expected: "f32", got }),
        }
    }

    fn weight(&mut self, name: &str, shape: &[u64]) -> Result<TensorId, GgufError> {
        self.optional(name, shape)?.ok_or_else(|| GgufError::MissingTensor { tensor: name.to_owned() })
    }

    fn optional(&mut self, name: &str, shape: &[u64]) -> Result<Option<TensorId>, GgufError> {
        let Some(index) = self.header.index(name) else { return Ok(None) };
        let tensor = &self.header.tensors()[index];
        if (0..4).any(|dim| tensor.layout.ne()[dim] != shape.get(dim).copied().unwrap_or(1)) {
            let got = tensor.layout.shape().to_vec();
            return Err(GgufError::Shape { tensor: name.to_owned(), expected: shape.to_vec(), got });
        }
        if tensor.layout.dtype().is_integer() {
            let got = tensor.layout.dtype();
            return Err(GgufError::WeightType { tensor: name.to_owned(), expected: "numbers with fractions", got });
        }
        self.taken[index] = true;
        let id = self.context.external(tensor.layout.dtype(), shape)?;
        self.context.set_name(id, name)?;
        self.tensors.push(ModelTensor { id, layer: self.layer, data: Some(tensor.clone()) });
        Ok(Some(id))
    }

    fn cache(&mut self, name: &str, width: u64, rows: u64) -> Result<TensorId, GgufError> {
        let id = self.context.external(DataType::F16, &[width, rows])?;
        self.context.set_name(id, name)?;
        self.tensors.push(ModelTensor { id, layer: self.layer, data: None });
        Ok(id)
    }

    /// Returns all tensors, once all of the file have been taken.
    fn finish(self) -> Result<Vec<ModelTensor>, GgufError> {
        match self.taken.iter().position(|taken| !taken) {
            None => Ok(self.tensors),
            Some(index) => Err(GgufError::UnknownTensor {
                tensor: self.header.tensors()[index].name.clone(),
                architecture: self.config.architecture,
            }),
        }
    }
}
