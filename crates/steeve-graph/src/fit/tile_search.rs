//! A plan in, the chains that bring it below some bytes out: at the steps where most is alive first, and of all chains there
//! the one that needs the fewest parts.
//!
//! What a chain in parts takes is estimated before it is written: the bytes from before it that are still needed, its results,
//! what runs once, and the most that is alive of one part.
//!
//! ```text
//!   alive before the chain | results | computed once | part 0, then part 1, ...
//! ```

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::{Bytes, Id};

use super::FitCost;
use crate::tile::row_rules::Need;
use crate::tile::{Inputs, RowChain, RowChains};
use crate::{GraphPlan, MemoryId, Op, Reuse, TensorId};

/// How many of the narrowest points on each side of a node a chain may begin and end at.
const ENDS: usize = 6;

/// How far from a node a chain may begin and end. Layers have fewer nodes, and a chain over several of them needs no less.
const REACH: usize = 256;

/// How many of the largest tensors at a node are tried as the ones to be split.
const SEEDS: usize = 3;

/// How many nodes a chain may become where no number of parts is given. Each is written and planned; a chain along
/// a vector may have as many rows as that has elements.
const NODES: u64 = 1 << 16;

/// What becomes of a search when a node stays above the target, whatever is done in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hopeless {
    /// It ends: less elsewhere makes the sum no lower.
    Stop,
    /// It goes on: less elsewhere may be packed better. The node is brought down to so many bytes, which can be reached
    /// everywhere.
    Skip(u64),
}

/// A chain, and how many parts it is done in.
#[derive(Clone, Debug)]
pub(super) struct TiledChain {
    pub(super) chain: RowChain,
    pub(super) parts: u64,
    pub(super) bytes: Bytes,
    pub(super) cost: FitCost,
}

/// A chain, and what it takes.
#[derive(Clone, Debug)]
struct ChainBytes {
    chain: RowChain,
    /// What is there in each part.
    fixed: u64,
    /// What would be alive of a part with all rows.
    rows: u64,
    /// Bytes that each part reads of what is not split: weights, and what is computed once.
    weights: u64,
    /// The nodes of a part, and those that give results their bytes.
    launches: [u64; 2],
}

impl ChainBytes {
    fn bytes(&self, parts: u64) -> u64 {
        let (rows, all) = (self.chain.rows().div_ceil(parts), self.chain.rows());
        self.fixed.saturating_add((u128::from(self.rows) * u128::from(rows)).div_ceil(u128::from(all)) as u64)
    }

    /// Returns the most parts it may have.
    fn most_parts(&self, most: Option<u64>) -> u64 {
        most.unwrap_or(NODES / self.launches[0].max(1)).min(self.chain.rows())
    }

    /// Returns the fewest parts with which it takes no more than `target`, if it may have as many.
    fn parts(&self, target: u64, most: Option<u64>) -> Option<u64> {
        let room = target.checked_sub(self.fixed)?;
        let rows = (u128::from(room) * u128::from(self.chain.rows()))
            .checked_div(self.rows.into())
            .map_or(self.chain.rows(), |rows| u64::try_from(rows).unwrap_or(u64::MAX));
        let parts = if rows == 0 { return None } else { self.chain.rows().div_ceil(rows).max(2) };
        debug_assert!(self.bytes(parts) <= target, "a part has no more rows than there is room for");
        (parts <= self.most_parts(most)).then_some(parts)
    }

    fn cost(&self, parts: u64) -> FitCost {
        let [part, results] = self.launches;
        let again = parts.saturating_sub(1);
        FitCost {
            weights: Bytes(self.weights.saturating_mul(again)),
            launches: part.saturating_mul(again).saturating_add(results),
        }
    }

    fn tiled(&self, parts: u64) -> TiledChain {
        TiledChain { chain: self.chain.clone(), parts, bytes: Bytes(self.bytes(parts)), cost: self.cost(parts) }
    }
}

/// What is known of a plan.
pub(super) struct TileSearch<'a> {
    chains: RowChains<'a>,
    memory: MemoryId,
    most_parts: Option<u64>,
    inputs: Inputs,
    /// The bytes alive at each node.
    alive: Vec<u64>,
    /// The bytes alive before the run, and behind the last node.
    edges: u64,
    /// The bytes that are needed on both sides of the point before each node.
    across: Vec<u64>,
}

impl<'a> TileSearch<'a> {
    pub(super) fn new(plan: &'a GraphPlan, memory: MemoryId, most_parts: Option<u64>) -> Self {
        let assigned = plan.assigned();
        let chains = RowChains::new(assigned, plan.options().unread);
        let nodes = assigned.graph().nodes().len();
        let mut by_step = vec![0i128; nodes + 3];
        for it in plan.memories().iter().filter(|it| it.memory == memory) {
            for block in it.plan.problem().blocks().iter() {
                by_step[(block.life.start().get() as usize).min(nodes + 2)] += i128::from(block.size.get());
                by_step[(block.life.end().get() as usize).min(nodes + 2)] -= i128::from(block.size.get());
            }
        }
        let mut across = vec![0i128; nodes + 3];
        for (index, life) in chains.lives.of_root.iter().enumerate() {
            let is_here = life.is_allocated() && life.memory.map(|it| assigned.owner(it)) == Some(memory);
            if let (true, Some(root), Some(sized_by)) = (is_here, TensorId::from_index(index), life.memory) {
                let size = i128::from(assigned.alloc_size(root, sized_by).get());
                // Before node `n` there is what began at step `n` or earlier and is used at step `n + 1` or later.
                across[(life.first as usize).min(nodes + 2)] += size;
                across[(life.last as usize).min(nodes + 2)] -= size;
            }
        }
        let (by_step, across) = (sums(&by_step), sums(&across));
        let edges = by_step[0].max(by_step[nodes + 1]);
        let inputs = if plan.options().reuse == Reuse::Extended { Inputs::Overwrite } else { Inputs::Keep };
        Self { chains, memory, most_parts, inputs, alive: by_step[1..=nodes].to_vec(), edges, across }
    }

    /// Returns chains that take no more than `target`, as far as there are any, besides those that are `taken`; and the
    /// most that is alive then.
    pub(super) fn chains_below(&self, target: u64, taken: &[TiledChain], hopeless: Hopeless) -> (Vec<TiledChain>, u64) {
        let mut found: Vec<TiledChain> = Vec::new();
        let mut hot: Vec<usize> = (0..self.alive.len()).filter(|at| self.alive[*at] > target).collect();
        hot.sort_by_key(|at| (core::cmp::Reverse(self.alive[*at]), *at));
        let mut floor = self.edges;
        // Where each chain starts and ends.
        let mut ranges: BTreeMap<usize, usize> =
            taken.iter().map(|it| it.chain.nodes()).map(|nodes| (nodes.start, nodes.end)).collect();
        for at in hot {
            // More is alive elsewhere, whatever is done here.
            if hopeless == Hopeless::Stop && floor > target && self.alive[at] <= floor {
                break;
            }
            let start = ranges.range(..=at).next_back().map_or(0, |(_, end)| *end);
            if start > at {
                continue;
            }
            let end = ranges.range(at..).next().map_or(self.alive.len(), |(start, _)| *start);
            let (start, end) = (start.max(at.saturating_sub(REACH)), end.min(at + REACH));
            match self.best_or_floor(at, &(start..end), target, hopeless) {
                Some(chain) => {
                    floor = floor.max(chain.bytes.get());
                    ranges.insert(chain.chain.nodes().start, chain.chain.nodes().end);
                    found.push(chain);
                }
                None => floor = floor.max(self.alive[at]),
            }
        }
        (found, floor)
    }

    /// Returns the best chain over a node; where none reaches the target and the search goes on, one that reaches the floor, if
    /// that is less than there is.
    fn best_or_floor(&self, at: usize, limits: &Range<usize>, target: u64, hopeless: Hopeless) -> Option<TiledChain> {
        let best = self.best_at(at, limits, target)?;
        match hopeless {
            Hopeless::Skip(floor) if best.bytes.get() > target => {
                if self.alive[at] > floor {
                    self.best_at(at, limits, floor)
                } else {
                    None
                }
            }
            _ => Some(best),
        }
    }

    /// Returns the chain over a node that takes no more than `target` with the fewest parts; if none does, the one that takes
    /// least.
    fn best_at(&self, at: usize, limits: &Range<usize>, target: u64) -> Option<TiledChain> {
        let candidates = self.candidates(at, limits);
        let fitting = candidates.iter().filter_map(|it| Some((it, it.parts(target, self.most_parts)?)));
        let rank = |(it, parts): &(&ChainBytes, u64)| {
            let cost = it.cost(*parts);
            (*parts, cost.weights, cost.launches, it.bytes(*parts))
        };
        if let Some((it, parts)) = fitting.min_by_key(rank) {
            return Some(it.tiled(parts));
        }
        let most = |it: &ChainBytes| it.most_parts(self.most_parts);
        let least = candidates.iter().min_by_key(|it| (it.bytes(most(it)), it.cost(most(it)).weights))?;
        (least.bytes(most(least)) < self.alive[at]).then(|| least.tiled(most(least)))
    }

    fn candidates(&self, at: usize, limits: &Range<usize>) -> Vec<ChainBytes> {
        let (mut candidates, mut met) = (Vec::new(), Vec::new());
        for root in self.seeds(at) {
            let Some(creator) = self.chains.creator(root).filter(|it| limits.contains(it)) else { continue };
            for dim in 0..4 {
                // Several tensors of a chain grow into the same one.
                let grown =
                    self.chains.grown(creator, dim, limits).filter(|it| it.0.contains(&at) && !met.contains(it));
                let Some((nodes, rows, splits)) = grown else { continue };
                met.push((nodes.clone(), rows, splits.clone()));
                for start in self.narrowest(nodes.start..at + 1, at) {
                    for end in self.narrowest(at + 1..nodes.end + 1, at) {
                        let chain = self.chains.chain(start..end, rows, &splits, self.inputs);
                        candidates.extend(chain.map(|chain| self.chain_bytes(chain)));
                    }
                }
            }
        }
        candidates
    }

    /// Returns the largest roots that a node reads or writes.
    fn seeds(&self, at: usize) -> Vec<TensorId> {
        let graph = self.chains.graph();
        let node = graph.nodes()[at];
        let mut roots: Vec<TensorId> =
            graph.sources(node).iter().flatten().chain([&node]).map(|it| graph.root(*it)).collect();
        roots.sort_by_key(|root| (core::cmp::Reverse(graph.tensor(*root).nbytes()), *root));
        roots.dedup();
        roots.retain(|root| self.chains.creator(*root).is_some());
        roots.truncate(SEEDS);
        roots
    }

    /// Returns the points before nodes at which least is needed on both sides, of those with equal bytes the nearest.
    fn narrowest(&self, points: Range<usize>, at: usize) -> Vec<usize> {
        let mut points: Vec<usize> = points.collect();
        points.sort_by_key(|point| (self.across[*point], point.abs_diff(at)));
        points.truncate(ENDS);
        points
    }

    /// Returns what a chain takes.
    fn chain_bytes(&self, chain: RowChain) -> ChainBytes {
        let mut fixed = self.across[chain.nodes().start];
        let over = chain.over.map(|(result, _)| result);
        for root in chain.results.iter().filter(|root| Some(**root) != over) {
            fixed = fixed.saturating_add(self.size(*root));
        }
        let (graph, mut weights, mut nodes) = (self.chains.graph(), 0u64, 0);
        for at in chain.nodes() {
            let node = graph.nodes()[at];
            if graph.tensor(node).op.writes_nothing() {
                continue;
            }
            let split = self.chains.split_of(node, &chain.splits, chain.rows());
            let Some(needs) = split.and_then(|split| self.chains.needs(node, split, chain.rows())) else {
                fixed = fixed.saturating_add(if graph.root(node) == node { self.size(node) } else { 0 });
                continue;
            };
            nodes += 1;
            let whole = graph.sources(node).iter().zip(needs).filter(|(_, need)| *need == Need::Whole);
            let bytes = whole.filter_map(|(source, _)| Some(graph.tensor((*source)?).nbytes().get()));
            weights = bytes.fold(weights, u64::saturating_add);
        }
        let results = (chain.results.len() - usize::from(over.is_some())) as u64;
        let rows = self.alive_rows(&chain);
        ChainBytes { chain, fixed, rows, weights, launches: [nodes, results] }
    }

    /// Returns the bytes of a root in this memory.
    fn size(&self, root: TensorId) -> u64 {
        let assigned = self.chains.assigned;
        match self.chains.lives.of_root[root.index()].memory {
            Some(memory) if assigned.owner(memory) == self.memory => assigned.alloc_size(root, memory).get(),
            _ => 0,
        }
    }

    /// Returns the most that is alive at once of the roots of a chain that are not results, if all rows were one part.
    fn alive_rows(&self, chain: &RowChain) -> u64 {
        let graph = self.chains.graph();
        let last: BTreeMap<TensorId, usize> = chain
            .splits
            .keys()
            .filter(|root| !chain.results.contains(root))
            .filter_map(|root| Some((*root, *self.chains.users[*root].last()?)))
            .collect();
        let mut dying: BTreeMap<usize, u64> = BTreeMap::new();
        for (root, end) in &last {
            *dying.entry(*end).or_default() += self.size(*root);
        }
        let dying = |at: usize| dying.get(&at).copied().unwrap_or(0);
        let (mut alive, mut most) = (0u64, 0u64);
        for at in chain.nodes() {
            let node = graph.nodes()[at];
            if graph.tensor(node).op == Op::None || !last.contains_key(&graph.root(node)) {
                alive = alive.saturating_sub(dying(at));
                continue;
            }
            if graph.root(node) == node && !graph.tensor(node).op.writes_nothing() {
                alive = alive.saturating_add(self.size(node));
                most = most.max(alive.saturating_sub(self.overwritten(&last, at)));
            }
            alive = alive.saturating_sub(dying(at));
        }
        most
    }

    /// Returns the bytes of a dying root that a node writes its result over.
    fn overwritten(&self, last: &BTreeMap<TensorId, usize>, at: usize) -> u64 {
        let graph = self.chains.graph();
        let node = graph.nodes()[at];
        let sources = graph.sources(node);
        let may = |slot: usize| {
            let root = graph.root(sources[slot]?);
            let alone = sources.iter().flatten().filter(|other| graph.root(**other) == root).count() == 1;
            (alone && last.get(&root) == Some(&at) && graph.may_overwrite(node, slot)).then(|| self.size(root))
        };
        match self.inputs {
            Inputs::Overwrite => (0..sources.len()).find_map(may).unwrap_or(0),
            Inputs::Keep => 0,
        }
    }
}

/// Returns the running sums of changes.
fn sums(changes: &[i128]) -> Vec<u64> {
    let mut sum = 0i128;
    let running = changes.iter().map(|change| {
        sum += change;
        u64::try_from(sum.max(0)).unwrap_or(u64::MAX)
    });
    running.collect()
}
