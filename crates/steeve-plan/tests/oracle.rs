//! Small problems against oracles that are too slow to be wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_plan::fuzz::{self, AlignmentMix, ByteDice, ProblemFeatures, ProblemShape};
use steeve_plan::{
    Best, Block, BlockId, Budget, Bytes, Id, Lifetime, Offset, Place, Placement, Problem, Strategy, Verdict, Violation,
    certify, lower_bound, place,
};

const TINY: ProblemShape =
    ProblemShape { blocks: 8, steps: 8, size: 12, alignments: AlignmentMix::None, extras: ProblemFeatures::Plain };

/// Finds the lowest peak of all: in some packing of that height each block rests on the ground or on another one, so placing
/// the blocks in the order of their offsets, each as low as those before it allow, finds it. All orders are tried.
fn lowest_peak(problem: &Problem) -> u64 {
    let blocks: Vec<Block> = problem.blocks().iter().copied().filter(|block| block.size.0 > 0).collect();
    let fits = |capacity: &u64| {
        let mut placed = vec![None; blocks.len()];
        stack_rest(&blocks, &mut placed, (0, 0), *capacity)
    };
    (lower_bound(problem).bytes.0..).find(fits).unwrap()
}

/// Returns whether the blocks that are not placed yet fit under `capacity`, none of them lower than the last one
/// placed.
fn stack_rest(blocks: &[Block], placed: &mut [Option<u64>], last: (u64, usize), capacity: u64) -> bool {
    if placed.iter().all(Option::is_some) {
        return true;
    }
    for (index, block) in blocks.iter().enumerate() {
        if placed[index].is_some() {
            continue;
        }
        let end = |(other, offset): (&Block, &Option<u64>)| {
            let offset = offset.filter(|_| other.life.overlaps(block.life))?;
            Some(offset + other.occupied().unwrap().0)
        };
        let below = blocks.iter().zip(&*placed).filter_map(end).max().unwrap_or(0);
        let offset = below.next_multiple_of(block.align.get());
        if (offset, index) < last || offset + block.occupied().unwrap().0 > capacity {
            continue;
        }
        placed[index] = Some(offset);
        if stack_rest(blocks, placed, (offset, index), capacity) {
            return true;
        }
        placed[index] = None;
    }
    false
}

/// Returns a problem in which every step is full: what dies at a step is replaced by blocks of other sizes. There is no
/// slack, so many of these can't be packed at their bound, and only a search can decide.
fn full_problem(seed: u64, most: usize) -> Problem {
    let noise = fuzz::pseudo_random_bytes(seed, 200);
    let mut dice = ByteDice::new(&noise);
    let mut alive: Vec<(u64, u64)> = Vec::new();
    let mut blocks: Vec<Block> = Vec::new();
    let mut free = 4 + dice.roll(5);
    let mut step = 0;
    let close = |(size, start): (u64, u64), end| Block::new(Bytes(size), Lifetime::new(start, end).unwrap());
    while blocks.len() + alive.len() < most {
        while free > 0 {
            let size = (1 + dice.roll(3)).min(free);
            alive.push((size, step));
            free -= size;
        }
        step += 1;
        for _ in 0..1 + dice.roll(2) {
            if !alive.is_empty() {
                let dead = alive.swap_remove(dice.roll(alive.len() as u64) as usize);
                free += dead.0;
                blocks.push(close(dead, step));
            }
        }
    }
    blocks.extend(alive.into_iter().map(|it| close(it, step + 1)));
    Problem::new(blocks).unwrap()
}

#[test]
fn best_is_as_low_as_the_lowest_of_all_packings() {
    let strategy = Strategy::Best(Best::new(Budget::Nodes(200_000)));
    let mut above_bound = 0;
    for seed in 0..3000 {
        let alignments = [AlignmentMix::None, AlignmentMix::Common][seed as usize % 2];
        let problem = match seed % 3 {
            0 => fuzz::problem_of_shape(
                &mut ByteDice::new(&fuzz::pseudo_random_bytes(seed, 100)),
                ProblemShape { alignments, ..TINY },
            ),
            1 => full_problem(seed, 10),
            _ => changed_gadget(seed),
        };
        let lowest = lowest_peak(&problem);
        let outcome = place(&problem, &strategy).unwrap();
        assert_eq!(outcome.peak.0, lowest, "seed {seed}: {problem:?}");
        assert_eq!(outcome.verdict, Verdict::Optimal, "seed {seed}");
        assert_eq!(outcome.at_least.0, lowest, "seed {seed}");
        assert!(lower_bound(&problem).bytes.0 <= lowest);
        above_bound += u32::from(lower_bound(&problem).bytes.0 < lowest);
    }
    // Otherwise the bound alone would have proved everything.
    assert!(above_bound > 30, "only {above_bound} problems have an optimum above their bound");
}

/// Problems that can't be packed at their bound: size, start and end of each block.
const GADGETS: [&[(u64, u64, u64)]; 8] = [
    &[(3, 0, 1), (1, 0, 2), (2, 1, 3), (1, 2, 4), (1, 3, 4), (2, 4, 5), (1, 1, 5), (1, 3, 6), (3, 5, 6)],
    &[(3, 0, 1), (3, 0, 2), (1, 1, 3), (1, 2, 3), (2, 1, 4), (2, 2, 4), (1, 4, 5), (2, 3, 5), (3, 4, 6)],
    &[(2, 0, 1), (2, 0, 2), (1, 1, 3), (1, 2, 3), (1, 0, 4), (2, 3, 4), (3, 4, 5), (1, 2, 5), (1, 1, 6)],
    &[(2, 0, 1), (2, 0, 2), (1, 1, 3), (1, 2, 3), (2, 3, 4), (1, 2, 5), (1, 1, 5), (2, 5, 6), (2, 4, 7)],
    &[(2, 0, 1), (3, 0, 2), (1, 1, 3), (1, 2, 3), (1, 1, 4), (2, 2, 4), (3, 4, 5), (2, 3, 6), (1, 0, 6)],
    &[(2, 0, 1), (2, 1, 2), (3, 0, 3), (1, 3, 4), (1, 2, 4), (1, 2, 5), (2, 3, 5), (3, 5, 6), (2, 4, 7)],
    &[(3, 0, 1), (2, 1, 2), (1, 2, 3), (2, 0, 3), (3, 3, 4), (1, 1, 4), (2, 4, 5), (1, 2, 6), (2, 4, 6)],
    &[(2, 0, 1), (2, 0, 2), (2, 2, 3), (1, 1, 4), (1, 3, 4), (1, 1, 5), (1, 3, 5), (2, 5, 6), (2, 4, 6)],
];

/// Returns a gadget with its sizes scaled, perhaps mirrored in time and with a block or two changed.
fn changed_gadget(seed: u64) -> Problem {
    let noise = fuzz::pseudo_random_bytes(seed, 60);
    let mut dice = ByteDice::new(&noise);
    let scale = 2 + dice.roll(6);
    let backwards = dice.once_in(2);
    let mut rows: Vec<(u64, u64, u64)> = GADGETS[dice.roll(8) as usize].to_vec();
    for row in &mut rows {
        row.0 *= scale;
        if backwards {
            (row.1, row.2) = (8 - row.2, 8 - row.1);
        }
    }
    for _ in 0..dice.roll(3) {
        let row = &mut rows[dice.roll(9) as usize];
        match dice.roll(4) {
            0 => row.0 += 1,
            1 => row.0 -= 1,
            2 => row.2 += 1,
            _ => row.1 = row.1.saturating_sub(1),
        }
    }
    let block = |row: &(u64, u64, u64)| Block::new(Bytes(row.0), Lifetime::new(row.1, row.2).unwrap());
    Problem::new(rows.iter().map(block).collect::<Vec<_>>()).unwrap()
}

#[test]
fn what_the_search_refutes_is_infeasible_and_what_is_infeasible_is_refuted() {
    let strategy = Strategy::Best(Best::new(Budget::Nodes(200_000)));
    let (mut cases, mut infeasible) = (0, 0);
    for seed in 0.. {
        let problem = changed_gadget(seed);
        let (lowest, bound) = (lowest_peak(&problem), lower_bound(&problem).bytes.0);
        // Nothing below the bound: that would need no search.
        for capacity in bound..=lowest {
            let outcome = place(&problem.clone().with_capacity(Bytes(capacity)), &strategy).unwrap();
            let refuted = outcome.verdict == Verdict::CannotFit;
            assert_eq!(refuted, capacity < lowest, "seed {seed}, capacity {capacity}: {problem:?}");
            assert_eq!(outcome.verdict.fits(), capacity >= lowest, "seed {seed}, capacity {capacity}");
            cases += 1;
            infeasible += u32::from(capacity < lowest);
        }
        if infeasible > 10_000 {
            break;
        }
    }
    println!("{infeasible} of {cases} capacities are infeasible, all of them at or above the bound");
    assert!(infeasible * 2 > cases);
}

/// Returns blocks that tile a rectangle of time and memory without a gap: they fit at their bound, by construction.
fn tiling(seed: u64, steps: usize, height: usize) -> Problem {
    let noise = fuzz::pseudo_random_bytes(seed, 4000);
    let mut dice = ByteDice::new(&noise);
    let mut taken = vec![vec![false; height]; steps];
    let mut blocks = Vec::new();
    for start in 0..steps {
        for low in 0..height {
            if taken[start][low] {
                continue;
            }
            let most = (low..height).take_while(|at| !taken[start][*at]).count() as u64;
            let size = 1 + dice.roll(most.min(9)) as usize;
            let fits = |step: &usize| (low..low + size).all(|at| !taken[*step][at]);
            let long = (start..steps).take_while(fits).count() as u64;
            let end = start + 1 + dice.roll(long.min(12)) as usize;
            for column in &mut taken[start..end] {
                column[low..low + size].fill(true);
            }
            let life = Lifetime::new(start as u64, end as u64).unwrap();
            blocks.push(Block::new(Bytes(size as u64), life));
        }
    }
    Problem::new(blocks).unwrap()
}

#[test]
fn what_is_known_to_fit_is_never_refuted() {
    let (mut searched, mut solved, mut blocks) = (0, 0, 0);
    for seed in 0..300 {
        let (steps, height) = (20 + seed as usize % 25, 40 + seed as usize % 31);
        let problem = tiling(seed, steps, height);
        assert_eq!(lower_bound(&problem).bytes.0, height as u64);
        let strategy = Strategy::Best(Best::new(Budget::Nodes(3000)));
        let outcome = place(&problem.clone().with_capacity(Bytes(height as u64)), &strategy).unwrap();
        assert_ne!(outcome.verdict, Verdict::CannotFit, "seed {seed}: refuted what fits\n{problem:?}");
        assert_eq!(outcome.at_least.0, height as u64, "seed {seed}");
        blocks = blocks.max(problem.blocks().len());
        searched += u32::from(outcome.nodes > 0);
        solved += u32::from(outcome.verdict == Verdict::Optimal);
    }
    println!("{searched} of 300 searched, {solved} solved, up to {blocks} blocks");
    assert!(searched > 50 && solved > 150);
}

#[test]
fn the_number_of_threads_changes_nothing_also_when_many_walkers_go() {
    // Hard enough that one search alone does not solve it: only then several run at once.
    let mut together = 0;
    for seed in 0..40 {
        let problem = tiling(seed, 60, 60);
        let answer = |threads| place(&problem, &Strategy::Best(Best::new(Budget::Nodes(30_000)).with_threads(threads)));
        let alone = answer(1).unwrap();
        together += u32::from(alone.nodes as usize > 25 * problem.blocks().len());
        for threads in [2, 3, 4] {
            assert_eq!(answer(threads).unwrap(), alone, "seed {seed}, {threads} threads");
        }
        if together >= 3 {
            break;
        }
    }
    assert!(together > 0, "no problem was hard enough");
}

/// Finds overlaps by brute force: every pair, every byte range, every step range.
fn quadratic(problem: &Problem, places: &[Place]) -> Vec<(usize, usize)> {
    let blocks = problem.blocks().as_slice();
    let mut pairs = Vec::new();
    for (a, one) in blocks.iter().enumerate() {
        for (b, other) in blocks.iter().enumerate().skip(a + 1) {
            let (first, second) = (places[a].offset.0, places[b].offset.0);
            let (size, other_size) = (one.occupied().unwrap().0, other.occupied().unwrap().0);
            let bytes = first < second + other_size && second < first + size && size > 0 && other_size > 0;
            if bytes && places[a].buffer == places[b].buffer && one.life.overlaps(other.life) {
                pairs.push((a, b));
            }
        }
    }
    pairs
}

#[test]
fn certify_finds_exactly_the_overlaps_that_a_quadratic_check_finds() {
    let mut wrong = 0;
    for seed in 0..4000 {
        let noise = fuzz::pseudo_random_bytes(seed, 400);
        let mut dice = ByteDice::new(&noise);
        let shape = ProblemShape {
            blocks: 30,
            steps: 20,
            size: 30,
            alignments: AlignmentMix::Common,
            extras: ProblemFeatures::Plain,
        };
        let problem = fuzz::problem_of_shape(&mut dice, shape);
        let any = |_| Place {
            buffer: steeve_plan::BufferId::from_index(dice.roll(2) as usize).unwrap(),
            offset: Offset(8 * dice.roll(40)),
        };
        let places: Vec<Place> = (0..problem.blocks().len()).map(any).collect();
        if places.len() < 2 {
            continue;
        }
        let expected = quadratic(&problem, &places);
        let mut found: Vec<(usize, usize)> = match certify(problem.clone(), Placement::new(places.clone())) {
            Ok(_) => Vec::new(),
            Err(violations) => violations
                .list()
                .iter()
                .map(|violation| {
                    assert!(matches!(violation, Violation::Overlap { .. }), "{violation}");
                    let Violation::Overlap { offset, step, .. } = violation else { unreachable!() };
                    let blocks: Vec<BlockId> = violation.blocks().collect();
                    for id in &blocks {
                        let (block, place) = (problem.blocks()[*id], places[id.index()]);
                        assert!(block.life.contains(*step));
                        assert!(place.offset <= *offset && offset.0 < place.offset.0 + block.occupied().unwrap().0);
                    }
                    (blocks[0].index().min(blocks[1].index()), blocks[0].index().max(blocks[1].index()))
                })
                .collect(),
        };
        found.sort_unstable();
        assert_eq!(found, expected, "seed {seed}");
        wrong += u32::from(!expected.is_empty());
    }
    assert!(wrong > 1000);
}

#[test]
fn a_spoilt_plan_is_rejected_with_the_right_blocks() {
    let mut spoilt = 0;
    for seed in 0..3000 {
        let noise = fuzz::pseudo_random_bytes(seed, 400);
        let mut dice = ByteDice::new(&noise);
        let problem = fuzz::problem(&mut dice);
        let Ok(outcome) = place(&problem, &Strategy::Fast) else { continue };
        let mut places = outcome.placement.places.clone();
        if places.is_empty() {
            continue;
        }
        // Move one block onto another that is alive with it.
        let ids: Vec<BlockId> = problem.blocks().ids().collect();
        let moved = ids[dice.roll(ids.len() as u64) as usize];
        let block = problem.blocks()[moved];
        let other = ids.iter().copied().find(|id| {
            let it = problem.blocks()[*id];
            // A chain moves as one; a block that leaves it is another violation.
            let alone = |block: &Block, id: BlockId| {
                block.follows.is_none() && problem.blocks().iter().all(|it| it.follows != Some(id))
            };
            let overlap = it.life.overlaps(block.life) && it.size.0 > 0 && block.size.0 > 0;
            // At a distance of 0 a block may be where its source is.
            let related = |block: &Block, id: BlockId| block.overlaps.is_some_and(|overlap| overlap.source == id);
            *id != moved && overlap && alone(&block, moved) && !related(&block, *id) && !related(&it, moved)
        });
        let Some(other) = other else { continue };
        places[moved] = places[other];
        let violations = certify(problem.clone(), Placement { places }).unwrap_err();
        let named = |violation: &Violation| violation.blocks().any(|id| id == moved);
        assert!(violations.list().iter().any(named), "seed {seed}: {violations}");
        spoilt += 1;
    }
    assert!(spoilt > 1000);
}

#[test]
fn each_kind_of_violation_names_its_numbers() {
    let block = |size, start, end| Block::new(Bytes(size), Lifetime::new(start, end).unwrap());
    let align = steeve_plan::Align::new(8).unwrap();
    let at = |offset| Place::first(Offset(offset));
    let wrong =
        |problem: Problem, places: Vec<Place>| certify(problem, Placement::new(places)).unwrap_err().to_string();
    let one = |block| Problem::new(vec![block]).unwrap();
    assert_eq!(wrong(one(block(4, 0, 1)), vec![]), "placement: wrong length: expected 1 places, got 0");
    assert_eq!(
        wrong(one(block(4, 0, 1).aligned(align)), vec![at(4)]),
        "block 0: misaligned: expected a multiple of 8, got offset 4"
    );
    assert_eq!(
        wrong(one(block(4, 0, 1)), vec![at(u64::MAX - 1)]),
        "block 0: address space exceeded: 4 bytes at offset 18446744073709551614"
    );
    assert_eq!(
        wrong(one(block(4, 0, 1).pinned_at(at(16))), vec![at(0)]),
        "block 0: not where it is pinned: expected offset 16 of buffer 0, got offset 0 of buffer 0"
    );
    let chain = vec![block(4, 0, 1), block(4, 1, 2).following(BlockId::FIRST)];
    assert_eq!(
        wrong(Problem::new(chain).unwrap(), vec![at(0), at(4)]),
        "block 1: not at the place of block 0, which it follows: expected offset 0 of buffer 0, got offset 4 of buffer 0"
    );
    assert_eq!(
        wrong(one(block(4, 0, 1)).with_max_buffer(Bytes(6)), vec![at(4)]),
        "buffer 0: too large: at most 6 bytes, got 8; its largest block has 4"
    );
    assert_eq!(
        wrong(one(block(4, 0, 1)).with_capacity(Bytes(3)), vec![at(0)]),
        "buffers: over capacity: at most 3 bytes, got 4"
    );
    let far = Place { buffer: steeve_plan::BufferId::from_index(9).unwrap(), offset: Offset(0) };
    assert_eq!(wrong(one(block(4, 0, 1)), vec![far]), "block 0: buffer index too large: expected less than 1, got 9");
}
