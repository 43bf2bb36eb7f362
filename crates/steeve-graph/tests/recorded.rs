//! Records that are wrong say what and where; records that are odd are read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::recorded::BackendNeeds;
use steeve_graph::{Bytes, Fusion, Id, MemoryId, RecordedGraph};

const GOOD: &str = r#"{"schema":"galloc-dump-1","tag":"t",
"buffers":[{"name":"A","alignment":32,"max_size":18446744073709551615,"shared_with":0,"chunks":[64]}],
"leafs":[[10,0]],"nodes":[[30,0],[20,0]],"tensors":[
{"id":10,"name":"x","op":"NONE","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":1,"nbytes":32,"alloc_size":[32],"res":{"buffer_id":0,"chunk":0,"offset":0,"size_max":32}},
{"id":20,"name":"y","op":"UNARY","desc":"NEG","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":18,"nbytes":32,"src":[10,-1,-2],"alloc_size":[40],"res":{"buffer_id":0,"chunk":0,"offset":32,"size_max":40}},
{"id":30,"name":"v","op":"VIEW","type":"f32","ne":[4,1,1,1],"nb":[4,16,16,16],"flags":16,"nbytes":16,"view_src":-2,"view_offs":16,"src":[-2]}]}"#;

#[test]
fn ids_need_not_be_counted_and_outsiders_are_external() {
    let recorded = RecordedGraph::from_json(GOOD).unwrap();
    let graph = recorded.assigned.graph();
    let y = graph.nodes()[1];
    assert_eq!(recorded.ids[y], Some(20));
    assert_eq!(recorded.assigned.sizes().row(y), Some(&[Bytes(40)][..]));
    let outside = graph.sources(y)[2].unwrap();
    assert!(graph.tensor(outside).external && recorded.ids[outside].is_none());
    assert_eq!(graph.tensor(outside).nbytes(), Bytes(0));
    let root = graph.root(graph.nodes()[0]);
    assert_eq!((graph.tensor(root).nbytes(), graph.tensors().is_external(graph.nodes()[0])), (Bytes(32), true));
    let json = recorded.to_json();
    assert!(json.contains(r#""src":[10,-1,-2]"#) && json.contains(r#""view_src":-2"#), "{json}");
    assert_eq!(RecordedGraph::from_json(&json).unwrap(), recorded);
    assert_eq!(outside.index(), 3);
}

#[test]
fn a_unary_without_a_kind_is_read() {
    let recorded = RecordedGraph::from_json(&GOOD.replace(r#""desc":"NEG","#, "")).unwrap();
    let graph = recorded.assigned.graph();
    assert!(graph.tensor(graph.nodes()[1]).op.ggml_in_place());
    assert_eq!(RecordedGraph::from_json(&recorded.to_json()).unwrap(), recorded);
}

#[test]
fn what_was_kept_for_a_backend_is_read_and_written_and_changes_no_memory() {
    let plain = RecordedGraph::from_json(GOOD).unwrap();
    assert_eq!(plain.needs[MemoryId::FIRST], None);
    for fusion in Fusion::ALL {
        let needs = format!(r#""hold":7,"fusion":"{}","alignment":32"#, fusion.name());
        let recorded = RecordedGraph::from_json(&GOOD.replace(r#""alignment":32"#, &needs)).unwrap();
        assert_eq!(recorded.needs[MemoryId::FIRST], Some(BackendNeeds { extra_lifetime: 7, fusion }));
        assert_eq!(recorded.assigned, plain.assigned);
        assert_eq!(RecordedGraph::from_json(&recorded.to_json()).unwrap(), recorded);
    }
}

#[test]
fn faults_are_named() {
    let cases = [
        ("galloc-dump-1", "galloc-dump-9", "schema: unknown: expected \"galloc-dump-1\", got \"galloc-dump-9\""),
        (r#""id":20"#, r#""id":10"#, "tensors: two have the id 10"),
        (r#"[10,0]]"#, r#"[11,0]]"#, "leaf 0: unknown tensor: expected one of the record, got 11"),
        (r#"[10,0]]"#, r#"[10,1]]"#, "leaf 0: unknown buffer: expected one of 1, got 1"),
        (r#"[20,0]]"#, r#"[-2,0]]"#, "node 1: unknown tensor: expected one of the record, got -2"),
        (r#""src":[10,"#, r#""src":[12,"#, "a source of tensor 20: unknown tensor: expected one of the record, got 12"),
        (r#""alignment":32"#, r#""alignment":33"#, "buffer 0: wrong alignment: alignment: not a power of two: 33"),
        (r#""shared_with":0"#, r#""shared_with":3"#, "buffer 0: unknown buffer: expected one of 1, got 3"),
        (
            r#""type":"f32","ne":[4"#,
            r#""type":"f31","ne":[4"#,
            "tensor 30 (v): type unknown: expected a name of ggml's, got \"f31\"",
        ),
        (
            r#""flags":16,"nbytes":16"#,
            r#""flags":16,"nbytes":17"#,
            "tensor 30 (v): nbytes wrong: expected 16 for f32[4, 1, 1, 1] with strides [4, 16, 16, 16], got 17",
        ),
        (r#","view_offs":16"#, "", "tensor 30 (v): half a view: expected view_src and view_offs, got one of them"),
        (r#""chunk":0,"offset":32"#, r#""chunk":-7,"offset":32"#, "tensor 20 (y): chunk out of range: got -7"),
        (r#""alloc_size":[40]"#, r#""alloc_size":[4]"#, "tensor 1: size too small: expected at least 32 bytes, got 4"),
        (
            r#""alloc_size":[40]"#,
            r#""alloc_size":[40,1]"#,
            "tensor 1: wrong number of sizes: expected one for each of 1 memories, got 2",
        ),
        (
            r#""view_src":-2,"view_offs":16"#,
            r#""view_src":20,"view_offs":17"#,
            "tensor 2 (v): view outside of tensor 1 (y): expected at most 32 bytes, got 16 at offset 17",
        ),
        (
            r#""nb":[4,32,32,32],"flags":18"#,
            r#""nb":[4,32,32,"flags":18"#,
            "recorded graph: no such JSON: expected the schema galloc-dump-1: ",
        ),
        (
            r#""ne":[4,1,1,1]"#,
            r#""ne":[-4,1,1,1]"#,
            "recorded graph: no such JSON: expected the schema galloc-dump-1: invalid value: integer `-4`",
        ),
    ];
    for (from, to, expected) in cases {
        assert!(GOOD.contains(from), "{from}");
        let error = RecordedGraph::from_json(&GOOD.replace(from, to)).unwrap_err();
        let error = steeve_graph::ErrorChain(&error).to_string();
        assert!(error.starts_with(expected), "{error}\nnot\n{expected}");
    }
}
