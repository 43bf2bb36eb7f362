//! One graph over a GPU and the processor: near what the processor makes of it alone, the same again and again, and no
//! bytes are touched that may still be in use.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;
mod proof;

use std::sync::Arc;
use steeve_testkit::{device_set, language_model, reference, test_devices};

use device_set::{DeviceSet, RunOutcome, alone, fill, outcome, pin_some};
use gpu::{assert_captured, devices};
use language_model::{AttentionForm, ModelGraph, TOKENS, TestModel, drawing, seeing};
use proof::near;
use reference::{Case, CaseBuilder, CaseSize, OpCoverage, random_case, seeds};
use steeve_cpu::{CpuBackend, CpuDevice};
use steeve_cuda::{Capture, CudaDevice};
use steeve_device::Device;
use steeve_graph::{DataType, Op, Unary};
use steeve_runtime::sched::{Offload, SchedError, SchedOptions};
use test_devices::{Random, Tracer};

/// A GPU and the processor, both watched.
fn watched_devices(device: &Arc<CudaDevice>) -> DeviceSet {
    let (tracer, device) = (Tracer::new(), Arc::clone(device) as Arc<dyn Device>);
    let devices = vec![tracer.wrap(&device), tracer.device(CpuDevice::with_threads(1))];
    DeviceSet { tracer, devices, made: Vec::new() }
}

fn options(random: &mut Random) -> SchedOptions {
    let offload = if random.once_in(2) { Offload::Wanted } else { Offload::Never };
    SchedOptions::new().with_offload(offload).with_pipeline_depth(1 + random.index(3))
}

/// Returns whether a small difference can become a large one, or a number is no float at all.
fn jumps(case: &Case) -> bool {
    let graph = &case.graph;
    graph.nodes().iter().any(|node| {
        let tensor = graph.tensor(*node);
        let jumps = [Unary::Step, Unary::Sgn, Unary::Floor, Unary::Ceil, Unary::Round, Unary::Trunc];
        let is_block = |dtype: DataType| dtype.block_len() > 1;
        matches!(tensor.op, Op::Argsort | Op::TopK | Op::Upscale | Op::DiagMaskInf)
            || matches!(tensor.op, Op::Unary(kind) if jumps.contains(&kind))
            || tensor.layout.dtype() == DataType::I32
            || is_block(tensor.layout.dtype())
            || matches!(tensor.op, Op::MulMat | Op::MulMatId)
                && graph.sources(*node)[0].is_some_and(|id| is_block(graph.tensor(id).layout.dtype()))
    })
}

fn prove(device_set: &DeviceSet, case: &Case, seed: u64, tolerance: f32) -> bool {
    let mut random = Random::new(seed);
    let mut scheduler = device_set.scheduler().with_options(options(&mut random));
    let mut bindings = device_set.bind(case, &mut random, true);
    pin_some(&mut scheduler, case, &bindings, &mut random);
    if let Err(error) = scheduler.schedule(&case.graph, &bindings) {
        // A cache may be where no backend can write into it.
        assert!(matches!(error, SchedError::Unsupported { .. }), "seed {seed}: {error}");
        scheduler.reset().unwrap();
        bindings = device_set.bind(case, &mut random, false);
    }
    let fail = |what: String| -> ! { panic!("seed {seed}: {what}\n{}", case.text()) };
    let job = scheduler.alloc(&case.graph, &bindings).unwrap_or_else(|error| fail(error.to_string()));
    let wanted = alone(case, 3);
    for wanted in &wanted {
        fill(case, &job);
        scheduler.compute(&job).unwrap_or_else(|error| fail(format!("{error}, on\n{}", job.schedule())));
        let got: RunOutcome = outcome(case, &job);
        if !jumps(case) {
            near(case, &got.outputs, &wanted.outputs, tolerance)
                .unwrap_or_else(|what| fail(format!("{what}, on\n{}", job.schedule())));
        }
    }
    // Behind itself, without waiting in between.
    for _ in 0..3 {
        scheduler.synchronise().unwrap();
        fill(case, &job);
        scheduler.submit(&job).unwrap_or_else(|error| fail(error.to_string()));
    }
    scheduler.synchronise().unwrap_or_else(|error| fail(error.to_string()));
    let splits = job.schedule().splits().len();
    device_set.assert_ordered(&format!("seed {seed}\n{}\n{}", job.schedule(), case.text()));
    splits > 1
}

#[test]
fn random_graphs_are_near_what_the_processor_makes_of_them() {
    for device in devices() {
        let (cpu, mut census, mut split, count) = (CpuBackend::new(1), OpCoverage::default(), 0, seeds(150));
        let device = Arc::new(device);
        let device_set = watched_devices(&device);
        for seed in 0..count {
            let case = random_case(seed, CaseSize::Small, &cpu, &mut census);
            split += usize::from(prove(&device_set, &case, seed, 2e-2));
        }
        println!("{split} of {count} graphs were split");
        assert!(split as u64 * 2 > count, "there is nothing to split");
        assert_captured(&device);
    }
}

#[test]
fn networks_for_pictures_do_the_same_on_both() {
    for device in devices() {
        let device = Arc::new(device);
        let device_set = watched_devices(&device);
        for seed in 0..8 {
            let mut sketch = CaseBuilder::new(5);
            let outputs = seeing(&mut sketch).unwrap();
            prove(&device_set, &sketch.case(&outputs[..1]).unwrap(), seed, 1e-2);
            let mut sketch = CaseBuilder::new(6);
            let output = drawing(&mut sketch).unwrap();
            prove(&device_set, &sketch.case(&[output]).unwrap(), seed, 1e-2);
        }
        assert_captured(&device);
    }
}

#[test]
fn a_language_model_says_the_same_with_its_layers_on_both() {
    for device in devices() {
        // Each of its graphs runs once.
        let device = Arc::new(device.with_capture(Capture::AtOnce));
        let device_set = watched_devices(&device);
        for (attention, seed) in
            [AttentionForm::Flash, AttentionForm::Plain].into_iter().flat_map(|it| [(it, 0), (it, 1), (it, 2)])
        {
            let mut random = Random::new(seed);
            let mut model = TestModel::new(attention).unwrap();
            let mut scheduler = device_set.scheduler().with_options(options(&mut random));
            let (mut bindings, mut past) = (None, 0);
            let mut contents_alone: Option<Vec<(steeve_graph::TensorId, Vec<u8>)>> = None;
            for (index, words) in TOKENS.iter().enumerate() {
                let ModelGraph { context, graph, inputs } = model.step(words, past).unwrap();
                past += words.len() as u64;
                let mut contents = contents_alone.clone().unwrap_or_else(|| model.sketch.contents.clone());
                contents.extend(inputs);
                let case = Case { context, graph, contents };
                let bindings = bindings.get_or_insert_with(|| {
                    let spread = device_set.bind(&case, &mut random, true);
                    let is_fine = scheduler.schedule(&case.graph, &spread).is_ok();
                    if is_fine { spread } else { device_set.bind(&case, &mut random, false) }
                });
                let job = scheduler.alloc(&case.graph, bindings).unwrap();
                fill(&case, &job);
                scheduler.compute(&job).unwrap();
                let wanted = alone(&case, 1).remove(0);
                near(&case, &outcome(&case, &job).outputs, &wanted.outputs, 4e-2).unwrap_or_else(|what| {
                    panic!("{attention:?}, seed {seed}, step {index}: {what}\n{}", job.schedule())
                });
                contents_alone = Some(wanted.externals);
            }
            device_set.assert_ordered(&format!("{attention:?}, seed {seed}"));
        }
        assert_captured(&device);
    }
}
