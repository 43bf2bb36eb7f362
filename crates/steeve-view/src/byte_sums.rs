//! Sums the bytes of tiles by role, by operation and by layer.

use std::collections::BTreeMap;

use steeve_plan::Bytes;

use crate::Tile;

/// The bytes of some tiles, summed in three ways. Each list is sorted by bytes, largest first, then by name, and sums to
/// the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByteSums {
    /// By role: the titles of roles.
    pub by_role: Vec<(String, Bytes)>,
    /// By operation, or `input`, `copy` or `leaf` where no operation makes them ([`Tile::maker`]).
    pub by_operation: Vec<(String, Bytes)>,
    /// By the block of a network they belong to: `layer 12`, or `no layer`.
    pub by_layer: Vec<(String, Bytes)>,
}

/// Sums the bytes that tiles occupy, each rounded up to its alignment. O(n log n).
///
/// What [`MemoryMap::alive_at`](crate::MemoryMap::alive_at) returns never holds a tile and the one that takes over its
/// bytes at once, so that no byte of a plan counts twice.
///
/// ```
/// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
/// use steeve_view::{PlanMap, byte_sums};
/// let graph: AssignedGraph = "x = input f32[64]; Qcur-0 = silu x; ffn_up-1 = add Qcur-0 x !output".parse()?;
/// let map = PlanMap::of_graph("steeve", &plan_graph(&graph, &PlanOptions::default())?);
/// let memory = &map.memories[0];
/// let alive = memory.alive_at(memory.fullest.unwrap_or_default());
/// let sums = byte_sums(&alive);
/// assert_eq!(sums.by_layer[0].0, "layer 0");
/// assert_eq!(sums.by_role[0].0, "attention");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn byte_sums(tiles: &[&Tile]) -> ByteSums {
    ByteSums {
        by_role: by(tiles, |tile| tile.role.title().to_owned()),
        by_operation: by(tiles, |tile| tile.maker().to_owned()),
        by_layer: by(tiles, |tile| tile.layer.map_or_else(|| "no layer".to_owned(), |layer| format!("layer {layer}"))),
    }
}

fn by(tiles: &[&Tile], key: impl Fn(&Tile) -> String) -> Vec<(String, Bytes)> {
    let mut sums: BTreeMap<String, Bytes> = BTreeMap::new();
    for tile in tiles {
        let sum = sums.entry(key(tile)).or_default();
        *sum = Bytes(sum.0.saturating_add(tile.occupied.0));
    }
    let mut sums: Vec<(String, Bytes)> = sums.into_iter().collect();
    sums.sort_by(|(a, left), (b, right)| right.cmp(left).then_with(|| a.cmp(b)));
    sums
}
