//! Nodes that are ready to run: each in staging memory of its own, by the kernels of the processor.
//!
//! A node's sources are copied out, the kernel runs on the copies, and the result is copied back. A result may be a
//! view that is written in part, so what it spans is copied out too.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use steeve_cpu::CpuBackend;
use steeve_device::{
    Backend, Bindings, BufferType, Bytes, DeviceError, Graph, HostMemory, Locate, Offset, Prepared, SharedBuffer,
    TensorId, Usage,
};
use steeve_graph::Named;

use super::faults::FaultPoint;
use super::host_gate::HostGate;
use super::latency::{LatencySource, pause};
use super::lock;
use super::memory::{BufferBytes, BufferUse, MemoryOwner};

/// What the tasks of a stream need.
#[derive(Debug)]
pub(super) struct StreamEngine {
    pub(super) name: String,
    pub(super) cpu: CpuBackend,
    pub(super) nodes: Mutex<LatencySource>,
    pub(super) copies: Mutex<LatencySource>,
    /// The gate to host memory; `None` for the host itself.
    pub(super) gate: Option<Arc<HostGate>>,
}

impl StreamEngine {
    pub(super) fn gate(&self) -> Option<&HostGate> {
        self.gate.as_deref()
    }

    pub(super) fn pause(pacer: &Mutex<LatencySource>) {
        let time = lock(pacer).next();
        pause(time);
    }

    /// Renames errors of the CPU kernels to this device.
    pub(super) fn own(&self, error: DeviceError) -> DeviceError {
        own_error(&self.name, error)
    }
}

pub(super) fn own_error(name: &str, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Unsupported { node, op, why, .. } => {
            DeviceError::Unsupported { backend: name.into(), node, op, why }
        }
        DeviceError::Failed { why, .. } => DeviceError::Failed { device: name.into(), why },
        DeviceError::Kernel { node, op, source, .. } => DeviceError::Kernel { backend: name.into(), node, op, source },
        other => other,
    }
}

/// Nodes in order, and the buffers that they use.
#[derive(Debug, Default)]
pub(super) struct StagedNodes {
    steps: Vec<StagedNode>,
    buffers: Vec<(SharedBuffer, BufferUse)>,
}

/// A node.
#[derive(Debug)]
struct StagedNode {
    /// The result comes first; it is both loaded and stored.
    operands: Vec<StagedOperand>,
    stage: SharedBuffer,
    prepared: Mutex<Box<dyn Prepared>>,
}

/// A tensor, and the location of its copy.
#[derive(Debug)]
struct StagedOperand {
    place: BufferBytes,
    range: Range<usize>,
    staged: Offset,
}

/// For any type of numbers.
const ALIGN: u64 = 64;

/// The memory that a device computes in: that with this number, and perhaps the host's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReachableMemory {
    pub(super) own: u64,
    pub(super) host: bool,
}

impl ReachableMemory {
    fn has(self, place: &BufferBytes) -> bool {
        match place.whose(self.own) {
            MemoryOwner::Own => true,
            MemoryOwner::Host => self.host,
            MemoryOwner::Peer | MemoryOwner::Foreign => false,
        }
    }
}

/// A program in the making.
struct NodeStager<'a> {
    engine: &'a StreamEngine,
    graph: &'a Graph,
    tensors: &'a dyn Locate,
    reach: ReachableMemory,
    staged_nodes: StagedNodes,
}

impl NodeStager<'_> {
    fn add(&mut self, index: usize) -> Result<(), DeviceError> {
        let (engine, graph) = (self.engine, self.graph);
        let node = graph.nodes()[index];
        if graph.tensor(node).op.writes_nothing() || graph.tensor(node).layout.elements() == 0 {
            return Ok(());
        }
        let mut ids = vec![node];
        for &source in graph.sources(node).iter().flatten() {
            if !ids.contains(&source) {
                ids.push(source);
            }
        }
        let (mut operands, mut room) = (Vec::new(), 0);
        for &id in &ids {
            let (place, range) = self.operand(id, if id == node { BufferUse::Write } else { BufferUse::Read })?;
            operands.push(StagedOperand { place, range, staged: Offset(room) });
            room = (room + graph.tensor(id).nbytes().0).next_multiple_of(ALIGN);
        }
        let stage: Arc<dyn BufferType> = Arc::new(HostMemory::named(&engine.name));
        let stage = SharedBuffer::allocate(&stage, Bytes(room), Usage::Compute)?;
        let mut bindings = Bindings::new();
        for (id, operand) in ids.iter().zip(&operands) {
            bindings.bind(*id, &stage, operand.staged, graph.tensor(*id).nbytes())?;
        }
        let prepared = engine.cpu.prepare(graph, index..index + 1, &bindings).map_err(|error| engine.own(error))?;
        self.staged_nodes.steps.push(StagedNode { operands, stage, prepared: Mutex::new(prepared) });
        Ok(())
    }

    /// Locates a tensor.
    ///
    /// # Errors
    ///
    /// If the device does not reach it.
    fn operand(&mut self, tensor: TensorId, usage: BufferUse) -> Result<(BufferBytes, Range<usize>), DeviceError> {
        let named = || Named::new(tensor, self.graph.names());
        let Some(address) = self.tensors.locate(tensor) else { return Err(DeviceError::Unplaced { tensor: named() }) };
        let (buffer, size) = (address.buffer, self.graph.tensor(tensor).nbytes());
        let Some(place) = BufferBytes::of(buffer, BufferUse::Read)?.filter(|place| self.reach.has(place)) else {
            let why = format!("unreachable memory: {} is located in {}", named(), buffer.memory().name());
            return Err(DeviceError::Failed { device: self.engine.name.clone(), why });
        };
        let range = range_in(buffer, address.offset, size)?;
        match self.staged_nodes.buffers.iter_mut().find(|(known, _)| known.is_same(buffer)) {
            Some((_, known)) if usage == BufferUse::Write => *known = BufferUse::Write,
            Some(_) => {}
            None => self.staged_nodes.buffers.push((buffer.clone(), usage)),
        }
        Ok((place, range))
    }
}

impl StagedNodes {
    pub(super) fn new(
        engine: &StreamEngine,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
        reach: ReachableMemory,
    ) -> Result<Self, DeviceError> {
        let mut maker = NodeStager { engine, graph, tensors, reach, staged_nodes: Self::default() };
        for index in nodes {
            maker.add(index)?;
        }
        Ok(maker.staged_nodes)
    }

    /// Checks that all buffers can be borrowed now.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        self.buffers.iter().try_for_each(|(buffer, usage)| BufferBytes::of(buffer, *usage).map(drop))
    }

    /// Runs all nodes, or fails in the middle.
    pub(super) fn run(&self, engine: &StreamEngine, fails: bool) -> Result<(), DeviceError> {
        let end = if fails { self.steps.len() / 2 } else { self.steps.len() };
        for step in &self.steps[..end] {
            step.run(engine)?;
        }
        if fails { Err(FaultPoint::Submit.error(&engine.name)) } else { Ok(()) }
    }
}

impl StagedNode {
    fn run(&self, engine: &StreamEngine) -> Result<(), DeviceError> {
        StreamEngine::pause(&engine.nodes);
        for operand in &self.operands {
            let mut bytes = vec![0; operand.range.len()];
            operand.place.load(engine.gate(), operand.range.start, &mut bytes)?;
            self.stage.write(operand.staged, &bytes)?;
        }
        engine.cpu.submit(&mut **lock(&self.prepared)).map_err(|error| engine.own(error))?;
        let result = &self.operands[0];
        let mut bytes = vec![0; result.range.len()];
        self.stage.read(result.staged, &mut bytes)?;
        StreamEngine::pause(&engine.nodes);
        result.place.store(engine.gate(), result.range.start, &bytes)
    }
}

/// Bytes that lie within a buffer.
pub(super) fn range_in(buffer: &SharedBuffer, offset: Offset, size: Bytes) -> Result<Range<usize>, DeviceError> {
    let room = buffer.size();
    let end = offset.0.checked_add(size.0).filter(|end| *end <= room.0);
    let range = end.and_then(|end| Some(usize::try_from(offset.0).ok()?..usize::try_from(end).ok()?));
    range.ok_or_else(|| DeviceError::Outside { memory: buffer.memory().name().into(), offset, size, room })
}

/// The return value of [`Backend::prepare`].
#[derive(Debug)]
pub(super) struct TestPrepared {
    /// Whose it is.
    pub(super) engine: Arc<StreamEngine>,
    pub(super) staged_nodes: Arc<StagedNodes>,
}

impl Prepared for TestPrepared {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
