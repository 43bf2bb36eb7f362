//! Greedy passes in randomised orders, where niche search does not apply or has ended.

use alloc::vec::Vec;

use crate::Problem;
use crate::best::SearchGoal;
use crate::fast::pack_each_buffer;
use crate::greedy::{GapFit, PassLimits, greedy};
use crate::items::ItemSet;
use crate::random::RandomGenerator;
use crate::search_budget::SearchBudget;
use crate::sections::Sections;
use crate::strategy::Solution;

/// How much noise changes the key of an item.
const NOISE: f64 = 1.5;

/// Runs randomised greedy passes until the goal is reached or the budget is spent. A pass counts as one node for each
/// item.
pub(crate) fn random_greedy(
    problem: &Problem,
    items: &ItemSet,
    first: Solution,
    goal: SearchGoal,
    budget: &mut SearchBudget<'_, '_>,
) -> Solution {
    let things = &items.items;
    let sections = Sections::new(things);
    let mut random = RandomGenerator::new(0x5348_5546);
    let mut best = first;
    let probes = 4_000_000 + 1000 * things.len() as u64;
    for pass in 0u32.. {
        budget.record_progress(best.peak, goal.bound);
        if best.peak <= goal.target_peak || budget.poll(0) {
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
        let fit = if pass % 2 == 0 { GapFit::First } else { GapFit::Best };
        let limits = PassLimits { buffer: problem.max_buffer().map(|limit| limit.0), peak: u64::MAX, probes };
        budget.count(things.len().max(1) as u64);
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
