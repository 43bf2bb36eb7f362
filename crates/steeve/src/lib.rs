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
//! Weights and caches are *external*: [`allocate_context`](alloc::allocate_context) gives them memory of their own, and the
//! [`Bindings`](device::Bindings) that it returns go into `alloc`. The examples `quickstart`, `transformer` and `own_graph`
//! show more (`cargo run --release -p steeve --example transformer`).
//!
//! | crate | what |
//! |---|---|
//! | [`plan`] | blocks with lifetimes in, proven plan out; for engines with graphs of their own |
//! | [`graph`] | tensors, operations, graphs; liveness, in-place, proven plans for graphs |
//! | [`device`] | memory of devices and backends behind one interface |
//! | [`alloc`] | buffers behind plans; reading and writing tensors |
//! | [`cpu`] | the processor |
#![forbid(unsafe_code)]

pub use steeve_alloc as alloc;
pub use steeve_cpu as cpu;
pub use steeve_device as device;
pub use steeve_graph as graph;
pub use steeve_plan as plan;

/// What most programs need: `use steeve::prelude::*;`.
pub mod prelude {
    pub use steeve_alloc::{
        AllocError, AllocOptions, Allocation, Element, GraphAllocator, Replan, TensorAllocator, allocate_context,
        allocate_context_on, context_size, read_tensor, write_tensor,
    };
    pub use steeve_cpu::{CpuBackend, CpuDevice};
    pub use steeve_device::{
        Backend, Bindings, BufferType, Device, DeviceKind, HostMemory, NullDevice, Registry, SharedBuffer, Usage,
    };
    pub use steeve_graph::{
        Align, AssignedGraph, Assignment, Best, Budget, Bytes, Context, Convolution, DataType, FlashAttention, Glu,
        Graph, GraphPlan, GraphStrategy, Memory, Offset, Op, Order, PlanOptions, Reuse, Rope, SoftMax, TensorId, Unary,
        plan_graph, replay,
    };
}
