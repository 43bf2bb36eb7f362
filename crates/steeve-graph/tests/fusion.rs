//! What plans keep for backends that fuse nodes: the sources of a group do not share bytes with its result, in prompts as far as
//! the rule says, and in small graphs that run in a prompt's plan at all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use steeve_graph::fuzz::Choices;
use steeve_graph::{
    AssignedGraph, Bytes, Fusion, Graph, GraphPlan, GraphStrategy, Memory, MemoryId, PlanOptions, Reuse, TensorId,
    plan_beside_ggml, plan_graph, replay,
};

/// Feed-forward layers, with experts and without, between other nodes. All shapes follow from the number of tokens.
struct Model {
    text: String,
    /// Each group's kind, its source, and its result.
    groups: Vec<(&'static str, String, String)>,
}

impl Model {
    fn new(seed: u64, tokens: u64) -> Self {
        let mut model = Self { text: String::new(), groups: Vec::new() };
        let mut choices = Choices::from_seed(seed);
        let (width, hidden) = (64 << choices.below(3), 64 << choices.below(4));
        writeln!(model.text, "x0 = input f32[{width},{tokens}]").unwrap();
        let layers = 1 + choices.below(4);
        for layer in 0..layers {
            writeln!(model.text, "n{layer} = rms_norm x{layer}").unwrap();
            if choices.once_in(3) {
                writeln!(model.text, "m{layer} = sqr n{layer}").unwrap();
            } else {
                writeln!(model.text, "m{layer} = rms_norm n{layer}").unwrap();
            }
            match choices.below(3) {
                0 => model.gated(layer, width, hidden, choices.once_in(2)),
                1 => model.experts(layer, width, hidden, tokens, choices.once_in(2)),
                _ => writeln!(model.text, "f{layer} = silu m{layer}").unwrap(),
            }
            writeln!(model.text, "x{} = add x{layer} f{layer}", layer + 1).unwrap();
        }
        writeln!(model.text, "y = neg x{layers} !output").unwrap();
        model
    }

    fn gated(&mut self, layer: usize, width: u64, hidden: u64, biased: bool) {
        let text = &mut self.text;
        for name in ["gate", "up"] {
            writeln!(text, "w{name}{layer} = leaf f32[{width},{hidden}] !external").unwrap();
            writeln!(text, "b{name}{layer} = leaf f32[{hidden}] !external").unwrap();
        }
        writeln!(text, "wdown{layer} = leaf f32[{hidden},{width}] !external").unwrap();
        for name in ["gate", "up"] {
            writeln!(text, "p{name}{layer} = mul_mat w{name}{layer} m{layer}").unwrap();
            if biased {
                writeln!(text, "{name}{layer} = add p{name}{layer} b{name}{layer}").unwrap();
            } else {
                writeln!(text, "{name}{layer} = neg p{name}{layer}").unwrap();
            }
        }
        let (gate, up) = if biased { ("gate", "up") } else { ("pgate", "pup") };
        if !biased {
            // Nothing may come between the products.
            *text = text.replace(&format!("gate{layer} = neg pgate{layer}\n"), "");
            *text = text.replace(&format!("up{layer} = neg pup{layer}\n"), "");
        }
        writeln!(text, "h{layer} = swiglu {gate}{layer} {up}{layer}").unwrap();
        writeln!(text, "f{layer} = mul_mat wdown{layer} h{layer}").unwrap();
        self.groups.push(("gated", format!("m{layer}"), format!("h{layer}")));
    }

    fn experts(&mut self, layer: usize, width: u64, hidden: u64, tokens: u64, normalised: bool) {
        let (experts, used) = (8, 2);
        let text = &mut self.text;
        writeln!(
            text,
            "wr{layer} = leaf f32[{width},{experts}] !external
             we{layer} = leaf f32[{width},{hidden},{experts}] !external
             wf{layer} = leaf f32[{width},{hidden},{experts}] !external
             wg{layer} = leaf f32[{hidden},{width},{experts}] !external
             logits{layer} = mul_mat wr{layer} m{layer}
             probs{layer} = soft_max logits{layer}
             flat{layer} = reshape f32[1,{experts},{tokens}] probs{layer}
             order{layer} = argsort probs{layer}
             ids{layer} = view i32[{used},{tokens}]{{4,{row},{all},{all}}} order{layer}
             chosen{layer} = get_rows flat{layer} ids{layer}",
            row = experts * 4,
            all = experts * 4 * tokens,
        )
        .unwrap();
        let weights = if normalised {
            writeln!(
                text,
                "rows{layer} = reshape f32[{used},{tokens}] chosen{layer}
                 sum{layer} = sum_rows rows{layer}
                 norm{layer} = div rows{layer} sum{layer}
                 weights{layer} = reshape f32[1,{used},{tokens}] norm{layer}"
            )
            .unwrap();
            "norm"
        } else {
            writeln!(text, "weights{layer} = scale chosen{layer}").unwrap();
            "weights"
        };
        let (row, all) = (width * used * 4, width * used * tokens * 4);
        writeln!(
            text,
            "b{layer} = reshape f32[{width},1,{tokens}] m{layer}
             gate{layer} = mul_mat_id we{layer} b{layer} ids{layer}
             up{layer} = mul_mat_id wf{layer} b{layer} ids{layer}
             h{layer} = swiglu gate{layer} up{layer}
             e{layer} = mul_mat_id wg{layer} h{layer} ids{layer}
             p{layer} = mul e{layer} weights{layer}
             first{layer} = view f32[{width},{tokens}]{{4,{row},{all},{all}}} p{layer}
             second{layer} = view f32[{width},{tokens}]{{4,{row},{all},{all}}}+{half} p{layer}
             f{layer} = add first{layer} second{layer}",
            half = width * 4,
        )
        .unwrap();
        self.groups.push(("router", format!("logits{layer}"), format!("{weights}{layer}")));
        self.groups.push(("gated", format!("m{layer}"), format!("h{layer}")));
        self.groups.push(("weighted sum", format!("{weights}{layer}"), format!("f{layer}")));
    }

    fn graph(&self, fusion: Fusion) -> AssignedGraph {
        let graph: Graph = self.text.parse().unwrap_or_else(|error| panic!("{error}\n{}", self.text));
        AssignedGraph::single(graph, Memory { fusion, ..Memory::new("gpu", steeve_graph::Align::new(32).unwrap()) })
    }
}

fn named(graph: &Graph) -> BTreeMap<&str, TensorId> {
    graph.tensors().ids().map(|id| (graph.name(id), id)).collect()
}

/// Returns the bytes of a tensor of `graph` in a plan that fits it.
fn bytes(plan: &GraphPlan, graph: &Graph, tensor: TensorId) -> Range<u64> {
    let root = graph.root(tensor);
    let start = plan.place(root).expect("it is placed").offset.0;
    start..start + graph.tensor(root).nbytes().0
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[test]
fn no_group_overwrites_what_it_reads() {
    let (mut groups, mut overlaps_without, mut smaller) = (BTreeMap::<&str, u32>::new(), 0, 0);
    for seed in 0..600 {
        let prompt = Model::new(seed, 512);
        let assigned = prompt.graph(Fusion::Kept);
        let options = PlanOptions::default().with_reuse(if seed % 2 == 0 { Reuse::Ggml } else { Reuse::Extended });
        let plan = plan_graph(&assigned, &options).unwrap();
        replay(&assigned, &plan.places()).unwrap_or_else(|faults| panic!("seed {seed}: {faults}\n{}", prompt.text));
        let unkept = plan_graph(&prompt.graph(Fusion::Checked), &options).unwrap();
        let saved = plan.to_json();
        for few in [1, 8, 64, 512] {
            let small = Model::new(seed, few).graph(Fusion::Kept);
            replay(&small, &plan.places()).unwrap_or_else(|faults| panic!("seed {seed}, {few} tokens: {faults}"));
            let loaded = GraphPlan::from_json(&saved, &small);
            let loaded = loaded.unwrap_or_else(|error| panic!("seed {seed}, {few} tokens: {error}"));
            assert_eq!(loaded.places(), plan.places(), "seed {seed}, {few} tokens");
        }
        let tokens: Vec<(u64, AssignedGraph)> =
            [1, 4, 8].map(|tokens| (tokens, Model::new(seed, tokens).graph(Fusion::Kept))).into();
        for (kind, source, result) in &prompt.groups {
            *groups.entry(kind).or_default() += 1;
            let graph = assigned.graph();
            let names = named(graph);
            let (source, result) = (names[source.as_str()], names[result.as_str()]);
            let (read, written) = (bytes(&plan, graph, source), bytes(&plan, graph, result));
            let kept = if *kind == "gated" { read.start..read.start + (read.end - read.start) / 64 } else { read };
            assert!(!overlap(&kept, &written), "seed {seed}: {kind} overwrites its source\n{}", prompt.text);
            overlaps_without += u32::from(overlap(&bytes(&unkept, graph, source), &bytes(&unkept, graph, result)));
            // A few tokens in the plan of the prompt: nothing of the source is lost.
            for (tokens, small) in &tokens {
                plan.fits(small).unwrap();
                let (read, written) = (bytes(&plan, small.graph(), source), bytes(&plan, small.graph(), result));
                assert!(!overlap(&read, &written), "seed {seed}: {kind} of {tokens} tokens\n{}", prompt.text);
            }
        }
        smaller += u32::from(plan.peak() <= ggml_peak(&assigned));
    }
    println!("{groups:?}; {overlaps_without} overlap where nothing is kept; {smaller} of 600 not above ggml");
    assert!(groups.len() == 3 && groups.values().all(|count| *count > 100), "{groups:?}");
    assert!(overlaps_without > 100, "{overlaps_without}");
}

fn ggml_peak(assigned: &AssignedGraph) -> Bytes {
    plan_beside_ggml(assigned, &PlanOptions::default()).unwrap().ggml[MemoryId::FIRST]
}

#[test]
fn the_checker_finds_groups_that_overwrite_their_sources() {
    let mut caught = 0;
    for seed in 0..200 {
        let prompt = Model::new(seed, 512);
        let options = PlanOptions::default().with_reuse(Reuse::Ggml);
        let unkept = plan_graph(&prompt.graph(Fusion::Checked), &options).unwrap();
        let kept = prompt.graph(Fusion::Kept);
        let graph = kept.graph();
        let names = named(graph);
        let overwrites = |(kind, source, result): &(&str, String, String)| {
            let (source, result) = (names[source.as_str()], names[result.as_str()]);
            let (read, written) = (bytes(&unkept, graph, source), bytes(&unkept, graph, result));
            let kept = if *kind == "gated" { read.start..read.start + (read.end - read.start) / 64 } else { read };
            overlap(&kept, &written)
        };
        if prompt.groups.iter().any(overwrites) {
            caught += 1;
            assert!(replay(&kept, &unkept.places()).is_err(), "seed {seed}\n{}", prompt.text);
            let mut ignored = unkept.places();
            ignored.without_extra_lifetime.push(MemoryId::FIRST);
            assert!(replay(&kept, &ignored).is_ok(), "seed {seed}");
        }
    }
    assert!(caught > 20, "{caught}");
}

#[test]
fn a_plan_beside_ggml_is_chosen_for_each_memory() {
    // In the first memory the long extra lifetime costs more than ggml takes; the second has an input that no node
    // reads.
    let text = "
        memory gpu align=32 hold=32
        memory cpu align=32
        spare = input f32[4096] @cpu
        x = input f32[1024] @cpu
        y = sqr x @cpu
        z = concat f32[1024,4] y y @cpu
        a = sqr z @gpu
        b = concat f32[1024,8] a a @gpu
        c = sum_rows b @gpu
        d = concat f32[1,16] c c @gpu
        e = sqr d @gpu !output
    ";
    let graph: AssignedGraph = text.parse().unwrap();
    let beside = plan_beside_ggml(&graph, &PlanOptions::default().with_reuse(Reuse::Ggml)).unwrap();
    let [gpu, cpu] = beside.plan.memories() else { panic!("two memories") };
    assert!(!gpu.keeps_extra_lifetime && gpu.plan.peak() == beside.ggml[gpu.memory]);
    assert!(
        cpu.keeps_extra_lifetime && cpu.plan.peak() < beside.ggml[cpu.memory],
        "{} {}",
        cpu.plan.peak(),
        beside.ggml[cpu.memory]
    );
    replay(&graph, &beside.plan.places()).unwrap();
    let loaded = GraphPlan::from_json(&beside.plan.to_json(), &graph).unwrap();
    assert_eq!(loaded.places(), beside.plan.places());
}

/// Where ggml frees what is still needed its layout can't be used, but no extra lifetime has to be paid for either.
#[test]
fn a_graph_of_which_ggml_frees_something_early_is_planned_without_the_hold_where_that_is_smaller() {
    let text = |hold: u32| {
        format!(
            "memory m align=32 hold={hold}
             x = input f32[1024]
             a = cont x
             v = view f32[1024] a !output
             b = sqr v
             c = concat f32[1024,4] b b
             d = sum_rows c
             e = concat f32[1,32] d d
             f = concat f32[1024,4] x x !output"
        )
    };
    let peak = |hold: u32| {
        let graph: AssignedGraph = text(hold).parse().unwrap();
        assert!(plan_graph(&graph, &PlanOptions::new(GraphStrategy::Ggml)).is_err(), "ggml frees `a` early");
        let beside = plan_beside_ggml(&graph, &PlanOptions::default().with_reuse(Reuse::Ggml)).unwrap();
        replay(&graph, &beside.plan.places()).unwrap();
        (beside.plan.peak(), beside.plan.memories()[0].keeps_extra_lifetime)
    };
    let held: AssignedGraph = text(32).parse().unwrap();
    let with_hold = plan_graph(&held, &PlanOptions::default().with_reuse(Reuse::Ggml)).unwrap();
    assert!(with_hold.peak() > peak(0).0, "the hold costs something");
    assert_eq!(peak(32), (peak(0).0, false));
}
