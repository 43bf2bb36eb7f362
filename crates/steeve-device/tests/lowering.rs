//! Laws of the lowering: what is located, classified and collected, held to a definition byte by byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use steeve_device::{
    Bindings, BufferType, Bytes, Device, DeviceError, DiscreteDevice, HostMemory, Locate, LocatedTensor, Lowering,
    Offset, SharedBuffer, SourceUse, Usage,
};
use steeve_graph::{CustomOp, Graph, Op, TensorId};

/// Operations that overwrite no slot, one or both, or write into a source.
const GRAPHS: [&str; 5] = [
    "a = input f32[4]; b = input f32[4]; r = add a b",
    "a = input f32[4]; b = input f32[1]; r = add a b",
    "a = input f32[4]; b = input f32[4]; r = cpy a b",
    "a = input f32[4]; b = input f32[4]; r = concat(0) a b",
    "a = input f32[4]; b = input f32[4]; r = rms_norm_back(0.5) a b",
];

fn host(bytes: u64) -> SharedBuffer {
    let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    SharedBuffer::allocate(&memory, Bytes(bytes), Usage::Compute).unwrap()
}

fn reaches_host(buffer: &SharedBuffer) -> Result<bool, DeviceError> {
    Ok(buffer.memory().is_host())
}

/// The bytes of a tensor without gaps.
fn bytes(graph: &Graph, tensor: TensorId, buffer: usize, offset: u64) -> BTreeSet<(usize, u64)> {
    (offset..offset + graph.tensor(tensor).nbytes().0).map(|byte| (buffer, byte)).collect()
}

fn tensors(graph: &Graph) -> [TensorId; 3] {
    let [a, b] = [0, 1].map(|leaf| graph.leafs()[leaf]);
    [a, b, graph.nodes()[0]]
}

proptest! {
    #[test]
    fn a_source_is_staged_exactly_if_its_kernel_would_see_it_change(
        text in 0..GRAPHS.len(),
        places in prop::array::uniform3((0..2_usize, 0..8_u64)),
    ) {
        let graph: Graph = GRAPHS[text].parse().unwrap();
        let (buffers, ids) = ([host(128), host(128)], tensors(&graph));
        let [_, _, node] = ids;
        let mut bindings = Bindings::new();
        for (id, (buffer, step)) in ids.into_iter().zip(places) {
            bindings.bind(id, &buffers[buffer], Offset(4 * step), graph.tensor(id).nbytes()).unwrap();
        }
        let mut lowering = Lowering::new("CPU", &graph, &bindings, &reaches_host);
        let of = |index: usize| bytes(&graph, ids[index], places[index].0, 4 * places[index].1);
        let op = graph.tensor(node).op;
        let is_shifted = op == Op::Cpy && !of(1).is_disjoint(&of(2)) && of(1) != of(2);
        let lowered = match lowering.lower(node) {
            Ok(lowered) => lowered,
            Err(error) => {
                prop_assert!(is_shifted && matches!(error, DeviceError::NotInTarget { .. }), "{}", error);
                return Ok(());
            }
        };
        prop_assert!(!is_shifted);
        for source in lowered.sources {
            let shares = !of(source.slot).is_disjoint(&of(2));
            let is_target = op == Op::Cpy && source.slot == 1;
            let expected = match of(source.slot) == of(2) && op.overwrites_slot(source.slot) {
                _ if !shares || is_target => SourceUse::Plain,
                true => SourceUse::InPlace,
                false => SourceUse::Staged,
            };
            prop_assert_eq!(source.usage, expected);
            let LocatedTensor { buffer, offset, address, .. } = source.located;
            prop_assert_eq!(offset, Offset(4 * places[source.slot].1));
            prop_assert_eq!(address, buffers[places[source.slot].0].address() + offset.0);
            prop_assert!(buffer < 2);
        }
        // Each buffer once, and written where the result is.
        let used = lowering.into_buffers();
        let distinct: BTreeSet<usize> = places.iter().map(|place| place.0).collect();
        prop_assert_eq!(used.len(), distinct.len());
        for it in &used {
            prop_assert_eq!(it.is_written, it.buffer.is_same(&buffers[places[2].0]));
        }
    }
}

#[test]
fn every_buffer_is_collected_once_also_if_several_have_one_address() {
    let text = "a = input f32[0]; b = input f32[0]; c = add a b; d = add b a; e = add a b; f = add b a";
    let graph: Graph = text.parse().unwrap();
    let (one, other) = (host(0), host(0));
    let mut bindings = Bindings::new();
    let ids = graph.leafs().iter().chain(graph.nodes());
    for (index, &id) in ids.enumerate() {
        bindings.bind(id, if index % 2 == 0 { &one } else { &other }, Offset(0), Bytes(0)).unwrap();
    }
    let mut lowering = Lowering::new("CPU", &graph, &bindings, &reaches_host);
    for &node in graph.nodes() {
        assert!(lowering.lower(node).unwrap().sources.iter().all(|source| source.usage == SourceUse::Plain));
    }
    assert_eq!(lowering.into_buffers().len(), 2);
}

#[test]
fn refusals_name_the_tensor_the_memory_and_the_numbers() {
    let graph: Graph = "a = input f32[4]; b = input f32[4]; r = add a b".parse().unwrap();
    let ([a, b, node], buffer) = (tensors(&graph), host(40));
    let refusal = |bindings: &Bindings| {
        let refused = Lowering::new("CPU", &graph, bindings, &reaches_host).lower(node).unwrap_err();
        refused.to_string()
    };
    let mut bindings = Bindings::new();
    bindings.bind(a, &buffer, Offset(0), Bytes(16)).unwrap();
    bindings.bind(node, &buffer, Offset(0), Bytes(16)).unwrap();
    assert!(refusal(&bindings).contains("tensor 1 (b)"), "{}", refusal(&bindings));
    // Bound with fewer bytes than the tensor has.
    bindings.bind(b, &buffer, Offset(32), Bytes(8)).unwrap();
    assert_eq!(refusal(&bindings), "host: out of bounds: expected a range within 40 bytes, got 16 bytes at offset 32");
    let far = SharedBuffer::allocate(&DiscreteDevice::new("far").buffer_types()[0], Bytes(16), Usage::Any).unwrap();
    bindings.bind(b, &far, Offset(0), Bytes(16)).unwrap();
    assert_eq!(refusal(&bindings), "CPU: unreachable memory: tensor 1 (b) is located in far");
    let nodes = Lowering::nodes("CPU", &graph, 0..2).unwrap_err();
    assert_eq!(nodes.to_string(), "CPU: no such nodes: expected a range within 0..1, got 0..2");
}

/// A kernel reads and writes the target through the result: it must not see the target's bytes at another place.
#[test]
fn a_result_that_shares_bytes_with_its_target_and_is_not_located_in_it_is_refused() {
    let own = CustomOp::new("INTO").writing_into(1);
    let graphs = [
        ("a = input f32[4,3]; b = input f32[4,3]; r = cpy a b", 1),
        ("a = input f32[4,2]; i = input i64[2]; b = input f32[4,3]; r = set_rows a i b", 2),
        ("a = input f32[4,3]; b = input f32[4,3]; r = ?INTO f32[4,3]+0^b a b", 1),
    ];
    for (text, slot) in graphs {
        let graph: Graph = text.parse().unwrap();
        let (buffer, node) = (host(512), graph.nodes()[0]);
        let target = graph.sources(node)[slot].unwrap();
        let lower = |shift: u64| {
            let mut bindings = Bindings::new();
            for (index, &leaf) in graph.leafs().iter().enumerate() {
                bindings.bind(leaf, &buffer, Offset(128 * index as u64), graph.tensor(leaf).nbytes()).unwrap();
            }
            let at = bindings.locate(target).unwrap().offset.0 + shift;
            bindings.bind(node, &buffer, Offset(at), graph.tensor(node).nbytes()).unwrap();
            let mut lowering = Lowering::new("CPU", &graph, &bindings, &reaches_host);
            let lowered = match graph.tensor(node).op {
                Op::Other(_) => lowering.lower_custom(node, &own),
                _ => lowering.lower(node),
            };
            lowered.map(|lowered| lowered.sources[slot].usage)
        };
        assert_eq!(lower(0), Ok(SourceUse::Plain), "{text}");
        assert_eq!(lower(48), Ok(SourceUse::Plain), "{text}: no byte in common");
        for shift in [4, 16, 44] {
            let error = lower(shift).unwrap_err().to_string();
            assert!(error.starts_with("tensor ") && error.contains("(r): not located in its target"), "{error}");
            assert!(
                error.ends_with("expected the memory of tensor 1 (b)") || error.ends_with("tensor 2 (b)"),
                "{error}"
            );
        }
    }
}
