//! Allocations, contexts and bindings refuse ids of another context or graph, and share plans with graphs of equal numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use graphs::{by_number, context, graph, host, tensor};
use steeve_device::{Bindings, Bytes, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Graph, GraphError, TensorId};
use steeve_runtime::{
    AllocError, Allocation, GraphAllocator, TensorAllocator, allocate_context, allocate_rest_of_context, read_tensor,
    write_tensor,
};

const TEXT: &str = "x = input f32[4]; y = custom f32[4] x !output";

fn is_foreign<T: std::fmt::Debug>(answer: Result<T, AllocError>) -> bool {
    matches!(answer, Err(AllocError::Graph(GraphError::Foreign { .. })))
}

#[test]
fn an_allocation_takes_ids_of_its_own_graph_alone() {
    type Call = fn(&Allocation, TensorId) -> Result<(), AllocError>;
    let calls: &[(&str, Call)] = &[
        ("address", |it, x| it.address(x).map(drop)),
        ("write", |it, x| it.write(x, &[0.0f32; 4])),
        ("write_bytes", |it, x| it.write_bytes(x, &[0; 16])),
        ("write_raw_bytes", |it, x| it.write_raw_bytes(x, &[0; 16])),
        ("raw_bytes", |it, x| it.raw_bytes(x).map(drop)),
        ("read", |it, x| it.read::<f32>(x).map(drop)),
        ("read_into", |it, x| it.read_into(x, &mut [0.0f32; 4])),
        ("read_bytes", |it, x| it.read_bytes(x).map(drop)),
    ];
    let (one, other) = (graph(TEXT), graph(TEXT));
    let mut allocator = GraphAllocator::new(&host());
    allocator.reserve(&one).unwrap();
    let plan = allocator.plan_of(&one).unwrap().clone();
    for (graph, foreign) in [(&one, &other), (&other, &one)] {
        // Both run in one plan, each with its own ids.
        let allocation = allocator.alloc(graph, &Bindings::new()).unwrap();
        assert_eq!(*allocator.plan_of(graph).unwrap(), plan);
        let (x, y) = (tensor(graph, "x"), tensor(foreign, "x"));
        assert_eq!(x, y);
        for (name, call) in calls {
            allocation.write(x, &[1.0f32; 4]).unwrap();
            call(&allocation, x).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(is_foreign(call(&allocation, y)), "{name}");
        }
    }
}

#[test]
fn a_token_loop_over_one_context_shares_its_weights_and_its_plan() {
    let mut context = Context::new();
    let weight = context.external(DataType::F32, &[4]).unwrap();
    let mut weights = context.clone();
    let bindings = allocate_context(&mut weights, &host()).unwrap();
    write_tensor(&weights, &bindings, weight, &[2.0f32; 4]).unwrap();
    let mark = context.mark();
    let mut allocator = GraphAllocator::new(&host());
    let mut last: Option<(Allocation, TensorId)> = None;
    for step in 0..3 {
        context.rewind(mark).unwrap();
        let x = context.input(DataType::F32, &[4]).unwrap();
        let y = context.add(x, weight).unwrap();
        context.set_output(y).unwrap();
        let graph = Graph::from_outputs(&context, &[y]).unwrap();
        let allocation = allocator.alloc(&graph, &bindings).unwrap();
        allocation.write(x, &[step as f32; 4]).unwrap();
        assert_eq!(allocation.read::<f32>(weight).unwrap(), [2.0; 4]);
        if let Some((old, old_x)) = last {
            assert!(is_foreign(allocation.read::<f32>(old_x)) && is_foreign(old.read::<f32>(x)));
        }
        last = Some((allocation, x));
    }
}

#[test]
fn bindings_of_another_context_bind_nothing() {
    let text = "w = external f32[4]; x = input f32[4]; y = custom f32[4] w x !output";
    let (mut one, other) = (context(text), context(text));
    let w = one.tensors().ids().next().unwrap();
    let bindings = allocate_context(&mut one, &host()).unwrap();
    let out = other.tensors().ids().next_back().unwrap();
    let graph = Graph::from_outputs(&other, &[out]).unwrap();
    let mut allocator = GraphAllocator::new(&host());
    assert!(is_foreign(allocator.alloc(&graph, &bindings)));
    // By number they do.
    allocator.alloc(&graph, &by_number(&bindings)).unwrap();
    let theirs = graph.leafs()[0];
    assert_eq!(w, theirs);
    assert!(bindings.get(w).is_some() && bindings.get(theirs).is_none());
    assert!(matches!(read_tensor::<f32>(&other, &bindings, theirs), Err(AllocError::Unbound { .. })));
    assert!(is_foreign(read_tensor::<f32>(&other, &bindings, w)));
    assert!(is_foreign(write_tensor(&other, &bindings, w, &[0.0f32; 4])));
    assert!(is_foreign(allocate_rest_of_context(&mut other.clone(), &host(), &bindings)));
    let buffer = SharedBuffer::allocate(&host(), Bytes(4096), Usage::Any).unwrap();
    let mut linear = TensorAllocator::new(&buffer);
    assert!(is_foreign(linear.alloc(&other, w).map(drop)));
    assert!(is_foreign(linear.bind(&other, w, &mut Bindings::new())));
    assert_eq!(linear.offset().0, 0);
}
