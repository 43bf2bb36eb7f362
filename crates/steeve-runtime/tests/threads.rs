//! Laws of threads: an allocation is read from several, and misuse is an error in whichever thread it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use graphs::{device, graph, host, memory, tensor};
use steeve_device::{Align, Bindings, Buffer, BufferType, Bytes, DeviceError, HostMemory, Offset};
use steeve_runtime::{AllocError, AllocOptions, Allocation, GraphAllocator, TensorAllocator};

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn types_can_go_to_another_thread() {
    is_send::<GraphAllocator>();
    is_send::<TensorAllocator>();
    is_send::<Allocation>();
    is_send::<AllocOptions>();
    is_send::<AllocError>();
    is_send::<steeve_runtime::RunGuard>();
    is_sync::<GraphAllocator>();
    is_sync::<Allocation>();
    is_sync::<AllocError>();
}

#[test]
fn an_allocator_works_in_whichever_thread_it_is() {
    let graph = graph("x = input f32[64]; y = neg x !output");
    let mut allocator = GraphAllocator::new(&host());
    allocator.reserve(&graph).unwrap();
    let x = tensor(&graph, "x");
    let allocation = thread::spawn(move || {
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(x, &[2.0f32; 64]).unwrap();
        (allocator, allocation)
    });
    let (_allocator, allocation) = allocation.join().unwrap();
    assert_eq!(allocation.read::<f32>(x).unwrap(), [2.0; 64]);
}

#[test]
fn several_threads_read_through_one_handle() {
    for memory in [host(), memory(&device(32))] {
        let graph = graph("x = input i32[1000]; k = input i32[1000]; y = custom i32[1000] x k !output");
        let mut allocator = GraphAllocator::new(&memory);
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        let tensors = ["x", "k"].map(|name| tensor(&graph, name));
        let data: Vec<i32> = (0..1000).collect();
        tensors.iter().for_each(|id| allocation.write(*id, &data).unwrap());
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for index in 0..4 {
                let (start, allocation, data) = (&start, &allocation, &data);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..500 {
                        assert_eq!(&allocation.read::<i32>(tensors[(index + round) % 2]).unwrap(), data);
                    }
                });
            }
        });
    }
}

#[test]
fn a_run_in_one_thread_makes_misuse_in_another_an_error() {
    let graph = graph("x = input i8[64]; y = ?F i8[64] x !output");
    let (x, y) = (tensor(&graph, "x"), tensor(&graph, "y"));
    let mut allocator = GraphAllocator::new(&memory(&device(32)));
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    let other = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(x, &[1i8; 64]).unwrap();
    let ((begun, has_begun), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
    let shared = &allocation;
    thread::scope(|scope| {
        scope.spawn(move || {
            let run = shared.begin().unwrap();
            // As a backend does: one borrow for the run.
            let running = run.allocation().buffers().next().unwrap().borrow_mut().unwrap();
            begun.send(()).unwrap();
            // Whatever becomes of the other thread, its end of the channel goes.
            let _ = ended.recv();
            drop(running);
            run.finish();
        });
        let _end = end;
        has_begun.recv().unwrap();
        for handle in [&allocation, &other] {
            assert_eq!(handle.read::<i8>(y), Err(AllocError::Running));
            assert_eq!(handle.write(x, &[2i8; 64]), Err(AllocError::Running));
            assert_eq!(handle.write_raw_bytes(x, &[2; 64]), Err(AllocError::Running));
            assert_eq!(handle.begin().map(drop), Err(AllocError::Running));
            let buffer = handle.buffers().next().unwrap();
            assert!(matches!(buffer.clear(0), Err(DeviceError::InUse { .. })));
        }
        assert_eq!(allocator.alloc(&graph, &Bindings::new()).map(drop), Err(AllocError::Running));
        let larger = self::graph("x = input i8[640]; y = ?F i8[640] x !output");
        assert_eq!(allocator.reserve(&larger), Err(AllocError::Running));
    });
    assert!(allocation.read::<i8>(y).is_ok());
}

#[test]
fn an_allocator_that_is_dropped_during_a_run_leaves_the_run_its_memory() {
    let device = device(32);
    let graph = graph("x = input i8[64]; y = ?F i8[64] x !output");
    let mut allocator = GraphAllocator::new(&memory(&device));
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(tensor(&graph, "x"), &[1i8; 64]).unwrap();
    let run = allocation.begin().unwrap();
    {
        let running = allocation.buffers().next().unwrap().borrow_mut().unwrap();
        drop(allocator);
        assert_eq!((running.size(), device.ledger().live()), (Bytes(128), Bytes(128)));
    }
    run.finish();
    drop(allocation);
    assert_eq!(device.ledger().live(), Bytes(0));
}

/// Reads through an old handle while another thread takes the memory through new ones, over and over.
#[test]
fn who_reads_while_the_memory_changes_hands_sees_its_own_bytes_or_an_error() {
    let graph = graph("x = input i8[4096]; y = ?F i8[8] x !output");
    let x = tensor(&graph, "x");
    let mut allocator = GraphAllocator::new(&memory(&device(8)));
    for round in 0..400 {
        let value = (round % 100) as i8;
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(x, &[value; 4096]).unwrap();
        let later = allocator.alloc(&graph, &Bindings::new()).unwrap();
        let (good, stale) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while stale.load(Ordering::Relaxed) == 0 {
                        // Others must have a chance.
                        thread::sleep(Duration::from_micros(10));
                        match allocation.read::<i8>(x) {
                            Ok(found) => {
                                assert!(found.iter().all(|byte| *byte == value), "garbage without an error");
                                good.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(AllocError::Stale) => {
                                stale.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(AllocError::Device(DeviceError::InUse { .. })) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            while good.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            // The readers may hold the buffer just now, which is an error like any other.
            while later.write(x, &[-1i8; 4096]).is_err() {
                thread::yield_now();
            }
        });
    }
}

/// Memory whose transfers stop in the middle until they are told to go on.
#[derive(Debug)]
struct Gate {
    memory: HostMemory,
    doors: Arc<Doors>,
}

#[derive(Debug, Default)]
struct Doors {
    is_closed: AtomicBool,
    is_waiting: AtomicBool,
}

impl Doors {
    /// Called in the middle of a transfer.
    fn pass(&self) {
        if self.is_closed.load(Ordering::SeqCst) {
            self.is_waiting.store(true, Ordering::SeqCst);
            while self.is_closed.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
    }

    /// Runs `transfer` in another thread, and `meanwhile` while that is in its middle.
    fn during<T: Send>(&self, transfer: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
        self.is_waiting.store(false, Ordering::SeqCst);
        self.is_closed.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            let transfer = scope.spawn(transfer);
            while !self.is_waiting.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // Only who comes first waits; it goes on whatever becomes of this thread.
            let _open = Open(self);
            meanwhile();
            drop(_open);
            transfer.join().unwrap()
        })
    }
}

struct Open<'a>(&'a Doors);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(false, Ordering::SeqCst);
    }
}

impl BufferType for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn align(&self) -> Align {
        self.memory.align()
    }

    fn max_size(&self) -> Option<Bytes> {
        Some(Bytes(64))
    }

    fn is_host(&self) -> bool {
        false
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        Ok(Box::new(Gated { buffer: self.memory.allocate(size)?, doors: Arc::clone(&self.doors) }))
    }
}

#[derive(Debug)]
struct Gated {
    buffer: Box<dyn Buffer>,
    doors: Arc<Doors>,
}

impl Gated {
    /// The first one waits, whoever else comes meanwhile does not.
    fn pass(&self) {
        if !self.doors.is_waiting.load(Ordering::SeqCst) {
            self.doors.pass();
        }
    }
}

impl Buffer for Gated {
    fn size(&self) -> Bytes {
        self.buffer.size()
    }

    fn address(&self) -> u64 {
        self.buffer.address()
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        self.pass();
        self.buffer.read(offset, into)
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.pass();
        self.buffer.write(offset, from)
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        self.buffer.fill(offset, size, byte)
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        self.buffer.copy_within(from, to, size)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// `x` and `k` stand in buffers of their own, so a later handle can take the memory without touching the one in use.
const APART: &str = "x = input i8[64]; k = input i8[56]; y = ?JOIN i8[8] x k !output";

fn gated() -> (Arc<Doors>, GraphAllocator) {
    let doors = Arc::new(Doors::default());
    let memory = HostMemory::new().with_align(Align::new(8).unwrap());
    let memory: Arc<dyn BufferType> = Arc::new(Gate { memory, doors: Arc::clone(&doors) });
    (doors, GraphAllocator::new(&memory))
}

fn is_in_use<T>(result: Result<T, AllocError>) -> bool {
    matches!(result, Err(AllocError::Device(DeviceError::InUse { .. })))
}

#[test]
fn a_write_through_an_older_handle_never_counts_as_the_later_ones() {
    let (doors, mut allocator) = gated();
    let graph = graph(APART);
    let (x, k) = (tensor(&graph, "x"), tensor(&graph, "k"));
    let older = allocator.alloc(&graph, &Bindings::new()).unwrap();
    let later = allocator.alloc(&graph, &Bindings::new()).unwrap();
    let written = doors.during(
        || older.write(x, &[1i8; 64]),
        || {
            assert!(is_in_use(later.write(x, &[2i8; 64])));
            later.write(k, &[2i8; 56]).unwrap();
        },
    );
    assert_eq!(written, Ok(()));
    // Only `k` was written through the later one.
    assert!(matches!(later.read::<i8>(x), Err(AllocError::NotWritten { .. })));
    assert!(matches!(later.begin(), Err(AllocError::NotWritten { .. })));
    assert_eq!(older.read::<i8>(x), Err(AllocError::Stale));
}

#[test]
fn who_has_begun_to_read_gets_its_own_bytes() {
    let (doors, mut allocator) = gated();
    let graph = graph(APART);
    let (x, k) = (tensor(&graph, "x"), tensor(&graph, "k"));
    let older = allocator.alloc(&graph, &Bindings::new()).unwrap();
    let later = allocator.alloc(&graph, &Bindings::new()).unwrap();
    older.write(x, &[1i8; 64]).unwrap();
    let found = doors.during(
        || older.read::<i8>(x),
        || {
            assert!(is_in_use(later.write(x, &[2i8; 64])));
            assert!(is_in_use(later.write_raw_bytes(x, &[2; 64])));
            assert!(is_in_use(allocator.clear(2)));
            assert_eq!(older.read::<i8>(x), Err(AllocError::Stale), "clearing came far enough to say so");
            later.write(k, &[2i8; 56]).unwrap_err();
        },
    );
    assert_eq!(found, Ok(vec![1; 64]));
}

#[test]
fn what_is_being_read_does_not_grow() {
    let (doors, mut allocator) = gated();
    let graph = graph("x = input i8[32]; y = ?F i8[8] x !output");
    let larger = self::graph("x = input i8[40]; y = ?F i8[8] x !output");
    let x = tensor(&graph, "x");
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(x, &[1i8; 32]).unwrap();
    let size = allocator.buffer_size(0);
    let found = doors.during(|| allocation.read::<i8>(x), || assert!(is_in_use(allocator.reserve(&larger))));
    assert_eq!((found, allocator.buffer_size(0)), (Ok(vec![1; 32]), size));
    assert_eq!(allocation.read::<i8>(x).unwrap(), [1; 32]);
    // One more buffer beside it is another matter.
    let more = self::graph("x = input i8[40]; k = input i8[40]; y = ?JOIN i8[0] x k !output");
    let found = doors.during(|| allocation.read::<i8>(x), || allocator.reserve(&more).unwrap());
    assert_eq!((found, allocator.buffer_size(0)), (Ok(vec![1; 32]), Ok(Bytes(80))));
    allocator.reserve(&self::graph("x = input i8[64]; y = ?F i8[0] x !output")).unwrap();
    assert_eq!(allocation.read::<i8>(x), Err(AllocError::Stale));
}

#[test]
fn growing_while_others_read_loses_no_memory() {
    let graph = graph("x = input i8[64]; y = ?F i8[64] x !output");
    let larger = self::graph("x = input i8[640]; y = ?F i8[640] x !output");
    let x = tensor(&graph, "x");
    let device = device(32);
    for _ in 0..100 {
        let mut allocator = GraphAllocator::new(&memory(&device));
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(x, &[3i8; 64]).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_micros(10));
                    match allocation.read::<i8>(x) {
                        Ok(found) => assert_eq!(found, [3; 64]),
                        Err(AllocError::Stale | AllocError::Device(DeviceError::InUse { .. })) => {}
                        // It had passed the first check when the memory went.
                        Err(AllocError::Device(DeviceError::Released { .. })) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            while let Err(error) = allocator.reserve(&larger) {
                assert!(matches!(error, AllocError::Device(DeviceError::InUse { .. })), "{error}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(device.ledger().live(), Bytes(1280));
    }
}
