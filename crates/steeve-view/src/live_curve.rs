//! Tiles in, the bytes that are live at each step out; those that a result and its source have at once count once.
//! O(n log n).

use std::collections::BTreeMap;

use crate::Tile;

/// Bytes that two tiles have at once, for one step: those of a result that overlaps a source while that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedBytes {
    pub(crate) step: u64,
    pub(crate) buffer: usize,
    pub(crate) bytes: u64,
}

/// Finds the bytes that a tile shares with one that ends with the step at which it begins. Other tiles that share bytes are
/// faults of a plan and no overlaps.
pub(crate) fn shared_bytes(tiles: &[Tile]) -> Vec<SharedBytes> {
    let end = |tile: &Tile| tile.offset.0.saturating_add(tile.occupied.0);
    // By last step, buffer and offset.
    let key = |tile: &Tile| (tile.life.end().0 - 1, tile.buffer, tile.offset.0);
    let mut dying: Vec<&Tile> = tiles.iter().filter(|tile| tile.life.end().0 - tile.life.start().0 > 1).collect();
    dying.sort_by_key(|tile| key(tile));
    let mut found = Vec::new();
    for born in tiles {
        let (step, buffer) = (born.life.start().0, born.buffer);
        // Of a plan that holds, tiles that die together are disjoint: only the last one below may reach up to here.
        let above = dying.partition_point(|tile| key(tile) < (step, buffer, born.offset.0));
        let near = dying[above.saturating_sub(1)..].iter().take_while(|tile| key(tile) < (step, buffer, end(born)));
        for source in near.filter(|tile| (key(tile).0, tile.buffer) == (step, buffer)) {
            let bytes = end(born).min(end(source)).saturating_sub(born.offset.0.max(source.offset.0));
            if bytes > 0 {
                found.push(SharedBytes { step, buffer, bytes });
            }
        }
    }
    found
}

/// Computes the live bytes from each step at which they change.
pub(crate) fn live_curve(tiles: &[Tile]) -> Vec<(u64, u64)> {
    let mut changes: BTreeMap<u64, i128> = BTreeMap::new();
    for tile in tiles {
        *changes.entry(tile.life.start().0).or_default() += i128::from(tile.occupied.0);
        *changes.entry(tile.life.end().0).or_default() -= i128::from(tile.occupied.0);
    }
    for SharedBytes { step, bytes, .. } in shared_bytes(tiles) {
        *changes.entry(step).or_default() -= i128::from(bytes);
        *changes.entry(step + 1).or_default() += i128::from(bytes);
    }
    let mut live = 0i128;
    let sum = |(step, change): (u64, i128)| {
        live += change;
        (step, u64::try_from(live).unwrap_or(u64::MAX))
    };
    changes.into_iter().map(sum).collect()
}
