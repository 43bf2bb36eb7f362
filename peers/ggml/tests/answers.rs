//! ggml itself answers what `steeve_graph::ggml_placement` says that it does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use peer_ggml::{ClampRule, Failure, Ggml, GgmlError, corpus, transformer, verdict};
use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{AllocSizes, AssignedGraph, Bytes, Id, MemoryId, Op, ggml_placement};

fn assert_equal(name: &str, graph: &AssignedGraph) {
    let verdict = verdict(graph, ClampRule::NeverInPlace).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    let first = verdict.differences.first().map(ToString::to_string);
    assert!(verdict.is_equal(), "{name}: {} differences, the first: {first:?}\n{graph}", verdict.differences.len());
}

#[test]
fn recorded_graphs_stand_where_we_say() {
    let files = corpus::files(&corpus::folder()).unwrap();
    assert!(!files.is_empty());
    for file in &files {
        assert_equal(&file.name, &file.read().unwrap().assigned);
    }
}

#[test]
fn generated_graphs_stand_where_we_say() {
    assert_equal("transformer", &transformer::with_nodes(5000).unwrap());
}

#[test]
fn random_graphs_stand_where_we_say() {
    for seed in 0..2000 {
        let graph = random_graph(&mut Choices::from_seed(seed));
        assert_equal(
            &format!("seed {seed}"),
            &with_sizes(&graph, |tensor, memory| 64 * ((tensor + memory) as u64 % 5)),
        );
    }
}

/// Any operation, any source, any order: ggml can't place them all, but it plans them.
#[test]
fn graphs_without_sense_have_the_sizes_we_say() {
    let mut planned = 0;
    for seed in 0..5000 {
        let graph = with_sizes(&scrambled_graph(&mut Choices::from_seed(seed)), |_, _| 0);
        let (Ok(mut ggml), Ok(answer)) = (Ggml::new(&graph, ClampRule::NeverInPlace), ggml_placement(&graph)) else {
            continue;
        };
        if graph.graph().tensors().ids().any(|id| graph.graph().sources(id).contains(&Some(id))) {
            continue;
        }
        planned += 1;
        let ours: Vec<u64> = answer.chunks.iter().map(|chunks| chunks.iter().map(|chunk| chunk.0).sum()).collect();
        let theirs: Vec<u64> = ggml.fresh().reserve().unwrap().iter().map(|size| size.0).collect();
        assert_eq!(theirs, ours, "seed {seed}\n{graph}");
    }
    assert!(planned > 500, "{planned}");
}

/// It is marked as placed before its sources are tried, and then takes over itself. ggml would abort when it is to be
/// placed; we give it bytes.
#[test]
fn ggml_gives_no_bytes_to_a_node_that_reads_itself_in_place() {
    let graph: AssignedGraph = "x = neg f32[8] x".parse().unwrap();
    let mut ggml = Ggml::new(&graph, ClampRule::Linked).unwrap();
    assert_eq!(ggml.fresh().reserve().unwrap()[MemoryId::FIRST], Bytes(0));
    assert_eq!(ggml_placement(&graph).unwrap().chunks[MemoryId::FIRST], [Bytes(32)]);
}

#[test]
fn a_clamp_takes_over_its_source_since_the_versions_after_0_21() {
    let graph: AssignedGraph = "x = input f32[8]; y = sqr x; z = clamp(0.0,1.0) y !output".parse().unwrap();
    let bytes = |clamp| verdict(&graph, clamp).unwrap().ggml;
    assert_eq!((bytes(ClampRule::Linked), bytes(ClampRule::NeverInPlace)), (Bytes(32), Bytes(64)));
    assert_equal("clamp", &graph);
}

#[test]
fn padding_where_ggml_would_abort_is_an_error() {
    let graph: AssignedGraph = "x = input f32[8]; y = cont x size=64 !output".parse().unwrap();
    let failure = verdict(&graph, ClampRule::Linked).unwrap_err();
    assert!(matches!(failure, Failure::Ggml(GgmlError::Expands { .. })), "{failure}");
}

/// The same graph with more bytes for the operations that ggml lets a device pad. By tensor and memory; memories that
/// share are one.
fn with_sizes(graph: &AssignedGraph, more: impl Fn(usize, usize) -> u64) -> AssignedGraph {
    let memories = graph.memories().clone();
    let mut sizes = AllocSizes::new(memories.len());
    for (id, tensor) in graph.graph().tensors().pairs() {
        if matches!(tensor.op, Op::MulMat | Op::MulMatId | Op::FlashAttnExt | Op::Argsort | Op::TopK) {
            let size = |memory| Bytes(tensor.nbytes().0 + more(id.index(), graph.owner(memory).index()));
            sizes.set(id, tensor, &memories.ids().map(size).collect::<Vec<_>>()).unwrap();
        }
    }
    AssignedGraph::new(graph.graph().clone(), memories, graph.assignment().clone(), sizes).unwrap()
}
