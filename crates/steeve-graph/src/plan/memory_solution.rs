//! The proven plans of single memories, and all of them as one.

use alloc::vec::Vec;

use steeve_plan::{
    BlockId, Bytes, Id, IdVec, PlaceOutcome, Placement, Plan, Strategy, Verdict, Violations, certify, place_watched,
};

use super::{GraphPlan, GraphPlanError, GraphStrategy, MemoryPlan, Order, PlanOptions, SearchWatcher, TensorBlock};
use crate::ggml::GgmlSimulation;
use crate::live_ranges::{LiveRange, LiveRangeId, LiveRanges, MemoryProblem, PrefixEnds};
use crate::{AssignedGraph, Graph, MemoryId, OrderSearch, TensorId};

/// A memory's proven plan, and what else is known of it.
pub(super) struct MemorySolution {
    pub(super) memory: MemoryId,
    /// The live range of each block.
    pub(super) ranges: Vec<LiveRangeId>,
    pub(super) plan: Plan,
    pub(super) verdict: Verdict,
    pub(super) at_least: Bytes,
    pub(super) keeps_extra_lifetime: bool,
}

impl MemorySolution {
    /// Certifies ggml's places for the blocks of one memory, where its last chunk may ignore the limit on buffers.
    pub(super) fn from_simulation_unlimited(
        memory_problem: MemoryProblem,
        run: &GgmlSimulation,
    ) -> Result<Self, Violations> {
        let unlimited =
            memory_problem.problem.max_buffer().map(|_| memory_problem.problem.clone().without_max_buffer());
        let (memory, ranges) = (memory_problem.memory, memory_problem.ranges.clone());
        match (Self::from_simulation(memory_problem, run), unlimited) {
            (Err(_), Some(problem)) => Self::from_simulation(MemoryProblem { memory, problem, ranges }, run),
            (answer, _) => answer,
        }
    }

    /// Certifies ggml's places for the blocks of one memory.
    pub(super) fn from_simulation(memory_problem: MemoryProblem, run: &GgmlSimulation) -> Result<Self, Violations> {
        let MemoryProblem { memory, problem, ranges } = memory_problem;
        let places: IdVec<BlockId, _> = ranges.iter().map(|range| run.places[*range]).collect();
        let plan = certify(problem, Placement::new(places))?;
        let verdict = if plan.is_optimal() { Verdict::Optimal } else { Verdict::Fits };
        Ok(Self { memory, ranges, at_least: plan.bound().bytes, plan, verdict, keeps_extra_lifetime: true })
    }

    /// Places and certifies the blocks of one memory.
    pub(super) fn placed(
        assigned: &AssignedGraph,
        memory_problem: MemoryProblem,
        options: &PlanOptions,
        watch: &mut SearchWatcher<'_>,
    ) -> Result<Self, GraphPlanError> {
        let MemoryProblem { memory, problem, ranges } = memory_problem;
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
            Ok(plan) => Ok(Self { memory, ranges, plan, verdict, at_least, keeps_extra_lifetime: true }),
            Err(wrong) => unreachable!("a strategy made a wrong placement: {wrong}"),
        }
    }

    /// Returns the problem that it solves, to be solved once more.
    pub(super) fn problem(&self) -> MemoryProblem {
        MemoryProblem { memory: self.memory, problem: self.plan.problem().clone(), ranges: self.ranges.clone() }
    }
}

/// Places and certifies the live ranges of all memories.
pub(super) fn placed(
    assigned: &AssignedGraph,
    live_ranges: &LiveRanges,
    prefixes: &PrefixEnds,
    options: &PlanOptions,
    watch: &mut SearchWatcher<'_>,
) -> Result<Vec<MemorySolution>, GraphPlanError> {
    let problems = live_ranges.problems(assigned, prefixes)?;
    problems.into_iter().map(|problem| MemorySolution::placed(assigned, problem, options, watch)).collect()
}

/// Assembles the solutions of all memories to one plan.
pub(super) fn assemble(
    assigned: &AssignedGraph,
    options: &PlanOptions,
    live_ranges: &LiveRanges,
    solutions: Vec<MemorySolution>,
) -> GraphPlan {
    let mut memories = Vec::with_capacity(solutions.len());
    let mut block_of = alloc::vec![None; live_ranges.ranges.len()];
    for (index, solution) in (0..).zip(solutions) {
        let MemorySolution { memory, ranges, plan, verdict, at_least, keeps_extra_lifetime } = solution;
        for ((block, it), range) in plan.problem().blocks().pairs().zip(&ranges) {
            // The first block of a share is its own, and the other a prefix that outlives it.
            let tensor_block =
                TensorBlock { memory_plan: index, block, sized_by: live_ranges.ranges[*range].sized_by, size: it.size };
            block_of[range.index()].get_or_insert(tensor_block);
        }
        let tensors = ranges.iter().map(|range| live_ranges.ranges[*range].tensor).collect();
        let keeps_extra_lifetime = keeps_extra_lifetime && options.strategy != GraphStrategy::Ggml;
        let planned_for = assigned.memories()[memory].clone();
        memories.push(MemoryPlan { memory, plan, verdict, at_least, tensors, keeps_extra_lifetime, planned_for });
    }
    let tensor_block = |range: &Option<LiveRangeId>| range.and_then(|range| block_of[range.index()]);
    let tensor_blocks: Vec<Option<TensorBlock>> = live_ranges.of_tensor.iter().map(tensor_block).collect();
    let (unlisted, in_place_aliases) = (unlisted(assigned.graph()), in_place_aliases(assigned.graph(), live_ranges));
    let overlaps = overlaps(assigned.graph(), &memories, &tensor_blocks);
    // Another order is entered where one is found.
    let options = options.with_order(Order::Keep).with_order_search(OrderSearch::new());
    let assigned = assigned.clone();
    GraphPlan { assigned, run: None, options, memories, tensor_blocks, unlisted, in_place_aliases, overlaps }
}

/// Returns the nodes whose block may share bytes with that of a source that they still read, with its slot.
pub(crate) fn overlaps(
    graph: &Graph,
    memories: &[MemoryPlan],
    tensor_blocks: &[Option<TensorBlock>],
) -> Vec<(TensorId, u32)> {
    let overlapped = |node: TensorId| {
        let it = tensor_blocks[node.index()]?;
        let overlap = memories[it.memory_plan as usize].plan.problem().blocks()[it.block].overlaps?;
        let is_source = |source: &Option<TensorId>| {
            let block = source.and_then(|source| tensor_blocks[graph.root(source).index()]);
            block.is_some_and(|block| (block.memory_plan, block.block) == (it.memory_plan, overlap.source))
        };
        Some((node, graph.sources(node).iter().position(is_source)? as u32))
    };
    graph.nodes().iter().filter_map(|node| overlapped(*node)).collect()
}

/// Returns sources and roots that are in neither list, each once.
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

/// Returns the nodes that are written over a source, with its slot.
pub(super) fn in_place_aliases(graph: &Graph, live_ranges: &LiveRanges) -> Vec<(TensorId, u32)> {
    let slot = |node: &TensorId| {
        let range: &LiveRange = &live_ranges.ranges[live_ranges.of_tensor[node.index()]?];
        let aliased = live_ranges.ranges[range.alias_of?].tensor;
        let same = |source: &Option<TensorId>| source.is_some_and(|source| graph.root(source) == aliased);
        let slot = graph.sources(*node).iter().position(same)?;
        Some((*node, slot as u32))
    };
    graph.nodes().iter().filter_map(slot).collect()
}
