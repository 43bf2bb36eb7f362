//! Laws of several memories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod placed;

use std::sync::Arc;

use graphs::{assigned, device, graph, host, memory, spec, tensor};
use placed::Laws;
use steeve_device::{Bindings, BufferType, Bytes, DiscreteDevice, Offset};
use steeve_graph::{Align, AssignedGraph, Assignment, ErrorChain, GraphError, PlanMismatch, PlanOptions, TensorId};
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator, Replan};

fn split(size: u64) -> AssignedGraph {
    assigned(&format!(
        "memory gpu align=32; memory cpu align=32; x = input i8[{size}] @cpu
         a = ?F i8[{size}] x @gpu; b = ?F i8[{size}] a @gpu; y = ?F i8[{size}] b @cpu !output"
    ))
}

fn two() -> ([DiscreteDevice; 2], GraphAllocator) {
    let devices = [device(32), device(32)];
    let allocator = GraphAllocator::with_buffers(devices.iter().map(|device| memory(device))).unwrap();
    (devices, allocator)
}

#[test]
fn each_tensor_stands_in_the_memory_it_is_assigned_to() {
    let ([gpu, cpu], mut allocator) = two();
    let memories = [memory(&gpu), memory(&cpu)];
    let graph = split(64);
    assert_eq!(allocator.required((graph.graph(), graph.assignment())), Ok(vec![Bytes(128), Bytes(64)]));
    assert_eq!(gpu.ledger().asked() + cpu.ledger().asked(), 0);
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    assert_eq!((gpu.ledger().live(), cpu.ledger().live()), (Bytes(128), Bytes(64)));
    let bindings = Bindings::new();
    let allocation = allocator.alloc(graph.graph(), &bindings).unwrap();
    let laws = Laws {
        memories: &memories,
        assignment: graph.assignment(),
        options: &PlanOptions::default(),
        bindings: &bindings,
    };
    laws.check(&allocation).unwrap();
    for (name, index) in [("x", 1), ("a", 0), ("b", 0), ("y", 1)] {
        let address = allocation.address(tensor(graph.graph(), name)).unwrap();
        assert!(Arc::ptr_eq(address.buffer.memory(), &memories[index]), "{name}");
    }
}

#[test]
fn without_an_assignment_everything_is_in_the_first_memory() {
    let ([gpu, cpu], mut allocator) = two();
    let graph = split(64);
    assert_eq!(allocator.required(graph.graph()), Ok(vec![Bytes(128), Bytes(0)]));
    allocator.reserve(graph.graph()).unwrap();
    assert_eq!((gpu.ledger().live(), cpu.ledger().live()), (Bytes(128), Bytes(0)));
    allocator.alloc(graph.graph(), &Bindings::new()).unwrap();
}

#[test]
fn the_same_type_twice_is_one_memory() {
    let device = device(32);
    let same = memory(&device);
    let other = graphs::device(32);
    let types = [Arc::clone(&same), memory(&other), Arc::clone(&same)];
    let mut allocator = GraphAllocator::with_buffers(types.clone()).unwrap();
    let text = "memory a align=32; memory b align=32; memory c align=32
                x = input i8[64] @a; p = ?F i8[64] x @c; q = ?F i8[64] p @a; y = ?F i8[64] q @c !output";
    let graph = assigned(text);
    let required = allocator.required((graph.graph(), graph.assignment())).unwrap();
    assert_eq!(required, [Bytes(128), Bytes(0), Bytes(0)]);
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    assert_eq!((device.ledger().buffers(), device.ledger().live()), (1, Bytes(128)));
    let sizes: Vec<_> = (0..3).map(|index| allocator.buffer_size(index).unwrap()).collect();
    assert_eq!(sizes, [Bytes(128), Bytes(0), Bytes(0)]);
    let bindings = Bindings::new();
    let allocation = allocator.alloc(graph.graph(), &bindings).unwrap();
    let (assignment, options) = (graph.assignment(), &PlanOptions::default());
    Laws { memories: &types, assignment, options, bindings: &bindings }.check(&allocation).unwrap();
}

#[test]
fn a_type_that_is_named_twice_and_nothing_else_is_one_memory() {
    let same = memory(&device(32));
    let mut allocator = GraphAllocator::with_buffers([Arc::clone(&same), same]).unwrap();
    // It plans by itself, because there is nothing to choose.
    allocator.alloc(&graph("x = input i8[64]; y = ?F i8[64] x !output"), &Bindings::new()).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(128)));
}

#[test]
fn equal_types_that_are_not_the_same_are_two_memories() {
    let ([gpu, cpu], mut allocator) = two();
    let graph = split(64);
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    assert_eq!((gpu.ledger().buffers(), cpu.ledger().buffers()), (1, 1));
}

#[test]
fn an_allocator_needs_a_buffer_type() {
    assert_eq!(GraphAllocator::with_buffers([]).map(drop), Err(AllocError::NoBufferType));
}

#[test]
fn with_several_memories_nothing_is_planned_that_nobody_reserved() {
    let (_, mut allocator) = two();
    let graph = split(64);
    let error = allocator.alloc(graph.graph(), &Bindings::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "graph: nothing is reserved: reserve it first, with several memories together with its assignment"
    );
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    allocator.alloc(graph.graph(), &Bindings::new()).unwrap();
}

#[test]
fn a_graph_that_outgrew_its_plan_is_an_error_that_names_the_tensor() {
    let ([gpu, _], mut allocator) = two();
    let small = split(64);
    allocator.reserve((small.graph(), small.assignment())).unwrap();
    let error = allocator.alloc(split(65).graph(), &Bindings::new()).unwrap_err();
    assert_eq!(
        ErrorChain(&error).to_string(),
        "graph: fits no reserved plan: reserve it with its assignment, or plan again with Replan::Always: \
         tensor 0 (x): larger than its place in the plan: expected at most 64 bytes, got 65"
    );
    assert_eq!(gpu.ledger().asked(), 1);
    // A smaller one fits.
    allocator.alloc(split(8).graph(), &Bindings::new()).unwrap();
}

#[test]
fn a_graph_with_other_edges_is_noticed() {
    let (_, mut allocator) = two();
    let text = |source: &str| {
        format!(
            "memory gpu align=32; memory cpu align=32; x = input i8[64] @cpu; a = ?F i8[64] x @gpu
             b = ?F i8[64] {source} @gpu; y = ?JOIN i8[64] a b @cpu !output"
        )
    };
    let (one, other) = (assigned(&text("x")), assigned(&text("a")));
    allocator.reserve((one.graph(), one.assignment())).unwrap();
    let error = allocator.alloc(other.graph(), &Bindings::new()).unwrap_err();
    assert!(matches!(error, AllocError::NeedsReserve { misfit: PlanMismatch::Changed { .. } }), "{error}");
    let error = ErrorChain(&error).to_string();
    assert!(error.contains("tensor 2 (b): changed since the plan was made: it has other sources"), "{error}");
}

#[test]
fn planning_again_puts_each_where_the_one_at_its_position_went() {
    let ([gpu, cpu], allocator) = two();
    let memories = [memory(&gpu), memory(&cpu)];
    let mut allocator = allocator.with_options(AllocOptions::new().with_replan(Replan::Always));
    assert!(matches!(allocator.alloc(split(8).graph(), &Bindings::new()), Err(AllocError::NothingReserved)));
    let small = split(64);
    allocator.reserve((small.graph(), small.assignment())).unwrap();
    let large = split(320);
    let bindings = Bindings::new();
    let allocation = allocator.alloc(large.graph(), &bindings).unwrap();
    assert_eq!((gpu.ledger().live(), cpu.ledger().live()), (Bytes(640), Bytes(320)));
    let (assignment, options) = (small.assignment(), &PlanOptions::default());
    Laws { memories: &memories, assignment, options, bindings: &bindings }.check(&allocation).unwrap();
    // Where there are more nodes than before, nobody can know.
    let longer = graph("x = input i8[8]; a = ?F i8[8] x; b = ?F i8[8] a; c = ?F i8[8] b; y = ?F i8[8] c !output");
    let error = allocator.alloc(&longer, &bindings).unwrap_err();
    assert!(
        matches!(error, AllocError::NeedsReserve { misfit: PlanMismatch::Count { planned: 3, given: 4, .. } }),
        "{error}"
    );
}

#[test]
fn what_may_never_be_planned_must_be_reserved_even_in_one_memory() {
    let never = AllocOptions::new().with_replan(Replan::Never);
    let mut allocator = GraphAllocator::new(&host()).with_options(never);
    let graph = |size: u64| graph(&format!("x = input i8[{size}]; y = ?F i8[{size}] x !output"));
    assert!(matches!(allocator.alloc(&graph(64), &Bindings::new()), Err(AllocError::NothingReserved)));
    allocator.reserve(&graph(64)).unwrap();
    allocator.alloc(&graph(32), &Bindings::new()).unwrap();
    assert!(matches!(allocator.alloc(&graph(65), &Bindings::new()), Err(AllocError::NeedsReserve { .. })));
}

#[test]
fn the_assignment_reserved_last_is_used() {
    let ([gpu, cpu], mut allocator) = two();
    let memories = [memory(&gpu), memory(&cpu)];
    let graph = split(64);
    let everything = Assignment::single(graph.graph());
    let home = |allocator: &mut GraphAllocator| {
        let allocation = allocator.alloc(graph.graph(), &Bindings::new()).unwrap();
        let memory = Arc::clone(allocation.address(tensor(graph.graph(), "y")).unwrap().buffer.memory());
        memories.iter().position(|it| Arc::ptr_eq(it, &memory)).unwrap()
    };
    for (assignment, expected) in [(graph.assignment(), 1), (&everything, 0), (graph.assignment(), 1), (&everything, 0)]
    {
        allocator.reserve((graph.graph(), assignment)).unwrap();
        assert_eq!(home(&mut allocator), expected);
    }
}

#[test]
fn a_wrong_assignment_is_an_error() {
    let (_, mut allocator) = two();
    let graph = split(64);
    let short = Assignment { nodes: Vec::new(), ..graph.assignment().clone() };
    let error = allocator.reserve((graph.graph(), &short)).unwrap_err();
    assert!(matches!(error, AllocError::Graph(GraphError::AssignmentLength { .. })), "{error}");
    let beyond = assigned(
        "memory a align=1; memory b align=1; memory c align=1; x = input i8[64] @c
         a = ?F i8[64] x @c; b = ?F i8[64] a @c; y = ?F i8[64] b @c !output",
    );
    assert!(matches!(
        allocator.required((graph.graph(), beyond.assignment())),
        Err(AllocError::Graph(GraphError::UnknownMemory { .. }))
    ));
}

#[test]
fn each_memory_pads_and_aligns_in_its_own_way() {
    let gpu = DiscreteDevice::new(spec(256).with_padding(Align::new(512).unwrap()));
    let cpu = device(8);
    let memories = [memory(&gpu), memory(&cpu)];
    let mut allocator = GraphAllocator::with_buffers(memories.clone()).unwrap();
    let graph = split(100);
    assert_eq!(allocator.required((graph.graph(), graph.assignment())), Ok(vec![Bytes(1024), Bytes(104)]));
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    let bindings = Bindings::new();
    let allocation = allocator.alloc(graph.graph(), &bindings).unwrap();
    let (assignment, options) = (graph.assignment(), &PlanOptions::default());
    Laws { memories: &memories, assignment, options, bindings: &bindings }.check(&allocation).unwrap();
    // Up to the padding a tensor may grow, and no further.
    let within = |text: &str, size| text.replace("i8[100] a", &format!("i8[{size}] a"));
    let text = "memory gpu align=1; memory cpu align=1; x = input i8[100] @cpu; a = ?F i8[100] x @gpu
                b = ?F i8[100] a @gpu; y = ?F i8[100] b @cpu !output";
    assert!(allocator.alloc(assigned(&within(text, 512)).graph(), &bindings).is_ok());
    assert!(allocator.alloc(assigned(&within(text, 513)).graph(), &bindings).is_err());
}

#[test]
fn a_memory_that_holds_keeps_sources_longer() {
    let held = DiscreteDevice::new(spec(32).with_hold(2));
    let text = "x = input i8[64]; a = ?F i8[64] x; b = ?F i8[64] a; c = ?F i8[64] b; y = ?F i8[64] c !output";
    let graph = assigned(text);
    let mut allocator = GraphAllocator::new(&memory(&held));
    let bindings = Bindings::new();
    let allocation = allocator.alloc(graph.graph(), &bindings).unwrap();
    let memories = [memory(&held)];
    let (assignment, options) = (graph.assignment(), &PlanOptions::default());
    Laws { memories: &memories, assignment, options, bindings: &bindings }.check(&allocation).unwrap();
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(4 * 64)));
}

#[test]
fn buffers_see_every_tensor_with_its_offset() {
    let gpu = device(32).with_init_hook();
    let cpu = device(32);
    let memories = [memory(&gpu), memory(&cpu)];
    let mut allocator = GraphAllocator::with_buffers(memories.clone()).unwrap();
    let text = "memory gpu align=32; memory cpu align=32; x = input i8[64] @cpu; a = ?F i8[64] x @gpu
                v = view i8[16]+48 a @gpu; b = ?F i8[64] v @gpu; y = ?F i8[64] b @cpu !output";
    let graph = assigned(text);
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    assert!(gpu.seen().is_empty(), "nobody has a place before alloc");
    for _ in 0..2 {
        let allocation = allocator.alloc(graph.graph(), &Bindings::new()).unwrap();
        let mut expected: Vec<(TensorId, Offset)> = ["a", "v", "b"]
            .map(|name| tensor(graph.graph(), name))
            .map(|id| (id, allocation.address(id).unwrap().offset))
            .to_vec();
        let mut seen = gpu.seen();
        expected.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, expected, "each once: alloc resets");
    }
    assert!(cpu.seen().is_empty());
}

#[test]
fn views_are_seen_behind_their_roots() {
    let device = device(8).with_init_hook();
    let mut allocator = GraphAllocator::new(&memory(&device));
    let graph = graph("x = input i8[64]; v = view i8[32]+32 x; w = view i8[8]+40 v; y = ?JOIN i8[8] v w !output");
    allocator.alloc(&graph, &Bindings::new()).unwrap();
    let order: Vec<TensorId> = device.seen().into_iter().map(|(id, _)| id).collect();
    let position = |name: &str| order.iter().position(|id| *id == tensor(&graph, name)).unwrap();
    assert!(position("x") < position("v") && position("x") < position("w"));
    assert_eq!(order.len(), 4);
}

#[test]
fn memories_of_several_kinds_work_together() {
    let null = steeve_device::NullDevice::new("null");
    let gpu = device(64);
    let memories: [Arc<dyn BufferType>; 3] = [memory(&null), memory(&gpu), host()];
    let mut allocator = GraphAllocator::with_buffers(memories.clone()).unwrap();
    let text = "memory n align=32; memory g align=64; memory h align=32
                x = input f32[16] @h; a = ?F f32[1000] x @n; b = ?F f32[16] a @g; y = ?F f32[16] b @h !output";
    let graph = assigned(text);
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    assert_eq!(null.ledger().live(), Bytes(4000));
    let allocation = allocator.alloc(graph.graph(), &Bindings::new()).unwrap();
    allocation.write(tensor(graph.graph(), "x"), &[1.0f32; 16]).unwrap();
    allocation.begin().unwrap().finish();
    assert!(allocation.read::<f32>(tensor(graph.graph(), "y")).is_ok());
    // There are no bytes in the null device, and that is an error like any other.
    let error = allocation.raw_bytes(tensor(graph.graph(), "a")).unwrap_err();
    assert_eq!(error.to_string(), "null: no bytes to read or write: the memory only counts them");
}
