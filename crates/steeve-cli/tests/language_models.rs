//! Language models in GGUF files: planned from their headers, for a size and for devices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use steeve_graph::InputLimit;
use steeve_models::gguf::{Architecture, GgufHeader, ModelMemory, SessionSize, SmallGguf};

use crate::harness::{Folder, gzip, json, steeve};

fn llama() -> SmallGguf {
    SmallGguf::language_model(Architecture::Llama, 1)
}

#[test]
fn a_model_is_planned_from_its_header_for_a_size() {
    let folder = Folder::new("language-plan");
    let header = llama().header_bytes();
    let (alone, whole) = (folder.file("head.gguf", &header), folder.file("model.gguf", llama().to_bytes()));
    let packed = folder.file("model.gguf.gz", gzip(std::str::from_utf8(b"").unwrap()));
    steeve(&["plan", &packed]).expect(2).complains(&["not a GGUF file"]);
    let size = ["--context", "64", "--batch", "16"];
    let said = steeve(&[&["plan", &whole, "--json"][..], &size].concat());
    let plan = json(&said.expect(0).out);
    let read = GgufHeader::read(header.as_slice(), InputLimit::DEFAULT).unwrap();
    let memory = ModelMemory::plan(&read, SessionSize::new(64, 16), 0).unwrap();
    let (device, wanted) = (&plan["devices"][0], &memory.devices[0]);
    assert_eq!(device["device"], "CPU");
    for (name, bytes) in [("weights", wanted.weights), ("caches", wanted.caches), ("compute", wanted.compute)] {
        assert_eq!(device[name], bytes.0, "{name}");
    }
    assert_eq!((&plan["buffers"][0]["peak"], &device["total"]), (&device["compute"], &wanted.total().0.into()));
    // The data are not looked at.
    let other = json(&steeve(&[&["plan", &alone, "--json"][..], &size].concat()).expect(0).out);
    assert_eq!(other["devices"], plan["devices"]);
    // A model that was trained with 512 tokens has no larger context by default.
    let usual = json(&steeve(&["plan", &whole, "--json"]).expect(0).out);
    let asked = json(&steeve(&["plan", &whole, "--json", "--context", "512", "--batch", "512"]).expect(0).out);
    assert_eq!(usual["devices"], asked["devices"]);
    let table = steeve(&[&["plan", &whole, "--bytes"][..], &size].concat());
    let row = format!("{}", wanted.total());
    assert!(table.expect(0).out.contains("model.gguf: context 64, batch 16"), "{}", table.out);
    assert!(table.out.lines().any(|line| line.starts_with("CPU") && line.trim_end().ends_with(&row)), "{}", table.out);
}

#[test]
fn layers_on_a_gpu_take_their_weights_and_caches_there() {
    let folder = Folder::new("language-gpu");
    let model = folder.file("model.gguf", llama().header_bytes());
    let devices = |layers: &str| json(&steeve(&["plan", &model, "--json", "--layers-on-gpu", layers]).expect(0).out);
    let one = devices("1");
    assert_eq!((&one["devices"][0]["device"], &one["devices"][1]["device"]), (&"CUDA0".into(), &"CPU".into()));
    let bytes = |plan: &serde_json::Value, device: usize, what: &str| plan["devices"][device][what].as_u64().unwrap();
    assert_eq!(bytes(&one, 0, "caches"), bytes(&one, 1, "caches"));
    let all = devices("2");
    assert_eq!((bytes(&all, 1, "weights"), bytes(&all, 1, "caches")), (0, 0));
    assert_eq!(devices("99")["devices"], all["devices"]);
    let table = steeve(&["plan", &model, "--layers-on-gpu", "1"]);
    assert!(table.expect(0).out.lines().any(|line| line.starts_with("total")), "{}", table.out);
}

#[test]
fn the_plan_of_a_model_is_looked_at_checked_and_drawn_as_any_other() {
    let folder = Folder::new("language-other");
    let (model, plan) = (folder.file("model.gguf", llama().header_bytes()), folder.path("plan.json"));
    let size = ["--context", "64", "--batch", "16"];
    steeve(&[&["plan", &model, "-o", &plan][..], &size].concat()).expect(0);
    let said = steeve(&[&["check", &model, &plan][..], &size].concat());
    assert!(said.expect(0).out.contains("holds"), "{}", said.out);
    steeve(&["check", &model, &plan, "--context", "65"]).expect(1);
    assert!(steeve(&["show", &model]).expect(0).out.contains("ffn"));
    steeve(&[&["view", &model, "--height", "4"][..], &size].concat()).expect(0);
    steeve(&["compare", &model]).expect(0);
    steeve(&["diff", &model, &model]).expect(0);
}

#[test]
fn what_is_no_model_of_a_known_family_is_refused_with_a_reason() {
    let folder = Folder::new("language-refused");
    let refused = |file: &SmallGguf, args: &[&str], words: &[&str]| {
        let name = folder.file("model.gguf", file.header_bytes());
        steeve(&[&["plan", &name][..], args].concat())
            .expect(2)
            .complains(&["cannot be used as a model"])
            .complains(words);
    };
    refused(&llama(), &["--context", "0"], &["context", "got 0"]);
    refused(&llama(), &["--batch", "0"], &["batch", "got 0"]);
    refused(&llama(), &["--context", "4294967296"], &["context", "got 4294967296"]);
    let mut other = llama();
    other.remove_value("general.architecture");
    refused(&other, &[], &["general.architecture", "missing"]);
    other.text("general.architecture", "clip");
    refused(&other, &[], &["clip", "llama, qwen2, qwen3, qwen3moe or gemma3"]);
}
