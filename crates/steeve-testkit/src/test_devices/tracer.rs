//! Devices that record their calls.
//!
//! Every call is passed on to the device within. Buffers show the buffer within them to backends that ask for the type,
//! so the backend of the device, and those of others, work unchanged; memories are distinguished by a list that all
//! devices of one tracer share, because a type of memory can't be asked for its type.

mod buffers;
mod streams;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use steeve_device::{Backend, BufferType, Device, DeviceError, DeviceKind, Graph, MemoryInfo, SharedBuffer, TensorId};

use super::lock;
use super::trace::{Access, HOST, Trace, TraceAction, TraceEntry, merged};
use buffers::TracedMemory;
use streams::TracedBackend;

/// Wraps devices, and has the trace of all they do. Clones are the same.
///
/// The calls of one host thread are in the trace in their order. An event that comes from elsewhere orders nothing
/// here, and neither does what a device may do beyond its promises.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Arc<TraceLog>);

#[derive(Default)]
struct TraceLog(Mutex<TraceState>);

struct TraceState {
    trace: Trace,
    /// The memories that are wrapped, with what is within.
    memories: Vec<(Weak<TracedMemory>, Arc<dyn BufferType>)>,
    /// Memories as part of the identity of buffers. They are kept, so that no other takes their place.
    kinds: Vec<Arc<dyn BufferType>>,
    /// Buffers by memory and address. Two at one place are never there at the same time, so one number is right.
    buffers: HashMap<(Option<usize>, u64), usize>,
    events: usize,
}

impl Default for TraceState {
    fn default() -> Self {
        let trace = Trace { streams: vec![String::from("host")], ..Trace::default() };
        Self { trace, memories: Vec::new(), kinds: Vec::new(), buffers: HashMap::new(), events: 0 }
    }
}

impl Tracer {
    /// An empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a device that records each call of `device`.
    pub fn device(&self, device: impl Device + 'static) -> Arc<dyn Device> {
        self.wrap(&(Arc::new(device) as Arc<dyn Device>))
    }

    /// Returns a device that records each call of `device`.
    pub fn wrap(&self, device: &Arc<dyn Device>) -> Arc<dyn Device> {
        let types = device.buffer_types().iter().map(|memory| self.memory(memory)).collect();
        let host = device.host_memory().map(|memory| self.memory(memory));
        Arc::new(TracedDevice { log: Arc::clone(&self.0), inner: Arc::clone(device), types, host })
    }

    /// Returns a memory that records each access to its buffers, one for each memory. For buffers that no device makes.
    pub fn memory(&self, memory: &Arc<dyn BufferType>) -> Arc<dyn BufferType> {
        self.0.outer(memory)
    }

    /// All that happened so far.
    pub fn trace(&self) -> Trace {
        self.0.with(|book| book.trace.clone())
    }

    /// The number of a buffer in the trace.
    pub fn buffer(&self, buffer: &SharedBuffer) -> usize {
        self.0.buffer(buffer)
    }

    /// Forgets all entries. Does not wait for work under way, so let all devices be at rest.
    pub fn clear(&self) {
        self.0.with(|book| book.trace.entries.clear());
    }
}

impl TraceLog {
    fn with<R>(&self, act: impl FnOnce(&mut TraceState) -> R) -> R {
        act(&mut lock(&self.0))
    }

    fn enter(&self, stream: usize, what: TraceAction, accesses: Vec<Access>) {
        let accesses = merged(accesses);
        self.with(|book| book.trace.entries.push(TraceEntry { stream, what, accesses }));
    }

    /// Returns the memory within a wrapped one; otherwise the memory itself.
    fn inner(&self, memory: &Arc<dyn BufferType>) -> Arc<dyn BufferType> {
        self.with(|book| book.inner(memory))
    }

    /// Returns the wrapper of a memory.
    fn outer(self: &Arc<Self>, memory: &Arc<dyn BufferType>) -> Arc<dyn BufferType> {
        self.with(|book| {
            let inner = book.inner(memory);
            let known = book.memories.iter().filter(|(_, known)| Arc::ptr_eq(known, &inner));
            if let Some(known) = known.filter_map(|(outer, _)| outer.upgrade()).next() {
                return known as Arc<dyn BufferType>;
            }
            let outer = Arc::new(TracedMemory::new(Arc::clone(self), Arc::clone(&inner)));
            book.memories.push((Arc::downgrade(&outer), inner));
            outer
        })
    }

    fn stream(&self, name: &str) -> usize {
        self.with(|book| {
            book.trace.streams.push(name.into());
            book.trace.streams.len() - 1
        })
    }

    fn event(&self) -> usize {
        self.with(|book| {
            book.events += 1;
            book.events - 1
        })
    }

    fn buffer(&self, buffer: &SharedBuffer) -> usize {
        self.number(buffer.memory(), buffer.address())
    }

    /// The number of the buffer at an address.
    fn number(&self, memory: &Arc<dyn BufferType>, address: u64) -> usize {
        self.with(|book| {
            let inner = book.inner(memory);
            // All memory of the host is one.
            let kind = (!inner.is_host()).then(|| {
                book.kinds.iter().position(|kind| Arc::ptr_eq(kind, &inner)).unwrap_or_else(|| {
                    book.kinds.push(Arc::clone(&inner));
                    book.kinds.len() - 1
                })
            });
            let names = &mut book.trace.buffers;
            *book.buffers.entry((kind, address)).or_insert_with(|| {
                names.push(inner.name().into());
                names.len() - 1
            })
        })
    }
}

/// Prints no entries: every traced device has the log, and it may be long.
impl fmt::Debug for TraceLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl TraceState {
    fn inner(&self, memory: &Arc<dyn BufferType>) -> Arc<dyn BufferType> {
        let wraps = |outer: &Weak<TracedMemory>| std::ptr::addr_eq(outer.as_ptr(), Arc::as_ptr(memory));
        let known = self.memories.iter().find(|(outer, _)| wraps(outer));
        Arc::clone(known.map_or(memory, |(_, inner)| inner))
    }
}

/// A device that is watched.
struct TracedDevice {
    log: Arc<TraceLog>,
    inner: Arc<dyn Device>,
    types: Vec<Arc<dyn BufferType>>,
    host: Option<Arc<dyn BufferType>>,
}

impl Device for TracedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn description(&self) -> &str {
        self.inner.description()
    }

    fn kind(&self) -> DeviceKind {
        self.inner.kind()
    }

    fn memory(&self) -> MemoryInfo {
        self.inner.memory()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn host_memory(&self) -> Option<&Arc<dyn BufferType>> {
        self.host.as_ref()
    }

    fn reads(&self, memory: &Arc<dyn BufferType>) -> bool {
        self.inner.reads(&self.log.inner(memory))
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.inner.supports(graph, node)
    }

    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        self.inner.offloads(graph, node)
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        Ok(Box::new(TracedBackend::new(&self.log, self.inner.backend()?)))
    }
}

impl fmt::Debug for TracedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traced").field(&self.inner).finish()
    }
}
