//! Cancelling runs from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle that cancels runs from another thread. Clones share one flag.
///
/// ```
/// use steeve_cpu::{Cancel, CpuBackend};
/// let backend = CpuBackend::new(1);
/// let cancel: Cancel = backend.cancel();
/// std::thread::spawn(move || cancel.cancel()).join().unwrap();
/// assert!(backend.cancel().is_cancelled()); // every run ends soon, until `reset`
/// backend.cancel().reset();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Makes every run end before its next unit of work, with [`Cancelled`](steeve_device::DeviceError::Cancelled).
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets runs go on again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Returns whether runs are cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
