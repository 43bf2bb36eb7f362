//! Laws of growing: only when it must, free first, and nothing lost that need not be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use std::sync::Arc;

use graphs::{assigned, device, graph, memory, spec, tensor};
use steeve_device::{Bindings, BufferType, Bytes, DeviceError, DiscreteDevice, SharedBuffer};
use steeve_graph::{Best, Budget, ErrorChain, Graph, GraphPlan, GraphStrategy, PlanOptions, TensorId, plan_graph};
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator, Replan, SmallGraphs};

/// A graph of one input and one output of `size` bytes each.
fn pair(size: u64) -> Graph {
    graph(&format!("x = input i8[{size}]; y = ?F i8[{size}] x !output"))
}

/// Another graph that needs as much.
fn other(size: u64) -> Graph {
    graph(&format!("x = input i8[{size}]; a = ?F i8[{size}] x; y = ?G i8[{size}] a !output"))
}

fn none() -> Bindings {
    Bindings::new()
}

fn x(graph: &Graph) -> TensorId {
    tensor(graph, "x")
}

#[test]
fn buffers_grow_only_when_they_must() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    allocator.reserve(&pair(512)).unwrap();
    assert_eq!((device.ledger().asked(), device.ledger().live()), (1, Bytes(1024)));
    for size in [512, 64, 1, 0, 500, 512] {
        allocator.reserve(&pair(size)).unwrap();
        allocator.alloc(&pair(size), &none()).unwrap();
        allocator.alloc(&other(size), &none()).unwrap();
        allocator.reserve(&other(size)).unwrap();
    }
    assert_eq!((device.ledger().asked(), allocator.buffer_size(0)), (1, Ok(Bytes(1024))));
    allocator.alloc(&pair(513), &none()).unwrap();
    assert_eq!((device.ledger().asked(), allocator.buffer_size(0)), (2, Ok(Bytes(1088))));
}

#[test]
fn a_buffer_never_shrinks() {
    let mut allocator = GraphAllocator::new(&memory(&device(32)));
    let mut largest = 0;
    for size in [64, 320, 32, 96, 640, 32] {
        allocator.alloc(&pair(size), &none()).unwrap();
        largest = largest.max(2 * size);
        assert_eq!(allocator.buffer_size(0), Ok(Bytes(largest)));
    }
}

#[test]
fn old_and_new_never_exist_together() {
    // The device has no room for both.
    let device = DiscreteDevice::new(spec(32).with_capacity(Bytes(2048)));
    let mut allocator = GraphAllocator::new(&memory(&device));
    for size in [320, 640, 960, 1024] {
        allocator.reserve(&pair(size)).unwrap();
        assert_eq!(device.ledger().peak(), Bytes(2 * size));
    }
    // Nor for one of the chunks and the other's successor.
    let device = DiscreteDevice::new(spec(32).with_max_size(Bytes(1024)).with_capacity(Bytes(2000)));
    let mut allocator = GraphAllocator::new(&memory(&device));
    for size in [640, 800, 960] {
        allocator.reserve(&pair(size)).unwrap();
        assert_eq!((device.ledger().peak(), device.ledger().buffers()), (Bytes(2 * size), 2));
    }
}

#[test]
fn all_memories_are_freed_before_any_grows() {
    // Two kinds of memory, each with room for the new alone.
    let [gpu, cpu] = [200, 100].map(|capacity| DiscreteDevice::new(spec(8).with_capacity(Bytes(capacity))));
    let mut allocator = GraphAllocator::with_buffers([memory(&gpu), memory(&cpu)]).unwrap();
    for size in [24, 48, 96] {
        let text = format!(
            "memory gpu align=8; memory cpu align=8; x = input i8[{size}] @gpu
             a = ?F i8[{size}] x @gpu; y = ?F i8[{size}] a @cpu !output"
        );
        let graph = assigned(&text);
        allocator.reserve((graph.graph(), graph.assignment())).unwrap();
        assert_eq!((gpu.ledger().peak(), cpu.ledger().peak()), (Bytes(2 * size), Bytes(size)));
    }
}

#[test]
fn a_growth_that_fails_keeps_the_old_sizes_and_the_next_alloc_makes_them_again() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    allocator.reserve(&pair(64)).unwrap();
    for attempt in 0..3 {
        device.faults().refuse_above(Bytes(200));
        let error = allocator.alloc(&pair(320), &none()).unwrap_err();
        assert_eq!(
            ErrorChain(&error).to_string(),
            "chunk 0 of gpu: allocation failed: requested 640 bytes: gpu: buffer too large: expected at most 200 bytes, got 640"
        );
        // The old one was freed first, so there is none now.
        assert_eq!((allocator.buffer_size(0), device.ledger().live()), (Ok(Bytes(0)), Bytes(0)));
        match attempt {
            0 => drop(allocator.alloc(&pair(64), &none()).unwrap()),
            1 => allocator.reserve(&pair(64)).unwrap(),
            _ => allocator.reserve_all([&pair(64), &other(32)]).unwrap(),
        }
        assert_eq!((allocator.buffer_size(0), device.ledger().live()), (Ok(Bytes(128)), Bytes(128)));
    }
    device.faults().clear();
    allocator.alloc(&pair(320), &none()).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(640)));
}

#[test]
fn a_plan_that_is_reserved_after_a_failed_growth_has_its_memory() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    allocator.reserve(&pair(64)).unwrap();
    let plan: GraphPlan = allocator.plan_of(&pair(64)).unwrap().clone();
    device.faults().fail_after(0);
    allocator.reserve(&pair(320)).unwrap_err();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(0)));
    allocator.reserve_planned(plan).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(128)));
}

#[test]
fn the_plan_of_a_growth_that_fails_is_not_kept() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    allocator.reserve(&pair(64)).unwrap();
    device.faults().fail_after(0);
    allocator.reserve(&other(320)).unwrap_err();
    assert!(allocator.plan_of(&other(320)).is_none());
    assert!(allocator.plan_of(&pair(64)).is_some());
}

#[test]
fn if_one_chunk_of_several_fails_those_made_before_it_go_again() {
    let [gpu, cpu] = [device(8), device(8)];
    let mut allocator = GraphAllocator::with_buffers([memory(&gpu), memory(&cpu)]).unwrap();
    let build = |size: u64| {
        assigned(&format!(
            "memory gpu align=8; memory cpu align=8; x = input i8[{size}] @gpu; y = ?F i8[{size}] x @cpu !output"
        ))
    };
    let (small, large) = (build(16), build(64));
    allocator.reserve((small.graph(), small.assignment())).unwrap();
    cpu.faults().fail_after(0);
    allocator.reserve((large.graph(), large.assignment())).unwrap_err();
    assert_eq!((gpu.ledger().live(), cpu.ledger().live()), (Bytes(0), Bytes(0)));
    let allocation = allocator.alloc(small.graph(), &none()).unwrap();
    assert_eq!((gpu.ledger().live(), cpu.ledger().live()), (Bytes(16), Bytes(16)));
    allocation.write(x(small.graph()), &[1i8; 16]).unwrap();
}

#[test]
fn handles_are_stale_after_growth_and_not_after_a_reserve_that_fits() {
    let mut allocator = GraphAllocator::new(&memory(&device(32)));
    let graph = pair(64);
    let allocation = allocator.alloc(&graph, &none()).unwrap();
    allocation.write(x(&graph), &[7i8; 64]).unwrap();
    allocator.reserve(&pair(32)).unwrap();
    allocator.reserve(&other(64)).unwrap();
    allocator.reserve_all([&other(8), &graph]).unwrap();
    assert_eq!(allocation.read::<i8>(x(&graph)).unwrap(), [7; 64]);
    allocator.reserve(&other(320)).unwrap();
    assert_eq!(allocation.read::<i8>(x(&graph)), Err(AllocError::Stale));
    assert_eq!(allocation.write(x(&graph), &[7i8; 64]), Err(AllocError::Stale));
    assert_eq!(allocation.begin().map(drop), Err(AllocError::Stale));
    // What is left of its buffers is not memory any more.
    assert!(matches!(allocation.raw_bytes(x(&graph)), Err(AllocError::Device(DeviceError::Released { .. }))));
}

#[test]
fn one_more_buffer_takes_nothing_from_those_that_are_there() {
    let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(64)));
    let mut allocator = GraphAllocator::new(&memory(&device));
    let one = graph("x = input i8[48]; y = ?F i8[8] x !output");
    let allocation = allocator.alloc(&one, &none()).unwrap();
    allocation.write(x(&one), &[7i8; 48]).unwrap();
    let more = graph("a = input i8[48]; b = input i8[48]; y = ?JOIN i8[8] a b !output");
    allocator.reserve(&more).unwrap();
    assert_eq!(device.ledger().buffers(), 2);
    assert_eq!(allocation.read::<i8>(x(&one)).unwrap(), [7; 48]);
    // Not even if there is none to be had.
    let most = graph("a = input i8[48]; b = input i8[48]; c = input i8[48]; y = ?JOIN i8[8] a b c !output");
    device.faults().fail_after(0);
    allocator.reserve(&most).unwrap_err();
    assert_eq!(allocation.read::<i8>(x(&one)).unwrap(), [7; 48]);
}

#[test]
fn handles_are_stale_after_a_growth_that_fails_too() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    let graph = pair(64);
    let allocation = allocator.alloc(&graph, &none()).unwrap();
    allocation.write(x(&graph), &[7i8; 64]).unwrap();
    device.faults().fail_after(0);
    allocator.reserve(&other(320)).unwrap_err();
    assert_eq!(allocation.read::<i8>(x(&graph)), Err(AllocError::Stale));
    // Also when the memory is there again.
    allocator.alloc(&graph, &none()).unwrap();
    assert_eq!(allocation.read::<i8>(x(&graph)), Err(AllocError::Stale));
}

#[test]
fn memory_in_use_does_not_grow_and_nothing_changes() {
    let mut allocator = GraphAllocator::new(&memory(&device(32)));
    let graph = pair(64);
    let allocation = allocator.alloc(&graph, &none()).unwrap();
    allocation.write(x(&graph), &[7i8; 64]).unwrap();
    {
        let buffer = allocation.buffers().next().unwrap().clone();
        let _reading = buffer.borrow().unwrap();
        let error = allocator.reserve(&pair(320)).unwrap_err();
        assert!(matches!(error, AllocError::Device(DeviceError::InUse { .. })), "{error}");
    }
    assert_eq!(allocation.read::<i8>(x(&graph)).unwrap(), [7; 64]);
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(128)));
    let run = allocation.begin().unwrap();
    assert_eq!(allocator.reserve(&pair(320)), Err(AllocError::Running));
    assert_eq!(allocator.alloc(&pair(320), &none()).map(drop), Err(AllocError::Running));
    assert_eq!(allocator.alloc(&graph, &none()).map(drop), Err(AllocError::Running));
    assert_eq!(allocator.clear(0), Err(AllocError::Running));
    run.finish();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(128)));
    allocator.reserve(&pair(320)).unwrap();
}

#[test]
fn an_alloc_without_its_external_memory_loses_nothing() {
    let mut allocator = GraphAllocator::new(&memory(&device(32)));
    let small = pair(64);
    let allocation = allocator.alloc(&small, &none()).unwrap();
    allocation.write(x(&small), &[7i8; 64]).unwrap();
    let large = graph("w = external i8[8]; x = input i8[320]; y = ?F i8[320] x w !output");
    let error = allocator.alloc(&large, &none()).unwrap_err();
    assert_eq!(error.to_string(), "tensor 0 (w): external tensor without memory: expected it among the bindings");
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(128)));
    assert_eq!(allocation.read::<i8>(x(&small)).unwrap(), [7; 64]);
}

#[test]
fn graphs_reserved_together_take_what_the_largest_takes() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    let graphs = [pair(64), other(320), pair(128), other(32)];
    allocator.reserve_all(&graphs).unwrap();
    assert_eq!((allocator.buffer_size(0), device.ledger().asked()), (Ok(Bytes(640)), 1));
    for graph in &graphs {
        allocator.alloc(graph, &none()).unwrap();
    }
    assert_eq!(device.ledger().asked(), 1);
    allocator.reserve_all([] as [&Graph; 0]).unwrap();
}

#[test]
fn graphs_reserved_together_are_kept_together_however_many() {
    let [gpu, cpu] = [device(8), device(8)];
    let allocator = GraphAllocator::with_buffers([memory(&gpu), memory(&cpu)]).unwrap();
    let mut allocator = allocator.with_options(AllocOptions::new().with_plans(2));
    let graphs: Vec<Graph> =
        (0..5).map(|index| graph(&format!("x = input i8[8]; y = ?F{index} i8[8] x !output"))).collect();
    allocator.reserve_all(&graphs).unwrap();
    for graph in graphs.iter().chain(&graphs) {
        allocator.alloc(graph, &none()).unwrap();
    }
}

#[test]
fn the_least_recently_used_plan_goes_first() {
    let [gpu, cpu] = [device(8), device(8)];
    let allocator = GraphAllocator::with_buffers([memory(&gpu), memory(&cpu)]).unwrap();
    let mut allocator = allocator.with_options(AllocOptions::new().with_plans(2));
    let [a, b, c] = ["A", "B", "C"].map(|op| graph(&format!("x = input i8[8]; y = ?{op} i8[8] x !output")));
    allocator.reserve(&a).unwrap();
    allocator.reserve(&b).unwrap();
    allocator.alloc(&a, &none()).unwrap();
    allocator.reserve(&c).unwrap();
    allocator.alloc(&a, &none()).unwrap();
    assert!(matches!(allocator.alloc(&b, &none()), Err(AllocError::NeedsReserve { .. })));
    allocator.alloc(&c, &none()).unwrap();
}

#[test]
fn a_plan_that_can_do_the_work_of_another_takes_its_place() {
    let mut allocator = GraphAllocator::new(&memory(&device(8)));
    allocator.reserve(&pair(8)).unwrap();
    allocator.reserve(&pair(64)).unwrap();
    // There is but one left, which fits both.
    let plan = allocator.plan_of(&pair(8)).unwrap();
    assert_eq!(plan.peak(), Bytes(128));
}

/// The buffers, by the number of their first byte.
fn buffers(allocator: &mut GraphAllocator, graph: &Graph) -> Vec<SharedBuffer> {
    let mut buffers: Vec<SharedBuffer> = allocator.alloc(graph, &none()).unwrap().buffers().cloned().collect();
    buffers.sort_by_key(SharedBuffer::address);
    buffers
}

#[test]
fn chunks_are_matched_by_size_and_those_of_the_right_size_stay() {
    let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(100)));
    let memory: Arc<dyn BufferType> = memory(&device);
    let options = AllocOptions::new().with_plan(PlanOptions::new(GraphStrategy::Ggml));
    let mut allocator = GraphAllocator::new(&memory).with_options(options);
    let build = |first: u64, second: u64| {
        graph(&format!("a = input i8[{first}]; b = input i8[{second}]; y = ?JOIN i8[0] a b !output"))
    };
    let before = buffers(&mut allocator, &build(96, 56));
    assert_eq!(before.iter().map(|buffer| buffer.size().0).collect::<Vec<_>>(), [96, 56]);
    // The other way round: nothing grows.
    let swapped = buffers(&mut allocator, &build(56, 96));
    assert!(before.iter().zip(&swapped).all(|(one, other)| one.is_same(other)));
    // Whichever has the right size stays, and nothing is larger than it must be.
    let grown = buffers(&mut allocator, &build(64, 96));
    assert!(grown.iter().any(|buffer| buffer.is_same(&before[0])));
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(96 + 64)));
    assert!(matches!(before[1].write(steeve_device::Offset(0), &[]), Err(DeviceError::Released { .. })));
    // One more chunk beside those, and contents are kept.
    let two = build(64, 96);
    let allocation = allocator.alloc(&two, &none()).unwrap();
    allocation.write(tensor(&two, "a"), &[3i8; 64]).unwrap();
    let three = graph("a = input i8[64]; b = input i8[96]; c = input i8[56]; y = ?JOIN i8[0] a b c !output");
    allocator.reserve(&three).unwrap();
    assert_eq!(allocation.read::<i8>(tensor(&two, "a")).unwrap(), [3; 64]);
    let more = buffers(&mut allocator, &three);
    assert!(grown.iter().all(|old| more.iter().any(|new| new.is_same(old))));
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(96 + 64 + 56)));
    // All are as large as they must be.
    buffers(&mut allocator, &build(88, 72));
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(88 + 72)));
}

#[test]
fn a_graph_whose_chunks_are_gone_is_not_planned_again() {
    let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(1000)));
    let options = AllocOptions::new().with_replan(Replan::Never);
    let mut allocator = GraphAllocator::new(&memory(&device)).with_options(options);
    let build = |first: u64, second: u64| {
        graph(&format!("a = input i8[{first}]; b = input i8[{second}]; y = ?JOIN i8[0] a b !output"))
    };
    let [one, other] = [build(1000, 16), build(520, 520)];
    allocator.reserve(&one).unwrap();
    let stale = allocator.alloc(&one, &none()).unwrap();
    stale.write(tensor(&one, "b"), &[1i8; 16]).unwrap();
    allocator.reserve(&other).unwrap();
    assert_eq!(stale.read::<i8>(tensor(&one, "b")), Err(AllocError::Stale));
    for _ in 0..3 {
        for (graph, size) in [(&one, 1016), (&other, 1040)] {
            let allocation = allocator.alloc(graph, &none()).unwrap();
            allocation
                .write_bytes(tensor(graph, "a"), &vec![7; graph.tensor(tensor(graph, "a")).nbytes().0 as usize])
                .unwrap();
            assert_eq!((allocator.buffer_size(0), device.ledger().live()), (Ok(Bytes(size)), Bytes(size)));
        }
    }
    // Nor is a smaller one that fits it.
    allocator.alloc(&build(900, 8), &none()).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(1016)));
}

/// A chain whose tensors have one, two or three times so many bytes.
fn chain(size: u64) -> Graph {
    let nodes: Vec<String> = (1..20).map(|i| format!("t{i} = ?F i8[{}] t{}", size * (1 + i % 3), i - 1)).collect();
    graph(&format!("t0 = input i8[{size}]; {}; y = ?F i8[{size}] t19 !output", nodes.join("; ")))
}

/// Allocates a graph, and returns the end of what its tensors take.
fn reach(allocator: &mut GraphAllocator, graph: &Graph) -> u64 {
    let allocation = allocator.alloc(graph, &none()).unwrap();
    let end = |id: TensorId| allocation.address(id).map(|at| at.offset.0 + at.size.0).unwrap();
    graph.tensors().ids().map(end).max().unwrap()
}

#[test]
fn small_graphs_have_plans_of_their_own_at_the_bottom_if_asked() {
    let device = device(8);
    for small_graphs in [SmallGraphs::SharePlan, SmallGraphs::OwnPlan] {
        let options = AllocOptions::new().with_small_graphs(small_graphs);
        let mut allocator = GraphAllocator::new(&memory(&device)).with_options(options);
        allocator.reserve(&chain(4096)).unwrap();
        let (size, asked) = (allocator.buffer_size(0).unwrap().0, device.ledger().asked());
        let mut most = 0;
        for tokens in [8, 8, 64, 8, 100, 8, 300, 64, 8, 900, 8, 300, 900, 8] {
            let graph = chain(tokens);
            let reach = reach(&mut allocator, &graph);
            if small_graphs == SmallGraphs::OwnPlan {
                // No further than what is touched already, or four times what it needs.
                assert!(
                    reach <= (size / 4096 * tokens * 4).max(most) && reach <= size / 4,
                    "{tokens}: {reach} of {size}"
                );
                most = most.max(reach);
            } else {
                assert!(reach > size / 4);
            }
        }
        // Once all is touched there is nothing to be gained.
        assert_eq!(reach(&mut allocator, &chain(4096)), size);
        assert!(reach(&mut allocator, &chain(8)) > size / 4);
        assert_eq!((allocator.buffer_size(0).unwrap().0, device.ledger().asked()), (size, asked));
    }
}

#[test]
fn the_plan_of_a_graph_is_the_one_that_it_is_allocated_by() {
    let best = GraphStrategy::Best(Best::new(Budget::Nodes(1000)));
    let options = AllocOptions::new().with_plan(PlanOptions::new(best)).with_small_graphs(SmallGraphs::OwnPlan);
    let mut allocator = GraphAllocator::new(&memory(&device(8))).with_options(options);
    let (large, small, other) = (chain(4096), chain(8), chain(300));
    allocator.reserve(&large).unwrap();
    let size = allocator.buffer_size(0).unwrap();
    assert_eq!(allocator.plan_of(&small).unwrap().peak(), size);
    for graph in [&small, &other, &small, &other] {
        let reach = reach(&mut allocator, graph);
        let plan = allocator.plan_of(graph).unwrap();
        assert!(plan.peak().0 < size.0 / 4 && plan.peak().0 == reach, "{reach}");
        // A search was worth while for the largest graph alone.
        assert_eq!(plan.options().strategy, GraphStrategy::Fast);
    }
    let plan = allocator.plan_of(&large).unwrap();
    assert_eq!((plan.peak(), plan.options().strategy), (size, best));
    // Once all is touched it is the largest plan for all.
    reach(&mut allocator, &large);
    assert_eq!(allocator.plan_of(&small).unwrap().peak(), size);
}

#[test]
fn small_plans_outlive_the_growth_of_the_large_one() {
    let options = AllocOptions::new().with_small_graphs(SmallGraphs::OwnPlan);
    let mut allocator = GraphAllocator::new(&memory(&device(8))).with_options(options);
    allocator.reserve(&chain(512)).unwrap();
    let before = [8, 100].map(|size| reach(&mut allocator, &chain(size)));
    allocator.reserve(&chain(4096)).unwrap();
    // Nothing has been allocated since, so the plans are there already.
    let kept = [8, 100].map(|size| allocator.plan_of(&chain(size)).unwrap().peak().0);
    assert_eq!(kept, before);
    assert_eq!([8, 100].map(|size| reach(&mut allocator, &chain(size))), before);
}

#[test]
fn what_is_required_is_what_is_allocated_and_asking_allocates_nothing() {
    for (size, max) in [(64, 1000), (640, 1000), (640, 700)] {
        let device = DiscreteDevice::new(spec(32).with_max_size(Bytes(max)));
        let mut allocator = GraphAllocator::new(&memory(&device));
        let required = allocator.required(&other(size)).unwrap();
        assert_eq!(device.ledger().asked(), 0);
        allocator.reserve(&other(size)).unwrap();
        assert_eq!(required, [device.ledger().live()]);
        assert_eq!(allocator.buffer_size(0), Ok(required[0]));
    }
}

#[test]
fn a_dropped_allocator_gives_its_memory_back_whoever_holds_a_handle() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    let graph = pair(64);
    let allocation = allocator.alloc(&graph, &none()).unwrap();
    allocation.write(x(&graph), &[7i8; 64]).unwrap();
    drop(allocator);
    assert_eq!(device.ledger().live(), Bytes(0));
    assert_eq!(allocation.read::<i8>(x(&graph)), Err(AllocError::Stale));
}

#[test]
fn clearing_sets_every_byte_and_makes_handles_stale() {
    let mut allocator = GraphAllocator::new(&memory(&device(32)));
    let graph = pair(64);
    let allocation = allocator.alloc(&graph, &none()).unwrap();
    allocation.write(x(&graph), &[7i8; 64]).unwrap();
    allocator.clear(0xFF).unwrap();
    assert_eq!(allocation.read::<i8>(x(&graph)), Err(AllocError::Stale));
    let allocation = allocator.alloc(&graph, &none()).unwrap();
    assert_eq!(allocation.raw_bytes(x(&graph)).unwrap(), [0xFF; 64]);
    assert!(matches!(allocation.read::<i8>(x(&graph)), Err(AllocError::NotWritten { .. })));
}

#[test]
fn a_graph_that_has_no_plan_is_an_error_that_changes_nothing() {
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    allocator.reserve(&pair(64)).unwrap();
    let half = 1u64 << 63;
    let huge = graph(&format!("x = input i8[{half}]; y = ?F i8[{half}] x !output"));
    assert!(plan_graph(&huge.clone().into(), &PlanOptions::default()).is_err());
    assert!(matches!(allocator.alloc(&huge, &none()), Err(AllocError::Plan(_))));
    assert!(matches!(allocator.reserve_all([&pair(640), &huge]), Err(AllocError::Plan(_))));
    assert_eq!((allocator.buffer_size(0), device.ledger().asked()), (Ok(Bytes(128)), 1));
    assert!(allocator.plan_of(&pair(640)).is_none());
}

#[test]
fn where_buffers_grow_in_place_nothing_is_asked_for_again() {
    let device = DiscreteDevice::new(spec(32).with_growth().with_capacity(Bytes(2048)));
    let mut allocator = GraphAllocator::new(&memory(&device));
    let mut address = None;
    for size in [320, 640, 32, 960, 1024] {
        let graph = pair(size);
        let allocation = allocator.alloc(&graph, &none()).unwrap();
        allocation.write_bytes(x(&graph), &vec![1; size as usize]).unwrap();
        let now = allocation.address(x(&graph)).unwrap().buffer.address();
        assert_eq!(*address.get_or_insert(now), now);
    }
    let ledger = device.ledger();
    assert_eq!((ledger.asked(), ledger.buffers(), ledger.peak()), (1, 1, Bytes(2048)));
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(2048)));
    // Nor is there more than there is: the old one is freed then, and made again for whoever needs no more.
    let error = allocator.alloc(&pair(1056), &none()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("chunk 0 of gpu: allocation failed: requested 2112 bytes"), "{text}");
    assert_eq!((allocator.buffer_size(0), ledger.live()), (Ok(Bytes(0)), Bytes(0)));
    allocator.alloc(&pair(1024), &none()).unwrap();
    assert_eq!((allocator.buffer_size(0), ledger.live()), (Ok(Bytes(2048)), Bytes(2048)));
}
