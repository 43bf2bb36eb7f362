//! `steeve check`: a plan from a file, proven or taken apart.

use std::io::Write;

use steeve_graph::PlanFile;
use steeve_plan::csv::Table;
use steeve_plan::file::{FileFault, FileMemory};
use steeve_plan::{Align, Block, BlockId, IdVec, Place, Placement, Plan, Problem, certify};
use steeve_view::PlanMap;

use crate::answer::{Answer, Voice};
use crate::args::{CheckArgs, SearchArgs};
use crate::error::Error;
use crate::explain::{self, Name};
use crate::fault::Fault;
use crate::figures::ONLY_MEMORY;
use crate::input::{self, Input};
use crate::over_capacity::over_capacity;
use crate::source::Source;
use crate::verdicts::{CheckedMemory, PlanKind, Title, VerdictForm, Verdicts};
use crate::{block_list, graph};

/// The verdict goes to the output, one sentence per violation or one JSON object per plan: it is what was asked for.
pub(crate) fn run(args: &CheckArgs, voice: Voice, stdout: &mut dyn Write) -> Result<Answer, Error> {
    let source = Source::new(&args.problem);
    let plan_source = args.plan.as_deref().map(Source::new);
    if source == Source::Stdin && plan_source == Some(Source::Stdin) {
        return Err(Error::Usage("only one of PROBLEM and PLAN can be -, the standard input".to_owned()));
    }
    args.how.check(&SearchArgs::default())?;
    let limit = args.input.limit();
    let (problem, own_claims) = input::read_with_claims(&source, limit)?;
    let plan = plan_source.as_ref().map(|source| input::read_with_claims(source, limit)).transpose()?;
    let (plan, claims) = plan.map_or((None, own_claims), |(plan, claims)| (Some(plan), claims));
    let (file, plan_file) = (source.to_string(), plan_source.map(|it| it.to_string()));
    let form = if args.json { VerdictForm::Json } else { VerdictForm::Sentences };
    let mut verdicts = Verdicts { stdout, voice, form, problem: &file };
    match (problem, plan) {
        (Input::Graph(graph), None) => graph::check(*graph, None, args, &mut verdicts),
        (Input::Graph(graph), Some(Input::Plan(plan))) => {
            let plan_file = plan_file.unwrap_or_default();
            graph::check(*graph, Some((&plan_file, *plan)), args, &mut verdicts)
        }
        (Input::Blocks(table), None) => check_blocks(&table, None, claims.as_ref(), args, &mut verdicts),
        (Input::Blocks(table), Some(Input::Blocks(plan))) => {
            let plan = Some((plan_file.unwrap_or_default(), plan));
            check_blocks(&table, plan, claims.as_ref(), args, &mut verdicts)
        }
        (Input::Plan(_), _) => Err(Error::PlanOfGraph { file }),
        (problem, Some(plan)) => Err(mismatch(file, &problem, plan_file.unwrap_or_default(), &plan)),
    }
}

/// A plan of one kind for a problem of the other, or no plan at all.
fn mismatch(problem: String, kind: &Input, file: String, plan: &Input) -> Error {
    const NAMES: [&str; 2] = ["graph", "block list"];
    let [wanted, found] = if matches!(kind, Input::Graph(_)) { NAMES } else { [NAMES[1], NAMES[0]] };
    match plan {
        Input::Graph(_) => Error::NotAPlan { file },
        _ => Error::OtherPlan { file, problem, found, wanted },
    }
}

/// A block list with a plan, or one that has offsets itself.
fn check_blocks(
    table: &Table,
    plan: Option<(String, Table)>,
    claims: Option<&PlanFile>,
    args: &CheckArgs,
    verdicts: &mut Verdicts<'_>,
) -> Result<Answer, Error> {
    let problem_file = verdicts.problem;
    let given = args.how.given();
    if !given.is_empty() {
        let given = given.join(" and ");
        let why = format!("{problem_file}: is a block list, whose plan is there already; leave out {given}");
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
    let title = Title { file, plan: "the plan", kind: PlanKind::Given };
    let mut wrong = claims.map(own_faults).unwrap_or_default();
    match prove(file, table, placed, problem, verdicts.voice) {
        Ok(_) if !wrong.is_empty() => verdicts.does_not_hold(&title, &wrong),
        Ok(plan) => {
            let map = PlanMap::of_blocks("plan", ONLY_MEMORY, &plan, table.ids());
            match over_capacity(&map, capacities).as_slice() {
                [] => verdicts.holds(&title, &sentence(&plan), || Ok(vec![checked_memory(&plan)])),
                over => verdicts.does_not_fit(&title, over, || Ok(vec![checked_memory(&plan)])),
            }
        }
        Err(more) => {
            wrong.extend(more);
            verdicts.does_not_hold(&title, &wrong)
        }
    }
}

/// What a plan file says of itself that is not so.
fn own_faults(claims: &PlanFile) -> Vec<Fault> {
    let of_memory = |memory: &FileMemory| {
        let names: IdVec<BlockId, String> = memory.blocks.iter().map(|block| block.name.clone()).collect();
        let fault = |fault: &FileFault| {
            let message = explain::file_fault(fault, &names);
            match fault {
                FileFault::Outside { block, .. } | FileFault::NoBuffer { block, .. } => {
                    Fault::of_block("outside", &names[*block], message)
                }
                _ => Fault::new("figure", message),
            }
        };
        memory.own_faults().iter().map(fault).collect::<Vec<_>>()
    };
    claims.memories.iter().flat_map(of_memory).collect()
}

/// The places of one table for the problem of the other; or everything that is wrong.
fn prove(file: &str, table: &Table, placed: &Table, problem: Problem, voice: Voice) -> Result<Plan, Vec<Fault>> {
    let places = places(table, placed)?;
    note_differences(file, table, placed, &problem, voice);
    certify(problem, Placement::new(places))
        .map_err(|wrong| wrong.list().iter().map(|it| Fault::of_violation(it, table.ids())).collect())
}

/// What holds, and how good it is.
fn sentence(plan: &Plan) -> String {
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
        ggml: None,
    }
}

/// Where the plan puts the blocks of the problem, matched by id; or a sentence for each that has no match.
fn places(table: &Table, placed: &Table) -> Result<IdVec<BlockId, Place>, Vec<Fault>> {
    let mut places = Vec::with_capacity(table.ids().len());
    let mut wrong = Vec::new();
    for (block, id) in table.ids().pairs() {
        match placed.find(id).map(|it| placed.places()[it]) {
            Some(Some(place)) => places.push(place),
            Some(None) => {
                let message = format!("block {} has no offset", Name(table.ids(), block));
                wrong.push(Fault::of_block("unplaced", id, message));
            }
            None => {
                let message = format!("block {} of the problem has no place in the plan", Name(table.ids(), block));
                wrong.push(Fault::of_block("unplaced", id, message));
            }
        }
    }
    for (block, id) in placed.ids().pairs() {
        if table.find(id).is_none() {
            let message = format!("block {} of the plan is not in the problem", Name(placed.ids(), block));
            wrong.push(Fault::of_block("unknown", id, message));
        }
    }
    if wrong.is_empty() { Ok(places.into()) } else { Err(wrong) }
}

/// A plan may hold for other blocks than it was made for, but its owner should know.
fn note_differences(file: &str, table: &Table, placed: &Table, problem: &Problem, voice: Voice) {
    // A larger alignment in the plan is no difference: it may have been made with --align.
    let core = |block: &Block| Block { align: Align::ONE, follows: None, pinned: None, ..*block };
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
    let name = Name(table.ids(), first);
    voice.note(
        format!(
            "{file}: block {name}{others} had another size or lifetime when this plan was made; sizes and lifetimes are those of the problem"
        ),
    );
}
