//! Random sets of devices, and graphs that are computed on them and on the processor alone.

use std::sync::Arc;

use steeve_cpu::{CpuBackend, CpuDevice};
use steeve_device::{Align, Backend, Bindings, BufferType, Bytes, Device, MemorySpec, Offset, SharedBuffer, Usage};
use steeve_graph::{Graph, TensorId};
use steeve_runtime::sched::{Job, SchedError, Scheduler};

use crate::reference::{Case, allocator, bind, plan_variants, run_in};
use crate::test_devices::{Random, TestDevice, TestSystem, Tracer, happens_before};

/// Some devices of random features, and the processor last. All of them are watched.
pub struct DeviceSet {
    pub tracer: Tracer,
    pub devices: Vec<Arc<dyn Device>>,
    /// The devices without the processor, to inject faults into.
    pub made: Vec<TestDevice>,
}

/// Which features devices may have.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFeatures {
    /// Operations are missing here and there.
    pub missing: bool,
    /// Work is done by threads that lag behind.
    pub threads: bool,
}

impl DeviceSet {
    /// Returns random devices.
    pub fn random(random: &mut Random, count: usize, features: DeviceFeatures) -> Self {
        let (world, tracer) = (TestSystem::new(), Tracer::new());
        let (mut made, mut devices) = (Vec::<TestDevice>::new(), Vec::new());
        for index in 0..count {
            let name = format!("gpu{index}");
            let align = Align::new(16 << random.below(5)).unwrap();
            let mut spec = MemorySpec::new(name.as_str()).with_align(align);
            if random.once_in(4) {
                spec = spec.with_max_size(Bytes(1 << 20));
            }
            if random.once_in(4) {
                spec = spec.with_hold(random.below(4) as u32);
            }
            if random.once_in(4) {
                spec = spec.with_padding(Align::new(64 << random.below(3)).unwrap());
            }
            let mut device = match made.last().filter(|_| random.once_in(4)) {
                Some(other) => other.sharing(&name),
                None => world.device(spec),
            };
            if features.threads {
                device = device.asynchronous(!random.once_in(4)).jitter(random.next(), random.below(30));
            }
            if random.once_in(3) {
                device = device.without_host_copies();
            }
            if random.once_in(3) {
                device = device.without_peer_copies();
            }
            if random.once_in(4) {
                device = device.reading_host();
            }
            let seed = random.next();
            if random.once_in(2) {
                device = device.offloading(move |graph, node| one_in(3, seed, graph, node));
            }
            if features.missing {
                device = device.without(move |graph, node| one_in(4, !seed, graph, node));
            }
            devices.push(tracer.device(device.clone()));
            made.push(device);
        }
        devices.push(tracer.device(CpuDevice::with_threads(1)));
        Self { tracer, devices, made }
    }

    pub fn scheduler(&self) -> Scheduler {
        Scheduler::new(self.devices.clone()).unwrap()
    }

    fn cpu(&self) -> &Arc<dyn BufferType> {
        &self.devices.last().unwrap().buffer_types()[0]
    }

    /// External tensors with their contents, each in the memory of some device.
    pub fn bind(&self, case: &Case, random: &mut Random, spread: bool) -> Bindings {
        let mut bindings = Bindings::new();
        for (id, bytes) in case.contents.iter().filter(|(id, _)| case.graph.tensor(*id).external) {
            let device = random.index(self.devices.len());
            let memory = if spread { &self.devices[device].buffer_types()[0] } else { self.cpu() };
            let usage = if random.once_in(2) { Usage::Weights } else { Usage::Any };
            let size = case.graph.tensor(*id).nbytes();
            let buffer = SharedBuffer::allocate(memory, size, usage).unwrap();
            buffer.write(Offset(0), bytes).unwrap();
            bindings.bind(*id, &buffer, Offset(0), size).unwrap();
        }
        bindings
    }

    /// Checks that no access touched bytes that another stream might still have been using.
    pub fn assert_ordered(&self, what: &str) {
        let trace = self.tracer.trace();
        let violations = happens_before(&trace);
        assert!(
            violations.is_empty(),
            "{what}: {} of {} entries: {}",
            violations.len(),
            trace.entries.len(),
            violations[0]
        );
        self.tracer.clear();
    }
}

/// Decides by the operation, so that a device either supports it or not. Every device supports views.
fn one_in(times: u64, seed: u64, graph: &Graph, node: TensorId) -> bool {
    if graph.tensor(node).op.writes_nothing() {
        return false;
    }
    let title = graph.tensors().op_title(graph.tensor(node).op);
    let mixed = title.bytes().fold(seed | 1, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (mixed >> 33).is_multiple_of(times)
}

/// The tensors that can be read after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    pub outputs: Vec<(TensorId, Vec<u8>)>,
    pub externals: Vec<(TensorId, Vec<u8>)>,
}

/// Returns the outcomes of a graph on the processor alone, run after run with the same inputs.
pub fn alone(case: &Case, runs: usize) -> Vec<RunOutcome> {
    let backend = CpuBackend::new(1);
    let bound = bind(&case.context, &case.contents, &backend.buffer_type());
    let mut allocator = allocator(&plan_variants()[0], &backend);
    let run = |_| {
        let ran = run_in(case, &mut allocator, &bound, &backend).unwrap().expect("nothing is reused");
        RunOutcome { outputs: ran.outputs, externals: ran.externals }
    };
    (0..runs).map(run).collect()
}

/// Writes all that the caller has to write.
pub fn fill(case: &Case, job: &Job) {
    for leaf in case.graph.leafs().iter().filter(|leaf| !case.graph.tensor(**leaf).external) {
        job.write_bytes(*leaf, case.bytes_of(*leaf).expect("every leaf has contents")).unwrap();
    }
}

/// Reads all that can be read.
pub fn outcome(case: &Case, job: &Job) -> RunOutcome {
    let outputs = case.outputs().into_iter().map(|id| (id, job.read_bytes(id).unwrap())).collect();
    let externals = case.graph.leafs().iter().filter(|leaf| case.graph.tensor(**leaf).external);
    let externals = externals.map(|id| (*id, job.allocation().raw_bytes(*id).unwrap())).collect();
    RunOutcome { outputs, externals }
}

/// Pins some nodes to random workers, where they can be.
pub fn pin_some(scheduler: &mut Scheduler, case: &Case, bindings: &Bindings, random: &mut Random) {
    let workers: Vec<_> = scheduler.workers().map(|(id, _)| id).collect();
    for node in case.graph.nodes() {
        if random.once_in(5) {
            scheduler.pin(*node, workers[random.index(workers.len())]).unwrap();
            if matches!(scheduler.schedule(&case.graph, bindings), Err(SchedError::Pinned { .. })) {
                scheduler.unpin(*node);
            }
        }
    }
}
