//! One memory in, one proven plan out, with what the strategy knows of it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use steeve_plan::{
    Bound, Bytes, Outcome, PlaceError, Plan, Problem, Progress, Strategy, Verdict, certify, place_watched,
};

use crate::error::Error;
use crate::explain::{self, Name};
use crate::input::Memory;

/// A plan and what is known of it.
#[derive(Debug)]
pub(crate) struct Solved {
    /// Proven; but where the verdict says that it does not fit, it passes the capacity.
    pub(crate) plan: Plan,
    pub(crate) verdict: Verdict,
    /// No plan is smaller than this.
    pub(crate) at_least: Bytes,
    /// What placing took; the proof is not counted.
    pub(crate) time: Duration,
    bound: Bound,
}

impl Solved {
    pub(crate) fn is_optimal(&self) -> bool {
        self.plan.peak() == self.at_least
    }

    /// Why it does not fit and what to do about it; `None` where it fits.
    pub(crate) fn refusal(&self, memory: &Memory, strategy: &Strategy) -> Option<String> {
        let capacity = memory.problem.capacity()?;
        let (peak, at_least, bound) = (self.plan.peak(), self.at_least, self.bound);
        match self.verdict {
            Verdict::CannotFit => {
                let why = PlaceError::CannotFit { capacity, bound, at_least };
                let largest = largest_alive(memory, bound);
                Some(format!("{why}{largest}; raise --capacity to {at_least} or more"))
            }
            Verdict::NotFound => {
                let why = PlaceError::NotFound { capacity, peak, at_least };
                let search = match strategy {
                    Strategy::Best(_) => "give the search a larger --budget",
                    _ => "search with --strategy best",
                };
                Some(format!("{why}; {search}, or raise --capacity to {peak}"))
            }
            _ => None,
        }
    }
}

/// Places the blocks of a memory and proves the result.
pub(crate) fn solve(
    file: &str,
    memory: &Memory,
    strategy: &Strategy,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Solved, Error> {
    let start = Instant::now();
    let placed = place_watched(&memory.problem, strategy, watch);
    let time = start.elapsed();
    let Outcome { placement, verdict, bound, at_least, .. } = placed.map_err(|error| no_place(file, memory, error))?;
    let problem = if verdict.fits() { memory.problem.clone() } else { without_capacity(&memory.problem) };
    match certify(problem, placement) {
        Ok(plan) => Ok(Solved { plan, verdict, at_least, time, bound }),
        Err(wrong) => unreachable!("the strategy {strategy} made a wrong placement of {file}: {wrong}"),
    }
}

fn no_place(file: &str, memory: &Memory, error: PlaceError) -> Error {
    let file = file.to_owned();
    match error {
        PlaceError::Pinned(wrong) => Error::Pinned { file, why: explain::violations(&wrong, &memory.ids) },
        PlaceError::AddressSpace => Error::AddressSpace { file },
        other => Error::Place { file, why: other.to_string() },
    }
}

/// A plan above the capacity is still worth its figures.
fn without_capacity(problem: &Problem) -> Problem {
    let free = Problem::new(problem.blocks().clone());
    match (free, problem.max_buffer()) {
        (Ok(free), Some(limit)) => free.with_max_buffer(limit),
        (Ok(free), None) => free,
        (Err(error), _) => unreachable!("the blocks of a problem are a problem: {error}"),
    }
}

/// The blocks to look at first when there is too much at one step.
fn largest_alive(memory: &Memory, bound: Bound) -> String {
    const SHOWN: usize = 3;
    let Some(step) = bound.step else { return String::new() };
    let blocks = memory.problem.blocks();
    let mut alive = memory.problem.alive_at(step);
    alive.sort_by_key(|id| (std::cmp::Reverse(blocks[*id].size), *id));
    let name = |id| format!("{} ({})", Name(&memory.ids, id), blocks[id].size);
    let names: Vec<String> = alive.into_iter().take(SHOWN).map(name).collect();
    if names.is_empty() { String::new() } else { format!(" (the largest at step {step}: {})", names.join(", ")) }
}
