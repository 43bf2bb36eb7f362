//! Any parts of a graph: refused exactly if a node would read what nothing has written.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    steeve_graph::fuzz::order(bytes);
});
