//! Fits every recorded graph of a folder into as little as it gets with at most so many parts of each chain, and prints what
//! that is of the best plan of the graph as it is (strategy `best` with 20,000 nodes, in the graph's order and in another).
//! `whole-attention` keeps attentions whole: a chain ends at them.
//!
//! ```text
//! cargo run --release -p steeve-graph --features json --example fit_corpus -- 4 corpus/graphs/llm .fa1.out1.pp
//! cargo run --release -p steeve-graph --features json --example fit_corpus -- 4 corpus/graphs/llm .fa1.out1.pp whole-attention
//! ```

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use flate2::read::GzDecoder;
use steeve_graph::{
    AssignedGraph, Best, Budget, Bytes, FitAction, FitError, FitOptions, GraphStrategy, MemoryId, Order, PlanOptions,
    RecordedGraph, fit, plan_graph, replay,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (parts, folder, pattern, whole) = match arguments.as_slice() {
        [parts, folder, pattern] => (parts, folder, pattern, false),
        [parts, folder, pattern, word] if word == "whole-attention" => (parts, folder, pattern, true),
        _ => {
            return Err(
                "expected the most parts, a folder, a part of its graphs' names and perhaps whole-attention".into()
            );
        }
    };
    let options = FitOptions::new(PlanOptions::default()).with_most_parts(parts.parse()?);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.map(|it| it.map(|it| it.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.to_string_lossy().contains(pattern.as_str()));
    paths.sort();
    let mut logs = Vec::new();
    println!(
        "{:44} {:>12} {:>12} {:>6} {:>6} {:>7} {:>8}",
        "graph", "untiled", "tiled", "ratio", "chains", "parts", "ms"
    );
    for path in &paths {
        let recorded = RecordedGraph::from_json(&read(path)?)?.assigned;
        let untiled = untiled(&recorded)?;
        let graph = if whole { with_whole_attention(&recorded)? } else { recorded };
        let start = Instant::now();
        let capacity: Vec<(MemoryId, Bytes)> = graph.owners().map(|memory| (memory, Bytes::ZERO)).collect();
        let fitted = match fit(&graph, &[], &capacity, &options) {
            Err(FitError::TooLarge(error)) => error.smallest,
            other => other?,
        };
        let ms = start.elapsed().as_millis();
        replay(&fitted.graph, &fitted.plan.places())?;
        if std::env::var_os("FIT_STEPS").is_some() {
            for step in &fitted.steps {
                println!("{} {:?} {:?}", step.action, step.bytes, step.cost);
            }
        }
        let ratio = fitted.plan.peak().get() as f64 / untiled as f64;
        logs.push(ratio.ln());
        let parts = fitted.steps.iter().filter_map(|step| match step.action {
            FitAction::Tile { parts, .. } => Some(parts),
            _ => None,
        });
        println!(
            "{:44} {:>12} {:>12} {ratio:>6.3} {:>6} {:>7} {ms:>8}",
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().replace(".json.gz", "")),
            untiled,
            fitted.plan.peak().get(),
            parts.clone().count(),
            parts.max().unwrap_or(1),
        );
    }
    let mean = |logs: &[f64]| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    println!("{} graphs, geometric mean {:.4}", logs.len(), mean(&logs));
    Ok(())
}

/// Returns the least bytes of the graph as it is, in its own order and in another.
fn untiled(graph: &AssignedGraph) -> Result<u64, Box<dyn std::error::Error>> {
    let best = PlanOptions::new(GraphStrategy::Best(Best::new(Budget::Nodes(20_000))));
    let mut least = u64::MAX;
    for order in [Order::Keep, Order::Best] {
        least = least.min(plan_graph(graph, &best.with_order(order))?.peak().get());
    }
    Ok(least)
}

/// Returns the graph with attentions under a name that the table of operations does not have.
fn with_whole_attention(graph: &AssignedGraph) -> Result<AssignedGraph, Box<dyn std::error::Error>> {
    let line =
        |line: &str| line.replacen("= flash_attn_ext ", "= ?ATTENTION ", 1).replacen("= soft_max ", "= ?SCORES ", 1);
    Ok(graph.to_string().lines().map(line).collect::<Vec<_>>().join("\n").parse()?)
}

fn read(path: &PathBuf) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}
