//! Moments in streams.

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use steeve_device::{DeviceError, Event};

use super::host_gate::HostGate;
use super::lock;
use super::stream::{FOR_EVER, Stream, StreamFailure, stuck};

/// The state of an event, which happens once.
#[derive(Debug, Default)]
pub(super) struct EventState {
    state: Mutex<EventProgress>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EventProgress {
    happened: bool,
    /// The failure of its stream by then, if any.
    failed: Option<Arc<StreamFailure>>,
}

impl EventState {
    pub(super) fn happen(&self, failed: Option<Arc<StreamFailure>>) {
        *lock(&self.state) = EventProgress { happened: true, failed };
        self.changed.notify_all();
    }

    /// Waits for it, and tells what had gone wrong.
    pub(super) fn wait(&self, name: &str) -> Result<Option<Arc<StreamFailure>>, DeviceError> {
        let waited = self.changed.wait_timeout_while(lock(&self.state), FOR_EVER, |state| !state.happened);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.happened { Ok(state.failed.clone()) } else { Err(stuck(name)) }
    }
}

/// An event in the stream of a device.
#[derive(Debug)]
pub(super) struct TestEvent {
    name: String,
    gate: Arc<HostGate>,
    pub(super) moment: Arc<EventState>,
    /// `None` if nothing can have gone wrong.
    stream: Option<Arc<Stream>>,
}

impl TestEvent {
    /// One that is still to happen in a stream.
    pub(super) fn of(stream: &Arc<Stream>, name: &str) -> Self {
        let (gate, moment) = (Arc::clone(stream.gate()), Arc::default());
        Self { name: name.into(), gate, moment, stream: Some(Arc::clone(stream)) }
    }

    /// One that has happened.
    pub(super) fn past(gate: &Arc<HostGate>, name: &str) -> Self {
        let event = Self { name: name.into(), gate: Arc::clone(gate), moment: Arc::default(), stream: None };
        event.moment.happen(None);
        event
    }
}

impl Event for TestEvent {
    fn synchronise(&self) -> Result<(), DeviceError> {
        let _open = self.gate.open();
        match (self.moment.wait(&self.name)?, &self.stream) {
            (Some(failed), Some(stream)) => stream.tell(&failed),
            _ => Ok(()),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An event that the test triggers: a stream that waits for it is blocked, and all others go on.
#[derive(Debug)]
pub struct Latch(TestEvent);

impl Latch {
    pub(super) fn new(gate: &Arc<HostGate>) -> Self {
        Self(TestEvent { name: "a latch".into(), gate: Arc::clone(gate), moment: Arc::default(), stream: None })
    }

    /// Lets it happen.
    pub fn release(&self) {
        self.0.moment.happen(None);
    }

    /// For backends to wait for.
    pub fn event(&self) -> &dyn Event {
        &self.0
    }
}

impl Drop for Latch {
    /// A test that fails must not leave a blocked stream behind.
    fn drop(&mut self) {
        self.release();
    }
}
