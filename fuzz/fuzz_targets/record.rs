//! Any bytes as a recorded graph: an error, or a graph that survives a round trip.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_graph::fuzz::record(bytes));
