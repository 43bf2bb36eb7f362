//! Problems from bytes, and the bodies of the fuzz targets. The tests run them as well; nothing else should.
//!
//! A body takes any bytes and panics where a law is broken, which is what a fuzzer looks for.

#![allow(clippy::panic, clippy::expect_used)]

use core::ops::ControlFlow;
use std::string::String;
use std::vec::Vec;

use crate::random::RandomGenerator;
use crate::{
    Align, Best, Block, BlockId, Budget, BufferId, Bytes, FreeList, Id, Lifetime, Offset, Overlap, Place, PlaceError,
    Placement, Problem, ProblemError, SearchProgress, Strategy, certify, csv, lower_bound, place, place_watched, plan,
};

/// Returns how many inputs each fuzz body gets in a test: the environment variable `STEEVE_FUZZ`, else `default`.
///
/// # Panics
/// If `STEEVE_FUZZ` is set and no count: a run with fewer inputs than asked for must not look like a long one.
pub fn inputs(default: u32) -> u32 {
    let Some(text) = std::env::var_os("STEEVE_FUZZ") else { return default };
    let count = text.to_str().and_then(|text| text.replace('_', "").parse().ok());
    count.unwrap_or_else(|| panic!("STEEVE_FUZZ: not a count: expected a number such as 1000000, got {text:?}"))
}

/// Random choices decided by bytes: each roll takes the next byte, and 0 after the last.
#[derive(Clone, Debug)]
pub struct ByteDice<'a> {
    bytes: core::slice::Iter<'a, u8>,
}

impl<'a> ByteDice<'a> {
    /// Creates dice that roll these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter() }
    }

    /// Returns a number below `sides`, which must not be 0.
    pub fn roll(&mut self, sides: u64) -> u64 {
        u64::from(self.bytes.next().copied().unwrap_or(0)) % sides
    }

    /// Returns true once in `sides` times.
    pub fn once_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 1
    }
}

/// Returns pseudo-random bytes, the same for the same seed.
pub fn pseudo_random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = RandomGenerator::new(seed.wrapping_add(1));
    (0..length).map(|_| (random.next() >> 56) as u8).collect()
}

/// What a random problem may have in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemShape {
    /// At most this many blocks.
    pub blocks: u64,
    /// Steps begin below this.
    pub steps: u64,
    /// Sizes are below this.
    pub size: u64,
    /// Whether blocks have alignments, and which.
    pub alignments: AlignmentMix,
    /// What else.
    pub extras: ProblemFeatures,
}

/// The alignments of a random problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignmentMix {
    /// All 1.
    None,
    /// All 8.
    Common,
    /// From 1 to 32.
    Mixed,
}

/// What a random problem has beside plain blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemFeatures {
    /// Nothing.
    Plain,
    /// Blocks that take over others.
    Followers,
    /// Pinned blocks.
    Pins,
    /// A limit on the size of a buffer.
    Limit,
    /// Blocks that overlap a source that dies as they are born.
    Overlaps,
    /// All of it.
    All,
}

std::thread_local! {
    static RUNS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns how many strategies this thread has run so far: a test that says "without planning" counts them.
pub fn runs() -> u64 {
    RUNS.get()
}

pub(crate) fn count_strategy_run() {
    RUNS.set(RUNS.get() + 1);
}

/// Returns a small problem of any shape, decided by the dice.
pub fn problem(dice: &mut ByteDice<'_>) -> Problem {
    let alignments = [AlignmentMix::None, AlignmentMix::Common, AlignmentMix::Mixed][dice.roll(3) as usize];
    let extras = [
        ProblemFeatures::Plain,
        ProblemFeatures::Followers,
        ProblemFeatures::Pins,
        ProblemFeatures::Limit,
        ProblemFeatures::Overlaps,
        ProblemFeatures::All,
    ][dice.roll(6) as usize];
    let blocks = [8, 24, 60][dice.roll(3) as usize];
    let size = [4, 40, 250][dice.roll(3) as usize];
    problem_of_shape(dice, ProblemShape { blocks, steps: 20, size, alignments, extras })
}

/// Returns a problem of a given shape, decided by the dice.
pub fn problem_of_shape(dice: &mut ByteDice<'_>, shape: ProblemShape) -> Problem {
    let has = |extra| shape.extras == extra || shape.extras == ProblemFeatures::All;
    let count = dice.roll(shape.blocks + 1);
    let mut blocks: Vec<Block> = Vec::new();
    let mut followed: Vec<bool> = Vec::new();
    for _ in 0..count {
        let mut start = dice.roll(shape.steps);
        let length = 1 + dice.roll(shape.steps / 2 + 1);
        let mut size = dice.roll(shape.size);
        let align = match shape.alignments {
            AlignmentMix::None => 1,
            AlignmentMix::Common => 8,
            AlignmentMix::Mixed => 1 << dice.roll(6),
        };
        let mut follows = None;
        if has(ProblemFeatures::Followers) && dice.once_in(3) && !blocks.is_empty() {
            let before = dice.roll(blocks.len() as u64) as usize;
            if !followed[before] {
                followed[before] = true;
                start = blocks[before].life.end().0;
                size = blocks[before].size.0.saturating_sub(if dice.once_in(2) { dice.roll(9) } else { 0 });
                follows = BlockId::from_index(before);
            }
        }
        let mut overlaps = None;
        if has(ProblemFeatures::Overlaps) && follows.is_none() && dice.roll(3) > 0 && !blocks.is_empty() {
            let source = dice.roll(blocks.len() as u64) as usize;
            let life = blocks[source].life;
            if !followed[source] && life.end().0 - life.start().0 > 1 {
                // What is overlapped is not followed, and the other way round.
                followed[source] = true;
                start = life.end().0 - 1;
                let distance = Bytes([0, 1, dice.roll(12), dice.roll(shape.size)][dice.roll(4) as usize]);
                overlaps = BlockId::from_index(source).map(|source| Overlap { source, distance });
            }
        }
        let life = Lifetime::new(start, start + length).expect("not empty");
        let mut block = Block::new(Bytes(size), life).aligned(Align::new(align).expect("a power of two"));
        (block.follows, block.overlaps) = (follows, overlaps);
        if has(ProblemFeatures::Pins) && follows.is_none() && dice.once_in(4) {
            let buffer = BufferId::from_index(usize::from(has(ProblemFeatures::Limit) && dice.once_in(3)));
            let offset = Offset(dice.roll(12) * 8 * align);
            block.pinned = buffer.map(|buffer| Place { buffer, offset });
        }
        blocks.push(block);
        followed.push(false);
    }
    let problem = match Problem::new(blocks.clone()) {
        Ok(problem) => problem,
        // A follower may ask for more alignment than its chain's pin has, or a pin for more buffers than blocks fill.
        Err(_) => {
            let free = |block: &Block| Block { pinned: None, ..*block };
            Problem::new(blocks.iter().map(free).collect::<Vec<_>>()).expect("only pins can be wrong")
        }
    };
    if has(ProblemFeatures::Limit) {
        let limit = 1 + dice.roll(2 * shape.size);
        return problem.with_max_buffer(Bytes(limit));
    }
    problem
}

/// Returns a few blocks with some of their numbers from the ends of their ranges: alignments up to 2^63, sizes, steps,
/// pins and limits near 0, 2^32, 2^63 and 2^64. Most of these problems are rejected, which is as good a test as a plan.
pub fn problem_of_extremes(dice: &mut ByteDice<'_>) -> Result<Problem, ProblemError> {
    // How often a number is an extreme one. Where all are, the first few blocks fill the address space.
    let rarity = [1, 3, 9, 30][dice.roll(4) as usize];
    let most = [3, 6, 16][dice.roll(3) as usize];
    let count = 1 + dice.roll(most);
    let mut blocks: Vec<Block> = Vec::new();
    let mut followed: Vec<bool> = Vec::new();
    for _ in 0..count {
        let size = or_extreme(dice, rarity, 250);
        let align = if dice.roll(rarity) == 0 { 1u64 << dice.roll(64) } else { 1 << dice.roll(6) };
        let start = or_extreme(dice, rarity, 12).min(u64::MAX - 1);
        let end = start.saturating_add(1).saturating_add(or_extreme(dice, rarity, 7));
        let align = Align::new(align).expect("a power of two");
        let mut block = Block::new(Bytes(size), Lifetime::new(start, end).expect("not empty")).aligned(align);
        if dice.once_in(4) && !blocks.is_empty() {
            let before = dice.roll(blocks.len() as u64) as usize;
            let (first, born) = (blocks[before].life.end(), blocks[before].life.end().0);
            if !followed[before]
                && let Ok(life) = Lifetime::new(first, born.saturating_add(1 + dice.roll(6)))
            {
                followed[before] = true;
                block.size = block.size.min(blocks[before].size);
                block.life = life;
                block.follows = BlockId::from_index(before);
            }
        }
        if block.follows.is_none() && dice.once_in(3) && !blocks.is_empty() {
            let source = dice.roll(blocks.len() as u64) as usize;
            let last = blocks[source].life.end().0 - 1;
            // Sometimes the source is taken or born too late, and then the problem is refused.
            if let Ok(life) = Lifetime::new(last, last.saturating_add(1 + dice.roll(6)))
                && (!followed[source] || dice.once_in(9))
            {
                followed[source] = true;
                block.life = life;
                let distance = Bytes(or_extreme(dice, rarity, 250));
                block.overlaps = BlockId::from_index(source).map(|source| Overlap { source, distance });
            }
        }
        if block.follows.is_none() && dice.once_in(5) {
            let buffer = BufferId::from_index(dice.roll(3) as usize);
            let offset = or_extreme(dice, rarity, 200) & !(align.get() - 1);
            block.pinned = buffer.map(|buffer| Place { buffer, offset: Offset(offset) });
        }
        blocks.push(block);
        followed.push(false);
    }
    let mut problem = Problem::new(blocks)?;
    if dice.once_in(3) {
        problem = problem.with_max_buffer(Bytes(or_extreme(dice, 2, 250)));
    }
    if dice.once_in(3) {
        problem = problem.with_capacity(Bytes(or_extreme(dice, 2, 250)));
    }
    Ok(problem)
}

/// Returns a number below `ordinary`, and once in `rarity` times one from the ends of what a `u64` holds.
fn or_extreme(dice: &mut ByteDice<'_>, rarity: u64, ordinary: u64) -> u64 {
    if dice.roll(rarity) != 0 {
        return dice.roll(ordinary);
    }
    let near = dice.roll(5);
    match dice.roll(8) {
        0 => near.saturating_sub(2),
        1 => (1 << 32) - 2 + near,
        2 => (1 << 63) - 2 + near,
        3 => u64::MAX - near,
        4 => (1u64 << dice.roll(64)) - 1 + near / 2,
        5 => (u64::MAX - (1u64 << dice.roll(64))).saturating_add(near / 2),
        6 => u64::MAX / (2 + dice.roll(9)),
        _ => (1u64 << dice.roll(64)).saturating_add(dice.roll(200) * (dice.roll(200) << 20)),
    }
}

/// Returns many blocks as a long program has them: most live for a few steps, some for long, sizes over four decades.
pub fn synthetic(blocks: usize) -> Problem {
    let mut random = RandomGenerator::new(42);
    let block = |step: u64| {
        let kind = random.fraction();
        let most = match kind {
            _ if kind < 0.8 => 8.0,
            _ if kind < 0.97 => 200.0,
            _ => blocks as f64 / 2.0,
        };
        let length = 1 + (random.fraction() * most) as u64;
        let size = 256 * (1 + (random.fraction() * 16.0).exp2() as u64);
        Block::new(Bytes(size), Lifetime::new(step, step + length).expect("not empty"))
    };
    Problem::new((0..blocks as u64).map(block).collect::<Vec<_>>()).expect("small blocks")
}

/// Reads any bytes as CSV: checks that the result is an error or a table that survives being written and read. Its
/// blocks, if they are a problem, have a plan or none that fits, and its offsets, if complete, are certified.
pub fn csv_body(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(table) = csv::read(&text) else { return };
    assert_survives(&table);
    for problem in [table.problem(), table.pinned_problem()].into_iter().flatten() {
        if let Ok(placement) = table.placement() {
            judge(&problem, placement);
        }
        if let Ok(plan) = plan(problem, &Strategy::Fast) {
            assert_survives(&csv::Table::of_plan(&plan, table.ids().clone()).expect("as many ids as blocks"));
        }
    }
}

/// Panics unless a table written as text and read again is the same table.
fn assert_survives(table: &csv::Table) {
    let written = csv::write(table);
    let again = csv::read(&written).unwrap_or_else(|error| panic!("{error} in what was written:\n{written}"));
    assert_eq!(*table, again, "{written}");
}

/// Certifies any placement, which must come to an end, and has what it says written out.
fn judge(problem: &Problem, placement: Placement) {
    match certify(problem.clone(), placement) {
        Ok(plan) => assert!(plan.profile().iter().all(|point| point.live <= plan.peak())),
        Err(wrong) => assert!(!wrong.to_string().is_empty()),
    }
}

/// Runs every strategy on any problem: the placement is certified, nothing is below the bound, `Fast` is not above
/// `BestFit` and `Best` not above `Fast`. A valid problem is placed, unless its pins are inconsistent.
pub fn strategy_body(bytes: &[u8]) {
    let mut dice = ByteDice::new(bytes);
    let problem = if dice.once_in(2) {
        match problem_of_extremes(&mut dice) {
            Ok(problem) => problem,
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    } else {
        problem(&mut dice)
    };
    let bound = lower_bound(&problem);
    let apart = without_overlaps(&problem);
    assert!(bound.bytes <= lower_bound(&apart).bytes, "permission to overlap raises the bound");
    judge(&problem, any_placement(&mut dice, problem.blocks().len()));
    assert_survives(&as_table(&problem));
    let best = Strategy::Best(Best::new(Budget::Nodes(300)));
    let mut before = u64::MAX;
    for strategy in [Strategy::BestFit, Strategy::Fast, best] {
        let mut told = Bytes::ZERO;
        let mut watch = |progress: &SearchProgress| {
            told = told.max(progress.at_least);
            ControlFlow::Continue(())
        };
        let outcome = match place_watched(&problem, &strategy, &mut watch) {
            Ok(outcome) => outcome,
            Err(PlaceError::Pinned(wrong)) => return assert!(!wrong.to_string().is_empty()),
            Err(error) => panic!("{strategy}: {error}"),
        };
        assert_eq!(outcome.verdict.fits(), problem.capacity().is_none_or(|most| outcome.peak <= most), "{strategy}");
        // A placement above the capacity is still one: certified without it.
        let unlimited = problem.clone().without_capacity();
        let plan = certify(unlimited, outcome.placement).unwrap_or_else(|wrong| panic!("{strategy}: {wrong}"));
        assert_eq!(plan.peak(), outcome.peak, "{strategy}");
        assert_eq!(plan.bound(), bound, "{strategy}");
        assert!(bound.bytes <= plan.peak(), "{strategy}: {} below the bound {}", plan.peak(), bound.bytes);
        assert!(outcome.at_least <= plan.peak(), "{strategy}: refuted what it then found");
        assert!(told <= outcome.at_least, "{strategy}: told of {told} bytes, and proved {}", outcome.at_least);
        assert!(plan.peak().0 <= before, "{strategy}: {} is more than {before}", plan.peak());
        assert_eq!(plan.report().blocks, problem.blocks().len());
        judge(&problem, Placement::new(plan.places().clone()));
        before = plan.peak().0;
        if strategy == Strategy::Fast
            && let Ok(apart) = place(&apart, &strategy)
        {
            assert!(outcome.peak <= apart.peak, "{} with overlaps, {} without", outcome.peak, apart.peak);
        }
    }
}

/// Returns a problem without the permission to overlap.
pub fn without_overlaps(problem: &Problem) -> Problem {
    problem.without_overlaps()
}

/// Returns a place for each block, most of them wrong.
fn any_placement(dice: &mut ByteDice<'_>, blocks: usize) -> Placement {
    let place = |_| {
        let buffer = or_extreme(dice, 30, 3).min(u64::from(u32::MAX - 1)) as usize;
        Place {
            buffer: BufferId::from_index(buffer).expect("below 2^32 - 1"),
            offset: Offset(or_extreme(dice, 9, 250)),
        }
    };
    Placement::new((0..blocks).map(place).collect::<Vec<_>>())
}

fn as_table(problem: &Problem) -> csv::Table {
    let ids: Vec<String> = (0..problem.blocks().len()).map(|index| std::format!("b{index}")).collect();
    csv::Table::of_problem(problem, ids).expect("as many ids as blocks")
}

/// Takes and releases any sizes in a free list with any limit: ranges in use never overlap as long as nothing is
/// released that was not taken.
pub fn free_list_body(bytes: &[u8]) {
    let mut dice = ByteDice::new(bytes);
    let align = Align::new(1u64 << or_extreme(&mut dice, 3, 7).min(63)).expect("a power of two");
    let limit = dice.once_in(2).then(|| Bytes(or_extreme(&mut dice, 2, 250)));
    let mut free = FreeList::new(align, limit);
    if dice.once_in(2) {
        free = free.with_any_number_of_chunks();
    }
    let mut used: Vec<(Place, u64)> = Vec::new();
    let mut honest = true;
    for _ in 0..dice.roll(60) {
        match dice.roll(9) {
            0..5 => {
                let size = or_extreme(&mut dice, 5, 200);
                let Some(place) = free.take(Bytes(size)) else { continue };
                let bytes = align.round_up(Bytes(size)).expect("it was placed").0;
                let end = place.offset.0.checked_add(bytes).expect("within the address space");
                let apart = |(other, size): &(Place, u64)| {
                    other.buffer != place.buffer || end <= other.offset.0 || other.offset.0 + size <= place.offset.0
                };
                // What has no bytes may be anywhere.
                assert!(!honest || bytes == 0 || used.iter().all(apart), "{place:?} of {bytes} bytes is in use");
                if bytes > 0 {
                    used.push((place, bytes));
                }
            }
            5..8 if !used.is_empty() => {
                let (place, size) = used.swap_remove(dice.roll(used.len() as u64) as usize);
                free.release(place, Bytes(size));
            }
            _ if dice.once_in(9) => {
                honest = false;
                let place = any_placement(&mut dice, 1).places.as_slice()[0];
                free.release(place, Bytes(or_extreme(&mut dice, 2, 200)));
            }
            _ => {}
        }
        assert!(free.chunks().all(|chunk| chunk <= free.total()));
    }
}
