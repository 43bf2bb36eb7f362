//! Random graphs of all operations, some of whose nodes may be refused, and what goes wrong in a graph.

use steeve_cpu::CpuBackend;
use steeve_graph::DataType;

use crate::frame::on_each_gpu;
use crate::proof::{Where, computing, judge_node, run_node};
use crate::reference::{Case, CaseSize, OpCoverage, Values, contents_of, named, random_case, seeds};

fn prove_seeds(count: u64, size: CaseSize) {
    on_each_gpu(0, |proof| {
        let (cpu, mut census) = (CpuBackend::new(1), OpCoverage::default());
        for seed in 0..count {
            let case = random_case(seed, size, &cpu, &mut census);
            if let Err(what) = proof.prove_supported(&case) {
                panic!("seed {seed}, {size:?}: {what}\n{}", case.text());
            }
        }
    });
}

#[test]
fn every_node_is_right_and_every_plan_gives_the_same_bits() {
    prove_seeds(seeds(400), CaseSize::Small);
}

#[test]
fn so_it_is_with_large_tensors() {
    prove_seeds(seeds(40).min(1000), CaseSize::Large);
}

#[test]
fn a_result_that_covers_a_part_of_a_source_is_right_too() {
    on_each_gpu(0, |proof| {
        let (backend, cpu, mut census, mut tried) = (&*proof.backend, CpuBackend::new(1), OpCoverage::default(), 0);
        for seed in 10_000..10_000 + seeds(150) {
            let case = random_case(seed, CaseSize::Small, &cpu, &mut census);
            let (graph, tensors) = (&case.graph, case.graph.tensors());
            let mut memory = contents_of(&case);
            for node in computing(graph) {
                let supported = backend.supports(graph, node).is_ok() && !tensors[node].is_view();
                for slot in 0..graph.sources(node).len() {
                    if !supported || graph.sources(node)[slot].is_none() {
                        continue;
                    }
                    let fail = |what: String| -> ! {
                        panic!("seed {seed}, beside slot {slot}, {}: {what}\n{}", named(graph, node), case.text())
                    };
                    let made = run_node(backend, graph, node, &memory, Where::Beside(slot));
                    let made = made.unwrap_or_else(|error| fail(error.to_string()));
                    judge_node(tensors, &memory, node, &made).unwrap_or_else(|what| fail(what));
                    tried += 1;
                }
                memory.step(tensors, node);
            }
        }
        assert!(tried > 100, "only {tried} were tried");
    });
}

/// A row that does not exist is an error with a name at the next wait, and everything goes on behind it.
#[test]
fn what_data_shows_to_be_wrong_is_reported_and_over() {
    on_each_gpu(0, |proof| {
        let mut sketch = proof.sketch();
        let rows = sketch.input(DataType::F32, &[8, 4], Values::Within(1.0)).unwrap();
        let ids = sketch.input(DataType::I32, &[3], Values::Same(4.0)).unwrap();
        let taken = sketch.context.get_rows(rows, ids).unwrap();
        sketch.context.set_name(taken, "taken").unwrap();
        let case = sketch.case(&[taken]).unwrap();
        let backend = &*proof.backend;
        let error = run_node(backend, &case.graph, taken, &contents_of(&case), Where::Apart).unwrap_err().to_string();
        assert!(error.contains("taken") && error.contains("no such row: expected an id below 4, got 4"), "{error}");
        backend.synchronise().unwrap();
        let mut right = Case { contents: case.contents.clone(), ..case };
        right.contents[1].1 = [3i32, 0, 3].iter().flat_map(|id| id.to_le_bytes()).collect();
        let made = proof.made(&right, taken);
        judge_node(right.graph.tensors(), &contents_of(&right), taken, &made).unwrap();
    });
}
