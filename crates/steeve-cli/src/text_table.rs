//! Tables for people: no frame, numbers to the right, colours only on a terminal.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use serde::Serialize;
use steeve_plan::{Bytes, Verdict};
use steeve_view::printable;

use crate::byte_size::SizeStyle;
use crate::verbosity::colours_allowed;

/// Makes a table with these columns; all but the first are aligned to the right.
pub(crate) fn new_table(header: impl IntoIterator<Item = String>) -> Table {
    let mut new_table = Table::new();
    new_table.load_style(presets::NOTHING);
    // Words broken to fit a narrow terminal are harder to read than long lines.
    new_table.set_content_arrangement(ContentArrangement::Disabled);
    if !colours_allowed() || !io::stdout().is_terminal() {
        new_table.force_no_tty();
    }
    let bold = |name: String| Cell::new(name).add_attribute(Attribute::Bold);
    new_table.set_header(header.into_iter().map(bold).collect::<Vec<_>>());
    for (index, column) in new_table.column_iter_mut().enumerate() {
        let (padding, alignment) =
            if index == 0 { ((0, 1), CellAlignment::Left) } else { ((1, 1), CellAlignment::Right) };
        column.set_padding(padding);
        column.set_cell_alignment(alignment);
    }
    new_table
}

/// Makes a table of several lists of names and figures, side by side: names aligned left, figures right.
pub(crate) fn side_by_side<const LISTS: usize>(headers: [[&str; 2]; LISTS], lists: [Vec<[Cell; 2]>; LISTS]) -> Table {
    let mut shown = new_table(headers.into_iter().flatten().map(str::to_owned));
    for (_, column) in shown.column_iter_mut().enumerate().filter(|(index, _)| index % 2 == 0) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for row in 0..lists.iter().map(Vec::len).max().unwrap_or(0) {
        let cells = |list: &Vec<[Cell; 2]>| list.get(row).cloned().unwrap_or_else(|| ["", ""].map(Cell::new));
        shown.add_row(lists.iter().flat_map(cells).collect::<Vec<_>>());
    }
    shown
}

/// Keeps the first kinds of a list and adds up the others as one.
pub(crate) fn fold_tail<N: Copy>(mut kinds: Vec<(String, N)>, add: impl Fn(N, N) -> N) -> Vec<(String, N)> {
    const MOST: usize = 8;
    if kinds.len() > MOST {
        let others = kinds.split_off(MOST - 1);
        let name = format!("{} others", others.len());
        kinds.extend(others.into_iter().map(|(_, it)| it).reduce(add).map(|sum| (name, sum)));
    }
    kinds
}

/// What did not make it into a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OmittedRest {
    pub(crate) count: usize,
    #[serde(flatten)]
    pub(crate) sum: OmittedTotal,
}

/// All of what is left out of a list: its bytes, or how many there are more or fewer than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OmittedTotal {
    Bytes(Bytes),
    Difference(i128),
}

impl OmittedRest {
    /// Formats `and 3 more with 6.00 KiB together` as a line; empty if nothing is left out.
    pub(crate) fn line(self, sizes: SizeStyle) -> String {
        let sum = match self.sum {
            OmittedTotal::Bytes(bytes) => sizes.show(bytes),
            OmittedTotal::Difference(difference) => signed_size(difference, sizes),
        };
        if self.count == 0 { String::new() } else { format!("and {} more with {sum} together\n", self.count) }
    }
}

/// Formats a difference with its sign.
pub(crate) fn signed_size(difference: i128, sizes: SizeStyle) -> String {
    let sign = match difference {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", sizes.show(Bytes(u64::try_from(difference.unsigned_abs()).unwrap_or(u64::MAX))))
}

/// Makes a cell of a name from a file, with control characters escaped.
pub(crate) fn name_cell(name: &str) -> Cell {
    Cell::new(printable(name))
}

/// Makes a cell of a name from a file, with control characters escaped, cut to 64 characters.
pub(crate) fn short_name_cell(name: &str) -> Cell {
    const MOST: usize = 64;
    let name = printable(name);
    if name.chars().count() <= MOST {
        return Cell::new(name);
    }
    Cell::new(name.chars().take(MOST - 1).chain(['…']).collect::<String>())
}

/// Returns the name of each file in a table: without its folders, unless two files would have the same name.
pub(crate) fn file_labels<'a>(names: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let unique = names.clone().all(|(short, _)| seen.insert(short));
    names.map(|(short, long)| if unique { short.to_owned() } else { long.to_owned() }).collect()
}

/// Returns whether the lines of a table are longer than the terminal is wide; `false` without a terminal.
pub(crate) fn is_too_wide(new_table: &Table) -> bool {
    let widths = new_table.column_max_content_widths();
    let paddings = new_table.column_iter().map(|column| usize::from(column.padding_width())).sum::<usize>();
    let width = widths.into_iter().map(usize::from).sum::<usize>() + paddings;
    terminal_width().is_some_and(|terminal| terminal < width)
}

/// Returns the width of the terminal; `None` without one.
pub(crate) fn terminal_width() -> Option<usize> {
    // A terminal that does not know its width says 0.
    Table::new().width().filter(|width| *width > 0 && io::stdout().is_terminal()).map(usize::from)
}

/// Makes a cell of the result of a plan.
pub(crate) fn verdict_cell(verdict: Verdict) -> Cell {
    let cell = Cell::new(verdict);
    match verdict {
        Verdict::Optimal => cell.fg(Color::Green),
        Verdict::CannotFit | Verdict::NotFound => cell.fg(Color::Red),
        _ => cell,
    }
}

/// Makes a cell of the ratio of our bytes to those of the engine's own plan; a dash if these are 0 or unknown.
pub(crate) fn engine_ratio_cell(ours: Bytes, theirs: Option<Bytes>) -> Cell {
    match theirs {
        Some(theirs) if theirs > Bytes::ZERO => {
            let cell = Cell::new(SizeRatio::new(ours, theirs));
            if ours < theirs { cell.fg(Color::Green) } else { cell }
        }
        _ => Cell::new("-"),
    }
}

/// One number of bytes by another, rounded up: `1.0000` is exactly the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SizeRatio(pub(crate) f64);

impl SizeRatio {
    pub(crate) fn new(bytes: Bytes, by: Bytes) -> Self {
        if bytes == by { Self(1.0) } else { Self(bytes.0 as f64 / by.0 as f64) }
    }
}

impl fmt::Display for SizeRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Less than a millionth of a step above is a matter of binary fractions, not of bytes: 1.25 is 1.2500.
        let steps = (self.0 * 1e4 - 1e-6).ceil();
        let steps = if self.0 > 1.0 { steps.max(1e4 + 1.0) } else { steps };
        // Nothing of something is 0, not minus 0.
        write!(f, "{:.4}", steps / 1e4 + 0.0)
    }
}

/// Formats a time as `420 µs`, `4.20 ms` or `1.20 s`.
pub(crate) fn format_time(format_time: Duration) -> String {
    if format_time < Duration::from_millis(1) {
        format!("{} µs", format_time.as_micros())
    } else if format_time < Duration::from_secs(1) {
        format!("{:.2} ms", format_time.as_secs_f64() * 1e3)
    } else {
        format!("{:.2} s", format_time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::SizeRatio;
    use steeve_plan::Bytes;

    #[test]
    fn a_ratio_of_one_is_exact() {
        let shown = |peak, bound| SizeRatio::new(Bytes(peak), Bytes(bound)).to_string();
        assert_eq!(shown(0, 0), "1.0000");
        assert_eq!(shown(u64::MAX, u64::MAX), "1.0000");
        assert_eq!(shown(1_000_001, 1_000_000), "1.0001");
        assert_eq!(shown(5, 4), "1.2500");
        assert_eq!(shown(4, 3), "1.3334");
        assert_eq!(shown(11, 10), "1.1000");
        assert_eq!(shown(0, 10), "0.0000");
    }
}
