//! The real binary on real files: every command, every exit status, every kind of bad input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Folder, gzip, json, steeve, steeve_with, words};

fn corpus(name: &str) -> String {
    harness::corpus(&format!("blocks/{name}"))
}

const TWO: &str = "id,lower,upper,size\nleft,0,2,8\nright,1,3,4\n";

#[test]
fn a_plan_is_shown_as_a_table() {
    let said = steeve(&["plan", &corpus("tiny.csv")]);
    let expected = [
        "file | blocks | peak | bound | ratio | result | strategy",
        "tiny.csv | 12 | 2.50 KiB | 2.50 KiB | 1.0000 | optimal | fast",
    ];
    assert_eq!(words(&said.expect(0).out, &[6]), expected);
    assert_eq!(said.err, "");
    let said = steeve(&["plan", &corpus("tiny.csv"), "--bytes", "--strategy", "best-fit"]);
    assert!(said.expect(0).out.contains(" 2560 "), "{}", said.out);
    assert!(!said.out.contains('\x1b'), "colours without a terminal");
}

#[test]
fn every_strategy_plans() {
    for strategy in ["best-fit", "fast", "best"] {
        let said = steeve(&["plan", &corpus("tiny.csv"), "--json", "--strategy", strategy]);
        assert_eq!(json(&said.expect(0).out)["strategy"], strategy);
    }
    for options in [["--budget", "10ms"], ["--budget", "100nodes"], ["--threads", "2"]] {
        let said = steeve(&["plan", &corpus("tiny.csv"), "--json", options[0], options[1]]);
        assert_eq!(json(&said.expect(0).out)["strategy"], "best");
    }
}

#[test]
fn json_is_one_object_per_file_and_line() {
    let (tiny, tight) = (corpus("tiny.csv"), corpus("tight.csv"));
    let said = steeve(&["plan", "--json", &tiny, &tight]);
    let lines: Vec<&str> = said.expect(0).out.lines().collect();
    assert_eq!(lines.len(), 2);
    let mut first = json(lines[0]);
    assert!(first["plan_us"].is_u64());
    first["plan_us"] = 0.into();
    let expected = serde_json::json!({
        "version": 1, "file": tiny, "strategy": "fast", "status": "optimal", "plan_us": 0,
        "buffers": [
            {"name": "memory", "blocks": 12, "peak": 2560, "lower_bound": 2560, "optimal": true, "chunks": [2560]}
        ],
    });
    assert_eq!(first, expected);
    assert!(lines[0].starts_with(r#"{"version":1,"file":"#));
    assert_eq!(json(lines[1])["file"], tight);
}

#[test]
fn the_status_says_how_good_the_plan_is() {
    let status = |args: &[&str], expected: i32| {
        let tiny = corpus("tiny.csv");
        let said = steeve(&[&["plan", "--json", tiny.as_str()], args].concat());
        json(&said.expect(expected).out)["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(&[], 0), "optimal");
    assert_eq!(status(&["--strategy", "best-fit"], 0), "fits");
    assert_eq!(status(&["--strategy", "best-fit", "--capacity", "3000"], 1), "not-found");
    assert_eq!(status(&["--capacity", "2.5K"], 0), "optimal");
    assert_eq!(status(&["--capacity", "2559"], 1), "cannot-fit");
}

#[test]
fn a_capacity_that_is_too_small_is_refused_with_the_step_and_the_difference() {
    let folder = Folder::new("capacity");
    let file = folder.file("two.csv", TWO);
    let said = steeve(&["plan", &file, "--capacity", "10"]);
    let why = "capacity: too small: at least 12 bytes needed (alive at step 1), got 10 (the largest at step 1: left (8), right (4)); \
               raise --capacity to 12";
    said.expect(1).complains(&[&file, why]);
    assert!(said.out.contains("cannot fit"));
    let tiny = corpus("tiny.csv");
    let said = steeve(&["plan", &tiny, "--capacity", "3000", "--strategy", "best-fit"]);
    said.expect(1).complains(&[&tiny, "capacity: no plan found", "search with --strategy best"]);
    let out = folder.path("plan.csv");
    steeve(&["plan", &file, "--capacity", "10", "-o", &out]).expect(1).complains(&["not written"]);
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_plan_that_is_written_is_a_plan_that_holds() {
    let folder = Folder::new("out");
    for name in ["tiny.csv", "tight.csv", "inplace.csv", "pinned.csv"] {
        let problem = corpus(name);
        for ending in ["csv", "json", "csv.gz", "json.gz"] {
            for options in [[].as_slice(), &["--max-buffer", "4200"], &["--align", "256"]] {
                let plan = folder.path(&format!("plan.{ending}"));
                steeve(&[&["plan", problem.as_str(), "-o", &plan], options].concat()).expect(0);
                let said = steeve(&[&["check", problem.as_str(), &plan], options].concat());
                assert!(said.expect(0).out.contains("the plan holds"), "{}", said.out);
                assert_eq!(said.err, "");
                steeve(&[&["check", plan.as_str()], options].concat()).expect(0);
                assert_eq!(fs::read(&plan).unwrap().starts_with(&[0x1f, 0x8b]), ending.ends_with("gz"));
            }
        }
    }
}

#[test]
fn written_files_have_the_form_that_is_promised() {
    let folder = Folder::new("form");
    let problem = folder.file("two.csv", "id,lower,upper,size,follows\nleft,0,2,8,\nnext,2,3,4,left\n");
    let (csv, plan) = (folder.path("plan.csv"), folder.path("plan.json"));
    steeve(&["plan", &problem, "-o", &csv]).expect(0);
    let expected = "id,lower,upper,size,offset,follows\nleft,0,2,8,0,\nnext,2,3,4,0,left\n";
    assert_eq!(fs::read_to_string(csv).unwrap(), expected);
    steeve(&["plan", &problem, "-o", &plan]).expect(0);
    let expected = serde_json::json!({
        "schema": "steeve-plan", "version": 3, "source": problem, "strategy": "fast",
        "memories": [{
            "name": "memory", "peak": 8, "lower_bound": 8, "buffers": [8],
            "blocks": [
                {"name": "left", "size": 8, "live": [0, 2], "buffer": 0, "offset": 0},
                {"name": "next", "size": 4, "live": [2, 3], "buffer": 0, "offset": 0, "follows": 0},
            ],
        }],
    });
    assert_eq!(json(&fs::read_to_string(plan).unwrap()), expected);
}

#[test]
fn limits_on_buffers_and_alignments_are_kept() {
    let said = steeve(&["plan", "--json", &corpus("tiny.csv"), "--max-buffer", "1K"]);
    let chunks = json(&said.expect(0).out)["buffers"][0]["chunks"].clone();
    assert!(chunks.as_array().unwrap().len() > 1, "{chunks}");
    let folder = Folder::new("limits");
    let said = steeve(&["plan", "--json", &folder.file("two.csv", TWO), "--align", "1K"]);
    assert_eq!(json(&said.expect(0).out)["buffers"][0]["peak"], 2048);
}

#[test]
fn pinned_blocks_stay_or_contradict_each_other() {
    let folder = Folder::new("pinned");
    let (problem, plan) = (corpus("pinned.csv"), folder.path("plan.csv"));
    steeve(&["plan", &problem, "--pinned", "-o", &plan]).expect(0);
    let written = fs::read_to_string(&plan).unwrap();
    assert!(written.contains("camera,0,9,1500,64,4096"), "{written}");
    steeve(&["check", &problem, &plan, "--pinned"]).expect(0);

    steeve(&["plan", &problem, "-o", &plan]).expect(0);
    let said = steeve(&["check", &problem, &plan, "--pinned"]);
    assert!(said.expect(1).out.contains("block camera is pinned to offset 4096 of buffer 0 but is at"), "{}", said.out);

    let file = folder.file("contradiction.csv", "id,lower,upper,size,offset\nleft,0,2,8,0\nright,1,3,4,4\n");
    let said = steeve(&["plan", &file, "--pinned"]);
    said.expect(1).complains(&[&file, "blocks left and right share byte 4 of buffer 0 at step 1", "without --pinned"]);
    steeve(&["plan", &file]).expect(0);
}

#[test]
fn each_violation_is_explained_in_the_files_own_words() {
    let folder = Folder::new("violations");
    let problem =
        folder.file("problem.csv", "id,lower,upper,size,alignment\nleft,0,2,8,4\nright,1,3,4,4\nbig one,2,4,8,8\n");
    let check = |plan: &str, options: &[&str]| {
        let said = steeve_with(&[&["check", problem.as_str(), "-"], options].concat(), plan.as_bytes());
        said.expect(1).complains(&["<stdin>: the plan does not hold for", &problem]);
        said.out.lines().map(|line| line.strip_prefix("<stdin>: ").unwrap().to_owned()).collect::<Vec<_>>()
    };
    let plan = "id,offset,lower,upper,size\nright,4,1,3,4\nleft,0,0,2,8\nbig one,0,2,4,8\n";
    let expected = [
        "blocks left and right share byte 4 of buffer 0 at step 1",
        "blocks right and \"big one\" share byte 4 of buffer 0 at step 2",
    ];
    assert_eq!(check(plan, &[]), expected);
    let plan = "id,offset,lower,upper,size\nright,9,1,3,4\nleft,0,0,2,8\nbig one,12,2,4,8\n";
    let expected = [
        "block right is at offset 9, which is not a multiple of its alignment 4",
        "block \"big one\" is at offset 12, which is not a multiple of its alignment 8",
        "blocks right and \"big one\" share byte 12 of buffer 0 at step 2",
    ];
    assert_eq!(check(plan, &[]), expected);
    let plan = "id,offset,lower,upper,size\nright,8,1,3,4\nleft,0,0,2,8\nbig one,16,2,4,8\n";
    let said = steeve_with(&["check", &problem, "-", "--capacity", "20"], plan.as_bytes());
    said.expect(1).complains(&["<stdin>: the plan holds but does not fit: 1 memory above --capacity"]);
    let told = "the memory has 24 B, 4 B more than its capacity of 20 B; largest at step 1: left 8 B, right 4 B";
    assert_eq!(said.out, format!("<stdin>: {told}\n"));
    let plan = "id,offset,lower,upper,size\nright,8,1,3,4\nleft,,0,2,8\nother,0,2,4,8\n";
    let expected = [
        "block left has no offset",
        "block \"big one\" of the problem has no place in the plan",
        "block other of the plan is not in the problem",
    ];
    assert_eq!(check(plan, &[]), expected);
}

#[test]
fn a_plan_for_other_sizes_is_judged_by_the_problem_and_noted() {
    let folder = Folder::new("stale");
    let problem = folder.file("problem.csv", TWO);
    let plan = folder.file("plan.csv", "id,lower,upper,size,offset\nleft,0,2,8,0\nright,1,3,2,8\n");
    let said = steeve(&["check", &problem, &plan]);
    assert_eq!(
        said.expect(0).out,
        format!("{plan}: the plan holds: 2 blocks in 12 bytes, the lower bound: no plan is smaller\n")
    );
    said.complains(&["note:", "block right had another size"]);
}

#[test]
fn plans_in_json_are_checked_too() {
    let folder = Folder::new("json");
    let problem = folder.file("problem.csv", TWO);
    let (good, path) = (folder.path("good.json"), folder.path("bad.json"));
    steeve(&["plan", &problem, "-o", &good]).expect(0);
    let spoil = |spoil: &dyn Fn(&mut Value)| {
        let mut plan = json(&fs::read_to_string(&good).unwrap());
        spoil(&mut plan);
        fs::write(&path, plan.to_string()).unwrap();
        steeve(&["check", &problem, &path])
    };
    spoil(&|_| {}).expect(0);
    let blocks = |plan: &mut Value, edit: &dyn Fn(&mut Value)| edit(&mut plan["memories"][0]["blocks"]);
    let said = spoil(&|plan| blocks(plan, &|it| it[1]["offset"] = 0.into()));
    let step = "blocks left and right share byte";
    assert!(said.expect(1).out.contains(step), "{}", said.out);
    spoil(&|plan| plan["version"] = 2.into()).expect(2).complains(&[&path, "expected 3, got 2"]);
    spoil(&|plan| blocks(plan, &|it| *it = Value::Null)).expect(2).complains(&[&path, "null"]);
    spoil(&|plan| blocks(plan, &|it| it[0]["size"] = (-1).into())).expect(2).complains(&[&path, "-1"]);
    spoil(&|plan| blocks(plan, &|it| it[0]["alignment"] = 3.into())).expect(2).complains(&[&path, "power of two"]);
    spoil(&|plan| blocks(plan, &|it| it[0]["live"][1] = 0.into())).expect(2).complains(&[&path, "lifetime: empty"]);
    spoil(&|plan| blocks(plan, &|it| it[0]["follows"] = 7.into())).expect(2).complains(&[&path, "7"]);
    spoil(&|plan| blocks(plan, &|it| it[0]["name"] = "right".into()))
        .expect(2)
        .complains(&[&path, "same id \"right\""]);
    spoil(&|plan| plan["schema"] = "galloc-dump-1".into()).expect(2).complains(&[&path, "invalid recording"]);
    spoil(&|plan| plan["schema"] = "other".into()).expect(2).complains(&[&path, "\"other\"", "steeve-plan"]);
    let old = r#"{"version":1,"file":"problem.csv","strategy":"fast","buffers":[],"blocks":[]}"#;
    let old = folder.file("old.json", old);
    steeve(&["check", &problem, &old]).expect(2).complains(&[
        &old,
        "older versions",
        "make it again with steeve plan -o",
    ]);
    let file = folder.file("broken.json", "{\"version\": 1,");
    steeve(&["check", &problem, &file]).expect(2).complains(&[&file, "not a recorded graph or plan", "line 1"]);
}

#[test]
fn a_file_without_offsets_is_no_plan() {
    let tiny = corpus("tiny.csv");
    steeve(&["check", &tiny]).expect(2).complains(&[&tiny, "no block has an offset", "steeve plan -o"]);
    steeve(&["check", &tiny, &tiny]).expect(2).complains(&["the problem first and then the plan"]);
    steeve(&["check", "-", "-"]).expect(2).complains(&["PROBLEM or PLAN, not for both"]);
}

#[test]
fn strategies_are_compared_side_by_side() {
    let said = steeve(&["compare", &corpus("tiny.csv"), &corpus("tight.csv"), "--bytes", "--budget", "1000nodes"]);
    let expected = [
        "file | blocks | bound | best-fit | ratio | fast | ratio | best | ratio",
        "tiny.csv | 12 | 2560 | 3648 | 1.4250 | 2560 | 1.0000 | 2560 | 1.0000",
        "tight.csv | 8 | 4 | 4 | 1.0000 | 4 | 1.0000 | 4 | 1.0000",
        "all 2 | 20 | 2564 | 3652 | 1.1938 | 2564 | 1.0000 | 2564 | 1.0000",
    ];
    assert_eq!(words(&said.expect(0).out, &[5, 8, 11]), expected);
    let said = steeve(&["compare", &corpus("tiny.csv"), "--json"]);
    let strategies: Vec<Value> = said.expect(0).out.lines().map(|line| json(line)["strategy"].clone()).collect();
    assert_eq!(strategies, ["best-fit", "fast", "best"]);
}

#[test]
fn a_comparison_says_no_only_where_nothing_fits() {
    let tiny = corpus("tiny.csv");
    let said = steeve(&["compare", &tiny, "--capacity", "3000", "--bytes"]);
    assert!(said.expect(0).out.contains("3648 (over)"), "{}", said.out);
    steeve(&["compare", &tiny, "--capacity", "2K"]).expect(1).complains(&[&tiny, "capacity: too small"]);
}

#[test]
fn gzip_and_stdin_are_read_whatever_the_name() {
    let folder = Folder::new("gzip");
    for name in ["two.csv.gz", "two.csv", "two"] {
        let file = folder.file(name, gzip(TWO));
        let said = steeve(&["plan", "--json", &file]);
        assert_eq!(json(&said.expect(0).out)["buffers"][0]["peak"], 12);
    }
    for stdin in [TWO.as_bytes(), &gzip(TWO)] {
        let said = steeve_with(&["plan", "--json", "-"], stdin);
        let line = json(&said.expect(0).out);
        assert_eq!((&line["file"], &line["buffers"][0]["peak"]), (&"<stdin>".into(), &12.into()));
    }
}

#[test]
fn a_folder_means_the_block_lists_in_it() {
    let folder = Folder::new("folder");
    folder.file("b.csv", TWO);
    folder.file("a.csv.gz", gzip(TWO));
    folder.file("notes.txt", "not a block list");
    fs::create_dir(folder.path("deeper.csv")).unwrap();
    let path = folder.0.display().to_string();
    let said = steeve(&["plan", "--json", &path]);
    let names: Vec<Value> = said.expect(0).out.lines().map(|line| json(line)["file"].clone()).collect();
    assert_eq!(names, [folder.path("a.csv.gz"), folder.path("b.csv")]);

    let empty = folder.path("deeper.csv");
    steeve(&["plan", &empty]).expect(2).complains(&[&empty, "nothing to plan in this folder"]);
    steeve(&["check", &empty]).expect(2).complains(&[&empty, "is a folder"]);
    steeve(&["plan", &path, "-o", "plan.csv"]).expect(2).complains(&["--out: expected one file to plan, got 2"]);
}

#[test]
fn bad_input_is_named_and_explained() {
    let folder = Folder::new("bad");
    let check = |name: &str, content: &[u8], words: &[&str]| {
        let file = folder.file(name, content);
        let said = steeve(&["plan", &file]);
        said.expect(2).complains(&[&file]).complains(words);
        assert_eq!((said.out.as_str(), said.err.lines().count()), ("", 1), "{}", said.err);
    };
    check("empty.csv", b"", &["empty: expected a graph"]);
    check("blank.csv", b" \n\n", &["empty: expected a graph"]);
    check("line.csv", b"id,lower,upper,size\na,0,1,1\nb,0,x,1\n", &["line 3, column 3 (upper)", "not a number: \"x\""]);
    check("column.csv", b"id,lower,upper,size,gaps\n", &["\"gaps\"", "id, lower, upper, size, alignment"]);
    check("huge.csv", b"lower,upper,size\n0,1,18446744073709551615\n0,1,1\n", &["add up to 2^64 bytes or more"]);
    check(
        "follows.csv",
        b"id,lower,upper,size,follows\na,0,1,1,\nb,2,3,1,a\n",
        &["block b starts at step 2 but follows block a"],
    );
    check("cut.csv.gz", &gzip(TWO)[..20], &["damaged gzip data"]);
    check("model.gguf", b"GGUF\x03\0\0\0", &["cannot be used as a model", "truncated", "byte 8"]);
    check("model.onnx", b"\x08\x07\x12\x04", &["cannot be used as a model", "ends outside its message at byte 2"]);
    check("binary", &[0xff, 0xfe, 0, 1, 2], &["not UTF-8 text"]);
    check("other.json", b"{\"a\": 1}", &["schema: missing"]);
    let nowhere = folder.path("nowhere.csv");
    steeve(&["plan", &nowhere]).expect(2).complains(&[&nowhere, "cannot read", "No such file"]);
}

#[test]
fn a_bad_file_does_not_hide_the_good_ones() {
    let folder = Folder::new("mixed");
    let (good, bad) = (folder.file("good.csv", TWO), folder.file("bad.csv", "nonsense"));
    let said = steeve(&["plan", &bad, &good]);
    said.expect(2).complains(&[&bad]);
    assert!(said.out.contains("good.csv"), "{}", said.out);
    // Bad input weighs more than a no.
    steeve(&["plan", &good, &bad, "--capacity", "1"]).expect(2);
}

#[test]
fn bad_usage_is_explained() {
    let tiny = corpus("tiny.csv");
    let check = |args: &[&str], words: &[&str]| {
        let said = steeve(args);
        said.expect(2).complains(words);
        assert_eq!(said.out, "");
    };
    check(&[], &["Usage", "Examples"]);
    check(&["plan"], &["<FILE>"]);
    check(&["plan", &tiny, "--budget", "5"], &["500ms, 2s, 5min or 20000nodes"]);
    check(&["plan", &tiny, "--budget", "1s", "--strategy", "fast"], &["for --strategy best, got --strategy fast"]);
    check(&["plan", &tiny, "--capacity", "1X"], &["not a unit of size"]);
    check(&["plan", &tiny, "--align", "48"], &["not a power of two"]);
    check(&["plan", &tiny, "--threads", "0"], &["--threads"]);
    check(&["plan", &tiny, "--strategy", "slow"], &["best-fit, fast, best"]);
    check(&["plan", &tiny, "-o", "plan.txt"], &[".tflite, .csv, .json, .csv.gz or .json.gz"]);
    let said = steeve(&["plan", &tiny, "-o", "/nowhere/at/all/plan.csv"]);
    said.expect(2).complains(&["/nowhere/at/all/plan.csv: cannot write"]);
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in ["plan", "check", "compare", "show", "diff"] {
        let said = steeve(&[command, "--help"]);
        assert!(said.expect(0).out.contains(&format!("Examples:\n  steeve {command} ")), "{}", said.out);
    }
    assert!(steeve(&["--version"]).expect(0).out.starts_with("steeve "));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = Folder::new("pipe");
    let mut rows = String::from("id,lower,upper,size,offset\n");
    for block in 0..2000 {
        rows += &format!("b{block},{block},{},10,0\n", block + 40);
    }
    let file = folder.file("overlaps.csv", rows);
    let mut child = Command::new(env!("CARGO_BIN_EXE_steeve"))
        .args(["check", &file, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), String::from_utf8(stderr).unwrap()), (Some(1), String::new()));
}

/// Blocks of many sizes and lifetimes, more than a search can settle at once.
#[cfg(unix)]
fn hard() -> String {
    let mut rows = String::from("lower,upper,size\n");
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..3000 {
        let lower = random(1000);
        rows += &format!("{lower},{},{}\n", lower + 1 + random(60), 1 + random(100_000));
    }
    rows
}

#[cfg(unix)]
#[test]
fn ctrl_c_gives_the_best_plan_so_far() {
    let folder = Folder::new("interrupt");
    let child = Command::new(env!("CARGO_BIN_EXE_steeve"))
        .args(["plan", &folder.file("hard.csv", hard()), "--json", "--budget", "2min"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Long enough to be in the middle of the search.
    std::thread::sleep(std::time::Duration::from_secs(1));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(0));
    let stopped = String::from_utf8(stderr).unwrap().contains("stopped by Ctrl-C; shown is the best plan so far");
    let answer = json(&String::from_utf8(stdout).unwrap())["status"].clone();
    assert!(stopped == (answer == "fits"), "{answer}");
}

#[test]
fn the_processor_is_among_the_devices() {
    let said = steeve(&["devices", "--bytes"]);
    let row = said.expect(0).out.lines().find(|line| line.starts_with("CPU ")).unwrap().to_string();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1], "processor");
    let [free, total] = [cells[2], cells[3]].map(|cell| cell.parse::<u64>().unwrap());
    assert!(free <= total && total > 1 << 20, "{row}");
    let json = steeve(&["devices", "--json"]);
    assert!(json.expect(0).out.contains(r#""name":"CPU","kind":"processor""#), "{}", json.out);
}
