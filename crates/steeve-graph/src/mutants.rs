//! Faults planted on purpose: the checker must catch every one that does harm.
//!
//! Whether a fault does harm is decided by running the graph on real bytes, once with every root in memory of its own
//! and once at the planned addresses. A node's result depends on every byte it reads, so what was overwritten too early
//! shows in the end. This knows nothing of tags, lifetimes or the checker.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::{Id, IdVec, Strategy, certify, place};

use crate::alias::{AliasRule, alias_in_place};
use crate::fuzz::{Choices, random_graph};
use crate::live_ranges::{LiveRangeId, LiveRanges, PrefixEnds, end_of_run};
use crate::liveness::root_lifetimes;
use crate::{
    AssignedGraph, Graph, GraphError, MemoryId, NodeOrder, Op, ReplayFault, Reuse, TensorId, TensorPlace, TensorPlaces,
    Unread, replay,
};

/// Bytes of every address space.
type AddressSpaces = BTreeMap<(usize, usize), Vec<u8>>;

/// Returns where a root starts: a space and an offset.
fn spot(graph: &Graph, places: Option<&TensorPlaces>, root: TensorId) -> Option<((usize, usize), usize)> {
    let external = graph.tensor(root).external;
    match places {
        Some(places) if !external => {
            let place = places.places[root]?;
            Some(((place.memory.index(), place.buffer.index()), place.offset.0 as usize))
        }
        _ => Some(((usize::MAX, root.index()), 0)),
    }
}

fn bytes<'w>(
    spaces: &'w mut AddressSpaces,
    graph: &Graph,
    places: Option<&TensorPlaces>,
    tensor: TensorId,
) -> Option<&'w mut [u8]> {
    let (space, start) = spot(graph, places, graph.root(tensor))?;
    let start = start + graph.tensors().offset(tensor).0 as usize;
    let end = start + graph.tensor(tensor).nbytes().0 as usize;
    let memory = spaces.entry(space).or_default();
    if memory.len() < end {
        memory.resize(end, 0);
    }
    Some(&mut memory[start..end])
}

/// Runs the graph; what must survive at the end, byte for byte.
fn run(graph: &Graph, places: Option<&TensorPlaces>) -> Vec<Vec<u8>> {
    let mut spaces = AddressSpaces::new();
    let mut filled = vec![false; graph.tensors().len()];
    let roots = graph.leafs().iter().map(|leaf| graph.root(*leaf)).chain(graph.nodes().iter().flat_map(|node| {
        let used = core::iter::once(*node).chain(graph.sources(*node).iter().copied().flatten());
        let given = |root: &TensorId| graph.tensor(*root).external || graph.tensor(*root).flags.is_input();
        used.map(|tensor| graph.root(tensor)).filter(given)
    }));
    for root in roots.collect::<Vec<_>>() {
        if !core::mem::replace(&mut filled[root.index()], true)
            && let Some(bytes) = bytes(&mut spaces, graph, places, root)
        {
            fill(bytes, root.index() as u64 + 1);
        }
    }
    for node in graph.nodes() {
        if graph.tensor(*node).op.writes_nothing() {
            continue;
        }
        let mut hash = node.index() as u64 + 1000;
        for source in graph.sources(*node).iter().copied().flatten() {
            for byte in bytes(&mut spaces, graph, places, source).unwrap_or_default() {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(7);
            }
        }
        match graph.tensors().permitted_overlaps(*node).next() {
            Some((slot, distance)) => {
                let Some(source) = graph.sources(*node)[slot] else { continue };
                run_reading_ahead(&mut spaces, graph, places, (*node, source, distance.0 as usize), hash);
            }
            None => {
                if let Some(bytes) = bytes(&mut spaces, graph, places, *node) {
                    fill(bytes, hash);
                }
            }
        }
    }
    let survivors = survivors(graph);
    survivors.iter().map(|it| bytes(&mut spaces, graph, places, *it).unwrap_or_default().to_vec()).collect()
}

/// Runs a kernel that reads its source once more, as late as its distance allows: each byte right after the last write that
/// can't reach it.
fn run_reading_ahead(
    spaces: &mut AddressSpaces,
    graph: &Graph,
    places: Option<&TensorPlaces>,
    (node, source, distance): (TensorId, TensorId, usize),
    mut hash: u64,
) {
    let count = bytes(spaces, graph, places, node).map_or(0, |bytes| bytes.len());
    for index in 0..count {
        hash = hash.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        if let Some(bytes) = bytes(spaces, graph, places, node) {
            bytes[index] = (hash >> 56) as u8;
        }
        let read = (index + 1).checked_sub(distance);
        if let Some(byte) = read.and_then(|at| bytes(spaces, graph, places, source)?.get(at).copied()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(7);
        }
    }
}

fn fill(bytes: &mut [u8], mut seed: u64) {
    for byte in bytes {
        seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        *byte = (seed >> 56) as u8;
    }
}

/// Returns outputs, and results that no node reads.
fn survivors(graph: &Graph) -> Vec<TensorId> {
    let is_read = |tensor: TensorId| graph.nodes().iter().any(|node| graph.sources(*node).contains(&Some(tensor)));
    let is_viewed = |tensor: TensorId| {
        graph.nodes().iter().any(|node| {
            let it = graph.tensor(*node);
            it.op != Op::None && it.view.is_some_and(|view| view.root == tensor)
        })
    };
    let kept = |tensor: &TensorId| {
        let it = graph.tensor(*tensor);
        let result = if it.is_view() { it.op != Op::None } else { !is_viewed(*tensor) };
        it.flags.is_output() || (result && !is_read(*tensor))
    };
    graph.leafs().iter().chain(graph.nodes()).copied().filter(kept).collect()
}

/// Places live ranges, right or wrong.
fn placed(assigned: &AssignedGraph, live_ranges: &LiveRanges, prefixes: &PrefixEnds) -> Option<TensorPlaces> {
    let mut place_of = vec![None; live_ranges.ranges.len()];
    for problem in live_ranges.problems(assigned, prefixes).ok()? {
        let outcome = place(&problem.problem, &Strategy::Fast).ok()?;
        // The first checker sees nothing wrong: it believes the lifetimes it is given.
        let plan = certify(problem.problem, outcome.placement).ok()?;
        for ((block, at), range) in plan.places().pairs().zip(&problem.ranges) {
            let size = plan.problem().blocks()[block].size;
            place_of[range.index()].get_or_insert(TensorPlace::new(problem.memory, at.buffer, at.offset, size));
        }
    }
    let places: IdVec<TensorId, _> = live_ranges.of_tensor.iter().map(|range| place_of[(*range)?.index()]).collect();
    Some(TensorPlaces {
        places,
        order: None,
        reuse: Reuse::Extended,
        unread: Unread::Keep,
        without_extra_lifetime: Vec::new(),
    })
}

/// Plants a fault. Returns what kind it is, or `None` if there was no place for it.
fn spoil(assigned: &AssignedGraph, live_ranges: &mut LiveRanges, choices: &mut Choices<'_>) -> Option<&'static str> {
    let ids: Vec<_> = live_ranges.ranges.ids().collect();
    let id = *ids.get(choices.below(ids.len()))?;
    if choices.once_in(5) {
        let overlapping = |id: &LiveRangeId| live_ranges.ranges[*id].overlap.is_some_and(|it| it.distance.0 > 0);
        let near: Vec<_> = ids.iter().copied().filter(overlapping).collect();
        let overlap = live_ranges.ranges[*near.get(choices.below(near.len()))?].overlap.as_mut()?;
        overlap.distance.0 -= 1 + choices.below(overlap.distance.0 as usize) as u64;
        return Some("an overlap that is too near");
    }
    let followed = live_ranges.ranges.iter().any(|range| range.alias_of == Some(id));
    let end = end_of_run(assigned);
    let range = &mut live_ranges.ranges[id];
    match choices.below(4) {
        0 if !followed && range.end > range.start + 1 => {
            range.end -= 1;
            Some("a lifetime one too short")
        }
        1 if !followed && range.end == end && range.end > range.start + 1 => {
            range.end = range.start + 1;
            Some("an output or an unread node reused")
        }
        2 if !followed && range.end < end && range.end > range.start + 2 => {
            range.end = range.start + 1;
            Some("a lifetime that ignores later readers and views")
        }
        3 if range.alias_of.is_none() && range.start > 0 => {
            let (memory, size, start) = (range.memory, range.size, range.start);
            let other = ids.iter().copied().filter(|other| {
                let it = &live_ranges.ranges[*other];
                let free = !live_ranges.ranges.iter().any(|range| range.alias_of == Some(*other));
                *other != id && free && it.memory == memory && it.size >= size && it.start < start && start < it.end
            });
            let others: Vec<_> = other.collect();
            let other = *others.get(choices.below(others.len()))?;
            live_ranges.ranges[other].end = start;
            live_ranges.ranges[id].alias_of = Some(other);
            Some("an alias of something that is still needed")
        }
        _ => None,
    }
}

/// Moves a node of a graph behind a later one that has no edge to it: a cache write behind its reader, say.
fn reordered(assigned: &AssignedGraph, choices: &mut Choices<'_>) -> Option<AssignedGraph> {
    let graph = assigned.graph();
    let mut nodes = graph.nodes().to_vec();
    let mut assignment = assigned.assignment().clone();
    let from = choices.below(nodes.len());
    let to = from + 1 + choices.below(6);
    if to >= nodes.len() {
        return None;
    }
    // With an edge it would read bytes that nothing has written, and those may be anything.
    let passed = &nodes[from + 1..=to];
    if passed.iter().any(|later| graph.sources(*later).contains(&Some(nodes[from]))) {
        return None;
    }
    let node = nodes.remove(from);
    nodes.insert(to, node);
    let memory = assignment.nodes.remove(from);
    assignment.nodes.insert(to, memory);
    let graph = graph.with_nodes(nodes);
    AssignedGraph::new(graph, assigned.memories().clone(), assignment, assigned.sizes().clone()).ok()
}

/// The check of node order and the replay share no code, and agree: a graph is out of order if and only if a node
/// reads what nothing has written, whatever the plan.
#[test]
fn a_node_in_front_of_what_it_reads_is_refused_by_the_order_check_and_by_replay() {
    let (mut refused, mut accepted) = (0, 0);
    for seed in 0..1500 {
        let mut choices = Choices::from_seed(seed);
        let assigned = random_graph(&mut choices);
        let places = placed(
            &assigned,
            &alias_in_place(&assigned, AliasRule::None, &root_lifetimes(&assigned, Unread::Keep)).live_ranges,
            &PrefixEnds::default(),
        )
        .unwrap();
        let graph = assigned.graph();
        let mut nodes = graph.nodes().to_vec();
        let (from, to) = (choices.below(nodes.len()), choices.below(nodes.len()));
        if nodes.is_empty() {
            continue;
        }
        let node = nodes.remove(from);
        nodes.insert(to, node);
        let mut parts = graph.clone().into_parts();
        parts.set_nodes(nodes.clone());
        let refusal = parts.finish().err();
        // Of a root that is written later, or of a tensor without bytes, nothing is read.
        let is_empty = |tensor: TensorId| graph.tensor(tensor).nbytes().0 == 0;
        let reads_nothing =
            matches!(&refusal, Some(GraphError::Order(fault)) if fault.slot.is_none() || is_empty(fault.tensor.id));
        let moved = AssignedGraph::from(graph.with_nodes(nodes));
        let unwritten = |fault: &ReplayFault| matches!(fault, ReplayFault::Unwritten { .. });
        let caught = replay(&moved, &places).is_err_and(|faults| faults.list().iter().any(unwritten));
        assert!(caught == refusal.is_some() || reads_nothing, "seed {seed}: {refusal:?}\n{moved}");
        if refusal.is_some() { refused += 1 } else { accepted += 1 }
    }
    assert!(refused > 300 && accepted > 300, "{refused} refused, {accepted} accepted");
}

#[test]
fn every_planted_fault_that_does_harm_is_caught() {
    let mut harmful: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut mutants, mut harmless_caught) = (0, 0);
    for seed in 0..1200 {
        let mut choices = Choices::from_seed(seed);
        let assigned = random_graph(&mut choices);
        let mut right =
            alias_in_place(&assigned, AliasRule::Extended, &root_lifetimes(&assigned, Unread::Keep)).live_ranges;
        let prefixes = right.extend(&assigned);
        let good = placed(&assigned, &right, &prefixes).unwrap();
        let harmless = run(assigned.graph(), None) == run(assigned.graph(), Some(&good));
        assert!(harmless, "seed {seed}: the plan is wrong\n{assigned}");
        for _ in 0..8 {
            let mut live_ranges = right.clone();
            let (kind, graph, places) = if choices.below(5) == 0 {
                let Some(graph) = reordered(&assigned, &mut choices) else { continue };
                ("a node moved past another", graph, good.clone())
            } else {
                let Some(kind) = spoil(&assigned, &mut live_ranges, &mut choices) else { continue };
                let Some(places) = placed(&assigned, &live_ranges, &prefixes) else { continue };
                (kind, assigned.clone(), places)
            };
            mutants += 1;
            let harm = run(graph.graph(), None) != run(graph.graph(), Some(&places));
            let caught = replay(&graph, &places).is_err();
            assert!(caught || !harm, "seed {seed}: {kind} does harm and is not caught\n{graph}");
            harmless_caught += u32::from(caught && !harm);
            if harm {
                *harmful.entry(kind).or_default() += 1;
            }
        }
    }
    std::println!("{mutants} mutants, harmful and caught: {harmful:?}; caught though harmless: {harmless_caught}");
    assert_eq!(harmful.len(), 6, "{harmful:?}");
    assert!(harmful.values().all(|count| *count >= 20), "{harmful:?}");
}

/// Returns places at which every root has a buffer of its own, so that nothing but the order can be wrong.
fn far_apart(assigned: &AssignedGraph) -> TensorPlaces {
    let graph = assigned.graph();
    let place = |(id, tensor): (TensorId, &crate::Tensor)| {
        let buffer = steeve_plan::BufferId::from_index(id.index())?;
        let size = assigned.alloc_size(id, MemoryId::FIRST);
        tensor.is_planned().then(|| TensorPlace::new(MemoryId::FIRST, buffer, steeve_plan::Offset(0), size))
    };
    TensorPlaces {
        places: graph.tensors().pairs().map(place).collect(),
        order: None,
        reuse: Reuse::None,
        unread: Unread::Keep,
        without_extra_lifetime: assigned.owners().collect(),
    }
}

/// Spoils an order: moves a node, or exchanges two.
fn other_order(nodes: usize, choices: &mut Choices<'_>) -> NodeOrder {
    let mut positions: Vec<u32> = (0..nodes as u32).collect();
    for _ in 0..1 + choices.below(3) {
        let (from, to) = (choices.below(nodes), choices.below(nodes));
        match choices.below(3) {
            0 => positions.swap(from, to),
            1 => {
                let near = (from + 1 + choices.below(4)).min(nodes - 1);
                positions[from.min(near)..=near].rotate_left(1);
            }
            _ => {
                let position = positions.remove(from);
                positions.insert(to, position);
            }
        }
    }
    NodeOrder::new(positions).unwrap()
}

#[test]
fn every_order_in_which_a_node_reads_something_else_is_caught() {
    let (mut harmful, mut harmless, mut caught_though_harmless, mut refused) = (0, 0, 0, 0);
    for seed in 0..1500 {
        let mut choices = Choices::from_seed(seed);
        let assigned = random_graph(&mut choices);
        let (graph, places) = (assigned.graph(), far_apart(&assigned));
        if graph.nodes().is_empty() {
            continue;
        }
        let wanted = run(graph, None);
        for _ in 0..6 {
            let order = other_order(graph.nodes().len(), &mut choices);
            let ordered = order.apply_unchecked(&assigned).unwrap();
            let claim = TensorPlaces { order: Some(order.clone()), ..places.clone() };
            let caught = replay(&assigned, &claim).is_err();
            // The survivors are listed in the order of nodes.
            let found = run(ordered.graph(), None);
            let by_id = |graph: &Graph, bytes: &[Vec<u8>]| -> BTreeMap<TensorId, Vec<u8>> {
                survivors(graph).into_iter().zip(bytes.iter().cloned()).collect()
            };
            let harm = by_id(graph, &wanted) != by_id(ordered.graph(), &found);
            assert!(caught || !harm, "seed {seed}: {order:?}\n{assigned}");
            #[cfg(feature = "json")]
            {
                // The check of whole roots, which holds for all graphs that a plan fits, is the stricter one.
                let overtakes = crate::reorder::overtaking(&assigned, &order).is_some();
                assert!(overtakes || !caught, "seed {seed}: {order:?}\n{assigned}");
                refused += u32::from(overtakes && !caught);
            }
            harmful += u32::from(harm);
            harmless += u32::from(!harm);
            caught_though_harmless += u32::from(caught && !harm);
        }
    }
    std::println!(
        "{harmful} harmful and caught, {harmless} harmless, of which {caught_though_harmless} are caught; {refused} refused by whole roots alone"
    );
    assert!(
        harmful > 1000 && harmless > caught_though_harmless + 500,
        "{harmful}, {harmless}, {caught_though_harmless}"
    );
}
