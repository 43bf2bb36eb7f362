//! Any sequence of takes and releases: no two pieces of the free list overlap.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_plan::fuzz::free_list_body(bytes));
