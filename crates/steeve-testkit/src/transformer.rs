//! Graphs as a language model has them, of any length: weights and caches once, the rest built again for each run.

use steeve_graph::{
    Bytes, Context, ContextMark, DataType, Glu, Graph, GraphError, GraphParts, Rope, SoftMax, Tensor, TensorId,
};

const WIDTH: u64 = 64;
const HEADS: u64 = 4;
const HEAD: u64 = WIDTH / HEADS;
const CACHED: u64 = 128;
const VOCABULARY: u64 = 96;

/// A model whose compute part is built again and again over the same weights.
pub struct Transformer {
    pub context: Context,
    layers: Vec<LayerWeights>,
    embedding: TensorId,
    mark: ContextMark,
}

struct LayerWeights {
    norms: [TensorId; 2],
    q: TensorId,
    k: TensorId,
    v: TensorId,
    out: TensorId,
    gate: TensorId,
    up: TensorId,
    down: TensorId,
    keys: TensorId,
    values: TensorId,
}

/// The inputs and outputs of the model.
pub struct ModelTensors {
    pub ids: TensorId,
    pub positions: TensorId,
    pub mask: TensorId,
    pub logits: TensorId,
}

impl Transformer {
    /// One with at least as many nodes, counting views as ggml does.
    pub fn with_nodes(nodes: usize) -> Result<Self, GraphError> {
        let one = Self::new(1)?.graph(1)?.0.nodes().len();
        let two = Self::new(2)?.graph(1)?.0.nodes().len();
        Self::new((nodes - one).div_ceil(two - one) + 1)
    }

    fn new(layers: usize) -> Result<Self, GraphError> {
        let mut context = Context::new();
        let embedding = context.external(DataType::F32, &[WIDTH, VOCABULARY])?;
        let layers = (0..layers).map(|_| LayerWeights::new(&mut context)).collect::<Result<_, _>>()?;
        let mark = context.mark();
        Ok(Self { context, layers, embedding, mark })
    }

    /// The graph for some tokens, built afresh.
    pub fn graph(&mut self, tokens: u64) -> Result<(Graph, ModelTensors), GraphError> {
        self.context.rewind(self.mark)?;
        let context = &mut self.context;
        let ids = context.input(DataType::I32, &[tokens])?;
        let positions = context.input(DataType::I32, &[tokens])?;
        let mask = context.input(DataType::F32, &[CACHED, tokens])?;
        let mut x = context.get_rows(self.embedding, ids)?;
        let mut outputs = Vec::new();
        for layer in &self.layers {
            x = layer.apply(context, x, positions, mask, &mut outputs)?;
        }
        let last = context.rms_norm(x, 1e-5)?;
        let logits = context.mul_mat(self.embedding, last)?;
        context.set_output(logits)?;
        outputs.push(logits);
        Ok((Graph::from_outputs(context, &outputs)?, ModelTensors { ids, positions, mask, logits }))
    }
}

impl LayerWeights {
    fn new(context: &mut Context) -> Result<Self, GraphError> {
        let mut weight = |rows: u64, columns: u64| context.external(DataType::F32, &[columns, rows]);
        Ok(Self {
            norms: [weight(1, WIDTH)?, weight(1, WIDTH)?],
            q: weight(WIDTH, WIDTH)?,
            k: weight(WIDTH, WIDTH)?,
            v: weight(WIDTH, WIDTH)?,
            out: weight(WIDTH, WIDTH)?,
            gate: weight(2 * WIDTH, WIDTH)?,
            up: weight(2 * WIDTH, WIDTH)?,
            down: weight(WIDTH, 2 * WIDTH)?,
            keys: weight(CACHED, WIDTH)?,
            values: weight(CACHED, WIDTH)?,
        })
    }

    fn apply(
        &self,
        context: &mut Context,
        x: TensorId,
        positions: TensorId,
        mask: TensorId,
        written: &mut Vec<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let tokens = context.tensor(positions)?.layout.ne()[0];
        let normed = context.rms_norm(x, 1e-5)?;
        let normed = context.mul(normed, self.norms[0])?;
        let heads = |context: &mut Context, weight| {
            let flat = context.mul_mat(weight, normed)?;
            context.reshape(flat, &[HEAD, HEADS, tokens])
        };
        let (q, k, v) = (heads(context, self.q)?, heads(context, self.k)?, heads(context, self.v)?);
        let rope = Rope { dims: 16, ..Rope::default() };
        let (q, k) = (context.rope(q, positions, None, rope)?, context.rope(k, positions, None, rope)?);
        for (value, cache) in [(k, self.keys), (v, self.values)] {
            let flat = context.reshape(value, &[WIDTH, tokens])?;
            let place = context.view_2d(cache, [WIDTH, tokens], WIDTH * 4, Bytes(0))?;
            written.push(context.cpy(flat, place)?);
        }
        let cached = |context: &mut Context, cache| {
            let all = context.view_3d(cache, [HEAD, HEADS, CACHED], [HEAD * 4, WIDTH * 4], Bytes(0))?;
            context.permute(all, [0, 2, 1, 3])
        };
        let (keys, values) = (cached(context, self.keys)?, cached(context, self.values)?);
        let q = context.permute(q, [0, 2, 1, 3])?;
        let scores = context.mul_mat(keys, q)?;
        let scores = context.soft_max(scores, Some(mask), SoftMax { scale: 0.25, max_bias: 0.0 })?;
        let values = context.transpose(values)?;
        let values = context.cont(values)?;
        let mixed = context.mul_mat(values, scores)?;
        let mixed = context.permute(mixed, [0, 2, 1, 3])?;
        let mixed = context.cont_shaped(mixed, &[WIDTH, tokens])?;
        let attended = context.mul_mat(self.out, mixed)?;
        let x = context.add(attended, x)?;
        let normed = context.rms_norm(x, 1e-5)?;
        let normed = context.mul(normed, self.norms[1])?;
        let (gate, up) = (context.mul_mat(self.gate, normed)?, context.mul_mat(self.up, normed)?);
        let gated = context.glu_split(Glu::Swiglu, gate, up)?;
        let down = context.mul_mat(self.down, gated)?;
        context.add(down, x)
    }
}

/// Returns the graph in tables of its own, as if another program had built it.
pub fn rebuilt(graph: &Graph) -> Result<Graph, GraphError> {
    let mut parts = GraphParts::default();
    parts.detach();
    for (id, tensor) in graph.tensors().pairs() {
        let tensor: Tensor = *tensor;
        parts.push_with(tensor, graph.sources(id), graph.params(id))?;
    }
    graph.leafs().iter().for_each(|leaf| parts.leaf(*leaf));
    graph.nodes().iter().for_each(|node| parts.node(*node));
    parts.finish()
}
