//! Memory that is lent: it is back when the loan ends, whatever happens meanwhile. Runs under valgrind too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, OnceLock};

use steeve_device::{Align, Buffer, Bytes, DeviceError, HostBuffer, Offset, SharedBuffer, Span, SpanMut};

fn bytes_of(buffer: &dyn Buffer) -> Vec<u8> {
    let mut bytes = vec![0xEE; buffer.size().0 as usize];
    buffer.read(Offset(0), &mut bytes).unwrap();
    bytes
}

#[test]
fn lent_memory_is_written_in_place() {
    let mut mine: Vec<u8> = (0..100).collect();
    let start = mine.as_ptr().addr() as u64;
    let sum = SharedBuffer::lend(&mut mine, |buffer| {
        assert_eq!((buffer.size(), buffer.address()), (Bytes(100), start));
        assert_eq!((buffer.memory().name(), buffer.memory().align()), ("lent memory", Align::ONE));
        buffer.write(Offset(0), &[50]).unwrap();
        buffer.copy_from(Offset(10), buffer, Offset(0), Bytes(20)).unwrap();
        let mut all = [0; 100];
        buffer.read(Offset(0), &mut all).unwrap();
        all.iter().map(|byte| u32::from(*byte)).sum::<u32>()
    });
    assert_eq!(mine[..12], [50, 1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 1]);
    assert_eq!(sum, mine.iter().map(|byte| u32::from(*byte)).sum::<u32>());
    mine.push(1);
}

#[test]
fn lent_memory_may_start_anywhere_and_be_empty() {
    let mut mine = [0u8; 65];
    for start in 0..64 {
        SharedBuffer::lend(&mut mine[start..], |buffer| {
            buffer.fill(Offset(0), Bytes(1), start as u8 + 1).unwrap();
            assert!(buffer.fill(Offset(0), Bytes(66 - start as u64), 0).is_err());
        });
    }
    assert!(mine[..64].iter().enumerate().all(|(index, byte)| *byte == index as u8 + 1));
    SharedBuffer::lend(&mut [], |buffer| {
        assert_eq!(buffer.size(), Bytes(0));
        buffer.clear(1).unwrap();
        assert!(buffer.write(Offset(0), &[1]).is_err());
    });
}

#[test]
fn a_handle_that_outlives_the_loan_has_nothing() {
    let mut mine = vec![1; 16];
    let kept = SharedBuffer::lend(&mut mine, SharedBuffer::clone);
    drop(mine);
    let released = DeviceError::Released { memory: "lent memory".into(), size: Bytes(16) };
    assert_eq!(kept.read(Offset(0), &mut [0]), Err(released.clone()));
    assert_eq!(kept.write(Offset(0), &[0]), Err(released.clone()));
    assert_eq!(kept.borrow().unwrap_err(), released);
    assert_eq!(kept.borrow_mut().unwrap_err(), released);
    kept.release().unwrap();
    assert_eq!(kept.size(), Bytes(16));
}

#[test]
fn a_panic_ends_the_loan() {
    let mut mine = vec![1; 16];
    let kept = OnceLock::new();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        SharedBuffer::lend(&mut mine, |buffer| {
            kept.set(buffer.clone()).unwrap();
            // The lock is poisoned by this one.
            let mut writing = buffer.borrow_mut().unwrap();
            writing.write(Offset(3), &[7]).unwrap();
            panic!("in the middle of a write");
        })
    }));
    assert!(panic.is_err());
    assert_eq!(mine[3], 7);
    drop(mine);
    assert!(matches!(kept.get().unwrap().read(Offset(3), &mut [0]), Err(DeviceError::Released { .. })));
}

#[test]
fn the_loan_ends_when_the_last_thread_is_done() {
    for reads in [true, false] {
        let (mut mine, barrier) = (vec![1u8; 1 << 16], Arc::new(Barrier::new(2)));
        let done = Arc::new(AtomicUsize::new(0));
        let thread = SharedBuffer::lend(&mut mine, |buffer| {
            let (buffer, barrier, other) = (buffer.clone(), Arc::clone(&barrier), Arc::clone(&barrier));
            let done = Arc::clone(&done);
            let thread = std::thread::spawn(move || {
                let hold = || {
                    barrier.wait();
                    std::thread::sleep(std::time::Duration::from_millis(30));
                    done.store(1, Ordering::SeqCst);
                };
                if reads {
                    let reading = buffer.borrow().unwrap();
                    hold();
                    assert!(bytes_of(&*reading).iter().all(|byte| *byte == 1));
                } else {
                    let mut writing = buffer.borrow_mut().unwrap();
                    hold();
                    writing.clear(2).unwrap();
                }
            });
            other.wait();
            thread
        });
        assert_eq!(done.load(Ordering::SeqCst), 1, "the loan ended while the memory was borrowed");
        mine.fill(3);
        thread.join().unwrap();
        assert!(mine.iter().all(|byte| *byte == 3));
    }
}

#[test]
fn a_loan_within_a_loan_copies_between_both() {
    let (mut outer, mut inner) = ([1u8; 8], [2u8; 8]);
    SharedBuffer::lend(&mut outer, |outer| {
        SharedBuffer::lend(&mut inner, |inner| {
            outer.copy_from(Offset(0), inner, Offset(4), Bytes(4)).unwrap();
            inner.copy_from(Offset(0), outer, Offset(4), Bytes(4)).unwrap();
            assert!(inner.copy_from(Offset(5), outer, Offset(4), Bytes(4)).is_err());
        });
    });
    assert_eq!((outer, inner), ([2, 2, 2, 2, 1, 1, 1, 1], [1, 1, 1, 1, 2, 2, 2, 2]));
}

#[test]
fn lent_memory_cant_be_carried_away() {
    let mut mine = [1u8; 8];
    SharedBuffer::lend(&mut mine, |buffer| {
        let mut writing = buffer.borrow_mut().unwrap();
        // A `&mut HostBuffer` could be swapped for another one, which would keep what was lent.
        assert!(writing.as_any_mut().downcast_mut::<HostBuffer>().is_none());
        // Looking at it is no harm.
        assert!(writing.as_any().downcast_ref::<HostBuffer>().is_some());
        SpanMut::of(&mut *writing, Offset(2), Bytes(3)).unwrap().unwrap().as_slice_mut().fill(4);
        let error = SpanMut::of(&mut *writing, Offset(2), Bytes(7)).unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "lent memory: out of bounds: expected a range within 8 bytes, got 7 bytes at offset 2"
        );
        assert_eq!(Span::of(&*writing, Offset(1), Bytes(2)).unwrap().unwrap().as_slice(), [1, 4]);
    });
    assert_eq!(mine, [1, 1, 4, 4, 4, 1, 1, 1]);
}
