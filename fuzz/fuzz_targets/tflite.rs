//! Any model file is refused, or planned, written with its plan and read back.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_models::fuzz::tflite(bytes));
