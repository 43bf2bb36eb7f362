//! ONNX models: planned at the sizes that are given, shown, compared, checked and written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;

use serde_json::{Value, json};
use steeve_models::onnx::{DataType, SmallAttribute, SmallModel};

use crate::harness::{Folder, json, steeve};

/// Returns the file of three layers with two free dimensions.
fn layers(folder: &Folder) -> String {
    let mut model = SmallModel::new();
    model.input("x", DataType::FLOAT, &["batch", "sequence", "16"]);
    model.constant("w", DataType::FLOAT, &[16, 64]);
    model.node("MatMul", &["x", "w"], &["wide"]);
    model.node("Relu", &["wide"], &["active"]);
    model.node("Transpose", &["active"], &["turned"]);
    model.output("turned");
    folder.file("net.onnx", model.to_bytes())
}

fn results(args: &[&str]) -> Vec<Value> {
    steeve(&[args, &["--json"]].concat()).expect(0).out.lines().map(json).collect()
}

#[test]
fn a_model_is_planned_at_the_sizes_that_are_given() {
    let folder = Folder::new("onnx-plan");
    let model = layers(&folder);
    let line = &results(&["plan", &model, "--dim", "batch=2", "--dim", "sequence=8"])[0];
    // Computed in place, the wide tensor and its transpose are alive at once.
    assert_eq!(line["buffers"][0]["peak"], 2 * 4 * 2 * 8 * 64);
    assert_eq!(line["dims"], json!({"batch": 2, "sequence": 8}));
    assert_eq!(line["weights"], json!({"stored": 4 * 16 * 64, "beside": 4 * 16 * 64, "computed": 0}));
    let said = steeve(&["plan", &model, "--dim", "batch=2", "--dim", "sequence=8"]);
    said.expect(0).complains(&[
        "not what ONNX Runtime takes",
        "weights of 4096 bytes come on top, 4096 of them in files beside it",
    ]);
    let cut = steeve(&["plan", &model]);
    cut.expect(2).complains(&["\"batch\"", "\"sequence\"", "such as --dim batch=1 --dim sequence=128"]);
}

#[test]
fn several_sizes_are_a_table_and_a_chart() {
    let folder = Folder::new("onnx-chart");
    let model = layers(&folder);
    let args = ["plan", &model, "--dim", "batch=1,8,64", "--dim", "sequence=8"];
    let peaks: Vec<u64> = results(&args).iter().map(|it| it["buffers"][0]["peak"].as_u64().unwrap()).collect();
    assert_eq!(peaks, [1, 8, 64].map(|batch| 2 * 4 * batch * 8 * 64));
    let said = steeve(&args);
    assert_eq!(said.expect(0).err.matches("come on top").count(), 1, "{}", said.err);
    let bars: Vec<usize> =
        said.expect(0).out.lines().map(|line| line.matches('#').count()).filter(|it| *it > 0).collect();
    assert_eq!(bars, [1, 7, 50]);
    for row in ["net.onnx batch=1 ", "net.onnx batch=8 ", "net.onnx batch=64 "] {
        assert!(said.out.contains(row), "{}", said.out);
    }
}

#[test]
fn a_plan_is_written_checked_shown_drawn_and_compared() {
    let folder = Folder::new("onnx-files");
    let (model, plan) = (layers(&folder), folder.path("plan.json"));
    let dims = ["--dim", "batch=1", "--dim", "sequence=4"];
    let with = |args: &[&str]| steeve(&[args, &dims].concat());
    with(&["plan", &model, "-o", &plan]).expect(0);
    assert!(with(&["check", &model, &plan]).expect(0).out.contains("holds"));
    assert!(with(&["check", &model]).expect(0).out.contains("holds"));
    // The plan of other sizes is none of this graph.
    steeve(&["check", &model, &plan, "--dim", "batch=2", "--dim", "sequence=4"]).expect(1);
    let shown = with(&["show", &model]);
    assert!(shown.expect(0).out.contains("f32[1,4,64]") && shown.out.contains("transpose"), "{}", shown.out);
    assert!(with(&["view", &model, "--height", "4"]).expect(0).out.contains("activations"));
    let page = folder.path("page.html");
    with(&["view", &model, "-o", &page]).expect(0);
    assert!(fs::read_to_string(page).unwrap().contains("turned"));
    let compared = with(&["compare", &model]);
    assert!(compared.expect(0).out.contains("not in place"), "{}", compared.out);
    assert!(compared.out.contains("order best"), "{}", compared.out);
    assert!(with(&["diff", &plan, &model]).expect(0).out.contains("activations"));
    let none = &results(&[&["plan", &model, "--reuse", "none"][..], &dims].concat())[0];
    let some = &results(&[&["plan", &model][..], &dims].concat())[0];
    assert!(none["buffers"][0]["peak"].as_u64() >= some["buffers"][0]["peak"].as_u64());
}

#[test]
fn a_model_is_known_by_its_first_bytes() {
    let folder = Folder::new("onnx-head");
    let renamed = folder.file("model", SmallModel::chain(&[64, 32, 16]).to_bytes());
    assert_eq!(results(&["plan", &renamed])[0]["buffers"][0]["peak"], 4 * (64 + 32));
}

/// `wide` could be made and be gone before `upper` has its bytes, were the two halves of `x` made by two nodes.
#[test]
fn what_reads_one_of_several_results_runs_after_the_node_that_computes_them() {
    let folder = Folder::new("onnx-results");
    let mut model = SmallModel::new();
    model.input("x", DataType::FLOAT, &["4096"]);
    model.node("Split", &["x"], &["upper", "lower"]);
    let axis = [("axis", SmallAttribute::Int(0))];
    model.node_with(("", "Concat"), &["lower", "lower", "lower", "lower"], &["wide"], &axis);
    model.node("ReduceMax", &["wide"], &["most"]);
    model.node("Mul", &["upper", "most"], &["scaled"]);
    model.node("Add", &["x", "most"], &["shifted"]);
    model.output("scaled");
    model.output("shifted");
    let model = folder.file("net.onnx", model.to_bytes());
    let [keep, best] = ["keep", "best"].map(|order| results(&["plan", &model, "--order", order]).remove(0));
    assert_eq!(best["moved"], Value::Null, "{best}");
    assert_eq!(keep["buffers"][0]["peak"], best["buffers"][0]["peak"]);
    let plan = folder.path("plan.json");
    steeve(&["plan", &model, "--order", "best", "-o", &plan]).expect(0);
    assert!(!fs::read_to_string(&plan).unwrap().contains("\"order\""));
}
