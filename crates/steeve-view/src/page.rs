//! Draws a picture as one HTML page without network or framework. Its parts are in `page/`.
//!
//! The data is JSON in a script element, one array per property of the blocks, with all texts in one table. Colours,
//! live bytes and shared memory are computed in the page.

use std::collections::HashMap;

use serde::Serialize;

use crate::legend::{DARK, LIGHT};
use crate::live_curve::shared_bytes;
use crate::map::LEAF_KINDS;
use crate::text::escaped;
use crate::{Colouring, LastUse, MemoryMap, Picture, PlanMap, Role, Theme, Tile};

/// How a page looks when it is opened. The reader can change all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageStyle {
    /// The property that colours show.
    pub colouring: Colouring,
    /// Light or dark background.
    pub theme: Theme,
}

impl PageStyle {
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
}

/// Draws a picture as a page.
///
/// ```
/// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
/// use steeve_view::{PlanMap, PageStyle, Picture, page};
/// let graph: AssignedGraph = "x = input f32[64]; y = silu x; z = add y x !output".parse()?;
/// let plan = plan_graph(&graph, &PlanOptions::default())?;
/// let html = page(&Picture::of("tiny.graph", PlanMap::of_graph("steeve", &plan)), &PageStyle::default());
/// assert!(html.contains("<title>tiny.graph") && !html.contains("https://"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn page(picture: &Picture, style: &PageStyle) -> String {
    let data = serde_json::to_string(&PageData::new(picture, style)).unwrap_or_else(|_| "null".to_owned());
    // Within a script element nothing but its end is special, and that starts with this letter.
    let data = data.replace('<', "\\u003c");
    let mut page = String::with_capacity(data.len() + 100_000);
    for part in template_parts(include_str!("page/page.html")) {
        match part {
            TemplatePart::Text(text) => page.push_str(text),
            TemplatePart::Slot("theme") => page.push_str(match style.theme {
                Theme::Auto => "",
                Theme::Light => " data-theme=\"light\"",
                Theme::Dark => " data-theme=\"dark\"",
            }),
            TemplatePart::Slot("title") => page.push_str(&escaped(&picture.title)),
            TemplatePart::Slot("style") => page.push_str(include_str!("page/page.css")),
            TemplatePart::Slot("script") => SCRIPTS.iter().for_each(|script| page.push_str(script)),
            TemplatePart::Slot("data") => page.push_str(&data),
            TemplatePart::Slot(_) => {}
        }
    }
    page
}

/// The scripts, in the order in which they depend on each other.
const SCRIPTS: [&str; 6] = [
    include_str!("page/model.js"),
    include_str!("page/colour.js"),
    include_str!("page/paint.js"),
    include_str!("page/pane.js"),
    include_str!("page/panel.js"),
    include_str!("page/main.js"),
];

enum TemplatePart<'a> {
    Text(&'a str),
    Slot(&'a str),
}

/// Splits a template into slots, which look like `{{name}}`, and the text between them.
fn template_parts(template: &str) -> impl Iterator<Item = TemplatePart<'_>> {
    template.split("{{").enumerate().flat_map(|(index, piece)| match (index, piece.split_once("}}")) {
        (1.., Some((slot, text))) => vec![TemplatePart::Slot(slot), TemplatePart::Text(text)],
        _ => vec![TemplatePart::Text(piece)],
    })
}

/// The data of the page.
#[derive(Serialize)]
struct PageData<'a> {
    title: &'a str,
    version: &'static str,
    /// The property that was asked for; else the page chooses.
    by: Option<&'static str>,
    /// The steps that are shown, the end left out; nothing means all.
    steps: Option<(u64, u64)>,
    light: &'static [&'static str],
    dark: &'static [&'static str],
    roles: Vec<&'static str>,
    /// What blocks are that no operation makes.
    leafs: &'static [&'static str],
    /// Phrases for the numbers of [`last_use`] that are no steps: 0, -1 and so on.
    last_uses: Vec<String>,
    strings: Vec<&'a str>,
    maps: Vec<MapData<'a>>,
}

#[derive(Serialize)]
struct MapData<'a> {
    name: &'a str,
    unit: &'static str,
    /// Two entries for each node: its name and its operation.
    nodes: Vec<u32>,
    memories: Vec<MemoryData<'a>>,
}

#[derive(Serialize)]
struct MemoryData<'a> {
    name: &'a str,
    buffers: Vec<u64>,
    bound: u64,
    /// The steps at which nodes use it, the end left out; nothing means all.
    used: Option<(u64, u64)>,
    start: Vec<u64>,
    /// How many steps a block is alive.
    steps: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buffer: Vec<usize>,
    offset: Vec<u64>,
    size: Vec<u64>,
    /// What is added to the size by the alignment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    padding: Vec<u64>,
    /// Steps at which two blocks have bytes at once: the step, the buffer, how many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shared: Vec<(u64, usize, u64)>,
    label: Vec<u32>,
    operation: Vec<u32>,
    /// Of what no operation makes, an index into the leafs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaf: Vec<usize>,
    layout: Vec<u32>,
    /// An index into the roles.
    role: Vec<usize>,
    /// The number of the layer plus one, or 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    layer: Vec<u64>,
    /// The step of the last reader, or one of the numbers of [`last_use`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    last: Vec<i64>,
    /// The index of the block whose bytes it reuses in place, plus one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    follows: Vec<usize>,
    /// A block and the names of some that are located in its bytes too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<(usize, Vec<u32>)>,
}

impl<'a> PageData<'a> {
    fn new(picture: &'a Picture, style: &PageStyle) -> Self {
        let mut texts = StringTable::default();
        let maps = picture.maps.iter().map(|map| MapData::new(map, &mut texts)).collect();
        Self {
            title: &picture.title,
            version: env!("CARGO_PKG_VERSION"),
            by: match style.colouring {
                Colouring::Fitting => None,
                Colouring::Role => Some("role"),
                Colouring::Operation => Some("operation"),
                Colouring::Name => Some("name"),
                Colouring::Size => Some("size"),
            },
            steps: picture.steps.map(|(first, end)| (first.0, end.0)),
            light: &LIGHT,
            dark: &DARK,
            roles: Role::ALL.iter().map(|role| role.title()).collect(),
            leafs: &LEAF_KINDS,
            last_uses: PHRASES.iter().map(ToString::to_string).collect(),
            strings: texts.list,
            maps,
        }
    }
}

impl<'a> MapData<'a> {
    fn new(map: &'a PlanMap, texts: &mut StringTable<'a>) -> Self {
        let nodes =
            map.nodes.iter().flat_map(|(name, operation)| [texts.index(name), texts.index(operation)]).collect();
        let used = map.memories.iter().filter(|memory| !memory.tiles.is_empty());
        let memories = used.map(|memory| MemoryData::new(memory, texts)).collect();
        Self { name: &map.name, unit: map.unit.word(), nodes, memories }
    }
}

impl<'a> MemoryData<'a> {
    fn new(memory: &'a MemoryMap, texts: &mut StringTable<'a>) -> Self {
        fn column<T: PartialEq + Default>(tiles: &[Tile], of: impl Fn(&Tile) -> T) -> Vec<T> {
            let column: Vec<T> = tiles.iter().map(of).collect();
            // A column that says nothing is left out.
            if column.iter().all(|it| *it == T::default()) { Vec::new() } else { column }
        }
        const NAMED: usize = 6;
        let tiles = &memory.tiles;
        let also = |(index, tile): (usize, &'a Tile), texts: &mut StringTable<'a>| {
            let mut names: Vec<u32> = Vec::new();
            for it in &tile.nested {
                let name = texts.index(&it.name);
                // A tensor may have many views of one name, which is listed once.
                if names.len() < NAMED && !names.contains(&name) {
                    names.push(name);
                }
            }
            (!names.is_empty()).then_some((index, names))
        };
        Self {
            name: &memory.name,
            buffers: memory.buffers.iter().map(|size| size.0).collect(),
            bound: memory.bound.0,
            used: memory.used.map(|(first, end)| (first.0, end.0)),
            start: tiles.iter().map(|tile| tile.life.start().0).collect(),
            steps: tiles.iter().map(|tile| tile.life.end().0 - tile.life.start().0).collect(),
            buffer: column(tiles, |tile| tile.buffer),
            offset: tiles.iter().map(|tile| tile.offset.0).collect(),
            size: tiles.iter().map(|tile| tile.size.0).collect(),
            shared: shared_bytes(tiles).into_iter().map(|it| (it.step, it.buffer, it.bytes)).collect(),
            padding: column(tiles, |tile| tile.occupied.0.saturating_sub(tile.size.0)),
            label: tiles.iter().map(|tile| texts.index(&tile.name)).collect(),
            operation: tiles.iter().map(|tile| texts.index(&tile.operation)).collect(),
            leaf: column(tiles, Tile::leaf_kind),
            layout: tiles.iter().map(|tile| texts.index(&tile.layout)).collect(),
            role: tiles.iter().map(|tile| tile.role as usize).collect(),
            layer: column(tiles, |tile| tile.layer.map_or(0, |layer| u64::from(layer) + 1)),
            last: column(tiles, |tile| last_use(tile.last_use)),
            follows: column(tiles, |tile| tile.follows.map_or(0, |before| before + 1)),
            also: tiles.iter().enumerate().filter_map(|it| also(it, texts)).collect(),
        }
    }
}

/// The last uses that are no node, in the order of their numbers.
const PHRASES: [LastUse; 4] = [LastUse::Unknown, LastUse::Output, LastUse::Unread, LastUse::Fusion];

/// Returns a last use as one number: the step of the reader, which is never 0, or less for what no node reads last.
fn last_use(it: LastUse) -> i64 {
    match it {
        LastUse::Unknown => 0,
        LastUse::Read { node } => i64::try_from(node).map_or(0, |node| node.saturating_add(1)),
        LastUse::Output => -1,
        LastUse::Unread => -2,
        LastUse::Fusion => -3,
    }
}

/// All texts, each once.
#[derive(Default)]
struct StringTable<'a> {
    list: Vec<&'a str>,
    index: HashMap<&'a str, u32>,
}

impl<'a> StringTable<'a> {
    fn index(&mut self, text: &'a str) -> u32 {
        let list = &mut self.list;
        *self.index.entry(text).or_insert_with(|| {
            list.push(text);
            list.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{PHRASES, last_use};
    use crate::LastUse;

    #[test]
    fn the_number_of_a_last_use_finds_its_phrase() {
        for (number, it) in (0..).zip(PHRASES) {
            assert_eq!(last_use(it), -number, "{it}");
        }
        assert_eq!(last_use(LastUse::Read { node: 0 }), 1);
    }
}
