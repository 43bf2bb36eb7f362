//! Chooses the niche to branch on: the end of a niche with the fewest branches.

use alloc::vec::Vec;

use super::search_state::{Height, SearchState, SectionRange};

/// An end of a niche, and the branches there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BranchPoint {
    pub(super) section: usize,
    pub(super) floor: Height,
    /// If no item rests on this floor, the next height at which one could; `None` if that wastes too much.
    pub(super) raised: Option<Height>,
}

/// Scratch memory for the choice, kept between calls.
#[derive(Clone, Debug, Default)]
pub(super) struct NicheSelector {
    ends: Vec<NicheEnd>,
    /// For each section, how many niche ends come before it.
    ends_before: Vec<u32>,
}

/// An end of a niche, with what decides how many branches it has.
#[derive(Clone, Copy, Debug)]
struct NicheEnd {
    section: usize,
    floor: Height,
    /// Items over the section that could rest on the floor.
    resting: u32,
    /// The least lowest offset above the floor.
    next: Height,
}

impl NicheSelector {
    /// Chooses the end of a niche with the fewest branches. Returns `None` if there is none. `span` must have an
    /// unplaced item over each of its sections.
    pub(super) fn select(&mut self, state: &SearchState, unplaced: &[u32], span: SectionRange) -> Option<BranchPoint> {
        self.find_ends(state, span);
        self.count(state, unplaced, span);
        let mut best: Option<(f64, NicheEnd)> = None;
        for end in &self.ends {
            let slack = state.slack(end.section);
            let wasteful =
                slack > 0 && (end.next - end.floor <= slack || lowest_support(state, unplaced, *end).is_some());
            let ways = end.resting + u32::from(wasteful);
            // One branch or none is no choice at all; the lowest first. Else few branches, and sections with many
            // failures before.
            let score = match ways {
                0 => return Some(BranchPoint { section: end.section, floor: end.floor, raised: None }),
                1 => end.floor as f64 * 1e-12,
                _ => 1.0 + f64::from(ways) * 1e9 / (1.0 + state.failures().at(end.section)),
            };
            if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, *end));
            }
        }
        best.map(|(_, end)| branch_point(state, unplaced, end))
    }

    fn find_ends(&mut self, state: &SearchState, span: SectionRange) {
        let floor = &state.floor;
        self.ends.clear();
        let mut start = span.lo;
        while start < span.hi {
            let height = floor[start];
            let mut end = start + 1;
            while end < span.hi && floor[end] == height {
                end += 1;
            }
            let walled_left = start == span.lo || floor[start - 1] > height;
            let walled_right = end == span.hi || floor[end] > height;
            if walled_left && walled_right {
                let new = |section| NicheEnd { section, floor: height, resting: 0, next: Height::MAX / 2 };
                self.ends.push(new(start));
                if end - 1 > start {
                    self.ends.push(new(end - 1));
                }
            }
            start = end;
        }
    }

    fn count(&mut self, state: &SearchState, unplaced: &[u32], span: SectionRange) {
        self.ends_before.clear();
        self.ends_before.resize(state.sections() + 1, 0);
        let mut ends = self.ends.iter().peekable();
        let mut before = 0;
        for section in span.lo..=span.hi {
            self.ends_before[section] = before;
            if ends.next_if(|end| end.section == section).is_some() {
                before += 1;
            }
        }
        for item in unplaced {
            let span = state.span(*item as usize);
            let lowest_offset = state.lowest_offset[*item as usize];
            let covered = self.ends_before[span.lo] as usize..self.ends_before[span.hi] as usize;
            for end in &mut self.ends[covered] {
                if lowest_offset == end.floor {
                    end.resting += 1;
                } else {
                    end.next = end.next.min(lowest_offset);
                }
            }
        }
    }
}

/// Computes what happens at the end of a niche if nothing rests on its floor.
fn branch_point(state: &SearchState, unplaced: &[u32], end: NicheEnd) -> BranchPoint {
    let NicheEnd { section, floor, next, .. } = end;
    let slack = state.slack(section);
    let height = || lowest_support(state, unplaced, end).map_or(next, |held| held.min(next));
    let raised = (slack > 0).then(height).filter(|height| height - floor <= slack);
    BranchPoint { section, floor, raised }
}

/// Computes the lowest offset of the items that could rest on this floor but must not: on top of an item beside the
/// section that supports one of them. Returns `None` if that exceeds the slack.
fn lowest_support(state: &SearchState, unplaced: &[u32], end: NicheEnd) -> Option<Height> {
    let most = end.floor + state.slack(end.section);
    let mut least: Option<Height> = None;
    for item in unplaced {
        let span = state.span(*item as usize);
        if !span.contains(end.section) || state.lowest_offset[*item as usize] != end.floor {
            continue;
        }
        for other in unplaced {
            let beside = state.span(*other as usize);
            let top = state.lowest_offset[*other as usize] + state.size(*other as usize);
            if top <= most && beside.overlaps(span) && !beside.contains(end.section) {
                least = Some(least.map_or(top, |least| least.min(top)));
            }
        }
    }
    least
}
