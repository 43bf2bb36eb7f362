//! `steeve compare_graph` for graphs: ggml's plan, its live ranges packed better, ours, and ours with a search.

use std::time::Duration;

use comfy_table::Cell;
use steeve_graph::{Bytes, GraphStrategy, PlanOptions, Reuse};

use super::graph_file::GraphFile;
use super::solve_graph::{SolvedGraph, capacity_errors, solve_graph};
use crate::args::CompareArgs;
use crate::byte_size::SizeStyle;
use crate::commands::compare_command::ComparedFile;
use crate::comparison_table::{
    CapacityFit, ComparisonRow, ComparisonTable, StrategyResult, geometric_mean, result_cells,
};
use crate::error::Error;
use crate::plan_figures::{MemoryFigures, PlanFigures, sum};
use crate::text_table::{self, SizeRatio, file_labels};

/// Plans a graph with every strategy, ggml's first. Also returns why not even the best one fits, if so.
pub(crate) fn compare_graph(graph: &GraphFile, args: &CompareArgs) -> Result<(Vec<PlanFigures>, Vec<String>), Error> {
    let capacities = args.limits.capacities()?;
    let options = [
        PlanOptions::new(GraphStrategy::Ggml).with_reuse(Reuse::Ggml),
        PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::Ggml),
        PlanOptions::new(GraphStrategy::Fast),
        PlanOptions::new(GraphStrategy::Best(args.search.best())),
    ];
    let solved = options.iter().map(|options| solve_graph(graph, options, capacities));
    let solved = solved.collect::<Result<Vec<SolvedGraph>, Error>>()?;
    let fits = solved.iter().any(|it| it.figures.fits());
    let refused = solved.last().filter(|_| !fits).map(|it| capacity_errors(graph, it, capacities));
    Ok((solved.into_iter().map(|it| it.figures).collect(), refused.unwrap_or_default()))
}

/// One memory, or all memories of a file together.
struct GraphRow {
    label: String,
    memory: String,
    ggml: Option<Bytes>,
    /// ggml's first.
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
    let labels = file_labels(compared.iter().map(|it| (it.name.as_str(), it.file.as_str())));
    let rows: Vec<GraphRow> = compared.iter().zip(labels).flat_map(|(it, label)| rows(it, &label)).collect();
    let several = compared.iter().any(|it| it.figures[0].memories.len() > 1);
    let mut heads = vec!["file"];
    heads.extend(several.then_some("memory"));
    heads.extend(["ggml", "time"]);
    let mut graph_comparison = ComparisonTable::new(heads, vec!["fast, reuse ggml", "fast", "best"]);
    for row in &rows {
        let mut head = vec![text_table::name_cell(&row.label)];
        head.extend(several.then(|| Cell::new(&row.memory)));
        head.extend([
            ggml_cell(row.ggml, sizes),
            Cell::new(row.results[0].time.map_or_else(String::new, text_table::format_time)),
        ]);
        graph_comparison.push(ComparisonRow { head, results: result_cells(&row.results[1..], row.ggml, sizes) });
    }
    if compared.len() > 1 {
        graph_comparison.push(summary(
            &rows,
            if several { LeadingColumns::WithMemory } else { LeadingColumns::Plain },
            sizes,
        ));
    }
    graph_comparison
}

fn ggml_cell(bytes: Option<Bytes>, sizes: SizeStyle) -> Cell {
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
        let (memory, ggml) = (memories[0].name.clone(), memories[0].ggml);
        GraphRow { label: label.to_owned(), memory, ggml, results: results.collect(), kind }
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
    let counted = || memories().filter_map(|row| Some((row, row.ggml.filter(|ggml| *ggml > Bytes::ZERO)?)));
    let time = |index: usize| text_table::format_time(rows.iter().filter_map(|row| row.results[index].time).sum());
    let results = (1..rows[0].results.len()).map(|index| {
        let mean = geometric_mean(counted().map(|(row, ggml)| SizeRatio::new(row.results[index].peak, ggml).0));
        let bytes = sizes.show(sum(memories().map(|row| row.results[index].peak)));
        [Cell::new(bytes), mean.map_or(Cell::new("-"), Cell::new), Cell::new(time(index))]
    });
    let mut head = vec![Cell::new(format!("all {} memories", counted().count()))];
    if let LeadingColumns::WithMemory = heads {
        head.push(Cell::new(""));
    }
    head.extend([Cell::new(sizes.show(sum(memories().filter_map(|row| row.ggml)))), Cell::new(time(0))]);
    ComparisonRow { head, results: results.collect() }
}
