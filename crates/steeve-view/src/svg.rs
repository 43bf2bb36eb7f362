//! Draws a picture as SVG, for papers and READMEs: one row per memory, two plans side by side on one scale.
//!
//! ```text
//!   title, and what the second plan saves
//!   +--------------+ +--------------+
//!   | map          | | map          |   per memory
//!   +--------------+ +--------------+
//!   | live bytes   | | live bytes   |
//!   legend
//! ```
//!
//! The number of rectangles is limited: the largest are drawn as they are, the others are merged into cells of a grid that
//! is as coarse as it must be, and a note says so. Rectangles of a colour are one path, which keeps files small.

mod merge;
mod pattern;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use steeve_plan::{Bytes, Step};

use crate::human_size::{SizeChange, difference};
use crate::legend::{DARK, LIGHT, Legend};
use crate::svg::merge::{MergedRectangles, PlotScale, Rectangle, RectangleStyle, merge_rectangles};
use crate::text::{escaped, shortened};
use crate::{Colouring, MemoryMap, Picture, PlanMap, StepUnit, human_size};

/// The style of an SVG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SvgStyle {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels of a map from its bottom to its top.
    pub height: u32,
    /// No more rectangles than this are drawn.
    pub rectangles: usize,
    /// The property that colours show.
    pub colouring: Colouring,
    /// Light or dark background.
    pub theme: Theme,
}

impl Default for SvgStyle {
    fn default() -> Self {
        Self { width: 1000, height: 320, rectangles: 6000, colouring: Colouring::Fitting, theme: Theme::Auto }
    }
}

impl SvgStyle {
    /// Returns this style with colours for another property.
    #[must_use]
    pub const fn with_colouring(mut self, colouring: Colouring) -> Self {
        self.colouring = colouring;
        self
    }

    /// Returns this style with another background.
    #[must_use]
    pub const fn with_theme(mut self, theme: Theme) -> Self {
        self.theme = theme;
        self
    }

    /// Returns this style with another limit on its rectangles.
    #[must_use]
    pub const fn with_rectangles(mut self, rectangles: usize) -> Self {
        self.rectangles = rectangles;
        self
    }

    /// Returns this style with another width.
    #[must_use]
    pub const fn with_width(mut self, width: u32) -> Self {
        self.width = width;
        self
    }
}

/// The background of a drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Theme {
    /// The reader's own setting.
    #[default]
    Auto,
    /// White.
    Light,
    /// Nearly black.
    Dark,
}

const MARGIN: f64 = 16.0;
const GUTTER: f64 = 64.0;
const GAP: f64 = 24.0;
const CURVE: f64 = 54.0;
/// The height of a label on a line.
const LABEL: f64 = 16.0;
/// About how wide letters are: of the title, of bold and of small ones.
const TITLE_LETTER: f64 = 8.8;
const BOLD_LETTER: f64 = 6.9;
const SMALL_LETTER: f64 = 5.9;

/// Draws a picture as SVG.
///
/// ```
/// use steeve_plan::{Strategy, csv, plan};
/// use steeve_view::{PlanMap, Picture, SvgStyle, svg};
/// let table = csv::read("id,lower,upper,size\nconv,0,3,4096\nrelu,3,5,1024\n")?;
/// let map = PlanMap::of_blocks("fast", "memory", &plan(table.problem()?, &Strategy::Fast)?, table.ids());
/// let drawing = svg(&Picture::of("blocks.csv", map), &SvgStyle::default());
/// assert!(drawing.contains("blocks.csv") && drawing.contains("4.00 KiB"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn svg(picture: &Picture, style: &SvgStyle) -> String {
    let legend = Legend::new(picture, style.colouring);
    let memories = picture.memories();
    let panels = (memories.len() * picture.maps.len()).max(1);
    let mut drawing = SvgDrawing {
        body: String::new(),
        style,
        legend: &legend,
        budget: (style.rectangles / panels).max(16),
        merged: (0, 0),
        patterns: BTreeSet::new(),
    };
    let mut y = drawing.title(picture);
    for memory in &memories {
        y = drawing.row(picture, memory, y);
    }
    y = drawing.legend(y);
    let (width, height) = (style.width, (y + MARGIN).ceil());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&summary(picture)),
    );
    let _ = write!(
        svg,
        "<style>{}</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n",
        css(style, &legend)
    );
    svg.push_str(&pattern::definitions(&drawing.patterns));
    svg.push_str(&drawing.body);
    svg.push_str("</svg>\n");
    svg
}

/// Returns one sentence for screen readers.
fn summary(picture: &Picture) -> String {
    let plan = |map: &PlanMap| format!("{} takes {}", map.name, human_size(map.peak()));
    format!("Memory map of {}: {}", picture.title, picture.maps.iter().map(plan).collect::<Vec<_>>().join(", "))
}

/// Returns the style sheet: background, text and the colours of the legend.
fn css(style: &SvgStyle, legend: &Legend) -> String {
    let colours = |palette: &[&str]| {
        let colour = |(index, entry): (usize, &crate::legend::LegendEntry)| {
            format!(".c{index}{{fill:{}}}", palette[entry.colour])
        };
        legend.entries.iter().enumerate().map(colour).collect::<String>()
    };
    let light = format!(
        ".bg,.card{{fill:#fff}}.plot{{fill:#f7f8fa;stroke:#dde2e9}}text{{fill:#1c2430}}.d{{fill:#5c6878}}.good{{fill:#14804a}}.bad{{fill:#b3261e}}.m{{stroke:#fff}}.peak{{stroke:#b3261e}}.bound{{stroke:#14804a}}.live{{fill:#4d7fe6}}.cut{{stroke:#5c6878}}.n,.k{{fill:#fff}}{}",
        colours(&LIGHT)
    );
    let dark = format!(
        ".bg,.card{{fill:#0e1217}}.plot{{fill:#151a21;stroke:#2a323d}}text{{fill:#e4e9f0}}.d{{fill:#97a3b2}}.good{{fill:#5fd39a}}.bad{{fill:#ff8a80}}.m{{stroke:#0e1217}}.peak{{stroke:#ff8a80}}.bound{{stroke:#5fd39a}}.live{{fill:#5b8ff5}}.cut{{stroke:#97a3b2}}.n,.k{{fill:#0e1217}}{}",
        colours(&DARK)
    );
    let shape = "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}.h{font-size:16px;font-weight:600}.b{font-weight:600}.s{font-size:10.5px}.n{font-size:10px}.k{fill-opacity:.3}.m{stroke-width:.5}.line{fill:none;stroke-width:1.2}.bound{stroke-dasharray:5 3}.cut{stroke-width:.8;stroke-dasharray:2 3}.live{fill-opacity:.35}.card{fill-opacity:.85}.f{fill-opacity:.4}";
    match style.theme {
        Theme::Light => format!("{shape}{light}"),
        Theme::Dark => format!("{shape}{dark}"),
        Theme::Auto => format!("{shape}{light}@media(prefers-color-scheme:dark){{{dark}}}"),
    }
}

/// What has been drawn so far.
struct SvgDrawing<'a> {
    body: String,
    style: &'a SvgStyle,
    legend: &'a Legend,
    /// Rectangles for each map.
    budget: usize,
    /// How many blocks were merged, and into how many rectangles.
    merged: (usize, usize),
    /// The patterns in use.
    patterns: BTreeSet<usize>,
}

impl SvgDrawing<'_> {
    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = writeln!(
            self.body,
            "<text x=\"{}\" y=\"{}\"{class}{anchor}>{}</text>",
            ShortNumber(x),
            ShortNumber(y),
            escaped(text)
        );
    }

    /// Draws the title, and what the second plan saves. Returns where the next part starts.
    fn title(&mut self, picture: &Picture) -> f64 {
        let mut y = 30.0;
        let room = f64::from(self.style.width) - 2.0 * MARGIN;
        self.text(MARGIN, 30.0, "h", "start", &shortened(&picture.title, (room / TITLE_LETTER) as usize));
        if let [before, after] = picture.maps.as_slice() {
            let (change, words) = difference(before.peak(), after.peak());
            // Below the title where there is no room beside it.
            let width = |text: &str, letter: f64| text.chars().count() as f64 * letter;
            if width(&picture.title, TITLE_LETTER) + width(&words, BOLD_LETTER) + GAP > room {
                y = 48.0;
            }
            let class = match change {
                SizeChange::Less => "b good",
                SizeChange::More => "b bad",
                SizeChange::Same => "b",
            };
            self.text(f64::from(self.style.width) - MARGIN, y, class, "end", &words);
        }
        y + 14.0
    }

    /// Draws the maps of one memory side by side.
    fn row(&mut self, picture: &Picture, memory: &str, y: f64) -> f64 {
        let several = picture.memories().len() > 1;
        let count = picture.maps.len() as f64;
        let width = (f64::from(self.style.width) - 2.0 * MARGIN - GUTTER - GAP * (count - 1.0)) / count;
        let maps: Vec<(&PlanMap, Option<&MemoryMap>)> =
            picture.maps.iter().map(|map| (map, map.memory(memory))).collect();
        let (first, last) = picture.span(memory);
        let scale = PlotScale {
            first,
            last,
            top: maps.iter().filter_map(|(_, it)| Some(it.as_ref()?.peak().0)).max().unwrap_or(1).max(1) as f64 * 1.06,
            x: 0.0,
            y: y + 26.0,
            width,
            height: f64::from(self.style.height),
        };
        for (index, (map, it)) in maps.iter().enumerate() {
            let scale = PlotScale { x: MARGIN + GUTTER + index as f64 * (width + GAP), ..scale };
            let title = if several { format!("{}, {memory}", map.name) } else { map.name.clone() };
            if let Some(it) = it {
                let letters = (width / BOLD_LETTER) as usize;
                let mut facts = human_size(it.peak());
                const PROVED: &str = ": no plan is smaller";
                if it.peak() == it.bound && title.chars().count() + facts.len() + PROVED.len() + 2 <= letters {
                    facts += PROVED;
                }
                let title = shortened(&title, letters.saturating_sub(facts.len() + 1));
                self.text(scale.x, y + 18.0, "b", "start", &title);
                self.text(scale.x + width, y + 18.0, "d", "end", &facts);
                self.map(it, &scale);
                let base = self.curve(it, &scale);
                self.steps(it, &scale, map.unit, base);
            }
            if index == 0 {
                self.axis(&scale);
            }
        }
        scale.y + scale.height + CURVE + 46.0
    }

    fn axis(&mut self, scale: &PlotScale) {
        // Powers of two, at most eight of them, and none upon another.
        let most = (scale.height / 14.0).clamp(1.0, 8.0);
        let mut step = 1u64;
        while scale.top / step as f64 > most {
            step = step.saturating_mul(2);
        }
        let mut at = 0u64;
        while at as f64 <= scale.top {
            let label = human_size(Bytes(at)).replace(".00 ", " ");
            self.text(scale.x - 8.0, scale.up(at) + 4.0, "d s", "end", if at == 0 { "0" } else { &label });
            at = match at.checked_add(step) {
                Some(next) => next,
                None => break,
            };
        }
    }

    fn map(&mut self, memory: &MemoryMap, scale: &PlotScale) {
        let PlotScale { x, y, width, height, .. } = *scale;
        let _ = writeln!(
            self.body,
            "<rect class=\"plot\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            ShortNumber(x),
            ShortNumber(y),
            ShortNumber(width),
            ShortNumber(height)
        );
        let bases = memory.bases();
        let boxes: Vec<(Rectangle, usize)> =
            memory.tiles.iter().map(|tile| (Rectangle::of(tile, &bases, scale), self.legend.entry_of(tile))).collect();
        let MergedRectangles { boxes: drawn, cells, blocks } = merge_rectangles(&boxes, self.budget, scale);
        self.merged = (self.merged.0 + blocks, self.merged.1 + cells);
        let mut paths: BTreeMap<(usize, RectangleStyle), String> = BTreeMap::new();
        for (it, class, look) in &drawn {
            let path = paths.entry((*class, *look)).or_default();
            // What is thinner than a hair would not be seen at all.
            let (wide, high) = (it.width.max(0.4), it.height.max(0.4));
            let _ = write!(
                path,
                "M{} {}h{}v{}h-{}z",
                ShortNumber(it.x),
                ShortNumber(it.y),
                ShortNumber(wide),
                ShortNumber(high),
                ShortNumber(wide)
            );
        }
        for ((class, look), path) in paths {
            let _ = writeln!(self.body, "<path class=\"c{class}{}\" d=\"{path}\"/>", look.class());
        }
        self.patterns(&drawn);
        self.names(memory, &boxes);
        for base in bases.iter().skip(1) {
            self.line(scale.x, scale.up(*base), width, "cut");
        }
        // A label within the map, not on the line above it.
        let (peak, bound) = (scale.up(memory.peak().0), scale.up(memory.bound.0));
        let side = if peak - LABEL < scale.y { LabelSide::Below } else { LabelSide::Above };
        if memory.bound < memory.peak() {
            match side {
                // Two lines that are close have their labels on different sides.
                LabelSide::Above if bound - peak < LABEL => {
                    self.labelled(scale, memory.bound, "bound", LabelSide::Below)
                }
                LabelSide::Below if bound - peak < 2.0 * LABEL => self.line(scale.x, bound, width, "bound"),
                _ => self.labelled(scale, memory.bound, "bound", LabelSide::Above),
            }
        }
        self.labelled(scale, memory.peak(), "peak", side);
    }

    /// Draws patterns over rectangles that are large enough, so that kinds are distinguished without colours, too.
    fn patterns(&mut self, drawn: &[(Rectangle, usize, RectangleStyle)]) {
        const MOST: usize = 300;
        const LEAST: f64 = 8.0;
        let large = |(it, _, look): &&(Rectangle, usize, RectangleStyle)| {
            *look == RectangleStyle::Edged && it.width >= LEAST && it.height >= LEAST
        };
        let mut large: Vec<&(Rectangle, usize, RectangleStyle)> = drawn.iter().filter(large).collect();
        large.sort_by(|a, b| b.0.area().total_cmp(&a.0.area()));
        let mut paths: BTreeMap<usize, String> = BTreeMap::new();
        for (it, class, _) in large.into_iter().take(MOST) {
            let path = paths.entry(self.legend.pattern(*class)).or_default();
            let (wide, high) = (ShortNumber(it.width), ShortNumber(it.height));
            let _ = write!(path, "M{} {}h{wide}v{high}h-{wide}z", ShortNumber(it.x), ShortNumber(it.y));
        }
        // The first pattern is none.
        for (pattern, path) in paths.into_iter().filter(|(pattern, _)| *pattern > 0) {
            self.patterns.insert(pattern);
            let _ = writeln!(self.body, "<path fill=\"url(#steeve-{pattern})\" d=\"{path}\"/>");
        }
    }

    /// Draws names within the largest blocks.
    fn names(&mut self, memory: &MemoryMap, boxes: &[(Rectangle, usize)]) {
        const NAMED: usize = 40;
        const LETTER: f64 = 5.6;
        let mut large: Vec<usize> =
            (0..boxes.len()).filter(|at| boxes[*at].0.width > 50.0 && boxes[*at].0.height > 11.0).collect();
        large.sort_by(|a, b| boxes[*b].0.area().total_cmp(&boxes[*a].0.area()).then(a.cmp(b)));
        large.truncate(NAMED);
        large.sort_unstable();
        for at in large {
            let it = &boxes[at].0;
            let room = ((it.width - 8.0) / LETTER) as usize;
            let name = shortened(&memory.tiles[at].name, room);
            if self.legend.pattern(boxes[at].1) > 0 {
                // Letters over a pattern need a quiet ground.
                let _ = writeln!(
                    self.body,
                    "<rect class=\"c{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"10\"/>",
                    boxes[at].1,
                    ShortNumber(it.x + 2.5),
                    ShortNumber(it.y + it.height / 2.0 - 5.0),
                    ShortNumber((name.chars().count() as f64 * LETTER + 3.0).min(it.width - 3.0))
                );
            }
            self.text(it.x + 4.0, it.y + it.height / 2.0 + 3.5, "n", "start", &name);
        }
    }

    fn line(&mut self, x: f64, y: f64, width: f64, class: &str) {
        let _ = writeln!(
            self.body,
            "<path class=\"line {class}\" d=\"M{} {}h{}\"/>",
            ShortNumber(x),
            ShortNumber(y),
            ShortNumber(width)
        );
    }

    /// Draws a line across a map, with its bytes at its right end.
    fn labelled(&mut self, scale: &PlotScale, bytes: Bytes, class: &str, side: LabelSide) {
        let y = scale.up(bytes.0);
        self.line(scale.x, y, scale.width, class);
        let label = format!("{class} {}", human_size(bytes));
        let width = label.len() as f64 * 5.7 + 8.0;
        let left = scale.x + scale.width - width - 4.0;
        let top = if side == LabelSide::Above { y - 15.0 } else { y + 3.0 };
        let _ = writeln!(
            self.body,
            "<rect class=\"card\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"13\" rx=\"2\"/>",
            ShortNumber(left),
            ShortNumber(top),
            ShortNumber(width)
        );
        self.text(left + width - 4.0, top + 10.0, "s", "end", &label);
    }

    /// Draws live bytes over time, with the bound. Returns where its bottom is.
    fn curve(&mut self, memory: &MemoryMap, scale: &PlotScale) -> f64 {
        let base = scale.y + scale.height + 10.0 + CURVE;
        let up = |bytes: u64| base - bytes as f64 / scale.top * CURVE;
        let mut path = format!("M{} {}", ShortNumber(scale.x), ShortNumber(base));
        let mut last = f64::NAN;
        for (column, bytes) in most_live(memory, scale).iter().enumerate() {
            let y = up(*bytes);
            if (y - last).abs() > 0.04 || last.is_nan() {
                let _ = write!(path, "H{}V{}", ShortNumber(scale.x + column as f64), ShortNumber(y));
                last = y;
            }
        }
        let _ = write!(path, "H{}V{}z", ShortNumber(scale.x + scale.width), ShortNumber(base));
        let _ = writeln!(self.body, "<path class=\"live\" d=\"{path}\"/>");
        self.line(scale.x, up(memory.bound.0), scale.width, "bound");
        if scale.x < MARGIN + GUTTER + 1.0 {
            self.text(scale.x - 8.0, base - 2.0, "d s", "end", "live bytes");
        }
        base
    }

    /// Draws the steps below the curve, which ends at `base`: both ends, and the fullest one.
    fn steps(&mut self, memory: &MemoryMap, scale: &PlotScale, unit: StepUnit, base: f64) {
        let (left, right) = (unit.named(Step(scale.first)), unit.named(Step(scale.last.saturating_sub(1))));
        // Where there is no room for both ends, the first goes without saying.
        if (left.len() + right.len() + 2) as f64 * SMALL_LETTER <= scale.width {
            self.text(scale.x, base + 14.0, "d s", "start", &left);
        }
        self.text(scale.x + scale.width, base + 14.0, "d s", "end", &right);
        if let Some(step) = memory.fullest {
            let x = scale.along(step.0);
            let _ = writeln!(
                self.body,
                "<path class=\"line cut\" d=\"M{} {}V{}\"/>",
                ShortNumber(x),
                ShortNumber(scale.y),
                ShortNumber(base)
            );
            let near_the_edge = x - scale.x < 150.0 || scale.x + scale.width - x < 150.0;
            if !near_the_edge {
                self.text(x, base + 14.0, "d s", "middle", &format!("fullest: {}", unit.named(step)));
            }
        }
    }

    fn legend(&mut self, y: f64) -> f64 {
        let (mut x, mut y) = (MARGIN + GUTTER, y + 6.0);
        for index in 0..self.legend.entries.len() {
            let room = (f64::from(self.style.width) - 2.0 * MARGIN - GUTTER - 26.0) / 6.6;
            let title = shortened(&self.legend.entries[index].title, room as usize);
            let width = 26.0 + title.chars().count() as f64 * 6.6;
            if x + width > f64::from(self.style.width) - MARGIN {
                (x, y) = (MARGIN + GUTTER, y + 20.0);
            }
            let _ = writeln!(
                self.body,
                "<rect class=\"c{index}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\"/>",
                ShortNumber(x),
                ShortNumber(y - 10.0)
            );
            let pattern = self.legend.pattern(index);
            if pattern > 0 && self.patterns.contains(&pattern) {
                let _ = writeln!(
                    self.body,
                    "<rect fill=\"url(#steeve-{pattern})\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\"/>",
                    ShortNumber(x),
                    ShortNumber(y - 10.0)
                );
            }
            self.text(x + 17.0, y, "", "start", &title);
            x += width + 6.0;
        }
        if let (blocks @ 1.., cells) = self.merged {
            y += 20.0;
            let note = format!(
                "{blocks} small blocks are merged into {cells} rectangles; steeve view FILE -o map.html shows each."
            );
            self.text(MARGIN + GUTTER, y, "d s", "start", &note);
        }
        y
    }
}

/// Computes the most live bytes within each pixel of the width.
fn most_live(memory: &MemoryMap, scale: &PlotScale) -> Vec<u64> {
    let live = memory.live();
    let mut most = vec![0u64; (scale.width as usize).max(1)];
    for (index, (step, bytes)) in live.iter().enumerate() {
        let until = live.get(index + 1).map_or(scale.last, |next| next.0);
        if *step >= scale.last || until <= scale.first {
            continue;
        }
        let column = |step: u64| ((scale.along(step) - scale.x).max(0.0) as usize).min(most.len() - 1);
        let (from, to) = (column(*step), column(until).max(column(*step)));
        let to = if scale.along(until) - scale.x - to as f64 <= 0.0 { to.saturating_sub(1).max(from) } else { to };
        most[from..=to].iter_mut().for_each(|it| *it = (*it).max(*bytes));
    }
    most
}

/// The side of a line on which its label is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LabelSide {
    Above,
    Below,
}

/// A number written with at most two decimals.
struct ShortNumber(f64);

impl std::fmt::Display for ShortNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.2}", self.0);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        f.write_str(if text == "-0" { "0" } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let short = |it: f64| ShortNumber(it).to_string();
        assert_eq!(
            [short(1.0), short(1.5), short(1.256), short(-0.001), short(100.0)],
            ["1", "1.5", "1.26", "0", "100"]
        );
    }
}
