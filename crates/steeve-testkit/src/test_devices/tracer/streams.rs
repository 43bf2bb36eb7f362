//! Backends and events that are watched.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use steeve_device::{
    Address, Backend, BufferType, Bytes, DeviceError, Event, Graph, Locate, Offset, Prepared, SharedBuffer, TensorId,
};

use super::buffers::quietly;
use super::{Access, HOST, TraceAction, TraceLog};
use crate::test_devices::trace::{AccessKind, merged};

/// A backend that is watched.
#[derive(Debug)]
pub(super) struct TracedBackend {
    log: Arc<TraceLog>,
    inner: Box<dyn Backend>,
    /// The host's, if it works at once.
    stream: usize,
}

impl TracedBackend {
    pub(super) fn new(log: &Arc<TraceLog>, inner: Box<dyn Backend>) -> Self {
        let stream = if inner.is_async() { log.stream(inner.name()) } else { HOST };
        Self { log: Arc::clone(log), inner, stream }
    }

    fn access(&self, buffer: &SharedBuffer, offset: Offset, size: Bytes, kind: AccessKind) -> Access {
        Access { buffer: self.log.buffer(buffer), range: offset.0..offset.0.saturating_add(size.0), kind }
    }

    /// A refused call has not been enqueued; but a synchronous one may have been done in part.
    fn enter(&self, done: &Result<(), DeviceError>, what: TraceAction, accesses: Vec<Access>) {
        if done.is_ok() || self.stream == HOST {
            self.log.enter(self.stream, what, accesses);
        }
    }

    /// The host has waited for all of it.
    fn enter_join(&self) {
        if self.stream != HOST {
            self.log.enter(HOST, TraceAction::Join(self.stream), Vec::new());
        }
    }

    /// The bytes that some nodes touch.
    fn accesses(&self, graph: &Graph, nodes: Range<usize>, tensors: &dyn Locate) -> Vec<Access> {
        let mut accesses = Vec::new();
        let mut add = |tensor: TensorId, kind: AccessKind| {
            let Some(Address { buffer, offset, size }) = tensors.locate(tensor) else { return };
            let it = graph.tensor(tensor);
            accesses.push(self.access(buffer, offset, if it.is_view() { it.nbytes() } else { size }, kind));
        };
        for &node in graph.nodes().get(nodes).unwrap_or_default() {
            let it = graph.tensor(node);
            if it.op.writes_nothing() || it.layout.elements() == 0 {
                continue;
            }
            graph.sources(node).iter().flatten().for_each(|source| add(*source, AccessKind::Read));
            add(node, AccessKind::Write);
        }
        merged(accesses)
    }
}

impl Backend for TracedBackend {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn buffer_type(&self) -> Arc<dyn BufferType> {
        self.log.outer(&self.inner.buffer_type())
    }

    fn is_async(&self) -> bool {
        self.inner.is_async()
    }

    fn can_copy(&self, to: &Arc<dyn BufferType>, from: &Arc<dyn BufferType>) -> bool {
        self.inner.can_copy(&self.log.inner(to), &self.log.inner(from))
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.inner.supports(graph, node)
    }

    fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError> {
        let inner = quietly(|| self.inner.prepare(graph, nodes.clone(), tensors))?;
        let accesses = self.accesses(graph, nodes.clone(), tensors);
        Ok(Box::new(TracedPrepared { inner, nodes, accesses }))
    }

    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError> {
        let Some(prepared) = prepared.as_any_mut().downcast_mut::<TracedPrepared>() else {
            let why = "another backend has prepared these nodes, one that is not watched".into();
            return Err(DeviceError::Failed { device: self.name().into(), why });
        };
        let done = quietly(|| self.inner.submit(&mut *prepared.inner));
        self.enter(&done, TraceAction::Submit(prepared.nodes.clone()), prepared.accesses.clone());
        done
    }

    fn write(&self, buffer: &SharedBuffer, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let done = quietly(|| self.inner.write(buffer, offset, from));
        self.enter(
            &done,
            TraceAction::Write,
            vec![self.access(buffer, offset, Bytes(from.len() as u64), AccessKind::Write)],
        );
        done
    }

    fn read(&self, buffer: &SharedBuffer, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let done = quietly(|| self.inner.read(buffer, offset, into));
        self.enter(
            &done,
            TraceAction::Read,
            vec![self.access(buffer, offset, Bytes(into.len() as u64), AccessKind::Read)],
        );
        if done.is_ok() {
            self.enter_join();
        }
        done
    }

    fn copy(&self, to: (&SharedBuffer, Offset), from: (&SharedBuffer, Offset), size: Bytes) -> Result<(), DeviceError> {
        let is_enqueued = self.can_copy(to.0.memory(), from.0.memory());
        let done = quietly(|| self.inner.copy(to, from, size));
        let accesses =
            vec![self.access(from.0, from.1, size, AccessKind::Read), self.access(to.0, to.1, size, AccessKind::Write)];
        match is_enqueued {
            true => self.enter(&done, TraceAction::Copy, accesses),
            // By the contract it is done at once, and the caller ensures that both sides are at rest.
            false => self.log.enter(HOST, TraceAction::Copy, accesses),
        }
        done
    }

    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        let inner = quietly(|| self.inner.record())?;
        let number = self.log.event();
        self.log.enter(self.stream, TraceAction::Record(number), Vec::new());
        Ok(Arc::new(TracedEvent { log: Arc::clone(&self.log), number, inner }))
    }

    fn wait(&self, event: &dyn Event) -> Result<(), DeviceError> {
        let Some(event) = event.as_any().downcast_ref::<TracedEvent>() else {
            return quietly(|| self.inner.wait(event));
        };
        let done = quietly(|| self.inner.wait(&*event.inner));
        self.enter(&done, TraceAction::Wait(event.number), Vec::new());
        done
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        let done = quietly(|| self.inner.synchronise());
        // Also when something went wrong, which is over then.
        self.enter_join();
        done
    }
}

/// Nodes, and the bytes that they touch.
#[derive(Debug)]
struct TracedPrepared {
    inner: Box<dyn Prepared>,
    nodes: Range<usize>,
    accesses: Vec<Access>,
}

impl Prepared for TracedPrepared {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// An event with a number. Backends that are not watched take it for an event of a device that they do not know.
#[derive(Debug)]
struct TracedEvent {
    log: Arc<TraceLog>,
    number: usize,
    inner: Arc<dyn Event>,
}

impl Event for TracedEvent {
    fn synchronise(&self) -> Result<(), DeviceError> {
        let done = self.inner.synchronise();
        self.log.enter(HOST, TraceAction::Wait(self.number), Vec::new());
        done
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
