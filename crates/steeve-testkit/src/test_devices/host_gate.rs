//! When streams may touch host memory.
//!
//! The handle of a buffer never waits: the host would get an error whenever a stream is at work in the same buffer, be
//! it in other bytes. So the host keeps the gate closed, and opens it while it waits for a device. Work on host memory
//! is done as late as can be that way, which is the worst that can happen to a host that goes on too early.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock;

#[derive(Debug, Default)]
pub(super) struct HostGate {
    state: Mutex<GateCounts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateCounts {
    /// Host threads that wait for a device.
    waiting: usize,
    /// Streams that are at work in host memory.
    inside: usize,
}

/// How long a stream waits for a host that waits for something else. Then it goes on, and may collide.
const PATIENCE: Duration = Duration::from_secs(10);

impl HostGate {
    /// Lets streams in until the returned guard is dropped, which waits for those that are inside.
    pub(super) fn open(self: &Arc<Self>) -> HostWait {
        lock(&self.state).waiting += 1;
        self.changed.notify_all();
        HostWait(Arc::clone(self))
    }

    /// Does a short piece of work as soon as the gate is open.
    pub(super) fn pass<R>(&self, act: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let mut state = lock(&self.state);
        while state.waiting == 0 && start.elapsed() < PATIENCE {
            let waited = self.changed.wait_timeout(state, PATIENCE);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        drop(state);
        let _inside = HostMemoryWork(self);
        act()
    }
}

struct HostMemoryWork<'a>(&'a HostGate);

impl Drop for HostMemoryWork<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).inside -= 1;
        self.0.changed.notify_all();
    }
}

#[derive(Debug)]
pub(super) struct HostWait(Arc<HostGate>);

impl Drop for HostWait {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.waiting -= 1;
        while state.waiting == 0 && state.inside > 0 {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
