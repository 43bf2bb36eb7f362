//! The page of `steeve view` in a real browser: what it shows, what it does, and how fast it draws.
//!
//! Needs chromium, node and playwright-core, which `.ci/browser` installs. Without them the test says so and passes, unless
//! `STEEVE_BROWSER=required`. Screenshots stay in the target folder; with `STEEVE_SHOTS=1` those of the docs are made anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json as object;

use crate::harness::{corpus, json, steeve};

const RECORDED: &str = "graphs/llm/qwen3-30b-a3b.c4096.fa1.out1.pp.json.gz";
/// Weights of experts are copied to the device that multiplies with them.
const EXPERTS: &str = "graphs/multi/qwen3-30b-a3b.gpu1ncmoe.c4096.fa1.out1.pp.json.gz";
/// One half of the nodes runs on one device, one on the other.
const PIPELINE: &str = "graphs/multi/qwen3-30b-a3b.gpu2pp.c4096.fa1.tg.json.gz";
const LIMITED: &str = "graphs/multi/llama-3.1-8b.gpu1max1g.c32768.fa0.pp.json.gz";

/// One tensor of each kind, in two memories.
const SMALL: &str = "\
memory gpu align=128
memory host align=64
mask = input f32[100] @host
x = input f32[64,32] @gpu
attn_q = silu x @gpu
ffn_up = add attn_q x @gpu
part = view f32[64]+0 ffn_up @gpu
y = neg part !output @gpu
";

/// Five memories with long names, one tensor each and one that is made of all.
fn five() -> String {
    let names: Vec<String> = (0..5).map(|it| format!("CUDA{it}_Split_Compute")).collect();
    let memories: String = names.iter().map(|name| format!("memory {name} align=128\n")).collect();
    let tensors = names.iter().enumerate().map(|(it, name)| format!("x{it} = input f32[64,{}] @{name}\n", 32 + it));
    let nodes = names.iter().enumerate().map(|(it, name)| format!("y{it} = neg x{it} !output @{name}\n"));
    memories + &tensors.chain(nodes).collect::<String>()
}

/// What the page is driven with, or why it can't be.
struct Browser {
    chromium: PathBuf,
    node: PathBuf,
    playwright: PathBuf,
}

impl Browser {
    fn find() -> Result<Self, &'static str> {
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let chromium = named("STEEVE_CHROMIUM")
            .or_else(|| ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| on_path(name)))
            .ok_or("there is no chromium")?;
        let node = on_path("node").ok_or("there is no node")?;
        let playwright = target().join("browser/node_modules/playwright-core");
        if !playwright.is_dir() {
            return Err("there is no playwright-core in the target folder");
        }
        Ok(Self { chromium, node, playwright })
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// A hundred thousand blocks of many sizes and lifetimes.
fn many() -> String {
    let mut rows = String::from("id,lower,upper,size,alignment\n");
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for block in 0..100_000u64 {
        let lower = block / 4;
        let life = if random(40) == 0 { 50 + random(4000) } else { 1 + random(12) };
        let size = 1 << (4 + random(16));
        rows += &format!("layer{}.t{},{lower},{},{},64\n", block / 250, block % 250, lower + life, size + random(size));
    }
    rows
}

#[test]
fn the_page_shows_what_the_plan_says() {
    let browser = match Browser::find() {
        Ok(browser) => browser,
        Err(why) => {
            println!("browser: skipped, {why}; run .ci/browser install");
            assert!(std::env::var_os("STEEVE_BROWSER").is_none_or(|it| it != "required"), "{why}");
            return;
        }
    };
    let folder = target().join("tmp/browser");
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let page = |name: &str, args: &[&str]| {
        let out = path(name);
        steeve(&[&["view", "--quiet"], args, &["-o", &out]].concat()).expect(0);
        out
    };
    fs::write(path("small.graph"), SMALL).unwrap();
    fs::write(path("many.csv"), many()).unwrap();
    fs::write(path("five.graph"), five()).unwrap();
    fs::write(path("other.csv"), "id,lower,upper,size\nold_one,0,2,8\nboth,1,3,4\n").unwrap();
    fs::write(path("more.csv"), "id,lower,upper,size\nboth,1,3,4\nnew_one,2,5,8\nnew_two,3,4,8\n").unwrap();
    let far = 1_000_000_000_000_000_000u64;
    fs::write(path("far.csv"), format!("id,lower,upper,size\na,{far},{},8\nb,{far},{},8\n", far * 2, far * 3)).unwrap();
    fs::write(path("wrong.csv"), "id,lower,upper,size,offset\nleft,0,2,8,0\nright,1,3,4,4\n").unwrap();
    let (old, new) = (path("old.json"), path("new.json"));
    steeve(&["plan", &corpus(RECORDED), "--strategy", "ggml", "-o", &old]).expect(0);
    steeve(&["plan", &corpus(RECORDED), "-o", &new]).expect(0);
    // Of one and the same graph: the plan as a block list, whose steps are steps, and the graph with its nodes.
    let list = path("list.csv");
    steeve(&["plan", &corpus(RECORDED), "--strategy", "ggml", "-o", &list]).expect(0);
    let wrong = path("wrong.html");
    steeve(&["view", &path("wrong.csv"), "-o", &wrong]).expect(1).complains(&["the plan does not hold"]);
    let planned = json(&steeve(&["plan", "--json", &corpus(RECORDED)]).expect(0).out);
    let order = object!({
        "playwright": browser.playwright, "chromium": browser.chromium, "shots": folder,
        "recorded": page("recorded.html", &[&corpus(RECORDED)]), "planned": planned["buffers"][0],
        "small": page("small.html", &[&path("small.graph")]),
        "five": page("five.html", &[&path("five.graph")]),
        "limited": page("limited.html", &[&corpus(LIMITED)]),
        "plans": page("plans.html", &[&old, &new]),
        "blocks": page("blocks.html", &[&corpus("blocks/tiny.csv")]),
        "mixed": page("mixed.html", &[&list, &corpus(RECORDED)]),
        "part": page("part.html", &[&corpus(RECORDED), "--steps", "0..40", "--colour-by", "operation", "--theme", "dark"]),
        "other": page("other.html", &[&path("other.csv"), &path("more.csv")]),
        "far": page("far.html", &[&path("far.csv")]),
        "many": page("many.html", &[&path("many.csv")]),
        "wrong": wrong,
        "experts": page("experts.html", &[&corpus(EXPERTS)]),
        "pipeline": page("pipeline.html", &[&corpus(PIPELINE)]),
        "first": page("first.html", &[&corpus(RECORDED), "--steps", "0..252"]),
        "docs": std::env::var_os("STEEVE_SHOTS").map(|_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/drive.cjs");
    let said = Command::new(browser.node).arg(script).arg(order.to_string()).output().unwrap();
    print!("{}", String::from_utf8_lossy(&said.stdout));
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
