//! Models, small but with everything that large ones have: each the same to the bit in every plan, each value within
//! tolerance of the exact one, and all of it near an evaluation in f64 that has seen nothing but the leafs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use language_model::{AttentionForm, ModelGraph, TestModel, drawing, seeing};
use reference::{
    Case, CaseBuilder, EvalMemory, PlanVariant, RunResult, ThreadedBackends, allocator, bind, contents_of,
    in_another_order, judge_run, judge_whole, plan_variants, prove, run_in, same,
};
use steeve_cpu::CpuBackend;
use steeve_device::Backend;
use steeve_graph::Id;
use steeve_testkit::{language_model, reference};

/// A prompt and some tokens behind it, in one allocator and the same caches.
fn talk(attention: AttentionForm, way: &PlanVariant, backend: &CpuBackend) -> Vec<(Case, RunResult)> {
    let mut model = TestModel::new(attention).unwrap();
    let bound = bind(&model.sketch.context, &model.sketch.contents, &backend.buffer_type());
    let mut allocator = allocator(way, backend);
    let (mut past, mut said): (u64, Vec<(Case, RunResult)>) = (0, Vec::new());
    for words in [&[3, 17, 8, 39, 0, 21, 5][..], &[12], &[30], &[2, 9], &[33]] {
        let ModelGraph { context, graph, inputs } = model.step(words, past).unwrap();
        past += words.len() as u64;
        // External tensors are what the last step has left.
        let mut contents = model.sketch.contents.clone();
        if let Some((_, ran)) = said.last() {
            for (id, bytes) in &mut contents {
                if let Some((_, now)) = ran.externals.iter().find(|(external, _)| external == id) {
                    bytes.clone_from(now);
                }
            }
        }
        contents.extend(inputs);
        let case = Case { context, graph, contents };
        let ran =
            run_in(&case, &mut allocator, &bound, backend).unwrap_or_else(|error| panic!("{}: {error}", way.name));
        said.push((case, ran.unwrap_or_else(|| panic!("{} does not hold", way.name))));
    }
    said
}

fn prove_model(attention: AttentionForm) -> Vec<(Case, RunResult)> {
    let backends = ThreadedBackends::new();
    let [first, others @ ..] = plan_variants();
    let base = talk(attention, &first, &backends.one);
    let (mut whole, fixed) = (EvalMemory::default(), TestModel::new(attention).unwrap().fixed);
    for (index, (case, ran)) in base.iter().enumerate() {
        let fail = |what| -> ! { panic!("step {index}: {what}") };
        judge_run(case, ran, &mut |_, _| {}).unwrap_or_else(|what| fail(what));
        // Its own caches, as they have become in f64.
        if index == 0 {
            whole = contents_of(case);
        }
        whole.truncate(fixed);
        for (id, bytes) in case.contents.iter().filter(|(id, _)| id.index() >= fixed) {
            whole.set_bytes(case.context.tensors(), *id, bytes);
        }
        judge_whole(case, &mut whole, ran, 2e-3).unwrap_or_else(|what| fail(what));
    }
    let ordered = in_another_order();
    for (way, backend) in [(&first, &backends.three), (&ordered, &backends.two)]
        .into_iter()
        .chain(others.iter().map(|way| (way, &backends.two)))
    {
        for (index, ((case, one), (_, other))) in base.iter().zip(&talk(attention, way, backend)).enumerate() {
            same(case, one, other).unwrap_or_else(|what| panic!("{}, step {index}: {what}", way.name));
        }
    }
    base
}

#[test]
fn a_transformer_says_the_same_in_every_plan() {
    let flash = prove_model(AttentionForm::Flash);
    let plain = prove_model(AttentionForm::Plain);
    for ((_, flash), (_, plain)) in flash.iter().zip(&plain) {
        let floats = |ran: &RunResult| -> Vec<f32> {
            ran.outputs[0].1.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        };
        let (flash, plain) = (floats(flash), floats(plain));
        let most = plain.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        // Keys and values are rounded to f16 in both, here and there to the other side.
        for (flash, plain) in flash.iter().zip(&plain) {
            assert!((flash - plain).abs() <= 1e-3 * most, "{flash} and {plain}, of at most {most}");
        }
    }
}

/// Proves one graph, also as a whole.
fn prove_whole(case: &Case, tolerance: f64) {
    let runs = prove(case, &ThreadedBackends::new(), &mut |_, _| {}).unwrap_or_else(|what| panic!("{what}"));
    judge_whole(case, &mut contents_of(case), &runs[0], tolerance).unwrap_or_else(|what| panic!("{what}"));
    let (apart, reused) = (&runs[0], &runs[runs.len() - 1]);
    assert!(apart.take_overs.is_empty() && !reused.take_overs.is_empty() && reused.peak <= apart.peak);
}

#[test]
fn a_convolutional_network_sees_the_same_in_every_plan() {
    let mut sketch = CaseBuilder::new(5);
    let outputs = seeing(&mut sketch).unwrap();
    // The order of the best is undefined, so the whole is judged by the shares alone.
    let case = sketch.case(&outputs[..1]).unwrap();
    prove_whole(&case, 2e-3);
    let mut sketch = CaseBuilder::new(5);
    let outputs = seeing(&mut sketch).unwrap();
    prove(&sketch.case(&outputs).unwrap(), &ThreadedBackends::new(), &mut |_, _| {})
        .unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn a_network_with_long_skips_draws_the_same_in_every_plan() {
    let mut sketch = CaseBuilder::new(6);
    let output = drawing(&mut sketch).unwrap();
    prove_whole(&sketch.case(&[output]).unwrap(), 2e-3);
}
