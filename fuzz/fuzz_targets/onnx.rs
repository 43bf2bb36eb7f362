//! Any ONNX file is refused, or read and planned at the sizes that it asks for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steeve_models::fuzz::onnx(bytes));
