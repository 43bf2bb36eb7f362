//! The library under C programs: preloaded below ggmls of every kind, loaded in every way, with graphs of every sort.
#![cfg(all(target_os = "linux", not(feature = "whole")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::io::Read;
use std::path::Path;
use std::process::Command;

use harness::{BARE, Ggml, Loaded, NEW, Workshop, preloaded, said};
use steeve_graph::{Bytes, MemoryId, RecordedGraph};

/// Without settings, the lines that the program `report` prints.
const OURS: &str = "640\n640\n640\n1 buffers, 0 originals\n";
/// With ggml's own bytes.
const AS_GGML: &str = "896\n896\n896\n1 buffers, 0 originals\n";
/// With the allocator of the test's own ggml.
const THEIRS: &str = "1824\n1824\n1984\n2 buffers, 1 originals\n";

#[test]
fn plans_are_kept_and_never_stale() {
    let Some(workshop) = Workshop::open("plans") else { return };
    for loaded in [Loaded::Local, Loaded::Global, Loaded::Linked] {
        let said = workshop.run("plans", NEW, loaded, &[], &[]).well();
        assert_eq!(said.lines(), Vec::<&str>::new());
    }
    for env in [
        &[][..],
        &[("STEEVE_CHECK", "1"), ("STEEVE_HOLD", "0")],
        &[("STEEVE_CHECK", "1"), ("STEEVE_HOLD", "0"), ("STEEVE_REUSE", "more")],
        &[("STEEVE_REUSE", "more")],
        &[("STEEVE_BUDGET", "50nodes")],
    ] {
        let said = workshop.run("plans", BARE, Loaded::Local, &[], env).well();
        assert_eq!(said.lines(), Vec::<&str>::new(), "{env:?}");
    }
}

#[test]
fn an_input_that_no_node_reads_gives_its_memory_away_unless_the_environment_says_keep() {
    let Some(workshop) = Workshop::open("unread") else { return };
    let size = |env: &[(&str, &str)]| workshop.run("plans", NEW, Loaded::Local, &["unread"], env).well().out;
    let number = |text: String| text.trim().parse::<u64>().unwrap();
    let (free, keep) = (number(size(&[])), number(size(&[("STEEVE_UNREAD", "keep")])));
    let ggml = number(size(&[("STEEVE_STRATEGY", "ggml")]));
    assert_eq!(free + 4 * 256, keep, "the last result is allocated over the input");
    assert_eq!(number(size(&[("STEEVE_UNREAD", "free-inputs")])), free);
    assert!(keep <= ggml && ggml == number(size(&[("STEEVE_STRATEGY", "ggml"), ("STEEVE_UNREAD", "free-inputs")])));
}

#[test]
fn each_graph_is_planned_once() {
    let Some(workshop) = Workshop::open("alternating") else { return };
    let said = workshop.run("plans", NEW, Loaded::Local, &["alternating"], &[("STEEVE_LOG", "1")]).well();
    assert_eq!(said.lines().len(), 12, "{:?}", said.lines());
}

#[test]
fn however_many_sizes_a_graph_has_there_are_a_few_plans() {
    let Some(workshop) = Workshop::open("sizes") else { return };
    // What is larger than all before it gets a plan, up to a quarter of the largest.
    for (order, most) in [("down", 2), ("up", 20)] {
        let said = workshop.run("plans", NEW, Loaded::Local, &[order], &[("STEEVE_LOG", "1")]).well();
        let (first, later) = said.err.split_once("first rounds done").unwrap();
        let plans = |said: &str| said.lines().filter(|line| line.starts_with("steeve: ")).count();
        assert!(plans(first) <= most, "{first}");
        assert_eq!(plans(later), 0, "{later}");
    }
}

#[test]
fn what_is_planned_is_not_planned_again() {
    let Some(workshop) = Workshop::open("kept") else { return };
    for what in ["kept", "grown", "outgrown"] {
        let said = workshop.run("plans", NEW, Loaded::Local, &[what], &[("STEEVE_LOG", "1")]).well();
        let (_, later) = said.err.split_once("all planned").unwrap();
        assert_eq!(later.trim(), "", "{what}");
    }
}

/// Settings under which sequences of graphs are held to ggml's sizes.
const SETTINGS: [&[(&str, &str)]; 10] = [
    &[],
    &[("STEEVE_STRATEGY", "ggml")],
    &[("STEEVE_REUSE", "more")],
    &[("STEEVE_STRATEGY", "best"), ("STEEVE_BUDGET", "200nodes")],
    &[("STEEVE_UNREAD", "keep")],
    &[("STEEVE_CHECK", "1")],
    &[("STEEVE_HOLD", "0")],
    &[("STEEVE_HOLD", "1")],
    &[("STEEVE_HOLD", "8")],
    &[("STEEVE_CHECK", "1"), ("STEEVE_REUSE", "more"), ("STEEVE_HOLD", "0")],
];

/// Runs random sequences of graphs in one memory and in two, under all settings.
fn run_sequences(workshop: &Workshop, count: &str, kind: Option<&str>) {
    for env in SETTINGS {
        let exact = (env == [("STEEVE_STRATEGY", "ggml")]).then_some("exact");
        for memories in ["one", "two"] {
            let args: Vec<&str> = [memories, count].into_iter().chain(exact).chain(kind).collect();
            // Without ggml's own allocator, so that no graph is left to it unseen.
            let said = workshop.run("chunks", BARE, Loaded::Local, &args, env).well();
            let other = said.lines().into_iter().find(|line| !line.contains("failed to allocate"));
            assert_eq!(other, None, "{env:?}");
            println!("{memories} {env:?}: {}", said.out.trim_end());
        }
    }
}

#[test]
fn no_memory_takes_more_than_with_ggml_over_any_sequence_of_graphs() {
    let Some(workshop) = Workshop::open("chunks") else { return };
    run_sequences(&workshop, "1000", None);
}

#[test]
fn graphs_of_equal_counts_with_other_edges_are_planned_again() {
    let Some(workshop) = Workshop::open("edges") else { return };
    run_sequences(&workshop, "500", Some("edges"));
}

#[test]
fn malformed_graphs_are_answered_or_refused() {
    let Some(workshop) = Workshop::open("malformed") else { return };
    for loaded in [Loaded::Local, Loaded::Linked] {
        workshop.run("malformed", NEW, loaded, &[], &[]).well();
    }
    workshop.run("malformed", BARE, Loaded::Local, &[], &[]).well();
    // Everything that looks at graphs, at once.
    let folder = workshop.folder.0.join("records");
    let env = [("STEEVE_CHECK", "1"), ("STEEVE_LOG", "1"), ("STEEVE_RECORD", folder.to_str().unwrap())];
    workshop.run("malformed", NEW, Loaded::Local, &["small"], &env).well();
}

#[test]
fn ggmls_own_allocator_takes_over_for_one_graph() {
    let Some(workshop) = Workshop::open("fallback") else { return };
    for loaded in [Loaded::Local, Loaded::Global, Loaded::Linked] {
        let said = workshop.run("fallback", NEW, loaded, &["both"], &[]).well();
        assert_eq!(
            said.lines(),
            ["steeve: ggml's own allocator is used for this graph: tensor 2 (): unknown data type 36"]
        );
        let said = workshop.run("fallback", NEW, loaded, &["theirs"], &[("STEEVE_OFF", "1")]).well();
        assert_eq!(said.lines(), Vec::<&str>::new());
    }
    let said = workshop.run("fallback", BARE, Loaded::Local, &["ours"], &[]).well();
    let error = "steeve: graph cannot be allocated by steeve's or ggml's allocator: tensor 2 (): unknown data type 36";
    assert!(!said.lines().is_empty() && said.lines().iter().all(|line| *line == error), "{:?}", said.lines());
}

#[test]
fn what_is_wrong_goes_to_ggmls_log() {
    let Some(workshop) = Workshop::open("logged") else { return };
    for loaded in [Loaded::Local, Loaded::Linked] {
        let said = workshop.run("logged", NEW, loaded, &[], &[]).well();
        assert_eq!(said.err, "");
        // What the user has asked for is on the error stream, whatever the program does with ggml's log.
        let said = workshop.run("logged", NEW, loaded, &["stderr"], &[("STEEVE_LOG", "1")]).well();
        let (plans, others): (Vec<&str>, Vec<&str>) = said.lines().iter().partition(|line| line.contains(": ggml "));
        assert!(!plans.is_empty());
        assert_eq!(others, ["steeve: ggml's own allocator is used for this graph: tensor 1 (): unknown data type 36"]);
    }
    let silent = Ggml { name: "silent", defines: &["-DMOCK_NO_LOG"], originals: true };
    let said = workshop.run("fallback", silent, Loaded::Local, &["both"], &[]).well();
    assert_eq!(said.lines().len(), 1);
}

#[test]
fn a_child_that_was_forked_while_others_are_inside_does_not_hang() {
    let Some(workshop) = Workshop::open("forks") else { return };
    let said = workshop.run("forks", NEW, Loaded::Linked, &["300"], &[]).well();
    assert!(said.err.contains("300 forks") && said.err.contains(" 0 hung"), "{}", said.err);
}

#[test]
fn other_structures_are_left_to_ggml() {
    let Some(workshop) = Workshop::open("layouts") else { return };
    let layouts: [(&str, &[&str], &str); 6] = [
        ("flags", &["-DMOCK_LAYOUT=1"], "unknown layout: operations"),
        ("views", &["-DMOCK_LAYOUT=2"], "unknown layout: views"),
        ("data", &["-DMOCK_LAYOUT=3"], "unknown layout: addresses"),
        ("lists", &["-DMOCK_LAYOUT=4"], "unknown layout: nodes"),
        ("missing", &["-DMOCK_MISSING"], "ggml has no function ggml_type_name"),
        ("both", &["-DMOCK_MISSING", "-DMOCK_LAYOUT=1"], "ggml has no function ggml_type_name"),
    ];
    for (name, defines, why) in layouts {
        for originals in [true, false] {
            let name: &'static str = if originals { name } else { format!("{name}_bare").leak() };
            let defines: Vec<&str> = defines.iter().copied().chain((!originals).then_some("-DMOCK_OLD")).collect();
            let ggml = Ggml { name, defines: defines.leak(), originals };
            let expected = if originals { "theirs" } else { "none" };
            let said = workshop.run("fallback", ggml, Loaded::Local, &[expected], &[]).well();
            if originals {
                assert_eq!(said.lines()[0], format!("steeve: ggml's own allocator is used: {why}"));
            } else if why.contains("unknown layout") {
                assert_eq!(said.lines()[0], format!("steeve: no allocator: {why}"));
            } else {
                assert_eq!(said.lines()[0], "steeve: ggml: not found: no loaded object has its functions");
            }
        }
    }
}

#[test]
fn a_ggml_that_calls_itself_inside_is_left_alone() {
    let Some(workshop) = Workshop::open("bound") else { return };
    let bound: [(&str, &[&str], &str); 3] = [
        ("partly", &["-DMOCK_PARTLY_BOUND"], "ggml_gallocr_reserve_n)"),
        ("functions", &["-Wl,-Bsymbolic-functions"], "ggml_gallocr_reserve_n)"),
        ("symbolic", &["-Wl,-Bsymbolic"], "ggml_gallocr_reserve_n)"),
    ];
    for (name, defines, which) in bound {
        let ggml = Ggml { name, defines, originals: true };
        for loaded in [Loaded::Local, Loaded::Linked] {
            let said = workshop.run("fallback", ggml, loaded, &["theirs"], &[]).well();
            let [line] = said.lines()[..] else { panic!("{:?}", said.lines()) };
            assert!(
                line.starts_with("steeve: ggml's own allocator is used: ggml's allocator cannot be replaced: "),
                "{line}"
            );
            assert!(line.contains(&format!("libggml_{name}.so calls it directly")) && line.ends_with(which), "{line}");
            let said = workshop.run("fallback", ggml, loaded, &["theirs"], &[("STEEVE_OFF", "1")]).well();
            assert_eq!(said.lines(), Vec::<&str>::new());
        }
    }
}

#[test]
fn a_number_means_the_type_that_ggml_calls_so() {
    let Some(workshop) = Workshop::open("types") else { return };
    let ggml = Ggml { name: "types", defines: &["-DMOCK_OTHER_TYPES", "-DTYPE=28"], originals: true };
    let said = workshop.run("typed", ggml, Loaded::Local, &["original"], &[]).well();
    assert_eq!(said.lines().len(), 1);
    let ggml = Ggml { name: "same", defines: &["-DTYPE=28"], originals: true };
    let said = workshop.run("typed", ggml, Loaded::Local, &["ours"], &[]).well();
    assert_eq!(said.lines().len(), 0);
}

#[test]
fn each_caller_has_its_own_ggml() {
    let Some(workshop) = Workshop::open("two") else { return };
    let one = Ggml { name: "one", ..NEW };
    let two = Ggml { name: "two", ..NEW };
    let other = Ggml { name: "other", defines: &["-DMOCK_LAYOUT=1"], originals: true };
    for args in [&[][..], &["elsewhere"]] {
        let run = |ggmls: &[Ggml]| said(preloaded(&mut workshop.command("report", ggmls, Loaded::Local, args))).well();
        assert_eq!(run(&[one, two]).out, format!("{OURS}{OURS}"));
        assert_eq!(run(&[two, one]).out, format!("{OURS}{OURS}"));
        assert_eq!(run(&[one, other]).out, format!("{OURS}{THEIRS}"));
        assert_eq!(run(&[other, one, BARE]).out, format!("{THEIRS}{OURS}{OURS}"));
        // The second may be loaded where the first was; its answers are not the first one's.
        let reloaded =
            |ggmls: &[Ggml]| said(preloaded(&mut workshop.command("report", ggmls, Loaded::Reload, args))).well();
        assert_eq!(reloaded(&[one, two]).out, format!("{OURS}{OURS}"));
        assert_eq!(reloaded(&[two, one, other]).out, format!("{OURS}{OURS}{THEIRS}"));
    }
}

#[test]
fn memory_is_used_as_it_should_be() {
    if std::env::var_os("STEEVE_VALGRIND").is_none() {
        println!("skipped: .ci/valgrind runs this");
        return;
    }
    let workshop = Workshop::open("valgrind").expect("a C compiler");
    let valgrind = ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    for (program, args) in [("malformed", "small"), ("fallback", "both"), ("plans", "")] {
        let plain = workshop.command(program, &[NEW], Loaded::Local, &[args]);
        let mut watched = Command::new("valgrind");
        said(preloaded(watched.args(valgrind).arg(plain.get_program()).args(plain.get_args()))).well();
    }
}

#[test]
fn the_environment_is_obeyed() {
    let Some(workshop) = Workshop::open("environment") else { return };
    let run = |env: &[(&str, &str)]| workshop.run("report", NEW, Loaded::Local, &[], env).well();
    assert_eq!(run(&[]).out, OURS);
    assert_eq!(run(&[("STEEVE_STRATEGY", "ggml")]).out, AS_GGML);
    assert_eq!(run(&[("STEEVE_STRATEGY", "best"), ("STEEVE_BUDGET", "100nodes")]).out, OURS);
    assert_eq!(run(&[("STEEVE_OFF", "1")]).out, THEIRS);
    // Without an allocator of its own, ggml's layout is as near as one gets.
    let bare = |env: &[(&str, &str)]| workshop.run("report", BARE, Loaded::Local, &[], env).well();
    assert_eq!(bare(&[]).out, OURS);
    assert_eq!(bare(&[("STEEVE_OFF", "1")]).out, AS_GGML);
    let said = run(&[("STEEVE_STRATEGY", "fastest"), ("STEEVE_HOLD", "2")]);
    assert_eq!(said.lines(), ["steeve: STEEVE_STRATEGY: ignored: expected ggml, fast or best, got fastest"]);
}

/// A plan of the device's memory is ggml's to the byte where the long hold is kept, and ours where the backend is known to check
/// what it fuses.
#[test]
fn memory_of_a_device_is_planned_by_what_its_backend_is_known_to_do() {
    let Some(workshop) = Workshop::open("devices") else { return };
    let run = |ggml: Ggml, env: &[(&str, &str)]| {
        let said = workshop.run("report", ggml, Loaded::Local, &["device"], env).well();
        said.out.lines().next().unwrap().parse::<u64>().unwrap()
    };
    let (ggml, ours) = (run(NEW, &[("STEEVE_STRATEGY", "ggml")]), run(NEW, &[("STEEVE_HOLD", "0")]));
    assert!(ours < ggml, "{ours} {ggml}");
    let cuda = ("MOCK_REGISTRY", "CUDA");
    for (env, expected) in [
        (&[][..], ggml),
        (&[cuda], ggml),
        (&[cuda, ("MOCK_VERSION", "0.9.11")], ggml),
        (&[cuda, ("MOCK_VERSION", "0.10.0")], ours),
        (&[cuda, ("MOCK_VERSION", "0.10.0"), ("GGML_CUDA_GRAPH_OPT", "1")], ggml),
        (&[cuda, ("MOCK_VERSION", "0.10.0"), ("STEEVE_HOLD", "32")], ggml),
        (&[("MOCK_REGISTRY", "Vulkan"), ("MOCK_VERSION", "0.9.8")], ours),
        (&[("MOCK_REGISTRY", "Hexagon"), ("MOCK_VERSION", "0.21.0")], ggml),
        // The host memory of a discrete GPU is plain CPU memory; that of an integrated one is not.
        (&[("MOCK_HOST", "1")], ours),
        (&[("MOCK_HOST", "1"), ("MOCK_DEVICE", "2")], ggml),
    ] {
        assert_eq!(run(NEW, env), expected, "{env:?}");
    }
    // A ggml that does not say its version.
    assert_eq!(run(BARE, &[cuda, ("MOCK_VERSION", "0.10.0")]), ggml);
}

/// A device fuses a gated product for a few tokens if it is not allocated over the activation that it reads.
#[test]
fn a_few_tokens_in_the_plan_of_many_can_be_fused() {
    let Some(workshop) = Workshop::open("fused") else { return };
    let cuda = [("MOCK_REGISTRY", "CUDA"), ("MOCK_VERSION", "0.10.0")];
    let run = |more: &[(&str, &str)]| {
        let env: Vec<_> = cuda.iter().chain(more).copied().collect();
        workshop.run("fused", NEW, Loaded::Local, &[], &env).well().out
    };
    assert!(run(&[]).ends_with("\napart\napart\n"));
    assert!(run(&[("STEEVE_REUSE", "more")]).ends_with("\napart\napart\n"));
    // Without what is kept for fusions, they would overlap.
    assert_eq!(run(&[("STEEVE_HOLD", "0")]), "overlap\noverlap\noverlap\n");
}

#[test]
fn the_log_has_a_line_for_each_plan() {
    let Some(workshop) = Workshop::open("log") else { return };
    for (check, end) in [("0", ""), ("1", ", replayed")] {
        let said =
            workshop.run("report", NEW, Loaded::Local, &[], &[("STEEVE_LOG", "1"), ("STEEVE_CHECK", check)]).well();
        let lines = said.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, start) in lines.iter().zip([
            "steeve: 4 nodes in CPU: ggml 896, steeve 640, bound 640 bytes, ",
            "steeve: 6 nodes in CPU: ggml 896, steeve 640, bound 640 bytes, ",
        ]) {
            let time = line.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)?.strip_suffix(" ms"));
            assert!(time.is_some_and(|time| time.parse::<f64>().is_ok()), "{line}");
        }
    }
}

#[test]
fn records_can_be_read() {
    let Some(workshop) = Workshop::open("record") else { return };
    let folder = workshop.folder.0.join("some/where");
    let said = workshop.run("report", NEW, Loaded::Local, &[], &[("STEEVE_RECORD", folder.to_str().unwrap())]).well();
    assert_eq!((said.out.as_str(), said.lines().len()), (OURS, 0));
    let records = records(&folder);
    assert_eq!(records.len(), 2);
    let small = &records[0];
    assert_eq!(small.assigned.graph().nodes().len(), 4);
    assert_eq!(small.placement.chunks[MemoryId::FIRST], [Bytes(896)]);
    assert_eq!(small.assigned.memories()[MemoryId::FIRST].name, "CPU");
    assert!(small.notes.tag.contains("ggml 0.0.0-mock"), "{}", small.notes.tag);
    let graph = records[1].assigned.graph();
    let names: Vec<_> = graph.nodes().iter().map(|node| graph.tensors().op_title(graph.tensor(*node).op)).collect();
    assert_eq!(names, ["MUL_MAT", "MUL_MAT", "MUL_MAT", "MUL_MAT", "SILU", "FANCY"]);
    assert_eq!(graph.name(graph.nodes()[4]), "gated");
    // A folder that can't be made is a line, and nothing else.
    let said = workshop.run("report", NEW, Loaded::Local, &[], &[("STEEVE_RECORD", "/dev/null/x")]).well();
    assert_eq!((said.out.as_str(), said.lines().len()), (OURS, 2));
}

fn records(folder: &Path) -> Vec<RecordedGraph> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let mut json = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut json).unwrap();
        RecordedGraph::from_json(&json).unwrap()
    };
    files.iter().map(read).collect()
}
