//! What callers do who do not read the docs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use steeve_device::{
    Bindings, BufferType, Bytes, Device, DiscreteDevice, HostMemory, MemorySpec, Offset, SharedBuffer, Usage,
};
use steeve_graph::{AssignedGraph, Context, DataType, Graph, GraphStrategy, Id, PlanOptions, TensorId};
use steeve_runtime::{AllocError, GraphAllocator, allocate_context, read_tensor, write_tensor};

fn host() -> Arc<dyn BufferType> {
    Arc::new(HostMemory::new())
}

fn graph(text: &str) -> Graph {
    text.parse::<AssignedGraph>().unwrap().into_graph()
}

#[test]
fn a_buffer_that_somebody_released_is_made_again() {
    let graph = graph("x = input f32[8]; y = sqr x !output");
    let mut allocator = GraphAllocator::new(&host());
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.buffers().for_each(|buffer| buffer.release().unwrap());
    let again = allocator.alloc(&graph, &Bindings::new()).unwrap();
    again.write(graph.leafs()[0], &[1.0f32; 8]).unwrap();
}

#[test]
fn external_tensors_do_not_stand_in_planned_memory() {
    let graph = graph("w = external f32[8]; x = input f32[8]; y = add x w !output");
    let mut allocator = GraphAllocator::new(&host());
    allocator.reserve(&graph).unwrap();
    let weights = SharedBuffer::allocate(&host(), Bytes(64), Usage::Weights).unwrap();
    let w = graph.tensors().ids().find(|id| graph.tensor(*id).external).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(w, &weights, Offset(0), Bytes(32)).unwrap();
    let allocation = allocator.alloc(&graph, &bindings).unwrap();
    let planned = allocation.buffers().next().unwrap().clone();
    bindings.bind(w, &planned, Offset(0), Bytes(32)).unwrap();
    assert!(matches!(allocator.alloc(&graph, &bindings), Err(AllocError::BoundToPlanned { .. })));
}

#[test]
fn handles_are_stale_when_their_allocator_is_gone() {
    let graph = graph("x = input f32[8]; y = sqr x !output");
    let mut allocator = GraphAllocator::new(&host());
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(graph.leafs()[0], &[1.0f32; 8]).unwrap();
    drop(allocator);
    assert_eq!(allocation.read::<f32>(graph.leafs()[0]), Err(AllocError::Stale));
    assert!(matches!(allocation.begin(), Err(AllocError::Stale)));
}

#[test]
fn a_tensor_that_no_graph_has_is_unknown_and_binding_it_costs_nothing() {
    let graph = graph("x = input f32[8]; y = sqr x !output");
    let far = TensorId::from_index(u32::MAX as usize - 1).unwrap();
    let allocation = GraphAllocator::new(&host()).alloc(&graph, &Bindings::new()).unwrap();
    assert!(allocation.read::<f32>(far).unwrap_err().to_string().contains("4294967294"));
    let buffer = SharedBuffer::allocate(&host(), Bytes(64), Usage::Any).unwrap();
    let mut bindings = Bindings::new();
    for id in [far, graph.leafs()[0]] {
        bindings.bind(id, &buffer, Offset(0), Bytes(32)).unwrap();
    }
    let mut more = Bindings::new();
    more.bind(far, &buffer, Offset(32), Bytes(32)).unwrap();
    bindings.extend(&more);
    let bound: Vec<_> = bindings.iter().map(|(id, address)| (id, address.offset)).collect();
    assert_eq!(bound, [(graph.leafs()[0], Offset(0)), (far, Offset(32))]);
}

#[test]
fn plans_that_ignore_a_hold_are_refused_where_it_matters() {
    let device = DiscreteDevice::new(MemorySpec::new("gpu").with_hold(3));
    let memory = &device.buffer_types()[0];
    let graph = graph("x = input f32[8]; a = sqr x; b = neg a; c = add a b !output");
    let ggml = steeve_runtime::AllocOptions::new().with_plan(PlanOptions::new(GraphStrategy::Ggml));
    let mut first = GraphAllocator::new(memory).with_options(ggml.clone());
    first.reserve(&graph).unwrap();
    let saved = first.plan_of(&graph).unwrap().to_json();
    let refused = GraphAllocator::new(memory).load_plan(&graph, &saved);
    assert!(matches!(refused, Err(AllocError::NoExtraLifetime { extra_lifetime: 3, .. })), "{refused:?}");
    GraphAllocator::new(memory).with_options(ggml).load_plan(&graph, &saved).unwrap();
    assert!(matches!(GraphAllocator::new(memory).load_plan(&graph, "{}"), Err(AllocError::PlanFile(_))));
}

#[test]
fn a_few_rows_of_a_large_cache_are_moved_alone() {
    let mut context = Context::new();
    let cache = context.external(DataType::F32, &[1024, 1024]).unwrap();
    let column = context.view_2d(cache, [2, 1024], 4096, Bytes(8)).unwrap();
    let bindings = allocate_context(&mut context, &host()).unwrap();
    write_tensor(&context, &bindings, cache, &vec![1.0f32; 1 << 20]).unwrap();
    let data: Vec<f32> = (0..2048).map(|number| number as f32).collect();
    write_tensor(&context, &bindings, column, &data).unwrap();
    assert_eq!(read_tensor::<f32>(&context, &bindings, column).unwrap(), data);
    let all = read_tensor::<f32>(&context, &bindings, cache).unwrap();
    assert_eq!((all[1], all[2], all[3], all[4], all[1026]), (1.0, 0.0, 1.0, 1.0, 2.0));
    assert!(matches!(write_tensor(&context, &bindings, cache, &[1.0f32]), Err(AllocError::Length { .. })));
    assert!(matches!(read_tensor::<i32>(&context, &bindings, cache), Err(AllocError::ElementType { .. })));
}
