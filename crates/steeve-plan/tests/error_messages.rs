//! Every error is one line without a period at its end, and does not repeat the message of its source.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::error::Error;

use steeve_plan::csv::{self, Table};
use steeve_plan::file::PlanFile;
use steeve_plan::fuzz::{self, ByteDice};
use steeve_plan::{
    Align, Block, BlockId, Budget, BufferId, Bytes, Id, IdVec, InputLimit, Lifetime, Offset, Place, PlaceError,
    Placement, Problem, Strategy, certify, plan,
};

/// Checks an error and all its sources.
fn check(error: &(dyn Error + 'static)) {
    let mut at = Some(error);
    while let Some(error) = at {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\n'), "not one line: {message:?}");
        assert!(!message.ends_with('.'), "ends with a period: {message}");
        at = error.source();
        if let Some(source) = at {
            assert!(!message.contains(&source.to_string()), "repeats its source: {message}");
        }
    }
}

fn block(size: u64, start: u64, end: u64) -> Block {
    Block::new(Bytes(size), Lifetime::new(start, end).unwrap())
}

#[test]
fn units_and_budgets() {
    check(&Align::new(48).unwrap_err());
    check(&Lifetime::new(3, 3).unwrap_err());
    check(&InputLimit::new(Bytes(1)).check(2).unwrap_err());
    for text in ["", "500", "99999999999999999999999h"] {
        check(&text.parse::<Budget>().unwrap_err());
    }
}

#[test]
fn problems() {
    let id = |index| BlockId::from_index(index).unwrap();
    let place = |buffer, offset| Place { buffer: BufferId::from_index(buffer).unwrap(), offset: Offset(offset) };
    let (eight, huge) = (Align::new(8).unwrap(), Align::new(1 << 63).unwrap());
    let wrong: Vec<Vec<Block>> = vec![
        vec![block(u64::MAX / 2, 0, 1), block(u64::MAX / 2, 0, 1), block(9, 0, 1)],
        vec![block(2600, 7, 8).aligned(huge), block(11, 9, 11), block(753, 7, 10)],
        vec![block(1, 0, 1).following(id(7))],
        vec![block(1, 0, 1), block(1, 1, 2).following(id(0)), block(1, 1, 2).following(id(0))],
        vec![block(1, 0, 1), block(1, 2, 3).following(id(0))],
        vec![block(1, 0, 1), block(2, 1, 2).following(id(0))],
        vec![block(1, 0, 1), block(1, 1, 2).following(id(0)).pinned_at(place(0, 8))],
        vec![block(1, 0, 2).overlapping(id(7), Bytes(1))],
        vec![block(1, 0, 2).overlapping(id(0), Bytes(1))],
        vec![block(1, 0, 2), block(1, 2, 3).overlapping(id(0), Bytes(1))],
        vec![block(1, 1, 2), block(1, 1, 3).overlapping(id(0), Bytes(1))],
        vec![block(1, 0, 2), block(1, 1, 3).overlapping(id(0), Bytes(1)), block(1, 1, 3).overlapping(id(0), Bytes(1))],
        vec![block(1, 0, 2), block(1, 0, 1), block(1, 1, 3).overlapping(id(0), Bytes(1)).following(id(1))],
        vec![block(1, 0, 2), block(1, 1, 3).overlapping(id(0), Bytes(1)), block(1, 2, 3).following(id(0))],
        vec![block(1, 0, 1).aligned(eight).pinned_at(place(0, 4))],
        vec![block(1, 0, 1).pinned_at(place(5, 0))],
    ];
    for blocks in wrong {
        check(&Problem::new(blocks).unwrap_err());
    }
}

#[test]
fn placing() {
    let two = || Problem::new(vec![block(4, 0, 2), block(6, 1, 3)]).unwrap();
    check(&plan(two().with_capacity(Bytes(8)), &Strategy::Fast).unwrap_err());
    let (capacity, peak, at_least) = (Bytes(8), Bytes(9), Bytes(7));
    check(&PlaceError::NotFound { capacity, peak, at_least });
    check(&PlaceError::AddressSpace);
    let pinned = |offset| block(4, 0, 2).pinned_at(Place::first(Offset(offset)));
    let overlapping = Problem::new(vec![pinned(0), pinned(2)]).unwrap();
    let error = plan(overlapping, &Strategy::Fast).unwrap_err();
    assert!(error.source().is_some(), "{error}");
    check(&error);
}

#[test]
fn violations() {
    for seed in 0..500 {
        let bytes = fuzz::pseudo_random_bytes(seed, 600);
        let mut dice = ByteDice::new(&bytes);
        let problem = fuzz::problem(&mut dice).with_capacity(Bytes(30));
        let mut place = |_| Place {
            buffer: BufferId::from_index(dice.roll(9) as usize).unwrap(),
            offset: Offset(if dice.once_in(20) { u64::MAX - 3 } else { dice.roll(60) }),
        };
        let places: Vec<Place> = (0..problem.blocks().len()).map(&mut place).collect();
        if let Err(wrong) = certify(problem, Placement::new(places)) {
            wrong.list().iter().for_each(|violation| check(violation));
            check(&wrong);
        }
    }
    check(&certify(Problem::new(vec![block(1, 0, 1)]).unwrap(), Placement::new(vec![])).unwrap_err());
}

#[test]
fn block_lists() {
    for row in ["a,0,2,8,z,1", "a,0,2,8,z,", "a,0,2,8,,1"] {
        check(&csv::read(&format!("id,lower,upper,size,overlaps,distance\n{row}\n")).unwrap_err());
    }
    let header = "id,lower,upper,size,alignment,buffer,offset,follows\n";
    for text in ["", "a;b", "id,id", "id,lower,size"] {
        check(&csv::read(text).unwrap_err());
    }
    let rows = [
        "a,0,2",
        "a,0,2,8,,,,,9",
        "a,0,2,,,,,",
        "a,0,2,-8,,,,",
        "a,0,2,8.5,,,,",
        "a,0,2,x,,,,",
        "a,2,2,8,,,,",
        "a,0,2,18446744073709551616,,,,",
        "a,0,2,8,3,,,",
        ",0,2,8,,,,",
        "a,0,2,8,,1,,",
        "a,0,2,8,,4294967295,0,",
        "a,0,2,8,,,,z",
        "\"a",
        "\"a\"b,0,2,8,,,,",
        "a,0,2,8,,,,\na,0,2,8,,,,",
    ];
    for row in rows {
        check(&csv::read(&format!("{header}{row}\n")).unwrap_err());
    }
    check(&csv::read_within("id,lower,upper,size\n", InputLimit::new(Bytes(3))).unwrap_err());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<IdVec<BlockId, String>>();
    let lost = vec![block(1, 0, 1), block(1, 1, 2).following(BlockId::from_index(7).unwrap())];
    check(&Table::new(names(&["a"]), lost.clone(), vec![None; 2]).unwrap_err());
    check(&Table::new(names(&["a", ""]), lost.clone(), vec![None; 2]).unwrap_err());
    check(&Table::new(names(&["a", "a"]), lost.clone(), vec![None; 2]).unwrap_err());
    check(&Table::new(names(&["a", "b"]), lost, vec![None; 2]).unwrap_err());
    let lost = vec![block(1, 0, 2), block(1, 1, 2).overlapping(BlockId::from_index(7).unwrap(), Bytes(1))];
    check(&Table::new(names(&["a", "b"]), lost, vec![None; 2]).unwrap_err());
    check(&csv::read("lower,upper,size\n0,1,1\n").unwrap().placement().unwrap_err());
}

#[test]
fn plan_files() {
    let plan = plan(Problem::new(vec![block(64, 0, 2), block(32, 1, 3)]).unwrap(), &Strategy::Fast).unwrap();
    let names: IdVec<BlockId, String> = ["a", "b"].map(String::from).to_vec().into();
    let file = PlanFile::of_blocks("fast", &plan, &names, plan.bound().bytes);
    let text = file.to_json();
    let long = "n".repeat(5000);
    for (from, to) in [
        ("\"steeve-plan\"", "\"other\""),
        ("\"schema\":\"steeve-plan\",", ""),
        ("\"version\":3", "\"version\":4"),
        ("\"fast\"", "\"slow\""),
        ("\"memories\"", "\"as\":\"x\",\"memories\""),
        ("\"memories\"", "\"reuse\":\"more\",\"memories\""),
        ("\"peak\"", long.as_str()),
        ("\"peak\":96", "\"peak\":\"many\""),
        ("{", "["),
    ] {
        check(&PlanFile::from_json(&text.replacen(from, to, 1)).unwrap_err());
    }
    let unknown = PlanFile::from_json(&text.replacen("peak", &long, 1)).unwrap_err();
    assert!(unknown.source().unwrap().to_string().len() < 400, "clipped");
    let mut wrong = file.memories[0].clone();
    (wrong.peak, wrong.lower_bound) = (Bytes(7), Bytes(1 << 40));
    check(&wrong.certify().unwrap_err());
    wrong.blocks[1].offset = Offset(1 << 40);
    wrong.faults().iter().for_each(|fault| check(fault));
    wrong.blocks[1].buffer = BufferId::from_index(3).unwrap();
    wrong.faults().iter().for_each(|fault| check(fault));
    wrong.blocks[0].follows = BlockId::from_index(0);
    wrong.faults().iter().for_each(|fault| check(fault));
}
