//! A graph whose chains are done in parts computes the same, to the bit as long as kernels sum in an order that does not depend
//! on the number of rows. All do but products of floats and attention, where few rows are multiplied in another way than many:
//! these are within the tolerance of every node.
//!
//! Random graphs of all operations, with random chains in random parts, evaluated by the reference and run by the processor.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use steeve_cpu::CpuBackend;
use steeve_graph::{AssignedGraph, Graph, Op, PlanOptions, Reuse, TensorId, plan_graph, replay, tile};
use steeve_testkit::random_chains::random_chains;
use steeve_testkit::reference::{
    Case, CaseSize, OpCoverage, RunResult, contents_of, judge_run, named, plan_variants, random_case, run, seeds,
};

/// What happened in all graphs.
#[derive(Default)]
struct TileTotals {
    graphs: usize,
    chains: usize,
    over_inputs: usize,
    /// Graphs whose results are equal to the bit.
    exact: usize,
    /// How many nodes of each operation were done in parts.
    split: BTreeMap<String, usize>,
}

/// Returns whether the kernel of a node adds up each element in the same order, however many rows there are.
fn sums_alike(graph: &Graph, node: TensorId) -> bool {
    let is_float =
        |slot: usize| graph.sources(node)[slot].is_some_and(|it| !graph.tensor(it).layout.dtype().is_quantised());
    match graph.tensor(node).op {
        Op::MulMat | Op::MulMatId => !is_float(0),
        Op::FlashAttnExt => false,
        _ => true,
    }
}

/// Returns the bytes of all outputs and external tensors, by the reference.
fn evaluated(case: &Case) -> BTreeMap<TensorId, Vec<u8>> {
    let (tensors, mut memory) = (case.graph.tensors(), contents_of(case));
    for node in case.graph.nodes() {
        memory.step(tensors, *node);
    }
    let external = case.graph.leafs().iter().copied().filter(|id| tensors[*id].external);
    let seen = case.outputs().into_iter().chain(external);
    seen.map(|id| (id, memory.bytes(tensors, id))).collect()
}

fn check_same(what: &str, one: &RunResult, other: &RunResult) -> Result<(), String> {
    // Outputs are listed in the order of nodes, which may be another one.
    let sorted = |ran: &RunResult| -> BTreeMap<TensorId, Vec<u8>> { ran.outputs.iter().cloned().collect() };
    let (a, b) = (sorted(one), sorted(other));
    if let Some((id, _)) = a.iter().find(|(id, bytes)| b.get(id) != Some(bytes)) {
        return Err(format!("{what}: output {id} differs"));
    }
    match one.images == other.images && one.externals == other.externals && a.len() == b.len() {
        true => Ok(()),
        false => Err(format!("{what}: external tensors differ")),
    }
}

fn prove_tiles(seed: u64, size: CaseSize, backend: &CpuBackend, totals: &mut TileTotals) -> Result<(), String> {
    let case = random_case(seed, size, backend, &mut OpCoverage::default());
    let assigned = AssignedGraph::from(case.graph.clone());
    let chains = random_chains(&assigned, seed);
    if chains.is_empty() {
        return Ok(());
    }
    let tiled = tile(&assigned, &chains).map_err(|error| error.to_string())?;
    check_graph(&tiled)?;
    let text = tiled.to_string();
    let fail = |what: String| {
        let chains: Vec<_> = chains.iter().map(|(chain, parts)| (chain.nodes(), chain.rows(), *parts)).collect();
        format!("{what}\n{chains:?}\n{}\n{text}", case.text())
    };
    let after = Case { context: case.context.clone(), graph: tiled.into_graph(), contents: case.contents.clone() };
    let (one, other) = (evaluated(&case), evaluated(&after));
    if let Some((id, _)) = one.iter().find(|(id, bytes)| other.get(id) != Some(bytes)) {
        return Err(fail(format!("{}: the reference finds another value", named(&case.graph, *id))));
    }
    let is_exact =
        chains.iter().all(|(chain, _)| chain.split_nodes(&case.graph).all(|node| sums_alike(&case.graph, node)));
    for variant in [plan_variants()[0], plan_variants()[3]] {
        let ran = |case: &Case| run(case, &variant, backend).map_err(fail).map(Option::unwrap);
        let tiled = ran(&after)?;
        judge_run(&after, &tiled, &mut |_, _| {}).map_err(fail)?;
        if is_exact {
            check_same(variant.name, &ran(&case)?, &tiled).map_err(fail)?;
        }
    }
    totals.exact += usize::from(is_exact);
    totals.graphs += 1;
    totals.chains += chains.len();
    for (chain, _) in &chains {
        totals.over_inputs += usize::from(chain.overwrites_input());
        for node in chain.split_nodes(&case.graph) {
            *totals.split.entry(case.graph.tensors().op_title(case.graph.tensor(node).op).into()).or_default() += 1;
        }
    }
    Ok(())
}

/// The graph survives its text, each of its nodes is a call, and its plans are right.
fn check_graph(tiled: &AssignedGraph) -> Result<(), String> {
    let text = tiled.to_string();
    let read: AssignedGraph = text.parse().map_err(|error| format!("{error}\n{text}"))?;
    if read != tiled.compact().map_err(|error| error.to_string())? {
        return Err(format!("the text says another graph\n{text}"));
    }
    let graph: &Graph = read.graph();
    for &node in graph.nodes() {
        graph.call(node).map_err(|error| format!("{}: {error}\n{text}", named(graph, node)))?;
    }
    for reuse in Reuse::ALL {
        let plan = plan_graph(tiled, &PlanOptions::default().with_reuse(reuse)).map_err(|error| error.to_string())?;
        replay(tiled, &plan.places()).map_err(|faults| format!("{faults}\n{text}"))?;
    }
    Ok(())
}

#[test]
fn chains_in_parts_compute_the_same() {
    let (backend, mut totals) = (CpuBackend::new(2), TileTotals::default());
    let count = seeds(400);
    for seed in 0..count {
        if let Err(what) = prove_tiles(seed, CaseSize::Small, &backend, &mut totals) {
            panic!("seed {seed}: {what}");
        }
    }
    let TileTotals { graphs, chains, over_inputs, exact, split } = &totals;
    println!("{graphs} graphs, {exact} of them to the bit, {chains} chains, {over_inputs} over an input\n{split:#?}");
    if count >= 400 {
        assert!(*graphs * 2 > count as usize && *over_inputs > 10, "{graphs} graphs, {over_inputs} over an input");
        for title in
            ["ADD", "MUL_MAT", "MUL_MAT_ID", "ROPE", "SOFT_MAX", "FLASH_ATTN_EXT", "IM2COL", "GET_ROWS", "SWIGLU"]
        {
            assert!(split.contains_key(title), "{title} was never done in parts");
        }
    }
}

#[test]
fn so_do_large_ones() {
    let (backend, mut totals) = (CpuBackend::new(2), TileTotals::default());
    for seed in 0..seeds(20).min(2000) {
        if let Err(what) = prove_tiles(seed, CaseSize::Large, &backend, &mut totals) {
            panic!("seed {seed}: {what}");
        }
    }
    assert!(totals.chains > 10, "{} chains", totals.chains);
}
