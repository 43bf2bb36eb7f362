//! Graphs in another order of their nodes, computed: the same bits, in fewer bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use steeve_cpu::{CpuBackend, CpuDevice};
use steeve_device::{Backend, Bindings, BufferType, Bytes, Device, Offset, SharedBuffer, Usage};
use steeve_graph::{AssignedGraph, Graph, Order, PlanOptions, TensorId, plan_graph, replay};
use steeve_runtime::sched::{SchedOptions, Scheduler};
use steeve_runtime::{AllocOptions, GraphAllocator, SmallGraphs};

/// Returns a graph of some tokens behind others, in which `wide` is made long before it is read, and rows of a cache are
/// written and read without an edge between the two.
fn graph(tokens: u64, past: u64) -> Graph {
    let (wide, start, all) = (8 * tokens, 256 * past, tokens + past);
    let text = format!(
        "x = input f32[64,{tokens}]
        weight = external f32[64,64]
        cache = external f32[64,128]
        wide = repeat f32[64,{wide}] x
        there = view f32[64,{tokens}]+{start} cache
        write = cpy x there
        product = mul_mat f32[64,{tokens}] weight x
        large = repeat f32[64,{wide}] product
        sums = sum_rows f32[1,{wide}] large
        known = view f32[64,{all}]+0 cache
        seen = neg known !output
        y = add wide sums !output"
    );
    let graph: Graph = text.parse().unwrap();
    assert!(graph.nodes().len() == 9, "{text}");
    graph
}

fn named(graph: &Graph, name: &str) -> TensorId {
    graph.tensors().ids().find(|id| graph.name(*id) == name).unwrap()
}

fn best() -> PlanOptions {
    PlanOptions::default().with_order(Order::Best)
}

/// Binds weight and cache, the cache `distance` bytes behind the weight.
fn bind(graph: &Graph, memory: &Arc<dyn BufferType>, distance: u64) -> (Bindings, SharedBuffer) {
    let buffer = SharedBuffer::allocate(memory, Bytes(256 * (64 + 128)), Usage::Any).unwrap();
    let numbers: Vec<u8> =
        (0..64 * 192u32).flat_map(|i| (((i * 37) % 101) as f32 / 64.0 - 0.7).to_le_bytes()).collect();
    buffer.write(Offset(0), &numbers).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(named(graph, "weight"), &buffer, Offset(0), Bytes(256 * 64)).unwrap();
    bindings.bind(named(graph, "cache"), &buffer, Offset(distance), Bytes(256 * 128)).unwrap();
    (bindings, buffer)
}

fn inputs(graph: &Graph) -> Vec<f32> {
    let count = graph.tensor(named(graph, "x")).layout.elements() as u32;
    (0..count).map(|i| ((i * 29) % 83) as f32 / 32.0 - 1.1).collect()
}

/// The bits of both outputs and of the buffer of external tensors.
type Bits = (Vec<f32>, Vec<f32>, Vec<u8>);

fn compute(allocator: &mut GraphAllocator, graph: &Graph, distance: u64, backend: &CpuBackend) -> Bits {
    let (bindings, buffer) = bind(graph, &backend.buffer_type(), distance);
    let allocation = allocator.alloc(graph, &bindings).unwrap();
    allocation.write(named(graph, "x"), &inputs(graph)).unwrap();
    allocation.compute(backend).unwrap();
    let mut image = vec![0; buffer.size().0 as usize];
    buffer.read(Offset(0), &mut image).unwrap();
    (allocation.read(named(graph, "y")).unwrap(), allocation.read(named(graph, "seen")).unwrap(), image)
}

#[test]
fn every_smaller_graph_runs_in_the_order_of_the_largest_and_computes_the_same() {
    let backend = CpuBackend::new(2);
    let options = AllocOptions::new().with_small_graphs(SmallGraphs::SharePlan);
    let mut ordered = GraphAllocator::new(&backend.buffer_type()).with_options(options.clone().with_plan(best()));
    let mut own = GraphAllocator::new(&backend.buffer_type()).with_options(options);
    let prompt = graph(64, 64);
    ordered.reserve(&prompt).unwrap();
    own.reserve(&prompt).unwrap();
    let order = ordered.plan_of(&prompt).unwrap().order().expect("another order saves half").clone();
    assert!(ordered.buffer_size(0).unwrap().0 * 10 < own.buffer_size(0).unwrap().0 * 7);
    for tokens in 1..=64 {
        for past in [0, 1, 63, 64] {
            let token = graph(tokens, past);
            let plan = ordered.plan_of(&token).unwrap();
            assert_eq!(plan.order(), Some(&order), "{tokens} tokens behind {past}");
            assert_eq!(replay(&AssignedGraph::from(token.clone()), &plan.places()), Ok(()), "{tokens} behind {past}");
            let wanted = compute(&mut own, &token, 256 * 64, &backend);
            assert_eq!(compute(&mut ordered, &token, 256 * 64, &backend), wanted, "{tokens} behind {past}");
        }
    }
}

#[test]
fn external_tensors_that_share_bytes_keep_their_order() {
    let backend = CpuBackend::new(1);
    let graph = graph(16, 4);
    for distance in [0, 256, 256 * 63, 256 * 64] {
        let plan = AllocOptions::new().with_plan(best());
        let mut ordered = GraphAllocator::new(&backend.buffer_type()).with_options(plan);
        let mut own = GraphAllocator::new(&backend.buffer_type());
        ordered.reserve(&graph).unwrap();
        for at in [256 * 64, distance, 256 * 64] {
            assert_eq!(compute(&mut ordered, &graph, at, &backend), compute(&mut own, &graph, at, &backend), "{at}");
        }
    }
}

#[test]
fn observers_see_the_order_of_the_run_and_the_ids_of_the_caller() {
    let backend = CpuBackend::new(1);
    let graph = graph(16, 4);
    let mut allocator = GraphAllocator::new(&backend.buffer_type()).with_options(AllocOptions::new().with_plan(best()));
    let (bindings, _buffer) = bind(&graph, &backend.buffer_type(), 256 * 64);
    let allocation = allocator.alloc(&graph, &bindings).unwrap();
    allocation.write(named(&graph, "x"), &inputs(&graph)).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    backend.observe(move |observed| {
        list.lock().unwrap().push(observed.node);
        ControlFlow::Continue(())
    });
    allocation.compute(&backend).unwrap();
    let computes = |node: &TensorId| !graph.tensor(*node).op.writes_nothing();
    let run: Vec<TensorId> = allocation.in_run_order().unwrap().nodes().iter().copied().filter(computes).collect();
    assert_eq!(*seen.lock().unwrap(), run);
    assert_ne!(allocation.in_run_order().unwrap().nodes(), graph.nodes());
    assert!(seen.lock().unwrap().iter().all(|node| graph.tensors().find(*node).is_ok()));
}

#[test]
fn a_scheduler_runs_in_another_order_and_computes_the_same() {
    let backend = CpuBackend::new(1);
    let graph = graph(16, 4);
    let mut own = GraphAllocator::new(&backend.buffer_type());
    let (y, seen, _) = compute(&mut own, &graph, 256 * 64, &backend);
    let mut peaks = Vec::new();
    for plan in [PlanOptions::default(), best()] {
        let cpu: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1));
        let mut scheduler =
            Scheduler::new([Arc::clone(&cpu)]).unwrap().with_options(SchedOptions::new().with_plan(plan));
        let (bindings, _buffer) = bind(&graph, &cpu.buffer_types()[0], 256 * 64);
        peaks.push(scheduler.required(&graph, &bindings).unwrap()[0]);
        let job = scheduler.alloc(&graph, &bindings).unwrap();
        job.write(named(&graph, "x"), &inputs(&graph)).unwrap();
        scheduler.compute(&job).unwrap();
        assert_eq!(job.read::<f32>(named(&graph, "y")).unwrap(), y);
        assert_eq!(job.read::<f32>(named(&graph, "seen")).unwrap(), seen);
    }
    assert!(peaks[1].0 * 10 < peaks[0].0 * 7, "{peaks:?}");
}

#[test]
fn a_plan_file_brings_its_order_along() {
    let backend = CpuBackend::new(1);
    let graph = graph(16, 4);
    let mut own = GraphAllocator::new(&backend.buffer_type());
    let wanted = compute(&mut own, &graph, 256 * 64, &backend);
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let plan = plan_graph(&allocator.assign(&graph).unwrap(), &best()).unwrap();
    assert!(plan.order().is_some());
    allocator.load_plan(&graph, &plan.to_json()).unwrap();
    assert_eq!(allocator.plan_of(&graph).unwrap().order(), plan.order());
    assert_eq!(compute(&mut allocator, &graph, 256 * 64, &backend), wanted);
}
