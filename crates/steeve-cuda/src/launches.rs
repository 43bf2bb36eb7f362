//! How work was launched, for whoever wonders whether it is captured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How the backends of a device have launched work so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launches {
    /// How many times prepared nodes were captured.
    pub captured: u64,
    /// Runs of captured nodes: one launch each.
    pub whole: u64,
    /// Runs whose kernels were launched one by one.
    pub apart: u64,
    /// Why nodes could not be captured, the last time that happened. They are launched one by one.
    pub refused: Option<String>,
}

/// The same while it changes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    captured: AtomicU64,
    whole: AtomicU64,
    apart: AtomicU64,
    refused: Mutex<Option<String>>,
}

impl Counters {
    pub(crate) fn note_captured(&self) {
        self.captured.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_whole(&self) {
        self.whole.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_apart(&self) {
        self.apart.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_refused(&self, why: &impl ToString) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_string());
    }

    pub(crate) fn get(&self) -> Launches {
        Launches {
            captured: self.captured.load(Ordering::Relaxed),
            whole: self.whole.load(Ordering::Relaxed),
            apart: self.apart.load(Ordering::Relaxed),
            refused: self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
