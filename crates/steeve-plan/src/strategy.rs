//! Runs a strategy on a problem: returns a placement and a verdict, and reports progress.

use alloc::vec::Vec;
use core::fmt;
use core::ops::ControlFlow;

use crate::best::{self, Best};
use crate::best_fit::{PassEffort, best_fit};
use crate::bound::{lower_bound, occupied};
use crate::fast::{fast, fast_with_overlaps};
use crate::items::ItemSet;
use crate::problem::heads;
use crate::{
    Block, BlockId, Bound, BoundReason, Bytes, Id, IdVec, Place, Placement, Plan, Problem, Violations, certify,
};

/// How blocks are placed. All strategies are deterministic (with a time budget, as far as time is).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Blocks in the order of their births, each where ggml's free list puts it.
    BestFit,
    /// Several quick passes and the best of them: the default.
    #[default]
    Fast,
    /// [`Strategy::Fast`], then a search with a budget.
    Best(Best),
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestFit => "best-fit",
            Self::Fast => "fast",
            Self::Best(_) => "best",
        })
    }
}

/// The result of a strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceOutcome {
    /// The best placement found, even where it passes the problem's capacity.
    pub placement: Placement,
    /// The sum of its buffers' sizes.
    pub peak: Bytes,
    /// How good it is, and how that is known.
    pub verdict: Verdict,
    /// The lower bound of the problem.
    pub bound: Bound,
    /// No plan is smaller than this: the bound, or more where a search has refuted it.
    pub at_least: Bytes,
    /// The nodes that the search visited; 0 where none ran.
    pub nodes: u64,
}

/// What is known of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It fits, and no plan is smaller.
    Optimal,
    /// It fits; whether a smaller plan exists is open.
    Fits,
    /// No plan fits into the capacity: proved.
    CannotFit,
    /// It does not fit into the capacity; whether a plan exists that does is open.
    NotFound,
}

impl Verdict {
    /// Returns whether the placement fits.
    pub fn fits(self) -> bool {
        matches!(self, Self::Optimal | Self::Fits)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Optimal => "optimal",
            Self::Fits => "fits",
            Self::CannotFit => "cannot fit",
            Self::NotFound => "not found",
        })
    }
}

/// The progress of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// The nodes visited so far.
    pub nodes: u64,
    /// The smallest peak so far.
    pub peak: Bytes,
    /// No plan is smaller than this.
    pub at_least: Bytes,
}

/// Why blocks can't be placed at all, or not within their limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The pinned blocks are inconsistent: they share bytes, or exceed the limit of a buffer.
    #[error("pinned blocks: inconsistent")]
    Pinned(#[source] Violations),
    /// Not even a buffer per block stays within the address space.
    #[error("blocks: address space exceeded: they can't be placed within 2^64 bytes")]
    AddressSpace,
    /// No plan fits into the capacity: proved.
    #[error("capacity: too small: {}, got {capacity}", CapacityShortfall(*at_least, *bound))]
    CannotFit {
        /// The capacity.
        capacity: Bytes,
        /// The lower bound and where it comes from.
        bound: Bound,
        /// No plan is smaller than this.
        at_least: Bytes,
    },
    /// No plan was found that fits; one may exist.
    #[error("capacity: no plan found: at best {peak} bytes, at least {at_least} needed, got {capacity}")]
    NotFound {
        /// The capacity.
        capacity: Bytes,
        /// The smallest peak found.
        peak: Bytes,
        /// No plan is smaller than this.
        at_least: Bytes,
    },
}

/// How many bytes are needed at least, and why, as part of a message.
struct CapacityShortfall(Bytes, Bound);

impl fmt::Display for CapacityShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(at_least, bound) = self;
        write!(f, "at least {at_least} bytes needed ")?;
        match (bound.reason, bound.step) {
            _ if *at_least > bound.bytes => f.write_str("(proved by the search)"),
            (BoundReason::Live, Some(step)) => write!(f, "(alive at step {step})"),
            (BoundReason::Overlaps, _) => f.write_str("(along a chain of blocks that overlap)"),
            (BoundReason::Pinned, _) => f.write_str("(a pinned block ends there)"),
            _ => f.write_str("(because of the limit on a buffer)"),
        }
    }
}

/// Finds a place for each block. The outcome says how good it is; the placement is not yet certified. Fails if the
/// pinned blocks are inconsistent or the address space is too small.
///
/// ```
/// use steeve_plan::{Block, Bytes, Lifetime, Problem, Strategy, Verdict, place};
/// let problem = Problem::new(vec![
///     Block::new(Bytes(4), Lifetime::new(0, 2)?),
///     Block::new(Bytes(4), Lifetime::new(1, 3)?),
///     Block::new(Bytes(4), Lifetime::new(2, 4)?),
/// ])?;
/// let outcome = place(&problem, &Strategy::Fast)?;
/// assert_eq!((outcome.peak, outcome.verdict), (Bytes(8), Verdict::Optimal));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn place(problem: &Problem, strategy: &Strategy) -> Result<PlaceOutcome, PlaceError> {
    place_watched(problem, strategy, &mut |_| ControlFlow::Continue(()))
}

/// Finds a place for each block, as [`place`] does, and reports progress. `watch` is called now and then; `Break` ends
/// the search, and the best placement so far is the outcome.
pub fn place_watched(
    problem: &Problem,
    strategy: &Strategy,
    watch: &mut (dyn FnMut(&SearchProgress) -> ControlFlow<()> + '_),
) -> Result<PlaceOutcome, PlaceError> {
    #[cfg(feature = "fuzz")]
    crate::fuzz::count_strategy_run();
    let items = ItemSet::new(problem);
    if items.has_pins() {
        check_pins(problem)?;
    }
    let bound = lower_bound(problem);
    let first = match strategy {
        Strategy::BestFit => {
            let placement = best_fit(problem, &items, None, PassEffort::Unlimited);
            placement.and_then(|placement| Solution::new(problem, placement))
        }
        Strategy::Fast | Strategy::Best(_) if problem.has_overlaps() => fast_with_overlaps(problem, &items, bound),
        Strategy::Fast | Strategy::Best(_) => fast(problem, &items, bound.bytes),
    };
    let first = first.ok_or(PlaceError::AddressSpace)?;
    let (solution, at_least, nodes) = match strategy {
        Strategy::Best(settings) => {
            let found = best::search(problem, &items, bound, first, settings, watch);
            (found.solution, found.at_least, found.nodes)
        }
        _ => (first, bound.bytes, 0),
    };
    let Solution { placement, peak } = solution;
    Ok(PlaceOutcome { verdict: verdict(problem, peak, at_least), placement, peak, bound, at_least, nodes })
}

/// Places the blocks and certifies the result. Fails if no plan fits the capacity, or none was found that does.
///
/// ```
/// use steeve_plan::{Block, Bytes, Lifetime, Problem, Strategy, plan};
/// let problem = Problem::new(vec![
///     Block::new(Bytes(4), Lifetime::new(0, 2)?),
///     Block::new(Bytes(6), Lifetime::new(1, 3)?),
/// ])?;
/// let plan = plan(problem.clone(), &Strategy::Fast)?;
/// assert!(plan.is_optimal());
/// let error = steeve_plan::plan(problem.with_capacity(Bytes(8)), &Strategy::Fast).unwrap_err();
/// assert_eq!(error.to_string(), "capacity: too small: at least 10 bytes needed (alive at step 1), got 8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Only if a strategy made a wrong placement, which is a bug of this crate.
pub fn plan(problem: Problem, strategy: &Strategy) -> Result<Plan, PlaceError> {
    let outcome = place(&problem, strategy)?;
    let (bound, at_least, peak) = (outcome.bound, outcome.at_least, outcome.peak);
    match (problem.capacity(), outcome.verdict) {
        (Some(capacity), Verdict::CannotFit) => {
            return Err(PlaceError::CannotFit { capacity, bound, at_least });
        }
        (Some(capacity), Verdict::NotFound) => {
            return Err(PlaceError::NotFound { capacity, peak, at_least });
        }
        _ => {}
    }
    match certify(problem, outcome.placement) {
        Ok(plan) => Ok(plan),
        Err(wrong) => unreachable!("a strategy made a wrong placement: {wrong}"),
    }
}

/// A placement with its peak, between the stages.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    pub(crate) placement: Placement,
    pub(crate) peak: Bytes,
}

impl Solution {
    /// Creates a solution. Returns `None` if the buffers' sizes exceed 2^64 - 1 together.
    pub(crate) fn new(problem: &Problem, placement: Placement) -> Option<Self> {
        peak_of(problem, &placement).map(|peak| Self { placement, peak })
    }
}

/// Returns the sum of the buffers' sizes, or `None` beyond 2^64 - 1.
fn peak_of(problem: &Problem, placement: &Placement) -> Option<Bytes> {
    let mut sizes: Vec<u64> = Vec::new();
    for (block, place) in problem.blocks().iter().zip(&placement.places) {
        let buffer = place.buffer.index();
        if buffer >= sizes.len() {
            sizes.resize(buffer + 1, 0);
        }
        let bytes = occupied(block);
        if bytes > 0 {
            sizes[buffer] = sizes[buffer].max(place.offset.0 + bytes);
        }
    }
    sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size)).map(Bytes)
}

fn verdict(problem: &Problem, peak: Bytes, at_least: Bytes) -> Verdict {
    match problem.capacity() {
        Some(capacity) if peak > capacity && at_least > capacity => Verdict::CannotFit,
        Some(capacity) if peak > capacity => Verdict::NotFound,
        _ if peak == at_least => Verdict::Optimal,
        _ => Verdict::Fits,
    }
}

/// Checks the pinned blocks alone, by certifying a problem in which all others need no bytes.
fn check_pins(problem: &Problem) -> Result<(), PlaceError> {
    let heads = heads(problem.blocks());
    let alone = |(id, block): (BlockId, &Block)| match problem.blocks()[heads[id]].pinned {
        Some(place) => Block { follows: None, ..*block }.pinned_at(place),
        None => Block::new(Bytes::ZERO, block.life),
    };
    let blocks: IdVec<BlockId, Block> = problem.blocks().pairs().map(alone).collect();
    let places = blocks.iter().map(|block| block.pinned.unwrap_or(Place::ORIGIN));
    let placement = Placement::new(places.collect::<IdVec<_, _>>());
    let Ok(mut pinned) = Problem::new(blocks) else {
        return Err(PlaceError::AddressSpace);
    };
    if let Some(limit) = problem.max_buffer() {
        pinned = pinned.with_max_buffer(limit);
    }
    certify(pinned, placement).map_err(PlaceError::Pinned).map(|_| ())
}
