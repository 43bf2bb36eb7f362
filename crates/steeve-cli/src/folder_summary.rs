//! `steeve compare` of many files as a short table: a row per folder, and one for all.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use comfy_table::{Cell, Color};
use steeve_plan::Bytes;

use crate::byte_size::SizeStyle;
use crate::commands::compare_command::{ComparedFile, ComparedKind};
use crate::comparison_table::geometric_mean;
use crate::plan_figures::{MemoryFigures, PlanFigures, sum};
use crate::text_table::{self, SizeRatio};

/// Returns a table of block lists, relative to best-fit, one of graphs, relative to ggml, one of TFLite models, relative to
/// TensorFlow Lite Micro, and one of ONNX models, relative to plans without anything in place.
pub(crate) fn folder_tables(
    [lists, graphs, models, onnx]: [&[ComparedFile]; 4],
    sizes: SizeStyle,
) -> Vec<comfy_table::Table> {
    let kinds = [(&BLOCKS, lists), (&GRAPHS, graphs), (&MODELS, models), (&ONNX, onnx)];
    let kinds = kinds.into_iter().filter(|(_, compared)| !compared.is_empty());
    kinds.map(|(measure, compared)| summed(measure, compared, sizes)).collect()
}

/// The columns of a summary: what is compared with what.
struct SummaryColumns {
    /// The columns: what there is, the plan to compare with, ours.
    columns: [&'static str; 3],
    /// What a memory is measured by.
    base: fn(&ComparedMemory<'_>) -> Option<Bytes>,
    /// The words above the ratios.
    ratio: &'static str,
}

const GRAPHS: SummaryColumns =
    SummaryColumns { columns: ["graphs", "ggml", "steeve"], base: |it| it.first.engine, ratio: "of ggml" };
const MODELS: SummaryColumns =
    SummaryColumns { columns: ["models", "tflm", "steeve"], base: |it| it.first.engine, ratio: "of tflm" };
const ONNX: SummaryColumns = SummaryColumns {
    columns: ["models", "not in place", "steeve"],
    base: |it| it.first.engine,
    ratio: "of not in place",
};
const BLOCKS: SummaryColumns =
    SummaryColumns { columns: ["lists", "best-fit", "steeve"], base: |it| Some(it.first.peak), ratio: "of best-fit" };

/// One memory of one file under the first strategy and under the last.
struct ComparedMemory<'a> {
    first: &'a MemoryFigures,
    last: &'a MemoryFigures,
}

/// Files that are summed up in one row.
struct FileGroup<'a> {
    files: usize,
    memories: Vec<ComparedMemory<'a>>,
    /// The planning time of `fast`, the default.
    time: Duration,
}

impl<'a> FileGroup<'a> {
    fn new(compared: impl Iterator<Item = &'a ComparedFile>) -> Self {
        let mut group = FileGroup { files: 0, memories: Vec::new(), time: Duration::ZERO };
        for it in compared {
            let (Some(first), Some(last)) = (it.figures.first(), it.figures.last()) else { continue };
            group.files += 1;
            group
                .memories
                .extend(first.memories.iter().zip(&last.memories).map(|(first, last)| ComparedMemory { first, last }));
            let default = match it.kind {
                // Behind it comes the plan in another order.
                ComparedKind::Graph => it.figures.iter().filter(|it| is_fast(it)).nth(1),
                ComparedKind::Blocks | ComparedKind::Model | ComparedKind::Onnx => {
                    it.figures.iter().rev().find(|it| is_fast(it))
                }
            };
            group.time += default.map_or(Duration::ZERO, |it| it.time);
        }
        group
    }

    fn cells(&self, measure: &SummaryColumns, label: &str, sizes: SizeStyle) -> Vec<Cell> {
        let pairs: Vec<(Bytes, Bytes)> = self
            .memories
            .iter()
            .filter_map(|it| Some((it.last.peak, (measure.base)(it).filter(|base| *base > Bytes::ZERO)?)))
            .collect();
        let ratios = || pairs.iter().map(|(ours, base)| SizeRatio::new(*ours, *base).0);
        let (ours, base) = (sum(pairs.iter().map(|it| it.0)), sum(pairs.iter().map(|it| it.1)));
        let least = ratios().min_by(f64::total_cmp).map(SizeRatio);
        let optimal = self.memories.iter().filter(|it| it.last.is_optimal()).count();
        let saved = base.0.saturating_sub(ours.0);
        let cell = |ratio: Option<SizeRatio>| ratio.map_or_else(|| Cell::new("-"), Cell::new);
        vec![
            text_table::name_cell(label),
            Cell::new(self.files),
            Cell::new(self.memories.len()),
            Cell::new(sizes.show(base)),
            Cell::new(sizes.show(ours)),
            Cell::new(sizes.show(Bytes(saved))).fg(if saved > 0 { Color::Green } else { Color::Reset }),
            cell(geometric_mean(ratios())),
            cell(least),
            Cell::new(format!("{optimal} of {}", self.memories.len())),
            Cell::new(text_table::format_time(self.time)),
        ]
    }
}

fn is_fast(figures: &PlanFigures) -> bool {
    figures.strategy == "fast"
}

fn summed(measure: &SummaryColumns, compared: &[ComparedFile], sizes: SizeStyle) -> comfy_table::Table {
    let mut folders: BTreeMap<String, Vec<&ComparedFile>> = BTreeMap::new();
    for it in compared {
        folders.entry(folder(&it.file)).or_default().push(it);
    }
    let [files, base, ours] = measure.columns;
    let header = ["folder", files, "memories", base, ours, "saved", measure.ratio, "at best", "optimal", "time"];
    let mut shown = text_table::new_table(header.map(str::to_owned));
    let common = common(folders.keys().map(String::as_str));
    for (folder, compared) in &folders {
        let label = folder.strip_prefix(common.as_str()).filter(|label| !label.is_empty()).unwrap_or(folder);
        shown.add_row(FileGroup::new(compared.iter().copied()).cells(measure, label, sizes));
    }
    if folders.len() > 1 {
        shown.add_row(FileGroup::new(compared.iter()).cells(measure, "all", sizes));
    }
    shown
}

fn folder(file: &str) -> String {
    Path::new(file)
        .parent()
        .map(|folder| folder.display().to_string())
        .filter(|it| !it.is_empty())
        .unwrap_or_else(|| ".".to_owned())
}

/// Returns the common leading folders of all paths, with the last separator.
fn common<'a>(mut paths: impl Iterator<Item = &'a str>) -> String {
    let Some(first) = paths.next() else { return String::new() };
    let mut common: Vec<&str> = first.split('/').collect();
    common.pop();
    for path in paths {
        let same = path.split('/').zip(&common).take_while(|(a, b)| a == *b).count();
        common.truncate(same);
    }
    if common.is_empty() { String::new() } else { format!("{}/", common.join("/")) }
}

#[cfg(test)]
mod tests {
    use super::common;

    #[test]
    fn folders_are_named_where_they_part() {
        assert_eq!(common(["a/b/c", "a/b/d"].into_iter()), "a/b/");
        assert_eq!(common(["a/b", "c/d"].into_iter()), "");
        assert_eq!(common(["graphs"].into_iter()), "");
        assert_eq!(common(["corpus/graphs"].into_iter()), "corpus/");
        assert_eq!(common(["a/bc", "a/bd"].into_iter()), "a/");
    }
}
