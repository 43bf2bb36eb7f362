//! Placement of blocks that may overlap a source: greedy passes and depth-first searches that know the pairs' distances.
//!
//! The other strategies work on rectangles that must not overlap. Here an item is bound by its *clearance* to each item
//! that it meets (`clearances`), and two methods place items by it: one by one into the lowest gap (`first_fit`), and by
//! search within a capacity (`backtracking`). The second is made for what overlaps occur in: chains of operators, where
//! few blocks are alive together and each result is placed right below its source or at the other end of the buffer.
//!
//! Nothing here proves anything: a plan is optimal if it reaches the bound.

mod backtracking;
mod clearances;
mod first_fit;

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::greedy::GapFit;
use crate::items::ItemSet;
use crate::random::RandomGenerator;
use crate::search_budget::SearchBudget;
use crate::strategy::Solution;
use crate::{BufferId, Bytes, Id, Offset, Place, Problem, Step};
use backtracking::{Backtracking, SearchEnd, StartOrder};
use clearances::{Clearances, ClearedItem};
use first_fit::first_fit;

/// How many meetings of items all quick passes together may look at: some ten milliseconds.
const QUICK_EFFORT: u64 = 2_000_000;

/// Nodes of the first search at a capacity: some for each item, and these.
const NODES_PER_ITEM: u64 = 4;
const MORE_NODES: u64 = 256;

/// Quick passes halve the gap to the bound this often.
const QUICK_HALVINGS: u32 = 40;

/// The searches at the bound, by the index of their time order.
const AT_BOUND: [(usize, StartOrder); 6] = [
    (OUTWARD, StartOrder::Outer),
    (FORWARD, StartOrder::Outer),
    (BACKWARD, StartOrder::Outer),
    (OUTWARD, StartOrder::Low),
    (OUTWARD, StartOrder::High),
    (FORWARD, StartOrder::High),
];

/// Indices of the orders in time: from the fullest step to both ends, and from one end to the other.
const OUTWARD: usize = 0;
const FORWARD: usize = 1;
const BACKWARD: usize = 2;

/// Runs quick passes and returns the lowest solution, if any is below `best`; stops at the bound.
pub(crate) fn quick_overlap_passes(
    problem: &Problem,
    items: &ItemSet,
    bound: Bytes,
    fullest: Option<Step>,
    best: Option<Solution>,
) -> Option<Solution> {
    let Some(mut search) = OverlapSearch::new(problem, items, bound, fullest, best.clone()) else { return best };
    let mut left = QUICK_EFFORT;
    let degree = search.clearances.mean_degree() + 1;
    let mut spend = |nodes: u64, _: Option<Bytes>| {
        left = left.saturating_sub(nodes.saturating_mul(degree));
        left == 0
    };
    search.quick_passes(&mut spend);
    search.best
}

/// Searches for a lower solution until the bound (or the capacity, if that is the goal) is reached or the budget is spent.
pub(crate) fn search_overlaps(
    problem: &Problem,
    items: &ItemSet,
    target: Bytes,
    fullest: Option<Step>,
    first: Solution,
    budget: &mut SearchBudget<'_, '_>,
) -> Solution {
    let Some(mut search) = OverlapSearch::new(problem, items, target, fullest, Some(first.clone())) else {
        return first;
    };
    let mut spend = |nodes: u64, peak: Option<Bytes>| {
        budget.count(nodes);
        if let Some(peak) = peak {
            budget.record_progress(peak, Bytes::ZERO);
        }
        budget.poll(0)
    };
    search.search(&mut spend);
    search.best.unwrap_or(first)
}

/// Counts nodes, is told the lowest peak, and returns whether to stop.
type Spend<'a> = dyn FnMut(u64, Option<Bytes>) -> bool + 'a;

/// The items with the lowest solution so far.
struct OverlapSearch<'a> {
    problem: &'a Problem,
    items: &'a ItemSet,
    clearances: Clearances,
    /// The peak at which to stop.
    target: u64,
    /// The most bytes that a single buffer may have; 0 if one is not enough.
    room: u64,
    in_time: [Vec<u32>; 3],
    best: Option<Solution>,
}

impl<'a> OverlapSearch<'a> {
    /// Prepares a search. Returns `None` if too many items meet.
    fn new(
        problem: &'a Problem,
        items: &'a ItemSet,
        target: Bytes,
        fullest: Option<Step>,
        best: Option<Solution>,
    ) -> Option<Self> {
        let clearances = Clearances::new(problem, items)?;
        let largest = clearances.items.iter().map(|item| item.bytes).max().unwrap_or(0);
        let room = match problem.max_buffer() {
            _ if !clearances.pins_are_in_the_first_buffer() => 0,
            Some(limit) => limit.0.max(largest),
            None => u64::MAX,
        };
        let in_time = orders_in_time(&clearances.items, fullest.unwrap_or_default());
        Some(Self { problem, items, clearances, target: target.0, room, in_time, best })
    }

    fn best_peak(&self) -> u64 {
        self.best.as_ref().map_or(u64::MAX, |best| best.peak.0)
    }

    fn is_done(&self) -> bool {
        self.best_peak() <= self.target
    }

    fn adopt(&mut self, places: &[Place]) {
        let found = Solution::new(self.problem, self.items.placement(self.problem, places));
        if let Some(found) = found
            && found.peak.0 < self.best_peak()
        {
            self.best = Some(found);
        }
    }

    /// Runs greedy passes, then searches at the bound and at capacities above it.
    fn quick_passes(&mut self, spend: &mut Spend<'_>) {
        for (order, fit) in self.greedy_orders() {
            self.greedy_pass(&order, fit);
            if self.is_done() || (spend(self.clearances.len() as u64, None) && self.best.is_some()) {
                return;
            }
        }
        let nodes = self.nodes(1.0);
        for (order, starts) in AT_BOUND {
            if self.search_at(self.target, order, starts, nodes, spend) != CapacityAnswer::Open {
                return;
            }
        }
        self.halve_the_gap(QUICK_HALVINGS, &[(OUTWARD, StartOrder::Outer), (FORWARD, StartOrder::Outer)], nodes, spend);
    }

    /// Searches with growing limits and random orders until the target is reached or there is nothing left to spend.
    fn search(&mut self, spend: &mut Spend<'_>) {
        let mut random = RandomGenerator::new(0x4F56_4552);
        let mut greedy = self.area_ranks();
        let mut effort = 1.0;
        loop {
            let nodes = self.nodes(effort);
            for (order, starts) in AT_BOUND {
                let starts = if effort > 1.0 { StartOrder::Random(random.next()) } else { starts };
                if self.search_at(self.target, order, starts, nodes, spend) != CapacityAnswer::Open {
                    return;
                }
            }
            let starts = StartOrder::Random(random.next());
            let searches = [(OUTWARD, StartOrder::Outer), (OUTWARD, starts), (FORWARD, starts), (BACKWARD, starts)];
            if self.halve_the_gap(u64::BITS, &searches, nodes, spend) == CapacityAnswer::Stop {
                return;
            }
            for pass in 0..8u32 {
                self.shaken_greedy_pass(&mut greedy, &mut random, pass);
                let peak = self.best.as_ref().map(|best| best.peak);
                if self.is_done() || spend(self.clearances.len().max(1) as u64, peak) {
                    return;
                }
            }
            effort *= 1.5;
        }
    }

    /// Returns the nodes of one search.
    fn nodes(&self, effort: f64) -> u64 {
        ((NODES_PER_ITEM * self.clearances.len() as u64 + MORE_NODES) as f64 * effort) as u64
    }

    /// Searches for a solution in one buffer of this capacity.
    fn search_at(
        &mut self,
        capacity: u64,
        order: usize,
        starts: StartOrder,
        nodes: u64,
        spend: &mut Spend<'_>,
    ) -> CapacityAnswer {
        if capacity > self.room {
            return CapacityAnswer::Open;
        }
        let search = Backtracking::new(&self.clearances, &self.in_time[order]);
        let (end, visited) = search.search(capacity, starts, nodes);
        if let SearchEnd::Found(offsets) = end {
            let places: Vec<Place> = offsets.into_iter().map(|offset| Place::first(Offset(offset))).collect();
            self.adopt(&places);
        }
        let stop = spend(visited + 1, self.best.as_ref().map(|best| best.peak));
        match () {
            () if self.is_done() || stop => CapacityAnswer::Stop,
            () if self.best_peak() <= capacity => CapacityAnswer::Reached,
            () => CapacityAnswer::Open,
        }
    }

    /// Searches halfway between the target and the best peak, again and again. Where nothing is found, goes on above.
    fn halve_the_gap(
        &mut self,
        times: u32,
        searches: &[(usize, StartOrder)],
        nodes: u64,
        spend: &mut Spend<'_>,
    ) -> CapacityAnswer {
        let mut low = self.target;
        for _ in 0..times {
            let high = self.best_peak().min(self.room.saturating_add(1));
            if high <= low + 1 {
                break;
            }
            let middle = low + (high - low) / 2;
            let mut answer = CapacityAnswer::Open;
            for (order, starts) in searches {
                answer = self.search_at(middle, *order, *starts, nodes, spend);
                if answer != CapacityAnswer::Open {
                    break;
                }
            }
            match answer {
                CapacityAnswer::Stop => return CapacityAnswer::Stop,
                CapacityAnswer::Reached => {}
                CapacityAnswer::Open => low = middle,
            }
        }
        CapacityAnswer::Open
    }

    /// Places all items in one order, and packs each buffer again if there are several.
    fn greedy_pass(&mut self, order: &[u32], fit: GapFit) {
        let limit = self.problem.max_buffer().map(|limit| limit.0);
        let several = self.room < self.target || limit.is_some();
        let peak = if several { u64::MAX } else { self.best_peak() };
        let Some(mut places) = first_fit(&self.clearances, order, fit, limit, peak) else { return };
        self.adopt(&places);
        if !self.is_done() && places.iter().any(|place| place.buffer != BufferId::FIRST) {
            self.pack_each_buffer(&mut places);
            self.adopt(&places);
        }
    }

    /// Packs each buffer again. Every item stays in its buffer; a worse packing is discarded.
    fn pack_each_buffer(&self, places: &mut [Place]) {
        let buffers = places.iter().map(|place| place.buffer.index() + 1).max().unwrap_or(0);
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); buffers];
        for (item, place) in (0..).zip(places.iter()) {
            members[place.buffer.index()].push(item);
        }
        for members in members.iter().filter(|members| members.len() > 1) {
            let part = self.clearances.of_members(members);
            let offsets: Vec<u64> = members.iter().map(|item| places[*item as usize].offset.0).collect();
            let least = part.items.iter().map(|item| item.bytes).max().unwrap_or(0);
            let in_time = orders_in_time(&part.items, fullest_step(&part.items));
            let search = Backtracking::new(&part, &in_time[OUTWARD]);
            let nodes = NODES_PER_ITEM * part.len() as u64;
            let (mut low, mut high) = (least.saturating_sub(1), part.peak(&offsets));
            for _ in 0..QUICK_HALVINGS {
                if high <= low + 1 {
                    break;
                }
                let middle = low + (high - low) / 2;
                let (SearchEnd::Found(found), _) = search.search(middle, StartOrder::Outer, nodes) else {
                    low = middle;
                    continue;
                };
                high = part.peak(&found);
                for (item, offset) in members.iter().zip(found) {
                    places[*item as usize].offset = Offset(offset);
                }
            }
        }
    }

    fn greedy_orders(&self) -> [(Vec<u32>, GapFit); 6] {
        let items = &self.clearances.items;
        let length = |item: &ClearedItem| item.end.0 - item.start.0;
        let area = |item: &ClearedItem| u128::from(item.bytes) * u128::from(length(item));
        let by_size = sorted(items, |item| Reverse((item.bytes, length(item))));
        let by_area = sorted(items, |item| Reverse(area(item)));
        let by_length = sorted(items, |item| Reverse((length(item), item.bytes)));
        [
            (by_size.clone(), GapFit::First),
            (self.in_time[OUTWARD].clone(), GapFit::First),
            (by_length, GapFit::Best),
            (by_area, GapFit::First),
            (by_size, GapFit::Best),
            (self.in_time[FORWARD].clone(), GapFit::Best),
        ]
    }

    /// Returns a rank for each item, the lowest for the first to place: that of its area.
    fn area_ranks(&self) -> Vec<f64> {
        let area = |item: &ClearedItem| u128::from(item.bytes) * u128::from(item.end.0 - item.start.0);
        let order = sorted(&self.clearances.items, |item| Reverse(area(item)));
        let mut ranks = vec![0.0; order.len()];
        for (rank, item) in order.into_iter().enumerate() {
            ranks[item as usize] = rank as f64;
        }
        ranks
    }

    /// Runs a greedy pass in the order of ranks with noise, then lowers the ranks of the items that end above the target
    /// (Joslin, Clements, "Squeaky wheel optimization", 1999).
    fn shaken_greedy_pass(&mut self, ranks: &mut [f64], random: &mut RandomGenerator, pass: u32) {
        let count = ranks.len() as f64;
        let noise = if pass.is_multiple_of(2) { 0.0 } else { count / 4.0 };
        let shaken = ranks.iter().map(|rank| rank + noise * random.fraction());
        let mut order: Vec<(f64, u32)> = shaken.zip(0..).collect();
        order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let order: Vec<u32> = order.into_iter().map(|(_, item)| item).collect();
        let fit = if pass % 4 < 2 { GapFit::First } else { GapFit::Best };
        let limit = self.problem.max_buffer().map(|limit| limit.0);
        let Some(places) = first_fit(&self.clearances, &order, fit, limit, u64::MAX) else { return };
        for ((place, item), rank) in places.iter().zip(&self.clearances.items).zip(ranks) {
            if place.offset.0 + item.bytes > self.target {
                *rank -= (0.1 + 0.4 * random.fraction()) * count;
            }
        }
        self.adopt(&places);
    }
}

/// The answer of a search at a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CapacityAnswer {
    /// Nothing was found.
    Open,
    /// The best peak is now within the capacity.
    Reached,
    /// The target is reached, or there is nothing left to spend.
    Stop,
}

/// Returns the orders in time: outward from a step, forward and backward.
fn orders_in_time(items: &[ClearedItem], fullest: Step) -> [Vec<u32>; 3] {
    let outward = sorted(items, |item| {
        let forward = (1, item.start.0, Reverse(item.bytes));
        match () {
            () if item.end <= fullest => (2, u64::MAX - item.end.0, Reverse(item.bytes)),
            () if fullest < item.start => forward,
            () => (0, 0, Reverse(item.bytes)),
        }
    });
    let forward = sorted(items, |item| (item.start, Reverse(item.bytes)));
    let backward = sorted(items, |item| (Reverse(item.end), Reverse(item.bytes)));
    [outward, forward, backward]
}

/// Returns the first step at which items of most bytes are alive.
fn fullest_step(items: &[ClearedItem]) -> Step {
    let births = sorted(items, |item| item.start);
    let mut deaths = sorted(items, |item| item.end).into_iter().peekable();
    let (mut live, mut most, mut step) = (0u64, 0u64, Step(0));
    for born in births {
        let item = &items[born as usize];
        while let Some(dead) = deaths.next_if(|dead| items[*dead as usize].end <= item.start) {
            live -= items[dead as usize].bytes;
        }
        live += item.bytes;
        if live > most {
            (most, step) = (live, item.start);
        }
    }
    step
}

/// Returns the items in the order of a key, and of their indices where keys are equal.
fn sorted<K: Ord>(items: &[ClearedItem], key: impl Fn(&ClearedItem) -> K) -> Vec<u32> {
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    order.sort_by_key(|item| key(&items[*item as usize]));
    order
}
