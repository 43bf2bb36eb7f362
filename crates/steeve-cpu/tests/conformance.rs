//! The laws that every device and backend must keep.
#![allow(missing_docs)]

use steeve_cpu::{CpuBackend, CpuDevice};
use steeve_device::conformance::{check_backend, check_device};

#[test]
fn the_device_conforms() {
    check_device(&CpuDevice::with_threads(2)).assert();
}

#[test]
fn the_backend_conforms_with_any_number_of_threads() {
    for threads in [1, 2, 5] {
        let report = check_backend(&CpuBackend::new(threads));
        report.assert();
        assert!(report.skipped.iter().all(|it| !it.law.contains("f32")), "{report:#}");
    }
}
