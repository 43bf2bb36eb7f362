//! From one node and a dimension to the longest chain around it.
//!
//! The nodes of the chain grow forward and backward as long as a split of all roots exists. Given the split of one root, those
//! of all others follow: a node that reads split rows has one split that needs just these, and that says what it needs of its
//! other sources.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use super::chain::{Inputs, RowChain, RowChains};
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
        self.chain(nodes, rows, &splits, Inputs::Overwrite)
    }

    /// Returns a chain with fewer nodes, if they are one: `nodes` within those of `chain`. None, if `chain` is one of another
    /// graph that is not one here.
    pub fn within(&self, chain: &RowChain, nodes: Range<usize>) -> Option<RowChain> {
        let is_within = chain.nodes.start <= nodes.start && nodes.end <= chain.nodes.end && nodes.start < nodes.end;
        if is_within { self.chain(nodes, chain.rows, &chain.splits, Inputs::Overwrite) } else { None }
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
        let mut growth = Growth::new(self, rows);
        if !growth.begin(node, seed, split) {
            return None;
        }
        loop {
            let Range { start, end } = growth.nodes;
            let mut later = end + 1..=limits.end.min(end + LOOK_ROUND);
            let mut earlier = (limits.start.max(start.saturating_sub(LOOK_ROUND))..start).rev();
            let is_longer = later.any(|to| growth.join(start..to, end..to, to - 1))
                || earlier.any(|from| growth.join(from..end, from..start, from));
            if !is_longer {
                return Some((growth.nodes, rows, growth.splits));
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
    whole: BTreeSet<TensorId>,
    /// What was learned since the nodes last became more: roots that are split, and roots that are read as a whole.
    added: Vec<TensorId>,
    added_whole: Vec<TensorId>,
}

impl<'a> Growth<'a> {
    fn new(chains: &'a RowChains<'a>, rows: u64) -> Self {
        let (splits, whole) = (BTreeMap::new(), BTreeSet::new());
        Self { chains, nodes: 0..0, rows, splits, open: Vec::new(), whole, added: Vec::new(), added_whole: Vec::new() }
    }

    /// Begins with one node; returns whether it can be a chain.
    fn begin(&mut self, at: usize, seed: TensorId, split: Split) -> bool {
        self.nodes = at..at + 1;
        self.split_tensor(seed, split).is_some() && self.join(at..at + 1, at..at + 1, at)
    }

    /// Lets the nodes become `nodes`, which are `more` than before; returns whether the splits of all roots agree. If not,
    /// nothing has changed. O(more nodes, and those that depend on them).
    fn join(&mut self, nodes: Range<usize>, more: Range<usize>, last: usize) -> bool {
        let before = core::mem::replace(&mut self.nodes, nodes);
        self.added.clear();
        self.added_whole.clear();
        let root = self.chains.graph().root(self.chains.graph().nodes()[last]);
        // A chain neither begins nor ends with nodes that do not depend on the rows.
        let is_joined = self.solve(more).is_some() && self.splits.contains_key(&root);
        if !is_joined {
            self.nodes = before;
            self.open.clear();
            for root in &self.added {
                self.splits.remove(root);
            }
            for root in &self.added_whole {
                self.whole.remove(root);
            }
        }
        is_joined
    }

    /// Finds the splits of all roots that depend on those that are known; `None` if two of them disagree, or a node can't be
    /// in a chain.
    fn solve(&mut self, more: Range<usize>) -> Option<()> {
        let (chains, graph) = (self.chains, self.chains.graph());
        for at in more.clone() {
            let node = graph.nodes()[at];
            let is_ours = graph.tensor(node).op.writes_nothing() || chains.is_created(graph.root(node), &self.nodes);
            if !chains.may_join(node) || !is_ours {
                return None;
            }
        }
        for at in more.clone() {
            self.visit_all(at)?;
            // What was outside so far is not any more.
            let root = graph.root(graph.nodes()[at]);
            if chains.creator(root) == Some(at) {
                self.visit_users(root, |this, at| this.visit_all(at))?;
            }
        }
        while let Some(root) = self.open.pop() {
            self.visit_users(root, |this, at| this.visit(at, root))?;
        }
        { more }.all(|at| !self.is_rewritten(at)).then_some(())
    }

    /// Returns whether a node that runs once writes what a part has read before, and one of the two is `at`.
    fn is_rewritten(&self, at: usize) -> bool {
        let (chains, graph) = (self.chains, self.chains.graph());
        let node = graph.nodes()[at];
        if graph.tensor(node).op.writes_nothing() {
            return false;
        }
        let is_late = |at: usize| {
            !graph.tensor(graph.nodes()[at]).op.writes_nothing() && chains.is_read_before(at, &self.nodes, &self.splits)
        };
        if !self.splits.contains_key(&graph.root(node)) {
            return is_late(at);
        }
        let whole = graph.sources(node).iter().flatten().map(|source| graph.root(*source));
        let mut whole = whole.filter(|root| chains.is_created(*root, &self.nodes) && !self.splits.contains_key(root));
        whole.any(|root| {
            let writes = |later: &usize| *later > at && graph.root(graph.nodes()[*later]) == root;
            let later = chains.users[root].iter().filter(|it| self.nodes.contains(it) && writes(it));
            { later }.any(|later| is_late(*later))
        })
    }

    fn visit_users(&mut self, root: TensorId, visit: impl Fn(&mut Self, usize) -> Option<()>) -> Option<()> {
        let (chains, nodes) = (self.chains, self.nodes.clone());
        let mut users = chains.users[root].iter().filter(|at| nodes.contains(at));
        users.try_for_each(|at| visit(self, *at))
    }

    /// Looks at a node with regard to each split root that it reads or writes.
    fn visit_all(&mut self, at: usize) -> Option<()> {
        let graph = self.chains.graph();
        let node = graph.nodes()[at];
        for &used in graph.sources(node).iter().flatten().chain([&node]) {
            if self.splits.contains_key(&graph.root(used)) {
                self.visit(at, graph.root(used))?;
            }
        }
        Some(())
    }

    /// Demands a split of a root.
    fn split_root(&mut self, root: TensorId, split: Split) -> Option<()> {
        match self.splits.get(&root) {
            Some(known) => (*known == split).then_some(()),
            None => {
                RootRows::new(&self.chains.graph().tensor(root).layout, split, self.rows)?;
                if self.whole.contains(&root) {
                    return None;
                }
                self.splits.insert(root, split);
                self.added.push(root);
                self.open.push(root);
                Some(())
            }
        }
    }

    /// Demands all of a root.
    fn read_whole(&mut self, root: TensorId) -> Option<()> {
        if self.whole.insert(root) {
            self.added_whole.push(root);
        }
        (!self.splits.contains_key(&root)).then_some(())
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
                Need::Whole | Need::Lookup | Need::Image => self.read_whole(graph.root(source))?,
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
