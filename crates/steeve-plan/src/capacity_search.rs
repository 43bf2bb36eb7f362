//! Niche search at several capacities: at the lower bound, where a solution is a proof, and on rungs between it and the
//! best known, where one is easier to find.
//!
//! ```text
//!   best known  ----------   every solution lowers it
//!        rungs  - - - - -    one walker each: a solution lowers the best known, a refutation raises the least
//!        least  ----------   the other walkers: a solution is optimal, a refutation raises it
//! ```
//!
//! Items fall into components that never live together; only those that stand above a capacity are searched. The
//! walkers go in rounds. What a round does depends on the rounds before it and on nothing else, so any number of
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

/// What to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchTarget {
    /// Any packing under a capacity.
    Within(u64),
    /// The lowest packing of all.
    Minimum,
}

/// What it means that no packing of the items fits under a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefutationMeaning {
    /// No plan of the problem fits: the items are its blocks.
    Proof,
    /// Nothing: the blocks may do what the items can't.
    Hint,
}

/// What was found.
pub(crate) struct CapacityResult {
    /// The lowest offsets with their peak, where they are lower than those given.
    pub(crate) offsets: Option<(Vec<u64>, u64)>,
    /// No packing of these items is lower.
    pub(crate) at_least: u64,
}

/// Rounds in which one walker goes alone on a component, because most are solved by then.
const SINGLE_SEARCH_ROUNDS: u32 = 10;
/// Walkers at the least capacity after that.
const SEARCHES_AT_LEAST: usize = 2;
/// And one at each of these parts of the way up to the best known.
const INTERMEDIATE_DIVISORS: [u64; 2] = [6, 2];
/// The first walk has so many nodes for each item, and every few walks they grow by a little: long walks that begin
/// wrong stay wrong.
const NODES_PER_ITEM: f64 = 2.0;
const RESTARTS_PER_GROWTH: u32 = 5;
const GROWTH: f64 = 1.05;

/// Searches until the aim, the proof or the end of the budget. `offsets` is where the items stand so far.
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
    // Merged items are alive with bytes that their blocks no longer need.
    let proved = if refutation == RefutationMeaning::Proof { bound } else { 0 };
    // With mixed alignments an item need not rest on anything, and a refutation proves nothing.
    let refutation = if packing.align.is_none() { refutation } else { RefutationMeaning::Hint };
    let offsets = offsets.unwrap_or_else(|| pack_one_buffer(items, 0).offsets);
    let before = packing.peak(&offsets);
    let mut search =
        CapacitySearch { components: components(&packing), best: before, offsets, proved, at_least: bound, packing };
    search.run(target, refutation, threads, budget);
    CapacityResult { offsets: (search.best < before).then_some((search.offsets, search.best)), at_least: search.proved }
}

struct CapacitySearch {
    packing: Packing,
    components: Vec<Component>,
    offsets: Vec<u64>,
    best: u64,
    /// The least capacity that is not refuted, which is where the search goes on.
    at_least: u64,
    /// What may be told: no plan is smaller.
    proved: u64,
}

/// Items that are cut off from all others in time.
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

    /// One walk of each walker. If a capacity was refuted, the least that remains.
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

    /// Keeps a front at each rung between the least and the best known; one that is reached or refuted moves.
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

    /// Moves the items of the components that a front has solved, if that lowers the peak.
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

/// A capacity, and how far the search under it has come.
struct CapacityFront {
    capacity: u64,
    /// Components done so far, with their offsets.
    solved: Vec<(usize, Vec<u64>)>,
    /// The component that is searched now, and by whom.
    current: usize,
    searches: Vec<NicheSearch>,
    restarts: u32,
    growth: f64,
}

impl CapacityFront {
    fn new(capacity: u64) -> Self {
        Self { capacity, solved: Vec::new(), current: 0, searches: Vec::new(), restarts: 0, growth: 1.0 }
    }

    /// Sees to it that `crew` walkers work on a component that stands too high; nobody, if none does or if it can't be
    /// searched.
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

    /// The nodes of the next walk.
    fn limit(&mut self, search: &CapacitySearch) -> u64 {
        self.restarts += 1;
        if self.restarts.is_multiple_of(RESTARTS_PER_GROWTH) {
            self.growth *= GROWTH;
        }
        let items = search.components[self.current].items.len();
        (NODES_PER_ITEM * items as f64 * self.growth) as u64 + 1
    }

    /// Takes in what the walkers found: the first of them that knows decides.
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

/// What a round has taught a front.
enum FrontUpdate {
    Unchanged,
    /// A component fits.
    ComponentSolved,
    /// Nothing fits: the least capacity that remains.
    CapacityRefuted(u64),
}

/// Cuts the packing where no item crosses from one section to the next.
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
