//! Ending runs early, from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends runs from another thread. Clones are the same.
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
    /// Every run ends before its next unit of work, and says so.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Runs go on again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether runs are ended.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
