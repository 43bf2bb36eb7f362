//! The one-shot descent: a skyline that is filled niche by niche. O(n log n) in practice.
//!
//! ```text
//!   height  ____            A niche is a run of sections that is lower than the sections on both sides.
//!          |    |      __   Of the items that start at its left end and fit into it, the one with the
//!      ____|    |_____|     best key is put there. If the first item that fits starts further right,
//!                 ^ niche   the sections before it are raised to the lower wall.
//! ```
//!
//! What happens in a niche depends on nothing outside it, so they can be taken in any order; here, the nearest one.
//! (Niches as in the skyline heuristics for strip packing: Burke, Kendall, Whitwell, "A new placement heuristic for
//! the orthogonal stock-cutting problem", Operations Research 52(4), 2004.)

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::items::up;
use crate::packing::Packing;

/// The key by which the items that fit are ranked: the longest, the largest, or the largest product of both first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescentKey {
    Length,
    Size,
    Area,
}

/// A packing with its items grouped by the section they start in: built once, used by each descent.
#[derive(Clone, Debug)]
pub(crate) struct GroupedPacking {
    packing: Packing,
    /// Items in the order of their first section, then of their end; `group[s]..group[s + 1]` start in section `s`.
    by_end: Vec<u32>,
    group: Vec<u32>,
}

/// Higher than any stack: the height left and right of all sections.
const WALL: u64 = u64::MAX;
/// As high as a stack can get: sections with nothing left to place.
const CLOSED: u64 = u64::MAX - 1;

impl GroupedPacking {
    pub(crate) fn new(packing: Packing) -> Self {
        let mut group = vec![0u32; packing.sections + 1];
        for lo in &packing.lo {
            group[*lo as usize + 1] += 1;
        }
        for section in 0..packing.sections {
            group[section + 1] += group[section];
        }
        let mut fill = group.clone();
        let mut by_end = vec![0u32; packing.len()];
        for (item, lo) in (0..).zip(&packing.lo) {
            let at = &mut fill[*lo as usize];
            by_end[*at as usize] = item;
            *at += 1;
        }
        for section in 0..packing.sections {
            let items = &mut by_end[group[section] as usize..group[section + 1] as usize];
            items.sort_unstable_by_key(|item| (packing.hi[*item as usize], *item));
        }
        Self { packing, by_end, group }
    }

    /// Runs one descent. Returns offsets whose peak is below `limit`, or `None` if the descent does not stay below it.
    pub(crate) fn descend(&self, key: DescentKey, limit: u64) -> Option<Vec<u64>> {
        Descent::new(self, key).run(limit)
    }

    fn group(&self, section: usize) -> core::ops::Range<usize> {
        self.group[section] as usize..self.group[section + 1] as usize
    }

    /// Returns the items group by group, the best key first.
    fn by_key(&self, key: DescentKey) -> Vec<u32> {
        let it = &self.packing;
        let mut order = self.by_end.clone();
        for section in 0..it.sections {
            let items = &mut order[self.group(section)];
            let length = |item: usize| it.hi[item] - it.lo[item];
            match key {
                _ if items.len() < 2 => {}
                DescentKey::Length => items.sort_unstable_by_key(|item| {
                    let at = *item as usize;
                    Reverse((length(at), it.size[at], Reverse(*item)))
                }),
                DescentKey::Size => items.sort_unstable_by_key(|item| {
                    let at = *item as usize;
                    Reverse((it.size[at], length(at), Reverse(*item)))
                }),
                DescentKey::Area => items.sort_unstable_by_key(|item| {
                    let at = *item as usize;
                    let area = u128::from(it.size[at]) * u128::from(length(at));
                    Reverse((area, length(at), Reverse(*item)))
                }),
            }
        }
        order
    }
}

/// The state of one descent.
struct Descent<'a> {
    grouped: &'a GroupedPacking,
    by_key: Vec<u32>,
    /// For each section where its unplaced items begin in `by_key` and in `by_end`.
    key_head: Vec<u32>,
    end_head: Vec<u32>,
    ends: EarliestEndTree,
    placed: Vec<bool>,
    offsets: Vec<u64>,
    skyline: Skyline,
}

impl<'a> Descent<'a> {
    fn new(grouped: &'a GroupedPacking, key: DescentKey) -> Self {
        let packing = &grouped.packing;
        let heads = grouped.group[..packing.sections].to_vec();
        let earliest = |section: usize| match grouped.by_end[grouped.group(section)].first() {
            Some(item) => packing.hi[*item as usize],
            None => NO_ITEM,
        };
        Self {
            grouped,
            by_key: grouped.by_key(key),
            key_head: heads.clone(),
            end_head: heads,
            ends: EarliestEndTree::new((0..packing.sections).map(earliest)),
            placed: vec![false; packing.len()],
            offsets: vec![0; packing.len()],
            skyline: Skyline::new(packing.sections),
        }
    }

    fn run(mut self, limit: u64) -> Option<Vec<u64>> {
        let packing = &self.grouped.packing;
        // A group whose best items do not fit is scanned again and again; such a descent is abandoned.
        let mut patience = packing.len().saturating_mul(4000).min(100_000_000 + 64 * packing.len()) + 1024;
        let mut left = packing.len();
        let mut at = 0;
        while left > 0 {
            let niche = match self.skyline.niche_near(at) {
                Ok(niche) => niche,
                Err(lower) => {
                    at = lower;
                    continue;
                }
            };
            match self.ends.first_within(niche.start, niche.end) {
                Some(start) if start == niche.start => {
                    let item = self.best_at(start, niche.end, &mut patience)?;
                    let height = match &packing.align {
                        None => niche.height,
                        Some(align) => up(niche.height, align[item]),
                    };
                    let top = height + packing.size[item];
                    if top >= limit {
                        return None;
                    }
                    self.offsets[item] = height;
                    left -= 1;
                    let end = packing.hi[item] as usize;
                    at = match packing.step(item) {
                        None => self.skyline.raise(niche, end, top),
                        Some(step) => {
                            let (first, at) = (height + step.first, step.at as usize);
                            self.skyline.raise(niche, at, first);
                            let rest = Niche { start: at, left: first, ..niche };
                            self.skyline.raise(rest, end, height + step.second)
                        }
                    };
                }
                Some(start) => {
                    let height = match (niche.left, niche.right) {
                        (WALL, WALL) => CLOSED,
                        (WALL, right) => right,
                        (left, right) => left.min(right),
                    };
                    at = self.skyline.raise(niche, start, height);
                }
                None => {
                    let height = niche.left.min(niche.right).min(CLOSED);
                    at = self.skyline.raise(niche, niche.end, height);
                }
            }
        }
        Some(self.offsets)
    }

    /// Takes the item with the best key that starts at `section` and ends by `end`, and marks it as placed.
    fn best_at(&mut self, section: usize, end: usize, patience: &mut usize) -> Option<usize> {
        let group = self.grouped.group(section);
        let mut at = self.key_head[section] as usize;
        let mut walked = 0;
        let found = loop {
            let item = *self.by_key[..group.end].get(at)? as usize;
            if !self.placed[item] && self.grouped.packing.hi[item] as usize <= end {
                break item;
            }
            (at, walked) = (at + 1, walked + 1);
        };
        *patience = patience.checked_sub(walked)?;
        self.placed[found] = true;
        let head = |order: &[u32], mut at: usize| {
            while at < group.end && self.placed[order[at] as usize] {
                at += 1;
            }
            at
        };
        let key_head = head(&self.by_key, self.key_head[section] as usize);
        let end_head = head(&self.grouped.by_end, self.end_head[section] as usize);
        self.key_head[section] = key_head as u32;
        self.end_head[section] = end_head as u32;
        let earliest = match self.grouped.by_end[..group.end].get(end_head) {
            Some(item) => self.grouped.packing.hi[*item as usize],
            None => NO_ITEM,
        };
        self.ends.set(section, earliest);
        Some(found)
    }
}

/// The heights of the sections as segments of equal height, linked in order. Neighbours always differ.
struct Skyline {
    next: Vec<u32>,
    before: Vec<u32>,
    height: Vec<u64>,
}

/// A segment lower than both its neighbours.
#[derive(Clone, Copy)]
struct Niche {
    start: usize,
    end: usize,
    height: u64,
    left: u64,
    right: u64,
}

impl Skyline {
    fn new(sections: usize) -> Self {
        let mut skyline =
            Self { next: vec![0; sections + 1], before: vec![0; sections + 1], height: vec![0; sections + 1] };
        skyline.next[0] = sections as u32;
        skyline.height[sections] = WALL;
        skyline
    }

    /// Returns the niche that is the segment at `start`, or the start of a lower neighbour.
    fn niche_near(&self, start: usize) -> Result<Niche, usize> {
        let end = self.next[start] as usize;
        let height = self.height[start];
        let left = self.left_of(start);
        let right = self.height[end];
        if left < height {
            Err(self.before[start] as usize)
        } else if right < height {
            Err(end)
        } else {
            Ok(Niche { start, end, height, left, right })
        }
    }

    fn left_of(&self, start: usize) -> u64 {
        match start {
            0 => WALL,
            _ => self.height[self.before[start] as usize],
        }
    }

    /// Raises the part of the niche before `end` to `height`. Returns the start of a segment near the change.
    fn raise(&mut self, niche: Niche, end: usize, height: u64) -> usize {
        let Niche { start, .. } = niche;
        let rest = end < niche.end;
        if rest {
            self.link(end, niche.end);
            self.link(start, end);
            self.height[end] = niche.height;
        }
        self.height[start] = height;
        let mut merged = start;
        if niche.left == height && start > 0 {
            merged = self.before[start] as usize;
            self.link(merged, end);
        }
        if !rest && niche.right == height {
            self.link(merged, self.next[end] as usize);
        }
        if rest { end } else { merged }
    }

    fn link(&mut self, start: usize, end: usize) {
        self.next[start] = end as u32;
        self.before[end] = start as u32;
    }
}

const NO_ITEM: u32 = u32::MAX;

/// For each section the earliest end of the items that start there, as a tree of minima.
struct EarliestEndTree {
    leaves: usize,
    least: Vec<u32>,
}

impl EarliestEndTree {
    fn new(ends: impl ExactSizeIterator<Item = u32>) -> Self {
        let leaves = ends.len().next_power_of_two();
        let mut least = vec![NO_ITEM; 2 * leaves];
        for (leaf, end) in least[leaves..].iter_mut().zip(ends) {
            *leaf = end;
        }
        for node in (1..leaves).rev() {
            least[node] = least[2 * node].min(least[2 * node + 1]);
        }
        Self { leaves, least }
    }

    fn set(&mut self, section: usize, end: u32) {
        let mut node = section + self.leaves;
        self.least[node] = end;
        while node > 1 {
            node /= 2;
            let least = self.least[2 * node].min(self.least[2 * node + 1]);
            if self.least[node] == least {
                return;
            }
            self.least[node] = least;
        }
    }

    /// Finds the first section from `start` on at which an item starts that ends by `end`. An item that ends by `end`
    /// starts before it, so a result is below `end`.
    fn first_within(&self, start: usize, end: usize) -> Option<usize> {
        let end = end as u32;
        let mut node = start + self.leaves;
        while self.least[node] > end {
            // Up to the first ancestor that has a right sibling, and over to it.
            while node & 1 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.leaves {
            node = if self.least[2 * node] <= end { 2 * node } else { 2 * node + 1 };
        }
        Some(node - self.leaves)
    }
}
