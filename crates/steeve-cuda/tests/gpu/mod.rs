//! The GPUs that tests run on: none, with a line that says why, on a machine without one.
#![allow(dead_code)]

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use steeve_cuda::CudaDevice;

/// With `STEEVE_CUDA=required` a machine without a GPU fails.
pub(crate) fn devices() -> Vec<CudaDevice> {
    let why = match CudaDevice::all() {
        Ok(devices) if devices.is_empty() => String::from("the driver knows of no GPU"),
        Ok(devices) => return devices,
        Err(why) => why.to_string(),
    };
    assert!(std::env::var_os("STEEVE_CUDA").is_none_or(|wish| wish != "required"), "{why}");
    // Past the test harness, which keeps what is printed to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    Vec::new()
}

/// One test at a time: what is free is looked at, and the driver gives memory to all of a process from the same pages.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that the device's backends ran was captured, and nothing that they wanted to capture could not be.
pub(crate) fn assert_captured(device: &CudaDevice) {
    let launches = device.launches();
    assert_eq!((&launches.refused, &launches.not_early), (&None, &None));
    assert!(launches.whole > 0, "nothing was captured: {launches:?}");
}
