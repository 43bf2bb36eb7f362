//! Small models with everything that large ones have, on each GPU there is: each node within tolerance, and the whole near
//! what the processor makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;
mod proof;

use gpu::{assert_captured, devices};
use language_model::{AttentionForm, ModelGraph, TOKENS, TestModel, drawing, seeing};
use proof::{Outcome, judge_nodes, near, run_whole};
use reference::{Case, CaseBuilder, plan_variants};
use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Device};
use steeve_testkit::{language_model, reference};

/// A prompt and some tokens behind it; external tensors are what the last step has left.
fn talk(attention: AttentionForm, backend: &dyn Backend, judged: bool) -> Vec<(Case, Outcome)> {
    let mut model = TestModel::new(attention).unwrap();
    let (mut past, mut said): (u64, Vec<(Case, Outcome)>) = (0, Vec::new());
    for words in TOKENS {
        let ModelGraph { context, graph, inputs } = model.step(words, past).unwrap();
        past += words.len() as u64;
        let mut contents = model.sketch.contents.clone();
        if let Some((_, outcome)) = said.last() {
            for (id, bytes) in &mut contents {
                if let Some((_, now)) = outcome.externals.iter().find(|(external, _)| external == id) {
                    bytes.clone_from(now);
                }
            }
        }
        contents.extend(inputs);
        let case = Case { context, graph, contents };
        if judged {
            judge_nodes(backend, &case, &mut |node, used| {
                assert!(used.is_some(), "{} is refused", reference::named(&case.graph, node));
            })
            .unwrap_or_else(|what| panic!("{attention:?}: {what}"));
        }
        let mut outcomes =
            run_whole(backend, &case, &plan_variants()[3], 3).unwrap().expect("the plan keeps everything");
        assert!(outcomes.iter().all(|it| *it == outcomes[0]), "a captured run gives something else");
        said.push((case, outcomes.remove(0)));
    }
    said
}

#[test]
fn a_transformer_says_what_it_says_on_the_processor() {
    for device in devices() {
        let (backend, cpu) = (device.backend().unwrap(), CpuBackend::new(2));
        for attention in [AttentionForm::Flash, AttentionForm::Plain] {
            let (here, there) = (talk(attention, &*backend, true), talk(attention, &cpu, false));
            for (step, ((case, here), (_, there))) in here.iter().zip(&there).enumerate() {
                near(case, &here.outputs, &there.outputs, 3e-2)
                    .unwrap_or_else(|what| panic!("{attention:?}, step {step}: {what}"));
            }
        }
        assert_captured(&device);
    }
}

#[test]
fn networks_for_pictures_see_and_draw_the_same() {
    for device in devices() {
        let (backend, cpu) = (device.backend().unwrap(), CpuBackend::new(2));
        let mut sketch = CaseBuilder::new(5);
        let outputs = seeing(&mut sketch).unwrap();
        let sees = sketch.case(&outputs).unwrap();
        let mut sketch = CaseBuilder::new(6);
        let output = drawing(&mut sketch).unwrap();
        let draws = sketch.case(&[output]).unwrap();
        for case in [sees, draws] {
            judge_nodes(&*backend, &case, &mut |node, used| {
                assert!(used.is_some(), "{} is refused", reference::named(&case.graph, node));
            })
            .unwrap_or_else(|what| panic!("{what}"));
            let run = |backend: &dyn Backend| {
                run_whole(backend, &case, &plan_variants()[3], 2).unwrap().expect("the plan keeps everything").remove(1)
            };
            near(&case, &run(&*backend).outputs, &run(&cpu).outputs, 1e-2).unwrap_or_else(|what| panic!("{what}"));
        }
        assert_captured(&device);
    }
}
