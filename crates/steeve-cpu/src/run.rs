//! Prepared nodes, and running them.
//!
//! Each buffer is borrowed once per run. Sources that [`Lowering`] calls staged are copied away before the kernel runs, so
//! that a kernel never sees its sources change.

use std::any::Any;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use steeve_device::{
    BufferReadGuard, BufferWriteGuard, DeviceError, Locate, LocatedTensor, Lowering, Offset, Prepared, Shape,
    SharedBuffer, SourceUse, Span, SpanMut, UsedBuffer,
};
use steeve_graph::{Bytes, Graph, Layout, Named, Op, TensorId};

use crate::cancel::Cancel;
use crate::custom::CustomKernels;
use crate::kernel::{Kernel, NodeCall, Operands, UnitError, shapes_of};
use crate::kernels::choose;
use crate::pool::{Pool, WorkerGroup};
use crate::tensor_ptr::{CacheLine, NodeScratch, TensorPtr};
use crate::timings::{NodeTime, Timings};

/// The number of sources that a node runs with without an allocation. Only callers' own operations have more.
const FEW_SOURCES: usize = 16;

/// Nodes with their kernels and operands.
#[derive(Debug)]
pub(crate) struct CpuPrepared {
    graph: Graph,
    buffers: Vec<UsedBuffer>,
    steps: Vec<KernelStep>,
    sources: Vec<Option<SourceOperand>>,
    /// Copies of sources that share bytes with a result, each from the start of a cache line on.
    staging: Vec<CacheLine>,
    /// Memory that the units of one node share.
    node_scratch: Vec<CacheLine>,
}

#[derive(Debug)]
struct KernelStep {
    node: TensorId,
    /// The position among the graph's nodes.
    index: usize,
    kernel: Box<dyn Kernel>,
    units: usize,
    /// Whether units write the same bytes, so that their order matters.
    in_order: bool,
    result: Operand,
    sources: Range<usize>,
}

/// A tensor in one of the buffers.
#[derive(Clone, Copy, Debug)]
struct Operand {
    buffer: usize,
    offset: usize,
    shape: Shape,
}

/// A source of a step.
#[derive(Clone, Copy, Debug)]
struct SourceOperand {
    operand: Operand,
    /// Whether it is copied away first.
    is_staged: bool,
}

impl Operand {
    fn new(located: &LocatedTensor) -> Self {
        // It lies within a buffer of this process, so the offset is a number of this machine.
        Self { buffer: located.buffer, offset: located.offset.0 as usize, shape: located.shape }
    }
}

impl Prepared for CpuPrepared {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Chooses kernels for nodes, and locates their operands.
pub(crate) fn prepare(
    name: &str,
    graph: &Graph,
    nodes: Range<usize>,
    tensors: &dyn Locate,
    custom: &CustomKernels,
) -> Result<CpuPrepared, DeviceError> {
    let first = nodes.start;
    let nodes = Lowering::nodes(name, graph, nodes)?;
    let mut prepared = CpuPrepared {
        graph: graph.clone(),
        buffers: Vec::new(),
        steps: Vec::with_capacity(nodes.len()),
        sources: Vec::new(),
        staging: Vec::new(),
        node_scratch: Vec::new(),
    };
    let mut lowering = Lowering::new(name, graph, tensors, &|buffer| Ok(buffer.memory().is_host()));
    for (index, &node) in (first..).zip(nodes) {
        prepared.add(name, index, node, &mut lowering, custom)?;
    }
    prepared.buffers = lowering.into_buffers();
    Ok(prepared)
}

/// Returns the kernel of a node; `None` if it writes nothing, or has no elements.
pub(crate) fn kernel_of(
    name: &str,
    graph: &Graph,
    node: TensorId,
    custom: &CustomKernels,
) -> Result<Option<Box<dyn Kernel>>, DeviceError> {
    let refuse = |why: String| DeviceError::unsupported(name, graph, node, why);
    let Some(tensor) = graph.tensors().get(node) else { return Err(refuse("no such tensor".into())) };
    if tensor.op.writes_nothing() {
        return Ok(None);
    }
    if let Op::Other(_) = tensor.op {
        let kernel = shapes_of(graph, node).and_then(|result| custom.choose(graph, node, &result)).map_err(refuse)?;
        return Ok((tensor.layout.elements() > 0).then_some(kernel));
    }
    let call = NodeCall::new(graph, node).map_err(refuse)?;
    // Nothing is computed, whatever the shapes of the sources.
    if tensor.layout.elements() == 0 {
        return Ok(None);
    }
    choose(&call).map(Some).map_err(refuse)
}

impl CpuPrepared {
    fn add(
        &mut self,
        name: &str,
        index: usize,
        node: TensorId,
        lowering: &mut Lowering<'_>,
        custom: &CustomKernels,
    ) -> Result<(), DeviceError> {
        let Some(kernel) = kernel_of(name, &self.graph, node, custom)? else { return Ok(()) };
        let units = kernel.units();
        if units == 0 || self.graph.tensor(node).layout.elements() == 0 {
            return Ok(());
        }
        let tensors = self.graph.tensors();
        let lowered = match custom.op(tensors.op_name(tensors[node].op)) {
            Some(op) if matches!(tensors[node].op, Op::Other(_)) => lowering.lower_custom(node, op)?,
            _ => lowering.lower(node)?,
        };
        let result = Operand::new(&lowered.result);
        let first = self.sources.len();
        let mut staging = 0;
        self.sources.resize(first + self.graph.sources(node).len(), None);
        for source in lowered.sources {
            let (operand, is_staged) = (Operand::new(&source.located), source.usage == SourceUse::Staged);
            if is_staged {
                staging += operand.shape.bytes.div_ceil(size_of::<CacheLine>());
            }
            self.sources[first + source.slot] = Some(SourceOperand { operand, is_staged });
        }
        grow(&mut self.staging, staging, CacheLine([0; 64])).map_err(|asked| {
            let memory = format!("{name} (copies of overwritten sources)");
            DeviceError::OutOfMemory { memory, asked, left: None }
        })?;
        let node_scratch = kernel.prologue().bytes.div_ceil(size_of::<CacheLine>());
        grow(&mut self.node_scratch, node_scratch, CacheLine([0; 64])).map_err(|asked| {
            let memory = format!("{name} (node scratch)");
            DeviceError::OutOfMemory { memory, asked, left: None }
        })?;
        let in_order = units == 1 || result.shape.overlaps_itself();
        let sources = first..self.sources.len();
        self.steps.push(KernelStep { node, index, kernel, units, in_order, result, sources });
        Ok(())
    }
}

/// Extends a list to at least `length`.
///
/// # Errors
///
/// The bytes that there was no memory for.
fn grow<T: Clone>(list: &mut Vec<T>, length: usize, value: T) -> Result<(), Bytes> {
    if let Some(more) = length.checked_sub(list.len()) {
        list.try_reserve_exact(more).map_err(|_| Bytes(length.saturating_mul(size_of::<T>()) as u64))?;
        list.resize(length, value);
    }
    Ok(())
}

/// A callback for each node's result, which may end the run.
pub(crate) type Observer = dyn FnMut(&Observed<'_>) -> ControlFlow<()> + Send;

/// The result of a node that has just run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The node.
    pub node: TensorId,
    /// Type, shape and strides of its result.
    pub layout: Layout,
    /// The bytes that it spans, gaps included.
    pub bytes: &'a [u8],
}

/// The environment of a run.
pub(crate) struct GraphRun<'a> {
    pub(crate) name: &'a str,
    pub(crate) pool: &'a Pool,
    pub(crate) cancel: &'a Cancel,
    pub(crate) observer: Option<&'a mut Observer>,
    pub(crate) timings: Option<&'a mut Timings>,
}

impl GraphRun<'_> {
    /// Runs all nodes, on borrowed buffers.
    pub(crate) fn run(mut self, prepared: &mut CpuPrepared) -> Result<(), DeviceError> {
        let CpuPrepared { graph, buffers, steps, sources, staging, node_scratch } = prepared;
        let mut borrowed = Vec::with_capacity(buffers.len());
        for UsedBuffer { buffer, is_written } in buffers.iter() {
            borrowed.push(if *is_written {
                BorrowedBuffer::Mut(buffer.borrow_mut()?)
            } else {
                BorrowedBuffer::Shared(buffer.borrow()?)
            });
        }
        let mut starts = Vec::with_capacity(buffers.len());
        for (borrowed, used) in borrowed.iter_mut().zip(buffers.iter()) {
            starts.push(borrowed.start(self.name, &used.buffer)?);
        }
        let Some(mut group) = self.pool.enter() else {
            let why = "recursive run: an observer can't run graphs on its own backend".into();
            return Err(DeviceError::Failed { device: self.name.into(), why });
        };
        for step in steps.iter() {
            let cancelled = |node: usize| DeviceError::Cancelled { node, nodes: graph.nodes().len() };
            if self.cancel.is_cancelled() {
                return Err(cancelled(step.index));
            }
            let start = self.timings.is_some().then(Instant::now);
            // SAFETY: `prepare` has seen that every operand lies within its buffer, and `borrowed` has them all, for
            // writing where something is written.
            let done = unsafe {
                step.run(
                    &mut group,
                    &starts,
                    &sources[step.sources.clone()],
                    StepScratch { staging, node_scratch },
                    self.cancel,
                )
            };
            let ended = done.map_err(|error| {
                let (backend, node) = (self.name.into(), Named::new(step.node, graph.names()));
                match error {
                    UnitError::Data(why) => DeviceError::Failed { device: backend, why: format!("{node}: {why}") },
                    UnitError::Kernel { op, source } => DeviceError::Kernel { backend, node, op, source },
                }
            })?;
            // A cancelled step leaves a result that is incomplete.
            if ended == StepEnd::Cancelled || self.cancel.is_cancelled() {
                return Err(cancelled(step.index));
            }
            if let (Some(timings), Some(start)) = (&mut self.timings, start) {
                let tensors = graph.tensors();
                let op = match tensors[step.node].op {
                    op @ Op::Other(_) => tensors.op_name(op).to_owned().into(),
                    op => op.name().into(),
                };
                timings.0.push(NodeTime { node: step.node, op, time: start.elapsed() });
            }
            if let Some(observer) = &mut self.observer {
                // SAFETY: every operand lies within its buffer, which is borrowed, and no kernel runs now.
                let bytes = unsafe {
                    let start = starts[step.result.buffer].add(step.result.offset);
                    std::slice::from_raw_parts(start, step.result.shape.bytes)
                };
                let layout = graph.tensor(step.node).layout;
                if observer(&Observed { graph, node: step.node, layout, bytes }).is_break() {
                    return Err(cancelled(step.index + 1));
                }
            }
        }
        Ok(())
    }
}

impl KernelStep {
    /// # Safety
    /// Each operand lies within the buffer that starts at its place in `starts`, and all are borrowed.
    unsafe fn run(
        &self,
        group: &mut WorkerGroup<'_>,
        starts: &[*mut u8],
        sources: &[Option<SourceOperand>],
        spare: StepScratch<'_>,
        cancel: &Cancel,
    ) -> Result<StepEnd, UnitError> {
        // SAFETY: the caller promises that the operand lies within its buffer.
        let raw = |operand: &Operand| unsafe { starts[operand.buffer].add(operand.offset) };
        let (mut few, mut many): ([Option<TensorPtr<'_>>; FEW_SOURCES], Vec<_>);
        let pointers = if sources.len() <= FEW_SOURCES {
            few = [None; FEW_SOURCES];
            &mut few[..sources.len()]
        } else {
            many = vec![None; sources.len()];
            &mut many[..]
        };
        let StepScratch { mut staging, node_scratch } = spare;
        for (entry, source) in pointers.iter_mut().zip(sources) {
            let Some(SourceOperand { operand, is_staged }) = source else { continue };
            let mut start = raw(operand);
            if *is_staged {
                let (copy, rest) = staging.split_at_mut(operand.shape.bytes.div_ceil(size_of::<CacheLine>()));
                staging = rest;
                let copy = copy.as_mut_ptr().cast();
                // SAFETY: the source lies within its buffer, as the caller promises, and the copy has its size.
                unsafe { std::ptr::copy_nonoverlapping(start, copy, operand.shape.bytes) };
                start = copy;
            }
            // SAFETY: the operand lies within its buffer, as the caller promises, or is the copy.
            *entry = Some(unsafe { TensorPtr::new(start, &operand.shape) });
        }
        // SAFETY: the result lies within its buffer, as the caller promises.
        let result = unsafe { TensorPtr::new(raw(&self.result), &self.result.shape) };
        let operands = Operands { result, sources: pointers, node_scratch: NodeScratch::new(node_scratch) };
        // Whether some unit was left out. The cancellation may be reset before it is checked again.
        let is_short = AtomicBool::new(false);
        let leaves_out = || {
            let is_cancelled = cancel.is_cancelled();
            if is_cancelled {
                is_short.store(true, Ordering::Relaxed);
            }
            is_cancelled
        };
        group.run(self.kernel.prologue().units, &|unit, scratch| {
            if !leaves_out() {
                // SAFETY: the kernel was chosen for these shapes, and sources that it must not see change are copies.
                unsafe { self.kernel.run_prologue(&operands, unit, scratch) };
            }
        });
        if is_short.load(Ordering::Relaxed) {
            return Ok(StepEnd::Cancelled);
        }
        if self.in_order {
            for unit in 0..self.units {
                // SAFETY: the kernel was chosen for these shapes, and sources that it must not see change are copies.
                unsafe { self.kernel.run(&operands, unit, group.scratch()) }?;
            }
            return Ok(StepEnd::Complete);
        }
        // Of several errors that of the first unit is returned, so the threads do not matter.
        let failed: Mutex<Option<(usize, UnitError)>> = Mutex::new(None);
        group.run(self.units, &|unit, scratch| {
            if leaves_out() {
                return;
            }
            // SAFETY: the kernel was chosen for these shapes, and sources that it must not see change are copies; each
            // unit is done once, and the whole prologue has been done.
            if let Err(why) = unsafe { self.kernel.run(&operands, unit, scratch) } {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| unit < *first) {
                    *failed = Some((unit, why));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, why)) => Err(why),
            None if is_short.into_inner() => Ok(StepEnd::Cancelled),
            None => Ok(StepEnd::Complete),
        }
    }
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepEnd {
    /// All units were done.
    Complete,
    /// Some were left out, because the run was cancelled.
    Cancelled,
}

/// Memory of the prepared nodes that each of them may use.
struct StepScratch<'a> {
    staging: &'a mut [CacheLine],
    node_scratch: &'a mut [CacheLine],
}

/// A buffer for as long as a run lasts.
enum BorrowedBuffer<'a> {
    Shared(BufferReadGuard<'a>),
    Mut(BufferWriteGuard<'a>),
}

impl BorrowedBuffer<'_> {
    /// Returns the first byte; null for an empty buffer without memory.
    fn start(&mut self, name: &str, buffer: &SharedBuffer) -> Result<*mut u8, DeviceError> {
        let size = buffer.size();
        let no_host = || {
            let why = format!("not host memory: {}", buffer.memory().name());
            DeviceError::Failed { device: name.into(), why }
        };
        match self {
            Self::Shared(reading) => Ok(Span::of(&**reading, Offset(0), size).ok_or_else(no_host)??.start().cast_mut()),
            Self::Mut(writing) => Ok(SpanMut::of(&mut **writing, Offset(0), size).ok_or_else(no_host)??.start()),
        }
    }
}
