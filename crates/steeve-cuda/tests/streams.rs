//! Streams, events, copies and memory of each GPU there is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;

use std::sync::Arc;

use gpu::{alone, devices};
use steeve_cuda::Capture;
use steeve_device::{Bindings, BufferType, Bytes, Device, DeviceError, HostMemory, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Graph};
use steeve_runtime::GraphAllocator;

fn buffer(memory: &Arc<dyn BufferType>, size: u64) -> SharedBuffer {
    SharedBuffer::allocate(memory, Bytes(size), Usage::Any).unwrap()
}

fn pattern(size: usize, seed: u8) -> Vec<u8> {
    (0..size).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// A chain of additions on large tensors: work that takes a while.
struct Slow {
    graph: Graph,
    bindings: Bindings,
    out: SharedBuffer,
}

const COUNT: u64 = 1 << 24;

impl Slow {
    fn new(memory: &Arc<dyn BufferType>, steps: usize) -> Self {
        let mut context = Context::new();
        let first = context.external(DataType::F32, &[COUNT]).unwrap();
        let (mut nodes, mut last) = (Vec::new(), first);
        for _ in 0..steps {
            last = context.scale_bias(last, 1.0, 1.0).unwrap();
            nodes.push(last);
        }
        let graph = Graph::from_nodes(&context, &nodes).unwrap();
        let (mut bindings, out) = (Bindings::new(), buffer(memory, 4 * COUNT));
        let start = buffer(memory, 4 * COUNT);
        start.clear(0).unwrap();
        bindings.bind(first, &start, Offset(0), Bytes(4 * COUNT)).unwrap();
        // All in the bytes of the last.
        nodes.iter().for_each(|node| bindings.bind(*node, &out, Offset(0), Bytes(4 * COUNT)).unwrap());
        Self { graph, bindings, out }
    }

    fn steps(&self) -> usize {
        self.graph.nodes().len()
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it))
}

#[test]
fn copies_go_between_the_gpu_and_any_memory_of_the_host() {
    let _alone = alone();
    for device in devices() {
        let backend = device.backend().unwrap();
        let own = backend.buffer_type();
        let plain: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        for host in [&plain, device.host_memory()] {
            assert!(backend.can_copy(&own, host) && backend.can_copy(host, &own));
            assert!(!backend.can_copy(host, &plain));
            for size in [1, 1000, (5 << 20) + 3] {
                let (from, there, back) = (buffer(host, size + 8), buffer(&own, size + 8), buffer(host, size + 8));
                from.write(Offset(3), &pattern(size as usize, 7)).unwrap();
                backend.copy((&there, Offset(5)), (&from, Offset(3)), Bytes(size)).unwrap();
                backend.copy((&back, Offset(1)), (&there, Offset(5)), Bytes(size)).unwrap();
                backend.synchronise().unwrap();
                let mut seen = vec![0; size as usize];
                back.read(Offset(1), &mut seen).unwrap();
                assert!(seen == pattern(size as usize, 7), "{} bytes through {}", size, host.name());
            }
        }
        // Within one buffer, also where both ends overlap.
        let whole = buffer(&own, 4 << 20);
        for (from, to) in [(0u64, 2u64 << 20), (10, 500), (500, 10), (0, (1 << 20) + 1), (1 << 20, 5)] {
            let mut wanted = pattern(4 << 20, 1);
            backend.write(&whole, Offset(0), &wanted).unwrap();
            let size = 3 << 19;
            backend.copy((&whole, Offset(to)), (&whole, Offset(from)), Bytes(size)).unwrap();
            wanted.copy_within(from as usize..(from + size) as usize, to as usize);
            let mut seen = vec![0; 4 << 20];
            backend.read(&whole, Offset(0), &mut seen).unwrap();
            assert!(seen == wanted, "{from} to {to}");
        }
    }
}

#[test]
fn who_waits_for_an_event_sees_what_was_before_it() {
    let _alone = alone();
    for device in devices() {
        let (one, two) = (device.backend().unwrap(), device.backend().unwrap());
        let slow = Slow::new(&one.buffer_type(), 200);
        let mut prepared = one.prepare(&slow.graph, 0..slow.steps(), &slow.bindings).unwrap();
        for round in 0..3 {
            slow.out.clear(0).unwrap();
            let copy = buffer(&two.buffer_type(), 4 * COUNT);
            one.submit(&mut *prepared).unwrap();
            let event = one.record().unwrap();
            two.wait(&*event).unwrap();
            two.copy((&copy, Offset(0)), (&slow.out, Offset(0)), Bytes(4 * COUNT)).unwrap();
            let mut seen = vec![0; 4 * COUNT as usize];
            two.read(&copy, Offset(0), &mut seen).unwrap();
            assert!(floats(&seen).all(|x| x == slow.steps() as f32), "round {round}");
            event.synchronise().unwrap();
        }
    }
}

#[test]
fn what_is_given_back_while_it_is_used_is_used_to_the_end() {
    let _alone = alone();
    for capture in [Capture::AtOnce, Capture::Never] {
        for device in devices() {
            let device = device.with_capture(capture);
            let backend = device.backend().unwrap();
            let memory = backend.buffer_type();
            for _ in 0..3 {
                let slow = Slow::new(&memory, 100);
                let mut prepared = backend.prepare(&slow.graph, 0..slow.steps(), &slow.bindings).unwrap();
                backend.submit(&mut *prepared).unwrap();
                // All of it: the nodes, and the memory that they work on.
                drop(prepared);
                slow.out.release().unwrap();
                drop(slow);
                let other = buffer(&memory, 8 * COUNT);
                other.clear(0x55).unwrap();
                let mut seen = vec![0; 8 * COUNT as usize];
                other.read(Offset(0), &mut seen).unwrap();
                assert!(seen.iter().all(|byte| *byte == 0x55), "somebody still wrote there");
            }
            backend.synchronise().unwrap();
        }
    }
}

#[test]
fn an_error_is_reported_by_the_event_and_by_the_wait_for_all() {
    let _alone = alone();
    for device in devices() {
        let backend = device.backend().unwrap();
        let mut context = Context::new();
        let a = context.external(DataType::I32, &[4]).unwrap();
        let b = context.external(DataType::I32, &[4]).unwrap();
        let quotient = context.div(a, b).unwrap();
        context.set_name(quotient, "quotient").unwrap();
        let graph = Graph::from_outputs(&context, &[quotient]).unwrap();
        let (all, mut bindings) = (buffer(&backend.buffer_type(), 1024), Bindings::new());
        for (index, id) in [a, b, quotient].into_iter().enumerate() {
            bindings.bind(id, &all, Offset(256 * index as u64), Bytes(16)).unwrap();
        }
        let numbers = |numbers: [i32; 4]| numbers.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
        all.write(Offset(0), &numbers([7, -9, 5, i32::MIN])).unwrap();
        all.write(Offset(256), &numbers([2, 2, 0, -1])).unwrap();
        let mut prepared = backend.prepare(&graph, 0..1, &bindings).unwrap();
        backend.submit(&mut *prepared).unwrap();
        let said = |result: Result<(), DeviceError>| {
            let text = result.unwrap_err().to_string();
            assert!(text.contains("quotient") && text.contains("division by zero: 5"), "{text}");
        };
        said(backend.record().unwrap().synchronise());
        said(backend.synchronise());
        // And then it is over.
        backend.synchronise().unwrap();
        all.write(Offset(256), &numbers([2, 2, 1, -1])).unwrap();
        backend.submit(&mut *prepared).unwrap();
        let mut seen = [0; 16];
        backend.read(&all, Offset(512), &mut seen).unwrap();
        assert_eq!(seen[..], numbers([3, -4, 5, i32::MIN])[..]);
    }
}

/// Products of blocks need scratch memory: the same again and again, whoever prepares.
#[test]
fn graphs_in_turn_take_no_more_memory() {
    let _alone = alone();
    for device in devices() {
        let backend = device.backend().unwrap();
        let mut context = Context::new();
        let weights = context.external(DataType::Q8_0, &[1024, 1024]).unwrap();
        let mark = context.mark();
        let mut graphs = Vec::new();
        for columns in [512, 1, 40] {
            context.rewind(mark).unwrap();
            let x = context.input(DataType::F32, &[1024, columns]).unwrap();
            let y = context.mul_mat(weights, x).unwrap();
            let y = context.silu(y).unwrap();
            context.set_output(y).unwrap();
            graphs.push((Graph::from_outputs(&context, &[y]).unwrap(), x));
        }
        let mut bindings = Bindings::new();
        let (size, memory) = (context.tensors()[weights].nbytes(), backend.buffer_type());
        let weight_buffer = buffer(&memory, size.get());
        weight_buffer.clear(1).unwrap();
        bindings.bind(weights, &weight_buffer, Offset(0), size).unwrap();
        let mut allocator = GraphAllocator::new(&memory);
        allocator.reserve_all(graphs.iter().map(|(graph, _)| graph)).unwrap();
        let mut free = None;
        for round in 0..6 {
            for (graph, x) in &graphs {
                let allocation = allocator.alloc(graph, &bindings).unwrap();
                allocation.write_bytes(*x, &vec![0; graph.tensor(*x).nbytes().get() as usize]).unwrap();
                allocation.compute(&*backend).unwrap();
            }
            let now = device.memory().free;
            if round > 1 {
                assert!(free.is_none_or(|before| before <= now), "{free:?} were free, and {now} are");
            }
            free = Some(now);
        }
    }
}

/// From the second run on, or from the first, a run is one launch; and never where that is turned off.
#[test]
fn what_runs_again_is_one_launch() {
    let _alone = alone();
    for (capture, whole) in [(Capture::WhenRepeated, 4), (Capture::AtOnce, 5), (Capture::Never, 0)] {
        for device in devices() {
            let device = device.with_capture(capture);
            let backend = device.backend().unwrap();
            let slow = Slow::new(&backend.buffer_type(), 20);
            let mut prepared = backend.prepare(&slow.graph, 0..slow.steps(), &slow.bindings).unwrap();
            for _ in 0..5 {
                backend.submit(&mut *prepared).unwrap();
            }
            backend.synchronise().unwrap();
            let launches = device.launches();
            assert_eq!((launches.whole, launches.apart), (whole, 5 - whole), "{capture:?}: {launches:?}");
            assert_eq!(launches.captured, u64::from(whole > 0));
            assert_eq!(launches.refused, None);
        }
    }
}

/// Whoever asks again gets the same GPU: its memory is reached by everybody's backends.
#[test]
fn memory_of_a_device_is_that_of_the_same_device_asked_for_again() {
    let _alone = alone();
    for (one, other) in devices().into_iter().zip(devices()) {
        let (backend, memory) = (other.backend().unwrap(), &one.buffer_types()[0]);
        assert!(Arc::ptr_eq(memory, &backend.buffer_type()));
        let slow = Slow::new(memory, 3);
        let mut prepared = backend.prepare(&slow.graph, 0..3, &slow.bindings).unwrap();
        backend.submit(&mut *prepared).unwrap();
        backend.synchronise().unwrap();
    }
}

/// What is written is taken at once: the caller's bytes may change before the GPU gets there.
#[test]
fn bytes_that_are_written_may_change_at_once() {
    let _alone = alone();
    for device in devices() {
        let backend = device.backend().unwrap();
        let slow = Slow::new(&backend.buffer_type(), 200);
        let mut prepared = backend.prepare(&slow.graph, 0..slow.steps(), &slow.bindings).unwrap();
        let plain: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        for size in [1usize, 70_000, 1 << 20, (9 << 20) + 5] {
            let (there, host) = (buffer(&backend.buffer_type(), 3 * size as u64), buffer(&plain, size as u64));
            backend.submit(&mut *prepared).unwrap();
            let mut bytes = pattern(size, 1);
            backend.write(&there, Offset(0), &bytes).unwrap();
            bytes.fill(0xEE);
            backend.write(&there, Offset(size as u64), &pattern(size, 2)).unwrap();
            host.write(Offset(0), &pattern(size, 3)).unwrap();
            backend.copy((&there, Offset(2 * size as u64)), (&host, Offset(0)), Bytes(size as u64)).unwrap();
            // Plain memory may be given back while the copy is under way.
            drop(host);
            let mut seen = vec![0; 3 * size];
            backend.read(&there, Offset(0), &mut seen).unwrap();
            let wanted = [pattern(size, 1), pattern(size, 2), pattern(size, 3)].concat();
            assert!(seen == wanted, "{size} bytes");
        }
    }
}
