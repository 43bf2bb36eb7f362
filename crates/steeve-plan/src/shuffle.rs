//! Greedy passes in orders with chance in them, where niche search does not apply or has nothing more to say.

use alloc::vec::Vec;

use crate::Problem;
use crate::best::Goal;
use crate::fast::pack_each_buffer;
use crate::greedy::{Fit, Limits, greedy};
use crate::items::Items;
use crate::meter::Meter;
use crate::random::Random;
use crate::sections::Sections;
use crate::strategy::Solution;

/// How much chance moves an item in the order.
const NOISE: f64 = 1.5;

/// Ends at the goal, or when the budget is spent. A pass counts as one node for each item.
pub(crate) fn shuffle(
    problem: &Problem,
    items: &Items,
    first: Solution,
    goal: Goal,
    meter: &mut Meter<'_, '_>,
) -> Solution {
    let things = &items.items;
    let sections = Sections::new(things);
    let mut random = Random::new(0x5348_5546);
    let mut best = first;
    let looks = 4_000_000 + 1000 * things.len() as u64;
    for pass in 0u32.. {
        meter.note(best.peak, goal.bound);
        if best.peak <= goal.enough || meter.tell(0) {
            break;
        }
        let favour = |item: usize| {
            let length = f64::from(sections.hi[item] - sections.lo[item]);
            let bytes = things[item].bytes as f64;
            match pass % 3 {
                0 => bytes,
                1 => bytes * length,
                _ => length,
            }
        };
        let rank = |item: u32| (favour(item as usize) * (1.0 + NOISE * random.fraction()), item);
        let mut ranks: Vec<(f64, u32)> = (0..things.len() as u32).map(rank).collect();
        ranks.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let order: Vec<u32> = ranks.into_iter().map(|(_, item)| item).collect();
        let fit = if pass % 2 == 0 { Fit::First } else { Fit::Best };
        let limits = Limits { buffer: problem.max_buffer().map(|limit| limit.0), peak: u64::MAX, looks };
        meter.count(things.len().max(1) as u64);
        let Some(mut places) = greedy(things, &sections, &order, fit, limits) else { continue };
        pack_each_buffer(things, &mut places);
        if let Some(found) = Solution::new(problem, items.placement(problem, &places))
            && found.peak < best.peak
        {
            best = found;
        }
    }
    best
}
