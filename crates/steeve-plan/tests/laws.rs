//! Laws that hold for every problem and every strategy, on random problems of all shapes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_plan::fuzz::{self, AlignmentMix, ByteDice, ProblemFeatures, ProblemShape};
use steeve_plan::{
    Align, Best, Block, BlockId, Budget, BufferId, Bytes, Id, Lifetime, Offset, Place, PlaceError, Placement, Plan,
    Problem, ProblemError, Strategy, Verdict, certify, lower_bound, place, place_watched, plan,
};

fn best(nodes: u64) -> Strategy {
    Strategy::Best(Best::new(Budget::Nodes(nodes)))
}

fn block(size: u64, start: u64, end: u64) -> Block {
    Block::new(Bytes(size), Lifetime::new(start, end).unwrap())
}

#[test]
fn every_strategy_makes_a_valid_plan_of_every_problem() {
    for seed in 0..fuzz::inputs(8000) {
        fuzz::strategy_body(&fuzz::pseudo_random_bytes(seed.into(), 600));
    }
}

#[test]
fn a_free_list_gives_no_byte_out_twice() {
    for seed in 0..fuzz::inputs(8000) {
        fuzz::free_list_body(&fuzz::pseudo_random_bytes(seed.into(), 400));
    }
}

#[test]
fn any_bytes_as_csv_are_an_error_or_survive_a_round_trip() {
    for seed in 0..fuzz::inputs(6000) {
        let noise = fuzz::pseudo_random_bytes(seed.into(), 300);
        match seed % 3 {
            0 => fuzz::csv_body(&noise),
            // Mostly well-formed text gets further than noise.
            1 => fuzz::csv_body(words(&mut ByteDice::new(&noise)).as_bytes()),
            _ => fuzz::csv_body(rows(&mut ByteDice::new(&noise)).as_bytes()),
        }
    }
}

/// Returns words that occur in block lists, in any order.
fn words(dice: &mut ByteDice<'_>) -> String {
    const WORDS: [&str; 19] = [
        "id",
        "lower",
        "upper",
        "size",
        "offset",
        "alignment",
        ",",
        ",",
        "\n",
        "\n",
        "0",
        "1",
        "7",
        "64",
        " ",
        "\"",
        "x",
        "-1",
        "\r\n",
    ];
    let mut text = String::from(["id,lower,upper,size\n", "size,upper,lower,offset\n", ""][dice.roll(3) as usize]);
    for _ in 0..60 {
        text.push_str(WORDS[dice.roll(WORDS.len() as u64) as usize]);
    }
    text
}

/// Returns a block list of a few rows with numbers from their whole ranges.
fn rows(dice: &mut ByteDice<'_>) -> String {
    const NUMBERS: [&str; 12] = [
        "0",
        "1",
        "2",
        "7",
        "64",
        "2600",
        "1048576",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
    ];
    let headers = [
        "lower,upper,size",
        "lower,upper,size,alignment,offset",
        "lower,upper,size,alignment",
        "lower,upper,size,overlaps,distance,offset",
    ];
    let header = headers[dice.roll(4) as usize];
    let mut text = format!("{header}\n");
    for _ in 0..dice.roll(6) {
        let number = |column: &str| {
            // AlignmentMix are powers of two and lifetimes not empty, or else no row is ever read.
            let (from, sides) = match column {
                "lower" => (0, 3),
                "upper" => (3, 6),
                "overlaps" => (0, 2),
                "alignment" => (1, 1 + dice.roll(6)),
                _ => (0, 1 + dice.roll(12)),
            };
            let power = |number: &str| number.parse::<u64>().is_ok_and(u64::is_power_of_two);
            let found = NUMBERS[from + dice.roll(sides) as usize];
            if column == "alignment" && !power(found) { "9223372036854775808" } else { found }
        };
        text.push_str(&header.split(',').map(number).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

#[test]
fn a_mirrored_problem_has_the_same_bound_and_a_scaled_one_a_scaled_bound() {
    for seed in 0..500 {
        let bytes = fuzz::pseudo_random_bytes(seed, 300);
        let shape = ProblemShape {
            blocks: 20,
            steps: 20,
            size: 100,
            alignments: AlignmentMix::None,
            extras: ProblemFeatures::Limit,
        };
        let problem = fuzz::problem_of_shape(&mut ByteDice::new(&bytes), shape);
        let limit = problem.max_buffer().unwrap();
        let flip = |it: &Block| block(it.size.0, 1000 - it.life.end().0, 1000 - it.life.start().0);
        let grow = |it: &Block| block(it.size.0 * 37, it.life.start().0 * 3, it.life.end().0 * 3);
        let map = |change: &dyn Fn(&Block) -> Block| problem.blocks().iter().map(change).collect::<Vec<_>>();
        let mirrored = Problem::new(map(&flip)).unwrap().with_max_buffer(limit);
        let scaled = Problem::new(map(&grow)).unwrap().with_max_buffer(Bytes(limit.0 * 37));
        let bound = lower_bound(&problem).bytes.0;
        assert_eq!(lower_bound(&mirrored).bytes.0, bound);
        // Above the limit a buffer holds one block, whatever the rounding of half the limit says.
        assert_eq!(lower_bound(&scaled).bytes.0, bound * 37, "seed {seed}");
        let peak = |problem: &Problem| place(problem, &Strategy::Fast).unwrap().peak.0;
        assert_eq!(peak(&scaled), peak(&problem) * 37);
    }
}

#[test]
fn the_same_problem_gives_the_same_answer_with_any_number_of_threads() {
    for seed in 0..60 {
        let bytes = fuzz::pseudo_random_bytes(seed, 600);
        let shape = ProblemShape {
            blocks: 60,
            steps: 40,
            size: 60,
            alignments: AlignmentMix::None,
            extras: ProblemFeatures::Plain,
        };
        let problem = fuzz::problem_of_shape(&mut ByteDice::new(&bytes), shape);
        let answer = |threads| place(&problem, &Strategy::Best(Best::new(Budget::Nodes(4000)).with_threads(threads)));
        let alone = answer(1).unwrap();
        for threads in [1, 2, 3, 5] {
            assert_eq!(answer(threads).unwrap(), alone, "seed {seed}, {threads} threads");
        }
        assert_eq!(place(&problem, &Strategy::Fast), place(&problem, &Strategy::Fast));
    }
}

#[test]
fn edge_cases_are_fine_or_clear_errors() {
    let everything = [Strategy::BestFit, Strategy::Fast, best(1000)];
    let planned = |blocks: Vec<Block>| -> Vec<Plan> {
        let problem = Problem::new(blocks).unwrap();
        everything.iter().map(|strategy| plan(problem.clone(), strategy).unwrap()).collect()
    };
    for plan in planned(vec![]) {
        assert_eq!((plan.peak(), plan.bound().step, plan.buffers().len()), (Bytes(0), None, 0));
        assert!(plan.is_optimal());
    }
    for plan in planned(vec![block(0, 0, 1), block(0, 0, 1)]) {
        assert_eq!(plan.peak(), Bytes(0));
    }
    let half = i64::MAX as u64;
    for plan in planned(vec![block(half, 0, 1)]) {
        assert_eq!(plan.peak(), Bytes(half));
    }
    for plan in planned(vec![block(half, 0, 1), block(half, 1, 2)]) {
        assert_eq!(plan.peak(), Bytes(half));
    }
    for plan in planned(vec![block(1, u64::MAX - 1, u64::MAX)]) {
        assert_eq!(plan.peak(), Bytes(1));
    }
    let error = Problem::new(vec![block(half, 0, 1); 3]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "block 2: address space exceeded: with its 9223372036854775807 bytes, the blocks so far take 2^64 bytes or more"
    );
    let wide = Align::new(1 << 63).unwrap();
    assert!(Problem::new(vec![block(1, 0, 1).aligned(wide); 2]).is_err());
    let single = Problem::new(vec![block(1, 0, 1).aligned(wide)]).unwrap();
    assert_eq!(plan(single, &Strategy::Fast).unwrap().peak(), Bytes(1 << 63));
}

#[test]
fn padding_up_to_an_aligned_offset_counts_at_the_door() {
    let refused = |text: &str| {
        let table = steeve_plan::csv::read(text).unwrap();
        table.problem().unwrap_err().to_string()
    };
    let wide = "id,lower,upper,size,alignment\na,7,8,2600,9223372036854775808\nb,9,11,11,2\nc,7,10,753,1048576\n";
    assert_eq!(
        refused(wide),
        "block 1: address space exceeded: with padding, the blocks so far take 2^64 bytes or more; block 0 is aligned to \
         9223372036854775808"
    );
    // Where all alignments are equal there is no padding between blocks, however wide they are.
    let quarter = Align::new(1 << 62).unwrap();
    let most = Problem::new(vec![block(1, 0, 1).aligned(quarter); 3]).unwrap();
    assert_eq!(plan(most, &Strategy::Fast).unwrap().peak(), Bytes(3 << 62));
    assert!(Problem::new(vec![block(1, 0, 1).aligned(quarter); 4]).is_err());
    // AlignmentMix as wide as a terabyte beside ordinary ones are fine, and so is what has no bytes.
    let huge = Align::new(1 << 40).unwrap();
    let mixed = |index: u64| {
        block(1000 + index, index, index + 3).aligned(if index.is_multiple_of(2) { huge } else { Align::ONE })
    };
    let mut blocks: Vec<Block> = (0..1000).map(mixed).collect();
    blocks.push(block(0, 0, 1).aligned(Align::new(1 << 63).unwrap()));
    for strategy in [Strategy::BestFit, Strategy::Fast, best(1000)] {
        assert_eq!(
            plan(Problem::new(blocks.clone()).unwrap(), &strategy).unwrap().bound().live,
            Bytes((2 << 40) + 1997)
        );
    }
}

#[test]
fn a_capacity_below_the_bound_is_refused_with_the_numbers() {
    let problem = Problem::new(vec![block(10, 3, 9), block(20, 5, 6)]).unwrap().with_capacity(Bytes(25));
    let outcome = place(&problem, &Strategy::Fast).unwrap();
    assert_eq!((outcome.verdict, outcome.peak), (Verdict::CannotFit, Bytes(30)));
    let error = plan(problem, &best(1000)).unwrap_err();
    assert_eq!(error.to_string(), "capacity: too small: at least 30 bytes needed (alive at step 5), got 25");
}

#[test]
fn the_limit_of_a_buffer_tightens_the_bound() {
    let blocks = vec![block(8, 1, 2), block(5, 2, 3), block(5, 2, 3)];
    let bound = lower_bound(&Problem::new(blocks).unwrap().with_max_buffer(Bytes(8)));
    assert_eq!((bound.bytes, bound.live), (Bytes(13), Bytes(10)));
}

#[test]
fn an_oversized_block_has_a_buffer_that_others_share_over_time() {
    let blocks = vec![block(100, 5, 6), block(8, 0, 2), block(8, 0, 2), block(4, 5, 7)];
    let problem = Problem::new(blocks).unwrap().with_max_buffer(Bytes(10));
    for strategy in [Strategy::BestFit, Strategy::Fast, best(1000)] {
        let plan = plan(problem.clone(), &strategy).unwrap();
        let sizes: Vec<u64> = plan.buffers().iter().map(|size| size.0).collect();
        if strategy != Strategy::BestFit {
            assert_eq!(sizes, [100, 4], "{strategy}");
        }
    }
}

#[test]
fn a_follower_keeps_the_place_and_gives_back_the_tail() {
    let first = block(100, 0, 5);
    let second = block(60, 5, 9).following(BlockId::from_index(0).unwrap());
    let problem = Problem::new(vec![first, second, block(40, 5, 9)]).unwrap();
    // Best fit uses the tail; merged chains can't, and so `Fast` falls back to it.
    for strategy in [Strategy::BestFit, Strategy::Fast, best(1000)] {
        let plan = plan(problem.clone(), &strategy).unwrap();
        assert_eq!(plan.peak(), Bytes(100), "{strategy}");
        assert_eq!(plan.place(BlockId::from_index(0).unwrap()), plan.place(BlockId::from_index(1).unwrap()));
    }
}

#[test]
fn chains_that_can_not_be_are_refused() {
    let follow = |size, start, end, before| block(size, start, end).following(BlockId::from_index(before).unwrap());
    let refused = |blocks: Vec<Block>| Problem::new(blocks).unwrap_err();
    assert!(matches!(refused(vec![follow(1, 0, 1, 4)]), ProblemError::FollowsMissingBlock { .. }));
    assert!(matches!(refused(vec![follow(1, 0, 1, 0)]), ProblemError::FollowsAtAnotherStep { .. }));
    assert!(matches!(refused(vec![block(4, 0, 1), follow(5, 1, 2, 0)]), ProblemError::FollowsSmaller { .. }));
    assert!(matches!(refused(vec![block(4, 0, 1), follow(4, 2, 3, 0)]), ProblemError::FollowsAtAnotherStep { .. }));
    let twice = vec![block(4, 0, 1), follow(4, 1, 2, 0), follow(4, 1, 2, 0)];
    assert!(matches!(refused(twice), ProblemError::FollowsTwice { .. }));
    let place = Place::first(Offset(8));
    let astray = vec![block(4, 0, 1), follow(4, 1, 2, 0).pinned_at(place)];
    assert!(matches!(refused(astray), ProblemError::FollowsElsewhere { .. }));
    let wide = Align::new(16).unwrap();
    let narrow = vec![block(4, 0, 1).pinned_at(place), follow(4, 1, 2, 0), follow(4, 2, 3, 1).aligned(wide)];
    assert!(matches!(refused(narrow), ProblemError::PinnedUnaligned { .. }));
}

#[test]
fn pinned_blocks_stay_and_the_rest_finds_room_around_them() {
    let pinned = block(10, 0, 10).pinned_at(Place::first(Offset(20)));
    let problem = Problem::new(vec![pinned, block(20, 2, 8), block(5, 4, 6)]).unwrap();
    for strategy in [Strategy::BestFit, Strategy::Fast, best(1000)] {
        let plan = plan(problem.clone(), &strategy).unwrap();
        assert_eq!(plan.peak(), Bytes(35), "{strategy}");
        assert_eq!(plan.places().as_slice()[0], Place::first(Offset(20)));
    }
    let both = vec![pinned, block(1, 3, 4).pinned_at(Place::first(Offset(25)))];
    let error = place(&Problem::new(both).unwrap(), &Strategy::Fast).unwrap_err();
    assert!(matches!(error, PlaceError::Pinned(_)));
    assert_eq!(error.to_string(), "pinned blocks: inconsistent");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "blocks 0 and 1 share byte 25 of buffer 0 at step 3");
    let far = block(1, 0, 1).pinned_at(Place { buffer: BufferId::from_index(7).unwrap(), offset: Offset(0) });
    assert!(matches!(Problem::new(vec![far]), Err(ProblemError::PinnedBufferTooLarge { .. })));
}

#[test]
fn a_search_can_be_watched_and_cancelled() {
    // Nothing fast is optimal here, so the search runs.
    let problem = (0..)
        .map(|seed| {
            let shape = ProblemShape {
                blocks: 250,
                steps: 60,
                size: 200,
                alignments: AlignmentMix::None,
                extras: ProblemFeatures::Plain,
            };
            fuzz::problem_of_shape(&mut ByteDice::new(&fuzz::pseudo_random_bytes(seed, 2000)), shape)
        })
        .find(|problem| place(problem, &Strategy::Fast).unwrap().verdict == Verdict::Fits)
        .unwrap();
    let mut calls = 0;
    let outcome = place_watched(&problem, &best(u64::MAX), &mut |progress| {
        calls += 1;
        assert!(progress.at_least <= progress.peak);
        std::ops::ControlFlow::Break(())
    });
    assert_eq!(calls, 1);
    assert!(certify(problem, outcome.unwrap().placement).is_ok());
}

#[test]
fn a_profile_tells_live_and_wasted_bytes() {
    let problem = Problem::new(vec![block(4, 0, 2), block(6, 1, 4), block(2, 3, 4)]).unwrap();
    let places = [0, 4, 0].map(|offset| Place::first(Offset(offset)));
    let plan = certify(problem, Placement::new(places.to_vec())).unwrap();
    let profile: Vec<(u64, u64, u64)> =
        plan.profile().iter().map(|moment| (moment.step.0, moment.live.0, moment.wasted.0)).collect();
    assert_eq!(profile, [(0, 4, 0), (1, 10, 0), (2, 6, 4), (3, 8, 2), (4, 0, 0)]);
    let report = plan.report();
    assert_eq!((report.blocks, report.peak, report.optimal), (3, Bytes(10), true));
    assert_eq!(report.alive_at_bound.len(), 2);
}
