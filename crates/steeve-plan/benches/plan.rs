//! Every figure that the planner must reach, each beside something measured in the same run.
//!
//! `cargo bench -p steeve-plan` prints them all; `cargo bench -p steeve-plan -- search fast certify memory` some.
//! One thread does all of it. Times are the least of several runs, because machines are shared. Block files are read from `STEEVE_CORPUS`, else from
//! `../shared/corpus` beside the workspace; without them only the synthetic problems run.

#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::hint::black_box;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use steeve_plan::{Best, Budget, Problem, Step, Strategy, certify, csv, fuzz, place};

/// The hard instances, each solvable at this capacity.
const HARD: [&str; 7] = ["A", "B", "C", "E", "F", "G", "H"];
const CAPACITY: u64 = 1_048_576;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    if runs("search") {
        search();
    }
    if runs("fast") {
        fast();
    }
    if runs("certify") {
        certifying();
    }
    if runs("memory") {
        memory();
    }
}

fn search() {
    println!("search: one thread, ms and nodes; at the capacity, then at the lower bound");
    let (mut under, mut lowest) = (Duration::ZERO, Duration::ZERO);
    for name in HARD {
        let Some(problem) = read(&format!("{name}.{CAPACITY}.csv")) else { continue };
        let best = Strategy::Best(Best::new(Budget::Nodes(2_000_000)));
        let limited = problem.clone().with_capacity(steeve_plan::Bytes(CAPACITY));
        let (first, at_capacity) = least(3, || place(&limited, &best).expect("placed"));
        let (second, at_bound) = least(3, || place(&problem, &best).expect("placed"));
        println!(
            "  {name}: {:8.2} ms {:6} nodes, {}   bound: {:8.2} ms {:6} nodes, {}",
            ms(first),
            at_capacity.nodes,
            at_capacity.verdict,
            ms(second),
            at_bound.nodes,
            at_bound.verdict
        );
        assert!(at_capacity.verdict.fits());
        under += first;
        lowest += second;
    }
    println!("  all: {:.1} ms at the capacity (goal 500), {:.1} ms at the bound (goal 2000)", ms(under), ms(lowest));
}

fn fast() {
    println!("fast: ms, ratio to the bound; and the time of sorting the same 2n events");
    let files = ["resnet50.csv", "iree_mobilebert.csv", "bert_base.csv.gz", "pangu_2.6B.csv.gz", "S_1.csv.gz"];
    let named = files.iter().filter_map(|file| Some((file.to_string(), read(file)?)));
    let synthetic = [100_000, 1_000_000].map(|blocks| (format!("synthetic {blocks}"), fuzz::synthetic(blocks)));
    for (name, problem) in named.chain(synthetic) {
        let runs = if problem.blocks().len() > 50_000 { 2 } else { 7 };
        let (time, outcome) = least(runs, || place(&problem, &Strategy::Fast).expect("placed"));
        let (sorting, _) = least(runs, || sorted_events(&problem));
        println!(
            "  {name:20} {:8} blocks {:9.2} ms  peak/bound {:.5}  {}  ({:.1} x sorting)",
            problem.blocks().len(),
            ms(time),
            outcome.peak.0 as f64 / outcome.bound.bytes.0.max(1) as f64,
            outcome.verdict,
            time.as_secs_f64() / sorting.as_secs_f64()
        );
    }
}

fn certifying() {
    println!("certify: ms, and its ratio to sorting the 2n events (goal: at most 2)");
    let files = ["resnet50.csv", "pangu_2.6B.csv.gz", "S_1.csv.gz"];
    let named = files.iter().filter_map(|file| Some((file.to_string(), read(file)?)));
    let synthetic = [100_000, 1_000_000].map(|blocks| (format!("synthetic {blocks}"), fuzz::synthetic(blocks)));
    for (name, problem) in named.chain(synthetic) {
        let placement = place(&problem, &Strategy::Fast).expect("placed").placement;
        let (time, _) = least(7, || certify(problem.clone(), placement.clone()).expect("valid"));
        let (cloning, _) = least(7, || (problem.clone(), placement.clone()));
        let (sorting, _) = least(7, || sorted_events(&problem));
        let own = time.saturating_sub(cloning);
        println!(
            "  {name:20} {:9.3} ms  sorting {:9.3} ms  ratio {:.2}",
            ms(own),
            ms(sorting),
            own.as_secs_f64() / sorting.as_secs_f64()
        );
    }
}

fn memory() {
    println!("memory: bytes for each block while a million blocks are planned (goal: below 300)");
    let problem = fuzz::synthetic(1_000_000);
    // The highest resident size is set back, so what comes is that of planning alone.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = status("VmRSS:");
    let outcome = place(&problem, &Strategy::Fast).expect("placed");
    let plan = certify(problem, outcome.placement).expect("valid");
    let most = status("VmHWM:");
    println!("  {} bytes, problem included {}", per_block(most - before), per_block(most));
    black_box(plan);
}

fn per_block(kib: f64) -> u64 {
    (kib * 1024.0 / 1e6) as u64
}

fn status(field: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0.0)
}

/// Returns births and deaths, sorted: the least work of any sweep. In the order of a shuffled input, as a caller may
/// have it.
fn sorted_events(problem: &Problem) -> Vec<(Step, bool, u32)> {
    let mut events: Vec<(Step, bool, u32)> = Vec::with_capacity(2 * problem.blocks().len());
    for (index, block) in (0..).zip(problem.blocks()) {
        events.push((block.life.start(), true, index));
        events.push((block.life.end(), false, index));
    }
    events.sort_unstable();
    events
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

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn read(file: &str) -> Option<Problem> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = std::env::var_os("STEEVE_CORPUS").map_or_else(|| root.join("../shared/corpus"), PathBuf::from);
    let bytes = std::fs::read(corpus.join("blocks").join(file)).ok()?;
    let mut text = String::new();
    if file.ends_with(".gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).ok()?;
    } else {
        text = String::from_utf8(bytes).ok()?;
    }
    csv::read(&text).ok()?.problem().ok()
}
