//! A caller's own graph: planned as if it were built here, by its own keys, and refused in its own words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use proptest::prelude::*;
use steeve_graph::fuzz::{Choices, assert_survives, random_graph, scrambled_graph};
use steeve_graph::{
    Align, AllocSizes, AssignedGraph, Bytes, Fusion, Id, KeyedGraph, KeyedPlan, Memory, MemoryId, Offset, Op, Order,
    PlanOptions, Reuse, TensorGraph, TensorGraphError, TensorId, TensorPlace, Unread, plan_graph, plan_tensor_graph,
};
use steeve_plan::fuzz::inputs;

mod recordings;

/// A graph as some engine has it: tensors by name.
#[derive(Clone, Default)]
struct Net {
    inputs: Vec<&'static str>,
    nodes: Vec<&'static str>,
    outputs: Vec<&'static str>,
    externals: Vec<&'static str>,
    sizes: BTreeMap<&'static str, u64>,
    sources: BTreeMap<&'static str, Vec<&'static str>>,
    views: BTreeMap<&'static str, (&'static str, u64)>,
    more_tensors: Vec<&'static str>,
    overwrites: Vec<(&'static str, &'static str)>,
    overlaps: BTreeMap<(&'static str, &'static str), u64>,
    more_results: BTreeMap<&'static str, Vec<&'static str>>,
    memories: BTreeMap<&'static str, u16>,
}

impl Net {
    fn input(mut self, name: &'static str, size: u64) -> Self {
        self.inputs.push(name);
        self.sizes.insert(name, size);
        self
    }

    fn external(mut self, name: &'static str, size: u64) -> Self {
        self.externals.push(name);
        self.sizes.insert(name, size);
        self
    }

    fn node(mut self, name: &'static str, size: u64, sources: &[&'static str]) -> Self {
        self.nodes.push(name);
        self.sizes.insert(name, size);
        self.sources.insert(name, sources.to_vec());
        self
    }

    /// Adds a node that may overwrite all its sources.
    fn in_place(mut self, name: &'static str, size: u64, sources: &[&'static str]) -> Self {
        self.overwrites.extend(sources.iter().map(|source| (name, *source)));
        self.node(name, size, sources)
    }

    /// Adds a node whose result may start `distance` bytes below its only source.
    fn overlapping(mut self, name: &'static str, size: u64, source: &'static str, distance: u64) -> Self {
        self.overlaps.insert((name, source), distance);
        self.node(name, size, &[source])
    }

    /// Adds a result to a node.
    fn also(mut self, node: &'static str, result: &'static str, size: u64) -> Self {
        self.more_results.entry(node).or_default().push(result);
        self.size_of(result, size)
    }

    fn view(mut self, name: &'static str, size: u64, root: &'static str, offset: u64) -> Self {
        self.views.insert(name, (root, offset));
        self.sizes.insert(name, size);
        self
    }

    fn output(mut self, name: &'static str) -> Self {
        self.outputs.push(name);
        self
    }

    fn size_of(mut self, name: &'static str, size: u64) -> Self {
        self.sizes.insert(name, size);
        self
    }

    fn plan(&self) -> KeyedPlan<&'static str> {
        let plan = plan_tensor_graph(self, &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        plan.replay(self).unwrap_or_else(|error| panic!("{error}"));
        plan.fits(self).unwrap_or_else(|error| panic!("{error}"));
        plan
    }

    fn refusal(&self) -> String {
        plan_tensor_graph(self, &PlanOptions::default()).unwrap_err().to_string()
    }
}

impl TensorGraph for Net {
    type Key = &'static str;

    fn nodes(&self) -> impl Iterator<Item = &'static str> {
        self.nodes.iter().copied()
    }

    fn sources(&self, node: &'static str) -> impl Iterator<Item = &'static str> {
        self.sources[node].iter().copied()
    }

    fn size(&self, tensor: &'static str) -> Bytes {
        Bytes(self.sizes[tensor])
    }

    fn inputs(&self) -> impl Iterator<Item = &'static str> {
        self.inputs.iter().copied()
    }

    fn outputs(&self) -> impl Iterator<Item = &'static str> {
        self.outputs.iter().copied()
    }

    fn is_external(&self, tensor: &'static str) -> bool {
        self.externals.contains(&tensor)
    }

    fn view_of(&self, tensor: &'static str) -> Option<(&'static str, Bytes)> {
        self.views.get(tensor).map(|(root, offset)| (*root, Bytes(*offset)))
    }

    fn may_overwrite(&self, node: &'static str, source: &'static str) -> bool {
        self.overwrites.contains(&(node, source))
    }

    fn overlap(&self, node: &'static str, source: &'static str) -> Option<Bytes> {
        self.overlaps.get(&(node, source)).copied().map(Bytes)
    }

    fn more_results(&self, node: &'static str) -> impl Iterator<Item = &'static str> {
        self.more_results.get(node).into_iter().flatten().copied()
    }

    fn more_tensors(&self) -> impl Iterator<Item = &'static str> {
        self.more_tensors.iter().copied()
    }

    fn name(&self, tensor: &'static str) -> String {
        tensor.into()
    }

    fn op_name(&self, _node: &'static str) -> &str {
        "ADD"
    }

    fn memories(&self) -> Vec<Memory> {
        vec![Memory::default(), Memory::new("other", Align::new(64).unwrap())]
    }

    fn memory(&self, tensor: &'static str) -> MemoryId {
        MemoryId::nth(self.memories.get(tensor).copied().unwrap_or(0))
    }
}

#[test]
fn what_nothing_reads_has_a_number_where_it_is_asked_for_and_changes_no_plan() {
    let net = || {
        let net = chain().external("w", 1000).external("unread", 500).node("d", 64, &["c", "w"]).output("d");
        net.view("v", 8, "a", 16).view("vv", 4, "v", 4).view("of w", 8, "w", 8)
    };
    let without = net().plan();
    let unread = ["unread", "v", "vv", "of w"];
    assert!(unread.iter().all(|tensor| without.number(*tensor).is_none()));
    let more = Net { more_tensors: [&unread[..], &["x", "d", "w"]].concat(), ..net() };
    let plan = more.plan();
    assert_eq!(plan.peak(), without.peak());
    assert!(without.places().all(|(tensor, place)| plan.place(tensor) == Some(place)));
    assert!(plan.key(plan.number("vv").unwrap()) == Some("vv") && plan.number("unread").is_some());
    let at = |tensor| plan.place(tensor).map(|place| place.offset.0);
    assert_eq!((at("v"), at("vv")), (at("a").map(|it| it + 16), at("a").map(|it| it + 20)));
    assert_eq!((at("unread"), at("of w")), (None, None));
    let unknown = Net { more_tensors: vec!["nothing"], ..net() }.refusal();
    assert_eq!(unknown, "tensor nothing: unknown: expected a node, an input, a view or an external tensor");
}

fn chain() -> Net {
    Net::default().input("x", 64).node("a", 64, &["x"]).node("b", 64, &["a"]).node("c", 64, &["b"]).output("c")
}

#[test]
fn tensors_that_are_never_live_at_once_share_bytes() {
    let plan = chain().plan();
    assert_eq!(plan.peak(), Bytes(128));
    assert_eq!(plan.place("x").unwrap().offset, plan.place("b").unwrap().offset);
    assert_eq!(plan.places().map(|(key, _)| key).collect::<Vec<_>>(), ["x", "a", "b", "c"]);
    assert_eq!(plan.place("nothing"), None);
    let sizes: Vec<_> = plan.buffers().map(|(memory, _, size)| (memory.index(), size.0)).collect();
    assert_eq!(sizes, [(0, 128)]);
}

#[test]
fn a_permitted_node_overwrites_its_source() {
    let net = Net::default().input("x", 64).in_place("a", 64, &["x"]).in_place("b", 64, &["a"]).output("b");
    let plan = net.plan();
    assert_eq!((plan.peak(), plan.overwrites("b"), plan.overwrites("a")), (Bytes(64), Some("a"), Some("x")));
    // The name of its operation is one of ours, and that says nothing.
    assert_eq!(chain().plan().overwrites("b"), None);
    let without = plan_tensor_graph(&net, &PlanOptions::default().with_reuse(Reuse::None)).unwrap();
    assert_eq!(without.peak(), Bytes(128));
    without.replay(&net).unwrap();
}

#[test]
fn a_smaller_result_may_overwrite_and_a_larger_one_not() {
    let net = |size| Net::default().input("x", 64).in_place("a", size, &["x"]).output("a");
    assert_eq!(net(32).plan().overwrites("a"), Some("x"));
    assert_eq!(net(32).plan().peak(), Bytes(64));
    assert_eq!(net(65).plan().overwrites("a"), None);
    assert_eq!(net(65).plan().peak(), Bytes(129));
}

#[test]
fn a_result_overlaps_a_dying_source_by_what_its_kernel_allows() {
    let net = |distance| Net::default().input("x", 64).overlapping("a", 128, "x", distance).output("a");
    for (distance, peak) in [(0, 128), (64, 128), (65, 129), (127, 191), (128, 192), (1000, 192)] {
        let plan = net(distance).plan();
        assert_eq!(plan.peak(), Bytes(peak), "{distance}");
        assert!(plan.graph_plan().memories()[0].plan.is_optimal(), "{distance}");
    }
    // Whoever asks for no reuse gets none.
    let apart = plan_tensor_graph(&net(64), &PlanOptions::default().with_reuse(Reuse::None)).unwrap();
    assert_eq!(apart.peak(), Bytes(192));
}

#[test]
fn a_source_that_is_needed_again_or_read_twice_is_not_overlapped() {
    let net = || Net::default().input("x", 64).overlapping("a", 64, "x", 8);
    assert_eq!(net().output("a").plan().peak(), Bytes(72));
    assert_eq!(net().output("a").output("x").plan().peak(), Bytes(128));
    let again = net().node("b", 8, &["a", "x"]).output("b");
    assert_eq!(again.plan().peak(), Bytes(136));
    let mut twice = Net::default().input("x", 64).node("a", 64, &["x", "x"]).output("a");
    twice.overlaps.insert(("a", "x"), 8);
    assert_eq!(twice.plan().peak(), Bytes(128));
}

#[test]
fn a_view_that_starts_within_its_root_is_overlapped_from_there() {
    let net = Net::default().input("x", 64).view("v", 32, "x", 32).overlapping("a", 64, "v", 40).output("a");
    // The first half of `x` is not read any more: 8 bytes of distance are left.
    assert_eq!(net.plan().peak(), Bytes(72));
}

#[test]
fn a_plan_with_an_overlap_fits_only_where_the_kernel_still_allows_it() {
    let net = |distance| Net::default().input("x", 64).overlapping("a", 64, "x", distance).output("a");
    let plan = net(8).plan();
    assert!(plan.fits(&net(0)).is_ok());
    let error = plan.fits(&net(9)).unwrap_err().to_string();
    assert_eq!(error, "tensor a: planned over its source in slot 0, which it may not overwrite any more");
    assert!(plan.replay(&net(9)).is_err());
    // Where they share no byte, nothing is asked.
    let apart = net(64).plan();
    assert!(apart.fits(&net(1000)).is_ok());
}

#[test]
fn all_results_of_a_node_have_bytes_of_their_own_when_its_sources_die() {
    let net = || Net::default().input("x", 64).node("a", 64, &["x"]).node("b", 32, &["a"]).also("b", "c", 32);
    // `x` and `a`; then `a`, `b` and `c`.
    assert_eq!(net().output("b").output("c").plan().peak(), Bytes(128));
    // Also a result that no node reads is written.
    assert_eq!(net().output("b").plan().peak(), Bytes(128));
    assert_eq!(net().also("b", "d", 64).output("b").plan().peak(), Bytes(192));
    let read = net().node("e", 64, &["b", "c"]).output("e").plan();
    assert_eq!(read.places().map(|(key, _)| key).collect::<Vec<_>>(), ["x", "a", "c", "b", "e"]);
    // Other nodes may reuse what they freed.
    let free = PlanOptions::default().with_unread(Unread::Free);
    let later = net().node("e", 96, &["b"]).node("f", 160, &["e"]).output("f");
    assert_eq!(plan_tensor_graph(&later, &free).unwrap().peak(), Bytes(256));
}

#[test]
fn the_main_result_of_a_node_may_overwrite_a_source_and_another_may_not() {
    let net = || Net::default().input("x", 64).in_place("a", 64, &["x"]).also("a", "b", 64).output("a").output("b");
    assert_eq!((net().plan().overwrites("a"), net().plan().peak()), (Some("x"), Bytes(128)));
    let mut other = Net::default().input("x", 64).node("a", 64, &["x"]).also("a", "b", 64).output("a").output("b");
    other.overwrites.push(("b", "x"));
    assert_eq!(other.plan().peak(), Bytes(192));
}

#[test]
fn results_are_listed_once() {
    let net = Net::default().input("x", 64).node("a", 64, &["x"]).also("a", "b", 64).output("a");
    assert!(net.clone().also("a", "b", 64).refusal().contains("twice"), "{}", net.clone().also("a", "b", 64).refusal());
    assert!(net.clone().also("a", "a", 64).refusal().contains("twice"));
    assert_eq!(net.also("a", "x", 64).refusal(), "tensor x: listed as an input and as a node");
}

#[test]
fn a_source_that_is_read_again_is_not_overwritten() {
    let net = Net::default().input("x", 64).in_place("a", 64, &["x"]).in_place("b", 64, &["a", "x"]).output("b");
    let plan = net.plan();
    assert_eq!((plan.overwrites("a"), plan.peak()), (None, Bytes(128)));
    assert!(plan.overwrites("b").is_some());
}

#[test]
fn a_source_that_two_slots_read_is_not_overwritten() {
    let twice = Net::default().input("x", 64).in_place("a", 64, &["x", "x"]).output("a");
    assert_eq!(twice.plan().overwrites("a"), None);
    let halves = Net::default().input("x", 64).view("v", 64, "x", 0).view("w", 32, "x", 32);
    assert_eq!(halves.in_place("a", 64, &["v", "w"]).output("a").plan().overwrites("a"), None);
}

#[test]
fn outputs_and_external_tensors_are_not_overwritten() {
    let output = Net::default().input("x", 64).node("a", 64, &["x"]).in_place("b", 64, &["a"]).output("a").output("b");
    assert_eq!(output.plan().overwrites("b"), None);
    let external = Net::default().external("w", 64).in_place("a", 64, &["w"]).output("a");
    let plan = external.plan();
    assert_eq!((plan.overwrites("a"), plan.place("w"), plan.peak()), (None, None, Bytes(64)));
}

#[test]
fn a_view_that_is_no_node_is_where_its_root_is() {
    let net = Net::default().input("x", 64).node("q", 64, &["x"]).view("v", 32, "q", 32).view("w", 16, "v", 8);
    let net = net.node("a", 64, &["w"]).node("b", 64, &["a"]).output("b");
    let plan = net.plan();
    // `q` dies with its view.
    assert_eq!(plan.peak(), Bytes(128));
    let (q, w) = (plan.place("q").unwrap(), plan.place("w").unwrap());
    assert_eq!((w.offset.0 - q.offset.0, w.size), (40, Bytes(16)));
}

#[test]
fn a_node_overwrites_the_root_of_a_view_only_at_its_start() {
    let net = |offset| {
        let net = Net::default().input("x", 64).node("q", 64, &["x"]).view("v", 32, "q", offset);
        net.in_place("a", 32, &["v"]).output("a").plan()
    };
    assert_eq!(net(0).overwrites("a"), Some("v"));
    assert_eq!(net(32).overwrites("a"), None);
}

#[test]
fn an_output_that_is_a_view_keeps_its_root() {
    let net = Net::default().input("x", 64).node("q", 64, &["x"]).view("v", 32, "q", 32);
    let net = net.node("a", 64, &["q"]).node("b", 64, &["a"]).output("v").output("b");
    assert_eq!(net.plan().peak(), Bytes(192));
    let plan = plan_tensor_graph(&net, &PlanOptions::default().with_unread(Unread::Free)).unwrap();
    plan.replay(&net).unwrap();
    assert_eq!(plan.peak(), Bytes(192));
}

#[test]
fn a_node_that_is_a_view_writes_into_its_root() {
    let net = Net::default().input("x", 64).external("cache", 256).view("slot", 64, "cache", 128);
    let net = net.node("slot", 64, &["x"]).node("y", 64, &["cache"]).output("y");
    assert_eq!(net.plan().peak(), Bytes(64));
    let early = Net::default().input("x", 64).view("v", 32, "q", 0).node("v", 32, &["x"]).node("q", 64, &["x"]);
    assert!(early.refusal().starts_with("node 0 (tensor v): writes into tensor q, which node 1 writes later"));
}

#[test]
fn an_input_may_be_a_view() {
    let net = Net::default().input("staging", 64).input("v", 32).view("v", 32, "staging", 32);
    let plan = net.node("a", 32, &["v"]).output("a").plan();
    assert_eq!(plan.place("v").unwrap().offset.0, plan.place("staging").unwrap().offset.0 + 32);
}

#[test]
fn an_input_is_not_written_into_the_result_of_a_node() {
    // Before the run, the bytes of `n` may be those of `x`.
    let net = Net::default().input("x", 64).input("v", 32).view("v", 32, "n", 0);
    let net = net.node("n", 64, &["x"]).node("m", 32, &["v"]).output("m");
    assert!(net.refusal().contains("tensor v"), "{}", net.refusal());
}

#[test]
fn memories_are_planned_apart() {
    let mut net = chain();
    net.memories.insert("b", 1);
    let plan = net.plan();
    assert_eq!(plan.place("b").unwrap().memory, MemoryId::nth(1));
    assert_eq!(plan.buffers().count(), 2);
    net.memories.insert("c", 7);
    assert_eq!(net.refusal(), "tensor c: unknown memory: expected one of 2 memories, got 7");
}

#[test]
fn wrong_graphs_are_refused_by_name() {
    let net = || Net::default().input("x", 64).node("a", 64, &["x"]);
    let refused = [
        (
            net().node("b", 64, &["a", "gone"]),
            "node b: unknown source in slot 1: expected a node, an input, a view or an external tensor, got tensor gone",
        ),
        (net().output("gone"), "output gone: unknown: expected a node, an input, a view or an external tensor"),
        (
            net().node("b", 8, &["v"]).view("v", 8, "gone", 0),
            "tensor v: unknown root: expected a node, an input or an external tensor, got tensor gone",
        ),
        (
            net().node("b", 8, &["v"]).view("v", 8, "v", 0),
            "tensor v: a view of itself, directly or through other views",
        ),
        (
            net().node("b", 8, &["u"]).view("u", 8, "v", 0).view("v", 8, "w", 0).view("w", 8, "v", 0),
            "tensor u: a view of itself, directly or through other views",
        ),
        (net().node("x", 64, &[]), "tensor x: listed as an input and as a node"),
        (net().node("a", 64, &["x"]), "tensor a: listed twice, as node 0 and as node 1"),
        (net().node("b", 64, &["b"]), "node 1 (tensor b): reads itself in slot 0, before it is written"),
        (
            net().node("b", 64, &["c"]).node("c", 64, &["b"]),
            "node 1 (tensor b): reads tensor c in slot 0, which node 2 writes later",
        ),
        (
            net().node("b", 8, &["v"]).view("v", 8, "a", 57),
            "tensor v: view outside of tensor a: expected at most 64 bytes, got 8 at offset 57",
        ),
        (
            net().node("b", 8, &["v"]).view("v", 8, "w", u64::MAX).view("w", 64, "a", 1),
            "tensor v: view outside of tensor a: expected at most 64 bytes, got 8 at offset 18446744073709551615",
        ),
        (
            net().size_of("a", u64::MAX),
            "tensors: too large: expected fewer than 2^64 bytes in all, got tensor a of 18446744073709551615 bytes and others",
        ),
    ];
    for (net, message) in refused {
        assert!(net.refusal().starts_with(message), "{}", net.refusal());
    }
}

#[test]
fn a_plan_fits_smaller_tensors_and_says_which_has_outgrown() {
    let plan = chain().plan();
    plan.fits(&chain().size_of("a", 32).size_of("c", 1)).unwrap();
    let misfit = |net: Net| plan.fits(&net).unwrap_err().to_string();
    assert_eq!(
        misfit(chain().size_of("b", 65)),
        "tensor b: larger than its place in the plan: expected at most 64 bytes, got 65"
    );
    let other = Net::default().input("x", 64).node("a", 64, &["x"]).node("b", 64, &["x"]).node("c", 64, &["b"]);
    assert_eq!(misfit(other.output("c")), "tensor b: changed since the plan was made: it has other sources");
    assert_eq!(misfit(chain().output("a")), "tensor a: changed since the plan was made: its flags are others");
    let renamed = Net::default().input("x", 64).node("a", 64, &["x"]).node("d", 64, &["a"]).node("c", 64, &["d"]);
    assert_eq!(misfit(renamed.output("c")), "tensor d: changed since the plan was made: it is another tensor");
    assert_eq!(misfit(chain().node("d", 64, &["c"])), "nodes: another number than planned: expected 3, got 4");
}

#[test]
fn a_plan_does_not_outlive_its_permissions() {
    let net = Net::default().input("x", 64).in_place("a", 64, &["x"]).output("a");
    let plan = net.plan();
    plan.fits(&net.clone().size_of("x", 32).size_of("a", 16)).unwrap();
    let mut withdrawn = net.clone();
    withdrawn.overwrites.clear();
    let message = plan.fits(&withdrawn).unwrap_err().to_string();
    assert_eq!(message, "tensor a: planned over its source in slot 0, which it may not overwrite any more");
    assert!(plan.fits(&net.clone().size_of("x", 8)).is_err());
    let faults = plan.replay(&withdrawn).unwrap_err().to_string();
    assert!(faults.contains("tensor a") && faults.contains("tensor x"), "{faults}");
    let json = plan.to_json();
    KeyedPlan::from_json(&json, &net).unwrap();
    let message = KeyedPlan::from_json(&json, &withdrawn).unwrap_err().to_string();
    assert!(message.contains("tensor a"), "{message}");
}

#[test]
fn a_plan_survives_its_file() {
    let net = Net::default().input("x", 64).external("w", 8).in_place("a", 32, &["x", "w"]).view("v", 16, "a", 8);
    let net = net.node("b", 64, &["v"]).output("b");
    let plan = net.plan();
    let again = KeyedPlan::from_json(&plan.to_json(), &net).unwrap();
    assert!(again.places().eq(plan.places()));
    assert_eq!((again.overwrites("a"), again.peak()), (Some("x"), plan.peak()));
    // The compact form of the graph, which the text of a graph is read as, keeps what may be overwritten.
    let keyed = KeyedGraph::new(&net).unwrap();
    let compact = keyed.assigned().compact().unwrap();
    assert_eq!(plan_graph(&compact, &PlanOptions::default()).unwrap().peak(), plan.peak());
    let error = KeyedPlan::from_json(&plan.to_json(), &net.clone().size_of("a", 33)).unwrap_err();
    assert!(error.to_string().contains("block of tensor a too small: expected at least 33 bytes"), "{error}");
    assert!(KeyedPlan::from_json("{}", &net).is_err());
}

#[test]
fn permitted_overlaps_survive_the_text_of_a_graph() {
    let net = Net::default().input("x", 64).overlapping("a", 128, "x", 65).output("a");
    let graph = KeyedGraph::new(&net).unwrap();
    assert_survives(graph.assigned());
    assert!(graph.assigned().to_string().contains("overlaps=0+65"), "{}", graph.assigned());
    let refused = |text: &str| text.parse::<AssignedGraph>().unwrap_err().to_string();
    assert_eq!(
        refused("x = input 4; y = neg x overlaps=0+4"),
        "line 1, column 24: expected overwrites=, overlaps= and results= only where the table does not have the operation"
    );
    assert_eq!(
        refused("x = input 4; y = ?f 4 x overlaps=1+4"),
        "line 1, column 25: expected slots of sources, each below 16"
    );
    assert_eq!(refused("x = input 4; y = ?f 4 x overlaps=0"), "line 1, column 35: expected +");
}

#[test]
fn permissions_survive_the_text_of_a_graph() {
    let graph = |text: &str| text.parse::<AssignedGraph>().map_err(|error| error.to_string());
    let peak = |text| plan_graph(&graph(text).unwrap(), &PlanOptions::default()).unwrap().peak();
    let ours = peak("x = input f32[64]; y = relu x; z = relu y !output");
    assert_eq!(peak("x = input f32[64]; y = ?my f32[64] x overwrites=0; z = ?my f32[64] y overwrites=0 !output"), ours);
    assert_eq!(peak("x = input f32[64]; y = ?my f32[64] x; z = ?my f32[64] y !output"), Bytes(2 * ours.0));
    let refused = |end: &str| graph(&format!("x = input f32[64]; y = {end}")).unwrap_err();
    let only = "expected overwrites=, overlaps= and results= only where the table does not have the operation";
    assert!(refused("?ADD f32[64] x x overwrites=0").ends_with(only));
    assert!(refused("?my f32[64] x overwrites=1").ends_with("expected slots of sources, each below 16"));
    let net = Net::default().input("x", 64).external("w", 8).in_place("a", 32, &["w", "x"]).output("a");
    assert_survives(KeyedGraph::new(&net).unwrap().assigned());
    let text = KeyedGraph::new(&net).unwrap().assigned().to_string();
    assert!(text.contains("?add") && text.contains("overwrites=0,1"), "{text}");
}

#[test]
fn places_of_another_allocator_are_checked() {
    let graph = KeyedGraph::new(&chain()).unwrap();
    let at = |offset| Some(TensorPlace::new(MemoryId::FIRST, Id::from_index(0).unwrap(), Offset(offset), Bytes(64)));
    let by = |x, a, b, c| {
        graph.replay(|key| match key {
            "x" => at(x),
            "a" => at(a),
            "b" => at(b),
            _ => at(c),
        })
    };
    by(0, 64, 0, 64).unwrap();
    let error = by(0, 64, 64, 0).unwrap_err();
    assert!(matches!(error, TensorGraphError::Replay(_)));
    assert!(error.to_string().contains("tensor b") && error.to_string().contains("tensor a"), "{error}");
}

#[test]
fn keys_lead_to_numbers_and_back() {
    let graph = KeyedGraph::new(&chain()).unwrap();
    for key in ["x", "a", "b", "c"] {
        assert_eq!(graph.key(graph.number(key).unwrap()), Some(key));
    }
    let plan = chain().plan();
    assert_eq!(plan.key(plan.number("b").unwrap()), Some("b"));
    assert_eq!(plan.graph_plan().place(plan.number("b").unwrap()), plan.place("b"));
}

/// A graph of ours behind the trait, as that of an engine.
struct Presented<'a> {
    assigned: &'a AssignedGraph,
    /// Inputs and constants, each perhaps several times.
    inputs: Vec<Key>,
    memories: BTreeMap<Key, MemoryId>,
    /// Every size is divided by this.
    shrink: u64,
    /// Lets nodes overwrite sources at random instead of by their operations.
    luck: Option<u64>,
    /// How often the sources of a node were requested.
    calls: Cell<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(TensorId);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0.index())
    }
}

impl<'a> Presented<'a> {
    fn new(assigned: &'a AssignedGraph) -> Self {
        let (graph, assignment) = (assigned.graph(), assigned.assignment());
        let (leafs, nodes) = (graph.leafs().iter().copied(), graph.nodes().iter().copied());
        let mut memories: BTreeMap<Key, MemoryId> =
            leafs.clone().map(Key).zip(assignment.leafs.iter().copied()).collect();
        memories.extend(nodes.clone().map(Key).zip(assignment.nodes.iter().copied()));
        let is_node: BTreeSet<TensorId> = nodes.clone().collect();
        // Constants that nodes read may be in neither list.
        let read = nodes.flat_map(|node| graph.sources(node).iter().flatten().map(|source| graph.root(*source)));
        let constants = read.filter(|root| graph.tensor(*root).op == Op::None && !is_node.contains(root));
        let inputs = leafs.chain(constants).map(Key).collect();
        Self { assigned, inputs, memories, shrink: 1, luck: None, calls: Cell::new(0) }
    }
}

impl TensorGraph for Presented<'_> {
    type Key = Key;

    fn nodes(&self) -> impl Iterator<Item = Key> {
        self.assigned.graph().nodes().iter().copied().map(Key)
    }

    fn sources(&self, node: Key) -> impl Iterator<Item = Key> {
        self.calls.set(self.calls.get() + 1);
        // A copy that names itself as its destination does not read it.
        let sources = self.assigned.graph().sources(node.0).iter().copied().flatten();
        sources.filter(move |source| *source != node.0).map(Key)
    }

    fn size(&self, tensor: Key) -> Bytes {
        Bytes(self.assigned.graph().tensor(tensor.0).nbytes().0 / self.shrink)
    }

    fn overlap(&self, node: Key, source: Key) -> Option<Bytes> {
        let graph = self.assigned.graph();
        let slot = graph.sources(node.0).iter().position(|it| *it == Some(source.0))?;
        graph.may_overlap(node.0, slot).map(|distance| Bytes(distance.0 / self.shrink))
    }

    fn inputs(&self) -> impl Iterator<Item = Key> {
        self.inputs.iter().copied()
    }

    fn outputs(&self) -> impl Iterator<Item = Key> {
        let graph = self.assigned.graph();
        let listed = graph.leafs().iter().chain(graph.nodes()).copied();
        listed.filter(|tensor| graph.tensor(*tensor).flags.is_output()).map(Key)
    }

    fn is_external(&self, tensor: Key) -> bool {
        self.assigned.graph().tensor(tensor.0).external
    }

    fn view_of(&self, tensor: Key) -> Option<(Key, Bytes)> {
        self.assigned.graph().tensor(tensor.0).view.map(|view| (Key(view.root), Bytes(view.offset.0 / self.shrink)))
    }

    fn may_overwrite(&self, node: Key, source: Key) -> bool {
        if let Some(luck) = self.luck {
            let seed = luck ^ (node.0.index() as u64) << 32 ^ source.0.index() as u64;
            return Choices::from_seed(seed).once_in(2);
        }
        let graph = self.assigned.graph();
        let slot = graph.sources(node.0).iter().position(|it| *it == Some(source.0)).unwrap();
        graph.may_overwrite(node.0, slot)
    }

    fn memories(&self) -> Vec<Memory> {
        self.assigned.memories().iter().cloned().collect()
    }

    fn memory(&self, tensor: Key) -> MemoryId {
        self.memories.get(&tensor).copied().unwrap_or(MemoryId::FIRST)
    }
}

/// Returns the graph with tensors that take what they span, in memories without an extra lifetime and without limits:
/// so its plan depends on what a caller can say of it, and not on whether ggml's own layout happens to fit the
/// buffers better.
fn plain(assigned: &AssignedGraph) -> AssignedGraph {
    let memories: Vec<Memory> = assigned
        .memories()
        .iter()
        .map(|it| Memory { extra_lifetime: 0, fusion: Fusion::None, max_buffer: None, ..it.clone() })
        .collect();
    let sizes = AllocSizes::new(memories.len());
    AssignedGraph::new(assigned.graph().clone(), memories, assigned.assignment().clone(), sizes).unwrap()
}

#[test]
fn a_presented_recording_needs_as_many_bytes_as_the_recorded_one() {
    let mut compared = 0;
    recordings::each_graph(|name, recorded| {
        let (assigned, options) = (plain(&recorded.assigned), PlanOptions::default());
        let graph = assigned.graph();
        // The copies and marks of ggml's scheduler have no operation, and a caller has no word for these.
        if graph.nodes().iter().any(|node| graph.tensor(*node).op == Op::None) {
            return;
        }
        let ours = plan_graph(&assigned, &options).unwrap();
        let theirs = plan_tensor_graph(&Presented::new(&assigned), &options).unwrap();
        assert_eq!(theirs.peak(), ours.peak(), "{name}");
        compared += 1;
    });
    assert!(compared > 100, "{compared}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: inputs(500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_presented_graph_needs_as_many_bytes_as_a_built_one(seed: u64, free: bool) {
        let assigned = plain(&random_graph(&mut Choices::from_seed(seed)));
        let unread = if free { Unread::Free } else { Unread::Keep };
        let options = PlanOptions::default().with_unread(unread);
        let graph = Presented::new(&assigned);
        let ours = plan_graph(&assigned, &options).unwrap();
        let theirs = plan_tensor_graph(&graph, &options).unwrap();
        // Now and then ggml's own in-place decisions make a smaller plan of a graph of ours. A caller's graph has none of these.
        let taken = |node: Key| {
            let (_, slot) = ours.in_place_aliases().iter().find(|(taker, _)| *taker == node.0)?;
            assigned.graph().sources(node.0)[*slot as usize].map(Key)
        };
        if graph.nodes().all(|node| theirs.overwrites(node) == taken(node)) {
            prop_assert_eq!(theirs.peak(), ours.peak(), "{}", assigned);
        }
        theirs.replay(&graph).unwrap();
        theirs.fits(&graph).unwrap();
        let again = KeyedPlan::from_json(&theirs.to_json(), &graph).unwrap();
        prop_assert!(again.places().eq(theirs.places()));
    }

    #[test]
    fn a_plan_replays_for_shrunk_tensors(seed: u64, shrink in 2..9u64) {
        let assigned = plain(&random_graph(&mut Choices::from_seed(seed)));
        let plan = plan_tensor_graph(&Presented::new(&assigned), &PlanOptions::default()).unwrap();
        let small = Presented { shrink, ..Presented::new(&assigned) };
        // Rounding may put a view outside its root.
        if KeyedGraph::new(&small).is_ok() {
            plan.fits(&small).unwrap();
            plan.replay(&small).unwrap();
        }
    }

    #[test]
    fn only_what_is_permitted_is_overwritten(seed: u64, luck: u64) {
        let assigned = plain(&random_graph(&mut Choices::from_seed(seed)));
        let graph = Presented { luck: Some(luck), ..Presented::new(&assigned) };
        let plan = plan_tensor_graph(&graph, &PlanOptions::default()).unwrap();
        plan.replay(&graph).unwrap();
        for node in graph.nodes() {
            if let Some(source) = plan.overwrites(node) {
                prop_assert!(graph.may_overwrite(node, source) && graph.size(node) <= graph.size(source));
                prop_assert_eq!(plan.place(node).unwrap().offset, plan.place(source).unwrap().offset);
            }
        }
        KeyedPlan::from_json(&plan.to_json(), &graph).unwrap();
        assert_survives(plan.graph_plan().assigned());
    }

    #[test]
    fn any_presented_graph_is_planned_or_refused(seed: u64) {
        let assigned = scrambled_graph(&mut Choices::from_seed(seed));
        let graph = Presented::new(&assigned);
        match plan_tensor_graph(&graph, &PlanOptions::default()) {
            Ok(plan) => {
                plan.replay(&graph).unwrap();
                plan.fits(&graph).unwrap();
                KeyedPlan::from_json(&plan.to_json(), &graph).unwrap();
            }
            Err(error) => prop_assert!(error.to_string().contains('#'), "{error}"),
        }
        prop_assert!(graph.calls.get() <= 4 * assigned.graph().nodes().len());
    }
}

/// Sizes of results and their sources, in order; `halves` has the results that a node computes beside itself.
struct Steps {
    nodes: Vec<(&'static str, u64, Vec<&'static str>)>,
    halves: Vec<(&'static str, &'static str)>,
}

impl TensorGraph for Steps {
    type Key = &'static str;

    fn nodes(&self) -> impl Iterator<Item = &'static str> {
        self.nodes.iter().map(|node| node.0).filter(|node| !self.halves.iter().any(|half| half.1 == *node))
    }

    fn more_results(&self, node: &'static str) -> impl Iterator<Item = &'static str> {
        self.halves.iter().filter(move |half| half.0 == node).map(|half| half.1)
    }

    fn inputs(&self) -> impl Iterator<Item = &'static str> {
        core::iter::once("x")
    }

    fn outputs(&self) -> impl Iterator<Item = &'static str> {
        core::iter::once("y")
    }

    fn sources(&self, node: &'static str) -> impl Iterator<Item = &'static str> {
        self.nodes.iter().filter(move |it| it.0 == node).flat_map(|it| it.2.iter().copied())
    }

    fn size(&self, tensor: &'static str) -> Bytes {
        Bytes(self.nodes.iter().find(|node| node.0 == tensor).map_or(64, |node| node.1))
    }
}

#[test]
fn a_callers_graph_gets_the_order_by_its_keys() {
    let nodes =
        vec![("wide", 4096, vec!["x"]), ("a", 4096, vec!["x"]), ("b", 64, vec!["a"]), ("y", 64, vec!["wide", "b"])];
    let options = PlanOptions::default().with_order(Order::Best);
    let mut steps = Steps { nodes, halves: Vec::new() };
    let plan = plan_tensor_graph(&steps, &options).unwrap();
    assert_eq!(plan.order().map(Iterator::collect::<Vec<_>>), Some(vec!["a", "b", "wide", "y"]));
    plan.replay(&steps).unwrap();
    assert!(plan.fits(&steps).is_ok());
    steps.nodes.push(("more", 64, vec!["x"]));
    steps.halves.push(("wide", "more"));
    let plan = plan_tensor_graph(&steps, &options).unwrap();
    assert_eq!(plan.order().map(Iterator::collect::<Vec<_>>), Some(vec!["a", "b", "wide", "y"]));
    plan.replay(&steps).unwrap();
}

/// `upper` and `lower` are halves of `x`, written by one node. Were they two, `wide` could be made and be gone before `upper`.
fn halves() -> Steps {
    let nodes = vec![
        ("upper", 2048, vec!["x"]),
        ("lower", 2048, vec!["x"]),
        ("wide", 8192, vec!["lower"]),
        ("most", 64, vec!["wide"]),
        ("scaled", 2048, vec!["upper", "most"]),
        ("y", 64, vec!["x", "most", "scaled"]),
    ];
    Steps { nodes, halves: vec![("upper", "lower")] }
}

#[test]
fn what_reads_one_of_several_results_runs_after_the_node_that_computes_them() {
    let options = PlanOptions::default().with_order(Order::Best);
    let steps = halves();
    let own = plan_tensor_graph(&steps, &PlanOptions::default()).unwrap();
    let plan = plan_tensor_graph(&steps, &options).unwrap();
    assert!(plan.order().is_none());
    assert_eq!(plan.peak(), own.peak());
    let keyed = KeyedGraph::new(&steps).unwrap();
    assert!(plan_graph(keyed.assigned(), &options).unwrap().order().is_none());
    let text = keyed.assigned().to_string();
    assert!(text.contains(" results=1 "), "{text}");
    let read: AssignedGraph = text.parse().unwrap();
    assert_eq!(read.to_string(), text);
    assert!(plan_graph(&read, &options).unwrap().order().is_none());
    // Were they two nodes, there would be something to gain.
    let apart = Steps { halves: Vec::new(), ..steps };
    assert!(plan_tensor_graph(&apart, &options).unwrap().peak() < own.peak());
}
