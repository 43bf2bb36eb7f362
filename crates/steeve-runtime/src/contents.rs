//! Tracks which handle the contents of the memory belong to, and which of them can be read.
//!
//! Handles are numbered in the order in which they are made. The memory belongs to the latest that wrote or ran; earlier
//! ones are stale. Within the handle that has it:
//!
//! ```text
//!   Filling --begin--> Running --finish--> Ran      (an input that does not survive is written: Filling again)
//!      ^                  |
//!      +----- dropped ----+
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

use steeve_graph::{Id, TensorId};

use crate::AllocError;

/// The state of the memory, shared by all handles of an allocator.
#[derive(Debug, Default)]
pub(crate) struct SharedContents(Mutex<ContentState>);

/// The owner of the memory, and which sources have contents.
#[derive(Debug, Default)]
pub(crate) struct ContentState {
    /// The number of the latest handle; 0 for none.
    made: u64,
    /// The handle that the contents belong to.
    owner: u64,
    pub(crate) phase: RunPhase,
    /// Whether each source has been written since its bytes were last lost, one bit each.
    written: Vec<u64>,
    /// Whether a run of this owner has happened, so that missing inputs were consumed.
    pub(crate) has_run: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RunPhase {
    #[default]
    Filling,
    Running {
        /// Whether the inputs have been handed back and can be written for the next run.
        open: bool,
    },
    Ran,
}

impl SharedContents {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ContentState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContentState {
    /// Fails while a run is in progress.
    pub(crate) fn check_idle(&self) -> Result<(), AllocError> {
        if matches!(self.phase, RunPhase::Running { .. }) { Err(AllocError::Running) } else { Ok(()) }
    }

    /// Fails while a run is in progress, unless inputs have been handed back and no node writes into this one.
    pub(crate) fn check_fillable(&self, unchanged: bool) -> Result<(), AllocError> {
        if unchanged && self.phase == (RunPhase::Running { open: true }) { Ok(()) } else { self.check_idle() }
    }

    /// Returns the number of a new handle. Fails while a run is in progress.
    pub(crate) fn new_handle(&mut self) -> Result<u64, AllocError> {
        self.check_idle()?;
        self.made += 1;
        Ok(self.made)
    }

    /// Makes room for a bit for each tensor.
    pub(crate) fn make_room(&mut self, tensors: usize) {
        let words = tensors.div_ceil(64);
        if self.written.len() < words {
            self.written.resize(words, 0);
        }
    }

    /// Loses all contents and makes every handle stale. Fails while a run is in progress.
    pub(crate) fn lose(&mut self) -> Result<(), AllocError> {
        let next = self.new_handle()?;
        self.take(next);
        Ok(())
    }

    /// Fails if `handle` is stale.
    pub(crate) fn check(&self, handle: u64) -> Result<(), AllocError> {
        if self.owner > handle { Err(AllocError::Stale) } else { Ok(()) }
    }

    /// Gives the memory to `handle`. Fails if it is stale.
    pub(crate) fn claim(&mut self, handle: u64) -> Result<(), AllocError> {
        self.check(handle)?;
        if self.owner < handle {
            self.take(handle);
        }
        Ok(())
    }

    /// Returns whether the memory belongs to `handle`.
    pub(crate) fn is_owner(&self, handle: u64) -> bool {
        self.owner == handle
    }

    fn take(&mut self, handle: u64) {
        (self.owner, self.phase, self.has_run) = (handle, RunPhase::Filling, false);
        self.written.fill(0);
    }

    pub(crate) fn is_written(&self, tensor: TensorId) -> bool {
        let (word, bit) = (tensor.index() / 64, tensor.index() % 64);
        self.written.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    pub(crate) fn set_written(&mut self, tensor: TensorId, is: bool) {
        let (word, bit) = (tensor.index() / 64, tensor.index() % 64);
        if let Some(word) = self.written.get_mut(word) {
            *word = *word & !(1 << bit) | u64::from(is) << bit;
        }
    }
}
