//! The laws of orders, on random graphs, by means that share no code with the search: tags on bytes say what each node reads,
//! every two nodes that touch one root are compared, live bytes are those of the planner's live ranges, and all orders of small
//! graphs are tried.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id, IdVec};

use super::listing::listed;
use super::live_bytes::UnitOrder;
use super::model::{OrderModel, UnitId};
use super::{NodeOrder, OrderSearch, best_order};
use crate::alias::{AliasRule, alias_in_place};
use crate::fuzz::{Choices, random_graph, scrambled_graph};
use crate::liveness::root_lifetimes;
use crate::{AssignedGraph, Graph, IntervalMap, MemoryId, Op, PlanOptions, TensorId, Unread};

/// What last wrote the bytes of a range.
type Written = Vec<(u64, u64, Option<TensorId>)>;

/// Returns by node and slot which node wrote what it reads, and which wrote each root last.
fn meaning(graph: &Graph) -> BTreeMap<(TensorId, usize), Written> {
    let mut bytes: BTreeMap<TensorId, IntervalMap<Option<TensorId>>> = BTreeMap::new();
    let mut read = BTreeMap::new();
    let found = |map: Option<&IntervalMap<Option<TensorId>>>, range: core::ops::Range<u64>| -> Written {
        let mut found: Written = Vec::new();
        for (piece, writer) in map.into_iter().flat_map(|map| map.overlapping(range.clone())) {
            match found.last_mut() {
                Some(last) if last.1 == piece.start && last.2 == *writer => last.1 = piece.end,
                _ => found.push((piece.start, piece.end, *writer)),
            }
        }
        found
    };
    let range = |tensor: TensorId| {
        let start = graph.tensors().offset(tensor).0;
        start..start + graph.tensor(tensor).nbytes().0
    };
    for &node in graph.nodes() {
        if graph.tensor(node).op.writes_nothing() && graph.tensor(node).op != Op::None {
            continue;
        }
        for (slot, source) in graph.sources(node).iter().enumerate() {
            let Some(source) = source.filter(|source| *source != node) else { continue };
            read.insert((node, slot), found(bytes.get(&graph.root(source)), range(source)));
        }
        bytes.entry(graph.root(node)).or_default().insert(range(node), Some(node));
    }
    for (root, map) in &bytes {
        read.insert((*root, usize::MAX), found(Some(map), 0..u64::MAX));
    }
    read
}

/// Returns whether two computing nodes must keep their order: both touch a root, and one of them writes it. Written roots
/// outside are one.
fn conflict(graph: &Graph, one: TensorId, other: TensorId) -> bool {
    let is_written = |root: TensorId| {
        graph.nodes().iter().any(|node| graph.root(*node) == root && !graph.tensor(*node).op.writes_nothing())
    };
    let name = |tensor: TensorId| {
        let root = graph.root(tensor);
        if graph.tensor(root).external && is_written(root) { usize::MAX } else { root.index() }
    };
    let touches = |node: TensorId| -> Vec<usize> {
        graph.sources(node).iter().flatten().filter(|source| **source != node).map(|source| name(*source)).collect()
    };
    let (w1, w2) = (name(one), name(other));
    w1 == w2 || touches(one).contains(&w2) || touches(other).contains(&w1)
}

fn computes(graph: &Graph, node: TensorId) -> bool {
    !graph.tensor(node).op.writes_nothing()
}

/// Returns the most bytes that are live at once in each memory, from the planner's live ranges.
fn live_peaks(assigned: &AssignedGraph, unread: Unread) -> BTreeMap<MemoryId, u64> {
    let lives = root_lifetimes(assigned, unread);
    let ranges = alias_in_place(assigned, AliasRule::Extended, &lives).live_ranges.ranges;
    let mut live: BTreeMap<MemoryId, Vec<i128>> = BTreeMap::new();
    let steps = assigned.graph().nodes().len() + 2;
    let padded =
        |memory: MemoryId, size: Bytes| i128::from(assigned.memories()[memory].align.round_up(size).expect("small").0);
    for owner in assigned.owners() {
        live.insert(owner, vec![0; steps]);
    }
    for range in ranges.iter() {
        let live = live.get_mut(&range.memory).expect("an owner");
        let size = padded(range.memory, range.size);
        (range.start..range.end.max(range.start + 1)).for_each(|step| live[step as usize] += size);
        if let Some(overlap) = range.overlap {
            let shared = (size - i128::from(overlap.distance.0)).max(0);
            live[range.start as usize] -= shared.min(padded(range.memory, ranges[overlap.source].size));
        }
    }
    let most = |steps: Vec<i128>| u64::try_from(steps.into_iter().max().unwrap_or(0)).expect("not below nothing");
    live.into_iter().map(|(memory, steps)| (memory, most(steps))).collect()
}

fn some_graph(choices: &mut Choices<'_>) -> AssignedGraph {
    if choices.once_in(4) { scrambled_graph(choices) } else { random_graph(choices) }
}

/// Returns whether a graph only describes results that nodes compute. Of others it is not known when their bytes are needed.
fn is_all_made(graph: &Graph) -> bool {
    let touched = graph.nodes().iter().flat_map(|node| graph.sources(*node).iter().copied().flatten().chain([*node]));
    let is_made = |root: TensorId| {
        let it = graph.tensor(root);
        it.op == Op::None || it.flags.is_input() || graph.leafs().contains(&root) || graph.nodes().contains(&root)
    };
    touched.into_iter().all(|tensor| is_made(graph.root(tensor)))
}

#[test]
fn every_node_reads_what_it_read_before_and_no_memory_needs_more() {
    let (mut moved, mut lower, mut exact, mut unmade) = (0, 0, 0, 0);
    for seed in 0..2500 {
        let mut choices = Choices::from_seed(seed);
        let assigned = some_graph(&mut choices);
        let unread = Unread::ALL[choices.below(3)];
        let options = PlanOptions::default().with_unread(unread);
        let found = best_order(&assigned, &options, &OrderSearch::default());
        assert_eq!(found, best_order(&assigned, &options, &OrderSearch::default()), "seed {seed}");
        let ordered = found.order.apply(&assigned).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{assigned}"));
        let graph = assigned.graph();
        assert_eq!(meaning(graph), meaning(ordered.graph()), "seed {seed}\n{assigned}\n{ordered}");
        let positions = found.order.positions();
        let mut place = vec![0; positions.len()];
        positions.iter().enumerate().for_each(|(at, position)| place[*position as usize] = at);
        for dependency in graph.dependencies() {
            assert!(place[dependency.before] < place[dependency.after], "seed {seed}: {dependency:?}\n{assigned}");
        }
        let nodes = graph.nodes();
        for later in 0..nodes.len() {
            let earlier = (0..later).filter(|one| place[*one] > place[later]);
            for one in earlier.filter(|one| computes(graph, nodes[*one]) && computes(graph, nodes[later])) {
                assert!(!conflict(graph, nodes[one], nodes[later]), "seed {seed}: {one} and {later}\n{assigned}");
                assert_eq!(assigned.assignment().nodes[one], assigned.assignment().nodes[later], "seed {seed}");
            }
        }
        moved += u32::from(!found.order.is_own());
        if !is_all_made(graph) {
            assert!(found.memories.iter().all(|it| it.found <= it.own), "seed {seed}\n{assigned}");
            unmade += 1;
            continue;
        }
        let (own_live, live) = (live_peaks(&assigned, unread), live_peaks(&ordered, unread));
        for it in &found.memories {
            assert!(it.at_least <= it.found && it.found <= it.own, "seed {seed}: {it:?}\n{assigned}");
            // What overlapping results save is only estimated: alignment adds to their sizes, and a source may be written over
            // something larger.
            if graph.nodes().iter().any(|node| graph.tensors().permitted_overlaps(*node).next().is_some()) {
                assert!(it.at_least.0 <= live[&it.memory], "seed {seed}: {it:?}\n{assigned}\n{ordered}");
                continue;
            }
            assert!(live[&it.memory] <= own_live[&it.memory], "seed {seed}: {it:?}\n{assigned}\n{ordered}");
            assert_eq!(it.found.0, live[&it.memory], "seed {seed}: {it:?}\n{assigned}\n{ordered}");
            exact += 1;
            lower += u32::from(it.found < it.own);
        }
    }
    std::println!("{moved} graphs in another order, {lower} memories with less");
    assert!(
        unmade > 10 && moved > 200 && lower > 100 && exact > 1000,
        "{unmade} unmade, {moved} graphs, {lower} memories, {exact} exact"
    );
}

/// Calls `visit` with orders of units that keep what must be kept, at most `most` of them. Returns whether those are all.
fn all_orders(assigned: &AssignedGraph, model: &OrderModel, most: usize, visit: &mut impl FnMut(&UnitOrder)) -> bool {
    let graph = assigned.graph();
    let units: Vec<UnitId> = model.units.ids().collect();
    let node = |unit: UnitId| graph.nodes()[model.units[unit].position];
    let run = |unit: UnitId| model.runs.iter().position(|run| run.contains(&unit.index()));
    let waits: Vec<Vec<bool>> = units
        .iter()
        .map(|one| {
            let before =
                |other: &UnitId| other < one && (run(*one) != run(*other) || conflict(graph, node(*one), node(*other)));
            units.iter().map(before).collect()
        })
        .collect();
    let (mut order, mut visited) = (Vec::new(), 0);
    extend(&units, &waits, &mut order, &mut |order| {
        visited += 1;
        visit(&UnitOrder::new(model, order.to_vec()));
        visited < most
    })
}

fn extend(
    units: &[UnitId],
    waits: &[Vec<bool>],
    order: &mut Vec<UnitId>,
    visit: &mut impl FnMut(&[UnitId]) -> bool,
) -> bool {
    if order.len() == units.len() {
        return visit(order);
    }
    for &unit in units.iter().filter(|unit| !order.contains(unit)).collect::<Vec<_>>() {
        let is_ready = units.iter().all(|other| !waits[unit.index()][other.index()] || order.contains(other));
        if is_ready {
            order.push(unit);
            let goes_on = extend(units, waits, order, visit);
            order.pop();
            if !goes_on {
                return false;
            }
        }
    }
    true
}

#[test]
fn what_no_order_goes_below_is_true_of_all_orders_of_small_graphs() {
    let (mut graphs, mut orders, mut proven, mut reached, mut gains) = (0, 0, 0, 0, 0);
    for seed in 0..6000 {
        let mut choices = Choices::from_seed(seed);
        let assigned = some_graph(&mut choices);
        let unread = Unread::ALL[choices.below(3)];
        let model = OrderModel::new(&assigned, AliasRule::Extended, unread).expect("small");
        if !(3..=9).contains(&model.units.len()) || !is_all_made(assigned.graph()) {
            continue;
        }
        let mut least: BTreeMap<MemoryId, u64> = assigned.owners().map(|memory| (memory, u64::MAX)).collect();
        let mut tried = 0;
        let is_all = all_orders(&assigned, &model, 1500, &mut |order| {
            tried += 1;
            let nodes = NodeOrder::new(listed(&assigned, &model, order)).expect("each node once");
            let ordered = nodes.apply(&assigned).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{assigned}"));
            assert_eq!(meaning(assigned.graph()), meaning(ordered.graph()), "seed {seed}\n{assigned}\n{ordered}");
            for (memory, bytes) in live_peaks(&ordered, unread) {
                least.entry(memory).and_modify(|least| *least = bytes.min(*least));
            }
        });
        let options = PlanOptions::default().with_unread(unread);
        let found = best_order(&assigned, &options, &OrderSearch::default());
        for it in &found.memories {
            assert!(it.at_least.0 <= least[&it.memory], "seed {seed}: {it:?}, {least:?}\n{assigned}");
            // With several memories an order that is better for one may be worse for another.
            if is_all && found.memories.len() == 1 {
                reached += u32::from(it.found.0 == least[&it.memory]);
                proven += u32::from(it.is_best());
                gains += u32::from(it.found < it.own);
                graphs += 1;
            }
        }
        orders += tried;
    }
    std::println!("{orders} orders; {graphs} memories: {gains} gain, {reached} at the best order, {proven} proven");
    assert!(graphs > 100 && gains > 10, "{graphs} graphs, {gains} gain");
    assert!(reached * 100 >= graphs * 98, "{reached} of {graphs}");
}

#[test]
fn what_is_made_long_before_it_is_read_is_made_late() {
    // All made first, and read in another order: more than a window has.
    let count = 500;
    let made: String = (0..count).map(|i| format!("a{i} = repeat f32[256] x\n")).collect();
    let read: String =
        (0..count).map(|i| format!("b{i} = sum_rows a{}; c{} = add c{i} b{i}\n", i * 77 % count, i + 1)).collect();
    let assigned: AssignedGraph = format!("x = input 64; c0 = input 1\n{made}{read}").parse().expect("a graph");
    let found = best_order(&assigned, &PlanOptions::default(), &OrderSearch::default());
    let (own, best) = found.peaks();
    assert!(best.0 * 100 < own.0, "{best} of {own}");
}

#[test]
fn the_last_layer_of_many_is_lowered_as_the_first_is() {
    let layer = |i: usize| {
        format!(
            "w{i} = repeat f32[4096] x{i}; a{i} = repeat f32[4096] x{i}; b{i} = sum_rows a{i}
            y{i} = add w{i} b{i}; s{i} = sum_rows y{i}; x{} = add x{i} s{i}\n",
            i + 1
        )
    };
    let text: String = (0..3000).map(layer).collect();
    let assigned: AssignedGraph = format!("x0 = input 64\n{text}").parse().expect("a graph");
    let found = best_order(&assigned, &PlanOptions::default(), &OrderSearch::default());
    let (own, best) = found.peaks();
    assert!(found.is_best() && best.0 * 10 < own.0 * 6, "{best} of {own}");
}

#[test]
fn units_that_wait_for_each_other_are_those_that_touch_one_root() {
    for seed in 0..600 {
        let mut choices = Choices::from_seed(seed);
        let assigned = some_graph(&mut choices);
        let Some(model) = OrderModel::new(&assigned, AliasRule::Extended, Unread::Keep) else { continue };
        let graph = assigned.graph();
        let units: Vec<UnitId> = model.units.ids().collect();
        let node = |unit: UnitId| graph.nodes()[model.units[unit].position];
        // What follows from the edges.
        let mut waits: IdVec<UnitId, Vec<bool>> = units.iter().map(|_| vec![false; units.len()]).collect();
        for &one in &units {
            for &other in model.before(one) {
                assert!(conflict(graph, node(one), node(other)), "seed {seed}: {one} for {other}\n{assigned}");
                let reached = waits[other].clone();
                waits[one].iter_mut().zip(reached).for_each(|(waits, reached)| *waits |= reached);
                waits[one][other.index()] = true;
            }
            for &other in units.iter().take(one.index()) {
                let must = conflict(graph, node(one), node(other))
                    && computes(graph, node(one))
                    && computes(graph, node(other));
                assert!(!must || waits[one][other.index()], "seed {seed}: {one} not for {other}\n{assigned}");
            }
        }
    }
}
