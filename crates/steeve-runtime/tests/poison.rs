//! Whatever graph passes the door: it is refused when it is run, or nothing that can be read depends on what lay in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use graphs::{assigned, host};
use steeve_device::{Bindings, Bytes, Offset, SharedBuffer, Usage};
use steeve_graph::fuzz::{Choices, random_graph, scrambled_graph};
use steeve_graph::{Graph, Id, PlanOptions, TensorId, Unread};
use steeve_runtime::{AllocOptions, Allocation, GraphAllocator};

/// What can be read after a run in memory that is full of `poison`; `None` if it is refused.
fn outcome(graph: &Graph, unread: Unread, poison: u8) -> Option<Vec<(TensorId, Vec<u8>)>> {
    let options = AllocOptions::new().with_plan(PlanOptions::default().with_unread(unread));
    let mut allocator = GraphAllocator::new(&host()).with_options(options);
    allocator.reserve(graph).unwrap();
    allocator.clear(poison).unwrap();
    let allocation = allocator.alloc(graph, &bound(graph)).unwrap();
    // The caller writes all that a run asks for, and nothing else.
    let run = loop {
        match allocation.begin() {
            Ok(run) => break run,
            Err(steeve_runtime::AllocError::NotWritten { tensor }) => {
                let bytes = graph.tensor(tensor.id).nbytes().0;
                if allocation.write_bytes(tensor.id, &filled(bytes, tensor.id.index() as u64)).is_err() {
                    return None;
                }
            }
            Err(_) => return None,
        }
    };
    for node in graph.nodes().iter().copied().filter(|node| !graph.tensor(*node).op.writes_nothing()) {
        let mut hash = 7 + node.index() as u64;
        for (slot, source) in graph.sources(node).iter().enumerate() {
            let Some(source) = source.filter(|source| *source != node || slot != 1) else { continue };
            for byte in span(&allocation, graph, source) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(7);
            }
        }
        let address = allocation.address(node).unwrap();
        address.buffer.write(address.offset, &filled(graph.tensor(node).nbytes().0, hash)).unwrap();
    }
    run.finish();
    let read = |id: TensorId| allocation.read_bytes(id).ok().map(|bytes| (id, bytes));
    Some(graph.nodes().iter().copied().filter_map(read).collect())
}

fn span(allocation: &Allocation, graph: &Graph, tensor: TensorId) -> Vec<u8> {
    let address = allocation.address(tensor).unwrap();
    let mut bytes = vec![0; graph.tensor(tensor).nbytes().0 as usize];
    address.buffer.read(address.offset, &mut bytes).unwrap();
    bytes
}

fn filled(bytes: u64, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (seed >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// External tensors in memory of the caller's, with contents.
fn bound(graph: &Graph) -> Bindings {
    let all: u64 = graph.tensors().iter().map(|it| it.nbytes().0.next_multiple_of(32)).sum();
    let buffer = SharedBuffer::allocate(&host(), Bytes(all), Usage::Weights).unwrap();
    buffer.write(Offset(0), &filled(all, 3)).unwrap();
    let (mut bindings, mut offset) = (Bindings::new(), 0);
    for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| tensor.external) {
        bindings.bind(id, &buffer, Offset(offset), tensor.nbytes()).unwrap();
        offset += tensor.nbytes().0.next_multiple_of(32);
    }
    bindings
}

#[test]
fn nothing_that_can_be_read_depends_on_what_lay_in_memory() {
    let (mut ran, mut refused) = (0, 0);
    for seed in 0..3000 {
        let mut choices = Choices::from_seed(seed);
        let graph = if seed % 3 == 0 { random_graph(&mut choices) } else { scrambled_graph(&mut choices) };
        let graph = graph.graph();
        let unread = [Unread::Keep, Unread::FreeInputs, Unread::Free][seed as usize % 3];
        let (one, other) = (outcome(graph, unread, 0x41), outcome(graph, unread, 0xBE));
        assert!(one == other, "seed {seed}\n{graph}");
        if one.is_some() { ran += 1 } else { refused += 1 }
    }
    println!("{ran} ran, {refused} were refused");
    assert!(ran > 1000 && refused > 20, "{ran} ran, {refused} were refused");
}

/// Each of these returned what lay in memory once.
#[test]
fn what_nothing_writes_is_refused_at_the_door_or_by_the_run() {
    for text in [
        "y = cpy f32[4] y !output",
        "x = input f32[4]; z = sqr f32[4] y !output; y = sqr f32[4] x !input",
        "y = sqr f32[4] y !input !output",
        "x = input f32[4]; z = sqr f32[4] y !output; y = sqr f32[4] x; leaf y",
    ] {
        assert!(text.parse::<Graph>().is_err(), "{text}");
    }
    // A copy of ggml's scheduler: it can be planned, for the drop-in and for recordings, and nothing here fills it.
    let graph = assigned("z = none f32[4] !node; y = sqr z !output");
    assert!(outcome(graph.graph(), Unread::Keep, 0x41).is_none());
}
