//! Plans where every tensor of a computation graph lives before anything runs, proves the plan, allocates the buffers, and
//! runs the graph in them.
//!
//! # Quick start
//!
//! Build a graph, reserve memory for the largest one you will run, allocate, write inputs, compute, read outputs:
//!
//! ```
//! use steeve::prelude::*;
//!
//! let mut context = Context::new();
//! let x = context.input(DataType::F32, &[4, 2])?; // two rows of four
//! let w = context.input(DataType::F32, &[4, 3])?;
//! let product = context.mul_mat(w, x)?;
//! let y = context.relu(product)?;
//! context.set_output(y)?;
//! let graph = Graph::from_outputs(&context, &[y])?;
//!
//! let cpu = CpuBackend::default();
//! let mut allocator = GraphAllocator::new(&cpu.buffer_type());
//! allocator.reserve(&graph)?;
//!
//! let run = allocator.alloc(&graph, &Bindings::new())?;
//! run.write(x, &[1.0f32, 2.0, 3.0, 4.0, -1.0, 0.0, 1.0, 2.0])?;
//! run.write(w, &[1.0f32, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25])?;
//! run.compute(&cpu)?;
//! assert_eq!(run.read::<f32>(y)?, [1.0, 0.0, 2.5, 0.0, 0.0, 0.5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Again and again, and under watch
//!
//! ```
//! use steeve::prelude::*;
//!
//! let mut context = Context::new();
//! let x = context.input(DataType::F16, &[3])?;
//! let y = context.sqr(x)?;
//! context.keep(x)?; // survives a run, so that it need not be written again
//! context.set_output(y)?;
//! let graph = Graph::from_outputs(&context, &[y])?;
//!
//! let cpu = CpuBackend::new(2); // two threads, made once
//! cpu.measure();
//! cpu.observe(|it| {
//!     assert_eq!(it.bytes.len(), 6); // each result, as soon as it is there
//!     std::ops::ControlFlow::Continue(())
//! });
//! let options = AllocOptions::new().with_budget(0, Bytes(1 << 20)); // fails early, and names the tensors at the peak
//! let mut allocator = GraphAllocator::new(&cpu.buffer_type()).with_options(options);
//! let run = allocator.alloc(&graph, &Bindings::new())?;
//! run.write(x, &[1.0, 2.0, 3.0].map(f16::from_f32))?;
//! let mut ready = run.prepare(&cpu)?; // kernels are chosen once
//! ready.run()?;
//! ready.run()?;
//! assert_eq!(run.read::<f16>(y)?, [1.0, 4.0, 9.0].map(f16::from_f32));
//! println!("{}", cpu.timings().unwrap_or_default()); // a table of operations
//! let stop: Cancel = cpu.cancel(); // `stop.cancel()` from any thread ends runs
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On several devices
//!
//! A [`Scheduler`](sched::Scheduler) runs each operation where its weight is, copies what a device can't read, and plans all
//! memories in one go. Devices come in order of priority, the processor last:
//!
//! ```
//! use std::sync::Arc;
//! use steeve::prelude::*;
//!
//! let cpu: Arc<dyn Device> = Arc::new(CpuDevice::new());
//! let mut context = Context::new();
//! let weight = context.external(DataType::F32, &[2, 2])?;
//! let bindings = allocate_context(&mut context, &cpu.buffer_types()[0])?; // each weight where you want it
//! bindings.set_usage(Usage::Weights); // operations follow them
//! let x = context.input(DataType::F32, &[2])?;
//! let y = context.mul_mat(weight, x)?;
//! context.set_output(y)?;
//! let graph = Graph::from_outputs(&context, &[y])?;
//!
//! let mut scheduler = Scheduler::new([cpu])?; // Scheduler::new([gpu, cpu])
//! assert_eq!(scheduler.required(&graph, &bindings)?, [Bytes(64)]); // per device, and nothing is allocated
//! let job = scheduler.alloc(&graph, &bindings)?;
//! job.write(weight, &[1.0f32, 2.0, 3.0, 4.0])?;
//! job.write(x, &[1.0f32, 1.0])?;
//! scheduler.compute(&job)?;
//! assert_eq!(job.read::<f32>(y)?, [3.0, 7.0]);
//! println!("{}", job.schedule()); // which nodes where, what is copied, how many bytes
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Weights and caches are *external*: [`allocate_context`](alloc::allocate_context) gives them memory of their own, and the
//! [`Bindings`](device::Bindings) that it returns go into `alloc`. The examples `quickstart`, `transformer`, `devices`,
//! `own_graph` and `generate` show more (`cargo run --release -p steeve --example transformer`).
//!
//! # With a graph of your own
//!
//! An engine that has a graph implements [`TensorGraph`](graph::TensorGraph) for it and keeps no other: results are keyed by
//! its own tensors, and so are errors. Pictures and plan files work as for every other graph:
//!
//! ```
//! use steeve::prelude::*;
//!
//! /// What each instruction reads, and the bytes of its result.
//! struct Program(Vec<(&'static [usize], u64)>);
//!
//! impl TensorGraph for Program {
//!     type Key = usize;
//!     fn nodes(&self) -> impl Iterator<Item = usize> { 0..self.0.len() }
//!     fn sources(&self, node: usize) -> impl Iterator<Item = usize> { self.0[node].0.iter().copied() }
//!     fn size(&self, tensor: usize) -> Bytes { Bytes(self.0[tensor].1) }
//!     fn may_overwrite(&self, node: usize, _source: usize) -> bool { node == 2 }
//! }
//!
//! let program = Program(vec![(&[], 1024), (&[0], 4096), (&[1], 4096), (&[2], 512)]);
//! let plan = plan_tensor_graph(&program, &PlanOptions::default())?;
//! plan.replay(&program)?; // a second checker, which knows no live ranges
//! assert_eq!((plan.peak(), plan.overwrites(2)), (Bytes(4096 + 1024), Some(1)));
//! assert_eq!(plan.place(2).map(|it| it.offset), plan.place(1).map(|it| it.offset));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | crate | what |
//! |---|---|
//! | [`plan`] | blocks with lifetimes in, proven plan out; for what is no graph |
//! | [`graph`] | tensors, operations, graphs, also an engine's own; liveness, in-place, proven plans for graphs |
//! | [`device`] | memory of devices and backends behind one interface |
//! | [`runtime`], also [`alloc`] | buffers behind plans; reading and writing tensors |
//! | [`cpu`] | the processor |
//! | `cuda` (feature `cuda`) | NVIDIA GPUs, where there are any |
//! | [`sched`], which is `runtime::sched` | one graph over several devices |
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "cpu")]
pub use steeve_cpu as cpu;
#[cfg(feature = "cuda")]
pub use steeve_cuda as cuda;
pub use steeve_device as device;
pub use steeve_graph as graph;
pub use steeve_plan as plan;
pub use steeve_runtime as runtime;
pub use steeve_runtime as alloc;
#[cfg(feature = "sched")]
pub use steeve_runtime::sched;

/// What most programs need: `use steeve::prelude::*;`.
pub mod prelude {
    pub use half::{bf16, f16};
    #[cfg(feature = "cpu")]
    pub use steeve_cpu::{
        Cancel, CpuBackend, CpuDevice, CpuKernel, CustomCall, KernelResult, NodeTime, Observed, Timings,
    };
    #[cfg(feature = "cuda")]
    pub use steeve_cuda::{Capture, CudaDevice, CudaKernel, Launches};
    pub use steeve_device::{
        Backend, Bindings, BufferType, Device, DeviceError, DeviceKind, HostMemory, MemorySpec, NullDevice, Registry,
        SharedBuffer, Usage,
    };
    #[cfg(feature = "json")]
    pub use steeve_graph::MatchMemories;
    pub use steeve_graph::{
        Align, AssignedGraph, Assignment, Best, Budget, Bytes, Context, Convolution, CustomOp, DataType, FitAction,
        FitOptions, FlashAttention, Glu, Graph, GraphError, GraphPlan, GraphStrategy, KeyedPlan, Layout, Memory,
        MemoryId, Offset, Op, Param, PlanOptions, Reuse, Rope, RopeMode, SoftMax, SortOrder, TensorGraph, TensorId,
        Unary, fit, plan_graph, plan_tensor_graph, replay,
    };
    #[cfg(feature = "sched")]
    pub use steeve_runtime::sched::{
        Job, SchedError, SchedOptions, Schedule, Scheduler, TensorLocations, Worker, WorkerId,
    };
    pub use steeve_runtime::{
        AllocError, AllocOptions, Allocation, Computation, Element, GraphAllocator, Replan, TensorAllocator,
        allocate_context, allocate_context_on, context_size, read_tensor, write_tensor,
    };
}

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
