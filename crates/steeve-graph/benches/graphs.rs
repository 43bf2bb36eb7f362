//! Plans of recorded graphs: bytes beside ggml's, and times beside our own `Strategy::Ggml` in the same run.
//!
//! `cargo bench -p steeve-graph` reads the corpus at `STEEVE_CORPUS`, else `../shared/corpus` beside the workspace, else
//! the graphs in the project's own `corpus/`.

#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steeve_graph::{GraphPlan, GraphStrategy, PlanOptions, RecordedGraph, Reuse, plan_graph};

/// Graphs for the table: what a server plans for a prompt (one row of logits, flash attention on), and other networks.
const MODELS: [&str; 15] = [
    "llm/deepseek-v2-lite.c4096.fa1.out1.pp",
    "llm/deepseek-v3.c4096.fa1.out1.pp",
    "llm/gemma-2-9b.c4096.fa1.out1.pp",
    "llm/gemma-3-4b.c4096.fa1.out1.pp",
    "llm/gpt2-124m.c4096.fa1.out1.pp",
    "llm/granite-4.0-h-tiny.c4096.fa1.out1.pp",
    "llm/jamba-mini-52b.c4096.fa1.out1.pp",
    "llm/llama-3.1-8b.c4096.fa1.out1.pp",
    "llm/llama-3.2-1b.c4096.fa1.out1.pp",
    "llm/qwen2.5-0.5b.c4096.fa1.out1.pp",
    "llm/qwen3-30b-a3b.c4096.fa1.out1.pp",
    "other/sam-vit-h.0000",
    "other/sd15-unet.lat64.fa1.0002",
    "other/whisper-small.fa1.encode",
    "other/yolov3-tiny.416.0000",
];

fn main() {
    let graphs = graphs();
    table(&graphs);
    times(&graphs);
}

/// Prints bytes of well-known models.
fn table(graphs: &[(String, RecordedGraph)]) {
    println!("{:45} {:>12} {:>12} {:>12} {:>7} {:>9}", "graph", "ggml", "ours", "bound", "ratio", "time us");
    for (name, recorded) in graphs.iter().filter(|(name, _)| MODELS.contains(&name.as_str())) {
        let (time, plan) = least(5, || planned(recorded, GraphStrategy::Fast, Reuse::Extended));
        let ggml: u64 = plan
            .memories()
            .iter()
            .map(|it| recorded.placement.chunks[it.memory].iter().map(|it| it.0).sum::<u64>())
            .sum();
        let bound: u64 = plan.memories().iter().map(|it| it.plan.bound().bytes.0).sum();
        let ours = plan.peak().0;
        println!(
            "{name:45} {ggml:12} {ours:12} {bound:12} {:7.4} {:9.0}",
            ours as f64 / ggml.max(1) as f64,
            time.as_secs_f64() * 1e6
        );
    }
}

/// Prints medians over the graphs above 300 nodes.
fn times(graphs: &[(String, RecordedGraph)]) {
    let (mut fast, mut fits, mut per_node, mut ggmls_own) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut loads, mut loads_of_fast) = (Vec::new(), Vec::new());
    for (_, recorded) in graphs {
        let nodes = recorded.assigned.graph().nodes().len();
        if nodes <= 300 {
            continue;
        }
        let (ggml, plan) = least(7, || planned(recorded, GraphStrategy::Ggml, Reuse::Ggml));
        let (ours, fast_plan) = least(7, || planned(recorded, GraphStrategy::Fast, Reuse::Extended));
        let json = fast_plan.to_json();
        let (load, _) = least(7, || GraphPlan::from_json(&json, &recorded.assigned).expect("its own plan"));
        loads.push(load.as_secs_f64() * 1e6);
        loads_of_fast.push(load.as_secs_f64() / ours.as_secs_f64());
        let (fit, _) = least(7, || plan.fits(&recorded.assigned).is_ok());
        fast.push(ours.as_secs_f64() / ggml.as_secs_f64());
        fits.push(fit.as_secs_f64() / ggml.as_secs_f64());
        per_node.push(ggml.as_secs_f64() * 1e9 / nodes as f64);
        if let Some(plan) = recorded.notes.time_us.as_ref().and_then(|times| times.plan) {
            ggmls_own.push(plan * 1e3 / nodes as f64);
        }
    }
    println!("\n{} graphs above 300 nodes, medians:", fast.len());
    println!("  fast, certified / ggml's plan, certified: {:.2} (goal: at most 3)", median(&mut fast));
    println!("  fits / ggml's plan, certified:            {:.3} (goal: at most 0.25)", median(&mut fits));
    println!(
        "  a plan file, parsed, proven and replayed: {:.0} us, {:.1} of a fast plan",
        median(&mut loads),
        median(&mut loads_of_fast)
    );
    println!("  ggml's plan, certified: {:.0} ns per node", median(&mut per_node));
    println!("  ggml itself, not certified, as recorded: {:.0} ns per node", median(&mut ggmls_own));
}

fn planned(recorded: &RecordedGraph, strategy: GraphStrategy, reuse: Reuse) -> GraphPlan {
    plan_graph(&recorded.assigned, &PlanOptions::new(strategy).with_reuse(reuse)).expect("a plan")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the least time of several runs, and the last result.
fn least<T>(runs: u32, mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut timed = || {
        let before = Instant::now();
        let result = black_box(work());
        (before.elapsed(), result)
    };
    let mut best = timed();
    for _ in 1..runs {
        let next = timed();
        best = (best.0.min(next.0), next.1);
    }
    best
}

fn graphs() -> Vec<(String, RecordedGraph)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = std::env::var_os("STEEVE_CORPUS").map_or_else(|| root.join("../shared/corpus"), PathBuf::from);
    let folder = if corpus.is_dir() { corpus } else { root.join("corpus") };
    let mut graphs = Vec::new();
    for kind in ["arch", "llm", "multi", "other"] {
        let Ok(entries) = std::fs::read_dir(folder.join("graphs").join(kind)) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json.gz")) else {
                continue;
            };
            let mut json = Vec::new();
            let file = std::fs::File::open(&path).expect("a readable file");
            flate2::read::GzDecoder::new(file).read_to_end(&mut json).expect("gzip");
            graphs.push((format!("{kind}/{name}"), RecordedGraph::from_json_bytes(&json).expect("a recorded graph")));
        }
    }
    graphs.sort_by(|a, b| a.0.cmp(&b.0));
    graphs
}
