//! What it costs to schedule and allocate a graph on three devices, beside a graph allocator with one memory in the same run;
//! and how far the scheduler's splits and copies are from the fewest that any assignment has.
//!
//! `cargo bench -p steeve-runtime --bench sched`

#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::sync::Arc;

use steeve_cpu::CpuDevice;
use steeve_device::{Bindings, BufferType, Bytes, Device, NullDevice, Offset, SharedBuffer, Usage};
use steeve_graph::fuzz::Choices;
use steeve_graph::{Context, DataType, Graph, GraphError, TensorId};
use steeve_runtime::GraphAllocator;
use steeve_runtime::sched::{Schedule, Scheduler, TensorLocations, WorkerId};
use steeve_testkit::timing::median_time;
use steeve_testkit::transformer::Transformer;

fn main() {
    times();
    shared_input();
    overhead();
    distances();
}

/// Measures a graph with a boundary at every third node, and one input that half of all nodes read: the worst case for
/// counting readers.
fn shared_input() {
    let devices = ["gpu0", "gpu1", "cpu"].map(device);
    let (mut context, mut homes) = (Context::new(), TensorLocations::new());
    let z = context.input(DataType::F32, &[64]).expect("a tensor");
    let mut last = context.input(DataType::F32, &[64]).expect("a tensor");
    for layer in 0..1000 {
        let weight = context.external(DataType::F32, &[64, 64]).expect("a tensor");
        homes.put(weight, &devices[layer % 3].buffer_types()[0], Usage::Weights);
        last = context.mul_mat(weight, last).expect("a node");
        last = context.add(last, z).expect("a node");
        last = context.add(last, z).expect("a node");
    }
    let graph = Graph::from_outputs(&context, &[last]).expect("a graph");
    let memory = &device("one").buffer_types()[0].clone();
    let one = median_time(21, || GraphAllocator::new(memory), |it| it.reserve(&graph).expect("memory"));
    let scheduler = || Scheduler::for_planning(devices.clone()).expect("devices");
    let three = median_time(21, scheduler, |it| it.reserve(&graph, &homes).expect("memory"));
    let [one_us, three_us] = [one, three].map(|seconds| seconds * 1e6);
    println!("changed, 1000 borders          3000    1000 {one_us:14.1} {three_us:15.1} {:7.2}", three / one);
}

/// Measures what a run costs beyond the nodes themselves, on the processor alone.
fn overhead() {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[16]).expect("a tensor");
    context.keep(x).expect("it is there");
    let last = (0..3000).fold(x, |last, _| context.scale(last, 1.0).expect("a node"));
    let graph = Graph::from_outputs(&context, &[last]).expect("a graph");
    let processor: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1));
    let backend = processor.backend().expect("a backend");
    let mut allocator = GraphAllocator::new(&processor.buffer_types()[0]);
    let allocation = allocator.alloc(&graph, &Bindings::new()).expect("memory");
    allocation.write(x, &[1.0f32; 16]).expect("an input");
    let mut ready = allocation.prepare(&*backend).expect("kernels");
    let one = median_time(101, || (), |()| ready.run().expect("a run"));
    let mut scheduler = Scheduler::new([processor]).expect("a device");
    let job = scheduler.alloc(&graph, &Bindings::new()).expect("memory");
    job.write(x, &[1.0f32; 16]).expect("an input");
    scheduler.compute(&job).expect("a run");
    let three = median_time(101, || (), |()| scheduler.compute(&job).expect("a run"));
    let [one_us, three_us] = [one, three].map(|seconds| seconds * 1e6);
    println!("\na run of 3000 small nodes: {one_us:.1} by itself, {three_us:.1} scheduled, {:.2} times", three / one);
}

fn times() {
    println!("microseconds                 nodes  splits     one memory   three devices   ratio");
    for nodes in [1000, 3000, 10_000] {
        let devices = ["gpu0", "gpu1", "cpu"].map(device);
        let mut model = Transformer::with_nodes(nodes).expect("a model");
        let (graph, _) = model.graph(8).expect("a graph");
        let memory = Arc::clone(&device("one").buffer_types()[0]);
        // The layers of the first half on the first device, the others on the second, the vocabulary on the processor.
        let externals: Vec<TensorId> =
            graph.tensors().pairs().filter(|(_, tensor)| tensor.external).map(|(id, _)| id).collect();
        let half = externals.len() / 2;
        let place = |index: usize| if index == 0 { 2 } else { usize::from(index > half) };
        let spread = bind(&graph, &externals, |index| &devices[place(index)].buffer_types()[0]);
        let together = bind(&graph, &externals, |_| &memory);

        let scheduler = || Scheduler::for_planning(devices.clone()).expect("devices");
        let mut known = scheduler();
        let splits = known.alloc(&graph, &spread).expect("memory").schedule().splits().len();
        let mut allocator = GraphAllocator::new(&memory);
        allocator.alloc(&graph, &together).expect("memory");

        let line = |what: &str, one: f64, three: f64| {
            let [one_us, three_us] = [one, three].map(|seconds| seconds * 1e6);
            println!("{what:27} {nodes:6} {splits:7} {one_us:14.1} {three_us:15.1} {:7.2}", three / one);
        };
        let mut build = || model.graph(8).expect("a graph").0;
        let one = median_time(201, &mut build, |graph| allocator.alloc(&*graph, &together).expect("it is reserved"));
        let three = median_time(201, &mut build, |graph| known.alloc(graph, &spread).expect("it is known"));
        line("unchanged, built again", one, three);
        let one = median_time(201, || (), |()| allocator.alloc(&graph, &together).expect("it is reserved"));
        let three = median_time(201, || (), |()| known.alloc(&graph, &spread).expect("it is known"));
        line("unchanged, the same", one, three);
        let one = median_time(21, || GraphAllocator::new(&memory), |it| it.alloc(&graph, &together).expect("memory"));
        let three = median_time(21, scheduler, |it| it.alloc(&graph, &spread).expect("memory"));
        line("changed: planned anew", one, three);
        // As if only plans were cached: what ggml does for each graph.
        let one = median_time(101, &mut build, |graph| allocator.alloc(&*graph, &together).expect("it is reserved"));
        let again = |graph: &mut Graph| {
            known.reset().expect("nothing is in flight");
            known.alloc(graph, &spread).expect("it is planned")
        };
        let three = median_time(101, &mut build, again);
        line("unchanged, split each time", one, three);
    }
}

/// Measures the distance from the fewest bytes and the fewest splits, over all assignments of all nodes of small
/// graphs.
fn distances() {
    let (mut bytes, mut splits) = (Distances::default(), Distances::default());
    let graphs = 200;
    for seed in 0..graphs {
        let devices = ["gpu0", "gpu1", "cpu"].map(device);
        let (graph, homes) = small(seed, &devices).expect("a graph");
        let mut scheduler = Scheduler::for_planning(devices).expect("devices");
        let ours = scheduler.schedule(&graph, &homes).expect("a schedule");
        let best = search(&mut scheduler, &graph, &homes);
        bytes.add(ours.copied().0, best.0);
        splits.add(ours.splits().len() as u64, best.1);
    }
    println!("\n{graphs} graphs of up to 7 nodes on 3 devices, against all assignments");
    bytes.line("copied bytes");
    splits.line("splits");
}

/// Returns the fewest copied bytes and the fewest splits, each by itself.
fn search(scheduler: &mut Scheduler, graph: &Graph, homes: &TensorLocations) -> (u64, u64) {
    let workers: Vec<WorkerId> = scheduler.workers().map(|(id, _)| id).collect();
    let nodes = graph.nodes();
    let mut best = (u64::MAX, u64::MAX);
    for mut number in 0..workers.len().pow(nodes.len() as u32) {
        for node in nodes {
            scheduler.pin(*node, workers[number % workers.len()]).expect("it is one of them");
            number /= workers.len();
        }
        let Ok(schedule) = scheduler.schedule(graph, homes) else { continue };
        let schedule: &Schedule = &schedule;
        best = (best.0.min(schedule.copied().0), best.1.min(schedule.splits().len() as u64));
    }
    best
}

#[derive(Default)]
struct Distances {
    equal: usize,
    ratios: Vec<f64>,
    ours: u64,
    best: u64,
}

impl Distances {
    fn add(&mut self, ours: u64, best: u64) {
        self.equal += usize::from(ours == best);
        // Nothing to copy at all is no ratio.
        if best > 0 {
            self.ratios.push(ours as f64 / best as f64);
        }
        self.ours += ours;
        self.best += best;
    }

    fn line(mut self, what: &str) {
        self.ratios.sort_by(f64::total_cmp);
        let at = |part: f64| self.ratios[((self.ratios.len() - 1) as f64 * part) as usize];
        let total = self.ours as f64 / self.best as f64;
        let (median, most) = (at(0.5), at(1.0));
        println!("{what:14} the fewest in {}; median {median:.2}, at most {most:.2}, in total {total:.2}", self.equal);
    }
}

/// Creates a graph of a few products with weights on random devices, and operations between them.
fn small(seed: u64, devices: &[Arc<dyn Device>]) -> Result<(Graph, TensorLocations), GraphError> {
    const WIDTH: u64 = 32;
    let mut choices = Choices::from_seed(seed);
    let (mut context, mut homes) = (Context::new(), TensorLocations::new());
    let mut values = vec![context.input(DataType::F32, &[WIDTH, 4])?, context.input(DataType::F32, &[WIDTH, 4])?];
    for _ in 0..3 + choices.below(5) {
        let a = choices.pick(&values).unwrap_or(values[0]);
        let b = choices.pick(&values).unwrap_or(values[0]);
        let value = match choices.below(4) {
            0 | 1 => {
                let weight = context.external(DataType::F32, &[WIDTH, WIDTH])?;
                homes.put(weight, &devices[choices.below(devices.len())].buffer_types()[0], Usage::Weights);
                context.mul_mat(weight, a)?
            }
            2 => context.add(a, b)?,
            _ => context.silu(a)?,
        };
        values.push(value);
    }
    let outputs: Vec<TensorId> = values[2..].to_vec();
    Ok((Graph::from_nodes(&context, &outputs)?, homes))
}

fn device(name: &str) -> Arc<dyn Device> {
    Arc::new(NullDevice::new(name).as_if_it_computed())
}

/// Binds each external tensor to the memory that `memory` returns, one after another.
fn bind<'a>(graph: &Graph, externals: &[TensorId], memory: impl Fn(usize) -> &'a Arc<dyn BufferType>) -> Bindings {
    let all: u64 = externals.iter().map(|id| graph.tensor(*id).nbytes().0).sum();
    let (mut buffers, mut bindings) = (Vec::<SharedBuffer>::new(), Bindings::new());
    let mut end = 0;
    for (index, &id) in externals.iter().enumerate() {
        let (memory, size) = (memory(index), graph.tensor(id).nbytes());
        let known = buffers.iter().position(|buffer| Arc::ptr_eq(buffer.memory(), memory));
        let buffer = known.unwrap_or_else(|| {
            buffers.push(SharedBuffer::allocate(memory, Bytes(all), Usage::Weights).expect("null memory"));
            buffers.len() - 1
        });
        bindings.bind(id, &buffers[buffer], Offset(end), size).expect("there is room for all");
        end += size.0;
    }
    bindings
}
