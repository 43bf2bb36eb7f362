//! `steeve check`: a plan from a file, proven or taken apart.

use std::io::Write;

use steeve_graph::PlanFile;
use steeve_plan::csv::Table;
use steeve_plan::file::{FileFault, FileMemory};
use steeve_plan::{Align, Block, BlockId, IdVec, Place, Placement, Plan, Problem, certify};
use steeve_view::PlanMap;

use crate::args::{CheckArgs, SearchArgs};
use crate::check_fault::CheckFault;
use crate::check_output::{CheckFormat, CheckOutput, CheckedMemory, PlanKind, PlanTitle};
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::fault_text::{self, BlockName};
use crate::input_file::{self, InputFile, ReadOptions};
use crate::input_source::InputSource;
use crate::json_lines::EngineBytes;
use crate::over_capacity::over_capacity;
use crate::plan_figures::{EnginePlanner, ONLY_MEMORY};
use crate::verbosity::Verbosity;
use crate::{block_list, graph};

/// Checks a plan and prints the verdict to the output: one sentence per fault, or one JSON object per plan.
pub(crate) fn run(args: &CheckArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    let source = InputSource::new(&args.problem);
    let plan_source = args.plan.as_deref().map(InputSource::new);
    if source == InputSource::Stdin && plan_source == Some(InputSource::Stdin) {
        return Err(Error::Usage(
            "-: standard input given twice: expected it for PROBLEM or PLAN, not for both".to_owned(),
        ));
    }
    args.planning.check(&SearchArgs::default())?;
    let dims = args.dims.single()?;
    let options = ReadOptions { limit: args.input.limit(), dims: &dims };
    let (problem, own_claims) = input_file::read_with_claims(&source, options)?;
    let plan = plan_source.as_ref().map(|source| input_file::read_with_claims(source, options)).transpose()?;
    dims.check_names()?;
    let (plan, claims) = plan.map_or((None, own_claims), |(plan, claims)| (Some(plan), claims));
    let (file, plan_file) = (source.to_string(), plan_source.map(|it| it.to_string()));
    let format = if args.json { CheckFormat::Json } else { CheckFormat::Sentences };
    let mut output = CheckOutput { stdout, verbosity, format, problem: &file };
    match (problem, plan) {
        (InputFile::Graph(graph), None) => graph::check_graph(*graph, None, args, &mut output),
        (InputFile::Graph(graph), Some(InputFile::Plan(plan))) => {
            let plan_file = plan_file.unwrap_or_default();
            graph::check_graph(*graph, Some((&plan_file, *plan)), args, &mut output)
        }
        (InputFile::Graph(graph), Some(InputFile::Graph(recorded))) if recorded.model().is_some() => {
            graph::check_recorded(*graph, (&plan_file.unwrap_or_default(), &recorded), args, &mut output)
        }
        (InputFile::Blocks(table), None) => check_blocks(&table, None, claims.as_ref(), args, &mut output),
        (InputFile::Blocks(table), Some(InputFile::Blocks(plan))) => {
            let plan = Some((plan_file.unwrap_or_default(), plan));
            check_blocks(&table, plan, claims.as_ref(), args, &mut output)
        }
        (InputFile::Plan(_), _) => Err(Error::PlanOfGraph { file }),
        (problem, Some(plan)) => Err(wrong_kind(file, &problem, plan_file.unwrap_or_default(), &plan)),
    }
}

/// Returns the error of a plan of one kind for a problem of the other, or of a file that is no plan.
fn wrong_kind(problem: String, kind: &InputFile, file: String, plan: &InputFile) -> Error {
    const NAMES: [&str; 2] = ["graph", "block list"];
    let [wanted, found] = if matches!(kind, InputFile::Graph(_)) { NAMES } else { [NAMES[1], NAMES[0]] };
    match plan {
        InputFile::Graph(_) => Error::NotAPlan { file },
        _ => Error::OtherPlan { file, problem, found, wanted },
    }
}

/// Checks a block list with a plan, or one with an offset column.
fn check_blocks(
    table: &Table,
    plan: Option<(String, Table)>,
    claims: Option<&PlanFile>,
    args: &CheckArgs,
    output: &mut CheckOutput<'_>,
) -> Result<ExitStatus, Error> {
    let problem_file = output.problem;
    let given = args.planning.given();
    if !given.is_empty() {
        let given = given.join(" and ");
        let why = format!("{problem_file}: the plan of a block list is given: leave out {given}");
        return Err(Error::Usage(why));
    }
    let capacities = args.limits.capacities()?;
    capacities.check_names([ONLY_MEMORY])?;
    let problem = block_list::problem(problem_file, table, &args.limits)?.without_capacity();
    let (file, placed) = plan.as_ref().map_or((problem_file, table), |(file, plan)| (file.as_str(), plan));
    if !placed.places().is_empty() && placed.places().iter().all(Option::is_none) {
        let advice = match plan {
            Some(_) => "give the problem first and then the plan",
            None => "name a plan as well, or make one with steeve plan -o",
        };
        return Err(Error::NoOffsets { file: file.to_owned(), advice });
    }
    let title = PlanTitle { file, plan: "the plan", kind: PlanKind::Given };
    let mut wrong = claims.map(own_faults).unwrap_or_default();
    match prove_places(file, table, placed, problem, output.verbosity) {
        Ok(_) if !wrong.is_empty() => output.does_not_hold(&title, &wrong),
        Ok(plan) => {
            let map = PlanMap::of_blocks("plan", ONLY_MEMORY, &plan, table.ids());
            match over_capacity(&map, capacities).as_slice() {
                [] => output.holds(&title, &describe_plan(&plan), || Ok(vec![checked_memory(&plan)])),
                over => output.does_not_fit(&title, over, || Ok(vec![checked_memory(&plan)])),
            }
        }
        Err(more) => {
            wrong.extend(more);
            output.does_not_hold(&title, &wrong)
        }
    }
}

/// Lists the figures and places in a plan file that contradict the file itself.
fn own_faults(claims: &PlanFile) -> Vec<CheckFault> {
    let of_memory = |memory: &FileMemory| {
        let names: IdVec<BlockId, String> = memory.blocks.iter().map(|block| block.name.clone()).collect();
        let fault = |fault: &FileFault| {
            let message = fault_text::file_fault(fault, &names);
            match fault {
                FileFault::Outside { block, .. } | FileFault::NoBuffer { block, .. } => {
                    CheckFault::of_block("outside", &names[*block], message)
                }
                _ => CheckFault::new("figure", message),
            }
        };
        memory.own_faults().iter().map(fault).collect::<Vec<_>>()
    };
    claims.memories.iter().flat_map(of_memory).collect()
}

/// Proves the places of one table for the problem of the other, or returns all faults.
fn prove_places(
    file: &str,
    table: &Table,
    placed: &Table,
    problem: Problem,
    verbosity: Verbosity,
) -> Result<Plan, Vec<CheckFault>> {
    let places = places(table, placed)?;
    note_differences(file, table, placed, &problem, verbosity);
    certify(problem, Placement::new(places))
        .map_err(|wrong| wrong.list().iter().map(|it| CheckFault::of_violation(it, table.ids())).collect())
}

/// Describes a valid plan: blocks, bytes, and the distance to the lower bound.
fn describe_plan(plan: &Plan) -> String {
    let blocks = match plan.places().len() {
        1 => "1 block".to_owned(),
        count => format!("{count} blocks"),
    };
    let buffers = match plan.buffers().len() {
        0 | 1 => String::new(),
        count => format!(" ({count} buffers)"),
    };
    let (peak, bound) = (plan.peak(), plan.bound().bytes);
    let quality = if plan.is_optimal() {
        "the lower bound: no plan is smaller".to_owned()
    } else {
        format!("{} above the lower bound of {bound}", peak.0 - bound.0)
    };
    format!("{blocks} in {peak} bytes{buffers}, {quality}")
}

fn checked_memory(plan: &Plan) -> CheckedMemory {
    CheckedMemory {
        name: ONLY_MEMORY.to_owned(),
        peak: plan.peak(),
        lower_bound: Some(plan.bound().bytes),
        optimal: plan.is_optimal(),
        chunks: plan.buffers().as_slice().to_vec(),
        engine: EngineBytes::new(EnginePlanner::default(), None),
    }
}

/// Returns the place of each block of the problem, matched by id, or a fault for each block without a match.
fn places(table: &Table, placed: &Table) -> Result<IdVec<BlockId, Place>, Vec<CheckFault>> {
    let mut places = Vec::with_capacity(table.ids().len());
    let mut wrong = Vec::new();
    for (block, id) in table.ids().pairs() {
        match placed.find(id).map(|it| placed.places()[it]) {
            Some(Some(place)) => places.push(place),
            Some(None) => {
                let message = format!("block {} has no offset", BlockName(table.ids(), block));
                wrong.push(CheckFault::of_block("unplaced", id, message));
            }
            None => {
                let message =
                    format!("block {} of the problem has no place in the plan", BlockName(table.ids(), block));
                wrong.push(CheckFault::of_block("unplaced", id, message));
            }
        }
    }
    for (block, id) in placed.ids().pairs() {
        if table.find(id).is_none() {
            let message = format!("block {} of the plan is not in the problem", BlockName(placed.ids(), block));
            wrong.push(CheckFault::of_block("unknown", id, message));
        }
    }
    if wrong.is_empty() { Ok(places.into()) } else { Err(wrong) }
}

/// Notes blocks whose size or lifetime has changed since the plan was made; the plan may hold all the same.
fn note_differences(file: &str, table: &Table, placed: &Table, problem: &Problem, verbosity: Verbosity) {
    // A larger alignment in the plan is no difference: it may have been made with --align.
    let core = |block: &Block| Block { align: Align::ONE, follows: None, overlaps: None, pinned: None, ..*block };
    let differs = |(block, id): &(BlockId, &String)| {
        let planned = placed.find(id).map(|it| core(&placed.blocks()[it]));
        planned.is_some_and(|planned| planned != core(&problem.blocks()[*block]))
    };
    let mut different = table.ids().pairs().filter(differs);
    let Some((first, _)) = different.next() else { return };
    let others = match different.count() {
        0 => String::new(),
        1 => " and one more".to_owned(),
        more => format!(" and {more} more"),
    };
    let name = BlockName(table.ids(), first);
    verbosity.note(
        format!(
            "{file}: block {name}{others} had another size or lifetime when this plan was made; sizes and lifetimes are those of the problem"
        ),
    );
}
