//! Where tensors are: placed memory, inputs and weights, neighbours, upgrades, and unsupported nodes.

use super::*;

// Placed memory.

#[test]
fn a_tensor_that_is_placed_stays_and_is_computed_where_it_stands() {
    places(THREE, "x = input 8; y = neg x !external @npu", "x@cpu y@npu");
    places(THREE, "x = input 8; y = neg x !external @cpu", "x@cpu y@cpu");
    // Of several workers that reach it, by the first that can.
    places("gpu lacks neg; npu shares gpu; cpu", "x = input 8; y = neg x !external @gpu", "x@cpu y@npu");
    places("gpu; npu reads cpu; cpu", "x = input 8; y = neg x !external @cpu", "x@cpu y@npu");
}

#[test]
fn a_write_through_a_view_runs_where_the_cache_stands() {
    let graph = |home: &str| {
        format!(
            "w = external f32[8,8] @gpu; k = external f32[8,4] @{home}; x = input 8
             a = mul_mat w x; v = view [8]+32 k; c = cpy a v; b = mul_mat w x"
        )
    };
    places(THREE, &graph("gpu"), "x@cpu a@gpu c@gpu b@gpu");
    places(THREE, &graph("npu"), "x@cpu a@gpu c@npu b@gpu");
    places(THREE, &graph("cpu"), "x@cpu a@gpu c@cpu b@gpu");
    assert_eq!(PlanningSetup::new(THREE, &graph("npu")).why("c"), "writes into tensor 1 (k), which stands there");
}

#[test]
fn a_write_into_placed_memory_that_nobody_there_can_run_is_refused() {
    refused(
        "gpu lacks cpy; cpu",
        "k = external 8 @gpu; x = input 8; c = cpy x k",
        "tensor 2 (c), cpy: no device can run it: gpu: it is not built for that; cpu: the memory of tensor 0 (k) is out of reach",
    );
}

#[test]
fn whoever_writes_into_one_planned_root_is_on_one_worker_and_so_is_the_root() {
    let graph = "w1 = external f32[8,8] @gpu; w2 = external f32[8,8] @cpu; x = input 8; k = leaf f32[8,2]
         a = mul_mat w1 x; v1 = view [8]+0 k; c1 = cpy a v1
         b = mul_mat w2 x; v2 = view [8]+32 k; c2 = cpy b v2; i = input i64[1]; c3 = set_rows f32[8,2] b i k";
    places(TWO, graph, "x@cpu k@gpu i@cpu a@gpu c1@gpu b@cpu c2@gpu c3@gpu");
    // One of them can't run there, so none of them does.
    places("gpu lacks set_rows; cpu", graph, "x@cpu k@cpu i@cpu a@gpu c1@cpu b@cpu c2@cpu c3@cpu");
    places("gpu; cpu lacks set_rows", graph, "x@cpu k@gpu i@cpu a@gpu c1@gpu b@cpu c2@gpu c3@gpu");
}

#[test]
fn a_node_that_is_written_into_later_is_where_its_writers_can_run() {
    let graph = "w = external f32[8,8] @gpu; x = input 8; a = mul_mat w x; v = view [4]+0 a; y = input 4; c = cpy y v";
    places(TWO, graph, "x@cpu y@cpu a@gpu c@gpu");
    places("gpu lacks cpy; cpu", graph, "x@cpu y@cpu a@cpu c@cpu");
}

#[test]
fn writers_of_one_root_without_a_common_worker_are_refused_with_what_keeps_them_apart() {
    refused(
        "gpu lacks set; cpu lacks cpy",
        "x = input 8; k = leaf 8; c = cpy x k; s = ?SET f32[8]+0^k x",
        "tensor 2 (c), cpy: no device can run it: gpu: its memory is shared with tensor 3 (s), which is not supported there: it is not built for that; \
         cpu: it is not built for that",
    );
}

#[test]
fn writers_of_one_root_may_be_on_several_workers_who_reach_its_memory() {
    let graph = "x = input 8; k = leaf 8; c = cpy x k; s = ?SET f32[8]+0^k x; y = neg k !output";
    places("gpu lacks set; cpu lacks cpy shares gpu", graph, "x@cpu k@gpu c@gpu s@cpu y@gpu");
    let setup = PlanningSetup::new("gpu lacks set; cpu lacks cpy reads gpu", graph);
    assert_eq!(setup.places(), "x@cpu k@gpu c@gpu s@cpu y@gpu");
    judge(setup, 1, PlanOptions::default());
}

#[test]
fn a_node_stands_in_the_memory_of_those_who_write_into_it_later_although_it_is_computed_elsewhere() {
    let graph = "x = input 8; a = add x x; s = ?SET f32[8]+0^a x; y = neg a !output";
    let setup = PlanningSetup::new("gpu lacks add; cpu lacks set reads gpu", graph);
    assert_eq!(setup.places(), "x@cpu a@cpu s@gpu y@gpu");
    judge(setup, 1, PlanOptions::default());
}

#[test]
fn a_pin_of_who_writes_into_a_root_is_a_pin_of_that_node_too() {
    let graph = "x = input 8; k = leaf 8; c = cpy x k";
    let setup = PlanningSetup::new("gpu lacks cpy; cpu reads gpu", graph).pin("c@gpu");
    assert_eq!(
        setup.refusal(),
        "tensor 2 (c): can't be on gpu, which it is pinned to: gpu: unsupported node: tensor 2 (c), cpy of (f32[8], f32[8]) to f32[8]: it is not built for that"
    );
}

#[test]
fn a_pin_of_one_of_several_who_write_into_a_root_is_a_pin_of_that_node_too() {
    let graph = "x = input 8; k = leaf 8; c = cpy x k; s = ?SET f32[8]+0^k x";
    let setup = PlanningSetup::new("gpu lacks cpy; cpu reads gpu", graph).pin("c@gpu");
    assert_eq!(
        setup.refusal(),
        "tensor 2 (c): can't be on gpu, which it is pinned to: gpu: unsupported node: tensor 2 (c), cpy of (f32[8], f32[8]) to f32[8]: it is not built for that"
    );
}

// Inputs, weights and offloading.

#[test]
fn inputs_are_on_the_last_worker_whoever_reads_them() {
    places(TWO, "w = external f32[8,8]; x = input 8; y = mul_mat w x", "x@cpu y@gpu");
    places("gpu", "w = external f32[8,8]; x = input 8; y = mul_mat w x", "x@gpu y@gpu");
    assert_eq!(PlanningSetup::new(TWO, "x = input 8; y = neg x").why("x"), "the caller writes it");
}

#[test]
fn inputs_that_nobody_lists_are_on_the_last_worker_too() {
    let setup = PlanningSetup::new(TWO, "w = external f32[8,8]; x = input 8 !aside; v = view [8]+0 x; y = mul_mat w v");
    assert_eq!(setup.splits(), "gpu[x: y]");
    assert_eq!(setup.why("x"), "the caller writes it");
}

#[test]
fn inputs_among_the_nodes_are_on_the_last_worker_too() {
    places(TWO, "w = external f32[8,8]; x = input 8 !param !node; y = mul_mat w x", "x@cpu y@gpu");
}

#[test]
fn an_input_that_is_placed_stays() {
    let setup = PlanningSetup::new(TWO, "x = input 8 !external @gpu; y = neg x !output");
    assert_eq!((setup.places().as_str(), setup.splits().as_str()), ("y@gpu", "gpu[y]"));
}

#[test]
fn operations_follow_their_weights() {
    let graph = |op: &str, home: &str| format!("w = external 8 @{home}; x = input 8; y = {op}");
    for (op, home) in [("mul x w", "npu"), ("add w x", "npu"), ("add x w", "cpu"), ("?F f32[8] - x - w", "gpu")] {
        places(THREE, &graph(op, home), &format!("x@cpu y@{home}"));
    }
    assert_eq!(PlanningSetup::new(THREE, &graph("mul x w", "npu")).why("y"), "its weight tensor 0 (w) is there");
}

#[test]
fn a_view_of_a_weight_counts_as_the_weight() {
    places(THREE, "w = external f32[8,8] @npu; x = input 8; v = view [8,4]+128 w; y = mul_mat v x", "x@cpu y@npu");
    places(THREE, "w = external f32[8,8] @npu; x = input 8; v = transpose w; y = ?F f32[8] v x", "x@cpu y@npu");
}

#[test]
fn what_is_no_weight_decides_nothing() {
    // The reader of `k` stays with the reader of the weight.
    let graph = "w = external f32[8,8] @gpu; k = external 8 @npu; x = input 8; a = mul_mat w x; b = add k a";
    places(THREE, graph, "x@cpu a@gpu b@gpu");
}

#[test]
fn a_weight_whose_device_lacks_the_operation_does_not_decide() {
    places("gpu lacks mul; cpu", "w = external 8; x = input 8; y = mul x w", "x@cpu y@cpu");
    // Another device that reads the same memory does as well.
    places("gpu lacks mul; npu reads gpu; cpu", "w = external 8; x = input 8; y = mul x w", "x@cpu y@npu");
}

#[test]
fn rope_and_flash_attention_do_not_follow_their_weights() {
    let graph = |line: &str| {
        format!(
            "w = external f32[8,8] @gpu; wf = external f32[8] @cpu; x = input f32[8,1,1]; p = input i32[1]
             a = mul_mat w x; {line}; c = mul_mat w b"
        )
    };
    places(TWO, &graph("b = rope f32[8,1,1] a p wf"), "x@cpu p@cpu a@gpu b@gpu c@gpu");
    places(TWO, &graph("b = flash_attn_ext f32[8,1,1] a wf wf"), "x@cpu p@cpu a@gpu b@gpu c@gpu");
    places(TWO, &graph("b = mul a wf"), "x@cpu p@cpu a@gpu b@cpu c@gpu");
}

#[test]
fn an_operation_leaves_its_weight_only_if_that_is_in_host_memory_and_somebody_earlier_wants_and_can_run_it() {
    let graph = "w = external f32[8,8] @cpu; x = input 8; y = mul_mat w x";
    places("gpu offloads mul_mat; cpu host", graph, "x@cpu y@gpu");
    places("gpu; npu offloads mul_mat; cpu host", graph, "x@cpu y@npu");
    places("gpu offloads add; cpu host", graph, "x@cpu y@cpu");
    places("gpu offloads mul_mat; cpu", graph, "x@cpu y@cpu");
    places("gpu offloads mul_mat lacks mul_mat; cpu host", graph, "x@cpu y@cpu");
    // The weight of another device is not moved, even if the host could read it.
    let elsewhere = "w = external f32[8,8] @npu; x = input 8; y = mul_mat w x";
    places("gpu offloads mul_mat; npu host; cpu", elsewhere, "x@cpu y@npu");
    let setup = PlanningSetup::new("gpu offloads mul_mat; cpu host", graph);
    assert_eq!(setup.why("y"), "worth the copy of its weight tensor 0 (w) out of host memory");
    assert_eq!(setup.splits(), "gpu[w x: y]");
    let never = setup.with(SchedOptions::new().with_offload(Offload::Never));
    assert_eq!((never.places(), never.splits()), ("x@cpu y@cpu".into(), "cpu[y]".into()));
}

#[test]
fn rope_is_not_offloaded_for_the_sake_of_its_weight() {
    let graph = "wf = external f32[8] @cpu; x = input f32[8,1,1]; p = input i32[1]; b = rope f32[8,1,1] x p wf";
    places("gpu offloads rope; cpu host", graph, "x@cpu p@cpu b@cpu");
}

#[test]
fn an_operation_moves_to_who_wants_it_even_if_the_processor_lacks_it() {
    let graph = "w1 = external f32[8,8] @gpu; w = external f32[8,8] @cpu; x = input 8; a = mul_mat w1 x; y = add w a";
    places("gpu; npu offloads add; cpu host lacks add", graph, "x@cpu a@gpu y@npu");
}

#[test]
fn an_operation_moves_to_who_wants_it_even_if_an_accelerator_reads_host_memory() {
    let graph = "w = external f32[8,8] @ram; x = input 8; y = mul_mat w x";
    places("gpu offloads mul_mat; blas host in ram; cpu shares ram", graph, "x@cpu y@gpu");
}

// Neighbours. What is no operation of the table is never cheap, so it stays where it was spread to.

#[test]
fn assignments_spread_down_and_up() {
    let below = "w = external 8; x = input 8; a = add w x; b = ?F f32[8] a; c = ?F f32[8] b";
    places(TWO, below, "x@cpu a@gpu b@gpu c@gpu");
    places(
        TWO,
        "w = external 8; x = input 8; b = ?F f32[8] x; c = ?F f32[8] b; a = add w c",
        "x@cpu b@gpu c@gpu a@gpu",
    );
    assert_eq!(PlanningSetup::new(TWO, below).why("c"), "next to tensor 2 (a)");
}

#[test]
fn they_spread_down_before_they_spread_up() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @npu; x = input 8
         z = ?F f32[8] x; a = add w1 z; b = ?F f32[8] a; c = add w2 b; d = ?F f32[8] c";
    places(THREE, graph, "x@cpu z@gpu a@gpu b@gpu c@npu d@npu");
}

#[test]
fn the_last_worker_spreads_last() {
    let graph = "w1 = external 8 @cpu; w2 = external 8 @gpu; x = input 8
         a = add w1 x; b = ?F f32[8] a; c = add w2 b; d = add w1 c; e = ?F f32[8] d";
    // `b` is above a node of the gpu, so it is not the processor's; `e` has no other neighbour.
    places(TWO, graph, "x@cpu a@cpu b@gpu c@gpu d@cpu e@cpu");
    // Up from the last worker, if no other has spread there.
    places(TWO, "w = external 8 @cpu; c = leaf 8; a = ?F f32[8] c; b = add w a", "c@cpu a@cpu b@cpu");
}

#[test]
fn nothing_spreads_onto_a_worker_without_the_operation() {
    let graph = "w = external 8; x = input 8; a = add w x; b = ?F f32[8] a; c = ?G f32[8] b";
    places("gpu lacks f; cpu", graph, "x@cpu a@gpu b@cpu c@gpu");
    places("gpu lacks f g; npu lacks g; cpu", graph, "x@cpu a@gpu b@npu c@cpu");
}

#[test]
fn a_cheap_node_beside_a_border_is_on_the_side_where_fewer_bytes_are_copied() {
    let graph = |sum: &str| {
        format!(
            "w1 = external f32[8,8] @gpu; w2 = external f32[8,8] @cpu; x = input 8; y = input 8
             a = mul_mat w2 x; b = mul_mat w2 y; s = {sum}; c = mul_mat w1 s"
        )
    };
    let setup = PlanningSetup::new(TWO, &graph("add a b"));
    assert_eq!(setup.splits(), "cpu[a b s] gpu[s: c]");
    assert_eq!(setup.why("s"), "fewer bytes are copied than if gpu computed it");
    // Neither what is costly, nor what is pinned, nor what could not run there, nor what saves nothing.
    splits(TWO, &graph("?F f32[8] a b"), "cpu[a b] gpu[a b: s c]");
    assert_eq!(PlanningSetup::new(TWO, &graph("add a b")).pin("s@gpu").splits(), "cpu[a b] gpu[a b: s c]");
    splits(TWO, &graph("neg a"), "cpu[a b] gpu[a: s c]");
    splits("gpu; cpu host lacks add", &graph("add a b"), "cpu[a b] gpu[a b: s c]");
}

#[test]
fn a_leaf_that_another_worker_reads_first_counts_at_a_border() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; c = leaf f32[16,4]; i = input i32[2]
         a = ?F f32[8] w1 c; g = get_rows c i; d = ?F f32[8] w2 g";
    // 8 and 128 bytes, not the 256 of `c`.
    splits(TWO, graph, "gpu[i: a g] cpu[g: d]");
}

// Upgrades and what is left over.

#[test]
fn a_node_moves_up_to_an_earlier_worker_with_the_same_memory() {
    let graph = "w = external f32[8,8]; x = input 8; a = mul_mat w x; b = neg a";
    let setup = PlanningSetup::new("blas lacks mul_mat; cpu shares blas", graph);
    assert_eq!(setup.places(), "x@cpu a@cpu b@blas");
    assert_eq!(setup.why("b"), "was cpu's, which has the same memory and comes later");
    assert_eq!(setup.splits(), "cpu[a] blas[b]");
    places("blas lacks mul_mat neg; cpu shares blas", graph, "x@cpu a@cpu b@cpu");
    places("blas lacks mul_mat; cpu reads blas", graph, "x@cpu a@cpu b@cpu");
}

#[test]
fn a_node_does_not_move_up_to_where_a_source_can_not_be_read() {
    let graph = "w1 = external f32[8,8] @gpu; w2 = external f32[8,8] @blas; x = input 8
         a = mul_mat w1 x; b = ?M f32[8] w2 x; c = neg b; d = add c a";
    let lacks = "gpu lacks neg add; blas lacks m";
    places(&format!("{lacks}; cpu shares blas reads gpu"), graph, "x@cpu a@gpu b@cpu c@blas d@cpu");
    places(&format!("{lacks} reads gpu; cpu shares blas reads gpu"), graph, "x@cpu a@gpu b@cpu c@blas d@blas");
}

#[test]
fn a_pinned_node_does_not_move_up() {
    let graph = "x = input 8; a = neg x; b = sqr a";
    let setup = PlanningSetup::new("blas; cpu shares blas", graph).pin("a@cpu");
    assert_eq!((setup.places().as_str(), setup.splits().as_str()), ("x@cpu a@cpu b@blas", "cpu[a] blas[b]"));
}

#[test]
fn who_has_no_neighbour_goes_where_most_of_its_sources_can_be_read_and_among_equals_to_the_first() {
    let graph = |line: &str| format!("w = external f32[8,8]; x = input 8; z = input 8; a = mul_mat w x; {line}");
    let devices = "gpu lacks f; npu reads gpu; cpu";
    places(devices, &graph("y = ?F f32[8] a x"), "x@cpu z@cpu a@gpu y@npu");
    places(devices, &graph("y = ?F f32[8] a x z"), "x@cpu z@cpu a@gpu y@cpu");
    assert_eq!(PlanningSetup::new(devices, &graph("y = ?F f32[8] a x z")).why("y"), "can read 2 of its 3 sources");
    places(TWO, "x = input 8; y = neg x", "x@cpu y@cpu");
    places(TWO, "c = leaf 8; y = neg c", "c@gpu y@gpu");
    places(TWO, "y = ?NOISE f32[8]", "y@gpu");
}

#[test]
fn a_leaf_follows_its_first_reader_and_one_without_a_reader_is_on_the_last_worker() {
    let graph = |first: &str, second: &str| {
        format!(
            "w1 = external 8 @{first}; w2 = external 8 @{second}; c = leaf 8; u = leaf 8; v = view [4]+0 c
             a = add v w1; b = add c w2"
        )
    };
    let graph = |first, second| graph(first, second).replace("a = add v w1", "a = ?F f32[4] v w1");
    places(TWO, &graph("gpu", "cpu"), "c@gpu u@cpu a@gpu b@cpu");
    places(TWO, &graph("cpu", "gpu"), "c@cpu u@cpu a@cpu b@gpu");
    let setup = PlanningSetup::new(TWO, &graph("gpu", "cpu"));
    assert_eq!(setup.why("c"), "tensor 5 (a) reads it");
    assert_eq!(setup.why("u"), "nobody reads it");
}

// Unsupported nodes.

#[test]
fn a_node_that_nobody_can_run_is_named_with_what_each_device_says() {
    refused(
        "gpu lacks neg; npu lacks neg; cpu lacks neg",
        "x = input 8; a = sqr x; y = neg a",
        "tensor 2 (y), neg: no device can run it: gpu: it is not built for that; npu: it is not built for that; \
         cpu: it is not built for that",
    );
    let error = PlanningSetup::new("cpu lacks neg", "x = input 8; %1 = neg x").try_schedule().unwrap_err();
    assert_eq!(error.to_string(), "tensor 1, neg: no device can run it: cpu: it is not built for that");
    let SchedError::Unsupported { node, op, refusals } = error else { panic!("{error}") };
    assert_eq!((node.id.index(), op.as_str(), refusals.0.len()), (1, "neg", 1));
}

#[test]
fn an_external_tensor_without_a_home_is_named() {
    let setup = PlanningSetup::new(TWO, "w = external f32[8,8]; x = input 8; v = view [8,4]+0 w; y = mul_mat v x");
    let error = setup.scheduler.schedule(&setup.graph, TensorLocations::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor 0 (w): unknown memory: an external tensor must be bound, or its location given"
    );
    // No node needs it, so no device is asked.
    let setup = PlanningSetup::new(TWO, "w = external f32[8,8]; x = input 8; v = view [8,4]+0 w; y = neg x");
    setup.scheduler.schedule(&setup.graph, TensorLocations::new()).unwrap();
}

#[test]
fn a_scheduler_needs_a_worker() {
    assert_eq!(Scheduler::for_planning([]).unwrap_err(), SchedError::NoWorker);
}
