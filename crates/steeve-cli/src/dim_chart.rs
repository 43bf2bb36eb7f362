//! What a model needs at several sizes of its dimensions, as bars.

use std::fmt::Write;

use steeve_plan::Bytes;

use crate::byte_size::SizeStyle;
use crate::plan_figures::{PlanFigures, sum};

/// A bar for each setting.
pub(crate) struct DimChart {
    bars: Vec<(String, Bytes)>,
}

/// Returns a chart of settings by name; it is empty without any.
pub(crate) fn dim_chart<'a>(rows: impl Iterator<Item = (&'a str, &'a PlanFigures)>) -> DimChart {
    let peak = |figures: &PlanFigures| sum(figures.memories.iter().map(|memory| memory.peak));
    DimChart { bars: rows.map(|(name, figures)| (name.to_owned(), peak(figures))).collect() }
}

impl DimChart {
    /// Formats the chart: the longest bar is that of the largest peak. Nothing for no settings.
    pub(crate) fn text(&self, sizes: SizeStyle) -> String {
        const WIDTH: u128 = 50;
        let most = u128::from(self.bars.iter().map(|(_, bytes)| bytes.0).max().unwrap_or(0)).max(1);
        let longest = self.bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, bytes) in &self.bars {
            // Rounded up, so that anything has a bar.
            let length = usize::try_from((u128::from(bytes.0) * WIDTH).div_ceil(most)).unwrap_or(0);
            let bar = "#".repeat(length);
            let gap = if text.is_empty() { "\n" } else { "" };
            let _ = writeln!(text, "{gap}{:longest$}  {bar} {}", steeve_view::printable(name), sizes.show(*bytes));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, DimChart, SizeStyle};

    #[test]
    fn bars_are_in_proportion_and_none_is_empty() {
        let bars = [("a", 0), ("b", 1), ("long", u64::MAX)].map(|(name, bytes)| (name.to_owned(), Bytes(bytes)));
        let text = DimChart { bars: bars.to_vec() }.text(SizeStyle::Exact);
        let lengths: Vec<usize> = text.lines().skip(1).map(|line| line.matches('#').count()).collect();
        assert_eq!(lengths, [0, 1, 50]);
        assert_eq!(DimChart { bars: Vec::new() }.text(SizeStyle::Human), "");
    }
}
