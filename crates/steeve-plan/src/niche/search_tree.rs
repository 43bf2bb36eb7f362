//! The depth-first search over the branches, on an explicit stack: a million items do not overflow it.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::branching::{BranchPoint, NicheSelector};
use super::search_state::{Height, SearchState, SectionRange};
use crate::random::RandomGenerator;

/// How the search of a subtree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubtreeResult {
    /// Everything is placed.
    Solved,
    /// It has no solution.
    Dead,
    /// Out of nodes, or stopped.
    Stopped,
}

/// The depth-first search, its explicit stack and the dead states it remembers.
#[derive(Clone, Debug)]
pub(super) struct SearchTree {
    /// Of the items that could rest on a floor, the one with the highest rank is tried first.
    ranks: Vec<f64>,
    /// A random number per item: a set of items is identified by their sum.
    labels: Vec<u64>,
    /// States known to be dead, each in the slot its hash selects; a newer one replaces an older.
    dead: Vec<u64>,
    frames: Vec<SearchFrame>,
    /// Stacks of item lists and of saved heights; each frame owns a range of both.
    items: Vec<u32>,
    heights: Vec<Height>,
    selector: NicheSelector,
    cuts: Vec<usize>,
    nodes: u64,
}

/// A frame of the explicit stack, resumed when its current subtree ends.
#[derive(Clone, Debug)]
enum SearchFrame {
    Branch(BranchFrame),
    Split(SplitFrame),
}

/// The branches at an end of a niche.
#[derive(Clone, Debug)]
struct BranchFrame {
    point: BranchPoint,
    span: SectionRange,
    /// Ranges of `items`: the unplaced ones, and those of them that could rest on the floor and are still to be tried.
    unplaced: Range<usize>,
    untried: Range<usize>,
    /// In `heights`: floors, skyline, lowest offsets.
    saved: usize,
    placed: Option<u32>,
    hash: u64,
}

/// Subproblems that no item crosses, solved one after the other.
#[derive(Clone, Debug)]
struct SplitFrame {
    subproblems: Vec<Subproblem>,
    next: usize,
    span: SectionRange,
    unplaced: Range<usize>,
    /// In `heights`: floors, skyline, lowest offsets, and what must still be placed.
    saved: usize,
}

/// Items and sections that no item links to the rest.
#[derive(Clone, Debug)]
struct Subproblem {
    span: SectionRange,
    unplaced: Range<usize>,
    slack: Height,
}

impl SearchTree {
    pub(super) fn new(items: usize, seed: u64) -> Self {
        let mut random = RandomGenerator::new(seed ^ 0x6E69_6368);
        let slots = (items * 256).next_power_of_two().clamp(1 << 8, 1 << 18);
        Self {
            ranks: vec![0.0; items],
            labels: (0..items).map(|_| random.next()).collect(),
            dead: vec![0; slots],
            frames: Vec::new(),
            items: Vec::new(),
            heights: Vec::new(),
            selector: NicheSelector::default(),
            cuts: Vec::new(),
            nodes: 0,
        }
    }

    pub(super) fn set_ranks(&mut self, ranks: Vec<f64>) {
        self.ranks = ranks;
    }

    /// Searches until the tree is exhausted, a solution is found or `limit` nodes are visited. Calls `pause` with the
    /// number of nodes, which returns whether to stop.
    pub(super) fn search(
        &mut self,
        state: &mut SearchState,
        limit: u64,
        pause: &mut dyn FnMut(u64) -> bool,
    ) -> (SubtreeResult, u64) {
        self.frames.clear();
        self.heights.clear();
        self.items.clear();
        self.items.extend(state.items().map(|item| item as u32));
        self.nodes = 0;
        // The clock is read after about the same amount of work, however large the problem.
        let between = (50_000 / (state.items().len() as u64 + 1)).clamp(1, 1024);
        let mut asked = 0;
        let everything = SectionRange { lo: 0, hi: state.sections() };
        let mut end = self.enter(state, 0..self.items.len(), everything, everything);
        loop {
            if self.nodes >= limit {
                return (SubtreeResult::Stopped, self.nodes);
            }
            if self.nodes - asked >= between {
                asked = self.nodes;
                if pause(self.nodes) {
                    return (SubtreeResult::Stopped, self.nodes);
                }
            }
            end = match (end, self.frames.pop()) {
                (Some(end), None) => return (end, self.nodes),
                // A node without a result has pushed a frame. To call it dead instead would be a false proof.
                (None, None) => unreachable!("a walk lost its frames"),
                (end, Some(SearchFrame::Branch(branch))) => self.branch(state, branch, end),
                (end, Some(SearchFrame::Split(split))) => self.split(state, split, end),
            };
        }
    }

    /// Enters a new node. Returns its result if that is known at once; else pushes a frame with its branches.
    fn enter(
        &mut self,
        state: &mut SearchState,
        unplaced: Range<usize>,
        span: SectionRange,
        changed: SectionRange,
    ) -> Option<SubtreeResult> {
        if unplaced.is_empty() {
            return Some(SubtreeResult::Solved);
        }
        self.nodes += 1;
        let Some(moved) = state.propagate(&self.items[unplaced.clone()], changed) else {
            return Some(SubtreeResult::Dead);
        };
        let items = &mut self.items[unplaced.clone()];
        if state.is_dominated(items, moved) {
            return Some(SubtreeResult::Dead);
        }
        sort_by_lowest(items, &state.lowest_offset);
        if state.exceeds_one_machine_bound(items, span) {
            return Some(SubtreeResult::Dead);
        }
        let span = state.split_points(items, &mut self.cuts);
        if self.cuts.len() > 1 {
            let split = self.begin_split(state, unplaced, span);
            self.frames.push(SearchFrame::Split(split));
            return None;
        }
        let hash = self.hash(state, unplaced.clone(), span);
        if self.dead[self.slot(hash)] == hash {
            return Some(SubtreeResult::Dead);
        }
        let Some(point) = self.selector.select(state, &self.items[unplaced.clone()], span) else {
            return Some(SubtreeResult::Dead);
        };
        let branch = self.begin_branch(state, unplaced, span, point, hash);
        self.frames.push(SearchFrame::Branch(branch));
        None
    }

    fn begin_branch(
        &mut self,
        state: &SearchState,
        unplaced: Range<usize>,
        span: SectionRange,
        point: BranchPoint,
        hash: u64,
    ) -> BranchFrame {
        let start = self.items.len();
        for at in unplaced.clone() {
            let item = self.items[at] as usize;
            let rests = state.lowest_offset[item] == point.floor && state.span(item).contains(point.section);
            // Of identical items only the first: swapping them changes nothing.
            let same = |other: &u32| {
                let other = *other as usize;
                state.span(other) == state.span(item) && state.size(other) == state.size(item)
            };
            if rests && !self.items[start..].iter().any(same) {
                self.items.push(item as u32);
            }
        }
        let ranks = &self.ranks;
        let rank = |item: &u32| ranks[*item as usize];
        self.items[start..].sort_unstable_by(|a, b| rank(b).total_cmp(&rank(a)).then(a.cmp(b)));
        BranchFrame {
            point,
            span,
            untried: start..self.items.len(),
            saved: self.save(state, unplaced.clone(), span),
            unplaced,
            placed: None,
            hash,
        }
    }

    /// Takes the next branch, after the last one ended with `end`.
    fn branch(
        &mut self,
        state: &mut SearchState,
        mut branch: BranchFrame,
        end: Option<SubtreeResult>,
    ) -> Option<SubtreeResult> {
        if end == Some(SubtreeResult::Solved) {
            return end;
        }
        if end.is_some() {
            self.restore(state, branch.unplaced.clone(), branch.span, branch.saved);
            if let Some(item) = branch.placed.take() {
                state.unplace(item as usize);
            }
        }
        self.items.truncate(branch.untried.end);
        let kept = self.heights_of(branch.span, &branch.unplaced);
        self.heights.truncate(branch.saved + kept);
        if let Some(at) = branch.untried.next() {
            let item = self.items[at];
            state.place(item as usize, branch.point.floor);
            branch.placed = Some(item);
            let (span, unplaced) = (branch.span, branch.unplaced.clone());
            let changed = state.span(item as usize);
            self.frames.push(SearchFrame::Branch(branch));
            let start = self.items.len();
            for at in unplaced {
                if self.items[at] != item {
                    self.items.push(self.items[at]);
                }
            }
            return self.enter(state, start..self.items.len(), span, changed);
        }
        if let Some(height) = branch.point.raised.take() {
            let section = branch.point.section;
            state.floor[section] = height;
            let (span, unplaced) = (branch.span, branch.unplaced.clone());
            self.frames.push(SearchFrame::Branch(branch));
            let start = self.items.len();
            self.items.extend_from_within(unplaced);
            let changed = SectionRange { lo: section, hi: section + 1 };
            return self.enter(state, start..self.items.len(), span, changed);
        }
        let slot = self.slot(branch.hash);
        self.dead[slot] = branch.hash;
        Some(SubtreeResult::Dead)
    }

    fn begin_split(&mut self, state: &SearchState, unplaced: Range<usize>, span: SectionRange) -> SplitFrame {
        let mut subproblems = Vec::with_capacity(self.cuts.len());
        let mut lo = span.lo;
        for cut in &self.cuts {
            let subproblem = SectionRange { lo, hi: *cut };
            let start = self.items.len();
            for at in unplaced.clone() {
                if state.span(self.items[at] as usize).overlaps(subproblem) {
                    self.items.push(self.items[at]);
                }
            }
            let slack = subproblem.range().map(|section| state.slack(section)).min().unwrap_or(0);
            subproblems.push(Subproblem { span: subproblem, unplaced: start..self.items.len(), slack });
            lo = *cut;
        }
        // The tightest first: if one has no solution, it is most likely that one.
        subproblems.sort_by_key(|subproblem| (subproblem.slack, subproblem.unplaced.len()));
        let saved = self.save(state, unplaced.clone(), span);
        self.heights.extend_from_slice(&state.remaining[span.range()]);
        SplitFrame { subproblems, next: 0, span, unplaced, saved }
    }

    /// Starts the next subproblem, after the last one ended with `end`.
    fn split(
        &mut self,
        state: &mut SearchState,
        mut split: SplitFrame,
        end: Option<SubtreeResult>,
    ) -> Option<SubtreeResult> {
        let (span, saved) = (split.span, split.saved);
        if end == Some(SubtreeResult::Dead) {
            self.restore(state, split.unplaced.clone(), span, saved);
            let remaining = saved + self.heights_of(span, &split.unplaced);
            let length = span.hi - span.lo;
            state.remaining[span.range()].copy_from_slice(&self.heights[remaining..remaining + length]);
            return end;
        }
        let Some(subproblem) = split.subproblems.get(split.next).cloned() else {
            return Some(SubtreeResult::Solved);
        };
        split.next += 1;
        self.frames.push(SearchFrame::Split(split));
        let unmoved = SectionRange { lo: subproblem.span.lo, hi: subproblem.span.lo };
        self.enter(state, subproblem.unplaced, subproblem.span, unmoved)
    }

    fn save(&mut self, state: &SearchState, unplaced: Range<usize>, span: SectionRange) -> usize {
        let saved = self.heights.len();
        self.heights.extend_from_slice(&state.floor[span.range()]);
        self.heights.extend_from_slice(&state.skyline[span.range()]);
        let lowest_offset = self.items[unplaced].iter().map(|item| state.lowest_offset[*item as usize]);
        self.heights.extend(lowest_offset);
        saved
    }

    fn restore(&self, state: &mut SearchState, unplaced: Range<usize>, span: SectionRange, saved: usize) {
        let length = span.hi - span.lo;
        let (floors, remaining) = self.heights[saved..].split_at(length);
        let (skyline, lowest_offset) = remaining.split_at(length);
        state.floor[span.range()].copy_from_slice(floors);
        state.skyline[span.range()].copy_from_slice(skyline);
        for (item, lowest_offset) in self.items[unplaced].iter().zip(lowest_offset) {
            state.lowest_offset[*item as usize] = *lowest_offset;
        }
    }

    fn heights_of(&self, span: SectionRange, unplaced: &Range<usize>) -> usize {
        2 * (span.hi - span.lo) + unplaced.len()
    }

    /// Returns a hash that is equal for states with the same unplaced items, floors and skyline. Never 0.
    fn hash(&self, state: &SearchState, unplaced: Range<usize>, span: SectionRange) -> u64 {
        let labels = self.items[unplaced].iter().map(|item| self.labels[*item as usize]);
        let mut hash = labels.fold(0, u64::wrapping_add);
        for section in span.range() {
            let heights = (state.floor[section] as u64) ^ (state.skyline[section] as u64).rotate_left(32);
            hash = (hash ^ heights).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        }
        hash | 1
    }

    fn slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.dead.len() - 1)
    }
}

/// Sorts by insertion: the list comes from the parent's, in which little has moved. Ties are broken by item, so that
/// the order is total.
fn sort_by_lowest(items: &mut [u32], lowest_offset: &[Height]) {
    let key = |item: u32| (lowest_offset[item as usize], item);
    for end in 1..items.len() {
        let item = items[end];
        let mut at = end;
        while at > 0 && key(items[at - 1]) > key(item) {
            items[at] = items[at - 1];
            at -= 1;
        }
        items[at] = item;
    }
}
