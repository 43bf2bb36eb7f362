//! A stream of work on a device.
//!
//! All work is enqueued, in order: [`submit`](Backend::submit), [`write`](Backend::write) and the rest may return
//! before they are done, and [`synchronise`](Backend::synchronise) waits for all of it. A backend that computes on the
//! calling thread may do each at once.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use steeve_graph::{Bytes, Graph, Offset, TensorId};

use crate::{BufferType, DeviceError, Locate, SharedBuffer};

/// A stream of work: runs graphs, and moves data between runs, in the order of the calls.
pub trait Backend: Send + Debug {
    /// Returns the name.
    fn name(&self) -> &str;

    /// Returns the type of memory it computes in by default.
    fn buffer_type(&self) -> Arc<dyn BufferType>;

    /// Returns whether work may still be under way when a call returns. If not, each call is done when it returns.
    fn is_async(&self) -> bool {
        false
    }

    /// Returns whether [`copy`](Self::copy) from one type of memory to the other is enqueued like any other work of
    /// this backend. Otherwise the copy is done at once, and the caller ensures that no work is under way on either
    /// side.
    fn can_copy(&self, to: &Arc<dyn BufferType>, from: &Arc<dyn BufferType>) -> bool {
        let _ = (to, from);
        false
    }

    /// Returns whether it can run a node.
    ///
    /// # Errors
    ///
    /// If it can't: an error that names the node and the types.
    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError>;

    /// Chooses kernels for some consecutive nodes whose tensors are located where `tensors` says.
    ///
    /// Nodes among them that only describe memory (views, reshapes) are skipped: there is nothing to run, and they may
    /// be in memory that this backend can't reach.
    ///
    /// # Errors
    ///
    /// If a node is not supported or has a tensor without memory; neither is reported later.
    fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError>;

    /// Runs nodes that this backend has prepared. May return before they are done; the caller keeps `prepared` until
    /// then.
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

    /// Returns an event that happens when all work that was enqueued so far is done.
    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        self.synchronise()?;
        Ok(Arc::new(Finished))
    }

    /// Makes work that is enqueued from now on wait for an event. One of another kind of device is waited for on the
    /// host.
    fn wait(&self, event: &dyn Event) -> Result<(), DeviceError> {
        event.synchronise()
    }

    /// Waits until all enqueued work is done.
    ///
    /// # Errors
    ///
    /// If some of it failed.
    fn synchronise(&self) -> Result<(), DeviceError>;
}

/// Nodes that a backend is ready to run, again and again.
pub trait Prepared: Send + Debug {
    /// Returns the value itself, for the backend that made it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A point in a backend's stream of work.
pub trait Event: Send + Sync + Debug {
    /// Waits on the host until the event has happened.
    fn synchronise(&self) -> Result<(), DeviceError>;

    /// Returns the value itself, for backends of the same kind, which can wait without the host.
    fn as_any(&self) -> &dyn Any;
}

/// The event of a backend whose work is done when a call returns.
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
