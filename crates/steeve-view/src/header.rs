//! Writes a plan for a C compiler: sizes, alignments and offsets as constants, for programs that have one array and no
//! allocator.
//!
//! Every name is a valid identifier and no two are the same; one arena for each buffer of each memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use steeve_plan::{Bytes, Offset};

use crate::text::commented;
use crate::{MemoryMap, PlanMap, StepUnit, Tile, human_size};

/// The prefix of a header, and the file it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderStyle {
    /// The prefix of every constant. Characters that C does not allow become underscores.
    pub prefix: String,
    /// The file that it was made from, for the comment at its top.
    pub source: String,
}

impl HeaderStyle {
    /// Creates a style whose constants begin with the name of the file, without its folders and extensions.
    ///
    /// ```
    /// use steeve_view::HeaderStyle;
    /// assert_eq!(HeaderStyle::of_file("models/tiny-net.graph.gz").prefix, "TINY_NET");
    /// ```
    pub fn of_file(file: &str) -> Self {
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let stem = name.split('.').next().unwrap_or(name);
        Self::named(file, stem)
    }

    /// Creates a style whose constants begin with `prefix`.
    pub fn named(file: &str, prefix: &str) -> Self {
        let prefix = match identifier(prefix) {
            name if name.is_empty() => "PLAN".to_owned(),
            name if name.starts_with(|letter: char| letter.is_ascii_digit()) => format!("PLAN_{name}"),
            name => name,
        };
        Self { prefix, source: file.to_owned() }
    }
}

/// Writes a C header. C99 and C++ understand it, and it includes nothing.
///
/// ```
/// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
/// use steeve_view::{HeaderStyle, PlanMap, header};
/// let graph: AssignedGraph = "x = input f32[64]; y = silu x; z = add y x !output".parse()?;
/// let plan = plan_graph(&graph, &PlanOptions::default())?;
/// let text = header(&PlanMap::of_graph("steeve", &plan), &HeaderStyle::of_file("tiny.graph"));
/// assert!(text.contains("#define TINY_ARENA_SIZE 512u"));
/// assert!(text.contains("#define TINY_X_OFFSET "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn header(map: &PlanMap, style: &HeaderStyle) -> String {
    let mut names = UniqueNames::new(&style.prefix);
    let guard = names.unique("H");
    let mut text = format!(
        "/* Made by steeve {} from {}: plan again instead of editing.\n * Offsets are from the start of an arena, which must be aligned as *_ARENA_ALIGN says. */\n#ifndef {guard}\n#define {guard}\n",
        env!("CARGO_PKG_VERSION"),
        commented(&style.source),
    );
    // Arenas first: their names are the ones that a program relies on most.
    let arenas: Vec<ArenaConstants<'_>> =
        map.memories.iter().flat_map(|memory| arenas(map, memory, &mut names)).collect();
    for ArenaConstants { name, about, size, tiles } in arenas {
        let align = tiles.iter().map(|tile| tile.align).max().unwrap_or(1);
        let _ = write!(
            text,
            "\n/* {}: {} for {}. */\n#define {name}_SIZE {}\n#define {name}_ALIGN {}\n",
            commented(&about),
            human_size(size),
            counted(tiles.len()),
            number(size.0),
            number(align),
        );
        for tile in tiles {
            tensor(&mut text, &mut names, map.unit, tile);
        }
    }
    let at = names.unique("AT");
    let _ = write!(
        text,
        "\n/* Where a tensor is located in an arena: {at}(arena, {}_NAME). */\n#define {at}(arena, tensor) ((void *)((unsigned char *)(arena) + tensor##_OFFSET))\n\n#endif\n",
        style.prefix
    );
    text
}

fn counted(tensors: usize) -> String {
    format!("{tensors} tensor{}", if tensors == 1 { "" } else { "s" })
}

/// A buffer and what is allocated in it.
struct ArenaConstants<'a> {
    name: String,
    /// Its memory and, where there are several, its number.
    about: String,
    size: Bytes,
    tiles: Vec<&'a Tile>,
}

fn arenas<'a>(map: &PlanMap, memory: &'a MemoryMap, names: &mut UniqueNames<'_>) -> Vec<ArenaConstants<'a>> {
    let several = map.memories.len() > 1 || memory.buffers.len() > 1;
    let arena = |(buffer, size): (usize, &Bytes)| ArenaConstants {
        name: arena_name(map, memory, buffer, names),
        about: if several { format!("{}, buffer {buffer}", memory.name) } else { memory.name.clone() },
        size: *size,
        tiles: Vec::new(),
    };
    let mut arenas: Vec<ArenaConstants<'a>> = memory.buffers.iter().enumerate().map(arena).collect();
    for tile in memory.tiles.iter().filter(|tile| !tile.is_prefix) {
        if let Some(arena) = arenas.get_mut(tile.buffer) {
            arena.tiles.push(tile);
        }
    }
    arenas
}

/// Returns `PREFIX_ARENA`, with the memory and the buffer in it where there are several.
fn arena_name(map: &PlanMap, memory: &MemoryMap, buffer: usize, names: &mut UniqueNames<'_>) -> String {
    let mut name = String::new();
    if map.memories.len() > 1 {
        name = format!("{}_", identifier(&memory.name));
    }
    if memory.buffers.len() > 1 {
        name = format!("{name}{buffer}_");
    }
    names.unique_with(&format!("{name}ARENA"), &["_SIZE", "_ALIGN"])
}

fn tensor(text: &mut String, names: &mut UniqueNames<'_>, unit: StepUnit, tile: &Tile) {
    let what = [tile.layout.as_str(), tile.operation.as_str()]
        .iter()
        .filter(|it| !it.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    let life = format!("{} {} to {}", unit.word(), unit.number(tile.life.start()), unit.number(tile.life.end()) - 1);
    let about = if what.is_empty() { life } else { format!("{what}, {life}") };
    constants(text, names, &tile.name, tile.offset, tile.size, &about);
    for also in &tile.nested {
        let about = format!("within {}", tile.name);
        constants(text, names, &also.name, also.offset, also.size, &about);
    }
}

fn constants(text: &mut String, names: &mut UniqueNames<'_>, name: &str, offset: Offset, size: Bytes, about: &str) {
    let ours = names.unique_with(&identifier(name), &["_OFFSET", "_SIZE"]);
    let _ =
        writeln!(text, "#define {ours}_OFFSET {} /* {}: {} */", number(offset.0), commented(name), commented(about));
    let _ = writeln!(text, "#define {ours}_SIZE {}", number(size.0));
}

/// Formats a constant with a type that is large enough for it on every compiler.
fn number(value: u64) -> String {
    match value {
        0..=0xffff => format!("{value}u"),
        0x1_0000..=0xffff_ffff => format!("{value}ul"),
        _ => format!("{value}ull"),
    }
}

/// Converts a name to capitals, digits and single underscores.
fn identifier(name: &str) -> String {
    let mut identifier = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() => identifier.push(letter.to_ascii_uppercase()),
            _ if identifier.is_empty() || identifier.ends_with('_') => {}
            _ => identifier.push('_'),
        }
    }
    identifier.trim_end_matches('_').to_owned()
}

/// The names that are in use.
struct UniqueNames<'a> {
    prefix: &'a str,
    taken: BTreeSet<String>,
    counts: BTreeMap<String, u64>,
}

impl<'a> UniqueNames<'a> {
    fn new(prefix: &'a str) -> Self {
        Self { prefix, taken: BTreeSet::new(), counts: BTreeMap::new() }
    }

    fn unique(&mut self, name: &str) -> String {
        self.unique_with(name, &[""])
    }

    /// Returns a name that is new with each of the endings.
    fn unique_with(&mut self, name: &str, endings: &[&str]) -> String {
        let name = if name.is_empty() { "TENSOR" } else { name };
        let mut wanted = format!("{}_{name}", self.prefix);
        // Many tensors may have one name, so each one starts where the one before has ended.
        let count = self.counts.entry(wanted.clone()).or_insert(1);
        if *count > 1 {
            *count += 1;
            wanted = format!("{}_{name}_{count}", self.prefix);
        }
        while endings.iter().any(|ending| self.taken.contains(&format!("{wanted}{ending}"))) {
            *count += 1;
            wanted = format!("{}_{name}_{count}", self.prefix);
        }
        self.taken.extend(endings.iter().map(|ending| format!("{wanted}{ending}")));
        wanted
    }
}
