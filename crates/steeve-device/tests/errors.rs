//! How errors read: one line each, and no error repeats what caused it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::error::Error;
use std::fmt;

use steeve_device::{Bytes, DeviceError, KernelError, Offset, TensorId};
use steeve_graph::{Graph, Id, Named};

/// The error of a caller's kernel, which has a cause of its own.
#[derive(Debug)]
struct Overflow(std::num::TryFromIntError);

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("row too long")
    }
}

impl Error for Overflow {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

fn every_error() -> Vec<DeviceError> {
    let graph: Graph = "x = input f32[4]; y = sqr x".parse().unwrap();
    let named = || Named::new(TensorId::from_index(1).unwrap(), graph.names());
    let memory = || String::from("gpu");
    let kernel = || {
        let overflow = Overflow(u8::try_from(300).unwrap_err());
        DeviceError::Kernel { backend: memory(), node: named(), op: "F".into(), source: KernelError::new(overflow) }
    };
    assert_eq!(kernel(), kernel());
    vec![
        DeviceError::OutOfMemory { memory: memory(), asked: Bytes(64), left: Some(Bytes(12)) },
        DeviceError::OutOfMemory { memory: memory(), asked: Bytes(64), left: None },
        DeviceError::TooLarge { memory: memory(), asked: Bytes(64), max: Bytes(60) },
        DeviceError::Broken { memory: memory(), promised: "64 bytes".into(), given: "63 bytes".into() },
        DeviceError::Outside { memory: memory(), offset: Offset(4), size: Bytes(5), room: Bytes(8) },
        DeviceError::InUse { memory: memory(), size: Bytes(8) },
        DeviceError::Released { memory: memory(), size: Bytes(8) },
        DeviceError::ReadOnly { memory: memory() },
        DeviceError::NoBytes { memory: memory() },
        DeviceError::unsupported("gpu", &graph, graph.nodes()[0], "no kernel"),
        DeviceError::Unplaced { tensor: named() },
        DeviceError::Cancelled { node: 1, nodes: 2 },
        DeviceError::Failed { device: memory(), why: "driver lost".into() },
        kernel(),
        DeviceError::NotInTarget { tensor: named(), target: Named::new(graph.leafs()[0], graph.names()) },
    ]
}

#[test]
fn an_error_is_one_line_that_names_the_thing_first_and_does_not_repeat_its_source() {
    let mut causes = 0;
    for error in every_error() {
        let mut error: &dyn Error = &error;
        assert!(error.to_string().contains(": "), "{error}");
        loop {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.ends_with('.') && text.lines().count() == 1, "{text}");
            let Some(source) = error.source() else { break };
            assert!(!text.contains(&source.to_string()), "{text} repeats {source}");
            causes += 1;
            error = source;
        }
    }
    assert_eq!(causes, 2);
}

#[test]
fn own_operations_keep_the_case_of_their_names() {
    let graph: Graph = "x = input f32[4]; y = ?MyRelu f32[4] x; z = silu y".parse().unwrap();
    let line = |node: usize| DeviceError::unsupported("gpu", &graph, graph.nodes()[node], "no kernel").to_string();
    assert_eq!(line(0), "gpu: unsupported node: tensor 1 (y), MyRelu of (f32[4]) to f32[4]: no kernel");
    assert_eq!(line(1), "gpu: unsupported node: tensor 2 (z), silu of (f32[4]) to f32[4]: no kernel");
}

#[test]
fn errors_have_the_evidence() {
    let lines: Vec<String> = every_error().iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], "gpu: out of memory: requested 64 bytes, 12 bytes available");
    assert_eq!(lines[4], "gpu: out of bounds: expected a range within 8 bytes, got 5 bytes at offset 4");
    assert_eq!(lines[9], "gpu: unsupported node: tensor 1 (y), sqr of (f32[4]) to f32[4]: no kernel");
    assert_eq!(lines[13], "gpu: kernel failed: tensor 1 (y), F");
    assert_eq!(lines[14], "tensor 1 (y): not located in its target: expected the memory of tensor 0 (x)");
}
