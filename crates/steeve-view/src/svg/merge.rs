//! Converts blocks to rectangles of pixels, merged where there are too many.

use std::collections::BTreeMap;

use crate::Tile;

/// The scale that converts steps and bytes to pixels.
#[derive(Clone, Copy)]
pub(super) struct PlotScale {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) top: f64,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl PlotScale {
    pub(super) fn along(&self, step: u64) -> f64 {
        // What begins before or ends after is cut off.
        let step = step.clamp(self.first, self.last.max(self.first));
        let part = (step - self.first) as f64 / (self.last.saturating_sub(self.first)).max(1) as f64;
        self.x + part * self.width
    }

    pub(super) fn up(&self, bytes: u64) -> f64 {
        self.y + self.height - bytes as f64 / self.top * self.height
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rectangle {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Rectangle {
    pub(super) fn of(tile: &Tile, bases: &[u64], scale: &PlotScale) -> Self {
        let low = bases.get(tile.buffer).copied().unwrap_or(0).saturating_add(tile.offset.0);
        let (x, y) = (scale.along(tile.life.start().0), scale.up(low.saturating_add(tile.size.0)));
        Self { x, y, width: scale.along(tile.life.end().0) - x, height: scale.up(low) - y }
    }

    pub(super) fn area(&self) -> f64 {
        self.width * self.height
    }
}

/// The look of a rectangle besides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RectangleStyle {
    /// Many small blocks that cover little of their cell.
    Sparse,
    /// Without an edge, for what an edge would hide.
    Plain,
    /// With an edge, so that neighbours are told apart.
    Edged,
}

impl RectangleStyle {
    pub(super) fn of(it: &Rectangle) -> Self {
        if it.width > 3.0 && it.height > 3.0 { Self::Edged } else { Self::Plain }
    }

    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Sparse => " f",
            Self::Plain => "",
            Self::Edged => " m",
        }
    }
}

/// The rectangles that are drawn for some blocks.
pub(super) struct MergedRectangles {
    pub(super) boxes: Vec<(Rectangle, usize, RectangleStyle)>,
    /// How many of the boxes represent several blocks.
    pub(super) cells: usize,
    /// How many blocks these are.
    pub(super) blocks: usize,
}

/// Returns all boxes if the budget allows it; else the largest, and cells of a grid for the rest: a cell has the colour
/// that covers most of it, and adjacent cells of one look are one rectangle.
pub(super) fn merge_rectangles(boxes: &[(Rectangle, usize)], budget: usize, scale: &PlotScale) -> MergedRectangles {
    let mut order: Vec<usize> = (0..boxes.len()).filter(|at| boxes[*at].0.height > 0.0).collect();
    order.sort_by(|a, b| boxes[*b].0.area().total_cmp(&boxes[*a].0.area()).then(a.cmp(b)));
    let exact = |at: &usize| (boxes[*at].0, boxes[*at].1, RectangleStyle::of(&boxes[*at].0));
    if order.len() <= budget {
        return MergedRectangles { boxes: order.iter().map(exact).collect(), cells: 0, blocks: 0 };
    }
    let (large, small) = order.split_at(budget / 2);
    // A pixel each, or more where that were too many to go through.
    const MOST: f64 = 4e6;
    let mut size = (scale.width * scale.height / MOST).sqrt().max(1.0);
    loop {
        let cells = cells(small.iter().map(|at| &boxes[*at]), size, scale);
        if cells.len() <= budget - large.len() {
            let count = cells.len();
            // Cells first, so that no merged one hides a large block.
            let boxes = cells.into_iter().chain(large.iter().map(exact)).collect();
            return MergedRectangles { boxes, cells: count, blocks: small.len() };
        }
        size *= 1.25;
    }
}

fn cells<'a>(
    boxes: impl Iterator<Item = &'a (Rectangle, usize)>,
    size: f64,
    scale: &PlotScale,
) -> Vec<(Rectangle, usize, RectangleStyle)> {
    let (columns, rows) = ((scale.width / size).ceil() as usize, (scale.height / size).ceil() as usize);
    let mut cover: BTreeMap<(usize, usize), BTreeMap<usize, f64>> = BTreeMap::new();
    for (it, class) in boxes {
        let column = |x: f64| (((x - scale.x) / size).max(0.0) as usize).min(columns.saturating_sub(1));
        let row = |y: f64| (((y - scale.y) / size).max(0.0) as usize).min(rows.saturating_sub(1));
        for row in row(it.y)..=row(it.y + it.height) {
            for column in column(it.x)..=column(it.x + it.width) {
                let (left, top) = (scale.x + column as f64 * size, scale.y + row as f64 * size);
                let across = (it.x + it.width).min(left + size) - it.x.max(left);
                let down = (it.y + it.height).min(top + size) - it.y.max(top);
                if across > 0.0 && down > 0.0 {
                    *cover.entry((row, column)).or_default().entry(*class).or_default() += across * down;
                }
            }
        }
    }
    let mut cells: Vec<(Rectangle, usize, RectangleStyle)> = Vec::new();
    let mut before: Option<(usize, usize)> = None;
    for ((row, column), classes) in cover {
        let most = classes.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
        let Some(class) = most.map(|(class, _)| *class) else { continue };
        let dense = classes.values().sum::<f64>() > 0.4 * size * size;
        let look = if dense { RectangleStyle::Plain } else { RectangleStyle::Sparse };
        let (x, y) = (scale.x + column as f64 * size, scale.y + row as f64 * size);
        let (width, height) = (size.min(scale.x + scale.width - x), size.min(scale.y + scale.height - y));
        match cells.last_mut() {
            Some((last, same, alike))
                if (*same, *alike) == (class, look) && before == Some((row, column.wrapping_sub(1))) =>
            {
                last.width += width;
            }
            _ => cells.push((Rectangle { x, y, width, height }, class, look)),
        }
        before = Some((row, column));
    }
    cells
}
