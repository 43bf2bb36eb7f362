//! An order of a graph's nodes, by their positions in the caller's order.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::{AssignedGraph, Assignment, Graph, GraphError, TensorId};

/// An order of a graph's nodes: the caller's positions, in the order in which the nodes run. Each is there once.
///
/// ```
/// use steeve_graph::{Graph, NodeOrder};
/// let graph: Graph = "x = input 4; a = neg x; b = sqr x".parse()?;
/// let order = NodeOrder::new(vec![1, 0])?;
/// assert_eq!(order.nodes(&graph).collect::<Vec<_>>(), [graph.nodes()[1], graph.nodes()[0]]);
/// assert!(NodeOrder::new(vec![1, 1]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOrder(Arc<[u32]>);

/// Why numbers are no order of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeOrderError {
    /// A position is not that of a node.
    #[error("node order: position {place}: expected a node below {nodes}, got {position}")]
    Unknown {
        /// Where in the order.
        place: usize,
        /// What is there.
        position: u32,
        /// How many nodes there are.
        nodes: usize,
    },
    /// There are not as many numbers as nodes.
    #[error("node order: wrong length: expected {nodes} nodes, got {given}")]
    Length {
        /// How many there are.
        given: usize,
        /// How many nodes the graph has.
        nodes: usize,
    },
    /// A node is there twice, so another one is missing.
    #[error("node order: node {position} runs at {first} and at {second}")]
    Twice {
        /// The node.
        position: u32,
        /// Where in the order it is first.
        first: usize,
        /// Where it is again.
        second: usize,
    },
}

/// A node that runs at another place than in the caller's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedNode {
    /// The node.
    pub node: TensorId,
    /// Its position in the caller's order.
    pub from: usize,
    /// Its position in this order.
    pub to: usize,
}

impl NodeOrder {
    /// Returns the order in which the node at `positions[i]` of the caller's order runs at place `i`.
    ///
    /// # Errors
    ///
    /// If it has a number twice, or one that is not below its length.
    pub fn new(positions: Vec<u32>) -> Result<Self, NodeOrderError> {
        let nodes = positions.len();
        let mut places: Vec<Option<usize>> = vec![None; nodes];
        for (place, &position) in positions.iter().enumerate() {
            match places.get_mut(position as usize) {
                None => return Err(NodeOrderError::Unknown { place, position, nodes }),
                Some(Some(first)) => return Err(NodeOrderError::Twice { position, first: *first, second: place }),
                Some(free) => *free = Some(place),
            }
        }
        Ok(Self(positions.into()))
    }

    /// Returns the caller's own order.
    pub fn own(graph: &Graph) -> Self {
        Self((0..graph.nodes().len() as u32).collect())
    }

    pub(super) fn unchecked(positions: Vec<u32>) -> Self {
        debug_assert!(Self::new(positions.clone()).is_ok());
        Self(positions.into())
    }

    /// Returns the positions in the caller's order, in the order in which the nodes run.
    pub fn positions(&self) -> &[u32] {
        &self.0
    }

    /// Returns whether it is the caller's own order.
    pub fn is_own(&self) -> bool {
        (0..).zip(self.0.iter()).all(|(place, position)| place == *position)
    }

    /// Returns the nodes of a graph in this order, as many as both have.
    pub fn nodes(&self, graph: &Graph) -> impl Iterator<Item = TensorId> {
        self.0.iter().filter_map(|position| graph.nodes().get(*position as usize).copied())
    }

    /// Checks that there are as many numbers as a graph has nodes.
    pub(crate) fn check_length(&self, graph: &Graph) -> Result<(), NodeOrderError> {
        let (given, nodes) = (self.0.len(), graph.nodes().len());
        if given == nodes { Ok(()) } else { Err(NodeOrderError::Length { given, nodes }) }
    }

    /// Returns the graph with its nodes in this order, also where a node would then read what is not written.
    pub(crate) fn apply_unchecked(&self, assigned: &AssignedGraph) -> Result<AssignedGraph, NodeOrderError> {
        self.check_length(assigned.graph())?;
        Ok(assigned.with_nodes(self.nodes(assigned.graph()).collect(), self.in_order(&assigned.assignment().nodes)))
    }

    fn in_order<T: Copy>(&self, items: &[T]) -> Vec<T> {
        self.0.iter().filter_map(|position| items.get(*position as usize).copied()).collect()
    }

    /// Returns the nodes that do not run where the caller has them, counted from what runs before them: the fewest whose removal
    /// leaves the others in the caller's order. Nodes that only describe memory have no turn, and are not among them. In the
    /// order in which they run. O(n log n).
    pub fn moved(&self, graph: &Graph) -> Vec<MovedNode> {
        let moved = |(to, from): (usize, &u32)| {
            let from = *from as usize;
            Some(MovedNode { node: *graph.nodes().get(from)?, from, to })
        };
        let computes = |it: &MovedNode| !graph.tensor(it.node).op.writes_nothing();
        let nodes: Vec<MovedNode> = self.0.iter().enumerate().filter_map(moved).filter(computes).collect();
        let stays = longest_rising(&nodes.iter().map(|it| it.from as u32).collect::<Vec<_>>());
        nodes.into_iter().zip(stays).filter(|(_, stays)| !stays).map(|(it, _)| it).collect()
    }

    /// Returns the graph with its nodes in this order. That they mean the same is not checked here, but by
    /// [`replay`](crate::replay()).
    ///
    /// # Errors
    ///
    /// If the graph has another number of nodes, or a node would run before what it reads is written.
    pub fn apply(&self, assigned: &AssignedGraph) -> Result<AssignedGraph, GraphError> {
        let (graph, assignment) = (assigned.graph(), assigned.assignment());
        let graph = self.apply_to(graph)?;
        let nodes = self.in_order(&assignment.nodes);
        let assignment = Assignment { leafs: assignment.leafs.clone(), nodes };
        AssignedGraph::new(graph, assigned.memories().clone(), assignment, assigned.sizes().clone())
    }

    /// Returns the graph with its nodes in this order, as [`apply`](Self::apply) does.
    ///
    /// # Errors
    ///
    /// If the graph has another number of nodes, or a node would run before what it reads is written.
    pub fn apply_to(&self, graph: &Graph) -> Result<Graph, GraphError> {
        let (given, wanted) = (self.0.len(), graph.nodes().len());
        if given != wanted {
            return Err(GraphError::AssignmentLength { list: "nodes", given, wanted });
        }
        graph.in_order(self.nodes(graph).collect())
    }
}

/// Returns for each number whether it is in the longest rising selection; of several, one.
fn longest_rising(numbers: &[u32]) -> Vec<bool> {
    // By length: where the selection of that length with the lowest end ends.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(numbers.len());
    for (place, number) in numbers.iter().enumerate() {
        let length = ends.partition_point(|end| numbers[*end] < *number);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = place,
            None => ends.push(place),
        }
    }
    let mut is_in = vec![false; numbers.len()];
    let mut at = ends.last().copied();
    while let Some(place) = at {
        is_in[place] = true;
        at = before[place];
    }
    is_in
}
