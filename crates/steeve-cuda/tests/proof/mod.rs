//! Graphs on a GPU: node by node, each in memory of its own, and as a whole in every plan. Needs `reference` beside it.
#![allow(dead_code)]

use std::collections::BTreeMap;

use half::{bf16, f16};
use steeve_device::{Backend, Bindings, Bytes, DeviceError, Offset, SharedBuffer, Usage};
use steeve_graph::{DataType, Graph, GraphPlanError, Id, Op, TensorId, Tensors};
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator};

use crate::reference::{Case, EvalMemory, PlanVariant, contents_of, judge, named, pack};

/// Where the result of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Apart from all sources.
    Apart,
    /// An element behind the start of the source in this slot, so that each covers a part of the other.
    Beside(usize),
}

/// Runs one node in a buffer of its own, with sources as they are in `memory`. The answer is its result without gaps.
pub(crate) fn run_node(
    backend: &dyn Backend,
    graph: &Graph,
    node: TensorId,
    memory: &EvalMemory,
    place: Where,
) -> Result<Vec<u8>, DeviceError> {
    let (tensors, kind) = (graph.tensors(), backend.buffer_type());
    let index = graph.nodes().iter().position(|it| *it == node).expect("a node of the graph");
    let touched = || graph.sources(node).iter().flatten().copied().chain([node]);
    let (mut starts, mut end) = (BTreeMap::new(), 0u64);
    for root in touched().map(|id| tensors.root(id)) {
        starts.entry(root.index()).or_insert_with(|| {
            let start = (end + 64).next_multiple_of(kind.align().get());
            end = start + tensors[root].nbytes().get();
            start
        });
    }
    // The result has room behind all others, wherever it is moved.
    end += tensors[node].nbytes().get() + 64;
    if let Where::Beside(slot) = place {
        let source = graph.sources(node)[slot].expect("a source");
        let start = starts[&tensors.root(source).index()] + tensors.offset(source).get();
        let unit = tensors[node].layout.dtype().block_bytes();
        let unit = if tensors[node].layout.dtype().block_len() == 1 { unit } else { 2 };
        starts.insert(node.index(), (start + unit).next_multiple_of(unit));
    }
    let buffer = SharedBuffer::allocate(&kind, Bytes(end), Usage::Compute)?;
    buffer.clear(0xFF)?;
    let mut bindings = Bindings::new();
    for id in touched() {
        let root = tensors.root(id);
        let start =
            starts[&root.index()] + if id == node && !tensors[id].is_view() { 0 } else { tensors.offset(id).get() };
        bindings.bind(id, &buffer, Offset(start), tensors[id].nbytes())?;
        // What is written into is there before, too.
        if id != node || tensors[id].is_view() {
            let bytes = memory.bytes(tensors, root);
            backend.write(&buffer, Offset(starts[&root.index()]), &bytes)?;
        }
    }
    let mut prepared = backend.prepare(graph, index..index + 1, &bindings)?;
    backend.submit(&mut *prepared)?;
    let at = bindings.get(node).expect("it has just been bound");
    let mut spanned = vec![0; at.size.get() as usize];
    backend.read(&buffer, at.offset, &mut spanned)?;
    Ok(pack(&tensors[node].layout, &spanned))
}

/// Returns how much of the tolerance is used up; an error if a result is not what its sources in `memory` say.
pub(crate) fn judge_node(tensors: &Tensors, memory: &EvalMemory, node: TensorId, made: &[u8]) -> Result<f64, String> {
    match tensors[node].op {
        Op::MulMat | Op::MulMatId => judge_product(tensors, memory, node, made),
        _ => judge(tensors, memory, node, made),
    }
}

/// Products are judged by the types that meet: with many columns a second source of f32 is rounded to the weights' type,
/// and blocks are f16 then. Nothing is rounded to eight bits, as on the processor.
fn judge_product(tensors: &Tensors, memory: &EvalMemory, node: TensorId, made: &[u8]) -> Result<f64, String> {
    let call = memory.call(tensors, node);
    let (a, b) = (call.source(0), call.source(1));
    let [m, n, planes, _] = call.ne();
    let is_many = match (tensors[node].op, a.dtype) {
        // Floats that tensor cores can't read stay what they are.
        (Op::MulMatId, _) => n * planes > 64 && (a.dtype.is_quantised() || a.ne[0] % 8 == 0),
        (_, DataType::F16) => n > 2,
        _ => n > 8,
    };
    let k = a.ne[0];
    let rounding = match (a.dtype, b.dtype) {
        _ if !is_many => 0.0,
        (DataType::F32, _) => 0.0,
        (DataType::Bf16, _) => 2f64.powi(-8),
        (DataType::F16, _) => 2f64.powi(-11),
        _ => 2f64.powi(-10),
    };
    let tolerance = (4.0 + (k as f64).sqrt()) * 2f64.powi(-24) + rounding;
    // A row is scaled by a power of two before it is f16, and the smallest f16 is 2^-24 of what its largest element becomes.
    let lost = if rounding > 0.0 && a.dtype != DataType::Bf16 { 2f64.powi(-25) } else { 0.0 };
    let mut worst = 0.0f64;
    for (index, bytes) in made.as_chunks::<4>().0.iter().enumerate() {
        let made = f64::from(f32::from_le_bytes(*bytes));
        let (i0, i1, i2, i3) = (index % m, index / m % n, index / m / n % planes, index / m / n / planes);
        let (at, x) = if tensors[node].op == Op::MulMat {
            ([i0, i2 / (b.ne[2] / a.ne[2]), i3 / (b.ne[3] / a.ne[3])], b.row([i1, i2, i3]))
        } else {
            let expert = call.source(2).at([i1, i2, 0, 0]) as usize;
            ([i0, expert, 0], b.row([i1 % b.ne[1], i2, 0]))
        };
        let exact: f64 = a.row(at).iter().zip(x).map(|(w, x)| w * x).sum();
        // Elements of some blocks are what two larger numbers leave of each other.
        let size: f64 = a.row_sizes(at).iter().zip(x).map(|(w, x)| (w * x).abs()).sum();
        let most = x.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let lost = lost * most * a.row_sizes(at).iter().sum::<f64>();
        if exact.is_nan() && made.is_nan() || exact == made {
            continue;
        }
        let used = (made - exact).abs() / (tolerance * size + lost + 2f64.powi(-24) * exact.abs() + 1e-36);
        if used.is_nan() || used > 1.0 {
            return Err(format!("element {index} is {made:e} and should be {exact:e}, of terms of {size:e} in all"));
        }
        worst = worst.max(used);
    }
    Ok(worst)
}

/// Nodes that compute something.
pub(crate) fn computing(graph: &Graph) -> impl Iterator<Item = TensorId> + '_ {
    graph.nodes().iter().copied().filter(|node| {
        let tensor = graph.tensor(*node);
        !tensor.op.writes_nothing() && tensor.layout.elements() > 0
    })
}

/// Runs a graph node by node and judges each. What the backend does not support is taken from the evaluator. `note` is told
/// how much of its tolerance each node used up, and `None` where it did not run.
pub(crate) fn judge_nodes(
    backend: &dyn Backend,
    case: &Case,
    note: &mut dyn FnMut(TensorId, Option<f64>),
) -> Result<EvalMemory, String> {
    let (graph, tensors) = (&case.graph, case.graph.tensors());
    let mut memory = contents_of(case);
    for node in computing(graph) {
        if backend.supports(graph, node).is_err() {
            memory.step(tensors, node);
            note(node, None);
            continue;
        }
        let fail = |what: String| format!("{}: {what}", named(graph, node));
        let made = run_node(backend, graph, node, &memory, Where::Apart).map_err(|error| fail(error.to_string()))?;
        let used = judge_node(tensors, &memory, node, &made).map_err(fail)?;
        note(node, Some(used));
        memory.set_bytes(tensors, node, &made);
    }
    Ok(memory)
}

/// What can be read after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) outputs: Vec<(TensorId, Vec<u8>)>,
    pub(crate) externals: Vec<(TensorId, Vec<u8>)>,
}

/// Memory for external tensors, one behind another. What is between them is `0xFF`.
pub(crate) fn bind(case: &Case, backend: &dyn Backend) -> Bindings {
    let (tensors, memory) = (case.context.tensors(), backend.buffer_type());
    let external = || case.contents.iter().map(|(id, _)| *id).filter(|id| tensors[*id].external);
    let room = |id: TensorId| memory.align().round_up(tensors[id].nbytes()).expect("a small number").get();
    let buffer = SharedBuffer::allocate(&memory, Bytes(external().map(room).sum()), Usage::Any).unwrap();
    buffer.clear(0xFF).unwrap();
    let (mut bindings, mut start) = (Bindings::new(), 0);
    for id in external() {
        bindings.bind(id, &buffer, Offset(start), tensors[id].nbytes()).unwrap();
        start += room(id);
    }
    bindings
}

/// Runs a graph as a whole, so many times with the same contents; `None` if the plan does not keep what is read.
pub(crate) fn run_whole(
    backend: &dyn Backend,
    case: &Case,
    way: &PlanVariant,
    times: usize,
) -> Result<Option<Vec<Outcome>>, AllocError> {
    let options = AllocOptions::new().with_plan(way.plan);
    let mut allocator = GraphAllocator::new(&backend.buffer_type()).with_options(options);
    match allocator.reserve(&case.graph) {
        Err(AllocError::Plan(GraphPlanError::GgmlFrees { .. })) => return Ok(None),
        reserved => reserved?,
    }
    allocator.clear(0xFF)?;
    let bindings = bind(case, backend);
    let allocation = allocator.alloc(&case.graph, &bindings)?;
    let mut computation = allocation.prepare(backend)?;
    let mut outcomes = Vec::new();
    for _ in 0..times {
        for leaf in case.graph.leafs() {
            let bytes = case.bytes_of(*leaf).expect("every leaf has contents");
            if case.graph.tensor(*leaf).external {
                let address = bindings.get(*leaf).expect("it is bound");
                address.buffer.write(address.offset, bytes)?;
            } else {
                allocation.write_bytes(*leaf, bytes)?;
            }
        }
        computation.run()?;
        let mut outcome = Outcome { outputs: Vec::new(), externals: Vec::new() };
        for output in case.outputs() {
            outcome.outputs.push((output, allocation.read_bytes(output)?));
        }
        for leaf in case.graph.leafs().iter().filter(|id| case.graph.tensor(**id).external) {
            outcome.externals.push((*leaf, allocation.raw_bytes(*leaf)?));
        }
        outcomes.push(outcome);
    }
    Ok(Some(outcomes))
}

/// The floats of an output; nothing for other types.
pub(crate) fn floats(case: &Case, id: TensorId, bytes: &[u8]) -> Vec<f32> {
    match case.graph.tensor(id).layout.dtype() {
        DataType::F32 => bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect(),
        DataType::F16 => bytes.as_chunks().0.iter().map(|it| f16::from_le_bytes(*it).to_f32()).collect(),
        DataType::Bf16 => bytes.as_chunks().0.iter().map(|it| bf16::from_le_bytes(*it).to_f32()).collect(),
        _ => Vec::new(),
    }
}

/// The outputs of two runs are as near as `tolerance` of the largest element, or of what sums that cancel leave of larger ones.
pub(crate) fn near(
    case: &Case,
    one: &[(TensorId, Vec<u8>)],
    other: &[(TensorId, Vec<u8>)],
    tolerance: f32,
) -> Result<(), String> {
    for ((id, a), (_, b)) in one.iter().zip(other) {
        let (a, b) = (floats(case, *id, a), floats(case, *id, b));
        let most = b.iter().filter(|x| x.is_finite()).fold(0.01f32, |most, x| most.max(x.abs()));
        for (index, (a, b)) in a.iter().zip(&b).enumerate() {
            if !(a == b || (a - b).abs() <= tolerance * most || a.is_nan() && b.is_nan()) {
                return Err(format!("element {index} of {} is {a} here and {b} there", named(&case.graph, *id)));
            }
        }
    }
    Ok(())
}
