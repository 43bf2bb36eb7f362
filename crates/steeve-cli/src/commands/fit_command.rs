//! `steeve fit`: a graph made to need no more than the bytes there are, and what that costs.

use std::io::Write;
use std::time::{Duration, Instant};

use comfy_table::Cell;
use serde::Serialize;
use steeve_graph::{
    Bytes, DoesNotFit, FitAction, FitCost, FitError, FitOptions, FitStep, Fitted, Id, MemoryId, PlanOptions, fit,
};

use crate::args::{FitArgs, GivenDims};
use crate::byte_size::SizeStyle;
use crate::error::{Error, ErrorChain};
use crate::exit_status::ExitStatus;
use crate::graph::{GraphFile, SolvedGraph};
use crate::input_file::{self, InputFile, ReadOptions};
use crate::input_source::InputSource;
use crate::json_lines::{JSON_VERSION, print_line};
use crate::output_file::DrawingStyle;
use crate::planned_file::PlannedFile;
use crate::text_table;
use crate::verbosity::Verbosity;

/// Fits the graph of a file, says how, and writes what fits.
pub(crate) fn run(args: &FitArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    let sources: Vec<InputSource> =
        [&args.file].into_iter().chain(&args.beside).map(|path| InputSource::new(path)).collect();
    for out in &args.out {
        out.check_inputs(&sources)?;
    }
    let dims = args.dims.single()?;
    let graph = read_graph(args, &dims, &InputSource::new(&args.file))?;
    let graphs = sources[1..].iter().map(|source| read_graph(args, &dims, source)).collect::<Result<Vec<_>, _>>()?;
    dims.check_names()?;
    let capacities = capacities(args, &graph)?;
    let options = FitOptions::new(PlanOptions::default().with_unread(graph.unread()));
    let options = args.parts.map_or(options, |parts| options.with_most_parts(parts.get()));
    let beside: Vec<_> = graphs.iter().map(|it| &it.assigned).collect();
    let start = Instant::now();
    let result = fit(&graph.assigned, &beside, &capacities, &options);
    let time = start.elapsed();
    let (fitted, too_large) = match result {
        Ok(fitted) => (fitted, None),
        Err(FitError::TooLarge(error)) => (error.smallest.clone(), Some(error)),
        Err(error) => {
            // A graph beside it has a file of its own.
            let file = match &error {
                FitError::Beside { graph: index, .. } | FitError::Memories { graph: index } => graphs.get(*index),
                _ => None,
            };
            let file = file.unwrap_or(&graph).file.clone();
            return Err(Error::Place { file, why: ErrorChain(&error).to_string() });
        }
    };
    show(args, &graph, &fitted, too_large.as_deref(), stdout)?;
    if let Some(why) = too_large {
        verbosity.error(format!("{}: {why}", graph.file));
        for out in &args.out {
            verbosity.note(format!("{}: not written: it does not fit", out.name()));
        }
        return Ok(ExitStatus::Negative);
    }
    write(args, graph.file, fitted, time, verbosity)?;
    Ok(ExitStatus::Success)
}

fn read_graph(args: &FitArgs, dims: &GivenDims, source: &InputSource) -> Result<GraphFile, Error> {
    match input_file::read(source, ReadOptions { limit: args.input.limit(), dims })? {
        InputFile::Graph(graph) if graph.model().is_none() => graph.limited(&args.limits),
        InputFile::Graph(_) => Err(Error::Usage(format!("{source}: fit is for graphs: got a TFLite model"))),
        InputFile::Blocks(_) => Err(Error::Usage(format!("{source}: fit is for graphs: got a block list"))),
        InputFile::Plan(_) => Err(Error::PlanOfGraph { file: source.to_string() }),
    }
}

/// Returns the capacity of each memory that has one.
fn capacities(args: &FitArgs, graph: &GraphFile) -> Result<Vec<(MemoryId, Bytes)>, Error> {
    let given = args.limits.capacities()?;
    given.check_names(graph.owners().map(|memory| graph.memory_name(memory)))?;
    let known: Vec<_> =
        graph.owners().filter_map(|memory| Some((memory, given.of(graph.memory_name(memory))?))).collect();
    if known.is_empty() {
        return Err(Error::Usage("--capacity: missing: expected what there is, such as --capacity 64MiB".to_owned()));
    }
    Ok(known)
}

fn write(args: &FitArgs, file: String, fitted: Fitted, time: Duration, verbosity: Verbosity) -> Result<(), Error> {
    let graph = GraphFile::text(file, fitted.graph);
    let solved = SolvedGraph::of_plan(&graph, fitted.plan, args.limits.capacities()?, time);
    let planned = PlannedFile::Graph { graph: Box::new(graph), solved: Box::new(solved) };
    for out in &args.out {
        planned.write(out, &DrawingStyle::default(), verbosity)?;
        verbosity.detail(|| format!("{}: written", out.name()));
    }
    Ok(())
}

/// One or more steps of one kind.
struct StepLine<'a> {
    step: &'a FitStep,
    what: String,
    count: usize,
    cost: FitCost,
}

/// Adds up the chains that differ in nothing but where they are, as those of the layers of a model do.
fn step_lines(steps: &[FitStep]) -> Vec<StepLine<'_>> {
    let mut lines: Vec<StepLine<'_>> = Vec::new();
    for step in steps {
        let alike = |line: &&mut StepLine<'_>| match (&line.step.action, &step.action) {
            (
                FitAction::Tile { nodes, rows, parts, .. },
                FitAction::Tile { nodes: others, rows: other_rows, parts: other_parts, .. },
            ) => (nodes.len(), rows, parts) == (others.len(), other_rows, other_parts) && line.step.bytes == step.bytes,
            _ => false,
        };
        if let Some(line) = lines.iter_mut().find(alike) {
            line.count += 1;
            line.cost.weights = Bytes(line.cost.weights.get().saturating_add(step.cost.weights.get()));
            line.cost.launches = line.cost.launches.saturating_add(step.cost.launches);
            continue;
        }
        lines.push(StepLine { step, what: step.action.to_string(), count: 1, cost: step.cost });
    }
    for line in lines.iter_mut().filter(|line| line.count > 1) {
        line.what = format!("{}, and {} like it", line.what, line.count - 1);
    }
    lines
}

/// What `--json` prints.
#[derive(Serialize)]
struct FitOutput<'a> {
    version: u32,
    file: &'a str,
    fits: bool,
    steps: Vec<StepEntry<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    too_large: Option<TooLargeEntry<'a>>,
}

/// A step: in words, and for programs.
#[derive(Serialize)]
struct StepEntry<'a> {
    step: String,
    #[serde(flatten)]
    action: ActionEntry<'a>,
    memories: Vec<MemoryEntry>,
    read_again: Bytes,
    more_nodes: u64,
}

/// What was done.
#[derive(Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
enum ActionEntry<'a> {
    Pack,
    InPlace,
    Order { moved: usize },
    Tile { first: NodeEntry<'a>, last: NodeEntry<'a>, rows: u64, parts: u64 },
    Plan,
    Other,
}

/// A node of the graph in the order in which it is then.
#[derive(Serialize)]
struct NodeEntry<'a> {
    node: usize,
    name: &'a str,
}

/// The memory that is too small, and what is alive there when most is.
#[derive(Serialize)]
struct TooLargeEntry<'a> {
    memory: &'a str,
    capacity: Bytes,
    needed: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<usize>,
    alive: Vec<AliveEntry<'a>>,
}

#[derive(Serialize)]
struct AliveEntry<'a> {
    tensor: usize,
    name: &'a str,
    bytes: Bytes,
}

impl<'a> ActionEntry<'a> {
    fn new(action: &'a FitAction) -> Self {
        match action {
            FitAction::Pack => Self::Pack,
            FitAction::InPlace => Self::InPlace,
            FitAction::Order { moved } => Self::Order { moved: *moved },
            FitAction::Plan => Self::Plan,
            FitAction::Tile { nodes, names: [first, last], rows, parts } => Self::Tile {
                first: NodeEntry { node: nodes.start, name: first },
                last: NodeEntry { node: nodes.end - 1, name: last },
                rows: *rows,
                parts: *parts,
            },
            _ => Self::Other,
        }
    }
}

impl<'a> TooLargeEntry<'a> {
    fn new(error: &'a DoesNotFit) -> Self {
        let alive = error.alive.iter().map(|(id, name, bytes)| AliveEntry { tensor: id.index(), name, bytes: *bytes });
        let (capacity, needed, beside) = (error.capacity, error.needed, error.beside);
        Self { memory: &error.name, capacity, needed, beside, alive: alive.collect() }
    }
}

#[derive(Serialize)]
struct MemoryEntry {
    name: String,
    bytes: Bytes,
}

fn show(
    args: &FitArgs,
    graph: &GraphFile,
    fitted: &Fitted,
    too_large: Option<&DoesNotFit>,
    stdout: &mut dyn Write,
) -> Result<(), Error> {
    if args.output.json {
        let memories = |step: &FitStep| {
            let entry = |(memory, bytes): &(MemoryId, Bytes)| MemoryEntry {
                name: graph.memory_name(*memory).to_owned(),
                bytes: *bytes,
            };
            step.bytes.iter().map(entry).collect()
        };
        let steps = fitted.steps.iter().map(|step| StepEntry {
            step: step.action.to_string(),
            action: ActionEntry::new(&step.action),
            memories: memories(step),
            read_again: step.cost.weights,
            more_nodes: step.cost.launches,
        });
        let steps = steps.collect();
        let (fits, too_large) = (too_large.is_none(), too_large.map(TooLargeEntry::new));
        return print_line(stdout, &FitOutput { version: JSON_VERSION, file: &graph.file, fits, steps, too_large });
    }
    let table = table(graph, fitted, args.output.sizes());
    writeln!(stdout, "{}", table.trim_fmt()).map_err(Error::Output)
}

fn table(graph: &GraphFile, fitted: &Fitted, sizes: SizeStyle) -> comfy_table::Table {
    let several = graph.owners().count() > 1;
    let mut header = vec!["step"];
    header.extend(several.then_some("memory"));
    header.extend(["bytes", "read again", "more nodes"]);
    let mut shown = text_table::new_table(header.into_iter().map(str::to_owned));
    for line in step_lines(&fitted.steps) {
        for (memory, bytes) in &line.step.bytes {
            let mut cells = vec![text_table::name_cell(&line.what)];
            cells.extend(several.then(|| text_table::name_cell(graph.memory_name(*memory))));
            cells.push(Cell::new(sizes.show(*bytes)));
            let costs = line.cost != FitCost::default();
            cells.push(Cell::new(if costs { sizes.show(line.cost.weights) } else { "-".to_owned() }));
            cells.push(Cell::new(if costs { line.cost.launches.to_string() } else { "-".to_owned() }));
            shown.add_row(cells);
        }
    }
    shown
}
