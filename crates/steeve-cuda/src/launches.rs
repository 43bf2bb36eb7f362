//! How work is launched, and how it was.

use std::sync::Mutex;

use crate::driver::lock;

/// When the work of prepared nodes is captured, so that running it is one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capture {
    /// When it runs for the second time: what runs once is not worth capturing.
    #[default]
    WhenRepeated,
    /// When it is prepared.
    AtOnce,
    /// Never: each kernel is launched by itself.
    Never,
}

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
    /// Why the driver does not capture kernels that start before the one ahead of them is done. Then they start one behind
    /// another.
    pub not_early: Option<String>,
    /// Why nodes could not be captured, the last time that happened. They are launched one by one.
    pub refused: Option<String>,
}

/// The [`Launches`] of a device, while they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Launches>);

impl Counters {
    pub(crate) fn note(&self, note: impl FnOnce(&mut Launches)) {
        note(&mut lock(&self.0));
    }

    pub(crate) fn get(&self) -> Launches {
        lock(&self.0).clone()
    }
}
