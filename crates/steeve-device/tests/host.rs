//! Memory of this process: its own, and an owner's. Runs under valgrind too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use memmap2::{Mmap, MmapMut, MmapOptions};
use proptest::prelude::*;
use steeve_device::{
    Align, Buffer, BufferType, Bytes, Device, DeviceError, DiscreteDevice, HostBuffer, HostMemory, Offset, Pages,
    SharedBuffer, Span, SpanMut, Usage,
};

fn align(bytes: u64) -> Align {
    Align::new(bytes).unwrap()
}

fn bytes_of(buffer: &dyn Buffer) -> Vec<u8> {
    let mut bytes = vec![0xEE; buffer.size().0 as usize];
    buffer.read(Offset(0), &mut bytes).unwrap();
    bytes
}

#[test]
fn buffers_stand_at_multiples_of_every_alignment_and_are_zero() {
    for pages in [Pages::Plain, Pages::Huge] {
        for log2 in 0..=21 {
            let memory = HostMemory::new().with_align(align(1 << log2)).with_pages(pages);
            assert_eq!(memory.align().get(), 1 << log2);
            let buffers = [0, 1, 63, 4097].map(|size| memory.allocate(Bytes(size)).unwrap());
            for (buffer, size) in buffers.iter().zip([0, 1, 63, 4097]) {
                assert_eq!(buffer.address() % (1 << log2), 0, "{pages:?} {log2}");
                assert_eq!(buffer.size(), Bytes(size));
                assert!(bytes_of(&**buffer).iter().all(|byte| *byte == 0), "{pages:?} {log2}");
            }
        }
    }
}

#[test]
fn plain_buffers_start_on_a_cache_line() {
    let memory = HostMemory::new().with_align(Align::ONE);
    let buffers: Vec<_> = (1..50).map(|size| memory.allocate(Bytes(size)).unwrap()).collect();
    assert!(buffers.iter().all(|buffer| buffer.address() % 64 == 0));
}

#[test]
fn a_whole_buffer_can_be_written_where_it_stands() {
    for pages in [Pages::Plain, Pages::Huge] {
        for size in [1, 4095, 4096, 100_000] {
            let mut buffer = HostMemory::new().with_pages(pages).allocate(Bytes(size)).unwrap();
            let mut span = SpanMut::of(&mut *buffer, Offset(0), Bytes(size)).unwrap().unwrap();
            for (index, byte) in span.as_slice_mut().iter_mut().enumerate() {
                *byte = index as u8;
            }
            let seen = bytes_of(&*buffer);
            assert!(seen.iter().enumerate().all(|(index, byte)| *byte == index as u8), "{pages:?} {size}");
        }
    }
}

#[test]
fn what_no_process_has_is_refused() {
    for pages in [Pages::Plain, Pages::Huge] {
        let memory = HostMemory::new().with_pages(pages);
        for size in [1 << 62, isize::MAX as u64, isize::MAX as u64 + 1, u64::MAX] {
            let error = memory.allocate(Bytes(size)).unwrap_err();
            assert_eq!(error.to_string(), format!("host: out of memory: requested {size} bytes"));
        }
        // An alignment that leaves room for nothing else.
        let memory = memory.with_align(align(1 << 63));
        assert!(memory.allocate(Bytes(1)).is_err());
        assert_eq!(memory.allocate(Bytes(0)).unwrap().address() % (1 << 63), 0);
    }
}

#[test]
fn an_empty_buffer_has_empty_transfers_only() {
    for mut buffer in [
        HostMemory::new().allocate(Bytes(0)).unwrap(),
        HostMemory::new().with_pages(Pages::Huge).allocate(Bytes(0)).unwrap(),
        Box::new(HostBuffer::owned("vector", Vec::new())),
    ] {
        assert_eq!(buffer.size(), Bytes(0));
        buffer.read(Offset(0), &mut []).unwrap();
        buffer.write(Offset(0), &[]).unwrap();
        buffer.fill(Offset(0), Bytes(0), 1).unwrap();
        buffer.copy_within(Offset(0), Offset(0), Bytes(0)).unwrap();
        buffer.clear(1).unwrap();
        assert!(buffer.read(Offset(0), &mut [0]).is_err() && buffer.write(Offset(1), &[]).is_err());
        let mut span = SpanMut::of(&mut *buffer, Offset(0), Bytes(0)).unwrap().unwrap();
        assert!(span.is_empty() && span.as_slice_mut().is_empty());
        assert!(Span::of(&*buffer, Offset(0), Bytes(0)).unwrap().unwrap().as_slice().is_empty());
    }
}

#[test]
fn spans_are_what_was_asked_for() {
    let mut buffer = HostBuffer::owned("vector", (0..100).collect::<Vec<u8>>());
    let span = buffer.span(Offset(10), Bytes(5)).unwrap();
    assert_eq!((span.as_slice(), span.len(), span.is_empty()), (&[10, 11, 12, 13, 14][..], 5, false));
    assert_eq!(span.start().addr() as u64, buffer.address() + 10);
    let copy = span;
    assert_eq!(copy.as_slice(), span.as_slice());
    let mut span = buffer.span_mut(Offset(98), Bytes(2)).unwrap();
    assert_eq!((span.len(), span.is_empty()), (2, false));
    span.as_slice_mut()[1] = 7;
    assert!(!span.start().is_null());
    assert_eq!(bytes_of(&buffer)[98..], [98, 7]);
    for (offset, size) in [(98, 3), (100, 1), (101, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
        let (offset, size) = (Offset(offset), Bytes(size));
        let error = DeviceError::Outside { memory: "vector".into(), offset, size, room: Bytes(100) };
        assert_eq!(buffer.span(offset, size).unwrap_err(), error);
        assert_eq!(buffer.span_mut(offset, size).unwrap_err(), error);
    }
}

#[test]
fn spans_go_to_other_threads() {
    let mut buffer = HostMemory::new().allocate(Bytes(64)).unwrap();
    let mut span = SpanMut::of(&mut *buffer, Offset(0), Bytes(64)).unwrap().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || span.as_slice_mut().fill(3));
    });
    let span = Span::of(&*buffer, Offset(0), Bytes(64)).unwrap().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || assert_eq!(span.as_slice(), [3; 64]));
        }
    });
}

#[test]
fn memory_elsewhere_has_no_spans() {
    let device = DiscreteDevice::new("gpu");
    let mut buffer = device.buffer_types()[0].allocate(Bytes(8)).unwrap();
    assert!(Span::of(&*buffer, Offset(0), Bytes(8)).is_none());
    assert!(SpanMut::of(&mut *buffer, Offset(0), Bytes(8)).is_none());
}

/// Counts how often it is dropped.
struct DropCounted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for DropCounted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for DropCounted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for DropCounted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn an_owner_lives_as_long_as_its_buffer_and_no_longer() {
    let drops = Arc::new(AtomicUsize::new(0));
    let owner = || DropCounted(vec![5; 10], Arc::clone(&drops));
    let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    for buffer in [HostBuffer::owned("owned", owner()), HostBuffer::read_only("kept", owner())] {
        let before = drops.load(Ordering::SeqCst);
        let handle = SharedBuffer::new(Arc::clone(&memory), Box::new(buffer), Usage::Weights);
        let other = handle.clone();
        drop(handle);
        let mut seen = [0; 10];
        other.read(Offset(0), &mut seen).unwrap();
        assert_eq!((seen, drops.load(Ordering::SeqCst)), ([5; 10], before));
        other.release().unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), before + 1);
        drop(other);
        assert_eq!(drops.load(Ordering::SeqCst), before + 1);
    }
}

#[test]
fn many_kinds_of_owners_can_be_read_and_some_written() {
    let shared: Arc<[u8]> = (0..50).collect::<Vec<u8>>().into();
    static FIXED: [u8; 50] = [9; 50];
    let leaked: &'static mut [u8] = Box::leak(vec![1; 50].into_boxed_slice());
    // What a test leaks on purpose is not lost: a static knows it.
    static KEPT: OnceLock<usize> = OnceLock::new();
    KEPT.set(leaked.as_ptr().expose_provenance()).unwrap();
    let buffers = [
        (HostBuffer::read_only("arc", Arc::clone(&shared)), false),
        (HostBuffer::read_only("static", &FIXED[..]), false),
        (HostBuffer::read_only("text", "x".repeat(50)), false),
        (HostBuffer::owned("vector", vec![2; 50]), true),
        (HostBuffer::owned("box", vec![3; 50].into_boxed_slice()), true),
        (HostBuffer::owned("array", [4; 50]), true),
        (HostBuffer::owned("leaked", leaked), true),
    ];
    for (mut buffer, writable) in buffers {
        assert_eq!(buffer.size(), Bytes(50));
        let before = bytes_of(&buffer);
        let written = buffer.write(Offset(49), &[77]);
        assert_eq!(written.is_ok(), writable);
        let last = if writable { 77 } else { before[49] };
        let mut after = before.clone();
        after[49] = last;
        assert_eq!(bytes_of(&buffer), after);
    }
    assert_eq!(*shared, *(0..50).collect::<Vec<u8>>());
}

#[test]
fn read_only_memory_refuses_every_write() {
    let mut buffer = HostBuffer::read_only("weights", vec![1; 8]);
    let other = HostBuffer::owned("vector", vec![2; 8]);
    let read_only = DeviceError::ReadOnly { memory: "weights".into() };
    assert_eq!(buffer.write(Offset(0), &[1]), Err(read_only.clone()));
    assert_eq!(buffer.fill(Offset(0), Bytes(1), 1), Err(read_only.clone()));
    assert_eq!(buffer.clear(1), Err(read_only.clone()));
    assert_eq!(buffer.copy_within(Offset(0), Offset(1), Bytes(1)), Err(read_only.clone()));
    assert_eq!(buffer.copy_from(Offset(0), &other, Offset(0), Bytes(1)), Err(read_only.clone()));
    assert_eq!(buffer.span_mut(Offset(0), Bytes(1)).unwrap_err(), read_only);
    assert_eq!(bytes_of(&buffer), [1; 8]);
    let mut target = HostBuffer::owned("vector", vec![2; 8]);
    target.copy_from(Offset(2), &buffer, Offset(4), Bytes(4)).unwrap();
    assert_eq!(bytes_of(&target), [2, 2, 1, 1, 1, 1, 2, 2]);
}

/// An owner that never says the same twice.
struct VaryingLength(Vec<u8>, AtomicUsize);

impl VaryingLength {
    fn len(&self) -> usize {
        [64, 1, 0, 33][self.1.fetch_add(1, Ordering::SeqCst) % 4]
    }
}

impl AsRef<[u8]> for VaryingLength {
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.len()]
    }
}

impl AsMut<[u8]> for VaryingLength {
    fn as_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.0[..len]
    }
}

#[test]
fn an_owner_that_changes_its_mind_harms_nobody() {
    let mut buffer = HostBuffer::owned("fickle", VaryingLength(vec![0; 64], AtomicUsize::new(0)));
    for round in 0..200 {
        let (offset, size) = (Offset(round % 70), Bytes(round % 5));
        // Whatever comes of it: it is an error, or it is within what the owner said at that moment.
        let _ = buffer.fill(offset, size, 1);
        let _ = buffer.write(offset, &[1, 2, 3][..(round % 4) as usize]);
        let _ = buffer.read(offset, &mut [0; 3]);
        let _ = buffer.copy_within(offset, Offset(0), size);
        let _ = buffer.span(offset, size).map(|span| span.as_slice().to_vec());
    }
}

/// A file that is gone with the test.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("steeve-{}-{name}", std::process::id()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        Self(path)
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.0).unwrap()
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::open(&self.0).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_mapped_file_is_read_where_it_stands() {
    let bytes: Vec<u8> = (0..10_000u32).map(|index| index as u8).collect();
    let file = TemporaryFile::new("read", &bytes);
    // SAFETY: nothing changes the file while it is mapped.
    let map = unsafe { Mmap::map(&file.open()) }.unwrap();
    let start = map.as_ptr().addr() as u64;
    let mut buffer = HostBuffer::read_only("file", map);
    assert_eq!((buffer.address(), buffer.size()), (start, Bytes(10_000)));
    assert_eq!(bytes_of(&buffer), bytes);
    assert_eq!(buffer.span(Offset(9_999), Bytes(1)).unwrap().as_slice(), &bytes[9_999..]);
    assert!(matches!(buffer.write(Offset(0), &[1]), Err(DeviceError::ReadOnly { .. })));
    drop(buffer);
    assert_eq!(file.contents(), bytes);
}

#[test]
fn a_file_is_mapped_to_be_read_and_stays_what_it_was() {
    let page = 4096;
    for length in [0, 1, page - 1, page, page + 1, 3 * page] {
        let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let file = TemporaryFile::new("map", &bytes);
        let open = File::open(&file.0).unwrap();
        let mut buffer = HostBuffer::map_file("model", &open).unwrap();
        assert_eq!((buffer.size(), buffer.address() % 4096), (Bytes(length as u64), 0));
        assert_eq!(bytes_of(&buffer), bytes);
        let size = Bytes(length as u64);
        assert!(buffer.span(Offset(0), size).is_ok() && buffer.span(Offset(1), size).is_err());
        let refused = DeviceError::ReadOnly { memory: "model".into() };
        assert_eq!(buffer.write(Offset(0), &bytes[..length.min(1)]), Err(refused.clone()));
        assert_eq!(buffer.clear(1), Err(refused));
        // The handle may be closed, and a file that is renamed over the name does not change what is mapped.
        drop(open);
        let other = TemporaryFile::new("map-other", &vec![7; length]);
        std::fs::rename(&other.0, &file.0).unwrap();
        assert_eq!(bytes_of(&buffer), bytes);
        let shared = SharedBuffer::map_file("model", &file.open(), Usage::Weights).unwrap();
        assert_eq!((shared.usage(), shared.size(), shared.memory().is_host()), (Usage::Weights, size, true));
        assert!(matches!(shared.write(Offset(0), &[]), Err(DeviceError::ReadOnly { .. })));
    }
    // What can't be mapped is an error of the system.
    assert!(HostBuffer::map_file("folder", &File::open(std::env::temp_dir()).unwrap()).is_err());
}

#[test]
fn a_mapped_file_is_written_where_it_stands() {
    let file = TemporaryFile::new("write", &[1; 5000]);
    // SAFETY: nothing else changes the file while it is mapped.
    let map = unsafe { MmapMut::map_mut(&file.open()) }.unwrap();
    let mut buffer = HostBuffer::owned("file", map);
    buffer.write(Offset(4_998), &[2, 3]).unwrap();
    buffer.copy_within(Offset(4_998), Offset(0), Bytes(2)).unwrap();
    assert!(buffer.write(Offset(4_999), &[2, 3]).is_err());
    drop(buffer);
    let contents = file.contents();
    assert_eq!((&contents[..3], &contents[4_997..]), (&[2, 3, 1][..], &[1, 2, 3][..]));
    // A private mapping leaves the file alone.
    // SAFETY: nothing else changes the file while it is mapped.
    let map = unsafe { MmapOptions::new().map_copy(&file.open()) }.unwrap();
    let mut buffer = HostBuffer::owned("copy of a file", map);
    buffer.clear(9).unwrap();
    assert!(bytes_of(&buffer).iter().all(|byte| *byte == 9));
    drop(buffer);
    assert_eq!(file.contents(), contents);
}

#[test]
fn swapped_buffers_keep_their_memory() {
    let memory = HostMemory::new();
    let (mut one, mut two) = (memory.allocate(Bytes(16)).unwrap(), memory.allocate(Bytes(4)).unwrap());
    one.clear(1).unwrap();
    two.clear(2).unwrap();
    let hosts = (one.as_any_mut().downcast_mut::<HostBuffer>(), two.as_any_mut().downcast_mut::<HostBuffer>());
    std::mem::swap(hosts.0.unwrap(), hosts.1.unwrap());
    assert_eq!((bytes_of(&*one), bytes_of(&*two)), (vec![2; 4], vec![1; 16]));
    // A handle has noted the size, but every access asks the buffer itself.
    let shared: Arc<dyn BufferType> = Arc::new(memory.clone());
    let handle = SharedBuffer::new(shared, two, Usage::Any);
    let mut small = memory.allocate(Bytes(1)).unwrap();
    let mut writing = handle.borrow_mut().unwrap();
    let hosts = (writing.as_any_mut().downcast_mut::<HostBuffer>(), small.as_any_mut().downcast_mut::<HostBuffer>());
    std::mem::swap(hosts.0.unwrap(), hosts.1.unwrap());
    drop(writing);
    assert_eq!(handle.size(), Bytes(16));
    assert!(handle.write(Offset(1), &[1]).is_err());
    assert!(SpanMut::of(&mut *handle.borrow_mut().unwrap(), Offset(0), Bytes(16)).unwrap().is_err());
}

/// A transfer, with any numbers.
#[derive(Clone, Debug)]
enum Transfer {
    Write(u64, Vec<u8>),
    Read(u64, usize),
    Fill(u64, u64, u8),
    CopyWithin(u64, u64, u64),
    CopyFrom(u64, u64, u64),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..140, 1 => Just(u64::MAX), 1 => u64::MAX - 140.., 1 => any::<u64>()]
}

fn act() -> impl Strategy<Value = Transfer> {
    prop_oneof![
        (number(), prop::collection::vec(any::<u8>(), 0..140)).prop_map(|(at, bytes)| Transfer::Write(at, bytes)),
        (number(), 0usize..140).prop_map(|(at, size)| Transfer::Read(at, size)),
        (number(), number(), any::<u8>()).prop_map(|(at, size, byte)| Transfer::Fill(at, size, byte)),
        (number(), number(), number()).prop_map(|(from, to, size)| Transfer::CopyWithin(from, to, size)),
        (number(), number(), number()).prop_map(|(to, from, size)| Transfer::CopyFrom(to, from, size)),
    ]
}

fn range(room: usize, at: u64, size: u64) -> Option<std::ops::Range<usize>> {
    let end = at.checked_add(size).filter(|end| *end <= room as u64)?;
    Some(at as usize..end as usize)
}

/// Makes the transfer on a vector; `None` if it passes an end.
fn model(model: &mut [u8], other: &[u8], act: &Transfer) -> Option<()> {
    let room = model.len();
    match act {
        Transfer::Write(at, bytes) => model[range(room, *at, bytes.len() as u64)?].copy_from_slice(bytes),
        Transfer::Read(at, size) => {
            range(room, *at, *size as u64)?;
        }
        Transfer::Fill(at, size, byte) => model[range(room, *at, *size)?].fill(*byte),
        Transfer::CopyWithin(from, to, size) => {
            let (from, to) = (range(room, *from, *size)?, range(room, *to, *size)?);
            model.copy_within(from, to.start);
        }
        Transfer::CopyFrom(to, from, size) => {
            let (to, from) = (range(room, *to, *size)?, range(other.len(), *from, *size)?);
            model[to].copy_from_slice(&other[from]);
        }
    }
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_buffer_does_what_a_vector_does(transfers in prop::collection::vec(act(), 1..40)) {
        let first: Vec<u8> = (0..131).collect();
        let other: Vec<u8> = (0..97).map(|byte| byte ^ 0xFF).collect();
        let source = HostBuffer::read_only("source", other.clone());
        let mut lent = first.clone();
        let mut buffers: Vec<Box<dyn Buffer>> = vec![
            HostMemory::new().allocate(Bytes(131)).unwrap(),
            HostMemory::new().with_pages(Pages::Huge).allocate(Bytes(131)).unwrap(),
            DiscreteDevice::new("gpu").buffer_types()[0].allocate(Bytes(131)).unwrap(),
            Box::new(HostBuffer::owned("vector", vec![0; 131])),
        ];
        let check = |buffer: &mut dyn Buffer| {
            buffer.write(Offset(0), &first)?;
            let mut vector = first.clone();
            for act in &transfers {
                let done = match act {
                    Transfer::Write(at, bytes) => buffer.write(Offset(*at), bytes),
                    Transfer::Read(at, size) => buffer.read(Offset(*at), &mut vec![0; *size]),
                    Transfer::Fill(at, size, byte) => buffer.fill(Offset(*at), Bytes(*size), *byte),
                    Transfer::CopyWithin(from, to, size) => buffer.copy_within(Offset(*from), Offset(*to), Bytes(*size)),
                    Transfer::CopyFrom(to, from, size) => buffer.copy_from(Offset(*to), &source, Offset(*from), Bytes(*size)),
                };
                assert_eq!(done.is_ok(), model(&mut vector, &other, act).is_some(), "{act:?}: {done:?}");
                assert_eq!(bytes_of(buffer), vector, "{act:?}");
            }
            Ok::<(), DeviceError>(())
        };
        for buffer in &mut buffers {
            check(&mut **buffer).unwrap();
        }
        SharedBuffer::lend(&mut lent, |handle| check(&mut *handle.borrow_mut()?)).unwrap();
    }
}
