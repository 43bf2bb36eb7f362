//! The GPUs that tests run on: none, with a line that says why, on a machine without one.
#![allow(dead_code)]

use steeve_cuda::CudaDevice;

pub(crate) fn devices() -> Vec<CudaDevice> {
    match CudaDevice::all() {
        Ok(devices) if devices.is_empty() => {
            println!("skipped: the driver knows of no GPU");
            devices
        }
        Ok(devices) => devices,
        Err(why) => {
            println!("skipped: {why}");
            Vec::new()
        }
    }
}
