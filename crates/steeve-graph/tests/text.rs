//! The text form: what it says, what it leaves out, and where it is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::{Align, AssignedGraph, Bytes, Flags, Graph, MemoryId, Op, Unary};

/// Returns what is written in full for what is read.
fn full(text: &str) -> String {
    let graph: AssignedGraph = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let written = graph.to_string();
    assert_eq!(written.parse::<AssignedGraph>().unwrap(), graph, "\n{written}");
    written
}

#[track_caller]
fn wrong(text: &str, error: &str) {
    let fault = text.parse::<AssignedGraph>().map(|graph| graph.to_string()).unwrap_err();
    assert_eq!(steeve_graph::ErrorChain(&fault).to_string(), error);
}

#[test]
fn shapes_follow_from_sources() {
    assert_eq!(full("a = fill 16; b = neg a"), "a = fill f32[16]\nb = neg f32[16] a\n");
    assert_eq!(
        full("w = external q4_K[256,64]; x = input [256,8]\ny = mul_mat w x; z = swiglu y !output"),
        "w = external q4_K[256,64]\nx = input f32[256,8]\ny = mul_mat f32[64,8] w x\nz = swiglu f32[32,8] y !output\n"
    );
}

#[test]
fn views_say_where_they_start() {
    assert_eq!(
        full("kv = external f16[128,256]; k = view f16[128,32]+4096 kv; t = transpose k; r = reshape [4096] k"),
        "kv = external f16[128,256]
k = view f16[128,32]+4096 kv
t = transpose f16[32,128]{256,2,8192,8192}+4096 k
r = reshape f16[4096]+4096 k
"
    );
    assert_eq!(
        full("x = input 8; kv = external 64; p = view f32[8]+64 kv; w = cpy x p; own = cpy f16[8] x own"),
        "x = input f32[8]
kv = external f32[64]
p = view f32[8]+64 kv
w = cpy f32[8]+64 x p
own = cpy f16[8] x own
"
    );
}

#[test]
fn everything_survives() {
    let text = "memory gpu align=128 max=1024 hold=2
memory %1 align=64 \"an odd; \\\"name\\\"\"
memory gpu2 align=128 shares=gpu
x = input f32[8,2] !output @%1
c = leaf f16[8] size=16,32,16
outside = external i8[0] !aside
p = param f32[8] !external
s = soft_max(0.5,-inf) f32[8,2] x - c @gpu2 \"s (copy)\"
%5 = ?SSM_SCAN f32[8] x outside size=64
u = unary?NEW f32[8]{4,32,32,64} %5 !loss
v = view f32[4]+16^%5 u
o = view f32[4] !owner u
z = leaf f32[4]+0 v !node
leaf x
node c @%1
";
    let graph: AssignedGraph = text.parse().unwrap();
    let written = full(text);
    assert_eq!(full(&written), written);
    let memories = graph.memories();
    assert_eq!(memories[MemoryId::FIRST].align, Align::new(128).unwrap());
    assert_eq!(memories[MemoryId::FIRST].max_buffer, Some(Bytes(1024)));
    assert_eq!((memories[MemoryId::FIRST].extra_lifetime, memories.len()), (2, 3));
    let graph = graph.graph();
    assert_eq!((graph.leafs().len(), graph.nodes().len()), (3, 8));
    let s = graph.nodes()[1];
    assert_eq!((graph.name(s), graph.sources(s).len()), ("s (copy)", 3));
    assert_eq!(graph.sources(s)[1], None);
    assert!(graph.tensor(graph.leafs()[0]).flags.contains(Flags::INPUT | Flags::OUTPUT));
}

#[test]
fn lines_may_name_what_stands_behind_them() {
    let graph: Graph = "a = neg f32[4] b; b = input 4".parse().unwrap();
    assert_eq!(graph.tensor(graph.nodes()[0]).op, Op::Unary(Unary::Neg));
    assert_eq!(graph.sources(graph.nodes()[0]), [Some(graph.leafs()[0])]);
}

#[test]
fn comments_and_empty_statements_are_nothing() {
    assert_eq!(full("# only this\n\n;;  a = input 4 # \"; b = neg a\n"), "a = input f32[4]\n");
    assert_eq!(full(""), "");
}

#[test]
fn errors_name_line_and_column() {
    wrong("x = input 16\ny = neg z", "line 2, column 9: tensor z: unknown");
    wrong("x = input 16; x = neg x", "line 1, column 15: label x: given twice");
    wrong("x = nag y", "line 1, column 5: operation nag: unknown: expected one of the table, or ?nag to keep the name");
    wrong("x = Neg y", "line 1, column 5: operation Neg: unknown: expected one of the table, or ?Neg to keep the name");
    wrong(
        "x = input",
        "line 1, column 1: type and shape: missing, and not known from the sources: result: its shape does not follow from the sources: expected one that is given",
    );
    wrong(
        "x = neg y; y = input 4",
        "line 1, column 1: type and shape: missing, and not known from the sources: result: its shape does not follow from the sources: expected one that is given",
    );
    wrong("x = input f32[4", "line 1, column 16: expected ]");
    wrong("x = input f33[4]", "line 1, column 11: expected a type of data");
    wrong(
        "x = input q4_K[4]",
        "line 1, column 11: q4_K: a row is no whole number of blocks: expected a multiple of 256 elements, got 4",
    );
    wrong("x = input f32[1,1,1,1,1]", "line 1, column 11: shape: too many dimensions: expected at most 4, got 5");
    wrong("x = input 4 !red", "line 1, column 14: flag !red: unknown");
    wrong("x = input 4 @gpu", "line 1, column 14: memory gpu: unknown");
    wrong("x = input 4 color=3", "line 1, column 13: attribute color=: unknown");
    wrong("x = input 99999999999999999999", "line 1, column 11: number: none that fits here: got 99999999999999999999");
    wrong("x", "line 1, column 2: expected =");
    wrong(
        "x = input 4 \"open",
        "line 1, column 13: quoted name: no end on its line, or an escape other than \\\\, \\\", \\n, \\r, \\t and \\u{..}",
    );
    wrong("x = input 4 §", "line 1, column 13: unknown character: got '§'");
    wrong(
        "x = input 4\n\n v = view f32[4]+8 x",
        "line 3, column 2: tensor 1 (v): view outside of tensor 0 (x): expected at most 16 bytes, got 16 at offset 8",
    );
    wrong("x = leaf f32[4]+0", "line 1, column 1: root of the view: missing: expected one, as in +0^root");
    wrong("memory a align=3", "line 1, column 16: expected a power of two");
    wrong("memory a align=4; memory a", "line 1, column 26: label a: given twice");
    wrong("x = input 4 size=3", "line 1, column 1: tensor 0: size too small: expected at least 16 bytes, got 3");
    wrong(
        "a = input [4,3]; b = input [5]; c = add a b",
        "line 1, column 33: type and shape: missing, and not known from the sources: the second must fill the first when it is repeated",
    );
}
