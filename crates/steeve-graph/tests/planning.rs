//! Laws of planning on random graphs, and small graphs whose plan is known.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{
    AssignedGraph, Bytes, GraphPlan, GraphPlanError, GraphStrategy, Id, Offset, PlanMismatch, PlanOptions, Reuse,
    Tensor, TensorId, TensorPlace, TensorPlaces, Unread, ggml_placement, plan_graph, plan_together, replay,
};

fn graph(text: &str) -> AssignedGraph {
    text.parse().unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

fn with(strategy: GraphStrategy, reuse: Reuse) -> PlanOptions {
    PlanOptions::new(strategy).with_reuse(reuse)
}

fn plan(graph: &AssignedGraph, reuse: Reuse) -> GraphPlan {
    let plan = plan_graph(graph, &with(GraphStrategy::Fast, reuse)).unwrap();
    replay(graph, &plan.places()).unwrap_or_else(|faults| panic!("{reuse:?}: {faults}"));
    plan
}

fn tensor(graph: &AssignedGraph, name: &str) -> TensorId {
    graph.graph().tensors().ids().find(|id| graph.graph().name(*id) == name).unwrap()
}

/// Returns "name@offset" or "name@chunk:offset" for each tensor with a place in ggml's placement, and the chunk
/// sizes.
fn as_ggml(text: &str) -> (String, Vec<Vec<u64>>) {
    let graph = graph(text);
    let answer = ggml_placement(&graph).unwrap();
    let mut places = Vec::new();
    for (id, place) in answer.places.pairs() {
        if let Some(it) = place {
            let chunk = it.place.buffer.index();
            let chunk = if chunk == 0 { String::new() } else { format!("{chunk}:") };
            places.push(format!("{}@{chunk}{}", graph.graph().name(id), it.place.offset));
        }
    }
    let sizes = answer.chunks.iter().map(|chunks| chunks.iter().map(|chunk| chunk.0).collect()).collect();
    (places.join(" "), sizes)
}

#[test]
fn every_plan_of_every_orderly_graph_replays_and_none_is_above_ggmls() {
    let mut compared = 0;
    for seed in 0..2500 {
        let graph = random_graph(&mut Choices::from_seed(seed));
        let ggml = match plan_graph(&graph, &PlanOptions::new(GraphStrategy::Ggml)) {
            Ok(ggml) => Some(ggml),
            // ggml frees the root of an output that is a view and is read.
            Err(GraphPlanError::GgmlFrees { .. }) => {
                let lost = |tensor: &Tensor| tensor.is_view() && tensor.flags.is_output();
                assert!(graph.graph().tensors().iter().any(lost), "seed {seed}\n{graph}");
                None
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        if let Some(ggml) = &ggml {
            replay(&graph, &ggml.places()).unwrap_or_else(|faults| panic!("seed {seed}, ggml: {faults}"));
        }
        // ggml has no extra lifetime.
        let sound = ggml.filter(|_| graph.memories().iter().all(|it| it.extra_lifetime == 0));
        for reuse in [Reuse::Ggml, Reuse::Extended, Reuse::None] {
            let ours = plan(&graph, reuse);
            ours.fits(&graph).unwrap_or_else(|misfit| panic!("seed {seed}: {misfit}"));
            if reuse == Reuse::Extended {
                assert!(ours.aliased_across_memories().is_none(), "seed {seed}\n{graph}");
            }
            // ggml also writes over what an operation may still read (a soft-max mask, say), and into other memories,
            // and may be smaller so.
            let Some(ggml) = &sound else { continue };
            let places = || TensorPlaces { reuse: Reuse::Extended, ..ggml.places() };
            let honest = || ggml.aliased_across_memories().is_none() && replay(&graph, &places()).is_ok();
            if reuse == Reuse::Ggml || reuse == Reuse::Extended && honest() {
                compared += 1;
                for (our, their) in ours.memories().iter().zip(ggml.memories()) {
                    assert!(
                        our.plan.peak() <= their.plan.peak(),
                        "seed {seed}, {reuse:?}, memory {}\n{graph}",
                        our.memory
                    );
                }
            }
        }
        let freed = plan_graph(&graph, &PlanOptions::default().with_unread(Unread::Free)).unwrap();
        replay(&graph, &freed.places()).unwrap_or_else(|faults| panic!("seed {seed}: {faults}"));
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn any_graph_that_passes_the_door_is_planned_and_replayed() {
    for seed in 0..2500 {
        let graph = scrambled_graph(&mut Choices::from_seed(seed));
        for reuse in [Reuse::Ggml, Reuse::Extended, Reuse::None] {
            let plan = plan_graph(&graph, &with(GraphStrategy::Fast, reuse)).unwrap();
            plan.fits(&graph).unwrap_or_else(|misfit| panic!("seed {seed}: {misfit}"));
            replay(&graph, &plan.places()).unwrap_or_else(|faults| panic!("seed {seed}, {reuse:?}: {faults}\n{graph}"));
        }
        match plan_graph(&graph, &PlanOptions::new(GraphStrategy::Ggml)) {
            Ok(plan) => {
                replay(&graph, &plan.places()).unwrap_or_else(|faults| panic!("seed {seed}, ggml: {faults}\n{graph}"));
            }
            Err(GraphPlanError::GgmlFails { .. } | GraphPlanError::GgmlFrees { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

#[test]
fn a_source_that_dies_is_taken_over_also_through_a_view() {
    let text = "
        x = input f32[64,4]
        q = mul_mat f32[32,4] w x
        r = reshape f32[8,4,4] q
        p = input i32[4]
        y = rope r p
        z = scale(2.0,0.0) y !output
    ";
    let text = format!("w = external f32[64,32]\n{text}");
    let graph = graph(&text);
    let (more, ggml) = (plan(&graph, Reuse::Extended), plan(&graph, Reuse::Ggml));
    let place = |plan: &GraphPlan, name| plan.place(tensor(&graph, name)).unwrap().offset;
    assert_eq!(place(&more, "y"), place(&more, "q"));
    assert_ne!(place(&ggml, "y"), place(&ggml, "q"));
    assert!(more.peak() <= ggml.peak());
}

#[test]
fn what_no_node_makes_has_its_bytes_before_the_run_in_a_list_or_not() {
    let text = "
        a = input f32[64] !aside
        b = input f32[64]
        v = view f32[32]+0 a !aside
        s = cont b
        s1 = cont s
        n = neg v !output
        cc = cont s1 !output
    ";
    for text in [text.to_owned(), text.replace("a = input", "a = leaf")] {
        let graph = graph(&text);
        for reuse in [Reuse::Ggml, Reuse::Extended, Reuse::None] {
            assert!(plan(&graph, reuse).place(tensor(&graph, "v")).is_some());
        }
    }
}

#[test]
fn more_reuse_never_writes_over_what_an_operation_still_reads_even_where_ggml_does() {
    for text in [
        "x = input f32[64,4]; g = mul_mat f32[64,4] x x; d = rms_norm_back g x; e = mul_mat f32[1] d x !output",
        "x = input f32[1,4]; k = mul_mat f32[64,4] x x; m = input f32[64,4]; s = soft_max k m; e = mul_mat f32[1] s k !output",
    ] {
        let plan = plan(&graph(text), Reuse::Extended);
        assert_eq!(plan.options().reuse, Reuse::Extended, "{text}");
    }
}

#[test]
fn what_nobody_reads_lives_to_the_end_unless_the_caller_opts_out() {
    let graph = graph("x = input 256; a = sqr x; b = sqr x; c = sqr x; d = neg c !output");
    let kept = plan(&graph, Reuse::None);
    let freed = plan_graph(&graph, &with(GraphStrategy::Fast, Reuse::None).with_unread(Unread::Free)).unwrap();
    assert_eq!(kept.peak(), Bytes(4 * 1024));
    assert_eq!(freed.peak(), Bytes(2 * 1024));
}

/// Returns the steps at which a tensor has bytes of its own.
fn life(plan: &GraphPlan, tensor: TensorId) -> (u64, u64) {
    let (memory, block) = plan.block(tensor).unwrap();
    let life = memory.plan.problem().blocks()[block].life;
    (life.start().0, life.end().0)
}

#[test]
fn an_input_that_no_node_touches_lives_before_the_run_alone() {
    // What `i` is and what is done with it, and whether it may end before the run begins.
    let cases = [
        ("i = input 64", "", true),
        ("i = input 64 !output", "", false),
        ("i = leaf 64", "", false),
        ("i = input 64", "u = neg i", false),
        ("i = input 64", "v = view 32+0 i", false),
        ("i = input 64", "v = view 32+0 i; u = neg v", false),
        ("i = input 64; j = input 64", "w = cpy f32[64]+0^i j", false),
        ("i = input 64", "v = view 32+0 i !leaf !output", false),
        ("i = input 64", "v = view 32+0 i !leaf", false),
    ];
    for (leaf, nodes, ends) in cases {
        let graph =
            graph(&format!("x = input 64; {leaf}; a = sqr x; {nodes}; b = mul_mat f32[64] a a; c = neg b !output"));
        let i = tensor(&graph, "i");
        let end = graph.graph().nodes().len() as u64 + 1;
        for reuse in [Reuse::Ggml, Reuse::Extended, Reuse::None] {
            let options = with(GraphStrategy::Fast, reuse);
            let (plan, kept) = (plan(&graph, reuse), plan_graph(&graph, &options.with_unread(Unread::Keep)).unwrap());
            replay(&graph, &kept.places()).unwrap();
            assert_eq!(life(&plan, i) == (0, 1), ends, "{reuse:?}: {:?} of {end}\n{graph}", life(&plan, i));
            if ends {
                assert_eq!(life(&kept, i), (0, end), "{graph}");
                assert!(plan.peak() <= kept.peak());
                // The checker knows it by itself: where everything is kept, this plan loses an input.
                let claim = TensorPlaces { unread: Unread::Keep, ..plan.places() };
                let lost = replay(&graph, &claim).is_err();
                assert_eq!(lost, !plan.survivors().contains(i), "{graph}");
            }
        }
        let ggml = plan_graph(&graph, &PlanOptions::new(GraphStrategy::Ggml)).unwrap();
        assert_eq!(ggml.options().unread, Unread::Keep);
        assert_eq!(ggml.peak().0, ggml_placement(&graph).unwrap().chunks.iter().flatten().map(|it| it.0).sum::<u64>());
    }
}

#[test]
fn what_the_caller_writes_before_the_run_shares_no_byte_in_whatever_order_it_is_written() {
    for text in
        ["spare = input 64; x = input 64; y = neg x !output", "x = input 64; spare = input 64; y = neg x !output"]
    {
        let graph = graph(text);
        let mut places = plan(&graph, Reuse::Extended).places();
        places.places[tensor(&graph, "spare")] = places.places[tensor(&graph, "x")];
        let faults = replay(&graph, &places).unwrap_err().to_string();
        assert!(faults.contains("with which it shares byte"), "{faults}");
    }
}

#[test]
fn a_cache_written_through_a_view_keeps_what_a_sibling_view_reads_later() {
    for cache in ["external", "input"] {
        let graph = graph(&format!(
            "cache = {cache} f32[16,8]
             new = input f32[16]
             spot = view f32[16]+64 cache
             write = cpy new spot
             all = view f32[16,4]+0 cache
             sum = sqr all
             out = neg sum !output"
        ));
        for reuse in [Reuse::Ggml, Reuse::Extended, Reuse::None] {
            let plan = plan(&graph, reuse);
            assert_eq!(plan.place(tensor(&graph, "cache")).is_some(), cache == "input");
            if cache == "input" {
                // With `new` over a planned cache, the caller's two writes disturb each other.
                let mut places = plan.places();
                places.places[tensor(&graph, "new")] = places.places[tensor(&graph, "cache")];
                let faults = replay(&graph, &places).unwrap_err().to_string();
                assert!(faults.contains("reads") && faults.contains("has overwritten byte"), "{faults}");
            }
        }
    }
}

// What the corpus can't tell about ggml's allocator, one case each, worked out by hand from its rules.

#[test]
fn ggml_frees_the_tail_of_a_source_that_was_larger() {
    // a takes 64 bytes for 32, b only 32: the tail is free when c comes.
    let (places, sizes) = as_ggml(
        "memory m align=32
         x = input 16 !output
         a = mul_mat f32[8] x x size=64
         b = neg a
         c = mul_mat f32[8] b b
         d = add b c !output",
    );
    assert_eq!((places.as_str(), sizes), ("x@0 a@64 b@64 c@96 d@64", vec![vec![128]]));
}

#[test]
fn ggml_counts_what_a_tensor_takes_not_what_it_spans() {
    let (places, sizes) = as_ggml(
        "memory m align=16
         x = input 4 size=100
         a = mul_mat f32[4] x x size=40
         b = mul_mat f32[4] a a !output",
    );
    assert_eq!((places.as_str(), sizes), ("x@0 a@112 b@0", vec![vec![160]]));
}

#[test]
fn ggml_does_not_take_over_what_is_too_small() {
    // b would need more than a has; ggml itself aborts there.
    let (places, _) = as_ggml("memory m align=16; x = input 4; a = mul_mat f32[4] x x; b = neg a size=64 !output");
    assert_eq!(places, "x@0 a@16 b@32");
}

#[test]
fn ggml_takes_over_across_memories() {
    let (places, sizes) = as_ggml(
        "memory gpu align=16; memory cpu align=16
         x = input 4 @cpu
         a = mul_mat f32[4] x x @gpu
         b = neg a @cpu !output",
    );
    assert_eq!((places.as_str(), sizes), ("x@0 a@0 b@0", vec![vec![16], vec![16]]));
}

#[test]
fn ggml_opens_no_more_than_sixteen_chunks_and_the_last_has_no_limit() {
    let mut text = String::from("memory m align=16 max=16\nx = external 4\n");
    for node in 0..20 {
        text.push_str(&format!("n{node} = mul_mat f32[4] x x !output\n"));
    }
    let (places, sizes) = as_ggml(&text);
    assert!(places.contains("n14@14:0 n15@15:0 n16@15:16"), "{places}");
    assert_eq!(sizes[0].len(), 16);
    assert_eq!(sizes[0][15], 5 * 16);
    // Ours has no such limit.
    let plan = plan(&graph(&text), Reuse::Ggml);
    assert_eq!(plan.memories()[0].plan.buffers().len(), 20);
}

#[test]
fn ggml_gives_a_node_with_an_input_flag_its_bytes_before_the_run() {
    let (places, _) = as_ggml(
        "memory m align=16; x = input 4; a = mul_mat f32[4] x x; b = mul_mat f32[4] a a !input; c = add a b !output",
    );
    assert_eq!(places, "x@0 a@32 b@16 c@32");
}

#[test]
fn ggml_gives_a_tensor_of_no_bytes_an_offset() {
    let (places, sizes) = as_ggml(
        "memory m align=16; x = input 4; e = mul_mat f32[0] x x; y = mul_mat f32[4] x x !output; z = mul_mat f32[4] e x !output",
    );
    assert_eq!((places.as_str(), sizes), ("x@0 e@16 y@16 z@32", vec![vec![48]]));
}

// A plan of another graph.

#[test]
fn a_stale_plan_is_noticed_where_ggml_would_overwrite_live_data() {
    let planned = graph(
        "x = input 64; a = mul_mat f32[64] x x; b = mul_mat f32[64] a a; c = mul_mat f32[64] b b; d = mul_mat f32[64] c b !output",
    );
    let other = graph(
        "x = input 64; a = mul_mat f32[64] x x; b = mul_mat f32[64] a a; c = mul_mat f32[64] b b; d = mul_mat f32[64] c a !output",
    );
    let plan = plan_graph(&planned, &PlanOptions::new(GraphStrategy::Ggml)).unwrap();
    // Equal counts, equal sizes: ggml's check would let it pass.
    let count = |graph: &AssignedGraph| (graph.graph().nodes().len(), graph.graph().leafs().len());
    assert_eq!(count(&planned), count(&other));
    assert_ne!(planned.fingerprint(), other.fingerprint());
    let misfit = plan.fits(&other).unwrap_err();
    assert_eq!(misfit.to_string(), "tensor 4 (d): changed since the plan was made: it has other sources");
    let faults = replay(&other, &plan.places()).unwrap_err().to_string();
    assert!(faults.contains("reads tensor 1 (a), but node 2 (tensor 3 (c)) has overwritten byte"), "{faults}");
}

#[test]
fn what_a_plan_depends_on_must_not_change_and_sizes_may_only_shrink() {
    let text = "w = external f32[8,8]; x = input f32[8,4]; a = mul_mat w x; b = neg a; v = view f32[8]+32 b; c = sqr v !output";
    let planned = graph(text);
    let plan = plan_graph(&planned, &PlanOptions::default()).unwrap();
    let misfit = |from: &str, to: &str| plan.fits(&graph(&text.replace(from, to))).unwrap_err().to_string();
    plan.fits(&planned).unwrap();
    plan.fits(&graph(&text.replace("f32[8,4]", "f32[8,3]"))).unwrap();
    plan.fits(&graph(&text.replace("+32", "+64"))).unwrap();
    assert!(misfit("neg", "abs").contains("its operation is ABS now"));
    assert!(misfit("x = input", "x = external").contains("flags"));
    assert!(misfit("b = neg a", "b = neg a !output").contains("flags"));
    assert!(misfit("f32[8,4]", "f32[8,5]").contains("expected at most 128 bytes, got 160"));
    let more = graph(&format!("{text}; d = neg c"));
    assert!(matches!(plan.fits(&more), Err(PlanMismatch::Count { list: "nodes", .. })));
    assert!(matches!(plan.fits(&graph(&format!("memory m align=64\n{text}"))), Err(PlanMismatch::Memories)));
}

#[test]
fn a_take_over_that_became_a_broadcast_is_noticed() {
    let text = |rows: u64| {
        format!(
            "x = input f32[8,4]; y = input f32[8,{rows}]; a = mul_mat f32[8,{rows}] y y; b = add a y !output; z = neg x !output"
        )
    };
    let planned = graph(&text(4));
    let plan = plan_graph(&planned, &PlanOptions::default()).unwrap();
    // The result keeps its shape, but its first source has one row now.
    let broadcast =
        text(4).replace("a = mul_mat f32[8,4] y y", "a = mul_mat f32[8,1] y y").replace("add a y", "add f32[8,4] a y");
    let misfit = plan.fits(&graph(&broadcast)).unwrap_err();
    assert!(matches!(misfit, PlanMismatch::NotInPlace { slot: 0, .. }), "{misfit}");
}

#[test]
fn writing_over_a_source_that_the_operation_still_reads_is_a_fault() {
    // One row is added to four: its bytes are needed for each of them. The rows may be written over, the one may not.
    let graph = graph(
        "x = input f32[8]; y = input f32[8,4]; a = neg x; b = neg y; c = add b a; m = mul_mat f32[8,4] c c !output",
    );
    let mut places = plan(&graph, Reuse::None).places();
    places.reuse = Reuse::Extended;
    // Everything far from everything else, so that only what is put over something touches it.
    for id in graph.graph().tensors().ids() {
        let far = Offset(4096 * id.index() as u64);
        places.places[id] = places.places[id].map(|it| TensorPlace::new(it.memory, it.buffer, far, it.size));
    }
    let at = |name: &str| tensor(&graph, name);
    let mut over = |node: &str, source: &str| {
        let kept = places.places[at(node)];
        places.places[at(node)] = places.places[at(source)]
            .map(|place| TensorPlace::new(place.memory, place.buffer, place.offset, kept.unwrap().size));
        let answer = replay(&graph, &places).err().map(|faults| faults.to_string());
        places.places[at(node)] = kept;
        answer
    };
    assert_eq!(over("c", "b"), None);
    let broadcast = over("c", "a").unwrap();
    assert!(
        broadcast.contains("node 2 (tensor 4 (c)): writes over its source in slot 1, tensor 2 (a), which ADD may not"),
        "{broadcast}"
    );
    let product = over("m", "c").unwrap();
    assert!(product.contains("which MUL_MAT may not"), "{product}");
}

#[test]
fn several_graphs_share_buffers_that_are_as_large_as_the_largest_needs() {
    let prompt = graph("x = input f32[64,32]; a = sqr x; b = mul_mat f32[64,32] a a; c = add a b !output");
    let token = graph(
        "x = input f32[64]; a = sqr x; b = mul_mat f32[64] a a; c = add a b; d = concat f32[128,300] c c !output",
    );
    let together = plan_together(&[&prompt, &token], &PlanOptions::default()).unwrap();
    let peaks: Vec<Bytes> = together.plans.iter().map(GraphPlan::peak).collect();
    assert_eq!(together.peak(), peaks[0].max(peaks[1]));
    for (plan, graph) in together.plans.iter().zip([&prompt, &token]) {
        replay(graph, &plan.places()).unwrap();
    }
    let elsewhere = graph("memory gpu align=128; x = input 4; y = sqr x !output");
    assert!(plan_together(&[&prompt, &elsewhere], &PlanOptions::default()).is_err());
}

#[test]
fn sizes_beyond_the_address_space_are_an_error() {
    let huge = "x = input i8[4611686018427387904]; y = dup x; z = dup y; a = dup z; b = concat i8[4611686018427387904,3] a z !output; c = add i8[1] x y";
    let graph = graph(huge);
    for reuse in [Reuse::Ggml, Reuse::Extended, Reuse::None] {
        let error = plan_graph(&graph, &with(GraphStrategy::Fast, reuse)).unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
    }
}

/// Where nodes run side by side, an earlier reader may still be at work when a later node writes.
#[test]
fn where_sources_are_held_replay_accepts_ggmls_overwrites_alone() {
    let text = |hold: u32| {
        format!(
            "memory m align=1 hold={hold}; x = input i8[64]; e = ?e i8[64] x; n = ?n i8[64] x overwrites=0; y = ?y i8[1] e n !output"
        )
    };
    for (hold, accepted) in [(0, true), (1, false)] {
        let graph: AssignedGraph = text(hold).parse().unwrap();
        let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
        let mut places = plan.places();
        let (x, n) = (graph.graph().leafs()[0], graph.graph().nodes()[1]);
        places.places[n] = places.places[x];
        // `n` over `x`, and `e` where nothing else is.
        let e = graph.graph().nodes()[0];
        if let Some(place) = &mut places.places[e] {
            place.offset.0 = 4096;
        }
        let y = graph.graph().nodes()[2];
        if let Some(place) = &mut places.places[y] {
            place.offset.0 = 8192;
        }
        assert_eq!(replay(&graph, &places).is_ok(), accepted, "hold {hold}: {:?}", replay(&graph, &places));
    }
}

#[test]
fn a_plan_without_the_place_of_any_tensor_that_a_node_touches_is_refused() {
    for seed in 0..100 {
        let graph = random_graph(&mut Choices::from_seed(seed));
        let Ok(plan) = plan_graph(&graph, &PlanOptions::default()) else { continue };
        let places = plan.places();
        let it = graph.graph();
        let touched = it.nodes().iter().filter(|node| !it.tensor(**node).op.writes_nothing());
        let touched = touched.flat_map(|node| it.sources(*node).iter().copied().flatten().chain([*node]));
        for tensor in touched.map(|tensor| it.root(tensor)) {
            if places.places[tensor].is_none() || it.tensor(tensor).nbytes() == Bytes(0) {
                continue;
            }
            let mut places = places.clone();
            places.places[tensor] = None;
            assert!(replay(&graph, &places).is_err(), "seed {seed}: {tensor} is missing\n{graph}");
        }
    }
}
