//! The world of the other tests is as it says: its devices keep all laws, fail as told, and nothing that they are asked
//! to do without order is missed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};
use steeve_testkit::test_devices;

use steeve_cpu::CpuDevice;
use steeve_device::conformance::{check_backend, check_device, check_memory};
use steeve_device::{
    Align, Backend, Bindings, BufferType, Bytes, Device, DeviceError, DeviceKind, DiscreteDevice, Graph, HostMemory,
    MemorySpec, Offset, Prepared, SharedBuffer, Usage,
};
use steeve_graph::Op;
use test_devices::{HOST, Hazard, Latency, TestSystem, TraceAction, Tracer, Violation, happens_before};

fn conforms(device: &dyn Device) {
    check_device(device).assert();
    device.buffer_types().iter().for_each(|memory| check_memory(memory).assert());
    let report = check_backend(&*device.backend().unwrap());
    report.assert();
    assert!(report.skipped.iter().all(|it| !it.law.contains("f32")), "{report:#}");
}

#[test]
fn devices_conform_at_once() {
    let world = TestSystem::new();
    conforms(&world.device("plain"));
    let (align, padding) = (Align::new(256).unwrap(), Align::new(128).unwrap());
    let odd = MemorySpec::new("odd").with_align(align).with_padding(padding).with_capacity(Bytes(1 << 27));
    conforms(&world.device(odd.with_max_size(Bytes(1 << 21)).with_hold(2)).reading_host());
}

#[test]
fn devices_conform_with_a_thread() {
    conforms(&TestSystem::new().device("thread").asynchronous(true));
}

#[test]
fn devices_conform_with_jitter() {
    conforms(&TestSystem::new().device("jitter").asynchronous(true).jitter(1, 3));
}

#[test]
fn devices_conform_when_they_are_watched() {
    let (world, tracer) = (TestSystem::new(), Tracer::new());
    conforms(&*tracer.device(world.device("watched").asynchronous(true)));
    conforms(&*tracer.device(CpuDevice::with_threads(1)));
    let trace = tracer.trace();
    assert!(trace.entries.len() > 10_000);
    // The suite itself gives buffers back into which it has enqueued a write, and waits for nothing.
    let is_free = |violation: &Violation| trace.entries[violation.later].what == TraceAction::Touch("free");
    assert!(happens_before(&trace).iter().all(is_free));
}

/// Buffers have slots of so many bytes: 16 numbers.
const SLOT: u64 = 64;

fn slot(index: u64) -> Offset {
    Offset(index * SLOT)
}

fn numbers(first: f32) -> Vec<u8> {
    (0..16).flat_map(|i| (first + i as f32).to_le_bytes()).collect()
}

/// Returns the numbers, squared this many times.
fn squares(first: f32, times: u32) -> Vec<u8> {
    (0..16).flat_map(|i| (0..times).fold(first + i as f32, |x, _| x * x).to_le_bytes()).collect()
}

fn square() -> Graph {
    "x = input 16; y = sqr x".parse().unwrap()
}

/// Prepares `y = x * x`, from one slot to another.
fn prepare_square(
    backend: &dyn Backend,
    buffer: &SharedBuffer,
    from: u64,
    to: u64,
) -> Result<Box<dyn Prepared>, DeviceError> {
    let (graph, mut bindings) = (square(), Bindings::new());
    bindings.bind(graph.leafs()[0], buffer, slot(from), Bytes(SLOT))?;
    bindings.bind(graph.nodes()[0], buffer, slot(to), Bytes(SLOT))?;
    backend.prepare(&graph, 0..1, &bindings)
}

fn run_square(backend: &dyn Backend, buffer: &SharedBuffer, from: u64, to: u64) -> Result<(), DeviceError> {
    backend.submit(&mut *prepare_square(backend, buffer, from, to)?)
}

fn read_slot(buffer: &SharedBuffer, index: u64) -> Vec<u8> {
    let mut bytes = vec![0; SLOT as usize];
    buffer.read(slot(index), &mut bytes).unwrap();
    bytes
}

fn slots(memory: &Arc<dyn BufferType>, count: u64) -> SharedBuffer {
    SharedBuffer::allocate(memory, Bytes(count * SLOT), Usage::Compute).unwrap()
}

fn host_memory() -> Arc<dyn BufferType> {
    Arc::new(HostMemory::new())
}

#[test]
fn the_host_reaches_the_memory_by_copies_only() {
    let device = TestSystem::new().device(MemorySpec::new("gpu").with_capacity(Bytes(4 * SLOT)));
    let buffer = slots(device.buffer_type(), 2);
    assert!(!device.buffer_type().is_host());
    assert_eq!(read_slot(&buffer, 1), [0xA5; SLOT as usize]);
    buffer.write(slot(1), &numbers(1.0)).unwrap();
    assert_eq!(read_slot(&buffer, 1), numbers(1.0));
    assert_eq!((device.live(), device.peak(), device.buffers()), (Bytes(2 * SLOT), Bytes(2 * SLOT), 1));
    let error = SharedBuffer::allocate(device.buffer_type(), Bytes(3 * SLOT), Usage::Any).unwrap_err();
    assert_eq!(error.to_string(), "gpu: out of memory: requested 192 bytes, 128 bytes available");
    drop(buffer);
    assert_eq!((device.live(), device.buffers()), (Bytes(0), 0));
}

#[test]
fn what_is_missing_is_refused_by_name() {
    let is_square = |graph: &Graph, node| graph.tensor(node).op == Op::Sqr;
    let device = TestSystem::new().device("gpu").without(is_square).offloading(is_square);
    let (backend, graph) = (device.backend().unwrap(), square());
    let node = graph.nodes()[0];
    let why = "gpu: unsupported node: tensor 1 (y), sqr of (f32[16]) to f32[16]: this device is made without it";
    assert_eq!(device.supports(&graph, node).unwrap_err().to_string(), why);
    let buffer = slots(device.buffer_type(), 2);
    assert_eq!(prepare_square(&*backend, &buffer, 0, 1).unwrap_err().to_string(), why);
    assert!(device.offloads(&graph, node));
    assert!(!TestSystem::new().device("gpu").offloads(&graph, node));
}

#[test]
fn nodes_run_where_the_device_reaches() {
    let (world, host) = (TestSystem::new(), host_memory());
    let (near, far) = (world.device("near").reading_host().asynchronous(true), world.device("far"));
    assert_eq!((near.kind(), far.kind()), (DeviceKind::IntegratedGpu, DeviceKind::Gpu));
    assert_eq!((near.reads(&host), far.reads(&host)), (true, false));
    assert!(!near.reads(far.buffer_type()));
    let buffer = slots(&host, 2);
    buffer.write(slot(0), &numbers(3.0)).unwrap();
    let backend = near.backend().unwrap();
    run_square(&*backend, &buffer, 0, 1).unwrap();
    // The host is not in the way: it gets the buffer at any time, and what is enqueued is done while it waits.
    for _ in 0..100 {
        buffer.write(slot(0), &numbers(3.0)).unwrap();
    }
    backend.synchronise().unwrap();
    assert_eq!(read_slot(&buffer, 1), squares(3.0, 1));
    for (device, memory) in [(&far, &host), (&far, near.buffer_type()), (&near, far.buffer_type())] {
        let error = prepare_square(&*device.backend().unwrap(), &slots(memory, 2), 0, 1).unwrap_err();
        let (name, memory) = (device.name(), memory.name());
        assert_eq!(error.to_string(), format!("{name}: unreachable memory: tensor 1 (y) is located in {memory}"));
    }
}

#[test]
fn copies_are_enqueued_between_memories_that_know_each_other() {
    let (world, host, stranger) = (TestSystem::new(), host_memory(), DiscreteDevice::new("stranger"));
    let stranger = Arc::clone(&stranger.buffer_types()[0]);
    let (all, peer) = (world.device("all"), world.device("peer"));
    let table = |device: &test_devices::TestDevice| {
        let (backend, own) = (device.backend().unwrap(), device.buffer_type());
        [own, &host, peer.buffer_type(), &stranger].map(|memory| {
            assert_eq!(backend.can_copy(own, memory), backend.can_copy(memory, own));
            assert!(!backend.can_copy(&host, memory) || Arc::ptr_eq(memory, own));
            backend.can_copy(own, memory)
        })
    };
    assert_eq!(table(&all), [true, true, true, false]);
    assert_eq!(table(&world.device("no host").without_host_copies()), [true, false, true, false]);
    assert_eq!(table(&world.device("no peers").without_peer_copies()), [true, true, false, false]);
    assert!(all.sharing("twin").backend().unwrap().can_copy(all.buffer_type(), all.buffer_type()));
}

#[test]
fn a_copy_that_can_not_be_enqueued_is_done_at_once() {
    let world = TestSystem::new();
    let device = world.device("gpu").asynchronous(true).without_host_copies();
    let (here, there) = (slots(&host_memory(), 1), slots(device.buffer_type(), 1));
    here.write(slot(0), &numbers(1.0)).unwrap();
    let backend = device.backend().unwrap();
    backend.copy((&there, slot(0)), (&here, slot(0)), Bytes(SLOT)).unwrap();
    assert_eq!(read_slot(&there, 0), numbers(1.0));
    backend.write(&here, slot(0), &numbers(2.0)).unwrap();
    assert_eq!(read_slot(&here, 0), numbers(2.0));
}

#[test]
fn devices_can_share_a_memory() {
    let world = TestSystem::new();
    let one = world.device("one").asynchronous(true);
    let two = one.sharing("two").asynchronous(true);
    assert!(Arc::ptr_eq(one.buffer_type(), two.buffer_type()) && one.reads(two.buffer_type()));
    let buffer = slots(one.buffer_type(), 3);
    let (first, second) = (one.backend().unwrap(), two.backend().unwrap());
    first.write(&buffer, slot(0), &numbers(1.0)).unwrap();
    run_square(&*first, &buffer, 0, 1).unwrap();
    second.wait(&*first.record().unwrap()).unwrap();
    run_square(&*second, &buffer, 1, 2).unwrap();
    second.synchronise().unwrap();
    assert_eq!(read_slot(&buffer, 2), squares(1.0, 2));
    let error = second.submit(&mut *prepare_square(&*first, &buffer, 0, 1).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "two: another backend has prepared these nodes");
}

#[test]
fn a_fault_strikes_once_and_names_the_device() {
    for asynchronous in [false, true] {
        let device = TestSystem::new().device("gpu").asynchronous(asynchronous);
        let (backend, faults) = (device.backend().unwrap(), device.faults());
        let buffer = slots(device.buffer_type(), 3);
        backend.write(&buffer, slot(0), &numbers(1.0)).unwrap();
        let mut prepared = prepare_square(&*backend, &buffer, 0, 1).unwrap();

        faults.fail_allocation_after(1);
        let make = || SharedBuffer::allocate(device.buffer_type(), Bytes(SLOT), Usage::Any);
        make().unwrap();
        assert_eq!(make().unwrap_err().to_string(), "gpu: injected fault: allocation");
        make().unwrap();

        faults.fail_submit_after(1);
        let mut run = || backend.submit(&mut *prepared).and_then(|()| backend.synchronise());
        run().unwrap();
        assert!(faults.is_pending());
        assert_eq!(run().unwrap_err().to_string(), "gpu: injected fault: run");
        assert!(!faults.is_pending());
        run().unwrap();

        faults.fail_copy_after(1);
        let copy = || {
            backend.copy((&buffer, slot(2)), (&buffer, slot(1)), Bytes(SLOT))?;
            backend.synchronise()
        };
        copy().unwrap();
        buffer.fill(slot(2), Bytes(SLOT), 0).unwrap_err();
        copy().unwrap();
        faults.fail_copy_after(0);
        assert_eq!(copy().unwrap_err().to_string(), "gpu: injected fault: copy");
        copy().unwrap();
        assert_eq!(read_slot(&buffer, 2), squares(1.0, 1));

        faults.fail_submit_after(0);
        faults.clear();
        assert!(!faults.is_pending());
        run().unwrap();
    }
}

#[test]
fn after_an_error_the_queue_is_skipped_until_somebody_is_told() {
    let world = TestSystem::new();
    let (device, other) = (world.device("gpu").asynchronous(true), world.device("other").asynchronous(true));
    let (backend, waiting) = (device.backend().unwrap(), other.backend().unwrap());
    let buffer = slots(device.buffer_type(), 4);
    buffer.write(slot(0), &numbers(1.0)).unwrap();
    for told_by_event in [false, true] {
        buffer.fill(slot(1), Bytes(3 * SLOT), 0).unwrap();
        device.faults().fail_submit_after(1);
        run_square(&*backend, &buffer, 0, 1).unwrap();
        let before = backend.record().unwrap();
        run_square(&*backend, &buffer, 0, 2).unwrap();
        run_square(&*backend, &buffer, 0, 3).unwrap();
        let behind = backend.record().unwrap();
        // The event happens all the same, and streams that wait for it do not get the error.
        waiting.wait(&*behind).unwrap();
        waiting.synchronise().unwrap();
        before.synchronise().unwrap();
        let told = if told_by_event { behind.synchronise() } else { backend.synchronise() };
        assert_eq!(told.unwrap_err().to_string(), "gpu: injected fault: run");
        behind.synchronise().unwrap();
        backend.synchronise().unwrap();
        let seen = [1, 2, 3].map(|index| read_slot(&buffer, index));
        assert_eq!(seen, [squares(1.0, 1), vec![0; SLOT as usize], vec![0; SLOT as usize]]);
        run_square(&*backend, &buffer, 0, 3).unwrap();
        backend.record().unwrap().synchronise().unwrap();
        assert_eq!(read_slot(&buffer, 3), squares(1.0, 1));
    }
}

/// Returns whether this process has such a thread; not known but on Linux.
fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.into_iter().any(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|it| it.trim() == name))
}

#[test]
fn a_stream_ends_with_its_backend_and_what_was_enqueued_is_done() {
    let world = TestSystem::new();
    let device = world.device("quite unique").asynchronous(true).slow_nodes(Latency::Slow(Duration::from_millis(1)));
    let (buffer, host) = (slots(device.buffer_type(), 2), slots(&host_memory(), 1));
    let backend = device.backend().unwrap();
    backend.write(&buffer, slot(0), &numbers(2.0)).unwrap();
    run_square(&*backend, &buffer, 0, 1).unwrap();
    backend.record().unwrap().synchronise().unwrap();
    assert!(has_thread("quite unique") || !cfg!(target_os = "linux"));
    backend.copy((&host, slot(0)), (&buffer, slot(1)), Bytes(SLOT)).unwrap();
    drop(backend);
    // The system lists a thread for a moment longer than it lives.
    let start = Instant::now();
    while has_thread("quite unique") {
        assert!(start.elapsed() < Duration::from_secs(10), "the thread is still there");
    }
    assert_eq!(read_slot(&host, 0), squares(2.0, 1));
}

#[test]
fn a_trace_has_all_that_was_asked_for() {
    let (world, tracer) = (TestSystem::new(), Tracer::new());
    let (gpu, cpu) = (tracer.device(world.device("gpu").asynchronous(true)), tracer.device(CpuDevice::with_threads(1)));
    let (there, here) = (&gpu.buffer_types()[0], &cpu.buffer_types()[0]);
    assert!(gpu.reads(there) && !gpu.reads(here) && cpu.reads(here) && !cpu.reads(there));
    let (stream, sync) = (gpu.backend().unwrap(), cpu.backend().unwrap());
    assert!(Arc::ptr_eq(&stream.buffer_type(), there) && Arc::ptr_eq(&sync.buffer_type(), here));
    assert!(stream.can_copy(there, here) && !sync.can_copy(here, there));
    let (far, near, unwatched) = (slots(there, 2), slots(here, 2), slots(&host_memory(), 2));
    near.write(slot(0), &numbers(1.0)).unwrap();
    unwatched.write(slot(0), &numbers(1.0)).unwrap();
    stream.copy((&far, slot(0)), (&near, slot(0)), Bytes(SLOT)).unwrap();
    run_square(&*stream, &far, 0, 1).unwrap();
    let event = stream.record().unwrap();
    sync.wait(&*event).unwrap();
    event.synchronise().unwrap();
    near.copy_from(slot(0), &far, slot(1), Bytes(SLOT)).unwrap();
    run_square(&*sync, &near, 0, 1).unwrap();
    run_square(&*sync, &unwatched, 0, 1).unwrap();
    sync.copy((&far, Offset(32)), (&near, slot(1)), Bytes(16)).unwrap();
    stream.write(&far, Offset(1), &[7]).unwrap();
    stream.read(&far, Offset(0), &mut [0; 2]).unwrap();
    stream.synchronise().unwrap();
    far.clear(0).unwrap();
    drop(far);
    let wanted = "\
entry 0, stream 0 (host) itself does a write; writes 0..64 of buffer 1 (CPU)
entry 1, stream 1 (gpu) copies; reads 0..64 of buffer 1 (CPU); writes 0..64 of buffer 0 (gpu)
entry 2, stream 1 (gpu) runs nodes 0..1; reads 0..64 of buffer 0 (gpu); writes 64..128 of buffer 0 (gpu)
entry 3, stream 1 (gpu) records event 0
entry 4, stream 0 (host) waits for event 0
entry 5, stream 0 (host) waits for event 0
entry 6, stream 0 (host) itself does a copy; reads 64..128 of buffer 0 (gpu); writes 0..64 of buffer 1 (CPU)
entry 7, stream 0 (host) runs nodes 0..1; reads 0..64 of buffer 1 (CPU); writes 64..128 of buffer 1 (CPU)
entry 8, stream 0 (host) runs nodes 0..1; reads 0..64 of buffer 2 (host); writes 64..128 of buffer 2 (host)
entry 9, stream 0 (host) copies; reads 64..80 of buffer 1 (CPU); writes 32..48 of buffer 0 (gpu)
entry 10, stream 1 (gpu) writes; writes 1..2 of buffer 0 (gpu)
entry 11, stream 1 (gpu) reads; reads 0..2 of buffer 0 (gpu)
entry 12, stream 0 (host) waits for all of stream 1 (gpu)
entry 13, stream 0 (host) waits for all of stream 1 (gpu)
entry 14, stream 0 (host) itself does a fill; writes 0..128 of buffer 0 (gpu)
entry 15, stream 0 (host) itself does a free; writes 0..128 of buffer 0 (gpu)
";
    let trace = tracer.trace();
    assert_eq!(trace.to_string(), wanted);
    assert_eq!(happens_before(&trace), []);
    assert_eq!(trace.count(|entry| entry.what == TraceAction::Copy && entry.stream != HOST), 1);
    tracer.clear();
    assert_eq!(tracer.trace().to_string(), "");
}

#[test]
fn devices_that_share_a_memory_share_it_when_they_are_watched() {
    let (world, tracer) = (TestSystem::new(), Tracer::new());
    let one = world.device("one");
    let twins = [tracer.device(one.sharing("two").asynchronous(true)), tracer.device(one.asynchronous(true))];
    assert!(Arc::ptr_eq(&twins[0].buffer_types()[0], &twins[1].buffer_types()[0]));
    let buffer = slots(&twins[0].buffer_types()[0], 1);
    let streams = twins.map(|device| device.backend().unwrap());
    streams.iter().for_each(|stream| stream.write(&buffer, slot(0), &[1]).unwrap());
    streams.iter().for_each(|stream| stream.synchronise().unwrap());
    assert_eq!(happens_before(&tracer.trace())[0].hazard, Hazard::WriteAfterWrite);
}

/// Two streams on two devices, and a buffer on each.
struct AccessScenario {
    world: TestSystem,
    tracer: Tracer,
    gpus: [Box<dyn Backend>; 2],
    buffers: [SharedBuffer; 2],
    /// Whether the waits are there that must be.
    waits: bool,
}

impl AccessScenario {
    fn new(waits: bool) -> Self {
        let (world, tracer) = (TestSystem::new(), Tracer::new());
        let devices = ["gpu0", "gpu1"].map(|name| tracer.device(world.device(name).asynchronous(true)));
        let buffers = devices.each_ref().map(|device| slots(&device.buffer_types()[0], 4));
        for (buffer, first) in buffers.iter().zip([1.0, 101.0]) {
            (0..4).for_each(|index| buffer.write(slot(index), &numbers(first + 20.0 * index as f32)).unwrap());
        }
        Self { gpus: devices.map(|device| device.backend().unwrap()), buffers, world, tracer, waits }
    }

    fn square(&self, gpu: usize, from: u64, to: u64) {
        run_square(&*self.gpus[gpu], &self.buffers[gpu], from, to).unwrap();
    }

    /// Copies from a slot of a buffer to one of the other, on gpu `by`.
    fn copy(&self, by: usize, to: (usize, u64), from: (usize, u64)) {
        let (to, from) = ((&self.buffers[to.0], slot(to.1)), (&self.buffers[from.0], slot(from.1)));
        self.gpus[by].copy(to, from, Bytes(SLOT)).unwrap();
    }

    /// Makes all later work of `gpu` wait for the work that `other` has so far.
    fn order(&self, gpu: usize, other: usize) {
        self.gpus[gpu].wait(&*self.gpus[other].record().unwrap()).unwrap();
    }

    fn finish(&self) -> Vec<Violation> {
        self.gpus.iter().for_each(|gpu| gpu.synchronise().unwrap());
        happens_before(&self.tracer.trace())
    }

    fn slot(&self, gpu: usize, index: u64) -> Vec<u8> {
        read_slot(&self.buffers[gpu], index)
    }
}

/// Checks that a hazard occurs without the waits, and only then. `held` is the gpu that is slow; `act` enqueues the
/// work and returns where the result is located, and what it is.
#[track_caller]
fn check(hazard: Hazard, held: usize, act: impl Fn(&AccessScenario) -> ((usize, u64), Vec<u8>)) {
    for waits in [true, false] {
        let scene = AccessScenario::new(waits);
        let latch = scene.world.latch();
        if !waits {
            scene.gpus[held].wait(latch.event()).unwrap();
        }
        let ((gpu, index), wanted) = act(&scene);
        if !waits {
            scene.gpus[1 - held].synchronise().unwrap();
            latch.release();
        }
        let found = scene.finish();
        let trace = scene.tracer.trace();
        if waits {
            assert_eq!(found, [], "{trace}");
            assert_eq!(scene.slot(gpu, index), wanted, "{trace}");
            continue;
        }
        assert_eq!(found.len(), 1, "{found:#?}\n{trace}");
        assert_eq!(found[0].hazard, hazard, "{}", found[0]);
        assert!(found[0].to_string().ends_with("; nothing orders the two"), "{}", found[0]);
        assert_ne!(scene.slot(gpu, index), wanted, "{trace}");
    }
}

#[test]
fn a_read_must_wait_for_the_write() {
    check(Hazard::ReadAfterWrite, 0, |scene| {
        scene.square(0, 0, 1);
        if scene.waits {
            scene.order(1, 0);
        }
        scene.copy(1, (1, 0), (0, 1));
        ((1, 0), squares(1.0, 1))
    });
}

#[test]
fn a_write_must_wait_for_the_reader() {
    check(Hazard::WriteAfterRead, 1, |scene| {
        scene.copy(1, (1, 0), (0, 1));
        if scene.waits {
            scene.order(0, 1);
        }
        scene.square(0, 0, 1);
        ((1, 0), numbers(21.0))
    });
}

#[test]
fn a_write_must_wait_for_the_writer() {
    check(Hazard::WriteAfterWrite, 0, |scene| {
        scene.copy(0, (1, 0), (0, 1));
        if scene.waits {
            scene.order(1, 0);
        }
        scene.square(1, 1, 0);
        ((1, 0), squares(121.0, 1))
    });
}

#[test]
fn the_host_must_not_write_during_a_run() {
    check(Hazard::WriteAfterRead, 0, |scene| {
        scene.square(0, 0, 1);
        if scene.waits {
            scene.gpus[0].record().unwrap().synchronise().unwrap();
        }
        scene.buffers[0].write(slot(0), &numbers(7.0)).unwrap();
        ((0, 1), squares(1.0, 1))
    });
}

#[test]
fn host_memory_must_not_change_while_it_is_copied() {
    for waits in [true, false] {
        let scene = AccessScenario::new(waits);
        let host = slots(&scene.tracer.memory(&host_memory()), 1);
        host.write(slot(0), &numbers(5.0)).unwrap();
        scene.gpus[0].copy((&scene.buffers[0], slot(0)), (&host, slot(0)), Bytes(SLOT)).unwrap();
        if waits {
            scene.gpus[0].synchronise().unwrap();
        }
        // Without a latch: the copy is made while the host waits, and never before.
        host.write(slot(0), &numbers(6.0)).unwrap();
        let found = scene.finish();
        assert_eq!(found.iter().map(|it| it.hazard).collect::<Vec<_>>(), [Hazard::WriteAfterRead][..!waits as usize]);
        assert_eq!(scene.slot(0, 0), numbers(if waits { 5.0 } else { 6.0 }));
    }
}

#[test]
fn a_run_must_wait_for_the_last_one() {
    check(Hazard::WriteAfterRead, 1, |scene| {
        for (run, first) in [(0, 1.0), (1, 2.0)] {
            let [gpu0, gpu1] = &scene.gpus;
            // A run is written, computed on one device, copied, and computed on the other.
            gpu0.write(&scene.buffers[0], slot(0), &numbers(first)).unwrap();
            if run == 1 && scene.waits {
                gpu0.wait(&*gpu1.record().unwrap()).unwrap();
            }
            scene.square(0, 0, 1);
            scene.order(1, 0);
            scene.copy(1, (1, 0), (0, 1));
            scene.square(1, 0, 1 + run);
        }
        ((1, 1), squares(1.0, 2))
    });
}

#[test]
fn a_buffer_must_not_be_given_back_during_a_run() {
    for waits in [true, false] {
        let AccessScenario { world, tracer, gpus, buffers: [buffer, _other], .. } = AccessScenario::new(waits);
        let latch = world.latch();
        gpus[0].wait(latch.event()).unwrap();
        run_square(&*gpus[0], &buffer, 0, 1).unwrap();
        if waits {
            latch.release();
            gpus[0].synchronise().unwrap();
        }
        buffer.release().unwrap();
        latch.release();
        gpus[0].synchronise().unwrap();
        let hazards: Vec<Hazard> = happens_before(&tracer.trace()).iter().map(|it| it.hazard).collect();
        assert_eq!(hazards, [Hazard::WriteAfterRead, Hazard::WriteAfterWrite][..if waits { 0 } else { 2 }]);
    }
}

#[test]
fn a_violation_says_what_is_wrong() {
    let scene = AccessScenario::new(false);
    scene.square(0, 0, 1);
    scene.copy(1, (1, 0), (0, 1));
    let found = scene.finish();
    let wanted = "ReadAfterWrite in bytes 64..128 of buffer 0 (gpu0): entry 8, stream 1 (gpu0) runs nodes 0..1, and \
                  writes them; entry 9, stream 2 (gpu1) copies, and reads them; nothing orders the two";
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [wanted]);
}
