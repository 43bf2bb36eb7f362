//! Devices for tests that really compute, and a tracer that records their calls.
//!
//! ```text
//!   TestSystem --device--> TestDevice --backend--> a stream: a thread that takes work in order
//!                         |
//!                       Tracer --device--> the same, and every call is in the Trace
//!                                                             |
//!                                                       happens_before --> Violations
//! ```
//!
//! The devices of one system know each other: they copy between their memories, and one's stream waits for another's
//! events. A missing wait shows twice: in the bytes, because streams really run at the same time, and in the trace,
//! whichever stream was quicker.

mod latency;
mod faults;

// What devices are made of.
mod host_gate;
mod memory;
mod stream;
mod event;
mod staged_nodes;
mod backend;
mod device;

// What they did.
mod trace;
mod happens_before;
mod tracer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steeve_device::{BufferType, MemorySpec};

use host_gate::HostGate;

pub use device::TestDevice;
pub use event::Latch;
pub use faults::Faults;
pub use happens_before::{Hazard, Violation, happens_before};
pub use latency::{Latency, Random};
pub use trace::{Access, AccessKind, HOST, Trace, TraceAction, TraceEntry};
pub use tracer::Tracer;

/// A system of devices that know each other. Clones are the same system.
///
/// It has one host thread, on which everything is enqueued and waited for. Work on host memory is done while that
/// thread waits for some device of this world, and never while it runs: see `HostGate`.
#[derive(Clone, Debug, Default)]
pub struct TestSystem(Arc<SystemState>);

#[derive(Debug, Default)]
struct SystemState {
    gate: Arc<HostGate>,
    /// The next address or number that is not in use.
    numbers: Arc<AtomicU64>,
    /// The memories of all devices.
    memories: Mutex<Vec<Arc<dyn BufferType>>>,
}

impl TestSystem {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device with such memory of its own; it has the memory's name. It works at once unless it is
    /// [asynchronous](TestDevice::asynchronous).
    pub fn device(&self, spec: impl Into<MemorySpec>) -> TestDevice {
        TestDevice::new(self, spec.into())
    }

    /// An event that happens when the test says so.
    pub fn latch(&self) -> Latch {
        Latch::new(&self.0.gate)
    }

    fn gate(&self) -> &Arc<HostGate> {
        &self.0.gate
    }

    fn number(&self) -> u64 {
        self.0.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn add_memory(&self, memory: &Arc<dyn BufferType>) {
        lock(&self.0.memories).push(Arc::clone(memory));
    }

    fn has_memory(&self, memory: &Arc<dyn BufferType>) -> bool {
        lock(&self.0.memories).iter().any(|known| Arc::ptr_eq(known, memory))
    }
}

/// A thread that panicked has failed the test already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
