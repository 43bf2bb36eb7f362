//! The block problems of the corpus, where it is there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read;
use std::path::{Path, PathBuf};

use steeve_plan::{Best, Budget, Bytes, Problem, Strategy, certify, csv, place};

/// Returns `STEEVE_CORPUS`, else `../shared/corpus` beside the workspace root.
fn corpus() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("STEEVE_CORPUS").map_or_else(|| root.join("../shared/corpus"), PathBuf::from)
}

fn files() -> Vec<PathBuf> {
    let folder = corpus().join("blocks");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("corpus: skipped, there is no {}", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn read(path: &Path) -> csv::Table {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).map(|_| ()).unwrap(),
        _ => text = String::from_utf8(bytes).unwrap(),
    }
    csv::read(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_block_problem_of_the_corpus_is_planned_and_certified() {
    let files = files();
    for path in &files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let table = read(path);
        let problem = table.problem().unwrap();
        let mut peaks = Vec::new();
        for strategy in [Strategy::BestFit, Strategy::Fast] {
            let outcome = place(&problem, &strategy).unwrap();
            let plan = certify(problem.clone(), outcome.placement).unwrap();
            assert!(plan.bound().bytes <= plan.peak());
            peaks.push(plan.peak());
        }
        assert!(peaks[1] <= peaks[0], "{name}");
        let ratio = peaks[1].0 as f64 / place(&problem, &Strategy::Fast).unwrap().bound.bytes.0 as f64;
        let most = match name {
            "resnet50.csv" => 1.001,
            "pangu_2.6B.csv.gz" => 1.01,
            "S_1.csv.gz" => 1.003,
            "iree_mobilebert.csv" => 1.0,
            _ => 1.3,
        };
        assert!(ratio <= most, "{name}: {ratio}");
        if let Ok(known) = table.placement() {
            certify(problem, known).unwrap_or_else(|wrong| panic!("{name}: its known answer: {wrong}"));
        }
    }
    println!("corpus: {} block files tested", files.len());
}

#[test]
fn the_hard_instances_are_solved_at_their_capacity_and_at_their_bound() {
    let mut solved = 0;
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(capacity) = name.strip_suffix(".csv").and_then(|name| name.split_once('.')?.1.parse().ok()) else {
            continue;
        };
        let problem = read(&path).problem().unwrap();
        let solve = |problem: Problem| {
            let strategy = Strategy::Best(Best::new(Budget::Nodes(500_000)));
            let outcome = place(&problem, &strategy).unwrap();
            assert!(outcome.verdict.fits(), "{name}: {}", outcome.verdict);
            certify(problem, outcome.placement).unwrap()
        };
        solve(problem.clone().with_capacity(Bytes(capacity)));
        assert!(solve(problem).is_optimal(), "{name}");
        solved += 1;
    }
    println!("corpus: {solved} hard instances solved");
}
