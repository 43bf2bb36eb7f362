//! A stream of work on a device.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use steeve_cpu::CpuBackend;
use steeve_device::{
    Backend, BufferType, Bytes, DeviceError, Event, Graph, Locate, Offset, Prepared, SharedBuffer, TensorId,
};

use super::device::DeviceConfig;
use super::event::TestEvent;
use super::faults::{FaultPoint, Faults};
use super::latency::LatencySource;
use super::lock;
use super::memory::{BufferBytes, BufferUse, MemoryOwner};
use super::staged_nodes::{ReachableMemory, StagedNodes, StreamEngine, TestPrepared, range_in};
use super::stream::{StreamTask, StreamWorker};

pub(super) struct TestBackend {
    config: DeviceConfig,
    /// The number of the device's memory, and the memory itself.
    own: u64,
    memory: Arc<dyn BufferType>,
    faults: Faults,
    engine: Arc<StreamEngine>,
    /// `None` if the caller does the work.
    worker: Option<StreamWorker>,
}

impl TestBackend {
    pub(super) fn new(
        config: DeviceConfig,
        own: u64,
        memory: &Arc<dyn BufferType>,
        faults: Faults,
    ) -> Result<Self, DeviceError> {
        let (number, gate) = (config.world.number(), config.world.gate());
        let engine = StreamEngine {
            name: config.name.clone(),
            cpu: CpuBackend::new(1),
            nodes: Mutex::new(LatencySource::new(config.nodes, number)),
            copies: Mutex::new(LatencySource::new(config.copies, number)),
            gate: config.asynchronous.then(|| Arc::clone(gate)),
        };
        let worker = if config.asynchronous { Some(StreamWorker::new(&config.name, gate)?) } else { None };
        Ok(Self { own, memory: Arc::clone(memory), faults, engine: Arc::new(engine), worker, config })
    }

    /// Does it now, or gives it to the thread.
    fn enqueue(
        &self,
        act: impl FnOnce(&StreamEngine) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        let Some(worker) = &self.worker else { return act(&self.engine) };
        let engine = Arc::clone(&self.engine);
        worker.stream().enqueue(StreamTask::FaultPoint(Box::new(move || act(&engine))));
        Ok(())
    }

    fn whose(&self, memory: &Arc<dyn BufferType>) -> MemoryOwner {
        match memory {
            memory if Arc::ptr_eq(memory, &self.memory) => MemoryOwner::Own,
            memory if memory.is_host() => MemoryOwner::Host,
            memory if self.config.world.has_memory(memory) => MemoryOwner::Peer,
            _ => MemoryOwner::Foreign,
        }
    }

    /// Returns whether copies between its own memory and such memory are enqueued.
    fn is_linked(&self, whose: MemoryOwner) -> bool {
        match whose {
            MemoryOwner::Own => true,
            MemoryOwner::Peer => self.config.copies_peers,
            MemoryOwner::Host => self.config.copies_host,
            MemoryOwner::Foreign => false,
        }
    }

    fn is_linked_pair(&self, to: MemoryOwner, from: MemoryOwner) -> bool {
        to == MemoryOwner::Own && self.is_linked(from) || from == MemoryOwner::Own && self.is_linked(to)
    }

    /// The bytes of a buffer, if this backend can reach them by itself.
    fn place(&self, buffer: &SharedBuffer, usage: BufferUse) -> Result<Option<BufferBytes>, DeviceError> {
        Ok(BufferBytes::of(buffer, usage)?.filter(|place| self.is_linked(place.whose(self.own))))
    }
}

impl Backend for TestBackend {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn buffer_type(&self) -> Arc<dyn BufferType> {
        Arc::clone(&self.memory)
    }

    fn is_async(&self) -> bool {
        self.worker.is_some()
    }

    fn can_copy(&self, to: &Arc<dyn BufferType>, from: &Arc<dyn BufferType>) -> bool {
        self.is_linked_pair(self.whose(to), self.whose(from))
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.config.supports(&self.engine.cpu, graph, node)
    }

    fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError> {
        let Some(asked) = graph.nodes().get(nodes.clone()) else {
            let why = format!("no such nodes: expected a range within 0..{}, got {nodes:?}", graph.nodes().len());
            return Err(DeviceError::Failed { device: self.config.name.clone(), why });
        };
        asked.iter().try_for_each(|node| self.supports(graph, *node))?;
        let reach = ReachableMemory { own: self.own, host: self.config.reads_host };
        let staged_nodes = StagedNodes::new(&self.engine, graph, nodes, tensors, reach)?;
        Ok(Box::new(TestPrepared { engine: Arc::clone(&self.engine), staged_nodes: Arc::new(staged_nodes) }))
    }

    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError> {
        let prepared = prepared.as_any_mut().downcast_mut::<TestPrepared>();
        let Some(prepared) = prepared.filter(|prepared| Arc::ptr_eq(&prepared.engine, &self.engine)) else {
            let why = "another backend has prepared these nodes".into();
            return Err(DeviceError::Failed { device: self.config.name.clone(), why });
        };
        prepared.staged_nodes.check()?;
        let (staged_nodes, fails) = (Arc::clone(&prepared.staged_nodes), self.faults.strike(FaultPoint::Submit));
        self.enqueue(move |engine| staged_nodes.run(engine, fails))
    }

    fn write(&self, buffer: &SharedBuffer, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let range = range_in(buffer, offset, Bytes(from.len() as u64))?;
        let Some(place) = self.place(buffer, BufferUse::Write)? else {
            self.synchronise()?;
            return buffer.write(offset, from);
        };
        if range.is_empty() {
            return Ok(());
        }
        let (bytes, fails) = (from.to_vec(), self.faults.strike(FaultPoint::Copy));
        self.enqueue(move |engine| {
            in_halves(engine, bytes.len(), fails, |half| {
                place.store(engine.gate(), range.start + half.start, &bytes[half])
            })
        })
    }

    fn read(&self, buffer: &SharedBuffer, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = range_in(buffer, offset, Bytes(into.len() as u64))?;
        let Some(place) = self.place(buffer, BufferUse::Read)? else {
            self.synchronise()?;
            return buffer.read(offset, into);
        };
        if range.is_empty() {
            return self.synchronise();
        }
        let (bytes, fails) = (Arc::new(Mutex::new(vec![0; into.len()])), self.faults.strike(FaultPoint::Copy));
        let filled = Arc::clone(&bytes);
        self.enqueue(move |engine| {
            in_halves(engine, range.len(), fails, |half| {
                place.load(engine.gate(), range.start + half.start, &mut lock(&filled)[half])
            })
        })?;
        self.synchronise()?;
        into.copy_from_slice(&lock(&bytes));
        Ok(())
    }

    fn copy(&self, to: (&SharedBuffer, Offset), from: (&SharedBuffer, Offset), size: Bytes) -> Result<(), DeviceError> {
        let (into, out) = (range_in(to.0, to.1, size)?, range_in(from.0, from.1, size)?);
        let places = (BufferBytes::of(to.0, BufferUse::Write)?, BufferBytes::of(from.0, BufferUse::Read)?);
        let (Some(target), Some(source)) = places else {
            self.synchronise()?;
            return to.0.copy_from(to.1, from.0, from.1, size);
        };
        if !self.is_linked_pair(target.whose(self.own), source.whose(self.own)) {
            self.synchronise()?;
            return to.0.copy_from(to.1, from.0, from.1, size);
        }
        if size == Bytes::ZERO {
            return Ok(());
        }
        let fails = self.faults.strike(FaultPoint::Copy);
        let overlap = target.is_same(&source) && into.start < out.end && out.start < into.end;
        self.enqueue(move |engine| {
            let piece = |part: Range<usize>| {
                let mut bytes = vec![0; part.len()];
                source.load(engine.gate(), out.start + part.start, &mut bytes)?;
                target.store(engine.gate(), into.start + part.start, &bytes)
            };
            if overlap && !fails {
                // The second half would read what the first has written.
                StreamEngine::pause(&engine.copies);
                return piece(0..into.len());
            }
            in_halves(engine, into.len(), fails, piece)
        })
    }

    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        let Some(worker) = &self.worker else {
            return Ok(Arc::new(TestEvent::past(self.config.world.gate(), &self.config.name)));
        };
        let event = TestEvent::of(worker.stream(), &self.config.name);
        worker.stream().enqueue(StreamTask::Record(Arc::clone(&event.moment)));
        Ok(Arc::new(event))
    }

    fn wait(&self, event: &dyn Event) -> Result<(), DeviceError> {
        match (&self.worker, event.as_any().downcast_ref::<TestEvent>()) {
            (Some(worker), Some(event)) => {
                worker.stream().enqueue(StreamTask::Wait(Arc::clone(&event.moment)));
                Ok(())
            }
            _ => event.synchronise(),
        }
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        self.worker.as_ref().map_or(Ok(()), |worker| worker.stream().synchronise())
    }
}

/// A transfer in two pieces, so that it can be seen half done; one that fails ends between them.
fn in_halves(
    engine: &StreamEngine,
    len: usize,
    fails: bool,
    mut piece: impl FnMut(Range<usize>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    StreamEngine::pause(&engine.copies);
    piece(0..len / 2)?;
    if fails {
        return Err(FaultPoint::Copy.error(&engine.name));
    }
    StreamEngine::pause(&engine.copies);
    piece(len / 2..len)
}

impl fmt::Debug for TestBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBackend").field("name", &self.config.name).finish_non_exhaustive()
    }
}
