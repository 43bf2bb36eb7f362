//! The suite for memories and devices: it passes what is right, and finds out what is wrong, for the right reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod faulty;

use std::sync::Arc;

use faulty::{DeviceFault, FaultyDevice, FaultyMemory, MAX, MemoryFault};
use steeve_device::conformance::{Report, check_device, check_memory};
use steeve_device::{Align, BufferType, Bytes, Device, DiscreteDevice, HostMemory, MemorySpec, NullDevice, Pages};

fn failed_laws(report: &Report) -> Vec<&str> {
    let mut laws: Vec<&str> = report.failures.iter().map(|failure| failure.law.as_str()).collect();
    laws.dedup();
    laws
}

/// Exactly these laws fail.
#[track_caller]
fn catches(fault: MemoryFault, laws: &[&str]) {
    let report = check_memory(&FaultyMemory::memory(fault));
    assert_eq!(failed_laws(&report), laws, "{fault:?}\n{report}");
}

/// At least this law fails.
#[track_caller]
fn catches_among_others(fault: MemoryFault, law: &str) {
    let report = check_memory(&FaultyMemory::memory(fault));
    assert!(failed_laws(&report).contains(&law), "{fault:?}\n{report}");
}

const PASSES: &str = "a transfer that passes the end is refused and changes nothing";
const COPY_PASSES: &str = "a copy that passes an end is refused and changes nothing";
const REACHES: &str = "a transfer may reach the end";
const ROUND_TRIP: &str = "what is written can be read";
const FILLS: &str = "fill and clear touch their range alone";
const OVERLAPS: &str = "copies within a buffer may overlap";
const LARGE: &str = "large copies arrive";
const GROWS: &str = "a buffer that grows keeps its bytes and its place";
const COPIES: [&str; 3] = [
    "copies from another buffer arrive",
    "copies from and to host memory arrive",
    "copies from and to another device arrive",
];

#[test]
fn the_memories_of_this_crate_conform() {
    let align = |bytes| Align::new(bytes).unwrap();
    let mut memories: Vec<Arc<dyn BufferType>> = Vec::new();
    for bytes in [1, 2, 32, 64, 256, 4096, 1 << 16] {
        for pages in [Pages::Plain, Pages::Huge] {
            memories.push(Arc::new(HostMemory::new().with_align(align(bytes)).with_pages(pages)));
        }
        let discrete = MemorySpec::new("discrete").with_align(align(bytes)).with_max_size(Bytes(MAX));
        memories.push(Arc::clone(&DiscreteDevice::new(discrete.clone()).with_init_hook().buffer_types()[0]));
        memories.push(Arc::clone(&DiscreteDevice::new(discrete.with_growth()).buffer_types()[0]));
    }
    memories.push(FaultyMemory::memory(MemoryFault::None));
    for memory in memories {
        let report = check_memory(&memory);
        report.assert();
        for law in [PASSES, COPY_PASSES, REACHES, ROUND_TRIP, FILLS, OVERLAPS, LARGE, GROWS].into_iter().chain(COPIES) {
            assert!(report.has_checked(law), "{law:?} was not checked\n{report:#}");
        }
        assert!(report.skipped.len() <= 3, "{report:#}");
    }
}

#[test]
fn growth_that_loses_something_is_caught() {
    for fault in [MemoryFault::GrowsElsewhere, MemoryFault::SaysItHasGrown, MemoryFault::GrowsEmpty] {
        catches(fault, &[GROWS]);
    }
}

#[test]
fn host_memory_conforms() {
    for pages in [Pages::Plain, Pages::Huge] {
        let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new().with_pages(pages));
        let report = check_memory(&memory);
        report.assert();
        assert!(report.has_checked("the host accesses host memory directly"), "{report:#}");
    }
}

#[test]
fn small_memories_conform() {
    for max in [1, 2, 3, 7, 64, 1000] {
        let device = DiscreteDevice::new(MemorySpec::new("small").with_max_size(Bytes(max)));
        let report = check_memory(&device.buffer_types()[0]);
        report.assert();
        assert!(report.has_checked(PASSES) && report.has_checked(OVERLAPS), "{report:#}");
        assert!(report.skipped.iter().any(|it| it.law == LARGE), "{report:#}");
    }
}

#[test]
fn memory_without_bytes_skips_the_laws_of_bytes() {
    let device = NullDevice::new(MemorySpec::new("plan").with_max_size(Bytes(1 << 40)));
    let report = check_memory(&device.buffer_types()[0]);
    report.assert();
    assert!(report.has_checked("a memory without bytes says so"));
    assert!(report.has_checked("the largest buffer can be had"));
    for law in [PASSES, COPY_PASSES, REACHES, ROUND_TRIP, FILLS, OVERLAPS, LARGE].into_iter().chain(COPIES) {
        assert!(!report.has_checked(law), "{law:?}");
        assert!(report.skipped.iter().any(|it| it.law == law && it.why == "plan has no bytes"), "{law:?}\n{report:#}");
    }
    // Memory that can be written must be readable too.
    catches_among_others(MemoryFault::NoBytesForReaders, ROUND_TRIP);
}

#[test]
fn wrong_sizes_and_addresses_are_found_out() {
    catches(MemoryFault::NoName, &["it has a name"]);
    catches(
        MemoryFault::MisalignedBase,
        &[
            "the address of a buffer is aligned",
            "a handle lends to many readers or to one writer",
            "a handle takes its memory back",
        ],
    );
    catches_among_others(MemoryFault::Smaller, "a buffer has the size that was asked for, or more");
    catches(
        MemoryFault::RefusesZero,
        &[
            "a buffer has the size that was asked for, or more",
            "the address of a buffer is aligned",
            "the init hook sees a tensor of the buffer",
        ],
    );
    catches(MemoryFault::OverstatesMax, &["the largest buffer can be had"]);
    catches(MemoryFault::CutsToMax, &["what is too large is refused, or had in full"]);
    catches_among_others(MemoryFault::Sulks, "what is too large is refused, or had in full");
    catches(MemoryFault::PadsAtRandom, &["a tensor takes what it spans, or more"]);
    catches(MemoryFault::TwoTypes, &["a buffer is of one type"]);
}

#[test]
fn wrong_bounds_are_found_out() {
    catches(MemoryFault::AcceptsOneMore, &[PASSES, COPY_PASSES]);
    catches_among_others(MemoryFault::RefusesTheLast, REACHES);
    catches_among_others(MemoryFault::RefusesEmptyAtEnd, REACHES);
    catches(MemoryFault::AcceptsEmptyBeyond, &[PASSES, COPY_PASSES]);
    catches(MemoryFault::Wraps, &[PASSES, COPY_PASSES]);
    catches(MemoryFault::Cuts, &[PASSES, COPY_PASSES]);
    catches(MemoryFault::SaysLittle, &[PASSES, COPY_PASSES]);
    catches(MemoryFault::WrongNumbers, &[PASSES, COPY_PASSES]);
}

#[test]
fn errors_that_change_something_are_found_out() {
    catches(MemoryFault::WritesThenRefuses, &[PASSES]);
    catches(MemoryFault::ReadsThenRefuses, &[PASSES]);
    catches(MemoryFault::FillsThenRefuses, &[PASSES]);
    catches(MemoryFault::CopiesThenRefuses, &[COPY_PASSES]);
}

#[test]
fn wrong_transfers_are_found_out() {
    catches_among_others(MemoryFault::WritesWords, ROUND_TRIP);
    catches_among_others(MemoryFault::ReadsWords, ROUND_TRIP);
    catches_among_others(MemoryFault::FillsOneMore, FILLS);
    catches_among_others(MemoryFault::FillsOneLess, FILLS);
    catches_among_others(MemoryFault::FillsZeros, FILLS);
    catches(MemoryFault::ClearLeavesTheLast, &[FILLS]);
    catches(MemoryFault::CopiesUpwards, &[OVERLAPS, LARGE]);
    catches(MemoryFault::CopiesDownwards, &[OVERLAPS, LARGE]);
    catches(MemoryFault::CopiesFromStart, &[COPIES[0], COPIES[1], COPIES[2], LARGE]);
    catches(MemoryFault::CopiesToStart, &[COPIES[0], COPIES[1], COPIES[2], LARGE]);
    catches(MemoryFault::CopiesAtMostOneMegabyte, &[LARGE]);
    catches(MemoryFault::ResetClears, &["reset leaves the bytes"]);
    catches_among_others(MemoryFault::SharesBytes, "no two buffers share a byte");
    catches_among_others(MemoryFault::ReadersDisturb, "many can read at once");
}

#[test]
fn failures_have_the_numbers() {
    let report = check_memory(&FaultyMemory::memory(MemoryFault::ClearLeavesTheLast));
    let what = &report.failures[0].what;
    assert!(what.starts_with("after a clear with 0x5a, byte 1020 of 1021 is 0x"), "{what}");
    assert!(what.ends_with(" instead of 0x5a; 1 bytes differ"), "{what}");
    let report = check_memory(&FaultyMemory::memory(MemoryFault::AcceptsOneMore));
    assert_eq!(report.failures[0].what, "a read of 1022 bytes at offset 0 of 1021 was accepted");
    assert!(report.failures[2].what.contains("; "), "{}", report.failures[2].what);
    assert!(report.to_string().starts_with("memory wrong: 2"), "{report}");
    let panic = std::panic::catch_unwind(|| report.assert()).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("was accepted"));
}

#[test]
fn the_devices_of_this_crate_conform() {
    let report = check_device(&FaultyDevice::new(DeviceFault::None));
    report.assert();
    for law in
        ["many buffers leave nothing behind", "a refusal leaves nothing behind", "a buffer counts while it exists"]
    {
        assert!(report.has_checked(&format!("gpu: {law}")), "{law:?} was not checked\n{report:#}");
    }
    assert!(report.has_checked(&format!("pinned: {PASSES}")));
    let discrete =
        DiscreteDevice::new(MemorySpec::new("d").with_capacity(Bytes(1 << 24)).with_max_size(Bytes(1 << 22)));
    check_device(&discrete).assert();
    assert_eq!((discrete.ledger().live(), discrete.ledger().buffers()), (Bytes(0), 0));
    let null = NullDevice::new(MemorySpec::new("n").with_capacity(Bytes(1 << 40)));
    let report = check_device(&null);
    report.assert();
    assert!(report.has_checked("n: many buffers leave nothing behind"), "{report:#}");
    assert_eq!((null.ledger().live(), null.ledger().buffers()), (Bytes(0), 0));
    assert!(null.ledger().asked() > 100, "the suite hardly ran");
}

#[test]
fn wrong_devices_are_found_out() {
    for (fault, law) in [
        (DeviceFault::NoName, "it has names"),
        (DeviceFault::NoDescription, "it has names"),
        (DeviceFault::TwinTypes, "it has names"),
        (DeviceFault::FreeAboveTotal, "free memory is part of the whole"),
        (DeviceFault::DefaultIsLast, "the first buffer type is the default"),
        (DeviceFault::NoDefault, "the first buffer type is the default"),
        (DeviceFault::CantReadItself, "it reads its own buffer types"),
        (DeviceFault::SupportsWithoutBackend, "it computes in memory that it reads"),
        (DeviceFault::KeepsBuffers, "gpu: many buffers leave nothing behind"),
        (DeviceFault::KeepsRefusals, "gpu: a refusal leaves nothing behind"),
        (DeviceFault::CountsHalf, "gpu: a buffer counts while it exists"),
    ] {
        let report = check_device(&FaultyDevice::new(fault));
        assert!(failed_laws(&report).contains(&law), "{fault:?}\n{report}");
        let few = if matches!(fault, DeviceFault::KeepsBuffers | DeviceFault::FreeAboveTotal) { 3 } else { 1 };
        assert!(failed_laws(&report).len() <= few, "{fault:?}\n{report}");
    }
}
