//! Any graph has a plan with each reuse, and the plan replays.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_graph::fuzz::plan(bytes));
