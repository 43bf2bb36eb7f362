//! `--as drop-in`: plans as the drop-in for ggml makes them, in every form that a plan has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;

use crate::harness::{Folder, corpus, json, steeve, words};

const LLAMA: &str = "graphs/multi/llama-3.1-8b.gpu1.c4096.fa1.out1.pp.json.gz";
/// The second memory is called as a GPU's, and would be one.
const FEED_FORWARD: &str = "\
memory cpu align=32 \"CPU\"
memory gpu align=32 \"CUDA0\"
wg = external f32[64,256] @gpu
wu = external f32[64,256] @gpu
wd = external f32[256,64] @gpu
s = input f32[64,512] @cpu
x = cont s @gpu
a = rms_norm x @gpu
g = mul_mat wg a @gpu
u = mul_mat wu a @gpu
h = swiglu g u @gpu
y = mul_mat wd h !output @gpu
";

#[test]
fn each_memory_is_planned_as_the_drop_in_does() {
    let said = steeve(&["plan", &corpus(LLAMA), "--as", "drop-in"]);
    let lines = words(&said.expect(0).out, &[0]);
    assert!(lines[1].starts_with("FAKE0 | 587 | 112.01 MiB | 96.13 MiB | 0.8583"), "{}", lines[1]);
    assert!(lines[2].starts_with("FAKE_Host | 8 | 20.01 MiB | 12.01 MiB | 0.6003"), "{}", lines[2]);
    assert!(lines[3].contains("0.8192") && lines[3].ends_with("ggml"), "{}", lines[3]);
}

#[test]
fn a_plan_file_says_whose_rules_it_keeps_and_is_held_to_them() {
    let folder = Folder::new("as-drop-in");
    let graph = folder.file("ffn.graph", FEED_FORWARD);
    let (kept, other) = (folder.path("kept.json"), folder.path("other.json"));
    steeve(&["plan", &graph, "--as", "drop-in", "-o", &kept]).expect(0);
    steeve(&["plan", &graph, "--reuse", "ggml", "-o", &other]).expect(0);
    assert_eq!(json(&fs::read_to_string(&kept).unwrap())["as"], "drop-in");
    assert!(json(&fs::read_to_string(&other).unwrap()).get("as").is_none());
    for args in
        [&["check", &graph, &kept][..], &["check", &graph, &kept, "--as", "drop-in"], &["check", &graph, &other]]
    {
        steeve(args).expect(0);
    }
    let said = steeve(&["check", &graph, &other, "--as", "drop-in"]);
    assert!(
        said.expect(1).out.contains("memory CUDA0: fusion beyond the plan's: expected at most none, got kept"),
        "{}",
        said.out
    );
    // A file that says so is held to it without being asked.
    let claimed = fs::read_to_string(&other).unwrap().replacen('{', r#"{"as":"drop-in","#, 1);
    let claimed = folder.file("claimed.json", claimed);
    steeve(&["check", &graph, &claimed]).expect(1);
}

#[test]
fn what_is_kept_for_fusion_is_no_tensor_of_its_own() {
    let folder = Folder::new("as-drop-in-forms");
    let graph = folder.file("ffn.graph", FEED_FORWARD);
    let header = folder.path("plan.h");
    steeve(&["plan", &graph, "--as", "drop-in", "-o", &header]).expect(0);
    let header = fs::read_to_string(header).unwrap();
    assert!(!header.contains("kept") && header.matches("_A_OFFSET").count() == 1, "{header}");
    let shown = steeve(&["show", &graph, "--as", "drop-in"]);
    assert!(shown.expect(0).out.contains("a (kept for fusion)"), "{}", shown.out);
    let live = |args: &[&str]| json(&steeve(args).expect(0).out)["memories"][1]["live"].as_u64().unwrap();
    let (kept, other) =
        (live(&["show", &graph, "--as", "drop-in", "--json"]), live(&["show", &graph, "--reuse", "ggml", "--json"]));
    assert_eq!(kept, other + 8 * 64 * 4, "8 rows of the activation");
}
