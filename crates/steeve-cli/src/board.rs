//! Several strategies on several files as one table: side by side, or on a narrow terminal one below the other.

use std::time::Duration;

use comfy_table::{Cell, Color};
use steeve_plan::Bytes;

use crate::size::SizeStyle;
use crate::table::{self, Ratio};

/// A comparison to be shown.
pub(crate) struct Board {
    /// The columns of what is compared.
    heads: Vec<&'static str>,
    /// The strategies.
    tries: Vec<&'static str>,
    lines: Vec<Line>,
}

/// The cells of one row: what was tried, then bytes, ratio and time of each try.
pub(crate) struct Line {
    pub(crate) head: Vec<Cell>,
    pub(crate) tries: Vec<[Cell; 3]>,
}

impl Board {
    pub(crate) fn new(heads: Vec<&'static str>, tries: Vec<&'static str>) -> Self {
        Self { heads, tries, lines: Vec::new() }
    }

    pub(crate) fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    pub(crate) fn show(&self) -> comfy_table::Table {
        let wide = self.side_by_side();
        if table::is_too_wide(&wide) { self.one_below_the_other() } else { wide }
    }

    fn side_by_side(&self) -> comfy_table::Table {
        let columns = self.tries.iter().flat_map(|it| [*it, "ratio", "time"]);
        let mut shown = table::table(self.heads.iter().copied().chain(columns).map(str::to_owned));
        for line in &self.lines {
            shown.add_row(line.head.iter().chain(line.tries.iter().flatten()).cloned());
        }
        shown
    }

    fn one_below_the_other(&self) -> comfy_table::Table {
        let header = self.heads.iter().copied().chain(["strategy", "peak", "ratio", "time"]);
        let mut shown = table::table(header.map(str::to_owned));
        for line in &self.lines {
            let blank: Vec<Cell> = self.heads.iter().map(|_| Cell::new("")).collect();
            let heads = std::iter::once(line.head.clone()).chain(std::iter::repeat(blank));
            for ((head, it), strategy) in heads.zip(&line.tries).zip(&self.tries) {
                shown.add_row(head.into_iter().chain([Cell::new(strategy)]).chain(it.iter().cloned()));
            }
        }
        shown
    }
}

/// What one strategy did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    pub(crate) peak: Bytes,
    /// Nothing where it is counted in another row.
    pub(crate) time: Option<Duration>,
    pub(crate) fit: Fit,
}

/// Whether it stays within the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Within,
    Over,
}

/// The cells of the tries of one row, with ratios by `base`; the smallest is green.
pub(crate) fn try_cells(tries: &[Try], base: Option<Bytes>, sizes: SizeStyle) -> Vec<[Cell; 3]> {
    let cells = |it: &Try| {
        let best = tries.iter().all(|other| it.peak <= other.peak);
        let ratio = match base {
            Some(base) if base > Bytes::ZERO || it.peak == base => Cell::new(Ratio::new(it.peak, base)),
            _ => Cell::new("-"),
        };
        let peak = match it.fit {
            Fit::Over => Cell::new(format!("{} (over)", sizes.show(it.peak))).fg(Color::Red),
            Fit::Within => Cell::new(sizes.show(it.peak)),
        };
        let time = Cell::new(it.time.map_or_else(String::new, table::time));
        [peak, if best { ratio.fg(Color::Green) } else { ratio }, time]
    };
    tries.iter().map(cells).collect()
}

/// The geometric mean of ratios, which treats a file of a kilobyte like one of a gigabyte; `None` of none.
pub(crate) fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<Ratio> {
    let (sum, count) = ratios.fold((0.0, 0u32), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    (count > 0).then(|| Ratio((sum / f64::from(count)).exp()))
}
