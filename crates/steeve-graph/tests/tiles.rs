//! Laws of graphs whose chains are done in parts: they are graphs, their plans are right, and what is outside stays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use steeve_graph::fuzz::{Choices, random_graph};
use steeve_graph::{
    AssignedGraph, Bytes, FitError, FitOptions, Id, MemoryId, Op, Order, PlanOptions, Reuse, RowChain, RowChains,
    TileError, Unread, fit, plan_graph, replay, tile,
};
use steeve_plan::fuzz::inputs;

/// Returns chains of a graph, one behind the other, each with a number of parts; all of it chosen.
fn chosen(assigned: &AssignedGraph, unread: Unread, choices: &mut Choices<'_>) -> Vec<(RowChain, u64)> {
    let chains = RowChains::new(assigned, unread);
    let nodes = assigned.graph().nodes().len();
    let mut found: Vec<(RowChain, u64)> = Vec::new();
    for _ in 0..16 {
        let Some(chain) = chains.around(choices.below(nodes.max(1)), choices.below(4)) else { continue };
        let all = chain.nodes();
        let (start, end) = (all.start + choices.below(all.len()), all.end - choices.below(all.len()));
        let Some(chain) = (if choices.once_in(3) { Some(chain) } else { chains.within(&chain, start..end) }) else {
            continue;
        };
        let (nodes, rows) = (chain.nodes(), chain.rows());
        if found.iter().all(|(it, _)| nodes.end <= it.nodes().start || it.nodes().end <= nodes.start) {
            let parts = [1, 2, rows, 1 + choices.below(rows as usize) as u64][choices.below(4)];
            found.push((chain, parts));
        }
    }
    found.sort_by_key(|(chain, _)| chain.nodes().start);
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: inputs(300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tiled_graph_can_be_written_planned_and_replayed(seed: u64, unread in 0..3usize) {
        let mut choices = Choices::from_seed(seed);
        let assigned = random_graph(&mut choices);
        let unread = Unread::ALL[unread];
        let chains = chosen(&assigned, unread, &mut choices);
        let tiled = tile(&assigned, &chains).unwrap();
        let read: AssignedGraph = tiled.to_string().parse().unwrap();
        prop_assert_eq!(&read, &tiled.compact().unwrap());
        for reuse in Reuse::ALL {
            let options = PlanOptions::default().with_reuse(reuse).with_unread(unread);
            let (before, after) = (plan_graph(&assigned, &options), plan_graph(&tiled, &options));
            prop_assert_eq!(before.is_ok(), after.is_ok());
            let Ok(after) = after else { continue };
            if let Err(faults) = replay(&tiled, &after.places()) {
                return Err(TestCaseError::fail(format!("{faults}\n{tiled}")));
            }
        }
    }

    #[test]
    fn what_is_outside_of_chains_stays(seed: u64) {
        let mut choices = Choices::from_seed(seed);
        let assigned = random_graph(&mut choices);
        let chains = chosen(&assigned, Unread::default(), &mut choices);
        let tiled = tile(&assigned, &chains).unwrap();
        let (graph, after) = (assigned.graph(), tiled.graph());
        prop_assert_eq!(graph.leafs(), after.leafs());
        let inside = |at: usize| chains.iter().any(|(chain, _)| chain.nodes().contains(&at));
        let outside: Vec<_> = graph.nodes().iter().enumerate().filter(|(at, _)| !inside(*at)).map(|(_, node)| *node).collect();
        let kept: Vec<_> = after.nodes().iter().copied().filter(|node| outside.contains(node)).collect();
        prop_assert_eq!(&kept, &outside);
        for node in outside {
            prop_assert_eq!(graph.tensor(node).layout, after.tensor(node).layout);
            prop_assert_eq!(graph.sources(node), after.sources(node));
            prop_assert_eq!(graph.name(node), after.name(node));
        }
        // Outputs are outputs, each of them once.
        let outputs = |assigned: &AssignedGraph| {
            let listed = assigned.graph().nodes().iter().chain(assigned.graph().leafs());
            let mut outputs: Vec<_> = listed.copied().filter(|id| assigned.graph().tensor(*id).flags.is_output()).collect();
            outputs.sort_unstable();
            outputs
        };
        prop_assert_eq!(outputs(&assigned), outputs(&tiled));
    }

    #[test]
    fn what_fits_is_within_its_capacity(seed: u64, percent in 0..110u64, best_order: bool) {
        let assigned = random_graph(&mut Choices::from_seed(seed));
        let order = if best_order { Order::Best } else { Order::Keep };
        let options = FitOptions::new(PlanOptions::default().with_order(order));
        let Ok(plan) = plan_graph(&assigned, &options.plan) else { return Ok(()) };
        let capacity: Vec<_> =
            plan.memories().iter().map(|it| (it.memory, Bytes(it.plan.peak().get() / 100 * percent))).collect();
        match fit(&assigned, &[], &capacity, &options) {
            Ok(fitted) => {
                for (it, (memory, capacity)) in fitted.plan.memories().iter().zip(&capacity) {
                    prop_assert!(it.memory == *memory && it.plan.peak() <= *capacity);
                }
                prop_assert!(replay(&fitted.graph, &fitted.plan.places()).is_ok());
                prop_assert_eq!(&fitted.graph, fitted.plan.assigned());
                prop_assert!(fitted.plan.order().is_none(), "another order is that of the graph, and a step");
            }
            Err(FitError::TooLarge(error)) => {
                prop_assert!(error.needed > error.capacity && !error.alive.is_empty());
                prop_assert!(replay(&error.smallest.graph, &error.smallest.plan.places()).is_ok());
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

fn graph(text: &str) -> AssignedGraph {
    text.parse().unwrap()
}

const FEED_FORWARD: &str = "
    w = external f32[16,640]; v = external f32[640,16]
    x = input f32[16,80]
    n = rms_norm(1e-5) x
    up = mul_mat w n
    act = silu up
    down = mul_mat v act
    y = add down x
    z = neg y !output";

#[test]
fn a_result_is_written_over_the_rows_of_an_input_that_dies() {
    let assigned = graph(FEED_FORWARD);
    let chains = RowChains::new(&assigned, Unread::default());
    let chain = chains.around(1, 1).unwrap();
    assert_eq!(chain.nodes(), 0..6);
    let chain = chains.within(&chain, 0..5).unwrap();
    assert!(chain.overwrites_input());
    let tiled = tile(&assigned, &[(chain, 8)]).unwrap();
    let y = assigned.graph().nodes()[4];
    assert_eq!(tiled.graph().name(tiled.graph().root(y)), "x");
    assert!(tiled.graph().nodes().iter().all(|node| tiled.graph().tensor(*node).op != Op::Fill));
    // The input, one part of 10 rows of the activations, and one of the norm.
    let plan = plan_graph(&tiled, &PlanOptions::default()).unwrap();
    assert_eq!(plan.peak(), Bytes(4 * (16 * 80 + 640 * 10 + 16 * 10)));
}

#[test]
fn no_part_is_empty_and_all_rows_are_there() {
    for parts in [1, 2, 3, 7, 79, 80] {
        let assigned = graph(FEED_FORWARD);
        let chain = RowChains::new(&assigned, Unread::default()).around(1, 1).unwrap();
        let tiled = tile(&assigned, &[(chain, parts)]).unwrap();
        let up = |node: &&steeve_graph::TensorId| tiled.graph().name(**node).starts_with("up (part");
        let rows: Vec<u64> =
            tiled.graph().nodes().iter().filter(up).map(|node| tiled.graph().tensor(*node).layout.ne()[1]).collect();
        assert_eq!(rows.len() as u64, parts);
        assert!(rows.iter().all(|rows| *rows == 80 / parts || *rows == 80 / parts + 1), "{rows:?}");
        assert_eq!(rows.iter().sum::<u64>(), 80);
    }
}

/// Each of these has a node in the middle that ends a chain: the nodes on its two sides are never in one.
#[test]
fn operations_that_are_not_row_wise_end_a_chain() {
    let ends = [
        "m = ?magic f32[16,8] a",
        "m = unary?WAVE f32[16,8] a",
        "t = transpose a; c = cont t; m = reshape f32[16,8] c",
        "r = reshape f32[32,4] a; s = sum_rows r; m = add a s",
        "m = mul_mat a a",
        "l = group_norm(2,0.1) a; m = l",
        "i = input i64[8]; cache = external f32[16,64]; s = set_rows a i cache; m = neg a",
    ];
    for middle in ends {
        let text =
            format!("x = input f32[16,8]; a = sqr x; {middle}; z = neg m !output").replace("; m = l", "; m = sqr l");
        let Ok(assigned) = text.parse::<AssignedGraph>() else { continue };
        let last = assigned.graph().nodes().len() - 1;
        let chains = RowChains::new(&assigned, Unread::default());
        for dim in 0..4 {
            let chain = chains.around(0, dim);
            assert!(chain.is_none_or(|chain| !chain.nodes().contains(&last) || dim == 0), "{text}, dimension {dim}");
        }
    }
}

#[test]
fn nodes_that_are_built_in_place_are_split_with_their_root() {
    let assigned = graph(
        "
        k = external f16[3,3,4,8]; bias = external f32[1,1,8]
        image = input f32[10,12,4]
        patches = im2col(1,1,1,1,1,1,1,1) f16[36,10,12] k image
        flat = reshape f16[36,120] patches
        rows = reshape f16[36,8] k
        made = mul_mat f32[120,8] flat rows
        wide = reshape f32[10,12,1,8] made
        turned = permute(0,1,3,2) f32[10,12,8]{4,40,480,480} wide
        own = cont f32[10,12,8] turned
        sum = add f32[10,12,8]+0 own bias
        y = silu f32[10,12,8] sum !output",
    );
    let chains = RowChains::new(&assigned, Unread::default());
    let chain = chains.around(0, 2).unwrap();
    assert_eq!((chain.nodes(), chain.rows()), (0..9, 12));
    let tiled = tile(&assigned, &[(chains.within(&chain, 0..8).unwrap(), 5)]).unwrap();
    replay(&tiled, &plan_graph(&tiled, &PlanOptions::default()).unwrap().places()).unwrap();
    for &node in tiled.graph().nodes() {
        tiled.graph().call(node).unwrap_or_else(|error| panic!("{}: {error}", tiled.graph().name(node)));
    }
    let sum = assigned.graph().nodes()[7];
    assert_eq!((assigned.graph().name(sum), tiled.graph().tensor(sum).op), ("sum", Op::View));
}

#[test]
fn wrong_numbers_of_parts_and_foreign_chains_are_refused() {
    let assigned = graph(FEED_FORWARD);
    let chain = RowChains::new(&assigned, Unread::default()).around(1, 1).unwrap();
    for parts in [0, 81, u64::MAX] {
        let error = tile(&assigned, &[(chain.clone(), parts)]).unwrap_err();
        assert_eq!(error.to_string(), format!("chain of nodes 0 to 5: number of parts: expected 1 to 80, got {parts}"));
    }
    let twice = tile(&assigned, &[(chain.clone(), 2), (chain.clone(), 2)]).unwrap_err();
    assert_eq!(twice, TileError::Overlap { first: 0, last: 5, next: 0 });
    let other = graph("x = input f32[16,80]; y = sqr x; z = neg y !output");
    assert_eq!(tile(&other, &[(chain, 2)]), Err(TileError::Foreign { first: 0, last: 5 }));
    // The same nodes, and a later one that reads what the chain would overwrite.
    let chains = RowChains::new(&assigned, Unread::default());
    let over = chains.within(&chains.around(1, 1).unwrap(), 0..5).unwrap();
    let later = graph(&format!("{FEED_FORWARD}; u = sqr x !output"));
    assert_eq!(tile(&later, &[(over.clone(), 2)]), Err(TileError::Foreign { first: 0, last: 4 }));
    assert_eq!(
        tile(&graph("x = input 4; y = sqr x; z = sqr y; a = sqr z; b = sqr a; c = sqr b"), &[(over, 2)]),
        Err(TileError::Foreign { first: 0, last: 4 })
    );
}

#[test]
fn fit_says_what_is_in_the_way() {
    let assigned = graph(FEED_FORWARD);
    let error = fit(&assigned, &[], &[(MemoryId::FIRST, Bytes(4000))], &FitOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("memory memory: too small: 4000 bytes available, at least "), "{text}");
    assert!(text.contains("; alive there: x (5120 bytes), "), "{text}");
    let unknown =
        fit(&assigned, &[], &[(MemoryId::from_index(1).unwrap(), Bytes(1))], &FitOptions::default()).unwrap_err();
    assert_eq!(unknown.to_string(), "memory 1: unknown: expected one of 1 memories that share no other's bytes");
}

#[test]
fn graphs_beside_stay_as_they_are_and_share_the_buffers() {
    let assigned = graph(FEED_FORWARD);
    let token = graph("x = input f32[1000]; y = sqr x; z = concat(0) y y; u = neg z !output");
    let capacity = |bytes| [(MemoryId::FIRST, Bytes(bytes))];
    let fitted = fit(&assigned, &[&token], &capacity(40_000), &FitOptions::default()).unwrap();
    assert!(fitted.plan.peak() <= Bytes(40_000));
    assert_eq!(fitted.beside[0].assigned(), &token);
    let error = fit(&assigned, &[&token], &capacity(11_000), &FitOptions::default()).unwrap_err();
    assert!(error.to_string().contains(" needed by graph 0 beside it; alive there: "), "{error}");
    assert!(matches!(error, FitError::TooLarge(error) if error.needed == Bytes(12_000) && error.beside == Some(0)));
}

#[test]
fn a_chain_of_a_longer_graph_is_none_here() {
    let assigned = graph(FEED_FORWARD);
    let chain = RowChains::new(&assigned, Unread::default()).around(1, 1).unwrap();
    let lines: Vec<&str> = FEED_FORWARD.lines().collect();
    for end in 3..lines.len() {
        let other = graph(&lines[..end].join("\n"));
        let chains = RowChains::new(&other, Unread::default());
        assert!(chains.within(&chain, 0..6).is_none());
        assert_eq!(chain.split_nodes(other.graph()).count(), 0);
        assert!(matches!(tile(&other, &[(chain.clone(), 2)]), Err(TileError::Foreign { .. })));
    }
}
