//! `steeve plan`: each file placed, proven and shown.

use std::io::Write;
use std::time::Duration;

use comfy_table::Cell;
use steeve_plan::Bytes;

use crate::answer::{Answer, Voice};
use crate::args::{PlanArgs, PlannedAs, StrategyName};
use crate::board::geometric_mean;
use crate::error::Error;
use crate::figures::{Figures, MemoryFigures, sum};
use crate::input::Input;
use crate::json::{ResultLine, print_line};
use crate::made::{Made, Making};
use crate::out::{Drawing, Form, OutFile, OutFolder, OutTarget};
use crate::progress::{FileBar, Interrupt};
use crate::size::SizeStyle;
use crate::source::{Source, sources};
use crate::table::{self, Ratio, labels};
use crate::{element, input};

/// A mistake in one file does not keep the others from being planned.
pub(crate) fn run(args: &PlanArgs, voice: Voice, stdout: &mut dyn Write) -> Result<Answer, Error> {
    match &args.out {
        Some(OutTarget::Folder(_)) => run_as_asked(&for_folder(args)?, voice, stdout),
        _ => run_as_asked(args, voice, stdout),
    }
}

/// A folder of plans is the drop-in's, which looks for those that are planned as it does, with a search.
fn for_folder(args: &PlanArgs) -> Result<PlanArgs, Error> {
    let mut args = args.clone();
    if args.how.strategy.is_some_and(|strategy| strategy != StrategyName::Best) {
        let why = "a folder is for the drop-in, which reads plans of the strategy best alone; leave out --strategy, or name a file";
        return Err(Error::Usage(why.to_owned()));
    }
    (args.how.strategy, args.how.planned_as) = (Some(StrategyName::Best), Some(PlannedAs::DropIn));
    Ok(args)
}

fn run_as_asked(args: &PlanArgs, voice: Voice, stdout: &mut dyn Write) -> Result<Answer, Error> {
    args.how.check(&args.search)?;
    let capacities = args.limits.capacities()?;
    let sources = sources(&args.files);
    match &args.out {
        Some(OutTarget::File(_)) if sources.len() != 1 => {
            let count = sources.len();
            let why = format!(
                "--out takes the plan of one file, and there are {count}; plan them one by one, or name a folder, such as -o plans/"
            );
            return Err(Error::Usage(why));
        }
        Some(OutTarget::File(out)) => out.check_inputs(sources.iter().flatten())?,
        Some(OutTarget::Folder(folder)) => folder.make()?,
        None => {}
    }
    let inputs: Vec<Source> = sources.iter().flatten().cloned().collect();
    let interrupt = Interrupt::default();
    let mut rows = Vec::new();
    let mut worst = Answer::Yes;
    let count = sources.len();
    let bar = FileBar::new(count, voice);
    for (index, source) in sources.into_iter().enumerate() {
        if index > 0 && interrupt.is_pressed() {
            let left = count - index;
            bar.aside(|| voice.error(format!("stopped by Ctrl-C; {left} of {count} files are not planned")));
            worst = worst.max(Answer::No);
            break;
        }
        bar.next(&source.as_ref().map_or_else(|_| String::new(), Source::short_name));
        // A search draws a bar of its own, and may have something to say.
        let row = match bar.aside(|| source.and_then(|source| plan_file(&source, &inputs, args, &interrupt, voice))) {
            Ok(row) => row,
            Err(error) => {
                worst = worst.max(bar.aside(|| voice.report(&error)));
                continue;
            }
        };
        worst = worst.max(if row.figures.fits() { Answer::Yes } else { Answer::No });
        if args.show.json {
            bar.aside(|| print_line(stdout, &ResultLine::new(&row.file, &row.figures)))?;
        }
        rows.push(row);
    }
    drop(bar);
    if !args.show.json && !rows.is_empty() {
        let shown = show(&rows, args.show.sizes());
        writeln!(stdout, "{}", shown.trim_fmt()).map_err(Error::Output)?;
    }
    // Not every file has every memory, but one of them has each that is named.
    if !rows.is_empty() {
        capacities.check_names(rows.iter().flat_map(|row| row.figures.memory_names()))?;
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

fn plan_file(
    source: &Source,
    inputs: &[Source],
    args: &PlanArgs,
    interrupt: &Interrupt,
    voice: Voice,
) -> Result<Planned, Error> {
    let form = match &args.out {
        Some(OutTarget::File(out)) => Some(out.form),
        Some(OutTarget::Folder(_)) | None => None,
    };
    let making = Making { how: &args.how, search: &args.search, limits: &args.limits, form, interrupt, voice };
    let input = input::read(source, args.input.limit())?;
    if let (Input::Blocks(_), Some(OutTarget::Folder(_))) = (&input, &args.out) {
        let why = format!("{source}: is a block list, and a folder is for the plans of graphs; name a file with --out");
        return Err(Error::Usage(why));
    }
    let made = making.make(source, input)?;
    if args.out.is_some() {
        args.limits.capacities()?.check_names(made.figures().memory_names())?;
    }
    match &args.out {
        None => {}
        Some(OutTarget::File(out)) => write_to_file(out, &made, voice)?,
        Some(OutTarget::Folder(folder)) => write_to_folder(folder, &made, inputs, args, voice)?,
    }
    let (name, file, figures) = (source.short_name(), source.to_string(), made.figures().clone());
    voice.detail(|| format!("{file}: planned in {}", table::time(figures.time)));
    Ok(Planned { name, file, figures })
}

fn write_to_file(out: &OutFile, made: &Made, voice: Voice) -> Result<(), Error> {
    if !made.figures().fits() {
        return note_unwritten(out, voice);
    }
    made.write(out, &Drawing::default())?;
    if out.form == Form::Header {
        element::note_unreadable(made.file(), &made.map(made.maker()), voice);
    }
    voice.detail(|| format!("{}: written", out.name()));
    Ok(())
}

/// Writes the plan of a graph under its exact fingerprint, in the form that the library reads.
fn write_to_folder(
    folder: &OutFolder,
    made: &Made,
    inputs: &[Source],
    args: &PlanArgs,
    voice: Voice,
) -> Result<(), Error> {
    let Made::Graph { graph, .. } = made else { return Ok(()) };
    let options = args.how.for_graph(&graph.file, &args.search)?;
    let out = folder.file(&graph.assigned.plan_file_name(&options));
    if !made.figures().fits() {
        return note_unwritten(&out, voice);
    }
    out.check_inputs(inputs)?;
    out.write_text(made.plan_file().to_json() + "\n")?;
    voice.detail(|| format!("{}: written to {}", graph.file, out.name()));
    Ok(())
}

fn note_unwritten(out: &OutFile, voice: Voice) -> Result<(), Error> {
    voice.note(format!("{}: not written, for there is no plan that fits", out.name()));
    Ok(())
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
        let mut cells = vec![table::text(label)];
        cells.extend(self.memories.then(|| table::text(&memory.name)));
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

    /// All memories of all files: sums, and the geometric means of the ratios.
    fn summary(self, rows: &[Planned], sizes: SizeStyle) -> Vec<Cell> {
        let memories = || rows.iter().flat_map(|row| &row.figures.memories);
        let total = |of: fn(&MemoryFigures) -> Bytes| Cell::new(sizes.show(sum(memories().map(of))));
        let mean = |ratios: Option<Ratio>| ratios.map_or_else(|| Cell::new(nothing()), Cell::new);
        let by_ggml = memories().filter_map(|it| Some((it.peak, it.ggml.filter(|ggml| *ggml > Bytes::ZERO)?)));
        let by_bound = memories().filter(|it| it.at_least > Bytes::ZERO).map(|it| Ratio::new(it.peak, it.at_least).0);
        let mut cells = vec![Cell::new(format!("all {}", rows.len()))];
        cells.extend(self.memories.then(|| Cell::new("")));
        cells.push(Cell::new(memories().map(|it| it.blocks).sum::<usize>()));
        cells.extend(self.ggml.then(|| Cell::new(sizes.show(sum(memories().filter_map(|it| it.ggml))))));
        cells.push(total(|it| it.peak));
        cells.extend(self.ggml.then(|| mean(geometric_mean(by_ggml.map(|(ours, ggml)| Ratio::new(ours, ggml).0)))));
        cells.push(total(|it| it.at_least));
        cells.push(mean(geometric_mean(by_bound)));
        let optimal = memories().filter(|it| it.is_optimal()).count();
        cells.push(Cell::new(format!("{optimal} of {} optimal", memories().count())));
        cells.extend(self.buffers.then(|| Cell::new(memories().map(|it| it.chunks.len()).sum::<usize>())));
        cells.push(Cell::new(table::time(rows.iter().map(|row| row.figures.time).sum())));
        cells.push(Cell::new(""));
        cells.extend(self.ggml.then(|| Cell::new("")));
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
    if rows.len() > 1 {
        shown.add_row(columns.summary(rows, sizes));
    }
    shown
}
