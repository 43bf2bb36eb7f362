//! A graph put together by hand: from a C program's tensors, a recorded file or a text.
//!
//! Sources, roots, leafs and nodes may be named before they are pushed; [`GraphParts::finish`] checks all of them at
//! once, in O(tensors + sources).

use alloc::sync::Arc;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use crate::error::Named;
use crate::order::check_order;
use crate::{Flags, Graph, GraphError, Names, Op, Param, Tensor, TensorId, Tensors, View};

/// The parts of a graph that are not checked yet.
///
/// ```
/// use steeve_graph::{DataType, GraphParts, Layout, Op, Tensor, Unary};
/// let layout = Layout::contiguous(DataType::F32, &[8])?;
/// let mut parts = GraphParts::default();
/// let x = parts.push(Tensor::new(layout), &[])?;
/// let y = parts.push(Tensor { op: Op::Unary(Unary::Neg), ..Tensor::new(layout) }, &[Some(x)])?;
/// parts.leaf(x);
/// parts.node(y);
/// let graph = parts.finish()?;
/// assert_eq!(graph.nodes(), [y]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphParts {
    pub(crate) tensors: Tensors,
    pub(crate) names: Names,
    pub(crate) nodes: Vec<TensorId>,
    pub(crate) leafs: Vec<TensorId>,
}

impl GraphParts {
    /// Appends a tensor to the table.
    pub fn push(&mut self, tensor: Tensor, sources: &[Option<TensorId>]) -> Result<TensorId, GraphError> {
        self.tensors.push(tensor, sources, &[])
    }

    /// Appends a tensor with the parameters of its operation to the table.
    pub fn push_with(
        &mut self,
        tensor: Tensor,
        sources: &[Option<TensorId>],
        params: &[Param],
    ) -> Result<TensorId, GraphError> {
        self.tensors.push(tensor, sources, params)
    }

    /// Returns the operation with ggml's name and kind, see [`Tensors::op`].
    pub fn op(&mut self, name: &str, kind: Option<&str>) -> Result<Op, GraphError> {
        self.tensors.op(name, kind)
    }

    /// Gives a tensor a name, perhaps before it is pushed.
    ///
    /// # Errors
    ///
    /// If the id comes from another context or graph.
    pub fn set_name(&mut self, tensor: TensorId, name: &str) -> Result<(), GraphError> {
        self.tensors.find_if_there(tensor)?;
        self.names.set(tensor, name);
        Ok(())
    }

    /// Makes a tensor read another one in a slot that it has. Nothing else about it changes.
    ///
    /// ```
    /// use steeve_graph::{Graph, GraphError, GraphParts};
    /// let graph: Graph = "x = input 4; y = input 4; z = neg x".parse()?;
    /// let (x, y, z) = (graph.leafs()[0], graph.leafs()[1], graph.nodes()[0]);
    /// let mut parts = graph.into_parts();
    /// parts.set_source(z, 0, y)?;
    /// assert_eq!(parts.finish()?.sources(z), [Some(y)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_source(&mut self, tensor: TensorId, slot: usize, source: TensorId) -> Result<(), GraphError> {
        let tensors = self.tensors.len();
        self.tensors.find(tensor)?;
        match self.tensors.sources_mut(tensor).get_mut(slot) {
            Some(entry) => *entry = Some(source),
            None => {
                let tensor = Named::new(tensor, &self.names);
                return Err(GraphError::UnknownSource { tensor, slot, source_id: source, tensors });
            }
        }
        Ok(())
    }

    /// Gives a tensor more flags.
    pub fn add_flags(&mut self, tensor: TensorId, flags: Flags) -> Result<(), GraphError> {
        self.tensors.find_mut(tensor)?.flags |= flags;
        Ok(())
    }

    /// Allows a tensor to overwrite its source in `slot`, see [`Graph::may_overwrite`].
    pub(crate) fn permit_overwrite(&mut self, tensor: TensorId, slot: usize) {
        self.tensors.permit_overwrite(tensor, slot);
    }

    /// Allows a tensor's result to start `distance` bytes or more below its source in `slot`, see [`Graph::may_overlap`].
    pub(crate) fn permit_overlap(&mut self, tensor: TensorId, slot: usize, distance: Bytes) {
        self.tensors.permit_overlap(tensor, slot, distance);
    }

    /// Says that the source of a tensor in `slot` is a result of the same call, written when the tensor is. Nodes that read it run
    /// after the tensor.
    pub(crate) fn mark_own_result(&mut self, tensor: TensorId, slot: usize) {
        self.tensors.mark_own_result(tensor, slot);
    }

    /// Puts other nodes in the place of those there are; they run in this order.
    pub fn set_nodes(&mut self, nodes: Vec<TensorId>) {
        self.nodes = nodes;
    }

    /// Appends to the leafs.
    pub fn leaf(&mut self, tensor: TensorId) {
        self.leafs.push(tensor);
    }

    /// Appends to the nodes, which run in this order.
    pub fn node(&mut self, tensor: TensorId) {
        self.nodes.push(tensor);
    }

    /// Takes ids of every context and graph by their numbers from now on, as the finished graph will: for a graph that is
    /// made from another and serves all that are like that one.
    pub fn detach(&mut self) {
        self.tensors.detach();
    }

    /// Forgets everything and keeps the memory it stood in, for the next graph.
    pub fn clear(&mut self) {
        self.tensors.clear();
        self.names.truncate(0);
        self.nodes.clear();
        self.leafs.clear();
    }

    /// Returns the tensors so far.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// Checks that every id exists, every root owns memory, every view lies within its root, no node is listed twice, and
    /// every node comes after the nodes that write what it reads, through whichever views.
    ///
    /// Three forms of ggml's own graphs look out of order, do no harm and are accepted: a tensor without an operation that is
    /// both a leaf and a node (as a leaf it has its contents before the run), a `CPY` that names itself as its destination
    /// (slot 1, which is written and not read), and a node that only describes memory (`VIEW`, `RESHAPE`, `PERMUTE`,
    /// `TRANSPOSE`, `NONE`) listed after a node that names it (nothing waits for its turn, and its root is checked). A node
    /// without an operation that is no leaf is a copy that a scheduler fills: it can be planned, and an allocation refuses to
    /// run it.
    ///
    /// ```
    /// use steeve_graph::{DataType, GraphParts, Layout, Op, Tensor, Unary};
    /// let layout = Layout::contiguous(DataType::F32, &[8])?;
    /// let neg = Tensor { op: Op::Unary(Unary::Neg), ..Tensor::new(layout) };
    /// let mut parts = GraphParts::default();
    /// let x = parts.push(Tensor::new(layout), &[])?;
    /// let y = parts.push(neg, &[Some(x)])?;
    /// let z = parts.push(neg, &[Some(y)])?;
    /// parts.leaf(x);
    /// parts.node(z);
    /// parts.node(y);
    /// let error = parts.finish().unwrap_err();
    /// assert!(error.to_string().starts_with("node 0 (tensor 2): reads tensor 1 in slot 0, which node 1 writes later"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first of these rules that is broken, with the tensor.
    pub fn finish(mut self) -> Result<Graph, GraphError> {
        self.check()?;
        let Self { tensors, names, nodes, leafs } = self;
        Ok(Graph::assemble(Arc::new(tensors), Arc::new(names), nodes, leafs))
    }

    fn check(&mut self) -> Result<(), GraphError> {
        for tensor in self.leafs.iter_mut().chain(&mut self.nodes) {
            self.tensors.find(*tensor)?;
            *tensor = self.tensors.named(*tensor);
        }
        for id in (0..self.tensors.len()).filter_map(TensorId::from_index) {
            self.check_sources(id)?;
            let view = checked_view(&self.tensors, &self.names, id, &self.tensors[id])?;
            self.tensors.adopt(id, view);
        }
        check_order(&self.tensors, &self.names, &self.nodes, &self.leafs)
    }

    fn check_sources(&self, id: TensorId) -> Result<(), GraphError> {
        for (slot, source) in self.tensors.sources(id).iter().enumerate() {
            let Some(source_id) = *source else { continue };
            if self.tensors.find_if_there(source_id)?.is_none() {
                let (tensor, tensors) = (Named::new(id, &self.names), self.tensors.len());
                return Err(GraphError::UnknownSource { tensor, slot, source_id, tensors });
            }
        }
        Ok(())
    }
}

/// Checks that the root of a view exists, owns memory and has room for it, and returns the view as it is kept.
///
/// A view of no bytes is never out of range: ggml's graphs have such views far behind the end of an empty root (a batch
/// without outputs has one). It is kept as a view of the end of its root, so that no later stage meets an offset outside.
pub(crate) fn checked_view(
    tensors: &Tensors,
    names: &Names,
    id: TensorId,
    tensor: &Tensor,
) -> Result<Option<View>, GraphError> {
    let Some(view) = tensor.view else { return Ok(None) };
    let named = |id| Named::new(id, names);
    let Some(root) = tensors.find_if_there(view.root)? else {
        return Err(GraphError::UnknownRoot { tensor: named(id), root: view.root, tensors: tensors.len() });
    };
    if root.is_view() {
        return Err(GraphError::ViewOfView { tensor: named(id), root: named(view.root) });
    }
    let (offset, bytes, room) = (view.offset, tensor.nbytes(), root.nbytes());
    if bytes == Bytes::ZERO {
        return Ok(Some(View { offset: offset.min(room), ..view }));
    }
    if offset.checked_add(bytes).is_none_or(|end| end > room) {
        return Err(GraphError::ViewOutside { tensor: named(id), offset, bytes, root: named(view.root), room });
    }
    Ok(Some(view))
}
