//! The bodies of the fuzz targets, for a moment each, and the laws of random graphs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use steeve_graph::fuzz::{Choices, assert_survives, order, plan, random_graph, record, scrambled_graph, text};
use steeve_graph::{AssignedGraph, Graph, Id, MemoryId, Op};
use steeve_plan::fuzz::inputs;

proptest! {
    #![proptest_config(ProptestConfig { cases: inputs(500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_graph_survives_its_text(seed: u64) {
        assert_survives(&scrambled_graph(&mut Choices::from_seed(seed)));
    }

    #[test]
    fn a_built_graph_survives_its_text(seed: u64) {
        assert_survives(&random_graph(&mut Choices::from_seed(seed)));
    }

    #[test]
    fn bytes_make_graphs_that_can_be_planned(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        plan(&bytes);
    }

    #[test]
    fn parts_are_a_graph_exactly_if_every_node_finds_its_sources_written(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        order(&bytes);
    }

    #[test]
    fn bytes_make_graphs(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        assert_survives(&random_graph(&mut Choices::from_bytes(&bytes)));
        assert_survives(&scrambled_graph(&mut Choices::from_bytes(&bytes)));
    }

    #[test]
    fn a_built_node_stands_behind_what_it_reads(seed: u64) {
        let assigned = random_graph(&mut Choices::from_seed(seed));
        let graph = assigned.graph();
        let mut made: BTreeSet<_> = graph.leafs().iter().copied().collect();
        for &node in graph.nodes() {
            let sources = graph.sources(node);
            prop_assert!(sources.iter().flatten().all(|source| made.contains(source)));
            made.insert(node);
        }
    }

    #[test]
    fn dependencies_order_every_read_behind_its_write(seed: u64) {
        let assigned = random_graph(&mut Choices::from_seed(seed));
        check_dependencies(assigned.graph());
    }

    #[test]
    fn text_is_read_or_refused(input in "[a-c%]( = |=| )(neg|add|input|fill|view|[a-z]{3})( |\\(1,0.5\\) )?(f32)?(\\[[0-9]{1,3}(,4)?\\])?(\\{4,4,4,4\\})?(\\+[0-9])?(\\^a)?( [a-c!@;-]){0,4}\n?") {
        text(input.as_bytes());
    }

    #[test]
    fn damaged_texts_are_read_or_refused(seed: u64, at: prop::sample::Index, by: u8) {
        let written = random_graph(&mut Choices::from_seed(seed)).to_string();
        let mut bytes = written.into_bytes();
        let at = at.index(bytes.len().max(1));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = by & 127;
        }
        text(&bytes);
    }

    #[test]
    fn damaged_records_are_read_or_refused(at: prop::sample::Index, by: u8, cut: prop::sample::Index) {
        let mut bytes = RECORD.as_bytes().to_vec();
        record(&bytes);
        let at = at.index(bytes.len());
        bytes[at] = by;
        record(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        record(&bytes);
    }
}

const RECORD: &str = r#"{"schema":"galloc-dump-1","tag":"t","n_nodes":2,"n_leafs":1,"n_tensors":3,
"time_us":{"plan":1.5,"reps":3},"buffers":[
{"name":"A","alignment":32,"max_size":18446744073709551615,"shared_with":0,"chunks":[64]},
{"name":"A","alignment":32,"max_size":1024,"shared_with":0,"chunks":[64]}],
"leafs":[[5,0],[5,0]],"nodes":[[6,1],[7,1]],"tensors":[
{"id":5,"name":"x","op":"NONE","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":1,"nbytes":32,"alloc_size":[32,64],"res":{"buffer_id":0,"chunk":0,"offset":0,"size_max":32}},
{"id":6,"name":"v","op":"VIEW","type":"f32","ne":[4,1,1,1],"nb":[4,16,16,16],"flags":16,"nbytes":16,"view_src":5,"view_offs":16,"src":[5]},
{"id":7,"name":"y","op":"NEW_ONE","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":2,"nbytes":32,"src":[6,-1,-2,7],"pre":3,"pre_buft":"B"}]}"#;

/// Checks dependencies against the plain definition, in quadratic time: two nodes are ordered by the edges if one
/// writes bytes that the other touches.
fn check_dependencies(graph: &Graph) {
    let edges: BTreeSet<(usize, usize)> = graph.dependencies().iter().map(|it| (it.before, it.after)).collect();
    let mut reach: Vec<BTreeSet<usize>> = Vec::new();
    let extent = |id| {
        let start = graph.tensors().offset(id).get();
        (graph.root(id), start, start + graph.tensor(id).nbytes().get())
    };
    let touch = |a: (_, u64, u64), b: (_, u64, u64)| a.0 == b.0 && a.1 < b.2 && b.1 < a.2 && a.1 < a.2 && b.1 < b.2;
    for (after, &later) in graph.nodes().iter().enumerate() {
        let direct: Vec<usize> = (0..after).filter(|&before| edges.contains(&(before, after))).collect();
        let all = direct.iter().flat_map(|&it| reach[it].iter().copied().chain([it])).collect();
        reach.push(all);
        if graph.tensor(later).op.writes_nothing() {
            continue;
        }
        for (before, &earlier) in graph.nodes()[..after].iter().enumerate() {
            if graph.tensor(earlier).op.writes_nothing() {
                continue;
            }
            let reads = |id| graph.sources(id).iter().flatten().map(|&source| extent(source)).collect::<Vec<_>>();
            let raw = reads(later).iter().any(|&read| touch(read, extent(earlier)));
            let war = reads(earlier).iter().any(|&read| touch(read, extent(later)));
            let waw = touch(extent(earlier), extent(later));
            if raw || war || waw {
                assert!(reach[after].contains(&before), "node {after} must wait for node {before}\n{graph}");
            }
        }
    }
}

#[test]
fn random_graphs_have_what_plans_must_cope_with() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for seed in 0..3000 {
        let assigned: AssignedGraph = random_graph(&mut Choices::from_seed(seed));
        let graph = assigned.graph();
        for &node in graph.nodes() {
            let tensor = graph.tensor(node);
            seen.insert(graph.tensors().op_name(tensor.op).into());
            let writes = tensor.is_view() && !tensor.op.writes_nothing();
            let facts = [
                ("a planned cache is written", writes && !graph.tensors().is_external(node)),
                ("an external cache is written", writes && graph.tensors().is_external(node)),
                ("an output", tensor.flags.is_output()),
                ("in place", (0..2).any(|slot| graph.may_overwrite(node, slot))),
                ("no node reads it", !graph.nodes().iter().any(|&it| graph.sources(it).contains(&Some(node)))),
                ("an operation of the caller's", matches!(tensor.op, Op::Other(_)) && !tensor.is_view()),
                ("an operation of the caller's in place", (0..2).any(|slot| graph.permits_overwrite(node, slot))),
                (
                    "an operation of the caller's writes into a source",
                    matches!(tensor.op, Op::Other(_)) && graph.writes_into(node).is_some(),
                ),
                ("padded", assigned.sizes().row(node).is_some()),
                ("no bytes", tensor.nbytes().get() == 0 && !tensor.op.writes_nothing()),
                ("a view of no bytes", tensor.nbytes().get() == 0 && tensor.is_view()),
            ];
            seen.extend(facts.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| String::from(name)));
        }
        let used: BTreeSet<MemoryId> = assigned.assignment().nodes.iter().copied().collect();
        seen.extend((used.len() > 1).then(|| String::from("several memories")));
        seen.extend(assigned.memories().iter().any(|it| it.max_buffer.is_some()).then(|| String::from("limits")));
    }
    let wanted = Op::PLAIN.iter().map(|op| op.name()).chain(["UNARY", "GLU"]).chain([
        "a planned cache is written",
        "an operation of the caller's",
        "an operation of the caller's in place",
        "an operation of the caller's writes into a source",
        "an external cache is written",
        "an output",
        "in place",
        "no node reads it",
        "padded",
        "no bytes",
        "a view of no bytes",
        "several memories",
        "limits",
    ]);
    let without_builder = ["ADD_ID", "ADD1", "SOFT_MAX_BACK", "ROPE_BACK", "CUSTOM"];
    let missing: Vec<_> = wanted.filter(|it| !seen.contains(*it) && !without_builder.contains(it)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}");
    assert!(MemoryId::FIRST.index() == 0);
}
