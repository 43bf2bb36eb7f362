//! From nodes and addresses to acts that are ready to run.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use steeve_device::{DeviceError, Locate, Prepared, SharedBuffer};
use steeve_graph::{Graph, Named, Op, TensorId};

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
    /// The buffers, and whether they are written.
    pub(crate) buffers: Vec<(SharedBuffer, bool)>,
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
        let shape = Shape::new(&graph.tensor(id).layout);
        let shape = shape.ok_or_else(|| refuse(format!("{} is too large", Named::new(id, graph.names()))))?;
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
    /// Chooses kernels, and finds out where everything stands.
    pub(crate) fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<CudaPrepared, DeviceError> {
        let all = graph.nodes();
        let Some(nodes) = all.get(nodes.clone()) else {
            let why = format!("nodes {nodes:?} are asked for, and the graph has {}", all.len());
            return Err(DeviceError::Failed { device: self.name.into(), why });
        };
        let registered = self.complaints.register(graph, nodes);
        nodes.iter().try_for_each(|node| supports(self.name, self.machine, graph, *node))?;
        let (buffers, known) = (Vec::new(), BTreeMap::new());
        let mut places = Places { name: self.name, context: self.context, graph, tensors, buffers, known };
        let mut starts = Vec::with_capacity(nodes.len());
        let mut cook = |base: u64| {
            let mut recipe = Recipe::new(self.machine, base, self.complaints.address());
            starts.clear();
            for (number, &node) in (registered.first..).zip(nodes) {
                starts.push(recipe.acts.len());
                recipe.next_node(number);
                places.add(node, &mut recipe)?;
            }
            Ok::<_, DeviceError>(recipe)
        };
        // Once to learn how much scratch memory it takes, and once with that.
        let mut recipe = cook(0)?;
        let mut scratch = None;
        if recipe.most > 0 {
            let (piece, address) = self.scratch.share(recipe.most)?;
            recipe = cook(address)?;
            scratch = Some(piece);
        }
        let has_products = recipe.acts.iter().any(|act| matches!(act, Act::Product(_)));
        Ok(CudaPrepared {
            buffers: places.buffers,
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
}

/// Where tensors stand, and the buffers that they stand in.
struct Places<'a> {
    name: &'a str,
    context: &'a Arc<Context>,
    graph: &'a Graph,
    tensors: &'a dyn Locate,
    buffers: Vec<(SharedBuffer, bool)>,
    /// Where a buffer is in that list, by address. None but empty ones have the same.
    known: BTreeMap<u64, usize>,
}

/// Whether a tensor is read or written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
}

impl Places<'_> {
    /// Adds the acts of a node that is supported; none if it writes nothing.
    fn add(&mut self, node: TensorId, recipe: &mut Recipe) -> Result<(), DeviceError> {
        let (graph, op) = (self.graph, self.graph.tensor(node).op);
        if op.writes_nothing() || graph.tensor(node).layout.elements() == 0 {
            return Ok(());
        }
        let result = self.find(node, Use::Write)?;
        let mut sources = Vec::with_capacity(graph.sources(node).len());
        for (slot, source) in graph.sources(node).iter().enumerate() {
            let Some(tensor) = *source else { continue };
            let mut operand = self.find(tensor, Use::Read)?;
            let is_copy = must_be_copied(op, slot, &operand, &result);
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

    fn find(&mut self, tensor: TensorId, usage: Use) -> Result<Operand, DeviceError> {
        let named = || Named::new(tensor, self.graph.names());
        let Some(address) = self.tensors.locate(tensor) else { return Err(DeviceError::Unplaced { tensor: named() }) };
        let layout = self.graph.tensor(tensor).layout;
        let fail = |why: String| DeviceError::Failed { device: self.name.into(), why };
        let shape = Shape::new(&layout).ok_or_else(|| fail(format!("{} is too large", named())))?;
        let buffer = address.buffer;
        let end = address.offset.checked_add(layout.nbytes());
        if end.is_none_or(|end| end.0 > buffer.size().0) {
            let (memory, size) = (buffer.memory().name().into(), layout.nbytes());
            return Err(DeviceError::Outside { memory, offset: address.offset, size, room: buffer.size() });
        }
        let known = self.known.get(&buffer.address()).and_then(|index| self.buffers.get_mut(*index));
        match known.filter(|(known, _)| known.is_same(buffer)) {
            Some((_, written)) => *written |= usage == Use::Write,
            None => {
                if CudaBuffer::of(&*buffer.borrow()?, self.context).is_none() {
                    let memory = buffer.memory().name();
                    return Err(fail(format!("{} stands in {memory}, which this GPU can't reach", named())));
                }
                self.known.insert(buffer.address(), self.buffers.len());
                self.buffers.push((buffer.clone(), usage == Use::Write));
            }
        }
        Ok(Operand { address: buffer.address() + address.offset.0, shape })
    }
}

/// Whether the kernel would see the source change.
fn must_be_copied(op: Op, slot: usize, source: &Operand, result: &Operand) -> bool {
    // What is written into is not read.
    let is_target = matches!((op, slot), (Op::Cpy, 1) | (Op::SetRows, 2));
    let stands_on_it = source.address == result.address && source.shape == result.shape;
    source.overlaps(result) && !is_target && !(op.overwrites_slot(slot) && stands_on_it)
}
