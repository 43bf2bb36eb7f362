//! A model in, the graph that is planned out. O(model * log tensors).
//!
//! Each step of the [program](super::program) is a node: the first tensor that it computes, with the others beside it, or a
//! marker of no bytes where it computes none. Constants and variables are external.

use std::collections::BTreeMap;

use steeve_graph::{Align, Bytes, Memory, TensorGraph};

use super::error::TfliteError;
use super::kernels::{KernelSet, Operand};
use super::model::{Model, Operator, TensorIndex};
use super::program::{Program, ProgramStep, StepKind};
use super::scratch::ScratchBuffer;
use super::sizes::{FlatIndex, HEAD_ALIGN, TensorKind, tensor_kinds};

/// What identifies a node or a leaf of a [`TfliteGraph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TfliteKey {
    /// A tensor of the model.
    Tensor(TensorIndex),
    /// A buffer that a kernel needs beside its operands, by its number in [`GraphOptions::scratch`].
    Scratch(usize),
    /// A step that computes no tensor of the head, by its number. It has no bytes.
    Step(usize),
}

/// What may be assumed of the kernels that run a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphOptions {
    /// Whose kernels say which results may be written over an operand.
    pub in_place: KernelSet,
    /// Whose kernels say by how much a result and an operand may overlap; [`KernelSet::Any`] says that none may.
    pub overlap: KernelSet,
    /// The buffers that kernels need beside their operands. The plan leaves room for them.
    pub scratch: Vec<ScratchBuffer>,
}

impl GraphOptions {
    /// Returns these options with the kernels that say which results may be written over an operand.
    #[must_use]
    pub fn with_in_place(mut self, kernels: KernelSet) -> Self {
        self.in_place = kernels;
        self
    }

    /// Returns these options with the kernels that say by how much a result and an operand may overlap.
    #[must_use]
    pub fn with_overlap(mut self, kernels: KernelSet) -> Self {
        self.overlap = kernels;
        self
    }

    /// Returns these options with room for buffers of kernels.
    #[must_use]
    pub fn with_scratch(mut self, scratch: Vec<ScratchBuffer>) -> Self {
        self.scratch = scratch;
        self
    }
}

/// A model as the planner sees it.
///
/// It is planned with [`Unread::Free`](steeve_graph::Unread::Free): outputs are marked, and nothing else is kept.
///
/// ```
/// use steeve_graph::{PlanOptions, Unread, plan_tensor_graph};
/// use steeve_models::tflite::{GraphOptions, Model, SmallModel, TfliteGraph};
///
/// let model = Model::read(SmallModel::chain(&[64, 32, 16]).to_bytes())?;
/// let graph = TfliteGraph::new(&model, GraphOptions::default())?;
/// let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free))?;
/// assert_eq!(plan.peak().get(), 64 + 32);
///
/// let head = graph.head_plan(|key| plan.place(key).map(|place| place.offset))?;
/// let planned = model.with_record(&head.record)?;
/// assert_eq!(steeve_models::tflite::HeadRecord::of(&Model::read(planned)?)?, Some(head.record));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TfliteGraph<'m> {
    pub(crate) model: &'m Model,
    pub(crate) options: GraphOptions,
    pub(crate) kinds: Vec<TensorKind>,
    pub(crate) flat: FlatIndex,
    pub(crate) program: Program,
    /// By step: what pictures call its operation.
    op_names: Vec<String>,
    /// By step: the scratch buffers that it starts to need, and at the end of a call those that the call has needed.
    scratch: Vec<Vec<usize>>,
    /// By node: its step.
    step_of: BTreeMap<TfliteKey, usize>,
}

impl<'m> TfliteGraph<'m> {
    /// Walks through a model.
    ///
    /// # Errors
    ///
    /// If a tensor has no size, or a subgraph calls itself.
    pub fn new(model: &'m Model, options: GraphOptions) -> Result<Self, TfliteError> {
        let kinds = tensor_kinds(model)?;
        let program = Program::new(model, &kinds)?;
        let op_names = program.steps.iter().map(|step| step_name(model, step).to_ascii_lowercase()).collect();
        let scratch = scratch_by_step(&program, &options.scratch);
        let mut graph = Self {
            model,
            options,
            kinds,
            flat: FlatIndex::new(model),
            program,
            op_names,
            scratch,
            step_of: BTreeMap::new(),
        };
        graph.step_of = (0..graph.program.steps.len()).map(|step| (graph.node_of(step), step)).collect();
        Ok(graph)
    }

    /// Returns the model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Returns what was assumed of the kernels.
    pub fn options(&self) -> &GraphOptions {
        &self.options
    }

    fn node_of(&self, step: usize) -> TfliteKey {
        self.program.steps[step].results.first().map_or(TfliteKey::Step(step), |result| TfliteKey::Tensor(*result))
    }

    fn step(&self, node: TfliteKey) -> Option<&ProgramStep> {
        self.program.steps.get(*self.step_of.get(&node)?)
    }

    /// Returns the operator that a node runs.
    pub fn operator(&self, node: TfliteKey) -> Option<&'m Operator> {
        self.step(node)?.operator(self.model)
    }

    /// Returns the scratch buffers of a node's step, if it is of such a kind.
    fn scratch_at(&self, node: TfliteKey, is_meant: impl Fn(StepKind) -> bool) -> impl Iterator<Item = TfliteKey> {
        let step = self.step_of.get(&node).filter(|step| is_meant(self.program.steps[**step].kind));
        let numbers = step.map_or(&[][..], |step| &self.scratch[*step]);
        numbers.iter().map(|number| TfliteKey::Scratch(*number))
    }

    pub(crate) fn kind(&self, tensor: TensorIndex) -> TensorKind {
        self.kinds[self.flat.of(tensor)]
    }

    /// Returns the slot in which an operator reads a tensor; `None` if it is not one slot alone.
    fn only_slot(&self, node: TfliteKey, source: TensorIndex) -> Option<(&'m Operator, usize)> {
        let op = self.operator(node)?;
        let mut slots = op.inputs.iter().enumerate().filter(|(_, input)| **input == Some(source.tensor));
        match (slots.next(), slots.next()) {
            (Some((slot, _)), None) => Some((op, slot)),
            _ => None,
        }
    }

    /// Returns whether the kernel of `node` may write its result over `source`, as the options say.
    pub(crate) fn kernel_overwrites(&self, node: TfliteKey, source: TfliteKey) -> bool {
        let (TfliteKey::Tensor(result), TfliteKey::Tensor(source)) = (node, source) else { return false };
        let same = result.subgraph == source.subgraph && matches!(self.kind(source), TensorKind::Planned(_));
        let Some(op) = self.operator(node).filter(|op| same && op.outputs == [result.tensor]) else { return false };
        let slots = op.inputs.iter().enumerate().filter(|(_, input)| **input == Some(source.tensor));
        let operand = |slot| Operand::new(self.model, result.subgraph, op, slot);
        let (mut count, mut all) = (0, true);
        for (slot, _) in slots {
            count += 1;
            all &= operand(slot).may_be_overwritten(self.options.in_place);
        }
        count > 0 && all
    }

    /// Returns how many bytes below the start of `source` the result of `node` has to start for every byte of the source to be
    /// read before it is written, if the kernels are those of the options.
    pub(crate) fn kernel_overlap(&self, node: TfliteKey, source: TfliteKey) -> Option<u64> {
        let (TfliteKey::Tensor(result), TfliteKey::Tensor(source)) = (node, source) else { return None };
        if result.subgraph != source.subgraph || !matches!(self.kind(source), TensorKind::Planned(_)) {
            return None;
        }
        let (op, slot) = self.only_slot(node, source).filter(|(op, _)| op.outputs == [result.tensor])?;
        Operand::new(self.model, result.subgraph, op, slot).overlap(self.options.overlap)
    }
}

fn step_name<'m>(model: &'m Model, step: &ProgramStep) -> &'m str {
    let op = |index: usize| model.subgraphs[step.subgraph].operators.get(index).map_or("", |op| model.op_name(op));
    match step.kind {
        StepKind::Operator(index) | StepKind::CallEnd(index) => op(index),
        StepKind::Start => "subgraph start",
        StepKind::End => "subgraph end",
        StepKind::Again => "subgraph again",
    }
}

fn scratch_by_step(program: &Program, scratch: &[ScratchBuffer]) -> Vec<Vec<usize>> {
    let mut buffers: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (number, buffer) in scratch.iter().enumerate() {
        buffers.entry((buffer.subgraph, buffer.operator)).or_default().push(number);
    }
    let of_step = |step: &ProgramStep| match step.kind {
        StepKind::Operator(index) | StepKind::CallEnd(index) => buffers.get(&(step.subgraph, index)).cloned(),
        _ => None,
    };
    program.steps.iter().map(|step| of_step(step).unwrap_or_default()).collect()
}

impl TensorGraph for TfliteGraph<'_> {
    type Key = TfliteKey;

    fn nodes(&self) -> impl Iterator<Item = TfliteKey> {
        (0..self.program.steps.len()).map(|step| self.node_of(step))
    }

    fn sources(&self, node: TfliteKey) -> impl Iterator<Item = TfliteKey> {
        let step = self.step(node);
        let reads =
            step.into_iter().flat_map(|step| &step.reads).filter(|tensor| self.kind(**tensor) != TensorKind::Empty);
        let held = self.scratch_at(node, |kind| matches!(kind, StepKind::CallEnd(_)));
        reads.map(|tensor| TfliteKey::Tensor(*tensor)).chain(held)
    }

    fn more_results(&self, node: TfliteKey) -> impl Iterator<Item = TfliteKey> {
        let step = self.step_of.get(&node).copied();
        let results = step.and_then(|step| self.program.steps[step].results.get(1..)).unwrap_or_default();
        let scratch = self.scratch_at(node, |kind| matches!(kind, StepKind::Operator(_)));
        results.iter().map(|result| TfliteKey::Tensor(*result)).chain(scratch)
    }

    fn overlap(&self, node: TfliteKey, source: TfliteKey) -> Option<Bytes> {
        self.kernel_overlap(node, source).map(Bytes)
    }

    fn size(&self, tensor: TfliteKey) -> Bytes {
        match tensor {
            TfliteKey::Tensor(tensor) => match self.kind(tensor) {
                TensorKind::Planned(bytes) | TensorKind::Variable(bytes) | TensorKind::Constant(bytes) => Bytes(bytes),
                TensorKind::Empty => Bytes(0),
            },
            TfliteKey::Scratch(number) => {
                let bytes = self.options.scratch.get(number).map_or(0, |it| it.bytes);
                Bytes(bytes.checked_next_multiple_of(HEAD_ALIGN).unwrap_or(u64::MAX))
            }
            TfliteKey::Step(_) => Bytes(0),
        }
    }

    fn inputs(&self) -> impl Iterator<Item = TfliteKey> {
        self.program.inputs.iter().map(|input| TfliteKey::Tensor(*input))
    }

    fn outputs(&self) -> impl Iterator<Item = TfliteKey> {
        self.program.outputs.iter().map(|output| TfliteKey::Tensor(*output))
    }

    fn is_external(&self, tensor: TfliteKey) -> bool {
        let TfliteKey::Tensor(tensor) = tensor else { return false };
        matches!(self.kind(tensor), TensorKind::Constant(_) | TensorKind::Variable(_))
    }

    fn may_overwrite(&self, node: TfliteKey, source: TfliteKey) -> bool {
        self.kernel_overwrites(node, source)
    }

    fn name(&self, tensor: TfliteKey) -> String {
        match tensor {
            TfliteKey::Tensor(index) => match self.model.tensor(index).map_or("", |tensor| tensor.name.as_str()) {
                "" => format!("tensor {index}"),
                name => name.to_owned(),
            },
            TfliteKey::Scratch(number) => format!("scratch {number}"),
            TfliteKey::Step(step) => format!("step {step}"),
        }
    }

    fn op_name(&self, node: TfliteKey) -> &str {
        self.step_of.get(&node).and_then(|step| self.op_names.get(*step)).map_or("node", String::as_str)
    }

    fn memories(&self) -> Vec<Memory> {
        vec![Memory::new("arena head", Align::new(HEAD_ALIGN).unwrap_or(Align::ONE))]
    }
}
