//! Every graph of the corpus is read, and what was recorded agrees with what our own rules say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use steeve_graph::{AssignedGraph, Context, Op, RecordedGraph, Tensor, TensorId};

mod recordings;

use recordings::each_graph;

#[test]
fn every_recorded_graph_survives_writing_and_reading() {
    let graphs = each_graph(|path, recorded| {
        let again = RecordedGraph::from_json(&recorded.to_json()).unwrap();
        assert!(again == recorded, "{}", path);
    });
    println!("corpus: {graphs} graph files tested");
}

#[test]
fn every_recorded_graph_survives_its_text() {
    each_graph(|path, recorded| {
        let text = recorded.assigned.to_string();
        let again: AssignedGraph = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path));
        assert!(again == recorded.assigned.compact().unwrap(), "{}", path);
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
            let made = made.unwrap_or_else(|error| panic!("{}: {node}: {error}", path));
            let made = *context.tensor(made).unwrap();
            // A copy may have another shape, which is not recorded.
            let reshaped = tensor.op == Op::Cont && made.layout.elements() == tensor.layout.elements();
            let place = format!("{}: {node} {}", path, graph.name(node));
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
        assert!(dependencies.len() < 20 * graph.nodes().len(), "{}: {}", path, dependencies.len());
    });
}
