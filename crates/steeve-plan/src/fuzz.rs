//! Problems from bytes, and the bodies of the fuzz targets. The tests run them as well; nothing else should.
//!
//! A body takes any bytes and panics where a law is broken, which is what a fuzzer looks for.

#![allow(clippy::panic, clippy::expect_used)]

use std::string::String;
use std::vec::Vec;

use crate::random::Random;
use crate::{
    Align, Best, Block, BlockId, Budget, BufferId, Bytes, Id, Lifetime, Offset, Place, PlaceError, Problem, Strategy,
    certify, csv, lower_bound, place,
};

/// Bytes as dice: each roll takes the next one, and 0 comes for ever behind the last.
#[derive(Clone, Debug)]
pub struct Dice<'a> {
    bytes: core::slice::Iter<'a, u8>,
}

impl<'a> Dice<'a> {
    /// Dice that show these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter() }
    }

    /// A number below `sides`, which must not be 0.
    pub fn roll(&mut self, sides: u64) -> u64 {
        u64::from(self.bytes.next().copied().unwrap_or(0)) % sides
    }

    /// True once in `sides` times.
    pub fn once_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 1
    }
}

/// Bytes that look like chance but are the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(seed.wrapping_add(1));
    (0..length).map(|_| (random.next() >> 56) as u8).collect()
}

/// What a random problem may have in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// At most so many blocks.
    pub blocks: u64,
    /// Steps begin below this.
    pub steps: u64,
    /// Sizes are below this.
    pub size: u64,
    /// Whether blocks have alignments, and which.
    pub alignments: Alignments,
    /// What else.
    pub extras: Extras,
}

/// The alignments of a random problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignments {
    /// All 1.
    None,
    /// All 8.
    Common,
    /// From 1 to 32.
    Mixed,
}

/// What a random problem has beside plain blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extras {
    /// Nothing.
    Plain,
    /// Blocks that take over others.
    Followers,
    /// Pinned blocks.
    Pins,
    /// A limit on the size of a buffer.
    Limit,
    /// All of it.
    All,
}

/// A small problem of any shape, decided by the dice.
pub fn problem(dice: &mut Dice<'_>) -> Problem {
    let alignments = [Alignments::None, Alignments::Common, Alignments::Mixed][dice.roll(3) as usize];
    let extras = [Extras::Plain, Extras::Followers, Extras::Pins, Extras::Limit, Extras::All][dice.roll(5) as usize];
    let blocks = [8, 24, 60][dice.roll(3) as usize];
    let size = [4, 40, 250][dice.roll(3) as usize];
    problem_of(dice, Shape { blocks, steps: 20, size, alignments, extras })
}

/// A problem of a given shape, decided by the dice.
pub fn problem_of(dice: &mut Dice<'_>, shape: Shape) -> Problem {
    let has = |extra| shape.extras == extra || shape.extras == Extras::All;
    let count = dice.roll(shape.blocks + 1);
    let mut blocks: Vec<Block> = Vec::new();
    let mut followed: Vec<bool> = Vec::new();
    for _ in 0..count {
        let mut start = dice.roll(shape.steps);
        let length = 1 + dice.roll(shape.steps / 2 + 1);
        let mut size = dice.roll(shape.size);
        let align = match shape.alignments {
            Alignments::None => 1,
            Alignments::Common => 8,
            Alignments::Mixed => 1 << dice.roll(6),
        };
        let mut follows = None;
        if has(Extras::Followers) && dice.once_in(3) && !blocks.is_empty() {
            let before = dice.roll(blocks.len() as u64) as usize;
            if !followed[before] {
                followed[before] = true;
                start = blocks[before].life.end().0;
                size = blocks[before].size.0.saturating_sub(if dice.once_in(2) { dice.roll(9) } else { 0 });
                follows = BlockId::from_index(before);
            }
        }
        let life = Lifetime::new(start, start + length).expect("not empty");
        let mut block = Block::new(Bytes(size), life).aligned(Align::new(align).expect("a power of two"));
        block.follows = follows;
        if has(Extras::Pins) && follows.is_none() && dice.once_in(4) {
            let buffer = BufferId::from_index(usize::from(has(Extras::Limit) && dice.once_in(3)));
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
    if has(Extras::Limit) {
        let limit = 1 + dice.roll(2 * shape.size);
        return problem.with_max_buffer(Bytes(limit));
    }
    problem
}

/// Many blocks as a long program has them: most live for a few steps, some for long, sizes over four decades.
pub fn synthetic(blocks: usize) -> Problem {
    let mut random = Random::new(42);
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

/// Any bytes as CSV: an error or a table, and a table survives being written and read.
pub fn csv_body(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(table) = csv::read(&text) else { return };
    let written = table.to_string();
    let again = csv::read(&written).unwrap_or_else(|error| panic!("{error} in what was written:\n{written}"));
    assert_eq!(table, again, "{written}");
}

/// Any problem under any strategy: the placement is certified, nothing is below the bound, `Fast` is not above
/// `BestFit` and `Best` not above `Fast`.
pub fn strategy_body(bytes: &[u8]) {
    let mut dice = Dice::new(bytes);
    let problem = problem(&mut dice);
    let bound = lower_bound(&problem);
    let best = Strategy::Best(Best::new(Budget::Nodes(300)));
    let mut before = u64::MAX;
    for strategy in [Strategy::BestFit, Strategy::Fast, best] {
        let outcome = match place(&problem, &strategy) {
            Ok(outcome) => outcome,
            Err(PlaceError::Pinned(_)) => return,
            Err(error) => panic!("{strategy}: {error}"),
        };
        let plan = certify(problem.clone(), outcome.placement).unwrap_or_else(|wrong| panic!("{strategy}: {wrong}"));
        assert_eq!(plan.peak(), outcome.peak, "{strategy}");
        assert_eq!(plan.bound(), bound, "{strategy}");
        assert!(bound.bytes <= plan.peak(), "{strategy}: {} below the bound {}", plan.peak(), bound.bytes);
        assert!(outcome.at_least <= plan.peak(), "{strategy}: refuted what it then found");
        assert!(plan.peak().0 <= before, "{strategy}: {} is more than {before}", plan.peak());
        before = plan.peak().0;
    }
}
