//! `steeve check --json`: the verdict for programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;

use serde_json::Value;

use crate::harness::{Folder, Said, corpus, json, steeve};

const TWO: &str = "id,lower,upper,size\nleft,0,2,8\nright,1,3,4\n";
const GRAPH: &str = "x = input f32[64,32]; y = silu x; z = add y x !output";

fn lines(said: &Said) -> Vec<Value> {
    said.out.lines().map(json).collect()
}

#[test]
fn a_plan_that_holds_is_told_with_its_peak_and_bound() {
    let folder = Folder::new("check-json-holds");
    let (two, graph) = (folder.file("two.csv", TWO), folder.file("small.graph", GRAPH));
    for (problem, peak) in [(&two, 12), (&graph, 16384)] {
        let plan = folder.path("plan.json");
        steeve(&["plan", problem, "-o", &plan]).expect(0);
        let said = steeve(&["check", problem, &plan, "--json"]);
        let [line] = lines(said.expect(0)).try_into().unwrap();
        assert_eq!((&line["version"], &line["holds"], &line["faults"]), (&1.into(), &true.into(), &json("[]")));
        assert_eq!((line["file"].as_str(), line["problem"].as_str()), (Some(plan.as_str()), Some(problem.as_str())));
        assert_eq!(line["buffers"][0]["name"], "memory");
        assert_eq!(
            (line["buffers"][0]["peak"].as_u64(), line["buffers"][0]["lower_bound"].as_u64()),
            (Some(peak), Some(peak))
        );
        assert_eq!(line["buffers"][0]["optimal"], true);
        assert_eq!(line["buffers"][0]["chunks"], json(&format!("[{peak}]")));
        // What `plan --json` says of the same memory is said with the same words.
        let planned = json(&steeve(&["plan", problem, "--json"]).expect(0).out);
        for field in ["name", "peak", "lower_bound", "optimal", "chunks"] {
            assert_eq!(line["buffers"][0][field], planned["buffers"][0][field], "{field}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_kind_and_names() {
    let folder = Folder::new("check-json-faults");
    let overlap = folder.file("overlap.csv", "id,lower,upper,size,alignment,offset\nleft,0,2,8,1,0\nright,1,3,4,8,4\n");
    let said = steeve(&["check", &overlap, "--json"]);
    let [line] = lines(said.expect(1)).try_into().unwrap();
    said.complains(&["does not hold"]);
    assert_eq!(line["holds"], false);
    assert_eq!(line["buffers"], json("[]"), "what does not hold has no figures");
    let faults = line["faults"].as_array().unwrap();
    let kinds: Vec<&str> = faults.iter().map(|fault| fault["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["misaligned", "overlap"]);
    assert_eq!((&faults[0]["blocks"], &faults[1]["blocks"]), (&json(r#"["right"]"#), &json(r#"["left","right"]"#)));
    // Each sentence is the one that is said without --json.
    let plain = steeve(&["check", &overlap]).expect(1).out.clone();
    let sentences: Vec<String> =
        faults.iter().map(|fault| format!("{overlap}: {}", fault["message"].as_str().unwrap())).collect();
    assert_eq!(plain.lines().collect::<Vec<_>>(), sentences);
}

#[test]
fn faults_of_graphs_name_the_tensors() {
    let folder = Folder::new("check-json-tensors");
    let graph = folder.file("small.graph", GRAPH);
    let plan = folder.path("plan.json");
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    let mut wrong = json(&fs::read_to_string(&plan).unwrap());
    wrong["memories"][0]["blocks"][0]["offset"] = 1_000_000.into();
    let wrong = folder.file("wrong.json", wrong.to_string());
    let said = steeve(&["check", &graph, &wrong, "--json"]);
    let [line] = lines(said.expect(1)).try_into().unwrap();
    let fault = &line["faults"][0];
    assert_eq!((&fault["kind"], &fault["tensors"]), (&"outside".into(), &json("[0]")), "{line}");
    let plain = steeve(&["check", &graph, &wrong]).expect(1).out.clone();
    for (sentence, fault) in plain.lines().zip(line["faults"].as_array().unwrap()) {
        assert_eq!(sentence, format!("{wrong}: {}", fault["message"].as_str().unwrap()));
    }
    assert_eq!(plain.lines().count(), line["faults"].as_array().unwrap().len());
}

#[test]
fn a_recorded_graph_has_a_line_for_our_plan_and_one_for_ggmls() {
    let recorded = corpus("graphs/other/train-mnist-fc.b500.0000.json.gz");
    let said = steeve(&["check", &recorded, "--json"]);
    let [ours, ggml] = lines(said.expect(0)).try_into().unwrap();
    assert_eq!((&ours["plan"], &ggml["plan"]), (&"ours".into(), &"ggml".into()));
    for line in [&ours, &ggml] {
        assert_eq!((&line["holds"], line["file"].as_str()), (&true.into(), Some(recorded.as_str())));
        let (peak, bound) = (&line["buffers"][0]["peak"], &line["buffers"][0]["lower_bound"]);
        assert!(bound.as_u64().unwrap() <= peak.as_u64().unwrap(), "{line}");
    }
    assert!(ours["buffers"][0]["peak"].as_u64() < ggml["buffers"][0]["peak"].as_u64());
}

#[test]
fn bad_input_has_no_line() {
    let folder = Folder::new("check-json-bad");
    let said = steeve(&["check", &folder.file("bad.csv", "nonsense\n"), "--json"]);
    assert_eq!(said.expect(2).out, "");
}
