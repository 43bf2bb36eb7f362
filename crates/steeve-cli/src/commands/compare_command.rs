//! `steeve compare`: every strategy on each file, side by side. Block lists and graphs have a table each.

use std::io::Write;

use comfy_table::Cell;
use steeve_plan::csv::Table;
use steeve_plan::{Bytes, Strategy};

use crate::args::{CompareArgs, GivenDims, RowName};
use crate::block_list::BlockList;
use crate::byte_size::SizeStyle;
use crate::comparison_table::{
    CapacityFit, ComparisonRow, ComparisonTable, StrategyResult, geometric_mean, result_cells,
};
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::folder_summary;
use crate::graph;
use crate::input_file::{self, InputFile, ReadOptions};
use crate::input_source::{InputSource, input_sources};
use crate::json_lines::{ResultLine, print_line};
use crate::plan_figures::{PlanFigures, sum};
use crate::progress_display::{FileProgress, InterruptFlag, ProgressDisplay};
use crate::solve_blocks::{SolvedBlocks, solve_blocks};
use crate::text_table::{self, SizeRatio, file_labels};
use crate::verbosity::Verbosity;

/// Plans each file with every strategy and prints the results. The status is 1 if no strategy fits the capacity.
pub(crate) fn run(args: &CompareArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    let capacities = args.limits.capacities()?;
    let interrupt = InterruptFlag::default();
    let dims = args.dims.single()?;
    let (mut lists, mut graphs) = (Vec::new(), Vec::new());
    let (mut models, mut onnx) = (Vec::new(), Vec::new());
    let mut worst = ExitStatus::Success;
    let sources = input_sources(&args.files);
    let count = sources.len();
    let bar = FileProgress::new(count, verbosity);
    for (index, source) in sources.into_iter().enumerate() {
        if index > 0 && interrupt.is_set() {
            let left = count - index;
            bar.suspended(|| verbosity.error(format!("stopped by Ctrl-C: {left} of {count} files not compared")));
            worst = worst.max(ExitStatus::Negative);
            break;
        }
        let name = source.as_ref().map_or_else(|_| String::new(), InputSource::short_name);
        bar.next(&name);
        let compared = source.and_then(|source| {
            compare_file(&source, args, &CompareContext { interrupt: &interrupt, bar: &bar, verbosity, dims: &dims })
        });
        let compared = match compared {
            Ok(compared) => compared,
            Err(error) => {
                worst = worst.max(bar.suspended(|| verbosity.report(&error)));
                continue;
            }
        };
        worst = worst.max(compared.status);
        if args.output.json {
            for figures in &compared.figures {
                print_line(stdout, &ResultLine::new(&compared.file, figures))?;
            }
        }
        match compared.kind {
            ComparedKind::Blocks => lists.push(compared),
            ComparedKind::Graph => graphs.push(compared),
            ComparedKind::Model => models.push(compared),
            ComparedKind::Onnx => onnx.push(compared),
        }
    }
    drop(bar);
    if !args.output.json {
        let by_folder = match args.rows {
            Some(rows) => rows == RowName::Folder,
            None => count > MANY,
        };
        let tables = if by_folder { folder_summary::folder_tables } else { tables };
        print_tables(stdout, &tables([&lists, &graphs, &models, &onnx], args.output.sizes()))?;
        if args.rows.is_none() && by_folder {
            verbosity.note(format!("{count} files are summed up by folder; --rows file shows each"));
        }
    }
    let compared = || lists.iter().chain(&graphs).chain(&models).chain(&onnx);
    if compared().next().is_some() {
        let figures = || compared().filter_map(|it| it.figures.first());
        capacities.check_names(figures().flat_map(PlanFigures::memory_names))?;
    }
    dims.check_names().map(|()| worst)
}

/// More files than this are summed up by folder.
const MANY: usize = 40;

/// The progress bar, the Ctrl-C flag and the messages of a comparison.
struct CompareContext<'a> {
    interrupt: &'a InterruptFlag,
    bar: &'a FileProgress,
    verbosity: Verbosity,
    dims: &'a GivenDims,
}

/// One file and the figures of every strategy.
pub(crate) struct ComparedFile {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) kind: ComparedKind,
    pub(crate) status: ExitStatus,
    pub(crate) figures: Vec<PlanFigures>,
}

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparedKind {
    Blocks,
    Graph,
    /// A graph with an engine of its own.
    Model,
    /// The graph of an ONNX model.
    Onnx,
}

fn compare_file(source: &InputSource, args: &CompareArgs, context: &CompareContext<'_>) -> Result<ComparedFile, Error> {
    let (name, file) = (source.short_name(), source.to_string());
    match input_file::read(source, ReadOptions { limit: args.input.limit(), dims: context.dims })? {
        // A search draws a bar of its own.
        InputFile::Blocks(table) => context.bar.suspended(|| compare_blocks(name, file, table, args, context)),
        InputFile::Graph(graph) => {
            let graph = graph.limited(&args.limits)?;
            let (figures, refused) = graph::compare_graph(&graph, args)?;
            let status = if refused.is_empty() { ExitStatus::Success } else { ExitStatus::Negative };
            context.bar.suspended(|| refused.iter().for_each(|why| context.verbosity.error(format!("{file}: {why}"))));
            let kind = match (graph.model(), graph.onnx()) {
                (Some(_), _) => ComparedKind::Model,
                (None, Some(_)) => ComparedKind::Onnx,
                (None, None) => ComparedKind::Graph,
            };
            Ok(ComparedFile { name, file, kind, status, figures })
        }
        InputFile::Plan(_) => Err(Error::PlanOfGraph { file }),
    }
}

fn compare_blocks(
    name: String,
    file: String,
    table: Table,
    args: &CompareArgs,
    context: &CompareContext<'_>,
) -> Result<ComparedFile, Error> {
    let list = BlockList::new(file.clone(), table, &args.limits)?;
    let strategies = [Strategy::BestFit, Strategy::Fast, Strategy::Best(args.search.best())];
    context.interrupt.listen(&strategies[2]);
    let plan = |strategy: &Strategy| {
        let mut watcher = ProgressDisplay::new(&name, strategy, context.interrupt, context.verbosity);
        solve_blocks(&list, strategy, &mut |progress| watcher.on_progress(progress))
    };
    let solved = strategies.iter().map(plan).collect::<Result<Vec<SolvedBlocks>, Error>>()?;
    let figures: Vec<PlanFigures> = solved.iter().zip(&strategies).map(|(it, strategy)| it.figures(strategy)).collect();
    let fits = figures.iter().any(PlanFigures::fits);
    // The last strategy has searched the longest: its reason is the best.
    let why = solved.last().and_then(|it| it.capacity_error(&list, &strategies[2]));
    if let (false, Some(why)) = (fits, why) {
        context.verbosity.error(format!("{file}: {why}"));
    }
    let status = if fits { ExitStatus::Success } else { ExitStatus::Negative };
    Ok(ComparedFile { name, file, kind: ComparedKind::Blocks, status, figures })
}

/// Returns the tables with a row per file: of block lists, of graphs, of TFLite models and of ONNX models.
fn tables([lists, graphs, models, onnx]: [&[ComparedFile]; 4], sizes: SizeStyle) -> Vec<comfy_table::Table> {
    let lists = (!lists.is_empty()).then(|| block_comparison(lists, sizes));
    let graphs = (!graphs.is_empty()).then(|| graph::graph_comparison(graphs, sizes));
    let models = (!models.is_empty()).then(|| graph::model_comparison(models, sizes));
    let onnx = (!onnx.is_empty()).then(|| graph::onnx_comparison(onnx, sizes));
    lists.iter().chain(&graphs).chain(&models).chain(&onnx).map(ComparisonTable::show).collect()
}

fn print_tables(stdout: &mut dyn Write, tables: &[comfy_table::Table]) -> Result<(), Error> {
    for (index, table) in tables.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        writeln!(stdout, "{gap}{}", table.trim_fmt()).map_err(Error::Output)?;
    }
    Ok(())
}

/// The figures of one block list.
struct BlockListRow {
    blocks: usize,
    /// The most that any strategy could prove.
    bound: Bytes,
    results: Vec<StrategyResult>,
}

impl BlockListRow {
    fn new(compared: &ComparedFile) -> Self {
        let memories =
            || compared.figures.iter().flat_map(|figures| figures.memories.iter().map(move |it| (figures, it)));
        let results = memories().map(|(figures, it)| StrategyResult {
            peak: it.peak,
            time: Some(figures.time),
            fit: if it.verdict.fits() { CapacityFit::Within } else { CapacityFit::Over },
        });
        Self {
            blocks: memories().map(|(_, it)| it.blocks).next().unwrap_or(0),
            bound: memories().map(|(_, it)| it.at_least).max().unwrap_or_default(),
            results: results.collect(),
        }
    }
}

fn block_comparison(compared: &[ComparedFile], sizes: SizeStyle) -> ComparisonTable {
    let rows: Vec<BlockListRow> = compared.iter().map(BlockListRow::new).collect();
    let labels = file_labels(compared.iter().map(|it| (it.name.as_str(), it.file.as_str())));
    let mut table = ComparisonTable::new(vec!["file", "blocks", "bound"], vec!["best-fit", "fast", "best"]);
    for (row, label) in rows.iter().zip(labels) {
        let head = vec![text_table::name_cell(&label), Cell::new(row.blocks), Cell::new(sizes.show(row.bound))];
        table.push(ComparisonRow { head, results: result_cells(&row.results, Some(row.bound), sizes) });
    }
    if rows.len() > 1 {
        table.push(summary(&rows, sizes));
    }
    table
}

/// Returns the last row: sums, and the geometric mean of the ratios.
fn summary(rows: &[BlockListRow], sizes: SizeStyle) -> ComparisonRow {
    let results = (0..rows[0].results.len()).map(|index| {
        let all = || rows.iter().map(|row| (row, row.results[index]));
        let mean = geometric_mean(all().map(|(row, it)| SizeRatio::new(it.peak, row.bound).0));
        let bytes = sizes.show(sum(all().map(|(_, it)| it.peak)));
        let time = text_table::format_time(all().filter_map(|(_, it)| it.time).sum());
        [Cell::new(bytes), mean.map_or(Cell::new("-"), Cell::new), Cell::new(time)]
    });
    let blocks: usize = rows.iter().map(|row| row.blocks).sum();
    let bound = sizes.show(sum(rows.iter().map(|row| row.bound)));
    let head = vec![Cell::new(format!("all {}", rows.len())), Cell::new(blocks), Cell::new(bound)];
    ComparisonRow { head, results: results.collect() }
}
