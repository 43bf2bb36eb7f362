//! One block list in, one proven plan out, with what the strategy knows of it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use steeve_plan::{
    Bound, Bytes, PlaceError, PlaceOutcome, Plan, SearchProgress, Strategy, Verdict, certify, place_watched,
};

use crate::block_list::BlockList;
use crate::error::{Error, ErrorChain};
use crate::fault_text::{self, BlockName};
use crate::plan_figures::{EnginePlanner, MemoryFigures, ONLY_MEMORY, PlanFigures};

/// A plan and what is known of it.
#[derive(Debug)]
pub(crate) struct SolvedBlocks {
    /// Proven; but where the verdict says that it does not fit, it passes the capacity.
    pub(crate) plan: Plan,
    pub(crate) verdict: Verdict,
    /// No plan is smaller than this.
    pub(crate) at_least: Bytes,
    /// What placing took; the proof is not counted.
    pub(crate) time: Duration,
    bound: Bound,
}

impl SolvedBlocks {
    /// Returns the figures of the plan.
    pub(crate) fn figures(&self, strategy: &Strategy) -> PlanFigures {
        let memory = MemoryFigures {
            name: ONLY_MEMORY.to_owned(),
            blocks: self.plan.places().len(),
            peak: self.plan.peak(),
            at_least: self.at_least,
            verdict: self.verdict,
            chunks: self.plan.buffers().as_slice().to_vec(),
            engine: None,
        };
        PlanFigures {
            model: None,
            strategy: strategy_name(strategy),
            engine: EnginePlanner::default(),
            reuse: None,
            unread: None,
            moved: None,
            time: self.time,
            memories: vec![memory],
        }
    }

    /// Describes why the plan does not fit and what to do about it; `None` if it fits.
    pub(crate) fn capacity_error(&self, list: &BlockList, strategy: &Strategy) -> Option<String> {
        let capacity = list.problem.capacity()?;
        let (peak, at_least, bound) = (self.plan.peak(), self.at_least, self.bound);
        match self.verdict {
            Verdict::CannotFit => {
                let why = PlaceError::CannotFit { capacity, bound, at_least };
                let largest = largest_live_phrase(list, bound);
                Some(format!("{why}{largest}; raise --capacity to {at_least}"))
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

/// Returns the name of a strategy on the command line.
fn strategy_name(strategy: &Strategy) -> &'static str {
    match strategy {
        Strategy::BestFit => "best-fit",
        Strategy::Best(_) => "best",
        _ => "fast",
    }
}

/// Places the blocks of a list and proves the result.
pub(crate) fn solve_blocks(
    list: &BlockList,
    strategy: &Strategy,
    watch: &mut dyn FnMut(&SearchProgress) -> ControlFlow<()>,
) -> Result<SolvedBlocks, Error> {
    let start = Instant::now();
    let placed = place_watched(&list.problem, strategy, watch);
    let time = start.elapsed();
    let PlaceOutcome { placement, verdict, bound, at_least, .. } =
        placed.map_err(|error| placement_error(list, error))?;
    let problem = if verdict.fits() { list.problem.clone() } else { list.problem.clone().without_capacity() };
    match certify(problem, placement) {
        Ok(plan) => Ok(SolvedBlocks { plan, verdict, at_least, time, bound }),
        Err(wrong) => unreachable!("the strategy {strategy} made a wrong placement of {}: {wrong}", list.file),
    }
}

fn placement_error(list: &BlockList, error: PlaceError) -> Error {
    let file = list.file.clone();
    match error {
        PlaceError::Pinned(wrong) => Error::Pinned { file, why: fault_text::violations(&wrong, &list.ids) },
        PlaceError::AddressSpace => Error::AddressSpace { file },
        other => Error::Place { file, why: ErrorChain(&other).to_string() },
    }
}

/// Names the largest blocks that are alive at the step of the bound.
fn largest_live_phrase(list: &BlockList, bound: Bound) -> String {
    const SHOWN: usize = 3;
    let Some(step) = bound.step else { return String::new() };
    let blocks = list.problem.blocks();
    let mut alive = list.problem.alive_at(step);
    alive.sort_by_key(|id| (std::cmp::Reverse(blocks[*id].size), *id));
    let name = |id| format!("{} ({})", BlockName(&list.ids, id), blocks[id].size);
    let names: Vec<String> = alive.into_iter().take(SHOWN).map(name).collect();
    if names.is_empty() { String::new() } else { format!(" (the largest at step {step}: {})", names.join(", ")) }
}
