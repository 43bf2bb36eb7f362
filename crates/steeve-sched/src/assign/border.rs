//! Moves borders between workers to where fewer bytes cross them.
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
//! Only nodes beside a border move, so the workers do not change more often; only those that cost no more than reading their sources,
//! so nothing expensive goes to a slower device; and only where strictly fewer bytes are copied, so it comes to an end. O(edges
//! of the nodes beside borders) for each round.

use steeve_graph::{Id, Op, TensorId};

use super::Assigner;
use crate::ground::{Ground, SpaceId};
use crate::{Reason, WorkerId};

/// How often all borders are looked at. A border moves by one node or more in each round.
const ROUNDS: usize = 4;

/// Moves what is worth moving.
pub(super) fn shift(assigner: &mut Assigner<'_>) {
    if assigner.ground.workers.len() < 2 {
        return;
    }
    let mut borders = Borders::new(assigner);
    for _ in 0..ROUNDS {
        let count = borders.nodes.len();
        let moved = (0..count).filter(|index| borders.visit(*index)).count()
            + (0..count).rev().filter(|index| borders.visit(*index)).count();
        if moved == 0 {
            return;
        }
    }
}

struct Borders<'a, 'b> {
    assigner: &'a mut Assigner<'b>,
    /// The nodes that compute something, in order.
    nodes: Vec<TensorId>,
    /// Made when first asked for: many graphs have no border at all.
    readers: Option<Readers>,
}

/// Who reads each root: of root `r` the edges from `first[r]` to `first[r + 1]`.
struct Readers {
    first: Vec<usize>,
    /// The node, and how many bytes of the root it reads.
    edges: Vec<(TensorId, u64)>,
}

impl<'a, 'b> Borders<'a, 'b> {
    fn new(assigner: &'a mut Assigner<'b>) -> Self {
        let nodes = assigner.ground.computing().collect();
        Self { assigner, nodes, readers: None }
    }

    fn worker(&self, index: Option<usize>) -> Option<WorkerId> {
        let node = self.nodes.get(index?)?;
        self.assigner.get(self.assigner.ground.unit(*node))
    }

    /// Moves a node to the other side of a border, if it stands beside one and that is better.
    fn visit(&mut self, index: usize) -> bool {
        let Some(now) = self.worker(Some(index)) else { return false };
        let (before, after) = (self.worker(index.checked_sub(1)), self.worker(Some(index + 1)));
        // Whoever joins a neighbour leaves at most as many borders as there were.
        let others: Vec<WorkerId> = [before, after].into_iter().flatten().filter(|other| *other != now).collect();
        if others.is_empty() || !self.is_free(index) {
            return false;
        }
        let node = self.nodes[index];
        let Some(old) = self.copied(node, now) else { return false };
        for other in others {
            if self.copied(node, other).is_some_and(|new| new < old) && self.assigner.runs(node, other) {
                self.assigner.set(node, other, Reason::Border { from: now });
                return true;
            }
        }
        false
    }

    /// Whether a node is cheap, and was put where it is for want of a better reason.
    fn is_free(&self, index: usize) -> bool {
        let (ground, node) = (self.assigner.ground, self.nodes[index]);
        let reason = self.assigner.assigned.of_unit[node.index()].map(|(_, reason)| reason);
        let unforced =
            matches!(reason, Some(Reason::Neighbour { .. } | Reason::Sources { .. } | Reason::Border { .. }));
        let alone = ground.unit(node) == node && self.assigner.members(node).count() == 1;
        unforced && alone && is_cheap(ground.graph.tensor(node).op)
    }

    /// The bytes that are copied of a node's sources and of its result, if a worker computes it. `None` if they can't be
    /// counted.
    fn copied(&mut self, node: TensorId, worker: WorkerId) -> Option<u64> {
        let graph = self.assigner.ground.graph;
        let mut roots: Vec<TensorId> =
            graph.sources(node).iter().copied().flatten().map(|source| graph.root(source)).chain([node]).collect();
        roots.sort_unstable();
        roots.dedup();
        roots.into_iter().try_fold(0u64, |sum, root| sum.checked_add(self.copied_of(root, node, worker)))
    }

    /// The bytes of a root that are copied, once into each memory that needs them, if `node` is computed by `worker`.
    fn copied_of(&mut self, root: TensorId, node: TensorId, worker: WorkerId) -> u64 {
        let ground = self.assigner.ground;
        let Readers { first, edges } = self.readers.get_or_insert_with(|| Readers::new(ground));
        let edges = &edges[first[root.index()]..first[root.index() + 1]];
        let reads = |reader| if reader == node { Some(worker) } else { self.assigner.get(ground.unit(reader)) };
        let home = match self.assigner.assigned.space(ground, root) {
            _ if root == node => Some(ground.space_of(worker)),
            Some(home) => Some(home),
            // What nobody has placed yet follows its first reader.
            None => edges.first().and_then(|(reader, _)| reads(*reader)).map(|first| ground.space_of(first)),
        };
        let Some(home) = home else { return 0 };
        let mut copies: Vec<(SpaceId, u64)> = Vec::new();
        for &(reader, bytes) in edges {
            let Some(by) = reads(reader).filter(|by| !ground.reaches(*by, home)) else { continue };
            let space = ground.space_of(by);
            match copies.iter_mut().find(|(known, _)| *known == space) {
                Some((_, most)) => *most = (*most).max(bytes),
                None => copies.push((space, bytes)),
            }
        }
        copies.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
    }
}

impl Readers {
    fn new(ground: &Ground<'_>) -> Self {
        let graph = ground.graph;
        let mut all: Vec<(TensorId, TensorId, u64)> = Vec::new();
        for node in ground.computing() {
            for source in graph.sources(node).iter().copied().flatten() {
                all.push((graph.root(source), node, graph.tensor(source).nbytes().0));
            }
        }
        let mut first = vec![0; graph.tensors().len() + 1];
        for (root, ..) in &all {
            first[root.index() + 1] += 1;
        }
        for index in 1..first.len() {
            first[index] += first[index - 1];
        }
        // Stable, so readers stay in order.
        all.sort_by_key(|(root, ..)| *root);
        Self { first, edges: all.into_iter().map(|(_, node, bytes)| (node, bytes)).collect() }
    }
}

/// Whether an operation costs about as much as reading its sources.
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
