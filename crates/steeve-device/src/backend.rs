//! A stream of work on a device.
//!
//! Everything is enqueued, in order: [`submit`](Backend::submit), [`write`](Backend::write) and the rest may return before
//! they are done, and [`synchronise`](Backend::synchronise) waits for all of it. A backend that computes on the calling
//! thread does each at once, and is right to.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use steeve_graph::{Bytes, Graph, Offset, TensorId};

use crate::{BufferType, DeviceError, Locate, SharedBuffer};

/// Runs graphs, and moves data between runs, in the order in which it is asked.
pub trait Backend: Send + Debug {
    /// What to call it.
    fn name(&self) -> &str;

    /// The kind of memory it computes in, unless told otherwise.
    fn buffer_type(&self) -> Arc<dyn BufferType>;

    /// Whether work may still be under way when a call returns. If not, each call is done when it returns.
    fn is_async(&self) -> bool {
        false
    }

    /// Whether [`copy`](Self::copy) from one kind of memory to the other is enqueued like any other work of this backend.
    /// Otherwise somebody else has to see to it that both sides are at rest, and it is done at once.
    fn can_copy(&self, to: &Arc<dyn BufferType>, from: &Arc<dyn BufferType>) -> bool {
        let _ = (to, from);
        false
    }

    /// Whether it can run a node; if not, an error that names the node and the types.
    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError>;

    /// Chooses kernels for some consecutive nodes whose tensors stand where `tensors` says. What is not supported, or
    /// stands nowhere, is an error here and not later.
    ///
    /// Nodes among them that only describe memory (views, reshapes) are to be passed over: there is nothing to run, and they
    /// may stand in memory that this backend can't reach.
    fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError>;

    /// Runs what this backend has prepared. May return before it is done, and the caller keeps what was prepared until it
    /// is.
    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError>;

    /// Enqueues a write. `from` has been read when this returns.
    fn write(&self, buffer: &SharedBuffer, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.synchronise()?;
        buffer.write(offset, from)
    }

    /// Enqueues a read and waits for it.
    fn read(&self, buffer: &SharedBuffer, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        self.synchronise()?;
        buffer.read(offset, into)
    }

    /// Enqueues a copy between two buffers that this backend can both reach.
    fn copy(&self, to: (&SharedBuffer, Offset), from: (&SharedBuffer, Offset), size: Bytes) -> Result<(), DeviceError> {
        self.synchronise()?;
        to.0.copy_from(to.1, from.0, from.1, size)
    }

    /// An event that happens when all that was enqueued so far is done.
    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        self.synchronise()?;
        Ok(Arc::new(Finished))
    }

    /// What is enqueued from now on waits for the event. One of another kind of device is waited for on the host.
    fn wait(&self, event: &dyn Event) -> Result<(), DeviceError> {
        event.synchronise()
    }

    /// Waits until all that was enqueued is done, and says what went wrong.
    fn synchronise(&self) -> Result<(), DeviceError>;
}

/// Nodes that a backend is ready to run, again and again.
pub trait Prepared: Send + Debug {
    /// For the backend that made it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A moment in a backend's stream of work.
pub trait Event: Send + Sync + Debug {
    /// Waits on the host until it has happened.
    fn synchronise(&self) -> Result<(), DeviceError>;

    /// For backends of the same kind, which can wait without the host.
    fn as_any(&self) -> &dyn Any;
}

/// The event of a backend that is never behind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finished;

impl Event for Finished {
    fn synchronise(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
