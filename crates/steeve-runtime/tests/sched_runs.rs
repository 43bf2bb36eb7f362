//! What happens when jobs are computed: copies that are made again, experts, pipelines, watchers, and what fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::ops::ControlFlow;
use std::sync::Arc;
use steeve_testkit::test_devices;

use steeve_cpu::{CpuDevice, CpuKernel};
use steeve_device::{Bindings, BufferType, Bytes, Device, DeviceError, HostMemory, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, CustomOp, DataType, Graph, TensorId};
use steeve_runtime::AllocError;
use steeve_runtime::sched::{ComputedNode, Job, NodeWatcher, SchedError, SchedOptions, Scheduler, WatchedRun, Worker};
use test_devices::{AccessKind, Latency, TestDevice, TestSystem, TraceAction, Tracer, happens_before};

const F32: DataType = DataType::F32;

fn processor() -> Arc<dyn Device> {
    Arc::new(CpuDevice::with_threads(1))
}

fn memory(device: &Arc<dyn Device>) -> &Arc<dyn BufferType> {
    &device.buffer_types()[0]
}

fn bind(bindings: &mut Bindings, context: &Context, tensor: TensorId, device: &Arc<dyn Device>, numbers: &[f32]) {
    let size = context.tensor(tensor).unwrap().nbytes();
    let buffer = SharedBuffer::allocate(memory(device), size, Usage::Weights).unwrap();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    buffer.write(Offset(0), &bytes).unwrap();
    bindings.bind(tensor, &buffer, Offset(0), size).unwrap();
}

/// `y = -(x^2 on the first device)` on the second, and so on: a chain with one node on each device, again and again.
struct ChainGraph {
    graph: Graph,
    x: TensorId,
    y: TensorId,
    nodes: Vec<TensorId>,
}

impl ChainGraph {
    fn new(length: usize) -> Self {
        let mut context = Context::new();
        let x = context.input(F32, &[64]).unwrap();
        let (mut last, mut nodes) = (x, Vec::new());
        for _ in 0..length {
            last = context.scale_bias(last, 0.5, 1.0).unwrap();
            nodes.push(last);
        }
        context.set_output(last).unwrap();
        Self { graph: Graph::from_outputs(&context, &[last]).unwrap(), x, y: last, nodes }
    }

    /// Pins node after node to one worker after the other.
    fn spread(&self, scheduler: &mut Scheduler) {
        let workers: Vec<_> = scheduler.workers().map(|(id, _)| id).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            scheduler.pin(*node, workers[index % workers.len()]).unwrap();
        }
    }

    fn answer(&self, x: f32) -> Vec<f32> {
        vec![self.nodes.iter().fold(x, |x, _| x * 0.5 + 1.0); 64]
    }

    fn compute(&self, scheduler: &mut Scheduler, job: &Job, x: f32) -> Result<Vec<f32>, SchedError> {
        job.write(self.x, &[x; 64])?;
        scheduler.compute(job)?;
        Ok(job.read(self.y)?)
    }
}

#[test]
fn a_copy_is_made_again_after_its_root_was_written() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu").asynchronous(true).jitter(3, 20));
    let cpu = processor();
    let mut context = Context::new();
    let cache = context.external(F32, &[16]).unwrap();
    let x = context.input(F32, &[4]).unwrap();
    // The cache is on the processor, and read on the gpu before, between and after two writes.
    let (mut nodes, mut sums) = (Vec::new(), Vec::new());
    for write in 0..3u64 {
        let sum = context.scale_bias(cache, 2.0, 0.0).unwrap();
        let again = context.scale_bias(cache, 1.0, 0.5).unwrap();
        for it in [sum, again] {
            context.set_output(it).unwrap();
        }
        nodes.extend([sum, again]);
        sums.extend([sum, again]);
        let place = context.view_1d(cache, 4, Bytes(16 * write)).unwrap();
        let written = context.cpy(x, place).unwrap();
        nodes.extend([place, written]);
    }
    let graph = Graph::from_nodes(&context, &nodes).unwrap();
    let mut bindings = Bindings::new();
    bind(&mut bindings, &context, cache, &cpu, &[1.0; 16]);
    let mut scheduler = Scheduler::new([gpu, cpu]).unwrap();
    let gpu = scheduler.worker("gpu").unwrap();
    sums.iter().for_each(|sum| scheduler.pin(*sum, gpu).unwrap());
    let job = scheduler.alloc(&graph, &bindings).unwrap();
    job.write(x, &[7.0f32; 4]).unwrap();
    scheduler.compute(&job).unwrap();
    let mut wanted = [1.0f32; 16];
    for (write, pair) in sums.chunks(2).enumerate() {
        let [double, more] = [wanted.map(|it| it * 2.0), wanted.map(|it| it + 0.5)];
        assert_eq!(job.read::<f32>(pair[0]).unwrap(), double, "after {write} writes");
        assert_eq!(job.read::<f32>(pair[1]).unwrap(), more, "after {write} writes");
        wanted[4 * write..4 * write + 4].fill(7.0);
    }
    // Once for each of the three states of the cache.
    assert_eq!(job.schedule().copies().len(), 3, "\n{}", job.schedule());
}

#[test]
fn of_a_mixture_only_the_experts_that_are_asked_for_are_copied() {
    let (world, tracer) = (TestSystem::new(), Tracer::new());
    let gpu = tracer.device(
        world
            .device("gpu")
            .asynchronous(true)
            .offloading(|graph, node| graph.tensors().op_title(graph.tensor(node).op) == "MUL_MAT_ID"),
    );
    let cpu = tracer.device(CpuDevice::with_threads(1));
    let (width, experts) = (8u64, 16u64);
    let mut context = Context::new();
    let weights = context.external(F32, &[width, width, experts]).unwrap();
    let x = context.input(F32, &[width, 1, 2]).unwrap();
    let ids = context.input(DataType::I32, &[2, 2]).unwrap();
    let y = context.mul_mat_id(weights, x, ids).unwrap();
    context.set_output(y).unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    let mut bindings = Bindings::new();
    // Expert `e` is `e` times the identity.
    let number = |index: u64| {
        let (column, row, expert) = (index % width, index / width % width, index / width / width);
        if column == row { expert as f32 } else { 0.0 }
    };
    bind(&mut bindings, &context, weights, &cpu, &(0..width * width * experts).map(number).collect::<Vec<_>>());
    let mut scheduler = Scheduler::new([gpu, cpu]).unwrap();
    let job = scheduler.alloc(&graph, &bindings).unwrap();
    assert_eq!(job.schedule().worker(y), scheduler.worker("gpu"), "{}", job.schedule().reasons());
    for asked in [[3i32, 4, 4, 11], [0, 15, 0, 15], [5, 5, 5, 5]] {
        tracer.clear();
        job.write(x, &[1.0f32; 16]).unwrap();
        job.write(ids, &asked).unwrap();
        scheduler.compute(&job).unwrap();
        let wanted: Vec<f32> = asked.iter().flat_map(|expert| [*expert as f32; 8]).collect();
        assert_eq!(job.read::<f32>(y).unwrap(), wanted);
        let one = width * width * 4;
        let mut distinct = asked.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let copied = copied_from(&tracer, weights, &bindings);
        assert_eq!(copied, distinct.len() as u64 * one, "{asked:?}");
    }
    // No such expert exists: all are copied, and the kernel reports it.
    job.write(x, &[1.0f32; 16]).unwrap();
    job.write(ids, &[0i32, 16, 0, 0]).unwrap();
    let error = scheduler.compute(&job).unwrap_err();
    assert!(error.to_string().contains("16"), "{error}");
    assert!(happens_before(&tracer.trace()).is_empty());
}

/// Returns the bytes of an external tensor that were copied out.
fn copied_from(tracer: &Tracer, tensor: TensorId, bindings: &Bindings) -> u64 {
    let buffer = tracer.buffer(bindings.get(tensor).unwrap().buffer);
    let trace = tracer.trace();
    let reads =
        trace.entries.iter().filter(|entry| matches!(entry.what, TraceAction::Copy | TraceAction::Touch(_))).flat_map(
            |entry| entry.accesses.iter().filter(|access| access.kind == AccessKind::Read && access.buffer == buffer),
        );
    reads.map(|access| access.range.end - access.range.start).sum()
}

#[test]
fn in_a_pipeline_the_first_device_goes_on_while_the_second_is_busy() {
    for turns in [2, 3] {
        let world = TestSystem::new();
        let devices = ["gpu0", "gpu1"].map(|name| Arc::new(world.device(name).asynchronous(true)) as Arc<dyn Device>);
        let devices = devices.into_iter().chain([processor()]);
        let mut scheduler =
            Scheduler::new(devices).unwrap().with_options(SchedOptions::new().with_pipeline_depth(turns));
        let chain = ChainGraph::new(2);
        let workers: Vec<_> = scheduler.workers().map(|(id, _)| id).collect();
        chain.nodes.iter().zip(&workers).for_each(|(node, worker)| scheduler.pin(*node, *worker).unwrap());
        let job = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
        assert_eq!(job.schedule().splits().len(), 2);
        // The second device waits for us before it does anything at all.
        let latch = world.latch();
        scheduler.workers().nth(1).unwrap().1.backend().unwrap().wait(latch.event()).unwrap();
        for run in 0..turns {
            job.write(chain.x, &[run as f32; 64]).unwrap();
            scheduler.submit(&job).unwrap();
            // All that the first device has to do for this run it can do now.
            scheduler.workers().next().unwrap().1.backend().unwrap().synchronise().unwrap();
        }
        let error = job.read::<f32>(chain.y).unwrap_err();
        assert_eq!(error, AllocError::Running);
        latch.release();
        scheduler.synchronise().unwrap();
        assert_eq!(job.read::<f32>(chain.y).unwrap(), chain.answer((turns - 1) as f32));
    }
}

#[test]
fn the_same_graph_again_is_neither_split_nor_planned_and_allocates_nothing() {
    let world = TestSystem::new();
    let gpu = world.device("gpu");
    let mut scheduler = Scheduler::new([Arc::new(gpu.clone()) as Arc<dyn Device>, processor()]).unwrap();
    let (prompt, token) = (ChainGraph::new(9), ChainGraph::new(4));
    for chain in [&prompt, &token] {
        chain.spread(&mut scheduler);
    }
    let none = Bindings::new();
    scheduler.reserve_all([(&prompt.graph, &none), (&token.graph, &none)]).unwrap();
    let (buffers, bytes) = (gpu.buffers(), gpu.live());
    assert!(bytes > Bytes(0));
    let mut schedules = Vec::new();
    for round in 0..6 {
        for chain in [&prompt, &token] {
            let job = scheduler.alloc(&chain.graph, &none).unwrap();
            assert_eq!(chain.compute(&mut scheduler, &job, 3.0).unwrap(), chain.answer(3.0), "round {round}");
            schedules.push(std::ptr::from_ref(job.schedule()));
        }
    }
    assert!(schedules.chunks(2).all(|pair| pair == &schedules[..2]), "something was split again");
    assert_eq!((gpu.buffers(), gpu.live()), (buffers, bytes));
}

/// Tries all numbers of failing actions, until nothing is left to fail.
fn fail_each(set: impl Fn(&TestDevice, u64), threads: bool, turns: usize) {
    let world = TestSystem::new();
    let made = ["gpu0", "gpu1"].map(|name| world.device(name).asynchronous(threads).jitter(1, 5));
    let chain = ChainGraph::new(7);
    let mut failures = 0;
    for victim in 0..2 {
        for count in 0.. {
            let devices = made.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).chain([processor()]);
            let mut scheduler =
                Scheduler::new(devices).unwrap().with_options(SchedOptions::new().with_pipeline_depth(turns));
            chain.spread(&mut scheduler);
            set(&made[victim], count);
            let run = |scheduler: &mut Scheduler| -> Result<Vec<f32>, SchedError> {
                let job = scheduler.alloc(&chain.graph, &Bindings::new())?;
                chain.compute(scheduler, &job, 2.0)
            };
            match run(&mut scheduler) {
                Ok(numbers) => assert_eq!(numbers, chain.answer(2.0)),
                Err(error) => {
                    failures += 1;
                    let name = format!("gpu{victim}");
                    assert!(error.to_string().contains(&name), "{error} does not name {name}");
                }
            }
            let over = made[victim].faults().is_pending();
            made[victim].faults().clear();
            // Whatever happened, the scheduler can be used.
            assert_eq!(run(&mut scheduler).unwrap(), chain.answer(2.0), "after failure {count} of gpu{victim}");
            if over {
                break;
            }
        }
    }
    assert!(failures >= 4, "only {failures} failed");
}

#[test]
fn a_failing_device_leaves_the_scheduler_usable() {
    for threads in [false, true] {
        for turns in [1, 2] {
            fail_each(|device, count| device.faults().fail_submit_after(count), threads, turns);
            fail_each(|device, count| device.faults().fail_copy_after(count), threads, turns);
        }
    }
}

#[test]
fn a_device_without_memory_leaves_the_scheduler_usable() {
    let world = TestSystem::new();
    let gpu = world.device("gpu");
    let mut scheduler = Scheduler::new([Arc::new(gpu.clone()) as Arc<dyn Device>, processor()]).unwrap();
    let chain = ChainGraph::new(5);
    chain.spread(&mut scheduler);
    gpu.faults().fail_allocation_after(0);
    let error = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap_err();
    assert!(error.to_string().contains("gpu"), "{error}");
    let job = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
    assert_eq!(chain.compute(&mut scheduler, &job, 1.0).unwrap(), chain.answer(1.0));
}

/// Looks at some nodes, and stops at one.
struct RecordingWatcher {
    wanted: Vec<TensorId>,
    stop: Option<TensorId>,
    seen: Vec<(TensorId, f32)>,
}

impl NodeWatcher for RecordingWatcher {
    fn wants(&mut self, _: &Graph, node: TensorId) -> bool {
        self.wanted.contains(&node)
    }

    fn see(&mut self, seen: &ComputedNode<'_>) -> ControlFlow<()> {
        self.seen.push((seen.node, seen.read::<f32>().unwrap()[0]));
        if self.stop == Some(seen.node) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_watcher_sees_what_it_wants_and_may_stop() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu").asynchronous(true).slow_nodes(Latency::Quick));
    let mut scheduler = Scheduler::new([gpu, processor()]).unwrap();
    let chain = ChainGraph::new(6);
    let gpu = scheduler.worker("gpu").unwrap();
    // Two on the gpu, the others on the processor.
    chain.nodes[2..4].iter().for_each(|node| scheduler.pin(*node, gpu).unwrap());
    let cpu = scheduler.worker("CPU").unwrap();
    [0, 1, 4, 5].iter().for_each(|index| scheduler.pin(chain.nodes[*index], cpu).unwrap());
    let job = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
    let value = |index: usize| (0..=index).fold(4.0f32, |x, _| x * 0.5 + 1.0);
    let picked = [0, 2, 3, 5];

    job.write(chain.x, &[4.0f32; 64]).unwrap();
    let wanted: Vec<TensorId> = picked.iter().map(|index| chain.nodes[*index]).collect();
    let mut watch = RecordingWatcher { wanted: wanted.clone(), stop: None, seen: Vec::new() };
    assert_eq!(scheduler.compute_watched(&job, &mut watch).unwrap(), WatchedRun::Finished);
    assert_eq!(watch.seen, picked.map(|index| (chain.nodes[index], value(index))));
    assert_eq!(job.read::<f32>(chain.y).unwrap(), chain.answer(4.0));

    job.write(chain.x, &[4.0f32; 64]).unwrap();
    let mut watch = RecordingWatcher { wanted, stop: Some(chain.nodes[2]), seen: Vec::new() };
    assert_eq!(scheduler.compute_watched(&job, &mut watch).unwrap(), WatchedRun::Stopped(chain.nodes[2]));
    assert_eq!(watch.seen.len(), 2);
    assert!(job.read::<f32>(chain.y).is_err(), "the results of a run that was stopped are lost");
    assert_eq!(chain.compute(&mut scheduler, &job, 4.0).unwrap(), chain.answer(4.0));
}

#[test]
fn jobs_wait_for_each_other_and_mistakes_are_errors() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu").asynchronous(true).jitter(5, 50));
    let mut scheduler = Scheduler::new([Arc::clone(&gpu), processor()]).unwrap();
    let (one, other) = (ChainGraph::new(4), ChainGraph::new(7));
    for chain in [&one, &other] {
        chain.spread(&mut scheduler);
    }
    let job = scheduler.alloc(&one.graph, &Bindings::new()).unwrap();
    let error = scheduler.submit(&job).unwrap_err();
    assert!(matches!(error, SchedError::Alloc(AllocError::NotWritten { .. })), "{error}");
    job.write(one.x, &[1.0f32; 64]).unwrap();
    scheduler.submit(&job).unwrap();
    assert_eq!(job.write(one.x, &[1.0f32; 64]), Err(AllocError::Running));
    // The other graph may need the memory, so this waits.
    let next = scheduler.alloc(&other.graph, &Bindings::new()).unwrap();
    next.write(other.x, &[5.0f32; 64]).unwrap();
    scheduler.submit(&next).unwrap();
    scheduler.synchronise().unwrap();
    assert_eq!(next.read::<f32>(other.y).unwrap(), other.answer(5.0));
    let error = job.read::<f32>(one.y).unwrap_err();
    assert_eq!(error, AllocError::Stale);

    scheduler.reset().unwrap();
    assert_eq!(scheduler.submit(&next).unwrap_err(), SchedError::UnknownJob);
    let mut planner = Scheduler::for_planning([gpu, processor()]).unwrap();
    let job = planner.alloc(&one.graph, &Bindings::new()).unwrap();
    job.write(one.x, &[1.0f32; 64]).unwrap();
    assert!(matches!(planner.submit(&job), Err(SchedError::PlanningOnly { .. })));
    assert_eq!(Scheduler::new([]).unwrap_err(), SchedError::NoWorker);
}

#[test]
fn what_no_device_can_run_is_an_error_that_names_it() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu").without(|_, _| true));
    let mut context = Context::new();
    let x = context.input(F32, &[4]).unwrap();
    let op = context.op("FROBNICATE", None).unwrap();
    let layout = context.tensor(x).unwrap().layout;
    let tensor = steeve_graph::Tensor { op, ..steeve_graph::Tensor::new(layout) };
    let y = context.add_tensor(tensor, &[Some(x)], &[]).unwrap();
    context.set_name(y, "strange").unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    let mut scheduler = Scheduler::new([gpu, processor()]).unwrap();
    let error = scheduler.alloc(&graph, &Bindings::new()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("tensor 1 (strange), frobnicate: no device can run it: gpu: "), "{text}");
    assert!(text.contains("; CPU: "), "{text}");
    assert!(!matches!(error, SchedError::Device(DeviceError::Failed { .. })));
}

#[test]
fn an_operation_of_the_callers_runs_where_it_has_a_kernel_and_the_rest_where_it_would() {
    let halve = CustomOp::elementwise("HALVE");
    let kernel = CpuKernel::new(&halve, |call| {
        for row in call.rows() {
            let from = call.source(0)?.row::<f32>(row)?;
            call.result().row::<f32>(row)?.iter().enumerate().for_each(|(i, to)| to.set(from.get(i) / 2.0));
        }
        Ok(())
    });
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu"));
    let cpu: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1).with_kernel(kernel));
    let mut context = Context::new();
    let (x, w) = (context.input(F32, &[4]).unwrap(), context.external(F32, &[4]).unwrap());
    let y = context.mul(x, w).unwrap();
    let z = context.custom(&halve, &[y], &[]).unwrap();
    let out = context.mul(z, w).unwrap();
    context.set_output(out).unwrap();
    let mut bindings = Bindings::new();
    bindings.set_usage(Usage::Weights);
    bind(&mut bindings, &context, w, &gpu, &[4.0; 4]);
    let graph = Graph::from_outputs(&context, &[out]).unwrap();
    let mut scheduler = Scheduler::new([gpu, cpu]).unwrap();
    let job = scheduler.alloc(&graph, &bindings).unwrap();
    job.write(x, &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    scheduler.compute(&job).unwrap();
    assert_eq!(job.read::<f32>(out).unwrap(), [8.0, 16.0, 24.0, 32.0]);
    let table = job.schedule().to_string();
    assert_eq!(job.schedule().splits().len(), 3, "{table}");
}

/// Creates a graph with a cache on the gpu, written there from an input.
fn cached(gpu: &Arc<dyn Device>) -> (Graph, Bindings, TensorId, TensorId) {
    let mut context = Context::new();
    let cache = context.external(F32, &[16]).unwrap();
    let x = context.input(F32, &[16]).unwrap();
    let y = context.scale_bias(x, 2.0, 0.0).unwrap();
    let written = context.cpy(y, cache).unwrap();
    let mut bindings = Bindings::new();
    bind(&mut bindings, &context, cache, gpu, &[0.0; 16]);
    (Graph::from_nodes(&context, &[y, written]).unwrap(), bindings, cache, x)
}

#[test]
fn what_a_run_in_flight_uses_can_be_neither_read_nor_written() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu").asynchronous(true));
    let (graph, bindings, cache, x) = cached(&gpu);
    let mut scheduler = Scheduler::new([gpu, processor()]).unwrap();
    let job = scheduler.alloc(&graph, &bindings).unwrap();
    job.write(x, &[3.0f32; 16]).unwrap();
    let latch = world.latch();
    scheduler.workers().next().unwrap().1.backend().unwrap().wait(latch.event()).unwrap();
    scheduler.submit(&job).unwrap();
    assert_eq!(job.read::<f32>(cache), Err(AllocError::Running));
    assert_eq!(job.write(cache, &[1.0f32; 16]), Err(AllocError::Running));
    latch.release();
    scheduler.synchronise().unwrap();
    assert_eq!(job.read::<f32>(cache).unwrap(), [6.0; 16]);
}

#[test]
fn other_options_hold_for_graphs_that_were_planned_before() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu"));
    let mut scheduler = Scheduler::new([gpu, processor()]).unwrap();
    let chain = ChainGraph::new(6);
    chain.spread(&mut scheduler);
    scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
    let gpu = scheduler.worker("gpu").unwrap();
    scheduler.set_options(SchedOptions::new().with_budget(gpu, Bytes(8))).unwrap();
    let error = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap_err();
    assert!(matches!(&error, SchedError::OverBudget { worker, .. } if worker == "gpu"), "{error}");
    // Without a budget again, and with another plan.
    let apart = steeve_graph::PlanOptions::default().with_reuse(steeve_graph::Reuse::None);
    scheduler.set_options(SchedOptions::new().with_plan(apart)).unwrap();
    let required = scheduler.required(&chain.graph, &Bindings::new()).unwrap();
    scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
    assert_eq!(scheduler.buffer_size(gpu).unwrap(), required[0]);
    scheduler.release().unwrap();
    assert_eq!(scheduler.buffer_size(gpu).unwrap(), Bytes(0));
}

#[test]
fn pins_leave_jobs_that_exist_as_they_are() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu").asynchronous(true).jitter(2, 30));
    let mut scheduler = Scheduler::new([gpu, processor()]).unwrap();
    let chain = ChainGraph::new(4);
    chain.spread(&mut scheduler);
    let job = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
    job.write(chain.x, &[2.0f32; 64]).unwrap();
    scheduler.submit(&job).unwrap();
    let (gpu, node) = (scheduler.worker("gpu").unwrap(), chain.nodes[1]);
    scheduler.pin(node, gpu).unwrap();
    scheduler.synchronise().unwrap();
    assert_eq!(job.read::<f32>(chain.y).unwrap(), chain.answer(2.0));
    assert_eq!(chain.compute(&mut scheduler, &job, 3.0).unwrap(), chain.answer(3.0));
    let other = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
    assert_eq!((job.schedule().worker(node) == Some(gpu), other.schedule().worker(node)), (false, Some(gpu)));
    assert_eq!(chain.compute(&mut scheduler, &other, 4.0).unwrap(), chain.answer(4.0));
}

#[test]
fn external_tensors_on_the_same_bytes_are_refused_if_one_is_written() {
    let world = TestSystem::new();
    let gpu: Arc<dyn Device> = Arc::new(world.device("gpu"));
    let mut context = Context::new();
    let (one, other) = (context.external(F32, &[16]).unwrap(), context.external(F32, &[8]).unwrap());
    let x = context.input(F32, &[16]).unwrap();
    let written = context.cpy(x, one).unwrap();
    let read = context.sqr(other).unwrap();
    let buffer = SharedBuffer::allocate(memory(&gpu), Bytes(96), Usage::Any).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(one, &buffer, Offset(0), Bytes(64)).unwrap();
    bindings.bind(other, &buffer, Offset(32), Bytes(32)).unwrap();
    let mut scheduler = Scheduler::new([gpu, processor()]).unwrap();
    let graph = Graph::from_nodes(&context, &[written, read]).unwrap();
    let error = scheduler.alloc(&graph, &bindings).unwrap_err();
    assert!(matches!(error, SchedError::Overlap { .. }), "{error}");
    // Side by side, or if both are only read, there is nothing to be said.
    scheduler.alloc(&Graph::from_nodes(&context, &[read]).unwrap(), &bindings).unwrap();
    bindings.bind(other, &buffer, Offset(64), Bytes(32)).unwrap();
    scheduler.alloc(&graph, &bindings).unwrap();
}

#[test]
fn graphs_that_are_reserved_together_are_remembered_together() {
    let mut scheduler = Scheduler::new([processor()]).unwrap();
    let chains: Vec<ChainGraph> = (1..40).map(ChainGraph::new).collect();
    let none = Bindings::new();
    scheduler.reserve_all(chains.iter().map(|chain| (&chain.graph, &none))).unwrap();
    let mut rounds = (0..2).map(|_| {
        let schedules =
            chains.iter().map(|chain| std::ptr::from_ref(scheduler.alloc(&chain.graph, &none).unwrap().schedule()));
        schedules.collect::<Vec<_>>()
    });
    assert_eq!(rounds.next(), rounds.next());
}

/// A worker on the host keeps results where the first device that has such memory copies to and from by itself.
#[test]
fn results_on_the_host_stand_where_a_device_copies_them_by_itself() {
    let world = TestSystem::new();
    let pinned: Arc<dyn BufferType> = Arc::new(HostMemory::named("pinned"));
    let plain = || Arc::new(world.device("plain")) as Arc<dyn Device>;
    let gpu = || Arc::new(world.device("gpu").asynchronous(true).with_host_memory(&pinned)) as Arc<dyn Device>;
    let mut scheduler = Scheduler::new([plain(), gpu(), processor()]).unwrap();
    let planner = Scheduler::for_planning([plain(), gpu(), processor()]).unwrap();
    for scheduler in [&scheduler, &planner] {
        let names: Vec<_> = scheduler.workers().map(|(_, worker)| worker.memory().name().to_owned()).collect();
        assert_eq!(names, ["plain", "gpu", "pinned"]);
    }
    let chain = ChainGraph::new(9);
    chain.spread(&mut scheduler);
    let job = scheduler.alloc(&chain.graph, &Bindings::new()).unwrap();
    job.write(chain.x, &[2.0f32; 64]).unwrap();
    scheduler.compute(&job).unwrap();
    assert_eq!(job.read::<f32>(chain.y).unwrap(), [2.0; 64]);
    // The caller that makes the workers decides.
    let workers = [gpu(), processor()].map(|device| Worker::new(&device).unwrap());
    let scheduler = Scheduler::with_workers(workers).unwrap();
    assert!(scheduler.workers().all(|(_, worker)| worker.memory().name() != "pinned"));
}
