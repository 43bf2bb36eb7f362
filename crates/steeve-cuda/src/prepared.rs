//! From nodes and addresses to commands that are ready to run.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use steeve_device::{
    DeviceError, Locate, LocatedTensor, LoweredSource, Lowering, Prepared, Shape, SharedBuffer, SourceUse, UsedBuffer,
};
use steeve_graph::{Graph, Named, TensorId};

use crate::command::{Commands, EnqueueError};
use crate::command_list::{CommandList, GpuProfile, NodeCall, Source};
use crate::custom::{CompileKernel, CustomKernels};
use crate::driver::{CapturedGraph, Context};
use crate::kernel_asserts::{KernelAsserts, NodeRegistration};
use crate::kernels::{check_addresses, choose};
use crate::memory::CudaBuffer;
use crate::operand::Operand;
use crate::scratch::{Scratch, ScratchMemory};

/// Nodes with their commands.
#[derive(Debug)]
pub(crate) struct CudaPrepared {
    // Dropped before the functions that it launches.
    pub(crate) captured: Option<CapturedGraph>,
    pub(crate) buffers: Vec<UsedBuffer>,
    pub(crate) commands: Commands,
    /// How many commands there are before those of each node.
    starts: Vec<usize>,
    /// Set once it has run.
    pub(crate) has_run: bool,
    /// Set once capturing it was tried.
    pub(crate) was_tried: bool,
    pub(crate) registered: NodeRegistration,
    _scratch: Option<ScratchMemory>,
}

impl CudaPrepared {
    /// What to say of a command that could not be enqueued.
    pub(crate) fn blame(&self, stopped: &EnqueueError) -> String {
        // Of nodes that start at one command all but the last have none.
        let node = |command: usize| self.starts.partition_point(|start| *start <= command).checked_sub(1);
        match stopped.command.and_then(node).and_then(|node| self.registered.name(node)) {
            Some(name) => format!("{name}: {}", stopped.why),
            None => stopped.why.clone(),
        }
    }
}

impl Prepared for CudaPrepared {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Checks that a node can run, wherever its tensors are located.
pub(crate) fn supports(
    name: &str,
    machine: GpuProfile,
    custom: &CustomKernels,
    graph: &Graph,
    node: TensorId,
) -> Result<(), DeviceError> {
    let refuse = |why: String| DeviceError::unsupported(name, graph, node, why);
    let Some(tensor) = graph.tensors().get(node) else { return Err(refuse("no such tensor".into())) };
    if tensor.op.writes_nothing() {
        return Ok(());
    }
    let custom = custom.kernel(graph, node).map_err(refuse)?;
    if tensor.layout.elements() == 0 {
        return Ok(());
    }
    let operand = |id: TensorId| {
        let shape = Shape::new(&graph.tensor(id).layout)
            .ok_or_else(|| refuse(format!("too large for this machine: {}", Named::new(id, graph.names()))))?;
        // Roots are located at multiples of any alignment there is.
        Ok::<_, DeviceError>(Operand { address: (1 << 50) + graph.tensors().offset(id).get(), shape })
    };
    let result = operand(node)?;
    let mut sources = Vec::with_capacity(graph.sources(node).len());
    for (slot, source) in graph.sources(node).iter().enumerate() {
        let Some(tensor) = *source else { continue };
        sources.push(Source { tensor, slot, operand: operand(tensor)?, is_copy: false });
    }
    check_addresses(result, &sources).map_err(refuse)?;
    // A caller's kernel is not compiled before it is needed.
    if custom.is_some() {
        return Ok(());
    }
    let call = NodeCall::new(graph, node, result, &sources);
    call.and_then(|call| choose(&call, &mut CommandList::new(machine, 0, 0, 0))).map_err(refuse)
}

/// Prepares nodes for one stream.
pub(crate) struct NodeLowering<'a> {
    pub(crate) name: &'a str,
    pub(crate) machine: GpuProfile,
    pub(crate) context: &'a Arc<Context>,
    pub(crate) asserts: &'a Arc<KernelAsserts>,
    pub(crate) scratch: &'a Scratch,
    pub(crate) custom: &'a CustomKernels,
    pub(crate) compile: CompileKernel<'a>,
}

impl NodeLowering<'_> {
    /// Chooses kernels for nodes, and locates their operands.
    pub(crate) fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<CudaPrepared, DeviceError> {
        let nodes = Lowering::nodes(self.name, graph, nodes)?;
        let registered = self.asserts.register(graph, nodes);
        let reaches = |buffer: &SharedBuffer| Ok(CudaBuffer::of(&*buffer.borrow()?, self.context).is_some());
        let lower = |base: u64| {
            let mut operands = Lowering::new(self.name, graph, tensors, &reaches);
            let list = CommandList::new(self.machine, nodes.len(), base, self.asserts.address());
            let lowered = self.lower_nodes(graph, nodes, registered.first, &mut operands, list)?;
            Ok::<_, DeviceError>((lowered, operands.into_buffers()))
        };
        // Nodes are lowered once, at the address that scratch memory has: it grows in place, from nothing the first time.
        // Where it can't, its address is known only when the need for it is.
        let base = self.scratch.address();
        let (mut lowered, mut buffers) = lower(base)?;
        let mut scratch = None;
        if lowered.list.most > 0 {
            let (piece, address) = self.scratch.share(lowered.list.most)?;
            if address != base {
                (lowered, buffers) = lower(address)?;
            }
            scratch = Some(piece);
        }
        let LoweredNodes { list, starts } = lowered;
        Ok(CudaPrepared {
            buffers,
            commands: list.commands,
            starts,
            has_run: false,
            was_tried: false,
            captured: None,
            registered,
            _scratch: scratch,
        })
    }

    /// Lowers nodes, which kernels know by numbers from `first` on.
    fn lower_nodes(
        &self,
        graph: &Graph,
        nodes: &[TensorId],
        first: u64,
        operands: &mut Lowering<'_>,
        mut list: CommandList,
    ) -> Result<LoweredNodes, DeviceError> {
        let mut starts = Vec::with_capacity(nodes.len());
        let mut sources = Vec::new();
        for (number, &node) in (first..).zip(nodes) {
            starts.push(list.commands.len());
            list.next_node(number);
            self.lower_node(graph, node, operands, &mut sources, &mut list)?;
        }
        Ok(LoweredNodes { list, starts })
    }

    /// Adds the commands of a node; none if it writes nothing. `sources` is room for its sources.
    fn lower_node(
        &self,
        graph: &Graph,
        node: TensorId,
        operands: &mut Lowering<'_>,
        sources: &mut Vec<Source>,
        list: &mut CommandList,
    ) -> Result<(), DeviceError> {
        let tensor = graph.tensor(node);
        if tensor.op.writes_nothing() {
            return Ok(());
        }
        let refuse = |why: String| DeviceError::unsupported(self.name, graph, node, why);
        let custom = self.custom.kernel(graph, node).map_err(refuse)?;
        if tensor.layout.elements() == 0 {
            return Ok(());
        }
        let operand = |located: LocatedTensor| Operand { address: located.address, shape: located.shape };
        let lowered = match custom {
            Some(kernel) => operands.lower_custom(node, kernel.op())?,
            None => operands.lower(node)?,
        };
        let result = operand(lowered.result);
        sources.clear();
        for &LoweredSource { tensor, slot, located, usage } in lowered.sources {
            let (mut operand, is_copy) = (operand(located), usage == SourceUse::Staged);
            if is_copy {
                let copy = list.scratch(operand.shape.bytes, operand.address);
                list.copy(copy, operand.address, operand.shape.bytes);
                operand.address = copy;
            }
            sources.push(Source { tensor, slot, operand, is_copy });
        }
        let chosen = check_addresses(result, sources).and_then(|()| match custom {
            Some(kernel) => kernel.lower((graph, node), result, sources, self.compile, list),
            None => NodeCall::new(graph, node, result, sources).and_then(|call| choose(&call, list)),
        });
        chosen.map_err(refuse)
    }
}

/// The commands of some nodes, and how many there are before those of each.
struct LoweredNodes {
    list: CommandList,
    starts: Vec<usize>,
}
