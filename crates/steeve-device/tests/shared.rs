//! Handles: which borrows conflict, what becomes of released memory, and many threads at once. Runs under valgrind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use steeve_device::{
    Align, Buffer, BufferType, Bytes, Device, DeviceError, DiscreteDevice, HostMemory, MemorySpec, Offset,
    SharedBuffer, Usage,
};

fn host() -> Arc<dyn BufferType> {
    Arc::new(HostMemory::new())
}

fn buffer(size: u64) -> SharedBuffer {
    SharedBuffer::allocate(&host(), Bytes(size), Usage::Any).unwrap()
}

fn in_use(size: u64) -> DeviceError {
    DeviceError::InUse { memory: "host".into(), size: Bytes(size) }
}

#[test]
fn several_threads_read_at_once() {
    let (buffer, all_in) = (buffer(256), Barrier::new(4));
    buffer.clear(7).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let reading = buffer.borrow().unwrap();
                // No thread goes on before all four have borrowed it.
                all_in.wait();
                let mut seen = [0; 256];
                reading.read(Offset(0), &mut seen).unwrap();
                assert_eq!(seen, [7; 256]);
                assert_eq!(buffer.write(Offset(0), &[1]), Err(in_use(256)));
                all_in.wait();
            });
        }
    });
    buffer.write(Offset(0), &[1]).unwrap();
}

#[test]
fn a_writer_shuts_everybody_out() {
    let buffer = buffer(16);
    let (other, source) = (buffer.clone(), self::buffer(16));
    {
        let mut writing = buffer.borrow_mut().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(other.borrow().unwrap_err(), in_use(16));
                assert_eq!(other.borrow_mut().unwrap_err(), in_use(16));
                assert_eq!(other.read(Offset(0), &mut [0]), Err(in_use(16)));
                assert_eq!(other.write(Offset(0), &[0]), Err(in_use(16)));
                assert_eq!(other.fill(Offset(0), Bytes(1), 0), Err(in_use(16)));
                assert_eq!(other.clear(0), Err(in_use(16)));
                assert_eq!(other.release(), Err(in_use(16)));
                assert_eq!(other.copy_from(Offset(0), &source, Offset(0), Bytes(1)), Err(in_use(16)));
                assert_eq!(source.copy_from(Offset(0), &other, Offset(0), Bytes(1)), Err(in_use(16)));
                assert_eq!(other.copy_from(Offset(0), &other, Offset(1), Bytes(1)), Err(in_use(16)));
            });
        });
        writing.write(Offset(0), &[9; 16]).unwrap();
    }
    assert_eq!(in_use(16).to_string(), "host: buffer in use: another run or transfer has borrowed its 16 bytes");
    // No borrow flag is left set, neither of the buffer nor by the refused borrows.
    assert!(other.borrow_mut().is_ok() && source.borrow_mut().is_ok());
}

#[test]
fn no_transfer_is_ever_torn() {
    let (buffer, size) = (buffer(4096), 4096);
    let (done, rounds, seen) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for byte in [1, 2] {
            let (buffer, rounds, done) = (buffer.clone(), &rounds, &done);
            scope.spawn(move || {
                let bytes = vec![byte; size];
                while !done.load(Ordering::Relaxed) {
                    match buffer.write(Offset(0), &bytes) {
                        Ok(()) => drop(rounds.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(matches!(error, DeviceError::InUse { .. }), "{error}"),
                    }
                    std::thread::yield_now();
                }
            });
        }
        let mut bytes = vec![0; size];
        while seen.load(Ordering::Relaxed) < 100 || rounds.load(Ordering::Relaxed) < 20 {
            if buffer.read(Offset(0), &mut bytes).is_ok() {
                seen.fetch_add(1, Ordering::Relaxed);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "half of one write and half of another");
            }
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn memory_is_given_back_while_others_hold_it() {
    let device = DiscreteDevice::new("gpu");
    let memory = &device.buffer_types()[0];
    let buffer = SharedBuffer::allocate(memory, Bytes(100), Usage::Compute).unwrap();
    let others = [buffer.clone(), buffer.clone()];
    assert_eq!(device.ledger().live(), Bytes(100));
    {
        let _reading = others[0].borrow().unwrap();
        assert!(matches!(buffer.release(), Err(DeviceError::InUse { .. })));
        assert_eq!(device.ledger().live(), Bytes(100));
    }
    buffer.release().unwrap();
    assert_eq!((device.ledger().live(), device.ledger().buffers()), (Bytes(0), 0));
    for other in &others {
        let error = other.read(Offset(0), &mut [0]).unwrap_err();
        assert_eq!(error.to_string(), "gpu: buffer released: its 100 bytes have been given back");
        other.release().unwrap();
        assert_eq!((other.size(), other.usage(), other.is_same(&buffer)), (Bytes(100), Usage::Compute, true));
    }
    // Its address and size can still be read.
    assert_eq!(others[0].address(), buffer.address());
    assert_eq!(format!("{buffer:?}"), r#"SharedBuffer { memory: "gpu", size: Bytes(100), .. }"#);
}

#[test]
fn the_last_handle_gives_the_memory_back() {
    let device = DiscreteDevice::new("gpu");
    let buffer = SharedBuffer::allocate(&device.buffer_types()[0], Bytes(100), Usage::Any).unwrap();
    let other = buffer.clone();
    drop(buffer);
    assert_eq!(device.ledger().live(), Bytes(100));
    drop(other);
    assert_eq!(device.ledger().live(), Bytes(0));
}

#[test]
fn a_panic_while_writing_leaves_bytes_that_can_be_used() {
    let buffer = buffer(4);
    let panics = |act: fn(&SharedBuffer)| {
        let buffer = buffer.clone();
        assert!(std::thread::spawn(move || act(&buffer)).join().is_err());
    };
    panics(|buffer| {
        let mut writing = buffer.borrow_mut().unwrap();
        writing.write(Offset(0), &[1, 2]).unwrap();
        panic!("half way");
    });
    let mut seen = [9; 4];
    buffer.read(Offset(0), &mut seen).unwrap();
    assert_eq!(seen, [1, 2, 0, 0]);
    buffer.write(Offset(2), &[3, 4]).unwrap();
    drop((buffer.borrow().unwrap(), buffer.borrow().unwrap()));
    assert!(matches!(buffer.borrow_mut().map(|_| buffer.clear(0)), Ok(Err(DeviceError::InUse { .. }))));
    panics(|buffer| {
        let _reading = buffer.borrow().unwrap();
        panic!("while reading");
    });
    buffer.clear(5).unwrap();
    buffer.release().unwrap();
    assert!(matches!(buffer.borrow(), Err(DeviceError::Released { .. })));
    assert!(matches!(buffer.borrow_mut(), Err(DeviceError::Released { .. })));
}

#[test]
fn copies_within_one_buffer_may_overlap() {
    let buffer = buffer(8);
    buffer.write(Offset(0), &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    buffer.clone().copy_from(Offset(2), &buffer, Offset(0), Bytes(6)).unwrap();
    let mut seen = [0; 8];
    buffer.read(Offset(0), &mut seen).unwrap();
    assert_eq!(seen, [0, 1, 0, 1, 2, 3, 4, 5]);
    assert!(buffer.copy_from(Offset(3), &buffer, Offset(0), Bytes(6)).is_err());
}

#[test]
fn copies_cross_from_device_to_device() {
    let device = |name: &str| DiscreteDevice::new(name);
    let (one, two) = (device("one"), device("two"));
    let make =
        |device: &DiscreteDevice| SharedBuffer::allocate(&device.buffer_types()[0], Bytes(8), Usage::Any).unwrap();
    let (here, there) = (make(&one), make(&two));
    here.write(Offset(0), &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    there.copy_from(Offset(1), &here, Offset(3), Bytes(5)).unwrap();
    let mut seen = [0; 8];
    there.read(Offset(0), &mut seen).unwrap();
    assert_eq!(seen, [0xA5, 4, 5, 6, 7, 8, 0xA5, 0xA5]);
    let error = there.copy_from(Offset(1), &here, Offset(4), Bytes(5)).unwrap_err();
    assert_eq!(error.to_string(), "one: out of bounds: expected a range within 8 bytes, got 5 bytes at offset 4");
    let error = there.copy_from(Offset(4), &here, Offset(1), Bytes(5)).unwrap_err();
    assert_eq!(error.to_string(), "two: out of bounds: expected a range within 8 bytes, got 5 bytes at offset 4");
    let error = there.copy_from(Offset(0), &here, Offset(u64::MAX), Bytes(5)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "one: out of bounds: expected a range within 8 bytes, got 5 bytes at offset 18446744073709551615"
    );
}

/// A memory whose buffers are not what it promises.
#[derive(Debug)]
struct MisreportingMemory {
    size: i64,
    address: u64,
}

impl BufferType for MisreportingMemory {
    fn name(&self) -> &str {
        "liar"
    }

    fn align(&self) -> Align {
        Align::new(32).unwrap()
    }

    fn is_host(&self) -> bool {
        false
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        Ok(Box::new(MisreportingBuffer {
            size: Bytes(size.0.checked_add_signed(self.size).unwrap()),
            address: self.address,
        }))
    }
}

#[derive(Debug)]
struct MisreportingBuffer {
    size: Bytes,
    address: u64,
}

impl Buffer for MisreportingBuffer {
    fn size(&self) -> Bytes {
        self.size
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn read(&self, _: Offset, _: &mut [u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write(&mut self, _: Offset, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn fill(&mut self, _: Offset, _: Bytes, _: u8) -> Result<(), DeviceError> {
        Ok(())
    }

    fn copy_within(&mut self, _: Offset, _: Offset, _: Bytes) -> Result<(), DeviceError> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[test]
fn promises_are_checked_when_a_buffer_is_made() {
    let make = |size, address| -> Result<SharedBuffer, DeviceError> {
        let memory: Arc<dyn BufferType> = Arc::new(MisreportingMemory { size, address });
        SharedBuffer::allocate(&memory, Bytes(64), Usage::Any)
    };
    let error = make(-1, 32).unwrap_err();
    assert_eq!(error.to_string(), "liar: broken promise: expected a buffer of 64 bytes, got 63 bytes");
    let error = make(0, 48).unwrap_err();
    assert_eq!(error.to_string(), "liar: broken promise: expected buffers at multiples of 32, got one at address 0x30");
    // More is not less.
    assert_eq!(make(7, 64).unwrap().size(), Bytes(71));
}

#[test]
fn handles_know_what_their_buffer_is_for() {
    let spec = MemorySpec::new("gpu").with_align(Align::new(128).unwrap());
    let device = DiscreteDevice::new(spec);
    let memory = &device.buffer_types()[0];
    for usage in [Usage::Any, Usage::Weights, Usage::Compute] {
        let buffer = SharedBuffer::allocate(memory, Bytes(1), usage).unwrap();
        let other = buffer.clone();
        assert_eq!((other.usage(), other.memory().name(), other.address() % 128), (usage, "gpu", 0));
        other.set_usage(Usage::Weights);
        assert_eq!(buffer.usage(), Usage::Weights);
        assert!(buffer.is_same(&other));
        assert!(!buffer.is_same(&SharedBuffer::allocate(memory, Bytes(1), usage).unwrap()));
    }
}
