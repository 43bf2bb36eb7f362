//! Which graphs have a fingerprint in common, and which differ.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recordings;

use std::collections::BTreeMap;

use steeve_graph::{
    AllocSizes, AssignedGraph, Best, Budget, Fusion, GraphPlan, GraphStrategy, Memory, PlanOptions, RecordedGraph,
    Reuse, Unread, plan_graph,
};

fn graph(text: &str) -> AssignedGraph {
    text.parse().unwrap()
}

const MEMORIES: &str = "memory gpu align=32; memory host align=16 max=4096";
const BODY: &str = "x = input f32[16,4]; v = view f32[16,2]+64 x; a = sqr v; b = neg a @host size=300; w = external f32[16,4]; c = mul_mat f32[4,2] w b !output";

/// Returns the exact fingerprint with the default options.
fn exact(graph: &AssignedGraph) -> u128 {
    graph.exact_fingerprint(&PlanOptions::default()).0
}

#[test]
fn operations_take_no_part_in_fingerprints() {
    let one = graph(&format!("{MEMORIES}; {BODY}"));
    for (from, to) in [("neg", "abs"), ("sqr", "scale"), ("neg", "cont")] {
        let other = graph(&format!("{MEMORIES}; {}", BODY.replace(from, to)));
        assert_ne!(one, other);
        assert_eq!(one.fingerprint(), other.fingerprint());
        assert_eq!(exact(&one), exact(&other));
    }
}

#[test]
fn the_order_of_memories_takes_no_part_in_fingerprints() {
    let one = graph(&format!("{MEMORIES}; {}", BODY.replace(";", " @gpu;").replace("@host size=300 @gpu", "@host")));
    let (gpu, host) = MEMORIES.split_once("; ").unwrap();
    let text = BODY.replace(";", " @gpu;").replace("@host size=300 @gpu", "@host").replace("!output", "@gpu !output");
    let other = graph(&format!("{host}; {gpu}; {text}"));
    assert_ne!(one, other);
    assert_eq!(one.fingerprint(), other.fingerprint());
    assert_eq!(exact(&one), exact(&other));
}

#[test]
fn whatever_changes_the_structure_changes_both_fingerprints() {
    let one = graph(&format!("{MEMORIES}; {BODY}"));
    for (from, to) in [
        ("neg a", "neg v"),
        ("!output", ""),
        ("x = input", "x = external"),
        ("w = external", "w = input"),
        (" @host size=300", ""),
        ("v = view f32[16,2]+64 x", "v = sqr f32[16,2] x"),
    ] {
        let text = BODY.replace(from, to);
        assert_ne!(text, BODY);
        let other = graph(&format!("{MEMORIES}; {text}"));
        assert_ne!(one.fingerprint(), other.fingerprint(), "{text}");
        assert_ne!(exact(&one), exact(&other), "{text}");
    }
}

#[test]
fn sizes_views_and_memories_change_the_exact_fingerprint_alone() {
    let one = graph(&format!("{MEMORIES}; {BODY}"));
    for (from, to) in [
        ("x = input f32[16,4]", "x = input f32[16,5]"),
        ("x = input f32[16,4]", "x = input f32[8,8]"),
        ("size=300", "size=304"),
        ("+64 x", "+128 x"),
        ("align=32", "align=64"),
        ("max=4096", "max=8192"),
        ("max=4096", ""),
        ("max=4096", "max=4096 hold=2"),
        ("max=4096", "max=4096 fusion=kept"),
        ("memory gpu align=32", "memory gpu align=32 \"tpu\""),
    ] {
        let text = format!("{MEMORIES}; {BODY}").replace(from, to);
        let other = graph(&text);
        assert_eq!(one.fingerprint(), other.fingerprint(), "{text}");
        assert_ne!(exact(&one), exact(&other), "{text}");
    }
}

#[test]
fn the_callers_own_tensors_may_have_any_shape() {
    let one = graph(&format!("{MEMORIES}; {BODY}"));
    let other = graph(&format!("{MEMORIES}; {}", BODY.replace("external f32[16,4]", "external f32[16,40]")));
    assert_eq!(exact(&one), exact(&other));
}

#[test]
fn the_rules_of_planning_change_the_exact_fingerprint_and_the_strategy_does_not() {
    let graph = graph(BODY.replace("@host size=300", "").as_str());
    let options = PlanOptions::default();
    let exact = |options: &PlanOptions| graph.exact_fingerprint(options);
    let best = PlanOptions::new(GraphStrategy::Best(Best::new(Budget::Nodes(7))));
    assert_eq!(exact(&options), exact(&best));
    for reuse in [Reuse::Ggml, Reuse::None] {
        assert_ne!(exact(&options), exact(&options.with_reuse(reuse)));
    }
    for unread in [Unread::Keep, Unread::Free] {
        assert_ne!(exact(&options), exact(&options.with_unread(unread)));
    }
}

#[test]
fn recorded_graphs_of_other_sizes_have_other_exact_fingerprints_and_writing_them_changes_none() {
    let mut seen: BTreeMap<u128, (Vec<u64>, String)> = BTreeMap::new();
    recordings::each_graph(|name, recorded| {
        let graph = &recorded.assigned;
        let again = RecordedGraph::from_json(&recorded.to_json()).unwrap().assigned;
        assert_eq!((again.fingerprint(), exact(&again)), (graph.fingerprint(), exact(graph)), "{name}");
        let tensors = graph.graph().tensors();
        let planned = tensors.ids().filter(|id| !tensors.is_external(*id));
        let sizes: Vec<u64> = planned.map(|id| graph.alloc_size(id, graph.assignment().nodes[0]).0).collect();
        let (other, other_name) = seen.entry(exact(graph)).or_insert_with(|| (sizes.clone(), name.to_owned()));
        assert_eq!(*other, sizes, "{name} and {other_name}");
    });
}

#[test]
fn a_memory_that_no_tensor_uses_takes_no_part() {
    let one = graph(&format!("{MEMORIES}; {BODY}"));
    let mut memories = one.memories().clone();
    memories.push(Memory { fusion: Fusion::Kept, ..Memory::default() });
    let sizes = AllocSizes::new(3);
    let (graph, assignment) = (one.graph().clone(), one.assignment().clone());
    let more = AssignedGraph::new(graph.clone(), memories, assignment.clone(), sizes).unwrap();
    let two = AssignedGraph::new(graph, one.memories().clone(), assignment, AllocSizes::new(2)).unwrap();
    assert_eq!(exact(&more), exact(&two));
}

#[test]
fn a_plan_is_loaded_for_other_operations_if_these_allow_its_aliases() {
    let text = "x = input f32[64]; y = sqr x; z = mul_mat f32[64] y y !output";
    let saved = plan_graph(&graph(text), &PlanOptions::default()).unwrap().to_json();
    for (operation, loads) in [("neg", true), ("scale", true), ("cont", false)] {
        let other = graph(&text.replace("sqr", operation));
        let loaded = GraphPlan::from_json(&saved, &other);
        assert_eq!(loaded.is_ok(), loads, "{operation}: {loaded:?}");
    }
}
