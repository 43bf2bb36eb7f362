//! What another order of the nodes saves on recorded graphs: peaks of plans in the order that is found, beside those in the
//! recorded order in the same run.
//!
//! `cargo bench -p steeve-graph --bench orders` reads the corpus at `STEEVE_CORPUS`, else `../shared/corpus` beside the
//! workspace, else the graphs in the project's own `corpus/`. A name or a part of one as an argument shows these graphs.

#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steeve_graph::{OrderSearch, PlanOptions, RecordedGraph, best_order, plan_graph};

/// What is known of one graph.
struct Row {
    name: String,
    /// Live bytes at the peak in the found order, of those in the recorded one.
    bound: f64,
    /// The peak of the plan, likewise.
    packed: f64,
    is_best: bool,
    time: Duration,
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (name, recorded) in graphs() {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part)) {
            rows.push(measure(name, &recorded));
        }
    }
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        let folder = row.name.split('/').next().unwrap_or_default();
        groups.entry(folder.to_owned()).or_default().push(row);
        if row.name.starts_with("llm/") && row.name.ends_with(".fa1.out1.pp") {
            groups.entry("llm/*.fa1.out1.pp".to_owned()).or_default().push(row);
        }
        groups.entry("all".to_owned()).or_default().push(row);
    }
    println!("{:<56} {:>7} {:>7} {:>10}", "graph (above 1%)", "bound", "packed", "time");
    for row in rows.iter().filter(|row| row.packed < 0.99 || row.bound < 0.99 || !row.is_best || !wanted.is_empty()) {
        let best = if row.is_best { "best" } else { "" };
        println!("{:<56} {:7.4} {:7.4} {:>10.2?} {best}", row.name, row.bound, row.packed, row.time);
    }
    println!();
    println!(
        "{:<20} {:>6} {:>8} {:>8} {:>9} {:>8} {:>10} {:>10}",
        "group", "graphs", "bound", "packed", "above 1%", "proven", "median", "most"
    );
    for (name, rows) in &groups {
        let mean = |of: fn(&Row) -> f64| (rows.iter().map(|row| of(row).ln()).sum::<f64>() / rows.len() as f64).exp();
        let mut times: Vec<Duration> = rows.iter().map(|row| row.time).collect();
        times.sort_unstable();
        println!(
            "{name:<20} {:6} {:8.4} {:8.4} {:9} {:8} {:>10.2?} {:>10.2?}",
            rows.len(),
            mean(|row| row.bound),
            mean(|row| row.packed),
            rows.iter().filter(|row| row.packed < 0.99).count(),
            rows.iter().filter(|row| row.is_best).count(),
            times[times.len() / 2],
            times.last().copied().unwrap_or_default(),
        );
    }
}

fn measure(name: String, recorded: &RecordedGraph) -> Row {
    let options = PlanOptions::default();
    let mut time = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        black_box(best_order(&recorded.assigned, &options, &OrderSearch::default()));
        time = time.min(start.elapsed());
    }
    let found = best_order(&recorded.assigned, &options, &OrderSearch::default());
    let (own, best) = found.peaks();
    let ratio = |one: u64, other: u64| one.max(1) as f64 / other.max(1) as f64;
    let own_plan = plan_graph(&recorded.assigned, &options).expect("a plan");
    let ordered = found.order.apply(&recorded.assigned).expect("an order of its nodes");
    let plan = plan_graph(&ordered, &options).expect("a plan");
    let packed = ratio(plan.peak().0, own_plan.peak().0);
    Row {
        name,
        bound: ratio(best.0, own.0),
        packed: if packed < 0.99 { packed } else { 1.0 },
        is_best: found.is_best(),
        time,
    }
}

fn graphs() -> Vec<(String, RecordedGraph)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join("corpus/graphs");
    let shared = std::env::var("STEEVE_CORPUS").map_or_else(|_| root.join("../shared/corpus"), PathBuf::from);
    let folder = if shared.join("graphs").is_dir() { shared.join("graphs") } else { own };
    let mut files = Vec::new();
    for folder in folder.read_dir().into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        files.extend(folder.path().read_dir().into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    files.sort();
    let read = |file: &PathBuf| {
        let mut json = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(file).ok()?).read_to_string(&mut json).ok()?;
        let name = file.strip_prefix(&folder).ok()?.to_str()?.strip_suffix(".json.gz")?.to_owned();
        Some((name, RecordedGraph::from_json(&json).ok()?))
    };
    files.iter().filter_map(read).collect()
}
