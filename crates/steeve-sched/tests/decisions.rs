//! Laws of who computes what, where splits start and what is copied for them. Nothing is computed here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod stands;

use std::sync::Arc;

use stands::{Stand, StandIn, computes, op};
use steeve_device::{BufferType, Bytes, Device, Usage};
use steeve_graph::fuzz::{Choices, random_graph};
use steeve_graph::{
    Context, DataType, Graph, GraphPlan, GraphStrategy, Id, Op, PlanOptions, Reuse, Tensor, TensorId, View, plan_graph,
    replay,
};
use steeve_sched::{Cause, Homes, Offload, Reason, SchedError, SchedOptions, Schedule, Scheduler, Worker, WorkerId};

/// Two devices with memory of their own.
const TWO: &str = "gpu; cpu host";
/// Two of the fast ones.
const THREE: &str = "gpu; npu; cpu host";

fn places(devices: &str, graph: &str, expected: &str) {
    assert_eq!(Stand::new(devices, graph).places(), expected);
}

fn splits(devices: &str, graph: &str, expected: &str) {
    assert_eq!(Stand::new(devices, graph).splits(), expected);
}

fn refused(devices: &str, graph: &str, expected: &str) {
    assert_eq!(Stand::new(devices, graph).refusal(), expected);
}

// Placed memory.

#[test]
fn a_tensor_that_is_placed_stays_and_is_computed_where_it_stands() {
    places(THREE, "x = input 8; y = neg x !external @npu", "x@cpu y@npu");
    places(THREE, "x = input 8; y = neg x !external @cpu", "x@cpu y@cpu");
    // Of several who reach it, by the first that can.
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
    assert_eq!(Stand::new(THREE, &graph("npu")).why("c"), "writes into tensor 1 (k), which stands there");
}

#[test]
fn a_write_into_placed_memory_that_nobody_there_can_run_is_refused() {
    refused(
        "gpu lacks cpy; cpu",
        "k = external 8 @gpu; x = input 8; c = cpy x k",
        "no device can run tensor 2 (c), cpy: gpu: it is not built for that; cpu: it can't reach the memory of tensor 0 (k)",
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
        "no device can run tensor 2 (c), cpy: gpu: it shares its memory with tensor 3 (s): it is not built for that; \
         cpu: it is not built for that",
    );
}

#[test]
fn writers_of_one_root_may_be_on_several_workers_who_reach_its_memory() {
    let graph = "x = input 8; k = leaf 8; c = cpy x k; s = ?SET f32[8]+0^k x; y = neg k !output";
    places("gpu lacks set; cpu lacks cpy shares gpu", graph, "x@cpu k@gpu c@gpu s@cpu y@gpu");
    let stand = Stand::new("gpu lacks set; cpu lacks cpy reads gpu", graph);
    assert_eq!(stand.places(), "x@cpu k@gpu c@gpu s@cpu y@gpu");
    judge(stand, 1, PlanOptions::default());
}

#[test]
fn a_node_stands_in_the_memory_of_those_who_write_into_it_later_although_it_is_computed_elsewhere() {
    let graph = "x = input 8; a = add x x; s = ?SET f32[8]+0^a x; y = neg a !output";
    let stand = Stand::new("gpu lacks add; cpu lacks set reads gpu", graph);
    assert_eq!(stand.places(), "x@cpu a@cpu s@gpu y@gpu");
    judge(stand, 1, PlanOptions::default());
}

#[test]
fn a_pin_of_who_writes_into_a_root_is_a_pin_of_that_node_too() {
    let graph = "x = input 8; k = leaf 8; c = cpy x k";
    let stand = Stand::new("gpu lacks cpy; cpu reads gpu", graph).pin("c@gpu");
    assert_eq!(stand.refusal(), "tensor 2 (c) was pinned to gpu: it is not built for that");
}

#[test]
fn a_pin_of_one_of_several_who_write_into_a_root_is_a_pin_of_that_node_too() {
    let graph = "x = input 8; k = leaf 8; c = cpy x k; s = ?SET f32[8]+0^k x";
    let stand = Stand::new("gpu lacks cpy; cpu reads gpu", graph).pin("c@gpu");
    assert_eq!(stand.refusal(), "tensor 2 (c) was pinned to gpu: it is not built for that");
}

// Inputs, weights and offloading.

#[test]
fn inputs_are_on_the_last_worker_whoever_reads_them() {
    places(TWO, "w = external f32[8,8]; x = input 8; y = mul_mat w x", "x@cpu y@gpu");
    places("gpu", "w = external f32[8,8]; x = input 8; y = mul_mat w x", "x@gpu y@gpu");
    assert_eq!(Stand::new(TWO, "x = input 8; y = neg x").why("x"), "the caller writes it");
}

#[test]
fn inputs_that_nobody_lists_are_on_the_last_worker_too() {
    let stand = Stand::new(TWO, "w = external f32[8,8]; x = input 8 !aside; v = view [8]+0 x; y = mul_mat w v");
    assert_eq!(stand.splits(), "gpu[x: y]");
    assert_eq!(stand.why("x"), "the caller writes it");
}

#[test]
fn inputs_among_the_nodes_are_on_the_last_worker_too() {
    places(TWO, "w = external f32[8,8]; x = input 8 !param !node; y = mul_mat w x", "x@cpu y@gpu");
}

#[test]
fn an_input_that_is_placed_stays() {
    let stand = Stand::new(TWO, "x = input 8 !external @gpu; y = neg x !output");
    assert_eq!((stand.places().as_str(), stand.splits().as_str()), ("y@gpu", "gpu[y]"));
}

#[test]
fn operations_follow_their_weights() {
    let graph = |op: &str, home: &str| format!("w = external 8 @{home}; x = input 8; y = {op}");
    for (op, home) in [("mul x w", "npu"), ("add w x", "npu"), ("add x w", "cpu"), ("?F f32[8] - x - w", "gpu")] {
        places(THREE, &graph(op, home), &format!("x@cpu y@{home}"));
    }
    assert_eq!(Stand::new(THREE, &graph("mul x w", "npu")).why("y"), "its weight tensor 0 (w) is there");
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
    let stand = Stand::new("gpu offloads mul_mat; cpu host", graph);
    assert_eq!(stand.why("y"), "worth the copy of its weight tensor 0 (w) out of host memory");
    assert_eq!(stand.splits(), "gpu[w x: y]");
    let never = stand.with(SchedOptions::new().with_offload(Offload::Never));
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
    assert_eq!(Stand::new(TWO, below).why("c"), "next to tensor 2 (a)");
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
    // Up from the last worker, if nobody else is there.
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
    let stand = Stand::new(TWO, &graph("add a b"));
    assert_eq!(stand.splits(), "cpu[a b s] gpu[s: c]");
    assert_eq!(stand.why("s"), "fewer bytes are copied than if gpu computed it");
    // Neither what is costly, nor what is pinned, nor what could not run there, nor what saves nothing.
    splits(TWO, &graph("?F f32[8] a b"), "cpu[a b] gpu[a b: s c]");
    assert_eq!(Stand::new(TWO, &graph("add a b")).pin("s@gpu").splits(), "cpu[a b] gpu[a b: s c]");
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
    let stand = Stand::new("blas lacks mul_mat; cpu shares blas", graph);
    assert_eq!(stand.places(), "x@cpu a@cpu b@blas");
    assert_eq!(stand.why("b"), "was cpu's, which has the same memory and comes later");
    assert_eq!(stand.splits(), "cpu[a] blas[b]");
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
    let stand = Stand::new("blas; cpu shares blas", graph).pin("a@cpu");
    assert_eq!((stand.places().as_str(), stand.splits().as_str()), ("x@cpu a@cpu b@blas", "cpu[a] blas[b]"));
}

#[test]
fn who_has_no_neighbour_goes_where_most_of_its_sources_can_be_read_and_among_equals_to_the_first() {
    let graph = |line: &str| format!("w = external f32[8,8]; x = input 8; z = input 8; a = mul_mat w x; {line}");
    let devices = "gpu lacks f; npu reads gpu; cpu";
    places(devices, &graph("y = ?F f32[8] a x"), "x@cpu z@cpu a@gpu y@npu");
    places(devices, &graph("y = ?F f32[8] a x z"), "x@cpu z@cpu a@gpu y@cpu");
    assert_eq!(Stand::new(devices, &graph("y = ?F f32[8] a x z")).why("y"), "can read 2 of its 3 sources");
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
    let stand = Stand::new(TWO, &graph("gpu", "cpu"));
    assert_eq!(stand.why("c"), "tensor 5 (a) reads it");
    assert_eq!(stand.why("u"), "nobody reads it");
}

// Who can't.

#[test]
fn a_node_that_nobody_can_run_is_named_with_what_each_device_says() {
    refused(
        "gpu lacks neg; npu lacks neg; cpu lacks neg",
        "x = input 8; a = sqr x; y = neg a",
        "no device can run tensor 2 (y), neg: gpu: it is not built for that; npu: it is not built for that; \
         cpu: it is not built for that",
    );
    let error = Stand::new("cpu lacks neg", "x = input 8; %1 = neg x").try_schedule().unwrap_err();
    assert_eq!(error.to_string(), "no device can run tensor 1, neg: cpu: it is not built for that");
    let SchedError::Unsupported { node, op, refusals } = error else { panic!("{error}") };
    assert_eq!((node.id.index(), op.as_str(), refusals.0.len()), (1, "neg", 1));
}

#[test]
fn an_external_tensor_without_a_home_is_named() {
    let stand = Stand::new(TWO, "w = external f32[8,8]; x = input 8; v = view [8,4]+0 w; y = mul_mat v x");
    let error = stand.scheduler.schedule(&stand.graph, Homes::new()).unwrap_err();
    assert_eq!(error.to_string(), "tensor 0 (w) is external, and nobody has said which memory it stands in");
    // Nobody needs it, so nobody asks.
    let stand = Stand::new(TWO, "w = external f32[8,8]; x = input 8; v = view [8,4]+0 w; y = neg x");
    stand.scheduler.schedule(&stand.graph, Homes::new()).unwrap();
}

#[test]
fn a_scheduler_needs_a_worker() {
    assert_eq!(Scheduler::for_planning([]).unwrap_err(), SchedError::NoWorker);
}

// Pins.

#[test]
fn a_pin_decides_over_weights_inputs_neighbours_and_readers() {
    let graph = "w = external f32[8,8]; x = input 8; c = leaf 8; a = mul_mat w x; b = add a c";
    let stand = Stand::new(THREE, graph);
    assert_eq!(stand.places(), "x@cpu c@gpu a@gpu b@gpu");
    let stand = stand.pin("a@cpu");
    assert_eq!(stand.places(), "x@cpu c@cpu a@cpu b@cpu");
    let stand = stand.pin("x@npu c@npu b@gpu a@npu");
    assert_eq!(stand.places(), "x@npu c@npu a@npu b@gpu");
    assert_eq!(stand.why("b"), "pinned by the caller");
}

#[test]
fn a_pin_decides_over_offloading() {
    let graph = "w = external f32[8,8] @cpu; x = input 8; y = mul_mat w x";
    let stand = Stand::new("gpu offloads mul_mat; cpu host", graph).pin("y@cpu");
    assert_eq!(stand.places(), "x@cpu y@cpu");
}

#[test]
fn a_pin_of_a_view_is_one_of_its_root() {
    let graph = "x = input 8; a = neg x; v = view [4]+0 a; b = sqr v";
    assert_eq!(Stand::new(THREE, graph).pin("v@npu").places(), "x@cpu a@npu b@npu");
    let graph = "x = input 8; k = leaf 8; v = view [4]+0 k; y = input 4; c = cpy y v; b = sqr k";
    assert_eq!(Stand::new(THREE, graph).pin("c@npu").places(), "x@cpu k@npu y@cpu c@npu b@npu");
    let stand = Stand::new(THREE, graph).pin("k@npu v@npu b@gpu");
    assert_eq!(stand.places(), "x@cpu k@npu y@cpu c@npu b@gpu");
}

#[test]
fn two_pins_of_one_root_that_contradict_each_other_are_refused() {
    let stand = Stand::new(TWO, "x = input 8; a = neg x; v = view [4]+0 a; b = sqr v").pin("a@gpu v@cpu");
    assert_eq!(stand.refusal(), "tensor 2 (v) was pinned to cpu: what shares its memory was pinned to gpu");
}

#[test]
fn a_pin_to_a_worker_that_can_not_run_it_is_refused_with_what_its_device_says() {
    let stand = Stand::new("gpu lacks neg; cpu", "x = input 8; y = neg x").pin("y@gpu");
    assert_eq!(stand.refusal(), "tensor 1 (y) was pinned to gpu: it is not built for that");
    let graph = "x = input 8; k = external 8 @cpu; y = cpy x k";
    assert_eq!(
        Stand::new(TWO, graph).pin("y@gpu").refusal(),
        "tensor 2 (y) was pinned to gpu: it can't reach the memory of tensor 1 (k)"
    );
    // Who writes into a pinned root must be able to run there too.
    let graph = "x = input 8; k = leaf 8; y = cpy x k";
    assert_eq!(
        Stand::new("gpu lacks cpy; cpu", graph).pin("k@gpu").refusal(),
        "tensor 1 (k) was pinned to gpu: it shares its memory with tensor 2 (y): it is not built for that"
    );
}

#[test]
fn a_pin_of_an_external_tensor_must_say_where_it_stands() {
    let graph = "w = external f32[8,8] @gpu; x = input 8; y = mul_mat w x";
    assert_eq!(Stand::new(TWO, graph).pin("w@gpu").places(), "x@cpu y@gpu");
    assert_eq!(
        Stand::new(TWO, graph).pin("w@cpu").refusal(),
        "tensor 0 (w) was pinned to cpu: it can't reach the memory of tensor 0 (w)"
    );
}

#[test]
fn a_pin_chooses_among_those_who_reach_placed_memory() {
    let graph = "k = external 8 @gpu; x = input 8; y = cpy x k";
    let devices = "gpu; npu shares gpu; cpu";
    assert_eq!(Stand::new(devices, graph).places(), "x@cpu y@gpu");
    assert_eq!(Stand::new(devices, graph).pin("y@npu").places(), "x@cpu y@npu");
}

#[test]
fn a_pin_of_a_node_whose_result_is_placed_chooses_among_those_who_reach_it() {
    let stand = Stand::new("gpu; npu shares gpu; cpu", "x = input 8; y = neg x !external @gpu").pin("y@npu");
    assert_eq!((stand.places(), stand.why("y")), ("x@cpu y@npu".into(), "pinned by the caller".into()));
}

#[test]
fn a_pin_to_a_worker_that_is_not_there_is_refused_at_once() {
    let mut stand = Stand::new(TWO, "x = input 8; y = neg x");
    let error = stand.scheduler.pin(stand.id("y"), WorkerId::from_index(7).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "there is no worker 7: there are 2");
    assert_eq!(stand.places(), "x@cpu y@cpu");
}

#[test]
fn a_pin_holds_until_it_is_taken_back_or_all_are() {
    let mut stand = Stand::new(TWO, "x = input 8; a = neg x; b = sqr a").pin("a@gpu b@gpu");
    assert_eq!(stand.places(), "x@cpu a@gpu b@gpu");
    stand.scheduler.unpin(stand.id("b"));
    stand.scheduler.unpin(stand.id("x"));
    assert_eq!(stand.why("b"), "next to tensor 1 (a)");
    stand.scheduler.reset().unwrap();
    assert_eq!(stand.places(), "x@cpu a@cpu b@cpu");
}

#[test]
fn a_pin_holds_although_the_graph_is_known_already() {
    let mut stand = Stand::new(TWO, "x = input 8; a = neg x");
    stand.reserve().unwrap();
    let mut stand = stand.pin("a@gpu");
    assert_eq!(stand.places(), "x@cpu a@gpu");
    stand.reserve().unwrap();
    stand.scheduler.unpin(stand.id("a"));
    assert_eq!(stand.places(), "x@cpu a@cpu");
}

#[test]
fn a_pin_of_what_a_graph_does_not_have_does_not_matter_to_it() {
    let stand = Stand::new(TWO, "x = input 8; y = neg x; z = sqr y").pin("z@gpu");
    let (graph, homes) = stand.another("x = input 8; y = neg x");
    stand.scheduler.schedule(&graph, &homes).unwrap();
}

// Splits and copies.

#[test]
fn a_split_starts_where_the_worker_changes_and_says_why() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8
         a = add x w1; b = neg a; c = add b w2; d = add c w1";
    let stand = Stand::new(TWO, graph);
    assert_eq!(stand.splits(), "gpu[x: a b] cpu[b: c] gpu[c: d]");
    let causes: Vec<Cause> = stand.schedule().splits().iter().map(|split| split.cause).collect();
    assert_eq!(causes, [Cause::Start, Cause::Worker, Cause::Worker]);
}

#[test]
fn a_split_starts_before_a_weight_that_must_be_copied_unless_it_has_been() {
    let graph = "w1 = external f32[8,8] @cpu; w2 = external f32[8,8] @cpu; x = input 8
         a = mul_mat w1 x; b = neg a; c = mul_mat w2 b; d = mul_mat w2 c; e = mul_mat w1 d";
    let stand = Stand::new("gpu offloads mul_mat; cpu host", graph);
    assert_eq!(stand.splits(), "gpu[w1 x: a b] gpu[w2: c d e]");
    let causes: Vec<Cause> = stand.schedule().splits().iter().map(|split| split.cause).collect();
    assert_eq!(causes, [Cause::Start, Cause::Weight]);
    // What it reads where it stands is not copied, and splits nothing.
    splits("gpu offloads mul_mat reads cpu; cpu host", graph, "gpu[a b c d e]");
}

#[test]
fn both_weights_of_one_node_are_copied_for_one_split() {
    let graph = "w1 = external 8 @cpu; w2 = external 8 @cpu; x = input 8; a = ?F f32[8] x w1 w2; b = ?F f32[8] a w2";
    splits("gpu offloads f; cpu host", graph, "gpu[w1 w2 x: a b]");
}

#[test]
fn a_tensor_is_copied_once_for_a_split_however_often_it_is_read() {
    let graph = "w = external 8; x = input 8; a = ?F f32[8] x w x x; b = add a x; c = add x b";
    splits(TWO, graph, "gpu[x: a b c]");
}

#[test]
fn a_copy_is_used_by_later_splits_in_the_same_memory_until_its_root_is_written() {
    let between = |line: &str| {
        format!(
            "w1 = external 8 @gpu; w2 = external 8 @cpu; k = external 8 @cpu; x = input 8; v = view [4]+0 k; y = input 4
             a = ?F f32[8] w1 x k; b = ?F f32[8] w2 a; {line}; c = ?F f32[8] w1 b x k"
        )
    };
    splits(TWO, &between("d = ?F f32[8] w2 b"), "gpu[k x: a] cpu[a: b d] gpu[b: c]");
    splits(TWO, &between("d = cpy y v"), "gpu[k x: a] cpu[a: b d] gpu[k b: c]");
    // Another worker with the same memory can use it too.
    let graph = "w1 = external 8 @gpu; x = input 8; a = ?F f32[8] w1 x; b = ?G f32[8] w1 x";
    splits("gpu lacks g; npu shares gpu; cpu", graph, "gpu[x: a] npu[b]");
    splits("gpu lacks g; npu reads gpu; cpu", graph, "gpu[x: a] npu[x: b]");
}

#[test]
fn a_planned_root_that_is_written_again_is_copied_again() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8; y = input 4
         a = ?F f32[8] w2 x; b = ?F f32[8] w1 a; v = view [4]+16 a; c = cpy y v; d = ?F f32[8] w1 a";
    splits(TWO, graph, "cpu[a] gpu[a: b] cpu[c] gpu[a: d]");
}

#[test]
fn a_weight_that_was_copied_is_there_for_later_splits() {
    let graph = "w = external 8 @cpu; w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8
         a = ?F f32[8] w x; b = ?G f32[8] w2 a; c = ?F f32[8] w b";
    splits("gpu offloads f; cpu host", graph, "gpu[w x: a] cpu[a: b] gpu[b: c]");
}

#[test]
fn views_of_one_root_that_overlap_or_touch_are_copied_together_once() {
    let graph = |first: &str, second: &str| {
        format!(
            "w = external 8 @gpu; x = input i8[64]; p = view i8[{first} x; q = view i8[{second} x
             a = ?F f32[8] w p; b = ?F f32[8] q p; c = ?F f32[8] b q"
        )
    };
    splits(TWO, &graph("16]+0", "16]+8"), "gpu[x[0..24]: a b c]");
    splits(TWO, &graph("16]+32", "16]+16"), "gpu[x[16..48]: a b c]");
    splits(TWO, &graph("16]+0", "8]+4"), "gpu[x[0..16]: a b c]");
    splits(TWO, &graph("64]+0", "8]+4"), "gpu[x: a b c]");
    // What lies between is not copied.
    splits(TWO, &graph("16]+0", "16]+17"), "gpu[x[0..16] x[17..33]: a b c]");
}

#[test]
fn a_view_with_gaps_is_copied_with_its_gaps_and_keeps_its_strides() {
    let stand =
        Stand::new(TWO, "w = external 2 @gpu; x = input f32[4,4]; v = view [2,4]{4,16,64,64}+4 x; a = ?F f32[2] w v");
    assert_eq!(stand.splits(), "gpu[x[4..60]: a]");
    let schedule = stand.schedule();
    let (graph, copied) = (schedule.graph(), schedule.graph().sources(stand.id("a"))[1].unwrap());
    assert_eq!(graph.tensor(copied).layout, graph.tensor(stand.id("v")).layout);
}

#[test]
fn a_part_of_what_has_been_copied_is_not_copied_again() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input i8[64]; q = view i8[8]+40 x
         a = ?F f32[8] w1 x; b = ?F f32[8] w2 a; c = ?F f32[8] w1 b q";
    splits(TWO, graph, "gpu[x: a] cpu[a: b] gpu[b: c]");
}

#[test]
fn what_a_device_reads_where_it_stands_is_not_copied() {
    let graph = "w = external f32[8,8] @gpu; x = input 8; k = external 8 @disk; y = ?F f32[8] w x k";
    splits("gpu; cpu host; memory disk", graph, "gpu[x k: y]");
    splits("gpu reads cpu; cpu host; memory disk", graph, "gpu[k: y]");
    splits("gpu reads cpu disk; cpu host; memory disk", graph, "gpu[y]");
    splits("gpu; cpu shares gpu; memory disk", graph, "gpu[k: y]");
}

#[test]
fn a_result_stands_in_the_memory_of_its_worker_also_if_it_takes_over_a_source_that_stands_elsewhere() {
    judge(over_another_memory(), 1, PlanOptions::default());
}

#[test]
fn a_result_that_the_reuse_of_ggml_puts_into_another_memory_is_refused() {
    for planned in [PlanOptions::default().with_reuse(Reuse::Ggml), PlanOptions::new(GraphStrategy::Ggml)] {
        let mut stand = over_another_memory().with(SchedOptions::new().with_plan(planned));
        assert_eq!(
            stand.reserve().unwrap_err().to_string(),
            "with ggml's reuse tensor 1 (y) stands in the memory of its source, where its readers may not reach it; \
             use Reuse::More"
        );
        // Where nobody reads another's memory, nothing is taken over from there.
        judge(Stand::new("gpu offloads mul_mat; cpu host", WITH_EVERYTHING), 2, planned);
    }
}

/// `y` could take the bytes of `x`, which the gpu reaches and the npu does not.
fn over_another_memory() -> Stand {
    let graph = "x = input 8; y = neg x; z = sqr y !output";
    Stand::new("gpu reads cpu; npu reads gpu; cpu", graph).pin("y@gpu z@npu")
}

#[test]
fn a_copy_says_what_it_is() {
    let graph = "w = external f32[8,8] @cpu; x = input 8; a = mul_mat w x; b = neg a";
    let stand = Stand::new("gpu offloads mul_mat; cpu host", graph).pin("b@cpu");
    assert_eq!(stand.splits(), "gpu[w x: a] cpu[a: b]");
    let schedule = stand.schedule();
    let [w, x, a] = schedule.copies() else { panic!("{schedule}") };
    let (gpu, cpu) = (stand.worker("gpu"), stand.worker("cpu"));
    assert_eq!((w.from, w.to, w.is_weight, w.is_input, w.size.0), (None, gpu, true, false, 256));
    assert_eq!((x.from, x.to, x.is_weight, x.is_input, x.size.0), (Some(cpu), gpu, false, true, 32));
    assert_eq!((a.from, a.to, a.is_weight, a.is_input, a.size.0), (Some(gpu), cpu, false, false, 32));
    assert_eq!(schedule.copied().0, 320);
    assert_eq!(schedule.graph().name(w.tensors[0]), "w@gpu");
}

#[test]
fn the_copy_of_a_mixture_of_experts_knows_who_asks_if_that_is_known_before_its_split() {
    let stand = |ids: &str, more: &str| {
        let graph = format!(
            "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; {ids}
             y = mul_mat_id w x i; {more}"
        );
        Stand::new("gpu offloads mul_mat_id mul_mat pick; cpu host", &graph)
    };
    let asks = |stand: &Stand| {
        let schedule = stand.schedule();
        let weight = schedule.copies().iter().find(|copy| copy.is_weight).unwrap();
        weight.ids.iter().map(|ids| stand.graph.name(*ids)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(asks(&stand("i = input i32[2,3]", "")), "i");
    // Computed before: by the processor, by the same device in another split, or by nobody's concern.
    assert_eq!(asks(&stand("z = input i32[2,3]; i = cont z", "").pin("i@cpu")), "i");
    assert_eq!(asks(&stand("i = external i32[2,3] @gpu", "")), "i");
    // Computed in the same split: nobody knows when the copy is made. A weight that comes second starts a split of its own.
    assert_eq!(asks(&stand("i = input i32[2,3]", "u = mul_mat_id w x i")), "i");
    assert_eq!(asks(&stand("i = input i32[2,3]; j = input i32[2,3]", "u = mul_mat_id w x j")), "i j");
    // Somebody needs all of it.
    assert_eq!(asks(&stand("i = input i32[2,3]", "u = ?PICK f32[8] w y")), "");
    assert_eq!(asks(&stand("i = input i32[2,3]", "v = view [8,4]+0 w; u = ?PICK f32[8] v y")), "");
    // It is multiplied with, and not asked.
    let graph = "w = external f32[8,2,3] @cpu; e = external f32[8,4,16] @gpu; i = input i32[2,3]; y = mul_mat_id e w i";
    let schedule = Stand::new("gpu offloads mul_mat_id; cpu host", graph).schedule();
    assert!(schedule.copies().iter().all(|copy| copy.ids.is_empty()) && schedule.copies()[0].is_weight);
    // Experts that are no weight may change.
    let graph = "e = external f32[8,4,16] @cpu; w1 = external 8 @gpu; x = input f32[8,2,3]; i = input i32[2,3]
         y = mul_mat_id e x i; z = ?F f32[8] w1 y";
    let schedule = Stand::new(TWO, graph).schedule();
    assert!(schedule.copies().iter().all(|copy| copy.ids.is_empty()));
}

#[test]
fn ids_that_are_computed_in_the_split_that_copies_the_experts_are_not_asked() {
    // `y` takes the split of `a` as it is, because the weight is there already.
    let graph = "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; i = input i32[2,3]
         a = mul_mat_id w x i; j = ?PICK i32[2,3] a; y = mul_mat_id w x j";
    let stand = Stand::new("gpu offloads mul_mat_id; cpu host", graph);
    assert_eq!(stand.splits(), "gpu[w x i: a j y]");
    assert_eq!(stand.schedule().copies()[0].ids, []);
    // Written before, and again in the split.
    let graph = "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; i = external i32[2,3] @gpu; z = input i32[2,3]
         c = cpy z i; y = mul_mat_id w x i; d = cpy z i; u = mul_mat_id w x i";
    let stand = Stand::new("gpu offloads mul_mat_id; cpu host", graph);
    assert_eq!(stand.splits(), "gpu[z: c] gpu[w x: y d u]");
    assert_eq!(stand.schedule().copies()[1].ids, []);
}

#[test]
fn who_asks_for_experts_lives_until_they_are_copied() {
    let graph = "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; z = input i32[2,3]; i = cont z
         y = mul_mat_id w x i";
    let stand = Stand::new("gpu offloads mul_mat_id; cpu host", graph).pin("i@cpu");
    let schedule = stand.schedule();
    let copy = schedule.copies().iter().find(|copy| copy.is_weight).unwrap();
    assert!(schedule.graph().sources(copy.tensors[0]).contains(&Some(stand.id("i"))));
}

// Without limits.

#[test]
fn there_is_no_limit_on_splits() {
    let mut graph = String::from("w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8\n a0 = add x w1\n");
    for index in 1..5000 {
        graph += &format!("a{index} = add a{} w{}\n", index - 1, 1 + index % 2);
    }
    let stand = Stand::new(TWO, &graph);
    let schedule = stand.schedule();
    assert_eq!((schedule.splits().len(), schedule.copies().len()), (5000, 5000));
    // However long it is, a node writes over the copy that it reads.
    assert_eq!(stand.required(), [32, 32]);
}

#[test]
fn there_is_no_limit_on_the_copies_of_a_split_and_on_sources() {
    let names: Vec<String> = (0..700).map(|index| format!("x{index}")).collect();
    let inputs: Vec<String> = names.iter().map(|name| format!("{name} = input i8[4]")).collect();
    let graph = format!("{}; w = external 8; y = ?JOIN i8[4] w {}", inputs.join("; "), names.join(" "));
    let stand = Stand::new(TWO, &graph);
    let schedule = stand.schedule();
    assert_eq!((schedule.splits().len(), schedule.copies().len(), schedule.copied().0), (1, 700, 2800));
    assert_eq!(stand.required(), [2804, 2800]);
}

#[test]
fn there_is_no_limit_on_weights_that_are_copied() {
    let mut graph = String::from("x = input 8\n a0 = neg x\n");
    for index in 1..2000 {
        graph += &format!("w{index} = external f32[8,8] @cpu\n a{index} = mul_mat w{index} a{}\n", index - 1);
    }
    let stand = Stand::new("gpu offloads mul_mat; cpu host", &graph);
    let splits = stand.schedule().splits().len();
    assert!((1999..=2000).contains(&splits), "{splits}");
    // One weight at a time, its source and its result.
    assert_eq!(stand.required(), [256 + 64, 32]);
}

#[test]
fn there_is_no_limit_on_workers() {
    let devices: Vec<String> = (0..20).map(|index| format!("d{index}")).collect();
    let mut graph = String::from("x = input 8\n a0 = neg x\n");
    for index in 1..100 {
        graph += &format!("w{index} = external 8 @d{}\n a{index} = add a{} w{index}\n", index % 20, index - 1);
    }
    let stand = Stand::new(&devices.join(";"), &graph);
    assert_eq!(stand.schedule().splits().len(), 99);
    assert!(stand.required()[1..].iter().all(|bytes| (32..=64).contains(bytes)), "{:?}", stand.required());
}

#[test]
fn there_is_no_limit_on_the_writes_into_one_root() {
    let mut graph = String::from("w1 = external 4 @gpu; w2 = external 4 @cpu; k = leaf f32[4,600]; x = input 4\n");
    for index in 0..600 {
        graph += &format!("a{index} = add x w{}; v{index} = view [4]+{} k\n", 1 + index % 2, 16 * index);
        graph += &format!("c{index} = cpy a{index} v{index}\n");
    }
    let schedule = Stand::new(TWO, &graph).schedule();
    let k = schedule.copies().iter().filter(|copy| schedule.graph().name(copy.root) == "k").count();
    assert_eq!(k, 0, "who writes into a root reaches it");
}

// The caller's graph.

#[test]
fn the_callers_graph_is_not_changed() {
    let mut stand = Stand::new("gpu offloads mul_mat; cpu host", WITH_EVERYTHING);
    let (before, text) = (stand.graph.clone(), stand.graph.to_string());
    for turns in [1, 3] {
        stand = stand.with(SchedOptions::new().with_turns(turns));
        assert!(stand.schedule().copies().len() > 3);
        stand.required();
        stand.reserve().unwrap();
    }
    assert!(stand.graph.is_same(&before) && stand.graph == before);
    assert_eq!(stand.graph.to_string(), text);
}

/// Copies of all kinds.
const WITH_EVERYTHING: &str = "
    w = external f32[8,8] @cpu; w1 = external 8 @gpu; wx = external f32[8,4,16] @cpu; i = input i32[1,1]
    k = external f32[8,4] @cpu; x = input f32[8,1,1]
    a = mul_mat w x; v = view [8]+32 k; c = cpy a v; b = add k w1; p = view [4]+0 b; q = view [4]+16 b
    d = ?F f32[8] p q a; e = mul_mat_id wx x i; u = ?F f32[8] w1 d e !output";

#[test]
fn tensors_of_the_schedule_have_the_callers_ids_and_copies_come_behind() {
    let stand = Stand::new("gpu offloads mul_mat mul_mat_id; cpu host", WITH_EVERYTHING);
    let schedule = stand.schedule();
    let (before, after) = (&stand.graph, schedule.graph());
    for (id, tensor) in before.tensors().pairs() {
        assert_eq!((tensor, before.name(id)), (after.tensor(id), after.name(id)));
    }
    let callers = before.tensors().len();
    assert!(schedule.copies().iter().flat_map(|copy| &copy.tensors).all(|copy| copy.index() >= callers));
    assert_eq!(before.leafs(), &after.leafs()[..before.leafs().len()]);
}

#[test]
fn the_same_graph_has_the_same_schedule() {
    let said = |stand: &Stand| {
        let schedule = stand.schedule();
        format!("{schedule}\n{}\n{}\n{}", schedule.reasons(), schedule.to_graphviz(), schedule.graph())
    };
    let make = || Stand::new("gpu offloads mul_mat; npu reads cpu; cpu host", WITH_EVERYTHING).pin("d@npu");
    let (mut one, other) = (make(), make());
    let first = said(&one);
    assert_eq!(first, said(&other));
    assert_eq!(first, said(&one));
    one.reserve().unwrap();
    assert_eq!(first, said(&one), "also when it is remembered");
}

#[test]
fn a_known_schedule_is_not_used_for_other_homes() {
    let mut stand = Stand::new(TWO, "w = external f32[8,8] @gpu; x = input 8; y = mul_mat w x");
    stand.reserve().unwrap();
    let (graph, homes) = stand.another("w = external f32[8,8] @cpu; x = input 8; y = mul_mat w x");
    let schedule = stand.scheduler.schedule(&graph, &homes).unwrap();
    assert_eq!(schedule.worker(stand.id("y")), Some(stand.worker("cpu")));
    // Nor for the same home with another use.
    let (graph, homes) = stand.another("k = external f32[8,8] @gpu; x = input 8; y = mul_mat k x");
    let schedule = stand.scheduler.schedule(&graph, &homes).unwrap();
    assert_ne!(schedule.why(stand.id("y")).unwrap(), stand.why("y"));
}

// Odd graphs.

#[test]
fn an_empty_graph_has_no_splits_and_needs_nothing() {
    let mut stand = Stand::new(TWO, "");
    assert_eq!((stand.splits().as_str(), stand.required()), ("", vec![0, 0]));
    stand.reserve().unwrap();
    assert_eq!(stand.schedule().to_string().lines().count(), 2);
}

#[test]
fn a_graph_of_views_only_has_no_splits_and_memory_for_its_roots() {
    let stand =
        Stand::new(TWO, "x = input 8; k = external 8 @gpu; v = view [4]+0 x; u = view [4]+0 k; t = view [2]+0 v");
    assert_eq!((stand.splits().as_str(), stand.places().as_str()), ("", "x@cpu"));
    assert_eq!(stand.required(), [0, 32]);
}

#[test]
fn views_split_nothing_wherever_they_stand() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8; v = view [8]+0 x
         a = add v w1; u = view [8]+0 x; t = view [8]+0 w2; b = add a w1; s = view [4]+0 b";
    splits(TWO, graph, "gpu[x: a b]");
}

#[test]
fn tensors_of_no_bytes_are_scheduled_like_others() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input i8[0]; y = input 8
         a = ?F i8[0] w1 x; b = ?F i8[0] w2 a; v = view i8[0]+8 y; c = ?F f32[8] w1 v b y; k = leaf i8[0]; d = ?F i8[0] k c";
    let stand = Stand::new(TWO, graph);
    assert_eq!(stand.places(), "x@cpu y@cpu k@gpu a@gpu b@cpu c@gpu d@gpu");
    assert_eq!(stand.schedule().splits().len(), 3);
    judge(stand, 1, PlanOptions::default());
}

#[test]
fn a_root_that_nobody_lists_is_planned_with_who_reads_it() {
    let graph = "w = external f32[8,8]; c = leaf 8 !aside; v = view [4]+0 c; u = view [4]+16 c
         y = ?F f32[8] w v; z = ?F f32[4] y u !output";
    let stand = Stand::new(TWO, graph);
    assert_eq!((stand.splits().as_str(), stand.why("c").as_str()), ("gpu[y z]", "tensor 4 (y) reads it"));
    assert_eq!(stand.schedule().graph().leafs().len(), 2);
    judge(stand, 1, PlanOptions::default());
    // An external one stands where it stands.
    let graph = "w = external f32[8,8] @gpu; k = external f32[8,8] !aside; v = view [8]+0 k; y = mul_mat w v";
    splits(TWO, graph, "gpu[y]");
    // What is written by nodes of another graph, and read by those of this one.
    let graph = "x = input 8 !aside; h = neg x !aside; v = view [4]+0 h; y = sqr v !output";
    let stand = Stand::new(TWO, graph);
    assert_eq!(stand.splits(), "gpu[y]");
    judge(stand, 1, PlanOptions::default());
}

#[test]
fn a_root_that_is_reached_through_a_view_alone_is_planned() {
    let mut context = Context::new();
    let [c, x] = [(); 2].map(|()| context.new_tensor(DataType::F32, &[8]).unwrap());
    context.set_input(x).unwrap();
    let parts = [c, x].map(|root| context.view_1d(root, 4, Bytes(16)).unwrap());
    let sum = context.add(parts[0], parts[1]).unwrap();
    let mut stand = Stand::new(TWO, "");
    stand.graph = Graph::from_nodes(&context, &[sum]).unwrap();
    assert_eq!(stand.graph.leafs(), []);
    let schedule = stand.schedule();
    assert_eq!(schedule.reason(x), Some(Reason::Input));
    assert_eq!(schedule.reason(c), Some(Reason::Reader { node: sum }));
    assert_eq!(schedule.graph().leafs(), [c, x]);
    judge(stand, 1, PlanOptions::default());
}

#[test]
fn a_node_that_is_listed_twice_is_refused() {
    let graph = "k = external 8 @cpu; w = external 8 @gpu; x = input 8; a = ?F f32[8] w k; c = cpy x k; node a";
    let refusal = "tensor 3 (a) is listed more than once: on several devices it would need other copies each time";
    refused(TWO, graph, refusal);
}

#[test]
fn a_worker_may_compute_in_another_memory_than_its_devices_own() {
    let graph = "w = external f32[8,8] @gpu; x = input 8; y = mul_mat w x; z = neg y";
    let stand = Stand::new(TWO, graph).pin("z@cpu");
    assert_eq!(stand.splits(), "gpu[x: y] cpu[y: z]");
    let device = |index: usize| -> Arc<dyn Device> { Arc::<StandIn>::clone(&stand.devices[index]) };
    let gpu = Worker::for_planning(&device(0)).unwrap().with_memory(stand.devices[1].own());
    let mut scheduler = Scheduler::with_workers([gpu, Worker::for_planning(&device(1)).unwrap()]).unwrap();
    scheduler.pin(stand.id("z"), worker(1)).unwrap();
    let schedule = scheduler.schedule(&stand.graph, &stand.homes).unwrap();
    assert_eq!((schedule.splits().len(), schedule.copies().len()), (2, 0));
    assert_eq!(schedule.worker(stand.id("y")), Some(worker(0)), "its weight is where its device reads it");
}

// Random graphs.

#[test]
fn every_random_graph_is_scheduled_so_that_everyone_can_run_and_read_what_it_needs() {
    judge_random(|graph, _| graph);
}

#[test]
fn and_so_is_every_random_graph_whose_nodes_are_written_into_later() {
    judge_random(with_writers);
}

fn judge_random(change: fn(Graph, &mut Choices<'_>) -> Graph) {
    let (mut made, mut copies) = (0, 0);
    for seed in 0..600 {
        let stand = random_stand(seed, change);
        match stand.try_schedule() {
            Ok(schedule) => {
                (made, copies) = (made + 1, copies + schedule.copies().len());
                judge(stand, 1 + usize::try_from(seed % 3).unwrap(), PlanOptions::default());
            }
            Err(error) => check_refusal(&stand, seed, &error),
        }
    }
    assert!(made > 400 && copies > 2000, "only {made} graphs had a schedule, with {copies} copies");
}

#[test]
fn every_reason_is_true() {
    for seed in 0..600 {
        let stand = random_stand(seed, |graph, _| graph);
        let Ok(schedule) = stand.try_schedule() else { continue };
        let plan = plan_graph(&stand.assigned(&schedule), &PlanOptions::default()).unwrap();
        let judge = Judge::new(&stand, &schedule, &plan);
        let listed = stand.graph.leafs().iter().chain(stand.graph.nodes()).copied();
        for tensor in listed.filter(|tensor| schedule.worker(*tensor).is_some()) {
            let why = schedule.why(tensor);
            assert!(judge.explains(tensor), "{seed}: {tensor}, because {why:?}\n{}", schedule.reasons());
        }
    }
}

/// Two to five devices that read each other's memory or share it, with operations missing, homes and pins of any kind.
fn random_stand(seed: u64, change: fn(Graph, &mut Choices<'_>) -> Graph) -> Stand {
    let choices = &mut Choices::from_seed(seed);
    let graph = change(random_graph(choices).into_graph(), choices);
    let ops: Vec<String> =
        graph.nodes().iter().filter(|node| computes(&graph, **node)).map(|node| op(&graph, *node)).collect();
    let count = 2 + choices.below(4);
    let mut text = String::from("memory disk host\n");
    for index in 0..count {
        text += &format!("d{index}");
        if index > 0 && choices.once_in(4) {
            text += &format!(" shares {}", if choices.once_in(4) { "disk" } else { "d0" });
        }
        if choices.once_in(3) {
            text += " host";
        }
        for (word, times) in [("lacks", if index + 1 == count { 12 } else { 3 }), ("offloads", 4)] {
            for _ in 0..4 {
                if choices.once_in(times) && !ops.is_empty() {
                    text += &format!(" {word} {}", ops[choices.below(ops.len())]);
                }
            }
        }
        for other in (0..count).filter(|other| *other != index) {
            if choices.once_in(5) {
                text += &format!(" reads d{other}");
            }
        }
        text += if choices.once_in(4) || index + 1 == count { " reads disk\n" } else { "\n" };
    }
    let mut stand = Stand::new(&text, "");
    stand.graph = graph;
    for tensor in stand.graph.tensors().ids().filter(|tensor| stand.graph.tensor(*tensor).external).collect::<Vec<_>>()
    {
        let usage = if choices.once_in(3) { Usage::Any } else { Usage::Weights };
        stand.put(tensor, choices.below(stand.memories.len()), usage);
    }
    let pins = if choices.once_in(2) { 0 } else { choices.below(6) };
    for _ in 0..pins {
        let tensor = TensorId::from_index(choices.below(stand.graph.tensors().len())).unwrap();
        stand.pin_id(tensor, WorkerId::from_index(choices.below(count)).unwrap());
    }
    stand
}

/// Some nodes are written into once more, later.
fn with_writers(graph: Graph, choices: &mut Choices<'_>) -> Graph {
    let mut nodes = graph.nodes().to_vec();
    let mut parts = graph.clone().into_parts();
    for kind in ["SET", "ACC", "SET"].into_iter().take(choices.below(4)) {
        let index = choices.below(nodes.len());
        let Some(&root) = nodes.get(index) else { continue };
        let it = parts.tensors()[root];
        if it.is_planned() && !it.op.writes_nothing() {
            let (op, view) = (parts.op(kind, None).unwrap(), Some(View { root, offset: Bytes::ZERO }));
            let writer = parts.push(Tensor { op, view, ..Tensor::new(it.layout) }, &[Some(root)]).unwrap();
            nodes.insert(index + 1 + choices.below(nodes.len() - index), writer);
        }
    }
    parts.set_nodes(nodes);
    parts.finish().unwrap()
}

/// Whether nobody could have done it.
fn check_refusal(stand: &Stand, seed: u64, error: &SchedError) {
    let graph = &stand.graph;
    let unit = |tensor: TensorId| {
        let root = graph.root(tensor);
        let shares = |node: &TensorId| computes(graph, *node) && graph.root(*node) == root;
        let together: Vec<TensorId> = graph.nodes().iter().copied().filter(shares).collect();
        if graph.tensor(root).external { vec![tensor] } else { together }
    };
    let supports = |worker: &Arc<StandIn>, node| !computes(graph, node) || worker.supports(graph, node).is_ok();
    // Who writes into a root with others may be anyone who reaches its memory.
    let runs = |worker: &Arc<StandIn>, tensor: TensorId| {
        let reaches = stand.home.get(&graph.root(tensor)).is_none_or(|home| worker.reads(home));
        let beside = || stand.devices.iter().filter(|other| other.reads(worker.own()));
        let unit = unit(tensor);
        reaches
            && (unit.len() > 1 || unit.iter().all(|node| supports(worker, *node)))
            && unit.iter().all(|node| beside().any(|other| supports(other, *node)))
    };
    match error {
        SchedError::Unsupported { node, .. } => {
            assert!(!stand.devices.iter().any(|worker| runs(worker, node.id)), "{seed}: {error}");
        }
        SchedError::Pinned { tensor, worker, .. } => {
            let device = stand.devices.iter().find(|device| device.name() == worker).unwrap();
            let pinned = |other: &(&TensorId, &WorkerId)| graph.root(*other.0) == graph.root(tensor.id);
            let others: Vec<WorkerId> = stand.pins.iter().filter(pinned).map(|(_, worker)| *worker).collect();
            let contradicts = others.iter().any(|other| *other != others[0]);
            let holds = contradicts || !runs(device, tensor.id) || !supports(device, tensor.id);
            assert!(holds, "{seed}: {error}");
        }
        other => panic!("{seed}: {other}"),
    }
}

/// Holds a schedule to what a schedule is, by the caller's graph alone.
fn judge(stand: Stand, turns: usize, planned: PlanOptions) {
    let mut stand = stand.with(SchedOptions::new().with_turns(turns).with_plan(planned));
    let before = stand.graph.clone();
    let schedule = stand.schedule();
    let assigned = stand.assigned(&schedule);
    let plan = plan_graph(&assigned, &planned).unwrap();
    replay(&assigned, &plan.places()).unwrap_or_else(|faults| panic!("{faults}\n{schedule}\n{before}"));
    Judge::new(&stand, &schedule, &plan).whole(turns);
    // What is required is what is planned, and what is allocated.
    let mut peaks = vec![0; stand.devices.len()];
    plan.memories().iter().for_each(|memory| peaks[memory.memory.index()] = memory.plan.peak().0);
    assert_eq!((stand.required(), stand.asked()), (peaks.clone(), 0));
    stand.reserve().unwrap();
    assert_eq!(stand.allocated(), peaks);
    assert!(stand.graph.is_same(&before));
    assert_eq!(stand.schedule().to_string(), schedule.to_string());
}

struct Judge<'a> {
    stand: &'a Stand,
    schedule: &'a Schedule,
    plan: &'a GraphPlan,
    /// How often each root has been written so far.
    writes: Vec<usize>,
    made: Vec<Made>,
}

/// A copy that has been made.
struct Made {
    copy: usize,
    split: usize,
    /// How often the root had been written then.
    writes: usize,
}

impl<'a> Judge<'a> {
    fn new(stand: &'a Stand, schedule: &'a Schedule, plan: &'a GraphPlan) -> Self {
        let writes = vec![0; schedule.graph().tensors().len()];
        Self { stand, schedule, plan, writes, made: Vec::new() }
    }

    fn whole(&mut self, turns: usize) {
        let (stand, schedule) = (self.stand, self.schedule);
        let nodes = schedule.graph().nodes();
        let (mut seen, mut end, mut copies) = (Vec::<TensorId>::new(), 0, 0);
        for (number, split) in schedule.splits().iter().enumerate() {
            assert!(split.nodes.start >= end && split.copies.start == copies, "splits are in order");
            for copy in split.copies.clone() {
                let it = &schedule.copies()[copy];
                let each = if it.is_weight { 1 } else { turns };
                assert_eq!((it.tensors.len(), it.to), (each, split.worker));
                let between = &nodes[end..split.nodes.start];
                assert!(it.tensors.iter().all(|copy| between.contains(copy)), "copies are made before their split");
                self.copied(copy, number);
            }
            for &node in nodes[split.nodes.clone()].iter().filter(|node| computes(&stand.graph, **node)) {
                self.ran(node, split.worker);
            }
            seen.extend(&nodes[split.nodes.clone()]);
            (end, copies) = (split.nodes.end, split.copies.end);
        }
        assert_eq!(copies, schedule.copies().len());
        if !schedule.splits().is_empty() {
            assert_eq!(seen, stand.graph.nodes(), "the splits are the nodes in their order");
        }
        let planned = stand.graph.leafs().iter().filter(|leaf| stand.graph.tensor(**leaf).is_planned());
        let computing = stand.graph.nodes().iter().filter(|node| computes(&stand.graph, **node));
        for &tensor in planned.chain(computing) {
            let worker = schedule.worker(tensor).unwrap();
            assert!(schedule.why(tensor).is_some_and(|why| !why.is_empty()));
            // Nothing moves away from where it was pinned.
            let pinned = stand.pins.get(&tensor);
            assert!(pinned.is_none_or(|pinned| *pinned == worker || stand.graph.tensor(tensor).external));
        }
    }

    /// Whether the reason for where a tensor is is true.
    fn explains(&self, tensor: TensorId) -> bool {
        let (graph, schedule) = (&self.stand.graph, self.schedule);
        let (by, root) = (schedule.worker(tensor).unwrap(), graph.root(tensor));
        let is_last = by.index() + 1 == self.stand.devices.len();
        match schedule.reason(tensor).unwrap() {
            Reason::Pinned => self.stand.pins.keys().any(|pin| graph.root(*pin) == root),
            Reason::Placed { root } => self.reads(by, root),
            Reason::Input => graph.tensor(root).flags.is_input() && is_last,
            Reason::Weight { weight } => self.reads(by, graph.root(weight)),
            Reason::Offloaded { weight } => self.stand.home[&graph.root(weight)].is_host(),
            Reason::Neighbour { node } | Reason::Reader { node } => schedule.worker(node) == Some(by),
            Reason::Sources { readable, of } => readable <= of,
            Reason::Upgraded { from } => by < from && Arc::ptr_eq(self.own(by), self.own(from)),
            Reason::Unread => is_last,
            _ => schedule.why(tensor).is_some(),
        }
    }

    fn copied(&mut self, copy: usize, split: usize) {
        let it = &self.schedule.copies()[copy];
        let graph = self.schedule.graph();
        assert!(!self.reads(it.to, it.root), "{} is copied for someone who reads it", graph.name(it.root));
        let range = |copy: usize| {
            let it = &self.schedule.copies()[copy];
            it.start.0..it.start.0 + it.size.0
        };
        let new = range(copy);
        for made in &self.made {
            let (other, old) = (&self.schedule.copies()[made.copy], range(made.copy));
            if other.root != it.root || made.writes != self.writes[it.root.index()] {
                continue;
            }
            let overlaps = old.start < new.end && new.start < old.end;
            assert!(made.split != split || !overlaps, "bytes are copied twice for a split\n{}", self.schedule);
            let same = Arc::ptr_eq(self.own(other.to), self.own(it.to));
            let covers = old.start <= new.start && new.end <= old.end && !new.is_empty();
            assert!(it.is_weight || !same || !covers, "bytes are copied that are there\n{}", self.schedule);
        }
        for &copy in &it.tensors {
            assert_eq!(graph.tensor(copy).op, Op::Dup);
            assert_eq!(graph.tensor(copy).nbytes(), it.size);
            assert!(
                graph.sources(copy).iter().flatten().any(|source| graph.root(*source) == it.root),
                "it lives so long"
            );
            let place = self.plan.place(copy).unwrap();
            assert!(Arc::ptr_eq(self.own(worker(place.memory.index())), self.own(it.to)));
        }
        self.made.push(Made { copy, split, writes: self.writes[it.root.index()] });
    }

    fn ran(&mut self, node: TensorId, by: WorkerId) {
        let (before, after) = (&self.stand.graph, self.schedule.graph());
        let said = || format!("{} on {}\n{}\n{before}", after.name(node), by.index(), self.schedule);
        assert_eq!(self.schedule.worker(node), Some(by));
        assert!(self.stand.devices[by.index()].supports(before, node).is_ok(), "{}", said());
        assert!(self.reads(by, after.root(node)), "it does not reach what it writes: {}", said());
        for (source, now) in before.sources(node).iter().zip(after.sources(node)) {
            let (Some(source), Some(now)) = (*source, *now) else { continue };
            assert!(self.reads(by, after.root(now)), "it can't read {}: {}", after.name(now), said());
            if source == now {
                continue;
            }
            // A copy: of the right root, at the right bytes, and not older than the root.
            assert_eq!(before.tensor(source).layout, after.tensor(now).layout);
            let is_it = |made: &&Made| self.schedule.copies()[made.copy].tensors[0] == after.root(now);
            let made =
                self.made.iter().find(is_it).unwrap_or_else(|| panic!("a copy that is not made yet: {}", said()));
            let copy = &self.schedule.copies()[made.copy];
            assert_eq!(copy.root, before.root(source));
            assert_eq!(copy.start.0 + after.tensors().offset(now).0, before.tensors().offset(source).0);
            assert_eq!(made.writes, self.writes[copy.root.index()], "a copy that is out of date: {}", said());
        }
        self.writes[before.root(node).index()] += 1;
    }

    /// Whether a worker reads and writes a root where it really stands, be it that it was taken over from someone else.
    fn reads(&self, worker_id: WorkerId, root: TensorId) -> bool {
        let memory = match self.plan.place(root) {
            Some(place) => self.own(worker(place.memory.index())),
            None => &self.stand.home[&root],
        };
        self.stand.devices[worker_id.index()].reads(memory)
    }

    fn own(&self, worker: WorkerId) -> &'a Arc<dyn BufferType> {
        self.stand.devices[worker.index()].own()
    }
}

fn worker(index: usize) -> WorkerId {
    WorkerId::from_index(index).unwrap()
}
