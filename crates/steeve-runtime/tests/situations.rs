//! The situations that ggml's own tests of its allocator cover, each with our laws: all tensors are placed, `replay`
//! accepts, no buffer is above the largest size, and the bytes are those that the situation needs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod placed;

use std::sync::Arc;

use graphs::{assigned, device, graph, memory, spec, tensor};
use placed::Laws;
use steeve_device::{Bindings, Buffer, BufferType, Bytes, DeviceError, DiscreteDevice, HostMemory, Offset};
use steeve_device::{SharedBuffer, Usage};
use steeve_graph::{Align, AssignedGraph, Best, Budget, Graph, GraphError, GraphStrategy, Id, PlanOptions};
use steeve_runtime::{AllocError, AllocOptions, GraphAllocator};

const STRATEGIES: [GraphStrategy; 3] =
    [GraphStrategy::Ggml, GraphStrategy::Fast, GraphStrategy::Best(Best::new(Budget::Nodes(2000)))];

/// Every external tensor in memory of its own.
fn bound(graph: &Graph) -> Bindings {
    let mut bindings = Bindings::new();
    let weights = memory(&device(1));
    for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| tensor.external) {
        let buffer = SharedBuffer::allocate(&weights, tensor.nbytes(), Usage::Weights).unwrap();
        bindings.bind(id, &buffer, Offset(0), tensor.nbytes()).unwrap();
    }
    bindings
}

/// Allocates a graph in these memories, judges the result, and answers the sizes of all buffers.
fn settled(allocator: &mut GraphAllocator, graph: &AssignedGraph, memories: &[Arc<dyn BufferType>]) -> Vec<Vec<u64>> {
    let told = allocator.required((graph.graph(), graph.assignment())).unwrap();
    let fresh = (0..memories.len()).all(|index| allocator.buffer_size(index) == Ok(Bytes(0)));
    allocator.reserve((graph.graph(), graph.assignment())).unwrap();
    let bindings = bound(graph.graph());
    let allocation = allocator.alloc(graph.graph(), &bindings).unwrap();
    let options = allocator.plan_of(graph.graph()).unwrap().options();
    Laws { memories, assignment: graph.assignment(), options, bindings: &bindings }.check(&allocation).unwrap();
    let mut sizes = vec![Vec::new(); memories.len()];
    for buffer in allocation.buffers() {
        let same = |memory: &Arc<dyn BufferType>| Arc::ptr_eq(memory, buffer.memory());
        sizes[memories.iter().position(same).unwrap()].push(buffer.size().0);
    }
    for (index, sizes) in sizes.iter_mut().enumerate() {
        sizes.sort_unstable();
        assert_eq!(allocator.buffer_size(index).unwrap().0, sizes.iter().sum::<u64>());
        assert!(!fresh || allocator.buffer_size(index).unwrap() == told[index]);
    }
    sizes
}

/// How many buffers with how many bytes in all a graph has in one memory, by every strategy.
fn check(text: &str, memory: &Arc<dyn BufferType>, buffers: usize, bytes: u64) {
    for strategy in STRATEGIES {
        let options = AllocOptions::new().with_plan(PlanOptions::new(strategy));
        let mut allocator = GraphAllocator::new(memory).with_options(options);
        let sizes = settled(&mut allocator, &assigned(text), std::slice::from_ref(memory));
        let found = (sizes[0].len(), sizes[0].iter().sum::<u64>());
        assert_eq!(found, (buffers, bytes), "{strategy:?} of {text}");
        let max = memory.max_size().unwrap();
        assert!(sizes[0].iter().all(|size| *size <= max.0), "{strategy:?}: {sizes:?}");
    }
}

fn limited(max: u64) -> Arc<dyn BufferType> {
    memory(&DiscreteDevice::new(spec(8).with_max_size(Bytes(max))))
}

/// Memory with a largest size that it would rather not pass, but can.
#[derive(Debug)]
struct Roomy(HostMemory, Bytes);

impl BufferType for Roomy {
    fn name(&self) -> &str {
        "roomy"
    }

    fn align(&self) -> Align {
        self.0.align()
    }

    fn max_size(&self) -> Option<Bytes> {
        Some(self.1)
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        self.0.allocate(size)
    }
}

fn roomy(max: u64) -> Arc<dyn BufferType> {
    Arc::new(Roomy(HostMemory::new().with_align(Align::new(8).unwrap()), Bytes(max)))
}

#[test]
fn more_tensors_than_one_buffer_of_the_largest_size_holds() {
    let text = "a = input i8[16]; b = input i8[16]; c = input i8[16]; d = input i8[16]
                y = ?JOIN i8[16] a b c d !output";
    check(text, &limited(32), 3, 80);
    check(text, &limited(48), 2, 80);
    check(text, &limited(80), 1, 80);
}

#[test]
fn a_tensor_that_does_not_fit_the_rest_of_a_buffer() {
    check("a = input i8[16]; b = input i8[24]; y = ?JOIN i8[8] a b !output", &limited(32), 2, 48);
}

#[test]
fn a_tensor_larger_than_the_largest_size_has_a_buffer_of_its_own_size() {
    let graph = assigned("a = input i8[16]; big = ?F i8[100] a; y = ?F i8[8] big !output");
    for strategy in STRATEGIES {
        let options = AllocOptions::new().with_plan(PlanOptions::new(strategy));
        let memory = roomy(32);
        let mut allocator = GraphAllocator::new(&memory).with_options(options.clone());
        let sizes = settled(&mut allocator, &graph, &[memory]);
        assert_eq!(sizes[0].iter().sum::<u64>(), 104 + 16 + if sizes[0].len() > 2 { 8 } else { 0 });
        // A device that keeps to its limit says so, and nothing is left behind.
        let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(32)));
        let mut allocator = GraphAllocator::new(&graphs::memory(&device)).with_options(options);
        assert!(allocator.required(graph.graph()).unwrap()[0] >= Bytes(120));
        let error = allocator.reserve(graph.graph()).unwrap_err();
        assert!(
            matches!(&error, AllocError::Buffer { size: Bytes(104), error, .. }
                if matches!(**error, DeviceError::TooLarge { max: Bytes(32), .. })),
            "{error}"
        );
        assert_eq!((device.ledger().live(), allocator.buffer_size(0)), (Bytes(0), Ok(Bytes(0))));
    }
}

#[test]
fn more_buffers_than_sixteen() {
    let names: Vec<String> = (0..24).map(|index| format!("x{index}")).collect();
    let inputs: Vec<String> = names.iter().map(|name| format!("{name} = input i8[32]")).collect();
    let text = format!("{}; y = ?JOIN i8[8] {} !output", inputs.join("; "), names.join(" "));
    let graph = assigned(&text);
    // ggml's sixteenth buffer has no limit, which only some memories can give.
    let memory = roomy(32);
    let options = |strategy| AllocOptions::new().with_plan(PlanOptions::new(strategy));
    let mut allocator = GraphAllocator::new(&memory).with_options(options(GraphStrategy::Ggml));
    let sizes = settled(&mut allocator, &graph, &[memory]);
    assert_eq!((sizes[0].len(), sizes[0].iter().sum::<u64>()), (16, 24 * 32 + 8));
    for strategy in &STRATEGIES[1..] {
        let memory = limited(32);
        let mut allocator = GraphAllocator::new(&memory).with_options(options(*strategy));
        let sizes = settled(&mut allocator, &graph, &[memory]);
        assert_eq!((sizes[0].len(), sizes[0].iter().sum::<u64>()), (25, 24 * 32 + 8));
    }
}

#[test]
fn leftover_space_is_filled() {
    let text = "a = input i8[16]; b = input i8[24]; c = input i8[16]; y = ?JOIN i8[8] a b c !output";
    check(text, &limited(32), 2, 64);
}

#[test]
fn views_cost_nothing() {
    let text = "x = input i8[64]; low = view i8[32]+0 x; high = view i8[32]+32 x
                part = view i8[8]+40 high; y = ?JOIN i8[64] low high part !output";
    check(text, &limited(1024), 1, 128);
    // Nor does what runs in place through a view.
    let memory = limited(1024);
    let mut allocator = GraphAllocator::new(&memory);
    let graph = assigned("x = input f32[16]; h = neg x; v = reshape f32[4,4] h; y = sqr v !output");
    assert_eq!(settled(&mut allocator, &graph, &[memory])[0], [64]);
}

#[test]
fn memory_is_reused_after_it_is_free() {
    let text = "x = input i8[64]; a = ?F i8[64] x; b = ?F i8[64] a; c = ?F i8[64] b; y = ?F i8[64] c !output";
    check(text, &limited(1024), 1, 128);
}

#[test]
fn free_blocks_are_merged() {
    let text = "a = input i8[32]; b = input i8[32]; c = ?JOIN i8[8] a b; d = ?F i8[64] c; y = ?F i8[8] d !output";
    check(text, &limited(1024), 1, 72);
    // From either side, and across three.
    for order in ["a b c", "c b a", "b a c", "a c b"] {
        let text = format!(
            "a = input i8[24]; b = input i8[24]; c = input i8[24]; r = ?JOIN i8[8] {order}
             d = ?F i8[72] r; y = ?F i8[8] d !output"
        );
        check(&text, &limited(1024), 1, 80);
    }
}

#[test]
fn memory_already_there_is_preferred_over_growing() {
    let text = "x = input i8[48]; y = input i8[40]; z = ?JOIN i8[24] x y; w = ?F i8[16] z; v = ?F i8[40] w
                u = ?F i8[48] v; t = ?F i8[8] u !output";
    check(text, &limited(64), 2, 112);
}

#[test]
fn several_buffer_types_with_external_tensors() {
    let text = "
        memory gpu align=8
        memory cpu align=16
        w = external i8[1000]
        x = input i8[32] @gpu
        a = ?F i8[40] x w @gpu
        b = ?F i8[24] a @cpu
        c = ?JOIN i8[24] b w @cpu
        d = ?F i8[16] c @gpu
        y = ?JOIN i8[8] d w @gpu !output";
    let graph = assigned(text);
    for strategy in STRATEGIES {
        let gpu = device(8);
        let cpu: Arc<dyn BufferType> = Arc::new(HostMemory::new().with_align(Align::new(16).unwrap()));
        let memories = [memory(&gpu), cpu];
        let options = AllocOptions::new().with_plan(PlanOptions::new(strategy));
        let mut allocator = GraphAllocator::with_buffers(memories.clone()).unwrap().with_options(options);
        // `b` and `c` take 32 bytes each of alignment 16; `w` takes none anywhere.
        assert_eq!(settled(&mut allocator, &graph, &memories), [vec![72], vec![64]], "{strategy:?}");
        assert_eq!(gpu.ledger().live(), Bytes(72));
    }
}

#[test]
fn a_buffer_that_is_never_used_has_no_bytes() {
    let (used, never) = (device(8), device(8));
    let memories = [memory(&used), memory(&never)];
    for strategy in STRATEGIES {
        let options = AllocOptions::new().with_plan(PlanOptions::new(strategy));
        let mut allocator = GraphAllocator::with_buffers(memories.clone()).unwrap().with_options(options);
        let graph = assigned("x = input i8[16]; y = ?F i8[16] x !output");
        assert_eq!(settled(&mut allocator, &graph, &memories), [vec![32], vec![]]);
        assert_eq!(allocator.buffer_size(1), Ok(Bytes(0)));
        assert_eq!(allocator.buffer_size(2), Err(AllocError::BufferIndex { index: 2, buffers: 2 }));
        assert_eq!(allocator.buffer_size(usize::MAX).map_err(|error| error.to_string()), {
            Err(format!("buffer {}: does not exist: there are 2", usize::MAX))
        });
    }
    assert_eq!(never.ledger().asked(), 0);
}

#[test]
fn a_second_graph_with_larger_pieces_and_no_larger_sum_gets_its_pieces() {
    let first = assigned("a = input i8[40]; b = input i8[40]; c = input i8[40]; y = ?JOIN i8[8] a b c !output");
    let second = assigned("a = input i8[56]; b = input i8[56]; y = ?JOIN i8[8] a b !output");
    for strategy in STRATEGIES {
        let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(64)));
        let memory = memory(&device);
        let options = AllocOptions::new().with_plan(PlanOptions::new(strategy));
        let mut allocator = GraphAllocator::new(&memory).with_options(options);
        assert_eq!(settled(&mut allocator, &first, std::slice::from_ref(&memory))[0], [40, 40, 48]);
        assert!(allocator.required(second.graph()).unwrap()[0] <= Bytes(128));
        let sizes = settled(&mut allocator, &second, std::slice::from_ref(&memory));
        assert_eq!(sizes[0], [56, 64], "{strategy:?}");
        // The first one has three, and no more than it needs.
        assert_eq!(settled(&mut allocator, &first, std::slice::from_ref(&memory))[0], [40, 40, 48]);
    }
}

#[test]
fn inputs_have_distinct_addresses_before_the_first_node() {
    let graph = graph(
        "a = input i8[16]; h = ?F i8[16] a; b = input i8[16]; i = ?JOIN i8[16] h b
         c = input i8[16]; y = ?JOIN i8[16] i c !output",
    );
    for strategy in STRATEGIES {
        let options = AllocOptions::new().with_plan(PlanOptions::new(strategy));
        let mut allocator = GraphAllocator::new(&limited(1024)).with_options(options);
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            allocation.write(tensor(&graph, name), &[index as i8; 16]).unwrap();
        }
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(allocation.read::<i8>(tensor(&graph, name)).unwrap(), [index as i8; 16]);
        }
    }
}

#[test]
fn a_graph_of_nothing_needs_nothing() {
    let device = device(8);
    let mut allocator = GraphAllocator::new(&memory(&device));
    let empty = graph("");
    assert_eq!(allocator.required(&empty), Ok(vec![Bytes(0)]));
    let allocation = allocator.alloc(&empty, &Bindings::new()).unwrap();
    allocation.begin().unwrap().finish();
    assert_eq!(device.ledger().asked(), 0);
    assert!(matches!(
        allocation.address(steeve_graph::TensorId::from_index(0).unwrap()),
        Err(AllocError::Graph(GraphError::Unknown { .. }))
    ));
}

#[test]
fn a_view_that_only_the_planned_context_has_does_no_harm_to_other_graphs() {
    let build = |stray: bool| {
        let mut context = steeve_graph::Context::new();
        let x = context.input(steeve_graph::DataType::F32, &[8]).unwrap();
        let h = context.sqr(x).unwrap();
        let y = context.sum(h).unwrap();
        context.set_output(y).unwrap();
        if stray {
            context.view_1d(h, 4, Bytes(0)).unwrap();
        }
        Graph::from_outputs(&context, &[y]).unwrap()
    };
    let device = device(8);
    let mut allocator = GraphAllocator::new(&memory(&device));
    allocator.reserve(&build(true)).unwrap();
    // Another graph has the memory made anew, so that the first plan has no buffers.
    allocator.reserve(&graph("x = input f32[999]; y = neg x !output")).unwrap();
    for stray in [false, true, false] {
        allocator.alloc(&build(stray), &Bindings::new()).unwrap();
    }
}
