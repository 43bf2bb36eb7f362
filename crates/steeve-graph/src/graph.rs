//! Tensors in the order in which they are computed.
//!
//! A graph has the table of tensors of the context it was made from, so making one copies no tensor and ids are valid
//! in both. What the context builds or changes later does not reach the graph. Cloning one costs four reference
//! counts.

use alloc::sync::Arc;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id, IdVec};

use crate::error::Named;
use crate::order::check_order;
use crate::{Context, GraphError, GraphParts, Names, Op, Param, Tensor, TensorId, Tensors};

/// Nodes in the order in which they run, and the leafs they start from.
///
/// *Node order is meaning*: a node that writes into a cache has no edge to the nodes that read the cache later. Whatever a
/// node reads is written before it: every way to make a graph checks that ([`GraphParts::finish`]).
///
/// Functions that can't fail know a tensor by its number alone; [`Tensors::find`] says whether an id is one of this graph's.
///
/// ```
/// use steeve_graph::{Context, DataType, Graph};
/// let mut context = Context::new();
/// let x = context.input(DataType::F32, &[64, 8])?;
/// let w = context.external(DataType::F16, &[64, 32])?;
/// let y = context.mul_mat(w, x)?;
/// let z = context.relu(y)?;
/// let graph = Graph::from_outputs(&context, &[z])?;
/// assert_eq!(graph.nodes(), [y, z]);
/// assert_eq!(graph.leafs(), [w, x]);
/// # Ok::<(), steeve_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    tensors: Arc<Tensors>,
    names: Arc<Names>,
    nodes: Arc<Vec<TensorId>>,
    leafs: Arc<Vec<TensorId>>,
}

impl Graph {
    /// Returns the graph of all that `outputs` need, in ggml's order: depth first, sources in slot order.
    ///
    /// A tensor without operation is a leaf, unless it is a parameter. A view is reached through its source, as every
    /// other tensor.
    ///
    /// # Errors
    ///
    /// If an output is not of this context, or a node would run before what it reads is written.
    pub fn from_outputs(context: &Context, outputs: &[TensorId]) -> Result<Self, GraphError> {
        let mut graph = Self::empty(context);
        graph.expand(context, outputs)?;
        Ok(graph)
    }

    /// Returns the graph of exactly these nodes in this order. Leafs are the tensors without operation that the nodes
    /// read, in the order in which they are first read. What else the nodes read must be external, or written by an
    /// earlier one of them.
    ///
    /// ```
    /// use steeve_graph::{Context, DataType, Graph};
    /// let mut context = Context::new();
    /// let x = context.input(DataType::F32, &[4])?;
    /// let (y, z) = (context.neg(x)?, context.relu(x)?);
    /// let graph = Graph::from_nodes(&context, &[z, y])?;
    /// assert_eq!((graph.nodes(), graph.leafs()), (&[z, y][..], &[x][..]));
    /// # Ok::<(), steeve_graph::GraphError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a node is not of this context, is listed twice, or would run before what it reads is written.
    pub fn from_nodes(context: &Context, nodes: &[TensorId]) -> Result<Self, GraphError> {
        let (mut graph, mut leafs) = (Self::empty(context), Vec::new());
        let mut listed = alloc::vec![false; graph.tensors.len()];
        for &node in nodes {
            context.tensor(node)?;
            listed[node.index()] = true;
        }
        for &node in nodes {
            for &source in context.tensors().sources(node).iter().flatten() {
                let fresh = !core::mem::replace(&mut listed[source.index()], true);
                if fresh && is_leaf(&context.tensors()[source]) {
                    leafs.push(source);
                }
            }
        }
        let nodes = nodes.iter().map(|node| context.tensors().named(*node)).collect();
        (graph.nodes, graph.leafs) = (Arc::new(nodes), Arc::new(leafs));
        graph.check_order()?;
        Ok(graph)
    }

    /// Appends all that `tensors` need and the graph does not have yet: what no output reaches, such as writes into a
    /// cache. Do so before the readers of the cache are appended.
    ///
    /// `context` is the one the graph was made from; it may have grown since.
    ///
    /// ```
    /// use steeve_graph::{Bytes, Context, DataType, Graph};
    /// let mut context = Context::new();
    /// let cache = context.external(DataType::F32, &[4, 8])?;
    /// let x = context.input(DataType::F32, &[4])?;
    /// let place = context.view_1d(cache, 4, Bytes(16))?;
    /// let write = context.cpy(x, place)?;
    /// let mut graph = Graph::from_outputs(&context, &[write])?;
    /// let read = context.sum(cache)?;
    /// graph.expand(&context, &[read])?;
    /// assert_eq!(graph.nodes(), [place, write, read]);
    /// # Ok::<(), steeve_graph::GraphError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a tensor is not of this context, the context is another one, or a node would run before what it reads is
    /// written.
    pub fn expand(&mut self, context: &Context, tensors: &[TensorId]) -> Result<(), GraphError> {
        for &tensor in tensors {
            context.tensor(tensor)?;
        }
        let mut graph = self.clone();
        graph.follow(context)?;
        let mut visited = alloc::vec![false; graph.tensors.len()];
        for id in graph.leafs.iter().chain(&*graph.nodes) {
            visited[id.index()] = true;
        }
        let (nodes, leafs) = (Arc::make_mut(&mut graph.nodes), Arc::make_mut(&mut graph.leafs));
        for &tensor in tensors {
            visit(&graph.tensors, tensor, &mut visited, nodes, leafs);
        }
        graph.check_order()?;
        *self = graph;
        Ok(())
    }

    /// Returns the parts of the graph, to be changed and checked again. Copies the tables only if another handle has
    /// them too.
    pub fn into_parts(self) -> GraphParts {
        let Self { tensors, names, nodes, leafs } = self;
        GraphParts {
            tensors: Arc::unwrap_or_clone(tensors),
            names: Arc::unwrap_or_clone(names),
            nodes: Arc::unwrap_or_clone(nodes),
            leafs: Arc::unwrap_or_clone(leafs),
        }
    }

    /// Returns whether both are handles of one graph, which is known without looking at a tensor. O(1).
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tensors, &other.tensors)
            && Arc::ptr_eq(&self.nodes, &other.nodes)
            && Arc::ptr_eq(&self.leafs, &other.leafs)
    }

    /// Returns whether both graphs are equal but for the names: what is known of one is known of the other.
    /// O(tensors).
    ///
    /// ```
    /// use steeve_graph::Graph;
    /// let graph = |text: &str| text.parse::<Graph>().unwrap();
    /// assert!(graph("x = input f32[4]; y = sqr x").is_like(&graph("a = input f32[4]; b = sqr a")));
    /// assert!(!graph("x = input f32[4]; y = sqr x").is_like(&graph("x = input f32[8]; y = sqr x")));
    /// ```
    pub fn is_like(&self, other: &Self) -> bool {
        self.is_same(other) || self.nodes == other.nodes && self.leafs == other.leafs && self.tensors == other.tensors
    }

    /// Returns the table of tensors. It may have some that the graph does not reach.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// Returns the names of the tensors.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the nodes in the order in which they run.
    pub fn nodes(&self) -> &[TensorId] {
        &self.nodes
    }

    /// Returns the leafs.
    pub fn leafs(&self) -> &[TensorId] {
        &self.leafs
    }

    /// Returns the tensor of this number, wherever the id comes from; [`Tensors::find`] checks that.
    ///
    /// # Panics
    ///
    /// If there is none, like an index.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id]
    }

    /// Returns the sources in slot order; an empty slot keeps its place.
    pub fn sources(&self, id: TensorId) -> &[Option<TensorId>] {
        self.tensors.sources(id)
    }

    /// Returns the parameters of the operation; none where they are not known.
    pub fn params(&self, id: TensorId) -> &[Param] {
        self.tensors.params(id)
    }

    /// Returns the tensor that owns the memory: itself, unless it is a view.
    pub fn root(&self, id: TensorId) -> TensorId {
        self.tensors.root(id)
    }

    /// Returns the last node that uses each root, itself or through a view, as its index in [`nodes`](Self::nodes). A node that is a
    /// view uses its root: ggml's scheduler makes such nodes to keep a tensor until then.
    ///
    /// ```
    /// use steeve_graph::AssignedGraph;
    /// let graph: AssignedGraph = "x = input f32[64]; v = view f32[8]+0 x; y = sqr v; z = add y y !output".parse()?;
    /// assert_eq!(graph.graph().last_users().as_slice(), [Some(1), None, Some(2), None]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn last_users(&self) -> IdVec<TensorId, Option<usize>> {
        let mut last: IdVec<TensorId, Option<usize>> = self.tensors.ids().map(|_| None).collect();
        for (index, node) in self.nodes().iter().enumerate() {
            let view = Some(*node).filter(|node| self.tensor(*node).is_view());
            for used in self.sources(*node).iter().copied().flatten().chain(view) {
                last[self.root(used)] = Some(index);
            }
        }
        last
    }

    /// Returns the name, or an empty one.
    pub fn name(&self, id: TensorId) -> &str {
        self.names.get(id)
    }

    /// Returns whether the operation of `node` may write its result over its source in `slot`: by the table of
    /// operations, if their layouts are equal, or because the graph [permits](Self::permits_overwrite) it, if the
    /// result is not the larger one. That no other slot touches that root is for the caller to check.
    pub fn may_overwrite(&self, node: TensorId, slot: usize) -> bool {
        let tensor = self.tensor(node);
        let Some(source) = self.sources(node).get(slot).copied().flatten() else { return false };
        let source = self.tensor(source);
        if tensor.op.overwrites_slot(slot) && source.layout == tensor.layout {
            return true;
        }
        self.permits_overwrite(node, slot) && tensor.nbytes() <= source.nbytes()
    }

    /// Returns how many bytes below its source in `slot` the result of `node` may start and share bytes with it: the
    /// kernel has read a byte of the source before it writes there, if it is at least so far ahead. `None` if they must
    /// be disjoint (or [equal](Self::may_overwrite)). That no other slot touches that root is for the caller to check.
    ///
    /// ```
    /// use steeve_graph::{Bytes, Graph};
    /// let graph: Graph = "x = input i8[64]; y = ?conv i8[128] x overlaps=0+66 !output".parse()?;
    /// assert_eq!(graph.may_overlap(graph.nodes()[0], 0), Some(Bytes(66)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn may_overlap(&self, node: TensorId, slot: usize) -> Option<Bytes> {
        self.tensors.permitted_overlap(node, slot)
    }

    /// Returns whether `node` may overwrite the source in some slot, if their layouts allow it.
    pub(crate) fn overwrites_any_slot(&self, node: TensorId) -> bool {
        self.tensor(node).op.overwrites_any_slot() || self.tensors.permitted_slots(node) != 0
    }

    pub(crate) fn assemble(
        tensors: Arc<Tensors>,
        names: Arc<Names>,
        nodes: Vec<TensorId>,
        leafs: Vec<TensorId>,
    ) -> Self {
        Self { tensors, names, nodes: Arc::new(nodes), leafs: Arc::new(leafs) }
    }

    /// Returns this graph with its nodes in another order, if each comes after what it reads.
    pub(crate) fn in_order(&self, nodes: Vec<TensorId>) -> Result<Self, GraphError> {
        let graph = self.with_nodes(nodes);
        graph.check_order()?;
        Ok(graph)
    }

    /// Returns this graph with its nodes in another order, which may mean something else.
    pub(crate) fn with_nodes(&self, nodes: Vec<TensorId>) -> Self {
        Self { nodes: Arc::new(nodes), ..self.clone() }
    }

    fn check_order(&self) -> Result<(), GraphError> {
        check_order(&self.tensors, &self.names, &self.nodes, &self.leafs)
    }

    fn empty(context: &Context) -> Self {
        let (tensors, names) = context.tables();
        Self { tensors, names, nodes: Arc::default(), leafs: Arc::default() }
    }

    /// Adopts the tables of the context, if it is still the one the graph was made from.
    fn follow(&mut self, context: &Context) -> Result<(), GraphError> {
        let (tensors, names) = context.tables();
        if !Arc::ptr_eq(&tensors, &self.tensors) {
            let mut listed = self.leafs.iter().chain(&*self.nodes);
            if let Some(&id) = listed.find(|id| tensors.get(**id).is_none() || !self.tensors.same(**id, &tensors)) {
                return Err(GraphError::OtherContext { tensor: Named::new(id, &self.names) });
            }
        }
        (self.tensors, self.names) = (tensors, names);
        Ok(())
    }
}

/// Lists what a tensor needs, depth first, with a stack of its own, so that a deep graph does not overflow the
/// thread's.
fn visit(
    tensors: &Tensors,
    start: TensorId,
    visited: &mut [bool],
    nodes: &mut Vec<TensorId>,
    leafs: &mut Vec<TensorId>,
) {
    let mut path: Vec<(TensorId, usize)> = Vec::new();
    if !core::mem::replace(&mut visited[start.index()], true) {
        path.push((start, 0));
    }
    while let Some((id, slot)) = path.last_mut() {
        let id = *id;
        match tensors.sources(id).get(*slot) {
            Some(source) => {
                *slot += 1;
                if let Some(source) = *source
                    && !core::mem::replace(&mut visited[source.index()], true)
                {
                    path.push((source, 0));
                }
            }
            None => {
                let list = if is_leaf(&tensors[id]) { &mut *leafs } else { &mut *nodes };
                list.push(tensors.named(id));
                path.pop();
            }
        }
    }
}

fn is_leaf(tensor: &Tensor) -> bool {
    tensor.op == Op::None && !tensor.flags.is_param()
}
