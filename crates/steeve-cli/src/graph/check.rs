//! `steeve check` for graphs: a plan from a file, or one made now and ggml's recorded one.

use steeve_graph::{GraphStrategy, MemoryId, PlanOptions, Reuse, Unread};
use steeve_view::Map;

use super::file::GraphFile;
use super::judge::Claim;
use super::plan_file::TensorPlan;
use super::solve::{reuse_name, solve, unread_name};
use crate::answer::Answer;
use crate::args::{CheckArgs, HowArgs, SearchArgs};
use crate::capacity::Capacities;
use crate::error::Error;
use crate::fault::Fault;
use crate::figures::MemoryFigures;
use crate::over_capacity::over_capacity;
use crate::standing;
use crate::table::Ratio;
use crate::verdicts::{CheckedMemory, PlanKind, Title, Verdicts};

/// Judges the plan that is given, or else the one that `steeve plan` would make and the one that ggml made.
pub(crate) fn check(
    graph: GraphFile,
    plan: Option<TensorPlan>,
    args: &CheckArgs,
    verdicts: &mut Verdicts<'_>,
) -> Result<Answer, Error> {
    let graph = graph.limited(&args.limits)?;
    let graph = match &plan {
        // What a plan was made as, it is held to.
        Some(plan) if plan.as_drop_in => graph.for_drop_in()?,
        _ => graph.planned_as(&args.how)?,
    };
    let capacities = args.limits.capacities()?;
    capacities.check_names(graph.owners().map(|memory| graph.memory_name(memory)))?;
    if let Some(plan) = plan {
        let plan = under_rule(plan, &args.how)?;
        let title = Title { file: &plan.file, plan: "the plan", kind: PlanKind::Given };
        return match Claim::of_file(&graph, &plan) {
            Ok(claim) => judge(verdicts, &title, &graph, &claim, || {
                Ok(over_capacity(&standing::of_tensors("plan", &plan)?.map, capacities))
            }),
            Err(faults) => verdicts.does_not_hold(&title, &faults),
        };
    }
    let options = args.how.for_graph(&graph.file, &SearchArgs::default())?;
    let solved = solve(&graph, &options, Capacities::default())?;
    let (strategy, reuse, unread) = (solved.figures.strategy, reuse_name(options.reuse), unread_name(options.unread));
    let name = format!("our plan (strategy {strategy}, reuse {reuse}, unread {unread})");
    let title = Title { file: &graph.file, plan: &name, kind: PlanKind::Ours };
    let mut answer = judge(verdicts, &title, &graph, &Claim::of_plan(&graph, &solved.plan), || {
        Ok(over_capacity(&Map::of_graph("plan", &solved.plan), capacities))
    })?;
    if let Some(claim) = Claim::of_ggml(&graph) {
        let title = Title { file: &graph.file, plan: "ggml's recorded plan", kind: PlanKind::Ggml };
        // A capacity is asked of our plan: what ggml did can't be changed.
        answer = answer.max(judge(verdicts, &title, &graph, &claim, || Ok(Vec::new()))?);
    }
    Ok(answer)
}

/// A plan says itself to which reuse it keeps and what it frees; the user may hold it to something else.
fn under_rule(plan: TensorPlan, how: &HowArgs) -> Result<TensorPlan, Error> {
    if how.strategy.is_some() {
        let why = format!("{}: is a plan already, whatever made it; leave out --strategy", plan.file);
        return Err(Error::Usage(why));
    }
    let reuse = how.reuse.map_or(plan.reuse, Reuse::from);
    let unread = how.unread.map_or(plan.unread, Unread::from);
    Ok(TensorPlan { reuse, unread, ..plan })
}

fn judge(
    verdicts: &mut Verdicts<'_>,
    title: &Title<'_>,
    graph: &GraphFile,
    claim: &Claim,
    over_capacity: impl FnOnce() -> Result<Vec<Fault>, Error>,
) -> Result<Answer, Error> {
    let faults = claim.faults(graph, None);
    if !faults.is_empty() {
        return verdicts.does_not_hold(title, &faults);
    }
    match over_capacity()?.as_slice() {
        [] => verdicts.holds(title, &sentence(graph, claim), || memories(graph, claim)),
        over => verdicts.does_not_fit(title, over, || memories(graph, claim)),
    }
}

/// What holds, and how many bytes it takes of ggml's.
fn sentence(graph: &GraphFile, claim: &Claim) -> String {
    let tensors = match claim.tensors() {
        1 => "1 tensor".to_owned(),
        count => format!("{count} tensors"),
    };
    let memories = match graph.owners().count() {
        1 => String::new(),
        count => format!(" of {count} memories"),
    };
    let bytes = claim.bytes(graph);
    let ggml = graph.owners().map(|memory| graph.ggml(memory)).collect::<Option<Vec<_>>>();
    let beside = match ggml.map(|ggml| crate::figures::sum(ggml.into_iter())) {
        Some(ggml) if ggml.0 > 0 && ggml != bytes => format!(", {} of ggml's {ggml}", Ratio::new(bytes, ggml)),
        _ => String::new(),
    };
    format!("{tensors} in {bytes} bytes{memories}{beside}")
}

/// The figures of each memory. The bound is that of a plan of ours with equal reuse and unread; a claim below it takes over bytes in
/// another way, and then nothing is known of its bound.
fn memories(graph: &GraphFile, claim: &Claim) -> Result<Vec<CheckedMemory>, Error> {
    let options = PlanOptions::new(GraphStrategy::Fast).with_reuse(claim.reuse()).with_unread(claim.unread());
    let solved = solve(graph, &options, Capacities::default())?;
    let of_memory = |(memory, bound): (MemoryId, &MemoryFigures)| {
        let peak = claim.memory_bytes(memory);
        CheckedMemory {
            name: graph.memory_name(memory).to_owned(),
            peak,
            lower_bound: Some(bound.at_least).filter(|bound| *bound <= peak),
            optimal: bound.at_least == peak,
            chunks: claim.chunks(memory).to_vec(),
            ggml: graph.ggml(memory),
        }
    };
    Ok(graph.owners().zip(&solved.figures.memories).map(of_memory).collect())
}
