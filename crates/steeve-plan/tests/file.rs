//! Plan files of block lists: what is written is read again, and a file that is wrong says all that is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use steeve_plan::csv::Table;
use steeve_plan::file::{FileFault, PlanFile, PlanFileError};
use steeve_plan::fuzz::{self, AlignmentMix, ByteDice, ProblemFeatures, ProblemShape};
use steeve_plan::{Best, BlockId, Budget, Bytes, IdVec, Strategy, Violation, plan};

fn random(seed: u64) -> (steeve_plan::Plan, IdVec<BlockId, String>) {
    let extras = [
        ProblemFeatures::Plain,
        ProblemFeatures::Followers,
        ProblemFeatures::Pins,
        ProblemFeatures::Limit,
        ProblemFeatures::Overlaps,
        ProblemFeatures::All,
    ][seed as usize % 6];
    let alignments = if seed.is_multiple_of(2) { AlignmentMix::None } else { AlignmentMix::Mixed };
    let shape = ProblemShape { blocks: 1 + seed % 40, steps: 20, size: 300, alignments, extras };
    let problem = fuzz::problem_of_shape(&mut ByteDice::new(&fuzz::pseudo_random_bytes(seed, 2000)), shape);
    let problem = problem.without_capacity();
    let strategy = match seed % 4 {
        0 => Strategy::Best(Best::new(Budget::Nodes(50))),
        1 => Strategy::BestFit,
        _ => Strategy::Fast,
    };
    let plan = plan(problem, &strategy).or_else(|_| plan_fast(seed, shape)).unwrap();
    let names = (0..plan.places().len()).map(|index| format!("b{index}")).collect();
    (plan, names)
}

fn plan_fast(seed: u64, shape: ProblemShape) -> Result<steeve_plan::Plan, steeve_plan::PlaceError> {
    let problem = fuzz::problem_of_shape(
        &mut ByteDice::new(&fuzz::pseudo_random_bytes(seed, 2000)),
        ProblemShape { extras: ProblemFeatures::Plain, ..shape },
    );
    plan(problem.without_capacity(), &Strategy::Fast)
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    for seed in 0..600 {
        let (plan, names) = random(seed);
        let file = PlanFile::of_blocks("fast", &plan, &names, plan.bound().bytes);
        let text = file.to_json();
        let read = PlanFile::from_json(&text).unwrap_or_else(|error| panic!("{seed}: {error}\n{text}"));
        assert_eq!(read, file, "{seed}");
        assert_eq!(read.to_json(), text, "{seed}");
        let pinless = |plan: &steeve_plan::Plan| {
            let blocks: Vec<_> = plan
                .problem()
                .blocks()
                .iter()
                .map(|it| (it.size, it.life, it.align, it.follows, it.overlaps))
                .collect();
            (blocks, plan.places().clone(), plan.buffers().clone(), plan.peak())
        };
        assert_eq!(pinless(&read.memories[0].certify().unwrap()), pinless(&plan), "{seed}");
        let table = read.table().unwrap();
        assert_eq!(table, Table::of_plan(&plan, names).unwrap(), "{seed}");
        let again = PlanFile::of_table(&table).unwrap();
        assert_eq!(again.memories[0].used_sizes(), plan.buffers().as_slice(), "{seed}");
    }
}

#[test]
fn the_form_does_not_change_without_a_new_version() {
    let table = steeve_plan::csv::read(
        "id,lower,upper,size,alignment,follows\nconv,0,3,4096,64,\nrelu,3,5,1024,64,conv\n,1,2,8,4,\n",
    );
    assert!(table.is_err(), "names are never empty");
    let table = steeve_plan::csv::read(
        "id,lower,upper,size,alignment,follows\nconv,0,3,4096,64,\nrelu,3,5,1024,64,conv\nx,1,2,8,4,\n",
    )
    .unwrap();
    let plan = plan(table.problem().unwrap(), &Strategy::Fast).unwrap();
    let mut file = PlanFile::of_blocks("fast", &plan, table.ids(), Bytes(4104));
    file.source = Some("net.csv".to_owned());
    let expected = r#"{"schema":"steeve-plan","version":3,"source":"net.csv","strategy":"fast","memories":[{"name":"memory","alignment":64,"peak":4104,"lower_bound":4104,"buffers":[4104],"blocks":[{"name":"conv","size":4096,"live":[0,3],"buffer":0,"offset":0},{"name":"relu","size":1024,"live":[3,5],"buffer":0,"offset":0,"follows":0},{"name":"x","size":8,"live":[1,2],"alignment":4,"buffer":0,"offset":4096}]}]}"#;
    assert_eq!(file.to_json(), expected);
}

#[test]
fn an_overlap_is_written_and_held_against_the_offsets() {
    let table =
        steeve_plan::csv::read("id,lower,upper,size,overlaps,distance\nconv,0,2,64,,\nrelu,1,3,128,conv,80\n").unwrap();
    let plan = plan(table.problem().unwrap(), &Strategy::Fast).unwrap();
    let text = PlanFile::of_blocks("fast", &plan, table.ids(), Bytes(144)).to_json();
    let blocks = r#""blocks":[{"name":"conv","size":64,"live":[0,2],"buffer":0,"offset":80},{"name":"relu","size":128,"live":[1,3],"buffer":0,"offset":0,"overlaps":{"block":0,"distance":80}}]"#;
    assert!(text.contains(blocks), "{text}");
    assert_eq!(PlanFile::from_json(&text).unwrap().memories[0].certify().unwrap(), plan);
    let faults = |from: &str, to: &str| PlanFile::from_json(&text.replace(from, to)).unwrap().memories[0].faults();
    let wrong = faults(r#""distance":80"#, r#""distance":81"#);
    assert_eq!(
        wrong.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["block 1 starts 80 bytes below block 0, which it overlaps: expected at least 81"]
    );
    let wrong = faults(r#""overlaps":{"block":0"#, r#""overlaps":{"block":5"#);
    assert!(matches!(wrong.as_slice(), [FileFault::Problem(_)]), "{wrong:?}");
    let half = text.replace(r#","distance":80"#, "");
    assert!(matches!(PlanFile::from_json(&half).unwrap_err(), PlanFileError::Json(_)));
}

#[test]
fn everything_that_is_wrong_is_listed() {
    let table =
        steeve_plan::csv::read("id,lower,upper,size,alignment\na,0,3,64,64\nb,1,3,64,64\nc,2,3,64,64\n").unwrap();
    let plan = plan(table.problem().unwrap(), &Strategy::Fast).unwrap();
    let text = PlanFile::of_blocks("fast", &plan, table.ids(), Bytes(192)).to_json();
    let faults = |edit: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        edit(&mut value["memories"][0]);
        PlanFile::from_json(&value.to_string()).unwrap().memories[0].faults()
    };
    assert_eq!(faults(&|_| {}), []);
    let wrong = faults(&|memory| {
        for (block, offset) in [(0, 0), (1, 0), (2, 1000)] {
            memory["blocks"][block]["offset"] = json!(offset);
        }
    });
    assert!(wrong.iter().any(|it| matches!(it, FileFault::Outside { .. })), "{wrong:?}");
    assert!(wrong.iter().any(|it| matches!(it, FileFault::Violation(Violation::Misaligned { .. }))), "{wrong:?}");
    assert!(wrong.iter().any(|it| matches!(it, FileFault::Violation(Violation::Overlap { .. }))), "{wrong:?}");
    let wrong = faults(&|memory| memory["blocks"][1]["buffer"] = json!(7));
    assert!(matches!(wrong[0], FileFault::NoBuffer { buffers: 1, .. }), "{wrong:?}");
    for (field, value, message) in [
        ("peak", json!(193), "peak: does not match the blocks: expected 192, got 193"),
        ("buffers", json!([96, 96]), "buffers: does not match the blocks: expected [64], got [96, 96]"),
        ("lower_bound", json!(193), "lower_bound: does not match the blocks: expected at most 192, got 193"),
    ] {
        let wrong = faults(&|memory| {
            memory[field] = value.clone();
            if field == "buffers" {
                memory["blocks"] = json!([memory["blocks"][0]]);
                (memory["peak"], memory["lower_bound"]) = (json!(192), json!(64));
            }
        });
        assert_eq!(wrong.iter().map(ToString::to_string).collect::<Vec<_>>(), [message]);
    }
    let wrong = faults(&|memory| memory["blocks"][0]["follows"] = json!(0));
    assert!(matches!(wrong.as_slice(), [FileFault::Problem(_)]), "{wrong:?}");
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    let refused = |text: &str| PlanFile::from_json(text).unwrap_err();
    let again = "make it again with steeve plan -o";
    for old in ["{}", r#"{"version":1,"file":"a.csv","blocks":[]}"#, r#"{"version":2,"fingerprint":"","memories":[]}"#]
    {
        let error = refused(old);
        assert!(matches!(error, PlanFileError::NoSchema) && error.to_string().contains(again), "{error}");
    }
    let newer = refused(r#"{"schema":"steeve-plan","version":4,"colours":[]}"#);
    assert!(matches!(newer, PlanFileError::Version { found: 4 }) && newer.to_string().contains(again), "{newer}");
    let other = refused(r#"{"schema":"galloc-dump-1","tensors":[]}"#);
    assert_eq!(other.to_string(), r#"schema: unknown: expected "steeve-plan", got "galloc-dump-1""#);
    let word = refused(r#"{"schema":"steeve-plan","version":3,"strategy":"foo","memories":[]}"#);
    assert_eq!(word.to_string(), "strategy: unknown value: expected ggml, fast, best or best-fit, got \"foo\"");
    for (field, more) in
        [("reuse", r#""reuse":"more","#), ("unread", r#""unread":"keep","#), ("as", r#""as":"drop-in","#)]
    {
        let error =
            refused(&format!(r#"{{"schema":"steeve-plan","version":3,"strategy":"fast",{more}"memories":[]}}"#));
        assert_eq!(
            error.to_string(),
            format!("{field}: only allowed in the plan of a graph, and the file names no graph")
        );
    }
    let two = refused(r#"{"schema":"steeve-plan","version":3,"strategy":"fast","memories":[]}"#);
    assert!(matches!(two, PlanFileError::MemoryCount { found: 0 }), "{two}");
    for text in ["", "[]", "{", "3", r#"{"schema":"steeve-plan","version":3,"strategy":"fast","memories":[],"more":1}"#]
    {
        assert!(matches!(refused(text), PlanFileError::Json(_)), "{text}");
    }
}

/// A block list has no figures, so none of them can be wrong.
#[test]
fn of_a_block_list_only_places_can_be_wrong() {
    let overlap = "id,lower,upper,size,offset\na,0,2,8,0\nb,1,3,8,4\nc,0,3,8,100\n";
    let file = PlanFile::of_table(&steeve_plan::csv::read(overlap).unwrap()).unwrap();
    let faults = file.memories[0].faults();
    assert!(matches!(faults.as_slice(), [FileFault::Violation(Violation::Overlap { .. })]), "{faults:?}");
    let stacked = overlap.replace("8,100", "8,0").replace("8,4", "8,0");
    let file = PlanFile::of_table(&steeve_plan::csv::read(&stacked).unwrap()).unwrap();
    let faults = file.memories[0].faults();
    assert!(faults.iter().all(|it| matches!(it, FileFault::Violation(_))) && !faults.is_empty(), "{faults:?}");
}
