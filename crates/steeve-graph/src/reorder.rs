//! Graph in, an order of its nodes that needs fewer bytes out. A stage of its own: nothing before it knows of it, and what
//! comes after it sees a graph.
//!
//! ```text
//!   peak      |      #                      |
//!             |  ##  ###       ----->       |  ##   ##
//!             | ############                | #############
//!               nodes, in the caller's order  in another one
//! ```
//!
//! 1. At the peak, up to 64 consecutive nodes are searched through by the sets of those that are done ([`window`]), for an order
//!    whose peak is lower. That is repeated until the peak stays. So no step makes the order worse.
//!    Where it is not proven that no order is better, the same is done from the order in which each node runs just before it
//!    is needed ([`post_order`](mod@post_order)), if that needs less than the caller's to begin with; the better one is taken.
//! 2. Nodes go back to where the caller had them as far as that costs nothing ([`settle`](mod@settle)).
//! 3. Nodes that only describe memory are listed before their first reader ([`listing`]).
//!
//! An order is legal if every node reads what it read before: reads and writes of one root keep their order unless both are
//! reads, also where a view of the root is meant; external roots that nodes write into count as one root. With several memories,
//! nodes move within a run of nodes of one memory. Nodes of memories whose backend fuses or runs out of order stay.
//!
//! Where it can be proven, the report says that no order is better ([`certificate`]). Deterministic.

mod certificate;
#[cfg(all(test, feature = "fuzz"))]
mod laws;
#[cfg(feature = "json")]
mod legality;
mod listing;
mod live_bytes;
mod model;
mod node_order;
mod post_order;
mod settle;
mod window;

use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::Bytes;

use crate::alias::AliasRule;
use crate::{AssignedGraph, MemoryId, PlanOptions, Reuse};
use certificate::{Sections, least_during};
use listing::listed;
use live_bytes::{LiveProfile, UnitOrder};
use model::{OrderModel, UnitId};
use post_order::post_order;
use settle::settle;
use window::{MAX_UNITS, Window};

#[cfg(feature = "json")]
pub(crate) use legality::overtaking;
pub use node_order::{MovedNode, NodeOrder, NodeOrderError};

/// How an order is searched for, and when it is used.
///
/// ```
/// use steeve_graph::OrderSearch;
/// assert_eq!(OrderSearch::default().least_saving, 10); // tenths of a percent
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderSearch {
    /// By how many thousandths of the peak another order must be better to be used: more than 1% by default, since another
    /// order may cost time.
    pub least_saving: u32,
    /// How many steps the search may take: a bound on time that does not depend on the machine. A step is a node that is tried
    /// next after some others. A quarter as many again may go into moving nodes back to where the caller has them; what it
    /// takes to begin a search, O(edges), is not counted. By default it takes less than a second.
    pub steps: u64,
}

impl Default for OrderSearch {
    fn default() -> Self {
        Self::new()
    }
}

impl OrderSearch {
    /// Returns the default search.
    pub const fn new() -> Self {
        Self { least_saving: 10, steps: 4_000_000 }
    }

    /// Returns a search that takes a few milliseconds at most, for a first look.
    pub const fn quick() -> Self {
        Self { least_saving: 10, steps: 100_000 }
    }

    /// Sets by how many thousandths of the peak another order must be better to be used.
    #[must_use]
    pub const fn with_least_saving(mut self, thousandths: u32) -> Self {
        self.least_saving = thousandths;
        self
    }

    /// Sets how many steps the search may take.
    #[must_use]
    pub const fn with_steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// Returns whether an order that needs `found` bytes is worth using where the caller's needs `own`.
    ///
    /// ```
    /// use steeve_graph::{Bytes, OrderSearch};
    /// let search = OrderSearch::default();
    /// assert!(search.is_worth_while(Bytes(1000), Bytes(989)));
    /// assert!(!search.is_worth_while(Bytes(1000), Bytes(990)));
    /// ```
    pub fn is_worth_while(&self, own: Bytes, found: Bytes) -> bool {
        let saved = u128::from(own.0.saturating_sub(found.0));
        saved * 1000 > u128::from(own.0) * u128::from(self.least_saving)
    }
}

/// An order of a graph's nodes, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundOrder {
    /// The order.
    pub order: NodeOrder,
    /// What it needs in each memory that is not another under a second id.
    pub memories: Vec<OrderPeak>,
}

/// The live bytes of a memory at the peak, before anything is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderPeak {
    /// Which memory.
    pub memory: MemoryId,
    /// In the caller's order.
    pub own: Bytes,
    /// In the order that was found; never more.
    pub found: Bytes,
    /// No order needs less. If it is what was found, no order is better.
    pub at_least: Bytes,
}

impl OrderPeak {
    /// Returns whether it is proven that no order of the nodes needs less in this memory.
    pub fn is_best(&self) -> bool {
        self.found == self.at_least
    }
}

impl FoundOrder {
    /// Returns the live bytes at the peaks of all memories together, in the caller's order and in this one.
    pub fn peaks(&self) -> (Bytes, Bytes) {
        let sum = |bytes: fn(&OrderPeak) -> Bytes| self.memories.iter().map(|it| bytes(it).0).sum();
        (Bytes(sum(|it| it.own)), Bytes(sum(|it| it.found)))
    }

    /// Returns whether it is proven that no order of the nodes needs less in any memory.
    pub fn is_best(&self) -> bool {
        self.memories.iter().all(OrderPeak::is_best)
    }
}

/// Searches for an order of the nodes that needs fewer bytes. Packing may eat some of that: only the peaks of plans of both orders
/// say what is saved.
///
/// ```
/// use steeve_graph::{AssignedGraph, Bytes, OrderSearch, PlanOptions, best_order};
/// // The long branch holds `x` until its end, if the short one is last.
/// let graph: AssignedGraph = "
///     x = input f32[1024]
///     long = concat f32[1024,4] x x
///     sum = sum_rows long
///     short = concat f32[64] x x
///     y = concat f32[128] sum short !output
/// "
/// .parse()?;
/// let found = best_order(&graph, &PlanOptions::default(), &OrderSearch::default());
/// assert!(found.peaks().1 <= found.peaks().0);
/// assert_eq!(found.order.apply(&graph)?.graph().nodes().len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn best_order(assigned: &AssignedGraph, options: &PlanOptions, search: &OrderSearch) -> FoundOrder {
    let options = options.implied();
    let rule = match options.reuse {
        Reuse::Extended => AliasRule::Extended,
        Reuse::Ggml => AliasRule::Ggml,
        Reuse::None => AliasRule::None,
    };
    let own = NodeOrder::own(assigned.graph());
    // What can't be planned need not be ordered.
    let Some(model) = OrderModel::new(assigned, rule, options.unread) else {
        return FoundOrder { order: own, memories: Vec::new() };
    };
    let units: Vec<UnitId> = model.units.ids().collect();
    let order = UnitOrder::new(&model, units);
    let sections = Sections::new(&model, &order);
    let mut descent = Descent { model: &model, sections, order, steps: search.steps };
    let before = descent.peaks(assigned);
    let mut at_least = descent.descend_all(&before);
    let mut limits = descent.peaks(assigned);
    // A graph may list all of a kind one after the other, over more nodes than a window has.
    let is_best = limits.iter().zip(&at_least).all(|((_, peak), least)| peak == least);
    if !is_best && let Some((other, least)) = descent.descend_late(assigned, &before) {
        at_least.iter_mut().zip(least).for_each(|(one, other)| *one = other.max(*one));
        let peaks = descent.peaks(assigned);
        match sum(&peaks) < sum(&limits) {
            true => limits = peaks,
            false => descent.order = other,
        }
    }
    if limits != before {
        settle(&model, &mut descent.order, &limits, search.steps / 4);
    }
    let memories = before.iter().zip(&limits).zip(at_least.drain(..)).map(|((own, found), at_least)| OrderPeak {
        memory: own.0,
        own: Bytes(own.1),
        found: Bytes(found.1),
        at_least: Bytes(at_least),
    });
    let memories = memories.collect();
    let order = if limits == before { own } else { NodeOrder::unchecked(listed(assigned, &model, &descent.order)) };
    FoundOrder { order, memories }
}

/// Returns the bytes of all memories together.
fn sum(peaks: &[(MemoryId, u64)]) -> u64 {
    peaks.iter().fold(0, |sum: u64, (_, peak)| sum.saturating_add(*peak))
}

/// The most states that one window keeps.
const WINDOW_STATES: usize = 3_000;

/// Lowers peaks, one window after another.
struct Descent<'a> {
    model: &'a OrderModel,
    sections: Sections,
    order: UnitOrder,
    /// How many steps may still be taken. To look at all units once is a step for each.
    steps: u64,
}

/// What windows around a peak have shown.
enum PeakAnswer {
    /// The units at these places have another order.
    Lowered(Range<usize>),
    /// No order has a lower peak.
    Proven,
    Unknown,
}

impl Descent<'_> {
    fn peak(&mut self, memory: MemoryId) -> u64 {
        self.profile(memory).peak().0
    }

    fn profile(&mut self, memory: MemoryId) -> LiveProfile {
        self.steps = self.steps.saturating_sub(self.order.units.len() as u64);
        LiveProfile::new(self.model, &self.order, memory)
    }

    fn peaks(&mut self, assigned: &AssignedGraph) -> Vec<(MemoryId, u64)> {
        assigned.owners().map(|memory| (memory, self.peak(memory))).collect()
    }

    /// Lowers the peaks of all memories, none of which gets above `limits`. Returns what no order goes below in each.
    fn descend_all(&mut self, limits: &[(MemoryId, u64)]) -> Vec<u64> {
        limits.iter().map(|(memory, peak)| self.descend(*memory, *peak, limits)).collect()
    }

    /// Begins once more, with each unit as late as possible, if that is better than `before` to begin with. Returns the order
    /// that was there, and what no order goes below.
    fn descend_late(&mut self, assigned: &AssignedGraph, before: &[(MemoryId, u64)]) -> Option<(UnitOrder, Vec<u64>)> {
        let order = UnitOrder::new(self.model, post_order(self.model));
        let other = core::mem::replace(&mut self.order, order);
        let peaks = self.peaks(assigned);
        if sum(&peaks) >= sum(before) || peaks.iter().zip(before).any(|((_, peak), (_, own))| peak > own) {
            self.order = other;
            return None;
        }
        let least = self.descend_all(&peaks);
        Some((other, least))
    }

    /// Lowers the peak of a memory as far as it gets. Returns what no order goes below.
    fn descend(&mut self, memory: MemoryId, own: u64, limits: &[(MemoryId, u64)]) -> u64 {
        let mut least = 0;
        loop {
            let profile = self.profile(memory);
            least = least.max(profile.at_start);
            let (peak, Some(_)) = profile.peak() else { return least };
            debug_assert!(peak <= own, "a window made the order worse");
            // Layers of a model are all alike: one after the other is lowered. Behind a window nothing has changed.
            let mut changed = 0;
            for place in (0..profile.during.len()).filter(|place| profile.during[*place] == peak) {
                let section = self.sections.at(place);
                if place.saturating_sub(MAX_UNITS).max(section.start) < changed {
                    continue;
                }
                let live = profile.before[section.start];
                self.steps = self.steps.saturating_sub(section.len() as u64);
                least =
                    least.max(least_during(self.model, &self.order, &section, live, self.order.units[place], memory));
                if least >= peak || self.steps == 0 {
                    return least;
                }
                match self.lower(memory, &profile, place, &section, limits) {
                    PeakAnswer::Lowered(places) => changed = places.end,
                    PeakAnswer::Proven => return peak,
                    PeakAnswer::Unknown => return least,
                }
            }
        }
    }

    /// Searches the windows around a peak until one of them lowers it.
    fn lower(
        &mut self,
        memory: MemoryId,
        profile: &LiveProfile,
        place: usize,
        section: &Range<usize>,
        limits: &[(MemoryId, u64)],
    ) -> PeakAnswer {
        let limit = profile.during[place];
        for window in windows(section, place) {
            let places = Window::new(self.model, &self.order, window.clone(), memory);
            let answer = places.search(profile.before[window.start], limit, WINDOW_STATES, self.steps);
            self.steps = self.steps.saturating_sub(answer.steps);
            match answer.order {
                None if answer.is_complete && window == *section && is_exact(self.model, &self.order, &window) => {
                    return PeakAnswer::Proven;
                }
                None => {}
                Some(units) => {
                    let before = self.order.units[window.clone()].to_vec();
                    self.order.replace(self.model, window.start, &units);
                    if limits.iter().all(|(other, limit)| *other == memory || self.peak(*other) <= *limit) {
                        return PeakAnswer::Lowered(window);
                    }
                    self.order.replace(self.model, window.start, &before);
                }
            }
        }
        PeakAnswer::Unknown
    }
}

/// Returns the windows to be searched around a peak: the whole section if it is small, else the units around the peak, those
/// before it and those after it.
fn windows(section: &Range<usize>, place: usize) -> Vec<Range<usize>> {
    if section.len() <= MAX_UNITS {
        return alloc::vec![section.clone()];
    }
    let mut windows: Vec<Range<usize>> = Vec::new();
    for (size, before) in [(MAX_UNITS, MAX_UNITS / 2), (MAX_UNITS, 56), (MAX_UNITS, 8), (32, 16), (16, 8)] {
        let start = place.saturating_sub(before).max(section.start).min(section.end - size);
        let window = start..start + size;
        if !windows.contains(&window) {
            windows.push(window);
        }
    }
    windows
}

/// Returns whether the search of a window decides as no other could: where a result might be written over sources of several
/// sizes, the planner takes the smallest that dies, and an order that frees fewer of them may save more.
fn is_exact(model: &OrderModel, order: &UnitOrder, window: &Range<usize>) -> bool {
    let one_size = |unit: &UnitId| {
        let savings = model.savings(*unit);
        savings.windows(2).all(|pair| pair[0].bytes == pair[1].bytes)
    };
    order.units[window.clone()].iter().all(one_size)
}
