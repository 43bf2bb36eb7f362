//! A backend that is too simple to be wrong: it reads whole tensors, computes in `f32`, and writes the result. Unless it is
//! told to be wrong in one way.

mod kernels;

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use steeve_device::{
    Backend, BufferType, DeviceError, Event, Finished, Graph, HostMemory, Locate, Offset, Prepared, SharedBuffer,
    TensorId,
};
use steeve_graph::{DataType, Layout, Named, Op, Param};

use kernels::{FloatArray, compute};

/// In which way it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendFault {
    None,
    /// Takes a source for all ones.
    IgnoresSource(usize),
    /// Clears the result before it reads.
    ClearsFirst,
    /// Writes source 0 into the result, and reads source 1 then.
    CopiesFirst,
    /// Writes the differences of a norm into the result, and reads the source again for the deviation.
    NormReadsAgain,
    /// Writes the first element of each pair of a rope before it computes the second.
    RopeReadsAgain,
    ForgetsLastElement,
    WritesOneMore,
    /// Reads each element of source 0 one further, the last one behind the end.
    ReadsOneFurther,
    /// Reads each element of source 0 one further, the last one twice.
    ShiftsByOne,
    /// Adds to what is there.
    Accumulates,
    ScribblesOnSource,
    RunsBackwards,
    RunsOnce,
    /// Runs all nodes, whatever was asked.
    RunsAll,
    /// Reads leafs when they are prepared.
    ReadsEarly,
    /// Says that it supports what it does not prepare.
    PromisesTooMuch,
    /// Prepares what it does not support.
    PreparesTooMuch,
    /// Prepares an operation that it does not know.
    PreparesUnknown,
    IgnoresUnplaced,
    /// Names the node, not the tensor.
    NamesAnother,
    /// Records an event that has happened already, while the work is still to do.
    RecordsEarly,
    ForgetsForeignEvents,
    /// Runs nothing, and says nothing, if the memory is in use.
    IgnoresBorrows,
    IgnoresRelease,
    /// Writes what the caller's slice holds later.
    WritesNothing,
    /// Copies from offset 0.
    CopiesFromStart,
    SupportsNothing,
}

/// When work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Execution {
    /// At once.
    Eager,
    /// When the backend is synchronised.
    Lazy,
}

#[derive(Debug)]
pub(crate) struct ReferenceBackend {
    memory: Arc<dyn BufferType>,
    fault: BackendFault,
    execution: Execution,
    queue: JobQueue,
}

impl ReferenceBackend {
    pub(crate) fn new(fault: BackendFault, execution: Execution) -> Self {
        Self::on(Arc::new(HostMemory::new()), fault, execution)
    }

    pub(crate) fn on(memory: Arc<dyn BufferType>, fault: BackendFault, execution: Execution) -> Self {
        Self { memory, fault, execution, queue: JobQueue::default() }
    }

    fn refuse(&self, graph: &Graph, node: TensorId, why: &str) -> DeviceError {
        DeviceError::unsupported("reference", graph, node, why)
    }

    fn knows(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        let tensor = graph.tensor(node);
        if tensor.op.writes_nothing() {
            return Ok(());
        }
        if self.fault == BackendFault::SupportsNothing {
            return Err(self.refuse(graph, node, "on strike"));
        }
        let sources = graph.sources(node).iter().flatten();
        let odd = sources.chain([&node]).find(|id| {
            let dtype = graph.tensor(**id).layout.dtype();
            let mask =
                tensor.op == Op::SoftMax && dtype == DataType::F16 && graph.sources(node).get(1) == Some(&Some(**id));
            !(matches!(dtype, DataType::F32 | DataType::I32) || mask)
        });
        match odd {
            Some(_) => Err(self.refuse(graph, node, "only f32 is known here")),
            None if matches!(tensor.op, Op::Other(_)) => Err(self.refuse(graph, node, "who knows?")),
            None => Ok(()),
        }
    }

    fn check(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        match (self.fault, graph.tensor(node).op) {
            (BackendFault::PreparesTooMuch, op) if !matches!(op, Op::Other(_)) => Ok(()),
            (BackendFault::PreparesUnknown, Op::Other(_)) => Ok(()),
            (BackendFault::PromisesTooMuch, _) if graph.tensor(node).layout.dtype() != DataType::F32 => {
                Err(self.refuse(graph, node, "on second thoughts, no"))
            }
            _ => self.knows(graph, node),
        }
    }

    fn operand(&self, graph: &Graph, tensors: &dyn Locate, id: TensorId) -> Result<Operand, DeviceError> {
        let layout = graph.tensor(id).layout;
        match tensors.locate(id) {
            Some(address) => Ok(Operand { buffer: address.buffer.clone(), offset: address.offset, layout }),
            None => Err(DeviceError::Unplaced { tensor: Named::new(id, graph.names()) }),
        }
    }

    fn job(&self, graph: &Graph, tensors: &dyn Locate, node: TensorId) -> Result<NodeJob, DeviceError> {
        let operand = |id: &Option<TensorId>| id.map(|id| self.operand(graph, tensors, id)).transpose();
        let job = (|| {
            let result = self.operand(graph, tensors, node)?;
            let sources: Vec<_> = graph.sources(node).iter().map(operand).collect::<Result<_, _>>()?;
            let early = match self.fault {
                BackendFault::ReadsEarly => {
                    sources.iter().flatten().map(Operand::load).collect::<Result<Vec<_>, _>>()?
                }
                _ => Vec::new(),
            };
            let (op, params, fault) = (graph.tensor(node).op, graph.params(node).to_vec(), self.fault);
            Ok(NodeJob { op, params, sources, result, early, fault })
        })();
        job.map_err(|error| match error {
            DeviceError::Unplaced { .. } if self.fault == BackendFault::NamesAnother => {
                DeviceError::Unplaced { tensor: Named::new(graph.nodes()[0], graph.names()) }
            }
            other => other,
        })
    }
}

impl Backend for ReferenceBackend {
    fn name(&self) -> &str {
        "reference"
    }

    fn buffer_type(&self) -> Arc<dyn BufferType> {
        Arc::clone(&self.memory)
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        match self.fault {
            BackendFault::PromisesTooMuch if !matches!(graph.tensor(node).op, Op::Other(_)) => Ok(()),
            _ => self.knows(graph, node),
        }
    }

    fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError> {
        let nodes =
            if self.fault == BackendFault::RunsAll && !nodes.is_empty() { 0..graph.nodes().len() } else { nodes };
        let mut jobs = Vec::new();
        for node in &graph.nodes()[nodes] {
            self.check(graph, *node)?;
            if graph.tensor(*node).op.writes_nothing() {
                continue;
            }
            match self.job(graph, tensors, *node) {
                Err(DeviceError::Unplaced { .. }) if self.fault == BackendFault::IgnoresUnplaced => {}
                job => jobs.push(job?),
            }
        }
        if self.fault == BackendFault::RunsBackwards {
            jobs.reverse();
        }
        Ok(Box::new(ReferencePrepared { jobs: Arc::new(jobs), runs: 0 }))
    }

    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError> {
        let ready = prepared.as_any_mut().downcast_mut::<ReferencePrepared>().expect("a Ready");
        ready.runs += 1;
        if self.fault == BackendFault::RunsOnce && ready.runs > 1 {
            return Ok(());
        }
        self.queue.0.lock().unwrap().push(Arc::clone(&ready.jobs));
        if self.execution == Execution::Eager { self.queue.drain() } else { Ok(()) }
    }

    fn write(&self, buffer: &SharedBuffer, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.synchronise()?;
        match self.fault {
            BackendFault::WritesNothing => buffer.write(offset, &vec![0; from.len()]),
            _ => buffer.write(offset, from),
        }
    }

    fn copy(
        &self,
        to: (&SharedBuffer, Offset),
        from: (&SharedBuffer, Offset),
        size: steeve_device::Bytes,
    ) -> Result<(), DeviceError> {
        self.synchronise()?;
        let start = if self.fault == BackendFault::CopiesFromStart { Offset(0) } else { from.1 };
        to.0.copy_from(to.1, from.0, start, size)
    }

    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        match self.fault {
            BackendFault::RecordsEarly => Ok(Arc::new(Finished)),
            _ => Ok(Arc::new(DrainEvent(self.queue.clone()))),
        }
    }

    fn wait(&self, event: &dyn Event) -> Result<(), DeviceError> {
        if self.fault == BackendFault::ForgetsForeignEvents { Ok(()) } else { event.synchronise() }
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        self.queue.drain()
    }
}

#[derive(Debug)]
struct ReferencePrepared {
    jobs: Arc<Vec<NodeJob>>,
    runs: u32,
}

impl Prepared for ReferencePrepared {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// What is still to be done.
#[derive(Clone, Debug, Default)]
struct JobQueue(Arc<Mutex<Vec<Arc<Vec<NodeJob>>>>>);

impl JobQueue {
    fn drain(&self) -> Result<(), DeviceError> {
        let work = std::mem::take(&mut *self.0.lock().unwrap());
        work.iter().flat_map(|jobs| jobs.iter()).try_for_each(NodeJob::run_unless_told)
    }
}

#[derive(Debug)]
struct DrainEvent(JobQueue);

impl Event for DrainEvent {
    fn synchronise(&self) -> Result<(), DeviceError> {
        self.0.drain()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct Operand {
    buffer: SharedBuffer,
    offset: Offset,
    layout: Layout,
}

impl Operand {
    fn bytes(&self) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.layout.nbytes().0 as usize];
        self.buffer.read(self.offset, &mut bytes)?;
        Ok(bytes)
    }

    fn load(&self) -> Result<FloatArray, DeviceError> {
        Ok(FloatArray::decode(&self.layout, &self.bytes()?))
    }

    fn store(&self, array: &[f32]) -> Result<(), DeviceError> {
        let mut bytes = self.bytes()?;
        for (value, at) in array.iter().zip(self.layout.block_offsets()) {
            let at = at as usize;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        self.buffer.write(self.offset, &bytes)
    }
}

#[derive(Debug)]
struct NodeJob {
    op: Op,
    params: Vec<Param>,
    sources: Vec<Option<Operand>>,
    result: Operand,
    early: Vec<FloatArray>,
    fault: BackendFault,
}

impl NodeJob {
    fn run_unless_told(&self) -> Result<(), DeviceError> {
        match (self.fault, self.run()) {
            (BackendFault::IgnoresBorrows, Err(DeviceError::InUse { .. })) => Ok(()),
            (BackendFault::IgnoresRelease, Err(DeviceError::Released { .. })) => Ok(()),
            (_, end) => end,
        }
    }

    fn run(&self) -> Result<(), DeviceError> {
        let before = self.result.load()?;
        match (self.fault, self.op) {
            (BackendFault::ClearsFirst, _) => self.result.store(&vec![0.0; before.data.len()])?,
            (BackendFault::CopiesFirst, _) => {
                if let Some(first) = self.sources[0].as_ref().filter(|it| it.layout.ne() == self.result.layout.ne()) {
                    let first = first.load()?;
                    let mut sources = vec![first.clone()];
                    self.result.store(&first.data)?;
                    for source in self.sources[1..].iter().flatten() {
                        sources.push(source.load()?);
                    }
                    return self.result.store(&compute(self.op, &self.params, &sources));
                }
            }
            (BackendFault::NormReadsAgain, Op::Norm) => return self.norm_reads_again(),
            (BackendFault::RopeReadsAgain, Op::Rope) => return self.rope_reads_again(),
            _ => {}
        }
        let mut sources = match self.early[..] {
            [] => self.sources.iter().flatten().map(Operand::load).collect::<Result<Vec<_>, _>>()?,
            _ => self.early.clone(),
        };
        self.spoil_sources(&mut sources)?;
        let mut result = compute(self.op, &self.params, &sources);
        match self.fault {
            BackendFault::ForgetsLastElement => {
                result.pop();
            }
            BackendFault::Accumulates => result.iter_mut().zip(&before.data).for_each(|(sum, old)| *sum += old),
            _ => {}
        }
        self.result.store(&result)?;
        match (self.fault, self.sources.get(1)) {
            (BackendFault::ScribblesOnSource, Some(Some(source))) => source.buffer.write(source.offset, &[0; 4]),
            (BackendFault::WritesOneMore, _) => {
                let end = self.result.offset.checked_add(self.result.layout.nbytes()).unwrap();
                self.result.buffer.write(end, &1f32.to_le_bytes())
            }
            _ => Ok(()),
        }
    }

    fn spoil_sources(&self, sources: &mut [FloatArray]) -> Result<(), DeviceError> {
        match self.fault {
            BackendFault::IgnoresSource(slot) => {
                if let Some(source) = sources.get_mut(slot) {
                    source.data.fill(1.0);
                }
            }
            BackendFault::ReadsOneFurther => {
                let Some(first) = &self.sources[0] else { return Ok(()) };
                let mut behind = [0; 4];
                let end = first.offset.checked_add(first.layout.nbytes()).unwrap();
                first.buffer.read(end, &mut behind)?;
                sources[0].data.rotate_left(1);
                *sources[0].data.last_mut().unwrap() = f32::from_le_bytes(behind);
            }
            BackendFault::ShiftsByOne => {
                let last = *sources[0].data.last().unwrap();
                sources[0].data.rotate_left(1);
                *sources[0].data.last_mut().unwrap() = last;
            }
            _ => {}
        }
        Ok(())
    }

    fn norm_reads_again(&self) -> Result<(), DeviceError> {
        let source = self.sources[0].as_ref().unwrap();
        let (mut values, row) = (source.load()?, source.layout.ne()[0] as usize);
        for values in values.data.chunks_mut(row) {
            let mean = values.iter().sum::<f32>() / row as f32;
            values.iter_mut().for_each(|value| *value -= mean);
        }
        self.result.store(&values.data)?;
        let again = source.load()?;
        for (values, again) in values.data.chunks_mut(row).zip(again.data.chunks(row)) {
            let mean = again.iter().sum::<f32>() / row as f32;
            let squares = again.iter().map(|value| value * value).sum::<f32>() / row as f32;
            let factor = 1.0 / (squares - mean * mean + self.params[0].float()).sqrt();
            // Through the source once more: in place that is the difference already.
            values.iter_mut().zip(again).for_each(|(value, again)| *value = (again - mean) * factor);
        }
        self.result.store(&values.data)
    }

    fn rope_reads_again(&self) -> Result<(), DeviceError> {
        let sources = self.sources.iter().flatten().map(Operand::load).collect::<Result<Vec<_>, _>>()?;
        let right = compute(self.op, &self.params, &sources);
        let halves: Vec<f32> = sources[0]
            .data
            .iter()
            .zip(&right)
            .enumerate()
            .map(|(i, (old, new))| if i % 2 == 0 { *new } else { *old })
            .collect();
        self.result.store(&halves)?;
        let sources = self.sources.iter().flatten().map(Operand::load).collect::<Result<Vec<_>, _>>()?;
        let wrong = compute(self.op, &self.params, &sources);
        let all: Vec<f32> = right
            .iter()
            .zip(&wrong)
            .enumerate()
            .map(|(i, (first, second))| if i % 2 == 0 { *first } else { *second })
            .collect();
        self.result.store(&all)
    }
}
