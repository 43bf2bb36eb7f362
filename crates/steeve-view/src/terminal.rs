//! Draws a picture for a terminal: half blocks in colour, or letters where there are no colours.
//!
//! A cell shows the kind that covers most of it; it is free only where there is never a block. So no block is lost,
//! however short its life, but a map of a terminal's size is a rough one.

use std::fmt::Write;

use steeve_plan::{Bytes, Step};

use crate::human_size::{SizeChange, difference};
use crate::legend::{Legend, TERMINAL};
use crate::map::NAMELESS;
use crate::text::{printable, shortened};
use crate::{Colouring, MemoryMap, Picture, PlanMap, StepUnit, human_size};

/// The style of a map for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TerminalStyle {
    /// Columns, all in all. At least 24 are used.
    pub width: usize,
    /// Lines of a map. At least 4 are used. (Cells take memory: limit a number from outside.)
    pub height: usize,
    /// Colours or letters.
    pub ink: ColourMode,
    /// The property that colours show.
    pub colouring: Colouring,
    /// The format of the sizes above a map.
    pub sizes: SizeFormat,
}

/// The format of sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeFormat {
    /// Rounded, with a unit.
    #[default]
    Human,
    /// Every byte.
    Exact,
}

impl SizeFormat {
    fn show(self, bytes: Bytes) -> String {
        match self {
            Self::Human => human_size(bytes),
            Self::Exact => format!("{bytes} bytes"),
        }
    }
}

/// Whether a terminal shows colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColourMode {
    /// 256 colours.
    Colour,
    /// A letter for each kind.
    Letters,
}

impl TerminalStyle {
    /// Creates a style in colours.
    pub const fn colour(width: usize) -> Self {
        Self { width, height: 20, ink: ColourMode::Colour, colouring: Colouring::Fitting, sizes: SizeFormat::Human }
    }

    /// Creates a style in letters, for files and pipes.
    pub const fn plain(width: usize) -> Self {
        Self { width, height: 20, ink: ColourMode::Letters, colouring: Colouring::Fitting, sizes: SizeFormat::Human }
    }

    /// Returns this style with another number of lines.
    #[must_use]
    pub const fn with_height(mut self, height: usize) -> Self {
        self.height = height;
        self
    }

    /// Returns this style with another format of sizes.
    #[must_use]
    pub const fn with_sizes(mut self, sizes: SizeFormat) -> Self {
        self.sizes = sizes;
        self
    }

    /// Returns this style with colours for another property.
    #[must_use]
    pub const fn with_colouring(mut self, colouring: Colouring) -> Self {
        self.colouring = colouring;
        self
    }
}

/// Room for sizes at the left: `1023.99 MiB `, and the frame.
const GUTTER: usize = 12;

/// With less than these columns there is no map.
const LEAST: usize = 24;

/// Draws a picture as text. Each memory has a map, and two plans are one below the other on one scale.
///
/// ```
/// use steeve_plan::{Strategy, csv, plan};
/// use steeve_view::{PlanMap, Picture, TerminalStyle, terminal};
/// let table = csv::read("id,lower,upper,size\nconv,0,3,4096\nrelu,3,5,1024\n")?;
/// let map = PlanMap::of_blocks("fast", "memory", &plan(table.problem()?, &Strategy::Fast)?, table.ids());
/// let text = terminal(&Picture::of("blocks.csv", map), &TerminalStyle::plain(60));
/// assert!(text.lines().all(|line| line.chars().count() <= 60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn terminal(picture: &Picture, style: &TerminalStyle) -> String {
    let style = TerminalStyle { width: style.width.max(LEAST), height: style.height.max(4), ..*style };
    let legend = Legend::new(picture, style.colouring);
    let memories = picture.memories();
    let mut text = String::new();
    for memory in &memories {
        let maps: Vec<(&PlanMap, &MemoryMap)> =
            picture.maps.iter().filter_map(|map| Some((map, map.memory(memory)?))).collect();
        let top = maps.iter().map(|(_, it)| it.peak().0).max().unwrap_or(1).max(1);
        let (first, last) = picture.span(memory);
        for (map, it) in &maps {
            let part = picture.steps.is_some();
            let map_text =
                TerminalMap { style: &style, legend: &legend, memory: it, unit: map.unit, top, first, last, part };
            let whose = if memories.len() > 1 || memory != &NAMELESS {
                format!("{}, {memory}", map.name)
            } else {
                map.name.clone()
            };
            map_text.draw(&mut text, &picture.title, &whose);
            text.push('\n');
        }
        if let [(_, before), (_, after)] = maps.as_slice() {
            let _ = writeln!(text, "{}\n", difference_line(&style, before.peak(), after.peak()));
        }
    }
    text.push_str(&legend_lines(&legend, &style));
    text
}

fn difference_line(style: &TerminalStyle, before: Bytes, after: Bytes) -> String {
    let (change, words) = difference(before, after);
    let words = shortened(&words, style.width);
    let code = match change {
        SizeChange::Less => "1;32",
        SizeChange::More => "1;31",
        SizeChange::Same => "1",
    };
    painted(style, code, &words)
}

fn painted(style: &TerminalStyle, code: &str, text: &str) -> String {
    match style.ink {
        ColourMode::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        ColourMode::Letters => text.to_owned(),
    }
}

/// Returns the legend, in lines that fit.
fn legend_lines(legend: &Legend, style: &TerminalStyle) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for entry in &legend.entries {
        let sign = match style.ink {
            ColourMode::Colour => format!("\x1b[38;5;{}m██\x1b[0m", TERMINAL[entry.colour]),
            ColourMode::Letters => entry.letter.to_string(),
        };
        let sign_width = if style.ink == ColourMode::Colour { 3 } else { 2 };
        let count = format!(" ({})", entry.count);
        let room = style.width.saturating_sub(sign_width + count.len());
        let words = format!("{}{count}", shortened(&printable(&entry.title), room));
        let width = words.chars().count() + sign_width;
        if used > 0 && used + 3 + width > style.width {
            lines.push('\n');
            used = 0;
        }
        let gap = if used > 0 { "   " } else { "" };
        let _ = write!(lines, "{gap}{sign} {words}");
        used += gap.len() + width;
    }
    lines.push('\n');
    lines
}

/// One map.
struct TerminalMap<'a> {
    style: &'a TerminalStyle,
    legend: &'a Legend,
    memory: &'a MemoryMap,
    unit: StepUnit,
    /// The bytes at the upper end, the steps at both sides.
    top: u64,
    first: u64,
    last: u64,
    /// Whether there are more steps than are drawn.
    part: bool,
}

impl TerminalMap<'_> {
    fn draw(&self, text: &mut String, title: &str, whose: &str) {
        let (peak, bound) = (self.memory.peak(), self.memory.bound);
        let title = shortened(&printable(&format!("{title}: {whose}")), self.style.width);
        let _ = writeln!(text, "{}", painted(self.style, "1", &title));
        let blocks = match self.memory.tiles.len() {
            1 => "1 block".to_owned(),
            count => format!("{count} blocks"),
        };
        let buffers = match self.memory.buffers.len() {
            0 | 1 => String::new(),
            count => format!(" and {count} buffers"),
        };
        let quality = if peak == bound {
            "no plan is smaller".to_owned()
        } else {
            format!("lower bound {}", self.style.sizes.show(bound))
        };
        let sizes = self.style.sizes;
        let facts = if self.part {
            format!("{}{buffers}, of which these {}s use {blocks}; {quality}", sizes.show(peak), self.unit.word())
        } else {
            format!("{} in {blocks}{buffers}, {quality}", sizes.show(peak))
        };
        let _ = writeln!(text, "{}", shortened(&facts, self.style.width));
        self.map(text);
        self.foot(text);
    }

    fn columns(&self) -> usize {
        self.style.width - GUTTER
    }

    fn map(&self, text: &mut String) {
        let rows = self.style.height;
        let fine = if self.style.ink == ColourMode::Colour { 2 * rows } else { rows };
        let cells = self.cells(fine);
        let row_of = |bytes: u64| ((self.top - bytes.min(self.top)) as f64 / self.top as f64 * rows as f64) as usize;
        let (peak_row, bound_row) = (row_of(self.memory.peak().0), row_of(self.memory.bound.0).min(rows - 1));
        for row in 0..rows {
            let label = match row {
                _ if row == peak_row => human_size(self.memory.peak()),
                _ if row == bound_row && self.memory.bound < self.memory.peak() => human_size(self.memory.bound),
                _ if row == rows - 1 => "0 B".to_owned(),
                _ => String::new(),
            };
            let mark = if row == peak_row || row == bound_row || row == rows - 1 { '┤' } else { '│' };
            let _ = write!(text, "{label:>10} {mark}");
            let line = match self.style.ink {
                ColourMode::Letters => self.letters(&cells[row]),
                ColourMode::Colour => self.half_blocks(&cells[2 * row], &cells[2 * row + 1]),
            };
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }

    fn letters(&self, cells: &[Option<usize>]) -> String {
        cells.iter().map(|cell| cell.map_or('·', |entry| self.legend.entries[entry].letter)).collect()
    }

    /// Draws two rows in one line: the upper one in the foreground colour, the lower one in the background colour.
    fn half_blocks(&self, upper: &[Option<usize>], lower: &[Option<usize>]) -> String {
        let colour = |cell: Option<usize>| cell.map(|entry| TERMINAL[self.legend.entries[entry].colour]);
        let mut line = String::new();
        let mut before = Some((None, None));
        // Free cells at the end need no output.
        let used = upper.iter().zip(lower).rposition(|it| it != (&None, &None)).map_or(0, |last| last + 1);
        for (upper, lower) in upper.iter().zip(lower).take(used) {
            let now = (colour(*upper), colour(*lower));
            if before != Some(now) {
                line.push_str("\x1b[0m");
                let _ = match now {
                    (Some(upper), Some(lower)) => write!(line, "\x1b[38;5;{upper};48;5;{lower}m"),
                    (Some(one), None) | (None, Some(one)) => write!(line, "\x1b[38;5;{one}m"),
                    (None, None) => Ok(()),
                };
            }
            line.push(match now {
                (Some(upper), Some(lower)) if upper == lower => '█',
                (Some(_), _) => '▀',
                (None, Some(_)) => '▄',
                (None, None) => ' ',
            });
            before = Some(now);
        }
        if used > 0 {
            line.push_str("\x1b[0m");
        }
        line
    }

    /// Computes, for each cell, the entry of the legend that covers most of it, from the top to the bottom.
    fn cells(&self, rows: usize) -> Vec<Vec<Option<usize>>> {
        let (columns, kinds) = (self.columns(), self.legend.entries.len());
        let mut cover = vec![0f32; rows * columns * kinds];
        let bases = self.memory.bases();
        let steps = (self.last - self.first).max(1) as f64;
        for tile in &self.memory.tiles {
            let entry = self.legend.entry_of(tile);
            let low = bases.get(tile.buffer).copied().unwrap_or(0) as f64 + tile.offset.0 as f64;
            let x = |step: u64| step.saturating_sub(self.first) as f64 / steps * columns as f64;
            let y = |bytes: f64| bytes / self.top as f64 * rows as f64;
            let across = parts(x(tile.life.start().0), x(tile.life.end().0), columns);
            for (row, down) in parts(y(low), y(low + tile.size.0 as f64), rows) {
                for (column, along) in across.clone() {
                    cover[((rows - 1 - row) * columns + column) * kinds + entry] += (down * along) as f32;
                }
            }
        }
        let most = |cell: &[f32]| {
            let best = cell.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)))?;
            (*best.1 > 0.0).then_some(best.0)
        };
        let row = |row: &[f32]| row.chunks(kinds).map(most).collect();
        if kinds == 0 { vec![vec![None; columns]; rows] } else { cover.chunks(columns * kinds).map(row).collect() }
    }

    /// Draws steps below the map, and live bytes as a line of bars.
    fn foot(&self, text: &mut String) {
        let columns = self.columns();
        let _ = writeln!(text, "{:>10} └{}", "", "─".repeat(columns));
        let named = |step: u64| shortened(&self.unit.named(Step(step)), columns);
        let (left, right) = (named(self.first), named(self.last.saturating_sub(1)));
        // Where there is no room for both ends, the first goes without saying.
        let left = if left.len() + right.len() < columns { left } else { String::new() };
        let middle = columns.saturating_sub(left.len() + right.chars().count());
        let _ = writeln!(text, "{:>10}  {left}{}{right}", "", " ".repeat(middle));
        let bars = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let bar = |bytes: u64| match bytes {
            0 => ' ',
            bytes => bars[((bytes as f64 / self.top as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
        };
        let line: String = self.live(columns).into_iter().map(bar).collect();
        let _ = writeln!(text, "{:>10}  {}", "live", painted(self.style, "38;5;69", line.trim_end()));
    }

    /// Computes the most live bytes within each column.
    fn live(&self, columns: usize) -> Vec<u64> {
        let mut most = vec![0u64; columns];
        let live = self.memory.live();
        let steps = (self.last - self.first).max(1) as f64;
        let x = |step: u64| (step.saturating_sub(self.first)) as f64 / steps * columns as f64;
        for (index, (step, bytes)) in live.iter().enumerate() {
            let until = live.get(index + 1).map_or(self.last, |next| next.0);
            for (column, _) in parts(x(*step), x(until), columns) {
                most[column] = most[column].max(*bytes);
            }
        }
        most
    }
}

/// Computes the cells that an interval touches, and how much of each it covers.
fn parts(from: f64, to: f64, cells: usize) -> impl Iterator<Item = (usize, f64)> + Clone {
    let first = (from.max(0.0) as usize).min(cells.saturating_sub(1));
    let last = ((to.max(from).ceil() as usize).max(first + 1)).min(cells);
    (first..last.max(first)).filter_map(move |cell| {
        let part = to.min(cell as f64 + 1.0) - from.max(cell as f64);
        (part > 1e-9).then_some((cell, part))
    })
}
