//! One graph in, one proven plan per memory out, with its figures and with why it does not fit.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use steeve_graph::{
    Bytes, Fusion, GraphPlan, GraphPlanError, GraphStrategy, Memory, MemoryPlan, Order, OrderSearch, PlanOptions,
    Reuse, SearchProgress, Verdict, plan_beside_ggml_watched, plan_graph, plan_graph_watched,
};
use steeve_plan::{Clipped, Step};

use super::graph_file::GraphFile;
use super::model_file::ModelFile;
use crate::capacity::Capacities;
use crate::error::{Error, ErrorChain};
use crate::plan_figures::{MemoryFigures, PlanFigures, memory_phrase};

/// A plan and what it amounts to.
#[derive(Debug)]
pub(crate) struct SolvedGraph {
    /// Proven; but where a verdict says that it does not fit, it passes the capacity.
    pub(crate) plan: GraphPlan,
    pub(crate) figures: PlanFigures,
}

impl SolvedGraph {
    /// Returns what a plan that was made in another way amounts to.
    pub(crate) fn of_plan(graph: &GraphFile, plan: GraphPlan, capacities: Capacities<'_>, time: Duration) -> Self {
        let memories = plan.memories().iter().map(|memory| figures(graph, memory, capacities)).collect();
        let PlanOptions { strategy, reuse, unread, .. } = *plan.options();
        let (strategy, reuse, unread) = (strategy.name(), Some(reuse.name()), Some(unread.name()));
        let (moved, model) = (moved(&plan), graph.onnx().map(|model| Box::new(model.figures())));
        let engine = graph.engine();
        Self { plan, figures: PlanFigures { strategy, engine, reuse, unread, moved, time, memories, model } }
    }
}

/// Returns how many nodes a plan runs elsewhere than in the graph's own order; `None` where that is kept.
fn moved(plan: &GraphPlan) -> Option<usize> {
    plan.order().map(|order| order.moved(plan.assigned().graph()).len())
}

/// What a plan in another order of the nodes takes, beside one in the graph's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherOrder {
    pub(crate) own: Bytes,
    pub(crate) best: Bytes,
    pub(crate) moved: usize,
}

/// Returns what another order of the nodes would save, if that is found within a few milliseconds and enough to be used.
pub(crate) fn other_order(graph: &GraphFile, solved: &SolvedGraph) -> Option<OtherOrder> {
    let options = *solved.plan.options();
    let keeps_order = graph.model().is_some() || graph.as_drop_in || options.strategy == GraphStrategy::Ggml;
    if keeps_order || solved.plan.order().is_some() {
        return None;
    }
    let quick = PlanOptions::new(GraphStrategy::Fast).with_reuse(options.reuse).with_unread(options.unread);
    let quick = quick.with_order(Order::Best);
    let plan = plan_graph(&graph.assigned, &quick.with_order_search(OrderSearch::quick())).ok()?;
    let (own, best) = (solved.plan.peak(), plan.peak());
    let saves = OrderSearch::default().is_worth_while(own, best);
    Some(OtherOrder { own, best, moved: moved(&plan)? }).filter(|_| saves)
}

/// Plans a graph. A capacity is asked of each memory for itself, after it has been planned.
pub(crate) fn solve_graph(
    graph: &GraphFile,
    options: &PlanOptions,
    capacities: Capacities<'_>,
) -> Result<SolvedGraph, Error> {
    solve_graph_watched(graph, options, capacities, &mut |_| ControlFlow::Continue(()))
}

/// Plans a graph, and calls `watch` during a search, which may end it.
pub(crate) fn solve_graph_watched(
    graph: &GraphFile,
    options: &PlanOptions,
    capacities: Capacities<'_>,
    watch: &mut dyn FnMut(&SearchProgress) -> ControlFlow<()>,
) -> Result<SolvedGraph, Error> {
    graph.model().map_or(Ok(()), ModelFile::check_not_compiled)?;
    let start = Instant::now();
    let plan = match graph.as_drop_in {
        true => plan_beside_ggml_watched(&graph.assigned, options, watch).map(|it| it.plan),
        false => plan_graph_watched(&graph.assigned, options, watch),
    };
    let time = start.elapsed();
    let plan = plan.map_err(|error| planning_error(graph, &error))?;
    let memories = plan.memories().iter().map(|memory| figures(graph, memory, capacities)).collect();
    // What was asked for; where ggml's own take-overs turn out smaller, a plan with --reuse more keeps to those.
    let (strategy, reuse) = (options.strategy.name(), options.reuse.name());
    let (unread, engine) = (Some(plan.options().unread.name()), graph.engine());
    let (moved, model) = (moved(&plan), graph.onnx().map(|model| Box::new(model.figures())));
    let figures = PlanFigures { strategy, engine, reuse: Some(reuse), unread, moved, time, memories, model };
    Ok(SolvedGraph { plan, figures })
}

fn figures(graph: &GraphFile, memory: &MemoryPlan, capacities: Capacities<'_>) -> MemoryFigures {
    let unused = graph.model().map_or(Bytes::ZERO, ModelFile::unused_bytes);
    let (peak, at_least) = (memory.plan.peak().max(unused), memory.at_least.max(unused));
    let verdict = match capacities.of(graph.memory_name(memory.memory)) {
        Some(capacity) if at_least > capacity => Verdict::CannotFit,
        Some(capacity) if peak > capacity => Verdict::NotFound,
        _ => memory.verdict,
    };
    MemoryFigures {
        name: graph.memory_name(memory.memory).to_owned(),
        blocks: memory.plan.places().len(),
        peak,
        at_least,
        verdict,
        chunks: match peak > memory.plan.peak() {
            true => vec![peak],
            false => memory.plan.buffers().as_slice().to_vec(),
        },
        engine: graph.engine_bytes(memory.memory),
    }
}

fn planning_error(graph: &GraphFile, error: &GraphPlanError) -> Error {
    let why = match error {
        GraphPlanError::GgmlFails { .. } | GraphPlanError::GgmlFrees { .. } => {
            format!("{}; plan it with --strategy fast", ErrorChain(error))
        }
        _ => ErrorChain(error).to_string(),
    };
    Error::Place { file: graph.file.clone(), why }
}

/// Returns the node that runs at a step; -1 is before the run.
fn node_of(step: Step) -> i64 {
    i64::try_from(step.0).unwrap_or(i64::MAX) - 1
}

/// Lists the memories that do not fit: by how much, and what to do about it.
pub(crate) fn capacity_errors(graph: &GraphFile, solved: &SolvedGraph, capacities: Capacities<'_>) -> Vec<String> {
    let memories = solved.plan.memories().iter().zip(&solved.figures.memories);
    let options = solved.plan.options();
    let capacity_error = |(memory, it): (&MemoryPlan, &MemoryFigures)| {
        let (name, peak, at_least) = (memory_phrase(&it.name), it.peak, it.at_least);
        let capacity = capacities.of(&it.name)?;
        let missing = |bytes: Bytes| bytes.0.saturating_sub(capacity.0);
        match it.verdict {
            Verdict::CannotFit => Some(format!(
                "{name} does not fit: capacity {capacity} bytes, at least {at_least} needed{}, {} too many{}; {}raise --capacity to {at_least}",
                at_node(memory, at_least),
                missing(at_least),
                largest_live_phrase(graph, memory),
                more_reuse(options.reuse, &graph.assigned.memories()[memory.memory]),
            )),
            Verdict::NotFound => Some(format!(
                "{name}: no plan found: capacity {capacity} bytes, the smallest plan has {peak}, {} too many, lower bound {at_least}; {}, or raise --capacity to {peak}",
                missing(peak),
                further_search(options.strategy),
            )),
            _ => None,
        }
    };
    memories.filter_map(capacity_error).collect()
}

/// Returns ` at node N` if so many bytes are alive at that node; empty if the bound has another cause.
fn at_node(memory: &MemoryPlan, bytes: Bytes) -> String {
    let bound = memory.plan.bound();
    match bound.step {
        Some(step) if bound.live == bytes && step.0 == 0 => " before the run".to_owned(),
        Some(step) if bound.live == bytes => format!(" at node {}", node_of(step)),
        _ => String::new(),
    }
}

/// Suggests `--reuse more`, unless nodes are fused: then only ggml's own in-place decisions are made.
fn more_reuse(reuse: Reuse, memory: &Memory) -> &'static str {
    if reuse == Reuse::Extended || memory.fusion != Fusion::None { "" } else { "try --reuse more, or " }
}

fn further_search(strategy: GraphStrategy) -> &'static str {
    match strategy {
        GraphStrategy::Ggml => "plan with --strategy fast",
        GraphStrategy::Best(_) => "give the search a larger --budget",
        _ => "search with --strategy best",
    }
}

/// Names the largest tensors that are alive at the step of the bound.
fn largest_live_phrase(graph: &GraphFile, memory: &MemoryPlan) -> String {
    const SHOWN: usize = 3;
    let Some(step) = memory.plan.bound().step else { return String::new() };
    let blocks = memory.plan.problem().blocks();
    let mut alive = memory.plan.problem().alive_at(step);
    alive.sort_by_key(|id| (std::cmp::Reverse(blocks[*id].size), *id));
    let name = |id| format!("{} ({})", Clipped(&graph.label(memory.tensors[id])), blocks[id].size);
    let names: Vec<String> = alive.into_iter().take(SHOWN).map(name).collect();
    if names.is_empty() { String::new() } else { format!(" (the largest there: {})", names.join(", ")) }
}
