//! Splits the nodes into runs of consecutive nodes on one worker, and lists the sources that each worker cannot read in
//! place. O(edges).
//!
//! ```text
//!   node     0    1    2    3    4    5
//!   worker   gpu  gpu  cpu  cpu  gpu  gpu       node 5 needs a weight that the gpu can't read
//!   split    [ 0     ] [ 1     ] [2 ] [3 ]      so it starts a split of its own
//! ```

use std::collections::BTreeSet;
use std::ops::Range;

use steeve_graph::{Op, TensorId};

use crate::sched::assign::WorkerAssignment;
use crate::sched::placement_facts::{MemorySpaceId, PlacementFacts};
use crate::sched::worker::WorkerId;

/// The reason why a split starts at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitReason {
    /// The graph starts.
    Start,
    /// The nodes before are on another worker.
    Worker,
    /// A weight has to be copied, so that the memory of the one before is free again.
    Weight,
}

/// Consecutive nodes on one worker, and the sources that must be copied for them.
#[derive(Clone, Debug)]
pub(crate) struct PendingSplit {
    pub(crate) worker: WorkerId,
    pub(crate) reason: SplitReason,
    /// Positions in the caller's list of nodes.
    pub(crate) nodes: Range<usize>,
    pub(crate) sources: Vec<UnreadableSource>,
}

/// A source that a worker can't read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnreadableSource {
    pub(crate) node: TensorId,
    pub(crate) slot: usize,
    pub(crate) source: TensorId,
}

/// Splits the nodes. With pipelined copies, asynchronous workers also get copies of what the caller writes into memory
/// that they can read, so that the caller can write it again.
pub(crate) fn split_graph(
    facts: &PlacementFacts<'_>,
    assigned: &WorkerAssignment,
    pipelined: bool,
) -> Vec<PendingSplit> {
    let graph = facts.graph;
    let mut splits: Vec<PendingSplit> = Vec::new();
    // Which weights have been copied into which memory.
    let mut copied: BTreeSet<(TensorId, MemorySpaceId)> = BTreeSet::new();
    // Weights of the last split whose copies serve no other split, because only some experts are copied.
    let mut copied_here: BTreeSet<TensorId> = BTreeSet::new();
    for (index, &node) in graph.nodes().iter().enumerate().filter(|(_, node)| facts.computes(**node)) {
        let worker = assigned.worker(facts, node);
        let is_needed = |source: TensorId| {
            let root = graph.root(source);
            let reads = assigned.space(facts, root).is_none_or(|space| facts.reaches(worker, space));
            !reads || (pipelined && facts.workers[worker].is_async() && facts.is_filled_by_caller(root))
        };
        let sources = graph.sources(node).iter().copied().enumerate();
        let unreadable: Vec<UnreadableSource> = sources
            .filter_map(|(slot, source)| Some(UnreadableSource { node, slot, source: source? }))
            .filter(|need| is_needed(need.source))
            .collect();
        let space = facts.space_of(worker);
        let weights = || unreadable.iter().map(|need| graph.root(need.source)).filter(|root| facts.is_weight(*root));
        let is_there = |weight: &TensorId| copied.contains(&(*weight, space)) || copied_here.contains(weight);
        let reason = match splits.last() {
            None => Some(SplitReason::Start),
            Some(split) if split.worker != worker => Some(SplitReason::Worker),
            Some(_) if !weights().all(|weight| is_there(&weight)) => Some(SplitReason::Weight),
            Some(_) => None,
        };
        if let Some(reason) = reason {
            // Nodes that only describe memory belong to the split before, or to the first.
            let start = if splits.is_empty() { 0 } else { index };
            splits.push(PendingSplit { worker, reason, nodes: start..start, sources: Vec::new() });
            copied_here.clear();
        }
        match graph.tensor(node).op {
            Op::MulMatId => copied_here.extend(weights()),
            _ => copied.extend(weights().map(|weight| (weight, space))),
        }
        if let Some(split) = splits.last_mut() {
            split.sources.extend(unreadable);
        }
    }
    let ends: Vec<usize> = splits.iter().skip(1).map(|split| split.nodes.start).chain([graph.nodes().len()]).collect();
    for (split, end) in splits.iter_mut().zip(ends) {
        split.nodes.end = end;
    }
    splits
}
