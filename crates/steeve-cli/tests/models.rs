//! TFLite models: planned, looked at, checked and written with their plan.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;

use steeve_models::tflite::{BuiltinOp, DataType, HeadRecord, Model, Options, SmallModel, Window, tflm_placement};

use crate::harness::{Folder, json, steeve};

/// Returns the file of a chain of seven tensors.
fn chain(folder: &Folder) -> String {
    folder.file("net.tflite", SmallModel::chain(&[16, 96, 112, 160, 80, 128, 48]).to_bytes())
}

fn peak_of(line: &str) -> u64 {
    json(line)["buffers"][0]["peak"].as_u64().unwrap()
}

#[test]
fn a_model_is_planned_beside_the_runtimes_own_planner() {
    let folder = Folder::new("models-plan");
    let model = chain(&folder);
    let said = steeve(&["plan", &model, "--json"]);
    let memory = &json(&said.expect(0).out)["buffers"][0];
    assert_eq!(memory["name"], "arena head");
    let read = Model::read(fs::read(&model).unwrap()).unwrap();
    assert_eq!(memory["tflm"], tflm_placement(&read, None, &[]).unwrap().head);
    assert_eq!((&memory["peak"], &memory["optimal"]), (&memory["lower_bound"], &true.into()));
    assert!(memory.get("ggml").is_none());
    let table = steeve(&["plan", &model]);
    assert!(table.expect(0).out.contains("of tflm"), "{}", table.out);
    let graph = folder.file("net.graph", "x = input 16; y = neg x !output");
    let both = steeve(&["plan", &model, &graph, "--bytes"]);
    assert!(both.out.contains("engine's"), "{}", both.out);
}

#[test]
fn a_model_is_written_with_its_plan_and_read_back() {
    let folder = Folder::new("models-write");
    let (model, out) = (chain(&folder), folder.path("planned.tflite"));
    let peak = peak_of(&steeve(&["plan", &model, "--json", "-o", &out]).expect(0).out);
    let planned = Model::read(fs::read(&out).unwrap()).unwrap();
    let record = HeadRecord::of(&planned).unwrap().unwrap();
    assert_eq!(tflm_placement(&planned, Some(&record), &[]).unwrap().head, peak);
    let said = steeve(&["check", &out]);
    assert!(said.expect(0).out.contains(&format!("the record holds: 7 tensors in {peak} bytes")), "{}", said.out);
    assert!(steeve(&["check", &model, &out]).expect(0).out.contains("the record holds"));
    // A record that is there is replaced, and the same plan gives the same file.
    let again = folder.path("again.tflite");
    assert_eq!(peak_of(&steeve(&["plan", &out, "--json", "-o", &again]).expect(0).out), peak);
    assert_eq!(fs::read(&out).unwrap(), fs::read(&again).unwrap());
    // What is in the file is shown, and a plan made anew on request.
    assert!(steeve(&["show", &out]).expect(0).out.contains("arena head"));
    assert!(steeve(&["view", &out, "--height", "4"]).expect(0).out.contains("record"));
    assert!(!steeve(&["view", &out, "--height", "4", "--strategy", "fast"]).expect(0).out.contains("record"));
}

#[test]
fn a_wrong_record_is_taken_apart() {
    let folder = Folder::new("models-wrong");
    let model = Model::read(SmallModel::chain(&[64, 32, 16]).to_bytes()).unwrap();
    let record = HeadRecord::new(&model, &[Some(0), Some(48), Some(0)]).unwrap();
    let file = folder.file("wrong.tflite", model.with_record(&record).unwrap());
    let said = steeve(&["check", &file]);
    assert!(said.expect(1).out.contains("share byte 48 while both are needed"), "{}", said.out);
    let line = json(&steeve(&["check", &file, "--json"]).expect(1).out);
    assert_eq!((&line["holds"], &line["faults"][0]["kind"]), (&false.into(), &"overlap".into()));
    assert_eq!(line["faults"][0]["tensors"], serde_json::json!([0, 1]));
    steeve(&["view", &file, "--height", "4"]).expect(1).complains(&["the plan does not hold", "share byte 48"]);
}

#[test]
fn a_record_that_the_runtime_does_not_load_is_an_error_of_whoever_looks_at_it() {
    let folder = Folder::new("models-damaged");
    let record = |count: i32| [1, 1, count, 0, 64, 0].iter().flat_map(|it: &i32| it.to_le_bytes()).collect::<Vec<u8>>();
    for (count, why) in
        [(2, "2 offsets, the file has 3 tensors"), (9, "record of the plan: 24 bytes"), (-1, "record of the plan")]
    {
        let mut small = SmallModel::chain(&[64, 32, 16]);
        small.metadata("OfflineMemoryAllocation", &record(count));
        let file = folder.file("damaged.tflite", small.to_bytes());
        for command in [&["view", &file, "--height", "4"][..], &["show", &file]] {
            steeve(command).expect(2).complains(&[why]);
        }
        assert_ne!(steeve(&["check", &file]).status, 0);
        steeve(&["show", &file, "--strategy", "fast"]).expect(0);
        steeve(&["plan", &file, "-o", &folder.path("again.tflite")]).expect(0);
        steeve(&["check", &folder.path("again.tflite")]).expect(0);
    }
}

#[test]
fn kernels_that_are_known_save_more() {
    let folder = Folder::new("models-kernels");
    let model = folder.file("relu.tflite", SmallModel::chain(&[64, 64, 64]).to_bytes());
    let peak = |options: &[&str]| peak_of(&steeve(&[&["plan", &model, "--json"], options].concat()).expect(0).out);
    assert_eq!(peak(&[]), 128);
    assert_eq!(peak(&["--in-place", "tflm-reference"]), 64);
    assert_eq!(peak(&["--overlap", "tflm-reference"]), 64);
    let wide = folder.file("wide.csv", "id,lower,upper,size,overlaps,distance\nx,0,2,64,,\ny,1,3,128,x,80\n");
    let shown = steeve(&["show", &wide, "--bytes"]);
    assert!(shown.expect(0).out.contains("needs 144: 192 are alive at step 1, 48 of them twice"), "{}", shown.out);
    assert_eq!(json(&steeve(&["show", &wide, "--json"]).expect(0).out)["memories"][0]["shared"], 48);
    assert_eq!(peak(&["--scratch", "100"]), 128 + 112);
    assert_eq!(peak(&["--in-place", "tflm-reference", "--reuse", "none"]), 128);
    let out = folder.path("in-place.tflite");
    steeve(&["plan", &model, "--in-place", "tflm-reference", "-o", &out]).expect(0);
    // Under kernels of which nothing is known it is wrong, and the command says for which it is right.
    let said = steeve(&["check", &out]);
    said.expect(1).complains(&["--in-place tflm-reference"]);
    steeve(&["check", &out, "--in-place", "tflm-reference"]).expect(0);
    // The plan file says where each tensor is, and is held to the same options.
    let plan = folder.path("plan.json");
    steeve(&["plan", &model, "--overlap", "tflm-reference", "-o", &plan]).expect(0);
    steeve(&["check", &model, &plan, "--overlap", "tflm-reference"]).expect(0);
    steeve(&["check", &model, &plan])
        .expect(1)
        .complains(&["plan.json: the plan holds with --in-place tflm-reference"]);
    let mut small = SmallModel::new();
    let window = Window { same_padding: true, stride: [1, 1] };
    let image = |small: &mut SmallModel, name| small.tensor(0, name, DataType::INT8, &[1, 8, 8, 16]);
    let (x, y) = (image(&mut small, "x"), image(&mut small, "y"));
    let filter = small.constant(0, "filter", DataType::INT8, &[16, 3, 3, 16], &[1; 2304]);
    let options = Options::Convolution { window, dilation: [1, 1], depth_multiplier: 1 };
    small.operator(0, BuiltinOp::CONV_2D, &[x, filter], &[y], options);
    small.io(0, &[x], &[y]);
    let model = folder.file("conv.tflite", small.to_bytes());
    steeve(&["plan", &model, "--overlap", "tflm-reference", "-o", &plan]).expect(0);
    steeve(&["check", &model, &plan]).expect(1).complains(&["plan.json: the plan holds with --overlap tflm-reference"]);
}

#[test]
fn a_tensor_that_nothing_uses_is_in_every_figure() {
    let folder = Folder::new("models-unused");
    let mut small = SmallModel::chain(&[64, 32, 64]);
    small.tensor(0, "unused", DataType::INT8, &[1, 4000]);
    small.tensor(0, "unused as well", DataType::INT8, &[1, 3000]);
    let model = folder.file("net.tflite", small.to_bytes());
    let said = steeve(&["plan", &model, "--json"]);
    let line = json(&said.expect(0).out);
    assert_eq!((peak_of(&said.out), &line["buffers"][0]["chunks"]), (4000, &serde_json::json!([4000])), "{line}");
    let out = folder.path("planned.tflite");
    steeve(&["plan", &model, "-o", &out]).expect(0).complains(&["head of 4000 bytes, 7008 without a plan"]);
    assert!(steeve(&["check", &out]).expect(0).out.contains("4000 bytes"));
}

#[test]
fn a_plan_of_a_model_says_what_is_not_in_it() {
    let folder = Folder::new("models-scratch");
    let said = steeve(&["plan", &chain(&folder)]);
    said.expect(0).complains(&["buffers of optimised kernels come on top, see --scratch"]);
}

#[test]
fn models_are_compared_by_what_is_assumed_of_their_kernels() {
    let folder = Folder::new("models-compare");
    folder.file("one.tflite", SmallModel::chain(&[64, 64, 64]).to_bytes());
    folder.file("two.tflite", SmallModel::chain(&[64, 32, 16]).to_bytes());
    let said = steeve(&["compare", &folder.path(""), "--bytes"]);
    for word in ["tflm", "in place", "overlap", "all 2 memories"] {
        assert!(said.expect(0).out.contains(word), "{word}: {}", said.out);
    }
    let said = steeve(&["compare", &folder.path(""), "--rows", "folder"]);
    assert!(said.expect(0).out.contains("of tflm"), "{}", said.out);
    let lines = steeve(&["compare", &folder.path("one.tflite"), "--json"]);
    let peaks: Vec<u64> = lines.expect(0).out.lines().map(peak_of).collect();
    assert_eq!(peaks, [128, 128, 64, 64, 64]);
}

#[test]
fn a_model_becomes_pictures_and_a_header() {
    let folder = Folder::new("models-pictures");
    let model = chain(&folder);
    for (name, words) in [("map.svg", "net.tflite"), ("map.html", "tflm"), ("net.h", "_ARENA_SIZE"), ("plan.csv", "t3")]
    {
        let out = folder.path(name);
        steeve(&["view", &model, "-o", &out]).expect(0);
        assert!(fs::read_to_string(&out).unwrap().contains(words), "{name}");
    }
    let out = folder.path("viewed.tflite");
    steeve(&["view", &model, "-o", &out]).expect(0);
    assert!(HeadRecord::of(&Model::read(fs::read(out).unwrap()).unwrap()).unwrap().is_some());
    let show = steeve(&["show", &model]);
    assert!(show.expect(0).out.contains("int8[1,160]"), "{}", show.out);
}
