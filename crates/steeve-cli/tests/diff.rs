//! `steeve diff`: what has grown, and why; the exit status; and what holds of any two plans.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Folder, corpus, json, steeve, steeve_with, words};

const SMALL: &str = "x = input f32[64,32]; kq-0 = silu x; z = add kq-0 x !output";
const LARGE: &str = "x = input f32[64,32]; kq-0 = silu x; w = neg kq-0; z = add kq-0 w !output; y = add x w !output";

/// All files below a folder of the corpus, in order.
fn files(folder: &str) -> Vec<String> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, files);
            } else if !path.display().to_string().ends_with(".md") {
                files.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(Path::new(&corpus(folder)), &mut found);
    found.sort();
    found.into_iter().map(|path| path.display().to_string()).collect()
}

/// About `count` of some files, spread over all of them.
fn sample(files: Vec<String>, count: usize) -> Vec<String> {
    let step = files.len().div_ceil(count).max(1);
    files.into_iter().step_by(step).collect()
}

fn line(before: &str, after: &str) -> Value {
    let said = steeve(&["diff", before, after, "--json", "--top", "1000000"]);
    assert!([0, 1].contains(&said.status), "{before} {after}: {}", said.err);
    let line = json(&said.out);
    assert_eq!(line["allowed"], said.status == 0, "{before} {after}");
    line
}

fn memories(line: &Value) -> BTreeMap<String, Value> {
    let named = |memory: &Value| (memory["name"].as_str().unwrap().to_owned(), memory.clone());
    line["memories"].as_array().unwrap().iter().map(named).collect()
}

fn difference(value: &Value) -> i64 {
    value["difference"].as_i64().unwrap()
}

#[test]
fn a_file_and_itself_are_equal() {
    let folder = Folder::new("diff-same");
    let texts = [folder.file("small.graph", SMALL), folder.file("large.graph", LARGE)];
    for file in sample(files("graphs"), 40).into_iter().chain(sample(files("blocks"), 8)).chain(texts) {
        let said = steeve(&["diff", &file, &file]);
        assert!(said.expect(0).out.starts_with("equal: "), "{file}: {}", said.out);
        assert_eq!((said.out.lines().count(), said.err.as_str()), (1, ""), "{file}");
    }
}

#[test]
fn what_one_way_has_grown_has_shrunk_the_other_way() {
    let files = sample(files("graphs"), 16);
    for pair in files.windows(2) {
        let (there, back) = (line(&pair[0], &pair[1]), line(&pair[1], &pair[0]));
        assert_eq!(difference(&there["total"]), -difference(&back["total"]), "{pair:?}");
        // Where each side has one memory, it goes by the name that it has in the second.
        if memories(&there).len() > 1 {
            for (name, memory) in memories(&there) {
                let other = &memories(&back)[&name];
                for field in ["difference", "before"] {
                    assert!(memory[field].is_number(), "{memory}");
                }
                assert_eq!(difference(&memory), -difference(other), "{pair:?} {name}");
                assert_eq!(memory["before"], other["after"], "{pair:?} {name}");
            }
        }
    }
}

#[test]
fn every_sum_of_differences_is_that_of_the_live_bytes() {
    let files = sample(files("graphs"), 24);
    for pair in files.windows(2) {
        for (name, memory) in memories(&line(&pair[0], &pair[1])) {
            let live = difference(&memory["live"]);
            for list in ["by_role", "by_operation", "by_layer", "changes"] {
                let sum: i64 = memory[list].as_array().unwrap().iter().map(difference).sum();
                assert_eq!(sum, live, "{pair:?} {name} {list}");
            }
            assert_eq!(memory["more"], json(r#"{"count":0,"difference":0}"#));
        }
    }
}

#[test]
fn the_bytes_are_those_of_plan_and_show() {
    for file in sample(files("graphs/multi"), 4) {
        let told = memories(&line(&file, &file));
        let planned = json(&steeve(&["plan", &file, "--json"]).expect(0).out);
        let shown = json(&steeve(&["show", &file, "--json"]).expect(0).out);
        for (plan, peak) in planned["buffers"].as_array().unwrap().iter().zip(shown["memories"].as_array().unwrap()) {
            let Some(memory) = told.get(plan["name"].as_str().unwrap()) else {
                assert_eq!(plan["peak"], 0, "only what is empty is left out");
                continue;
            };
            assert_eq!((&memory["before"], &memory["after"]), (&plan["peak"], &plan["peak"]), "{file}");
            assert_eq!(memory["live"]["after"], peak["live"], "{file}");
        }
    }
}

#[test]
fn a_larger_context_is_told_with_what_has_grown() {
    let graph = |context: &str| corpus(&format!("graphs/llm/llama-3.1-8b.{context}.fa1.out1.pp.json.gz"));
    let (small, large) = (graph("c4096"), graph("c32768"));
    let said = steeve(&["diff", &small, &large]);
    let first = said.expect(1).out.lines().next().unwrap();
    assert!(first.starts_with("CPU grew by ") && first.contains(" MiB ("), "{first}");
    assert!(first.contains("attn_inp_kq_mask"), "{first}");
    said.complains(&[&large, "is larger than", &small, "CPU by ", "--allow "]);
    assert!(said.out.contains("\nmemory ") && said.out.contains("\ntensor "), "{}", said.out);
    let memory = &line(&small, &large)["memories"][0];
    let mask = memory["changes"].as_array().unwrap().iter().find(|it| it["name"] == "attn_inp_kq_mask").unwrap();
    assert_eq!((&mask["before"], &mask["after"]), (&4_194_304.into(), &33_554_432.into()), "{memory}");
    let said = steeve(&["diff", &large, &small]);
    assert!(said.expect(0).out.starts_with("CPU shrank by "), "{}", said.out);
    assert_eq!(said.err, "");
}

#[test]
fn an_allowance_is_a_size_or_a_percentage() {
    let folder = Folder::new("diff-allow");
    let list = |name: &str, size: u64| folder.file(name, format!("id,lower,upper,size\na,0,1,{size}\n"));
    let (before, after) = (list("before.csv", 1000), list("after.csv", 1010));
    for (allow, status) in
        [("0", 1), ("9", 1), ("10", 0), ("1K", 0), ("0.9%", 1), ("0.99%", 1), ("1%", 0), ("1 %", 0), ("200%", 0)]
    {
        steeve(&["diff", &before, &after, "--allow", allow]).expect(status);
        steeve(&["diff", &after, &before, "--allow", allow]).expect(0);
    }
    steeve(&["diff", &before, &after]).expect(1).complains(&["the memory by 10 B; to accept it", "--allow 10\n"]);
    steeve(&["diff", &before, &after, "--allow", "5"]).expect(1).complains(&["by 10 B (5 B are allowed)"]);
    steeve(&["diff", &before, &after, "--allow", "1e3%"]).expect(2).complains(&["such as 1% or 0.5%"]);
}

#[test]
fn plans_graphs_and_lists_are_compared_alike() {
    let folder = Folder::new("diff-kinds");
    let (graph, plan, list) = (folder.file("small.graph", SMALL), folder.path("plan.json"), folder.path("plan.csv"));
    let old = folder.path("ggml.json");
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["plan", &graph, "-o", &list]).expect(0);
    steeve(&["plan", &graph, "--strategy", "ggml", "-o", &old]).expect(0);
    for (before, after) in [(&plan, &graph), (&graph, &plan), (&plan, &plan), (&list, &list), (&list, &graph)] {
        assert_eq!(steeve(&["diff", before, after]).expect(0).out, "equal: the memory 16.00 KiB\n");
    }
    // Of a plan and a graph the options are for the graph; of two plans they are for nothing.
    steeve(&["diff", &old, &graph, "--strategy", "ggml"]).expect(0);
    steeve(&["diff", &old, &plan, "--strategy", "ggml"]).expect(2).complains(&["is a plan already"]);
    let said = steeve_with(&["diff", &plan, "-"], LARGE.as_bytes());
    assert!(said.expect(1).out.contains("grew by 8.00 KiB (50.0 %) to 24.00 KiB"), "{}", said.out);
    let moved = folder.file("moved.csv", "id,lower,upper,size,offset\na,0,2,8,8\nb,0,2,8,0\n");
    let there = folder.file("there.csv", "id,lower,upper,size,offset\na,0,2,8,0\nb,0,2,8,8\n");
    assert_eq!(steeve(&["diff", &there, &moved]).expect(0).out, "same size: the memory 16 B; 2 moved\n");
    let overlap = folder.file("overlap.csv", "id,lower,upper,size,offset\na,0,2,8,0\nb,0,2,8,4\n");
    steeve(&["diff", &there, &overlap]).expect(1).complains(&["does not hold", "compared all the same"]);
}

#[test]
fn a_memory_may_come_or_go() {
    let folder = Folder::new("diff-memories");
    let one = "memory gpu\nmemory host\nx = input f32[8] @gpu\ny = neg x !output @gpu\n";
    let two = "memory gpu\nmemory host\nt = input f32[8] @host\nx = input f32[8] @gpu\ny = add x t !output @gpu\nz = neg t !output @host\n";
    let (one, two) = (folder.file("one.graph", one), folder.file("two.graph", two));
    // Each side must use two for names to count.
    let said = steeve(&["diff", &one, &two]);
    assert!(said.expect(1).out.contains("host is new: "), "{}", said.out);
    let said = steeve(&["diff", &two, &one]);
    assert!(said.expect(0).out.contains("host is gone: it had "), "{}", said.out);
    let gone = words(&said.out, &[]).into_iter().find(|line| line.starts_with("host | ")).unwrap();
    assert!(gone.ends_with(" | 0.0000"), "{gone}");
    let line = json(&steeve(&["diff", &one, &two, "--json"]).expect(1).out);
    let host = &memories(&line)["host"];
    assert_eq!((&host["before"], &host["ratio"], &host["allowed"]), (&0.into(), &Value::Null, &false.into()));
}

#[test]
fn folders_are_compared_file_by_file() {
    let folder = Folder::new("diff-folders");
    let list = |name: &str, size: u64| {
        fs::create_dir_all(Path::new(&folder.path(name)).parent().unwrap()).unwrap();
        folder.file(name, format!("id,lower,upper,size\na,0,1,{size}\n"))
    };
    for (name, size) in [("old/same.csv", 8), ("old/in/grows.csv", 8), ("old/shrinks.csv", 8), ("old/gone.csv", 8)] {
        list(name, size);
    }
    for (name, size) in [("new/same.csv", 8), ("new/in/grows.csv", 12), ("new/shrinks.csv", 6), ("new/added.csv", 8)] {
        list(name, size);
    }
    let (old, new) = (folder.path("old"), folder.path("new"));
    let said = steeve(&["diff", &old, &new]);
    let expected = [
        "file | before | after | difference | ratio | result".to_owned(),
        "in/grows.csv | 8 B | 12 B | +4 B | 1.5000 | grew".to_owned(),
        "same.csv | 8 B | 8 B | 0 B | 1.0000 | equal".to_owned(),
        "shrinks.csv | 8 B | 6 B | -2 B | 0.7500 | shrank".to_owned(),
        "all 3 | 24 B | 26 B | +2 B | 1.0834".to_owned(),
        format!("only in {new}: added.csv: the memory 8 B"),
        format!("only in {old}: gone.csv: the memory 8 B"),
        "in/grows.csv: the memory grew by 4 B (50.0 %) to 12 B: a +4 B".to_owned(),
        "shrinks.csv: the memory shrank by 2 B (25.0 %) to 6 B: a -2 B".to_owned(),
    ];
    assert_eq!(words(&said.expect(1).out, &[]), expected);
    said.complains(&[&format!("{new}: is larger than {old}: 2 of 4 files"), "--allow 8\n"]);
    // A file that is only there now has grown from nothing, of which no part is enough.
    for (allow, status) in [("4", 1), ("7", 1), ("8", 0), ("1000%", 1)] {
        steeve(&["diff", &old, &new, "--allow", allow]).expect(status);
    }
    let lines: Vec<Value> = steeve(&["diff", &old, &new, "--json"]).expect(1).out.lines().map(json).collect();
    let results: Vec<&str> = lines.iter().map(|line| line["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["only-after", "only-before", "grew", "equal", "shrank"]);
    assert!(lines.iter().all(|line| line["version"] == 1));
    let [added, gone] = [&lines[0], &lines[1]];
    assert_eq!((&added["before"], &gone["after"]), (&Value::Null, &Value::Null));
    assert_eq!((&added["allowed"], &gone["allowed"]), (&false.into(), &true.into()));
    assert_eq!((&added["total"]["after"], &added["memories"][0]["difference"]), (&8.into(), &8.into()));
    assert_eq!((&gone["total"]["before"], &gone["memories"][0]["difference"]), (&8.into(), &(-8).into()));
    // A file that can't be read does not keep the others from being compared.
    folder.file("new/same.csv", "nonsense");
    let said = steeve(&["diff", &old, &new]);
    assert!(said.expect(2).out.contains("in/grows.csv") && said.err.contains("same.csv"), "{}", said.err);
}

#[test]
fn recordings_of_another_process_are_matched_by_their_number() {
    let folder = Folder::new("diff-recordings");
    for (name, text) in [
        ("old/11-0000-2nodes.graph", SMALL),
        ("old/11-0001-3nodes.graph", LARGE),
        ("new/94-0000-2nodes.graph", SMALL),
        ("new/94-0001-2nodes.graph", SMALL),
        ("new/95-0000-2nodes.graph", SMALL),
    ] {
        fs::create_dir_all(Path::new(&folder.path(name)).parent().unwrap()).unwrap();
        folder.file(name, text);
    }
    let said = steeve(&["diff", &folder.path("old"), &folder.path("new")]);
    // What the second process has recorded is new.
    let lines = words(&said.expect(1).out, &[]);
    assert!(lines[1].starts_with("94-0000-2nodes.graph | 16.00 KiB | 16.00 KiB | 0 B"), "{}", said.out);
    assert!(lines[2].starts_with("94-0001-2nodes.graph | 24.00 KiB | 16.00 KiB | -8.00 KiB"), "{}", said.out);
    assert!(said.out.contains(": 95-0000-2nodes.graph: the memory 16.00 KiB\n"), "{}", said.out);
}

#[test]
fn what_can_not_be_compared_is_said() {
    let folder = Folder::new("diff-wrong");
    let file = folder.file("small.graph", SMALL);
    let (here, nowhere) = (folder.path(""), folder.path("nowhere.json"));
    steeve(&["diff", &file, &nowhere]).expect(2).complains(&[&nowhere, "cannot read"]);
    steeve(&["diff", &nowhere, &here]).expect(2).complains(&[&nowhere, "cannot read"]);
    steeve(&["diff", &file, &here]).expect(2).complains(&["not a folder, as ", "expected two files or two folders"]);
    steeve(&["diff", &here, &file]).expect(2).complains(&["not a folder, as ", "expected two files or two folders"]);
    steeve(&["diff", &file]).expect(2).complains(&["<AFTER>"]);
    steeve(&["diff", &file, &file, "--strategy", "fast", "--budget", "1s"]).expect(2).complains(&["--strategy best"]);
}

#[test]
fn a_reader_that_has_seen_enough_gets_the_status_all_the_same() {
    let folder = Folder::new("diff-pipe");
    let (small, large) = (folder.file("small.graph", SMALL), folder.file("large.graph", LARGE));
    for options in [[].as_slice(), &["--json"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steeve"))
            .args([&["diff", &small, &large], options].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), err.lines().count()), (Some(1), 1), "{err}");
        assert!(err.contains("is larger than"), "{err}");
    }
}

#[test]
fn names_do_nothing_to_the_terminal() {
    let folder = Folder::new("diff-control");
    let list = |name: &str, size: u64| {
        let long = "long".repeat(200);
        folder.file(name, format!("id,lower,upper,size\nevil\x1b[31m,0,1,{size}\n{long},0,1,{size}\n"))
    };
    let said = steeve(&["diff", &list("a.csv", 8), &list("b.csv", 9)]);
    assert!(!said.expect(1).out.contains('\x1b') && said.out.contains("evil\\u{1b}"), "{:?}", said.out);
    assert!(said.out.lines().all(|line| line.chars().count() <= 140), "{}", said.out);
}

#[test]
fn a_folder_within_the_other_is_told_from_it() {
    let folder = Folder::new("diff-nested");
    fs::create_dir_all(folder.path("a/n")).unwrap();
    for name in ["a/both.csv", "a/n/both.csv", "a/n/inner.csv"] {
        folder.file(name, "id,lower,upper,size\na,0,1,8\n");
    }
    let (outer, inner) = (folder.path("a"), folder.path("a/n"));
    let told = |before: &str, after: &str, status: i32| -> Vec<String> {
        let said = steeve(&["diff", before, after]);
        said.expect(status).out.lines().filter(|line| line.starts_with("only in ")).map(str::to_owned).collect()
    };
    let of_inner = format!("only in {inner}: inner.csv: the memory 8 B");
    let of_outer = ["both.csv", "inner.csv"].map(|name| format!("only in {outer}: n/{name}: the memory 8 B"));
    assert_eq!(told(&outer, &inner, 1), [std::slice::from_ref(&of_inner), of_outer.as_slice()].concat());
    assert_eq!(told(&inner, &outer, 1), [&[of_inner], of_outer.as_slice()].concat());
}

#[test]
fn block_lists_have_no_roles_operations_and_layers() {
    let folder = Folder::new("diff-blocks");
    let list = |name: &str, size: u64| folder.file(name, format!("id,lower,upper,size\nkq-3,0,1,{size}\n"));
    let (before, after) = (list("a.csv", 8), list("b.csv", 12));
    let said = steeve(&["diff", &before, &after]);
    let lines = words(&said.expect(1).out, &[]);
    assert_eq!(lines[0], "the memory grew by 4 B (50.0 %) to 12 B: kq-3 +4 B");
    assert!(lines.contains(&"block | change | before | after | difference".to_owned()), "{}", said.out);
    assert!(!["role", "layer", "attention"].iter().any(|word| said.out.contains(word)), "{}", said.out);
    let memory = &line(&before, &after)["memories"][0];
    for list in ["by_role", "by_operation", "by_layer"] {
        assert_eq!(memory[list], json("[]"), "{list}");
    }
    let change = json(r#"{"change":"grew","name":"kq-3","before":8,"after":12,"difference":4}"#);
    assert_eq!(memory["changes"], Value::from(vec![change]));
    let shown = steeve(&["show", &after]);
    assert!(!["role", "layer", "attention"].iter().any(|word| shown.expect(0).out.contains(word)), "{}", shown.out);
    let shown = json(&steeve(&["show", &after, "--json"]).expect(0).out);
    assert_eq!(shown["memories"][0]["by_role"], json("[]"));
}

#[test]
fn the_rows_of_a_peak_add_up_to_its_live_bytes() {
    let bytes = |it: &Value| it["bytes"].as_u64().unwrap();
    for file in sample(files("graphs"), 40).into_iter().chain(sample(files("blocks"), 4)) {
        for top in ["3", "1000000"] {
            let shown = json(&steeve(&["show", &file, "--json", "--top", top]).expect(0).out);
            for memory in shown["memories"].as_array().unwrap() {
                let rows: u64 = memory["alive"].as_array().unwrap().iter().map(bytes).sum();
                assert_eq!(
                    rows + bytes(&memory["more"]),
                    memory["live"].as_u64().unwrap(),
                    "{file} {}",
                    memory["name"]
                );
            }
        }
    }
}
