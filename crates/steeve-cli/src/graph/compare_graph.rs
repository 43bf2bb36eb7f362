//! `steeve compare_graph` for graphs: ggml's plan, its live ranges packed better, ours, and ours with a search.

use std::time::{Duration, Instant};

use comfy_table::Cell;
use steeve_graph::{Bytes, GraphStrategy, Order, PlanOptions, Reuse, Verdict};

use super::graph_file::GraphFile;
use super::model_file::ModelFile;
use super::solve_graph::{SolvedGraph, capacity_errors, solve_graph};
use crate::args::{CompareArgs, KernelArgs, KernelSetName};
use crate::byte_size::SizeStyle;
use crate::commands::compare_command::ComparedFile;
use crate::comparison_table::{
    CapacityFit, ComparisonRow, ComparisonTable, StrategyResult, geometric_mean, result_cells,
};
use crate::error::Error;
use crate::plan_figures::{EnginePlanner, MemoryFigures, PlanFigures, sum};
use crate::text_table::{self, SizeRatio, file_labels};

/// Plans a graph with every strategy, ggml's first. Also returns why not even the best one fits, if so.
pub(crate) fn compare_graph(graph: &GraphFile, args: &CompareArgs) -> Result<(Vec<PlanFigures>, Vec<String>), Error> {
    let capacities = args.limits.capacities()?;
    if graph.model().is_some() {
        return compare_model(graph, args);
    }
    if graph.onnx().is_some() {
        return compare_onnx(graph, args);
    }
    let options = [
        PlanOptions::new(GraphStrategy::Ggml).with_reuse(Reuse::Ggml),
        PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::Ggml),
        PlanOptions::new(GraphStrategy::Fast),
        PlanOptions::new(GraphStrategy::Fast).with_order(Order::Best),
        PlanOptions::new(GraphStrategy::Best(args.search.best())),
    ];
    let solved = options.iter().map(|options| solve_graph(graph, options, capacities));
    let solved = solved.collect::<Result<Vec<SolvedGraph>, Error>>()?;
    let fits = solved.iter().any(|it| it.figures.fits());
    // Of all that keep the order, the last has searched the longest.
    let refused = solved.last().filter(|_| !fits).map(|it| capacity_errors(graph, it, capacities));
    Ok((solved.into_iter().map(|it| it.figures).collect(), refused.unwrap_or_default()))
}

/// Plans a model as TensorFlow Lite Micro does, and then with more and more assumed of its kernels: nothing, that they compute in
/// place, that they read ahead of what they write; the last with a search.
fn compare_model(graph: &GraphFile, args: &CompareArgs) -> Result<(Vec<PlanFigures>, Vec<String>), Error> {
    let capacities = args.limits.capacities()?;
    let reference = Some(KernelSetName::TflmReference);
    let (fast, best) = (GraphStrategy::Fast, GraphStrategy::Best(args.search.best()));
    let in_place = KernelArgs { in_place: reference, ..KernelArgs::default() };
    let overlap = KernelArgs { overlap: reference, ..KernelArgs::default() };
    let tries = [(&KernelArgs::default(), fast), (&in_place, fast), (&overlap, fast), (&overlap, best)];
    let mut figures: Vec<PlanFigures> = Vec::with_capacity(tries.len() + 1);
    let mut refused = Vec::new();
    for (kernels, strategy) in tries {
        let graph = graph.with_kernels(kernels)?;
        let options = PlanOptions::new(strategy).with_unread(graph.unread());
        let solved = solve_graph(&graph, &options, capacities)?;
        refused = capacity_errors(&graph, &solved, capacities);
        figures.push(solved.figures);
    }
    if figures.iter().any(PlanFigures::fits) {
        refused.clear();
    }
    // The bound is that of a plan which assumes nothing.
    let start = Instant::now();
    let head = graph.model().and_then(ModelFile::tflm_head);
    let mut tflm = PlanFigures { strategy: EnginePlanner::Tflm.name(), time: start.elapsed(), ..figures[0].clone() };
    for memory in &mut tflm.memories {
        memory.peak = head.unwrap_or_default();
        memory.chunks = vec![memory.peak];
        memory.verdict = if memory.is_optimal() { Verdict::Optimal } else { Verdict::Fits };
    }
    figures.insert(0, tflm);
    Ok((figures, refused))
}

/// Plans an ONNX model with nothing in place, in place, in the best order of its nodes that is found, and with a search.
fn compare_onnx(graph: &GraphFile, args: &CompareArgs) -> Result<(Vec<PlanFigures>, Vec<String>), Error> {
    let capacities = args.limits.capacities()?;
    let options = [
        PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::None),
        PlanOptions::new(GraphStrategy::Fast),
        PlanOptions::new(GraphStrategy::Fast).with_order(Order::Best),
        PlanOptions::new(GraphStrategy::Best(args.search.best())),
    ];
    let mut figures: Vec<PlanFigures> = Vec::with_capacity(options.len());
    let mut refused = Vec::new();
    for options in options {
        let solved = solve_graph(graph, &options.with_unread(graph.unread()), capacities)?;
        refused = capacity_errors(graph, &solved, capacities);
        figures.push(solved.figures);
    }
    if figures.iter().any(PlanFigures::fits) {
        refused.clear();
    }
    let base: Vec<Bytes> = figures[0].memories.iter().map(|memory| memory.peak).collect();
    for it in &mut figures {
        it.engine = EnginePlanner::NotInPlace;
        it.memories.iter_mut().zip(&base).for_each(|(memory, base)| memory.engine = Some(*base));
    }
    Ok((figures, refused))
}

/// One memory, or all memories of a file together.
struct GraphRow {
    label: String,
    memory: String,
    engine: Option<Bytes>,
    /// The engine's own first.
    results: Vec<StrategyResult>,
    kind: RowKind,
}

/// Which rows the summary counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowKind {
    Memory,
    Total,
}

/// Returns a table of all graphs: a row per memory, a total for several memories, and a summary.
pub(crate) fn graph_comparison(compared: &[ComparedFile], sizes: SizeStyle) -> ComparisonTable {
    comparison(compared, "ggml", vec!["fast, reuse ggml", "fast", "order best", "best"], sizes)
}

/// Returns a table of all models, as [`graph_comparison`] does of graphs.
pub(crate) fn model_comparison(compared: &[ComparedFile], sizes: SizeStyle) -> ComparisonTable {
    comparison(compared, "tflm", vec!["fast", "in place", "overlap", "overlap, best"], sizes)
}

/// Returns a table of all ONNX models, as [`graph_comparison`] does of graphs.
pub(crate) fn onnx_comparison(compared: &[ComparedFile], sizes: SizeStyle) -> ComparisonTable {
    comparison(compared, "not in place", vec!["fast", "order best", "best"], sizes)
}

fn comparison(
    compared: &[ComparedFile],
    engine: &'static str,
    strategies: Vec<&'static str>,
    sizes: SizeStyle,
) -> ComparisonTable {
    let labels = file_labels(compared.iter().map(|it| (it.name.as_str(), it.file.as_str())));
    let rows: Vec<GraphRow> = compared.iter().zip(labels).flat_map(|(it, label)| rows(it, &label)).collect();
    let several = compared.iter().any(|it| it.figures[0].memories.len() > 1);
    let mut heads = vec!["file"];
    heads.extend(several.then_some("memory"));
    heads.extend([engine, "time"]);
    let mut table = ComparisonTable::new(heads, strategies);
    for row in &rows {
        let mut head = vec![text_table::name_cell(&row.label)];
        head.extend(several.then(|| Cell::new(&row.memory)));
        head.extend([
            engine_cell(row.engine, sizes),
            Cell::new(row.results[0].time.map_or_else(String::new, text_table::format_time)),
        ]);
        table.push(ComparisonRow { head, results: result_cells(&row.results[1..], row.engine, sizes) });
    }
    if compared.len() > 1 {
        table.push(summary(&rows, if several { LeadingColumns::WithMemory } else { LeadingColumns::Plain }, sizes));
    }
    table
}

fn engine_cell(bytes: Option<Bytes>, sizes: SizeStyle) -> Cell {
    Cell::new(bytes.map_or_else(|| "-".to_owned(), |bytes| sizes.show(bytes)))
}

fn rows(compared: &ComparedFile, label: &str) -> Vec<GraphRow> {
    let figures = &compared.figures;
    let row = |memories: Vec<&MemoryFigures>, kind: RowKind, times: Vec<Option<Duration>>| {
        let results = memories.iter().zip(times).map(|(it, time)| StrategyResult {
            peak: it.peak,
            time,
            fit: if it.verdict.fits() { CapacityFit::Within } else { CapacityFit::Over },
        });
        let (memory, engine) = (memories[0].name.clone(), memories[0].engine);
        GraphRow { label: label.to_owned(), memory, engine, results: results.collect(), kind }
    };
    let times = || figures.iter().map(|it| Some(it.time)).collect::<Vec<_>>();
    let totals: Vec<MemoryFigures> = figures.iter().filter_map(PlanFigures::total).collect();
    let mut rows = Vec::new();
    for index in 0..figures[0].memories.len() {
        let memories = figures.iter().map(|it| &it.memories[index]).collect();
        let times = if totals.is_empty() { times() } else { vec![None; figures.len()] };
        rows.push(row(memories, RowKind::Memory, times));
    }
    if !totals.is_empty() {
        rows.push(row(totals.iter().collect(), RowKind::Total, times()));
    }
    rows
}

/// Which columns come before ggml's bytes.
#[derive(Clone, Copy)]
enum LeadingColumns {
    Plain,
    WithMemory,
}

/// Returns the last row: sums over memories, and the geometric mean of the ratios where ggml needs any bytes.
fn summary(rows: &[GraphRow], heads: LeadingColumns, sizes: SizeStyle) -> ComparisonRow {
    let memories = || rows.iter().filter(|row| row.kind == RowKind::Memory);
    let counted = || memories().filter_map(|row| Some((row, row.engine.filter(|bytes| *bytes > Bytes::ZERO)?)));
    let time = |index: usize| text_table::format_time(rows.iter().filter_map(|row| row.results[index].time).sum());
    let results = (1..rows[0].results.len()).map(|index| {
        let mean = geometric_mean(counted().map(|(row, theirs)| SizeRatio::new(row.results[index].peak, theirs).0));
        let bytes = sizes.show(sum(memories().map(|row| row.results[index].peak)));
        [Cell::new(bytes), mean.map_or(Cell::new("-"), Cell::new), Cell::new(time(index))]
    });
    let mut head = vec![Cell::new(format!("all {} memories", counted().count()))];
    if let LeadingColumns::WithMemory = heads {
        head.push(Cell::new(""));
    }
    head.extend([Cell::new(sizes.show(sum(memories().filter_map(|row| row.engine)))), Cell::new(time(0))]);
    ComparisonRow { head, results: results.collect() }
}
