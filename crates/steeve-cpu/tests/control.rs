//! What goes with a run: refusals before it, ending it early, watching it, and measuring it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steeve_testkit::reference;

use reference::{CaseBuilder, Values};
use steeve_cpu::{CpuBackend, CpuDevice};
use steeve_device::{
    Backend, Bindings, BufferType, Bytes, Device, DeviceError, DiscreteDevice, Offset, SharedBuffer, Usage,
};
use steeve_graph::{Context, CustomOp, DataType, Graph, GraphError, Layout, Op, TensorId};
use steeve_runtime::{AllocError, Allocation, GraphAllocator};

const F32: DataType = DataType::F32;

/// What a device said.
#[track_caller]
fn refusal(result: Result<impl Sized, AllocError>) -> DeviceError {
    match result {
        Err(AllocError::Device(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// An allocated graph, with the allocator that has its memory.
struct AllocatedChain {
    allocation: Allocation,
    _allocator: GraphAllocator,
}

impl std::ops::Deref for AllocatedChain {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        &self.allocation
    }
}

fn allocate(graph: &Graph, bindings: &Bindings, memory: &Arc<dyn BufferType>) -> AllocatedChain {
    let mut allocator = GraphAllocator::new(memory);
    AllocatedChain { allocation: allocator.alloc(graph, bindings).unwrap(), _allocator: allocator }
}

/// `x`, its square, and a chain of four behind it that ends with an output.
struct NodeChain {
    x: TensorId,
    nodes: [TensorId; 5],
    graph: Graph,
}

impl NodeChain {
    fn new() -> Self {
        let build = || -> Result<Self, GraphError> {
            let mut context = Context::new();
            let x = context.input(F32, &[6, 2])?;
            context.set_name(x, "x")?;
            let first = context.sqr(x)?;
            let second = context.scale(first, 2.0)?;
            let turned = context.transpose(second)?;
            let third = context.cont(turned)?;
            let fourth = context.neg(third)?;
            let fifth = context.add(fourth, third)?;
            context.set_name(fifth, "sum")?;
            context.set_output(fifth)?;
            let graph = Graph::from_outputs(&context, &[fifth])?;
            Ok(Self { x, nodes: [first, second, third, fourth, fifth], graph })
        };
        build().unwrap()
    }

    fn allocated(&self, backend: &CpuBackend) -> AllocatedChain {
        let allocation = allocate(&self.graph, &Bindings::new(), &backend.buffer_type());
        self.fill(&allocation);
        allocation
    }

    fn fill(&self, allocation: &Allocation) {
        allocation.write(self.x, &[1.5f32; 12]).unwrap();
    }
}

/// Graphs with a node that has no kernel behind one that has.
fn unsupported() -> Result<Vec<(Graph, TensorId, TensorId, &'static str)>, GraphError> {
    let mut graphs = Vec::new();
    let mut add = |act: &dyn Fn(&mut Context, TensorId) -> Result<TensorId, GraphError>, words: &'static str| {
        let mut context = Context::new();
        let x = context.input(F32, &[32, 2])?;
        let y = context.sqr(x)?;
        let node = act(&mut context, y)?;
        context.set_name(node, "odd")?;
        context.set_output(node)?;
        graphs.push((Graph::from_outputs(&context, &[node])?, x, node, words));
        Ok::<(), GraphError>(())
    };
    add(&|c, y| c.custom(&CustomOp::elementwise("F"), &[y], &[]), "F of (f32[32,2]) to f32[32,2]")?;
    add(
        &|c, y| {
            let w = c.new_tensor(DataType::Iq4Xs, &[256, 3])?;
            let y = c.reshape(y, &[64])?;
            let y = c.repeat(y, &[256])?;
            c.mul_mat(w, y)
        },
        "mul_mat of (iq4_xs[256,3], f32[256]) to f32[3]",
    )?;
    add(
        &|c, y| {
            let i = c.new_tensor(DataType::I32, &[32, 2])?;
            c.apply(Op::Add, &[Some(i), Some(y)], &[])
        },
        "add of (i32[32,2], f32[32,2]) to i32[32,2]",
    )?;
    add(
        &|c, y| {
            let place = c.new_tensor(DataType::Q5_0, &[32, 2])?;
            c.cpy(y, place)
        },
        "cpy of (f32[32,2], q5_0[32,2]) to q5_0[32,2]",
    )?;
    Ok(graphs)
}

#[test]
fn what_has_no_kernel_is_refused_by_name_and_changes_nothing() {
    let backend = CpuBackend::new(2);
    for (graph, x, node, words) in unsupported().unwrap() {
        let allocation = allocate(&graph, &Bindings::new(), &backend.buffer_type());
        for leaf in graph.leafs() {
            let size = allocation.raw_bytes(*leaf).unwrap().len();
            allocation.write_bytes(*leaf, &vec![0x3C; size]).unwrap();
        }
        let image = || {
            allocation.buffers().map(|buffer| {
                let mut bytes = vec![0; buffer.size().get() as usize];
                buffer.read(Offset(0), &mut bytes).unwrap();
                bytes
            })
        };
        let before: Vec<_> = image().collect();
        let errors = [
            backend.supports(&graph, node).unwrap_err(),
            CpuDevice::new().supports(&graph, node).unwrap_err(),
            backend.prepare(&graph, 0..graph.nodes().len(), &*allocation).map(drop).unwrap_err(),
            refusal(allocation.prepare(&backend).map(drop)),
            refusal(allocation.compute(&backend)),
        ];
        for error in &errors {
            assert!(matches!(error, DeviceError::Unsupported { node: named, .. } if named.id == node), "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains("odd") && text.contains(words) && text.starts_with("CPU: unsupported node: "),
                "{text}"
            );
        }
        assert_eq!(image().collect::<Vec<_>>(), before);
        // No run has happened: the input is still what was written.
        assert!(allocation.read_bytes(x).is_ok());
        assert!(
            matches!(allocation.read_bytes(node), Err(AllocError::NotComputed { .. })) || graph.tensor(node).is_view()
        );
        // What does not need the node can still be prepared.
        assert!(backend.prepare(&graph, 0..1, &*allocation).is_ok());
        assert!(backend.prepare(&graph, 0..graph.nodes().len() + 1, &*allocation).is_err());
    }
}

#[test]
fn what_another_backend_prepared_is_refused() {
    #[derive(Debug)]
    struct ForeignPrepared;
    impl steeve_device::Prepared for ForeignPrepared {
        fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
            self
        }
    }
    let error = CpuBackend::new(1).submit(&mut ForeignPrepared).unwrap_err();
    assert_eq!(error.to_string(), "CPU: wrong backend: expected nodes prepared by this backend");
}

#[test]
fn a_cancelled_backend_runs_nothing() {
    let (backend, chain) = (CpuBackend::new(2), NodeChain::new());
    let allocation = chain.allocated(&backend);
    let before = allocation.raw_bytes(chain.x).unwrap();
    backend.cancel().cancel();
    let error = refusal(allocation.compute(&backend));
    assert_eq!(error, DeviceError::Cancelled { node: 0, nodes: 6 });
    assert_eq!(error.to_string(), "run cancelled: before node 0 of 6");
    assert_eq!(allocation.raw_bytes(chain.x).unwrap(), before);
    // A run that was begun has consumed its inputs, however far it came.
    let consumed = |error: AllocError| matches!(error, AllocError::Consumed { tensor } if tensor.id == chain.x);
    assert!(consumed(allocation.read::<f32>(chain.x).unwrap_err()));
    backend.cancel().reset();
    assert!(consumed(allocation.compute(&backend).unwrap_err()));
    assert!(matches!(allocation.read::<f32>(chain.nodes[4]), Err(AllocError::Lost { .. })));
    chain.fill(&allocation);
    allocation.compute(&backend).unwrap();
    assert_eq!(allocation.read::<f32>(chain.nodes[4]).unwrap(), [0.0; 12]);
}

#[test]
fn a_kept_input_survives_a_cancelled_run() {
    let backend = CpuBackend::new(1);
    let mut context = Context::new();
    let x = context.input(F32, &[4]).unwrap();
    context.keep(x).unwrap();
    let y = context.sqr(x).unwrap();
    context.set_output(y).unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    let allocation = allocate(&graph, &Bindings::new(), &backend.buffer_type());
    allocation.write(x, &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    backend.cancel().cancel();
    assert!(allocation.compute(&backend).is_err());
    backend.cancel().reset();
    allocation.compute(&backend).unwrap();
    assert_eq!(allocation.read::<f32>(y).unwrap(), [1.0, 4.0, 9.0, 16.0]);
}

#[test]
fn the_callback_can_end_a_run() {
    let (backend, chain) = (CpuBackend::new(1), NodeChain::new());
    for stop in 0..5 {
        let (seen, cancel) = (Arc::new(AtomicUsize::new(0)), backend.cancel());
        // By saying so, which ends the run at once.
        let count = Arc::clone(&seen);
        backend.observe(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            index if index == stop => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let error = refusal(chain.allocated(&backend).compute(&backend));
        // A view among the nodes is counted, though no observer sees it.
        assert!(matches!(error, DeviceError::Cancelled { node, nodes: 6 } if node > stop), "{error}");
        assert_eq!(seen.load(Ordering::SeqCst), stop + 1);
        // By cancelling, which ends this run and all others before their next node; behind the last there is none.
        let count = Arc::new(AtomicUsize::new(0));
        backend.observe(move |_| {
            if count.fetch_add(1, Ordering::SeqCst) == stop {
                cancel.cancel();
            }
            ControlFlow::Continue(())
        });
        let result = chain.allocated(&backend).compute(&backend);
        match stop {
            4 => assert!(result.is_ok()),
            _ => assert!(matches!(refusal(result), DeviceError::Cancelled { node, nodes: 6 } if node > stop)),
        }
        backend.stop_observing();
        assert!(backend.cancel().is_cancelled());
        backend.cancel().reset();
    }
    assert!(chain.allocated(&backend).compute(&backend).is_ok());
}

#[test]
fn another_thread_can_end_a_run() {
    let (backend, chain) = (CpuBackend::new(2), NodeChain::new());
    let (began, has_begun) = channel();
    let (ended, has_ended) = channel();
    let cancel = backend.cancel();
    let watcher = std::thread::spawn(move || {
        has_begun.recv().unwrap();
        cancel.cancel();
        ended.send(()).unwrap();
    });
    let has_ended = Mutex::new(has_ended);
    backend.observe(move |_| {
        began.send(()).unwrap();
        has_ended.lock().unwrap().recv().unwrap();
        ControlFlow::Continue(())
    });
    let error = refusal(chain.allocated(&backend).compute(&backend));
    assert_eq!(error, DeviceError::Cancelled { node: 1, nodes: 6 });
    watcher.join().unwrap();
}

#[test]
fn runs_end_soon_after_somebody_says_so() {
    let backend = CpuBackend::new(2);
    let mut context = Context::new();
    let x = context.input(F32, &[256, 64]).unwrap();
    context.keep(x).unwrap();
    let mut y = x;
    for _ in 0..200 {
        y = context.rms_norm(y, 1e-5).unwrap();
    }
    context.set_output(y).unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    let allocation = allocate(&graph, &Bindings::new(), &backend.buffer_type());
    allocation.write(x, &[1.0f32; 256 * 64]).unwrap();
    let cancel = backend.cancel();
    let watcher = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        cancel.cancel();
    });
    // For as long as it takes: a run that never checks the flag never ends.
    let error = loop {
        if let Err(error) = allocation.compute(&backend) {
            break error;
        }
    };
    assert!(matches!(refusal(Err::<(), _>(error)), DeviceError::Cancelled { nodes: 200, .. }));
    watcher.join().unwrap();
}

#[test]
fn the_callback_sees_the_bytes_of_each_node_in_order() {
    let (backend, chain) = (CpuBackend::new(1), NodeChain::new());
    type Seen = (TensorId, Layout, Vec<u8>);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let list = Arc::clone(&seen);
    backend.observe(move |observed| {
        assert_eq!(observed.graph.tensor(observed.node).layout, observed.layout);
        list.lock().unwrap().push((observed.node, observed.layout, observed.bytes.to_vec()));
        ControlFlow::Continue(())
    });
    let allocation = chain.allocated(&backend);
    allocation.compute(&backend).unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    // The transposed view writes nothing, and the observer is not called.
    assert_eq!(seen.iter().map(|(node, ..)| *node).collect::<Vec<_>>(), chain.nodes);
    let floats = |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect() };
    for ((_, _, bytes), value) in seen.iter().zip([2.25, 4.5, 4.5, -4.5, 0.0]) {
        assert_eq!(floats(bytes), [value; 12]);
    }
    assert_eq!(seen[4].2, allocation.read_bytes(chain.nodes[4]).unwrap());
    // A view that is written spans its gaps as well.
    let mut context = Context::new();
    let x = context.input(F32, &[2, 3]).unwrap();
    let cache = context.new_tensor(F32, &[5, 3]).unwrap();
    let place = context.view_2d(cache, [2, 3], 20, Bytes(4)).unwrap();
    let write = context.cpy(x, place).unwrap();
    context.set_output(cache).unwrap();
    let graph = Graph::from_outputs(&context, &[write]).unwrap();
    let list: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let also = Arc::clone(&list);
    backend.observe(move |observed| {
        also.lock().unwrap().push(observed.bytes.to_vec());
        ControlFlow::Continue(())
    });
    let allocation = allocate(&graph, &Bindings::new(), &backend.buffer_type());
    allocation.write(x, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    allocation.write(cache, &[9.0f32; 15]).unwrap();
    allocation.compute(&backend).unwrap();
    backend.stop_observing();
    let list = list.lock().unwrap();
    assert_eq!(
        list.iter().map(|bytes| floats(bytes)).collect::<Vec<_>>(),
        [[1.0, 2.0, 9.0, 9.0, 9.0, 3.0, 4.0, 9.0, 9.0, 9.0, 5.0, 6.0]]
    );
}

#[test]
fn nobody_is_told_who_does_not_ask() {
    let (backend, chain) = (CpuBackend::new(1), NodeChain::new());
    let count = Arc::new(AtomicUsize::new(0));
    let also = Arc::clone(&count);
    backend.observe(move |_| {
        also.fetch_add(1, Ordering::SeqCst);
        ControlFlow::Continue(())
    });
    chain.allocated(&backend).compute(&backend).unwrap();
    backend.stop_observing();
    chain.allocated(&backend).compute(&backend).unwrap();
    assert_eq!((count.load(Ordering::SeqCst), backend.timings()), (5, None));
}

#[test]
fn timings_list_every_node_that_ran() {
    let (backend, chain) = (CpuBackend::new(2), NodeChain::new());
    backend.measure();
    assert_eq!(backend.timings().map(|it| it.0.len()), Some(0));
    for _ in 0..2 {
        // The last run alone.
        chain.allocated(&backend).compute(&backend).unwrap();
        let timings = backend.timings().unwrap();
        assert_eq!(timings.0.iter().map(|it| it.node).collect::<Vec<_>>(), chain.nodes);
        assert_eq!(timings.0.iter().map(|it| &*it.op).collect::<Vec<_>>(), ["SQR", "SCALE", "CONT", "UNARY", "ADD"]);
        assert_eq!(timings.total(), timings.0.iter().map(|it| it.time).sum());
        let by_op = timings.by_op();
        assert_eq!(by_op.iter().map(|(_, count, _)| count).sum::<usize>(), 5);
        assert!(by_op.is_sorted_by(|a, b| a.2 >= b.2));
        assert_eq!(timings.to_string().lines().count(), 1 + 5 + 1);
    }
    let cancel = backend.cancel();
    let count = AtomicUsize::new(0);
    backend.observe(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == 1 {
            cancel.cancel();
        }
        ControlFlow::Continue(())
    });
    assert!(chain.allocated(&backend).compute(&backend).is_err());
    let timings = backend.timings().unwrap();
    assert_eq!(timings.0.iter().map(|it| it.node).collect::<Vec<_>>(), chain.nodes[..2]);
}

#[test]
fn memory_that_the_processor_cannot_reach_is_refused() {
    let (backend, chain, far) = (CpuBackend::new(1), NodeChain::new(), DiscreteDevice::new("far"));
    let memory = &far.buffer_types()[0];
    let allocation = allocate(&chain.graph, &Bindings::new(), memory);
    chain.fill(&allocation);
    let error = refusal(allocation.compute(&backend));
    let DeviceError::Failed { why, .. } = &error else { panic!("{error:?}") };
    assert!(why.contains("far") && why.contains("unreachable"), "{why}");
    assert!(!CpuDevice::new().reads(memory) && CpuDevice::new().reads(&backend.buffer_type()));
    // Nothing was begun, so the input is still there.
    assert_eq!(allocation.read::<f32>(chain.x).unwrap(), [1.5; 12]);
    // A weight there is as bad.
    let mut context = Context::new();
    let x = context.input(F32, &[4]).unwrap();
    let w = context.external(F32, &[4, 3]).unwrap();
    context.set_name(w, "weight").unwrap();
    let y = context.mul_mat(w, x).unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    let buffer = SharedBuffer::allocate(memory, Bytes(48), Usage::Weights).unwrap();
    buffer.clear(0).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(w, &buffer, Offset(0), Bytes(48)).unwrap();
    let allocation = allocate(&graph, &bindings, &backend.buffer_type());
    allocation.write(x, &[1.0f32; 4]).unwrap();
    let error = refusal(allocation.compute(&backend)).to_string();
    assert!(error.contains("weight") && error.contains("far"), "{error}");
}

/// `y = w x`, with `w` in a buffer that others use too.
fn product(backend: &CpuBackend, weights: &SharedBuffer, x: f32) -> Result<Vec<f32>, AllocError> {
    let mut context = Context::new();
    let input = context.input(F32, &[64, 3]).unwrap();
    let w = context.external(F32, &[64, 48]).unwrap();
    let y = context.mul_mat(w, input).unwrap();
    let y = context.silu(y).unwrap();
    context.set_output(y).unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(w, weights, Offset(0), weights.size()).unwrap();
    let allocation = allocate(&graph, &bindings, &backend.buffer_type());
    allocation.write(input, &[x; 192]).unwrap();
    allocation.compute(backend)?;
    allocation.read(y)
}

#[test]
fn two_backends_share_weights_in_two_threads() {
    let memory: Arc<dyn BufferType> = CpuBackend::new(1).buffer_type();
    let weights = SharedBuffer::allocate(&memory, Bytes(64 * 48 * 4), Usage::Weights).unwrap();
    let numbers: Vec<u8> = (0..64 * 48).flat_map(|i| ((i % 17) as f32 / 16.0 - 0.5).to_le_bytes()).collect();
    weights.write(Offset(0), &numbers).unwrap();
    let alone = [1.0, -0.5].map(|x| product(&CpuBackend::new(1), &weights, x).unwrap());
    std::thread::scope(|scope| {
        for (x, wanted) in [1.0, -0.5].into_iter().zip(&alone) {
            let weights = &weights;
            scope.spawn(move || {
                let backend = CpuBackend::new(2);
                for _ in 0..100 {
                    assert_eq!(product(&backend, weights, x).as_ref(), Ok(wanted));
                }
            });
        }
    });
}

#[test]
fn who_writes_a_cache_has_it_alone() {
    let build = || -> Result<_, GraphError> {
        let mut context = Context::new();
        let x = context.input(F32, &[4])?;
        let cache = context.external(F32, &[4, 2])?;
        let place = context.view_1d(cache, 4, Bytes(16))?;
        let write = context.cpy(x, place)?;
        Ok((x, cache, Graph::from_outputs(&context, &[write])?))
    };
    let (x, cache, graph) = build().unwrap();
    let (one, other) = (CpuBackend::new(1), CpuBackend::new(1));
    let buffer = SharedBuffer::allocate(&one.buffer_type(), Bytes(32), Usage::Any).unwrap();
    let mut bindings = Bindings::new();
    bindings.bind(cache, &buffer, Offset(0), Bytes(32)).unwrap();
    let allocated = |value: f32| {
        let allocation = allocate(&graph, &bindings, &one.buffer_type());
        allocation.write(x, &[value; 4]).unwrap();
        allocation
    };
    let (first, second) = (allocated(1.0), allocated(2.0));
    // While the first runs, the second can't.
    let error: Arc<Mutex<Option<AllocError>>> = Arc::default();
    let (said, second) = (Arc::clone(&error), Mutex::new(second));
    one.observe(move |_| {
        *said.lock().unwrap() = second.lock().unwrap().compute(&other).err();
        ControlFlow::Continue(())
    });
    first.compute(&one).unwrap();
    let error = error.lock().unwrap().take();
    assert!(matches!(error, Some(AllocError::Device(DeviceError::InUse { .. }))), "{error:?}");
    let mut bytes = [0; 32];
    buffer.read(Offset(0), &mut bytes).unwrap();
    assert_eq!(bytes[16..], [0, 0, 0x80, 0x3F].repeat(4));
}

/// Graphs with ids that the caller writes: the ids, how many rows there are, and the node.
fn with_ids() -> Result<Vec<(CaseBuilder, TensorId, TensorId)>, GraphError> {
    let mut graphs = Vec::new();
    let within = Values::Within(1.0);
    for kind in 0..5 {
        let mut sketch = CaseBuilder::new(kind);
        let table = sketch.input(F32, &[8, 6], within)?;
        let ids_type = if kind == 1 { DataType::I64 } else { DataType::I32 };
        let ids = sketch.context.input(ids_type, if kind >= 3 { &[2, 1] } else { &[2] })?;
        let node = match kind {
            0 => sketch.context.get_rows(table, ids)?,
            1 | 2 => {
                let rows = sketch.input(F32, &[8, 2], within)?;
                sketch.context.set_rows(table, rows, ids)?
            }
            3 => {
                let experts = sketch.input(F32, &[8, 4, 6], within)?;
                let x = sketch.input(F32, &[8, 2, 1], within)?;
                sketch.context.mul_mat_id(experts, x, ids)?
            }
            _ => {
                let x = sketch.input(F32, &[8, 2, 1], within)?;
                sketch.context.apply(Op::AddId, &[Some(x), Some(table), Some(ids)], &[])?
            }
        };
        sketch.context.set_name(node, "picked")?;
        graphs.push((sketch, ids, node));
    }
    Ok(graphs)
}

#[test]
fn a_row_that_does_not_exist_is_an_error() {
    for (mut sketch, ids, node) in with_ids().unwrap() {
        sketch.context.set_output(node).unwrap();
        let graph = Graph::from_outputs(&sketch.context, &[node]).unwrap();
        let is_wide = graph.tensor(ids).layout.dtype() == DataType::I64;
        for backend in [CpuBackend::new(1), CpuBackend::new(2)] {
            let allocation = allocate(&graph, &Bindings::new(), &backend.buffer_type());
            for bad in [-1i64, 6, i64::from(i32::MAX), i64::from(i32::MIN)] {
                for pair in [[0, bad], [bad, 3]] {
                    for (leaf, bytes) in sketch.contents.iter().filter(|(id, _)| graph.leafs().contains(id)) {
                        allocation.write_bytes(*leaf, bytes).unwrap();
                    }
                    match is_wide {
                        true => allocation.write(ids, &pair).unwrap(),
                        false => allocation.write(ids, &pair.map(|id| id as i32)).unwrap(),
                    }
                    let error = refusal(allocation.compute(&backend)).to_string();
                    assert!(error.contains("picked") && error.contains(&bad.to_string()), "{error}");
                }
            }
            for (leaf, bytes) in sketch.contents.iter().filter(|(id, _)| graph.leafs().contains(id)) {
                allocation.write_bytes(*leaf, bytes).unwrap();
            }
            match is_wide {
                true => allocation.write(ids, &[5i64, 0]).unwrap(),
                false => allocation.write(ids, &[5i32, 0]).unwrap(),
            }
            allocation.compute(&backend).unwrap();
        }
    }
}

/// A result without elements needs no kernel, whatever the sizes of its other dimensions are.
#[test]
fn nothing_is_prepared_for_a_result_without_elements() {
    let graph: Graph = "a = input f32[1,0]; y = upscale(0) f32[1099511627776,0] a !output".parse().unwrap();
    let cpu = CpuBackend::new(1);
    cpu.supports(&graph, graph.nodes()[0]).unwrap();
    let memory = cpu.buffer_type();
    let run = allocate(&graph, &Bindings::new(), &memory);
    run.compute(&cpu).unwrap();
}

/// A write of some rows leaves the others as they are in the target, so its result is the target.
#[test]
fn rows_are_written_into_a_target_and_nowhere_else() {
    let text = "t = input f32[4,8]; r = input f32[4,2]; i = input i64[2]; z = set_rows f32[4,8]+0 r i t !output";
    let graph: Graph = text.parse().unwrap();
    let cpu = CpuBackend::new(1);
    cpu.supports(&graph, graph.nodes()[0]).unwrap();
    let own: Graph = text.replace("+0 r i t", " r i t !owner").parse().unwrap();
    assert!(!own.tensor(own.nodes()[0]).is_view());
    let error = cpu.supports(&own, own.nodes()[0]).unwrap_err();
    assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
}
