//! The ways to run a graph: plans that differ in every address, one after the other in memory full of `0xFF`.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, BufferType, Bytes, Offset, SharedBuffer, Usage};
use steeve_graph::{
    Best, Budget, Context, GraphPlanError, GraphStrategy, Order, OrderSearch, PlanOptions, Reuse, TensorId,
};
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator, TensorAllocator};

use super::case::Case;
use super::eval_memory::{EvalMemory, pack};

/// A way to plan a graph.
#[derive(Clone, Copy, Debug)]
pub struct PlanVariant {
    pub name: &'static str,
    pub plan: PlanOptions,
}

/// Returns all variants. In the first, every tensor has bytes of its own for as long as it lives.
pub fn plan_variants() -> [PlanVariant; 5] {
    let fast = PlanOptions::new(GraphStrategy::Fast);
    let best = PlanOptions::new(GraphStrategy::Best(Best::new(Budget::Nodes(300))));
    [
        PlanVariant { name: "no reuse", plan: fast.with_reuse(Reuse::None) },
        PlanVariant { name: "ggml's plan", plan: PlanOptions::new(GraphStrategy::Ggml) },
        PlanVariant { name: "fast, ggml's reuse", plan: fast.with_reuse(Reuse::Ggml) },
        PlanVariant { name: "fast, more reuse", plan: fast.with_reuse(Reuse::Extended) },
        PlanVariant { name: "best, more reuse", plan: best.with_reuse(Reuse::Extended) },
    ]
}

/// Returns the variant that runs in another order of the nodes wherever that saves a byte.
pub fn in_another_order() -> PlanVariant {
    let search = OrderSearch::default().with_least_saving(0);
    let plan = PlanOptions::default().with_order(Order::Best).with_order_search(search);
    PlanVariant { name: "in another order", plan }
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// The nodes that ran with their results, without gaps, as they were just then; in the order of the graph.
    pub nodes: Vec<(TensorId, Vec<u8>)>,
    /// The outputs, read after the run.
    pub outputs: Vec<(TensorId, Vec<u8>)>,
    /// All bytes of the external buffers in the end.
    pub images: Vec<Vec<u8>>,
    /// The external tensors in the end.
    pub externals: Vec<(TensorId, Vec<u8>)>,
    /// Nodes that had the memory of a source, with its slot.
    pub take_overs: Vec<(TensorId, u32)>,
    pub peak: Bytes,
    /// Whether the nodes ran in another order than the graph's.
    pub is_reordered: bool,
}

/// External tensors in two buffers.
#[derive(Clone, Debug)]
pub struct BoundTensors {
    pub bindings: Bindings,
    pub buffers: Vec<SharedBuffer>,
}

/// Memory for external tensors with their contents. What is between them is `0xFF`.
pub fn bind(context: &Context, contents: &[(TensorId, Vec<u8>)], memory: &Arc<dyn BufferType>) -> BoundTensors {
    let tensors = context.tensors();
    let external: Vec<&(TensorId, Vec<u8>)> = contents.iter().filter(|(id, _)| tensors[*id].external).collect();
    let mut bound = BoundTensors { bindings: Bindings::new(), buffers: Vec::new() };
    for half in 0..2 {
        let mine = || external.iter().skip(half).step_by(2);
        let size = mine().map(|(id, _)| tensors[*id].nbytes().get().next_multiple_of(64)).sum();
        let buffer = SharedBuffer::allocate(memory, Bytes(size), Usage::Any).unwrap();
        buffer.clear(0xFF).unwrap();
        let mut allocator = TensorAllocator::new(&buffer);
        for (id, bytes) in mine() {
            let offset = allocator.alloc(context, *id).unwrap().offset;
            buffer.write(offset, bytes).unwrap();
            bound.bindings.bind(*id, &buffer, offset, tensors[*id].nbytes()).unwrap();
        }
        bound.buffers.push(buffer);
    }
    bound
}

/// An allocator that plans in this way.
pub fn allocator(plan_variant: &PlanVariant, backend: &CpuBackend) -> GraphAllocator {
    GraphAllocator::new(&backend.buffer_type()).with_options(AllocOptions::new().with_plan(plan_variant.plan))
}

/// Plans, fills and runs a graph in memory of its own. `None` if ggml's plan loses something that is read after the run.
pub fn run(case: &Case, plan_variant: &PlanVariant, backend: &CpuBackend) -> Result<Option<RunResult>, String> {
    let bound = bind(&case.context, &case.contents, &backend.buffer_type());
    let ran = run_in(case, &mut allocator(plan_variant, backend), &bound, backend);
    ran.map_err(|error| format!("{}, {} threads: {error}", plan_variant.name, backend.threads()))
}

/// Runs a case in memory that may have been used before. External tensors keep their values.
pub fn run_in(
    case: &Case,
    allocator: &mut GraphAllocator,
    bound: &BoundTensors,
    backend: &CpuBackend,
) -> Result<Option<RunResult>, AllocError> {
    match allocator.reserve(&case.graph) {
        Err(AllocError::Plan(GraphPlanError::GgmlFrees { .. })) => return Ok(None),
        reserved => reserved?,
    }
    let plan = allocator.plan_of(&case.graph).expect("it has just been planned");
    let (peak, is_reordered) = (plan.peak(), plan.order().is_some());
    let take_overs = plan.in_place_aliases().to_vec();
    let mut ran = RunResult { take_overs, peak, is_reordered, ..RunResult::default() };
    allocator.clear(0xFF)?;
    let allocation = allocator.alloc(&case.graph, &bound.bindings)?;
    for leaf in case.graph.leafs().iter().filter(|id| !case.graph.tensor(**id).external) {
        allocation.write_bytes(*leaf, case.bytes_of(*leaf).expect("every leaf has contents"))?;
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    backend.observe(move |observed| {
        list.lock().unwrap().push((observed.node, pack(&observed.layout, observed.bytes)));
        ControlFlow::Continue(())
    });
    let computed = allocation.compute(backend);
    backend.stop_observing();
    computed?;
    ran.nodes = std::mem::take(&mut *seen.lock().unwrap());
    ran.nodes.sort_by_key(|(node, _)| case.graph.nodes().iter().position(|other| other == node));
    for output in case.outputs() {
        ran.outputs.push((output, allocation.read_bytes(output)?));
    }
    for leaf in case.graph.leafs().iter().filter(|id| case.graph.tensor(**id).external) {
        ran.externals.push((*leaf, allocation.raw_bytes(*leaf)?));
    }
    for buffer in &bound.buffers {
        let mut image = vec![0; buffer.size().get() as usize];
        buffer.read(Offset(0), &mut image)?;
        ran.images.push(image);
    }
    Ok(Some(ran))
}

/// The leafs as the evaluator sees them.
pub fn contents_of(case: &Case) -> EvalMemory {
    let mut memory = EvalMemory::default();
    for (leaf, bytes) in &case.contents {
        memory.set_bytes(case.context.tensors(), *leaf, bytes);
    }
    memory
}
