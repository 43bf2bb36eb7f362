//! Niche search at several capacities: at the lower bound, where a solution is a proof, and between it and the best
//! known peak, where one is easier to find.
//!
//! ```text
//!   best known  ----------   every solution lowers it
//!intermediate  - - - - -    one search each: a solution lowers the best known, a refutation raises the least
//!       least  ----------   the other searches: a solution is optimal, a refutation raises it
//! ```
//!
//! Items fall into components that are never alive together; only those whose peak is above a capacity are searched.
//! The searches run in rounds. What a round does depends on the rounds before it and on nothing else, so any number of
//! threads gives the same result.

use alloc::vec;
use alloc::vec::Vec;

use crate::Bytes;
use crate::fast::pack_one_buffer;
use crate::items::Item;
use crate::niche::{NicheOutcome, NicheSearch};
use crate::packing::Packing;
use crate::parallel_search::{SearchTask, run_all};
use crate::search_budget::SearchBudget;

/// What a capacity search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchTarget {
    /// Any packing within a capacity.
    Within(u64),
    /// The lowest packing of all.
    Minimum,
}

/// What follows for the problem if no packing of its items fits a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefutationMeaning {
    /// No plan of the problem fits: its items are its blocks.
    Proof,
    /// Nothing: the blocks may fit where their merged items do not.
    Hint,
}

/// The result of a capacity search.
pub(crate) struct CapacityResult {
    /// The lowest offsets with their peak, where they are lower than those given.
    pub(crate) offsets: Option<(Vec<u64>, u64)>,
    /// No packing of these items is lower.
    pub(crate) at_least: u64,
}

/// Rounds in which a component has a single search, because most are solved by then.
const SINGLE_SEARCH_ROUNDS: u32 = 10;
/// Searches at the least capacity after that.
const SEARCHES_AT_LEAST: usize = 2;
/// Divisors of the gap between the least capacity and the best known peak: one search runs at each such capacity.
const INTERMEDIATE_DIVISORS: [u64; 2] = [6, 2];
/// Nodes per item of the first restart; every few restarts the number grows slightly, since a long restart with a wrong
/// start stays wrong.
const NODES_PER_ITEM: f64 = 2.0;
const RESTARTS_PER_GROWTH: u32 = 5;
const GROWTH: f64 = 1.05;

/// Searches until the target is reached, the bound is proved or the budget is spent. `offsets` are the current ones.
pub(crate) fn search_capacities(
    items: &[Item],
    offsets: Option<Vec<u64>>,
    target: SearchTarget,
    refutation: RefutationMeaning,
    threads: usize,
    budget: &mut SearchBudget<'_, '_>,
) -> CapacityResult {
    let packing = Packing::new(items);
    let bound = packing.bound();
    // Merged items keep bytes alive that their blocks no longer need.
    let proved = if refutation == RefutationMeaning::Proof { bound } else { 0 };
    // With mixed alignments an item need not rest on another, so a refutation proves nothing.
    let refutation = if packing.align.is_none() { refutation } else { RefutationMeaning::Hint };
    let offsets = offsets.unwrap_or_else(|| pack_one_buffer(items, 0).offsets);
    let before = packing.peak(&offsets);
    let mut search =
        CapacitySearch { components: components(&packing), best: before, offsets, proved, at_least: bound, packing };
    search.run(target, refutation, threads, budget);
    CapacityResult { offsets: (search.best < before).then_some((search.offsets, search.best)), at_least: search.proved }
}

/// The packing, the best offsets so far, and what is proved about it.
struct CapacitySearch {
    packing: Packing,
    components: Vec<Component>,
    offsets: Vec<u64>,
    best: u64,
    /// The least capacity that is not refuted, where the search continues.
    at_least: u64,
    /// The proven lower bound: no plan is smaller.
    proved: u64,
}

/// A maximal set of items connected by overlaps in time.
struct Component {
    items: Vec<u32>,
    packing: Packing,
}

impl CapacitySearch {
    fn run(
        &mut self,
        target: SearchTarget,
        refutation: RefutationMeaning,
        threads: usize,
        budget: &mut SearchBudget<'_, '_>,
    ) {
        let mut lowest = CapacityFront::new(match target {
            SearchTarget::Within(capacity) => capacity,
            SearchTarget::Minimum => self.at_least,
        });
        let mut intermediate: Vec<CapacityFront> = Vec::new();
        loop {
            budget.record_progress(Bytes(self.best), Bytes(self.proved));
            if self.best <= lowest.capacity || budget.poll(0) {
                return;
            }
            let alone = lowest.restarts < SINGLE_SEARCH_ROUNDS;
            lowest.start_searches(self, if alone { 1 } else { SEARCHES_AT_LEAST });
            if target == SearchTarget::Minimum && !alone {
                self.set_intermediate(&mut intermediate, lowest.capacity);
            }
            if lowest.searches.is_empty() {
                return;
            }
            let refuted = self.round(&mut lowest, &mut intermediate, threads, budget);
            if let Some(above) = refuted {
                self.at_least = self.at_least.max(above);
                if refutation == RefutationMeaning::Proof {
                    self.proved = self.at_least;
                }
                if target != SearchTarget::Minimum {
                    return;
                }
                lowest = CapacityFront::new(self.at_least);
            }
        }
    }

    /// Restarts each search once. Returns the least capacity that remains if one was refuted.
    fn round(
        &mut self,
        lowest: &mut CapacityFront,
        intermediate: &mut [CapacityFront],
        threads: usize,
        budget: &mut SearchBudget<'_, '_>,
    ) -> Option<u64> {
        let leading = lowest.searches.len();
        let mut tasks: Vec<SearchTask<'_>> = Vec::new();
        let mut counts = Vec::new();
        for front in core::iter::once(&mut *lowest).chain(intermediate.iter_mut()) {
            let limit = front.limit(self);
            counts.push(front.searches.len());
            tasks.extend(front.searches.iter_mut().map(|search| SearchTask { search, limit }));
        }
        let outcomes = run_all(tasks, leading, threads, budget);
        let mut outcomes = outcomes.into_iter();
        let mut refuted = None;
        for (front, count) in core::iter::once(lowest).chain(intermediate).zip(counts) {
            match front.update(outcomes.by_ref().take(count)) {
                FrontUpdate::Unchanged => {}
                FrontUpdate::ComponentSolved => self.adopt(front),
                FrontUpdate::CapacityRefuted(above) => refuted = refuted.max(Some(above)),
            }
        }
        refuted
    }

    /// Keeps a front at each intermediate capacity; one that is reached or refuted moves.
    fn set_intermediate(&self, intermediate: &mut Vec<CapacityFront>, lowest: u64) {
        intermediate.retain(|front| lowest < front.capacity && front.capacity < self.best);
        for part in INTERMEDIATE_DIVISORS {
            let capacity = self.at_least + (self.best - self.at_least) / part;
            let gap = (self.best - self.at_least) / 8;
            let near = |front: &CapacityFront| front.capacity.abs_diff(capacity) <= gap;
            if lowest < capacity && intermediate.len() < INTERMEDIATE_DIVISORS.len() && !intermediate.iter().any(near) {
                intermediate.push(CapacityFront::new(capacity));
            }
        }
        for front in intermediate {
            front.start_searches(self, 1);
        }
    }

    /// Adopts the offsets of the components that a front has solved, if that lowers the peak.
    fn adopt(&mut self, front: &CapacityFront) {
        let mut offsets = self.offsets.clone();
        for (index, found) in &front.solved {
            for (item, offset) in self.components[*index].items.iter().zip(found) {
                offsets[*item as usize] = *offset;
            }
        }
        let peak = self.packing.peak(&offsets);
        if peak < self.best {
            (self.offsets, self.best) = (offsets, peak);
        }
    }

    fn peak_of(&self, component: &Component) -> u64 {
        let top = |item: &u32| self.offsets[*item as usize] + self.packing.size[*item as usize];
        component.items.iter().map(top).max().unwrap_or(0)
    }
}

/// A capacity with the state of the search under it.
struct CapacityFront {
    capacity: u64,
    /// Components solved so far, with their offsets.
    solved: Vec<(usize, Vec<u64>)>,
    /// The component that is searched now.
    current: usize,
    searches: Vec<NicheSearch>,
    restarts: u32,
    growth: f64,
}

impl CapacityFront {
    fn new(capacity: u64) -> Self {
        Self { capacity, solved: Vec::new(), current: 0, searches: Vec::new(), restarts: 0, growth: 1.0 }
    }

    /// Starts searches until `count` of them work on a component whose peak is above the capacity. Starts none if there
    /// is no such component or it can't be searched.
    fn start_searches(&mut self, search: &CapacitySearch, count: usize) {
        if self.searches.is_empty() {
            let open = |index: &usize| {
                let solved = self.solved.iter().any(|(done, _)| done == index);
                !solved && search.peak_of(&search.components[*index]) > self.capacity
            };
            let Some(current) = (0..search.components.len()).find(open) else { return };
            (self.current, self.restarts, self.growth) = (current, 0, 1.0);
        }
        let packing = &search.components[self.current].packing;
        while self.searches.len() < count {
            let seed = self.searches.len() as u64 + 1;
            let Some(search) = NicheSearch::new(packing, self.capacity, seed) else { return };
            self.searches.push(search);
        }
    }

    /// Returns the node limit of the next restart.
    fn limit(&mut self, search: &CapacitySearch) -> u64 {
        self.restarts += 1;
        if self.restarts.is_multiple_of(RESTARTS_PER_GROWTH) {
            self.growth *= GROWTH;
        }
        let items = search.components[self.current].items.len();
        (NODES_PER_ITEM * items as f64 * self.growth) as u64 + 1
    }

    /// Records the outcomes of a round: the first search with an answer decides.
    fn update(&mut self, outcomes: impl Iterator<Item = NicheOutcome>) -> FrontUpdate {
        let known = self.searches.iter().zip(outcomes).find(|(_, outcome)| *outcome != NicheOutcome::Undecided);
        match known {
            Some((search, NicheOutcome::Refuted)) => FrontUpdate::CapacityRefuted(search.next_capacity(self.capacity)),
            Some((_, NicheOutcome::Found(offsets))) => {
                self.solved.push((self.current, offsets));
                self.searches.clear();
                FrontUpdate::ComponentSolved
            }
            _ => FrontUpdate::Unchanged,
        }
    }
}

/// How a round has changed a front.
enum FrontUpdate {
    Unchanged,
    /// The current component fits the capacity.
    ComponentSolved,
    /// The component does not fit: the least capacity that remains.
    CapacityRefuted(u64),
}

/// Splits the packing where no item crosses from one section to the next.
fn components(packing: &Packing) -> Vec<Component> {
    let mut reach = vec![0; packing.sections];
    for (lo, hi) in packing.lo.iter().zip(&packing.hi) {
        reach[*lo as usize] = (*hi).max(reach[*lo as usize]);
    }
    // For each section, the component it belongs to.
    let mut component = vec![0; packing.sections];
    let (mut end, mut count) = (0, 0usize);
    for section in 0..packing.sections {
        if section as u32 >= end {
            count += 1;
        }
        end = reach[section].max(end);
        component[section] = count - 1;
    }
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (item, lo) in (0..).zip(&packing.lo) {
        members[component[*lo as usize]].push(item);
    }
    let build = |items: Vec<u32>| Component { packing: packing.part(&items), items };
    members.into_iter().map(build).collect()
}
