//! The fullest step of a memory, and what is alive there: what `show` lists, `check --capacity` names and `diff` compares.

use serde::Serialize;
use steeve_plan::{Bytes, Step};
use steeve_view::{LastUse, Map, MemoryMap, Tile, Unit, printable};

/// When a memory is fullest: nodes of a graph, of which -1 is before the run; steps of a block list. Nothing where nothing
/// is ever alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Moment {
    Node(Option<i64>),
    Step(Option<u64>),
}

impl Moment {
    pub(crate) fn new(unit: Unit, step: Option<Step>) -> Self {
        match unit {
            Unit::Node => Self::Node(step.and_then(|step| i64::try_from(unit.number(step)).ok())),
            _ => Self::Step(step.map(|step| step.0)),
        }
    }

    /// The fullest step of a memory.
    pub(crate) fn of(map: &Map, memory: &MemoryMap) -> Self {
        Self::new(map.unit, memory.fullest)
    }

    /// In a sentence: `before the run`, `at node 3 (kq-0)`, `at step 4`; nothing where nothing is ever alive.
    pub(crate) fn told(self, map: &Map) -> Option<String> {
        match self {
            Self::Node(node) => match node? {
                -1 => Some("before the run".to_owned()),
                node => Some(format!("at {}", node_called(map, node))),
            },
            Self::Step(step) => Some(format!("at step {}", step?)),
        }
    }
}

/// A node by its number, and by its name where the map knows it.
fn node_called(map: &Map, node: i64) -> String {
    let name = usize::try_from(node).ok().and_then(|node| map.nodes.get(node)).map(|(name, _)| short(name));
    match name {
        Some(name) if !name.is_empty() => format!("node {node} ({name})"),
        _ => format!("node {node}"),
    }
}

/// A name that may hold anything, as a line of a table or a sentence can bear it.
pub(crate) fn short(name: &str) -> String {
    const MOST: usize = 40;
    let name = printable(name);
    if name.chars().count() <= MOST {
        return name;
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

/// What is alive at the fullest step, the largest first.
pub(crate) fn alive_at_peak(memory: &MemoryMap) -> Vec<&Tile> {
    memory.fullest.map(|step| memory.alive_at(step)).unwrap_or_default()
}

/// The bytes that tiles occupy, each rounded up to its alignment.
pub(crate) fn occupied(tiles: &[&Tile]) -> Bytes {
    Bytes(tiles.iter().fold(0, |sum: u64, tile| sum.saturating_add(tile.occupied.0)))
}

/// Why a tensor is alive for as long as it is: `last read by node 12 (kq-0)`, `kept as output`; nothing where nothing is
/// known.
pub(crate) fn why_alive(map: &Map, tile: &Tile) -> String {
    match tile.last_use {
        LastUse::Read { node } => {
            let node = i64::try_from(node).map_or_else(|_| format!("node {node}"), |node| node_called(map, node));
            format!("last read by {node}")
        }
        other => other.to_string(),
    }
}

/// What makes a tensor: its operation, or what it is to the graph.
pub(crate) fn operation(tile: &Tile) -> &str {
    if tile.operation.is_empty() { tile.role.title() } else { &tile.operation }
}

/// Something that is alive at the fullest step, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Alive {
    Tensor {
        /// The id in the file; none where the file has none, or where a plan of the graph is all there is.
        id: Option<u64>,
        name: String,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        layer: Option<u32>,
        op: String,
        r#type: String,
        bytes: Bytes,
        first: i64,
        last: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_use: Option<&'static str>,
        /// The node that reads it last.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_read_by: Option<usize>,
    },
    Block {
        id: String,
        bytes: Bytes,
        lower: u64,
        upper: u64,
    },
}

impl Alive {
    pub(crate) fn new(unit: Unit, tile: &Tile, id: Option<u64>) -> Self {
        let (start, end) = (tile.life.start(), tile.life.end());
        if unit != Unit::Node {
            return Self::Block { id: tile.name.clone(), bytes: tile.size, lower: start.0, upper: end.0 };
        }
        let node = |step: u64| i64::try_from(step).map_or(i64::MAX, |step| step - 1);
        let (last_use, last_read_by) = match tile.last_use {
            LastUse::Read { node } => (Some("read"), Some(node)),
            LastUse::Output => (Some("output"), None),
            LastUse::Unread => (Some("unread"), None),
            LastUse::Fusion => (Some("fusion"), None),
            _ => (None, None),
        };
        Self::Tensor {
            id,
            name: tile.name.clone(),
            role: tile.role.title(),
            layer: tile.layer,
            op: operation(tile).to_owned(),
            r#type: tile.layout.clone(),
            bytes: tile.size,
            first: node(start.0),
            last: node(end.0.saturating_sub(1)),
            last_use,
            last_read_by,
        }
    }
}
