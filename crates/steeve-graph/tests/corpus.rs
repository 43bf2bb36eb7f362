//! Every graph of the corpus is read, and what was recorded agrees with what our own rules say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use steeve_graph::{AssignedGraph, Context, Op, Recorded, Tensor, TensorId};

fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = std::env::var_os("STEEVE_CORPUS").map_or_else(beside, PathBuf::from).join("graphs");
    if folder.is_dir() {
        Some(folder)
    } else {
        println!("skipped: there is no corpus at {}", folder.display());
        None
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.to_string_lossy().ends_with(".json.gz") {
            found.push(path);
        }
    }
    found.sort();
}

fn each_graph(mut act: impl FnMut(&Path, Recorded)) {
    let Some(folder) = corpus() else { return };
    let mut found = Vec::new();
    files(&folder, &mut found);
    for path in found {
        let mut json = String::new();
        let file = std::fs::File::open(&path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut json).unwrap();
        let recorded = Recorded::from_json(&json).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        act(&path, recorded);
    }
}

#[test]
fn every_recorded_graph_survives_writing_and_reading() {
    let mut graphs = 0;
    each_graph(|path, recorded| {
        let again = Recorded::from_json(&recorded.to_json()).unwrap();
        assert!(again == recorded, "{}", path.display());
        graphs += 1;
    });
    println!("{graphs} graphs");
}

#[test]
fn every_recorded_graph_survives_its_text() {
    each_graph(|path, recorded| {
        let text = recorded.assigned.to_string();
        let again: AssignedGraph = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(again == recorded.assigned.compact().unwrap(), "{}", path.display());
    });
}

/// What the rules make of the recorded sources is what ggml made of them. In-place results, which are views, and
/// operations whose shape depends on parameters that are not recorded stay out.
#[test]
fn the_rules_of_shapes_are_ggmls() {
    let mut agreed: BTreeMap<String, u64> = BTreeMap::new();
    each_graph(|path, recorded| {
        let graph = recorded.assigned.graph();
        let mut context = Context::new();
        for &node in graph.nodes() {
            let tensor = graph.tensor(node);
            let shares = matches!(tensor.op, Op::Cpy | Op::SetRows | Op::Transpose);
            let own_source = graph.sources(node).contains(&Some(node));
            let rule = shares || !matches!(tensor.op, Op::None | Op::Other(_)) && !tensor.is_view();
            let outside = graph.sources(node).iter().flatten().any(|&source| recorded.ids[source].is_none());
            if !rule || own_source || outside || needs_params(tensor.op) {
                continue;
            }
            let mark = context.mark();
            let mut copy = |source: &Option<TensorId>| {
                source.map(|id| context.add_tensor(Tensor::new(graph.tensor(id).layout), &[], &[]).unwrap())
            };
            let sources: Vec<_> = graph.sources(node).iter().map(&mut copy).collect();
            let made = context.apply(tensor.op, &sources, &[]);
            let made = made.unwrap_or_else(|error| panic!("{}: {node}: {error}", path.display()));
            let made = *context.tensor(made).unwrap();
            // A copy may have another shape, which is not recorded.
            let reshaped = tensor.op == Op::Cont && made.layout.elements() == tensor.layout.elements();
            let place = format!("{}: {node} {}", path.display(), graph.name(node));
            assert!(made.layout == tensor.layout || reshaped, "{place}: {} is no {}", made.layout, tensor.layout);
            context.rewind(mark).unwrap();
            *agreed.entry(tensor.op.name().into()).or_default() += 1;
        }
    });
    println!("{agreed:?}");
}

fn needs_params(op: Op) -> bool {
    matches!(
        op,
        Op::Concat | Op::Repeat | Op::Im2col | Op::Pool1d | Op::Pool2d | Op::Upscale | Op::Pad | Op::TopK | Op::Custom
    )
}

#[test]
fn dependencies_point_backwards_and_are_few() {
    each_graph(|path, recorded| {
        let graph = recorded.assigned.graph();
        let dependencies = graph.dependencies();
        assert!(dependencies.iter().all(|it| it.before < it.after));
        assert!(dependencies.len() < 20 * graph.nodes().len(), "{}: {}", path.display(), dependencies.len());
    });
}
