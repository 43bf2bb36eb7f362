//! Units in an order in, all nodes in an order out.
//!
//! Nodes that only describe memory are listed before their first reader, and those that nothing of their run reads right after
//! what they are made of. They stay in their run. O(edges).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::Id;

use super::live_bytes::UnitOrder;
use super::model::{OrderModel, UnitId, run_numbers};
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
        listing.hang_unread(&run, here, model);
        listing.list_hung(None, &run);
        for unit in here {
            let position = model.units[*unit].position;
            listing.list(position, &run);
            listing.list_hung(Some(position), &run);
        }
        (units, start) = (later, run.end);
    }
    listing.positions
}

struct NodeListing<'a> {
    graph: &'a Graph,
    position_of: Vec<Option<u32>>,
    is_unit: Vec<bool>,
    is_listed: Vec<bool>,
    /// Behind which unit of the present run each node is listed that nothing reads in it.
    hung: Vec<(Option<usize>, usize)>,
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
        Self { graph, position_of, is_unit, is_listed: vec![false; count], hung: Vec::new(), positions }
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
            let is_open = |part: &usize| !self.is_unit[*part] && !self.is_listed[*part] && run.contains(part);
            let next = self.parts(position).find(|part| is_open(part) && !path.contains(part));
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

    /// Finds where the descriptions of a run are listed that no node of it reads: behind the last unit that they are made of.
    fn hang_unread(&mut self, run: &Range<usize>, units: &[UnitId], model: &OrderModel) {
        let count = run.len();
        let mut is_read = vec![false; count];
        for position in run.clone() {
            let parts = self.parts(position).filter(|part| *part < position && run.contains(part));
            parts.for_each(|part| is_read[part - run.start] = true);
        }
        // Where each unit of the run is in the new order.
        let mut turn = vec![0; count];
        for (at, unit) in (1..).zip(units) {
            turn[model.units[*unit].position - run.start] = at;
        }
        self.hung.clear();
        // Descriptions of descriptions: the last of all that they are made of.
        let mut behind: Vec<(usize, Option<usize>)> = vec![(0, None); count];
        for position in run.clone() {
            let index = position - run.start;
            behind[index] = match self.is_unit[position] {
                true => (turn[index], Some(position)),
                false => {
                    let parts = self.parts(position).filter(|part| *part < position && run.contains(part));
                    parts.map(|part| behind[part - run.start]).max().unwrap_or((0, None))
                }
            };
            if !self.is_unit[position] && !is_read[index] {
                self.hung.push((behind[index].1, position));
            }
        }
        self.hung.sort_by_key(|(unit, position)| (*unit, *position));
    }

    /// Lists what is listed behind a unit, or at the start of the run.
    fn list_hung(&mut self, unit: Option<usize>, run: &Range<usize>) {
        let mut at = self.hung.partition_point(|(behind, _)| *behind < unit);
        while let Some(&(_, position)) = self.hung.get(at).filter(|(behind, _)| *behind == unit) {
            self.list(position, run);
            at += 1;
        }
    }
}
