//! Random graphs of all operations, built and evaluated at once, so that no value grows without bound.
//!
//! A step is a recipe: an operation or a few, with sources of the right shapes, some of them old values and some new leafs.
//! A step whose shapes do not fit, that the backend does not support, or that makes something wild is taken back.

use std::collections::BTreeMap;

use steeve_cpu::CpuBackend;
use steeve_device::Backend;
use steeve_graph::{DataType, Graph, GraphError, Id, Layout, Op, TensorId};

use super::case::{Case, CaseBuilder, Values};
use super::eval_memory::EvalMemory;
use super::op_generators::{CACHES, OP_GENERATORS, OpGenerator};

/// The size of the tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseSize {
    /// A few hundred elements at most.
    Small,
    /// Enough for a kernel to cut its work into pieces for several threads.
    Large,
}

/// How many nodes of each operation and type were built, and with what outcome.
#[derive(Clone, Debug, Default)]
pub struct OpCoverage(pub BTreeMap<String, CoverageCount>);

#[derive(Clone, Debug, Default)]
pub struct CoverageCount {
    pub built: usize,
    /// The number of nodes that ran, and were judged.
    pub judged: usize,
    pub refused: usize,
    /// The most of a tolerance that was used up.
    pub worst: f64,
    /// Why it was refused last.
    pub why: String,
}

impl OpCoverage {
    pub fn of(&mut self, graph: &Graph, node: TensorId) -> &mut CoverageCount {
        let tensors = graph.tensors();
        let dtype = |id: &Option<TensorId>| id.map_or("-", |id| tensors[id].layout.dtype().name());
        let types: Vec<&str> = tensors.sources(node).iter().map(dtype).collect();
        let (title, result) = (tensors.op_title(tensors[node].op), tensors[node].layout.dtype());
        self.0.entry(format!("{title} {} -> {result}", types.join(" "))).or_default()
    }

    /// Returns how many nodes of an operation ran, whatever their types.
    pub fn judged(&self, title: &str) -> usize {
        let mine = |key: &&String| key.split(' ').next() == Some(title);
        self.0.keys().filter(mine).map(|key| self.0[key].judged).sum()
    }
}

pub(super) type BuildResult = Result<TensorId, GraphError>;

pub(super) struct GraphGenerator<'a> {
    pub sketch: CaseBuilder,
    pub size: CaseSize,
    /// The tensors that later steps may read.
    pub values: Vec<TensorId>,
    /// Leafs that are written through views, read through others, and read as a whole.
    pub caches: Vec<TensorId>,
    memory: EvalMemory,
    nodes: Vec<TensorId>,
    /// Nodes that the graph must have although no node may read them.
    kept: Vec<TensorId>,
    backend: &'a CpuBackend,
    census: &'a mut OpCoverage,
}

/// Returns a graph of about that many generated operations.
pub fn random_case(seed: u64, size: CaseSize, backend: &CpuBackend, census: &mut OpCoverage) -> Case {
    let mut generator = GraphGenerator {
        sketch: CaseBuilder::new(seed),
        size,
        values: Vec::new(),
        caches: Vec::new(),
        memory: EvalMemory::default(),
        nodes: Vec::new(),
        kept: Vec::new(),
        backend,
        census,
    };
    for (dtype, [row, rows]) in CACHES {
        // Rows enough for several threads to have some.
        let shape = &[*row, if size == CaseSize::Large { 40_000 / row } else { *rows }];
        let cache = match generator.sketch.choices.once_in(4) {
            true => generator.sketch.constant(*dtype, shape, Values::Within(1.0)),
            false => generator.sketch.external(*dtype, shape, Values::Within(1.0)),
        };
        generator.caches.push(cache.expect("a cache has a shape that its type allows"));
    }
    generator.remember(0);
    // Each recipe is the first one of some graph.
    generator.step(OP_GENERATORS[seed as usize % OP_GENERATORS.len()]);
    let more = match size {
        CaseSize::Small => 6 + generator.sketch.choices.below(18),
        CaseSize::Large => 1 + generator.sketch.choices.below(3),
    };
    for _ in 0..more {
        let recipe = generator.pick(OP_GENERATORS);
        generator.step(recipe);
    }
    generator.finish()
}

impl GraphGenerator<'_> {
    fn step(&mut self, recipe: OpGenerator) {
        let (mark, first) = (self.sketch.context.mark(), self.sketch.context.tensors().len());
        let (leafs, nodes, before) = (self.sketch.contents.len(), self.nodes.len(), self.memory.clone());
        let built = recipe(self);
        let good = match built {
            Ok(value) => {
                self.remember(leafs);
                self.commit(first).then_some(value)
            }
            Err(_) => None,
        };
        match good {
            Some(value) => {
                self.values.push(value);
                // Leafs of this step may be read again by later ones, as weights and masks are.
                let fresh: Vec<TensorId> = self.sketch.contents[leafs..].iter().map(|(id, _)| *id).collect();
                for leaf in fresh {
                    if self.sketch.choices.once_in(3) {
                        self.values.push(leaf);
                    }
                }
            }
            None => {
                self.sketch.context.rewind(mark).expect("the mark was made here");
                self.sketch.contents.truncate(leafs);
                self.nodes.truncate(nodes);
                self.kept.retain(|id| id.index() < first);
                self.memory = before;
            }
        }
    }

    /// Takes over the contents of leafs that were made since.
    fn remember(&mut self, first: usize) {
        for (leaf, bytes) in &self.sketch.contents[first..] {
            self.memory.set_bytes(self.sketch.context.tensors(), *leaf, bytes);
        }
    }

    /// Evaluates what was built since; whether all of it can run and stays within bounds.
    fn commit(&mut self, first: usize) -> bool {
        let ids: Vec<TensorId> = self.sketch.context.tensors().ids().skip(first).collect();
        for id in ids {
            let op = self.sketch.context.tensors()[id].op;
            if op == Op::None {
                continue;
            }
            self.nodes.push(id);
            if op.writes_nothing() {
                continue;
            }
            let graph = Graph::from_outputs(&self.sketch.context, &[id]).expect("a tensor of this context");
            let supported = self.backend.supports(&graph, id);
            let count = self.census.of(&graph, id);
            if let Err(error) = supported {
                count.refused += 1;
                count.why = error.to_string();
                return false;
            }
            count.built += 1;
            drop(graph);
            let tensors = self.sketch.context.tensors();
            self.memory.step(tensors, id);
            if matches!(op, Op::Cpy | Op::SetRows) {
                self.kept.push(id);
            }
            // What is hidden by a mask is as small as can be, and meant to be.
            let fine = |x: &f64| x.abs() < 1000.0 || (op == Op::DiagMaskInf && *x == f64::NEG_INFINITY);
            if !self.memory.read(tensors, id).iter().all(fine) {
                return false;
            }
        }
        true
    }

    /// Outputs among the values, and of all nodes those that they, or writes into caches, need.
    fn finish(mut self) -> Case {
        let made = |id: &TensorId| self.nodes.contains(id);
        let candidates: Vec<TensorId> = self.values.iter().copied().filter(made).collect();
        let mut outputs = Vec::new();
        for _ in 0..1 + self.sketch.choices.below(5) {
            outputs.extend(self.sketch.choices.pick(&candidates));
        }
        outputs.extend(candidates.last().copied());
        // Values that no node reads keep their bytes to the end, as with ggml. With too many of them nothing is ever
        // reused.
        for value in &candidates {
            if self.sketch.choices.once_in(5) {
                self.kept.push(*value);
            }
        }
        let is_view = |id: &TensorId| self.sketch.context.tensors()[*id].is_view();
        if !self.sketch.choices.once_in(6) {
            outputs.retain(|id| !is_view(id));
        }
        let inputs: Vec<TensorId> = self.sketch.contents.iter().map(|(id, _)| *id).collect();
        if self.sketch.choices.once_in(4) {
            outputs.extend(self.sketch.choices.pick(&inputs));
        }
        for output in &outputs {
            self.sketch.context.set_output(*output).expect("a tensor of this context");
        }
        let tensors = self.sketch.context.tensors();
        let mut needed = vec![false; tensors.len()];
        let mut open: Vec<TensorId> = outputs.iter().chain(&self.kept).copied().collect();
        while let Some(id) = open.pop() {
            if !std::mem::replace(&mut needed[id.index()], true) {
                open.extend(tensors.sources(id).iter().flatten());
            }
        }
        self.nodes.retain(|id| needed[id.index()]);
        let graph = Graph::from_nodes(&self.sketch.context, &self.nodes).expect("tensors of this context");
        Case { context: self.sketch.context, graph, contents: self.sketch.contents }
    }

    pub(super) fn layout(&self, id: TensorId) -> Layout {
        self.sketch.layout(id)
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        self.sketch.choices.below(count)
    }

    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        self.sketch.choices.pick(items).expect("there is something to pick from")
    }

    /// A leaf of any kind.
    pub(super) fn leaf(&mut self, dtype: DataType, shape: &[u64], values: Values) -> BuildResult {
        match self.below(4) {
            0 => self.sketch.constant(dtype, shape, values),
            1 => self.sketch.external(dtype, shape, values),
            _ => self.sketch.input(dtype, shape, values),
        }
    }

    /// Any shape.
    pub(super) fn shape(&mut self) -> [u64; 4] {
        match self.size {
            CaseSize::Small => {
                let row = self.pick(&[1, 2, 3, 4, 5, 8, 16, 32, 32, 33, 64]);
                [row, self.pick(&[1, 2, 3, 4, 5, 6]), self.pick(&[1, 1, 2, 3, 4]), self.pick(&[1, 1, 1, 2])]
            }
            CaseSize::Large => {
                let row = self.pick(&[33, 64, 160, 257, 1024]);
                let heads = self.pick(&[1, 2, 4]);
                [row, 36_000 / row / heads, heads, 1]
            }
        }
    }

    /// A number of rows, of keys or of tokens.
    pub(super) fn many(&mut self, few: u64) -> u64 {
        let scale = if self.size == CaseSize::Large { 40 } else { 1 };
        scale * (1 + self.below(few as usize) as u64)
    }

    /// Any value that is no integer and no block, mostly a recent one; sometimes a leaf.
    pub(super) fn value(&mut self) -> BuildResult {
        self.value_where(|_| true)
    }

    pub(super) fn value_where(&mut self, fits: impl Fn(&Layout) -> bool) -> BuildResult {
        let fitting = |id: &&TensorId| self.layout(**id).dtype().is_float() && fits(&self.layout(**id));
        let known: Vec<TensorId> = self.values.iter().filter(fitting).copied().collect();
        if known.is_empty() || self.sketch.choices.once_in(12) {
            let (dtype, shape) = (self.float_type(), self.shape());
            return self.leaf(dtype, &shape, Values::Within(2.0));
        }
        let recent = known.len().saturating_sub(3);
        Ok(if self.sketch.choices.once_in(4) { self.pick(&known) } else { self.pick(&known[recent..]) })
    }

    /// Mostly f32.
    pub(super) fn float_type(&mut self) -> DataType {
        self.pick(&[DataType::F32, DataType::F32, DataType::F32, DataType::F32, DataType::F16, DataType::Bf16])
    }
}
