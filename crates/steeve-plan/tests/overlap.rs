//! Laws of blocks that overlap a source which dies at their first step.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_plan::fuzz::{self, AlignmentMix, ByteDice, ProblemFeatures, ProblemShape};
use steeve_plan::{
    Align, Best, Block, BlockId, BoundReason, Budget, BufferId, Bytes, Id, Lifetime, Offset, Place, Placement, Problem,
    ProblemError, Strategy, Verdict, Violation, certify, lower_bound, place, plan,
};

fn block(size: u64, start: u64, end: u64) -> Block {
    Block::new(Bytes(size), Lifetime::new(start, end).unwrap())
}

fn id(index: usize) -> BlockId {
    BlockId::from_index(index).unwrap()
}

fn at(offset: u64) -> Place {
    Place::first(Offset(offset))
}

fn random(seed: u64, shape: ProblemShape) -> Problem {
    fuzz::problem_of_shape(&mut ByteDice::new(&fuzz::pseudo_random_bytes(seed, 600)), shape)
}

const SMALL: ProblemShape =
    ProblemShape { blocks: 20, steps: 12, size: 30, alignments: AlignmentMix::None, extras: ProblemFeatures::Overlaps };

/// Returns whether two blocks may be at these places, by the definition.
fn may_be_at(problem: &Problem, (a, first): (usize, Place), (b, second): (usize, Place)) -> bool {
    let (one, other) = (problem.blocks().as_slice()[a], problem.blocks().as_slice()[b]);
    let (size, other_size) = (one.occupied().unwrap().0, other.occupied().unwrap().0);
    let apart = first.offset.0 + size <= second.offset.0 || second.offset.0 + other_size <= first.offset.0;
    if !one.life.overlaps(other.life) || first.buffer != second.buffer || apart || size == 0 || other_size == 0 {
        return true;
    }
    let far_enough = |result: Block, place: Place, source: usize, above: Place| {
        let overlap = result.overlaps.filter(|it| it.source.index() == source);
        overlap.is_some_and(|it| i128::from(above.offset.0) - i128::from(place.offset.0) >= i128::from(it.distance.0))
    };
    far_enough(one, first, b, second) || far_enough(other, second, a, first)
}

/// Finds the pairs that share bytes and must not: every pair, by the definition.
fn forbidden_pairs(problem: &Problem, places: &[Place]) -> Vec<(usize, usize)> {
    let pairs = (0..places.len()).flat_map(|a| (a + 1..places.len()).map(move |b| (a, b)));
    pairs.filter(|(a, b)| !may_be_at(problem, (*a, places[*a]), (*b, places[*b]))).collect()
}

#[test]
fn a_result_is_placed_as_far_below_its_source_as_it_must_be() {
    let blocks = vec![block(64, 0, 2), block(128, 1, 3).overlapping(id(0), Bytes(80))];
    let problem = Problem::new(blocks).unwrap();
    assert_eq!(lower_bound(&problem).bytes, Bytes(144));
    for strategy in [Strategy::Fast, Strategy::Best(Best::new(Budget::Nodes(100)))] {
        let outcome = place(&problem, &strategy).unwrap();
        assert_eq!((outcome.peak, outcome.verdict), (Bytes(144), Verdict::Optimal));
    }
    // The free list knows nothing of overlaps.
    assert_eq!(place(&problem, &Strategy::BestFit).unwrap().peak, Bytes(192));
}

#[test]
fn certify_finds_exactly_the_pairs_that_the_definition_forbids() {
    let (mut wrong, mut right, mut permitted) = (0, 0, 0);
    for seed in 0..12_000 {
        let alignments = [AlignmentMix::None, AlignmentMix::Mixed][seed as usize % 2];
        // Half of them with followers, pins and limits as well.
        let extras = [ProblemFeatures::Overlaps, ProblemFeatures::All][seed as usize / 2 % 2];
        let shape = ProblemShape { alignments, extras, blocks: 3 + seed % 17, size: 12, ..SMALL };
        let problem = random(seed, shape);
        let noise = fuzz::pseudo_random_bytes(seed + 77, 200);
        let mut dice = ByteDice::new(&noise);
        let fast = place(&problem, &Strategy::Fast).map(|it| it.placement.places.into_vec());
        let mut places: Vec<Place> = match fast {
            Ok(places) if seed % 3 == 0 => places,
            _ => problem.blocks().iter().map(|_| at(0)).collect(),
        };
        for (place, block) in places.iter_mut().zip(problem.blocks()) {
            if seed % 3 > 0 || dice.once_in(9) {
                let align = block.align.get();
                let buffer = BufferId::from_index(usize::from(dice.once_in(3))).unwrap();
                *place = Place { buffer, offset: Offset(align * dice.roll(1 + 160 / align)) };
            }
        }
        // Buffers without a block are no matter here, nor are indices above the number of blocks.
        if places.len() < 2 {
            continue;
        }
        let expected = forbidden_pairs(&problem, &places);
        let mut found: Vec<(usize, usize)> = match certify(problem.clone(), Placement::new(places.clone())) {
            Ok(plan) => {
                assert!(plan.bound().bytes <= plan.peak(), "seed {seed}: a plan below its bound");
                assert_eq!(plan.bound(), lower_bound(&problem), "seed {seed}");
                assert!(plan.profile().iter().all(|point| point.live <= plan.peak()), "seed {seed}");
                right += 1;
                let shared = |it: &Block| it.overlaps.map(|it| it.source);
                let any = problem.blocks().pairs().any(|(result, it)| {
                    shared(it).is_some_and(|source| {
                        let plain = fuzz::without_overlaps(&problem);
                        !may_be_at(&plain, (result.index(), plan.place(result)), (source.index(), plan.place(source)))
                    })
                });
                permitted += u32::from(any);
                Vec::new()
            }
            Err(wrong) => wrong.list().iter().filter_map(|violation| named_pair(&problem, violation)).collect(),
        };
        found.sort_unstable();
        assert_eq!(found, expected, "seed {seed}: {problem:?} {places:?}");
        wrong += u32::from(!expected.is_empty());
    }
    println!("{wrong} wrong, {right} right, {permitted} with blocks that overlap");
    assert!(wrong > 2000 && right > 2000 && permitted > 700);
}

/// Returns the pair that shares bytes by a violation, which must be the right kind of violation.
fn named_pair(problem: &Problem, violation: &Violation) -> Option<(usize, usize)> {
    let mut pair: Vec<usize> = violation.blocks().map(Id::index).collect();
    let related = |source: usize, result: usize| {
        problem.blocks().as_slice()[result].overlaps.is_some_and(|it| it.source.index() == source)
    };
    match violation {
        Violation::Overlap { .. } => assert!(!related(pair[0], pair[1]) && !related(pair[1], pair[0])),
        Violation::OverlapTooClose { .. } => assert!(related(pair[0], pair[1])),
        _ => return None,
    }
    pair.sort_unstable();
    Some((pair[0], pair[1]))
}

#[test]
fn blocks_of_which_too_many_meet_are_placed_apart() {
    let sources = (0..1500).map(|index| block(10 + index % 7, 0, 2));
    let results = (0..1500).map(|index| block(10, 1, 3).overlapping(id(index), Bytes(1)));
    let problem = Problem::new(sources.chain(results).collect::<Vec<_>>()).unwrap();
    let outcome = place(&problem, &Strategy::Fast).unwrap();
    assert_eq!(outcome.peak, place(&fuzz::without_overlaps(&problem), &Strategy::Fast).unwrap().peak);
    assert!(certify(problem, outcome.placement).is_ok());
}

#[test]
fn a_block_one_byte_too_close_to_its_source_is_rejected() {
    let mut moved = 0;
    for seed in 0..3000 {
        let problem = random(seed, SMALL);
        let outcome = place(&problem, &Strategy::Fast).unwrap();
        for (result, block) in problem.blocks().pairs() {
            let Some(overlap) = block.overlaps else { continue };
            let mut places = outcome.placement.places.clone();
            let (place, source) = (places[result], places[overlap.source]);
            let source_bytes = problem.blocks()[overlap.source].size.0;
            let too_close = source.offset.0.checked_sub(overlap.distance.0).map(|offset| offset + 1);
            let shares =
                |offset: u64| offset + block.size.0 > source.offset.0 && offset < source.offset.0 + source_bytes;
            let Some(offset) = too_close.filter(|offset| shares(*offset)) else { continue };
            if place.buffer != source.buffer || block.size.0 == 0 || source_bytes == 0 {
                continue;
            }
            places[result].offset = Offset(offset);
            let wrong = certify(problem.clone(), Placement { places }).unwrap_err();
            let named = |it: &Violation| matches!(it, Violation::OverlapTooClose { block, .. } if *block == result);
            assert!(wrong.list().iter().any(named), "seed {seed}: {wrong}");
            moved += 1;
        }
    }
    assert!(moved > 2000, "only {moved} blocks were moved");
}

/// Finds the lowest peak of all placements in buffers of at most `limit` bytes (or of a larger block).
fn lowest_peak(problem: &Problem, most: u64) -> Option<u64> {
    let mut best = None;
    let mut places = Vec::new();
    extend(problem, most, &mut places, &mut best);
    best
}

fn extend(problem: &Problem, most: u64, places: &mut Vec<Place>, best: &mut Option<u64>) {
    let blocks = problem.blocks().as_slice();
    let mut sizes = [0u64; 4];
    for (block, place) in blocks.iter().zip(&*places) {
        let end = place.offset.0 + block.occupied().unwrap().0;
        let size = &mut sizes[place.buffer.index()];
        *size = if block.size.0 == 0 { *size } else { (*size).max(end) };
    }
    let peak: u64 = sizes.iter().sum();
    if best.is_some_and(|best| best <= peak) {
        return;
    }
    let index = places.len();
    let Some(block) = blocks.get(index) else {
        if certify(problem.clone(), Placement::new(places.clone())).is_ok() {
            *best = Some(peak);
        }
        return;
    };
    let buffers = if problem.max_buffer().is_some() { blocks.len().min(4) } else { 1 };
    for buffer in 0..buffers {
        let buffer = BufferId::from_index(buffer).unwrap();
        for offset in (0..most).step_by(block.align.get() as usize) {
            let place = Place { buffer, offset: Offset(offset) };
            if (0..index).all(|other| may_be_at(problem, (other, places[other]), (index, place))) {
                places.push(place);
                extend(problem, most, places, best);
                places.pop();
            }
        }
    }
}

#[test]
fn no_plan_is_below_its_bound() {
    let (mut reached, mut cases, mut gained) = (0, 0, 0);
    for seed in 0..1500 {
        let alignments = [AlignmentMix::None, AlignmentMix::Mixed][seed as usize % 2];
        let shape = ProblemShape { blocks: 4, steps: 4, size: 7, alignments, extras: ProblemFeatures::Overlaps };
        let mut problem = random(seed, shape);
        // Of wide alignments there are too few placements to be interesting, and of many bytes too many.
        if problem.blocks().len() < 2 || problem.blocks().iter().any(|it| it.align.get() > 4) {
            continue;
        }
        let limited = seed % 3 == 0;
        if limited {
            problem = problem.with_max_buffer(Bytes(4 + seed % 9));
        }
        let (bound, most) = (lower_bound(&problem), if limited { 14 } else { 26 });
        let Some(lowest) = lowest_peak(&problem, most) else { continue };
        assert!(bound.bytes.0 <= lowest, "seed {seed}: bound {bound:?}, but {lowest} is possible: {problem:?}");
        let fast = place(&problem, &Strategy::Fast).unwrap();
        assert!(fast.peak.0 >= lowest, "seed {seed}");
        cases += 1;
        reached += u32::from(fast.peak.0 == lowest);
        gained += u32::from(lowest < lower_bound(&fuzz::without_overlaps(&problem)).bytes.0);
    }
    println!("fast is at the optimum in {reached} of {cases}; overlaps lower the bound in {gained}");
    assert!(gained > 100 && reached * 10 > cases * 9);
}

/// Returns a few blocks of which most overlap the one before, and perhaps one that lives beside them.
fn tiny_chain(seed: u64) -> Problem {
    let noise = fuzz::pseudo_random_bytes(seed, 60);
    let mut dice = ByteDice::new(&noise);
    let align = Align::new([1, 1, 2, 4][dice.roll(4) as usize]).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    for index in 0..3 + dice.roll(2) as usize {
        // Two steps each, so that each is alive with the one before; sometimes longer, and then nothing overlaps it.
        let start = index as u64;
        let long = dice.once_in(9);
        let mut it = block(1 + dice.roll(7), start, start + if long { 3 } else { 2 }).aligned(align);
        let before = blocks.last().is_some_and(|before| before.life.end().0 == start + 1);
        if before && !dice.once_in(5) {
            it = it.overlapping(id(index - 1), Bytes(dice.roll(5)));
        } else if index > 1 && dice.once_in(3) && blocks[index - 2].life.end().0 == start {
            it = it.following(id(index - 2));
            it.size = it.size.min(blocks[index - 2].size);
        }
        blocks.push(it);
    }
    if dice.once_in(2) {
        let start = dice.roll(3);
        blocks.push(
            block(1 + dice.roll(4), start, start + 1 + dice.roll(4)).aligned(Align::new(1 + dice.roll(2)).unwrap()),
        );
    }
    let problem = Problem::new(blocks.clone());
    problem.unwrap_or_else(|_| {
        let unfollowed = |block: &Block| Block { follows: None, ..*block };
        Problem::new(blocks.iter().map(unfollowed).collect::<Vec<_>>()).unwrap()
    })
}

#[test]
fn a_chain_is_never_below_its_bound() {
    let (mut along, mut reached, mut cases) = (0, 0, 0);
    for seed in 0..3000 {
        let mut problem = tiny_chain(seed);
        let limited = seed % 5 == 0 && problem.blocks().len() < 5;
        if limited {
            problem = problem.with_max_buffer(Bytes(4 + seed % 9));
        }
        let bound = lower_bound(&problem);
        let Some(lowest) = lowest_peak(&problem, if limited { 12 } else { 30 }) else { continue };
        assert!(bound.bytes.0 <= lowest, "seed {seed}: bound {bound:?}, but {lowest} is possible: {problem:?}");
        let fast = place(&problem, &Strategy::Fast).unwrap();
        assert!(fast.peak.0 >= lowest, "seed {seed}: {} below {lowest}: {problem:?} {:?}", fast.peak, fast.placement);
        cases += 1;
        along += u32::from(bound.reason == BoundReason::Overlaps);
        reached += u32::from(bound.bytes.0 == lowest);
    }
    println!("{reached} of {cases} chains have their optimum at the bound, {along} of them along the chain");
    assert!(along > 100 && reached * 10 > cases * 9);
}

#[test]
fn a_search_is_never_worse_for_permission_to_overlap() {
    for seed in 0..60 {
        let shape = ProblemShape { blocks: 250, steps: 100, size: 250, ..SMALL };
        let problem = fuzz::problem_of_shape(&mut ByteDice::new(&fuzz::pseudo_random_bytes(seed, 4000)), shape);
        let strategy = Strategy::Best(Best::new(Budget::Nodes(5000)));
        let peak = |problem: &Problem| place(problem, &strategy).unwrap().peak;
        assert!(peak(&problem) <= peak(&fuzz::without_overlaps(&problem)), "seed {seed}");
    }
}

#[test]
fn a_chain_runs_out_of_room_below_it() {
    let chain = |capacity: u64| {
        let over = |block: Block, source: usize| block.overlapping(id(source), Bytes(10));
        let blocks = vec![block(100, 0, 2), over(block(100, 1, 3), 0), over(block(100, 2, 4), 1)];
        Problem::new(blocks).unwrap().with_capacity(Bytes(capacity))
    };
    let bound = lower_bound(&chain(120));
    assert_eq!((bound.bytes, bound.live, bound.reason), (Bytes(120), Bytes(110), BoundReason::Overlaps));
    assert!(plan(chain(120), &Strategy::Fast).unwrap().is_optimal());
    let error = plan(chain(119), &Strategy::Fast).unwrap_err();
    assert_eq!(
        error.to_string(),
        "capacity: too small: at least 120 bytes needed (along a chain of blocks that overlap), got 119"
    );
}

#[test]
fn a_problem_as_data_keeps_its_overlaps() {
    let blocks = vec![block(64, 0, 2), block(128, 1, 3).overlapping(id(0), Bytes(80))];
    let problem = Problem::new(blocks).unwrap();
    let text = serde_json::to_string(&problem).unwrap();
    assert!(text.contains(r#""overlaps":{"source":0,"distance":80}"#), "{text}");
    assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
    let apart = serde_json::to_string(&fuzz::without_overlaps(&problem)).unwrap();
    assert!(!apart.contains("overlaps"), "{apart}");
}

#[test]
fn relations_that_can_not_be_are_refused() {
    let refused = |blocks: Vec<Block>| Problem::new(blocks).unwrap_err();
    let over = |block: Block, source: usize| block.overlapping(id(source), Bytes(4));
    let missing = refused(vec![over(block(8, 0, 2), 7)]);
    assert!(matches!(missing, ProblemError::OverlapsMissingBlock { .. }));
    assert_eq!(missing.to_string(), "block 0: overlaps block 7, which does not exist: there are 1 blocks");
    let itself = refused(vec![over(block(8, 0, 2), 0)]);
    assert_eq!(itself.to_string(), "block 0: overlaps itself");
    for start in [0, 2] {
        let late = refused(vec![block(8, 0, 2), over(block(8, start, 4), 0)]);
        assert!(matches!(late, ProblemError::OverlapsAtAnotherStep { .. }), "{late}");
        assert_eq!(
            late.to_string(),
            format!(
                "block 1: starts at another step than the last of block 0, which it overlaps: expected 1, got {start}"
            )
        );
    }
    let newborn = refused(vec![block(8, 1, 2), over(block(8, 1, 4), 0)]);
    assert_eq!(
        newborn.to_string(),
        "block 1: starts together with block 0, which it overlaps: expected a step after 1"
    );
    let twice = refused(vec![block(8, 0, 2), over(block(8, 1, 4), 0), over(block(8, 1, 4), 0)]);
    assert_eq!(twice.to_string(), "block 2: overlaps block 0, which block 1 overlaps already");
    let both = refused(vec![block(8, 0, 2), block(8, 0, 1), over(block(8, 1, 4).following(id(1)), 0)]);
    assert_eq!(both.to_string(), "block 2: overlaps block 0 and follows block 1: expected at most one of them");
    let followed = refused(vec![block(8, 0, 2), over(block(8, 1, 4), 0), block(8, 2, 3).following(id(0))]);
    assert_eq!(followed.to_string(), "block 1: overlaps block 0, which block 2 follows");
}

#[test]
fn chains_of_followers_overlap_each_other_at_their_ends() {
    // 0 <- 1 is a chain whose last member dies as the chain 2 <- 3 begins.
    let blocks = vec![
        block(100, 0, 2),
        block(60, 2, 4).following(id(0)),
        block(120, 3, 5).overlapping(id(1), Bytes(20)),
        block(70, 5, 7).following(id(2)),
    ];
    let problem = Problem::new(blocks).unwrap();
    assert_eq!(lower_bound(&problem).bytes, Bytes(120));
    let plan = plan(problem, &Strategy::Fast).unwrap();
    assert_eq!(plan.peak(), Bytes(120));
    assert_eq!(plan.place(id(2)), plan.place(id(3)));
}

#[test]
fn pinned_blocks_overlap_as_others_do() {
    let pinned = |offset: u64| {
        Problem::new(vec![
            block(64, 0, 2).pinned_at(at(48)),
            block(64, 1, 3).pinned_at(at(offset)).overlapping(id(0), Bytes(48)),
            block(16, 1, 2),
        ])
        .unwrap()
    };
    for strategy in [Strategy::BestFit, Strategy::Fast, Strategy::Best(Best::new(Budget::Nodes(500)))] {
        assert_eq!(plan(pinned(0), &strategy).unwrap().peak(), Bytes(128), "{strategy}");
    }
    let error = place(&pinned(1), &Strategy::Fast).unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "block 1 starts 47 bytes below block 0, which it overlaps: expected at least 48");
    let error = place(&pinned(50), &Strategy::Fast).unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(
        source.to_string(),
        "block 1 starts 2 bytes above block 0, which it overlaps: expected at least 48 below"
    );
}

#[test]
fn two_large_blocks_that_overlap_share_a_limited_buffer() {
    let blocks = vec![block(10, 0, 2), block(10, 1, 3).overlapping(id(0), Bytes(2))];
    let problem = Problem::new(blocks.clone()).unwrap().with_max_buffer(Bytes(12));
    let shared = plan(problem, &Strategy::Fast).unwrap();
    assert_eq!((shared.peak(), shared.buffers().len()), (Bytes(12), 1));
    let problem = Problem::new(blocks).unwrap().with_max_buffer(Bytes(11));
    assert_eq!(lower_bound(&problem).bytes, Bytes(20));
    assert_eq!(plan(problem, &Strategy::Fast).unwrap().buffers().len(), 2);
}

#[test]
fn an_alignment_widens_the_distance() {
    let align = Align::new(16).unwrap();
    let blocks = vec![block(64, 0, 2).aligned(align), block(64, 1, 3).aligned(align).overlapping(id(0), Bytes(17))];
    let problem = Problem::new(blocks).unwrap();
    assert_eq!(lower_bound(&problem).bytes, Bytes(96));
    assert_eq!(plan(problem, &Strategy::Fast).unwrap().peak(), Bytes(96));
}

#[test]
fn a_problem_with_overlaps_gives_the_same_answer_every_time() {
    for seed in 0..200 {
        let problem = random(seed, ProblemShape { blocks: 60, steps: 40, size: 60, ..SMALL });
        let answer =
            |threads| place(&problem, &Strategy::Best(Best::new(Budget::Nodes(3000)).with_threads(threads))).unwrap();
        let alone = answer(1);
        assert_eq!(alone, answer(3), "seed {seed}");
        assert!(alone.peak <= place(&problem, &Strategy::Fast).unwrap().peak, "seed {seed}");
        assert_eq!(alone.at_least, lower_bound(&problem).bytes, "seed {seed}: proved without a proof");
    }
}
