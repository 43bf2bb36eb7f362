//! A graph with what its leafs hold.

use steeve_graph::fuzz::Choices;
use steeve_graph::{AssignedGraph, Context, DataType, Graph, GraphError, Layout, Named, TensorId};

use super::element_codec::encode;
use crate::formats::random_blocks;

/// A graph, and the bytes of its leafs.
#[derive(Debug)]
pub struct Case {
    pub context: Context,
    pub graph: Graph,
    pub contents: Vec<(TensorId, Vec<u8>)>,
}

impl Case {
    /// Returns the graph as text, for reports of failures.
    pub fn text(&self) -> String {
        AssignedGraph::from(self.graph.clone()).to_string()
    }

    pub fn bytes_of(&self, leaf: TensorId) -> Option<&[u8]> {
        self.contents.iter().find(|(id, _)| *id == leaf).map(|(_, bytes)| bytes.as_slice())
    }

    /// Returns the tensors that are read after a run.
    pub fn outputs(&self) -> Vec<TensorId> {
        let listed = self.graph.nodes().iter().chain(self.graph.leafs()).copied();
        listed.filter(|id| self.graph.tensor(*id).flags.is_output()).collect()
    }
}

pub fn named(graph: &Graph, id: TensorId) -> String {
    let tensors = graph.tensors();
    let layouts = tensors.sources(id).iter().map(|it| it.map_or("-".into(), |id| tensors[id].layout.to_string()));
    let sources = layouts.collect::<Vec<_>>().join(", ");
    let (name, title, layout) = (Named::new(id, graph.names()), tensors.op_title(tensors[id].op), tensors[id].layout);
    format!("{name}, {title} of ({sources}) to {layout} with {:?}", tensors.params(id))
}

/// The values of a leaf.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// Numbers of both signs up to this.
    Within(f64),
    /// Numbers of both signs up to this, and minus infinity here and there: what a mask hides.
    Hiding(f64),
    /// Numbers from 1/2 to 2.
    Positive,
    /// Integers from 0 to below this.
    Below(u64),
    /// Integers from 0 to below this, none of them twice.
    Distinct(u64),
    /// All the same.
    Same(f64),
}

impl Values {
    pub fn bytes(self, choices: &mut Choices<'_>, layout: &Layout) -> Vec<u8> {
        let (count, dtype) = (layout.elements() as usize, layout.dtype());
        // The other formats have no encoder, so their blocks are any.
        if let Self::Within(most) = self
            && dtype.is_quantised()
            && ![DataType::Q8_0, DataType::Q4_0].contains(&dtype)
        {
            return random_blocks(dtype, count / dtype.block_len() as usize, most, || choices.below(256) as u8);
        }
        let values: Vec<f64> = match self {
            Self::Within(most) => (0..count).map(|_| most * (2.0 * unit(choices) - 1.0)).collect(),
            Self::Hiding(most) => {
                let number = |choices: &mut Choices<'_>| most * (2.0 * unit(choices) - 1.0);
                (0..count).map(|_| if choices.once_in(4) { f64::NEG_INFINITY } else { number(choices) }).collect()
            }
            Self::Positive => (0..count).map(|_| 2f64.powf(2.0 * unit(choices) - 1.0)).collect(),
            Self::Below(end) => (0..count).map(|_| choices.below(end as usize) as f64).collect(),
            Self::Distinct(end) => {
                let mut left: Vec<u64> = (0..end).collect();
                (0..count).map(|_| left.swap_remove(choices.below(left.len())) as f64).collect()
            }
            Self::Same(value) => vec![value; count],
        };
        let block = layout.dtype().block_len() as usize;
        values.chunks(block).flat_map(|block| encode(layout.dtype(), block)).collect()
    }
}

fn unit(choices: &mut Choices<'_>) -> f64 {
    choices.below(1 << 20) as f64 / f64::from(1 << 20)
}

/// A context, and what its leafs hold so far.
#[derive(Debug)]
pub struct CaseBuilder {
    pub context: Context,
    pub contents: Vec<(TensorId, Vec<u8>)>,
    pub choices: Choices<'static>,
}

impl CaseBuilder {
    pub fn new(seed: u64) -> Self {
        Self { context: Context::new(), contents: Vec::new(), choices: Choices::from_seed(seed) }
    }

    /// Returns the tensors that the caller writes before a run.
    pub fn input(&mut self, dtype: DataType, shape: &[u64], values: Values) -> Result<TensorId, GraphError> {
        let leaf = self.context.input(dtype, shape)?;
        self.fill(leaf, values)
    }

    /// A leaf that is planned and no input.
    pub fn constant(&mut self, dtype: DataType, shape: &[u64], values: Values) -> Result<TensorId, GraphError> {
        let leaf = self.context.new_tensor(dtype, shape)?;
        self.fill(leaf, values)
    }

    /// A weight or a cache.
    pub fn external(&mut self, dtype: DataType, shape: &[u64], values: Values) -> Result<TensorId, GraphError> {
        let leaf = self.context.external(dtype, shape)?;
        self.fill(leaf, values)
    }

    fn fill(&mut self, leaf: TensorId, values: Values) -> Result<TensorId, GraphError> {
        let layout = self.context.tensor(leaf)?.layout;
        self.contents.push((leaf, values.bytes(&mut self.choices, &layout)));
        Ok(leaf)
    }

    pub fn layout(&self, id: TensorId) -> Layout {
        self.context.tensors()[id].layout
    }

    /// The graph of some outputs.
    pub fn case(mut self, outputs: &[TensorId]) -> Result<Case, GraphError> {
        for output in outputs {
            self.context.set_output(*output)?;
        }
        let graph = Graph::from_outputs(&self.context, outputs)?;
        Ok(Case { context: self.context, graph, contents: self.contents })
    }
}
