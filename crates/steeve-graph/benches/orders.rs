//! What another order of the nodes saves on recorded graphs: peaks of plans in the order that is found, beside those in the
//! recorded order in the same run.
//!
//! `cargo bench -p steeve-graph --bench orders` reads the corpus at `STEEVE_CORPUS`, else `../shared/corpus` beside the
//! workspace, else the graphs in the project's own `corpus/`. A name or a part of one as an argument shows these graphs.
//!
//! `cargo bench -p steeve-graph --bench orders -- large` takes made graphs of 10,000 and 100,000 nodes instead.

#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steeve_graph::{AssignedGraph, OrderSearch, PlanOptions, RecordedGraph, best_order, plan_graph};

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
    if wanted == ["large"] {
        for (name, text) in [10_000, 100_000].into_iter().flat_map(large) {
            rows.push(measure(name, &text.parse().expect("a graph")));
        }
    } else {
        for (name, recorded) in graphs() {
            if wanted.is_empty() || wanted.iter().any(|part| name.contains(part)) {
                rows.push(measure(name, &recorded.assigned));
            }
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

fn measure(name: String, assigned: &AssignedGraph) -> Row {
    let options = PlanOptions::default();
    let mut time = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        black_box(best_order(assigned, &options, &OrderSearch::default()));
        time = time.min(start.elapsed());
    }
    let found = best_order(assigned, &options, &OrderSearch::default());
    let (own, best) = found.peaks();
    let ratio = |one: u64, other: u64| one.max(1) as f64 / other.max(1) as f64;
    let own_plan = plan_graph(assigned, &options).expect("a plan");
    let ordered = found.order.apply(assigned).expect("an order of its nodes");
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

/// Graphs larger than any that was recorded, of `nodes` nodes or a few more: each of a form that a search may be slow at.
fn large(nodes: usize) -> Vec<(String, String)> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |end: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % end.max(1)
    };
    let mut forms: Vec<(&str, String)> = Vec::new();
    // One node behind the other.
    let deep: String = (0..nodes).map(|i| format!("a{} = sqr a{i}\n", i + 1)).collect();
    forms.push(("deep", format!("a0 = input 1024\n{deep}")));
    // Layers that each make something large before it is read.
    let late = |i: usize| {
        format!(
            "w{i} = repeat f32[{}] x{i}; a{i} = repeat f32[4096] x{i}; b{i} = sum_rows a{i}
            y{i} = add w{i} b{i}; s{i} = sum_rows y{i}; x{} = add x{i} s{i}\n",
            4096 + i % 7 * 64,
            i + 1
        )
    };
    forms.push((
        "layers, each better in another order",
        format!("x0 = input 64\n{}", (0..nodes / 6).map(late).collect::<String>()),
    ));
    // All of one source, and one sum of them.
    let wide = |i: usize| format!("a{i} = repeat f32[{}] x; b{i} = sum_rows a{i}\n", 64 * (1 + i * 7 % 23));
    let sums = |i: usize| format!("c{} = add c{i} b{i}\n", i + 1);
    let count = nodes / 3;
    let branches: String = (0..count).map(wide).collect();
    forms.push(("wide", format!("x = input 64; c0 = input 1\n{branches}{}", (0..count).map(sums).collect::<String>())));
    // All made first, and read in another order than they are made in.
    let made: String = (0..nodes / 3).map(|i| format!("a{i} = repeat f32[{}] x\n", 64 * (1 + i * 7 % 23))).collect();
    let read: String = (0..nodes / 3)
        .map(|i| format!("b{i} = sum_rows a{}; c{} = add c{i} b{i}\n", (i * 7919) % (nodes / 3), i + 1))
        .collect();
    forms.push(("made long before it is read", format!("x = input 64; c0 = input 1\n{made}{read}")));
    for reach in [8, 64, 1000, nodes] {
        let mut text = String::from("a0 = input 64\n");
        for i in 0..nodes {
            let mut pick = || i - below(reach.min(i + 1));
            let (one, other) = (pick(), pick());
            text += &match i % 3 {
                0 => {
                    format!("r{i} = repeat f32[{}] a{one}; a{} = view f32[64] r{i}\n", 64 * (1 + (i * 31) % 41), i + 1)
                }
                _ => format!("a{} = add f32[64] a{one} a{other}\n", i + 1),
            };
        }
        forms.push((
            ["random, near", "random", "random, far", "random, any"]
                [[8, 64, 1000, nodes].iter().position(|it| *it == reach).unwrap_or(0)],
            text,
        ));
    }
    forms.into_iter().map(|(name, text)| (format!("large/{nodes} {name}"), text)).collect()
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
