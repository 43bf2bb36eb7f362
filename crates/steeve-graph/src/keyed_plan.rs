//! A plan by the caller's keys: a [`TensorGraph`] in, a [`KeyedPlan`] out.

use alloc::collections::BTreeSet;
#[cfg(feature = "json")]
use alloc::string::String;
use core::fmt::Debug;

use steeve_plan::{BufferId, Bytes};

use crate::tensor_graph::KeyTable;
use crate::{
    AssignedGraph, GraphPlan, GraphPlanError, KeyedGraph, MemoryId, Op, PlanOptions, TensorGraph, TensorGraphError,
    TensorId, TensorPlace, plan_graph, replay,
};

/// A proven plan for a caller's graph. What it says is keyed as the caller's tensors are.
#[derive(Clone, Debug)]
pub struct KeyedPlan<K> {
    plan: GraphPlan,
    keys: KeyTable<K>,
}

/// Plans the memory of a caller's graph, and proves the plan.
///
/// See [`TensorGraph`] for an example. Of [`Order::Best`](crate::Order::Best) the caller must run [the order of the
/// plan](KeyedPlan::order).
///
/// # Errors
///
/// If the graph is wrong, see [`KeyedGraph::new`], or passes the end of the address space.
pub fn plan_tensor_graph<G: TensorGraph>(
    graph: &G,
    options: &PlanOptions,
) -> Result<KeyedPlan<G::Key>, TensorGraphError> {
    let KeyedGraph { assigned, keys } = KeyedGraph::new(graph)?;
    let plan = plan_graph(&assigned, options).map_err(|error| explain(&assigned, error))?;
    Ok(KeyedPlan { plan, keys })
}

/// Names the largest tensor in an error of the planner, whose block numbers the caller does not know.
fn explain(assigned: &AssignedGraph, error: GraphPlanError) -> TensorGraphError {
    let graph = assigned.graph();
    let planned = graph.tensors().pairs().filter(|(_, tensor)| tensor.is_planned());
    match (planned.max_by_key(|(_, tensor)| tensor.nbytes()), error) {
        (Some((id, tensor)), error @ (GraphPlanError::Problem { .. } | GraphPlanError::Place { .. })) => {
            let (name, size) = (graph.name(id).into(), tensor.nbytes());
            TensorGraphError::TooLarge { tensor: name, size, source: error.into() }
        }
        (_, error) => error.into(),
    }
}

impl<K: Copy + Ord + Debug> KeyedPlan<K> {
    /// Returns where a tensor is located, also a view: its memory, its buffer, the offset there and the bytes that it may use.
    /// `None` for external tensors and for those that the graph does not reach.
    pub fn place(&self, tensor: K) -> Option<TensorPlace> {
        self.plan.place(self.keys.number(tensor)?)
    }

    /// Returns all tensors that have a place, inputs first, then nodes in their order.
    pub fn places(&self) -> impl Iterator<Item = (K, TensorPlace)> {
        self.keys.by_number.iter().filter_map(|key| Some((*key, self.place(*key)?)))
    }

    /// Returns the source whose bytes a node overwrites with its result.
    pub fn overwrites(&self, node: K) -> Option<K> {
        let node = self.keys.number(node)?;
        let (_, slot) = self.plan.in_place_aliases().iter().find(|(result, _)| *result == node)?;
        let source = self.plan.assigned().graph().sources(node).get(*slot as usize).copied().flatten()?;
        self.keys.key(source)
    }

    /// Returns the caller's nodes in the order in which they must run, where that is not the caller's own. Listed views are among
    /// them only if they are nodes of the caller's; of several results of a node the node alone is.
    pub fn order(&self) -> Option<impl Iterator<Item = K>> {
        self.plan.order()?;
        let graph = self.plan.in_run_order().graph();
        let others: BTreeSet<TensorId> =
            graph.nodes().iter().flat_map(|node| graph.tensors().own_results(*node)).collect();
        let is_node = move |node: &&TensorId| graph.tensor(**node).op != Op::View && !others.contains(*node);
        Some(graph.nodes().iter().filter(is_node).filter_map(|node| self.keys.key(*node)))
    }

    /// Returns the bytes of all memories together.
    pub fn peak(&self) -> Bytes {
        self.plan.peak()
    }

    /// Returns the buffers to allocate: one per memory, unless a memory limits their size.
    pub fn buffers(&self) -> impl Iterator<Item = (MemoryId, BufferId, Bytes)> {
        self.plan.memories().iter().flat_map(|it| {
            let buffers = it.plan.buffers().pairs();
            buffers.map(|(buffer, size)| (it.memory, buffer, *size))
        })
    }

    /// Returns the plan by numbers, as pictures, reports and allocators take it.
    pub const fn graph_plan(&self) -> &GraphPlan {
        &self.plan
    }

    /// Returns the number by which [`graph_plan`](Self::graph_plan) knows a tensor.
    pub fn number(&self, tensor: K) -> Option<TensorId> {
        self.keys.number(tensor)
    }

    /// Returns the tensor with a number of [`graph_plan`](Self::graph_plan).
    pub fn key(&self, number: TensorId) -> Option<K> {
        self.keys.key(number)
    }

    /// Checks that the plan may be used for `graph`: the graph it was made for, perhaps with smaller tensors. What owns its bytes
    /// stays where it is; a view is located in its root, where `graph` says.
    ///
    /// # Errors
    ///
    /// If the graph is wrong, has other edges, views, outputs or memories, or a tensor has outgrown its place.
    pub fn fits(&self, graph: &impl TensorGraph<Key = K>) -> Result<(), TensorGraphError> {
        Ok(self.plan.fits(KeyedGraph::like(graph, &self.keys)?.assigned())?)
    }

    /// Checks the plan once more by executing `graph` at the planned addresses and beside them. Knows no live ranges.
    ///
    /// # Errors
    ///
    /// If the graph is wrong, or a node would read bytes that another one has overwritten.
    pub fn replay(&self, graph: &impl TensorGraph<Key = K>) -> Result<(), TensorGraphError> {
        Ok(replay(KeyedGraph::like(graph, &self.keys)?.assigned(), &self.plan.places())?)
    }
}

#[cfg(feature = "json")]
impl<K: Copy + Ord + Debug> KeyedPlan<K> {
    /// Returns the plan as the text of a plan file. Keys are not part of it, only names.
    pub fn to_json(&self) -> String {
        self.plan.to_json()
    }

    /// Reads a plan from the text of a plan file, for the graph it was made for or one that it fits. Nothing in the file is
    /// believed: what is returned is proven for `graph`.
    ///
    /// # Errors
    ///
    /// If the graph is wrong, or the file is no plan of it.
    pub fn from_json(text: &str, graph: &impl TensorGraph<Key = K>) -> Result<Self, TensorGraphError> {
        let KeyedGraph { assigned, keys, .. } = KeyedGraph::new(graph)?;
        Ok(Self { plan: GraphPlan::from_json(text, &assigned)?, keys })
    }
}
