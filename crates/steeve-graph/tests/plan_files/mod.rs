//! What the laws of plan files share: graphs, options, files that were changed, and what a plan must keep.

use serde_json::{Value, json};
use steeve_graph::fuzz::Choices;
use steeve_graph::{
    AllocSizes, AssignedGraph, Best, Budget, Bytes, GraphParts, GraphPlan, GraphStrategy, Layout, PlanFault, PlanFile,
    PlanOptions, Reuse, Tensor, View, plan_graph, replay,
};

pub(crate) fn graph(text: &str) -> AssignedGraph {
    text.parse().unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

pub(crate) fn options() -> Vec<PlanOptions> {
    let best = GraphStrategy::Best(Best::new(Budget::Nodes(300)));
    let ours = [GraphStrategy::Fast, best].into_iter().flat_map(|strategy| {
        [Reuse::Ggml, Reuse::Extended, Reuse::None].map(|reuse| PlanOptions::new(strategy).with_reuse(reuse))
    });
    [PlanOptions::new(GraphStrategy::Ggml)].into_iter().chain(ours).collect()
}

/// Returns the graph with views that start elsewhere in their roots and, once in two, with fewer rows everywhere.
pub(crate) fn variant(assigned: &AssignedGraph, choices: &mut Choices<'_>) -> Option<AssignedGraph> {
    let graph = assigned.graph();
    let fewer = choices.once_in(2);
    let halved = |tensor: &Tensor| {
        let ([n0, n1, n2, n3], half) = (tensor.layout.ne(), |n: u64| if fewer { n.div_ceil(2) } else { n });
        Layout::new(tensor.layout.dtype(), [n0, half(n1), half(n2), half(n3)], tensor.layout.nb()).unwrap()
    };
    let mut parts = GraphParts::default();
    parts.detach();
    for (id, tensor) in graph.tensors().pairs() {
        let (op, layout) =
            (parts.op(graph.tensors().op_name(tensor.op), graph.tensors().kind_name(tensor.op)), halved(tensor));
        let mut moved = |view: View| {
            let spare = halved(&graph.tensors()[view.root]).nbytes().0.checked_sub(layout.nbytes().0)?;
            Some(View { offset: Bytes(choices.below(spare as usize + 1) as u64), ..view })
        };
        let view = match tensor.view {
            Some(view) => Some(moved(view)?),
            None => None,
        };
        let it = Tensor { layout, op: op.unwrap(), view, ..*tensor };
        parts.push_with(it, graph.sources(id), graph.params(id)).unwrap();
    }
    graph.leafs().iter().for_each(|leaf| parts.leaf(*leaf));
    graph.nodes().iter().for_each(|node| parts.node(*node));
    let sizes = AllocSizes::new(assigned.memories().len());
    AssignedGraph::new(parts.finish().ok()?, assigned.memories().clone(), assigned.assignment().clone(), sizes).ok()
}

/// Checks that a plan is right for every graph that it fits: for its own, and for others with other views and sizes.
/// Returns how many others it fitted.
pub(crate) fn assert_holds(what: &str, plan: &GraphPlan, graph: &AssignedGraph, choices: &mut Choices<'_>) -> u32 {
    plan.fits(graph).unwrap_or_else(|misfit| panic!("{what}: {misfit}"));
    replay(graph, &plan.places()).unwrap_or_else(|faults| panic!("{what}: {faults}"));
    let mut fitted = 0;
    for _ in 0..3 {
        let Some(other) = variant(graph, choices) else { continue };
        if plan.fits(&other).is_ok() {
            fitted += 1;
            replay(&other, &plan.places()).unwrap_or_else(|faults| panic!("{what}: {faults}\n{graph}\nand\n{other}"));
        }
    }
    fitted
}

/// Makes the figures of a plan agree with it, which is no defence.
pub(crate) fn with_claims(file: &mut Value, graph: &AssignedGraph) -> Result<GraphPlan, PlanFault> {
    let read: Result<PlanFile, _> = PlanFile::from_json(&file.to_string());
    if let Ok(read) = read {
        for (memory, it) in read.memories.iter().zip(file["memories"].as_array_mut().unwrap()) {
            let used: Vec<u64> = memory.used_sizes().iter().map(|size| size.0).collect();
            let peak = used.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
            (it["buffers"], it["peak"], it["lower_bound"]) = (json!(used), json!(peak), json!(peak));
        }
    }
    GraphPlan::from_json(&file.to_string(), graph)
}

pub(crate) fn saved(graph: &AssignedGraph) -> String {
    plan_graph(graph, &PlanOptions::default()).unwrap().to_json()
}

/// Returns the error for a file after `edit` has changed the blocks of its first memory.
pub(crate) fn refusal(graph: &AssignedGraph, plan: &GraphPlan, edit: impl Fn(&mut Vec<Value>)) -> String {
    let mut file: Value = serde_json::from_str(&plan.to_json()).unwrap();
    edit(file["memories"][0]["blocks"].as_array_mut().unwrap());
    match with_claims(&mut file, graph) {
        Ok(_) => panic!("accepted: {file}"),
        Err(error) => steeve_graph::ErrorChain(&error).to_string(),
    }
}

/// Returns a block of a file for a tensor.
pub(crate) fn block(tensor: u32, live: [u64; 2]) -> Value {
    json!({"size": 64, "live": live, "buffer": 0, "offset": 4096, "tensor": {"id": tensor}})
}

/// Puts block 2 on block 1, which ends where it begins, and block 3 out of the way.
pub(crate) fn smuggle_take_over(blocks: &mut [Value]) {
    (blocks[1]["live"], blocks[2]["follows"]) = (json!([1, 3]), json!(1));
    (blocks[2]["buffer"], blocks[2]["offset"]) = (blocks[1]["buffer"].clone(), blocks[1]["offset"].clone());
    blocks[3]["offset"] = json!(4096);
}
