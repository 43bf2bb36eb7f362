//! `steeve check` for graphs: a plan from a file, or one made now and ggml's recorded one.

use steeve_graph::file::DROP_IN;
use steeve_graph::{
    ErrorChain, GraphPlan, GraphStrategy, MatchMemories, MemoryId, PlacementClaim, PlanFault, PlanFile, PlanOptions,
    Reuse, Unread, check_plan_file,
};
use steeve_view::PlanMap;

use super::file::GraphFile;
use super::solve::solve;
use crate::answer::Answer;
use crate::args::{CheckArgs, HowArgs, SearchArgs};
use crate::capacity::Capacities;
use crate::error::Error;
use crate::fault::Fault;
use crate::figures::{MemoryFigures, sum};
use crate::over_capacity::over_capacity;
use crate::table::Ratio;
use crate::verdicts::{CheckedMemory, PlanKind, Title, Verdicts};

/// Judges the plan that is given, or else the one that `steeve plan` would make and the one that ggml made.
pub(crate) fn check(
    graph: GraphFile,
    plan: Option<(&str, PlanFile)>,
    args: &CheckArgs,
    verdicts: &mut Verdicts<'_>,
) -> Result<Answer, Error> {
    let graph = graph.limited(&args.limits)?;
    let graph = match &plan {
        // What a plan was made as, it is held to.
        Some((_, plan)) if plan.planned_as.as_deref() == Some(DROP_IN) => graph.for_drop_in()?,
        _ => graph.planned_as(&args.how)?,
    };
    let capacities = args.limits.capacities()?;
    capacities.check_names(graph.owners().map(|memory| graph.memory_name(memory)))?;
    if let Some((file, plan)) = plan {
        let plan = under_rule(file, plan, &args.how)?;
        let title = Title { file, plan: "the plan", kind: PlanKind::Given };
        return match check_plan_file(&plan, &graph.assigned, MatchMemories::ByName) {
            // It has been proven.
            Ok(plan) => {
                judge(verdicts, &title, &graph, &PlacementClaim::of_plan(&plan), Vec::new(), || over(&plan, capacities))
            }
            Err(faults) => verdicts.does_not_hold(&title, &named(&graph, faults)),
        };
    }
    let options = args.how.for_graph(&graph.file, &SearchArgs::default())?;
    let solved = solve(&graph, &options, Capacities::default())?;
    let (strategy, reuse, unread) = (solved.figures.strategy, options.reuse.name(), options.unread.name());
    let name = format!("our plan (strategy {strategy}, reuse {reuse}, unread {unread})");
    let title = Title { file: &graph.file, plan: &name, kind: PlanKind::Ours };
    let claim = PlacementClaim::of_plan(&solved.plan);
    let faults = claim.faults(&graph.assigned);
    let mut answer = judge(verdicts, &title, &graph, &claim, faults, || over(&solved.plan, capacities))?;
    if let Some(ggml) = graph.answer() {
        let claim = PlacementClaim::of_recorded(ggml, &graph.assigned);
        let title = Title { file: &graph.file, plan: "ggml's recorded plan", kind: PlanKind::Ggml };
        // A capacity is asked of our plan: what ggml did can't be changed.
        let faults = claim.faults(&graph.assigned);
        answer = answer.max(judge(verdicts, &title, &graph, &claim, faults, Vec::new)?);
    }
    Ok(answer)
}

/// A plan says itself to which reuse it keeps and what it frees; the user may hold it to something else.
fn under_rule(file: &str, mut plan: PlanFile, how: &HowArgs) -> Result<PlanFile, Error> {
    if how.strategy.is_some() {
        let why = format!("{file}: is a plan already, whatever made it; leave out --strategy");
        return Err(Error::Usage(why));
    }
    if (how.reuse.is_some() || how.unread.is_some()) && plan.strategy == GraphStrategy::Ggml.name() {
        // Of ggml's strategy both are implied. It keeps to no hold.
        plan.strategy = GraphStrategy::Fast.name().to_owned();
        plan.memories.iter_mut().for_each(|memory| memory.ggml_layout = true);
    }
    if let Some(reuse) = how.reuse {
        plan.reuse = Some(Reuse::from(reuse).name().to_owned());
    }
    if let Some(unread) = how.unread {
        plan.unread = Some(Unread::from(unread).name().to_owned());
    }
    Ok(plan)
}

/// Faults with the ids that the graph's file has for its tensors.
fn named(graph: &GraphFile, faults: Vec<PlanFault>) -> Vec<Fault> {
    let fault = |it: &PlanFault| {
        Fault::of_tensors(
            it.kind(),
            it.tensors().into_iter().map(|tensor| graph.id(tensor)),
            ErrorChain(it).to_string(),
        )
    };
    faults.iter().map(fault).collect()
}

/// Memories above their capacity, with what is alive there at the peak.
fn over(plan: &GraphPlan, capacities: Capacities<'_>) -> Vec<Fault> {
    over_capacity(&PlanMap::of_graph("plan", plan), capacities)
}

fn judge(
    verdicts: &mut Verdicts<'_>,
    title: &Title<'_>,
    graph: &GraphFile,
    claim: &PlacementClaim,
    faults: Vec<PlanFault>,
    over_capacity: impl FnOnce() -> Vec<Fault>,
) -> Result<Answer, Error> {
    if !faults.is_empty() {
        return verdicts.does_not_hold(title, &named(graph, faults));
    }
    match over_capacity().as_slice() {
        [] => verdicts.holds(title, &sentence(graph, claim), || memories(graph, claim)),
        over => verdicts.does_not_fit(title, over, || memories(graph, claim)),
    }
}

/// What holds, and how many bytes it takes of ggml's.
fn sentence(graph: &GraphFile, claim: &PlacementClaim) -> String {
    let tensors = match claim.places.places.iter().flatten().count() {
        1 => "1 tensor".to_owned(),
        count => format!("{count} tensors"),
    };
    let memories = match graph.owners().count() {
        1 => String::new(),
        count => format!(" of {count} memories"),
    };
    let bytes = sum(graph.assigned.owners().map(|memory| claim.bytes(memory)));
    let ggml = graph.owners().map(|memory| graph.ggml(memory)).collect::<Option<Vec<_>>>();
    let beside = match ggml.map(|ggml| sum(ggml.into_iter())) {
        Some(ggml) if ggml.0 > 0 && ggml != bytes => format!(", {} of ggml's {ggml}", Ratio::new(bytes, ggml)),
        _ => String::new(),
    };
    format!("{tensors} in {bytes} bytes{memories}{beside}")
}

/// The figures of each memory. The bound is that of a plan of ours with equal reuse and unread; a claim below it takes over bytes in
/// another way, and then nothing is known of its bound.
fn memories(graph: &GraphFile, claim: &PlacementClaim) -> Result<Vec<CheckedMemory>, Error> {
    let options = PlanOptions::new(GraphStrategy::Fast).with_reuse(claim.places.reuse).with_unread(claim.places.unread);
    let solved = solve(graph, &options, Capacities::default())?;
    let of_memory = |(memory, bound): (MemoryId, &MemoryFigures)| {
        let peak = claim.bytes(memory);
        CheckedMemory {
            name: graph.memory_name(memory).to_owned(),
            peak,
            lower_bound: Some(bound.at_least).filter(|bound| *bound <= peak),
            optimal: bound.at_least == peak,
            chunks: claim.buffers[memory].clone(),
            ggml: graph.ggml(memory),
        }
    };
    Ok(graph.owners().zip(&solved.figures.memories).map(of_memory).collect())
}
