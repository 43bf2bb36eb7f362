//! `steeve plan`: each file placed, proven and shown.

use std::io::Write;
use std::time::Duration;

use comfy_table::Cell;
use steeve_graph::GraphStrategy;
use steeve_plan::{Progress, Strategy, Verdict};

use crate::answer::{Answer, Tone, report, say};
use crate::args::PlanArgs;
use crate::block_list::BlockList;
use crate::block_plan::BlockPlan;
use crate::error::Error;
use crate::figures::{Figures, MemoryFigures};
use crate::graph::{self, GraphFile, GraphPlanFile};
use crate::input::{self, Input};
use crate::json::ResultLine;
use crate::out::Document;
use crate::progress::{Interrupt, Watcher};
use crate::size::SizeStyle;
use crate::solve::solve;
use crate::source::{Source, sources};
use crate::table::{self, Ratio};

/// A mistake in one file does not keep the others from being planned.
pub(crate) fn run(args: &PlanArgs, stdout: &mut dyn Write) -> Result<Answer, Error> {
    args.how.check(&args.search)?;
    let sources = sources(&args.files);
    if args.out.is_some() && sources.len() != 1 {
        let why = format!("--out takes the plan of one file, and there are {}; plan them one by one", sources.len());
        return Err(Error::Usage(why));
    }
    let interrupt = Interrupt::default();
    let mut rows = Vec::new();
    let mut worst = Answer::Yes;
    let count = sources.len();
    for (index, source) in sources.into_iter().enumerate() {
        if index > 0 && interrupt.is_pressed() {
            say(Tone::Error, format!("stopped by Ctrl-C; {} of {count} files are not planned", count - index));
            worst = worst.max(Answer::No);
            break;
        }
        let row = match source.and_then(|source| plan_file(&source, args, &interrupt)) {
            Ok(row) => row,
            Err(error) => {
                worst = worst.max(report(&error));
                continue;
            }
        };
        worst = worst.max(if row.figures.fits() { Answer::Yes } else { Answer::No });
        if args.show.json {
            print_line(stdout, &ResultLine::new(&row.file, &row.figures))?;
        }
        rows.push(row);
    }
    if !args.show.json && !rows.is_empty() {
        let shown = show(&rows, args.show.sizes());
        writeln!(stdout, "{}", shown.trim_fmt()).map_err(Error::Output)?;
    }
    Ok(worst)
}

/// One file and what its plan amounts to.
struct Planned {
    /// The name without its folders.
    name: String,
    file: String,
    figures: Figures,
}

fn plan_file(source: &Source, args: &PlanArgs, interrupt: &Interrupt) -> Result<Planned, Error> {
    let (name, file) = (source.short_name(), source.to_string());
    let figures = match input::read(source)? {
        Input::Blocks(table) => {
            let list = BlockList::new(file.clone(), table, &args.limits)?;
            plan_blocks(&name, &list, args, interrupt)?
        }
        Input::Graph(graph) => plan_graph(&name, &graph.limited(&args.limits)?, args, interrupt)?,
        Input::Tensors(_) => return Err(Error::PlanOfGraph { file }),
    };
    Ok(Planned { name, file, figures })
}

fn plan_blocks(name: &str, list: &BlockList, args: &PlanArgs, interrupt: &Interrupt) -> Result<Figures, Error> {
    let strategy = args.how.for_blocks(&list.file, &args.search)?;
    interrupt.listen(&strategy);
    let mut watcher = Watcher::new(name, &strategy, interrupt);
    let solved = solve(list, &strategy, &mut |progress| watcher.look(progress))?;
    drop(watcher);
    if interrupt.is_pressed() && solved.verdict != Verdict::Optimal {
        say_stopped(&list.file);
    }
    let figures = solved.figures(&strategy);
    if let Some(why) = solved.refusal(list, &strategy) {
        say(Tone::Error, format!("{}: {why}", list.file));
    }
    write_out(args, &figures, &BlockPlan { list, solved: &solved, figures: &figures })?;
    Ok(figures)
}

fn plan_graph(name: &str, graph: &GraphFile, args: &PlanArgs, interrupt: &Interrupt) -> Result<Figures, Error> {
    let options = args.how.for_graph(&graph.file, &args.search)?;
    let strategy = match options.strategy {
        GraphStrategy::Best(best) => Strategy::Best(best),
        _ => Strategy::Fast,
    };
    interrupt.listen(&strategy);
    let mut watcher = Watcher::new(name, &strategy, interrupt);
    let look = &mut |progress: &Progress| watcher.look(progress);
    let solved = graph::solve_watched(graph, &options, args.limits.capacity, look)?;
    drop(watcher);
    if interrupt.is_pressed() && solved.figures.verdict() != Verdict::Optimal {
        say_stopped(&graph.file);
    }
    for why in graph::refusals(graph, &solved, args.limits.capacity) {
        say(Tone::Error, format!("{}: {why}", graph.file));
    }
    write_out(args, &solved.figures, &GraphPlanFile { graph, solved: &solved })?;
    Ok(solved.figures)
}

fn say_stopped(file: &str) {
    say(Tone::Note, format!("{file}: stopped by Ctrl-C; this is the best plan so far"));
}

fn write_out(args: &PlanArgs, figures: &Figures, document: &dyn Document) -> Result<(), Error> {
    match &args.out {
        None => Ok(()),
        Some(out) if figures.fits() => out.write(document),
        Some(out) => {
            say(Tone::Note, format!("{}: not written, for there is no plan that fits", out.name()));
            Ok(())
        }
    }
}

/// One line of JSON.
pub(crate) fn print_line(stdout: &mut dyn Write, line: &impl serde::Serialize) -> Result<(), Error> {
    serde_json::to_writer(&mut *stdout, line).map_err(|error| Error::Output(error.into()))?;
    writeln!(stdout).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// What a file is called in a table: without its folders, unless that would be another one's name.
pub(crate) fn labels<'a>(names: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let unique = names.clone().all(|(short, _)| seen.insert(short));
    names.map(|(short, long)| if unique { short.to_owned() } else { long.to_owned() }).collect()
}

/// Columns that are the same everywhere and say nothing (one memory, one buffer) are left out.
#[derive(Clone, Copy)]
struct Columns {
    memories: bool,
    ggml: bool,
    buffers: bool,
}

impl Columns {
    fn of(rows: &[Planned]) -> Self {
        let memories = || rows.iter().flat_map(|row| &row.figures.memories);
        Self {
            memories: rows.iter().any(|row| row.figures.memories.len() > 1),
            ggml: memories().any(|it| it.ggml.is_some()),
            buffers: memories().any(|it| it.chunks.len() > 1),
        }
    }

    fn header(self) -> Vec<&'static str> {
        let mut header = vec!["file"];
        header.extend(self.memories.then_some("memory"));
        header.push("blocks");
        header.extend(self.ggml.then_some("ggml"));
        header.push("peak");
        header.extend(self.ggml.then_some("of ggml"));
        header.extend(["bound", "ratio", "result"]);
        header.extend(self.buffers.then_some("buffers"));
        header.extend(["time", "strategy"]);
        header.extend(self.ggml.then_some("reuse"));
        header
    }

    fn cells(self, line: &Line<'_>, sizes: SizeStyle) -> Vec<Cell> {
        let Line { label, memory, figures, time } = line;
        let mut cells = vec![Cell::new(label)];
        cells.extend(self.memories.then(|| Cell::new(&memory.name)));
        cells.push(Cell::new(memory.blocks));
        cells.extend(self.ggml.then(|| Cell::new(memory.ggml.map_or_else(nothing, |ggml| sizes.show(ggml)))));
        cells.push(Cell::new(sizes.show(memory.peak)));
        cells.extend(self.ggml.then(|| table::of_ggml(memory.peak, memory.ggml)));
        cells.push(Cell::new(sizes.show(memory.at_least)));
        cells.push(Cell::new(Ratio::new(memory.peak, memory.at_least)));
        cells.push(table::verdict(memory.verdict));
        cells.extend(self.buffers.then(|| Cell::new(memory.chunks.len())));
        cells.push(Cell::new(time.map_or_else(String::new, table::time)));
        cells.push(Cell::new(figures.strategy));
        cells.extend(self.ggml.then(|| Cell::new(figures.reuse.map_or_else(nothing, str::to_owned))));
        cells
    }
}

/// One line of the table.
struct Line<'a> {
    label: &'a str,
    memory: &'a MemoryFigures,
    figures: &'a Figures,
    /// Only the whole file has a time, not one memory of several.
    time: Option<Duration>,
}

/// What stands where a figure has no meaning.
fn nothing() -> String {
    "-".to_owned()
}

/// A row per memory and, where there are several, one for all of them.
fn show(rows: &[Planned], sizes: SizeStyle) -> comfy_table::Table {
    let columns = Columns::of(rows);
    let mut shown = table::table(columns.header().into_iter().map(str::to_owned));
    let labels = labels(rows.iter().map(|row| (row.name.as_str(), row.file.as_str())));
    for (row, label) in rows.iter().zip(&labels) {
        let figures = &row.figures;
        let total = figures.total();
        for memory in &figures.memories {
            let time = total.is_none().then_some(figures.time);
            shown.add_row(columns.cells(&Line { label, memory, figures, time }, sizes));
        }
        if let Some(memory) = &total {
            shown.add_row(columns.cells(&Line { label, memory, figures, time: Some(figures.time) }, sizes));
        }
    }
    shown
}
