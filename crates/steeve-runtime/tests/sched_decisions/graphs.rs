//! Graphs: the caller's own, and odd ones.

use super::*;

// The caller's graph.

#[test]
fn the_callers_graph_is_not_changed() {
    let mut setup = PlanningSetup::new("gpu offloads mul_mat; cpu host", WITH_EVERYTHING);
    let (before, text) = (setup.graph.clone(), setup.graph.to_string());
    for turns in [1, 3] {
        setup = setup.with(SchedOptions::new().with_pipeline_depth(turns));
        assert!(setup.schedule().copies().len() > 3);
        setup.required();
        setup.reserve().unwrap();
    }
    assert!(setup.graph.is_same(&before) && setup.graph == before);
    assert_eq!(setup.graph.to_string(), text);
}

#[test]
fn tensors_of_the_schedule_have_the_callers_ids_and_copies_come_behind() {
    let setup = PlanningSetup::new("gpu offloads mul_mat mul_mat_id; cpu host", WITH_EVERYTHING);
    let schedule = setup.schedule();
    let (before, after) = (&setup.graph, schedule.graph());
    for (id, tensor) in before.tensors().pairs() {
        assert_eq!((tensor, before.name(id)), (after.tensor(id), after.name(id)));
    }
    let callers = before.tensors().len();
    assert!(schedule.copies().iter().flat_map(|copy| &copy.tensors).all(|copy| copy.index() >= callers));
    assert_eq!(before.leafs(), &after.leafs()[..before.leafs().len()]);
}

#[test]
fn the_same_graph_has_the_same_schedule() {
    let said = |setup: &PlanningSetup| {
        let schedule = setup.schedule();
        format!("{schedule}\n{}\n{}\n{}", schedule.reasons(), schedule.to_graphviz(), schedule.graph())
    };
    let make = || PlanningSetup::new("gpu offloads mul_mat; npu reads cpu; cpu host", WITH_EVERYTHING).pin("d@npu");
    let (mut one, other) = (make(), make());
    let first = said(&one);
    assert_eq!(first, said(&other));
    assert_eq!(first, said(&one));
    one.reserve().unwrap();
    assert_eq!(first, said(&one), "also when it is remembered");
}

#[test]
fn a_known_schedule_is_not_used_for_other_homes() {
    let mut setup = PlanningSetup::new(TWO, "w = external f32[8,8] @gpu; x = input 8; y = mul_mat w x");
    setup.reserve().unwrap();
    let (graph, homes) = setup.another("w = external f32[8,8] @cpu; x = input 8; y = mul_mat w x");
    let schedule = setup.scheduler.schedule(&graph, &homes).unwrap();
    assert_eq!(schedule.worker(setup.id("y")), Some(setup.worker("cpu")));
    // Nor for the same home with another use.
    let (graph, homes) = setup.another("k = external f32[8,8] @gpu; x = input 8; y = mul_mat k x");
    let schedule = setup.scheduler.schedule(&graph, &homes).unwrap();
    assert_ne!(schedule.why(setup.id("y")).unwrap(), setup.why("y"));
}

// Odd graphs.

#[test]
fn an_empty_graph_has_no_splits_and_needs_nothing() {
    let mut setup = PlanningSetup::new(TWO, "");
    assert_eq!((setup.splits().as_str(), setup.required()), ("", vec![0, 0]));
    setup.reserve().unwrap();
    assert_eq!(setup.schedule().to_string().lines().count(), 2);
}

#[test]
fn a_graph_of_views_only_has_no_splits_and_memory_for_its_roots() {
    let setup = PlanningSetup::new(
        TWO,
        "x = input 8; k = external 8 @gpu; v = view [4]+0 x; u = view [4]+0 k; t = view [2]+0 v",
    );
    assert_eq!((setup.splits().as_str(), setup.places().as_str()), ("", "x@cpu"));
    assert_eq!(setup.required(), [0, 32]);
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
    let setup = PlanningSetup::new(TWO, graph);
    assert_eq!(setup.places(), "x@cpu y@cpu k@gpu a@gpu b@cpu c@gpu d@gpu");
    assert_eq!(setup.schedule().splits().len(), 3);
    judge(setup, 1, PlanOptions::default());
}

#[test]
fn a_root_that_nobody_lists_is_planned_with_who_reads_it() {
    let graph = "w = external f32[8,8]; c = leaf 8 !aside; v = view [4]+0 c; u = view [4]+16 c
         y = ?F f32[8] w v; z = ?F f32[4] y u !output";
    let setup = PlanningSetup::new(TWO, graph);
    assert_eq!((setup.splits().as_str(), setup.why("c").as_str()), ("gpu[y z]", "tensor 4 (y) reads it"));
    assert_eq!(setup.schedule().graph().leafs().len(), 2);
    judge(setup, 1, PlanOptions::default());
    // An external one keeps its location.
    let graph = "w = external f32[8,8] @gpu; k = external f32[8,8] !aside; v = view [8]+0 k; y = mul_mat w v";
    splits(TWO, graph, "gpu[y]");
    // What is written by nodes of another graph, and read by those of this one.
    let graph = "x = input 8 !aside; h = neg x !aside !external @gpu; v = view [4]+0 h; y = sqr v !output";
    let setup = PlanningSetup::new(TWO, graph);
    assert_eq!(setup.splits(), "gpu[y]");
    judge(setup, 1, PlanOptions::default());
}

#[test]
fn a_root_that_is_reached_through_a_view_alone_is_planned() {
    let mut context = Context::new();
    let [c, x] = [(); 2].map(|()| context.new_tensor(DataType::F32, &[8]).unwrap());
    context.set_input(x).unwrap();
    let parts = [c, x].map(|root| context.view_1d(root, 4, Bytes(16)).unwrap());
    let sum = context.add(parts[0], parts[1]).unwrap();
    let mut setup = PlanningSetup::new(TWO, "");
    setup.graph = Graph::from_nodes(&context, &[sum]).unwrap();
    assert_eq!(setup.graph.leafs(), []);
    let schedule = setup.schedule();
    assert_eq!(schedule.reason(x), Some(AssignReason::Input));
    assert_eq!(schedule.reason(c), Some(AssignReason::Reader { node: sum }));
    assert_eq!(schedule.graph().leafs(), [c, x]);
    judge(setup, 1, PlanOptions::default());
}

#[test]
fn a_worker_may_compute_in_another_memory_than_its_devices_own() {
    let graph = "w = external f32[8,8] @gpu; x = input 8; y = mul_mat w x; z = neg y";
    let setup = PlanningSetup::new(TWO, graph).pin("z@cpu");
    assert_eq!(setup.splits(), "gpu[x: y] cpu[y: z]");
    let device = |index: usize| -> Arc<dyn Device> { Arc::<PlanningDevice>::clone(&setup.devices[index]) };
    let gpu = Worker::for_planning(&device(0)).unwrap().with_memory(setup.devices[1].own());
    let mut scheduler = Scheduler::with_workers([gpu, Worker::for_planning(&device(1)).unwrap()]).unwrap();
    scheduler.pin(setup.id("z"), worker(1)).unwrap();
    let schedule = scheduler.schedule(&setup.graph, &setup.locations).unwrap();
    assert_eq!((schedule.splits().len(), schedule.copies().len()), (2, 0));
    assert_eq!(schedule.worker(setup.id("y")), Some(worker(0)), "its weight is where its device reads it");
}
