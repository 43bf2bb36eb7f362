//! The proven plans of single memories, and all of them as one.

use alloc::vec::Vec;

use steeve_plan::{
    BlockId, Bytes, Id, IdVec, PlaceOutcome, Placement, Plan, Strategy, Verdict, Violations, certify, place_watched,
};

use super::{Given, GraphPlan, GraphPlanError, GraphStrategy, MemoryPlan, PlanOptions, Watch};
use crate::draft::{Draft, MemoryProblem, Prefixes, Share, ShareId};
use crate::ggml::Simulation;
use crate::{AssignedGraph, Graph, MemoryId, TensorId};

/// A memory's proven plan, and what else is known of it.
pub(super) struct Part {
    pub(super) memory: MemoryId,
    /// The share of each block.
    pub(super) shares: Vec<ShareId>,
    pub(super) plan: Plan,
    pub(super) verdict: Verdict,
    pub(super) at_least: Bytes,
    pub(super) keeps_hold: bool,
}

impl Part {
    /// ggml's places, where its last chunk ignores the limit: that is its answer all the same.
    pub(super) fn as_ggml(part: MemoryProblem, run: &Simulation) -> Result<Self, Violations> {
        let unlimited = part.problem.max_buffer().map(|_| part.problem.clone().without_max_buffer());
        let (memory, shares) = (part.memory, part.shares.clone());
        match (Self::of_ggml(part, run), unlimited) {
            (Err(_), Some(problem)) => Self::of_ggml(MemoryProblem { memory, problem, shares }, run),
            (answer, _) => answer,
        }
    }

    /// ggml's places for the blocks of one memory.
    pub(super) fn of_ggml(part: MemoryProblem, run: &Simulation) -> Result<Self, Violations> {
        let MemoryProblem { memory, problem, shares } = part;
        let places: IdVec<BlockId, _> = shares.iter().map(|share| run.places[*share]).collect();
        let plan = certify(problem, Placement::new(places))?;
        let verdict = if plan.is_optimal() { Verdict::Optimal } else { Verdict::Fits };
        Ok(Self { memory, shares, at_least: plan.bound().bytes, plan, verdict, keeps_hold: true })
    }

    /// Our places for the blocks of one memory.
    pub(super) fn placed(
        assigned: &AssignedGraph,
        part: MemoryProblem,
        options: &PlanOptions,
        watch: &mut Watch<'_>,
    ) -> Result<Self, GraphPlanError> {
        let MemoryProblem { memory, problem, shares } = part;
        let strategy = match options.strategy {
            GraphStrategy::Best(best) => Strategy::Best(best),
            GraphStrategy::Fast | GraphStrategy::Ggml => Strategy::Fast,
        };
        let PlaceOutcome { placement, verdict, at_least, .. } =
            place_watched(&problem, &strategy, watch).map_err(|error| {
                let memory = assigned.memories()[memory].name.clone();
                GraphPlanError::Place { memory, error }
            })?;
        match certify(problem, placement) {
            Ok(plan) => Ok(Self { memory, shares, plan, verdict, at_least, keeps_hold: true }),
            Err(wrong) => unreachable!("a strategy made a wrong placement: {wrong}"),
        }
    }

    /// The problem that it solves, to be solved once more.
    pub(super) fn problem(&self) -> MemoryProblem {
        MemoryProblem { memory: self.memory, problem: self.plan.problem().clone(), shares: self.shares.clone() }
    }
}

/// Our places for the shares of all memories.
pub(super) fn placed(
    assigned: &AssignedGraph,
    draft: &Draft,
    prefixes: &Prefixes,
    options: &PlanOptions,
    watch: &mut Watch<'_>,
) -> Result<Vec<Part>, GraphPlanError> {
    let problems = draft.problems(assigned, prefixes)?;
    problems.into_iter().map(|problem| Part::placed(assigned, problem, options, watch)).collect()
}

/// The plans of all memories as one.
pub(super) fn assemble(assigned: &AssignedGraph, options: &PlanOptions, draft: &Draft, parts: Vec<Part>) -> GraphPlan {
    let mut memories = Vec::with_capacity(parts.len());
    let mut block_of = alloc::vec![None; draft.shares.len()];
    for (index, part) in (0..).zip(parts) {
        let Part { memory, shares, plan, verdict, at_least, keeps_hold } = part;
        for ((block, it), share) in plan.problem().blocks().pairs().zip(&shares) {
            // The first block of a share is its own, and the other a prefix that outlives it.
            let given = Given { part: index, block, asked: draft.shares[*share].asked, room: it.size };
            block_of[share.index()].get_or_insert(given);
        }
        let tensors = shares.iter().map(|share| draft.shares[*share].tensor).collect();
        let keeps_hold = keeps_hold && options.strategy != GraphStrategy::Ggml;
        let planned_for = assigned.memories()[memory].clone();
        memories.push(MemoryPlan { memory, plan, verdict, at_least, tensors, keeps_hold, planned_for });
    }
    let given = |share: &Option<ShareId>| share.and_then(|share| block_of[share.index()]);
    let given = draft.of_tensor.iter().map(given).collect();
    let (unlisted, take_overs) = (unlisted(assigned.graph()), take_overs(assigned.graph(), draft));
    GraphPlan { assigned: assigned.clone(), options: *options, memories, given, unlisted, take_overs }
}

/// Sources and roots that are in neither list, each once.
pub(crate) fn unlisted(graph: &Graph) -> Vec<TensorId> {
    let mut known = alloc::vec![false; graph.tensors().len()];
    for tensor in graph.leafs().iter().chain(graph.nodes()) {
        known[tensor.index()] = true;
    }
    let mut unlisted = Vec::new();
    let mut meet = |tensor: TensorId| {
        let is_new = !core::mem::replace(&mut known[tensor.index()], true);
        if is_new {
            unlisted.push(tensor);
        }
        is_new
    };
    for node in graph.leafs().iter().chain(graph.nodes()) {
        meet(graph.root(*node));
        for source in graph.sources(*node).iter().copied().flatten() {
            // The root of a listed source is met at the turn of that source.
            if meet(source) {
                meet(graph.root(source));
            }
        }
    }
    unlisted
}

/// Which slot each node took over.
pub(super) fn take_overs(graph: &Graph, draft: &Draft) -> Vec<(TensorId, u32)> {
    let slot = |node: &TensorId| {
        let share: &Share = &draft.shares[draft.of_tensor[node.index()]?];
        let taken = draft.shares[share.follows?].tensor;
        let same = |source: &Option<TensorId>| source.is_some_and(|source| graph.root(source) == taken);
        let slot = graph.sources(*node).iter().position(same)?;
        Some((*node, slot as u32))
    };
    graph.nodes().iter().filter_map(slot).collect()
}
