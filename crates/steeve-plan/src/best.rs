//! The strategy with a budget: what `Fast` found, then niche search for something smaller.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use crate::items::{Item, Items};
use crate::niche::{Answer, NicheSearch};
use crate::packing::Packing;
use crate::strategy::{Progress, Solution};
use crate::{Bytes, Offset, Place, Problem};

/// How long to search, and with how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// When to stop.
    pub budget: Budget,
    /// How many threads may work. The result does not depend on it.
    pub threads: usize,
}
impl Default for Best {
    fn default() -> Self {
        Self { budget: Budget::Nodes(1000000), threads: 1 }
    }
}
/// What a search may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// So many nodes of the search tree.
    Nodes(u64),
    /// So much time.
    #[cfg(feature = "std")]
    Time(core::time::Duration),
}
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
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Found {
    let packing = Packing::new(&items.items);
    let target = problem.capacity().unwrap_or(bound).0;
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut search = NicheSearch::new(&packing, target, seed).unwrap();
    let Budget::Nodes(budget) = settings.budget else { panic!() };
    let mut limit = 2.0 * packing.len() as f64;
    let mut nodes = 0;
    let grow: f64 = std::env::var("GROW").ok().and_then(|s| s.parse().ok()).unwrap_or(1.05);
    let mut walks = 0;
    while nodes < budget {
        let (answer, visited) = search.walk(limit as u64, &mut |_| false);
        nodes += visited;
        walks += 1;
        match answer {
            Answer::Found(off) => {
                let peak = packing.peak(&off);
                let places: Vec<Place> = off.iter().map(|o| Place::first(Offset(*o))).collect();
                if std::env::var("V").is_ok() {
                    std::eprintln!("walks {walks}");
                }
                return Found {
                    solution: Solution { placement: items.placement(problem, &places), peak: Bytes(peak) },
                    at_least: bound,
                    nodes,
                };
            }
            Answer::Refuted => {
                return Found { solution: first, at_least: Bytes(target + 1), nodes };
            }
            Answer::Open => {}
        }
        if walks % 5 == 0 {
            limit *= grow;
        }
    }
    let _ = watch;
    Found { solution: first, at_least: bound, nodes }
}
