//! The graph of one step of a model: some tokens in, the scores of what comes after the last of them out.
//!
//! What differs from step to step is in the inputs: tokens, positions, the rows of the caches, and masks that hide what is not
//! to be seen. So one graph serves all steps of as many tokens and as many keys.

use half::f16;
use steeve_graph::{Bytes, Context, DataType, FlashAttention, Glu, Graph, Rope, SoftMax, TensorId};

use super::error::GgufError;
use super::language_model::{Hidden, LanguageModel, Layer, PAD, Projection};
use super::model_config::{Architecture, Experts};

/// A graph, and what it reads and computes.
#[derive(Clone, Debug)]
pub struct Step {
    /// The graph.
    pub graph: Graph,
    /// The numbers of the tokens.
    pub tokens: TensorId,
    /// Their positions in the text, which are their rows in caches that see everything.
    pub positions: TensorId,
    /// What each of them sees of these caches. `None` if no layer sees everything.
    pub mask: Option<TensorId>,
    /// The caches that see the last tokens only, where there are such layers.
    pub window: Option<WindowInputs>,
    /// The scores of all tokens that could come next.
    pub scores: TensorId,
    shape: StepShape,
}

/// The inputs for caches that see the last tokens only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowInputs {
    /// The rows of the tokens.
    pub rows: TensorId,
    /// What each of them sees.
    pub mask: TensorId,
}

/// What the graph of a step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    /// The tokens that are computed.
    pub tokens: u64,
    /// The rows of a cache that they look at.
    pub keys: u64,
}

/// What the tokens of a step see of the caches.
#[derive(Clone, Copy, Debug)]
struct Visibility {
    /// The tokens before them.
    past: u64,
    /// The tokens of the step.
    tokens: u64,
}

impl Visibility {
    /// Returns zero for each key that each token sees, and minus infinity for all others, of a cache in which a row is a
    /// position.
    fn of_all(self, keys: u64) -> Vec<f16> {
        self.mask(keys, Some, u64::MAX)
    }

    /// Returns the same for a ring of `rows`, of which each row has the last token whose position modulo `rows` is its own, and a
    /// token sees `window` tokens.
    fn of_window(self, keys: u64, rows: u64, window: u64) -> Vec<f16> {
        let last = (self.past + self.tokens).saturating_sub(1);
        // The last position at or before `last` that is in this row.
        let position = |row: u64| last.checked_sub((last % rows + rows - row) % rows);
        self.mask(keys, position, window)
    }

    fn mask(self, keys: u64, position: impl Fn(u64) -> Option<u64>, window: u64) -> Vec<f16> {
        let positions: Vec<Option<u64>> = (0..keys).map(position).collect();
        let sees = |token: u64, key: Option<u64>| key.is_some_and(|key| key <= token && token - key < window);
        let row =
            |token: u64| positions.iter().map(move |key| if sees(token, *key) { f16::ZERO } else { f16::NEG_INFINITY });
        (self.past..self.past + self.tokens).flat_map(row).collect()
    }
}

impl LanguageModel {
    /// Returns the shape of a step of `tokens` behind `past` others. What it looks at is rounded up, so that many steps have one
    /// shape.
    pub fn step_shape(&self, past: u64, tokens: u64) -> StepShape {
        let context = self.size().context;
        let written = past.saturating_add(tokens);
        let keys = written.checked_next_multiple_of(PAD).map_or(context, |keys| keys.min(context));
        StepShape { tokens, keys }
    }

    /// Returns the shapes of the largest steps: a batch of the prompt, and a token behind a full context.
    pub fn largest_shapes(&self) -> [StepShape; 2] {
        let size = self.size();
        [size.batch, 1].map(|tokens| StepShape { tokens, keys: size.context })
    }

    /// Returns the rows of the caches that see the last tokens only; `None` if there are none.
    pub fn window_rows(&self) -> Option<u64> {
        self.layers.iter().find(|layer| self.config().slides(layer.number)).map(|layer| layer.rows)
    }

    /// Builds the graph of a step behind all tensors of `context`. [`Context::rewind`] to a mark from before drops it again.
    ///
    /// # Errors
    ///
    /// If there are no tokens, more than a batch, more keys than the context has, or fewer keys than tokens.
    pub fn step(&self, context: &mut Context, shape: StepShape) -> Result<Step, GgufError> {
        self.check(shape)?;
        GraphBuilder::new(self, context, shape)?.build()
    }

    fn check(&self, StepShape { tokens, keys }: StepShape) -> Result<(), GgufError> {
        let size = self.size();
        if tokens == 0 || tokens > size.batch {
            let expected = format!("1 to {}", size.batch);
            return Err(GgufError::Size { what: "tokens of a step", expected, got: tokens });
        }
        if keys < tokens || keys > size.context {
            let expected = format!("{tokens} to {}", size.context);
            return Err(GgufError::Size { what: "keys of a step", expected, got: keys });
        }
        Ok(())
    }

    /// Returns the mask for caches that see everything, and rows and mask for those that see the last tokens only, of a step
    /// behind `past` tokens.
    ///
    /// # Errors
    ///
    /// If there is no step of this shape, see [`step`](Self::step), or its keys are fewer than the tokens up to its last one.
    pub fn visibility(&self, past: u64, shape: StepShape) -> Result<StepMasks, GgufError> {
        self.check(shape)?;
        let most = shape.keys - shape.tokens;
        if past > most {
            return Err(GgufError::Size { what: "tokens before a step", expected: format!("0 to {most}"), got: past });
        }
        let visibility = Visibility { past, tokens: shape.tokens };
        let window = self.window_rows().zip(self.config().sliding).map(|(rows, sliding)| {
            let places = (past..past + shape.tokens).map(|position| (position % rows) as i32).collect();
            (places, visibility.of_window(shape.keys.min(rows), rows, sliding.tokens))
        });
        Ok(StepMasks { all: self.sees_all().then(|| visibility.of_all(shape.keys)), window })
    }

    /// Returns whether any layer sees everything.
    fn sees_all(&self) -> bool {
        self.layers.iter().any(|layer| !self.config().slides(layer.number))
    }
}

/// What the tokens of a step see of each kind of cache.
#[derive(Clone, Debug, PartialEq)]
pub struct StepMasks {
    /// For [`Step::mask`].
    pub all: Option<Vec<f16>>,
    /// For [`Step::window`]: rows and mask.
    pub window: Option<(Vec<i32>, Vec<f16>)>,
}

/// Builds the nodes of a step.
struct GraphBuilder<'a> {
    model: &'a LanguageModel,
    context: &'a mut Context,
    shape: StepShape,
    tokens: TensorId,
    positions: TensorId,
    mask: Option<TensorId>,
    window: Option<WindowInputs>,
}

/// Tokens of which queries are computed: all of a step, or the last one in the last layer.
#[derive(Clone, Copy)]
struct Queries {
    normed: TensorId,
    positions: TensorId,
    mask: TensorId,
    count: u64,
}

impl<'a> GraphBuilder<'a> {
    fn new(model: &'a LanguageModel, context: &'a mut Context, shape: StepShape) -> Result<Self, GgufError> {
        let StepShape { tokens: count, keys } = shape;
        let input = |context: &mut Context, name, dtype, shape: &[u64]| {
            let id = context.input(dtype, shape)?;
            context.set_name(id, name).map(|()| id)
        };
        let tokens = input(context, "inp_tokens", DataType::I32, &[count])?;
        let positions = input(context, "inp_pos", DataType::I32, &[count])?;
        let mask =
            model.sees_all().then(|| input(context, "attn_inp_kq_mask", DataType::F16, &[keys, count])).transpose()?;
        let window = model.window_rows().map(|rows| {
            Ok::<_, GgufError>(WindowInputs {
                rows: input(context, "attn_inp_k_idxs_swa", DataType::I32, &[count])?,
                mask: input(context, "attn_inp_kq_mask_swa", DataType::F16, &[keys.min(rows), count])?,
            })
        });
        let window = window.transpose()?;
        Ok(Self { model, context, shape, tokens, positions, mask, window })
    }

    fn build(mut self) -> Result<Step, GgufError> {
        let (model, config) = (self.model, self.model.config());
        let mut x = self.context.get_rows(model.embedding, self.tokens)?;
        if config.embedding_scale != 1.0 {
            x = self.context.scale(x, config.embedding_scale)?;
        }
        self.name(x, "inp_embd")?;
        for layer in &model.layers {
            x = self.layer(layer, x)?;
            self.name(x, &format!("l_out-{}", layer.number))?;
        }
        let normed = self.normed(x, model.norm)?;
        self.name(normed, "result_norm")?;
        let mut scores = self.projected(model.output, normed)?;
        if config.softcap != 0.0 {
            scores = self.context.scale(scores, 1.0 / config.softcap)?;
            scores = self.context.tanh(scores)?;
            scores = self.context.scale(scores, config.softcap)?;
        }
        self.name(scores, "result_output")?;
        self.context.set_output(scores)?;
        let graph = Graph::from_outputs(self.context, &[scores])?;
        let Self { shape, tokens, positions, mask, window, .. } = self;
        Ok(Step { graph, tokens, positions, mask, window, scores, shape })
    }

    fn layer(&mut self, layer: &Layer, x: TensorId) -> Result<TensorId, GgufError> {
        let mixed = self.attention(layer, x)?;
        let mixed = self.normed_if(mixed, layer.post_norm)?;
        // What the last layer says of the tokens before the last is not wanted.
        let x = if self.is_last(layer) { self.last_row(x)? } else { x };
        let x = self.context.add(mixed, x)?;
        self.name(x, &format!("ffn_inp-{}", layer.number))?;
        let normed = self.normed(x, layer.hidden_norm)?;
        let hidden = match layer.hidden.router {
            None => self.feed_forward(layer, normed)?,
            Some((router, experts)) => self.experts(&layer.hidden, router, experts, normed)?,
        };
        let hidden = self.normed_if(hidden, layer.hidden_post_norm)?;
        self.name(hidden, &format!("ffn_out-{}", layer.number))?;
        Ok(self.context.add(hidden, x)?)
    }

    fn is_last(&self, layer: &Layer) -> bool {
        layer.number + 1 == self.model.config().layers
    }

    fn attention(&mut self, layer: &Layer, x: TensorId) -> Result<TensorId, GgufError> {
        let config = self.model.config();
        let (count, rope) = (self.shape.tokens, config.rope_of(layer.number));
        let (mask, rows) = match (self.window, self.mask) {
            (Some(window), _) if config.slides(layer.number) => (window.mask, window.rows),
            (_, Some(mask)) => (mask, self.positions),
            (_, None) => unreachable!("there is a mask if any layer sees everything"),
        };
        let normed = self.normed(x, layer.norm)?;
        self.name(normed, &format!("attn_norm-{}", layer.number))?;
        let k = self.projected(layer.k, normed)?;
        let k = self.context.reshape(k, &[config.key_length, config.kv_heads, count])?;
        let k = self.rotated(k, layer.k_norm, self.positions, rope)?;
        self.name(k, &format!("Kcur-{}", layer.number))?;
        let v = self.projected(layer.v, normed)?;
        self.name(v, &format!("Vcur-{}", layer.number))?;
        let k = self.through_cache(k, layer.k_cache, rows, layer.rows, config.key_length)?;
        let v = self.through_cache(v, layer.v_cache, rows, layer.rows, config.value_length)?;
        let queries = self.queries(layer, normed, mask)?;
        let q = self.projected(layer.q, queries.normed)?;
        let q = self.context.reshape(q, &[config.key_length, config.heads, queries.count])?;
        let q = self.rotated(q, layer.q_norm, queries.positions, rope)?;
        self.name(q, &format!("Qcur-{}", layer.number))?;
        let q = self.context.permute(q, [0, 2, 1, 3])?;
        let attention = FlashAttention { scale: config.attention_scale, ..FlashAttention::default() };
        let mixed = self.context.flash_attn_ext(q, k, v, Some(queries.mask), attention)?;
        let mixed = self.context.reshape(mixed, &[config.value_length * config.heads, queries.count])?;
        self.name(mixed, &format!("kqv_out-{}", layer.number))?;
        self.projected(layer.out, mixed)
    }

    /// Returns the tokens of which queries are computed.
    fn queries(&mut self, layer: &Layer, normed: TensorId, mask: TensorId) -> Result<Queries, GgufError> {
        let (count, positions) = (self.shape.tokens, self.positions);
        if count == 1 || !self.is_last(layer) {
            return Ok(Queries { normed, positions, mask, count });
        }
        Ok(Queries {
            normed: self.last_row(normed)?,
            positions: self.context.view_1d(positions, 1, Bytes(4 * (count - 1)))?,
            mask: self.last_row(mask)?,
            count: 1,
        })
    }

    fn last_row(&mut self, x: TensorId) -> Result<TensorId, GgufError> {
        let layout = self.context.tensor(x)?.layout;
        let [width, rows, ..] = layout.ne();
        if rows == 1 {
            return Ok(x);
        }
        Ok(self.context.view_1d(x, width, Bytes(layout.nb()[1] * (rows - 1)))?)
    }

    /// Writes rows into a cache, and returns what attention sees of it. It is seen through the result of the write, so that
    /// there is an edge from the write to who reads.
    fn through_cache(
        &mut self,
        rows: TensorId,
        cache: TensorId,
        places: TensorId,
        room: u64,
        length: u64,
    ) -> Result<TensorId, GgufError> {
        let (heads, keys) = (self.model.config().kv_heads, self.shape.keys.min(room));
        let rows = self.context.reshape(rows, &[length * heads, self.shape.tokens])?;
        let written = self.context.set_rows(cache, rows, places)?;
        let strides = [2 * length * heads, 2 * length];
        Ok(self.context.view_3d(written, [length, keys, heads], strides, Bytes(0))?)
    }

    fn rotated(
        &mut self,
        x: TensorId,
        norm: Option<TensorId>,
        positions: TensorId,
        rope: Rope,
    ) -> Result<TensorId, GgufError> {
        let x = self.normed_if(x, norm)?;
        Ok(self.context.rope(x, positions, self.model.rope_factors, rope)?)
    }

    fn feed_forward(&mut self, layer: &Layer, x: TensorId) -> Result<TensorId, GgufError> {
        let Hidden { gate, up, down, .. } = layer.hidden;
        let kind = match self.model.config().architecture {
            Architecture::Gemma3 => Glu::Geglu,
            _ => Glu::Swiglu,
        };
        let gate = self.projected(gate, x)?;
        self.name(gate, &format!("ffn_gate-{}", layer.number))?;
        let up = self.projected(up, x)?;
        self.name(up, &format!("ffn_up-{}", layer.number))?;
        let hidden = self.context.glu_split(kind, gate, up)?;
        self.projected(down, hidden)
    }

    /// Sends each token through the experts that the router chooses, and sums up their results by their shares.
    fn experts(
        &mut self,
        hidden: &Hidden,
        router: TensorId,
        experts: Experts,
        x: TensorId,
    ) -> Result<TensorId, GgufError> {
        let [width, count, ..] = self.context.tensor(x)?.layout.ne();
        let context = &mut *self.context;
        let scores = context.mul_mat(router, x)?;
        let shares = context.soft_max(scores, None, SoftMax::default())?;
        let ids = context.top_k(shares, experts.used)?;
        let shares = context.reshape(shares, &[1, experts.count, count])?;
        let shares = context.get_rows(shares, ids)?;
        let shares = context.reshape(shares, &[experts.used, count])?;
        let sum = context.sum_rows(shares)?;
        // Never by zero: the smallest number of 16 bits.
        let sum = context.clamp(sum, 6.103_515_6e-5, f32::INFINITY)?;
        let shares = context.div(shares, sum)?;
        let shares = context.reshape(shares, &[1, experts.used, count])?;
        let x = context.reshape(x, &[width, 1, count])?;
        let gate = context.mul_mat_id(hidden.gate.weight, x, ids)?;
        let up = context.mul_mat_id(hidden.up.weight, x, ids)?;
        let inner = context.glu_split(Glu::Swiglu, gate, up)?;
        let results = context.mul_mat_id(hidden.down.weight, inner, ids)?;
        let results = context.mul(results, shares)?;
        let [_, row, plane, _] = context.tensor(results)?.layout.nb();
        let mut sum = context.view_2d(results, [width, count], plane, Bytes(0))?;
        for expert in 1..experts.used {
            let part = context.view_2d(results, [width, count], plane, Bytes(row * expert))?;
            sum = context.add(sum, part)?;
        }
        // A single one is a view, which what comes after may take for a tensor of its own.
        Ok(if experts.used == 1 { context.cont(sum)? } else { sum })
    }

    fn projected(&mut self, projection: Projection, x: TensorId) -> Result<TensorId, GgufError> {
        let product = self.context.mul_mat(projection.weight, x)?;
        Ok(match projection.bias {
            Some(bias) => self.context.add(product, bias)?,
            None => product,
        })
    }

    fn normed(&mut self, x: TensorId, weight: TensorId) -> Result<TensorId, GgufError> {
        let normed = self.context.rms_norm(x, self.model.config().epsilon)?;
        Ok(self.context.mul(normed, weight)?)
    }

    /// Returns `x` normed, where there is a weight for that.
    fn normed_if(&mut self, x: TensorId, weight: Option<TensorId>) -> Result<TensorId, GgufError> {
        weight.map_or(Ok(x), |weight| self.normed(x, weight))
    }

    fn name(&mut self, tensor: TensorId, name: &str) -> Result<(), GgufError> {
        Ok(self.context.set_name(tensor, name)?)
    }
}

impl Step {
    /// Returns what the graph depends on.
    pub fn shape(&self) -> StepShape {
        self.shape
    }
}
