//! The proof by running: every way gives the same bits, and those are the right ones.

use steeve_cpu::CpuBackend;
use steeve_graph::TensorId;

use super::case::{Case, named};
use super::element_codec::decode;
use super::eval_memory::EvalMemory;
use super::plan_variant::{RunResult, contents_of, in_another_order, plan_variants, run};
use super::tolerance::judge;

/// Backends with one thread and with more.
#[derive(Debug)]
pub struct ThreadedBackends {
    pub one: CpuBackend,
    pub two: CpuBackend,
    pub three: CpuBackend,
}

impl ThreadedBackends {
    pub fn new() -> Self {
        let [one, two, three] = [1, 2, 3].map(CpuBackend::new);
        Self { one, two, three }
    }
}

/// Runs a graph with every plan variant. Each node's result and the outputs must be equal to the bit in all, and the results
/// of the first within tolerance of the exact ones. Returns all runs, without those that ggml's plan does not allow; calls
/// `note` with how much of its tolerance each node used up.
pub fn prove(
    case: &Case,
    backends: &ThreadedBackends,
    note: &mut dyn FnMut(TensorId, f64),
) -> Result<Vec<RunResult>, String> {
    let [first, others @ ..] = plan_variants();
    let fail = |what: String| format!("{what}\n{}", case.text());
    let apart = run(case, &first, &backends.one).map_err(fail)?.expect("a plan without reuse keeps everything");
    judge_run(case, &apart, note).map_err(fail)?;
    let mut all = vec![apart];
    let (ordered, usual) = (in_another_order(), others.iter().map(|plan_variant| (plan_variant, &backends.two)));
    let runs = [(&first, &backends.three)].into_iter().chain(usual).chain([(&ordered, &backends.two)]);
    for (plan_variant, backend) in runs {
        let Some(ran) = run(case, plan_variant, backend).map_err(fail)? else { continue };
        same(case, &all[0], &ran)
            .map_err(|what| fail(format!("{}, {} threads: {what}", plan_variant.name, backend.threads())))?;
        all.push(ran);
    }
    Ok(all)
}

/// Returns whether two runs made the same, to the bit.
pub fn same(case: &Case, one: &RunResult, other: &RunResult) -> Result<(), String> {
    let differ = |what: &str, id: TensorId, a: &[u8], b: &[u8]| {
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
        let layout = case.graph.tensor(id).layout;
        let size = layout.dtype().block_bytes() as usize;
        let block = |bytes: &[u8]| bytes.chunks(size).nth(at / size).map(<[u8]>::to_vec);
        let (a, b) = (block(a), block(b));
        format!("{what} of {} differs in block {}: {a:02x?}, {b:02x?}", named(&case.graph, id), at / size)
    };
    if one.nodes.len() != other.nodes.len() {
        return Err(format!("{} nodes ran, and {} before", other.nodes.len(), one.nodes.len()));
    }
    for ((node, a), (also, b)) in one.nodes.iter().zip(&other.nodes) {
        if node != also || a != b {
            return Err(differ("the result", *node, a, b));
        }
    }
    for (what, one, other) in [("output", &one.outputs, &other.outputs), ("external", &one.externals, &other.externals)]
    {
        for ((id, a), (_, b)) in one.iter().zip(other) {
            if a != b {
                return Err(differ(what, *id, a, b));
            }
        }
    }
    if one.images != other.images { Err("bytes between the external tensors have changed".into()) } else { Ok(()) }
}

/// Each node's result is within tolerance of the exact one, computed from what its sources really were.
pub fn judge_run(case: &Case, ran: &RunResult, note: &mut dyn FnMut(TensorId, f64)) -> Result<EvalMemory, String> {
    let (graph, tensors) = (&case.graph, case.graph.tensors());
    let mut memory = contents_of(case);
    let mut seen = ran.nodes.iter();
    let writes = |node: &&TensorId| {
        let tensor = graph.tensor(**node);
        !tensor.op.writes_nothing() && tensor.layout.elements() > 0
    };
    for &node in graph.nodes().iter().filter(writes) {
        let Some((also, made)) = seen.next() else { return Err(format!("{} did not run", named(graph, node))) };
        if *also != node {
            return Err(format!("{} ran instead of {}", named(graph, *also), named(graph, node)));
        }
        let used = judge(tensors, &memory, node, made).map_err(|what| format!("{}: {what}", named(graph, node)))?;
        note(node, used);
        memory.set_bytes(tensors, node, made);
    }
    if let Some((more, _)) = seen.next() {
        return Err(format!("{} ran too", named(graph, *more)));
    }
    for (id, bytes) in ran.outputs.iter().chain(&ran.externals) {
        if memory.bytes(tensors, *id) != *bytes {
            return Err(format!("{} is not what it was when it was computed", named(graph, *id)));
        }
    }
    Ok(memory)
}

/// The outputs are near those of an evaluation in f64 that has seen nothing but the leafs: as far as `tolerance` of the
/// largest element. Node by node a graph is judged more closely; this finds what is lost in between.
pub fn judge_whole(case: &Case, memory: &mut EvalMemory, ran: &RunResult, tolerance: f64) -> Result<(), String> {
    let tensors = case.graph.tensors();
    for node in case.graph.nodes() {
        memory.step(tensors, *node);
    }
    for (id, bytes) in &ran.outputs {
        let dtype = tensors[*id].layout.dtype();
        let made: Vec<f64> =
            bytes.chunks(dtype.block_bytes() as usize).flat_map(|block| decode(dtype, block)).collect();
        let exact = memory.read(tensors, *id);
        let most = exact.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        for (index, (made, exact)) in made.iter().zip(&exact).enumerate() {
            let within = (made - exact).abs() <= tolerance * most;
            if !within {
                let name = named(&case.graph, *id);
                return Err(format!(
                    "element {index} of {name} is {made:e} and should be {exact:e}; {most:e} is the most"
                ));
            }
        }
    }
    Ok(())
}
