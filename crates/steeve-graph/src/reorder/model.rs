//! Graph in, what its order decides out: which nodes must wait for which, and what each makes, uses and frees.
//!
//! A *unit* is a node that has a turn of its own: it computes, or it is the last of its run to name a tensor. Other nodes that
//! only describe memory are no units: [`listing`](super::listing) puts them before their first reader. Units of one *run* may change places: they belong to one memory, are next to each
//! other, and none of them is filled from outside of the graph.
//!
//! Whole roots decide what must wait, not ranges of bytes, since a plan is used for graphs whose views have moved. External
//! roots that nodes write into count as one root: two names of a cache may share bytes.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::{Bytes, Id, IdVec};

use crate::alias::{AliasRule, MAX_SLOTS, allows_alias};
use crate::liveness::root_lifetimes;
use crate::{AssignedGraph, Graph, MemoryId, Op, TensorId, Unread};

steeve_plan::id_type! {
    /// A node with a turn of its own, in the order of the graph.
    pub(super) struct UnitId;
}

steeve_plan::id_type! {
    /// A root with bytes to plan.
    pub(super) struct RootId;
}

/// A node with a turn of its own.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    /// Its position in the nodes of the graph.
    pub(super) position: usize,
    /// The root that it is the first to write.
    pub(super) makes: Option<RootId>,
    uses: Range<u32>,
    savings: Range<u32>,
}

/// A root with bytes to plan.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) memory: MemoryId,
    /// Its bytes, with what alignment adds.
    pub(super) size: u64,
    /// Its bytes without that.
    unpadded: Bytes,
    /// Whether it lives to the end, whatever uses it last.
    pub(super) is_kept: bool,
    /// Whether it has its bytes before the run.
    pub(super) is_early: bool,
}

/// Bytes that the result of a unit shares with a source that dies at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saving {
    pub(super) root: RootId,
    pub(super) bytes: u64,
    /// Whether the result is written over the source. Of several such sources that die the first is taken.
    pub(super) is_alias: bool,
}

/// All units, what they use, and what waits for what.
#[derive(Debug)]
pub(super) struct OrderModel {
    pub(super) units: IdVec<UnitId, Unit>,
    pub(super) roots: IdVec<RootId, Root>,
    /// The units of each run, in the order of the graph.
    pub(super) runs: Vec<Range<usize>>,
    before: Adjacency,
    after: Adjacency,
    used: Vec<RootId>,
    savings: Vec<Saving>,
}

/// For each unit a list of others.
#[derive(Debug, Default)]
struct Adjacency {
    ends: Vec<u32>,
    units: Vec<UnitId>,
}

impl Adjacency {
    fn push_list(&mut self, units: &[UnitId]) {
        self.units.extend_from_slice(units);
        self.ends.push(self.units.len() as u32);
    }

    fn of(&self, unit: UnitId) -> &[UnitId] {
        let start = unit.index().checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.units[start..self.ends[unit.index()] as usize]
    }

    /// Returns the lists of the other direction.
    fn reversed(&self) -> Self {
        let mut ends = vec![0u32; self.ends.len()];
        self.units.iter().for_each(|unit| ends[unit.index()] += 1);
        let mut sum = 0;
        for end in &mut ends {
            // Where each list starts; filling it moves that to where it ends.
            sum += core::mem::replace(end, sum);
        }
        let Some(first) = UnitId::from_index(0) else { return Self::default() };
        let mut units = vec![first; self.units.len()];
        for unit in (0..ends.len()).filter_map(UnitId::from_index) {
            for other in self.of(unit) {
                units[ends[other.index()] as usize] = unit;
                ends[other.index()] += 1;
            }
        }
        Self { ends, units }
    }
}

impl OrderModel {
    /// Finds the units of a graph, what they use and what they wait for; `None` if its tensors add up to 2^64 bytes or more.
    /// O(edges).
    pub(super) fn new(assigned: &AssignedGraph, rule: AliasRule, unread: Unread) -> Option<Self> {
        let (roots, root_of) = planned_roots(assigned, unread)?;
        let numbers = run_numbers(assigned);
        let is_unit = unit_marks(assigned.graph(), &numbers);
        let (units, before) = (IdVec::new(), Adjacency::default());
        let (after, used, savings) = (Adjacency::default(), Vec::new(), Vec::new());
        let mut model = Self { units, roots, runs: runs(&is_unit, &numbers), before, after, used, savings };
        let mut accesses = RootAccesses::new(assigned.graph());
        for (position, &node) in assigned.graph().nodes().iter().enumerate().filter(|(position, _)| is_unit[*position])
        {
            let unit = model.push_unit(assigned, rule, &root_of, position)?;
            model.before.push_list(&accesses.edges(assigned.graph(), node, unit));
        }
        model.after = model.before.reversed();
        model.take_unmade_as_early();
        Some(model)
    }

    /// Takes what is described but computed by no node as there from the start: no turn makes it.
    fn take_unmade_as_early(&mut self) {
        let mut is_made: IdVec<RootId, bool> = self.roots.iter().map(|root| root.is_early).collect::<Vec<_>>().into();
        self.units.iter().filter_map(|unit| unit.makes).for_each(|root| is_made[root] = true);
        for root in self.roots.ids().filter(|root| !is_made[*root]).collect::<Vec<_>>() {
            self.roots[root].is_early = true;
        }
    }

    /// Returns the roots that a unit uses, each once; what it makes is one of them.
    pub(super) fn uses(&self, unit: UnitId) -> &[RootId] {
        let Range { start, end } = self.units[unit].uses;
        &self.used[start as usize..end as usize]
    }

    /// Returns what the result of a unit may share with sources, if they die at it.
    pub(super) fn savings(&self, unit: UnitId) -> &[Saving] {
        let Range { start, end } = self.units[unit].savings;
        &self.savings[start as usize..end as usize]
    }

    /// Returns the units that must be done before this one.
    pub(super) fn before(&self, unit: UnitId) -> &[UnitId] {
        self.before.of(unit)
    }

    /// Returns the units that wait for this one.
    pub(super) fn after(&self, unit: UnitId) -> &[UnitId] {
        self.after.of(unit)
    }

    /// Returns the bytes that the result of a unit shares with what dies at it, as the planner chooses them.
    pub(super) fn saved(&self, unit: UnitId, dies: impl Fn(RootId) -> bool) -> u64 {
        let mut most = 0;
        for saving in self.savings(unit).iter().filter(|it| dies(it.root)) {
            if saving.is_alias {
                return saving.bytes;
            }
            most = most.max(saving.bytes);
        }
        most
    }

    fn push_unit(
        &mut self,
        assigned: &AssignedGraph,
        rule: AliasRule,
        root_of: &[Option<RootId>],
        position: usize,
    ) -> Option<UnitId> {
        let graph = assigned.graph();
        let node = graph.nodes()[position];
        let (first_use, first_saving) = (self.used.len(), self.savings.len());
        for tensor in graph.sources(node).iter().copied().flatten().chain([node]) {
            if let Some(root) = root_of[graph.root(tensor).index()]
                && !self.used[first_use..].contains(&root)
            {
                self.used.push(root);
            }
        }
        let makes = root_of[node.index()].filter(|root| !self.roots[*root].is_early);
        if let Some(root) = makes {
            self.push_savings(assigned, rule, root_of, node, root);
        }
        let uses = first_use as u32..self.used.len() as u32;
        let savings = first_saving as u32..self.savings.len() as u32;
        self.units.push(Unit { position, makes, uses, savings })
    }

    /// Lists what the result of `node` may be written over, the smallest first, and then what it may overlap.
    fn push_savings(
        &mut self,
        assigned: &AssignedGraph,
        rule: AliasRule,
        root_of: &[Option<RootId>],
        node: TensorId,
        made: RootId,
    ) {
        let graph = assigned.graph();
        let (sources, first) = (graph.sources(node), self.savings.len());
        let is_alone = |root: TensorId| sources.iter().flatten().filter(|it| graph.root(**it) == root).count() == 1;
        let memory = self.roots[made].memory;
        if rule == AliasRule::None || sources.iter().flatten().any(|source| graph.root(*source) == node) {
            return;
        }
        let candidate = |source: TensorId, roots: &IdVec<RootId, Root>| {
            let root = root_of[graph.root(source).index()]?;
            let may_die = roots[root].memory == memory && !roots[root].is_kept && is_alone(graph.root(source));
            may_die.then_some(root)
        };
        for (slot, source) in sources.iter().enumerate().take(MAX_SLOTS) {
            let Some(source) = *source else { continue };
            let Some(root) = candidate(source, &self.roots) else { continue };
            let bytes = self.roots[root].size;
            if self.roots[root].unpadded >= self.roots[made].unpadded
                && allows_alias(assigned, rule, node, slot, source, memory)
            {
                self.savings.push(Saving { root, bytes, is_alias: true });
            }
        }
        let roots = &self.roots;
        self.savings[first..].sort_by_key(|saving| roots[saving.root].unpadded);
        if rule != AliasRule::Extended || assigned.memories()[memory].keeps_ggml_in_place() {
            return;
        }
        for (slot, distance) in graph.tensors().permitted_overlaps(node) {
            let Some(source) = sources.get(slot).copied().flatten() else { continue };
            let Some(root) = candidate(source, &self.roots) else { continue };
            let distance = distance.0.saturating_sub(graph.tensors().offset(source).0);
            let bytes = self.roots[root].size.min(self.roots[made].size.saturating_sub(distance));
            self.savings.push(Saving { root, bytes, is_alias: false });
        }
    }
}

/// Roots with bytes to plan, and by the number of a tensor which of them it is.
type PlannedRoots = (IdVec<RootId, Root>, Vec<Option<RootId>>);

/// Returns the roots with bytes to plan, and which tensor is which of them; `None` if they add up to 2^64 bytes or more.
fn planned_roots(assigned: &AssignedGraph, unread: Unread) -> Option<PlannedRoots> {
    let lives = root_lifetimes(assigned, unread);
    let (mut roots, mut sum) = (IdVec::new(), 0u64);
    let mut root_of = vec![None; lives.of_root.len()];
    for (tensor, life) in (0..).map_while(TensorId::from_index).zip(&lives.of_root) {
        let Some(sized_by) = life.memory.filter(|_| life.planned) else { continue };
        let memory = assigned.owner(sized_by);
        let align = assigned.memories()[memory].align;
        let unpadded = assigned.alloc_size(tensor, sized_by);
        let size = align.round_up(unpadded)?.0;
        sum = sum.checked_add(size)?;
        if size > 0 {
            let (is_kept, is_early) = (life.kept, life.first == 0);
            root_of[tensor.index()] = roots.push(Root { memory, size, unpadded, is_kept, is_early });
        }
    }
    Some((roots, root_of))
}

/// Returns whether a node is filled from outside of the graph when its turn comes, or marks until when a root is needed: what
/// ggml's scheduler lists among the nodes. Nothing passes it.
fn is_fixed(graph: &Graph, node: TensorId, is_leaf: &[bool]) -> bool {
    let tensor = graph.tensor(node);
    let is_filled = tensor.is_planned() && !tensor.flags.is_input() && !is_leaf[node.index()];
    tensor.op == Op::None && (tensor.is_view() || is_filled)
}

/// Returns for each node whether it has a turn of its own.
fn unit_marks(graph: &Graph, numbers: &[u32]) -> Vec<bool> {
    let mut position_of: Vec<Option<usize>> = vec![None; graph.tensors().len()];
    for (position, node) in graph.nodes().iter().enumerate() {
        position_of[node.index()] = Some(position);
    }
    let mut is_unit = vec![true; numbers.len()];
    for (reader, &node) in graph.nodes().iter().enumerate() {
        for named in graph.sources(node).iter().copied().flatten().chain([graph.root(node)]) {
            let Some(position) = position_of[named.index()].filter(|position| *position != reader) else { continue };
            let same_run = numbers[position] == numbers[reader] && numbers[reader] != 0;
            is_unit[position] &= !same_run || !graph.tensor(named).op.writes_nothing();
        }
    }
    is_unit
}

/// Returns a number for each node: neighbours with one number may change places. 0 where none may.
pub(super) fn run_numbers(assigned: &AssignedGraph) -> Vec<u32> {
    let graph = assigned.graph();
    let is_leaf = leaf_marks(graph);
    let mut numbers: Vec<u32> = Vec::with_capacity(graph.nodes().len());
    let (mut number, mut last) = (1, None);
    for (node, &memory) in graph.nodes().iter().zip(&assigned.assignment().nodes) {
        let is_stuck =
            is_fixed(graph, *node, &is_leaf) || assigned.memories()[assigned.owner(memory)].keeps_ggml_in_place();
        if is_stuck || last != Some(memory) {
            number += 1;
        }
        last = (!is_stuck).then_some(memory);
        numbers.push(if is_stuck { 0 } else { number });
    }
    numbers
}

/// Returns the units that may change places, as ranges.
fn runs(is_unit: &[bool], numbers: &[u32]) -> Vec<Range<usize>> {
    let mut runs: Vec<(u32, Range<usize>)> = Vec::new();
    for (unit, (_, &number)) in is_unit.iter().zip(numbers).filter(|(is_unit, _)| **is_unit).enumerate() {
        match runs.last_mut() {
            Some((last, range)) if *last == number && number != 0 => range.end = unit + 1,
            _ => runs.push((number, unit..unit + 1)),
        }
    }
    runs.into_iter().map(|(_, range)| range).collect()
}

fn leaf_marks(graph: &Graph) -> Vec<bool> {
    let mut is_leaf = vec![false; graph.tensors().len()];
    graph.leafs().iter().for_each(|leaf| is_leaf[leaf.index()] = true);
    is_leaf
}

/// What has happened to each root so far.
pub(super) struct RootAccesses {
    /// By the number of the root: external roots that nodes write into have one number.
    key: Vec<u32>,
    writer: Vec<Option<UnitId>>,
    readers: Vec<Vec<UnitId>>,
}

impl RootAccesses {
    pub(super) fn new(graph: &Graph) -> Self {
        let tensors = graph.tensors().len();
        let mut is_written = vec![false; tensors];
        for node in graph.nodes().iter().filter(|node| !graph.tensor(**node).op.writes_nothing()) {
            is_written[graph.root(*node).index()] = true;
        }
        let key = |(index, is_written): (usize, &bool)| {
            let is_external = TensorId::from_index(index).is_some_and(|id| graph.tensor(id).external);
            if is_external && *is_written { tensors as u32 } else { index as u32 }
        };
        let key = is_written.iter().enumerate().map(key).collect();
        Self { key, writer: vec![None; tensors + 1], readers: vec![Vec::new(); tensors + 1] }
    }

    /// Returns the units that `unit` must wait for: those that wrote what it reads or writes, and those that read what it
    /// writes.
    pub(super) fn edges(&mut self, graph: &Graph, node: TensorId, unit: UnitId) -> Vec<UnitId> {
        let mut edges = Vec::new();
        for (slot, source) in graph.sources(node).iter().enumerate() {
            let Some(source) = *source else { continue };
            let is_destination = source == node && slot == 1 && graph.tensor(node).op == Op::Cpy;
            if !is_destination {
                let key = self.key[graph.root(source).index()] as usize;
                edges.extend(self.writer[key]);
                self.readers[key].push(unit);
            }
        }
        let key = self.key[graph.root(node).index()] as usize;
        if graph.tensor(node).op.writes_nothing() && graph.tensor(node).is_view() {
            edges.extend(self.writer[key]);
            self.readers[key].push(unit);
        } else {
            edges.extend(self.writer[key].replace(unit));
            edges.append(&mut self.readers[key]);
            // The call writes its other results as well, whatever their places in the order.
            for result in graph.tensors().own_results(node) {
                let key = self.key[graph.root(result).index()] as usize;
                edges.extend(self.writer[key].replace(unit));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        edges.retain(|before| *before != unit);
        edges
    }
}
