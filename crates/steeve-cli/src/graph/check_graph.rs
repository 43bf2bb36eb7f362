//! `steeve check_graph` for graphs: a plan from a file, or one made now and ggml's recorded one.

use steeve_graph::file::DROP_IN;
use steeve_graph::{
    Bytes, GraphPlan, GraphStrategy, MatchMemories, MemoryId, PlacementClaim, PlanFault, PlanFile, PlanOptions, Reuse,
    Unread, check_plan_file,
};
use steeve_models::tflite::HeadRecord;
use steeve_view::PlanMap;

use super::graph_file::GraphFile;
use super::model_file::ModelFile;
use super::solve_graph::solve_graph;
use crate::args::{CheckArgs, PlanningArgs, SearchArgs};
use crate::capacity::Capacities;
use crate::check_fault::CheckFault;
use crate::check_output::{CheckOutput, CheckedMemory, PlanKind, PlanTitle};
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::json_lines::EngineBytes;
use crate::over_capacity::over_capacity;
use crate::plan_figures::{MemoryFigures, sum};
use crate::text_table::SizeRatio;

/// Checks the plan that is given, or else the one that `steeve plan` makes and the one recorded from ggml.
pub(crate) fn check_graph(
    graph: GraphFile,
    plan: Option<(&str, PlanFile)>,
    args: &CheckArgs,
    output: &mut CheckOutput<'_>,
) -> Result<ExitStatus, Error> {
    let graph = graph.sized(&args.planning.language)?.limited(&args.limits)?;
    let graph = match &plan {
        // What a plan was made as, it is held to.
        Some((_, plan)) if plan.planned_as.as_deref() == Some(DROP_IN) => graph.for_drop_in()?,
        _ => graph.planned_as(&args.planning)?,
    };
    let capacities = args.limits.capacities()?;
    capacities.check_names(graph.owners().map(|memory| graph.memory_name(memory)))?;
    if let Some((file, plan)) = plan {
        let plan = with_rules(file, plan, &args.planning)?;
        let title = PlanTitle { file, plan: "the plan", kind: PlanKind::Given };
        return match check_plan_file(&plan, &graph.assigned, MatchMemories::ByName) {
            // It has been proven.
            Ok(plan) => {
                let overlaps = graph.model().map(|model| model.overlap_faults(&plan)).transpose()?.unwrap_or_default();
                report_verdict(output, &title, &graph, &PlacementClaim::of_plan(&plan), overlaps, || {
                    capacity_faults(&plan, capacities)
                })
            }
            Err(faults) => {
                let answer = output.does_not_hold(&title, &with_file_ids(&graph, faults))?;
                let is_right = |model: &ModelFile| {
                    let checked = check_plan_file(&plan, model.assigned(), MatchMemories::ByName);
                    checked.map_or(Ok(false), |plan| Ok(model.overlap_faults(&plan)?.is_empty()))
                };
                let kernels = graph.model().map(|model| model.kernels_that_allow(is_right)).transpose()?.flatten();
                note_kernels(output, file, "plan", kernels);
                Ok(answer)
            }
        };
    }
    if let Some(model) = graph.model()
        && let Some(record) = model.record()?
    {
        return check_record(&graph, model, (&graph.file, &record), capacities, output);
    }
    let options = args.planning.for_graph(&graph.file, &SearchArgs::default(), graph.unread())?;
    let solved = solve_graph(&graph, &options, Capacities::default())?;
    let (strategy, reuse, unread) = (solved.figures.strategy, options.reuse.name(), options.unread.name());
    let name = format!("our plan (strategy {strategy}, reuse {reuse}, unread {unread})");
    let title = PlanTitle { file: &graph.file, plan: &name, kind: PlanKind::Ours };
    let claim = PlacementClaim::of_plan(&solved.plan);
    let mut faults: Vec<CheckFault> = with_file_ids(&graph, claim.faults(&graph.assigned));
    if let Some(model) = graph.model() {
        faults.extend(model.overlap_faults(&solved.plan)?);
    }
    let mut answer =
        report_verdict(output, &title, &graph, &claim, faults, || capacity_faults(&solved.plan, capacities))?;
    if let Some(ggml) = graph.answer() {
        let claim = PlacementClaim::of_recorded(ggml, &graph.assigned);
        let title = PlanTitle { file: &graph.file, plan: "ggml's recorded plan", kind: PlanKind::Ggml };
        // A capacity is asked of our plan: what ggml did can't be changed.
        let faults = with_file_ids(&graph, claim.faults(&graph.assigned));
        answer = answer.max(report_verdict(output, &title, &graph, &claim, faults, Vec::new)?);
    }
    Ok(answer)
}

/// Checks the record of one file for the model of another, or of the same file.
pub(crate) fn check_recorded(
    graph: GraphFile,
    (file, recorded): (&str, &GraphFile),
    args: &CheckArgs,
    output: &mut CheckOutput<'_>,
) -> Result<ExitStatus, Error> {
    let record = recorded.model().map(ModelFile::record).transpose()?.flatten();
    let Some(record) = record else { return Err(Error::NotAPlan { file: file.to_owned() }) };
    let graph = graph.sized(&args.planning.language)?.limited(&args.limits)?.planned_as(&args.planning)?;
    let model = graph.model().ok_or_else(|| Error::NotAPlan { file: file.to_owned() })?;
    check_record(&graph, model, (file, &record), args.limits.capacities()?, output)
}

/// Says for which kernels a plan holds that does not hold for any.
fn note_kernels(output: &CheckOutput<'_>, file: &str, what: &str, kernels: Option<&'static str>) {
    if let Some(kernels) = kernels {
        let note = format!("{file}: the {what} holds with {kernels}, for a runtime with exactly these kernels");
        output.verbosity.note(note);
    }
}

fn check_record(
    graph: &GraphFile,
    model: &ModelFile,
    (file, record): (&str, &HeadRecord),
    capacities: Capacities<'_>,
    output: &mut CheckOutput<'_>,
) -> Result<ExitStatus, Error> {
    let (report, faults) = model.judge(record)?;
    let title = PlanTitle { file, plan: "the record", kind: PlanKind::Given };
    let Some(head) = report.head.map(Bytes).filter(|_| faults.is_empty()) else {
        let answer = output.does_not_hold(&title, &faults)?;
        let kernels = model.kernels_that_allow(|model| Ok(model.judge(record)?.1.is_empty()))?;
        note_kernels(output, file, "record", kernels);
        return Ok(answer);
    };
    let tflm = model.tflm_head();
    let memory = || CheckedMemory {
        name: graph.assigned.memories()[MemoryId::FIRST].name.clone(),
        peak: head,
        lower_bound: None,
        optimal: false,
        chunks: vec![head],
        engine: EngineBytes::new(graph.engine(), tflm),
    };
    let beside = match tflm {
        Some(tflm) if tflm.0 > 0 && tflm != head => format!(", {} of tflm's {tflm}", SizeRatio::new(head, tflm)),
        _ => String::new(),
    };
    let placed = report.offsets.iter().flatten().count();
    let sentence = format!("{placed} tensors in {head} bytes{beside}");
    match capacities.of(&memory().name).filter(|capacity| head > *capacity) {
        None => output.holds(&title, &sentence, || Ok(vec![memory()])),
        Some(capacity) => {
            let message = format!("{}: {head} bytes: capacity {capacity} bytes", memory().name);
            output.does_not_fit(&title, &[CheckFault::new("capacity", message)], || Ok(vec![memory()]))
        }
    }
}

/// Returns the plan with the reuse and unread that the command line asks it to be checked against.
fn with_rules(file: &str, mut plan: PlanFile, planning: &PlanningArgs) -> Result<PlanFile, Error> {
    if planning.strategy.is_some() {
        let why = format!("{file}: is a plan already: leave out --strategy");
        return Err(Error::Usage(why));
    }
    if (planning.reuse.is_some() || planning.unread.is_some()) && plan.strategy == GraphStrategy::Ggml.name() {
        // Of ggml's strategy both are implied. It keeps to no hold.
        plan.strategy = GraphStrategy::Fast.name().to_owned();
        plan.memories.iter_mut().for_each(|memory| memory.ggml_layout = true);
    }
    if let Some(reuse) = planning.reuse {
        plan.reuse = Some(Reuse::from(reuse).name().to_owned());
    }
    if let Some(unread) = planning.unread {
        plan.unread = Some(Unread::from(unread).name().to_owned());
    }
    Ok(plan)
}

/// Returns faults with the tensor ids of the graph's file.
fn with_file_ids(graph: &GraphFile, faults: Vec<PlanFault>) -> Vec<CheckFault> {
    let fault = |it: &PlanFault| {
        CheckFault::of_tensors(
            it.kind(),
            it.tensors().into_iter().map(|tensor| graph.id(tensor)),
            steeve_graph::ErrorChain(it).to_string(),
        )
    };
    faults.iter().map(fault).collect()
}

/// Memories above their capacity, with what is alive there at the peak.
fn capacity_faults(plan: &GraphPlan, capacities: Capacities<'_>) -> Vec<CheckFault> {
    over_capacity(&PlanMap::of_graph("plan", plan), capacities)
}

fn report_verdict(
    output: &mut CheckOutput<'_>,
    title: &PlanTitle<'_>,
    graph: &GraphFile,
    claim: &PlacementClaim,
    faults: Vec<CheckFault>,
    over_capacity: impl FnOnce() -> Vec<CheckFault>,
) -> Result<ExitStatus, Error> {
    if !faults.is_empty() {
        return output.does_not_hold(title, &faults);
    }
    match over_capacity().as_slice() {
        [] => output.holds(title, &describe_plan(graph, claim), || memories(graph, claim)),
        over => output.does_not_fit(title, over, || memories(graph, claim)),
    }
}

/// Describes a valid plan: tensors, bytes, and the ratio to the engine's own.
fn describe_plan(graph: &GraphFile, claim: &PlacementClaim) -> String {
    let tensors = match claim.places.places.iter().flatten().count() {
        1 => "1 tensor".to_owned(),
        count => format!("{count} tensors"),
    };
    let memories = match graph.owners().count() {
        1 => String::new(),
        count => format!(" of {count} memories"),
    };
    let bytes = sum(graph.assigned.owners().map(|memory| claim.bytes(memory)));
    let engine = graph.engine().name();
    let theirs = graph.owners().map(|memory| graph.engine_bytes(memory)).collect::<Option<Vec<_>>>();
    let beside = match theirs.map(|theirs| sum(theirs.into_iter())) {
        Some(theirs) if theirs.0 > 0 && theirs != bytes => {
            format!(", {} of {engine}'s {theirs}", SizeRatio::new(bytes, theirs))
        }
        _ => String::new(),
    };
    format!("{tensors} in {bytes} bytes{memories}{beside}")
}

/// Returns the figures of each memory. The bound is that of a plan of ours with equal reuse and unread. A claim below it reuses
/// bytes in another way, and has no known bound.
fn memories(graph: &GraphFile, claim: &PlacementClaim) -> Result<Vec<CheckedMemory>, Error> {
    let options = PlanOptions::new(GraphStrategy::Fast).with_reuse(claim.places.reuse).with_unread(claim.places.unread);
    let solved = solve_graph(graph, &options, Capacities::default())?;
    let of_memory = |(memory, bound): (MemoryId, &MemoryFigures)| {
        let peak = claim.bytes(memory);
        CheckedMemory {
            name: graph.memory_name(memory).to_owned(),
            peak,
            lower_bound: Some(bound.at_least).filter(|bound| *bound <= peak),
            optimal: bound.at_least == peak,
            chunks: claim.buffers[memory].clone(),
            engine: EngineBytes::new(graph.engine(), graph.engine_bytes(memory)),
        }
    };
    Ok(graph.owners().zip(&solved.figures.memories).map(of_memory).collect())
}
