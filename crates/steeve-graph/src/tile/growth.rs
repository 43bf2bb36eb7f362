//! From one node and a dimension to the longest chain around it.
//!
//! The nodes of the chain grow forward and backward as long as a split of all roots exists. Given the split of one root, those
//! of all others follow: a node that reads split rows has one split that needs just these, and that says what it needs of its
//! other sources.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::chain::{RowChain, RowChains};
use super::row_rules::Need;
use super::split::{RootRows, Split};
use crate::TensorId;

/// How many nodes a chain may grow by at once: nodes that write into a tensor can't be in a chain without the node that makes it,
/// and between two nodes that are split there may be some that run once.
const LOOK_ROUND: usize = 6;

impl RowChains<'_> {
    /// Returns the longest chain around a node (a position in [`Graph::nodes`](crate::Graph::nodes)) whose result is split
    /// along `dim` into its elements there.
    pub fn around(&self, node: usize, dim: usize) -> Option<RowChain> {
        let all = 0..self.graph().nodes().len();
        let (nodes, rows, splits) = self.grown(node, dim, &all)?;
        self.chain(nodes, rows, &splits)
    }

    /// Returns a chain with fewer nodes, if they are one: `nodes` within those of `chain`.
    pub fn within(&self, chain: &RowChain, nodes: Range<usize>) -> Option<RowChain> {
        let is_within = chain.nodes.start <= nodes.start && nodes.end <= chain.nodes.end && nodes.start < nodes.end;
        if is_within { self.chain(nodes, chain.rows, &chain.splits) } else { None }
    }

    /// Returns the longest run of nodes within `limits` around a node, and the splits of all roots that depend on its own.
    pub(crate) fn grown(
        &self,
        node: usize,
        dim: usize,
        limits: &Range<usize>,
    ) -> Option<(Range<usize>, u64, BTreeMap<TensorId, Split>)> {
        let graph = self.graph();
        let seed = *graph.nodes().get(node)?;
        let rows = *graph.tensor(seed).layout.ne().get(dim)?;
        let split = Split { dim, unit: 1 };
        if rows < 2 || graph.tensor(seed).op.writes_nothing() || !self.may_join(seed) {
            return None;
        }
        let joined = |nodes: Range<usize>, more: Range<usize>, last: usize| {
            if !more.clone().all(|at| self.may_join(graph.nodes()[at])) {
                return None;
            }
            let splits = Growth::new(self, nodes.clone(), rows).solved(seed, split)?;
            // A chain neither begins nor ends with nodes that do not depend on the rows.
            splits.contains_key(&graph.root(graph.nodes()[last])).then_some((nodes, splits))
        };
        let (mut nodes, mut splits) = joined(node..node + 1, node..node + 1, node)?;
        loop {
            let Range { start, end } = nodes;
            let later = (end + 1..=limits.end.min(end + LOOK_ROUND)).find_map(|to| joined(start..to, end..to, to - 1));
            let found = later.or_else(|| {
                let earlier = limits.start.max(start.saturating_sub(LOOK_ROUND))..start;
                earlier.rev().find_map(|from| joined(from..end, from..start, from))
            });
            match found {
                Some(longer) => (nodes, splits) = longer,
                None => return Some((nodes, rows, splits)),
            }
        }
    }
}

/// The splits of some consecutive nodes, as far as they are known.
struct Growth<'a> {
    chains: &'a RowChains<'a>,
    nodes: Range<usize>,
    rows: u64,
    splits: BTreeMap<TensorId, Split>,
    open: Vec<TensorId>,
    whole: Vec<TensorId>,
}

impl<'a> Growth<'a> {
    fn new(chains: &'a RowChains<'a>, nodes: Range<usize>, rows: u64) -> Self {
        Self { chains, nodes, rows, splits: BTreeMap::new(), open: Vec::new(), whole: Vec::new() }
    }

    /// Returns the splits of all roots that depend on that of one tensor; `None` if two of them disagree.
    fn solved(mut self, seed: TensorId, split: Split) -> Option<BTreeMap<TensorId, Split>> {
        self.split_tensor(seed, split)?;
        while let Some(root) = self.open.pop() {
            let (chains, nodes) = (self.chains, self.nodes.clone());
            for &at in chains.users[root].iter().filter(|at| nodes.contains(at)) {
                self.visit(at, root)?;
            }
        }
        let writes_outside = |at: usize| {
            let node = self.chains.graph().nodes()[at];
            let root = self.chains.graph().root(node);
            !self.chains.graph().tensor(node).op.writes_nothing() && !self.chains.is_created(root, &self.nodes)
        };
        if self.whole.iter().any(|root| self.splits.contains_key(root)) || self.nodes.clone().any(writes_outside) {
            return None;
        }
        Some(self.splits)
    }

    /// Demands a split of a root.
    fn split_root(&mut self, root: TensorId, split: Split) -> Option<()> {
        match self.splits.get(&root) {
            Some(known) => (*known == split).then_some(()),
            None => {
                RootRows::new(&self.chains.graph().tensor(root).layout, split, self.rows)?;
                self.splits.insert(root, split);
                self.open.push(root);
                Some(())
            }
        }
    }

    /// Demands a split of a tensor whose root is created by the nodes.
    fn split_tensor(&mut self, tensor: TensorId, split: Split) -> Option<()> {
        let graph = self.chains.graph();
        let root = graph.root(tensor);
        if !self.chains.is_created(root, &self.nodes) {
            return None;
        }
        if root == tensor {
            return self.split_root(root, split);
        }
        if self.splits.contains_key(&root) {
            return (self.chains.split_of(tensor, &self.splits, self.rows) == Some(split)).then_some(());
        }
        let (layout, offset) = (graph.tensor(tensor).layout, graph.tensors().offset(tensor));
        let of_root = (0..4).find_map(|dim| {
            let of_root = Split::along(&graph.tensor(root).layout, dim, self.rows)?;
            let lines = RootRows::new(&graph.tensor(root).layout, of_root, self.rows)?;
            (lines.split_of(&layout, offset) == Some(split)).then_some(of_root)
        });
        self.split_root(root, of_root?)
    }

    /// Looks at a node that reads or writes a root that is split.
    fn visit(&mut self, at: usize, root: TensorId) -> Option<()> {
        let graph = self.chains.graph();
        let node = graph.nodes()[at];
        if graph.tensor(node).op.writes_nothing() {
            return Some(());
        }
        let split = match graph.root(node) == root {
            true => self.chains.split_of(node, &self.splits, self.rows)?,
            false => self.split_by_sources(node)?,
        };
        self.split_tensor(node, split)?;
        let needs = self.chains.needs(node, split, self.rows)?;
        for (source, need) in graph.sources(node).iter().zip(needs) {
            let Some(source) = source.filter(|source| *source != node) else { continue };
            if !self.chains.is_created(graph.root(source), &self.nodes) {
                continue;
            }
            match need {
                Need::Rows(split) => self.split_tensor(source, split)?,
                Need::Whole | Need::Image => self.whole.push(graph.root(source)),
            }
        }
        Some(())
    }

    /// Returns the split of a node's result that needs its split sources as they are.
    fn split_by_sources(&self, node: TensorId) -> Option<Split> {
        let graph = self.chains.graph();
        (0..4).find_map(|dim| {
            let split = Split::along(&graph.tensor(node).layout, dim, self.rows)?;
            let needs = self.chains.needs(node, split, self.rows)?;
            let fits = graph.sources(node).iter().zip(needs).all(|(source, need)| match *source {
                Some(source) if source != node && self.splits.contains_key(&graph.root(source)) => {
                    let known = self.chains.split_of(source, &self.splits, self.rows);
                    known.is_some_and(|known| need == Need::Rows(known))
                }
                _ => true,
            });
            fits.then_some(split)
        })
    }
}
