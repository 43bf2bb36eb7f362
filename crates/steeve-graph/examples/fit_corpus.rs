//! Fits every recorded graph of some folders into as little as it gets with at most so many parts of each chain, and prints
//! what that is of the best plan of the graph as it is.
//!
//! ```text
//! cargo run --release -p steeve-graph --example fit_corpus -- 4 corpus/graphs/llm .fa1.out1.pp
//! ```

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use flate2::read::GzDecoder;
use steeve_graph::{
    Bytes, FitAction, FitError, FitOptions, Fitted, GraphPlan, MemoryId, Op, PlanOptions, RecordedGraph, fit,
    plan_graph, replay,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [parts, folder, pattern] = arguments.as_slice() else {
        return Err("expected the most parts, a folder and a part of the names of its graphs".into());
    };
    let options = FitOptions::new(PlanOptions::default()).with_most_parts(parts.parse()?);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.map(|it| it.map(|it| it.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.to_string_lossy().contains(pattern.as_str()));
    paths.sort();
    let (mut logs, mut feed_forward) = (Vec::new(), Vec::new());
    println!(
        "{:44} {:>12} {:>12} {:>6} {:>6} {:>7} {:>8}",
        "graph", "untiled", "tiled", "ratio", "chains", "parts", "ms"
    );
    for path in &paths {
        let recorded = RecordedGraph::from_json(&read(path)?)?;
        let plan = plan_graph(&recorded.assigned, &options.plan)?;
        let start = Instant::now();
        let capacity: Vec<(MemoryId, Bytes)> = recorded.assigned.owners().map(|memory| (memory, Bytes::ZERO)).collect();
        let fitted = match fit(&recorded.assigned, &[], &capacity, &options) {
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
        let ratio = fitted.plan.peak().get() as f64 / plan.peak().get() as f64;
        logs.push(ratio.ln());
        let parts = fitted.steps.iter().filter_map(|step| match step.action {
            FitAction::Tile { parts, .. } => Some(parts),
            _ => None,
        });
        if !attends(&plan, &fitted) {
            feed_forward.push(ratio.ln());
        }
        println!(
            "{:44} {:>12} {:>12} {ratio:>6.3} {:>6} {:>7} {ms:>8}",
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().replace(".json.gz", "")),
            plan.peak().get(),
            fitted.plan.peak().get(),
            parts.clone().count(),
            parts.max().unwrap_or(1),
        );
    }
    let mean = |logs: &[f64]| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    println!("{} graphs, geometric mean {:.4}", logs.len(), mean(&logs));
    println!("{} of them without attention in parts: {:.4}", feed_forward.len(), mean(&feed_forward));
    Ok(())
}

/// Returns whether a chain that is done in parts has an attention in it.
fn attends(plan: &GraphPlan, fitted: &Fitted) -> bool {
    let graph = plan.assigned().graph();
    let has_attention = |at: usize| {
        let node = graph.nodes()[at];
        let is_score = |op| op == Op::SoftMax && graph.tensor(node).layout.ne()[2] > 1;
        let op = graph.tensor(node).op;
        op == Op::FlashAttnExt || is_score(op)
    };
    fitted.steps.iter().any(|step| match &step.action {
        FitAction::Tile { nodes, .. } => nodes.clone().any(has_attention),
        _ => false,
    })
}

fn read(path: &PathBuf) -> Result<String, Box<dyn std::error::Error>> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}
