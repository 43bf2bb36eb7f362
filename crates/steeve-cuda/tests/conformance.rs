//! The laws that every device and backend must keep, on each GPU there is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;

use gpu::{alone, devices};
use steeve_cuda::{Capture, CudaDevice};
use steeve_device::conformance::{check_backend, check_device, check_memory};
use steeve_device::{Bytes, Device, DeviceError};

#[test]
fn the_device_conforms() {
    let _alone = alone();
    for device in devices() {
        let report = check_device(&device);
        println!("{report}");
        report.assert();
    }
}

#[test]
fn pinned_memory_conforms() {
    let _alone = alone();
    for device in devices() {
        check_memory(device.host_memory()).assert();
    }
}

#[test]
fn the_backend_conforms_however_work_is_captured() {
    let _alone = alone();
    for capture in [Capture::Never, Capture::AtOnce, Capture::WhenRepeated] {
        for device in devices() {
            let device = device.with_capture(capture);
            let report = check_backend(&*device.backend().unwrap());
            println!("{capture:?}: {report}");
            report.assert();
            assert!(report.skipped.iter().all(|it| !it.law.contains("f32")), "{report:#}");
        }
    }
}

#[test]
fn who_asks_for_too_much_is_told_what_there_is() {
    let _alone = alone();
    for device in devices() {
        let memory = &device.buffer_types()[0];
        let total = device.memory().total;
        let Err(DeviceError::OutOfMemory { asked, left, .. }) = memory.allocate(Bytes(total.0 - (1 << 20))) else {
            panic!("no GPU has all of its memory to give away");
        };
        assert_eq!(asked, Bytes(total.0 - (1 << 20)));
        assert!(left.is_some_and(|left| left < asked && left.0 > 0), "{left:?}");
    }
}

#[test]
fn a_machine_without_a_gpu_says_what_is_missing() {
    if let Err(error) = CudaDevice::all() {
        let text = error.to_string();
        assert!(text.starts_with("CUDA: "), "{text}");
    }
}
