//! Plans of schedules as files: searched offline from the text of the schedule's graph, loaded without planning.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use steeve_cpu::CpuDevice;
use steeve_device::{Bindings, Device, NullDevice};
use steeve_graph::{
    Best, Budget, Context, DataType, ErrorChain, Graph, GraphStrategy, MatchMemories, PlanOptions, TensorId, plan_graph,
};
use steeve_plan::fuzz::runs;
use steeve_runtime::AllocError;
use steeve_runtime::sched::{SchedError, Scheduler};

/// A chain whose nodes alternate between two devices.
struct ChainGraph {
    graph: Graph,
    nodes: Vec<TensorId>,
}

fn chain() -> ChainGraph {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[256]).unwrap();
    let (mut last, mut nodes) = (x, Vec::new());
    for _ in 0..6 {
        last = context.scale_bias(last, 0.5, 1.0).unwrap();
        nodes.push(last);
    }
    context.set_output(last).unwrap();
    ChainGraph { graph: Graph::from_outputs(&context, &[last]).unwrap(), nodes }
}

fn devices(gpu: &str) -> [Arc<dyn Device>; 2] {
    [Arc::new(NullDevice::new(gpu).as_if_it_computed()), Arc::new(CpuDevice::with_threads(1))]
}

fn scheduler(gpu: &str, chain: &ChainGraph) -> Scheduler {
    let mut scheduler = Scheduler::for_planning(devices(gpu)).unwrap();
    let workers: Vec<_> = scheduler.workers().map(|(id, _)| id).collect();
    for (index, node) in chain.nodes.iter().enumerate() {
        scheduler.pin(*node, workers[index % workers.len()]).unwrap();
    }
    scheduler
}

#[test]
fn a_schedule_is_planned_offline_and_loaded_without_planning() {
    let chain = chain();
    let bindings = Bindings::new();
    // What is shipped.
    let text = scheduler("gpu", &chain).assign(&chain.graph, &bindings).unwrap().to_string();
    let best = PlanOptions::new(GraphStrategy::Best(Best::new(Budget::Nodes(1000))));
    let plan = plan_graph(&text.parse().unwrap(), &best).unwrap();
    let json = plan.to_json();

    let before = runs();
    let mut loaded = scheduler("gpu", &chain);
    loaded.load_plan(&chain.graph, &bindings, &json, MatchMemories::ByName).unwrap();
    let job = loaded.alloc(&chain.graph, &bindings).unwrap();
    assert_eq!(runs(), before, "nothing is planned at start");
    assert_eq!(loaded.plan_of(&job).unwrap().peak(), plan.peak());

    let mut planned = scheduler("gpu", &chain);
    planned.reserve(&chain.graph, &bindings).unwrap();
    assert!(runs() > before, "and planning would have been counted");
    for (worker, _) in planned.workers() {
        assert!(loaded.buffer_size(worker).unwrap() <= planned.buffer_size(worker).unwrap());
    }
}

#[test]
fn a_plan_of_other_devices_is_refused_and_nothing_is_reserved() {
    let chain = chain();
    let bindings = Bindings::new();
    let assigned = scheduler("gpu", &chain).assign(&chain.graph, &bindings).unwrap();
    let json = plan_graph(&assigned, &PlanOptions::default()).unwrap().to_json();
    let mut other = scheduler("tpu", &chain);
    let error = other.load_plan(&chain.graph, &bindings, &json, MatchMemories::ByName).unwrap_err();
    assert!(matches!(&error, SchedError::Alloc(AllocError::PlanFile(_))), "{error}");
    let text = ErrorChain(&error).to_string();
    assert!(text.contains("gpu") && text.contains("tpu"), "{text}");
    for (worker, _) in other.workers() {
        assert_eq!(other.buffer_size(worker).unwrap().get(), 0);
    }
    // The same kind under another name.
    other.load_plan(&chain.graph, &bindings, &json, MatchMemories::ByOrder).unwrap();
    // Another graph.
    let smaller = {
        let mut context = Context::new();
        let x = context.input(DataType::F32, &[256]).unwrap();
        let y = context.scale_bias(x, 0.5, 1.0).unwrap();
        Graph::from_outputs(&context, &[y]).unwrap()
    };
    other.load_plan(&smaller, &bindings, &json, MatchMemories::ByOrder).unwrap_err();
}

#[test]
fn a_plan_with_a_node_in_the_memory_of_another_worker_is_refused() {
    use steeve_graph::Reuse;
    let chain = chain();
    let bindings = Bindings::new();
    let assigned = scheduler("gpu", &chain).assign(&chain.graph, &bindings).unwrap();
    let plan = plan_graph(&assigned, &PlanOptions::default().with_reuse(Reuse::Ggml)).unwrap();
    let mut loaded = scheduler("gpu", &chain);
    let answer = loaded.load_plan(&chain.graph, &bindings, &plan.to_json(), MatchMemories::ByName);
    match plan.aliased_across_memories() {
        Some(_) => assert!(matches!(answer, Err(SchedError::ResultInWrongMemory { .. })), "{answer:?}"),
        None => assert!(answer.is_ok(), "{answer:?}"),
    }
}
