//! What a map knows of tensors: last uses, layers, roles, and the bytes alive at a step.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::{AssignedGraph, GraphStrategy, PlanOptions, Reuse, Unread, plan_graph};
use steeve_plan::file::PlanFile;
use steeve_plan::{Bytes, Lifetime, Offset, Step};
use steeve_view::{LastUse, MemoryMap, PlanMap, Role, Tile, byte_sums};

fn map(text: &str) -> PlanMap {
    let graph: AssignedGraph = text.parse().unwrap();
    PlanMap::of_graph("steeve", &plan_graph(&graph, &PlanOptions::default()).unwrap())
}

fn tile<'a>(map: &'a PlanMap, name: &str) -> &'a Tile {
    map.memories.iter().flat_map(|memory| &memory.tiles).find(|tile| tile.name == name).unwrap()
}

#[test]
fn the_last_reader_counts_also_through_a_view() {
    let map = map("\
x = input f32[64]
unused = input f32[64]
a = silu x
part = view f32[16]+0 a
b = neg x
c = neg part
d = add b b !output
e = neg c
");
    assert_eq!(tile(&map, "x").last_use, LastUse::Read { node: 2 }, "b is the third node");
    assert_eq!(tile(&map, "a").last_use, LastUse::Read { node: 3 }, "through the view, not at the view");
    assert_eq!(tile(&map, "unused").last_use, LastUse::Unread);
    assert_eq!(tile(&map, "d").last_use, LastUse::Output);
    assert_eq!(tile(&map, "e").last_use, LastUse::Unread);
}

#[test]
fn an_output_through_a_view_keeps_its_root() {
    let map = map("x = input f32[64]; a = silu x; part = view f32[16]+0 a !output; b = neg a; c = add b b !output");
    assert_eq!(tile(&map, "a").last_use, LastUse::Output);
}

#[test]
fn an_input_that_no_node_reads_is_unread_under_every_rule() {
    let graph: AssignedGraph = "x = input f32[64]; unused = input f32[64]; a = silu x !output".parse().unwrap();
    for unread in [Unread::Keep, Unread::FreeInputs, Unread::Free] {
        let options = PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::Extended).with_unread(unread);
        let map = PlanMap::of_graph("steeve", &plan_graph(&graph, &options).unwrap());
        assert_eq!(tile(&map, "unused").last_use, LastUse::Unread);
    }
}

#[test]
fn what_has_no_name_belongs_to_the_layer_around_it() {
    let map = map("\
x = input f32[64]
inp = silu x
node_1 = neg inp
norm-0 = rms_norm node_1
node_3 = neg norm-0
l_out-0 = add node_3 norm-0
node_5 = neg l_out-0
Qcur-1 = silu node_5
l_out-1 = add Qcur-1 l_out-0
node_8 = neg l_out-1
result = silu node_8 !output
");
    let layer = |name: &str| {
        let tiles = || map.memories.iter().flat_map(|memory| &memory.tiles);
        let also = |tile: &&Tile| tile.name == name || tile.nested.iter().any(|it| it.name == name);
        tiles().find(also).unwrap().layer
    };
    assert_eq!([layer("inp"), layer("node_1"), layer("norm-0"), layer("node_3")], [None, None, Some(0), Some(0)]);
    assert_eq!([layer("node_5"), layer("l_out-1"), layer("node_8")], [Some(1), Some(1), None]);
}

#[test]
fn copies_of_weights_have_a_role_of_their_own() {
    let map = map("\
x = input f32[64,8]
conv.weight = external f32[64,64]
cache_k_l0 = external f32[64,64]
kept = external f32[64,64]
w = cont conv.weight
turned = transpose w
w2 = cont turned
k = cont cache_k_l0
copy = cont kept
y = mul_mat w x
z = mul_mat w2 x
u = mul_mat k x
v = mul_mat copy x
s = add y z
t = add s u
r = add t v !output
");
    assert_eq!(tile(&map, "w").role, Role::WeightCopy);
    assert_eq!(tile(&map, "w2").role, Role::WeightCopy, "a copy of a copy");
    assert_eq!(tile(&map, "copy").role, Role::WeightCopy);
    assert_ne!(tile(&map, "k").role, Role::WeightCopy, "a cache is no weight");
    assert_ne!(tile(&map, "y").role, Role::WeightCopy);
}

#[test]
fn sums_are_the_live_bytes_three_times_over() {
    let map = map("\
x = input f32[64,32]
Qcur-0 = silu x
Kcur-0 = neg x
kq-0 = add Qcur-0 Kcur-0
ffn_up-1 = silu kq-0
l_out-1 = add ffn_up-1 x !output
");
    let memory = &map.memories[0];
    let last = memory.tiles.iter().map(|tile| tile.life.end().0).max().unwrap();
    let mut most = 0;
    for step in (0..last).map(Step) {
        let alive = memory.alive_at(step);
        assert!(alive.windows(2).all(|pair| pair[0].occupied >= pair[1].occupied));
        let live: u64 = alive.iter().map(|tile| tile.occupied.0).sum();
        most = most.max(live);
        let sums = byte_sums(&alive);
        for list in [&sums.by_role, &sums.by_operation, &sums.by_layer] {
            assert_eq!(list.iter().map(|(_, bytes)| bytes.0).sum::<u64>(), live);
            assert!(list.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        }
    }
    // Tiles in place of others count once: else the sum would pass the peak.
    assert!(memory.tiles.iter().any(|tile| tile.follows.is_some()));
    assert!(most <= memory.peak().0);
    assert_eq!(most, memory.bound.0);
}

#[test]
fn sums_name_what_has_no_layer_and_no_operation() {
    let mut tile = Tile::new("FAKE0#blk.3.ffn_up.weight#0", Lifetime::new(0, 2).unwrap(), Offset(0), Bytes(8));
    tile.occupied = Bytes(64);
    let plain = Tile::new("x", Lifetime::new(0, 1).unwrap(), Offset(64), Bytes(4));
    let memory = MemoryMap::new("memory", vec![Bytes(128)], vec![plain, tile]);
    let sums = byte_sums(&memory.alive_at(Step(0)));
    let listed =
        |list: &[(String, Bytes)]| list.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect::<Vec<_>>();
    assert_eq!(listed(&sums.by_role), ["weight copy 64", "other 4"]);
    assert_eq!(listed(&sums.by_operation), ["copy 64", "other 4"]);
    assert_eq!(listed(&sums.by_layer), ["layer 3 64", "no layer 4"]);
    assert_eq!(memory.alive_at(Step(1)).len(), 1);
}

/// Checks a block of a model that names nothing: attention with a soft-max in place, a feed-forward part and both
/// residuals.
#[test]
fn what_has_no_name_has_the_role_of_what_it_is_made_for() {
    let map = map("\
x = input f32[64,8]
leaf_1 = external f32[64,64]
leaf_2 = external f32[64,256]
leaf_3 = external f32[256,64]
leaf_4 = external f32[256]
node_0 = norm x
node_1 = mul_mat leaf_1 node_0
node_2 = mul_mat leaf_1 node_0
node_3 = mul_mat node_1 node_2
node_4 = soft_max node_3
node_5 = mul_mat leaf_1 node_0
node_6 = transpose node_5
node_7 = cont node_6
node_8 = mul_mat node_7 node_4
node_9 = mul_mat leaf_1 node_8
node_10 = add node_9 x
node_11 = norm node_10
node_12 = mul_mat leaf_2 node_11
node_13 = add node_12 leaf_4
node_14 = gelu node_13
node_15 = mul_mat leaf_3 node_14
node_16 = add node_15 node_10
node_17 = norm node_16 !output
");
    let table = [
        (Role::Norm, vec![0, 11]),
        (Role::Attention, vec![1, 2, 3, 4, 5, 7, 8, 9]),
        (Role::FeedForward, vec![12, 13, 14, 15]),
        (Role::Residual, vec![10, 16]),
        (Role::Output, vec![17]),
    ];
    for (role, nodes) in table {
        for node in nodes {
            let name = format!("node_{node}");
            let of = |tile: &&Tile| tile.name == name || tile.nested.iter().any(|it| it.name == name);
            let tile = map.memories[0].tiles.iter().find(of).unwrap();
            assert_eq!(tile.role, role, "{name} in {}", tile.name);
        }
    }
}

#[test]
fn what_has_no_name_has_the_role_and_the_layer_of_its_weight() {
    let map = map(r#"
x = input f32[64,8]
token_embd.weight = external f32[64,100]
blk.3.ssm_in.weight = external f32[64,64]
copy = leaf f32[64,64] "FAKE0#blk.4.ffn_up.weight#0"
node_0 = mul_mat blk.3.ssm_in.weight x
node_1 = mul_mat copy node_0
node_2 = mul_mat token_embd.weight node_1
node_3 = tanh node_2
y = scale node_3 !output
"#);
    let known = |name: &str| (tile(&map, name).role, tile(&map, name).layer);
    assert_eq!(known("node_0"), (Role::State, Some(3)));
    assert_eq!(known("node_1"), (Role::FeedForward, Some(4)));
    assert_eq!(known("FAKE0#blk.4.ffn_up.weight#0"), (Role::WeightCopy, Some(4)));
    assert_eq!(known("node_2"), (Role::Output, None), "logits, not yet scaled");
}

#[test]
fn what_no_node_reads_is_for_the_caller() {
    let map =
        map("x = input f32[64,8]; leaf_1 = external f32[64,100]; Qcur-0 = silu x; node_1 = mul_mat leaf_1 Qcur-0");
    assert_eq!(tile(&map, "node_1").role, Role::Output);
    assert_eq!(tile(&map, "node_1").last_use, LastUse::Unread);
}

#[test]
fn a_copy_of_a_leaf_without_a_name_has_no_role_of_a_neighbour() {
    let map = map(r#"
Kcur-0 = leaf f32[8]
copy = leaf f32[8] "FAKE0#leaf_7#0"
y = add Kcur-0 copy !output
"#);
    assert_eq!(tile(&map, "FAKE0#leaf_7#0").role, Role::Copy);
}

#[test]
fn a_memory_is_used_from_its_first_node_to_its_last() {
    let map = map("\
memory gpu align=128
memory host align=64
tokens = input f32[64] @host
late = input f32[64] @gpu
a = silu tokens @host
b = neg a @host
c = add late b @gpu
part = view f32[16]+0 c @gpu
d = silu part @gpu
e = neg d !output @gpu
f = neg e @host
");
    let used = |name: &str| map.memory(name).unwrap().used.unwrap();
    // Node n runs at step n + 1; the view is node 3 and uses nothing.
    assert_eq!(used("host"), (Step(1), Step(8)), "c reads what the host made, f is made there");
    assert_eq!(used("gpu"), (Step(3), Step(8)), "an input that is there before the run is used when it is read");
    assert_eq!(MemoryMap::new("list", Vec::new(), Vec::new()).used, None);
}

#[test]
fn a_prefix_that_is_kept_for_fusion_says_so() {
    let map = map("\
memory cpu align=32
memory gpu align=32 fusion=kept
wg = external f32[64,256] @gpu
wu = external f32[64,256] @gpu
wd = external f32[256,64] @gpu
s = input f32[64,512] @cpu
x = cont s @gpu
a = rms_norm x @gpu
g = mul_mat wg a @gpu
u = mul_mat wu a @gpu
h = swiglu g u @gpu
y = mul_mat wd h !output @gpu
");
    let prefix = tile(&map, "a (kept for fusion)");
    assert!(prefix.is_prefix && prefix.last_use == LastUse::Fusion && prefix.role == Role::Norm);
    // It follows its tensor, so no byte of it counts twice.
    let (memory, own) = (map.memory("gpu").unwrap(), tile(&map, "a"));
    assert_eq!(own.last_use, LastUse::Read { node: 3 });
    assert_eq!(prefix.life.start(), own.life.end());
    let alive = memory.alive_at(prefix.life.start());
    assert_eq!(alive.iter().filter(|it| it.name.starts_with("a")).count(), 1);
}

#[test]
fn what_no_operation_makes_is_an_input_a_copy_or_a_leaf_whatever_its_role() {
    let map = map(r#"
x = input f32[64]
hidden_norm = leaf f32[64]
copy = leaf f32[64] "FAKE0#embd#0"
a = add x hidden_norm
b = add a copy !output
"#);
    let told = |name: &str| (tile(&map, name).role, tile(&map, name).maker());
    assert_eq!(told("x"), (Role::Input, "input"));
    assert_eq!(told("hidden_norm"), (Role::Norm, "leaf"));
    assert_eq!(told("FAKE0#embd#0"), (Role::Residual, "copy"));
    assert_eq!(told("a").1, "add");
    let alive = map.memories[0].alive_at_peak();
    let mut names: Vec<String> = byte_sums(&alive).by_operation.into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["copy", "input", "leaf"]);
}

const WITH_VIEWS: &str = "\
x = input f32[64]
kq-0 = silu x
part = view f32[16]+0 kq-0
b = neg part
c = neg x
d = neg b
e = add c c !output
";

#[test]
fn a_saved_plan_knows_the_nodes_that_compute_its_blocks() {
    let options = PlanOptions::default().with_reuse(Reuse::None);
    let plan = plan_graph(&WITH_VIEWS.parse::<AssignedGraph>().unwrap(), &options).unwrap();
    let (made, saved) = (PlanMap::of_graph("steeve", &plan), PlanMap::of_file("plan", &plan.to_file()));
    assert_eq!((made.nodes.len(), saved.nodes.len()), (6, 6));
    for (node, (made, saved)) in made.nodes.iter().zip(&saved.nodes).enumerate() {
        if node == 1 {
            assert_eq!((saved.0.as_str(), saved.1.as_str()), ("", ""), "a view has no block");
        } else {
            assert_eq!(made, saved);
        }
    }
    assert_eq!([saved.node_called(0), saved.node_called(1)], ["node 0 (kq-0)", "node 1"]);
    assert_eq!([saved.step_called(Step(0)), saved.step_called(Step(1))], ["before the run", "node 0 (kq-0)"]);
    assert_eq!(saved.why_alive(tile(&saved, "x")), "last read by node 3 (c)");
}

#[test]
fn a_file_may_claim_any_step() {
    let plan = plan_graph(&WITH_VIEWS.parse::<AssignedGraph>().unwrap(), &PlanOptions::default()).unwrap();
    let text = plan.to_json();
    let end = text.split("\"live\":[").nth(1).unwrap().split(']').next().unwrap().to_owned();
    let far = text.replacen(&format!("\"live\":[{end}]"), &format!("\"live\":[0,{}]", u64::MAX), 1);
    let map = PlanMap::of_file("plan", &PlanFile::from_json(&far).unwrap());
    assert!(map.nodes.is_empty());
    assert_eq!(map.node_called(3), "node 3");
}

#[test]
fn tiles_of_a_graph_have_the_numbers_of_their_tensors() {
    let graph: AssignedGraph = WITH_VIEWS.parse().unwrap();
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    for map in [PlanMap::of_graph("steeve", &plan), PlanMap::of_file("plan", &plan.to_file())] {
        for tile in &map.memories[0].tiles {
            let named = |id: &steeve_graph::TensorId| graph.graph().name(*id) == tile.name;
            let id = graph.graph().tensors().ids().position(|id| named(&id)).unwrap();
            assert_eq!(tile.id, Some(id as u32), "{}", tile.name);
        }
    }
    assert_eq!(Tile::new("a", Lifetime::new(0, 1).unwrap(), Offset(0), Bytes(1)).id, None);
}
