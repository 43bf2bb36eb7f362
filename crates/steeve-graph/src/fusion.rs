//! What a plan keeps so that a backend can fuse nodes.
//!
//! Backends run chains of nodes as one kernel, which reads the sources of its first node while it writes the result of its
//! last. They compare addresses before they do so, and run the nodes one by one where the result would overwrite a source.
//! Node-by-node liveness is therefore always right, but it may cost speed. [`Fusion::Kept`] extends live ranges by what it
//! takes to lose next to none:
//!
//! ```text
//!   router       SOFT_MAX RESHAPE (ADD) ARGSORT VIEW GET_ROWS ...   the logits live to the end of the group
//!   weighted sum MUL VIEW ... ADD ...                               the weights live to the end of the group
//!   gated        MUL_MAT (ADD) MUL_MAT (ADD) GLU                    1/64 of the activation lives to the end of the group
//! ```
//!
//! The last group is fused for a few tokens only, in graphs that run in the plan of a large one. Their tensors are within a
//! prefix of the planned blocks: 8 tokens of 512 take 1/64. A live range that shrinks to that costs next to nothing. (Of tensors
//! with few rows, 8 rows are kept.) In all other groups that backends are known to fuse, the result is placed when all sources are still alive.
//!
//! (A prefix of *every* source would need no list of groups. Its lower bound is as good, but prefixes all over the memory
//! fragment it: on the recorded graphs, plans take up to a third more than their bound.)

use alloc::vec::Vec;

use steeve_plan::{Block, BlockId, Bytes, Id, Lifetime};

use crate::{AssignedGraph, Graph, Op, Tensor, TensorId};

/// Whether the backend of a memory fuses nodes, and what plans keep for that.
///
/// In this order: a plan that keeps to one keeps to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Fusion {
    /// Nodes run one by one, as on a CPU.
    #[default]
    None,
    /// The backend fuses nodes where addresses allow it. Plans keep nothing for that, but nodes are computed in place only
    /// where ggml does so: other in-place choices prevent fusions.
    Checked,
    /// What [`Fusion::Checked`] keeps, and live ranges are extended as the [module](crate::fusion) describes.
    Kept,
}

impl Fusion {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::None, Self::Checked, Self::Kept];

    /// Returns the name in text and plan files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Checked => "checked",
            Self::Kept => "kept",
        }
    }

    /// Finds a variant by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// Returns how many bytes of a tensor, whose block has `size`, are kept as its prefix: 8 tokens of a micro-batch of 512, and 8 rows
/// where the tensor has few. (The last layer of a prompt is computed for the tokens with outputs alone.) A smaller graph in the
/// same plan has rows of the same size, and so the same prefix.
pub(crate) fn prefix(tensor: &Tensor, size: Bytes) -> Bytes {
    let [_, ne @ ..] = tensor.layout.ne();
    let rows = ne.iter().fold(1, |rows: u64, count| rows.saturating_mul(*count));
    let row = tensor.layout.nbytes().0.checked_div(rows).unwrap_or(0);
    Bytes(row.saturating_mul(8).max(size.0.div_ceil(64)).min(size.0))
}

/// A source that a fused group may read until its last node has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRead {
    pub(crate) source: TensorId,
    /// The index of the node that reads it.
    pub(crate) node: usize,
    /// The index of the last node of the group.
    pub(crate) last: usize,
    pub(crate) extent: KeptExtent,
}

/// How much of a source is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptExtent {
    Whole,
    /// As many bytes as a small graph has of it.
    Prefix,
}

/// Finds the sources that the groups of a graph read to their end, in the order of nodes. O(nodes).
pub(crate) fn group_reads(assigned: &AssignedGraph) -> Vec<GroupRead> {
    let (graph, memories) = (assigned.graph(), &assigned.assignment().nodes);
    let mut reads = Vec::new();
    for node in 0..graph.nodes().len() {
        let group = FusionGroup { graph, node };
        let (last, slots, extent): (_, &[usize], _) = match group.op(node) {
            Some(Op::SoftMax | Op::Unary(_) | Op::Argsort) => (group.router(), &[0], KeptExtent::Whole),
            Some(Op::Mul) => (group.weighted_sum(), &[0, 1], KeptExtent::Whole),
            Some(Op::MulMat | Op::MulMatId) => (group.gated(), &[1], KeptExtent::Prefix),
            _ => continue,
        };
        // One backend fuses what it computes itself.
        let Some(last) = last.filter(|last| memories[node..=*last].iter().all(|it| *it == memories[node])) else {
            continue;
        };
        let sources = graph.sources(graph.nodes()[node]);
        let sources = slots.iter().filter_map(|slot| sources.get(*slot).copied().flatten());
        reads.extend(sources.map(|source| GroupRead { source, node, last, extent }));
    }
    reads
}

/// For each root, the step behind the last group that reads all of it and the step behind the last that reads its prefix; 0
/// where there is none.
pub(crate) struct GroupEnds {
    pub(crate) whole: Vec<u64>,
    pub(crate) prefix: Vec<u64>,
}

impl GroupEnds {
    /// Computes the ends of groups, if a memory of the graph keeps something for fusions.
    pub(crate) fn new(assigned: &AssignedGraph) -> Option<Self> {
        assigned.memories().iter().any(|memory| memory.fusion == Fusion::Kept).then(|| Self::of(assigned))
    }

    /// Computes the ends of groups of a graph, whatever its memories keep.
    pub(crate) fn of(assigned: &AssignedGraph) -> Self {
        let graph = assigned.graph();
        let none = || alloc::vec![0; graph.tensors().len()];
        let mut ends = Self { whole: none(), prefix: none() };
        for GroupRead { source, last, extent, .. } in group_reads(assigned) {
            let ends = match extent {
                KeptExtent::Whole => &mut ends.whole,
                KeptExtent::Prefix => &mut ends.prefix,
            };
            let end = &mut ends[graph.root(source).index()];
            // Node `last` runs at step `last + 1`.
            *end = (*end).max(last as u64 + 2);
        }
        ends
    }

    /// Returns the block of the prefix of a tensor that outlives its block, up to the step `end`.
    pub(crate) fn kept_prefix(tensor: &Tensor, block: BlockId, it: &Block, end: u64) -> Option<Block> {
        if it.size == Bytes::ZERO {
            return None;
        }
        let life = Lifetime::new(it.life.end().0, end).ok()?;
        Some(Block::new(prefix(tensor, it.size), life).aligned(it.align).following(block))
    }
}

/// An operation of a group.
#[derive(Clone, Copy)]
enum ExpectedOp {
    Always(Op),
    Perhaps(Op),
}
use ExpectedOp::{Always, Perhaps};

/// Matches the nodes from one on. A backend fuses nodes that directly follow each other.
#[derive(Clone, Copy)]
struct FusionGroup<'a> {
    graph: &'a Graph,
    node: usize,
}

impl FusionGroup<'_> {
    fn op(&self, node: usize) -> Option<Op> {
        Some(self.graph.tensor(*self.graph.nodes().get(node)?).op)
    }

    /// Matches operations from `at` on. Returns the index behind the last.
    fn match_ops(&self, mut at: usize, ops: &[ExpectedOp]) -> Option<usize> {
        for expected in ops {
            match *expected {
                Always(op) | Perhaps(op) if self.op(at) == Some(op) => at += 1,
                Always(_) => return None,
                Perhaps(_) => {}
            }
        }
        Some(at)
    }

    /// Returns whether a node is among the sources of another.
    fn reads(&self, reader: usize, node: usize) -> bool {
        let nodes = self.graph.nodes();
        self.graph.sources(nodes[reader]).contains(&Some(nodes[node]))
    }

    /// Returns the last node of a router of experts that starts here.
    fn router(&self) -> Option<usize> {
        const CHOICE: &[ExpectedOp] =
            &[Always(Op::Reshape), Perhaps(Op::Add), Always(Op::Argsort), Always(Op::View), Always(Op::GetRows)];
        const LATE_SOFT_MAX: &[ExpectedOp] = &[
            Always(Op::Argsort),
            Always(Op::View),
            Always(Op::GetRows),
            Always(Op::Reshape),
            Always(Op::SoftMax),
            Always(Op::Reshape),
        ];
        const NORMALISED: &[ExpectedOp] =
            &[Always(Op::Reshape), Always(Op::SumRows), Perhaps(Op::Clamp), Always(Op::Div), Always(Op::Reshape)];
        if let Some(end) = self.match_ops(self.node, LATE_SOFT_MAX) {
            return Some(end - 1);
        }
        // Softplus is followed by a square root.
        let first = if self.op(self.node + 1) == Some(Op::Sqrt) { self.node + 2 } else { self.node + 1 };
        let chosen = self.match_ops(first, CHOICE)?;
        let end = self.match_ops(chosen, NORMALISED).unwrap_or(chosen);
        let end = self.match_ops(end, &[Perhaps(Op::Scale)])?;
        Some(end - 1)
    }

    /// Returns the last node of a weighted sum of experts that starts here: the product, a view of each expert, and
    /// their sum.
    fn weighted_sum(&self) -> Option<usize> {
        let run = |from: usize, op: Op| (from..).take_while(|at| self.op(*at) == Some(op)).count();
        let is_view = |at: usize| self.op(at) == Some(Op::View) && self.reads(at, self.node);
        let views = (self.node + 1..).take_while(|at| is_view(*at)).count();
        let first_add = self.node + 1 + views;
        // What follows the sum may be an addition, too.
        let adds = run(first_add, Op::Add).min(views.checked_sub(1)?);
        (views > 1 && adds == views - 1).then(|| first_add + adds - 1)
    }

    /// Returns the last node of a gated pair of products that starts here: both multiply the same activation.
    fn gated(&self) -> Option<usize> {
        let (product, bias) = match self.op(self.node)? {
            Op::MulMat => (Op::MulMat, Op::Add),
            _ => (Op::MulMatId, Op::AddId),
        };
        let second = self.match_ops(self.node, &[Always(product), Perhaps(bias)])?;
        let glu = self.match_ops(second, &[Always(product), Perhaps(bias)])?;
        let activation = |node: usize| self.graph.sources(self.graph.nodes()[node]).get(1).copied().flatten();
        let is_gated =
            matches!(self.op(glu), Some(Op::Glu(_))) && self.reads(glu, second - 1) && self.reads(glu, glu - 1);
        (is_gated && activation(self.node) == activation(second)).then_some(glu)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn ends(text: &str) -> Vec<(String, usize)> {
        let assigned: AssignedGraph = text.parse().unwrap();
        let graph = assigned.graph();
        group_reads(&assigned).iter().map(|read| (graph.name(read.source).into(), read.last)).collect()
    }

    #[test]
    fn a_router_reads_its_logits_to_the_end() {
        let router = "
            logits = input f32[8,4]
            probs = soft_max logits
            flat = reshape f32[1,8,4] probs
            order = argsort probs
            chosen = view i32[2,4]{4,32,128,128} order
            weights = get_rows flat chosen
            rows = reshape f32[2,4] weights
            sum = sum_rows rows
            norm = div rows sum
            shaped = reshape f32[1,2,4] norm !output
        ";
        assert_eq!(ends(router), [("logits".into(), 8)]);
        assert_eq!(ends("x = input f32[8]; y = soft_max x; z = sqr y !output"), []);
    }

    #[test]
    fn a_weighted_sum_reads_its_weights_to_the_end() {
        let sum = "
            experts = input f32[8,2,4]
            weights = input f32[1,2,4]
            product = mul experts weights
            first = view f32[8,4]{4,64,256,256} product
            second = view f32[8,4]{4,64,256,256}+32 product
            sum = add first second
            more = add sum sum !output
        ";
        assert_eq!(ends(sum), [("experts".into(), 3), ("weights".into(), 3)]);
    }
}
