//! `steeve check` for graphs: a plan from a file, or one made now and ggml's recorded one.

use std::io::Write;

use steeve_graph::{Bytes, Reuse};

use super::file::GraphFile;
use super::judge::Claim;
use super::plan_file::TensorPlan;
use super::solve::{reuse_name, solve};
use crate::answer::{Answer, Voice};
use crate::args::{CheckArgs, HowArgs, SearchArgs};
use crate::check::{Title, does_not_hold};
use crate::error::Error;
use crate::table::Ratio;

/// Judges the plan that is given, or else the one that `steeve plan` would make and the one that ggml made.
pub(crate) fn check(
    graph: GraphFile,
    plan: Option<TensorPlan>,
    args: &CheckArgs,
    voice: Voice,
    stdout: &mut dyn Write,
) -> Result<Answer, Error> {
    let graph = graph.limited(&args.limits)?;
    let capacity = args.limits.capacity;
    if let Some(plan) = plan {
        let plan = under_rule(plan, &args.how)?;
        let title = Title { file: &plan.file, plan: "the plan" };
        return match Claim::of_file(&graph, &plan) {
            Ok(claim) => judge(stdout, voice, &title, &graph, &claim, capacity),
            Err(faults) => does_not_hold(stdout, voice, &title, &graph.file, &faults),
        };
    }
    let options = args.how.for_graph(&graph.file, &SearchArgs::default())?;
    let solved = solve(&graph, &options, None)?;
    let name = format!("our plan (strategy {}, reuse {})", solved.figures.strategy, reuse_name(options.reuse));
    let title = Title { file: &graph.file, plan: &name };
    let mut answer = judge(stdout, voice, &title, &graph, &Claim::of_plan(&graph, &solved.plan), capacity)?;
    if let Some(claim) = Claim::of_ggml(&graph) {
        let title = Title { file: &graph.file, plan: "ggml's recorded plan" };
        // The capacity is asked of our plan: nobody can change what ggml did.
        answer = answer.max(judge(stdout, voice, &title, &graph, &claim, None)?);
    }
    Ok(answer)
}

/// A plan says itself to which reuse it keeps; the user may hold it to another.
fn under_rule(plan: TensorPlan, how: &HowArgs) -> Result<TensorPlan, Error> {
    if how.strategy.is_some() {
        let why = format!("{}: is a plan already, whatever made it; leave out --strategy", plan.file);
        return Err(Error::Usage(why));
    }
    let reuse = how.reuse.map_or(plan.reuse, Reuse::from);
    Ok(TensorPlan { reuse, ..plan })
}

fn judge(
    stdout: &mut dyn Write,
    voice: Voice,
    title: &Title<'_>,
    graph: &GraphFile,
    claim: &Claim,
    capacity: Option<Bytes>,
) -> Result<Answer, Error> {
    let faults = claim.faults(graph, capacity);
    if faults.is_empty() {
        holds(stdout, title, graph, claim)
    } else {
        does_not_hold(stdout, voice, title, &graph.file, &faults)
    }
}

fn holds(stdout: &mut dyn Write, title: &Title<'_>, graph: &GraphFile, claim: &Claim) -> Result<Answer, Error> {
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
    let Title { file, plan } = title;
    writeln!(stdout, "{file}: {plan} holds: {tensors} in {bytes} bytes{memories}{beside}").map_err(Error::Output)?;
    Ok(Answer::Yes)
}
