//! Compares two maps: per memory its bytes, and what explains the difference. O(n log n).
//!
//! Tensors are matched by name, the k-th of a name with the k-th. What explains a difference is what is alive at the fullest
//! step of each side: the differences by role, by operation, by layer and by tensor each add up to that of the live bytes.
//!
//! ```text
//!   before  fullest at node 7: a 4, b 2       ->  live 6
//!   after   fullest at node 9: a 8, c 2       ->  live 10: a grew by 4, b left (-2), c came (+2)
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use steeve_plan::{Bytes, Step};

use crate::{ByteSums, MemoryMap, PlanMap, StepUnit, Tile, byte_sums};

/// Bytes before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BytesChange {
    /// What there was.
    pub before: Bytes,
    /// What there is.
    pub after: Bytes,
    /// How many more there are; less than 0 where there are fewer.
    pub difference: i128,
}

impl BytesChange {
    /// Returns the change from `before` to `after`.
    pub fn new(before: Bytes, after: Bytes) -> Self {
        Self { before, after, difference: i128::from(after.0) - i128::from(before.0) }
    }

    /// Returns how many bytes more there are; 0 where there are fewer.
    pub fn growth(self) -> Bytes {
        Bytes(self.after.0.saturating_sub(self.before.0))
    }

    /// Returns the sum of two changes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = |a: Bytes, b: Bytes| Bytes(a.0.saturating_add(b.0));
        Self::new(sum(self.before, other.before), sum(self.after, other.after))
    }
}

/// One memory before and after, as [`changes`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryChange {
    /// Its name after, or before where it is gone.
    pub name: String,
    /// The bytes of all its buffers.
    pub peak: BytesChange,
    /// What is alive at the fullest step of each side.
    pub live: BytesChange,
    /// The fullest step before and after; nothing where nothing is ever alive.
    pub fullest: [Option<Step>; 2],
    /// How many tensors have changed, whenever they are alive.
    pub tensors: TensorCounts,
    /// The live bytes by role, the largest difference first; empty unless both maps are those of graphs.
    pub by_role: Vec<KindChange>,
    /// The differences summed by operation, as [`Tile::maker`] names it.
    pub by_operation: Vec<KindChange>,
    /// The differences summed by layer.
    pub by_layer: Vec<KindChange>,
    /// Every tensor that occupies more or fewer bytes at the fullest steps, the largest difference first.
    pub changes: Vec<TensorChange>,
}

/// The live bytes of all tensors of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KindChange {
    /// The role, the operation or the layer.
    pub name: String,
    /// Their bytes at the fullest steps.
    #[serde(flatten)]
    pub bytes: BytesChange,
}

/// One tensor that occupies more or fewer bytes at the fullest step after than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorChange {
    /// How it has changed.
    pub change: ChangeKind,
    /// Its name.
    pub name: String,
    /// The title of its role; nothing unless both maps are those of graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// What makes it, as [`Tile::maker`] names it; nothing unless both maps are those of graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The block of a network that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<u32>,
    /// Its bytes at the fullest steps: none where it is not alive then.
    #[serde(flatten)]
    pub bytes: BytesChange,
}

/// How a tensor has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It was not in the memory before.
    Came,
    /// It is not in the memory any more.
    Went,
    /// It is alive at both fullest steps, with more bytes.
    Grew,
    /// It is alive at both fullest steps, with fewer bytes.
    Shrank,
    /// It was there before, but not alive at the fullest step.
    Entered,
    /// It is there, but not alive at the fullest step any more.
    Left,
}

impl ChangeKind {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Came => "came",
            Self::Went => "went",
            Self::Grew => "grew",
            Self::Shrank => "shrank",
            Self::Entered => "entered",
            Self::Left => "left",
        }
    }
}

/// How many tensors of a memory have changed, and by how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorCounts {
    /// Not in the memory before.
    pub came: TensorCount,
    /// Not in the memory any more.
    pub went: TensorCount,
    /// Larger than before, by these bytes.
    pub grew: TensorCount,
    /// Smaller than before, by these bytes.
    pub shrank: TensorCount,
    /// As large as before, at another offset or in another buffer.
    pub moved: TensorCount,
}

/// Some tensors, and their bytes or the bytes that each has more or less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorCount {
    /// How many there are.
    pub count: usize,
    /// The bytes of all of them.
    pub bytes: Bytes,
}

impl TensorCount {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = Bytes(self.bytes.0.saturating_add(bytes));
    }
}

impl TensorCounts {
    /// Returns whether every tensor is where it was, and as large.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns each count with the word for it.
    pub fn named(&self) -> [(&'static str, TensorCount); 5] {
        let Self { came, went, grew, shrank, moved } = *self;
        [("came", came), ("went", went), ("grew", grew), ("shrank", shrank), ("moved", moved)]
    }

    fn count(&mut self, before: Option<&Tile>, after: Option<&Tile>) {
        match (before, after) {
            (None, Some(after)) => self.came.add(after.occupied.0),
            (Some(before), None) => self.went.add(before.occupied.0),
            (Some(before), Some(after)) if after.occupied > before.occupied => {
                self.grew.add(after.occupied.0 - before.occupied.0);
            }
            (Some(before), Some(after)) if after.occupied < before.occupied => {
                self.shrank.add(before.occupied.0 - after.occupied.0);
            }
            (Some(before), Some(after)) if (before.buffer, before.offset) != (after.buffer, after.offset) => {
                self.moved.add(after.occupied.0);
            }
            _ => {}
        }
    }
}

/// Compares two plans, memory by memory: by their names, and where each plan uses but one, these two. Memories that
/// neither uses are left out. O(n log n).
///
/// Roles, operations and layers are told only where both are plans of graphs: those of a block list are not known.
///
/// ```
/// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
/// use steeve_view::{ChangeKind, PlanMap, changes};
/// let map = |text: &str| -> Result<PlanMap, Box<dyn std::error::Error>> {
///     let graph: AssignedGraph = text.parse()?;
///     Ok(PlanMap::of_graph("steeve", &plan_graph(&graph, &PlanOptions::default())?))
/// };
/// let before = map("x = input f32[64]; kq-0 = silu x; y = add kq-0 x !output")?;
/// let after = map("x = input f32[96]; kq-0 = silu x; y = add kq-0 x !output")?;
/// let changes = changes(&before, &after);
/// assert_eq!(changes[0].peak.difference, 256);
/// assert_eq!(changes[0].changes[0].change, ChangeKind::Grew);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn changes(before: &PlanMap, after: &PlanMap) -> Vec<MemoryChange> {
    let known = if before.unit == StepUnit::Node && after.unit == StepUnit::Node {
        KnownFacts::Graphs
    } else {
        KnownFacts::Blocks
    };
    memory_pairs(before, after).into_iter().map(|(old, new)| memory_change(old, new, known)).collect()
}

/// What is known of the tensors of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownFacts {
    /// Roles, operations and layers.
    Graphs,
    /// Names and sizes alone.
    Blocks,
}

type MemoryPair<'a> = (Option<&'a MemoryMap>, Option<&'a MemoryMap>);

/// Pairs the memories by their names, the k-th of a name with the k-th; where each side uses but one, these two.
/// Memories that neither side uses are left out.
fn memory_pairs<'a>(before: &'a PlanMap, after: &'a PlanMap) -> Vec<MemoryPair<'a>> {
    let used = |map: &'a PlanMap| -> Vec<&'a MemoryMap> {
        map.memories.iter().filter(|it| !it.tiles.is_empty() || it.peak() > Bytes::ZERO).collect()
    };
    let (before, mut after) = (used(before), used(after));
    if let ([before], [after]) = (before.as_slice(), after.as_slice()) {
        return vec![(Some(*before), Some(*after))];
    }
    let mut pairs: Vec<MemoryPair<'a>> = Vec::new();
    for old in before {
        let new = after.iter().position(|it| it.name == old.name).map(|at| after.remove(at));
        pairs.push((Some(old), new));
    }
    pairs.extend(after.into_iter().map(|new| (None, Some(new))));
    pairs
}

fn memory_change(before: Option<&MemoryMap>, after: Option<&MemoryMap>, known: KnownFacts) -> MemoryChange {
    let sides = [before, after];
    let [old_peak, new_peak] = sides.map(|memory| memory.map_or(Bytes::ZERO, MemoryMap::peak));
    let [old_live, new_live] = sides.map(|memory| memory.map_or(Bytes::ZERO, MemoryMap::live_at_peak));
    let [old, new] = sides.map(|memory| match (memory, known) {
        (Some(memory), KnownFacts::Graphs) => byte_sums(&memory.alive_at_peak()),
        _ => ByteSums::default(),
    });
    let matched = match_tiles(before, after);
    let mut tensors = TensorCounts::default();
    matched.iter().for_each(|(before, after)| tensors.count(*before, *after));
    MemoryChange {
        name: after.or(before).map_or_else(String::new, |it| it.name.clone()),
        peak: BytesChange::new(old_peak, new_peak),
        live: BytesChange::new(old_live, new_live),
        fullest: sides.map(|memory| memory.and_then(|it| it.fullest)),
        tensors,
        by_role: kinds(old.by_role, new.by_role),
        by_operation: kinds(old.by_operation, new.by_operation),
        by_layer: kinds(old.by_layer, new.by_layer),
        changes: changes_at_peaks(&matched, sides, known),
    }
}

/// Pairs the sums of both sides by their names, the largest difference first.
fn kinds(before: Vec<(String, Bytes)>, after: Vec<(String, Bytes)>) -> Vec<KindChange> {
    let mut kinds: BTreeMap<String, (Bytes, Bytes)> = BTreeMap::new();
    before.into_iter().for_each(|(name, bytes)| kinds.entry(name).or_default().0 = bytes);
    after.into_iter().for_each(|(name, bytes)| kinds.entry(name).or_default().1 = bytes);
    let mut kinds: Vec<KindChange> = kinds
        .into_iter()
        .map(|(name, (before, after))| KindChange { name, bytes: BytesChange::new(before, after) })
        .collect();
    kinds.sort_by_key(|kind| Reverse(kind.bytes.difference.unsigned_abs()));
    kinds
}

type TilePair<'a> = (Option<&'a Tile>, Option<&'a Tile>);

/// Pairs the tiles of both sides by their names, the k-th of a name with the k-th.
fn match_tiles<'a>(before: Option<&'a MemoryMap>, after: Option<&'a MemoryMap>) -> Vec<TilePair<'a>> {
    let mut pairs: BTreeMap<(String, usize), TilePair<'a>> = BTreeMap::new();
    for (key, tile) in before.into_iter().flat_map(keyed) {
        pairs.entry(key).or_default().0 = Some(tile);
    }
    for (key, tile) in after.into_iter().flat_map(keyed) {
        pairs.entry(key).or_default().1 = Some(tile);
    }
    pairs.into_values().collect()
}

/// Returns the tiles of a memory in the order of their births, each with its name and its number among those of that
/// name.
fn keyed(memory: &MemoryMap) -> impl Iterator<Item = ((String, usize), &Tile)> {
    let mut tiles: Vec<&Tile> = memory.tiles.iter().collect();
    tiles.sort_by_key(|tile| tile.life.start());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    tiles.into_iter().map(move |tile| {
        let name = matching_name(tile);
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        ((name, *count), tile)
    })
}

/// Returns the name by which a tensor is matched. A name that only counts nodes, such as `node_12`, changes as soon as
/// a node is added before it, so the operation replaces the number there.
fn matching_name(tile: &Tile) -> String {
    let counted = |prefix: &str| {
        let rest = tile.name.strip_prefix(prefix)?;
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (number, rest) = rest.split_at(end);
        (!number.is_empty() && (rest.is_empty() || rest.starts_with(' ')))
            .then(|| format!("{prefix}{} {rest}", tile.operation))
    };
    ["node_", "leaf_", "#"].into_iter().find_map(counted).unwrap_or_else(|| tile.name.clone())
}

fn changes_at_peaks(
    matched: &[TilePair<'_>],
    memories: [Option<&MemoryMap>; 2],
    known: KnownFacts,
) -> Vec<TensorChange> {
    let steps = memories.map(|memory| memory.and_then(|it| it.fullest));
    let alive = |tile: Option<&Tile>, side: usize| match (tile, steps[side]) {
        (Some(tile), Some(step)) if tile.life.start() <= step && step < tile.life.end() => tile.occupied,
        _ => Bytes::ZERO,
    };
    let change = |(before, after): &TilePair<'_>| {
        let tile = (*after).or(*before)?;
        let bytes = BytesChange::new(alive(*before, 0), alive(*after, 1));
        let change = match (before, after) {
            _ if bytes.difference == 0 => return None,
            (None, _) => ChangeKind::Came,
            (_, None) => ChangeKind::Went,
            _ if bytes.before == Bytes::ZERO => ChangeKind::Entered,
            _ if bytes.after == Bytes::ZERO => ChangeKind::Left,
            _ if bytes.difference > 0 => ChangeKind::Grew,
            _ => ChangeKind::Shrank,
        };
        let known = (known == KnownFacts::Graphs).then_some(tile);
        Some(TensorChange {
            change,
            name: tile.name.clone(),
            role: known.map(|tile| tile.role.title()),
            op: known.map(|tile| tile.maker().to_owned()),
            layer: known.and_then(|tile| tile.layer),
            bytes,
        })
    };
    let mut changes: Vec<TensorChange> = matched.iter().filter_map(change).collect();
    changes.sort_by_key(|it| Reverse(it.bytes.difference.unsigned_abs()));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use steeve_plan::{Lifetime, Offset};

    fn memory(name: &str, tiles: &[(&str, u64, u64, u64)]) -> MemoryMap {
        let tile = |(name, start, end, size): &(&str, u64, u64, u64)| {
            Some(Tile::new(*name, Lifetime::new(*start, *end).ok()?, Offset(0), Bytes(*size)))
        };
        let tiles: Vec<Tile> = tiles.iter().filter_map(tile).collect();
        let peak = tiles.iter().map(|tile| tile.size).max().unwrap_or_default();
        MemoryMap::new(name, vec![peak], tiles)
    }

    fn map(memories: Vec<MemoryMap>) -> PlanMap {
        PlanMap::new("plan", memories)
    }

    #[test]
    fn what_is_alive_at_each_fullest_step_explains_the_difference() {
        let before = map(vec![memory("m", &[("a", 0, 9, 4), ("b", 0, 2, 2), ("c", 5, 6, 1)])]);
        let after = map(vec![memory("m", &[("a", 0, 9, 8), ("b", 0, 2, 2), ("c", 5, 6, 3), ("d", 5, 6, 1)])]);
        let [change] = changes(&before, &after).try_into().unwrap_or_else(|_| unreachable!());
        assert_eq!(change.live, BytesChange::new(Bytes(6), Bytes(12)));
        let told: Vec<_> = change.changes.iter().map(|it| (it.name.as_str(), it.change, it.bytes.difference)).collect();
        use ChangeKind::{Came, Entered, Grew, Left};
        assert_eq!(told, [("a", Grew, 4), ("c", Entered, 3), ("b", Left, -2), ("d", Came, 1)]);
        assert_eq!((change.tensors.came.count, change.tensors.grew.count, change.tensors.went.count), (1, 2, 0));
    }

    #[test]
    fn the_kth_of_a_name_is_matched_with_the_kth_and_counted_names_by_their_operation() {
        let with = |names: &[&str]| {
            let tiles: Vec<Tile> = names
                .iter()
                .zip(0..)
                .filter_map(|(name, at)| {
                    let mut tile = Tile::new(*name, Lifetime::new(at, at + 1).ok()?, Offset(0), Bytes(8));
                    tile.operation = "add".to_owned();
                    Some(tile)
                })
                .collect();
            map(vec![MemoryMap::new("m", vec![Bytes(8)], tiles)])
        };
        let counts = |before: &[&str], after: &[&str]| changes(&with(before), &with(after))[0].tensors;
        assert!(counts(&["x", "x", "node_1"], &["x", "x", "node_7"]).is_empty());
        assert!(counts(&["#3", "leaf_1 (copy)"], &["#4", "leaf_9 (copy)"]).is_empty());
        assert_eq!(counts(&["x", "x"], &["x", "x", "x"]).came.count, 1);
        assert_eq!(counts(&["node_a"], &["node_b"]).came.count, 1, "these are names");
    }

    #[test]
    fn roles_operations_and_layers_are_told_of_graphs_alone() {
        let sides = |units: [StepUnit; 2]| {
            let [mut before, mut after] = [4, 8].map(|size| map(vec![memory("m", &[("kq-3", 0, 1, size)])]));
            [before.unit, after.unit] = units;
            changes(&before, &after).remove(0)
        };
        let graphs = sides([StepUnit::Node; 2]);
        assert_eq!((graphs.by_role.len(), graphs.by_operation.len(), graphs.by_layer.len()), (1, 1, 1));
        assert_eq!((graphs.changes[0].role, graphs.changes[0].layer), (Some("attention"), Some(3)));
        for units in [[StepUnit::Step; 2], [StepUnit::Step, StepUnit::Node], [StepUnit::Node, StepUnit::Step]] {
            let blocks = sides(units);
            assert!(blocks.by_role.is_empty() && blocks.by_operation.is_empty() && blocks.by_layer.is_empty());
            let change = &blocks.changes[0];
            assert_eq!((change.role, &change.op, change.layer, change.bytes.difference), (None, &None, None, 4));
        }
    }

    #[test]
    fn memories_are_matched_by_name_and_single_ones_whatever_their_names() {
        let one = |name: &str, size: u64| memory(name, &[("a", 0, 1, size)]);
        let names = |before: Vec<MemoryMap>, after: Vec<MemoryMap>| -> Vec<(String, i128)> {
            changes(&map(before), &map(after)).into_iter().map(|it| (it.name, it.peak.difference)).collect()
        };
        assert_eq!(names(vec![one("memory", 4)], vec![one("CPU", 6)]), [("CPU".to_owned(), 2)]);
        let told = names(vec![one("A", 4), one("B", 4)], vec![one("B", 5), one("C", 1), memory("D", &[])]);
        assert_eq!(told, [("A".to_owned(), -4), ("B".to_owned(), 1), ("C".to_owned(), 1)]);
    }
}
