//! Units in an order in, all nodes in an order out.
//!
//! Nodes that only describe memory are listed before their first reader, within their run. O(edges).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::Id;

use super::live_bytes::UnitOrder;
use super::model::{OrderModel, run_numbers};
use crate::{AssignedGraph, Graph, TensorId};

/// Returns the positions of the caller's nodes in their new order.
pub(super) fn listed(assigned: &AssignedGraph, model: &OrderModel, order: &UnitOrder) -> Vec<u32> {
    let graph = assigned.graph();
    let mut listing = NodeListing::new(graph, model);
    let numbers = run_numbers(assigned);
    let (mut units, mut start) = (&order.units[..], 0);
    while start < numbers.len() {
        // Nodes that may not change places are a run each.
        let same = |number: &&u32| **number == numbers[start] && numbers[start] != 0;
        let run = start..start + numbers[start..].iter().take_while(same).count().max(1);
        let count = units.iter().take_while(|unit| model.units[**unit].position < run.end).count();
        let (here, later) = units.split_at(count);
        here.iter().for_each(|unit| listing.list(model.units[*unit].position, &run));
        // Descriptions that only describe each other.
        run.clone().for_each(|position| listing.list(position, &run));
        (units, start) = (later, run.end);
    }
    listing.positions
}

struct NodeListing<'a> {
    graph: &'a Graph,
    position_of: Vec<Option<u32>>,
    is_unit: Vec<bool>,
    is_listed: Vec<bool>,
    /// What waits to be listed until a description has been.
    is_waiting: Vec<bool>,
    positions: Vec<u32>,
}

impl<'a> NodeListing<'a> {
    fn new(graph: &'a Graph, model: &OrderModel) -> Self {
        let count = graph.nodes().len();
        let mut position_of = vec![None; graph.tensors().len()];
        for (position, node) in (0..).zip(graph.nodes()) {
            position_of[node.index()] = Some(position);
        }
        let mut is_unit = vec![false; count];
        model.units.iter().for_each(|unit| is_unit[unit.position] = true);
        let positions = Vec::with_capacity(count);
        let (is_listed, is_waiting) = (vec![false; count], vec![false; count]);
        Self { graph, position_of, is_unit, is_listed, is_waiting, positions }
    }

    /// Returns the positions of the nodes that a node is made of.
    fn parts(&self, position: usize) -> impl Iterator<Item = usize> + use<'_> {
        let node = self.graph.nodes()[position];
        let root = Some(self.graph.root(node)).filter(|root| *root != node);
        let tensors = self.graph.sources(node).iter().copied().flatten().chain(root);
        tensors.filter_map(|tensor: TensorId| self.position_of[tensor.index()]).map(|position| position as usize)
    }

    /// Lists a node of a run, and before it the descriptions of the run that it is made of.
    fn list(&mut self, position: usize, run: &Range<usize>) {
        let mut path = vec![position];
        while let Some(&position) = path.last() {
            if self.is_listed[position] {
                path.pop();
                continue;
            }
            self.is_waiting[position] = true;
            let is_open = |part: &usize| {
                !self.is_unit[*part] && !self.is_listed[*part] && !self.is_waiting[*part] && run.contains(part)
            };
            let next = self.parts(position).find(is_open);
            match next {
                Some(part) => path.push(part),
                None => {
                    self.is_listed[position] = true;
                    self.positions.push(position as u32);
                    path.pop();
                }
            }
        }
    }
}
