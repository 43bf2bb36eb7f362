//! `steeve plan`: each file placed, proven and shown.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use comfy_table::Cell;
use steeve_models::gguf::DeviceMemory;
use steeve_models::onnx::Weights;
use steeve_plan::Bytes;

use crate::args::{GivenDims, PlanArgs, PlannedAs, StrategyName};
use crate::byte_size::SizeStyle;
use crate::comparison_table::geometric_mean;
use crate::dim_chart::dim_chart;
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::graph::LanguageNeeds;
use crate::input_file::{self, InputFile, ReadOptions};
use crate::input_source::{InputSource, input_sources};
use crate::json_lines::{ResultLine, print_line};
use crate::output_file::{DrawingStyle, OutputFile, OutputFolder, OutputFormat, OutputTarget};
use crate::plan_figures::{EnginePlanner, MemoryFigures, PlanFigures, sum};
use crate::planned_file::{FilePlanner, PlannedFile};
use crate::progress_display::{FileProgress, InterruptFlag};
use crate::text_table::{self, SizeRatio, file_labels};
use crate::verbosity::Verbosity;
use crate::{element_alignment, graph};

/// Plans each file, and prints or writes the plans. An invalid file is reported, and the others are planned.
pub(crate) fn run(args: &PlanArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    match &args.out {
        Some(OutputTarget::Folder(_)) => plan_files(&args_for_folder(args)?, verbosity, stdout),
        _ => plan_files(args, verbosity, stdout),
    }
}

/// Returns the arguments with what a folder of plans implies: the drop-in's rules and the strategy `best`.
fn args_for_folder(args: &PlanArgs) -> Result<PlanArgs, Error> {
    let mut args = args.clone();
    if args.planning.strategy.is_some_and(|strategy| strategy != StrategyName::Best) {
        let why = "--out FOLDER: for plans of --strategy best, the only ones that the drop-in reads; leave out --strategy, or name a file";
        return Err(Error::Usage(why.to_owned()));
    }
    (args.planning.strategy, args.planning.planned_as) = (Some(StrategyName::Best), Some(PlannedAs::DropIn));
    Ok(args)
}

fn plan_files(args: &PlanArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    args.planning.check(&args.search)?;
    let capacities = args.limits.capacities()?;
    let dims = args.dims.all()?;
    if args.out.is_some() && dims.settings().len() > 1 {
        return Err(Error::Usage("--out: expected one size for each --dim, got several".to_owned()));
    }
    let sources = input_sources(&args.files);
    match &args.out {
        Some(OutputTarget::File(_)) if sources.len() != 1 => {
            let count = sources.len();
            let why = format!(
                "--out: expected one file to plan, got {count}; plan them one by one, or name a folder, such as -o plans/"
            );
            return Err(Error::Usage(why));
        }
        Some(OutputTarget::File(out)) => out.check_inputs(sources.iter().flatten())?,
        Some(OutputTarget::Folder(folder)) => folder.make()?,
        None => {}
    }
    let inputs: Vec<InputSource> = sources.iter().flatten().cloned().collect();
    let interrupt = InterruptFlag::default();
    let mut rows = Vec::new();
    let mut worst = ExitStatus::Success;
    let count = sources.len();
    let bar = FileProgress::new(count, verbosity);
    for (index, source) in sources.into_iter().enumerate() {
        if index > 0 && interrupt.is_set() {
            let left = count - index;
            bar.suspended(|| verbosity.error(format!("stopped by Ctrl-C: {left} of {count} files not planned")));
            worst = worst.max(ExitStatus::Negative);
            break;
        }
        bar.next(&source.as_ref().map_or_else(|_| String::new(), InputSource::short_name));
        // A search draws a bar of its own, and may have something to say.
        let context = PlanContext { inputs: &inputs, dims: &dims, args, interrupt: &interrupt, verbosity };
        let planned = match bar.suspended(|| source.and_then(|source| context.plan(&source))) {
            Ok(planned) => planned,
            Err(error) => {
                worst = worst.max(bar.suspended(|| verbosity.report(&error)));
                continue;
            }
        };
        for row in planned {
            worst = worst.max(if row.figures.fits() { ExitStatus::Success } else { ExitStatus::Negative });
            if args.output.json {
                bar.suspended(|| {
                    print_line(stdout, &ResultLine::new(&row.file, &row.figures).with_needs(row.needs.as_ref()))
                })?;
            }
            rows.push(row);
        }
    }
    drop(bar);
    if !args.output.json && !rows.is_empty() {
        let shown = show(&rows, args.output.sizes());
        writeln!(stdout, "{}", shown.trim_fmt()).map_err(Error::Output)?;
        show_needs(&rows, args.output.sizes(), stdout).map_err(Error::Output)?;
        let chart = dim_chart(rows.iter().filter(|row| row.is_choice).map(|row| (row.name.as_str(), &row.figures)));
        write!(stdout, "{}", chart.text(args.output.sizes())).map_err(Error::Output)?;
    }
    if !args.output.json {
        notes_of_models(&rows).into_iter().for_each(|note| verbosity.note(note));
    }
    if args.out.is_none() && rows.iter().any(|row| row.figures.engine == EnginePlanner::Tflm) {
        verbosity.note(format!("heads of TFLite models: {}", graph::BESIDE_HEAD));
    }
    // Not every file has every memory, but one of them has each that is named.
    if !rows.is_empty() {
        capacities.check_names(rows.iter().flat_map(|row| row.figures.memory_names()))?;
    }
    dims.check_names().map(|()| worst)
}

/// Says what comes on top of the peak of each ONNX model, and once what such a peak is.
fn notes_of_models(rows: &[PlannedRow]) -> Vec<String> {
    // Of several settings of a model, the one with most constants.
    let mut models: BTreeMap<&str, Weights> = BTreeMap::new();
    for row in rows {
        let Some(model) = &row.figures.model else { continue };
        let known = models.entry(&row.file).or_insert(model.weights);
        known.computed = known.computed.max(model.weights.computed);
    }
    let of_model = |(file, weights): (&&str, &Weights)| {
        let beside = match weights.beside {
            0 => String::new(),
            bytes => format!(", {bytes} of them in files beside it"),
        };
        let computed = match weights.computed {
            0 => String::new(),
            bytes => format!("; constants computed from them, if they are kept, {bytes} more"),
        };
        format!("{file}: weights of {} bytes come on top{beside}{computed}", weights.stored)
    };
    let mut notes: Vec<String> = models.iter().map(of_model).collect();
    if !notes.is_empty() {
        notes.push(WHAT_ONNX_PEAKS_ARE.to_owned());
    }
    notes
}

const WHAT_ONNX_PEAKS_ARE: &str = "peaks of ONNX models: what an executor needs that runs the nodes in the file's order at planned \
                                   addresses, not what ONNX Runtime takes";

/// One file and the figures of its plan.
struct PlannedRow {
    /// The name without its folders.
    name: String,
    file: String,
    figures: PlanFigures,
    /// Whether it is one of several settings of a model's dimensions.
    is_choice: bool,
    /// What a language model takes of each device beside that.
    needs: Option<LanguageNeeds>,
}

/// What planning a file depends on beside the file.
struct PlanContext<'a> {
    inputs: &'a [InputSource],
    dims: &'a GivenDims,
    args: &'a PlanArgs,
    interrupt: &'a InterruptFlag,
    verbosity: Verbosity,
}

impl PlanContext<'_> {
    /// Plans what a file holds: a model once for each setting of its dimensions.
    fn plan(&self, source: &InputSource) -> Result<Vec<PlannedRow>, Error> {
        let options = ReadOptions { limit: self.args.input.limit(), dims: self.dims };
        let inputs = input_file::read_each(source, options)?;
        inputs.into_iter().map(|(chosen, input)| self.plan_input(source, &chosen, input)).collect()
    }

    fn plan_input(&self, source: &InputSource, chosen: &str, input: InputFile) -> Result<PlannedRow, Error> {
        let Self { inputs, args, interrupt, verbosity, .. } = *self;
        let format = match &args.out {
            Some(OutputTarget::File(out)) => Some(out.format),
            Some(OutputTarget::Folder(_)) | None => None,
        };
        let (planning, search, limits) = (&args.planning, &args.search, &args.limits);
        let planner = FilePlanner { planning, search, limits, format, interrupt, verbosity };
        if let Some(OutputTarget::Folder(_)) = &args.out {
            refuse_for_folder(source, &input)?;
        }
        let planned = planner.make(source, input)?;
        if args.out.is_some() {
            args.limits.capacities()?.check_names(planned.figures().memory_names())?;
        }
        match &args.out {
            None => {}
            Some(OutputTarget::File(out)) => write_to_file(out, &planned, verbosity)?,
            Some(OutputTarget::Folder(folder)) => write_to_folder(folder, &planned, inputs, args, verbosity)?,
        }
        let (name, file, figures) = (source.short_name(), source.to_string(), planned.figures().clone());
        verbosity.detail(|| format!("{file}: planned in {}", text_table::format_time(figures.time)));
        let is_choice = !chosen.is_empty();
        let name = if is_choice { format!("{name} {chosen}") } else { name };
        Ok(PlannedRow { name, file, figures, is_choice, needs: planned.language_needs() })
    }
}

/// Refuses what has no place in a folder of plans for the drop-in.
fn refuse_for_folder(source: &InputSource, input: &InputFile) -> Result<(), Error> {
    let why = match input {
        InputFile::Blocks(_) => "graphs: got a block list",
        InputFile::Graph(graph) => match graph.model_kind() {
            Some(kind) => &format!("graphs of ggml: got {kind}"),
            None => return Ok(()),
        },
        InputFile::Plan(_) => return Ok(()),
    };
    Err(Error::Usage(format!("{source}: --out FOLDER is for {why}; name a file")))
}

fn write_to_file(out: &OutputFile, planned: &PlannedFile, verbosity: Verbosity) -> Result<(), Error> {
    if !planned.figures().fits() {
        return note_unwritten(out, verbosity);
    }
    planned.write(out, &DrawingStyle::default(), verbosity)?;
    if out.format == OutputFormat::Header {
        element_alignment::note_misaligned_elements(planned.file(), &planned.map(planned.maker()), verbosity);
    }
    verbosity.detail(|| format!("{}: written", out.name()));
    Ok(())
}

/// Writes the plan of a graph under its exact fingerprint, in the form that the library reads.
fn write_to_folder(
    folder: &OutputFolder,
    planned: &PlannedFile,
    inputs: &[InputSource],
    args: &PlanArgs,
    verbosity: Verbosity,
) -> Result<(), Error> {
    let PlannedFile::Graph { graph, .. } = planned else { return Ok(()) };
    let options = args.planning.for_graph(&graph.file, &args.search, graph.unread())?;
    let out = folder.file(&graph.assigned.plan_file_name(&options));
    if !planned.figures().fits() {
        return note_unwritten(&out, verbosity);
    }
    out.check_inputs(inputs)?;
    out.write_text(planned.plan_file().to_json() + "\n")?;
    verbosity.detail(|| format!("{}: written to {}", graph.file, out.name()));
    Ok(())
}

fn note_unwritten(out: &OutputFile, verbosity: Verbosity) -> Result<(), Error> {
    verbosity.note(format!("{}: not written: no plan fits", out.name()));
    Ok(())
}

/// Columns that are the same everywhere and say nothing (one memory, one buffer) are left out.
#[derive(Clone, Copy)]
struct PlanColumns {
    memories: bool,
    /// Whose plans ours are compared with.
    engine: Option<EngineHeaders>,
    buffers: bool,
    /// How many nodes run elsewhere than in the graph's own order.
    moved: bool,
}

/// The headers above the bytes of the engines' own plans, and above the ratios to these.
#[derive(Clone, Copy)]
struct EngineHeaders {
    bytes: &'static str,
    ratio: &'static str,
}

impl EngineHeaders {
    /// Returns `None` if there is no such plan.
    fn of(rows: &[PlannedRow]) -> Option<Self> {
        let mut engines = rows
            .iter()
            .filter(|row| row.figures.memories.iter().any(|it| it.engine.is_some()))
            .map(|row| row.figures.engine);
        let first = engines.next()?;
        Some(match engines.all(|it| it == first) {
            true => Self { bytes: first.name(), ratio: first.ratio_header() },
            false => Self { bytes: "engine's", ratio: "of engine's" },
        })
    }
}

impl PlanColumns {
    fn of(rows: &[PlannedRow]) -> Self {
        let memories = || rows.iter().flat_map(|row| &row.figures.memories);
        Self {
            memories: rows.iter().any(|row| row.figures.memories.len() > 1),
            engine: EngineHeaders::of(rows),
            buffers: memories().any(|it| it.chunks.len() > 1),
            moved: rows.iter().any(|row| row.figures.moved.is_some()),
        }
    }

    fn header(self) -> Vec<&'static str> {
        let mut header = vec!["file"];
        header.extend(self.memories.then_some("memory"));
        header.push("blocks");
        header.extend(self.engine.map(|it| it.bytes));
        header.push("peak");
        header.extend(self.engine.map(|it| it.ratio));
        header.extend(["bound", "ratio", "result"]);
        header.extend(self.buffers.then_some("buffers"));
        header.extend(["time", "strategy"]);
        header.extend(self.engine.map(|_| "reuse"));
        header.extend(self.moved.then_some("moved"));
        header
    }

    fn cells(self, line: &PlanTableLine<'_>, sizes: SizeStyle) -> Vec<Cell> {
        let PlanTableLine { label, memory, figures, time } = line;
        let mut cells = vec![text_table::name_cell(label)];
        cells.extend(self.memories.then(|| text_table::name_cell(&memory.name)));
        cells.push(Cell::new(memory.blocks));
        cells.extend(self.engine.map(|_| Cell::new(memory.engine.map_or_else(nothing, |bytes| sizes.show(bytes)))));
        cells.push(Cell::new(sizes.show(memory.peak)));
        cells.extend(self.engine.map(|_| text_table::engine_ratio_cell(memory.peak, memory.engine)));
        cells.push(Cell::new(sizes.show(memory.at_least)));
        cells.push(Cell::new(SizeRatio::new(memory.peak, memory.at_least)));
        cells.push(text_table::verdict_cell(memory.verdict));
        cells.extend(self.buffers.then(|| Cell::new(memory.chunks.len())));
        cells.push(Cell::new(time.map_or_else(String::new, text_table::format_time)));
        cells.push(Cell::new(figures.strategy));
        cells.extend(self.engine.map(|_| Cell::new(figures.reuse.map_or_else(nothing, str::to_owned))));
        cells.extend(self.moved.then(|| Cell::new(figures.moved.unwrap_or(0))));
        cells
    }

    /// Returns the last row: sums over all memories of all files, and the geometric means of the ratios.
    fn summary(self, rows: &[PlannedRow], sizes: SizeStyle) -> Vec<Cell> {
        let memories = || rows.iter().flat_map(|row| &row.figures.memories);
        let total = |of: fn(&MemoryFigures) -> Bytes| Cell::new(sizes.show(sum(memories().map(of))));
        let mean = |ratios: Option<SizeRatio>| ratios.map_or_else(|| Cell::new(nothing()), Cell::new);
        let by_engine = memories().filter_map(|it| Some((it.peak, it.engine.filter(|bytes| *bytes > Bytes::ZERO)?)));
        let by_bound =
            memories().filter(|it| it.at_least > Bytes::ZERO).map(|it| SizeRatio::new(it.peak, it.at_least).0);
        let mut cells = vec![Cell::new(format!("all {}", rows.len()))];
        cells.extend(self.memories.then(|| Cell::new("")));
        cells.push(Cell::new(memories().map(|it| it.blocks).sum::<usize>()));
        cells.extend(self.engine.map(|_| Cell::new(sizes.show(sum(memories().filter_map(|it| it.engine))))));
        cells.push(total(|it| it.peak));
        let ratios = || by_engine.map(|(ours, theirs)| SizeRatio::new(ours, theirs).0);
        cells.extend(self.engine.map(|_| mean(geometric_mean(ratios()))));
        cells.push(total(|it| it.at_least));
        cells.push(mean(geometric_mean(by_bound)));
        let optimal = memories().filter(|it| it.is_optimal()).count();
        cells.push(Cell::new(format!("{optimal} of {} optimal", memories().count())));
        cells.extend(self.buffers.then(|| Cell::new(memories().map(|it| it.chunks.len()).sum::<usize>())));
        cells.push(Cell::new(text_table::format_time(rows.iter().map(|row| row.figures.time).sum())));
        cells.push(Cell::new(""));
        cells.extend(self.engine.map(|_| Cell::new("")));
        cells.extend(self.moved.then(|| Cell::new(rows.iter().filter_map(|row| row.figures.moved).sum::<usize>())));
        cells
    }
}

/// One line of the table.
struct PlanTableLine<'a> {
    label: &'a str,
    memory: &'a MemoryFigures,
    figures: &'a PlanFigures,
    /// Only the whole file has a time, not one memory of several.
    time: Option<Duration>,
}

/// Returns the text of a cell without a figure.
fn nothing() -> String {
    "-".to_owned()
}

/// Prints for each language model what it takes of each device.
fn show_needs(rows: &[PlannedRow], sizes: SizeStyle, stdout: &mut dyn Write) -> std::io::Result<()> {
    for row in rows {
        let Some(LanguageNeeds { size, devices }) = &row.needs else { continue };
        writeln!(stdout, "\n{}: context {}, batch {}", row.name, size.context, size.batch)?;
        let header = ["device", "weights", "caches", "compute", "total"];
        let mut shown = text_table::new_table(header.into_iter().map(str::to_owned));
        let cells = |name: &str, bytes: [Bytes; 4]| {
            [Cell::new(name)].into_iter().chain(bytes.map(|bytes| Cell::new(sizes.show(bytes)))).collect::<Vec<_>>()
        };
        for it in devices {
            shown.add_row(cells(&it.name, [it.weights, it.caches, it.compute, it.total()]));
        }
        if devices.len() > 1 {
            let total = |of: fn(&DeviceMemory) -> Bytes| sum(devices.iter().map(of));
            let totals =
                [total(|it| it.weights), total(|it| it.caches), total(|it| it.compute), total(DeviceMemory::total)];
            shown.add_row(cells("total", totals));
        }
        writeln!(stdout, "{}", shown.trim_fmt())?;
    }
    Ok(())
}

/// Returns a table with a row per memory and, for several memories, one for all of them.
fn show(rows: &[PlannedRow], sizes: SizeStyle) -> comfy_table::Table {
    let columns = PlanColumns::of(rows);
    let mut shown = text_table::new_table(columns.header().into_iter().map(str::to_owned));
    let labels = file_labels(rows.iter().map(|row| (row.name.as_str(), row.file.as_str())));
    for (row, label) in rows.iter().zip(&labels) {
        let figures = &row.figures;
        let total = figures.total();
        for memory in &figures.memories {
            let time = total.is_none().then_some(figures.time);
            shown.add_row(columns.cells(&PlanTableLine { label, memory, figures, time }, sizes));
        }
        if let Some(memory) = &total {
            shown.add_row(columns.cells(&PlanTableLine { label, memory, figures, time: Some(figures.time) }, sizes));
        }
    }
    if rows.len() > 1 {
        shown.add_row(columns.summary(rows, sizes));
    }
    shown
}
