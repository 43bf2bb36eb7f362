//! Laws of fitting: what costs nothing comes first, what can't help is not tried, and what is written stays small.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::{
    AssignedGraph, Bytes, FitAction, FitError, FitOptions, Fitted, Id, MemoryId, Op, PlanOptions, Reuse, fit,
    plan_graph,
};

fn graph(text: &str) -> AssignedGraph {
    text.parse().unwrap()
}

fn fit_into(
    assigned: &AssignedGraph,
    beside: &[&AssignedGraph],
    bytes: u64,
    options: &FitOptions,
) -> Result<Fitted, FitError> {
    fit(assigned, beside, &[(MemoryId::FIRST, Bytes(bytes))], options)
}

fn parts(fitted: &Fitted) -> Vec<u64> {
    let parts = |step: &steeve_graph::FitStep| match step.action {
        FitAction::Tile { parts, .. } => Some(parts),
        _ => None,
    };
    fitted.steps.iter().filter_map(parts).collect()
}

#[test]
fn an_order_that_fits_is_taken_however_little_it_saves() {
    let assigned = graph(
        "
        x = input f32[64]
        big = repeat f32[4096,250] x
        wide = repeat f32[4096] x
        a = repeat f32[4096] x
        b = sum_rows a
        y = add f32[4096] wide b
        z = add big y !output",
    );
    let own = plan_graph(&assigned, &PlanOptions::default()).unwrap().peak().get();
    let fitted = fit_into(&assigned, &[], own - 8192, &FitOptions::default().with_most_parts(1))
        .map_err(|error| error.to_string())
        .unwrap();
    assert!(matches!(fitted.steps.last().unwrap().action, FitAction::Order { .. }), "{:?}", fitted.steps);
}

#[test]
fn what_packing_adds_is_taken_off_by_tiles() {
    // Never more than 13,000 bytes are alive, but `up` fills a buffer, and `p` and `q` don't fit into one.
    let assigned = graph(
        "
        memory m max=10000
        w = external f32[25,250]; v = external f32[250,25]
        x = input f32[25,10]
        up = mul_mat w x
        down = mul_mat v up
        y = add down x
        p = repeat f32[150,10] y
        q = repeat f32[150,10] y
        r = mul_mat p q
        z = neg r !output",
    );
    let plan = plan_graph(&assigned, &PlanOptions::default()).unwrap();
    let (live, capacity) = (plan.memories()[0].plan.bound().live, 14_000);
    assert!(live < Bytes(capacity) && Bytes(capacity) < plan.peak(), "{live} {}", plan.peak());
    let fitted = fit_into(&assigned, &[], capacity, &FitOptions::default()).map_err(|error| error.to_string()).unwrap();
    assert!(fitted.plan.peak() <= Bytes(capacity) && parts(&fitted).contains(&2), "{:?}", fitted.steps);
}

#[test]
fn a_chain_of_many_rows_is_not_written_row_by_row() {
    let assigned = graph("x = input f32[300000]; a = sqr x; b = mul a x; c = add b a; y = add c x !output");
    let Err(FitError::TooLarge(error)) = fit_into(&assigned, &[], 1000, &FitOptions::default()) else { panic!() };
    let nodes = error.smallest.graph.graph().nodes().len();
    assert!((1000..200_000).contains(&nodes), "{nodes} nodes");
}

#[test]
fn a_graph_is_not_tiled_below_what_the_graphs_beside_it_need() {
    let assigned = graph(
        "w = external f32[16,640]; v = external f32[640,16]; x = input f32[16,80]
        up = mul_mat w x; act = silu up; down = mul_mat v act; y = add down x !output",
    );
    let token = graph("x = input f32[25000]; y = sqr x !output");
    let alone = fit_into(&assigned, &[], 100_000, &FitOptions::default()).unwrap();
    assert_eq!(parts(&alone), [3]);
    let Err(FitError::TooLarge(error)) = fit_into(&assigned, &[&token], 50_000, &FitOptions::default()) else {
        panic!()
    };
    assert_eq!((error.needed, error.beside), (Bytes(100_000), Some(0)));
    assert_eq!(parts(&error.smallest), [3]);
}

#[test]
fn a_memory_has_one_capacity_and_is_one_that_there_is() {
    let assigned = graph("x = input f32[64]; y = sqr x !output");
    let twice = [(MemoryId::FIRST, Bytes(1)), (MemoryId::FIRST, Bytes(1000))];
    let error = fit(&assigned, &[], &twice, &FitOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "memory 0: capacity: expected one, got two");
    let unknown = [(MemoryId::from_index(7).unwrap(), Bytes(1))];
    let error = fit(&assigned, &[], &unknown, &FitOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "memory 7: unknown: expected one of 1 memories that share no other's bytes");
}

#[test]
fn only_results_that_can_be_filled_are_written_beside_inputs() {
    let assigned = graph(
        "x = input i64[64,80]; f = neg i64[64,80] x; wide = concat(0) i64[128,80] f f; g = sum_rows i64[1,80] wide
        y = add i64[64,80] f g; z = ?magic i64[64,80] y !output",
    );
    for reuse in Reuse::ALL {
        let options = FitOptions::new(PlanOptions::default().with_reuse(reuse));
        let Err(FitError::TooLarge(error)) = fit_into(&assigned, &[], 0, &options) else { panic!() };
        let graph = error.smallest.graph.graph();
        assert_eq!(parts(&error.smallest).is_empty(), reuse != Reuse::Extended, "{reuse:?}");
        assert!(graph.nodes().iter().all(|node| graph.tensor(*node).op != Op::Fill), "{reuse:?}");
    }
}

#[test]
fn a_part_does_not_read_a_whole_table_again() {
    let assigned = graph(
        "table = external f32[64,100000]; ids = input i32[80]; v = external f32[64,1024]; w = external f32[1024,64]
        e = get_rows table ids
        up = mul_mat v e
        y = mul_mat w up
        z = neg y !output",
    );
    let fitted = fit_into(&assigned, &[], 100_000, &FitOptions::default()).map_err(|error| error.to_string()).unwrap();
    let again: u64 = fitted.steps.iter().map(|step| step.cost.weights.get()).sum();
    assert!(again > 0 && again < 64 * 100_000 * 4, "{again} bytes: {:?}", fitted.steps);
}
