//! Any problem under every strategy, judged by `certify`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_plan::fuzz::strategy_body(bytes));
