//! What callers decide.

use super::*;

// Pins.

#[test]
fn a_pin_decides_over_weights_inputs_neighbours_and_readers() {
    let graph = "w = external f32[8,8]; x = input 8; c = leaf 8; a = mul_mat w x; b = add a c";
    let setup = PlanningSetup::new(THREE, graph);
    assert_eq!(setup.places(), "x@cpu c@gpu a@gpu b@gpu");
    let setup = setup.pin("a@cpu");
    assert_eq!(setup.places(), "x@cpu c@cpu a@cpu b@cpu");
    let setup = setup.pin("x@npu c@npu b@gpu a@npu");
    assert_eq!(setup.places(), "x@npu c@npu a@npu b@gpu");
    assert_eq!(setup.why("b"), "pinned by the caller");
}

#[test]
fn a_pin_decides_over_offloading() {
    let graph = "w = external f32[8,8] @cpu; x = input 8; y = mul_mat w x";
    let setup = PlanningSetup::new("gpu offloads mul_mat; cpu host", graph).pin("y@cpu");
    assert_eq!(setup.places(), "x@cpu y@cpu");
}

#[test]
fn a_pin_of_a_view_is_one_of_its_root() {
    let graph = "x = input 8; a = neg x; v = view [4]+0 a; b = sqr v";
    assert_eq!(PlanningSetup::new(THREE, graph).pin("v@npu").places(), "x@cpu a@npu b@npu");
    let graph = "x = input 8; k = leaf 8; v = view [4]+0 k; y = input 4; c = cpy y v; b = sqr k";
    assert_eq!(PlanningSetup::new(THREE, graph).pin("c@npu").places(), "x@cpu k@npu y@cpu c@npu b@npu");
    let setup = PlanningSetup::new(THREE, graph).pin("k@npu v@npu b@gpu");
    assert_eq!(setup.places(), "x@cpu k@npu y@cpu c@npu b@gpu");
}

#[test]
fn two_pins_of_one_root_that_contradict_each_other_are_refused() {
    let setup = PlanningSetup::new(TWO, "x = input 8; a = neg x; v = view [4]+0 a; b = sqr v").pin("a@gpu v@cpu");
    assert_eq!(
        setup.refusal(),
        "tensor 2 (v): can't be on cpu, which it is pinned to: its memory is shared with a tensor that is pinned to gpu"
    );
}

#[test]
fn a_pin_to_a_worker_that_can_not_run_it_is_refused_with_what_its_device_says() {
    let setup = PlanningSetup::new("gpu lacks neg; cpu", "x = input 8; y = neg x").pin("y@gpu");
    assert_eq!(
        setup.refusal(),
        "tensor 1 (y): can't be on gpu, which it is pinned to: gpu: unsupported node: tensor 1 (y), neg of (f32[8]) to f32[8]: it is not built for that"
    );
    let graph = "x = input 8; k = external 8 @cpu; y = cpy x k";
    assert_eq!(
        PlanningSetup::new(TWO, graph).pin("y@gpu").refusal(),
        "tensor 2 (y): can't be on gpu, which it is pinned to: the memory of tensor 1 (k) is out of reach"
    );
    // Every node that writes into a pinned root must be able to run there too.
    let graph = "x = input 8; k = leaf 8; y = cpy x k";
    assert_eq!(
        PlanningSetup::new("gpu lacks cpy; cpu", graph).pin("k@gpu").refusal(),
        "tensor 1 (k): can't be on gpu, which it is pinned to: its memory is shared with tensor 2 (y), which is not supported there: gpu: unsupported node: tensor 2 (y), cpy of (f32[8], f32[8]) to f32[8]: it is not built for that"
    );
}

#[test]
fn a_pin_of_an_external_tensor_must_say_where_it_stands() {
    let graph = "w = external f32[8,8] @gpu; x = input 8; y = mul_mat w x";
    assert_eq!(PlanningSetup::new(TWO, graph).pin("w@gpu").places(), "x@cpu y@gpu");
    assert_eq!(
        PlanningSetup::new(TWO, graph).pin("w@cpu").refusal(),
        "tensor 0 (w): can't be on cpu, which it is pinned to: the memory of tensor 0 (w) is out of reach"
    );
}

#[test]
fn a_pin_chooses_among_those_who_reach_placed_memory() {
    let graph = "k = external 8 @gpu; x = input 8; y = cpy x k";
    let devices = "gpu; npu shares gpu; cpu";
    assert_eq!(PlanningSetup::new(devices, graph).places(), "x@cpu y@gpu");
    assert_eq!(PlanningSetup::new(devices, graph).pin("y@npu").places(), "x@cpu y@npu");
}

#[test]
fn a_pin_of_a_node_whose_result_is_placed_chooses_among_those_who_reach_it() {
    let setup = PlanningSetup::new("gpu; npu shares gpu; cpu", "x = input 8; y = neg x !external @gpu").pin("y@npu");
    assert_eq!((setup.places(), setup.why("y")), ("x@cpu y@npu".into(), "pinned by the caller".into()));
}

#[test]
fn a_pin_to_a_worker_that_is_not_there_is_refused_at_once() {
    let mut setup = PlanningSetup::new(TWO, "x = input 8; y = neg x");
    let error = setup.scheduler.pin(setup.id("y"), WorkerId::from_index(7).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "worker 7: does not exist: there are 2");
    assert_eq!(setup.places(), "x@cpu y@cpu");
}

#[test]
fn a_pin_holds_until_it_is_taken_back_or_all_are() {
    let mut setup = PlanningSetup::new(TWO, "x = input 8; a = neg x; b = sqr a").pin("a@gpu b@gpu");
    assert_eq!(setup.places(), "x@cpu a@gpu b@gpu");
    setup.scheduler.unpin(setup.id("b"));
    setup.scheduler.unpin(setup.id("x"));
    assert_eq!(setup.why("b"), "next to tensor 1 (a)");
    setup.scheduler.reset().unwrap();
    assert_eq!(setup.places(), "x@cpu a@cpu b@cpu");
}

#[test]
fn a_pin_holds_although_the_graph_is_known_already() {
    let mut setup = PlanningSetup::new(TWO, "x = input 8; a = neg x");
    setup.reserve().unwrap();
    let mut setup = setup.pin("a@gpu");
    assert_eq!(setup.places(), "x@cpu a@gpu");
    setup.reserve().unwrap();
    setup.scheduler.unpin(setup.id("a"));
    assert_eq!(setup.places(), "x@cpu a@cpu");
}

#[test]
fn a_pin_of_what_a_graph_does_not_have_does_not_matter_to_it() {
    let setup = PlanningSetup::new(TWO, "x = input 8; y = neg x; z = sqr y").pin("z@gpu");
    let (graph, homes) = setup.another("x = input 8; y = neg x");
    setup.scheduler.schedule(&graph, &homes).unwrap();
}
