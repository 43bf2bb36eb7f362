//! `steeve compare` for graphs: ggml's plan, its shares packed better, ours, and ours with a search.

use std::time::Duration;

use comfy_table::Cell;
use steeve_graph::{Bytes, GraphStrategy, PlanOptions, Reuse};

use super::file::GraphFile;
use super::solve::{SolvedGraph, refusals, solve};
use crate::args::CompareArgs;
use crate::board::{Board, Fit, Line, Try, geometric_mean, try_cells};
use crate::compare::Compared;
use crate::error::Error;
use crate::figures::{Figures, MemoryFigures, sum};
use crate::size::SizeStyle;
use crate::table::{self, Ratio, labels};

/// The figures of every strategy, ggml's first; and why not even the best one fits.
pub(crate) fn compare(graph: &GraphFile, args: &CompareArgs) -> Result<(Vec<Figures>, Vec<String>), Error> {
    let capacities = args.limits.capacities()?;
    let options = [
        PlanOptions::new(GraphStrategy::Ggml).with_reuse(Reuse::Ggml),
        PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::Ggml),
        PlanOptions::new(GraphStrategy::Fast),
        PlanOptions::new(GraphStrategy::Best(args.search.best())),
    ];
    let solved = options.iter().map(|options| solve(graph, options, capacities));
    let solved = solved.collect::<Result<Vec<SolvedGraph>, Error>>()?;
    let fits = solved.iter().any(|it| it.figures.fits());
    let refused = solved.last().filter(|_| !fits).map(|it| refusals(graph, it, capacities));
    Ok((solved.into_iter().map(|it| it.figures).collect(), refused.unwrap_or_default()))
}

/// One memory, or all memories of a file together.
struct Row {
    label: String,
    memory: String,
    ggml: Option<Bytes>,
    /// ggml's first.
    tries: Vec<Try>,
    kind: RowKind,
}

/// Which rows the summary counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowKind {
    Memory,
    Total,
}

/// All graphs, a row per memory, a total where there are several, and a summary.
pub(crate) fn board(compared: &[Compared], sizes: SizeStyle) -> Board {
    let labels = labels(compared.iter().map(|it| (it.name.as_str(), it.file.as_str())));
    let rows: Vec<Row> = compared.iter().zip(labels).flat_map(|(it, label)| rows(it, &label)).collect();
    let several = compared.iter().any(|it| it.figures[0].memories.len() > 1);
    let mut heads = vec!["file"];
    heads.extend(several.then_some("memory"));
    heads.extend(["ggml", "time"]);
    let mut board = Board::new(heads, vec!["fast, reuse ggml", "fast", "best"]);
    for row in &rows {
        let mut head = vec![table::text(&row.label)];
        head.extend(several.then(|| Cell::new(&row.memory)));
        head.extend([ggml_cell(row.ggml, sizes), Cell::new(row.tries[0].time.map_or_else(String::new, table::time))]);
        board.push(Line { head, tries: try_cells(&row.tries[1..], row.ggml, sizes) });
    }
    if compared.len() > 1 {
        board.push(summary(&rows, if several { Heads::WithMemory } else { Heads::Plain }, sizes));
    }
    board
}

fn ggml_cell(bytes: Option<Bytes>, sizes: SizeStyle) -> Cell {
    Cell::new(bytes.map_or_else(|| "-".to_owned(), |bytes| sizes.show(bytes)))
}

fn rows(compared: &Compared, label: &str) -> Vec<Row> {
    let figures = &compared.figures;
    let row = |memories: Vec<&MemoryFigures>, kind: RowKind, times: Vec<Option<Duration>>| {
        let tries = memories.iter().zip(times).map(|(it, time)| Try {
            peak: it.peak,
            time,
            fit: if it.verdict.fits() { Fit::Within } else { Fit::Over },
        });
        let (memory, ggml) = (memories[0].name.clone(), memories[0].ggml);
        Row { label: label.to_owned(), memory, ggml, tries: tries.collect(), kind }
    };
    let times = || figures.iter().map(|it| Some(it.time)).collect::<Vec<_>>();
    let totals: Vec<MemoryFigures> = figures.iter().filter_map(Figures::total).collect();
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

/// Which columns stand before ggml's bytes.
#[derive(Clone, Copy)]
enum Heads {
    Plain,
    WithMemory,
}

/// Sums over memories, and the geometric mean of the ratios where ggml needs any bytes.
fn summary(rows: &[Row], heads: Heads, sizes: SizeStyle) -> Line {
    let memories = || rows.iter().filter(|row| row.kind == RowKind::Memory);
    let counted = || memories().filter_map(|row| Some((row, row.ggml.filter(|ggml| *ggml > Bytes::ZERO)?)));
    let time = |index: usize| table::time(rows.iter().filter_map(|row| row.tries[index].time).sum());
    let tries = (1..rows[0].tries.len()).map(|index| {
        let mean = geometric_mean(counted().map(|(row, ggml)| Ratio::new(row.tries[index].peak, ggml).0));
        let bytes = sizes.show(sum(memories().map(|row| row.tries[index].peak)));
        [Cell::new(bytes), mean.map_or(Cell::new("-"), Cell::new), Cell::new(time(index))]
    });
    let mut head = vec![Cell::new(format!("all {} memories", counted().count()))];
    if let Heads::WithMemory = heads {
        head.push(Cell::new(""));
    }
    head.extend([Cell::new(sizes.show(sum(memories().filter_map(|row| row.ggml)))), Cell::new(time(0))]);
    Line { head, tries: tries.collect() }
}
