//! A language model of any depth: what a server plans for a batch of tokens, with attention over a cache.
//!
//! Each layer has as many nodes as the one before, so times per node show what grows faster than the graph.

use steeve_graph::{
    Align, AssignedGraph, Bytes, Context, DataType, FlashAttention, Glu, Graph, GraphError, Memory, Rope, TensorId,
};

const WIDTH: u64 = 1024;
const HEADS: u64 = 16;
const HEAD: u64 = WIDTH / HEADS;
const HIDDEN: u64 = 2816;
const WORDS: u64 = 32_000;
const TOKENS: u64 = 64;
const CACHE: u64 = 512;
const EPSILON: f32 = 1e-5;

/// A graph with at least so many nodes, and less than one layer more, in one memory of alignment 32.
///
/// ```
/// let graph = peer_ggml::transformer::with_nodes(1000)?;
/// assert!((1000..1040).contains(&graph.graph().nodes().len()));
/// # Ok::<(), steeve_graph::GraphError>(())
/// ```
pub fn with_nodes(nodes: usize) -> Result<AssignedGraph, GraphError> {
    let mut model = Model::new()?;
    let empty = model.graph(model.start)?.nodes().len();
    let mut x = model.layer(model.start)?;
    let layer = model.graph(x)?.nodes().len() - empty;
    for _ in 1..nodes.saturating_sub(empty).div_ceil(layer) {
        x = model.layer(x)?;
    }
    let memory = Memory::new("cpu", Align::new(32).unwrap_or(Align::ONE));
    Ok(AssignedGraph::single(model.graph(x)?, memory))
}

/// What all layers share.
struct Model {
    context: Context,
    start: TensorId,
    positions: TensorId,
    slots: TensorId,
    mask: TensorId,
}

impl Model {
    fn new() -> Result<Self, GraphError> {
        let mut context = Context::new();
        let words = context.external(DataType::F16, &[WIDTH, WORDS])?;
        let tokens = context.input(DataType::I32, &[TOKENS])?;
        let positions = context.input(DataType::I32, &[TOKENS])?;
        let slots = context.input(DataType::I64, &[TOKENS])?;
        let mask = context.input(DataType::F16, &[CACHE, TOKENS])?;
        let start = context.get_rows(words, tokens)?;
        Ok(Self { context, start, positions, slots, mask })
    }

    /// The graph up to the words that follow `x`.
    fn graph(&self, x: TensorId) -> Result<Graph, GraphError> {
        let mut context = self.context.clone();
        let x = norm(&mut context, x)?;
        let words = linear(&mut context, x, WORDS)?;
        context.set_output(words)?;
        Graph::from_outputs(&context, &[words])
    }

    fn layer(&mut self, x: TensorId) -> Result<TensorId, GraphError> {
        let attention = self.attention(x)?;
        let context = &mut self.context;
        let x = context.add(attention, x)?;
        let normed = norm(context, x)?;
        let (gate, up) = (linear(context, normed, HIDDEN)?, linear(context, normed, HIDDEN)?);
        let gated = context.glu_split(Glu::Swiglu, gate, up)?;
        let down = linear(context, gated, WIDTH)?;
        context.add(down, x)
    }

    fn attention(&mut self, x: TensorId) -> Result<TensorId, GraphError> {
        let normed = norm(&mut self.context, x)?;
        let q = self.heads(normed)?;
        let q = self.rope(q)?;
        let k = self.heads(normed)?;
        let k = self.rope(k)?;
        let v = self.heads(normed)?;
        let (k, v) = (self.cached(k)?, self.cached(v)?);
        let context = &mut self.context;
        let q = context.permute(q, [0, 2, 1, 3])?;
        let scale = FlashAttention { scale: 1.0 / (HEAD as f32).sqrt(), ..FlashAttention::default() };
        let mixed = context.flash_attn_ext(q, k, v, Some(self.mask), scale)?;
        let flat = context.reshape(mixed, &[WIDTH, TOKENS])?;
        linear(context, flat, WIDTH)
    }

    fn heads(&mut self, x: TensorId) -> Result<TensorId, GraphError> {
        let flat = linear(&mut self.context, x, WIDTH)?;
        self.context.reshape(flat, &[HEAD, HEADS, TOKENS])
    }

    fn rope(&mut self, x: TensorId) -> Result<TensorId, GraphError> {
        let rope = Rope { dims: HEAD as u32, ..Rope::default() };
        self.context.rope(x, self.positions, None, rope)
    }

    /// Writes the tokens into a cache of their own, and reads all of it back, head by head.
    fn cached(&mut self, x: TensorId) -> Result<TensorId, GraphError> {
        let context = &mut self.context;
        let cache = context.external(DataType::F16, &[WIDTH, CACHE])?;
        let rows = context.reshape(x, &[WIDTH, TOKENS])?;
        let written = context.set_rows(cache, rows, self.slots)?;
        let (head, token) = (HEAD * 2, WIDTH * 2);
        let heads = context.view_3d(written, [HEAD, HEADS, CACHE], [head, token], Bytes::ZERO)?;
        context.permute(heads, [0, 2, 1, 3])
    }
}

fn norm(context: &mut Context, x: TensorId) -> Result<TensorId, GraphError> {
    let weights = context.external(DataType::F32, &[WIDTH])?;
    let normed = context.rms_norm(x, EPSILON)?;
    context.mul(normed, weights)
}

fn linear(context: &mut Context, x: TensorId, width: u64) -> Result<TensorId, GraphError> {
    let from = context.tensor(x)?.layout.ne()[0];
    let weights = context.external(DataType::F16, &[from, width])?;
    context.mul_mat(weights, x)
}
