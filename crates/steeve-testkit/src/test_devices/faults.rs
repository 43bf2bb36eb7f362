//! Faults that tests inject into a device.

use std::sync::{Arc, Mutex};

use steeve_device::DeviceError;

use super::lock;

/// Injected faults. Clones are the same, so they can be set while the device is in use.
///
/// The next `count` succeed, the one behind them fails, and those behind that succeed again. Work is counted when it is
/// enqueued, and fails when it is done: half of it has happened then.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<[Option<u64>; 3]>>);

/// The calls that can fail.
#[derive(Clone, Copy, Debug)]
pub(super) enum FaultPoint {
    Allocation,
    Copy,
    Submit,
}

impl Faults {
    /// An allocation of this device's memory fails.
    pub fn fail_allocation_after(&self, count: u64) {
        self.set(FaultPoint::Allocation, count);
    }

    /// A copy, write or read of a backend fails, or one of the host in this device's memory. A copy by the host between
    /// two buffers reads one and writes the other; what moves no byte does not count.
    pub fn fail_copy_after(&self, count: u64) {
        self.set(FaultPoint::Copy, count);
    }

    /// A submit fails.
    pub fn fail_submit_after(&self, count: u64) {
        self.set(FaultPoint::Submit, count);
    }

    /// Returns whether a fault is pending.
    pub fn is_pending(&self) -> bool {
        lock(&self.0).iter().any(Option::is_some)
    }

    /// Removes all faults.
    pub fn clear(&self) {
        *lock(&self.0) = [None; 3];
    }

    fn set(&self, act: FaultPoint, count: u64) {
        lock(&self.0)[act as usize] = Some(count);
    }

    /// Counts an act; whether it fails.
    pub(super) fn strike(&self, act: FaultPoint) -> bool {
        let count = &mut lock(&self.0)[act as usize];
        match count {
            Some(0) => {
                *count = None;
                true
            }
            Some(more) => {
                *more -= 1;
                false
            }
            None => false,
        }
    }

    /// Counts an act; an error that names the device if it fails.
    pub(super) fn check(&self, act: FaultPoint, device: &str) -> Result<(), DeviceError> {
        if self.strike(act) { Err(act.error(device)) } else { Ok(()) }
    }
}

impl FaultPoint {
    pub(super) fn error(self, device: &str) -> DeviceError {
        let what = match self {
            Self::Allocation => "allocation",
            Self::Copy => "copy",
            Self::Submit => "run",
        };
        DeviceError::Failed { device: device.into(), why: format!("injected fault: {what}") }
    }
}
