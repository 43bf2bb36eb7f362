//! Assigns colours to blocks, and lists what the colours mean.

use std::collections::{BTreeMap, BTreeSet};

use steeve_plan::Bytes;

use crate::role::is_no_name;
use crate::{Picture, Role, Tile};

/// The property of tensors that colours show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Colouring {
    /// Roles if there are several; else names if there are a few kinds; else sizes.
    #[default]
    Fitting,
    /// The purpose of tensors.
    Role,
    /// The operation that makes them.
    Operation,
    /// Their names, with numbers left out.
    Name,
    /// How large they are, by the largest.
    Size,
}

/// The number of colours. The last is shared by all kinds without one of their own.
pub(crate) const COLOURS: usize = 14;

/// The number of patterns, for readers who can't tell the colours apart. The first is none.
pub(crate) const PATTERNS: usize = 8;

/// The colours on light ground.
pub(crate) const LIGHT: [&str; COLOURS] = [
    "#34a06c", "#d63a6b", "#4d7fe6", "#ee8b32", "#1aa3a8", "#8c66d4", "#c49f16", "#a9663f", "#d65cb8", "#6a8bb3",
    "#86a83d", "#c3869a", "#7d3c4a", "#9aa4b0",
];

/// The colours on dark ground.
pub(crate) const DARK: [&str; COLOURS] = [
    "#3fb57c", "#e5527f", "#5b8ff5", "#f59a45", "#2bb8bd", "#9f7ce6", "#d6b22c", "#bd7a50", "#e372c8", "#7b9cc4",
    "#98bb4c", "#d398ab", "#a3596a", "#788390",
];

/// The colours of a terminal with 256 of them.
pub(crate) const TERMINAL: [u8; COLOURS] = [71, 161, 69, 208, 37, 98, 178, 130, 170, 67, 107, 175, 95, 245];

/// The meaning of each colour of a picture.
pub(crate) struct Legend {
    /// The property that colours show; never [`Colouring::Fitting`].
    by: Colouring,
    /// The kinds, in the order in which they are listed.
    pub(crate) entries: Vec<LegendEntry>,
    /// The size of the largest block, for buckets.
    largest: u64,
}

pub(crate) struct LegendEntry {
    pub(crate) title: String,
    pub(crate) letter: char,
    /// An index into the colours.
    pub(crate) colour: usize,
    pub(crate) count: usize,
}

const REST: &str = "other";

impl Legend {
    /// Creates the legend of all blocks of a picture. Names and operations are listed by their bytes, then by name.
    pub(crate) fn new(picture: &Picture, by: Colouring) -> Self {
        let by = if by == Colouring::Fitting { fitting(picture) } else { by };
        let largest = tiles(picture).map(|tile| tile.size.0).max().unwrap_or(0);
        let entries = match by {
            Colouring::Role | Colouring::Fitting => roles(picture),
            Colouring::Operation => ranked(picture, maker),
            Colouring::Name => ranked(picture, name_key),
            Colouring::Size => sizes(picture, largest),
        };
        let mut legend = Self { by, entries, largest };
        legend.count(picture);
        legend
    }

    /// Counts the blocks of each entry. Two plans have mostly the same blocks, so the one with more counts.
    fn count(&mut self, picture: &Picture) {
        let mut most = vec![0; self.entries.len()];
        for map in &picture.maps {
            let mut counts = vec![0; self.entries.len()];
            for tile in map.memories.iter().flat_map(|memory| &memory.tiles) {
                if let Some(count) = counts.get_mut(self.entry_of(tile)) {
                    *count += 1;
                }
            }
            most.iter_mut().zip(counts).for_each(|(most, count): (&mut usize, usize)| *most = (*most).max(count));
        }
        self.entries.iter_mut().zip(most).for_each(|(entry, count)| entry.count = count);
    }

    /// Returns the pattern of an entry. That of a role is always the same, as its colour is.
    pub(crate) fn pattern(&self, entry: usize) -> usize {
        match self.by {
            Colouring::Role | Colouring::Fitting => self.entries[entry].colour % PATTERNS,
            _ => entry % PATTERNS,
        }
    }

    /// Returns the entry that a block belongs to.
    pub(crate) fn entry_of(&self, tile: &Tile) -> usize {
        let key = match self.by {
            Colouring::Role | Colouring::Fitting => tile.role.title().to_owned(),
            Colouring::Operation => maker(tile),
            Colouring::Name => name_key(tile),
            Colouring::Size => size_title(bucket(tile.size, self.largest)),
        };
        let find = |title: &str| self.entries.iter().position(|entry| entry.title == title);
        find(&key).or_else(|| find(REST)).unwrap_or(0)
    }
}

fn tiles(picture: &Picture) -> impl Iterator<Item = &Tile> {
    picture.maps.iter().flat_map(|map| &map.memories).flat_map(|memory| &memory.tiles)
}

fn fitting(picture: &Picture) -> Colouring {
    // Inputs and outputs alone say little, and so do roles that most blocks do not have.
    let telling = |entry: &&LegendEntry| !["input", "output", REST].contains(&entry.title.as_str());
    let unknown = tiles(picture).filter(|tile| tile.role == Role::Other).count();
    let tells = roles(picture).iter().filter(telling).count() > 1 && 2 * unknown < tiles(picture).count();
    let names: BTreeSet<String> = tiles(picture).map(name_key).collect();
    match names.len() {
        _ if tells => Colouring::Role,
        2..=COLOURS => Colouring::Name,
        _ => Colouring::Size,
    }
}

fn roles(picture: &Picture) -> Vec<LegendEntry> {
    let present = |(_, role): &(usize, &Role)| tiles(picture).any(|tile| tile.role == **role);
    let entry = |(colour, role): (usize, &Role)| LegendEntry {
        title: role.title().to_owned(),
        letter: role.letter(),
        colour: colour.min(COLOURS - 1),
        count: 0,
    };
    Role::ALL.iter().enumerate().filter(present).map(entry).collect()
}

/// Lists the kinds with most bytes, each with a colour of its own; the others share one.
fn ranked(picture: &Picture, key: fn(&Tile) -> String) -> Vec<LegendEntry> {
    // Neighbours in the list get colours that lie apart.
    const ORDER: [usize; COLOURS] = [2, 3, 4, 1, 5, 6, 0, 8, 7, 9, 10, 11, 12, 13];
    let mut kinds: BTreeMap<String, u128> = BTreeMap::new();
    for tile in tiles(picture) {
        *kinds.entry(key(tile)).or_default() += u128::from(tile.size.0);
    }
    let mut kinds: Vec<(String, u128)> = kinds.into_iter().collect();
    kinds.sort_by(|(a, left), (b, right)| right.cmp(left).then_with(|| a.cmp(b)));
    let all = kinds.len();
    if all > COLOURS {
        kinds.truncate(COLOURS - 1);
        kinds.retain(|(title, _)| title != REST);
    }
    let letter = |index: usize| char::from(b'a' + index as u8);
    let entry = |(index, (title, _)): (usize, (String, u128))| LegendEntry {
        title,
        letter: letter(index),
        colour: ORDER[index],
        count: 0,
    };
    let mut entries: Vec<LegendEntry> = kinds.into_iter().enumerate().map(entry).collect();
    if entries.len() < all {
        entries.push(LegendEntry { title: REST.to_owned(), letter: 'x', colour: COLOURS - 1, count: 0 });
    }
    entries
}

fn maker(tile: &Tile) -> String {
    tile.maker().to_owned()
}

/// Returns the name with each number as `#`, so that layers look alike. A tensor without a name goes by its operation.
fn name_key(tile: &Tile) -> String {
    if is_no_name(&tile.name) && !tile.operation.is_empty() {
        return format!("({})", tile.operation);
    }
    let mut key = String::with_capacity(tile.name.len());
    for letter in tile.name.chars() {
        let letter = if letter.is_ascii_digit() { '#' } else { letter };
        if letter != '#' || !key.ends_with('#') {
            key.push(letter);
        }
    }
    key
}

/// Sizes by the largest: above a half, above an eighth, and so on in steps of four.
const BUCKETS: usize = 5;

fn bucket(size: Bytes, largest: u64) -> usize {
    let mut limit = largest / 2;
    for bucket in 0..BUCKETS - 1 {
        if size.0 > limit {
            return bucket;
        }
        limit /= 4;
    }
    BUCKETS - 1
}

fn size_title(bucket: usize) -> String {
    match bucket {
        0 => "above 1/2 of the largest".to_owned(),
        last if last == BUCKETS - 1 => format!("up to 1/{}", 1u32 << (2 * last - 1)),
        other => format!("above 1/{}", 1u32 << (2 * other + 1)),
    }
}

fn sizes(picture: &Picture, largest: u64) -> Vec<LegendEntry> {
    const COLOUR: [usize; BUCKETS] = [1, 3, 6, 4, 9];
    const LETTERS: [char; BUCKETS] = ['A', 'B', 'C', 'D', 'e'];
    let present = |index: &usize| tiles(picture).any(|tile| bucket(tile.size, largest) == *index);
    let entry = |index: usize| LegendEntry {
        title: size_title(index),
        letter: LETTERS[index],
        colour: COLOUR[index],
        count: 0,
    };
    (0..BUCKETS).filter(present).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryMap, PlanMap};
    use steeve_plan::{Lifetime, Offset, UnitError};

    #[test]
    fn names_that_differ_by_a_number_are_one_kind() -> Result<(), UnitError> {
        let life = Lifetime::new(0, 1)?;
        let tile = |name: &str, size: u64| Tile::new(name, life, Offset(0), Bytes(size));
        let tiles = vec![tile("relu", 8), tile("conv_1", 4096), tile("conv_27", 1024)];
        let map = PlanMap::new("plan", vec![MemoryMap::new("memory", vec![Bytes(8192)], tiles)]);
        let legend = Legend::new(&Picture::of("blocks.csv", map), Colouring::Name);
        let listed: Vec<(&str, usize)> = legend.entries.iter().map(|it| (it.title.as_str(), it.count)).collect();
        assert_eq!(listed, [("conv_#", 2), ("relu", 1)]);
        Ok(())
    }
}
