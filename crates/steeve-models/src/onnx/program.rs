//! What runs, step by step: values with what is known of them, and the nodes that compute them.

use steeve_graph::{Align, Bytes, Memory, PlanOptions, TensorGraph, Unread, plan_tensor_graph};

use super::error::OnnxError;
use super::fact::Fact;

/// The number of a value.
pub(super) type ValueId = usize;

/// A value of a model: an input, a constant, or a result.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) fact: Fact,
    pub(super) kind: ValueKind,
    /// Whether it depends on something that is not known.
    pub(super) is_tainted: bool,
    /// Whether it is in a graph of `If`, `Loop` or `Scan`.
    pub(super) is_inside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// Its data are in the file, or in one beside it.
    Stored,
    /// It depends on nothing but the file and the sizes that are given, so it is computed once.
    Constant,
    /// It has its contents when the model runs.
    Computed,
}

impl Value {
    pub(super) fn is_constant(&self) -> bool {
        self.kind != ValueKind::Computed
    }
}

/// A node that runs.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Its operation, in lower case.
    pub(super) op: String,
    /// What errors call it.
    pub(super) title: String,
    /// At least one.
    pub(super) results: Vec<ValueId>,
    pub(super) sources: Vec<ValueId>,
    /// The source whose bytes the only result has.
    pub(super) view_of: Option<ValueId>,
    /// The sources over which the only result may be written.
    pub(super) overwrites: Vec<ValueId>,
    /// The bytes that the graphs inside it need while it runs.
    pub(super) inner: u64,
}

/// Where a graph has its outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OutputMemory {
    /// In memory of its own; they may be views of inputs, and written over them.
    #[default]
    Own,
    /// In memory of the step around it.
    Outside,
    /// In memory of its own that no input has: the next turn finds each output where another input was.
    BesideInputs,
}

/// The steps of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    /// Values below this number belong to graphs around this one.
    pub(super) first: ValueId,
    pub(super) inputs: Vec<ValueId>,
    pub(super) outputs: Vec<ValueId>,
    pub(super) steps: Vec<Step>,
    pub(super) output_memory: OutputMemory,
}

impl Program {
    /// Returns the values of graphs around this one that its steps and outputs read.
    pub(super) fn outer_reads(&self) -> Vec<ValueId> {
        let sources = self.steps.iter().flat_map(|step| &step.sources);
        let mut reads: Vec<ValueId> = sources.chain(&self.outputs).copied().filter(|id| *id < self.first).collect();
        reads.sort_unstable();
        reads.dedup();
        reads
    }

    /// Returns all values of this graph's own that need bytes.
    pub(super) fn values(&self) -> impl Iterator<Item = ValueId> {
        let results = self.steps.iter().flat_map(|step| &step.results);
        results.chain(&self.inputs).chain(&self.outputs).copied().filter(|id| *id >= self.first)
    }
}

/// What identifies a tensor of a model's graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OnnxKey {
    /// A value, by its number.
    Value(usize),
    /// What the graphs inside a step need while it runs, by the number of the step.
    Inner(usize),
}

/// A program with the values that it is about, as the planner sees them.
#[derive(Clone, Debug)]
pub(super) struct ProgramGraph<'a> {
    pub(super) values: &'a [Value],
    pub(super) program: &'a Program,
    /// By value of the program's own: the step that computes it.
    pub(super) producers: &'a [Option<usize>],
}

impl<'a> ProgramGraph<'a> {
    /// Returns the fewest bytes that `fast` finds for a program.
    pub(super) fn peak(values: &'a [Value], program: &'a Program) -> Result<u64, OnnxError> {
        let producers = producers(values.len(), program);
        let graph = ProgramGraph { values, program, producers: &producers };
        let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free))?;
        Ok(plan.peak().get())
    }

    fn step(&self, key: OnnxKey) -> Option<(usize, &'a Step)> {
        let OnnxKey::Value(id) = key else { return None };
        let number = self.producers.get(id.checked_sub(self.program.first)?).copied().flatten()?;
        self.program.steps.get(number).map(|step| (number, step))
    }

    fn is_given(&self, id: ValueId) -> bool {
        self.program.output_memory == OutputMemory::Outside && self.program.outputs.contains(&id)
    }

    fn view(&self, id: ValueId) -> Option<ValueId> {
        let (_, step) = self.step(OnnxKey::Value(id))?;
        let is_apart = self.program.output_memory != OutputMemory::Own && self.program.outputs.contains(&id);
        step.view_of.filter(|_| !is_apart)
    }
}

/// Returns the step that computes each value of a program's own.
pub(super) fn producers(values: usize, program: &Program) -> Vec<Option<usize>> {
    let mut producers = vec![None; values.saturating_sub(program.first)];
    for (number, step) in program.steps.iter().enumerate() {
        for result in &step.results {
            if let Some(producer) = result.checked_sub(program.first).and_then(|at| producers.get_mut(at)) {
                *producer = Some(number);
            }
        }
    }
    producers
}

impl TensorGraph for ProgramGraph<'_> {
    type Key = OnnxKey;

    fn nodes(&self) -> impl Iterator<Item = OnnxKey> {
        let is_node = |step: &&Step| step.results.first().is_some_and(|result| self.view(*result).is_none());
        self.program.steps.iter().filter(is_node).filter_map(|step| step.results.first().map(|id| OnnxKey::Value(*id)))
    }

    fn sources(&self, node: OnnxKey) -> impl Iterator<Item = OnnxKey> {
        let sources = self.step(node).map_or(&[][..], |(_, step)| &step.sources);
        sources.iter().map(|id| OnnxKey::Value(*id))
    }

    fn more_results(&self, node: OnnxKey) -> impl Iterator<Item = OnnxKey> {
        let step = self.step(node);
        let more = step.and_then(|(_, step)| step.results.get(1..)).unwrap_or_default();
        let inner = step.filter(|(_, step)| step.inner > 0).map(|(number, _)| OnnxKey::Inner(number));
        more.iter().map(|id| OnnxKey::Value(*id)).chain(inner)
    }

    fn size(&self, tensor: OnnxKey) -> Bytes {
        match tensor {
            OnnxKey::Value(id) => Bytes(self.values.get(id).and_then(|value| value.fact.bytes()).unwrap_or(u64::MAX)),
            OnnxKey::Inner(number) => Bytes(self.program.steps.get(number).map_or(0, |step| step.inner)),
        }
    }

    fn inputs(&self) -> impl Iterator<Item = OnnxKey> {
        self.program.inputs.iter().map(|id| OnnxKey::Value(*id))
    }

    fn outputs(&self) -> impl Iterator<Item = OnnxKey> {
        let kept = (self.program.output_memory == OutputMemory::BesideInputs).then_some(&self.program.inputs);
        self.program.outputs.iter().chain(kept.into_iter().flatten()).map(|id| OnnxKey::Value(*id))
    }

    fn is_external(&self, tensor: OnnxKey) -> bool {
        let OnnxKey::Value(id) = tensor else { return false };
        let outside = id < self.program.first || self.values.get(id).is_some_and(Value::is_constant);
        outside || self.is_given(id) && !self.program.inputs.contains(&id)
    }

    fn view_of(&self, tensor: OnnxKey) -> Option<(OnnxKey, Bytes)> {
        let OnnxKey::Value(id) = tensor else { return None };
        self.view(id).map(|root| (OnnxKey::Value(root), Bytes::ZERO))
    }

    fn may_overwrite(&self, node: OnnxKey, source: OnnxKey) -> bool {
        let OnnxKey::Value(source) = source else { return false };
        self.step(node).is_some_and(|(_, step)| step.overwrites.contains(&source))
    }

    fn name(&self, tensor: OnnxKey) -> String {
        match tensor {
            OnnxKey::Value(id) => self.values.get(id).map(|value| value.name.clone()).unwrap_or_default(),
            OnnxKey::Inner(number) => {
                let title = self.program.steps.get(number).map_or("", |step| step.title.as_str());
                format!("inside {title}")
            }
        }
    }

    fn op_name(&self, node: OnnxKey) -> &str {
        self.step(node).map_or("node", |(_, step)| step.op.as_str())
    }

    fn memories(&self) -> Vec<Memory> {
        vec![Memory::new("activations", Align::new(64).unwrap_or(Align::ONE))]
    }
}
