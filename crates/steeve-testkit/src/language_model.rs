//! Models, small but with everything that large ones have.

use steeve_graph::{
    Bytes, Context, ContextMark, Convolution, DataType, FlashAttention, Glu, Graph, GraphError, Interpolation, Pool,
    Rope, RopeMode, SoftMax, SortOrder, TensorId, Window,
};

use crate::reference::{CaseBuilder, Values};

const F32: DataType = DataType::F32;
const F16: DataType = DataType::F16;

/// How scores become a mixture of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionForm {
    /// In one step.
    Flash,
    /// By products and a soft-max.
    Plain,
}

const WIDTH: u64 = 64;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD: u64 = WIDTH / HEADS;
const KV_WIDTH: u64 = KV_HEADS * HEAD;
const HIDDEN: u64 = 96;
const EXPERTS: u64 = 5;
const USED: u64 = 2;
const WORDS: u64 = 40;
const CONTEXT: u64 = 24;

pub struct ModelWeights {
    pub norm: TensorId,
    pub q: TensorId,
    pub k: TensorId,
    pub v: TensorId,
    pub out: TensorId,
    pub hidden_norm: TensorId,
    pub router: TensorId,
    pub gate: TensorId,
    pub up: TensorId,
    pub down: TensorId,
    pub bias: TensorId,
    pub k_cache: TensorId,
    pub v_cache: TensorId,
}

/// A language model with grouped queries, rotated positions, a cache of keys and values, and a mixture of experts.
pub struct TestModel {
    pub sketch: CaseBuilder,
    pub embedding: TensorId,
    pub layers: Vec<ModelWeights>,
    pub norm: TensorId,
    pub mark: ContextMark,
    /// The number of tensors before the mark.
    pub fixed: usize,
    pub attention: AttentionForm,
}

/// A prompt and some tokens behind it, one step after another.
pub const TOKENS: [&[i32]; 5] = [&[3, 17, 8, 39, 0, 21, 5], &[12], &[30], &[2, 9], &[33]];

/// The graph of some tokens behind others, with what its leafs hold but for the weights and caches.
pub struct ModelGraph {
    pub context: Context,
    pub graph: Graph,
    pub inputs: Vec<(TensorId, Vec<u8>)>,
}

impl TestModel {
    pub fn new(attention: AttentionForm) -> Result<Self, GraphError> {
        let mut sketch = CaseBuilder::new(11);
        let mut weight = |dtype: DataType, shape: &[u64]| {
            sketch.external(dtype, shape, Values::Within(1.7 / (shape[0] as f64).sqrt()))
        };
        let embedding = weight(F16, &[WIDTH, WORDS])?;
        let mut layers = Vec::new();
        for _ in 0..2 {
            layers.push(ModelWeights {
                norm: weight(F32, &[WIDTH])?,
                q: weight(F16, &[WIDTH, WIDTH])?,
                k: weight(DataType::Bf16, &[WIDTH, KV_WIDTH])?,
                v: weight(DataType::Q8_0, &[WIDTH, KV_WIDTH])?,
                out: weight(F32, &[WIDTH, WIDTH])?,
                hidden_norm: weight(F32, &[WIDTH])?,
                router: weight(F32, &[WIDTH, EXPERTS])?,
                gate: weight(DataType::Q8_0, &[WIDTH, HIDDEN, EXPERTS])?,
                up: weight(F16, &[WIDTH, HIDDEN, EXPERTS])?,
                down: weight(DataType::Q4_0, &[HIDDEN, WIDTH, EXPERTS])?,
                bias: weight(F32, &[WIDTH, EXPERTS])?,
                k_cache: weight(F16, &[KV_WIDTH, CONTEXT])?,
                v_cache: weight(F16, &[KV_WIDTH, CONTEXT])?,
            });
        }
        let norm = weight(F32, &[WIDTH])?;
        for id in layers.iter().flat_map(|layer| [layer.norm, layer.hidden_norm]).chain([norm]) {
            let ones = Values::Positive.bytes(&mut sketch.choices, &sketch.context.tensors()[id].layout);
            sketch.contents.iter_mut().find(|(known, _)| *known == id).expect("it has contents").1 = ones;
        }
        let (mark, fixed) = (sketch.context.mark(), sketch.context.tensors().len());
        Ok(Self { sketch, embedding, layers, norm, mark, fixed, attention })
    }

    /// The graph of these words, behind `past` others.
    pub fn step(&mut self, words: &[i32], past: u64) -> Result<ModelGraph, GraphError> {
        self.sketch.context.rewind(self.mark)?;
        let count = words.len() as u64;
        let c = &mut self.sketch.context;
        let (tokens, positions) = (c.input(DataType::I32, &[count])?, c.input(DataType::I32, &[count])?);
        let mask = c.input(F16, &[past + count, count])?;
        let ids = c.input(DataType::I64, &[count])?;
        let bytes = |numbers: Vec<i32>| numbers.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
        let rows = past..past + count;
        let seen = (0..count).flat_map(|token| (0..past + count).map(move |key| key <= past + token));
        let inputs = vec![
            (tokens, bytes(words.to_vec())),
            (positions, bytes(rows.clone().map(|row| row as i32).collect())),
            // Minus infinity hides.
            (mask, seen.flat_map(|seen| if seen { [0, 0] } else { [0x00, 0xFC] }).collect()),
            (ids, rows.flat_map(|row| (row as i64).to_le_bytes()).collect()),
        ];
        let mut graph = Graph::from_outputs(c, &[])?;
        let mut x = c.get_rows(self.embedding, tokens)?;
        for layer in &self.layers {
            let rope = Rope { dims: HEAD as u32, mode: RopeMode::Neox, ..Rope::default() };
            let normed = c.rms_norm(x, 1e-5)?;
            let normed = c.mul(normed, layer.norm)?;
            let q = c.mul_mat(layer.q, normed)?;
            let q = c.reshape(q, &[HEAD, HEADS, count])?;
            let q = c.rope(q, positions, None, rope)?;
            let k = c.mul_mat(layer.k, normed)?;
            let k = c.reshape(k, &[HEAD, KV_HEADS, count])?;
            let k = c.rope(k, positions, None, rope)?;
            let k = c.reshape(k, &[KV_WIDTH, count])?;
            let v = c.mul_mat(layer.v, normed)?;
            // Keys through a view, values by their rows. No node has an edge to these writes.
            let place = c.view_2d(layer.k_cache, [KV_WIDTH, count], 2 * KV_WIDTH, Bytes(2 * KV_WIDTH * past))?;
            let writes = [c.cpy(k, place)?, c.set_rows(layer.v_cache, v, ids)?];
            graph.expand(c, &writes)?;
            let q = c.permute(q, [0, 2, 1, 3])?;
            let mixed = attend(c, self.attention, layer, q, mask, past + count)?;
            let mixed = c.mul_mat(layer.out, mixed)?;
            x = c.add(mixed, x)?;
            let normed = c.rms_norm(x, 1e-5)?;
            let normed = c.mul(normed, layer.hidden_norm)?;
            let mixed = mix_experts(c, layer, normed, count)?;
            x = c.add(mixed, x)?;
        }
        let last = c.view_1d(x, WIDTH, Bytes(4 * WIDTH * (count - 1)))?;
        let last = c.norm(last, 1e-5)?;
        let last = c.mul(last, self.norm)?;
        let scores = c.mul_mat(self.embedding, last)?;
        c.set_output(scores)?;
        graph.expand(c, &[scores])?;
        Ok(ModelGraph { context: c.clone(), graph, inputs })
    }
}

/// `q` is `[head, token, heads]`; the answer has a row for each token.
fn attend(
    c: &mut Context,
    attention: AttentionForm,
    layer: &ModelWeights,
    q: TensorId,
    mask: TensorId,
    keys: u64,
) -> Result<TensorId, GraphError> {
    let (scale, count) = (1.0 / (HEAD as f32).sqrt(), c.tensor(q)?.layout.ne()[1]);
    let mut heads = |cache: TensorId| c.view_3d(cache, [HEAD, keys, KV_HEADS], [2 * KV_WIDTH, 2 * HEAD], Bytes(0));
    let (k, v) = (heads(layer.k_cache)?, heads(layer.v_cache)?);
    if attention == AttentionForm::Flash {
        let numbers = FlashAttention { scale, ..FlashAttention::default() };
        let mixed = c.flash_attn_ext(q, k, v, Some(mask), numbers)?;
        return c.reshape(mixed, &[WIDTH, count]);
    }
    let scores = c.mul_mat(k, q)?;
    let shares = c.soft_max(scores, Some(mask), SoftMax { scale, max_bias: 0.0 })?;
    let turned = c.permute(v, [1, 0, 2, 3])?;
    let turned = c.cont(turned)?;
    let mixed = c.mul_mat(turned, shares)?;
    let mixed = c.permute(mixed, [0, 2, 1, 3])?;
    c.cont_shaped(mixed, &[WIDTH, count])
}

fn mix_experts(c: &mut Context, layer: &ModelWeights, x: TensorId, count: u64) -> Result<TensorId, GraphError> {
    let scores = c.mul_mat(layer.router, x)?;
    let shares = c.soft_max(scores, None, SoftMax::default())?;
    let order = c.argsort(shares, SortOrder::Descending)?;
    let chosen = c.view_2d(order, [USED, count], 4 * EXPERTS, Bytes(0))?;
    let shares = c.reshape(shares, &[1, EXPERTS, count])?;
    let weights = c.get_rows(shares, chosen)?;
    let weights = c.reshape(weights, &[USED, count])?;
    let sum = c.sum_rows(weights)?;
    let weights = c.div(weights, sum)?;
    let weights = c.reshape(weights, &[1, USED, count])?;
    let x = c.reshape(x, &[WIDTH, 1, count])?;
    let gate = c.mul_mat_id(layer.gate, x, chosen)?;
    let up = c.mul_mat_id(layer.up, x, chosen)?;
    let hidden = c.glu_split(Glu::Swiglu, gate, up)?;
    let down = c.mul_mat_id(layer.down, hidden, chosen)?;
    let down = c.apply(steeve_graph::Op::AddId, &[Some(down), Some(layer.bias), Some(chosen)], &[])?;
    let down = c.mul(down, weights)?;
    let stride = 4 * WIDTH * USED;
    let first = c.view_2d(down, [WIDTH, count], stride, Bytes(0))?;
    let second = c.view_2d(down, [WIDTH, count], stride, Bytes(4 * WIDTH))?;
    c.add(first, second)
}

/// A convolution with a bias for each channel.
fn convolved(
    sketch: &mut CaseBuilder,
    dtype: DataType,
    x: TensorId,
    out: u64,
    way: Convolution,
) -> Result<TensorId, GraphError> {
    let channels = sketch.layout(x).ne()[2];
    let kernel = sketch.external(dtype, &[3, 3, channels, out], Values::Within(1.0 / (channels as f64).sqrt()))?;
    let bias = sketch.external(F32, &[1, 1, out], Values::Within(0.5))?;
    let y = sketch.context.conv_2d(kernel, x, way)?;
    sketch.context.add(y, bias)
}

const SAME: Convolution = Convolution { stride: [1, 1], padding: [1, 1], dilation: [1, 1] };

/// A network that looks at two pictures: what it makes of them, and the order of its guesses.
pub fn seeing(sketch: &mut CaseBuilder) -> Result<Vec<TensorId>, GraphError> {
    let x = sketch.input(F32, &[18, 14, 3, 2], Values::Within(1.0))?;
    let x = convolved(sketch, F16, x, 8, SAME)?;
    let x = sketch.context.relu(x)?;
    let window = Window { size: [2, 2], stride: [2, 2], padding: [0.0; 2] };
    let x = sketch.context.pool_2d(x, Pool::Max, window)?;
    let way = Convolution { stride: [2, 1], padding: [1, 2], dilation: [1, 2] };
    let y = convolved(sketch, F32, x, 12, way)?;
    let y = sketch.context.group_norm(y, 4, 1e-5)?;
    let y = sketch.context.hardswish(y)?;
    // A residual of two convolutions: `y` lives on while the function of it could have its memory.
    let z = sketch.context.elu(y)?;
    let z = convolved(sketch, F16, z, 12, SAME)?;
    let z = sketch.context.gelu(z)?;
    let z = convolved(sketch, F16, z, 12, SAME)?;
    let y = sketch.context.add(z, y)?;
    let window = Window { size: [3, 3], stride: [1, 2], padding: [1.0, 0.0] };
    let y = sketch.context.pool_2d(y, Pool::Mean, window)?;
    // Rows of each channel through a convolution of rows, and the mean of what is left.
    let [n0, n1, n2, n3] = sketch.layout(y).ne();
    let rows = sketch.context.reshape(y, &[n0 * n1, n2, n3])?;
    let kernel = sketch.external(F16, &[3, n2, 16], Values::Within(0.4))?;
    let rows = sketch.context.conv_1d(kernel, rows, Convolution { padding: [1, 0], ..Convolution::default() })?;
    let rows = sketch.context.tanh(rows)?;
    let small = sketch.context.pool_1d(rows, Pool::Mean, 3, 2, 1)?;
    let features = sketch.context.mean(small)?;
    let features = sketch.context.reshape(features, &[16, n3])?;
    let head = sketch.external(DataType::Bf16, &[16, 10], Values::Within(1.0))?;
    let scores = sketch.context.mul_mat(head, features)?;
    let best = sketch.context.top_k(scores, 3)?;
    Ok(vec![sketch.context.soft_max(scores, None, SoftMax::default())?, best])
}

/// A network with long skips that draws a picture.
pub fn drawing(sketch: &mut CaseBuilder) -> Result<TensorId, GraphError> {
    let mut x = sketch.input(F32, &[16, 16, 2, 1], Values::Within(1.0))?;
    let mut skips = Vec::new();
    // Down: each level is kept until the way up comes by, although a function of it could have its memory.
    for channels in [4, 8, 12] {
        x = convolved(sketch, F16, x, channels, SAME)?;
        x = sketch.context.group_norm(x, 2, 1e-5)?;
        skips.push(x);
        x = sketch.context.silu(x)?;
        let way = Convolution { stride: [2, 2], ..SAME };
        x = convolved(sketch, F16, x, channels, way)?;
    }
    // At the bottom every pixel looks at every other.
    let [n0, n1, channels, _] = sketch.layout(x).ne();
    let pixels = sketch.context.reshape(x, &[n0 * n1, channels])?;
    let pixels = sketch.context.transpose(pixels)?;
    let pixels = sketch.context.cont(pixels)?;
    let normed = sketch.context.l2_norm(pixels, 1e-6)?;
    let scores = sketch.context.mul_mat(normed, normed)?;
    let shares = sketch.context.soft_max(scores, None, SoftMax { scale: 2.0, max_bias: 0.0 })?;
    let turned = sketch.context.transpose(pixels)?;
    let turned = sketch.context.cont(turned)?;
    let mixed = sketch.context.mul_mat(turned, shares)?;
    let mixed = sketch.context.transpose(mixed)?;
    let mixed = sketch.context.cont_shaped(mixed, &[n0, n1, channels])?;
    x = sketch.context.add(mixed, x)?;
    // Up again, by either kind of interpolation, joined with what was kept.
    for (skip, how) in skips.iter().rev().zip([0, 1, 0]) {
        let how = if how == 0 { Interpolation::Nearest } else { Interpolation::Bilinear };
        x = sketch.context.upscale(x, 2, how)?;
        x = sketch.context.concat(x, *skip, 2)?;
        let channels = sketch.layout(*skip).ne()[2];
        x = convolved(sketch, F32, x, channels, SAME)?;
        x = sketch.context.gelu_quick(x)?;
    }
    let x = sketch.context.pad(x, [0, 0, 1, 0])?;
    convolved(sketch, F32, x, 2, SAME)
}
