//! Graphs that really run, on bytes: each node's result is a function of its operation and of its sources' bytes.
//!
//! Every graph is executed twice, once with each tensor in memory of its own and once where an allocation has put it, in
//! memory that was full of garbage. What can be read afterwards must be equal. Where the table of operations allows a
//! result to be written over a source, it is computed element by element, so that doing so is right; everywhere else the
//! result's memory is spoilt before a source is read, so that sharing bytes shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod placed;

use std::collections::BTreeMap;
use std::sync::Arc;

use graphs::{context, graph, host, memory};
use placed::touched;
use steeve_device::{Align, Bindings, BufferType, Bytes, DiscreteDevice, HostMemory, MemorySpec, Offset};
use steeve_device::{SharedBuffer, Usage};
use steeve_graph::fuzz::{Choices, random_graph};
use steeve_graph::{
    Assignment, Best, Budget, Graph, GraphStrategy, Id, Layout, MemoryId, PlanOptions, Reuse, TensorId, Unread,
};
use steeve_runtime::{AllocError, AllocOptions, Allocation, GraphAllocator};

/// Where the bytes of tensors are.
trait Place {
    fn get(&self, tensor: TensorId, start: u64, into: &mut [u8]);
    fn put(&mut self, tensor: TensorId, start: u64, from: &[u8]);
}

/// Each root in memory of its own.
struct Apart<'a> {
    graph: &'a Graph,
    roots: BTreeMap<TensorId, Vec<u8>>,
}

impl<'a> Apart<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self { graph, roots: BTreeMap::new() }
    }

    fn packed(&self, tensor: TensorId) -> Vec<u8> {
        packed(self, tensor, &self.graph.tensor(tensor).layout)
    }
}

impl Place for Apart<'_> {
    fn get(&self, tensor: TensorId, start: u64, into: &mut [u8]) {
        let at = (self.graph.tensors().offset(tensor).0 + start) as usize;
        match self.roots.get(&self.graph.root(tensor)) {
            Some(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            None => into.fill(0x11),
        }
    }

    fn put(&mut self, tensor: TensorId, start: u64, from: &[u8]) {
        let root = self.graph.root(tensor);
        let at = (self.graph.tensors().offset(tensor).0 + start) as usize;
        let size = self.graph.tensor(root).nbytes().0 as usize;
        self.roots.entry(root).or_insert_with(|| vec![0x11; size])[at..at + from.len()].copy_from_slice(from);
    }
}

/// Where an allocation says.
struct Planned<'a>(&'a Allocation);

impl Place for Planned<'_> {
    fn get(&self, tensor: TensorId, start: u64, into: &mut [u8]) {
        let address = self.0.address(tensor).unwrap();
        assert!(start + into.len() as u64 <= address.size.0);
        address.buffer.read(Offset(address.offset.0 + start), into).unwrap();
    }

    fn put(&mut self, tensor: TensorId, start: u64, from: &[u8]) {
        let address = self.0.address(tensor).unwrap();
        assert!(start + from.len() as u64 <= address.size.0);
        address.buffer.write(Offset(address.offset.0 + start), from).unwrap();
    }
}

/// Where each block of elements starts, in order, and how long one is.
fn blocks(layout: &Layout) -> (Vec<u64>, usize) {
    let (ne, nb, dtype) = (layout.ne(), layout.nb(), layout.dtype());
    let mut starts = Vec::new();
    for i3 in 0..ne[3] {
        for i2 in 0..ne[2] {
            for i1 in 0..ne[1] {
                for i0 in 0..ne[0] / dtype.block_len() {
                    starts.push(i0 * nb[0] + i1 * nb[1] + i2 * nb[2] + i3 * nb[3]);
                }
            }
        }
    }
    (starts, dtype.block_bytes() as usize)
}

fn packed(place: &impl Place, tensor: TensorId, layout: &Layout) -> Vec<u8> {
    let (starts, len) = blocks(layout);
    let mut bytes = vec![0; starts.len() * len];
    for (start, block) in starts.iter().zip(bytes.chunks_exact_mut(len)) {
        place.get(tensor, *start, block);
    }
    bytes
}

/// FNV-1a.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// As many bytes as it takes, from a number.
fn spread(mut number: u64, into: &mut [u8]) {
    for byte in into {
        number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        *byte = number as u8;
    }
}

/// Computes one node.
fn compute(place: &mut impl Place, graph: &Graph, node: TensorId) {
    let it = graph.tensor(node);
    if it.op.writes_nothing() {
        return;
    }
    let seed = hash(node.index() as u64, graph.tensors().op_title(it.op).as_bytes());
    let sources: Vec<(usize, TensorId)> =
        graph.sources(node).iter().enumerate().filter_map(|(slot, source)| Some((slot, (*source)?))).collect();
    let in_place = |slot: usize| !it.is_view() && graph.may_overwrite(node, slot);
    let (elementwise, whole): (Vec<_>, Vec<_>) = sources.into_iter().partition(|(slot, _)| in_place(*slot));
    let overlap = |slot: usize| if it.is_view() { None } else { graph.may_overlap(node, slot) };
    let (ahead, whole): (Vec<_>, Vec<_>) = whole.into_iter().partition(|(slot, _)| overlap(*slot).is_some());
    // Of a source that the result may start below, what it can have reached by now is not read any more.
    let rest = |place: &_, written: u64| {
        ahead.iter().fold(seed, |mut sum, (slot, source)| {
            let distance = overlap(*slot).unwrap_or_default().0;
            let (starts, len) = blocks(&graph.tensor(*source).layout);
            let mut block = vec![0; len];
            for start in starts.into_iter().filter(|start| *start >= written.saturating_sub(distance)) {
                Place::get(place, *source, start, &mut block);
                sum = hash(sum, &block);
            }
            sum
        })
    };
    let digest = |place: &_| {
        let add = |sum, source| hash(sum, &packed(place, source, &graph.tensor(source).layout));
        whole.iter().fold(seed, |sum, (_, source)| add(sum, *source))
    };
    let (starts, len) = blocks(&it.layout);
    let (mut block, mut element) = (vec![0; len], vec![0; len]);
    let mut sum = 0;
    if it.is_view() {
        // It writes into memory that it may read itself, so it reads first.
        sum = digest(place);
    } else if elementwise.is_empty() && ahead.is_empty() {
        starts.iter().for_each(|start| place.put(node, *start, &vec![0xEE; len]));
    }
    let mut written = 0;
    for (index, start) in starts.iter().enumerate() {
        // Whoever reads more than the element at hand may do so at any time.
        if !it.is_view() && [0, starts.len() / 2, starts.len() - 1].contains(&index) {
            sum = digest(place) ^ rest(place, written);
        }
        let mut number = hash(sum, &(index as u64).to_le_bytes());
        for (_, source) in &elementwise {
            place.get(*source, *start, &mut element);
            number = hash(number, &element);
        }
        spread(number, &mut block);
        place.put(node, *start, &block);
        written = written.max(start + len as u64);
    }
}

/// How often what was found.
#[derive(Debug, Default)]
struct Found {
    equal: usize,
    refused: usize,
    /// Of those refused, how many are really lost.
    lost: usize,
}

/// Runs the graph in both worlds, twice, and compares all that can be read.
fn check(
    graph: &Graph,
    allocation: &Allocation,
    choices: &mut Choices<'_>,
    found: &mut Found,
) -> Result<(), AllocError> {
    let mut apart = Apart::new(graph);
    let externals = touched(allocation).into_iter().filter(|id| graph.tensor(*id).external);
    for tensor in externals.collect::<Vec<_>>() {
        write(&mut apart, allocation, tensor, choices)?;
    }
    for _ in 0..2 {
        write_missing(&mut apart, allocation, choices)?;
        let run = allocation.begin()?;
        for node in graph.nodes() {
            compute(&mut apart, graph, *node);
            compute(&mut Planned(run.allocation()), graph, *node);
        }
        run.finish();
        compare(graph, allocation, &apart, found);
    }
    Ok(())
}

/// Inputs that are not there, or not there any more.
fn write_missing(apart: &mut Apart<'_>, allocation: &Allocation, choices: &mut Choices<'_>) -> Result<(), AllocError> {
    for tensor in touched(allocation).into_iter().filter(|id| !apart.graph.tensor(*id).is_view()) {
        if let Err(AllocError::NotWritten { .. } | AllocError::Consumed { .. }) = allocation.read_bytes(tensor) {
            write(apart, allocation, tensor, choices)?;
        }
    }
    Ok(())
}

/// The same random bytes into both.
fn write(
    apart: &mut Apart<'_>,
    allocation: &Allocation,
    tensor: TensorId,
    choices: &mut Choices<'_>,
) -> Result<(), AllocError> {
    let layout = apart.graph.tensor(tensor).layout;
    let (starts, len) = blocks(&layout);
    let mut bytes = vec![0; starts.len() * len];
    spread(choices.below(usize::MAX) as u64, &mut bytes);
    for (start, block) in starts.iter().zip(bytes.chunks_exact(len)) {
        apart.put(tensor, *start, block);
    }
    allocation.write_bytes(tensor, &bytes)
}

fn compare(graph: &Graph, allocation: &Allocation, apart: &Apart<'_>, found: &mut Found) {
    for tensor in touched(allocation) {
        let expected = apart.packed(tensor);
        match allocation.read_bytes(tensor) {
            Ok(bytes) => {
                assert_eq!(bytes, expected, "tensor {tensor} ({}) has survived, they say", graph.name(tensor));
                found.equal += 1;
            }
            Err(AllocError::Reused { .. } | AllocError::Consumed { .. }) => {
                assert!(!graph.tensor(tensor).flags.is_output(), "output {tensor} is refused");
                found.refused += 1;
                found.lost += usize::from(allocation.raw_bytes(tensor).unwrap() != expected);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn bound(graph: &Graph, memory: &Arc<dyn BufferType>) -> Bindings {
    let mut bindings = Bindings::new();
    for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| tensor.external) {
        let buffer = SharedBuffer::allocate(memory, tensor.nbytes(), Usage::Weights).unwrap();
        bindings.bind(id, &buffer, Offset(0), tensor.nbytes()).unwrap();
    }
    bindings
}

fn random_memory(choices: &mut Choices<'_>) -> Arc<dyn BufferType> {
    let align = Align::new(1 << choices.below(8)).unwrap();
    if choices.once_in(3) {
        return Arc::new(HostMemory::new().with_align(align));
    }
    let mut spec = MemorySpec::new("gpu").with_align(align);
    if choices.once_in(3) {
        spec = spec.with_max_size(Bytes(16384));
    }
    if choices.once_in(3) {
        spec = spec.with_padding(Align::new(1 << choices.below(8)).unwrap());
    }
    memory(&DiscreteDevice::new(spec))
}

#[test]
fn what_can_be_read_after_a_run_is_what_would_be_there_with_memory_for_everything() {
    let mut found = Found::default();
    for seed in 0..600 {
        let mut choices = Choices::from_seed(seed);
        let assigned = random_graph(&mut choices);
        let graph = assigned.graph();
        let memories: Vec<_> = (0..1 + choices.below(3)).map(|_| random_memory(&mut choices)).collect();
        let fold = |list: &[MemoryId]| {
            list.iter().map(|it| MemoryId::from_index(it.index() % memories.len()).unwrap()).collect()
        };
        let assignment = assigned.assignment();
        let assignment = Assignment { leafs: fold(&assignment.leafs), nodes: fold(&assignment.nodes) };
        let best = GraphStrategy::Best(Best::new(Budget::Nodes(100)));
        let strategy = choices.pick(&[GraphStrategy::Fast, best]).unwrap();
        let plan = PlanOptions::new(strategy)
            .with_reuse(choices.pick(&[Reuse::Extended, Reuse::Extended, Reuse::None]).unwrap())
            .with_unread(choices.pick(&[Unread::Keep, Unread::Free]).unwrap());
        let allocator = GraphAllocator::with_buffers(memories.clone()).unwrap();
        let mut allocator = allocator.with_options(AllocOptions::new().with_plan(plan));
        match allocator.reserve((graph, &assignment)) {
            Ok(()) => {}
            // A tensor above the largest buffer.
            Err(AllocError::Buffer { .. }) => continue,
            Err(other) => panic!("seed {seed}: {other}"),
        }
        allocator.clear(0xFF).unwrap();
        let allocation = allocator.alloc(graph, &bound(graph, &host())).unwrap();
        check(graph, &allocation, &mut choices, &mut found).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    println!("{found:?}");
    let Found { equal, refused, lost } = found;
    assert!(equal > 10_000 && refused > 3_000, "{found:?}");
    // Refusing is not just caution: most of those are lost indeed.
    assert!(lost * 10 > refused * 8, "{found:?}");
}

#[test]
fn a_token_loop_gives_the_same_results_in_planned_memory() {
    let text = "
        cache = external f32[8,4]
        w = external f32[8,8]
        x = input f32[8]
        q = mul_mat w x
        place = view f32[8]+32 cache
        write = cpy q place
        r = rms_norm(1e-5) x
        all = cont cache
        s = mul all r
        t = silu s
        y = sum_rows t !output";
    for memory in [host(), memory(&graphs::device(64))] {
        let graph = graph(text);
        let mut allocator = GraphAllocator::new(&memory);
        let bindings = graphs::by_number(&bound(&graph, &memory));
        let (mut choices, mut found) = (Choices::from_seed(7), Found::default());
        for _ in 0..5 {
            // Each step builds its graph again, over the same weights and cache.
            let graph = self::graph(text);
            let allocation = allocator.alloc(&graph, &bindings).unwrap();
            check(&graph, &allocation, &mut choices, &mut found).unwrap();
        }
        assert!(found.equal > 0 && found.refused > 0);
    }
}

#[test]
fn a_smaller_graph_runs_in_the_plan_of_a_larger_one() {
    let text = |rows: u64| {
        format!(
            "x = input f32[16,{rows}]; a = sqr x; b = neg a; c = add a b; d = custom f32[16,{rows}] c x
             v = view f32[8,{rows}]{{4,64,{all},{all}}}+32 d; e = cont v; y = gelu e !output; z = silu c !output",
            all = 64 * rows
        )
    };
    for memory in [host(), memory(&graphs::device(32))] {
        let mut allocator = GraphAllocator::new(&memory);
        allocator.reserve(&graph(&text(32))).unwrap();
        let size = allocator.buffer_size(0);
        for rows in [32, 5, 1, 31] {
            allocator.clear(0xFF).unwrap();
            let graph = graph(&text(rows));
            let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
            check(&graph, &allocation, &mut Choices::from_seed(rows), &mut Found::default()).unwrap();
        }
        assert_eq!(allocator.buffer_size(0), size);
    }
}

#[test]
fn the_executor_itself_notices_a_shared_byte() {
    // Two tensors of one context, put over each other by hand: the results differ.
    let context = context("x = input f32[4]; a = sqr x; y = custom f32[4] a x !output");
    let ids: Vec<TensorId> = context.tensors().ids().collect();
    let graph = Graph::from_outputs(&context, &[ids[2]]).unwrap();
    struct Over<'a>(Apart<'a>, TensorId, TensorId);
    impl Over<'_> {
        fn there(&self, tensor: TensorId) -> TensorId {
            if tensor == self.1 { self.2 } else { tensor }
        }
    }
    impl Place for Over<'_> {
        fn get(&self, tensor: TensorId, start: u64, into: &mut [u8]) {
            self.0.get(self.there(tensor), start, into);
        }
        fn put(&mut self, tensor: TensorId, start: u64, from: &[u8]) {
            self.0.put(self.there(tensor), start, from);
        }
    }
    let result = |over: Option<(usize, usize)>| {
        let (from, to) = over.map_or((ids[0], ids[0]), |(from, to)| (ids[from], ids[to]));
        let mut place = Over(Apart::new(&graph), from, to);
        place.put(ids[0], 0, &[7; 16]);
        graph.nodes().iter().for_each(|node| compute(&mut place, &graph, *node));
        packed(&place, ids[2], &graph.tensor(ids[2]).layout)
    };
    assert_eq!(result(None), result(None));
    assert_ne!(result(None), result(Some((1, 0))), "`a` over `x`, which is read once more");
    assert_ne!(result(None), result(Some((2, 1))), "`y` over `a`, which it reads as a whole");
    // And not where it is right: `a` over `x` if nobody reads `x` again.
    let right = self::graph("x = input f32[4]; a = sqr x !output");
    let ids: Vec<TensorId> = right.tensors().ids().collect();
    let result = |to: usize| {
        let mut place = Over(Apart::new(&right), ids[1], ids[to]);
        place.put(ids[0], 0, &[7; 16]);
        compute(&mut place, &right, ids[1]);
        packed(&place, ids[1], &right.tensor(ids[1]).layout)
    };
    assert_eq!(result(0), result(1));
}
