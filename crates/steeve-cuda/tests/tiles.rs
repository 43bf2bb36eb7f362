//! Models with chains in parts, on each GPU there is: each node within tolerance, and the whole near what it makes of them whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;
mod proof;

use gpu::devices;
use proof::{judge_nodes, near, run_whole};
use reference::{Case, CaseBuilder, plan_variants};
use steeve_device::{Backend, Device};
use steeve_graph::{AssignedGraph, tile};
use steeve_testkit::language_model::{AttentionForm, ModelGraph, TOKENS, TestModel, drawing, seeing};
use steeve_testkit::{random_chains::random_chains, reference};

/// The prompts of a model with either attention, and two networks for pictures.
fn cases() -> Vec<Case> {
    let prompt = |attention| {
        let mut model = TestModel::new(attention).unwrap();
        let ModelGraph { context, graph, inputs } = model.step(TOKENS[0], 0).unwrap();
        let mut contents = model.sketch.contents.clone();
        contents.extend(inputs);
        Case { context, graph, contents }
    };
    let mut sketch = CaseBuilder::new(5);
    let outputs = seeing(&mut sketch).unwrap();
    let sees = sketch.case(&outputs).unwrap();
    let mut sketch = CaseBuilder::new(6);
    let output = drawing(&mut sketch).unwrap();
    vec![prompt(AttentionForm::Flash), prompt(AttentionForm::Plain), sees, sketch.case(&[output]).unwrap()]
}

#[test]
fn models_in_parts_say_what_they_say_whole() {
    for device in devices() {
        let backend = device.backend().unwrap();
        let run = |case: &Case, backend: &dyn Backend| {
            run_whole(backend, case, &plan_variants()[3], 2).unwrap().expect("the plan keeps everything").remove(1)
        };
        for case in cases() {
            let whole = run(&case, &*backend);
            for seed in 0..8 {
                let assigned = AssignedGraph::from(case.graph.clone());
                let graph = tile(&assigned, &random_chains(&assigned, seed)).unwrap().into_graph();
                let tiled = Case { context: case.context.clone(), graph, contents: case.contents.clone() };
                judge_nodes(&*backend, &tiled, &mut |node, used| {
                    assert!(used.is_some(), "{} is refused", reference::named(&tiled.graph, node));
                })
                .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
                let mut outputs = run(&tiled, &*backend).outputs;
                // Outputs are listed in the order of nodes, which may be another one.
                let at = |id| whole.outputs.iter().position(|(other, _)| *other == id);
                outputs.sort_by_key(|(id, _)| at(*id));
                near(&case, &whole.outputs, &outputs, 1e-2).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            }
        }
    }
}
