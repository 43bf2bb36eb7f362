//! Laws of bytes: what schedules require, what is reserved for them, and what does not fit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod planning_setup;

use planning_setup::PlanningSetup;
use steeve_device::Bytes;
use steeve_graph::Id;
use steeve_runtime::sched::{SchedError, SchedOptions, WorkerId};

/// Two devices with memory of their own.
const TWO: &str = "gpu; cpu host";
/// The first takes over what is worth it.
const OFFLOADING: &str = "gpu offloads f; cpu host";

fn required(devices: &str, graph: &str, expected: &[u64]) {
    assert_eq!(PlanningSetup::new(devices, graph).required(), expected, "{graph}");
}

// What lives how long.

#[test]
fn the_memory_of_a_weight_that_was_copied_is_free_for_the_next_one() {
    let graph = "w1 = external i8[1000] @cpu; w2 = external i8[900] @cpu; w3 = external i8[800] @cpu; x = input i8[10]
         a = ?F i8[10] w1 x; b = ?F i8[10] w2 a; c = ?F i8[10] w3 b";
    // The largest weight, and what is read and written with it.
    required(OFFLOADING, graph, &[1000 + 10 + 10, 10]);
    assert_eq!(PlanningSetup::new(OFFLOADING, graph).splits(), "gpu[w1 x: a] gpu[w2: b] gpu[w3: c]");
    // One that is needed once more stays, because copying it again takes longer than anything else.
    let graph = "w1 = external i8[1000] @cpu; w2 = external i8[900] @cpu; x = input i8[10]
         a = ?F i8[10] w1 x; b = ?F i8[10] w2 a; c = ?F i8[10] w1 b";
    required(OFFLOADING, graph, &[1000 + 900 + 10 + 10, 10]);
}

#[test]
fn a_copy_that_only_one_split_needs_dies_with_it() {
    let graph = "w1 = external i8[1] @gpu; w2 = external i8[1] @cpu; x = input i8[500]; y = input i8[400]
         a = ?F i8[10] w1 x; b = ?F i8[10] w2 a; c = ?F i8[10] w1 b y";
    assert_eq!(PlanningSetup::new(TWO, graph).splits(), "gpu[x: a] cpu[a: b] gpu[y b: c]");
    // 500 and 10 in the first, 400, 10 and 10 in the third: never 900. The processor has both from the start.
    required(TWO, graph, &[510, 900]);
}

#[test]
fn a_copy_that_a_later_split_uses_again_lives_until_then() {
    let graph = |last: &str| {
        format!(
            "w1 = external i8[1] @gpu; w2 = external i8[1] @cpu; x = input i8[500]
             a = ?F i8[10] w1 x; b = ?F i8[10] w2 a; c = ?F i8[700] w1 b; d = ?F i8[10] w1 {last}"
        )
    };
    let again = PlanningSetup::new(TWO, &graph("c x"));
    assert_eq!(again.splits(), "gpu[x: a] cpu[a: b] gpu[b: c d]");
    assert_eq!(again.required()[0], 500 + 700 + 10);
    assert_eq!(PlanningSetup::new(TWO, &graph("c")).required()[0], 710);
}

#[test]
fn what_is_copied_lives_until_the_split_that_needs_it_starts_and_not_longer() {
    let graph = |late: &str| {
        format!(
            "w1 = external i8[1] @gpu; w2 = external i8[1] @cpu
             a = ?F i8[500] w1; b = ?F i8[300] w1; c = ?F i8[10] w2 {late}; d = ?F i8[700] w1 c"
        )
    };
    // While `b` is computed, `a` waits for the processor's split; for `d` its bytes are free.
    let waits = PlanningSetup::new(TWO, &graph("a b"));
    assert_eq!(waits.splits(), "gpu[a b] cpu[a b: c] gpu[c: d]");
    assert_eq!(waits.required(), [800, 500 + 300 + 10]);
}

#[test]
fn a_copy_can_be_written_over_by_who_reads_it_last() {
    let graph = "w = external f32[100] @gpu; x = input 100; a = add x w; b = neg a; c = sqr b";
    required(TWO, graph, &[400, 400]);
}

#[test]
fn views_of_one_root_need_the_bytes_of_one_copy() {
    let graph = "w = external i8[1] @gpu; x = input i8[100]; p = view i8[60]+0 x; q = view i8[60]+40 x
         a = ?F i8[10] w p q; b = ?F i8[10] a x";
    required(TWO, graph, &[100 + 10 + 10, 100]);
}

#[test]
fn what_workers_share_is_counted_for_the_first_of_them() {
    let graph = "w = external i8[1]; x = input i8[100]; a = ?F i8[50] w x; b = ?G i8[50] a";
    let mut setup = PlanningSetup::new("gpu lacks g; npu shares gpu; cpu shares gpu", graph);
    assert_eq!(setup.splits(), "gpu[a] npu[b]");
    assert_eq!(setup.required(), [150, 0, 0]);
    setup.reserve().unwrap();
    assert_eq!(setup.allocated(), [150, 0, 0]);
}

#[test]
fn external_tensors_take_none_of_the_bytes() {
    required(TWO, "w = external i8[1000]; k = external i8[1000] @cpu; y = ?F i8[10] w", &[10, 0]);
}

// Copies in turn.

#[test]
fn copies_in_turn_have_memory_of_their_own_and_inputs_are_kept() {
    let graph = "w = external f32[100] @gpu; x = input 100; a = add x w; b = neg a !output";
    let setup = |turns| PlanningSetup::new(TWO, graph).with(SchedOptions::new().with_pipeline_depth(turns));
    assert_eq!((setup(1).splits().as_str(), setup(1).required()), ("gpu[x: a b]", vec![400, 400]));
    assert_eq!((setup(2).splits().as_str(), setup(2).required()), ("gpu[x#2: a b]", vec![3 * 400, 400]));
    assert_eq!((setup(4).splits().as_str(), setup(4).required()), ("gpu[x#4: a b]", vec![5 * 400, 400]));
    assert_eq!(setup(0).required(), setup(1).required(), "at least one");
    let schedule = setup(4).schedule();
    let (flags, graph) = (schedule.graph().tensor(setup(4).id("x")).flags, schedule.graph());
    assert!(flags.is_input() && flags.is_output(), "nothing is written over an input");
    assert!(schedule.copies()[0].tensors.iter().all(|copy| graph.tensor(*copy).flags.is_output()));
}

#[test]
fn results_that_cross_workers_are_copied_in_turn_too() {
    let graph = "w1 = external i8[1] @gpu; w2 = external i8[1] @cpu; a = ?F i8[100] w1; b = ?F i8[10] w2 a";
    let setup = PlanningSetup::new(TWO, graph).with(SchedOptions::new().with_pipeline_depth(3));
    assert_eq!((setup.splits().as_str(), setup.required()), ("gpu[a] cpu[a#3: b]", vec![100, 310]));
}

#[test]
fn weights_have_one_copy_however_many_turns_there_are() {
    let graph = "w1 = external i8[1000] @cpu; w2 = external i8[900] @cpu; x = input i8[10]
         a = ?F i8[10] w1 x; b = ?F i8[10] w2 a";
    let setup = PlanningSetup::new(OFFLOADING, graph).with(SchedOptions::new().with_pipeline_depth(4));
    assert_eq!(setup.splits(), "gpu[w1 x#4: a] gpu[w2: b]");
    assert_eq!(setup.required(), [1000 + 4 * 10 + 10, 10]);
}

#[test]
fn the_callers_leafs_are_kept_in_turn_and_free_otherwise() {
    let graph = "x = input 100; c = leaf 100; a = add x c; b = neg a !output";
    let setup = |turns| PlanningSetup::new("cpu", graph).with(SchedOptions::new().with_pipeline_depth(turns));
    assert_eq!((setup(1).required(), setup(2).required()), (vec![800], vec![1200]));
}

// Reserving.

#[test]
fn nothing_is_allocated_to_find_out_what_is_required() {
    let setup = PlanningSetup::new(TWO, BIG);
    setup.schedule();
    assert_eq!((setup.required(), setup.asked()), (vec![810, 500], 0));
}

/// The gpu needs 810 bytes when `d` is computed from `c` and the copy of `b`, the processor 500 for `x`.
const BIG: &str = "w1 = external i8[1] @gpu; w2 = external i8[1] @cpu; x = input i8[500]
     a = ?F i8[300] w1 x; b = ?F i8[10] w2 a; c = ?F i8[700] w1 b; d = ?F i8[100] w1 c b !output";
const SMALL: &str = "w1 = external i8[1] @gpu; x = input i8[100]; a = ?F i8[50] w1 x !output";
const CPU_ONLY: &str = "w2 = external i8[1] @cpu; x = input i8[2000]; a = ?F i8[50] w2 x !output";

#[test]
fn what_is_required_is_allocated_and_no_more() {
    let mut setup = PlanningSetup::new(TWO, BIG);
    setup.reserve().unwrap();
    assert_eq!(setup.allocated(), setup.required());
    let asked = setup.asked();
    setup.reserve().unwrap();
    assert_eq!(setup.asked(), asked, "it is there already");
}

#[test]
fn graphs_reserved_together_share_the_buffers_of_the_largest() {
    let mut setup = PlanningSetup::new(TWO, BIG);
    let (small, cpu_only) = (setup.another(SMALL), setup.another(CPU_ONLY));
    let big = (setup.graph.clone(), setup.locations.clone());
    setup.scheduler.reserve_all([&small, &big, &cpu_only].map(|(graph, homes)| (graph, homes))).unwrap();
    assert_eq!(setup.allocated(), [810, 2050]);
    let asked = setup.asked();
    setup.scheduler.reserve(&small.0, &small.1).unwrap();
    setup.scheduler.reserve(&cpu_only.0, &cpu_only.1).unwrap();
    assert_eq!((setup.allocated(), setup.asked()), (vec![810, 2050], asked));
}

#[test]
fn of_graphs_reserved_together_all_are_or_none() {
    let mut setup = PlanningSetup::new("gpu lacks g; cpu lacks g", SMALL);
    let bad = setup.another("x = input 8; y = ?G f32[8] x");
    let good = (setup.graph.clone(), setup.locations.clone());
    let error = setup.scheduler.reserve_all([&good, &bad].map(|(graph, homes)| (graph, homes))).unwrap_err();
    assert!(matches!(error, SchedError::Unsupported { .. }), "{error}");
    assert_eq!((setup.allocated(), setup.asked()), (vec![0, 0], 0));
}

#[test]
fn buffers_grow_and_never_shrink() {
    let mut setup = PlanningSetup::new(TWO, SMALL);
    setup.reserve().unwrap();
    assert_eq!(setup.allocated(), [150, 100]);
    let (graph, homes) = setup.another(BIG);
    setup.scheduler.reserve(&graph, &homes).unwrap();
    setup.reserve().unwrap();
    assert_eq!(setup.allocated(), [810, 500]);
    setup.scheduler.reset().unwrap();
    assert_eq!(setup.allocated(), [810, 500], "buffers stay");
}

// Budgets.

fn budgets(setup: &PlanningSetup, budgets: &[(&str, u64)]) -> SchedOptions {
    let with =
        |options: SchedOptions, (name, bytes): &(&str, u64)| options.with_budget(setup.worker(name), Bytes(*bytes));
    budgets.iter().fold(SchedOptions::new(), with)
}

fn limited(devices: &str, graph: &str, bytes: &[(&str, u64)]) -> PlanningSetup {
    let setup = PlanningSetup::new(devices, graph);
    let options = budgets(&setup, bytes);
    setup.with(options)
}

#[test]
fn what_fits_its_budgets_to_the_byte_is_reserved() {
    let mut setup = limited(TWO, BIG, &[("gpu", 810), ("cpu", 500)]);
    setup.reserve().unwrap();
    assert_eq!(setup.allocated(), [810, 500]);
    assert_eq!(setup.scheduler.options().budget(setup.worker("gpu")), Some(Bytes(810)));
}

#[test]
fn what_does_not_fit_names_the_device_what_it_misses_and_the_tensors_at_its_peak_and_allocates_nothing() {
    let mut setup = limited(TWO, BIG, &[("gpu", 800), ("cpu", 9999)]);
    assert_eq!(
        setup.reserve().unwrap_err().to_string(),
        "gpu: over budget: needs 810 bytes, 800 allowed; live at the peak: tensor 5 (c) with 700 bytes, \
         tensor 6 (d) with 100 bytes, tensor 9 (b@gpu) with 10 bytes"
    );
    assert_eq!((setup.allocated(), setup.asked()), (vec![0, 0], 0));
    // The requirements and the schedule can be queried all the same.
    assert_eq!(setup.required(), [810, 500]);
    assert_eq!(setup.splits(), "gpu[x: a] cpu[a: b] gpu[b: c d]");
}

#[test]
fn each_device_has_a_budget_of_its_own() {
    let error = limited(TWO, BIG, &[("gpu", 810), ("cpu", 490)]).reserve().unwrap_err();
    let SchedError::OverBudget { worker, needed, budget, at_peak } = &error else { panic!("{error}") };
    assert_eq!((worker.as_str(), *needed, *budget), ("cpu", Bytes(500), Bytes(490)));
    let sum: u64 = at_peak.0.iter().map(|(_, size)| size.0).sum();
    assert_eq!(sum, 500, "those at the peak are all of it: {error}");
    limited(TWO, BIG, &[("cpu", 500)]).reserve().unwrap();
}

#[test]
fn the_device_is_named_also_if_its_memory_has_another_name() {
    let graph = "w1 = external i8[1] @vram; x = input i8[100]; a = ?F i8[50] w1 x !output";
    let error = limited("gpu in vram; cpu host in ram", graph, &[("gpu", 100)]).reserve().unwrap_err().to_string();
    assert!(error.contains("gpu: over budget: needs 150 bytes, 100 allowed"), "{error}");
}

#[test]
fn graphs_reserved_together_fit_together_or_none_is_reserved() {
    let mut setup = limited(TWO, BIG, &[("cpu", 2000)]);
    let cpu_only = setup.another(CPU_ONLY);
    let big = (setup.graph.clone(), setup.locations.clone());
    let error = setup.scheduler.reserve_all([&big, &cpu_only].map(|(graph, homes)| (graph, homes))).unwrap_err();
    assert!(error.to_string().starts_with("cpu: over budget: needs 2050 bytes, 2000 allowed"), "{error}");
    assert_eq!((setup.allocated(), setup.asked()), (vec![0, 0], 0));
}

#[test]
fn after_an_error_what_fits_is_reserved() {
    let mut setup = limited(TWO, BIG, &[("gpu", 200)]);
    setup.reserve().unwrap_err();
    let (graph, homes) = setup.another(SMALL);
    setup.scheduler.reserve(&graph, &homes).unwrap();
    assert_eq!(setup.allocated(), [150, 100]);
    setup.reserve().unwrap_err();
    assert_eq!(setup.allocated(), [150, 100], "an error changes nothing");
    let wider = budgets(&setup, &[("gpu", 810)]);
    let mut setup = setup.with(wider);
    setup.reserve().unwrap();
}

#[test]
fn copies_in_turn_count_for_the_budget() {
    let setup = PlanningSetup::new(TWO, SMALL);
    let options = budgets(&setup, &[("gpu", 250)]);
    let mut two = setup.with(options.clone().with_pipeline_depth(2));
    two.reserve().unwrap();
    let error = PlanningSetup::new(TWO, SMALL).with(options.with_pipeline_depth(3)).reserve().unwrap_err();
    assert!(error.to_string().starts_with("gpu: over budget: needs 350 bytes, 250 allowed"), "{error}");
    assert!(error.to_string().contains("(x@gpu#2) with 100 bytes"), "{error}");
}

#[test]
fn a_budget_holds_for_memory_that_workers_share_whoever_of_them_has_it() {
    let graph = "w = external i8[1]; x = input i8[100]; a = ?F i8[50] w x";
    for worker in ["gpu", "npu"] {
        limited("gpu; npu shares gpu; cpu shares gpu", graph, &[(worker, 150)]).reserve().unwrap();
        limited("gpu; npu shares gpu; cpu shares gpu", graph, &[(worker, 149)]).reserve().unwrap_err();
    }
}

#[test]
fn a_budget_for_a_worker_that_is_not_there_is_an_error() {
    let unknown = SchedOptions::new().with_budget(WorkerId::from_index(7).unwrap(), Bytes(1));
    let mut setup = PlanningSetup::new(TWO, SMALL).with(unknown);
    assert_eq!(setup.reserve().unwrap_err(), SchedError::UnknownWorker { index: 7, workers: 2 });
    assert_eq!(setup.asked(), 0);
}
