//! Whether an order means the same as the caller's, for every graph that a plan of it fits: by whole roots, and without leaving
//! runs. What the search keeps to, checked of an order that comes from elsewhere. O(edges).

use steeve_plan::Id;

use super::model::{RootAccesses, UnitId, run_numbers};
use super::node_order::NodeOrder;
use crate::AssignedGraph;

/// Returns the positions, in the caller's order, of a node and of one that it must not overtake but does; `None` if there are
/// none.
pub(crate) fn overtaking(assigned: &AssignedGraph, order: &NodeOrder) -> Option<(usize, usize)> {
    let (graph, numbers) = (assigned.graph(), run_numbers(assigned));
    let mut places = alloc::vec![0; numbers.len()];
    for (place, position) in order.positions().iter().map(|position| *position as usize).enumerate() {
        places[position] = place;
        let stays = numbers[position] == numbers[place] && (numbers[position] != 0 || position == place);
        if !stays {
            return Some((position.max(place), position.min(place)));
        }
    }
    let mut accesses = RootAccesses::new(graph);
    for (position, &node) in graph.nodes().iter().enumerate() {
        if graph.tensor(node).op.writes_nothing() {
            continue;
        }
        let before = accesses.edges(graph, node, UnitId::from_index(position)?);
        if let Some(overtaken) = before.iter().find(|before| places[before.index()] > places[position]) {
            return Some((position, overtaken.index()));
        }
    }
    None
}
