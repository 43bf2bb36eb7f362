//! Any graph gives the same bits on several devices as on the processor alone, wherever its tensors are located,
//! whatever operations are missing, and whichever device is quicker; and no stream ever touches bytes that another
//! might still use.
//!
//! `STEEVE_PROOF=10000` asks for more graphs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use device_set::{DeviceFeatures, DeviceSet, RunOutcome, alone, fill, outcome, pin_some};
use language_model::{AttentionForm, ModelGraph, TestModel, drawing, seeing};
use reference::{Case, CaseBuilder, CaseSize, OpCoverage, random_case};
use steeve_cpu::CpuBackend;
use steeve_graph::{Best, Budget, Graph, GraphStrategy, Order, OrderSearch, PlanOptions, Reuse};
use steeve_runtime::sched::{Offload, SchedError, SchedOptions};
use steeve_testkit::{device_set, language_model, reference, test_devices};
use test_devices::Random;

fn seeds(usual: u64) -> u64 {
    std::env::var("STEEVE_PROOF").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// What was tried, so that a test can see that it tried something.
#[derive(Debug, Default)]
struct RunCounts {
    graphs: usize,
    splits: usize,
    copies: usize,
    in_turn: usize,
    moved: usize,
    shared: usize,
    reordered: usize,
}

fn random_options(random: &mut Random) -> SchedOptions {
    let best = GraphStrategy::Best(Best::new(Budget::Nodes(200)));
    let plan = match random.below(4) {
        0 => PlanOptions::default().with_reuse(Reuse::None),
        1 => PlanOptions::new(best),
        _ => PlanOptions::default(),
    };
    let plan = match random.once_in(3) {
        true => plan.with_order(Order::Best).with_order_search(OrderSearch::default().with_least_saving(0)),
        false => plan,
    };
    let offload = if random.once_in(2) { Offload::Wanted } else { Offload::Never };
    SchedOptions::new().with_plan(plan).with_offload(offload).with_pipeline_depth(1 + random.index(3))
}

/// Runs a graph three times on random devices: waiting each time, and without waiting where copies are in turn.
fn prove(case: &Case, seed: u64, features: DeviceFeatures, tally: &mut RunCounts) {
    let mut random = Random::new(seed);
    let count = 1 + random.index(4);
    let device_set = DeviceSet::random(&mut random, count, features);
    let wanted = alone(case, 3);
    let mut scheduler = device_set.scheduler().with_options(random_options(&mut random));
    let mut bindings = device_set.bind(case, &mut random, true);
    pin_some(&mut scheduler, case, &bindings, &mut random);
    if let Err(error) = scheduler.schedule(&case.graph, &bindings) {
        // A cache may be located where no device can write into it.
        assert!(matches!(error, SchedError::Unsupported { .. }), "seed {seed}: {error}");
        tally.moved += 1;
        scheduler.reset().unwrap();
        bindings = device_set.bind(case, &mut random, false);
    }
    let fail = |what: String| -> ! { panic!("seed {seed}: {what}\n{}", case.text()) };
    let job = scheduler.alloc(&case.graph, &bindings).unwrap_or_else(|error| fail(error.to_string()));
    let schedule = job.schedule();
    tally.graphs += 1;
    tally.splits += schedule.splits().len();
    tally.copies += schedule.copies().len();
    let check = |run: usize, got: &RunOutcome| {
        if *got != wanted[run] {
            let other = got.outputs.iter().zip(&wanted[run].outputs).position(|(got, wanted)| got != wanted);
            fail(format!("run {run}: output {other:?} is another one, on\n{schedule}\n{}", schedule.reasons()));
        }
    };
    fill(case, &job);
    scheduler.compute(&job).unwrap_or_else(|error| fail(format!("{error}, on\n{schedule}")));
    check(0, &outcome(case, &job));
    fill(case, &job);
    scheduler.submit(&job).unwrap_or_else(|error| fail(error.to_string()));
    if schedule.pipeline_depth() > 1 && !has_changing_inputs(case) {
        // Behind itself, without waiting: the inputs can be written at once.
        tally.in_turn += 1;
        let again = scheduler.alloc(&case.graph, &bindings).unwrap();
        assert!(again.allocation().is_same(job.allocation()), "seed {seed}: nothing has changed");
        fill(case, &again);
    } else {
        scheduler.synchronise().unwrap();
        check(1, &outcome(case, &job));
        fill(case, &job);
    }
    scheduler.submit(&job).unwrap_or_else(|error| fail(error.to_string()));
    scheduler.synchronise().unwrap_or_else(|error| fail(error.to_string()));
    check(2, &outcome(case, &job));
    tally.shared += usize::from(device_set.made.len() > 1);
    tally.reordered += usize::from(!is_in_order(&case.graph, schedule.graph()));
    device_set.assert_ordered(&format!("seed {seed}\n{schedule}\n{}", case.text()));
}

/// Returns whether the nodes of a graph are in the same order in its schedule.
fn is_in_order(graph: &Graph, scheduled: &Graph) -> bool {
    let own = scheduled.nodes().iter().filter(|node| graph.nodes().contains(node));
    own.eq(graph.nodes())
}

/// Returns whether a node writes into something that the caller writes too: then it can't be written again during a
/// run.
fn has_changing_inputs(case: &Case) -> bool {
    let graph = &case.graph;
    let planned = |id: &&steeve_graph::TensorId| graph.tensor(graph.root(**id)).is_planned();
    let leafs: Vec<_> = graph.leafs().iter().filter(planned).map(|leaf| graph.root(*leaf)).collect();
    let writes = |node: &steeve_graph::TensorId| !graph.tensor(*node).op.writes_nothing();
    graph.nodes().iter().filter(|node| writes(node)).any(|node| leafs.contains(&graph.root(*node)))
}

fn prove_random(seeds: u64, offset: u64, features: DeviceFeatures) -> RunCounts {
    let (backend, mut census, mut tally) = (CpuBackend::new(1), OpCoverage::default(), RunCounts::default());
    for seed in offset..offset + seeds {
        let case = random_case(seed, CaseSize::Small, &backend, &mut census);
        prove(&case, seed, features, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.reordered > 0, "{tally:?}");
    assert!(tally.splits > 2 * tally.graphs && tally.copies > tally.graphs, "there is nothing to split: {tally:?}");
    tally
}

#[test]
fn every_graph_is_the_same_on_devices_that_work_at_once() {
    prove_random(seeds(400), 0, DeviceFeatures { missing: true, threads: false });
}

#[test]
fn every_graph_is_the_same_on_devices_that_lag_behind() {
    let tally = prove_random(seeds(400), 1_000_000, DeviceFeatures { missing: true, threads: true });
    assert!(tally.in_turn > 0, "no pipeline was tried");
}

#[test]
fn a_network_that_sees_sees_the_same() {
    let features = DeviceFeatures { missing: true, threads: true };
    for seed in 0..12 {
        let mut sketch = CaseBuilder::new(5);
        let outputs = seeing(&mut sketch).unwrap();
        prove(&sketch.case(&outputs).unwrap(), seed, features, &mut RunCounts::default());
    }
}

#[test]
fn a_network_that_draws_draws_the_same() {
    let features = DeviceFeatures { missing: true, threads: true };
    for seed in 0..12 {
        let mut sketch = CaseBuilder::new(6);
        let output = drawing(&mut sketch).unwrap();
        prove(&sketch.case(&[output]).unwrap(), seed, features, &mut RunCounts::default());
    }
}

#[test]
fn a_language_model_says_the_same_step_by_step() {
    for attention in [AttentionForm::Flash, AttentionForm::Plain] {
        for seed in 0..8 {
            let mut random = Random::new(seed);
            let count = 1 + random.index(4);
            let device_set =
                DeviceSet::random(&mut random, count, DeviceFeatures { missing: seed % 2 == 1, threads: true });
            let wanted = talk(attention);
            let mut model = TestModel::new(attention).unwrap();
            let mut scheduler = device_set.scheduler().with_options(random_options(&mut random));
            let mut bindings = None;
            let mut past = 0;
            for (index, (words, wanted)) in TOKENS.iter().zip(&wanted).enumerate() {
                let ModelGraph { context, graph, inputs } = model.step(words, past).unwrap();
                past += words.len() as u64;
                let mut contents = model.sketch.contents.clone();
                contents.extend(inputs);
                let case = Case { context, graph, contents };
                // Weights and caches once, wherever they can be.
                let bindings = bindings.get_or_insert_with(|| {
                    let spread = device_set.bind(&case, &mut random, true);
                    let is_fine = scheduler.schedule(&case.graph, &spread).is_ok();
                    if is_fine { spread } else { device_set.bind(&case, &mut random, false) }
                });
                let job = scheduler.alloc(&case.graph, bindings).unwrap();
                fill(&case, &job);
                scheduler.compute(&job).unwrap();
                assert_eq!(
                    &outcome(&case, &job),
                    wanted,
                    "seed {seed}, {attention:?}, step {index}\n{}",
                    job.schedule()
                );
            }
            device_set.assert_ordered(&format!("seed {seed}, {attention:?}"));
        }
    }
}

const TOKENS: [&[i32]; 5] = [&[3, 17, 8, 39, 0, 21, 5], &[12], &[30], &[2, 9], &[33]];

/// Runs the same graph on the processor alone.
fn talk(attention: AttentionForm) -> Vec<RunOutcome> {
    use steeve_device::Backend;
    let mut model = TestModel::new(attention).unwrap();
    let backend = CpuBackend::new(1);
    let bound = reference::bind(&model.sketch.context, &model.sketch.contents, &backend.buffer_type());
    let mut allocator = reference::allocator(&reference::plan_variants()[0], &backend);
    let mut past = 0;
    let say = |words: &&[i32]| {
        let ModelGraph { context, graph, inputs } = model.step(words, past).unwrap();
        past += words.len() as u64;
        let mut contents = model.sketch.contents.clone();
        contents.extend(inputs);
        let case = Case { context, graph, contents };
        let ran = reference::run_in(&case, &mut allocator, &bound, &backend).unwrap().unwrap();
        RunOutcome { outputs: ran.outputs, externals: ran.externals }
    };
    TOKENS.iter().map(say).collect()
}
