//! The strategy with a budget: starts from the result of `Fast` and searches for something smaller.
//!
//! Without pins and in one buffer, that is niche search at the lower bound and at capacities above it
//! (`capacity_search`), which can prove that nothing smaller exists. With pins or several buffers it only improves and
//! proves nothing: each buffer is packed as well as the search can. What the search leaves of the budget, because it
//! does not apply or has ended (pins, tails, mixed alignments, too many blocks), goes to randomised greedy passes
//! (`random_greedy`).

use alloc::vec::Vec;
use core::fmt;

use crate::capacity_search::{CapacityResult, RefutationMeaning, SearchTarget, search_capacities};
use crate::fast::fast;
use crate::items::{Item, ItemSet};
use crate::overlap_search::search_overlaps;
use crate::random_greedy::random_greedy;
use crate::search_budget::{ProgressCallback, SearchBudget};
use crate::strategy::Solution;
use crate::{Bound, BufferId, Bytes, Id, Offset, Place, Problem, lower_bound};

/// Settings of [`Strategy::Best`](crate::Strategy::Best): how long to search, and with how many threads.
///
/// ```
/// use steeve_plan::{Best, Budget, Strategy};
/// let strategy = Strategy::Best(Best::new(Budget::Nodes(20_000)));
/// assert_eq!(strategy.to_string(), "best");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Best {
    /// When to stop.
    pub budget: Budget,
    /// How many threads may work at once. With a budget in nodes the result does not depend on it.
    pub threads: usize,
}

impl Best {
    /// Creates settings with this budget and one thread.
    pub const fn new(budget: Budget) -> Self {
        Self { budget, threads: 1 }
    }

    /// Returns these settings with another number of threads.
    #[must_use]
    pub const fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

impl Default for Best {
    /// Returns settings with one thread and [`Budget::default`].
    fn default() -> Self {
        Self::new(Budget::default())
    }
}

/// The limit on the work of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// This many nodes of the search tree. Gives the same result on every machine. Where blocks may
    /// [overlap](crate::Overlap), placements with and without overlaps are searched with this many nodes each.
    Nodes(u64),
    /// This much wall time.
    #[cfg(feature = "std")]
    Time(core::time::Duration),
}

impl Default for Budget {
    fn default() -> Self {
        #[cfg(feature = "std")]
        return Self::Time(core::time::Duration::from_secs(1));
        #[cfg(not(feature = "std"))]
        Self::Nodes(100_000)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes} nodes"),
            #[cfg(feature = "std")]
            Self::Time(time) => write!(f, "{time:?}"),
        }
    }
}

/// The best solution a search found, and the bound it proved.
pub(crate) struct SearchResult {
    pub(crate) solution: Solution,
    pub(crate) at_least: Bytes,
    pub(crate) nodes: u64,
}

pub(crate) fn search(
    problem: &Problem,
    items: &ItemSet,
    bound: Bound,
    first: Solution,
    settings: &Best,
    watch: &mut ProgressCallback<'_>,
) -> SearchResult {
    let mut budget = SearchBudget::new(settings.budget, watch, first.peak, bound.bytes);
    let goal = match SearchGoal::new(problem, bound.bytes) {
        Some(goal) if first.peak > goal.target_peak => goal,
        _ => return SearchResult { solution: first, at_least: bound.bytes, nodes: 0 },
    };
    let (solution, at_least) = if problem.has_overlaps() {
        (search_with_overlaps(problem, items, bound, first, goal, settings, &mut budget), bound.bytes)
    } else {
        search_apart(problem, items, first, goal, settings, &mut budget)
    };
    SearchResult { solution, at_least, nodes: budget.nodes() }
}

/// Searches among placements with overlaps, and then among those without, if one of them could be lower. Each search gets
/// all nodes of the budget, so that permission to overlap never leads to a higher peak, or half of its time. No search here
/// is complete, so nothing but the bound is proved.
fn search_with_overlaps(
    problem: &Problem,
    items: &ItemSet,
    bound: Bound,
    first: Solution,
    goal: SearchGoal,
    settings: &Best,
    budget: &mut SearchBudget<'_, '_>,
) -> Solution {
    let apart = problem.without_overlaps();
    let apart_bound = lower_bound(&apart).bytes;
    let apart_goal = SearchGoal::new(&apart, apart_bound).filter(|goal| first.peak > goal.target_peak);
    let overlapping = |first, budget: &mut SearchBudget<'_, '_>| {
        search_overlaps(problem, items, goal.target_peak, bound.step, first, budget)
    };
    let Some(apart_goal) = apart_goal else { return overlapping(first, budget) };
    let best = budget.with_half_of_the_time(|budget| overlapping(first, budget));
    if best.peak <= apart_goal.target_peak {
        return if best.peak > goal.target_peak { overlapping(best, budget) } else { best };
    }
    let Some(apart_first) = fast(&apart, items, apart_bound) else { return best };
    budget.renew_nodes();
    // Its bound is not that of the problem, so it is not reported.
    let (found, _) =
        budget.on_subproblem(|budget| search_apart(&apart, items, apart_first, apart_goal, settings, budget));
    if found.peak < best.peak { found } else { best }
}

/// Searches among placements in which no two live blocks overlap. Returns what is proved of them as well.
fn search_apart(
    problem: &Problem,
    items: &ItemSet,
    first: Solution,
    goal: SearchGoal,
    settings: &Best,
    budget: &mut SearchBudget<'_, '_>,
) -> (Solution, Bytes) {
    let bound = goal.bound;
    let mut best = first;
    let mut at_least = bound;
    let limit = problem.max_buffer().map_or(u64::MAX, |limit| limit.0);
    if !items.has_pins() && bound.0 <= limit {
        (best, at_least) = one_buffer(problem, items, best, goal, settings, budget);
    }
    let open = |best: &Solution| match goal.target {
        SearchTarget::Minimum => best.peak > at_least,
        SearchTarget::Within(capacity) => best.peak.0 > capacity && at_least.0 <= capacity,
    };
    if open(&best) && (best.peak.0 > limit || items.has_pins()) {
        best = budget
            .with_half(|budget| budget.on_subproblem(|budget| each_buffer(problem, items, best, settings, budget)));
    }
    // The rest of the budget goes to randomised passes: there are pins, several buffers, mixed alignments, tails, or
    // too many blocks for the search, which would have used the budget up otherwise.
    if open(&best) && !budget.is_spent() {
        best = random_greedy(problem, items, best, goal, budget);
    }
    (best, at_least)
}

/// The peak at which a search may stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SearchGoal {
    /// The capacity, where one is given, else the bound.
    pub(crate) target_peak: Bytes,
    /// No plan is smaller than this.
    pub(crate) bound: Bytes,
    target: SearchTarget,
}

impl SearchGoal {
    /// Creates the goal of a search for `problem`. Returns `None` where the capacity is below the bound: no plan fits,
    /// so there is nothing to search for.
    fn new(problem: &Problem, bound: Bytes) -> Option<Self> {
        match problem.capacity() {
            None => Some(Self { target_peak: bound, bound, target: SearchTarget::Minimum }),
            Some(capacity) if capacity < bound => None,
            Some(capacity) => Some(Self { target_peak: capacity, bound, target: SearchTarget::Within(capacity.0) }),
        }
    }
}

/// Runs niche search for a plan in one buffer. Where `first` uses several buffers, searches first for any plan that
/// fits into one.
fn one_buffer(
    problem: &Problem,
    items: &ItemSet,
    first: Solution,
    goal: SearchGoal,
    settings: &Best,
    budget: &mut SearchBudget<'_, '_>,
) -> (Solution, Bytes) {
    let limit = problem.max_buffer().map_or(u64::MAX, |limit| limit.0);
    let places = items.places(&first.placement);
    // Several buffers may be small enough together and still be several: their offsets are no stack.
    let fits = first.peak.0 <= limit && places.iter().all(|place| place.buffer == BufferId::FIRST);
    let offsets = || places.iter().map(|place| place.offset.0).collect::<Vec<u64>>();
    // A refutation of the merged items does not refute the blocks: a merged chain loses its tails.
    let refutation = if items.are_exact() { RefutationMeaning::Proof } else { RefutationMeaning::Hint };
    let search_to = |offsets, target, budget: &mut SearchBudget<'_, '_>| {
        search_capacities(&items.items, offsets, target, refutation, settings.threads, budget)
    };
    let mut result = if fits {
        search_to(Some(offsets()), goal.target, budget)
    } else {
        let capacity = problem.capacity().map_or(limit, |capacity| capacity.0.min(limit));
        budget
            .with_half(|budget| budget.on_subproblem(|budget| search_to(None, SearchTarget::Within(capacity), budget)))
    };
    if !fits && goal.target == SearchTarget::Minimum && result.offsets.as_ref().is_some_and(|found| found.1 <= limit) {
        let proved = result.at_least;
        let found = result.offsets.take();
        let lower = search_to(found.as_ref().map(|found| found.0.clone()), SearchTarget::Minimum, budget);
        result = CapacityResult { offsets: lower.offsets.or(found), at_least: lower.at_least.max(proved) };
    }
    let at_least = match refutation {
        RefutationMeaning::Proof => Bytes(result.at_least).max(goal.bound),
        RefutationMeaning::Hint => goal.bound,
    };
    match result.offsets {
        Some((offsets, peak)) if peak < first.peak.0 && peak <= limit => {
            let places: Vec<Place> = offsets.into_iter().map(|offset| Place::first(Offset(offset))).collect();
            (Solution { placement: items.placement(problem, &places), peak: Bytes(peak) }, at_least)
        }
        _ => (first, at_least),
    }
}

/// Packs each buffer without pins as well as the search can. Every item stays in its buffer.
fn each_buffer(
    problem: &Problem,
    items: &ItemSet,
    first: Solution,
    settings: &Best,
    budget: &mut SearchBudget<'_, '_>,
) -> Solution {
    let mut places = items.places(&first.placement);
    let buffers = places.iter().map(|place| place.buffer.index() + 1).max().unwrap_or(0);
    let mut members: Vec<Vec<usize>> = alloc::vec![Vec::new(); buffers];
    for (item, place) in places.iter().enumerate() {
        members[place.buffer.index()].push(item);
    }
    for members in members {
        let these: Vec<Item> = members.iter().map(|item| items.items[*item]).collect();
        if budget.is_spent() || these.iter().any(|item| item.pinned.is_some()) {
            continue;
        }
        let offsets = members.iter().map(|item| places[*item].offset.0).collect();
        // Half of what is left for each, so that one hard buffer leaves something for the others.
        let result = budget.with_half(|budget| {
            search_capacities(
                &these,
                Some(offsets),
                SearchTarget::Minimum,
                RefutationMeaning::Hint,
                settings.threads,
                budget,
            )
        });
        if let Some((offsets, _)) = result.offsets {
            for (item, offset) in members.iter().zip(offsets) {
                places[*item].offset = Offset(offset);
            }
        }
    }
    let packed = Solution::new(problem, items.placement(problem, &places));
    packed.filter(|packed| packed.peak < first.peak).unwrap_or(first)
}
