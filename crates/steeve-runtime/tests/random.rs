//! Ten thousand random graphs through random sequences of reserve, alloc, grow, shrink, fail and alloc again.
//!
//! After each step the places that tensors really have are replayed, what devices have given out is what the allocator
//! says it has, and older handles give back what was written through them or say that they are stale.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod placed;

use std::sync::Arc;

use graphs::memory;
use placed::Laws;
use steeve_device::{
    Align, Bindings, BufferType, Bytes, DiscreteDevice, HostMemory, Ledger, MemorySpec, NullDevice, Offset,
    SharedBuffer, Usage,
};
use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{
    Assignment, Graph, GraphParts, GraphStrategy, Id, Layout, MemoryId, Order, OrderSearch, PlanOptions, Reuse, Tensor,
    TensorId, Unread, View,
};
use steeve_runtime::{AllocError, AllocOptions, Allocation, GraphAllocator, Replan, SmallGraphs};

const GRAPHS: usize = 10_000;
/// So many graphs share an allocator.
const EACH: usize = 5;

#[test]
fn every_state_of_every_allocator_replays() {
    let mut seen = Seen::default();
    for seed in 0..(GRAPHS / EACH) as u64 {
        let mut choices = Choices::from_seed(seed);
        let mut world = World::new(&mut choices);
        for _ in 0..EACH {
            let graphs = sizes_of(&mut choices, world.memories.len());
            for _ in 0..3 + choices.below(4) {
                world.step(&mut choices, &graphs, &mut seen, seed);
            }
        }
        let ledgers = world.ledgers.clone();
        drop(world);
        assert!(ledgers.into_iter().flatten().all(|ledger| ledger.live() == Bytes(0)), "seed {seed}: a leak");
    }
    println!("{seen:?}");
    // The test is worth something only if all of this happens often.
    let Seen { allocated, grown, failed, unreserved, recovered, kept, stale, padded, chunked, reordered, shared } =
        seen;
    for count in [allocated, grown, failed, unreserved, kept, stale, padded, chunked, reordered, shared] {
        assert!(count > 300, "{seen:?}");
    }
    assert!(recovered > 200, "{seen:?}");
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    allocated: u32,
    grown: u32,
    failed: u32,
    unreserved: u32,
    recovered: u32,
    kept: u32,
    stale: u32,
    padded: u32,
    chunked: u32,
    reordered: u32,
    shared: u32,
}

/// A graph at several sizes, and where it goes.
struct Sizes {
    graphs: Vec<(Graph, Bindings)>,
    assignment: Assignment,
}

struct World {
    memories: Vec<Arc<dyn BufferType>>,
    /// One for each memory that has one; `None` for the second mention of a memory as well.
    ledgers: Vec<Option<Ledger>>,
    faulty: Vec<DiscreteDevice>,
    allocator: GraphAllocator,
    order: Order,
    /// Handles from before, with an input that was written and its contents.
    handles: Vec<(Allocation, TensorId, Vec<u8>)>,
    writes: u8,
}

impl World {
    fn new(choices: &mut Choices<'_>) -> Self {
        let (mut memories, mut ledgers, mut faulty) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..1 + choices.below(3) {
            let spec = spec(choices);
            let (memory, ledger): (Arc<dyn BufferType>, Option<Ledger>) = match choices.below(5) {
                0 if !memories.is_empty() => (Arc::clone(&memories[0]), None),
                1 => (Arc::new(HostMemory::new().with_align(spec.align)), None),
                2 => {
                    let device = NullDevice::new(spec);
                    (memory(&device), Some(device.ledger().clone()))
                }
                _ => {
                    let device = DiscreteDevice::new(spec);
                    let device = if choices.once_in(3) { device.with_init_hook() } else { device };
                    let made = (memory(&device), Some(device.ledger().clone()));
                    faulty.push(device);
                    made
                }
            };
            memories.push(memory);
            ledgers.push(ledger);
        }
        let order = choices.pick(&Order::ALL).unwrap();
        let allocator = GraphAllocator::with_buffers(memories.clone()).unwrap().with_options(options(choices, order));
        Self { memories, ledgers, faulty, allocator, order, handles: Vec::new(), writes: 0 }
    }

    fn step(&mut self, choices: &mut Choices<'_>, sizes: &Sizes, seen: &mut Seen, seed: u64) {
        let (graph, bindings) = &sizes.graphs[choices.below(sizes.graphs.len())];
        let before = self.allocated();
        let failing = !self.faulty.is_empty() && choices.once_in(4);
        if failing {
            let index = choices.below(self.faulty.len());
            self.faulty[index].faults().fail_after(choices.below(3) as u64);
        }
        let act = choices.below(6);
        let result = self.act(act, graph, bindings, sizes);
        self.faulty.iter().for_each(|device| device.faults().clear());
        self.check_ledgers(seed);
        let result = match result {
            Err(AllocError::Buffer { .. }) if failing => {
                seen.failed += 1;
                let again = self.act(act, graph, bindings, sizes);
                seen.recovered += u32::from(again.is_ok());
                self.check_ledgers(seed);
                again
            }
            other => other,
        };
        match result {
            Ok(Some(allocation)) => {
                seen.allocated += 1;
                seen.grown += u32::from(self.allocated() > before && before > 0);
                self.judge(&allocation, bindings, seen, seed);
                self.remember(choices, allocation);
            }
            Ok(None) => {}
            // Not enough memory, or no buffer of that size.
            Err(AllocError::Buffer { .. }) => {}
            Err(AllocError::NeedsReserve { .. } | AllocError::NothingReserved) => seen.unreserved += 1,
            Err(other) => panic!("seed {seed}: {other}"),
        }
        self.check_handles(seen, seed);
    }

    fn act(
        &mut self,
        act: usize,
        graph: &Graph,
        bindings: &Bindings,
        sizes: &Sizes,
    ) -> Result<Option<Allocation>, AllocError> {
        let allocator = &mut self.allocator;
        match act {
            0 => allocator.reserve((graph, &sizes.assignment)).map(|()| None),
            1 => allocator.required((graph, &sizes.assignment)).map(|_| None),
            2 => allocator.reserve_all(sizes.graphs.iter().map(|(graph, _)| graph)).map(|()| None),
            3 => {
                allocator.reserve((graph, &sizes.assignment))?;
                allocator.alloc(graph, bindings).map(Some)
            }
            _ => allocator.alloc(graph, bindings).map(Some),
        }
    }

    fn judge(&self, allocation: &Allocation, bindings: &Bindings, seen: &mut Seen, seed: u64) {
        let plan = self.allocator.plan_of(allocation.graph()).unwrap();
        let (assignment, options) = (plan.assigned().assignment(), plan.options());
        let laws = Laws { memories: &self.memories, assignment, options, bindings };
        laws.check(allocation).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", plan.assigned()));
        let is_reordered = allocation.in_run_order().unwrap().nodes() != allocation.graph().nodes();
        if shares_written_bytes(allocation.graph(), bindings) {
            assert!(!is_reordered, "seed {seed}: reordered, but external tensors share bytes\n{}", plan.assigned());
            seen.shared += u32::from(self.order == Order::Best);
        }
        seen.reordered += u32::from(is_reordered);
        for buffer in allocation.buffers() {
            assert!(buffer.memory().max_size().is_none_or(|max| buffer.size() <= max), "seed {seed}");
        }
        seen.padded += u32::from(self.memories.iter().any(|memory| memory.padding().is_some()));
        seen.chunked += u32::from(allocation.buffers().count() > self.memories.len());
    }

    /// Writes one of the inputs, if that is possible, and keeps the handle.
    fn remember(&mut self, choices: &mut Choices<'_>, allocation: Allocation) {
        let leafs = allocation.graph().leafs().to_vec();
        let Some(leaf) = choices.pick(&leafs) else { return };
        let tensor = allocation.graph().tensor(leaf);
        if choices.once_in(2) || tensor.external || tensor.is_view() || tensor.nbytes() == Bytes(0) {
            return;
        }
        self.writes = self.writes.wrapping_add(1);
        let Ok(size) = allocation.raw_bytes(leaf).map(|bytes| bytes.len()) else { return };
        let data = vec![self.writes; size];
        // A leaf that is an input and a node as well can be written, but only a run makes it readable.
        if allocation.write_bytes(leaf, &data).is_ok() && allocation.read_bytes(leaf).is_ok() {
            self.handles.push((allocation, leaf, data));
        }
    }

    fn check_handles(&mut self, seen: &mut Seen, seed: u64) {
        self.handles.retain(|(allocation, tensor, data)| match allocation.read_bytes(*tensor) {
            Ok(found) => {
                assert_eq!(&found, data, "seed {seed}: garbage without an error");
                seen.kept += 1;
                true
            }
            Err(AllocError::Stale) => {
                seen.stale += 1;
                false
            }
            Err(other) => panic!("seed {seed}: {other}"),
        });
    }

    fn allocated(&self) -> u64 {
        (0..self.memories.len()).map(|index| self.allocator.buffer_size(index).unwrap().0).sum()
    }

    fn check_ledgers(&self, seed: u64) {
        for (index, ledger) in self.ledgers.iter().enumerate() {
            if let Some(ledger) = ledger {
                assert_eq!(Ok(ledger.live()), self.allocator.buffer_size(index), "seed {seed}, memory {index}");
            }
        }
    }
}

fn spec(choices: &mut Choices<'_>) -> MemorySpec {
    let align = |choices: &mut Choices<'_>, most: usize| Align::new(1 << choices.below(most)).unwrap();
    let mut spec = MemorySpec::new("gpu").with_align(align(choices, 9));
    if choices.once_in(3) {
        spec = spec.with_max_size(Bytes(1024 << choices.below(5)));
    }
    if choices.once_in(4) {
        spec = spec.with_capacity(Bytes(4096 << choices.below(4)));
    }
    if choices.once_in(3) {
        spec = spec.with_padding(align(choices, 8));
    }
    if choices.once_in(6) {
        spec = spec.with_hold(1 + choices.below(2) as u32);
    }
    spec
}

fn options(choices: &mut Choices<'_>, order: Order) -> AllocOptions {
    let reuse = choices.pick(&[Reuse::Extended, Reuse::Extended, Reuse::Ggml, Reuse::None]).unwrap();
    let unread = choices.pick(&[Unread::Keep, Unread::Free]).unwrap();
    // A saving of a byte is enough.
    let search = OrderSearch::default().with_least_saving(0);
    let plan = PlanOptions::new(GraphStrategy::Fast).with_reuse(reuse).with_unread(unread);
    let plan = plan.with_order(order).with_order_search(search);
    let replan = choices.pick(&[Replan::OneMemory, Replan::Always, Replan::Never]).unwrap();
    let small_graphs = choices.pick(&[SmallGraphs::SharePlan, SmallGraphs::OwnPlan]).unwrap();
    let options = AllocOptions::new().with_plan(plan).with_replan(replan).with_plans(1 + choices.below(4));
    options.with_small_graphs(small_graphs)
}

/// A random graph as it is, and two larger ones of the same kind.
fn sizes_of(choices: &mut Choices<'_>, memories: usize) -> Sizes {
    let assigned = if choices.once_in(5) { scrambled_graph(choices) } else { random_graph(choices) };
    let (graph, assignment) = (assigned.graph(), assigned.assignment());
    let fold = |list: &[MemoryId]| list.iter().map(|it| MemoryId::from_index(it.index() % memories).unwrap()).collect();
    let assignment = Assignment { leafs: fold(&assignment.leafs), nodes: fold(&assignment.nodes) };
    let larger = [2, 3].into_iter().filter_map(|times| stretched(graph, times));
    let mut graphs = Vec::new();
    for graph in std::iter::once(graph.clone()).chain(larger) {
        let share = if choices.once_in(3) { Share::Bytes } else { Share::Nothing };
        graphs.push((graph.clone(), bound(&graph, share)));
    }
    Sizes { graphs, assignment }
}

/// The same graph with all strides and offsets so many times as large; `None` if that is no graph.
fn stretched(graph: &Graph, times: u64) -> Option<Graph> {
    let mut parts = GraphParts::default();
    parts.detach();
    for (id, tensor) in graph.tensors().pairs() {
        let layout =
            Layout::new(tensor.layout.dtype(), tensor.layout.ne(), tensor.layout.nb().map(|nb| nb * times)).ok()?;
        let view = tensor.view.map(|view| View { offset: Bytes(view.offset.0 * times), ..view });
        let op = parts.op(graph.tensors().op_name(tensor.op), graph.tensors().kind_name(tensor.op)).ok()?;
        parts.push_with(Tensor { layout, view, op, ..*tensor }, graph.sources(id), graph.params(id)).ok()?;
    }
    graph.leafs().iter().for_each(|leaf| parts.leaf(*leaf));
    graph.nodes().iter().for_each(|node| parts.node(*node));
    parts.finish().ok()
}

/// Whether external tensors have bytes in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Nothing,
    Bytes,
}

/// Every external tensor somewhere in one large buffer.
fn bound(graph: &Graph, share: Share) -> Bindings {
    let weights = memory(&NullDevice::new("weights"));
    let buffer = SharedBuffer::allocate(&weights, Bytes(1 << 40), Usage::Weights).unwrap();
    let (mut bindings, mut offset) = (Bindings::new(), 0);
    for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| tensor.external) {
        bindings.bind(id, &buffer, Offset(offset), tensor.nbytes()).unwrap();
        offset += if share == Share::Bytes { 0 } else { tensor.nbytes().0 };
    }
    bindings
}

/// Returns whether an external tensor that nodes write into has a byte in common with one that they only read.
fn shares_written_bytes(graph: &Graph, bindings: &Bindings) -> bool {
    let is_written = |root: TensorId| {
        graph.nodes().iter().any(|node| graph.root(*node) == root && !graph.tensor(*node).op.writes_nothing())
    };
    let range = |tensor: TensorId| {
        let start = bindings.get(tensor).unwrap().offset.0;
        start..start + graph.tensor(tensor).nbytes().0
    };
    let touched = |tensor: TensorId| {
        graph.nodes().iter().chain(graph.leafs()).any(|it| {
            graph.root(*it) == tensor || graph.sources(*it).iter().flatten().any(|it| graph.root(*it) == tensor)
        })
    };
    let external: Vec<TensorId> =
        graph.tensors().ids().filter(|id| graph.tensor(*id).external && touched(*id)).collect();
    let overlap = |one: TensorId, other: TensorId| {
        let (one, other) = (range(one), range(other));
        one.start.max(other.start) < one.end.min(other.end)
    };
    external
        .iter()
        .any(|one| is_written(*one) && external.iter().any(|other| !is_written(*other) && overlap(*one, *other)))
}
