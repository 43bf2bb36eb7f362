//! A graph without the tensors it does not reach, numbered in the order in which it is written down.

use alloc::vec::Vec;

use steeve_plan::{Id, IdVec};

use crate::{AllocSizes, AssignedGraph, Graph, GraphError, GraphParts, Tensor, TensorId, View};

/// Returns the tensors that a graph reaches: leafs in their order, then those in neither list, then nodes in their
/// order; each at its first occurrence. O(tensors + sources).
pub(crate) fn text_order(graph: &Graph) -> Vec<TensorId> {
    let mut met = alloc::vec![false; graph.tensors().len()];
    let mut first = |ids: &[TensorId]| -> Vec<TensorId> {
        ids.iter().copied().filter(|id| !core::mem::replace(&mut met[id.index()], true)).collect()
    };
    let mut lines = first(graph.leafs());
    let nodes = first(graph.nodes());
    lines.extend(asides(graph, &lines, &nodes, met));
    lines.extend(nodes);
    lines
}

/// Returns what the listed tensors read or view, directly or not, that is in neither list; in the order of the table.
fn asides(graph: &Graph, leafs: &[TensorId], nodes: &[TensorId], mut met: Vec<bool>) -> Vec<TensorId> {
    let mut found = Vec::new();
    let mut open: Vec<TensorId> = leafs.iter().chain(nodes).copied().collect();
    while let Some(id) = open.pop() {
        let needs = graph.sources(id).iter().flatten().copied().chain([graph.root(id)]);
        for need in needs {
            if !core::mem::replace(&mut met[need.index()], true) {
                found.push(need);
                open.push(need);
            }
        }
    }
    found.sort_unstable();
    found
}

impl Graph {
    /// Returns this graph without the tensors that it does not reach. Leafs come first in the table, nodes last, in
    /// their order: the numbers that reading the text of the graph gives.
    pub fn compact(&self) -> Result<Self, GraphError> {
        self.renumber(&text_order(self))
    }

    fn renumber(&self, lines: &[TensorId]) -> Result<Self, GraphError> {
        let mut new: IdVec<TensorId, Option<TensorId>> = self.tensors().iter().map(|_| None).collect();
        for (index, &old) in lines.iter().enumerate() {
            new[old] = TensorId::from_index(index);
        }
        let renamed = |old: TensorId| new[old].unwrap_or(old);
        let mut parts = GraphParts::default();
        for &old in lines {
            let tensor = self.tensor(old);
            let tensors = self.tensors();
            let op = parts.op(tensors.op_name(tensor.op), tensors.kind_name(tensor.op))?;
            let view = tensor.view.map(|view| View { root: renamed(view.root), ..view });
            let sources: Vec<_> = self.sources(old).iter().map(|source| source.map(renamed)).collect();
            let id = parts.push_with(Tensor { op, view, ..*tensor }, &sources, self.params(old))?;
            parts.set_name(id, self.name(old))?;
            let permitted = tensors.permitted_slots(old);
            (0..16).filter(|slot| permitted >> slot & 1 == 1).for_each(|slot| parts.permit_overwrite(id, slot));
            tensors.permitted_overlaps(old).for_each(|(slot, distance)| parts.permit_overlap(id, slot, distance));
            tensors.own_result_slots(old).for_each(|slot| parts.mark_own_result(id, slot));
        }
        self.leafs().iter().for_each(|&leaf| parts.leaf(renamed(leaf)));
        self.nodes().iter().for_each(|&node| parts.node(renamed(node)));
        parts.finish()
    }
}

impl AssignedGraph {
    /// Returns this assigned graph with a [compact](Graph::compact) graph.
    pub fn compact(&self) -> Result<Self, GraphError> {
        let lines = text_order(self.graph());
        let graph = self.graph().renumber(&lines)?;
        let mut sizes = AllocSizes::new(self.sizes().memories());
        for (new, &old) in graph.tensors().ids().zip(&lines) {
            if let Some(row) = self.sizes().row(old) {
                sizes.set(new, graph.tensor(new), row)?;
            }
        }
        Self::new(graph, self.memories().clone(), self.assignment().clone(), sizes)
    }
}
