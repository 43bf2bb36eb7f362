//! Workers in, runs of consecutive nodes on one worker out, with what each of them cannot read as it stands. O(edges).
//!
//! ```text
//!   node     0    1    2    3    4    5
//!   worker   gpu  gpu  cpu  cpu  gpu  gpu       node 5 needs a weight that the gpu can't read
//!   split    [ 0     ] [ 1     ] [2 ] [3 ]      so it starts a split of its own
//! ```

use std::collections::BTreeSet;
use std::ops::Range;

use steeve_graph::{Op, TensorId};

use crate::assign::Assigned;
use crate::ground::{Ground, SpaceId};
use crate::worker::WorkerId;

/// Why a split starts where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The graph starts.
    Start,
    /// The nodes before are another worker's.
    Worker,
    /// A weight has to be copied, so that the memory of the one before is free again.
    Weight,
}

/// Consecutive nodes on one worker, and what has to be copied for them.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) worker: WorkerId,
    pub(crate) cause: Cause,
    /// Places in the caller's list of nodes.
    pub(crate) nodes: Range<usize>,
    pub(crate) needs: Vec<Need>,
}

/// A source that a worker can't read where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) node: TensorId,
    pub(crate) slot: usize,
    pub(crate) source: TensorId,
}

/// Cuts the nodes into pieces. With several copies in turn, workers that lag behind the host get copies also of what the
/// caller writes into memory that they can read, so that the caller can write it again.
pub(crate) fn cut(ground: &Ground<'_>, assigned: &Assigned, in_turn: bool) -> Vec<Piece> {
    let graph = ground.graph;
    let mut pieces: Vec<Piece> = Vec::new();
    // Which weights have been copied into which memory.
    let mut copied: BTreeSet<(TensorId, SpaceId)> = BTreeSet::new();
    // Those of the last piece whose copies serve nobody else, because of experts only some are copied.
    let mut copied_here: BTreeSet<TensorId> = BTreeSet::new();
    for (index, &node) in graph.nodes().iter().enumerate().filter(|(_, node)| ground.computes(**node)) {
        let worker = assigned.worker(ground, node);
        let is_needed = |source: TensorId| {
            let root = graph.root(source);
            let reads = assigned.space(ground, root).is_none_or(|space| ground.reaches(worker, space));
            !reads || (in_turn && ground.workers[worker].is_async() && ground.is_filled_by_caller(root))
        };
        let sources = graph.sources(node).iter().copied().enumerate();
        let needs: Vec<Need> = sources
            .filter_map(|(slot, source)| Some(Need { node, slot, source: source? }))
            .filter(|need| is_needed(need.source))
            .collect();
        let space = ground.space_of(worker);
        let weights = || needs.iter().map(|need| graph.root(need.source)).filter(|root| ground.is_weight(*root));
        let is_there = |weight: &TensorId| copied.contains(&(*weight, space)) || copied_here.contains(weight);
        let cause = match pieces.last() {
            None => Some(Cause::Start),
            Some(piece) if piece.worker != worker => Some(Cause::Worker),
            Some(_) if !weights().all(|weight| is_there(&weight)) => Some(Cause::Weight),
            Some(_) => None,
        };
        if let Some(cause) = cause {
            // What only describes memory belongs to whoever came before, or to the first.
            let start = if pieces.is_empty() { 0 } else { index };
            pieces.push(Piece { worker, cause, nodes: start..start, needs: Vec::new() });
            copied_here.clear();
        }
        match graph.tensor(node).op {
            Op::MulMatId => copied_here.extend(weights()),
            _ => copied.extend(weights().map(|weight| (weight, space))),
        }
        if let Some(piece) = pieces.last_mut() {
            piece.needs.extend(needs);
        }
    }
    let ends: Vec<usize> = pieces.iter().skip(1).map(|piece| piece.nodes.start).chain([graph.nodes().len()]).collect();
    for (piece, end) in pieces.iter_mut().zip(ends) {
        piece.nodes.end = end;
    }
    pieces
}
