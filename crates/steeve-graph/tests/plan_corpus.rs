//! Plans of recorded graphs: ggml's to the byte, ours never larger, all of them replayed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recordings;

use recordings::each_graph;
use steeve_graph::{
    AssignedGraph, Best, Budget, Bytes, Fusion, GraphPlan, GraphStrategy, Id, Memory, PlanBesideGgml, PlanOptions,
    RecordedGraph, Reuse, Verdict, ggml_placement, plan_beside_ggml, plan_graph, replay,
};

fn planned(name: &str, recorded: &RecordedGraph, options: PlanOptions) -> GraphPlan {
    let plan = plan_graph(&recorded.assigned, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
    replay(&recorded.assigned, &plan.places()).unwrap_or_else(|faults| panic!("{name}, {options:?}: {faults}"));
    plan.fits(&recorded.assigned).unwrap_or_else(|misfit| panic!("{name}, {options:?}: {misfit}"));
    plan
}

/// Returns ggml's bytes for each memory of a plan.
fn ggml_bytes(recorded: &RecordedGraph, plan: &GraphPlan) -> Vec<u64> {
    let sum = |chunks: &Vec<Bytes>| chunks.iter().map(|chunk| chunk.0).sum();
    plan.memories().iter().map(|it| sum(&recorded.placement.chunks[it.memory])).collect()
}

#[test]
fn the_ggml_strategy_gives_ggmls_answer_to_the_byte() {
    let mut placed = 0;
    let graphs = each_graph(|name, recorded| {
        let answer = ggml_placement(&recorded.assigned).unwrap();
        for (tensor, recorded) in recorded.placement.places.pairs() {
            let Some(wanted) = recorded else { continue };
            let given = answer.places[tensor].unwrap_or_else(|| panic!("{name}: tensor {tensor} has no place"));
            let place = (given.memory, given.place.buffer.index(), given.place.offset);
            assert_eq!(place, (wanted.memory, wanted.chunk as usize, wanted.offset), "{name}: tensor {tensor}");
            placed += u32::from(!name.starts_with("project/"));
        }
        for (memory, chunks) in recorded.placement.chunks.pairs() {
            assert_eq!(&answer.chunks[recorded.assigned.owner(memory)], chunks, "{name}: memory {memory}");
        }
        let plan = planned(name, &recorded, PlanOptions::new(GraphStrategy::Ggml));
        let peaks: Vec<u64> = plan.memories().iter().map(|it| it.plan.peak().0).collect();
        assert_eq!(peaks, ggml_bytes(&recorded, &plan), "{name}");
    });
    println!("corpus: {graphs} graphs as ggml plans them, {placed} tensors");
}

#[test]
fn no_plan_is_above_ggmls_in_any_memory_and_nearly_all_are_at_their_bound() {
    for reuse in [Reuse::Ggml, Reuse::Extended] {
        let (mut memories, mut at_bound) = (0, 0);
        let mut ratios: Vec<(String, f64)> = Vec::new();
        let graphs = each_graph(|name, recorded| {
            let plan = planned(name, &recorded, PlanOptions::new(GraphStrategy::Fast).with_reuse(reuse));
            for (it, ggml) in plan.memories().iter().zip(ggml_bytes(&recorded, &plan)) {
                assert!(it.plan.peak().0 <= ggml, "{name}, memory {}: {} > {ggml}", it.memory, it.plan.peak());
                if ggml == 0 || name.starts_with("project/") {
                    continue;
                }
                ratios.push((name.to_owned(), it.plan.peak().0 as f64 / ggml as f64));
                let limit = recorded.assigned.memories()[it.memory].max_buffer;
                if limit.is_none_or(|limit| limit.0 > ggml) {
                    memories += 1;
                    at_bound += u32::from(it.verdict == Verdict::Optimal);
                }
            }
        });
        let mean = |wanted: &dyn Fn(&str) -> bool| {
            let logs: Vec<f64> = ratios.iter().filter(|it| wanted(&it.0)).map(|it| it.1.ln()).collect();
            (logs.iter().sum::<f64>() / logs.len() as f64).exp()
        };
        let servers = mean(&|name| name.starts_with("llm/") && name.ends_with(".fa1.out1.pp"));
        let real = mean(&|name| !name.starts_with("arch/"));
        println!("corpus: {reuse:?}: {at_bound} of {memories} at the bound, ours over ggml's {servers:.4}, {real:.4}");
        assert!(at_bound * 100 >= memories * 99, "{at_bound} of {memories}");
        if graphs > 500 && reuse == Reuse::Extended {
            assert!(servers <= 0.78, "{servers}");
            assert!(real <= 0.935, "{real}");
        }
    }
}

/// Every memory but the host's fuses nodes: no plan is above ggml's, hardly one falls back to ggml's layout, and in
/// each prompt's plan the gated products of a token are located apart from the activations.
#[test]
fn with_what_fusions_need_no_memory_is_above_ggmls() {
    let (mut memories, mut as_ggml) = (0, 0);
    let mut ratios: Vec<(String, f64)> = Vec::new();
    let graphs = each_graph(|name, recorded| {
        let of_device = |memory: &Memory| {
            let is_host = memory.name.ends_with("_Host");
            Memory { fusion: if is_host { Fusion::None } else { Fusion::Kept }, ..memory.clone() }
        };
        let assigned = &recorded.assigned;
        let devices: Vec<Memory> = assigned.memories().iter().map(of_device).collect();
        let (graph, assignment, sizes) = (assigned.graph(), assigned.assignment(), assigned.sizes());
        let assigned = AssignedGraph::new(graph.clone(), devices, assignment.clone(), sizes.clone()).unwrap();
        let options = PlanOptions::default().with_reuse(Reuse::Ggml);
        let PlanBesideGgml { plan, ggml, .. } = plan_beside_ggml(&assigned, &options).unwrap();
        replay(&assigned, &plan.places()).unwrap_or_else(|faults| panic!("{name}: {faults}"));
        for it in plan.memories() {
            assert!(it.plan.peak() <= ggml[it.memory], "{name}, memory {}: {}", it.memory, it.plan.peak());
            memories += 1;
            as_ggml += u32::from(!it.keeps_extra_lifetime);
        }
        let all = ggml.iter().map(|bytes| bytes.0).sum::<u64>();
        ratios.push((name.to_owned(), plan.peak().0 as f64 / all as f64));
    });
    println!("corpus: {graphs} graphs, {memories} memories, {as_ggml} of them with ggml's layout");
    assert!(as_ggml * 20 <= memories, "{as_ggml} of {memories}");
    for (wanted, most) in [("llama-3.1-8b.gpu1", 0.82), ("qwen3-30b-a3b.gpu1", 0.61), ("deepseek-v3.gpu4pp", 0.87)] {
        let wanted = format!("multi/{wanted}.c4096.fa1.out1.pp");
        for (name, ratio) in ratios.iter().filter(|it| it.0 == wanted) {
            println!("corpus: {name}: {ratio:.4} of ggml's");
            assert!(*ratio <= most, "{name}: {ratio}");
        }
    }
}

#[test]
fn a_search_of_a_second_brings_every_memory_without_a_limit_to_its_bound() {
    each_graph(|name, recorded| {
        let best = GraphStrategy::Best(Best::new(Budget::Nodes(20_000)));
        for reuse in [Reuse::Ggml, Reuse::Extended] {
            let plan = plan_graph(&recorded.assigned, &PlanOptions::new(best).with_reuse(reuse)).unwrap();
            for it in plan.memories() {
                let limited = recorded.assigned.memories()[it.memory].max_buffer.is_some();
                assert!(limited || it.verdict == Verdict::Optimal, "{name}, {reuse:?}, memory {}", it.memory);
            }
        }
    });
}

#[test]
fn a_buffer_limit_costs_little_where_ggml_pays_twice() {
    let mut seen = 0;
    each_graph(|name, recorded| {
        if name.ends_with("multi/llama-3.1-8b.gpu1max1g.c32768.fa0.pp") {
            let plan = planned(name, &recorded, PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::Ggml));
            let (ours, ggml) = (plan.memories()[0].plan.peak().0, ggml_bytes(&recorded, &plan)[0]);
            assert!(ours * 100 <= ggml * 53, "{ours} of {ggml}");
            seen += 1;
        }
    });
    assert!(seen > 0);
}
