//! Any bytes as a block list: an error or a table that survives a round trip.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_plan::fuzz::csv_body(bytes));
