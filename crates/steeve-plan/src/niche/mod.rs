//! Niche search: decides whether a packing fits a capacity. A complete search that only has to avoid waste.
//!
//! The state is a skyline over the sections. `floor` is the lowest height at which the next item over a section can
//! start, `remaining` is what must still be placed over it, so a state is dead as soon as `floor + remaining` exceeds
//! the capacity somewhere, and a solution wastes nothing in the sections that are full.
//!
//! ```text
//!             ____                    Take an end of a niche (here `s`). Either one of the items over `s` that
//!            |    |  ?  ______        could rest on its floor does: one branch each. Or none does, and `s` is
//!        ____|    |____|              wasted up to the next height at which anything could rest there.
//!                  s                  Any niche will do, so take the one with the fewest branches.
//! ```
//!
//! The branches exclude each other and together cover every packing in which each item rests on the ground or on
//! another item; if any packing fits, such a one does (push everything down). So a search that runs to its end without
//! a solution has *proved* that there is none. The files: `search_state` is the state and what follows from it,
//! `branching` picks the niche, `search_tree` explores the branches, and this one restarts it with other orders.
//! `docs/solver.md` has the proof.

mod branching;
mod search_state;
mod search_tree;

use alloc::vec;
use alloc::vec::Vec;

use crate::packing::Packing;
use crate::random::RandomGenerator;
use search_state::SearchState;
use search_tree::{SearchTree, SubtreeResult};

/// The outcome of a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NicheOutcome {
    /// Offsets within the capacity.
    Found(Vec<u64>),
    /// No packing fits: proved.
    Refuted,
    /// Neither: out of nodes, or stopped.
    Undecided,
}

/// A search for one packing within one capacity, restarted several times: dead states are remembered.
#[derive(Clone, Debug)]
pub(crate) struct NicheSearch {
    state: SearchState,
    tree: SearchTree,
    random: RandomGenerator,
    unit: u64,
    restarts: usize,
    /// For each item, the highest load over its sections.
    highest_loads: Vec<i64>,
}

/// The key by which items are tried in a branch. Restarts use the keys in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BranchOrder {
    Load,
    Area,
    Length,
    Size,
    FailureWeight,
}

const BRANCH_ORDERS: [BranchOrder; 5] =
    [BranchOrder::Load, BranchOrder::Area, BranchOrder::Length, BranchOrder::Size, BranchOrder::FailureWeight];

/// How much noise changes the keys from the second round on.
const NOISE: f64 = 0.32;

impl NicheSearch {
    /// Creates a search. Returns `None` if a size is too large to count with, or the packing too large to search.
    pub(crate) fn new(packing: &Packing, capacity: u64, seed: u64) -> Option<Self> {
        // Alignments are counted in units too, so they must not divide one.
        let numbers = packing.size.iter().chain(packing.align.iter().flatten());
        let unit = numbers.fold(0, |a, b| gcd(a, *b)).max(1);
        let state = SearchState::new(packing, unit, capacity)?;
        let highest_loads = state.items().map(|item| state.highest_load(item)).collect();
        let tree = SearchTree::new(packing.len(), seed);
        Some(Self { state, tree, random: RandomGenerator::new(seed), unit, restarts: 0, highest_loads })
    }

    /// Restarts the search with the next order, for at most `nodes` nodes. Calls `pause` now and then, which returns
    /// whether to stop.
    pub(crate) fn restart(&mut self, nodes: u64, pause: &mut dyn FnMut(u64) -> bool) -> (NicheOutcome, u64) {
        let order = BRANCH_ORDERS[self.restarts % BRANCH_ORDERS.len()];
        let noise = if self.restarts < BRANCH_ORDERS.len() { 0.0 } else { NOISE };
        self.restarts += 1;
        self.rank(order, noise);
        self.state.reset();
        let (end, visited) = self.tree.search(&mut self.state, nodes, pause);
        let answer = match end {
            SubtreeResult::Solved => {
                let bytes = |item: usize| self.state.offset(item) as u64 * self.unit;
                NicheOutcome::Found(self.state.items().map(bytes).collect())
            }
            SubtreeResult::Dead => NicheOutcome::Refuted,
            SubtreeResult::Stopped => NicheOutcome::Undecided,
        };
        (answer, visited)
    }

    /// Returns the least capacity above `capacity` that could make a difference.
    pub(crate) fn next_capacity(&self, capacity: u64) -> u64 {
        (capacity / self.unit + 1).saturating_mul(self.unit)
    }

    /// Gives each item its rank in the order of branches: the highest goes first.
    fn rank(&mut self, order: BranchOrder, noise: f64) {
        let state = &self.state;
        let failures = state.failures();
        let (sections, capacity) = (state.sections() as f64, state.capacity().max(1) as f64);
        let mut ranks = vec![0.0; self.highest_loads.len()];
        for item in state.items() {
            let length = state.length(item) as f64 / sections;
            let size = state.size(item) as f64 / capacity;
            let highest_loads = self.highest_loads[item] as f64 / capacity;
            let priority = match order {
                BranchOrder::Load => highest_loads + length * size * 1e-3,
                BranchOrder::Area => length * size,
                BranchOrder::Length => length + length * size * 1e-3,
                BranchOrder::Size => size,
                BranchOrder::FailureWeight => failures.over(state.span(item)) + length * size,
            };
            ranks[item] = priority * (1.0 + noise * self.random.fraction());
        }
        self.tree.set_ranks(ranks);
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
