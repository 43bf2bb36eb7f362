//! Which tensors survive a run, judged by running: every byte of every buffer knows its last write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::Range;

use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{
    AssignedGraph, BufferId, GraphPlan, GraphStrategy, Id, MemoryId, Op, PlanOptions, Reuse, TensorId, Unread,
    plan_graph,
};

/// The number of a write; 0 where nothing has written.
type Write = u32;

/// What is in memory after a run: with a buffer for each root, and at the planned places.
struct Run<'a> {
    plan: &'a GraphPlan,
    apart: BTreeMap<TensorId, Vec<Write>>,
    planned: BTreeMap<(MemoryId, BufferId), Vec<Write>>,
    writes: Write,
}

impl<'a> Run<'a> {
    fn new(plan: &'a GraphPlan) -> Self {
        let graph = plan.assigned().graph();
        let mut run = Self { plan, apart: BTreeMap::new(), planned: BTreeMap::new(), writes: 0 };
        let mut is_node = vec![false; graph.tensors().len()];
        graph.nodes().iter().for_each(|node| is_node[node.index()] = true);
        let mut is_leaf = vec![false; graph.tensors().len()];
        graph.leafs().iter().for_each(|leaf| is_leaf[graph.root(*leaf).index()] = true);
        for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| !tensor.is_view()) {
            let is_there = tensor.flags.is_input() || (tensor.op == Op::None && !is_node[id.index()]);
            if is_leaf[id.index()] || is_there {
                run.write_all(id);
            }
        }
        for node in graph.nodes().iter().copied() {
            let tensor = graph.tensor(node);
            match tensor.view {
                // What is in the order of nodes without an operation is filled from outside at its turn.
                None if tensor.op == Op::None || !tensor.op.writes_nothing() => run.write_all(node),
                Some(view) if !tensor.op.writes_nothing() => {
                    run.write(view.root, view.offset.0..view.offset.0 + tensor.nbytes().0);
                }
                _ => {}
            }
        }
        run
    }

    fn write_all(&mut self, root: TensorId) {
        if let Some(place) = self.plan.place(root) {
            self.write(root, 0..place.size.0);
        }
    }

    fn write(&mut self, root: TensorId, range: Range<u64>) {
        let Some(place) = self.plan.place(root) else { return };
        self.writes += 1;
        let there = place.offset.0 + range.start..place.offset.0 + range.end;
        fill(self.apart.entry(root).or_default(), range, self.writes);
        fill(self.planned.entry((place.memory, place.buffer)).or_default(), there, self.writes);
    }

    /// Returns whether all that was written into a root and never replaced is at its place; `None` if nothing was.
    fn is_intact(&self, root: TensorId) -> Option<bool> {
        let (place, apart) = (self.plan.place(root)?, self.apart.get(&root)?);
        let planned = self.planned.get(&(place.memory, place.buffer))?;
        let there = &planned[(place.offset.0 as usize).min(planned.len())..];
        let written = || apart.iter().zip(there).filter(|(wanted, _)| **wanted != 0);
        written().next()?;
        Some(written().all(|(wanted, found)| wanted == found))
    }
}

fn fill(writes: &mut Vec<Write>, range: Range<u64>, write: Write) {
    let (start, end) = (range.start as usize, range.end as usize);
    if writes.len() < end {
        writes.resize(end, 0);
    }
    writes[start..end].fill(write);
}

/// What must be right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judge {
    All,
    /// Where no node makes some of the tensors, others may be said to be lost to those.
    Lost,
}

/// Returns how many survive and how many do not, if `survivors` is right.
fn check(plan: &GraphPlan, judge: Judge, seed: u64) -> (usize, usize) {
    let (run, survivors) = (Run::new(plan), plan.survivors());
    let graph = plan.assigned().graph();
    let mut counts = (0, 0);
    for (id, tensor) in graph.tensors().pairs() {
        let root = graph.root(id);
        assert_eq!(survivors.contains(id), survivors.contains(root), "seed {seed}: a view is as its root");
        if graph.tensor(root).external {
            assert!(survivors.contains(id), "seed {seed}: external tensor {id}");
            continue;
        }
        let Some(intact) = run.is_intact(root) else { continue };
        assert!(
            survivors.contains(root) == intact || (intact && judge == Judge::Lost),
            "seed {seed}: tensor {root} ({})\n{}",
            graph.tensors().op_title(tensor.op),
            plan.assigned()
        );
        if intact { counts.0 += 1 } else { counts.1 += 1 }
    }
    counts
}

fn options() -> impl Iterator<Item = PlanOptions> {
    let reuses = [Reuse::Extended, Reuse::Ggml, Reuse::None];
    reuses.into_iter().flat_map(|reuse| {
        [Unread::Keep, Unread::Free]
            .map(|unread| PlanOptions::new(GraphStrategy::Fast).with_reuse(reuse).with_unread(unread))
    })
}

#[test]
fn a_tensor_survives_exactly_if_nobody_writes_over_it() {
    let mut counts = (0, 0);
    for seed in 0..400 {
        let graph = random_graph(&mut Choices::from_seed(seed));
        for options in options() {
            let (intact, lost) = check(&plan_graph(&graph, &options).unwrap(), Judge::All, seed);
            counts = (counts.0 + intact, counts.1 + lost);
        }
    }
    assert!(counts.0 > 10_000 && counts.1 > 10_000, "{counts:?}");
}

#[test]
fn what_is_lost_does_not_survive_in_graphs_that_make_no_sense_either() {
    for seed in 0..3000 {
        let graph = scrambled_graph(&mut Choices::from_seed(seed));
        for options in options() {
            if let Ok(plan) = plan_graph(&graph, &options) {
                check(&plan, Judge::Lost, seed);
            }
        }
    }
}

fn survives(text: &str, name: &str) -> bool {
    let graph: AssignedGraph = text.parse().unwrap_or_else(|error| panic!("{error} in\n{text}"));
    let tensor = graph.graph().tensors().ids().find(|id| graph.graph().name(*id) == name).unwrap();
    plan_graph(&graph, &PlanOptions::default()).unwrap().survivors().contains(tensor)
}

#[test]
fn outputs_and_what_nobody_reads_survive() {
    let text = "x = input 64; a = sqr x; b = neg a !output; c = abs b; d = sqrt c; unread = neg a; e = relu d !output";
    for name in ["b", "e", "unread"] {
        assert!(survives(text, name), "{name}");
    }
    for name in ["x", "c"] {
        assert!(!survives(text, name), "{name}");
    }
}

#[test]
fn a_cache_survives_with_what_was_written_into_it() {
    let text = "cache = leaf 64 !output; x = input 16; v = view 16+64 cache; w = cpy x v; y = sum cache !output";
    for name in ["cache", "v", "w", "y"] {
        assert!(survives(text, name), "{name}");
    }
}

#[test]
fn external_tensors_survive_and_what_the_graph_never_touches_does_not() {
    let text = "w = external 64; u = leaf 64 !aside; x = input 64; y = add x w !output";
    assert!(survives(text, "w"));
    assert!(!survives(text, "u"));
}

#[test]
fn who_stands_where_a_scheduler_fills_a_copy_does_not_survive() {
    // `c` has no operation and is filled at its turn, in the bytes that `a` had.
    let text = "x = input 64; a = sqr x; b = ?F 1 a; c = leaf 64 !node; y = custom f32[1] b c !output";
    assert!(!survives(text, "a"));
}
