//! A small graph with one operation at its end, and what its leafs hold.

use steeve_graph::{Bytes, Context, DataType, Graph, GraphError, Id, Layout, Op, Param, Tensor, TensorId};

use super::random::Random;
use crate::error::op_title;

/// An operation to be run, with everything it reads.
pub(crate) struct OpCase {
    pub(crate) graph: Graph,
    /// The operation; views that lead to its sources come before it.
    pub(crate) node: TensorId,
    /// Which elements of the result an element of an overwritten source influences.
    pub(crate) reach: Dependence,
    pub(crate) leafs: Vec<(TensorId, LeafValues)>,
}

/// Which elements of the result depend on one element of a source whose memory the result may have. It may because a
/// kernel writes only what the other elements no longer need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependence {
    /// None: the source gives the shape.
    Nothing,
    /// The element at the same position.
    Element,
    /// Those of the same row.
    Row,
    /// Those with the same last index.
    Cube,
    /// Not known.
    Unknown,
}

/// What a leaf holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeafValues {
    /// Real numbers of both signs, none of them near zero.
    Any,
    /// Real numbers above zero.
    Positive,
    /// Integers from 0 to below this.
    Below(u64),
}

impl LeafValues {
    /// Returns the bytes of `count` values, from a seed.
    pub(crate) fn bytes(self, dtype: DataType, count: u64, seed: u64) -> Vec<u8> {
        let (mut random, mut bytes) = (Random::new(seed), Vec::new());
        for _ in 0..count {
            self.push(dtype, &mut random, &mut bytes);
        }
        bytes
    }

    /// Returns other bytes: every value differs from that of `bytes`.
    pub(crate) fn other_bytes(self, dtype: DataType, count: u64, seed: u64) -> Vec<u8> {
        let Self::Below(end) = self else { return self.bytes(dtype, count, !seed) };
        let bytes = self.bytes(dtype, count, seed);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let size = dtype.block_bytes() as usize;
        bytes.chunks(size).flat_map(|it| ((number(it) + 1) % end).to_le_bytes().into_iter().take(size)).collect()
    }

    fn push(self, dtype: DataType, random: &mut Random, bytes: &mut Vec<u8>) {
        let value = match self {
            Self::Below(end) => {
                bytes.extend_from_slice(&random.below(end).to_le_bytes()[..dtype.block_bytes() as usize]);
                return;
            }
            Self::Positive => random.real(),
            Self::Any => random.real() * if random.below(2) == 0 { 1.0 } else { -1.0 },
        };
        match dtype {
            DataType::F64 => bytes.extend_from_slice(&f64::from(value).to_le_bytes()),
            DataType::F16 => bytes.extend_from_slice(&half(value).to_le_bytes()),
            DataType::Bf16 => bytes.extend_from_slice(&value.to_le_bytes()[2..]),
            _ => bytes.extend_from_slice(&value.to_le_bytes()),
        }
    }
}

/// Cuts `value`, which is no smaller than 2^-14 and below 2^16, to half the bits.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, exponent, mantissa) = (bits >> 31 << 15, (bits >> 23 & 0xFF) - 112, bits >> 13 & 0x3FF);
    (sign | exponent << 10 | mantissa) as u16
}

impl OpCase {
    /// Returns the operation with the layouts of its sources and of its result.
    pub(crate) fn title(&self) -> String {
        let tensors = self.graph.tensors();
        let layout = |id: &Option<TensorId>| id.map_or(String::from("-"), |id| tensors[id].layout.to_string());
        let sources: Vec<String> = tensors.sources(self.node).iter().map(layout).collect();
        format!(
            "{} of ({}) to {}",
            op_title(tensors, tensors[self.node].op),
            sources.join(", "),
            tensors[self.node].layout
        )
    }

    /// Returns the slots whose memory the result may have here: the table says so, and no other slot reads the same
    /// root.
    pub(crate) fn slots(&self) -> Vec<usize> {
        let (graph, sources) = (&self.graph, self.graph.sources(self.node));
        let alone = |slot: usize| {
            let root = |slot: usize| sources[slot].map(|source| graph.root(source));
            let at_start = sources[slot].is_some_and(|source| graph.tensors().offset(source) == Bytes::ZERO);
            at_start && (0..sources.len()).all(|other| other == slot || root(other) != root(slot))
        };
        (0..sources.len()).filter(|slot| graph.may_overwrite(self.node, *slot) && alone(*slot)).collect()
    }

    /// Returns what each leaf holds at first.
    pub(crate) fn contents(&self) -> Vec<(TensorId, Vec<u8>)> {
        let bytes = |(id, values): &(TensorId, LeafValues)| {
            let layout = self.graph.tensor(*id).layout;
            (*id, values.bytes(layout.dtype(), layout.elements(), seed(*id)))
        };
        self.leafs.iter().map(bytes).collect()
    }

    /// Returns the contents with other values in one leaf.
    pub(crate) fn changed_contents(&self, leaf: usize) -> Vec<(TensorId, Vec<u8>)> {
        let mut contents = self.contents();
        let ((id, values), layout) = (self.leafs[leaf], self.graph.tensor(self.leafs[leaf].0).layout);
        contents[leaf].1 = values.other_bytes(layout.dtype(), layout.elements(), seed(id));
        contents
    }
}

fn seed(id: TensorId) -> u64 {
    0x57EE_7E00 + id.index() as u64
}

/// Builds a case: sources in some of the forms that a tensor can have.
pub(crate) struct CaseBuilder {
    pub(crate) context: Context,
    pub(crate) dtype: DataType,
    leafs: Vec<(TensorId, LeafValues)>,
}

/// How a source lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceForm {
    /// Without gaps.
    Plain,
    /// A tensor of one dimension, seen in another shape.
    Reshaped,
    /// The first part of a larger tensor.
    Part,
    /// With gaps between the rows.
    Spread,
    /// With the first two dimensions exchanged.
    Turned,
}

impl CaseBuilder {
    pub(crate) fn new(dtype: DataType) -> Self {
        Self { context: Context::new(), dtype, leafs: Vec::new() }
    }

    /// Adds a leaf of the type of the case.
    pub(crate) fn leaf(&mut self, shape: &[u64], values: LeafValues) -> Result<TensorId, GraphError> {
        self.typed(self.dtype, shape, values)
    }

    pub(crate) fn typed(&mut self, dtype: DataType, shape: &[u64], values: LeafValues) -> Result<TensorId, GraphError> {
        let leaf = self.context.input(dtype, shape)?;
        self.context.set_name(leaf, &format!("leaf {}", self.leafs.len()))?;
        self.leafs.push((leaf, values));
        Ok(leaf)
    }

    /// Adds a source of this shape and form.
    pub(crate) fn source(
        &mut self,
        shape: &[u64],
        form: SourceForm,
        values: LeafValues,
    ) -> Result<TensorId, GraphError> {
        let mut ne = [1; 4];
        ne[..shape.len()].copy_from_slice(shape);
        let packed = Layout::contiguous(self.dtype, &ne)?;
        let [_, s1, s2, s3] = packed.nb();
        match form {
            SourceForm::Plain => self.leaf(shape, values),
            SourceForm::Reshaped => {
                let leaf = self.leaf(&[packed.elements()], values)?;
                self.context.reshape(leaf, shape)
            }
            SourceForm::Part => {
                let leaf = self.leaf(&[ne[0], ne[1], ne[2], ne[3] + 1], values)?;
                self.context.view_4d(leaf, ne, [s1, s2, s3], Bytes::ZERO)
            }
            SourceForm::Spread => {
                let leaf = self.leaf(&[ne[0] + 3, ne[1], ne[2], ne[3]], values)?;
                let [_, s1, s2, s3] = self.context.tensor(leaf)?.layout.nb();
                self.context.view_4d(leaf, ne, [s1, s2, s3], Bytes::ZERO)
            }
            SourceForm::Turned => {
                let leaf = self.leaf(&[ne[1], ne[0], ne[2], ne[3]], values)?;
                self.context.transpose(leaf)
            }
        }
    }

    /// Applies the operation at the end of the case.
    pub(crate) fn finish(
        mut self,
        op: Op,
        sources: &[TensorId],
        params: &[Param],
        reach: Dependence,
    ) -> Result<OpCase, GraphError> {
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        let node = self.context.apply(op, &sources, params)?;
        self.end(node, reach)
    }

    /// Applies the operation at the end of the case to a result that has the layout of the first source, gaps included.
    pub(crate) fn finish_alike(
        mut self,
        op: Op,
        sources: &[TensorId],
        params: &[Param],
        reach: Dependence,
    ) -> Result<OpCase, GraphError> {
        let layout = self.context.tensor(sources[0])?.layout;
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        let node = self.context.add_tensor(Tensor { op, ..Tensor::new(layout) }, &sources, params)?;
        self.end(node, reach)
    }

    /// Returns the graph that `build` makes, whose last node is the operation; `None` if it has leafs of blocks, which
    /// the suite has no values for.
    pub(crate) fn built(
        build: impl FnOnce(&mut Context) -> Result<TensorId, GraphError>,
    ) -> Result<Option<OpCase>, GraphError> {
        let mut builder = Self::new(DataType::F32);
        let node = build(&mut builder.context)?;
        let graph = Graph::from_outputs(&builder.context, &[node])?;
        for &leaf in graph.leafs() {
            let values = match graph.tensor(leaf).layout.dtype() {
                dtype if dtype.is_quantised() => return Ok(None),
                dtype if dtype.is_float() || dtype == DataType::F64 => LeafValues::Any,
                // Small enough to be an index of anything with two rows.
                _ => LeafValues::Below(2),
            };
            builder.leafs.push((leaf, values));
        }
        builder.end(node, Dependence::Unknown).map(Some)
    }

    fn end(mut self, node: TensorId, reach: Dependence) -> Result<OpCase, GraphError> {
        self.context.set_name(node, "result")?;
        self.context.set_output(node)?;
        let graph = Graph::from_outputs(&self.context, &[node])?;
        Ok(OpCase { graph, node, reach, leafs: self.leafs })
    }
}
