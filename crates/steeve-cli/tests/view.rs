//! `steeve view`, and what else is drawn or summed up: the real binary on real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Folder, corpus, golden, json, steeve, steeve_with, words};

const SMALL: &str = "x = input f32[64,32]; y = silu x; z = add y x !output";
const RECORDED: &str = "graphs/llm/qwen3-30b-a3b.c4096.fa1.out1.pp.json.gz";

/// The data of a page.
fn data(page: &str) -> serde_json::Value {
    let start = "<script id=\"data\" type=\"application/json\">";
    json(page.split_once(start).unwrap().1.split_once("</script>").unwrap().0)
}

#[test]
fn a_page_of_a_graph_has_ggmls_plan_and_ours() {
    let folder = Folder::new("view-page");
    let out = folder.path("map.html");
    steeve(&["view", &corpus(RECORDED), "-o", &out]).expect(0).complains(&["note:", &out, "written"]);
    let data = data(&fs::read_to_string(&out).unwrap());
    let plan = json(&steeve(&["plan", "--json", &corpus(RECORDED)]).expect(0).out);
    let names: Vec<&serde_json::Value> = data["maps"].as_array().unwrap().iter().map(|map| &map["name"]).collect();
    assert_eq!(names, ["ggml", "steeve"]);
    let memory = |map: usize| &data["maps"][map]["memories"][0];
    assert_eq!(memory(0)["buffers"][0], plan["buffers"][0]["ggml"]);
    assert_eq!(memory(1)["buffers"][0], plan["buffers"][0]["peak"]);
    assert_eq!(memory(1)["size"].as_array().unwrap().len() as u64, plan["buffers"][0]["blocks"]);
    // What plan -o draws is the same picture.
    let again = folder.path("again.html");
    steeve(&["plan", &corpus(RECORDED), "-o", &again]).expect(0);
    assert_eq!(fs::read(&again).unwrap(), fs::read(&out).unwrap());
}

#[test]
fn every_kind_of_file_is_drawn() {
    let folder = Folder::new("view-kinds");
    let graph = folder.file("small.graph", SMALL);
    let (plan, list, packed) = (folder.path("plan.json"), folder.path("list.csv"), folder.path("list.json.gz"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["plan", &corpus("blocks/tiny.csv"), "-o", &list]).expect(0);
    steeve(&["plan", &corpus("blocks/tiny.csv"), "-o", &packed]).expect(0);
    for file in [&graph, &plan, &list, &packed, &corpus("blocks/tiny.csv"), &corpus(RECORDED)] {
        for ending in ["html", "svg", "h"] {
            let out = folder.path(&format!("out.{ending}"));
            assert_eq!(steeve(&["view", "-q", file, "-o", &out]).expect(0).err, "", "{file}");
            assert!(fs::metadata(&out).unwrap().len() > 200, "{file}");
        }
        let said = steeve(&["view", file]);
        assert!(said.expect(0).out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
        assert!(!said.out.contains('\x1b') && said.err.is_empty());
    }
}

#[test]
fn a_saved_plan_is_drawn_as_it_stands() {
    let folder = Folder::new("view-saved");
    let graph = folder.file("small.graph", SMALL);
    let (plan, ours, theirs) = (folder.path("plan.json"), folder.path("ours.html"), folder.path("theirs.html"));
    steeve(&["plan", &graph, "-o", &plan]).expect(0);
    steeve(&["view", "-q", &graph, "-o", &ours]).expect(0);
    steeve(&["view", "-q", &plan, "-o", &theirs]).expect(0);
    let (ours, theirs) = (data(&fs::read_to_string(ours).unwrap()), data(&fs::read_to_string(theirs).unwrap()));
    for column in ["start", "steps", "offset", "size", "buffers", "bound"] {
        assert_eq!(ours["maps"][1]["memories"][0][column], theirs["maps"][0]["memories"][0][column], "{column}");
    }
    assert!(theirs["strings"].as_array().unwrap().iter().any(|text| text == "silu"));
    // A block list with offsets is drawn as it stands, and planned anew if a strategy is named.
    let list = folder.file("list.csv", "id,lower,upper,size,offset\na,0,1,8,100\nb,0,1,8,0\n");
    assert!(steeve(&["view", &list]).expect(0).out.contains("plan\n108 B in 2 blocks, lower bound 16 B"));
    let said = steeve(&["view", &list, "--strategy", "fast"]);
    assert!(said.expect(0).out.contains("steeve\n16 B in 2 blocks, no plan is smaller"), "{}", said.out);
}

#[test]
fn two_files_are_compared() {
    let folder = Folder::new("view-two");
    let (old, new) = (folder.path("old.json"), folder.path("new.json"));
    steeve(&["plan", &corpus(RECORDED), "--strategy", "ggml", "-o", &old]).expect(0);
    steeve(&["plan", &corpus(RECORDED), "-o", &new]).expect(0);
    let said = steeve(&["view", &old, &new, "--height", "6"]);
    assert!(said.expect(0).out.contains("old.json and new.json: old.json, CPU"), "{}", said.out);
    assert!(said.out.contains("35.74 MiB less (37472256 bytes, 38.8 %)"), "{}", said.out);
    let said = steeve(&["view", &new, &old, "--height", "6"]);
    assert!(said.expect(0).out.contains("35.74 MiB more"), "{}", said.out);
    steeve(&["view", &corpus("blocks/tiny.csv"), "--ggml"]).expect(0).complains(&["no plan of ggml's"]);
    let said = steeve(&["view", &corpus(RECORDED), "--ggml", "--height", "6"]);
    assert!(said.expect(0).out.contains("35.74 MiB less"), "{}", said.out);
}

#[test]
fn what_view_writes_for_programs_is_what_plan_writes() {
    let folder = Folder::new("view-data");
    let graph = folder.file("small.graph", SMALL);
    for ending in ["json", "csv", "json.gz", "h"] {
        let (viewed, planned) = (folder.path(&format!("viewed.{ending}")), folder.path(&format!("planned.{ending}")));
        steeve(&["view", "-q", &graph, "-o", &viewed]).expect(0);
        steeve(&["plan", &graph, "-o", &planned]).expect(0);
        assert_eq!(fs::read(viewed).unwrap(), fs::read(planned).unwrap(), "{ending}");
    }
}

#[test]
fn options_of_pictures_do_what_they_say() {
    let folder = Folder::new("view-options");
    let out = folder.path("map.svg");
    let drawn = |options: &[&str]| {
        steeve(&[&["view", "-q", &corpus(RECORDED), "-o", &out], options].concat()).expect(0);
        fs::read_to_string(&out).unwrap()
    };
    assert!(drawn(&["--width", "640"]).starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\""));
    assert!(drawn(&["--title", "A & B"]).contains(">A &amp; B</text>"));
    assert!(!drawn(&["--theme", "dark"]).contains("prefers-color-scheme"));
    assert!(drawn(&["--rectangles", "100"]).contains("small blocks are merged into"));
    assert!(drawn(&["--color-by", "operation"]).contains(">mul_mat_id</text>"));
    assert!(drawn(&["--steps", "0..100"]).len() < drawn(&[]).len() / 4);
    let said = steeve(&["view", &corpus(RECORDED), "--width", "50", "--height", "5", "--color-by", "size"]);
    assert_eq!(said.expect(0).out.lines().nth(2).unwrap().chars().count(), 50);
    assert_eq!(drawn(&["--colour-by", "name"]), drawn(&["--color-by", "name"]));
    let said = steeve(&["view", &corpus(RECORDED), "--bytes"]);
    assert!(said.expect(0).out.contains("59009056 bytes in 1693 blocks, no plan is smaller"), "{}", said.out);
    let limited = corpus("graphs/multi/llama-3.1-8b.gpu1max1g.c32768.fa0.pp.json.gz");
    let said = steeve(&["view", &limited, "--memory", "FAKE_Host"]);
    assert!(said.expect(0).out.contains("FAKE_Host") && !said.out.contains("FAKE0"), "{}", said.out);
}

#[test]
fn the_picture_of_the_readme_is_what_the_tool_draws() {
    let folder = Folder::new("view-readme");
    let out = folder.path("map.svg");
    let title = "Qwen3 30B A3B: the first 4 of 48 layers, with a prompt of 512 tokens";
    steeve(&["view", "-q", &corpus(RECORDED), "--ggml", "--steps", "0..252", "--title", title, "-o", &out]).expect(0);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    golden(&docs.join("map.svg"), &fs::read_to_string(&out).unwrap());
}

#[test]
fn what_needs_no_memory_is_no_mistake() {
    let folder = Folder::new("view-empty");
    let said = steeve(&["view", &folder.file("empty.csv", "id,lower,upper,size\n")]);
    said.expect(0).complains(&["nothing needs memory"]);
    steeve(&["view", "-q", &folder.path("empty.csv"), "-o", &folder.path("empty.html")]).expect(0);
    let zero = folder.file("zero.csv", "id,lower,upper,size\na,0,1,0\n");
    steeve(&["view", &zero]).expect(0);
    steeve(&["view", "-q", &zero, "-o", &folder.path("zero.svg")]).expect(0);
}

#[cfg(target_os = "linux")]
#[test]
fn colours_are_for_terminals() {
    // `script` runs a command in a terminal of its own.
    let run = |no_color: &str, args: &str| {
        let command = format!("{} {args}", env!("CARGO_BIN_EXE_steeve"));
        let script = Command::new("script").args(["-qec", &command, "/dev/null"]).env("NO_COLOR", no_color).output();
        script.ok().map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (view, plan) = (format!("view {}", corpus("blocks/tiny.csv")), format!("plan {}", corpus("blocks/tiny.csv")));
    let Some(coloured) = run("", &view) else {
        println!("colours: skipped, there is no script(1)");
        return;
    };
    assert!(coloured.contains("\x1b[38;5;") && coloured.contains('█'), "{coloured:?}");
    assert!(run("", &plan).unwrap().contains("\x1b["));
    for args in [&view, &plan] {
        let plain = run("1", args).unwrap();
        assert!(!plain.contains("\x1b["), "{plain:?}");
    }
}

#[test]
fn many_files_have_a_last_row_for_all() {
    let said = steeve(&["plan", &corpus("blocks")]);
    let lines = words(&said.expect(0).out, &[6]);
    assert_eq!(lines[0], "file | blocks | peak | bound | ratio | result | strategy");
    assert_eq!(lines.last().unwrap(), "all 4 | 32 | 15.63 KiB | 15.63 KiB | 1.0000 | 4 of 4 optimal");
    let said =
        steeve(&["plan", "--bytes", &corpus("graphs/other/train-mnist-fc.b500.0000.json.gz"), &corpus(RECORDED)]);
    let last = words(&said.expect(0).out, &[8]).pop().unwrap();
    assert!(last.starts_with("all 2 | 1707 | 100069312 | 61597056 | 0.6642 | "), "{last}");
}

#[test]
fn patterns_are_found_where_the_shell_leaves_them_alone() {
    let folder = Folder::new("view-patterns");
    fs::create_dir_all(folder.path("deep/er")).unwrap();
    folder.file("a.graph", SMALL);
    folder.file("deep/er/b.graph", SMALL);
    folder.file("deep/c.csv", "id,lower,upper,size\na,0,1,1\n");
    folder.file("odd[1].graph", SMALL);
    let names = |pattern: &str| {
        let said = steeve(&["plan", "--json", &folder.path(pattern)]);
        let name = |line| json(line)["file"].as_str().unwrap().to_owned();
        said.expect(0).out.lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(
        names("**/*.graph"),
        [folder.path("a.graph"), folder.path("deep/er/b.graph"), folder.path("odd[1].graph")]
    );
    assert_eq!(names("d*"), [folder.path("deep/c.csv"), folder.path("deep/er/b.graph")]);
    assert_eq!(names("odd[1].graph"), [folder.path("odd[1].graph")], "what exists is no pattern");
    assert_eq!(names("?.graph"), [folder.path("a.graph")]);
}

#[test]
fn a_comparison_of_many_files_fits_on_a_slide() {
    let said = steeve(&["compare", &corpus("graphs"), "--budget", "10nodes"]);
    said.expect(0).complains(&["files are summed up by folder; --rows file shows each"]);
    let lines = words(&said.out, &[9]);
    assert_eq!(lines[0], "folder | graphs | memories | ggml | steeve | saved | of ggml | at best | optimal");
    let folders: Vec<&str> = lines[1..].iter().map(|line| line.split(" | ").next().unwrap()).collect();
    assert_eq!(folders, ["arch", "llm", "multi", "other", "all"]);
    let said = steeve(&["compare", "--rows", "folder", &corpus("blocks"), "--budget", "100nodes"]);
    let lines = words(&said.expect(0).out, &[9]);
    assert_eq!(lines[0], "folder | lists | memories | best-fit | steeve | saved | of best-fit | at best | optimal");
    assert_eq!(said.err, "");
    let said = steeve(&["compare", "--rows", "file", &corpus("graphs/arch"), "--budget", "10nodes", "-q"]);
    assert!(said.expect(0).out.lines().count() > 30, "{}", said.out);
}

#[test]
fn a_graph_from_the_standard_input_is_drawn() {
    let folder = Folder::new("view-stdin");
    let out = folder.path("map.h");
    steeve_with(&["view", "-q", "-", "-o", &out, "--prefix", "tiny"], SMALL.as_bytes()).expect(0);
    assert!(fs::read_to_string(&out).unwrap().contains("#define TINY_ARENA_SIZE 16384u"));
}
