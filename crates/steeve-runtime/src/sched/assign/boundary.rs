//! Moves boundaries between workers to where fewer bytes cross them.
//!
//! Spreading from node to node stops at the next node that is certain, wherever that is. A residual sum in front of a layer
//! on another device is such a place:
//!
//! ```text
//!   worker   cpu       gpu   gpu    gpu            worker   cpu       cpu   gpu    gpu
//!   node     product   add   norm   product   ->   node     product   add   norm   product
//!   copied   product and residual                  copied   the sum
//! ```
//!
//! Only nodes beside a boundary move, so the workers do not change more often; only those that cost no more than
//! reading their sources, so nothing expensive goes to a slower device; and only where strictly fewer bytes are copied,
//! so it terminates. O(edges of the nodes beside boundaries * workers) for each round.

use steeve_graph::{Id, Op, TensorId};

use super::Assigner;
use crate::sched::placement_facts::{MemorySpaceId, PlacementFacts};
use crate::sched::{AssignReason, WorkerId};

/// How often all boundaries are visited. A boundary moves by one node or more in each round.
const ROUNDS: usize = 4;

/// Moves cheap nodes across boundaries where that copies fewer bytes.
pub(super) fn shift_boundaries(assigner: &mut Assigner<'_>) {
    if assigner.facts.workers.len() < 2 {
        return;
    }
    let mut shifter = BoundaryShifter::new(assigner);
    for _ in 0..ROUNDS {
        let count = shifter.nodes.len();
        let moved = (0..count).filter(|index| shifter.visit(*index)).count()
            + (0..count).rev().filter(|index| shifter.visit(*index)).count();
        if moved == 0 {
            return;
        }
    }
}

struct BoundaryShifter<'a, 'b> {
    assigner: &'a mut Assigner<'b>,
    /// The nodes that compute something, in order.
    nodes: Vec<TensorId>,
    /// Built on first use: many graphs have no boundary at all.
    readers: Option<ReaderCounts>,
}

/// How often each root is read, by worker.
struct ReaderCounts {
    /// How often each worker reads each root.
    counts: Vec<u32>,
    workers: usize,
    /// The most bytes of each root that a node reads.
    bytes: Vec<u64>,
    /// The node that reads each root first.
    first: Vec<Option<TensorId>>,
}

impl<'a, 'b> BoundaryShifter<'a, 'b> {
    fn new(assigner: &'a mut Assigner<'b>) -> Self {
        let nodes = assigner.facts.computing().collect();
        Self { assigner, nodes, readers: None }
    }

    fn worker(&self, index: Option<usize>) -> Option<WorkerId> {
        let node = self.nodes.get(index?)?;
        self.assigner.get(self.assigner.facts.unit(*node))
    }

    /// Moves a node to the other side of a boundary, if it is beside one and that copies fewer bytes. Returns whether
    /// it moved.
    fn visit(&mut self, index: usize) -> bool {
        let Some(now) = self.worker(Some(index)) else { return false };
        let (before, after) = (self.worker(index.checked_sub(1)), self.worker(Some(index + 1)));
        // A node that joins a neighbour leaves at most as many boundaries as there were.
        let others = [before, after].into_iter().flatten().filter(|other| *other != now);
        if others.clone().next().is_none() || !self.is_free(index) {
            return false;
        }
        let node = self.nodes[index];
        let mut readers = self.readers.take().unwrap_or_else(|| ReaderCounts::new(self.assigner));
        let old = self.copied(&readers, node, now);
        let better = others.into_iter().find(|other| {
            readers.shift(self.assigner.facts, node, now, *other);
            let new = self.copied(&readers, node, *other);
            readers.shift(self.assigner.facts, node, *other, now);
            new < old && self.assigner.runs(node, *other)
        });
        if let Some(better) = better {
            readers.shift(self.assigner.facts, node, now, better);
            self.assigner.set(node, better, AssignReason::Boundary { from: now });
        }
        self.readers = Some(readers);
        better.is_some()
    }

    /// Returns whether a node is cheap, and was assigned without a stronger reason.
    fn is_free(&self, index: usize) -> bool {
        let (facts, node) = (self.assigner.facts, self.nodes[index]);
        let reason = self.assigner.assigned.of_unit[node.index()].map(|(_, reason)| reason);
        let unforced = matches!(
            reason,
            Some(AssignReason::Neighbour { .. } | AssignReason::Sources { .. } | AssignReason::Boundary { .. })
        );
        let alone = facts.unit(node) == node && self.assigner.members(node).count() == 1;
        unforced && alone && is_cheap(facts.graph.tensor(node).op)
    }

    /// Returns the bytes that are copied of a node's sources and of its result, if `worker` computes it and is counted
    /// as a reader.
    fn copied(&self, readers: &ReaderCounts, node: TensorId, worker: WorkerId) -> u64 {
        let graph = self.assigner.facts.graph;
        let sources = graph.sources(node).iter().copied().flatten().map(|source| graph.root(source));
        let mut roots: Vec<TensorId> = sources.chain([node]).collect();
        roots.sort_unstable();
        roots.dedup();
        roots.iter().fold(0, |sum: u64, root| sum.saturating_add(self.copied_of(readers, *root, node, worker)))
    }

    /// Returns the bytes of a root that are copied, once into each memory that needs them.
    fn copied_of(&self, readers: &ReaderCounts, root: TensorId, node: TensorId, worker: WorkerId) -> u64 {
        let facts = self.assigner.facts;
        let reads = |reader| if reader == node { Some(worker) } else { self.assigner.get(facts.unit(reader)) };
        let source_space = match self.assigner.assigned.space(facts, root) {
            _ if root == node => Some(facts.space_of(worker)),
            Some(space) => Some(space),
            // A root without a location follows its first reader.
            None => readers.first[root.index()].and_then(reads).map(|first| facts.space_of(first)),
        };
        let Some(source_space) = source_space else { return 0 };
        let mut spaces: Vec<MemorySpaceId> = Vec::new();
        for by in facts.workers.ids().filter(|by| readers.count(root, *by) > 0 && !facts.reaches(*by, source_space)) {
            let space = facts.space_of(by);
            if !spaces.contains(&space) {
                spaces.push(space);
            }
        }
        readers.bytes[root.index()].saturating_mul(spaces.len() as u64)
    }
}

impl ReaderCounts {
    fn new(assigner: &Assigner<'_>) -> Self {
        let facts = assigner.facts;
        let (tensors, workers) = (facts.graph.tensors().len(), facts.workers.len());
        let counts = vec![0; tensors * workers];
        let mut readers = Self { counts, workers, bytes: vec![0; tensors], first: vec![None; tensors] };
        for node in facts.computing() {
            let worker = assigner.get(facts.unit(node));
            for source in facts.graph.sources(node).iter().copied().flatten() {
                let root = facts.graph.root(source);
                let (bytes, first) = (&mut readers.bytes[root.index()], &mut readers.first[root.index()]);
                *bytes = (*bytes).max(facts.graph.tensor(source).nbytes().0);
                first.get_or_insert(node);
                if let Some(worker) = worker {
                    readers.counts[root.index() * workers + worker.index()] += 1;
                }
            }
        }
        readers
    }

    fn count(&self, root: TensorId, worker: WorkerId) -> u32 {
        self.counts[root.index() * self.workers + worker.index()]
    }

    /// Counts the sources of a node as read by `to` and no longer by `from`.
    fn shift(&mut self, facts: &PlacementFacts<'_>, node: TensorId, from: WorkerId, to: WorkerId) {
        for source in facts.graph.sources(node).iter().copied().flatten() {
            let first = facts.graph.root(source).index() * self.workers;
            self.counts[first + from.index()] -= 1;
            self.counts[first + to.index()] += 1;
        }
    }
}

/// Returns whether an operation costs about as much as reading its sources.
fn is_cheap(op: Op) -> bool {
    matches!(
        op,
        Op::Dup
            | Op::Cont
            | Op::Cpy
            | Op::Add
            | Op::Add1
            | Op::AddId
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Scale
            | Op::Sqr
            | Op::Sqrt
            | Op::Log
            | Op::Clamp
            | Op::Concat
            | Op::Repeat
            | Op::GetRows
            | Op::Norm
            | Op::RmsNorm
            | Op::L2Norm
            | Op::GroupNorm
            | Op::SumRows
            | Op::Mean
            | Op::Sum
            | Op::Rope
            | Op::Unary(_)
            | Op::Glu(_)
    )
}
