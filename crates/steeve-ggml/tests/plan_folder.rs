//! A folder of plans under C programs: what one process writes the next one reads, and so does what is planned from recordings.
#![cfg(all(target_os = "linux", not(feature = "whole")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use harness::{BARE, Loaded, NEW, Said, Workshop, preloaded};
use steeve_graph::{
    AssignedGraph, Best, Budget, GraphStrategy, Memory, PlanOptions, RecordedGraph, Reuse, plan_beside_ggml,
};

const BEST: (&str, &str) = ("STEEVE_BUDGET", "200nodes");
const LOG: (&str, &str) = ("STEEVE_LOG", "1");

fn count(said: &Said, what: &str) -> usize {
    said.lines().iter().filter(|line| line.contains(what)).count()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn what_one_process_plans_the_next_one_reads() {
    let Some(workshop) = Workshop::open("folder") else { return };
    let folder = workshop.folder.0.join("plans");
    let env = [BEST, LOG, ("STEEVE_CHECK", "1"), ("STEEVE_PLANS", folder.to_str().unwrap())];
    let run = || workshop.run("report", NEW, Loaded::Local, &[], &env).well();
    let first = run();
    assert_eq!((first.lines().len(), count(&first, ", written to ")), (2, 2), "{:?}", first.lines());
    let second = run();
    assert_eq!((second.lines().len(), count(&second, ", read from ")), (2, 2), "{:?}", second.lines());
    assert_eq!(first.out, second.out);
    let names = files(&folder);
    assert_eq!(names.len(), 2);
    for (line, other) in second.lines().iter().zip(first.lines()) {
        assert!(
            names.iter().any(|name| line.ends_with(&format!(", read from {}, replayed", name.display()))),
            "{line}"
        );
        assert_eq!(line.split(" bytes").next(), other.split(" bytes").next());
    }
    // A file that is damaged is named, and made anew.
    std::fs::write(&names[0], "nothing of the kind").unwrap();
    let third = run();
    let refused = format!(", written to {} in place of a file that was refused: ", names[0].display());
    assert_eq!((count(&third, &refused), count(&third, ", read from ")), (1, 1), "{:?}", third.lines());
    assert_eq!(count(&run(), ", read from "), 2);
}

#[test]
fn a_folder_that_can_not_be_used_is_said_once_and_changes_nothing() {
    let Some(workshop) = Workshop::open("no-folder") else { return };
    let plain = workshop.run("report", NEW, Loaded::Local, &[], &[BEST]).well();
    let env = [BEST, LOG, ("STEEVE_PLANS", "/dev/null/plans")];
    let said = workshop.run("report", NEW, Loaded::Local, &[], &env).well();
    assert_eq!((said.lines().len(), count(&said, ", not written to /dev/null/plans/")), (2, 1), "{:?}", said.lines());
    assert_eq!(said.out, plain.out);
    let said = workshop.run("report", NEW, Loaded::Local, &[], &[("STEEVE_PLANS", "/dev/null/plans")]).well();
    assert_eq!(count(&said, "STEEVE_PLANS: ignored"), 1, "{:?}", said.lines());
}

/// Graphs that grow and shrink, in one memory and in two: every size, and every failure, is what it is without a folder.
#[test]
fn a_folder_changes_no_sequence_of_graphs() {
    let Some(workshop) = Workshop::open("folder-sequences") else { return };
    for (memories, kind) in [("one", None), ("two", None), ("one", Some("edges")), ("two", Some("edges"))] {
        for more in [("STEEVE_REUSE", "ggml"), ("STEEVE_REUSE", "more"), ("STEEVE_HOLD", "8")] {
            let folder = workshop.folder.0.join(format!("{memories}-{kind:?}-{}", more.1));
            let args: Vec<&str> = [memories, "40"].into_iter().chain(kind).collect();
            let run = |env: &[(&str, &str)]| {
                let env: Vec<_> = [BEST, more].iter().chain(env).copied().collect();
                workshop.run("chunks", BARE, Loaded::Local, &args, &env).well()
            };
            let plain = run(&[]).out;
            let plans = ("STEEVE_PLANS", folder.to_str().unwrap());
            let first = run(&[plans, LOG]);
            let second = run(&[plans, LOG]);
            assert_eq!(
                (first.out.as_str(), second.out.as_str()),
                (plain.as_str(), plain.as_str()),
                "{args:?} {more:?}"
            );
            assert!(count(&first, ", written to ") > 100, "{args:?} {more:?}");
            // Far smaller graphs have plans of their own, which are made without a search; all others are read.
            for (said, what) in [(&first, "refused"), (&first, "not written"), (&second, "written")] {
                assert_eq!(count(said, what), 0, "{args:?} {more:?}: {what}");
            }
            assert!(count(&second, ", read from ") >= count(&first, ", written to "), "{args:?} {more:?}");
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[test]
fn processes_share_a_folder() {
    let Some(workshop) = Workshop::open("folder-processes") else { return };
    let folder = workshop.folder.0.join("plans");
    let start = || {
        let mut command = workshop.command("plans", &[NEW], Loaded::Local, &["alternating"]);
        preloaded(&mut command).envs([BEST, LOG, ("STEEVE_PLANS", folder.to_str().unwrap())]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..6).map(|_| start()).collect();
    for child in all {
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !err.contains("refused") && !err.contains("not written"), "{err}");
    }
    let written = files(&folder);
    assert!(written.iter().all(|file| file.extension().is_some_and(|it| it == "gz")), "{written:?}");
    let env = [BEST, LOG, ("STEEVE_PLANS", folder.to_str().unwrap())];
    let said = workshop.run("plans", NEW, Loaded::Local, &["alternating"], &env).well();
    assert_eq!(count(&said, ", read from "), said.lines().len(), "{:?}", said.lines());
}

/// Plans what a recording has as `steeve plan --as drop-in --strategy best -o FOLDER/` does.
fn plan(recorded: RecordedGraph, folder: &Path) {
    let RecordedGraph { assigned, needs, .. } = recorded;
    let (assignment, sizes) = (assigned.assignment().clone(), assigned.sizes().clone());
    let kept = assigned.memories().iter().zip(&needs).map(|(memory, needs)| {
        let needs = needs.expect("the library says what it keeps");
        Memory { extra_lifetime: needs.extra_lifetime, fusion: needs.fusion, ..memory.clone() }
    });
    let memories: Vec<Memory> = kept.collect();
    let graph = AssignedGraph::new(assigned.into_graph(), memories, assignment, sizes).unwrap();
    let best = GraphStrategy::Best(Best::new(Budget::Nodes(200)));
    let options = PlanOptions::new(best).with_reuse(Reuse::Ggml);
    let plan = plan_beside_ggml(&graph, &options).unwrap().plan;
    let file = std::fs::File::create(folder.join(graph.plan_file_name(&options))).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(plan.to_json().as_bytes()).unwrap();
    packed.finish().unwrap();
}

fn recording(file: &Path) -> RecordedGraph {
    let mut json = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut json).unwrap();
    RecordedGraph::from_json(&json).unwrap()
}

/// Memory of the processor, of a GPU whose backend checks what it fuses, and of one that nothing is known of.
/// The variables that a program runs with.
type Environment<'a> = &'a [(&'a str, &'a str)];

#[test]
fn what_is_planned_from_recordings_is_read() {
    let Some(workshop) = Workshop::open("folder-recorded") else { return };
    let cuda = [("MOCK_REGISTRY", "CUDA"), ("MOCK_VERSION", "0.10.0")];
    let programs: [(&str, &[&str], Environment<'_>); 7] = [
        ("report", &[], &[]),
        ("plans", &["alternating"], &[]),
        ("plans", &["alternating"], &[("STEEVE_HOLD", "3")]),
        ("plans", &["alternating"], &[("STEEVE_UNREAD", "free-inputs")]),
        ("fused", &[], &cuda),
        ("fused", &[], &[("MOCK_REGISTRY", "SYCL"), ("MOCK_VERSION", "0.10.0")]),
        ("chunks", &["two", "8"], &[]),
    ];
    for (index, (program, args, settings)) in programs.into_iter().enumerate() {
        let (graphs, plans) =
            (workshop.folder.0.join(format!("graphs-{index}")), workshop.folder.0.join(format!("plans-{index}")));
        let run = |env: &[(&str, &str)]| {
            let env: Vec<_> = settings.iter().chain(env).copied().collect();
            workshop.run(program, NEW, Loaded::Local, args, &env).well()
        };
        run(&[("STEEVE_RECORD", graphs.to_str().unwrap()), BEST]);
        std::fs::create_dir(&plans).unwrap();
        files(&graphs).iter().for_each(|file| plan(recording(file), &plans));
        let said = run(&[LOG, BEST, ("STEEVE_PLANS", plans.to_str().unwrap())]);
        assert!(count(&said, ", read from ") > 0, "{program} {settings:?}: {:?}", said.lines());
        let other =
            said.lines().into_iter().find(|line| line.contains(", written to ") || line.contains(", not written"));
        assert_eq!(other, None, "{program} {settings:?}");
    }
}
