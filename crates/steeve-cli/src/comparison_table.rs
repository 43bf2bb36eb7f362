//! Several strategies on several files as one table: side by side, or on a narrow terminal one below the other.

use std::time::Duration;

use comfy_table::{Cell, Color};
use steeve_plan::Bytes;

use crate::byte_size::SizeStyle;
use crate::text_table::{self, SizeRatio};

/// A comparison to be shown.
pub(crate) struct ComparisonTable {
    /// The columns of what is compared.
    heads: Vec<&'static str>,
    /// The strategies.
    results: Vec<&'static str>,
    rows: Vec<ComparisonRow>,
}

/// The cells of one row: what was tried, then bytes, ratio and time of each try.
pub(crate) struct ComparisonRow {
    pub(crate) head: Vec<Cell>,
    pub(crate) results: Vec<[Cell; 3]>,
}

impl ComparisonTable {
    pub(crate) fn new(heads: Vec<&'static str>, results: Vec<&'static str>) -> Self {
        Self { heads, results, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: ComparisonRow) {
        self.rows.push(row);
    }

    pub(crate) fn show(&self) -> comfy_table::Table {
        let wide = self.side_by_side();
        if text_table::is_too_wide(&wide) { self.one_below_the_other() } else { wide }
    }

    fn side_by_side(&self) -> comfy_table::Table {
        let columns = self.results.iter().flat_map(|it| [*it, "ratio", "time"]);
        let mut shown = text_table::new_table(self.heads.iter().copied().chain(columns).map(str::to_owned));
        for row in &self.rows {
            shown.add_row(row.head.iter().chain(row.results.iter().flatten()).cloned());
        }
        shown
    }

    fn one_below_the_other(&self) -> comfy_table::Table {
        let header = self.heads.iter().copied().chain(["strategy", "peak", "ratio", "time"]);
        let mut shown = text_table::new_table(header.map(str::to_owned));
        for row in &self.rows {
            let blank: Vec<Cell> = self.heads.iter().map(|_| Cell::new("")).collect();
            let heads = std::iter::once(row.head.clone()).chain(std::iter::repeat(blank));
            for ((head, it), strategy) in heads.zip(&row.results).zip(&self.results) {
                shown.add_row(head.into_iter().chain([Cell::new(strategy)]).chain(it.iter().cloned()));
            }
        }
        shown
    }
}

/// What one strategy did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrategyResult {
    pub(crate) peak: Bytes,
    /// Nothing where it is counted in another row.
    pub(crate) time: Option<Duration>,
    pub(crate) fit: CapacityFit,
}

/// Whether it stays within the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapacityFit {
    Within,
    Over,
}

/// Returns the cells of the results of one row, with ratios to `base`; the smallest is green.
pub(crate) fn result_cells(results: &[StrategyResult], base: Option<Bytes>, sizes: SizeStyle) -> Vec<[Cell; 3]> {
    let cells = |it: &StrategyResult| {
        let best = results.iter().all(|other| it.peak <= other.peak);
        let ratio = match base {
            Some(base) if base > Bytes::ZERO || it.peak == base => Cell::new(SizeRatio::new(it.peak, base)),
            _ => Cell::new("-"),
        };
        let peak = match it.fit {
            CapacityFit::Over => Cell::new(format!("{} (over)", sizes.show(it.peak))).fg(Color::Red),
            CapacityFit::Within => Cell::new(sizes.show(it.peak)),
        };
        let time = Cell::new(it.time.map_or_else(String::new, text_table::format_time));
        [peak, if best { ratio.fg(Color::Green) } else { ratio }, time]
    };
    results.iter().map(cells).collect()
}

/// Returns the geometric mean of ratios, which weighs small and large files equally; `None` without any.
pub(crate) fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<SizeRatio> {
    let (sum, count) = ratios.fold((0.0, 0u32), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    (count > 0).then(|| SizeRatio((sum / f64::from(count)).exp()))
}
