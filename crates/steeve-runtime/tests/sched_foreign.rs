//! A scheduler refuses ids, homes and bindings of another context or graph, and shares schedules with graphs of equal numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use steeve_cpu::CpuDevice;
use steeve_device::{Bindings, Bytes, Device, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Graph, GraphError, TensorId};
use steeve_runtime::AllocError;
use steeve_runtime::sched::{Job, SchedError, SchedOptions, Scheduler, TensorLocations};

const F32: DataType = DataType::F32;

fn processor() -> Arc<dyn Device> {
    Arc::new(CpuDevice::with_threads(1))
}

struct SmallGraph {
    graph: Graph,
    weight: TensorId,
    x: TensorId,
    y: TensorId,
}

impl SmallGraph {
    fn new() -> Self {
        Self::over(&mut Context::new())
    }

    fn over(context: &mut Context) -> Self {
        let weight = context.external(F32, &[4]).unwrap();
        let x = context.input(F32, &[4]).unwrap();
        let y = context.add(x, weight).unwrap();
        context.set_output(y).unwrap();
        Self { graph: Graph::from_outputs(context, &[y]).unwrap(), weight, x, y }
    }

    fn bindings(&self, device: &Arc<dyn Device>) -> Bindings {
        let buffer = SharedBuffer::allocate(&device.buffer_types()[0], Bytes(16), Usage::Weights).unwrap();
        buffer.write(Offset(0), &2.0f32.to_ne_bytes().repeat(4)).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(self.weight, &buffer, Offset(0), Bytes(16)).unwrap();
        bindings
    }
}

fn is_foreign<T: std::fmt::Debug>(answer: Result<T, AllocError>) -> bool {
    matches!(answer, Err(AllocError::Graph(GraphError::Foreign { .. })))
}

#[test]
fn a_job_takes_ids_of_the_graph_it_was_allocated_for() {
    type Call = fn(&Job, TensorId) -> Result<(), AllocError>;
    let calls: &[(&str, Call)] = &[
        ("address", |it, x| it.address(x).map(drop)),
        ("write", |it, x| it.write(x, &[0.0f32; 4])),
        ("write_bytes", |it, x| it.write_bytes(x, &[0; 16])),
        ("read", |it, x| it.read::<f32>(x).map(drop)),
        ("read_into", |it, x| it.read_into(x, &mut [0.0f32; 4])),
        ("read_bytes", |it, x| it.read_bytes(x).map(drop)),
    ];
    let cpu = processor();
    for turns in [1, 2] {
        let options = SchedOptions::new().with_pipeline_depth(turns);
        let mut scheduler = Scheduler::new([Arc::clone(&cpu)]).unwrap().with_options(options);
        let (one, other) = (SmallGraph::new(), SmallGraph::new());
        let mut schedules = Vec::new();
        for (own, foreign) in [(&one, &other), (&other, &one)] {
            let job = scheduler.alloc(&own.graph, &own.bindings(&cpu)).unwrap();
            for (name, call) in calls {
                job.write(own.x, &[1.0f32; 4]).unwrap();
                call(&job, own.x).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(is_foreign(call(&job, foreign.x)), "{name}");
            }
            job.write(own.x, &[1.0f32; 4]).unwrap();
            scheduler.compute(&job).unwrap();
            assert_eq!(job.read::<f32>(own.y).unwrap(), [3.0; 4]);
            assert!(is_foreign(job.read::<f32>(foreign.y)));
            // Behind the caller's tensors are copies, which no id of another context means.
            let mut larger = Context::new();
            let last = (0..20).map(|_| larger.input(F32, &[4]).unwrap()).last().unwrap();
            assert!(matches!(job.address(last), Err(AllocError::Graph(GraphError::Unknown { .. }))));
            schedules.push(std::ptr::from_ref(job.schedule()));
        }
        assert_eq!(schedules[0], schedules[1], "graphs of equal numbers share a schedule");
    }
}

#[test]
fn homes_and_bindings_of_another_context_are_refused() {
    let cpu = processor();
    let mut scheduler = Scheduler::new([Arc::clone(&cpu)]).unwrap();
    let (one, other) = (SmallGraph::new(), SmallGraph::new());
    let bindings = one.bindings(&cpu);
    let refused = |error: SchedError| matches!(error, SchedError::Graph(GraphError::Foreign { .. }));
    assert!(refused(scheduler.alloc(&other.graph, &bindings).unwrap_err()));
    assert!(refused(scheduler.schedule(&other.graph, &bindings).unwrap_err()));
    assert!(refused(scheduler.required(&other.graph, &bindings).unwrap_err()));
    assert!(refused(scheduler.reserve(&other.graph, &bindings).unwrap_err()));
    let mut homes = TensorLocations::new();
    homes.put(one.weight, &cpu.buffer_types()[0], Usage::Weights);
    assert!(refused(scheduler.schedule(&other.graph, &homes).unwrap_err()));
    // Also where a schedule is known that would do.
    scheduler.alloc(&one.graph, &bindings).unwrap();
    assert!(refused(scheduler.alloc(&other.graph, &bindings).unwrap_err()));
    assert!(scheduler.alloc(&other.graph, &other.bindings(&cpu)).is_ok());
}
