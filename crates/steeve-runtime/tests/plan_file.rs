//! Laws of plans that were made before: a program starts without planning.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod placed;

use std::sync::Arc;

use graphs::{assigned, device, memory, spec, tensor};
use placed::Laws;
use steeve_device::{Bindings, BufferType, Bytes, DiscreteDevice};
use steeve_graph::{
    Align, AssignedGraph, Assignment, ErrorChain, GraphPlan, MatchMemories, Memory, PlanOptions, plan_graph,
};
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator, Replan};

fn chain(size: u64) -> AssignedGraph {
    assigned(&format!(
        "memory gpu align=32; x = input f32[{size}]; a = sqr x; b = ?F f32[{size}] a; c = add a b; y = neg c !output"
    ))
}

/// An allocator that plans nothing by itself.
fn strict(device: &DiscreteDevice) -> GraphAllocator {
    GraphAllocator::new(&memory(device)).with_options(AllocOptions::new().with_replan(Replan::Never))
}

#[test]
fn a_plan_that_was_saved_is_used_without_planning() {
    let first = device(32);
    let mut planner = GraphAllocator::new(&memory(&first));
    planner.reserve(chain(64).graph()).unwrap();
    let plan = planner.plan_of(chain(64).graph()).unwrap();
    let (saved, assigned) = (plan.to_json(), plan.assigned().clone());

    // Another program, another device of the same kind.
    let second = device(32);
    let mut allocator = strict(&second);
    let plan = GraphPlan::from_json(&saved, &assigned).unwrap();
    allocator.reserve_planned(plan).unwrap();
    assert_eq!(allocator.buffer_size(0), planner.buffer_size(0));
    for size in [64, 3] {
        let graph = chain(size);
        let bindings = Bindings::new();
        let allocation = allocator.alloc(graph.graph(), &bindings).unwrap();
        let memories = [memory(&second)];
        let (assignment, options) = (graph.assignment(), &PlanOptions::default());
        Laws { memories: &memories, assignment, options, bindings: &bindings }.check(&allocation).unwrap();
        allocation.write(tensor(graph.graph(), "x"), &vec![1.0f32; size as usize]).unwrap();
        allocation.begin().unwrap().finish();
    }
    assert_eq!(second.ledger().asked(), 1);
    assert!(matches!(allocator.alloc(chain(65).graph(), &Bindings::new()), Err(AllocError::NeedsReserve { .. })));
}

#[test]
fn a_saved_plan_above_the_limit_is_refused_and_nothing_is_reserved() {
    let device = device(32);
    let mut allocator = strict(&device);
    let graph = chain(64);
    let large = " ".repeat((256 << 20) + 1);
    let single = Assignment::single(graph.graph());
    for error in [
        allocator.load_plan(graph.graph(), &large),
        allocator.read_plan((graph.graph(), &single), &large, MatchMemories::ByOrder).map(drop),
    ] {
        let error = ErrorChain(&error.unwrap_err()).to_string();
        assert!(error.contains("input too large: at most 268435456 bytes are read, got 268435457"), "{error}");
    }
    // A name of any length is clipped, as everywhere.
    let long = format!(r#"{{"schema":"steeve-plan","version":3,"{}":1}}"#, "n".repeat(5000));
    let error = ErrorChain(&allocator.load_plan(graph.graph(), &long).unwrap_err()).to_string();
    assert!(error.len() < 600 && error.contains("bytes left out") && error.contains("line 1"), "{error}");
    assert_eq!(device.ledger().asked(), 0);
}

#[test]
fn a_plan_of_several_memories_is_used_where_it_says() {
    let text = "memory gpu align=32; memory gpu2 align=32; x = input i8[64] @gpu; a = ?F i8[64] x @gpu2
                y = ?F i8[64] a @gpu !output";
    let graph = assigned(text);
    let devices = [device(32), DiscreteDevice::new(steeve_device::MemorySpec::new("gpu2"))];
    let memories: Vec<Arc<dyn BufferType>> = devices.iter().map(|device| memory(device)).collect();
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let mut allocator = GraphAllocator::with_buffers(memories.clone()).unwrap();
    allocator.reserve_planned(GraphPlan::from_json(&plan.to_json(), &graph).unwrap()).unwrap();
    let bindings = Bindings::new();
    let allocation = allocator.alloc(graph.graph(), &bindings).unwrap();
    let (assignment, options) = (graph.assignment(), &PlanOptions::default());
    Laws { memories: &memories, assignment, options, bindings: &bindings }.check(&allocation).unwrap();
}

#[test]
fn a_plan_for_other_memories_is_refused() {
    let plan = |text: &str| plan_graph(&assigned(text), &PlanOptions::default()).unwrap();
    let body = "x = input i8[64]; y = ?F i8[64] x !output";
    let device = device(32);
    let mut allocator = strict(&device);
    for memories in [
        "memory gpu align=64;",
        "memory cpu align=32;",
        "memory gpu align=32 max=4096;",
        "memory gpu align=32 hold=1;",
        "memory gpu align=32; memory more align=32;",
    ] {
        let error = allocator.reserve_planned(plan(&format!("{memories} {body}"))).unwrap_err();
        assert!(matches!(error, AllocError::OtherMemories { .. }), "{memories} {error}");
    }
    assert_eq!((device.ledger().asked(), allocator.buffer_size(0)), (0, Ok(Bytes(0))));
    let error = allocator.reserve_planned(plan(&format!("memory cpu align=64; {body}"))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "plan: made for other memories: expected memory gpu (alignment 32, buffers of any size, hold 0), \
         got memory cpu (alignment 64, buffers of any size, hold 0)"
    );
    allocator.reserve_planned(plan(&format!("memory gpu align=32; {body}"))).unwrap();
}

#[test]
fn a_plan_whose_places_are_too_small_for_what_a_memory_pads_is_refused() {
    let device = DiscreteDevice::new(spec(32).with_padding(Align::new(256).unwrap()));
    let graph = assigned("memory gpu align=32; x = input i8[64]; y = ?F i8[64] x !output");
    let plan = plan_graph(&graph, &PlanOptions::default()).unwrap();
    let error = strict(&device).reserve_planned(plan).unwrap_err();
    assert_eq!(
        ErrorChain(&error).to_string(),
        "plan: does not fit the memories of this allocator: tensor 0 (x): larger than its place in the plan: expected at most 64 bytes, got 256"
    );
    // With its sizes it is welcome.
    let mut planner = GraphAllocator::new(&memory(&device));
    planner.reserve(graph.graph()).unwrap();
    let plan = planner.plan_of(graph.graph()).unwrap().clone();
    strict(&device).reserve_planned(plan).unwrap();
}

#[test]
fn a_saved_plan_above_the_budget_is_refused() {
    let device = device(32);
    let mut allocator = strict(&device).with_options(AllocOptions::new().with_budget(0, Bytes(100)));
    let plan = plan_graph(&chain(64), &PlanOptions::default()).unwrap();
    assert!(matches!(allocator.reserve_planned(plan), Err(AllocError::OverBudget { .. })));
    assert_eq!(device.ledger().asked(), 0);
}

#[test]
fn planned_by_hand_or_by_the_allocator_is_the_same() {
    let graph = chain(64).into_graph();
    let by_hand = AssignedGraph::single(graph.clone(), Memory::new("gpu", Align::new(32).unwrap()));
    let by_hand = plan_graph(&by_hand, &PlanOptions::default()).unwrap();
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    allocator.reserve((&graph, &Assignment::single(&graph))).unwrap();
    assert_eq!(allocator.plan_of(&graph), Some(&by_hand));
    assert_eq!(allocator.plan_of(chain(640).graph()), None);
}

/// A graph with padded sizes, views, weights and an output, planned by a search elsewhere: from its text alone.
#[test]
fn a_plan_that_was_searched_offline_is_loaded_and_no_strategy_runs() {
    use steeve_graph::{Best, Budget, GraphStrategy};
    use steeve_plan::fuzz::runs;
    for padding in [1, 256] {
        let device = DiscreteDevice::new(spec(32).with_padding(Align::new(padding).unwrap()));
        let graph = assigned(
            "memory gpu align=32; w = external f32[16,16]; x = input f32[16,8]; a = mul_mat w x; v = view f32[16,4]+64 a
             b = neg v; c = sqr a; d = mul_mat f32[4,8] b c !output",
        );
        let graph = graph.graph();
        let mut allocator = strict(&device);
        let text = allocator.assign(graph).unwrap().to_string();
        let best = PlanOptions::new(GraphStrategy::Best(Best::new(Budget::Nodes(1000))));
        let json = plan_graph(&text.parse().unwrap(), &best).unwrap().to_json();

        let before = runs();
        allocator.load_plan(graph, &json).unwrap();
        let mut bindings = Bindings::new();
        let weights =
            steeve_device::SharedBuffer::allocate(&memory(&device), Bytes(1024), steeve_device::Usage::Any).unwrap();
        bindings.bind(tensor(graph, "w"), &weights, steeve_device::Offset(0), Bytes(1024)).unwrap();
        allocator.alloc(graph, &bindings).unwrap();
        assert_eq!(runs(), before, "nothing is planned at start");
        GraphAllocator::new(&memory(&device)).reserve(graph).unwrap();
        assert!(runs() > before, "and planning would have been counted");
    }
}

#[test]
fn a_plan_is_loaded_for_a_memory_that_asks_for_less() {
    let graph = chain(64);
    let plan = |memory: &str| {
        let text = graph.to_string().replace("memory gpu align=32", memory);
        plan_graph(&text.parse().unwrap(), &PlanOptions::default()).unwrap().to_json()
    };
    let single = Assignment::single(graph.graph());
    for (memory, by, accepted) in [
        ("memory gpu align=32", MatchMemories::ByName, true),
        ("memory gpu align=128 hold=2", MatchMemories::ByName, true),
        ("memory gpu align=16", MatchMemories::ByName, false),
        ("memory cpu align=64", MatchMemories::ByName, false),
        ("memory cpu align=64", MatchMemories::ByOrder, true),
    ] {
        let device = device(32);
        let mut allocator = strict(&device);
        let read = allocator.read_plan((graph.graph(), &single), &plan(memory), by);
        let loaded = read.and_then(|plan| allocator.reserve_planned(plan));
        assert_eq!(loaded.is_ok(), accepted, "{memory}, {by}: {loaded:?}");
        assert_eq!(device.ledger().asked(), u64::from(accepted), "{memory}");
        assert_eq!(allocator.alloc(graph.graph(), &Bindings::new()).is_ok(), accepted, "{memory}");
    }
}

#[test]
fn a_plan_that_frees_more_than_the_options_say_is_refused() {
    use steeve_graph::Unread;
    let graph = chain(64);
    let plan = |unread| plan_graph(&graph, &PlanOptions::default().with_unread(unread)).unwrap().to_json();
    for (freed, kept, accepted) in [
        (Unread::Free, Unread::FreeInputs, false),
        (Unread::FreeInputs, Unread::Keep, false),
        (Unread::FreeInputs, Unread::FreeInputs, true),
        (Unread::Keep, Unread::Free, true),
    ] {
        let device = device(32);
        let options = AllocOptions::new().with_plan(PlanOptions::default().with_unread(kept));
        let loaded = GraphAllocator::new(&memory(&device)).with_options(options).load_plan(graph.graph(), &plan(freed));
        assert_eq!(loaded.is_ok(), accepted, "{freed:?} for {kept:?}: {loaded:?}");
        if let Err(error) = loaded {
            let (freed, kept) = (freed.name(), kept.name());
            assert_eq!(
                error.to_string(),
                format!(
                    "plan file: frees more unread memory than this allocator: expected unread {kept} or less, got {freed}"
                )
            );
        }
    }
}
