//! The hot path touches no heap: `alloc` of a graph that was built afresh and has a plan, counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use steeve_testkit::transformer;

use graphs::{device, graph, host, memory};
use steeve_device::{Bindings, BufferType, Device, DiscreteDevice, MemorySpec, Offset, SharedBuffer, Usage};
use steeve_graph::{Align, Bytes, Graph, Order, PlanOptions};
use steeve_runtime::{AllocOptions, GraphAllocator, allocate_context};
use transformer::{Transformer, rebuilt};

/// The system's allocator, which counts what this thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // There is nothing to count in a thread that is being taken down.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: the system's allocator does all the work and keeps the promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `act` answers, and how often it has used the heap: to get memory or to give it back.
fn counted<T>(act: impl FnOnce() -> T) -> (T, u64) {
    let before = ASKED.get();
    let made = act();
    (made, ASKED.get() - before)
}

/// Allocates without the heap, and drops the handle without it.
fn assert_free(allocator: &mut GraphAllocator, graph: &Graph, bindings: &Bindings) {
    let (result, used) = counted(|| allocator.alloc(graph, bindings).map(drop));
    result.unwrap();
    assert_eq!(used, 0, "{} nodes", graph.nodes().len());
}

fn model(nodes: usize) -> (Transformer, Bindings) {
    let mut model = Transformer::with_nodes(nodes).unwrap();
    let weights = allocate_context(&mut model.context, &host()).unwrap();
    (model, weights)
}

#[test]
fn the_heap_is_counted() {
    assert_eq!(counted(|| 1 + 1), (2, 0));
    assert_eq!(counted(|| drop(std::hint::black_box(Box::new(7)))).1, 2);
    let mut some = vec![1];
    assert_eq!(counted(|| some.reserve_exact(99)).1, 1);
}

#[test]
fn a_graph_built_afresh_is_allocated_without_the_heap() {
    for nodes in [1000, 2000, 5000] {
        let (mut model, weights) = model(nodes);
        let mut allocator = GraphAllocator::new(&host());
        allocator.reserve(&model.graph(16).unwrap().0).unwrap();
        for tokens in [16, 1, 7, 16] {
            let (graph, _) = model.graph(tokens).unwrap();
            assert!(graph.nodes().len() >= nodes && graph.nodes().len() < nodes + 100);
            assert_free(&mut allocator, &graph, &weights);
            // Nor where all of its tables are others.
            assert_free(&mut allocator, &rebuilt(&graph).unwrap(), &weights);
        }
    }
}

#[test]
fn alternating_graphs_of_equal_counts_are_allocated_without_the_heap() {
    // The first node that differs is the last one.
    let build = |last: &str| {
        let body: String = (1..2000).map(|index| format!("x{index} = sqr x{}\n", index - 1)).collect();
        graph(&format!("x0 = input f32[64]\n{body}y = {last} x1999 !output"))
    };
    let mut allocator = GraphAllocator::new(&host());
    allocator.reserve_all([&build("neg"), &build("abs")]).unwrap();
    for last in ["neg", "abs", "neg", "neg", "abs", "abs", "neg"] {
        assert_free(&mut allocator, &build(last), &Bindings::new());
    }
}

#[test]
fn alternating_graphs_of_different_counts_are_allocated_without_the_heap() {
    let (mut short, short_weights) = model(1000);
    let (mut long, long_weights) = model(5000);
    let mut allocator = GraphAllocator::new(&host());
    allocator.reserve_all([&short.graph(8).unwrap().0, &long.graph(4).unwrap().0]).unwrap();
    for tokens in [4, 1, 3, 4] {
        assert_free(&mut allocator, &short.graph(tokens).unwrap().0, &short_weights);
        assert_free(&mut allocator, &long.graph(tokens).unwrap().0, &long_weights);
    }
}

#[test]
fn prompts_and_tokens_in_turn_are_allocated_without_the_heap() {
    // A plan that was made for a token is found too small for a prompt, which has one of its own.
    let (mut model, weights) = model(1000);
    let mut allocator = GraphAllocator::new(&host());
    allocator.reserve(&model.graph(1).unwrap().0).unwrap();
    allocator.reserve(&model.graph(32).unwrap().0).unwrap();
    for tokens in [1, 32, 1, 1, 32, 32] {
        assert_free(&mut allocator, &model.graph(tokens).unwrap().0, &weights);
    }
}

#[test]
fn memories_that_pad_and_that_are_limited_are_no_exception() {
    let padded = MemorySpec::new("gpu").with_padding(Align::new(512).unwrap());
    let limited = MemorySpec::new("gpu").with_max_size(Bytes(64 << 10));
    for spec in [padded, limited] {
        let (mut model, weights) = model(1000);
        let device = DiscreteDevice::new(spec);
        let mut allocator = GraphAllocator::new(&memory(&device));
        allocator.reserve(&model.graph(16).unwrap().0).unwrap();
        assert_free(&mut allocator, &model.graph(16).unwrap().0, &weights);
    }
}

#[test]
fn several_memories_are_no_exception() {
    let (mut model, weights) = model(1000);
    let devices = [device(32), device(64)];
    let memories: Vec<Arc<dyn BufferType>> =
        devices.iter().map(|device| Arc::clone(&device.buffer_types()[0])).collect();
    let mut allocator =
        GraphAllocator::with_buffers([&memories[0], &memories[1], &memories[0]].map(Arc::clone)).unwrap();
    allocator.reserve(&model.graph(16).unwrap().0).unwrap();
    assert_free(&mut allocator, &model.graph(16).unwrap().0, &weights);
}

#[test]
fn a_whole_step_of_a_token_loop_uses_no_heap() {
    let (mut model, weights) = model(1000);
    let mut allocator = GraphAllocator::new(&host());
    let mut logits = vec![0f32; 96];
    for step in 0..4 {
        let (graph, ends) = model.graph(1).unwrap();
        let mask = vec![0f32; 128];
        let (result, used) = counted(|| {
            let allocation = allocator.alloc(&graph, &weights)?;
            allocation.write(ends.ids, &[1i32])?;
            allocation.write(ends.positions, &[step])?;
            allocation.write(ends.mask, &mask)?;
            allocation.begin()?.finish();
            allocation.read_into(ends.logits, &mut logits)
        });
        result.unwrap();
        // The first step plans, and finds out who survives.
        assert!(step == 0 || used == 0, "step {step}: {used}");
    }
}

#[test]
fn a_graph_that_runs_in_another_order_is_allocated_without_the_heap() {
    // `wide` is made long before it is read, in each of many layers, and rows of a cache are written.
    let build = |tokens: u64| {
        let layer = |index: usize| {
            let wide = 16 * tokens;
            format!(
                "w{index} = repeat f32[64,{wide}] x{index}
                there{index} = view f32[64,{tokens}]+0 cache; write{index} = cpy x{index} there{index}
                p{index} = mul_mat f32[64,{tokens}] weight x{index}
                l{index} = repeat f32[64,{wide}] p{index}; s{index} = sum_rows f32[1,{wide}] l{index}
                a{index} = add w{index} s{index}; v{index} = view f32[64,{tokens}]+0 a{index}
                x{} = neg v{index}\n",
                index + 1
            )
        };
        let layers: String = (0..100).map(layer).collect();
        graph(&format!(
            "x0 = input f32[64,{tokens}]; weight = external f32[64,64]; cache = external f32[64,64]
            {layers}y = neg x100 !output"
        ))
    };
    let plan = PlanOptions::default().with_order(Order::Best);
    let mut allocator = GraphAllocator::new(&host()).with_options(AllocOptions::new().with_plan(plan));
    let prompt = build(32);
    allocator.reserve(&prompt).unwrap();
    assert!(allocator.plan_of(&prompt).unwrap().order().is_some());
    let buffer = SharedBuffer::allocate(&host(), Bytes(2 * 64 * 256), Usage::Any).unwrap();
    let mut bindings = Bindings::new();
    for (index, name) in ["weight", "cache"].into_iter().enumerate() {
        let tensor = prompt.tensors().ids().find(|id| prompt.name(*id) == name).unwrap();
        bindings.bind(tensor, &buffer, Offset(index as u64 * 64 * 256), Bytes(64 * 256)).unwrap();
    }
    let bindings_of = |graph: &Graph| {
        let mut own = Bindings::new();
        for (tensor, at) in bindings.iter() {
            let tensor = graph.tensors().ids().find(|id| *id == tensor).unwrap();
            own.bind(tensor, at.buffer, at.offset, at.size).unwrap();
        }
        own
    };
    for tokens in [32, 1, 7, 32, 1] {
        let graph = build(tokens);
        assert_free(&mut allocator, &graph, &bindings_of(&graph));
    }
}
