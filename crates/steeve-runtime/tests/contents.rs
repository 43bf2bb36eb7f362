//! Laws of reading and writing: what has contents can be read, and everything else is an error that says why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod world;

use graphs::{by_number, context, device, graph, host, memory, tensor};
use steeve_device::{Bindings, Bytes, DeviceError, Locate, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Graph, Id, PlanOptions, TensorId, Unread};
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator, allocate_context};
use world::World;

/// `a` takes over `x`; `b` has bytes of its own; `y` takes over one of them.
const SMALL: &str = "x = input f32[2]; a = sqr x; b = neg a; y = add a b !output";

#[test]
fn an_input_is_not_written_until_it_is() {
    let world = World::new(SMALL);
    let error = Err("tensor 0 (x): not written yet".into());
    assert_eq!(world.read("x"), error);
    assert_eq!(world.run(), error.map(|_: Vec<f32>| ()));
    world.write("x", &[1.0, 2.0]).unwrap();
    assert_eq!(world.read("x"), Ok(vec![1.0, 2.0]));
    assert_eq!(world.run(), Ok(()));
}

#[test]
fn nothing_is_computed_before_the_run() {
    let world = World::new(SMALL);
    world.write("x", &[1.0, 2.0]).unwrap();
    assert_eq!(world.read("y"), Err("tensor 3 (y): not computed yet".into()));
    assert_eq!(world.read("a"), Err("tensor 1 (a): not computed yet".into()));
}

#[test]
fn an_input_whose_memory_the_run_reuses_is_consumed() {
    let world = World::new(SMALL);
    world.write("x", &[1.0, 2.0]).unwrap();
    world.run().unwrap();
    let error = "tensor 0 (x): consumed by the last run, which has reused its memory: write it again, or keep it";
    assert_eq!(world.read("x"), Err(error.into()));
    assert_eq!(world.run(), Err(error.into()));
    world.write("x", &[3.0, 4.0]).unwrap();
    assert_eq!(world.read("x"), Ok(vec![3.0, 4.0]));
    world.run().unwrap();
}

#[test]
fn what_the_run_has_overwritten_is_reused() {
    let world = World::new(SMALL);
    world.write("x", &[1.0, 2.0]).unwrap();
    world.run().unwrap();
    assert!(world.read("y").is_ok());
    let lost: Vec<&str> = ["a", "b"].into_iter().filter(|name| world.read(name).is_err()).collect();
    assert_eq!(lost.len(), 1, "y stands on one of them");
    let error = world.read(lost[0]).unwrap_err();
    assert!(error.ends_with(": overwritten later in the run: set it as output to read it after a run"), "{error}");
}

#[test]
fn outputs_stay_readable_after_the_run() {
    let text = "x = input f32[2]; a = sqr x !output; b = neg a !output; c = abs b; y = sqr c !output";
    let world = World::new(text);
    world.write("x", &[1.0, 2.0]).unwrap();
    world.run().unwrap();
    for name in ["a", "b", "y"] {
        assert!(world.read(name).is_ok(), "{name}");
    }
}

#[test]
fn a_kept_input_need_not_be_written_again() {
    let mut context = context("x = input f32[2]; a = sqr x; y = neg a !output");
    let (x, y) = (TensorId::from_index(0).unwrap(), TensorId::from_index(2).unwrap());
    context.keep(x).unwrap();
    let world = World::with(Graph::from_outputs(&context, &[y]).unwrap(), &Bindings::new());
    world.write("x", &[1.0, 2.0]).unwrap();
    for _ in 0..3 {
        world.run().unwrap();
        assert_eq!(world.read("x"), Ok(vec![1.0, 2.0]));
        assert!(world.read("y").is_ok());
    }
    // Writing it does not make the last result unreadable.
    world.write("x", &[3.0, 4.0]).unwrap();
    assert_eq!(world.read("x"), Ok(vec![3.0, 4.0]));
    assert!(world.read("y").is_ok());
}

#[test]
fn writing_a_consumed_input_makes_the_last_results_unreadable() {
    let world = World::new(SMALL);
    world.write("x", &[1.0, 2.0]).unwrap();
    world.run().unwrap();
    world.write("x", &[3.0, 4.0]).unwrap();
    let error = world.read("y").unwrap_err();
    assert!(error.starts_with("tensor 3 (y): contents lost: "), "{error}");
    world.run().unwrap();
    assert!(world.read("y").is_ok());
}

#[test]
fn a_second_run_needs_its_own_inputs_only_where_they_were_consumed() {
    // `k` is read by the last node, so nobody can take its bytes; `x` is taken over by the first.
    let world = World::new("x = input f32[2]; k = input f32[2]; a = sqr x; y = custom f32[2] a k !output");
    world.write("x", &[1.0, 2.0]).unwrap();
    assert_eq!(world.run(), Err("tensor 1 (k): not written yet".into()));
    world.write("k", &[5.0, 6.0]).unwrap();
    world.run().unwrap();
    assert_eq!(world.read("k"), Ok(vec![5.0, 6.0]));
    assert!(world.read("x").unwrap_err().contains("consumed by the last run"));
    world.write("x", &[7.0, 8.0]).unwrap();
    world.run().unwrap();
    assert_eq!(world.read("k"), Ok(vec![5.0, 6.0]));
}

#[test]
fn a_run_that_is_dropped_leaves_nothing_to_read() {
    let world = World::new("x = input f32[2]; k = input f32[2]; a = sqr x; y = custom f32[2] a k !output");
    world.write("x", &[1.0, 2.0]).unwrap();
    world.write("k", &[1.0, 2.0]).unwrap();
    drop(world.allocation.begin().unwrap());
    assert!(world.read("y").unwrap_err().contains("contents lost"));
    assert!(world.read("x").unwrap_err().contains("consumed by the last run"));
    // Nobody writes over `k`, however far the run came.
    assert_eq!(world.read("k"), Ok(vec![1.0, 2.0]));
}

#[test]
fn a_run_that_is_dropped_leaves_an_input_that_nodes_write_into_unwritten() {
    let text =
        "cache = leaf f32[4]; x = input f32[2]; v = view f32[2]+8 cache; w = cpy x v; y = custom f32[4] cache !output";
    let world = World::new(text);
    let write = || {
        world.write("x", &[1.0, 2.0]).unwrap();
        world.write("cache", &[0.0; 4]).unwrap();
    };
    write();
    world.run().unwrap();
    assert!(world.read("cache").is_ok(), "it survives, with what was written into it");
    write();
    drop(world.allocation.begin().unwrap());
    assert!(world.read("cache").unwrap_err().contains("consumed by the last run"));
}

#[test]
fn while_a_run_is_in_progress_nothing_is_read_or_written() {
    let mut world = World::new(SMALL);
    let other = world.allocator.alloc(&world.graph, &Bindings::new()).unwrap();
    world.write("x", &[1.0, 2.0]).unwrap();
    let (x, y) = (world.id("x"), world.id("y"));
    let run = world.allocation.begin().unwrap();
    assert_eq!(run.allocation().graph().nodes().len(), 3);
    for handle in [&world.allocation, &other] {
        assert_eq!(handle.read::<f32>(x), Err(AllocError::Running));
        assert_eq!(handle.read_bytes(y), Err(AllocError::Running));
        assert_eq!(handle.write(x, &[0.0f32; 2]), Err(AllocError::Running));
        assert_eq!(handle.write_bytes(x, &[0; 8]), Err(AllocError::Running));
        assert_eq!(handle.raw_bytes(x), Err(AllocError::Running));
        assert_eq!(handle.write_raw_bytes(x, &[0; 8]), Err(AllocError::Running));
        assert_eq!(handle.begin().map(drop), Err(AllocError::Running));
        // Where they stand can be asked at any time: that is how a backend runs.
        assert!(handle.address(x).is_ok());
    }
    run.finish();
    assert!(world.read("y").is_ok());
    assert_eq!(other.read::<f32>(y), Err(AllocError::NotComputed { tensor: named(&world.graph, y) }));
}

fn named(graph: &Graph, tensor: TensorId) -> steeve_graph::Named {
    steeve_graph::Named::new(tensor, graph.names())
}

#[test]
fn who_writes_or_runs_through_a_later_handle_makes_this_one_stale() {
    let mut world = World::new(SMALL);
    world.write("x", &[1.0, 2.0]).unwrap();
    world.run().unwrap();
    let later = world.allocator.alloc(&world.graph, &Bindings::new()).unwrap();
    assert!(world.read("y").is_ok(), "a new handle alone takes nothing away");
    // What fails takes nothing either.
    assert!(matches!(later.begin(), Err(AllocError::NotWritten { .. })));
    assert!(matches!(later.write(world.id("x"), &[1.0f32]), Err(AllocError::Length { .. })));
    assert!(matches!(later.write(world.id("y"), &[1.0f32; 2]), Err(AllocError::Computed { .. })));
    assert!(world.read("y").is_ok());
    later.write(world.id("x"), &[3.0f32, 4.0]).unwrap();
    let stale = "allocation: stale: the memory has been used through a later one, has grown, or its allocator is gone";
    assert_eq!(world.read("y"), Err(stale.into()));
    assert_eq!(world.write("x", &[0.0; 2]), Err(stale.into()));
    assert_eq!(world.run(), Err(stale.into()));
    assert_eq!(later.read::<f32>(world.id("x")).unwrap(), [3.0, 4.0]);
    // Raw bytes are to be had all the same, and show the later one's.
    let x = world.id("x");
    assert_eq!(world.allocation.raw_bytes(x), later.raw_bytes(x));
    assert_eq!(world.allocation.write_raw_bytes(x, &[0; 8]), Err(AllocError::Stale));
}

#[test]
fn a_graph_without_inputs_runs_at_once_and_takes_the_memory() {
    let mut world = World::new("y = ?MAKE f32[2] !output");
    world.run().unwrap();
    assert!(world.read("y").is_ok());
    let later = world.allocator.alloc(&world.graph, &Bindings::new()).unwrap();
    later.begin().unwrap().finish();
    assert!(world.read("y").unwrap_err().contains("stale"));
    assert!(later.read::<f32>(world.id("y")).is_ok());
}

#[test]
fn what_the_graph_does_not_use_is_not_placed() {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[2]).unwrap();
    let unused = context.input(DataType::F32, &[2]).unwrap();
    context.set_name(unused, "unused").unwrap();
    let y = context.neg(x).unwrap();
    let world = World::with(Graph::from_outputs(&context, &[y]).unwrap(), &Bindings::new());
    let error = "tensor 1 (unused): no address: the graph does not use it";
    assert_eq!(world.read("unused"), Err(error.into()));
    assert_eq!(world.write("unused", &[0.0; 2]), Err(error.into()));
    assert_eq!(world.allocation.raw_bytes(unused).unwrap_err().to_string(), error);
    assert_eq!(world.allocation.address(unused).unwrap_err().to_string(), error);
    // Nor is what no context has ever built.
    let nobody = TensorId::from_index(99).unwrap();
    assert!(matches!(world.allocation.read::<f32>(nobody), Err(AllocError::Graph(_))));
    assert!(matches!(world.allocation.write_bytes(nobody, &[]), Err(AllocError::Graph(_))));
    assert!(matches!(world.allocation.write_raw_bytes(nobody, &[]), Err(AllocError::Graph(_))));
    assert!(world.allocation.locate(nobody).is_none());
}

#[test]
fn writing_what_the_run_computes_is_in_vain() {
    let world = World::new(SMALL);
    assert_eq!(
        world.write("y", &[0.0; 2]),
        Err("tensor 3 (y): computed by the run: expected an input or an external tensor".into())
    );
}

#[test]
fn external_tensors_can_be_read_and_written_at_any_time() {
    let mut context = context("w = external f32[2]; x = input f32[2]; y = custom f32[2] w x !output");
    let (w, y) = (TensorId::from_index(0).unwrap(), TensorId::from_index(2).unwrap());
    let bindings = by_number(&allocate_context(&mut only(&context, 1), &host()).unwrap());
    context.set_output(y).unwrap();
    let mut world = World::with(Graph::from_outputs(&context, &[y]).unwrap(), &bindings);
    world.write("w", &[1.0, 2.0]).unwrap();
    world.write("x", &[1.0, 2.0]).unwrap();
    let run = world.allocation.begin().unwrap();
    assert_eq!(world.allocation.read::<f32>(w).unwrap(), [1.0, 2.0]);
    run.finish();
    world.allocator.reserve(&graph("x = input f32[999]; y = neg x")).unwrap();
    assert!(world.read("x").unwrap_err().contains("stale"));
    // The caller's memory is not the allocator's: no handle to it is ever stale.
    assert_eq!(world.read("w"), Ok(vec![1.0, 2.0]));
    world.write("w", &[3.0, 4.0]).unwrap();
    assert_eq!(world.read("w"), Ok(vec![3.0, 4.0]));
    // While somebody uses it, it is in use.
    let buffer = bindings.get(w).unwrap().buffer;
    let using = buffer.borrow_mut().unwrap();
    assert!(matches!(world.allocation.read::<f32>(w), Err(AllocError::Device(DeviceError::InUse { .. }))));
    drop(using);
    buffer.release().unwrap();
    assert!(matches!(world.allocation.read::<f32>(w), Err(AllocError::Device(DeviceError::Released { .. }))));
}

/// The first `count` tensors of a context.
fn only(context: &Context, count: usize) -> Context {
    let mut some = Context::new();
    for (id, tensor) in context.tensors().pairs().take(count) {
        some.add_tensor(*tensor, context.tensors().sources(id), context.tensors().params(id)).unwrap();
    }
    some
}

#[test]
fn external_tensors_need_enough_memory() {
    let graph = graph("w = external f32[4]; x = input f32[2]; y = custom f32[2] w x !output");
    let w = tensor(&graph, "w");
    let device = device(32);
    let mut allocator = GraphAllocator::new(&memory(&device));
    let error = allocator.alloc(&graph, &Bindings::new()).unwrap_err();
    assert_eq!(error.to_string(), "tensor 0 (w): external tensor without memory: expected it among the bindings");
    let buffer = SharedBuffer::allocate(&memory(&device), Bytes(64), Usage::Any).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(w, &buffer, Offset(0), Bytes(12)).unwrap();
    let error = allocator.alloc(&graph, &bindings).unwrap_err();
    assert_eq!(error.to_string(), "tensor 0 (w): bound to too little memory: expected at least 16 bytes, got 12");
    bindings.bind(w, &buffer, Offset(32), Bytes(32)).unwrap();
    let allocation = allocator.alloc(&graph, &bindings).unwrap();
    let address = allocation.address(w).unwrap();
    assert_eq!((address.offset, address.size), (Offset(32), Bytes(32)));
}

#[test]
fn what_is_bound_and_too_small_is_no_place_even_if_the_graph_does_not_use_it() {
    let mut context = context("x = input f32[2]; y = neg x !output; w = external f32[4]");
    let w = TensorId::from_index(2).unwrap();
    let part = context.view_1d(w, 2, Bytes(8)).unwrap();
    let low = context.view_1d(w, 2, Bytes(0)).unwrap();
    let buffer = SharedBuffer::allocate(&host(), Bytes(64), Usage::Any).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(w, &buffer, Offset(0), Bytes(8)).unwrap();
    let graph = Graph::from_outputs(&context, &[TensorId::from_index(1).unwrap()]).unwrap();
    let world = World::with(graph, &bindings);
    assert!(matches!(world.allocation.read::<f32>(w), Err(AllocError::NotPlaced { .. })));
    assert!(matches!(world.allocation.read::<f32>(part), Err(AllocError::NotPlaced { .. })));
    assert!(world.allocation.read::<f32>(low).is_ok());
}

#[test]
fn a_transfer_that_fails_leaves_an_input_unwritten() {
    let device = device(32);
    let graph = graph(SMALL);
    let x = tensor(&graph, "x");
    let mut allocator = GraphAllocator::new(&memory(&device));
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(x, &[1.0f32, 2.0]).unwrap();
    device.faults().fail_transfer_after(0);
    assert!(matches!(allocation.write(x, &[3.0f32, 4.0]), Err(AllocError::Device(DeviceError::Failed { .. }))));
    assert!(matches!(allocation.read::<f32>(x), Err(AllocError::NotWritten { .. })));
    assert!(matches!(allocation.begin(), Err(AllocError::NotWritten { .. })));
    allocation.write(x, &[5.0f32, 6.0]).unwrap();
    device.faults().fail_transfer_after(0);
    assert!(allocation.read::<f32>(x).is_err());
    assert_eq!(allocation.read::<f32>(x).unwrap(), [5.0, 6.0]);
}

#[test]
fn raw_bytes_are_whatever_stands_there() {
    let mut world = World::new(SMALL);
    world.allocator.clear(0xFF).unwrap();
    world.allocation = world.allocator.alloc(&world.graph, &Bindings::new()).unwrap();
    let [x, a, y] = ["x", "a", "y"].map(|name| world.id(name));
    assert_eq!(world.allocation.raw_bytes(y).unwrap(), [0xFF; 8]);
    world.allocation.write_raw_bytes(a, &[1; 8]).unwrap();
    // `a` stands on `x`; being written raw does not count.
    assert_eq!(world.allocation.raw_bytes(x).unwrap(), [1; 8]);
    assert!(matches!(world.allocation.read_bytes(x), Err(AllocError::NotWritten { .. })));
    assert!(matches!(world.allocation.read_bytes(a), Err(AllocError::NotComputed { .. })));
}

#[test]
fn an_input_that_no_node_reads_need_not_be_written_and_is_never_consumed() {
    let text = "spare = input f32[4]; x = input f32[2] !output; a = sqr x; y = custom f32[4] a !output";
    for unread in [Unread::Keep, Unread::FreeInputs, Unread::Free] {
        let options = AllocOptions::new().with_plan(PlanOptions::default().with_unread(unread));
        let graph = graph(text);
        let [spare, x, y] = ["spare", "x", "y"].map(|name| tensor(&graph, name));
        let mut allocator = GraphAllocator::new(&host()).with_options(options);
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(x, &[1.0f32, 2.0]).unwrap();
        assert!(matches!(allocation.read::<f32>(spare), Err(AllocError::NotWritten { .. })));
        for _ in 0..2 {
            // Unwritten, and a second time.
            allocation.begin().unwrap().finish();
        }
        // Written beside the other inputs it harms none of them, in whichever order.
        let next = allocator.alloc(&graph, &Bindings::new()).unwrap();
        next.write(x, &[3.0f32, 4.0]).unwrap();
        next.write(spare, &[9.0f32; 4]).unwrap();
        assert_eq!(next.read::<f32>(x).unwrap(), [3.0, 4.0]);
        assert_eq!(next.read::<f32>(spare).unwrap(), [9.0; 4]);
        next.begin().unwrap().finish();
        assert!(next.read::<f32>(y).is_ok());
        match next.read::<f32>(spare) {
            Ok(kept) => assert_eq!(kept, [9.0; 4]),
            Err(error) => assert!(matches!(error, AllocError::Reused { .. }) && unread != Unread::Keep, "{error}"),
        }
        next.begin().unwrap().finish();
    }
}

#[test]
fn a_planned_parameter_is_an_error_and_no_garbage() {
    // It is a node, so it has no bytes of its own yet when the caller could write it.
    let world = World::new("x = input f32[2]; a = sqr x; p = param f32[2]; y = custom f32[2] a p !output");
    world.write("x", &[1.0, 2.0]).unwrap();
    assert!(world.write("p", &[1.0, 2.0]).is_err());
    assert!(world.read("p").is_err());
    assert_eq!(world.run(), Err("tensor 2 (p): not computed yet".into()));
}

#[test]
fn a_copy_that_nothing_here_fills_is_an_error_and_no_garbage() {
    // ggml's scheduler has such nodes and fills them; ours makes copies that are computed.
    let world = World::new("x = input f32[2]; a = sqr x; c = leaf f32[2] !node; y = custom f32[2] a c !output");
    world.write("x", &[1.0, 2.0]).unwrap();
    assert_eq!(world.run(), Err("tensor 2 (c): not computed yet".into()));
    assert!(world.read("c").unwrap_err().contains("not computed yet"));
}

#[test]
fn what_has_no_bytes_can_be_read_at_any_time() {
    let world = World::new("x = input f32[4,0]; y = reshape f32[0] x !output; z = custom f32[0] y");
    for _ in 0..2 {
        for name in ["x", "y", "z"] {
            assert_eq!(world.read(name), Ok(vec![]), "{name}");
        }
        world.run().unwrap();
    }
}

#[test]
fn a_constant_in_neither_list_is_written_like_an_input() {
    let world = World::new("c = leaf f32[4] !aside; v = view f32[2]+8^c; y = custom f32[2] v !output");
    assert_eq!(world.run(), Err("tensor 0 (c): not written yet".into()));
    world.write("c", &[1.0; 4]).unwrap();
    world.run().unwrap();
}

#[test]
fn an_input_that_a_node_computes_may_be_written_and_is_overwritten() {
    let world = World::new("x = input f32[2]; a = sqr x !input; y = custom f32[2] a !output");
    world.write("x", &[1.0, 2.0]).unwrap();
    world.write("a", &[3.0, 4.0]).unwrap();
    assert_eq!(world.read("x"), Ok(vec![1.0, 2.0]), "it has bytes of its own from the start");
    assert!(world.read("a").unwrap_err().contains("not computed yet"));
    world.run().unwrap();
}
