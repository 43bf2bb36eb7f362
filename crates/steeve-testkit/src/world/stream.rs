//! A thread that does work in the order in which it was enqueued.
//!
//! Work that fails makes the stream skip what was enqueued until somebody is told. Events happen all the same, and
//! other streams do not hear of it: who enqueued the work has to ask.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use steeve_device::DeviceError;

use super::event::Moment;
use super::gate::Gate;
use super::lock;

/// What a stream is given to do.
pub(super) enum Work {
    /// Anything.
    Act(Box<dyn FnOnce() -> Result<(), DeviceError> + Send>),
    /// Lets an event happen.
    Record(Arc<Moment>),
    /// Goes on when an event has happened.
    Wait(Arc<Moment>),
}

/// Work in order. Everybody who waits for it holds it too.
pub(super) struct Stream {
    name: String,
    gate: Arc<Gate>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    works: VecDeque<Work>,
    /// The number of the next work to be enqueued, and of the next to be done.
    next: u64,
    done: u64,
    failed: Option<Arc<Failure>>,
    closed: bool,
}

/// An error, and whether somebody has been told.
#[derive(Debug)]
pub(super) struct Failure {
    error: DeviceError,
    /// The first work that was enqueued after that.
    resume: Mutex<Option<u64>>,
}

/// A host that waits for longer waits for ever.
pub(super) const FOR_EVER: Duration = Duration::from_secs(60);

impl Stream {
    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(super) fn enqueue(&self, work: Work) {
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

    /// An error, if nobody has been told of this failure yet. What is enqueued from now on is done again.
    pub(super) fn tell(&self, failed: &Failure) -> Result<(), DeviceError> {
        let queue = self.lock();
        let mut resume = lock(&failed.resume);
        if resume.is_some() {
            return Ok(());
        }
        *resume = Some(queue.next);
        Err(failed.error.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
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
            let resumed = |failed: &Arc<Failure>| lock(&failed.resume).is_some_and(|resume| number >= resume);
            queue.failed = queue.failed.take_if(|failed| !resumed(failed));
            let failed = queue.failed.clone();
            drop(queue);
            let result = perform(work, failed.as_ref(), &self.name);
            let mut queue = self.lock();
            if let Err(error) = result {
                queue.failed = Some(Arc::new(Failure { error, resume: Mutex::default() }));
            }
            queue.done += 1;
            self.changed.notify_all();
        }
    }
}

/// All that it holds is dropped when it is done.
fn perform(work: Work, failed: Option<&Arc<Failure>>, name: &str) -> Result<(), DeviceError> {
    match work {
        Work::Act(_) if failed.is_some() => Ok(()),
        Work::Act(act) => catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
            Err(DeviceError::Failed { device: name.into(), why: "a piece of its work has panicked".into() })
        }),
        Work::Record(moment) => {
            moment.happen(failed.cloned());
            Ok(())
        }
        // Also after a failure, so that what happens behind it means what it says.
        Work::Wait(moment) => moment.wait(name).map(drop),
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
pub(super) struct Worker {
    stream: Arc<Stream>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn new(name: &str, gate: &Arc<Gate>) -> Result<Self, DeviceError> {
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

impl Drop for Worker {
    /// What was enqueued is still done.
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
