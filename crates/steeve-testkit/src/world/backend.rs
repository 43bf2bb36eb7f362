//! A stream of work on a device.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use steeve_cpu::CpuBackend;
use steeve_device::{
    Backend, BufferType, Bytes, DeviceError, Event, Graph, Locate, Offset, Prepared, SharedBuffer, TensorId,
};

use super::device::Config;
use super::event::TestEvent;
use super::faults::{Act, Faults};
use super::lock;
use super::memory::{Place, Use, Whose};
use super::program::{Engine, Program, Reach, TestPrepared, range_in};
use super::random::Pacer;
use super::stream::{Work, Worker};

pub(super) struct TestBackend {
    config: Config,
    /// The number of the device's memory, and the memory itself.
    own: u64,
    memory: Arc<dyn BufferType>,
    faults: Faults,
    engine: Arc<Engine>,
    /// `None` if the caller does the work.
    worker: Option<Worker>,
}

impl TestBackend {
    pub(super) fn new(
        config: Config,
        own: u64,
        memory: &Arc<dyn BufferType>,
        faults: Faults,
    ) -> Result<Self, DeviceError> {
        let (number, gate) = (config.world.number(), config.world.gate());
        let engine = Engine {
            name: config.name.clone(),
            cpu: CpuBackend::new(1),
            nodes: Mutex::new(Pacer::new(config.nodes, number)),
            copies: Mutex::new(Pacer::new(config.copies, number)),
            gate: config.asynchronous.then(|| Arc::clone(gate)),
        };
        let worker = if config.asynchronous { Some(Worker::new(&config.name, gate)?) } else { None };
        Ok(Self { own, memory: Arc::clone(memory), faults, engine: Arc::new(engine), worker, config })
    }

    /// Does it now, or gives it to the thread.
    fn enqueue(
        &self,
        act: impl FnOnce(&Engine) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        let Some(worker) = &self.worker else { return act(&self.engine) };
        let engine = Arc::clone(&self.engine);
        worker.stream().enqueue(Work::Act(Box::new(move || act(&engine))));
        Ok(())
    }

    fn whose(&self, memory: &Arc<dyn BufferType>) -> Whose {
        match memory {
            memory if Arc::ptr_eq(memory, &self.memory) => Whose::Own,
            memory if memory.is_host() => Whose::Host,
            memory if self.config.world.has_memory(memory) => Whose::Peer,
            _ => Whose::Foreign,
        }
    }

    /// Whether copies between its own memory and such memory are enqueued.
    fn is_linked(&self, whose: Whose) -> bool {
        match whose {
            Whose::Own => true,
            Whose::Peer => self.config.copies_peers,
            Whose::Host => self.config.copies_host,
            Whose::Foreign => false,
        }
    }

    fn is_linked_pair(&self, to: Whose, from: Whose) -> bool {
        to == Whose::Own && self.is_linked(from) || from == Whose::Own && self.is_linked(to)
    }

    /// The bytes of a buffer, if this backend can reach them by itself.
    fn place(&self, buffer: &SharedBuffer, usage: Use) -> Result<Option<Place>, DeviceError> {
        Ok(Place::of(buffer, usage)?.filter(|place| self.is_linked(place.whose(self.own))))
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
            let why = format!("nodes {nodes:?} are asked for, and the graph has {}", graph.nodes().len());
            return Err(DeviceError::Failed { device: self.config.name.clone(), why });
        };
        asked.iter().try_for_each(|node| self.supports(graph, *node))?;
        let reach = Reach { own: self.own, host: self.config.reads_host };
        let program = Program::new(&self.engine, graph, nodes, tensors, reach)?;
        Ok(Box::new(TestPrepared { engine: Arc::clone(&self.engine), program: Arc::new(program) }))
    }

    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError> {
        let prepared = prepared.as_any_mut().downcast_mut::<TestPrepared>();
        let Some(prepared) = prepared.filter(|prepared| Arc::ptr_eq(&prepared.engine, &self.engine)) else {
            let why = "another backend has prepared these nodes".into();
            return Err(DeviceError::Failed { device: self.config.name.clone(), why });
        };
        prepared.program.check()?;
        let (program, fails) = (Arc::clone(&prepared.program), self.faults.strike(Act::Submit));
        self.enqueue(move |engine| program.run(engine, fails))
    }

    fn write(&self, buffer: &SharedBuffer, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let range = range_in(buffer, offset, Bytes(from.len() as u64))?;
        let Some(place) = self.place(buffer, Use::Write)? else {
            self.synchronise()?;
            return buffer.write(offset, from);
        };
        if range.is_empty() {
            return Ok(());
        }
        let (bytes, fails) = (from.to_vec(), self.faults.strike(Act::Copy));
        self.enqueue(move |engine| {
            in_halves(engine, bytes.len(), fails, |half| {
                place.store(engine.gate(), range.start + half.start, &bytes[half])
            })
        })
    }

    fn read(&self, buffer: &SharedBuffer, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = range_in(buffer, offset, Bytes(into.len() as u64))?;
        let Some(place) = self.place(buffer, Use::Read)? else {
            self.synchronise()?;
            return buffer.read(offset, into);
        };
        if range.is_empty() {
            return self.synchronise();
        }
        let (bytes, fails) = (Arc::new(Mutex::new(vec![0; into.len()])), self.faults.strike(Act::Copy));
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
        let places = (Place::of(to.0, Use::Write)?, Place::of(from.0, Use::Read)?);
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
        let fails = self.faults.strike(Act::Copy);
        let overlap = target.is_same(&source) && into.start < out.end && out.start < into.end;
        self.enqueue(move |engine| {
            let piece = |part: Range<usize>| {
                let mut bytes = vec![0; part.len()];
                source.load(engine.gate(), out.start + part.start, &mut bytes)?;
                target.store(engine.gate(), into.start + part.start, &bytes)
            };
            if overlap && !fails {
                // The second half would read what the first has written.
                Engine::pause(&engine.copies);
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
        worker.stream().enqueue(Work::Record(Arc::clone(&event.moment)));
        Ok(Arc::new(event))
    }

    fn wait(&self, event: &dyn Event) -> Result<(), DeviceError> {
        match (&self.worker, event.as_any().downcast_ref::<TestEvent>()) {
            (Some(worker), Some(event)) => {
                worker.stream().enqueue(Work::Wait(Arc::clone(&event.moment)));
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
    engine: &Engine,
    len: usize,
    fails: bool,
    mut piece: impl FnMut(Range<usize>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    Engine::pause(&engine.copies);
    piece(0..len / 2)?;
    if fails {
        return Err(Act::Copy.error(&engine.name));
    }
    Engine::pause(&engine.copies);
    piece(len / 2..len)
}

impl fmt::Debug for TestBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBackend").field("name", &self.config.name).finish_non_exhaustive()
    }
}
