//! Laws of what a schedule tells people: the table, the reasons, the drawing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod planning_setup;

use std::io::Write;
use std::process::{Command, Stdio};

use planning_setup::{PlanningSetup, computes};
use steeve_runtime::sched::SchedOptions;

/// A product on each of two devices, what lies between, and a cache.
const SMALL: &str = "
    w1 = external f32[8,8] @gpu
    w2 = external f32[8,4] @cpu
    k = external f32[4,16] @cpu
    x = input 8
    c = leaf 4
    h = mul_mat w1 x
    %6 = silu h
    y = mul_mat w2 %6
    v = view [4]+64 k
    s = cpy y v
    z = add y c !output";

fn small() -> PlanningSetup {
    PlanningSetup::new("gpu; cpu host", SMALL)
}

#[test]
fn the_table_says_who_runs_what_and_what_is_copied_for_it() {
    assert_eq!(
        small().schedule().to_string(),
        "\
split  on   nodes  first  last    copied in
0      gpu  2      h      6 silu  32 bytes, 1 copy
       <- tensor 3 (x) from cpu, 32 bytes
1      cpu  3      y      z       32 bytes, 1 copy
       <- tensor 6 from gpu, 32 bytes
2 splits, 2 copies of 64 bytes"
    );
}

#[test]
fn the_reasons_say_for_each_leaf_and_node_where_it_is_and_why() {
    assert_eq!(
        small().schedule().reasons(),
        "\
x       cpu  the caller writes it
c       cpu  tensor 10 (z) reads it
h       gpu  its weight tensor 0 (w1) is there
6 silu  gpu  next to tensor 5 (h)
y       cpu  its weight tensor 1 (w2) is there
s       cpu  writes into tensor 2 (k), which stands there
z       cpu  next to tensor 9 (s)
"
    );
}

#[test]
fn the_drawing_has_a_box_for_each_split_and_the_bytes_of_each_copy() {
    let drawing = small().schedule().to_graphviz();
    assert_eq!(drawing, DRAWING, "\n{drawing}");
    assert_draws(&drawing);
}

const DRAWING: &str = r##"digraph {
  rankdir=TB;
  compound=true;
  node [fontname=monospace,shape=box];
  t0 [shape=folder,label="w1\nnone\nf32[8,8]"];
  t1 [shape=folder,label="w2\nnone\nf32[8,4]"];
  t2 [shape=folder,label="k\nnone\nf32[4,16]"];
  t3 [shape=ellipse,label="x\nnone\nf32[8]"];
  t4 [shape=ellipse,label="c\nnone\nf32[4]"];
  subgraph cluster_0 {
    label="split 0 on gpu"; style=filled; color="#cfe8ff";
    t11 [shape=cds,style="filled",fillcolor=white,label="copy of x\n32 bytes"];
    t5 [style=filled,fillcolor=white,label="h\nmul_mat\nf32[8]"];
    t6 [style=filled,fillcolor=white,label="6\nsilu\nf32[8]"];
  }
  subgraph cluster_1 {
    label="split 1 on cpu"; style=filled; color="#ffe3c2";
    t12 [shape=cds,style="filled",fillcolor=white,label="copy of 6 silu\n32 bytes"];
    t7 [style=filled,fillcolor=white,label="y\nmul_mat\nf32[4]"];
    t9 [style=filled,fillcolor=white,label="s\ncpy\nf32[4]"];
    t10 [style=filled,fillcolor=white,label="z\nadd\nf32[4]"];
  }
  t3 -> t11 [style=bold,label="32 B"];
  t0 -> t5;
  t11 -> t5;
  t5 -> t6;
  t6 -> t12 [style=bold,label="32 B"];
  t1 -> t7;
  t12 -> t7;
  t7 -> t9;
  t2 -> t9;
  t7 -> t10;
  t4 -> t10;
}
"##;

/// Asks Graphviz itself, where it is installed.
fn assert_draws(drawing: &str) {
    let dot = Command::new("dot").arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut dot) = dot else { return eprintln!("there is no dot here, so nobody has drawn it") };
    dot.stdin.take().unwrap().write_all(drawing.as_bytes()).unwrap();
    assert!(dot.wait_with_output().unwrap().status.success(), "{drawing}");
}

#[test]
fn the_table_says_how_copies_differ() {
    let graph = "w = external f32[8,4,16] @cpu; w1 = external 8 @gpu; x = input f32[8,2,3]; i = input i32[2,3]
         v = view [8]+64 x; y = mul_mat_id w x i; z = ?F f32[8] w1 v";
    let schedule = PlanningSetup::new("gpu offloads mul_mat_id; cpu host", graph).schedule().to_string();
    assert!(schedule.contains("<- tensor 0 (w) from cpu, 2048 bytes, the experts that are asked for"), "{schedule}");
    let graph = "w1 = external 8 @gpu; x = input f32[8,2,3]; v = view [8]+64 x; z = ?F f32[8] w1 v";
    let setup = PlanningSetup::new("gpu; cpu host", graph).with(SchedOptions::new().with_pipeline_depth(3));
    let schedule = setup.schedule().to_string();
    assert!(schedule.contains("<- tensor 1 (x) from cpu, 32 bytes at 64, 3 in turn"), "{schedule}");
}

#[test]
fn one_is_not_many() {
    let schedule =
        PlanningSetup::new("gpu; cpu host", "w = external 8; x = input 8; y = add x w").schedule().to_string();
    assert!(schedule.ends_with("1 split, 1 copy of 32 bytes"), "{schedule}");
}

#[test]
fn every_planned_leaf_and_every_node_that_computes_has_a_line_with_its_reason() {
    let devices = "gpu offloads mul_mat lacks l; acc lacks add; twin shares acc; cpu host";
    let setup = PlanningSetup::new(devices, EVERY_REASON).pin("p@gpu");
    let (schedule, graph) = (setup.schedule(), &setup.graph);
    let listed = graph.leafs().iter().filter(|leaf| graph.tensor(**leaf).is_planned());
    let listed: Vec<_> = listed.chain(graph.nodes().iter().filter(|node| computes(graph, **node))).copied().collect();
    assert!(listed.iter().all(|tensor| schedule.why(*tensor).is_some_and(|why| !why.is_empty())));
    let reasons = schedule.reasons();
    assert_eq!(reasons.lines().count(), listed.len());
    for words in [
        "the caller writes it",
        "pinned by the caller",
        "which stands there",
        "is there",
        "worth the copy",
        "next to",
        "can read",
        "has the same memory",
        "fewer bytes are copied",
        "reads it",
        "nobody reads it",
    ] {
        assert!(reasons.contains(words), "nobody is where it is because it is so: {words}\n{reasons}");
    }
}

const EVERY_REASON: &str = "
    w = external f32[8,8] @cpu; w1 = external 8 @acc; w2 = external 8 @cpu; k = external 8 @cpu
    x = input 8; u = leaf 8; c = leaf 8
    l = ?L f32[8] x; p = neg x; a = mul_mat w x; b = add a w1; d = ?F f32[8] b c; s = cpy d k; e = ?F f32[8] s
    m = ?F f32[8] w2 x; n = ?F f32[8] w2 e; r = mul m n; t = mul r w1";

#[test]
fn every_tensor_that_is_drawn_is_described() {
    check_described(SMALL);
    check_described("x = input 8; v = view [4]+0 x");
    check_described("");
}

#[test]
fn what_is_no_leaf_and_computes_nothing_is_described_too() {
    check_described("k = external f32[8,8] !aside; v = view [8]+0 k; x = input 8; y = add v x");
    check_described("k = param 8 !external; x = input 8; y = add k x");
    check_described("k = param 8; x = input 8; y = add k x");
}

/// Checks that every node with an arrow has a label.
fn check_described(graph: &str) {
    let drawing = PlanningSetup::new("gpu; cpu host", graph).schedule().to_graphviz();
    assert_draws(&drawing);
    for (from, to) in drawing.lines().filter_map(|line| line.trim().split_once(" -> ")) {
        for id in [from, to.split([';', ' ']).next().unwrap()] {
            assert!(
                drawing.lines().any(|line| line.trim().starts_with(&format!("{id} ["))),
                "{id} is bare:\n{drawing}"
            );
        }
    }
}

#[test]
fn names_that_mean_something_to_graphviz_are_quoted() {
    let graph = r#"x = input 8 "a \"quoted\" \\ name\nin two lines"; y = neg x "-> [label=1];""#;
    let drawing = PlanningSetup::new("gpu; cpu host", graph).schedule().to_graphviz();
    assert!(drawing.contains(r#"label="a \"quoted\" \\ name\nin two lines\nnone\nf32[8]""#), "{drawing}");
    assert_draws(&drawing);
}

#[test]
fn a_schedule_has_the_names_of_the_graph_it_was_asked_about() {
    let mut setup = PlanningSetup::new("gpu; cpu host", "x = input 8; y = neg x");
    setup.reserve().unwrap();
    let (graph, homes) = setup.another("tokens = input 8; result = neg tokens");
    let schedule = setup.scheduler.schedule(&graph, &homes).unwrap();
    assert!(schedule.reasons().contains("tokens") && schedule.to_string().contains("result"), "{schedule}");
}

#[test]
fn the_nodes_of_a_worker_are_those_of_its_splits() {
    let setup = small();
    let schedule = setup.schedule();
    let on = |worker: &str| -> Vec<_> { schedule.nodes_on(setup.worker(worker)).collect() };
    let [h, y, s, z] = ["h", "y", "s", "z"].map(|name| setup.id(name));
    assert_eq!((on("gpu")[0], on("gpu").len()), (h, 2));
    assert_eq!(on("cpu"), [y, s, z]);
}

#[test]
fn an_empty_schedule_is_a_table_without_lines() {
    let schedule = PlanningSetup::new("gpu; cpu host", "").schedule();
    assert_eq!(schedule.to_string(), "split  on  nodes  first  last  copied in\n0 splits, 0 copies of 0 bytes");
    assert_eq!(schedule.reasons(), "");
    assert_draws(&schedule.to_graphviz());
}
