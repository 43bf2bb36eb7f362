//! Where splits start, and what is copied for them.

use super::*;

// Splits and copies.

#[test]
fn a_split_starts_where_the_worker_changes_and_says_why() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8
         a = add x w1; b = neg a; c = add b w2; d = add c w1";
    let setup = PlanningSetup::new(TWO, graph);
    assert_eq!(setup.splits(), "gpu[x: a b] cpu[b: c] gpu[c: d]");
    let causes: Vec<SplitReason> = setup.schedule().splits().iter().map(|split| split.reason).collect();
    assert_eq!(causes, [SplitReason::Start, SplitReason::Worker, SplitReason::Worker]);
}

#[test]
fn a_split_starts_before_a_weight_that_must_be_copied_unless_it_has_been() {
    let graph = "w1 = external f32[8,8] @cpu; w2 = external f32[8,8] @cpu; x = input 8
         a = mul_mat w1 x; b = neg a; c = mul_mat w2 b; d = mul_mat w2 c; e = mul_mat w1 d";
    let setup = PlanningSetup::new("gpu offloads mul_mat; cpu host", graph);
    assert_eq!(setup.splits(), "gpu[w1 x: a b] gpu[w2: c d e]");
    let causes: Vec<SplitReason> = setup.schedule().splits().iter().map(|split| split.reason).collect();
    assert_eq!(causes, [SplitReason::Start, SplitReason::Weight]);
    // What is read in place is not copied, and splits nothing.
    splits("gpu offloads mul_mat reads cpu; cpu host", graph, "gpu[a b c d e]");
}

#[test]
fn both_weights_of_one_node_are_copied_for_one_split() {
    let graph = "w1 = external 8 @cpu; w2 = external 8 @cpu; x = input 8; a = ?F f32[8] x w1 w2; b = ?F f32[8] a w2";
    splits("gpu offloads f; cpu host", graph, "gpu[w1 w2 x: a b]");
}

#[test]
fn a_tensor_is_copied_once_for_a_split_however_often_it_is_read() {
    let graph = "w = external 8; x = input 8; a = ?F f32[8] x w x x; b = add a x; c = add x b";
    splits(TWO, graph, "gpu[x: a b c]");
}

#[test]
fn a_copy_is_used_by_later_splits_in_the_same_memory_until_its_root_is_written() {
    let between = |line: &str| {
        format!(
            "w1 = external 8 @gpu; w2 = external 8 @cpu; k = external 8 @cpu; x = input 8; v = view [4]+0 k; y = input 4
             a = ?F f32[8] w1 x k; b = ?F f32[8] w2 a; {line}; c = ?F f32[8] w1 b x k"
        )
    };
    splits(TWO, &between("d = ?F f32[8] w2 b"), "gpu[k x: a] cpu[a: b d] gpu[b: c]");
    splits(TWO, &between("d = cpy y v"), "gpu[k x: a] cpu[a: b d] gpu[k b: c]");
    // Another worker with the same memory can use it too.
    let graph = "w1 = external 8 @gpu; x = input 8; a = ?F f32[8] w1 x; b = ?G f32[8] w1 x";
    splits("gpu lacks g; npu shares gpu; cpu", graph, "gpu[x: a] npu[b]");
    splits("gpu lacks g; npu reads gpu; cpu", graph, "gpu[x: a] npu[x: b]");
}

#[test]
fn a_planned_root_that_is_written_again_is_copied_again() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8; y = input 4
         a = ?F f32[8] w2 x; b = ?F f32[8] w1 a; v = view [4]+16 a; c = cpy y v; d = ?F f32[8] w1 a";
    splits(TWO, graph, "cpu[a] gpu[a: b] cpu[c] gpu[a: d]");
}

#[test]
fn a_weight_that_was_copied_is_there_for_later_splits() {
    let graph = "w = external 8 @cpu; w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8
         a = ?F f32[8] w x; b = ?G f32[8] w2 a; c = ?F f32[8] w b";
    splits("gpu offloads f; cpu host", graph, "gpu[w x: a] cpu[a: b] gpu[b: c]");
}

#[test]
fn views_of_one_root_that_overlap_or_touch_are_copied_together_once() {
    let graph = |first: &str, second: &str| {
        format!(
            "w = external 8 @gpu; x = input i8[64]; p = view i8[{first} x; q = view i8[{second} x
             a = ?F f32[8] w p; b = ?F f32[8] q p; c = ?F f32[8] b q"
        )
    };
    splits(TWO, &graph("16]+0", "16]+8"), "gpu[x[0..24]: a b c]");
    splits(TWO, &graph("16]+32", "16]+16"), "gpu[x[16..48]: a b c]");
    splits(TWO, &graph("16]+0", "8]+4"), "gpu[x[0..16]: a b c]");
    splits(TWO, &graph("64]+0", "8]+4"), "gpu[x: a b c]");
    // What lies between is not copied.
    splits(TWO, &graph("16]+0", "16]+17"), "gpu[x[0..16] x[17..33]: a b c]");
}

#[test]
fn a_view_with_gaps_is_copied_with_its_gaps_and_keeps_its_strides() {
    let setup = PlanningSetup::new(
        TWO,
        "w = external 2 @gpu; x = input f32[4,4]; v = view [2,4]{4,16,64,64}+4 x; a = ?F f32[2] w v",
    );
    assert_eq!(setup.splits(), "gpu[x[4..60]: a]");
    let schedule = setup.schedule();
    let (graph, copied) = (schedule.graph(), schedule.graph().sources(setup.id("a"))[1].unwrap());
    assert_eq!(graph.tensor(copied).layout, graph.tensor(setup.id("v")).layout);
}

#[test]
fn a_part_of_what_has_been_copied_is_not_copied_again() {
    let graph = "w1 = external 8 @gpu; w2 = external 8 @cpu; x = input i8[64]; q = view i8[8]+40 x
         a = ?F f32[8] w1 x; b = ?F f32[8] w2 a; c = ?F f32[8] w1 b q";
    splits(TWO, graph, "gpu[x: a] cpu[a: b] gpu[b: c]");
}

#[test]
fn what_a_device_reads_where_it_stands_is_not_copied() {
    let graph = "w = external f32[8,8] @gpu; x = input 8; k = external 8 @disk; y = ?F f32[8] w x k";
    splits("gpu; cpu host; memory disk", graph, "gpu[x k: y]");
    splits("gpu reads cpu; cpu host; memory disk", graph, "gpu[k: y]");
    splits("gpu reads cpu disk; cpu host; memory disk", graph, "gpu[y]");
    splits("gpu; cpu shares gpu; memory disk", graph, "gpu[k: y]");
}

#[test]
fn a_result_stands_in_the_memory_of_its_worker_also_if_it_takes_over_a_source_that_stands_elsewhere() {
    judge(over_another_memory(), 1, PlanOptions::default());
}

#[test]
fn a_result_that_the_reuse_of_ggml_puts_into_another_memory_is_refused() {
    for planned in [PlanOptions::default().with_reuse(Reuse::Ggml), PlanOptions::new(GraphStrategy::Ggml)] {
        let mut setup = over_another_memory().with(SchedOptions::new().with_plan(planned));
        assert_eq!(
            setup.reserve().unwrap_err().to_string(),
            "tensor 1 (y): located in the memory of its source, where its readers may not reach it: \
             use Reuse::Extended instead of ggml's reuse"
        );
        // Where no device reads another's memory, no bytes of another are reused.
        judge(PlanningSetup::new("gpu offloads mul_mat; cpu host", WITH_EVERYTHING), 2, planned);
    }
}

/// Returns a graph in which `y` could reuse the bytes of `x`, which the gpu reaches and the npu does not.
fn over_another_memory() -> PlanningSetup {
    let graph = "x = input 8; y = neg x; z = sqr y !output";
    PlanningSetup::new("gpu reads cpu; npu reads gpu; cpu", graph).pin("y@gpu z@npu")
}

#[test]
fn a_copy_says_what_it_is() {
    let graph = "w = external f32[8,8] @cpu; x = input 8; a = mul_mat w x; b = neg a";
    let setup = PlanningSetup::new("gpu offloads mul_mat; cpu host", graph).pin("b@cpu");
    assert_eq!(setup.splits(), "gpu[w x: a] cpu[a: b]");
    let schedule = setup.schedule();
    let [w, x, a] = schedule.copies() else { panic!("{schedule}") };
    let (gpu, cpu) = (setup.worker("gpu"), setup.worker("cpu"));
    assert_eq!((w.from, w.to, w.is_weight, w.is_input, w.size.0), (None, gpu, true, false, 256));
    assert_eq!((x.from, x.to, x.is_weight, x.is_input, x.size.0), (Some(cpu), gpu, false, true, 32));
    assert_eq!((a.from, a.to, a.is_weight, a.is_input, a.size.0), (Some(gpu), cpu, false, false, 32));
    assert_eq!(schedule.copied().0, 320);
    assert_eq!(schedule.graph().name(w.tensors[0]), "w@gpu");
}

#[test]
fn the_copy_of_a_mixture_of_experts_knows_who_asks_if_that_is_known_before_its_split() {
    let setup = |ids: &str, more: &str| {
        let graph = format!(
            "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; {ids}
             y = mul_mat_id w x i; {more}"
        );
        PlanningSetup::new("gpu offloads mul_mat_id mul_mat pick; cpu host", &graph)
    };
    let asks = |setup: &PlanningSetup| {
        let schedule = setup.schedule();
        let weight = schedule.copies().iter().find(|copy| copy.is_weight).unwrap();
        weight.ids.iter().map(|ids| setup.graph.name(*ids)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(asks(&setup("i = input i32[2,3]", "")), "i");
    // Computed before: by the processor, by the same device in another split, or by none.
    assert_eq!(asks(&setup("z = input i32[2,3]; i = cont z", "").pin("i@cpu")), "i");
    assert_eq!(asks(&setup("i = external i32[2,3] @gpu", "")), "i");
    // Computed in the same split: not known when the copy is made. A weight that comes second starts a split of its
    // own.
    assert_eq!(asks(&setup("i = input i32[2,3]", "u = mul_mat_id w x i")), "i");
    assert_eq!(asks(&setup("i = input i32[2,3]; j = input i32[2,3]", "u = mul_mat_id w x j")), "i j");
    // Somebody needs all of it.
    assert_eq!(asks(&setup("i = input i32[2,3]", "u = ?PICK f32[8] w y")), "");
    assert_eq!(asks(&setup("i = input i32[2,3]", "v = view [8,4]+0 w; u = ?PICK f32[8] v y")), "");
    // It is multiplied with, and not asked.
    let graph = "w = external f32[8,2,3] @cpu; e = external f32[8,4,16] @gpu; i = input i32[2,3]; y = mul_mat_id e w i";
    let schedule = PlanningSetup::new("gpu offloads mul_mat_id; cpu host", graph).schedule();
    assert!(schedule.copies().iter().all(|copy| copy.ids.is_empty()) && schedule.copies()[0].is_weight);
    // Experts that are no weight may change.
    let graph = "e = external f32[8,4,16] @cpu; w1 = external 8 @gpu; x = input f32[8,2,3]; i = input i32[2,3]
         y = mul_mat_id e x i; z = ?F f32[8] w1 y";
    let schedule = PlanningSetup::new(TWO, graph).schedule();
    assert!(schedule.copies().iter().all(|copy| copy.ids.is_empty()));
}

#[test]
fn ids_that_are_computed_in_the_split_that_copies_the_experts_are_not_asked() {
    // `y` takes the split of `a` as it is, because the weight is there already.
    let graph = "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; i = input i32[2,3]
         a = mul_mat_id w x i; j = ?PICK i32[2,3] a; y = mul_mat_id w x j";
    let setup = PlanningSetup::new("gpu offloads mul_mat_id; cpu host", graph);
    assert_eq!(setup.splits(), "gpu[w x i: a j y]");
    assert_eq!(setup.schedule().copies()[0].ids, []);
    // Written before, and again in the split.
    let graph = "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; i = external i32[2,3] @gpu; z = input i32[2,3]
         c = cpy z i; y = mul_mat_id w x i; d = cpy z i; u = mul_mat_id w x i";
    let setup = PlanningSetup::new("gpu offloads mul_mat_id; cpu host", graph);
    assert_eq!(setup.splits(), "gpu[z: c] gpu[w x: y d u]");
    assert_eq!(setup.schedule().copies()[1].ids, []);
}

#[test]
fn who_asks_for_experts_lives_until_they_are_copied() {
    let graph = "w = external f32[8,4,16] @cpu; x = input f32[8,2,3]; z = input i32[2,3]; i = cont z
         y = mul_mat_id w x i";
    let setup = PlanningSetup::new("gpu offloads mul_mat_id; cpu host", graph).pin("i@cpu");
    let schedule = setup.schedule();
    let copy = schedule.copies().iter().find(|copy| copy.is_weight).unwrap();
    assert!(schedule.graph().sources(copy.tensors[0]).contains(&Some(setup.id("i"))));
}

// Without limits.

#[test]
fn there_is_no_limit_on_splits() {
    let mut graph = String::from("w1 = external 8 @gpu; w2 = external 8 @cpu; x = input 8\n a0 = add x w1\n");
    for index in 1..5000 {
        graph += &format!("a{index} = add a{} w{}\n", index - 1, 1 + index % 2);
    }
    let setup = PlanningSetup::new(TWO, &graph);
    let schedule = setup.schedule();
    assert_eq!((schedule.splits().len(), schedule.copies().len()), (5000, 5000));
    // However long it is, a node writes over the copy that it reads.
    assert_eq!(setup.required(), [32, 32]);
}

#[test]
fn there_is_no_limit_on_the_copies_of_a_split_and_on_sources() {
    let names: Vec<String> = (0..700).map(|index| format!("x{index}")).collect();
    let inputs: Vec<String> = names.iter().map(|name| format!("{name} = input i8[4]")).collect();
    let graph = format!("{}; w = external 8; y = ?JOIN i8[4] w {}", inputs.join("; "), names.join(" "));
    let setup = PlanningSetup::new(TWO, &graph);
    let schedule = setup.schedule();
    assert_eq!((schedule.splits().len(), schedule.copies().len(), schedule.copied().0), (1, 700, 2800));
    assert_eq!(setup.required(), [2804, 2800]);
}

#[test]
fn there_is_no_limit_on_weights_that_are_copied() {
    let mut graph = String::from("x = input 8\n a0 = neg x\n");
    for index in 1..2000 {
        graph += &format!("w{index} = external f32[8,8] @cpu\n a{index} = mul_mat w{index} a{}\n", index - 1);
    }
    let setup = PlanningSetup::new("gpu offloads mul_mat; cpu host", &graph);
    let splits = setup.schedule().splits().len();
    assert!((1999..=2000).contains(&splits), "{splits}");
    // One weight at a time, its source and its result.
    assert_eq!(setup.required(), [256 + 64, 32]);
}

#[test]
fn there_is_no_limit_on_workers() {
    let devices: Vec<String> = (0..20).map(|index| format!("d{index}")).collect();
    let mut graph = String::from("x = input 8\n a0 = neg x\n");
    for index in 1..100 {
        graph += &format!("w{index} = external 8 @d{}\n a{index} = add a{} w{index}\n", index % 20, index - 1);
    }
    let setup = PlanningSetup::new(&devices.join(";"), &graph);
    assert_eq!(setup.schedule().splits().len(), 99);
    assert!(setup.required()[1..].iter().all(|bytes| (32..=64).contains(bytes)), "{:?}", setup.required());
}

#[test]
fn there_is_no_limit_on_the_writes_into_one_root() {
    let mut graph = String::from("w1 = external 4 @gpu; w2 = external 4 @cpu; k = leaf f32[4,600]; x = input 4\n");
    for index in 0..600 {
        graph += &format!("a{index} = add x w{}; v{index} = view [4]+{} k\n", 1 + index % 2, 16 * index);
        graph += &format!("c{index} = cpy a{index} v{index}\n");
    }
    let schedule = PlanningSetup::new(TWO, &graph).schedule();
    let k = schedule.copies().iter().filter(|copy| schedule.graph().name(copy.root) == "k").count();
    assert_eq!(k, 0, "who writes into a root reaches it");
}
