//! Any GGUF file is refused, or read and its model planned.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_models::fuzz::gguf(bytes));
