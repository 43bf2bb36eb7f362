//! Whichever allocation fails, it is an error, nothing leaks, and the allocator works afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod placed;

use std::sync::{Arc, Mutex};

use graphs::{assigned, context, memory, spec, tensor};
use placed::Laws;
use steeve_device::{Align, Bindings, Buffer, BufferType, Bytes, DeviceError, DiscreteDevice, Ledger, MemorySpec};
use steeve_graph::{AssignedGraph, ErrorChain, GraphPlan, PlanOptions, plan_graph};
use steeve_runtime::{AllocError, AllocOptions, Allocation, GraphAllocator, Replan, RunGuard, allocate_context};

/// Two devices, one with small buffers, that share what they are told to fail at.
struct World {
    devices: [DiscreteDevice; 2],
    memories: Vec<Arc<dyn BufferType>>,
    allocator: GraphAllocator,
    weights: Vec<Bindings>,
}

type Step = (&'static str, fn(&mut World) -> Result<(), AllocError>);

/// Several graphs, growths in one memory and in both, and weights.
const STEPS: [Step; 12] = [
    ("weights", |world| world.weights()),
    ("reserve", |world| world.reserve(&wide(16))),
    ("alloc", |world| world.alloc(&wide(16))),
    ("growth by itself", |world| world.alloc(&wide(40))),
    ("another graph that fits", |world| world.reserve(&deep(32))),
    ("growth of all", |world| world.reserve(&wide(96))),
    ("more chunks", |world| world.alloc(&wide(200))),
    ("a plan from elsewhere", |world| world.reserve_planned(&deep(300))),
    ("alloc of that", |world| world.alloc(&deep(300))),
    ("several at once", |world| world.reserve_all()),
    ("more weights", |world| world.weights()),
    ("the first one again", |world| world.alloc(&wide(16))),
];

/// Many tensors at once, in both memories.
fn wide(size: u64) -> AssignedGraph {
    assigned(&format!(
        "memory gpu align=8; memory small align=8 max=256
         a = input i8[{size}] @gpu; b = input i8[{size}] @small; c = input i8[{size}] @small; d = input i8[{size}] @small
         e = ?JOIN i8[{size}] a b c d @gpu; y = ?F i8[{size}] e @small !output"
    ))
}

/// A chain, in both memories.
fn deep(size: u64) -> AssignedGraph {
    let small = size.min(250);
    assigned(&format!(
        "memory gpu align=8; memory small align=8 max=256
         a = input i8[{size}] @gpu; b = ?F i8[{size}] a @gpu; c = ?F i8[{small}] b @small; d = ?F i8[{small}] c @small
         e = ?F i8[{size}] d @gpu; y = ?F i8[{small}] e @small !output"
    ))
}

impl World {
    fn new() -> Self {
        let small = MemorySpec::new("small").with_align(Align::new(8).unwrap()).with_max_size(Bytes(256));
        let devices = [DiscreteDevice::new(spec(8)), DiscreteDevice::new(small)];
        let memories: Vec<Arc<dyn BufferType>> = devices.iter().map(|device| memory(device)).collect();
        let allocator = GraphAllocator::with_buffers(memories.clone()).unwrap();
        let allocator = allocator.with_options(AllocOptions::new().with_replan(Replan::Always));
        Self { devices, memories, allocator, weights: Vec::new() }
    }

    fn ledgers(&self) -> [&Ledger; 2] {
        [self.devices[0].ledger(), self.devices[1].ledger()]
    }

    fn weights(&mut self) -> Result<(), AllocError> {
        let mut context = context("u = leaf i8[200]; v = leaf i8[100]; w = leaf i8[256]");
        let bindings = allocate_context(&mut context, &self.memories[1])?;
        self.weights.push(bindings);
        Ok(())
    }

    fn reserve(&mut self, graph: &AssignedGraph) -> Result<(), AllocError> {
        self.allocator.reserve((graph.graph(), graph.assignment()))
    }

    fn reserve_all(&mut self) -> Result<(), AllocError> {
        let graphs = [wide(300).into_graph(), deep(400).into_graph()];
        self.allocator.reserve_all(&graphs)
    }

    fn reserve_planned(&mut self, graph: &AssignedGraph) -> Result<(), AllocError> {
        let plan: GraphPlan = plan_graph(graph, &PlanOptions::default()).unwrap();
        self.allocator.reserve_planned(plan)
    }

    fn alloc(&mut self, graph: &AssignedGraph) -> Result<(), AllocError> {
        let allocation = self.allocator.alloc(graph.graph(), &Bindings::new())?;
        self.judge(graph, &allocation);
        Ok(())
    }

    /// The allocation keeps the laws, and its memory works.
    fn judge(&self, graph: &AssignedGraph, allocation: &Allocation) {
        let plan = self.allocator.plan_of(graph.graph()).unwrap();
        let laws = Laws {
            memories: &self.memories,
            assignment: plan.assigned().assignment(),
            options: plan.options(),
            bindings: &Bindings::new(),
        };
        laws.check(allocation).unwrap();
        for leaf in graph.graph().leafs() {
            let size = graph.graph().tensor(*leaf).nbytes().0;
            allocation.write_bytes(*leaf, &vec![1; size as usize]).unwrap();
        }
        allocation.begin().unwrap().finish();
        allocation.read_bytes(tensor(graph.graph(), "y")).unwrap();
    }

    /// What the devices have given out is what we know of.
    fn check_ledgers(&self) {
        for index in 0..2 {
            let buffers = self.weights.iter().flat_map(Bindings::buffers);
            let own = buffers.filter(|buffer| Arc::ptr_eq(buffer.memory(), &self.memories[index]));
            let weights: u64 = own.map(|buffer| buffer.size().0).sum();
            let compute = self.allocator.buffer_size(index).unwrap().0;
            assert_eq!(self.ledgers()[index].live(), Bytes(weights + compute), "memory {index}");
        }
    }
}

/// How often each device is asked for memory if nothing fails.
fn asked_without_failures() -> [u64; 2] {
    let mut world = World::new();
    for (name, step) in STEPS {
        step(&mut world).unwrap_or_else(|error| panic!("{name}: {error}"));
        world.check_ledgers();
    }
    world.ledgers().map(Ledger::asked)
}

#[test]
fn a_failure_at_any_point_is_an_error_without_a_leak_and_the_allocator_works_afterwards() {
    let asked = asked_without_failures();
    assert!(asked[0] >= 5 && asked[1] >= 10, "the scenario asks often enough: {asked:?}");
    let mut all = 0;
    for (failing, asked) in asked.into_iter().enumerate() {
        for point in 0..asked {
            let mut world = World::new();
            world.devices[failing].faults().fail_after(point);
            let mut failures = 0;
            for (name, step) in STEPS {
                if let Err(error) = step(&mut world) {
                    failures += 1;
                    let AllocError::Buffer { error: told, .. } = &error else { panic!("{name}: {error}") };
                    assert!(matches!(**told, DeviceError::Failed { .. }), "{name}: {error}");
                    world.check_ledgers();
                    // What is allocated is what was before, or nothing where it should have grown.
                    step(&mut world).unwrap_or_else(|error| panic!("{name} again: {error}"));
                }
                world.check_ledgers();
            }
            // None where memory that was given back elsewhere has made a second attempt.
            assert!(failures <= 1, "device {failing}, allocation {point}");
            all += failures;
            let ledgers = world.ledgers().map(Clone::clone);
            drop(world);
            assert!(ledgers.iter().all(|ledger| ledger.live() == Bytes(0) && ledger.buffers() == 0));
        }
    }
    assert!(all >= 10, "{all} failures");
}

#[test]
fn after_a_failure_the_graphs_from_before_run_without_a_new_plan() {
    let asked = asked_without_failures();
    for (failing, asked) in asked.into_iter().enumerate() {
        for point in 0..asked {
            let mut world = World::new();
            world.devices[failing].faults().fail_after(point);
            let mut done: Vec<AssignedGraph> = Vec::new();
            for graph in [wide(16), deep(16), wide(40), wide(96), deep(200), wide(200), deep(250), wide(256)] {
                match world.reserve(&graph).and_then(|()| world.alloc(&graph)) {
                    Ok(()) => done.push(graph),
                    Err(_) => {
                        // Not even planning is needed for what has been reserved before.
                        world.allocator = std::mem::replace(&mut world.allocator, GraphAllocator::new(&graphs::host()))
                            .with_options(AllocOptions::new().with_replan(Replan::Never));
                        for graph in &done {
                            world.alloc(graph).unwrap_or_else(|error| panic!("{error}"));
                            world.check_ledgers();
                        }
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_device_that_is_full_says_so_and_is_usable_when_it_no_longer_is() {
    let device = DiscreteDevice::new(spec(8).with_capacity(Bytes(1000)));
    let mut allocator = GraphAllocator::new(&memory(&device));
    let graph = |size: u64| graphs::graph(&format!("x = input i8[{size}]; y = ?F i8[{size}] x !output"));
    allocator.reserve(&graph(400)).unwrap();
    let error = allocator.alloc(&graph(600), &Bindings::new()).unwrap_err();
    assert_eq!(
        ErrorChain(&error).to_string(),
        "chunk 0 of gpu: allocation failed: requested 1200 bytes: gpu: out of memory: requested 1200 bytes, 1000 bytes available"
    );
    assert_eq!(device.ledger().live(), Bytes(0));
    let mut weights = context("w = leaf i8[300]");
    let held = allocate_context(&mut weights, &memory(&device)).unwrap();
    // Somebody else has taken the memory meanwhile.
    assert!(matches!(allocator.alloc(&graph(400), &Bindings::new()), Err(AllocError::Buffer { .. })));
    drop(held);
    allocator.alloc(&graph(400), &Bindings::new()).unwrap();
    assert_eq!((device.ledger().live(), device.ledger().peak()), (Bytes(800), Bytes(800)));
}

/// Memory that fails once, when a run has begun while it was asked for more.
#[derive(Debug)]
struct Interrupted {
    memory: Arc<dyn BufferType>,
    allocation: Mutex<Option<Allocation>>,
    run: Mutex<Option<RunGuard>>,
}

impl BufferType for Interrupted {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn align(&self) -> Align {
        self.memory.align()
    }

    fn max_size(&self) -> Option<Bytes> {
        self.memory.max_size()
    }

    fn is_host(&self) -> bool {
        self.memory.is_host()
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let Some(allocation) = self.allocation.lock().unwrap().take() else { return self.memory.allocate(size) };
        *self.run.lock().unwrap() = Some(allocation.begin().unwrap());
        Err(DeviceError::OutOfMemory { memory: self.name().into(), asked: size, left: None })
    }
}

#[test]
fn a_run_that_begins_while_memory_fails_keeps_its_buffers_and_the_plans_stay_right() {
    let world = World::new();
    let [gpu, small] = &world.memories[..] else { panic!("two memories") };
    let (allocation, run) = (Mutex::default(), Mutex::default());
    let small = Arc::new(Interrupted { memory: Arc::clone(small), allocation, run });
    let mut allocator = GraphAllocator::with_buffers([Arc::clone(gpu), Arc::clone(&small) as Arc<_>]).unwrap();
    let first = assigned(
        "memory gpu align=8; memory small align=8 max=256
         a = input i8[1000] @gpu; b = input i8[200] @small; y = ?JOIN i8[8] a b @gpu !output",
    );
    // Another chunk in one memory, and less in the other.
    let second = assigned(
        "memory gpu align=8; memory small align=8 max=256
         a = input i8[200] @small; b = input i8[200] @small; c = ?JOIN i8[8] a b @gpu; y = ?F i8[8] c @gpu !output",
    );
    allocator.reserve((first.graph(), first.assignment())).unwrap();
    let allocation = allocator.alloc(first.graph(), &Bindings::new()).unwrap();
    for leaf in first.graph().leafs() {
        let size = first.graph().tensor(*leaf).nbytes().0;
        allocation.write_bytes(*leaf, &vec![1; size as usize]).unwrap();
    }
    *small.allocation.lock().unwrap() = Some(allocation.clone());
    let error = allocator.reserve((second.graph(), second.assignment())).unwrap_err();
    assert!(matches!(error, AllocError::Buffer { .. }), "{error}");
    small.run.lock().unwrap().take().expect("a run has begun").finish();
    assert_eq!(allocation.read_bytes(tensor(first.graph(), "a")).unwrap(), [1; 1000]);
    allocator.alloc(first.graph(), &Bindings::new()).unwrap();
    allocator.reserve((second.graph(), second.assignment())).unwrap();
    allocator.alloc(second.graph(), &Bindings::new()).unwrap();
}
