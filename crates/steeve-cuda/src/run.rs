//! From nodes and addresses to acts that are ready to run.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use steeve_device::{
    DeviceError, Locate, LocatedTensor, LoweredSource, Lowering, Prepared, SharedBuffer, SourceUse, UsedBuffer,
};
use steeve_graph::{Graph, Named, TensorId};

use crate::act::{Act, Stopped};
use crate::complaint::{Complaints, Registered};
use crate::driver::{Captured, Context};
use crate::kernels::choose;
use crate::memory::CudaBuffer;
use crate::recipe::{Machine, NodeCall, Recipe, Source};
use crate::scratch::{Piece, Scratch};
use crate::shape::{Operand, Shape};

/// Nodes with their acts.
#[derive(Debug)]
pub(crate) struct CudaPrepared {
    pub(crate) buffers: Vec<UsedBuffer>,
    pub(crate) acts: Vec<Act>,
    /// How many acts there are before those of each node.
    starts: Vec<usize>,
    pub(crate) has_products: bool,
    /// Whether it has run, and whether somebody has tried to capture it then.
    pub(crate) has_run: bool,
    pub(crate) was_tried: bool,
    pub(crate) captured: Option<Captured>,
    pub(crate) registered: Registered,
    _scratch: Option<Piece>,
}

impl CudaPrepared {
    /// What to say of an act that could not be enqueued.
    pub(crate) fn blame(&self, stopped: &Stopped) -> String {
        // Of nodes that start at one act all but the last have none.
        let node = |act: usize| self.starts.partition_point(|start| *start <= act).checked_sub(1);
        match stopped.act.and_then(node).and_then(|node| self.registered.name(node)) {
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

/// Whether a node can run, wherever its tensors stand.
pub(crate) fn supports(name: &str, machine: Machine, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
    let refuse = |why: String| DeviceError::unsupported(name, graph, node, why);
    let Some(tensor) = graph.tensors().get(node) else { return Err(refuse("there is no such tensor".into())) };
    if tensor.op.writes_nothing() || tensor.layout.elements() == 0 {
        return Ok(());
    }
    let operand = |id: TensorId| {
        let shape = shape_of(name, graph, node, id)?;
        // Roots stand at multiples of any alignment there is.
        Ok::<_, DeviceError>(Operand { address: (1 << 50) + graph.tensors().offset(id).get(), shape })
    };
    let result = operand(node)?;
    let mut sources = Vec::with_capacity(graph.sources(node).len());
    for (slot, source) in graph.sources(node).iter().enumerate() {
        let Some(tensor) = *source else { continue };
        sources.push(Source { tensor, slot, operand: operand(tensor)?, is_copy: false });
    }
    let call = NodeCall::new(graph, node, result, &sources);
    call.and_then(|call| choose(&call, &mut Recipe::new(machine, 0, 0))).map_err(refuse)
}

/// What it takes to prepare nodes.
pub(crate) struct Kitchen<'a> {
    pub(crate) name: &'a str,
    pub(crate) machine: Machine,
    pub(crate) context: &'a Arc<Context>,
    pub(crate) complaints: &'a Arc<Complaints>,
    pub(crate) scratch: &'a Scratch,
}

impl Kitchen<'_> {
    /// Chooses kernels for nodes, and locates their operands.
    pub(crate) fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<CudaPrepared, DeviceError> {
        let nodes = Lowering::nodes(self.name, graph, nodes)?;
        let registered = self.complaints.register(graph, nodes);
        let reaches = |buffer: &SharedBuffer| Ok(CudaBuffer::of(&*buffer.borrow()?, self.context).is_some());
        let cook = |base: u64| {
            let mut lowering = Lowering::new(self.name, graph, tensors, &reaches);
            let mut recipe = Recipe::new(self.machine, base, self.complaints.address());
            let mut starts = Vec::with_capacity(nodes.len());
            for (number, &node) in (registered.first..).zip(nodes) {
                starts.push(recipe.acts.len());
                recipe.next_node(number);
                self.add(graph, node, &mut lowering, &mut recipe)?;
            }
            Ok::<_, DeviceError>((recipe, starts, lowering.into_buffers()))
        };
        // Nodes are lowered once, at the address that scratch memory has already: it grows in place. Only the first that a
        // stream has is made when the need for it is known.
        let base = self.scratch.address();
        let (mut recipe, mut starts, mut buffers) = cook(base)?;
        let mut scratch = None;
        if recipe.most > 0 {
            let (piece, address) = self.scratch.share(recipe.most)?;
            if address != base {
                (recipe, starts, buffers) = cook(address)?;
            }
            scratch = Some(piece);
        }
        let has_products = recipe.acts.iter().any(|act| matches!(act, Act::Product(_)));
        Ok(CudaPrepared {
            buffers,
            acts: recipe.acts,
            starts,
            has_products,
            has_run: false,
            was_tried: false,
            captured: None,
            registered,
            _scratch: scratch,
        })
    }

    /// Adds the acts of a node; none if it writes nothing.
    fn add(
        &self,
        graph: &Graph,
        node: TensorId,
        lowering: &mut Lowering<'_>,
        recipe: &mut Recipe,
    ) -> Result<(), DeviceError> {
        let tensor = graph.tensor(node);
        if tensor.op.writes_nothing() || tensor.layout.elements() == 0 {
            return Ok(());
        }
        let operand = |id: TensorId, located: &LocatedTensor| {
            let shape = shape_of(self.name, graph, node, id)?;
            Ok::<_, DeviceError>(Operand { address: located.address, shape })
        };
        let lowered = lowering.lower(node)?;
        let result = operand(node, &lowered.result)?;
        let mut sources = Vec::with_capacity(lowered.sources.len());
        for &LoweredSource { tensor, slot, located, usage } in lowered.sources {
            let (mut operand, is_copy) = (operand(tensor, &located)?, usage == SourceUse::Staged);
            if is_copy {
                let copy = recipe.scratch(operand.shape.bytes, operand.address);
                recipe.copy(copy, operand.address, operand.shape.bytes);
                operand.address = copy;
            }
            sources.push(Source { tensor, slot, operand, is_copy });
        }
        let call = NodeCall::new(graph, node, result, &sources);
        let chosen = call.and_then(|call| choose(&call, recipe));
        chosen.map_err(|why| DeviceError::unsupported(self.name, graph, node, why))
    }
}

fn shape_of(name: &str, graph: &Graph, node: TensorId, operand: TensorId) -> Result<Shape, DeviceError> {
    let too_large = || format!("{} is too large", Named::new(operand, graph.names()));
    let shape = Shape::new(&graph.tensor(operand).layout);
    shape.ok_or_else(|| DeviceError::unsupported(name, graph, node, too_large()))
}
