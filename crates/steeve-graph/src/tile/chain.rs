//! Some consecutive nodes of a graph in, a chain out that can run in parts; or nothing, if they can't.
//!
//! Of the nodes, those that are split run once per part; the others do not depend on these, write nothing that one of these
//! has read before, and run before the first part.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::{Bytes, Id, IdVec};

use super::row_rules::{ImageRows, Need, RowInput};
use super::split::{RootRows, Split};
use crate::liveness::{RootLifetimes, root_lifetimes};
use crate::{AssignedGraph, DataType, Flags, Graph, Layout, Op, TensorId, Unread};

/// The chains of a graph that can run in parts.
///
/// ```
/// use steeve_graph::{AssignedGraph, RowChains, Unread};
/// let graph: AssignedGraph = "
///     w = external f32[16,64]; v = external f32[64,16]
///     x = input f32[16,8]
///     up = mul_mat w x
///     act = silu up
///     down = mul_mat v act
///     y = add down x !output
/// "
/// .parse()?;
/// let chain = RowChains::new(&graph, Unread::default()).around(1, 1).unwrap();
/// assert_eq!((chain.nodes(), chain.rows()), (0..4, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowChains<'a> {
    pub(crate) assigned: &'a AssignedGraph,
    pub(crate) lives: RootLifetimes,
    /// Where each tensor is in the order of nodes.
    position: IdVec<TensorId, Option<usize>>,
    /// The nodes that read or write each root, in order.
    pub(crate) users: IdVec<TensorId, Vec<usize>>,
    is_read: IdVec<TensorId, bool>,
    is_viewed: IdVec<TensorId, bool>,
}

/// Consecutive nodes whose results can be computed some rows at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChain {
    pub(crate) nodes: Range<usize>,
    pub(crate) rows: u64,
    /// How each root that the chain creates is split. Those that are not here are computed once, before the parts.
    pub(crate) splits: BTreeMap<TensorId, Split>,
    /// The roots that are needed outside of the chain: these are there with all rows.
    pub(crate) results: Vec<TensorId>,
    /// Tensors of these roots, computed within the chain or views, that are needed outside.
    pub(crate) kept: Vec<TensorId>,
    /// The result that is written over the rows of a tensor from outside, which no later node needs.
    pub(crate) over: Option<(TensorId, TensorId)>,
}

impl RowChain {
    /// Returns the nodes, as positions in [`Graph::nodes`].
    pub fn nodes(&self) -> Range<usize> {
        self.nodes.clone()
    }

    /// Returns how many rows there are: the most parts in which the chain can be done.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns whether a result is written over the rows of an input of the chain.
    pub fn overwrites_input(&self) -> bool {
        self.over.is_some()
    }

    /// Returns the nodes that are done in parts, in order; the others run once, before the first part. None, if the graph has
    /// fewer nodes than the one that the chain is of.
    pub fn split_nodes(&self, graph: &Graph) -> impl Iterator<Item = TensorId> {
        let is_split = |node: &TensorId| self.splits.contains_key(&graph.root(*node));
        let nodes = graph.nodes().get(self.nodes()).unwrap_or_default().iter().copied();
        nodes.filter(move |node| is_split(node) && !graph.tensor(*node).op.writes_nothing())
    }
}

/// Whether a result may be written over the rows of an input that no later node needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inputs {
    /// It may.
    Overwrite,
    /// Each result has bytes of its own.
    Keep,
}

impl<'a> RowChains<'a> {
    /// Looks at the nodes of a graph. O(edges). `unread` says what becomes of inputs and nodes that no node reads.
    pub fn new(assigned: &'a AssignedGraph, unread: Unread) -> Self {
        let graph = assigned.graph();
        let all = || graph.tensors().iter();
        let mut this = Self {
            assigned,
            lives: root_lifetimes(assigned, unread),
            position: all().map(|_| None).collect(),
            users: all().map(|_| Vec::new()).collect(),
            is_read: all().map(|_| false).collect(),
            is_viewed: all().map(|_| false).collect(),
        };
        for (index, &node) in graph.nodes().iter().enumerate() {
            this.position[node] = Some(index);
            for &used in graph.sources(node).iter().flatten().chain([&node]) {
                let users = &mut this.users[graph.root(used)];
                if users.last() != Some(&index) {
                    users.push(index);
                }
            }
            graph.sources(node).iter().flatten().for_each(|source| this.is_read[*source] = true);
            if graph.tensor(node).is_view() && graph.tensor(node).op != Op::None {
                this.is_viewed[graph.root(node)] = true;
            }
        }
        this
    }

    pub(crate) fn graph(&self) -> &'a Graph {
        self.assigned.graph()
    }

    /// Returns whether a node among `nodes` creates a root.
    pub(crate) fn is_created(&self, root: TensorId, nodes: &Range<usize>) -> bool {
        self.creator(root).is_some_and(|at| nodes.contains(&at))
    }

    /// Returns where a tensor is in the order of nodes.
    pub(crate) fn position(&self, tensor: TensorId) -> Option<usize> {
        self.position[tensor]
    }

    /// Returns the position of the node that creates a root, if one does.
    pub(crate) fn creator(&self, root: TensorId) -> Option<usize> {
        let at = self.position.get(root).copied().flatten()?;
        (!self.graph().tensor(root).op.writes_nothing()).then_some(at)
    }

    /// Returns how a tensor of a split root is split.
    pub(crate) fn split_of(&self, tensor: TensorId, splits: &BTreeMap<TensorId, Split>, rows: u64) -> Option<Split> {
        let graph = self.graph();
        let root = graph.root(tensor);
        let split = *splits.get(&root)?;
        if root == tensor {
            return Some(split);
        }
        let lines = RootRows::new(&graph.tensor(root).layout, split, rows)?;
        lines.split_of(&graph.tensor(tensor).layout, graph.tensors().offset(tensor))
    }

    /// Returns what a node needs of its sources if its result is split in this way. A node that names itself as a source
    /// needs nothing of it.
    pub(crate) fn needs(&self, node: TensorId, split: Split, rows: u64) -> Option<Vec<Need>> {
        let graph = self.graph();
        let (tensor, sources) = (graph.tensor(node), graph.sources(node));
        if matches!(tensor.op, Op::Unary(crate::Unary::Other(_)) | Op::Glu(crate::Glu::Other(_))) {
            return None;
        }
        let layouts: Vec<Option<Layout>> = sources.iter().map(|it| it.map(|it| graph.tensor(it).layout)).collect();
        let input = RowInput { rows, split, result: tensor.layout, sources: &layouts, params: graph.params(node) };
        let mut needs = tensor.op.entry().rows?(&input)?;
        if sources.iter().skip(needs.len()).any(Option::is_some) {
            return None;
        }
        needs.resize(sources.len(), Need::Whole);
        Some(needs)
    }

    /// Returns whether a node can be part of a chain at all: it has an operation, is not external, and is no input, parameter
    /// or loss.
    pub(crate) fn may_join(&self, node: TensorId) -> bool {
        let tensor = self.graph().tensor(node);
        let marked = [Flags::INPUT, Flags::PARAM, Flags::LOSS].iter().any(|flag| tensor.flags.contains(*flag));
        tensor.op != Op::None && !marked && !tensor.external
    }

    /// Returns the chain of some nodes, whose roots are split as `splits` says as far as they are created there.
    pub(crate) fn chain(
        &self,
        nodes: Range<usize>,
        rows: u64,
        splits: &BTreeMap<TensorId, Split>,
        inputs: Inputs,
    ) -> Option<RowChain> {
        let mut chain = self.without_places(nodes, rows, splits)?;
        if inputs == Inputs::Overwrite {
            chain.over = self.over_input(&chain);
        }
        self.have_bytes(&chain).then_some(chain)
    }

    /// Returns the chain of some nodes, before it is known where its results are written.
    pub(crate) fn without_places(
        &self,
        nodes: Range<usize>,
        rows: u64,
        splits: &BTreeMap<TensorId, Split>,
    ) -> Option<RowChain> {
        let graph = self.graph();
        let splits: BTreeMap<TensorId, Split> = splits
            .iter()
            .filter(|(root, _)| self.is_created(**root, &nodes))
            .map(|(root, split)| (*root, *split))
            .collect();
        // A chain of another graph may have more nodes, and other shapes.
        let is_here = nodes.end <= graph.nodes().len()
            && splits.iter().all(|(root, split)| RootRows::new(&graph.tensor(*root).layout, *split, rows).is_some());
        let fits = is_here && nodes.clone().all(|at| self.fits(at, &nodes, rows, &splits));
        if splits.is_empty() || rows < 2 || !fits {
            return None;
        }
        let mut chain = RowChain { nodes, rows, splits, results: Vec::new(), kept: Vec::new(), over: None };
        self.find_results(&mut chain);
        Some(chain)
    }

    /// Returns whether parts can be written into all results of a chain: a `FILL` gives one bytes, or an input does, and no part
    /// comes with rows too many.
    pub(crate) fn have_bytes(&self, chain: &RowChain) -> bool {
        let graph = self.graph();
        let over = chain.over.map(|(result, _)| result);
        chain.results.iter().all(|&root| {
            let tensor = graph.tensor(root);
            let can_be_filled =
                matches!(tensor.layout.dtype(), DataType::F32 | DataType::F16 | DataType::Bf16 | DataType::I32);
            let is_exact = tensor.op != Op::Im2col || ImageRows::of(graph.params(root)).is_none();
            (can_be_filled || over == Some(root)) && is_exact
        })
    }

    /// Returns whether a node can run as the chain demands: in parts, or before them.
    fn fits(&self, at: usize, nodes: &Range<usize>, rows: u64, splits: &BTreeMap<TensorId, Split>) -> bool {
        let graph = self.graph();
        let node = graph.nodes()[at];
        let root = graph.root(node);
        if !self.may_join(node) {
            return false;
        }
        if graph.tensor(node).op.writes_nothing() {
            return true;
        }
        let sources = graph.sources(node);
        if !self.is_created(root, nodes) {
            return false;
        }
        if !splits.contains_key(&root) {
            let depends = sources.iter().flatten().any(|source| splits.contains_key(&graph.root(*source)));
            return !depends && !self.is_read_before(at, nodes, splits);
        }
        let Some(split) = self.split_of(node, splits, rows) else { return false };
        let Some(needs) = self.needs(node, split, rows) else { return false };
        sources.iter().zip(needs).all(|(source, need)| match *source {
            Some(source) if source != node => match (splits.contains_key(&graph.root(source)), need) {
                (true, Need::Rows(split)) => self.split_of(source, splits, rows) == Some(split),
                (true, Need::Whole | Need::Lookup | Need::Image) => false,
                (false, _) => true,
            },
            _ => true,
        })
    }

    /// Returns whether a part reads the root that a node writes into, which runs once, and would read it too late: before the
    /// parts that is written already.
    pub(crate) fn is_read_before(&self, at: usize, nodes: &Range<usize>, splits: &BTreeMap<TensorId, Split>) -> bool {
        let (graph, node) = (self.graph(), self.graph().nodes()[at]);
        let root = graph.root(node);
        let is_part = |user: usize| {
            let user = graph.nodes()[user];
            !graph.tensor(user).op.writes_nothing() && splits.contains_key(&graph.root(user))
        };
        let earlier = self.users[root].iter().filter(|user| nodes.contains(user) && **user < at);
        root != node && !splits.contains_key(&root) && { earlier }.any(|user| is_part(*user))
    }

    /// Finds the roots that are needed outside of the chain, and which of their tensors.
    fn find_results(&self, chain: &mut RowChain) {
        let graph = self.graph();
        let mut kept = Vec::new();
        for &root in chain.splits.keys() {
            let outside = self.users[root].iter().filter(|at| !chain.nodes.contains(at));
            let mut is_result = graph.tensor(root).flags.is_output() || !(self.is_read[root] || self.is_viewed[root]);
            for &at in outside {
                is_result = true;
                let node = graph.nodes()[at];
                let named = graph.sources(node).iter().flatten().copied();
                kept.extend(named.filter(|it| graph.root(*it) == root));
            }
            if is_result {
                chain.results.push(root);
            }
        }
        for at in chain.nodes.clone() {
            let node = graph.nodes()[at];
            let (tensor, root) = (graph.tensor(node), graph.root(node));
            if tensor.is_view() && chain.splits.contains_key(&root) && (tensor.flags.is_output() || !self.is_read[node])
            {
                kept.push(node);
                if !chain.results.contains(&root) {
                    chain.results.push(root);
                }
            }
        }
        // What a view is made of is needed where the view is.
        let mut met = BTreeSet::new();
        while let Some(tensor) = kept.pop() {
            let is_inside = self.position[tensor].is_some_and(|at| chain.nodes.contains(&at));
            if !graph.tensor(tensor).is_view() || !met.insert(tensor) {
                continue;
            }
            if is_inside {
                chain.kept.push(tensor);
            }
            if graph.tensor(tensor).op.writes_nothing() {
                let root = graph.root(tensor);
                kept.extend(graph.sources(tensor).iter().flatten().filter(|it| graph.root(**it) == root));
            }
        }
        chain.kept.sort_unstable_by_key(|tensor| self.position[*tensor]);
    }

    /// Returns a result that can be written over the rows of a tensor from outside, and that tensor.
    fn over_input(&self, chain: &RowChain) -> Option<(TensorId, TensorId)> {
        chain.results.iter().find_map(|&result| {
            let mut inputs = self.graph().sources(result).iter().copied().flatten();
            inputs.find(|input| self.may_be_over(chain, result, *input)).map(|input| (result, input))
        })
    }

    /// Returns whether the parts of a result may be written over the rows of `input`, which no later node needs.
    pub(crate) fn may_be_over(&self, chain: &RowChain, result: TensorId, input: TensorId) -> bool {
        let graph = self.graph();
        let (Some(at), Some(split)) = (self.creator(result), chain.splits.get(&result)) else { return false };
        if !graph.sources(result).contains(&Some(input)) {
            return false;
        }
        let (tensor, root) = (graph.tensor(result), graph.root(input));
        let (own, life) = (self.lives.of_root[result.index()], self.lives.of_root[root.index()]);
        let owner = |memory| self.assigned.owner(memory);
        let Some(memory) = own.memory.map(owner).filter(|memory| life.memory.map(owner) == Some(*memory)) else {
            return false;
        };
        let is_plain = split.is_outermost(&tensor.layout)
            && !tensor.flags.is_output()
            && self.assigned.sizes().row(result).is_none()
            && !self.assigned.memories()[memory].keeps_ggml_in_place();
        // It is there before the chain, and no longer needed behind it.
        let (first, last) = (chain.nodes.start as u64, chain.nodes.end as u64);
        let dies = life.is_allocated() && !life.kept && life.first <= first && life.last <= last;
        let sources = graph.sources(result);
        let slots = || (0..sources.len()).filter(|slot| sources[*slot].is_some_and(|it| graph.root(it) == root));
        let overwrites = slots().count() == 1
            && slots().all(|slot| sources[slot] == Some(input) && graph.may_overwrite(result, slot));
        is_plain && dies && overwrites && !self.is_created(root, &chain.nodes) && self.reads_its_rows(chain, input, at)
    }

    /// Returns whether all that the chain reads of the root of `input` is the rows that are written at the node `last`, and
    /// none of it later.
    fn reads_its_rows(&self, chain: &RowChain, input: TensorId, last: usize) -> bool {
        let graph = self.graph();
        let (root, bytes) = (graph.root(input), self.extent(input));
        self.users[root].iter().filter(|at| chain.nodes.contains(at)).all(|&at| {
            let node = graph.nodes()[at];
            if graph.tensor(node).op.writes_nothing() || !chain.splits.contains_key(&graph.root(node)) {
                // A view, or a node that runs before the parts.
                return graph.root(node) != root || graph.tensor(node).op.writes_nothing();
            }
            let split = self.split_of(node, &chain.splits, chain.rows);
            let Some(needs) = split.and_then(|split| self.needs(node, split, chain.rows)) else { return false };
            at <= last
                && graph.sources(node).iter().zip(needs).all(|(source, need)| match (*source, need) {
                    (Some(source), _) if graph.root(source) != root => true,
                    (Some(source), Need::Rows(split)) => {
                        let layout = graph.tensor(source).layout;
                        let rows = Split::along(&layout, split.dim, chain.rows) == Some(split);
                        let packed = layout.has_default_strides() && split.is_outermost(&layout);
                        rows && packed && self.extent(source) == bytes
                    }
                    (source, _) => source.is_none(),
                })
        })
    }

    /// Returns the bytes of its root that a tensor has.
    fn extent(&self, tensor: TensorId) -> (Bytes, Bytes) {
        (self.graph().tensors().offset(tensor), self.graph().tensor(tensor).nbytes())
    }
}
