//! Random graphs, and the bodies of the fuzz targets. Tests run them for a moment; `cargo fuzz` for as long as it likes.

mod generate;
mod scramble;

pub use generate::random_graph;
pub use scramble::scrambled_graph;

use alloc::string::ToString;

use crate::{
    AssignedGraph, GraphError, GraphParts, GraphPlan, Op, Order, OrderSearch, PlanOptions, Reuse, plan_graph, replay,
};

/// Where random decisions come from: a seed, or the bytes of a fuzzer.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    bytes: Option<&'a [u8]>,
    state: u64,
}

impl<'a> Choices<'a> {
    /// Returns the decisions of a seed: equal ones for equal seeds, on every machine.
    pub fn from_seed(seed: u64) -> Self {
        // The state must not be 0; an odd factor spreads small seeds.
        Self { bytes: None, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// Returns the decisions that the bytes say; the first of all choices once they are used up.
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), state: 0 }
    }

    /// Returns a number below `count`, or 0 if there is none.
    pub fn below(&mut self, count: usize) -> usize {
        let number = match &mut self.bytes {
            Some(bytes) => take(bytes, if count > 256 { 4 } else { 1 }),
            None => self.step(),
        };
        usize::try_from(number % (count.max(1) as u64)).unwrap_or(0)
    }

    /// Returns true once in `times`, on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    /// Returns one of the items; `None` if there are none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.below(items.len())).copied()
    }

    /// Steps xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
    fn step(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }
}

fn take(bytes: &mut &[u8], count: usize) -> u64 {
    let (now, later) = bytes.split_at(count.min(bytes.len()));
    *bytes = later;
    now.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Checks that any text is refused or read, and that what is read survives being written and read again.
///
/// # Panics
///
/// If it does not: that is what a fuzzer looks for.
pub fn text(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let Ok(first) = text.parse::<AssignedGraph>() else { return };
    assert_survives(&first);
    let _ = first.graph().dependencies();
    let _ = first.graph().to_graphviz();
}

/// Checks that writing a graph and reading it again gives the compact graph.
///
/// # Panics
///
/// If it does not.
pub fn assert_survives(graph: &AssignedGraph) {
    let written = graph.to_string();
    let again = written.parse::<AssignedGraph>();
    assert_eq!(again.as_ref().map_err(ToString::to_string), graph.compact().as_ref().map_err(ToString::to_string));
    assert_eq!(again.map(|again| again.to_string()), Ok(written));
}

/// Checks that any file is refused or read, and that what is read survives being written and read again.
///
/// # Panics
///
/// If it does not: that is what a fuzzer looks for.
#[cfg(feature = "json")]
pub fn record(bytes: &[u8]) {
    let Ok(first) = crate::RecordedGraph::from_json_bytes(bytes) else { return };
    let again = crate::RecordedGraph::from_json(&first.to_json());
    assert_eq!(again.map_err(|error| error.to_string()), Ok(first));
}

/// Checks that any parts are refused by [`GraphParts::finish`] exactly if a node would read bytes that nothing has
/// written, or is listed twice. Returns whether they are a graph.
///
/// # Panics
///
/// If a graph gets through that must not, or is refused that need not be.
pub fn order(bytes: &[u8]) -> bool {
    let Some(parts) = scramble::scrambled_parts(&mut Choices::from_bytes(bytes)) else { return false };
    let wrong = is_out_of_order(&parts);
    let graph = parts.clone().finish();
    let by_order = matches!(graph, Err(GraphError::Order(_) | GraphError::ListedTwice { .. }));
    assert_eq!((graph.is_ok(), by_order), (!wrong, wrong), "{graph:?} of {parts:?}");
    graph.is_ok()
}

/// Applies the plain definition of node order in quadratic time: which bytes are there is computed anew for every
/// access.
fn is_out_of_order(parts: &GraphParts) -> bool {
    let tensors = &parts.tensors;
    (0..parts.nodes.len()).any(|position| {
        let (node, before) = (parts.nodes[position], &parts.nodes[..position]);
        let is_there = |root| {
            let it = &tensors[root];
            let (is_leaf, is_node) = (parts.leafs.contains(&root), parts.nodes.contains(&root));
            let is_given = is_leaf || it.flags.is_input() || (it.op == Op::None && !is_node);
            let is_computed = is_node && !it.op.writes_nothing();
            let is_filled = is_node && it.op == Op::None;
            // What a node computes is there when that has run; what a scheduler fills, likewise; all else from the start.
            it.external || (is_given && !is_computed) || ((is_computed || is_filled) && before.contains(&root))
        };
        let is_destination = |slot: usize, source| slot == 1 && source == node && tensors[node].op == Op::Cpy;
        let slots = tensors.sources(node).iter().enumerate().filter_map(|(slot, source)| Some((slot, (*source)?)));
        let reads = slots.filter(|(slot, source)| !is_destination(*slot, *source)).map(|(_, source)| source);
        let writes = tensors[node].view.map(|view| view.root);
        let mut roots = reads.map(|read| tensors.root(read)).chain(writes);
        before.contains(&node) || (!tensors[node].op.writes_nothing() && !roots.all(is_there))
    })
}

/// Checks that any graph has a plan with each reuse, that the plan replays, and that it fits the graph it was made
/// for.
///
/// # Panics
///
/// If it does not: that is what a fuzzer looks for.
pub fn plan(bytes: &[u8]) {
    let mut choices = Choices::from_bytes(bytes);
    let graph = if choices.once_in(2) { random_graph(&mut choices) } else { scrambled_graph(&mut choices) };
    for reuse in [Reuse::Ggml, Reuse::Extended, Reuse::None] {
        match plan_graph(&graph, &PlanOptions::default().with_reuse(reuse)) {
            Ok(plan) => {
                check(&graph, &plan);
                let options = PlanOptions::default().with_reuse(reuse).with_order(Order::Best);
                // A saving of a byte is enough to be tried.
                let search = OrderSearch::default().with_least_saving(0);
                match plan_graph(&graph, &options.with_order_search(search)) {
                    Ok(best) => check_ordered(&graph, &plan, &best),
                    Err(error) => unreachable!("{reuse:?}, another order: {error}\n{graph}"),
                }
            }
            Err(error) => unreachable!("{reuse:?}: {error}\n{graph}"),
        }
    }
}

/// Checks that a plan fits the graph it was made for, and replays.
fn check(graph: &AssignedGraph, plan: &GraphPlan) {
    let reuse = plan.options().reuse;
    assert!(plan.fits(graph).is_ok(), "{reuse:?}: the plan does not fit its own graph\n{graph}");
    let replayed = replay(graph, &plan.places());
    assert!(replayed.is_ok(), "{reuse:?}: {replayed:?}\n{graph}");
}

/// Checks the plan of the best order that is found, beside that of the graph's own.
fn check_ordered(graph: &AssignedGraph, own: &GraphPlan, best: &GraphPlan) {
    check(graph, best);
    for (own, best) in own.memories().iter().zip(best.memories()) {
        assert!(best.plan.peak() <= own.plan.peak(), "{} > {}\n{graph}", best.plan.peak(), own.plan.peak());
    }
    match best.order() {
        None => assert_eq!(own, best, "{graph}"),
        Some(order) => {
            assert!(best.peak() < own.peak() && !order.is_own(), "{order:?}\n{graph}");
            #[cfg(feature = "json")]
            {
                let read = GraphPlan::from_json(&best.to_json(), graph).map_err(|error| error.to_string());
                let (places, order) = (read.as_ref().map(GraphPlan::places), read.as_ref().map(GraphPlan::order));
                assert_eq!((places, order), (Ok(best.places()), Ok(best.order())), "{graph}");
            }
        }
    }
}
