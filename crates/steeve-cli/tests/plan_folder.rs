//! `steeve plan -o FOLDER/`: a file for each graph, under the name by which the drop-in looks for it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::cell::Cell;
use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use steeve_graph::{
    AssignedGraph, Fusion, GraphPlan, GraphStrategy, Memory, PlanOptions, RecordedGraph, Reuse, Unread,
    plan_beside_ggml,
};

use crate::harness::{Folder, corpus, gzip, steeve, steeve_with};

const LLAMA: &str = "graphs/multi/llama-3.1-8b.gpu1.c4096.fa1.out1.pp.json.gz";
const SEARCH: [&str; 4] = ["--strategy", "best", "--budget", "10nodes"];

fn unpacked(file: impl AsRef<Path>) -> String {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn names(folder: &str) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The graph of a recording in memories for which this is kept.
fn kept(recorded: RecordedGraph, keep: impl Fn(&Memory) -> (u32, Fusion)) -> AssignedGraph {
    let graph = recorded.assigned;
    let keep = |memory: &Memory| {
        let (hold, fusion) = keep(memory);
        Memory { extra_lifetime: hold, fusion, ..memory.clone() }
    };
    let memories: Vec<Memory> = graph.memories().iter().map(keep).collect();
    let (assignment, sizes) = (graph.assignment().clone(), graph.sizes().clone());
    AssignedGraph::new(graph.into_graph(), memories, assignment, sizes).unwrap()
}

fn drop_in(memory: &Memory) -> (u32, Fusion) {
    (0, if memory.name.ends_with("_Host") || memory.name == "CPU" { Fusion::None } else { Fusion::Kept })
}

fn best() -> PlanOptions {
    PlanOptions::new(GraphStrategy::Best(Default::default())).with_reuse(Reuse::Ggml)
}

#[test]
fn each_graph_has_a_file_that_the_library_reads() {
    let folder = Folder::new("plan-folder");
    // Of one graph there are two recordings.
    let copy = folder.path("copy.json.gz");
    fs::copy(corpus(LLAMA), &copy).unwrap();
    let other = corpus("graphs/llm/llama-3.2-1b.c4096.fa1.out1.pp.json.gz");
    let plans = folder.path("plans/");
    let llama = corpus(LLAMA);
    let args = [&["plan", &llama, &copy, &other, "--as", "drop-in", "-o", &plans], &SEARCH[..]].concat();
    let said = steeve(&args);
    assert_eq!(said.expect(0).out.lines().filter(|line| line.contains("best")).count(), 3 + 2 + 2, "{}", said.out);
    let graphs = [corpus(LLAMA), other].map(|file| kept(RecordedGraph::from_json(&unpacked(file)).unwrap(), drop_in));
    let mut expected: Vec<String> = graphs.iter().map(|graph| graph.plan_file_name(&best())).collect();
    for (graph, name) in graphs.iter().zip(&expected) {
        let plan = GraphPlan::from_json(&unpacked(format!("{plans}{name}")), graph).unwrap();
        assert!(matches!(plan.options().strategy, GraphStrategy::Best(_)));
        assert!(plan.peak() <= plan_beside_ggml(graph, &best()).unwrap().plan.peak());
    }
    expected.sort();
    assert_eq!(names(&plans), expected);
    // Once more, into the folder that is there, whether or not it is called one.
    let before = fs::read(format!("{plans}{}", expected[0])).unwrap();
    steeve(&[&["plan", &copy, "--as", "drop-in", "-o", plans.trim_end_matches('/')], &SEARCH[..]].concat()).expect(0);
    assert_eq!(names(&plans), expected);
    assert_eq!(fs::read(format!("{plans}{}", expected[0])).unwrap().len(), before.len());
}

#[test]
fn other_rules_have_other_files() {
    let folder = Folder::new("plan-folder-rules");
    let plans = folder.path("plans/");
    let graph = corpus(LLAMA);
    let read = || RecordedGraph::from_json(&unpacked(&graph)).unwrap();
    let mut expected = Vec::new();
    for (args, name) in [
        // A folder is the drop-in's, whether or not that is said.
        (&[][..], kept(read(), drop_in).plan_file_name(&best())),
        (&["--reuse", "more"], kept(read(), drop_in).plan_file_name(&best().with_reuse(Reuse::Extended))),
        (
            &["--as", "drop-in", "--unread", "keep"],
            kept(read(), drop_in).plan_file_name(&best().with_unread(Unread::Keep)),
        ),
    ] {
        steeve(&[&["plan", &graph, "-o", &plans, "--budget", "10nodes"], args].concat()).expect(0);
        // The file says whose rules it keeps, and holds.
        steeve(&["check", &graph, &format!("{plans}{name}")]).expect(0);
        expected.push(name);
        expected.sort();
        assert_eq!(names(&plans), expected, "{args:?}");
    }
    let said = steeve(&["plan", &graph, "-o", &plans, "--strategy", "fast"]);
    said.expect(2).complains(&["for plans of --strategy best"]);
    assert_eq!(names(&plans), expected);
}

#[test]
fn what_the_drop_in_kept_for_a_backend_is_kept_by_the_plan() {
    let folder = Folder::new("plan-folder-needs");
    let text = unpacked(corpus(LLAMA));
    let recorded = text.replacen(r#""alignment":"#, r#""hold":32,"fusion":"checked","host":false,"alignment":"#, 1);
    let file = folder.file("needs.json.gz", gzip(&recorded));
    let plans = folder.path("plans/");
    steeve(&["plan", &file, "--as", "drop-in", "-o", &plans]).expect(0);
    let first = Cell::new(true);
    let graph = kept(RecordedGraph::from_json(&recorded).unwrap(), |memory| match first.replace(false) {
        true => (32, Fusion::Checked),
        false => drop_in(memory),
    });
    assert_eq!(names(&plans), [graph.plan_file_name(&best())]);
}

#[test]
fn what_does_not_belong_into_a_folder_is_not_written() {
    let folder = Folder::new("plan-folder-none");
    let (plans, list) = (folder.path("plans/"), folder.file("two.csv", "id,lower,upper,size\na,0,2,8\nb,1,3,4\n"));
    let graph = folder.file("small.graph", "x = input f32[64]; y = neg x !output");
    let said = steeve(&["plan", &list, &graph, "-o", &plans]);
    said.expect(2).complains(&["two.csv: --out FOLDER is for graphs"]);
    assert_eq!(names(&plans).len(), 1, "the other one is");
    let said = steeve(&["plan", &graph, "--capacity", "1", "-o", &folder.path("none/")]);
    said.expect(1).complains(&["not written: no plan fits"]);
    assert!(names(&folder.path("none/")).is_empty());
    // A graph that has such a name itself is not overwritten.
    let name = names(&plans).remove(0);
    let input = folder.file(&name, gzip("x = input f32[64]; y = neg x !output"));
    let said = steeve(&["plan", &input, "-o", &folder.0.display().to_string()]);
    said.expect(2).complains(&["would overwrite the input"]);
    let said = steeve_with(&["plan", "-", "-o", &plans], b"x = input f32[64]; y = sqr x !output");
    said.expect(0);
    assert_eq!(names(&plans).len(), 1, "operations take no part in the name");
}
