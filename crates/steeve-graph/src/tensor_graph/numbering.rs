//! Keys in, numbers out: how a [`TensorGraph`] becomes an [`AssignedGraph`].

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::format;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use super::{KeyTable, KeyedGraph, TensorGraph, TensorGraphError};
use crate::{
    AllocSizes, AssignedGraph, Assignment, DataType, Flags, GraphError, GraphParts, Layout, MemoryId, Op, Tensor,
    TensorId, View,
};

/// What a tensor is to the graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TensorRole {
    /// Another graph has it, and this one not.
    Absent,
    Input,
    External,
    Node,
    /// A view that is no node of the caller's.
    View,
}

/// What is known of a number.
#[derive(Clone, Copy)]
struct KnownTensor {
    role: TensorRole,
    flags: Flags,
    view: Option<View>,
    /// Where its sources start and end, if it is a node of the caller's.
    sources: (usize, usize),
    /// The node of the caller's that computes it beside itself.
    producer: Option<TensorId>,
    /// Whether it is among the nodes, if it is a view.
    is_listed: bool,
}

const ABSENT: KnownTensor = KnownTensor {
    role: TensorRole::Absent,
    flags: Flags::NONE,
    view: None,
    sources: (0, 0),
    producer: None,
    is_listed: false,
};

/// Numbers of keys, in the order in which tensors are met.
pub(super) struct TensorNumbering<'g, G: TensorGraph> {
    graph: &'g G,
    keys: KeyTable<G::Key>,
    known: Vec<KnownTensor>,
    /// The caller's nodes, and views before their first readers.
    nodes: Vec<TensorId>,
    /// The sources of the caller's nodes.
    sources: Vec<Option<TensorId>>,
}

impl<'g, G: TensorGraph> TensorNumbering<'g, G> {
    /// Gives the first numbers to `keys`, which the graph need not have.
    pub(super) fn new(graph: &'g G, keys: &[G::Key]) -> Self {
        let numbers: BTreeMap<_, _> = keys.iter().copied().zip((0..).map_while(TensorId::from_index)).collect();
        let keys = KeyTable { by_number: keys.to_vec(), numbers };
        let known = alloc::vec![ABSENT; keys.by_number.len()];
        Self { graph, keys, known, nodes: Vec::new(), sources: Vec::new() }
    }

    pub(super) fn finish(mut self) -> Result<KeyedGraph<G::Key>, TensorGraphError> {
        let inputs: Vec<G::Key> = self.graph.inputs().collect();
        let mut input_ids = Vec::with_capacity(inputs.len());
        for input in &inputs {
            let role = if self.graph.is_external(*input) { TensorRole::External } else { TensorRole::Input };
            input_ids.push(self.meet(*input, role)?);
        }
        let nodes: Vec<G::Key> = self.graph.nodes().collect();
        let mut results: Vec<TensorId> = Vec::with_capacity(nodes.len());
        // By node: where its results end.
        let mut ends: Vec<usize> = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let first = results.len();
            for result in self.graph.more_results(*node) {
                results.push(self.meet_result(result)?);
            }
            let id = self.meet_result(*node)?;
            results[first..].iter().for_each(|result| self.known[result.index()].producer = Some(id));
            results.push(id);
            ends.push(results.len());
        }
        for (id, input) in input_ids.into_iter().zip(inputs) {
            self.find_view(id, input)?;
            if let Some(view) = self.known[id.index()].view {
                // Before the run, the bytes of a node's result are those of other tensors.
                if self.known[view.root.index()].role == TensorRole::Node {
                    return Err(TensorGraphError::InputAndNode { tensor: self.graph.name(input) });
                }
                self.known[id.index()].role = TensorRole::View;
            }
        }
        let mut first = 0;
        for (node, end) in nodes.into_iter().zip(ends) {
            for result in first..end {
                self.add_node(results[result], node, &results[first..result])?;
            }
            first = end;
        }
        self.mark_outputs()?;
        for tensor in self.graph.more_tensors() {
            let unknown = || TensorGraphError::UnknownTensor { tensor: self.graph.name(tensor) };
            self.find(tensor)?.ok_or_else(unknown)?;
        }
        self.assign()
    }

    /// Returns the number of a key. One that is met for the first time gets `role`.
    fn meet(&mut self, key: G::Key, role: TensorRole) -> Result<TensorId, TensorGraphError> {
        let id = match self.keys.numbers.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let tensors = self.known.len();
                let id = TensorId::from_index(tensors).ok_or(GraphError::TooMany { tensors })?;
                self.keys.by_number.push(key);
                self.known.push(ABSENT);
                *new.insert(id)
            }
        };
        let entry = &mut self.known[id.index()];
        if entry.role == TensorRole::Absent {
            entry.role = role;
        }
        Ok(id)
    }

    /// Returns the number of a tensor that a node computes.
    fn meet_result(&mut self, key: G::Key) -> Result<TensorId, TensorGraphError> {
        let id = self.meet(key, TensorRole::Node)?;
        match self.known[id.index()].role {
            TensorRole::Node => Ok(id),
            _ => Err(TensorGraphError::InputAndNode { tensor: self.graph.name(key) }),
        }
    }

    /// Returns the number of a tensor that has a role already, or is external or a view.
    fn find(&mut self, key: G::Key) -> Result<Option<TensorId>, TensorGraphError> {
        if let Some(id) = self.keys.number(key).filter(|id| self.known[id.index()].role != TensorRole::Absent) {
            return Ok(Some(id));
        }
        if self.graph.view_of(key).is_some() {
            let id = self.meet(key, TensorRole::View)?;
            self.find_view(id, key)?;
            return Ok(Some(id));
        }
        if self.graph.is_external(key) { self.meet(key, TensorRole::External).map(Some) } else { Ok(None) }
    }

    /// Follows the views of a tensor to the root. A chain of them that comes back to itself is found as Brent does ("An improved
    /// Monte Carlo factorization algorithm", 1980): in O(length) and without memory.
    fn find_view(&mut self, id: TensorId, key: G::Key) -> Result<(), TensorGraphError> {
        if self.known[id.index()].view.is_some() {
            return Ok(());
        }
        let (mut root, mut offset) = (key, Bytes::ZERO);
        let (mut mark, mut steps, mut most) = (key, 0u64, 1u64);
        while let Some((parent, by)) = self.graph.view_of(root) {
            // What is outside the address space is outside every root.
            offset = Bytes(offset.0.saturating_add(by.0));
            root = parent;
            if root == mark {
                return Err(TensorGraphError::ViewCycle { tensor: self.graph.name(key) });
            }
            steps += 1;
            if steps == most {
                (mark, steps, most) = (root, 0, most.saturating_mul(2));
            }
            let known = self.keys.number(root).and_then(|id| self.known[id.index()].view);
            if let Some(view) = known {
                offset = Bytes(offset.0.saturating_add(view.offset.0));
                self.known[id.index()].view = Some(View { offset, ..view });
                return Ok(());
            }
        }
        if root == key {
            return Ok(());
        }
        let unknown = || TensorGraphError::UnknownRoot { tensor: self.graph.name(key), root: self.graph.name(root) };
        let root = self.find(root)?.ok_or_else(unknown)?;
        self.known[id.index()].view = Some(View { root, offset });
        Ok(())
    }

    /// Notes what a result of a node reads: the sources of the node and the results before. Lists it behind those that are views
    /// and not listed yet.
    fn add_node(&mut self, id: TensorId, node: G::Key, before: &[TensorId]) -> Result<(), TensorGraphError> {
        let (graph, first) = (self.graph, self.sources.len());
        for (slot, source) in graph.sources(node).enumerate() {
            let unknown = || {
                let (node, tensor) = (graph.name(node), graph.name(source));
                TensorGraphError::UnknownSource { node, slot, tensor }
            };
            let source = self.find(source)?.ok_or_else(unknown)?;
            let entry = &mut self.known[source.index()];
            if entry.role == TensorRole::View && !core::mem::replace(&mut entry.is_listed, true) {
                self.nodes.push(source);
            }
            self.sources.push(Some(source));
        }
        self.sources.extend(before.iter().copied().map(Some));
        if let Some(key) = self.keys.key(id) {
            self.find_view(id, key)?;
        }
        self.nodes.push(id);
        self.known[id.index()].sources = (first, self.sources.len());
        Ok(())
    }

    /// Marks outputs, and the roots of views that are no nodes: these say nothing of how long their bytes are needed.
    fn mark_outputs(&mut self) -> Result<(), TensorGraphError> {
        for output in self.graph.outputs() {
            let unknown = || TensorGraphError::UnknownOutput { tensor: self.graph.name(output) };
            let id = self.find(output)?.ok_or_else(unknown)?;
            let KnownTensor { role, view, .. } = self.known[id.index()];
            self.known[id.index()].flags |= Flags::OUTPUT;
            if let (TensorRole::View, Some(view)) = (role, view) {
                self.known[view.root.index()].flags |= Flags::OUTPUT;
            }
        }
        Ok(())
    }

    /// Builds the graph of all that was met, and checks it.
    fn assign(self) -> Result<KeyedGraph<G::Key>, TensorGraphError> {
        let memories = self.graph.memories();
        let mut parts = GraphParts::default();
        parts.names.set_keyed();
        parts.tensors.reserve(self.known.len(), self.sources.len());
        let mut leafs = Vec::new();
        for (entry, key) in self.known.iter().zip(&self.keys.by_number) {
            let id = self.push(&mut parts, entry, *key)?;
            if matches!(entry.role, TensorRole::Input | TensorRole::External) {
                leafs.push(id);
            }
        }
        let assignment = Assignment {
            leafs: leafs.iter().map(|leaf| self.memory(*leaf, memories.len())).collect::<Result<_, _>>()?,
            nodes: self.nodes.iter().map(|node| self.memory(*node, memories.len())).collect::<Result<_, _>>()?,
        };
        leafs.into_iter().for_each(|leaf| parts.leaf(leaf));
        parts.set_nodes(self.nodes);
        let sizes = AllocSizes::new(memories.len());
        let assigned = AssignedGraph::new(parts.finish()?, memories, assignment, sizes)?;
        Ok(KeyedGraph { assigned, keys: self.keys })
    }

    fn push(&self, parts: &mut GraphParts, entry: &KnownTensor, key: G::Key) -> Result<TensorId, TensorGraphError> {
        let graph = self.graph;
        let layout = |size: Bytes| Layout::contiguous(DataType::I8, &[size.0]).map_err(GraphError::from);
        // The caller may not know the tensors of another graph.
        if entry.role == TensorRole::Absent {
            let id = parts.push(Tensor::new(layout(Bytes::ZERO)?), &[])?;
            parts.set_name(id, &format!("{key:?}"))?;
            return Ok(id);
        }
        let producer = entry.producer.and_then(|node| self.keys.key(node));
        let op = match entry.role {
            TensorRole::Node => parts.tensors.other_op(&lower_case(graph.op_name(producer.unwrap_or(key))))?,
            TensorRole::View => Op::View,
            TensorRole::Input | TensorRole::External | TensorRole::Absent => Op::None,
        };
        let flags = if entry.role == TensorRole::Input { entry.flags | Flags::INPUT } else { entry.flags };
        let external = entry.role == TensorRole::External || entry.role == TensorRole::Node && graph.is_external(key);
        let tensor = Tensor { op, flags, external, view: entry.view, ..Tensor::new(layout(graph.size(key))?) };
        let root = [entry.view.map(|view| view.root)];
        let sources = match entry.role {
            TensorRole::View => &root[..],
            _ => &self.sources[entry.sources.0..entry.sources.1],
        };
        let id = parts.push(tensor, sources)?;
        if entry.role == TensorRole::Node && producer.is_none() {
            self.permit(parts, id, key, sources);
            let is_own =
                |source: &Option<TensorId>| source.is_some_and(|it| self.known[it.index()].producer == Some(id));
            let own = sources.iter().enumerate().filter(|(_, source)| is_own(source));
            own.for_each(|(slot, _)| parts.mark_own_result(id, slot));
        }
        let name = graph.name(key);
        if name.is_empty() {
            parts.set_name(id, &format!("{key:?}"))?;
        } else {
            parts.set_name(id, &name)?;
        }
        Ok(id)
    }

    /// Tells which sources of a node its result may overwrite or overlap.
    fn permit(&self, parts: &mut GraphParts, id: TensorId, node: G::Key, sources: &[Option<TensorId>]) {
        for (slot, source) in sources.iter().enumerate() {
            // Another result of the node is none of its sources.
            let own = |source: &TensorId| self.known[source.index()].producer != Some(id);
            let Some(source) = source.filter(own).and_then(|source| self.keys.key(source)) else { continue };
            if self.graph.may_overwrite(node, source) {
                parts.permit_overwrite(id, slot);
            }
            if let Some(distance) = self.graph.overlap(node, source) {
                parts.permit_overlap(id, slot, distance);
            }
        }
    }

    /// Returns the memory of a leaf or node; that of its root for a view that is no node of the caller's.
    fn memory(&self, tensor: TensorId, memories: usize) -> Result<MemoryId, TensorGraphError> {
        let KnownTensor { role, view, .. } = self.known[tensor.index()];
        let owner = match (role, view) {
            (TensorRole::View, Some(view)) => view.root,
            _ => tensor,
        };
        let Some(key) = self.keys.key(owner) else { return Ok(MemoryId::FIRST) };
        if self.known[owner.index()].role == TensorRole::External {
            return Ok(MemoryId::FIRST);
        }
        let memory = self.graph.memory(key);
        if memory.index() >= memories {
            return Err(TensorGraphError::UnknownMemory { tensor: self.graph.name(key), memory, memories });
        }
        Ok(memory)
    }
}

/// Returns a name in lower case. No operation of ours has such a name, so a caller's is never taken for one.
fn lower_case(name: &str) -> Cow<'_, str> {
    if name.chars().any(char::is_uppercase) { Cow::Owned(name.to_lowercase()) } else { Cow::Borrowed(name) }
}
