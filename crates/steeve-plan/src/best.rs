//! The strategy with a budget: what `Fast` found, then a search for something smaller.
//!
//! Without pins and in one buffer, that is niche search at the bound and on rungs above it (`ladder`), which can prove
//! that nothing smaller exists. With pins or several buffers it is bounded improvement and proves nothing: each buffer is
//! packed as well as the search can. What the search leaves of the budget, because it does not apply or has nothing more
//! to say (pins, tails, mixed alignments, too many blocks), goes to greedy orders with chance in them (`shuffle`).

use alloc::vec::Vec;
use core::fmt;

use crate::items::{Item, Items};
use crate::ladder::{Aim, Climbed, Refutation, climb};
use crate::meter::{Meter, Watch};
use crate::shuffle::shuffle;
use crate::strategy::Solution;
use crate::{BufferId, Bytes, Id, Offset, Place, Problem};

/// How long to search, and with how many threads.
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
    /// One thread with `budget`.
    pub const fn new(budget: Budget) -> Self {
        Self { budget, threads: 1 }
    }

    /// The same with several threads.
    #[must_use]
    pub const fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

impl Default for Best {
    /// One thread for a second; without a clock, 100,000 nodes.
    fn default() -> Self {
        Self::new(Budget::default())
    }
}

/// What a search may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// So many nodes of the search tree. The same result on every machine.
    Nodes(u64),
    /// So much time.
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

/// The best that was found, and what was proved on the way.
pub(crate) struct Found {
    pub(crate) solution: Solution,
    pub(crate) at_least: Bytes,
    pub(crate) nodes: u64,
}

pub(crate) fn search(
    problem: &Problem,
    items: &Items,
    bound: Bytes,
    first: Solution,
    settings: &Best,
    watch: &mut Watch<'_>,
) -> Found {
    let mut meter = Meter::new(settings.budget, watch, first.peak, bound);
    let goal = match Goal::new(problem, bound) {
        Some(goal) if first.peak > goal.enough => goal,
        _ => return Found { solution: first, at_least: bound, nodes: 0 },
    };
    let mut best = first;
    let mut at_least = bound;
    let limit = problem.max_buffer().map_or(u64::MAX, |limit| limit.0);
    if !items.has_pins() && bound.0 <= limit {
        (best, at_least) = one_buffer(problem, items, best, goal, settings, &mut meter);
    }
    let open = |best: &Solution| match goal.aim {
        Aim::Lowest => best.peak > at_least,
        Aim::Under(capacity) => best.peak.0 > capacity && at_least.0 <= capacity,
    };
    if open(&best) && (best.peak.0 > limit || items.has_pins()) {
        best = meter.with_half(|meter| meter.on_a_part(|meter| each_buffer(problem, items, best, settings, meter)));
    }
    // What is left goes to chance: there are pins, several buffers, mixed alignments, tails, or too many blocks for the
    // search, which would have used the budget up otherwise.
    if open(&best) && !meter.is_over() {
        best = shuffle(problem, items, best, goal, &mut meter);
    }
    Found { solution: best, at_least, nodes: meter.nodes() }
}

/// When to be content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The capacity, where one is given, else the bound.
    pub(crate) enough: Bytes,
    /// No plan is smaller than this.
    pub(crate) bound: Bytes,
    aim: Aim,
}

impl Goal {
    /// `None` where the capacity is below the bound: there is nothing to search for.
    fn new(problem: &Problem, bound: Bytes) -> Option<Self> {
        match problem.capacity() {
            None => Some(Self { enough: bound, bound, aim: Aim::Lowest }),
            Some(capacity) if capacity < bound => None,
            Some(capacity) => Some(Self { enough: capacity, bound, aim: Aim::Under(capacity.0) }),
        }
    }
}

/// Niche search for a plan in one buffer. If the one at hand has several, first for any that fits into one.
fn one_buffer(
    problem: &Problem,
    items: &Items,
    first: Solution,
    goal: Goal,
    settings: &Best,
    meter: &mut Meter<'_, '_>,
) -> (Solution, Bytes) {
    let limit = problem.max_buffer().map_or(u64::MAX, |limit| limit.0);
    let places = items.places(&first.placement);
    // Several buffers may be small enough together and still be several: their offsets are no stack.
    let fits = first.peak.0 <= limit && places.iter().all(|place| place.buffer == BufferId::FIRST);
    let offsets = || places.iter().map(|place| place.offset.0).collect::<Vec<u64>>();
    // What merged items can't do, the blocks may: a tail is lost in a merged chain.
    let refutation = if items.are_exact() { Refutation::Proof } else { Refutation::Hint };
    let climb_to = |offsets, aim, meter: &mut Meter<'_, '_>| {
        climb(&items.items, offsets, aim, refutation, settings.threads, meter)
    };
    let mut climbed = if fits {
        climb_to(Some(offsets()), goal.aim, meter)
    } else {
        let capacity = problem.capacity().map_or(limit, |capacity| capacity.0.min(limit));
        meter.with_half(|meter| meter.on_a_part(|meter| climb_to(None, Aim::Under(capacity), meter)))
    };
    if !fits && goal.aim == Aim::Lowest && climbed.offsets.as_ref().is_some_and(|found| found.1 <= limit) {
        let proved = climbed.at_least;
        let found = climbed.offsets.take();
        let lower = climb_to(found.as_ref().map(|found| found.0.clone()), Aim::Lowest, meter);
        climbed = Climbed { offsets: lower.offsets.or(found), at_least: lower.at_least.max(proved) };
    }
    let at_least = match refutation {
        Refutation::Proof => Bytes(climbed.at_least).max(goal.bound),
        Refutation::Hint => goal.bound,
    };
    match climbed.offsets {
        Some((offsets, peak)) if peak < first.peak.0 && peak <= limit => {
            let places: Vec<Place> = offsets.into_iter().map(|offset| Place::first(Offset(offset))).collect();
            (Solution { placement: items.placement(problem, &places), peak: Bytes(peak) }, at_least)
        }
        _ => (first, at_least),
    }
}

/// Who stands in which buffer stays; each buffer without pins is packed as well as the search can.
fn each_buffer(
    problem: &Problem,
    items: &Items,
    first: Solution,
    settings: &Best,
    meter: &mut Meter<'_, '_>,
) -> Solution {
    let mut places = items.places(&first.placement);
    let buffers = places.iter().map(|place| place.buffer.index() + 1).max().unwrap_or(0);
    let mut members: Vec<Vec<usize>> = alloc::vec![Vec::new(); buffers];
    for (item, place) in places.iter().enumerate() {
        members[place.buffer.index()].push(item);
    }
    for members in members {
        let these: Vec<Item> = members.iter().map(|item| items.items[*item]).collect();
        if meter.is_over() || these.iter().any(|item| item.pinned.is_some()) {
            continue;
        }
        let offsets = members.iter().map(|item| places[*item].offset.0).collect();
        // Half of what is left for each, so that one hard buffer leaves something for the others.
        let climbed = meter
            .with_half(|meter| climb(&these, Some(offsets), Aim::Lowest, Refutation::Hint, settings.threads, meter));
        if let Some((offsets, _)) = climbed.offsets {
            for (item, offset) in members.iter().zip(offsets) {
                places[*item].offset = Offset(offset);
            }
        }
    }
    let packed = Solution::new(problem, items.placement(problem, &places));
    packed.filter(|packed| packed.peak < first.peak).unwrap_or(first)
}
