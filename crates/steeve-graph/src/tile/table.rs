//! The table of the new graph: the tensors of the given one under their numbers, and what parts append behind them.
//!
//! A result of a chain becomes a view of all its rows, made of what the parts write: of a `FILL` that only gives it bytes, or of
//! the input that it is written over.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use super::TileError;
use super::chain::{RowChain, RowChains};
use crate::alias::MAX_SLOTS;
use crate::{
    AllocSizes, AssignedGraph, Assignment, Graph, GraphError, GraphParts, Layout, MemoryId, Op, Param, Tensor,
    TensorId, View,
};

/// A tensor of the new graph.
pub(super) struct NewTensor {
    pub(super) tensor: Tensor,
    pub(super) sources: Vec<Option<TensorId>>,
    pub(super) params: Vec<Param>,
    pub(super) name: String,
}

pub(super) struct TileWriter<'a> {
    pub(super) facts: &'a RowChains<'a>,
    pub(super) graph: &'a Graph,
    /// Keeps the names of operations that are not in the table.
    pub(super) parts: GraphParts,
    /// The tensors of the graph, and those of parts behind them.
    pub(super) table: Vec<NewTensor>,
    pub(super) sizes: AllocSizes,
    pub(super) nodes: Vec<TensorId>,
    pub(super) memories: Vec<MemoryId>,
    /// Of what each result is a view: of an input that it is written over, or of a tensor that has only its bytes.
    pub(super) moved: BTreeMap<TensorId, View>,
    /// The inputs that results are written over.
    pub(super) inputs: BTreeMap<TensorId, TensorId>,
    /// What the parts have written of each result, and no node of a part has read.
    pub(super) joined: BTreeMap<TensorId, Vec<TensorId>>,
}

impl<'a> TileWriter<'a> {
    pub(super) fn new(facts: &'a RowChains<'a>, chains: &[(RowChain, u64)]) -> Result<Self, TileError> {
        let graph = facts.graph();
        let mut results: BTreeMap<TensorId, Option<TensorId>> = BTreeMap::new();
        let mut kept: BTreeSet<TensorId> = BTreeSet::new();
        for (chain, _) in chains {
            let input = |result| chain.over.filter(|(it, _)| *it == result).map(|(_, input)| input);
            results.extend(chain.results.iter().map(|result| (*result, input(*result))));
            kept.extend(chain.kept.iter().filter(|it| !graph.tensor(**it).op.writes_nothing()));
        }
        let (nodes, memories, moved, joined) = (Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        let inputs = results.iter().filter_map(|(result, input)| Some((*result, plain((*input)?)))).collect();
        let sizes = facts.assigned.sizes().clone();
        let (parts, table) = (GraphParts::default(), Vec::new());
        let mut this = Self { facts, graph, parts, table, sizes, nodes, memories, moved, inputs, joined };
        this.place_results(chains)?;
        for id in graph.tensors().ids() {
            this.copy(id, results.contains_key(&id), kept.contains(&id))?;
        }
        for result in results.iter().filter(|(_, input)| input.is_none()).map(|(result, _)| *result) {
            this.push_bytes(result)?;
        }
        Ok(this)
    }

    /// Decides of what each result is a view: an input, or a tensor that is appended behind those of the graph.
    fn place_results(&mut self, chains: &[(RowChain, u64)]) -> Result<(), TileError> {
        let graph = self.graph;
        let mut bytes: BTreeMap<TensorId, TensorId> = BTreeMap::new();
        for (chain, _) in chains {
            let over = chain.over.map(|(result, _)| result);
            let without = chain.results.iter().filter(|result| Some(**result) != over);
            bytes.extend(without.map(|result| (*result, *result)));
        }
        for (index, (&result, _)) in bytes.iter().enumerate() {
            let tensors = graph.tensors().len() + index;
            let root = TensorId::from_index(tensors).ok_or(GraphError::TooMany { tensors })?;
            self.moved.insert(result, View { root, offset: Bytes::ZERO });
        }
        for (result, input) in chains.iter().filter_map(|(chain, _)| chain.over) {
            let place = self.place(input);
            self.moved.insert(result, place);
        }
        Ok(())
    }

    /// Appends the tensor that a result is a view of.
    fn push_bytes(&mut self, result: TensorId) -> Result<(), TileError> {
        let tensor = Tensor { op: Op::Fill, ..Tensor::new(self.graph.tensor(result).layout) };
        let name = self.graph.name(result);
        let name = if name.is_empty() { String::new() } else { format!("{name} (bytes)") };
        let params = alloc::vec![Param::Float(0.0)];
        let made = self.append(NewTensor { tensor, sources: Vec::new(), params, name })?;
        if let Some(row) = self.facts.assigned.sizes().row(result) {
            self.sizes.set(made, &tensor, row)?;
        }
        Ok(())
    }

    /// Appends a tensor of the graph as it is outside of the chains.
    fn copy(&mut self, id: TensorId, is_result: bool, is_written: bool) -> Result<(), TileError> {
        let (graph, tensors) = (self.graph, self.graph.tensors());
        let tensor = graph.tensor(id);
        // The sources of a result are the parts, which are not there yet.
        let (op, sources, params): (Op, Vec<Option<TensorId>>, Vec<Param>) = if is_result {
            (Op::View, Vec::new(), alloc::vec![Param::Int(0)])
        } else if is_written {
            let offset = Param::count(tensors.offset(id).get());
            (Op::View, alloc::vec![Some(plain(graph.root(id)))], alloc::vec![offset])
        } else {
            let op = self.parts.op(tensors.op_name(tensor.op), tensors.kind_name(tensor.op))?;
            (op, graph.sources(id).iter().map(|it| it.map(plain)).collect(), graph.params(id).to_vec())
        };
        let view = (is_result || tensor.is_view()).then(|| self.place(id));
        let tensor = Tensor { op, view, ..*tensor };
        self.append(NewTensor { tensor, sources, params, name: graph.name(id).into() })?;
        Ok(())
    }

    /// Appends a tensor to the table.
    pub(super) fn append(&mut self, new: NewTensor) -> Result<TensorId, TileError> {
        let tensors = self.table.len();
        let id = TensorId::from_index(tensors).ok_or(GraphError::TooMany { tensors })?;
        self.table.push(new);
        Ok(id)
    }

    /// Returns a tensor of the new graph, its root and its offset there.
    pub(super) fn new_place(&self, id: TensorId) -> (Layout, View) {
        let it = &self.table[id.index()].tensor;
        (it.layout, it.view.unwrap_or(View { root: id, offset: Bytes::ZERO }))
    }

    /// Returns the root and the offset of a tensor of the graph, as they are now.
    pub(super) fn place(&self, id: TensorId) -> View {
        let (root, offset) = (self.graph.root(id), self.graph.tensors().offset(id));
        match self.moved.get(&root) {
            Some(base) => View { root: base.root, offset: Bytes(base.offset.get() + offset.get()) },
            None => View { root: plain(root), offset },
        }
    }

    pub(super) fn list_node(&mut self, at: usize) {
        let node = self.graph.nodes()[at];
        self.list(node, self.facts.assigned.assignment().nodes[at]);
    }

    pub(super) fn list(&mut self, node: TensorId, memory: MemoryId) {
        self.nodes.push(plain(node));
        self.memories.push(memory);
    }

    /// Makes each result a view of what has been written of it, so that its readers wait for all parts.
    fn join(&mut self) {
        for (result, written) in core::mem::take(&mut self.joined) {
            let first = self.inputs.get(&result).copied().unwrap_or(self.moved[&result].root);
            self.table[result.index()].sources = core::iter::once(first).chain(written).map(Some).collect();
        }
    }

    pub(super) fn finish(mut self) -> Result<AssignedGraph, TileError> {
        self.join();
        let Self { facts, graph, mut parts, table, sizes, nodes, memories, moved, .. } = self;
        for NewTensor { tensor, sources, params, name } in table {
            let id = parts.push_with(tensor, &sources, &params)?;
            parts.set_name(id, &name)?;
        }
        let tensors = graph.tensors();
        // The sources of a result are its parts now: what was said of the others says nothing of these.
        for id in tensors.ids().filter(|id| !moved.contains_key(id)) {
            let permitted = tensors.permitted_slots(id);
            (0..MAX_SLOTS)
                .filter(|slot| permitted >> slot & 1 == 1)
                .for_each(|slot| parts.permit_overwrite(plain(id), slot));
            tensors.permitted_overlaps(id).for_each(|(slot, distance)| parts.permit_overlap(plain(id), slot, distance));
            tensors.own_result_slots(id).for_each(|slot| parts.mark_own_result(plain(id), slot));
        }
        graph.leafs().iter().for_each(|leaf| parts.leaf(plain(*leaf)));
        parts.set_nodes(nodes);
        // Ids of the graph are valid in the new one.
        parts.detach();
        let assignment = Assignment { leafs: facts.assigned.assignment().leafs.clone(), nodes: memories };
        Ok(AssignedGraph::new(parts.finish()?, facts.assigned.memories().clone(), assignment, sizes)?)
    }
}

/// Returns the same number without where it comes from.
pub(super) fn plain(id: TensorId) -> TensorId {
    TensorId::from_index(id.index()).unwrap_or(id)
}
