//! Prints type and shape of each value of an ONNX model, plans it, and replays the plan: `onnx_shapes MODEL [NAME=SIZE]...`
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::time::Instant;

use steeve_graph::{KeyedGraph, PlanOptions, Unread, plan_tensor_graph};
use steeve_models::onnx::{DimSizes, Model, OnnxGraph};

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("expected a model");
    let dims = args.map(|it| it.rsplit_once('=').map(|(name, size)| (name.to_owned(), size.parse().unwrap())).unwrap());
    let dims = DimSizes::new(dims).unwrap();
    let start = Instant::now();
    let graph = Model::read(&std::fs::read(&path).unwrap()).and_then(|model| OnnxGraph::new(&model, &dims));
    let graph = match graph {
        Ok(graph) => graph,
        Err(error) => {
            eprintln!("{path}: {error}");
            std::process::exit(1);
        }
    };
    let read = start.elapsed();
    for (name, layout) in graph.layouts() {
        println!("{layout}\t{name}");
    }
    let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free)).unwrap();
    let (planned, keyed) = (start.elapsed() - read, KeyedGraph::new(&graph).unwrap());
    keyed.replay(|key| plan.place(key)).unwrap();
    let (peak, weights) = (plan.peak(), graph.weights());
    eprintln!(
        "peak {peak}, weights {}, computed {}, read in {read:?}, planned in {planned:?}",
        weights.stored, weights.computed
    );
}
