//! A thread that does tasks in the order in which they were enqueued.
//!
//! A task that fails makes the stream skip the others until the error has been returned from a call. Events happen all
//! the same, and other streams do not see the error: only calls on this stream return it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use steeve_device::DeviceError;

use super::event::EventState;
use super::host_gate::HostGate;
use super::lock;

/// A task of a stream.
pub(super) enum StreamTask {
    /// Anything.
    FaultPoint(Box<dyn FnOnce() -> Result<(), DeviceError> + Send>),
    /// Lets an event happen.
    Record(Arc<EventState>),
    /// Goes on when an event has happened.
    Wait(Arc<EventState>),
}

/// A stream of tasks in order. All its waiters share it.
pub(super) struct Stream {
    name: String,
    gate: Arc<HostGate>,
    queue: Mutex<TaskQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct TaskQueue {
    works: VecDeque<StreamTask>,
    /// The number of the next work to be enqueued, and of the next to be done.
    next: u64,
    done: u64,
    failed: Option<Arc<StreamFailure>>,
    closed: bool,
}

/// An error, and whether it has been reported.
#[derive(Debug)]
pub(super) struct StreamFailure {
    error: DeviceError,
    /// The first work that was enqueued after that.
    resume: Mutex<Option<u64>>,
}

/// A host that waits for longer waits for ever.
pub(super) const FOR_EVER: Duration = Duration::from_secs(60);

impl Stream {
    pub(super) fn gate(&self) -> &Arc<HostGate> {
        &self.gate
    }

    pub(super) fn enqueue(&self, work: StreamTask) {
        let mut queue = self.lock();
        queue.works.push_back(work);
        queue.next += 1;
        self.changed.notify_all();
    }

    /// Waits on the host for all that was enqueued, and says what went wrong, once.
    pub(super) fn synchronise(&self) -> Result<(), DeviceError> {
        let _open = self.gate.open();
        let mut queue = self.lock();
        let end = queue.next;
        let waited = self.changed.wait_timeout_while(queue, FOR_EVER, |queue| queue.done < end);
        (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.done < end {
            return Err(stuck(&self.name));
        }
        let failed = queue.failed.clone();
        drop(queue);
        failed.map_or(Ok(()), |failed| self.tell(&failed))
    }

    /// Returns an error that has not been reported yet. Tasks that are enqueued from now on are done again.
    pub(super) fn tell(&self, failed: &StreamFailure) -> Result<(), DeviceError> {
        let queue = self.lock();
        let mut resume = lock(&failed.resume);
        if resume.is_some() {
            return Ok(());
        }
        *resume = Some(queue.next);
        Err(failed.error.clone())
    }

    fn lock(&self) -> MutexGuard<'_, TaskQueue> {
        lock(&self.queue)
    }

    fn serve(&self) {
        loop {
            let mut queue = self.lock();
            while queue.works.is_empty() && !queue.closed {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(work) = queue.works.pop_front() else { return };
            let number = queue.done;
            let resumed = |failed: &Arc<StreamFailure>| lock(&failed.resume).is_some_and(|resume| number >= resume);
            queue.failed = queue.failed.take_if(|failed| !resumed(failed));
            let failed = queue.failed.clone();
            drop(queue);
            let result = perform(work, failed.as_ref(), &self.name);
            let mut queue = self.lock();
            if let Err(error) = result {
                queue.failed = Some(Arc::new(StreamFailure { error, resume: Mutex::default() }));
            }
            queue.done += 1;
            self.changed.notify_all();
        }
    }
}

/// All that it holds is dropped when it is done.
fn perform(work: StreamTask, failed: Option<&Arc<StreamFailure>>, name: &str) -> Result<(), DeviceError> {
    match work {
        StreamTask::FaultPoint(_) if failed.is_some() => Ok(()),
        StreamTask::FaultPoint(act) => catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
            Err(DeviceError::Failed { device: name.into(), why: "a piece of its work has panicked".into() })
        }),
        StreamTask::Record(moment) => {
            moment.happen(failed.cloned());
            Ok(())
        }
        // Also after a failure, so that what happens behind it means what it says.
        StreamTask::Wait(moment) => moment.wait(name).map(drop),
    }
}

pub(super) fn stuck(name: &str) -> DeviceError {
    DeviceError::Failed { device: name.into(), why: "what is waited for never happens".into() }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A stream with the thread that serves it, which ends with this.
#[derive(Debug)]
pub(super) struct StreamWorker {
    stream: Arc<Stream>,
    thread: Option<JoinHandle<()>>,
}

impl StreamWorker {
    pub(super) fn new(name: &str, gate: &Arc<HostGate>) -> Result<Self, DeviceError> {
        let stream =
            Stream { name: name.into(), gate: Arc::clone(gate), queue: Mutex::default(), changed: Condvar::new() };
        let stream = Arc::new(stream);
        let served = Arc::clone(&stream);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || served.serve());
        let failed = |error: std::io::Error| DeviceError::Failed { device: name.into(), why: error.to_string() };
        Ok(Self { stream, thread: Some(thread.map_err(failed)?) })
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }
}

impl Drop for StreamWorker {
    /// Tasks that were enqueued are still done.
    fn drop(&mut self) {
        let _open = self.stream.gate.open();
        self.stream.lock().closed = true;
        self.stream.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}
