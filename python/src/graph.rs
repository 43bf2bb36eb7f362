//! A tensor graph as Python sees it: its tensors, its nodes, its plan.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use steeve_graph::{
    AssignedGraph, Bytes, Flags, GraphPlan, GraphStrategy, Id, KeyedGraph, MatchMemories, Memory, MemoryId, Op, Order,
    PlanFault, PlanOptions, RecordedGraph, Reuse, TensorId, Unread, check_plan_file, plan_graph_watched,
};
use steeve_models::onnx::OnnxGraph;
use steeve_models::tflite::{
    GraphOptions, HeadPlan, HeadRecord, KernelSet, Model, TensorIndex, TfliteError, TfliteGraph, TfliteKey,
    reference_scratch, uniform_scratch,
};
use steeve_plan::Clipped;
use steeve_view::PlanMap;

use crate::blocks::{Misfit, Proof, read_align};
use crate::copies::Reduced;
use crate::error::{exception, invalid_argument, invalid_input, locked, unlocked, wrong_type};
use crate::fit::{FitRequest, PyFitted};
use crate::numbers::number;
use crate::plan::{Planned, PyPlan};
use crate::plan_file::GivenPlan;
use crate::search::{SearchSettings, SearchWatcher};
use crate::text::{optional_text, text};

/// A graph with what its source knows of it.
pub(crate) struct GraphData {
    assigned: AssignedGraph,
    /// The tensors in the order in which Python numbers them.
    order: Vec<TensorId>,
    /// The number of each tensor in that order.
    numbers: HashMap<TensorId, usize>,
    names: OnceLock<HashMap<String, usize>>,
    /// The memory of each leaf and node.
    memories: HashMap<TensorId, MemoryId>,
    /// The numbers of a recording.
    ids: Option<Vec<Option<u64>>>,
    model: Option<ModelData>,
    /// Type and shape of each tensor of an ONNX model.
    layouts: Option<HashMap<TensorId, String>>,
    title: String,
}

/// The model that a graph is the graph of.
struct ModelData {
    model: Arc<Model>,
    options: GraphOptions,
    keyed: KeyedGraph<TfliteKey>,
    /// The bytes that any plan takes for tensors that nothing uses.
    unused: u64,
}

impl GraphData {
    fn new(assigned: AssignedGraph, order: Vec<TensorId>, title: String) -> Self {
        let numbers = order.iter().enumerate().map(|(index, id)| (*id, index)).collect();
        let (graph, assignment) = (assigned.graph(), assigned.assignment());
        let leafs = graph.leafs().iter().copied().zip(assignment.leafs.iter().copied());
        let memories = leafs.chain(graph.nodes().iter().copied().zip(assignment.nodes.iter().copied())).collect();
        Self {
            assigned,
            order,
            numbers,
            names: OnceLock::new(),
            memories,
            ids: None,
            model: None,
            layouts: None,
            title,
        }
    }

    /// Takes a graph whose tensors keep their order.
    pub(crate) fn of_graph(assigned: AssignedGraph, title: String) -> Self {
        let order = assigned.graph().tensors().ids().collect();
        Self::new(assigned, order, title)
    }

    /// Takes a recorded graph.
    pub(crate) fn of_recorded(recorded: RecordedGraph, title: String) -> Self {
        let ids = recorded.ids.iter().copied().collect();
        Self { ids: Some(ids), ..Self::of_graph(recorded.assigned, title) }
    }

    /// Takes a graph that was numbered by the keys of another.
    pub(crate) fn of_keyed(keyed: &KeyedGraph<usize>, title: String) -> Self {
        let assigned = keyed.assigned().clone();
        let mut order: Vec<TensorId> = assigned.graph().tensors().ids().collect();
        order.sort_by_key(|id| keyed.key(*id));
        Self::new(assigned, order, title)
    }

    /// Takes an ONNX model whose shapes are all known.
    pub(crate) fn of_onnx(py: Python<'_>, graph: &OnnxGraph, title: String) -> PyResult<Self> {
        let keyed = KeyedGraph::new(graph).map_err(|error| invalid_input(py, &error))?;
        let assigned = keyed.assigned().clone();
        let order: Vec<TensorId> = assigned.graph().tensors().ids().collect();
        let layouts = order.iter().filter_map(|id| Some((*id, graph.layout(keyed.key(*id)?)?))).collect();
        Ok(Self { layouts: Some(layouts), ..Self::new(assigned, order, title) })
    }

    /// Takes a model, with what is known of the kernels that run it.
    pub(crate) fn of_model(py: Python<'_>, model: Arc<Model>, kernels: Kernels, title: String) -> PyResult<Self> {
        let set = |is_reference| if is_reference { KernelSet::TflmReference } else { KernelSet::Any };
        let mut scratch = reference_scratch(&model);
        scratch.extend(uniform_scratch(&model, kernels.scratch.unwrap_or(0)));
        let options = GraphOptions::default()
            .with_in_place(set(kernels.in_place))
            .with_overlap(set(kernels.overlap))
            .with_scratch(scratch);
        let graph = TfliteGraph::new(&model, options.clone()).map_err(|error| invalid_input(py, &error))?;
        let unused = graph.unused_bytes();
        let keyed = KeyedGraph::new(&graph).map_err(|error| invalid_input(py, &error))?;
        let assigned = keyed.assigned().clone();
        let mut order: Vec<TensorId> = assigned.graph().tensors().ids().collect();
        order.sort_by_key(|id| keyed.key(*id));
        Ok(Self { model: Some(ModelData { model, options, keyed, unused }), ..Self::new(assigned, order, title) })
    }

    /// Returns a graph that was made of this one. Where it has the same tensors, they keep their numbers.
    pub(crate) fn with_assigned(&self, assigned: AssignedGraph) -> Self {
        if assigned.graph().tensors().len() != self.order.len() {
            return Self::of_graph(assigned, self.title.clone());
        }
        let (ids, layouts) = (self.ids.clone(), self.layouts.clone());
        Self { ids, layouts, ..Self::new(assigned, self.order.clone(), self.title.clone()) }
    }

    pub(crate) fn assigned(&self) -> &AssignedGraph {
        &self.assigned
    }

    /// Returns how long tensors live that no node reads, where the caller does not say.
    fn unread(&self) -> Unread {
        // In a model only outputs are read after the run.
        if self.is_model() || self.layouts.is_some() { Unread::Free } else { Unread::default() }
    }

    pub(crate) fn order(&self) -> &[TensorId] {
        &self.order
    }

    pub(crate) fn nodes(&self) -> usize {
        self.assigned.graph().nodes().len()
    }

    pub(crate) fn is_model(&self) -> bool {
        self.model.is_some()
    }

    /// Returns the bytes that any plan takes for tensors that nothing uses.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.model.as_ref().map_or(0, |it| it.unused)
    }

    /// Finds a tensor by its number or name.
    pub(crate) fn find(&self, py: Python<'_>, argument: &str, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        let names = || {
            let named = self.order.iter().enumerate().map(|(index, id)| (self.name(*id), index));
            // The first of a name counts.
            named.rev().collect()
        };
        let known = KnownNames {
            count: self.order.len(),
            by_name: |name: &str| self.names.get_or_init(names).get(name).copied(),
            name_of: |index: usize| self.name(self.order[index]),
        };
        known.find(py, argument, tensor)
    }

    fn name(&self, id: TensorId) -> String {
        match (self.assigned.graph().name(id), self.numbers.get(&id)) {
            ("", Some(index)) => {
                let recorded = self.ids.as_ref().and_then(|ids| ids.get(id.index()).copied().flatten());
                format!("#{}", recorded.unwrap_or(*index as u64))
            }
            (name, _) => name.to_owned(),
        }
    }

    fn tensor(&self, index: usize, id: TensorId) -> PyTensor {
        let graph = self.assigned.graph();
        let it = graph.tensor(id);
        let memory = self.memories.get(&graph.root(id)).copied().filter(|_| !graph.tensors().is_external(id));
        let size = match memory {
            Some(memory) if it.is_planned() => self.assigned.alloc_size(id, memory),
            _ => it.nbytes(),
        };
        let kind = match it.op {
            _ if it.external => "external",
            op if it.is_view() && op.writes_nothing() => "view",
            Op::None => "input",
            _ => "node",
        };
        let number = |id: &TensorId| self.numbers.get(id).copied();
        PyTensor {
            index,
            name: self.name(id),
            size: size.0,
            kind: kind.to_owned(),
            op: if it.op == Op::None { String::new() } else { graph.tensors().op_title(it.op).to_lowercase() },
            layout: match &self.layouts {
                Some(layouts) => layouts.get(&id).cloned().unwrap_or_default(),
                None if self.is_model() => String::new(),
                None => it.layout.to_string(),
            },
            memory: memory.map(|memory| self.assigned.memories()[memory].name.clone()),
            is_output: it.flags.contains(Flags::OUTPUT),
            sources: graph.sources(id).iter().flatten().filter_map(number).collect(),
            view_of: it.view.and_then(|view| number(&view.root)),
        }
    }

    /// Returns a plan of this graph as it is drawn.
    pub(crate) fn map(&self, plan: &GraphPlan) -> PlanMap {
        PlanMap::of_graph("steeve", plan)
    }

    /// Returns the record of a plan of a model, and the head with it; `None` for the graph of anything else.
    pub(crate) fn head_plan(&self, py: Python<'_>, plan: &GraphPlan) -> PyResult<Option<HeadPlan>> {
        let Some(ModelData { model, options, keyed, .. }) = &self.model else { return Ok(None) };
        if plan.memories().iter().any(|memory| memory.plan.buffers().len() > 1) {
            return Err(invalid_argument(py, "max_buffer", None, "the head of the arena is one buffer: leave it out"));
        }
        let made = unlocked(py, || {
            let graph = TfliteGraph::new(model, options.clone())?;
            graph.head_plan(|key| Some(plan.place(keyed.number(key)?)?.offset))
        })?;
        made.map(Some).map_err(|error| invalid_input(py, &error))
    }

    /// Returns the file of the model with a record; `None` for the graph of anything else.
    pub(crate) fn model_with(&self, py: Python<'_>, record: &HeadRecord) -> PyResult<Option<Vec<u8>>> {
        let Some(ModelData { model, .. }) = &self.model else { return Ok(None) };
        let written = unlocked(py, || model.with_record(record))?;
        written.map(Some).map_err(|error| invalid_input(py, &error))
    }

    /// Returns the number of each node in the order in which a plan runs them, without what only describes memory and without other
    /// results of a node; `None` for the graph's own order.
    pub(crate) fn run_order(&self, plan: &GraphPlan) -> Option<Vec<usize>> {
        plan.order()?;
        let graph = plan.in_run_order().graph();
        let others: HashSet<TensorId> =
            graph.nodes().iter().flat_map(|node| graph.tensors().own_results(*node)).collect();
        let is_node = |node: &&TensorId| !graph.tensor(**node).op.writes_nothing() && !others.contains(*node);
        let computed = graph.nodes().iter().filter(is_node);
        Some(computed.filter_map(|node| self.numbers.get(node).copied()).collect())
    }

    /// Returns the record of the model that this is the graph of.
    fn record(&self, py: Python<'_>) -> PyResult<Option<HeadRecord>> {
        let Some(ModelData { model, .. }) = &self.model else { return Ok(None) };
        locked(py, || HeadRecord::of(model))?.map_err(|error| invalid_input(py, &error))
    }

    /// Judges a record for the model that this is the graph of. Where no fault is found, kernels' reads and writes are run as well.
    fn check_record(&self, py: Python<'_>, record: &HeadRecord) -> PyResult<Vec<PyFault>> {
        let Some(ModelData { model, options, keyed, .. }) = &self.model else {
            return Err(invalid_argument(py, "plan", None, "the record of a model: the graph is not one of a model"));
        };
        let number = |index| keyed.number(TfliteKey::Tensor(index)).and_then(|id| self.numbers.get(&id).copied());
        let judged = unlocked(py, || {
            let graph = TfliteGraph::new(model, options.clone())?;
            let report = graph.check_record(record)?;
            let late = if report.faults.is_empty() { graph.replay_overlaps(&report.offsets) } else { Vec::new() };
            Ok((report.faults, late))
        })?;
        let (faults, late) = judged.map_err(|error: TfliteError| invalid_input(py, &error))?;
        let fault = |kind: &str, tensors: Vec<TensorIndex>, message| PyFault {
            kind: kind.to_owned(),
            tensors: tensors.into_iter().filter_map(number).collect(),
            message,
        };
        let faults = faults.iter().map(|it| fault(it.kind(), it.tensors(), it.to_string()));
        Ok(faults.chain(late.iter().map(|it| fault("overlap", Vec::new(), it.to_string()))).collect())
    }

    /// Returns the graph with other limits for its memories.
    fn limited(&self, py: Python<'_>, align: Option<u64>, max_buffer: Option<u64>) -> PyResult<AssignedGraph> {
        let align = align.map(|align| read_align(py, align)).transpose()?;
        let limited = |memory: &Memory| Memory {
            align: align.map_or(memory.align, |align| align.max(memory.align)),
            max_buffer: max_buffer.map(Bytes).or(memory.max_buffer),
            ..memory.clone()
        };
        let it = &self.assigned;
        let memories = it.memories().iter().map(limited).collect::<steeve_plan::IdVec<_, _>>();
        AssignedGraph::new(it.graph().clone(), memories, it.assignment().clone(), it.sizes().clone())
            .map_err(|error| invalid_input(py, &error))
    }
}

/// What tensors or blocks an argument can be.
pub(crate) struct KnownNames<F, N> {
    pub(crate) count: usize,
    pub(crate) by_name: F,
    /// The name of each, by number.
    pub(crate) name_of: N,
}

impl<F: FnOnce(&str) -> Option<usize>, N: FnOnce(usize) -> String> KnownNames<F, N> {
    /// Finds a tensor or block by its number or name, or as a `Tensor` with both.
    pub(crate) fn find(self, py: Python<'_>, argument: &str, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        let count = self.count;
        if let Ok(tensor) = tensor.cast::<PyTensor>() {
            let PyTensor { index, name, .. } = tensor.get();
            return match *index < count && (self.name_of)(*index) == *name {
                true => Ok(*index),
                false => {
                    let what = format!("a tensor of another graph: got number {index}, {:?}", Clipped(name));
                    Err(invalid_argument(py, argument, None, what))
                }
            };
        }
        if tensor.is_instance_of::<PyString>() {
            let name = text(argument, tensor)?;
            let unknown = || invalid_argument(py, argument, None, format!("no such name: {name:?}"));
            return (self.by_name)(&name).ok_or_else(unknown);
        }
        let Ok(index) = tensor.extract::<i128>() else {
            return Err(wrong_type(argument, None, "a number or a name", tensor));
        };
        usize::try_from(index).ok().filter(|index| *index < count).ok_or_else(|| {
            invalid_argument(py, argument, None, format!("out of range: expected a number below {count}, got {index}"))
        })
    }
}

/// What is known of the kernels that run a model.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kernels {
    in_place: bool,
    overlap: bool,
    /// Bytes that the kernel of each operator needs beside its operands, if the caller says so.
    scratch: Option<u64>,
}

impl Kernels {
    fn new(
        py: Python<'_>,
        in_place: Option<&Bound<'_, PyAny>>,
        overlap: Option<&Bound<'_, PyAny>>,
        scratch: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let read = |argument, name| match optional_text(argument, name)?.as_deref() {
            None => Ok(false),
            Some("tflm-reference") => Ok(true),
            Some(found) => {
                let what = format!("unknown kernels: expected 'tflm-reference', got {found:?}");
                Err(invalid_argument(py, argument, None, what))
            }
        };
        let (in_place, overlap) = (read("in_place", in_place)?, read("overlap", overlap)?);
        let scratch = scratch.map(|scratch| number("scratch", scratch)).transpose()?;
        Ok(Self { in_place: in_place || overlap, overlap, scratch })
    }
}

/// A tensor of a graph.
#[pyclass(frozen, module = "steeve", name = "Tensor")]
pub(crate) struct PyTensor {
    /// Its number in the graph.
    #[pyo3(get)]
    pub(crate) index: usize,
    /// Its name, or # and a number.
    #[pyo3(get)]
    pub(crate) name: String,
    /// Its bytes.
    #[pyo3(get)]
    pub(crate) size: u64,
    /// 'input', 'external' (weights and caches, whose memory is not planned), 'node', or 'view', also where a graph lists that among
    /// its nodes.
    #[pyo3(get)]
    pub(crate) kind: String,
    /// What computes it, in lower case; '' for what is not computed.
    #[pyo3(get)]
    pub(crate) op: String,
    /// Type and shape, where they are known; else ''.
    #[pyo3(get)]
    pub(crate) layout: String,
    /// The name of its memory; None for external tensors.
    #[pyo3(get)]
    pub(crate) memory: Option<String>,
    /// Whether it is read after the run.
    #[pyo3(get)]
    pub(crate) is_output: bool,
    pub(crate) sources: Vec<usize>,
    /// The number of the tensor whose bytes it shares as a view.
    #[pyo3(get)]
    pub(crate) view_of: Option<usize>,
}

#[pymethods]
impl PyTensor {
    /// The numbers of the tensors that it is computed from.
    #[getter]
    fn sources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.sources)
    }

    fn __repr__(&self) -> String {
        let Self { index, name, size, kind, .. } = self;
        let op = if self.op.is_empty() { String::new() } else { format!(", op={:?}", self.op) };
        format!("Tensor({index}, {name:?}, size={size}, kind={kind:?}{op})")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

/// One thing that is wrong with a plan file for a graph.
#[pyclass(frozen, module = "steeve", name = "Fault")]
pub(crate) struct PyFault {
    /// One word for it.
    #[pyo3(get)]
    pub(crate) kind: String,
    pub(crate) tensors: Vec<usize>,
    /// A sentence.
    #[pyo3(get)]
    pub(crate) message: String,
}

#[pymethods]
impl PyFault {
    /// The numbers of the tensors that it is about.
    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.tensors)
    }

    fn __str__(&self) -> &str {
        &self.message
    }

    fn __repr__(&self) -> String {
        format!("<steeve.Fault {}: {}>", self.kind, self.message)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

/// A tensor graph: what is computed from what, in which order. Nothing in it can be changed.
///
/// It comes from `steeve.read`, or from `GraphBuilder.build`.
#[pyclass(frozen, module = "steeve", name = "Graph")]
pub(crate) struct PyGraph {
    data: Arc<GraphData>,
    /// The file that it is from.
    file: Option<PathBuf>,
}

impl PyGraph {
    pub(crate) fn new(data: GraphData, file: Option<PathBuf>) -> Self {
        Self { data: Arc::new(data), file }
    }

    pub(crate) fn data(&self) -> &Arc<GraphData> {
        &self.data
    }

    pub(crate) fn file(&self) -> Option<&PathBuf> {
        self.file.as_ref()
    }

    /// Returns a graph that was made of this one.
    pub(crate) fn with_data(&self, data: Arc<GraphData>) -> Self {
        Self { data, file: self.file.clone() }
    }

    pub(crate) fn plan_from(&self, data: Arc<GraphData>, plan: GraphPlan, seconds: f64) -> PyPlan {
        let title = self.data.title.clone();
        PyPlan::new(Planned::Graph { plan, graph: data }, title, seconds).made_of(self.file.clone())
    }
}

#[pymethods]
impl PyGraph {
    /// All tensors, by number.
    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let tensor = |(index, id): (usize, &TensorId)| self.data.tensor(index, *id);
        PyTuple::new(py, locked(py, || self.data.order.iter().enumerate().map(tensor).collect::<Vec<_>>())?)
    }

    /// The tensors that are computed, in the order in which they are.
    #[getter]
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let node = |id: &TensorId| Some(self.data.tensor(*self.data.numbers.get(id)?, *id));
        let nodes = || self.data.assigned.graph().nodes().iter().filter_map(node).collect::<Vec<_>>();
        PyTuple::new(py, locked(py, nodes)?)
    }

    /// The name of each memory.
    #[getter]
    fn memories<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.data.assigned.memories().iter().map(|memory| memory.name.clone()).collect::<Vec<_>>())
    }

    /// Plan the memory of the graph, and prove the plan.
    ///
    /// - `align`: what offsets are a multiple of, where the graph asks for less.
    /// - `capacity`: the bytes that each memory has, or those of some by name: `{"CUDA0": 8 << 30}`. A plan above it is
    ///   `steeve.DoesNotFit`.
    /// - `max_buffer`: the most bytes of one buffer.
    /// - `reuse`: which results are written over a source in place: 'more' (default), 'ggml' or 'none'.
    /// - `unread`: how long tensors live that no node reads: 'keep', 'free-inputs' (default) or 'free' (default for models).
    /// - `in_place`, `overlap`: for TFLite models, 'tflm-reference' if the reference kernels of TensorFlow Lite Micro run it.
    /// - `scratch`: for TFLite models, the bytes that the kernel of each operator needs beside its operands.
    /// - `order`: 'keep' (default), or 'best': nodes may run in another order where that saves more than 1%. Whoever runs the plan must
    ///   run `Plan.order` then.
    /// - `strategy`: 'fast' (default), 'best', or 'ggml', which is ggml's own plan; `budget`, `threads` and `progress` are those of
    ///   `steeve.plan`.
    ///
    /// >>> import steeve
    /// >>> builder = steeve.GraphBuilder()
    /// >>> x = builder.input("x", 4096)
    /// >>> y = builder.node("y", 4096, [x])
    /// >>> builder.build().plan()
    /// <steeve.Plan of 1 nodes: peak=8192, optimal, ... s>
    #[pyo3(signature = (*, align=None, capacity=None, max_buffer=None, reuse=None, unread=None, in_place=None, overlap=None, scratch=None, order=None, strategy=None, budget=None, threads=None, progress=None))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of a Python function")]
    fn plan(
        &self,
        py: Python<'_>,
        align: Option<&Bound<'_, PyAny>>,
        capacity: Option<&Bound<'_, PyAny>>,
        max_buffer: Option<&Bound<'_, PyAny>>,
        reuse: Option<&Bound<'_, PyAny>>,
        unread: Option<&Bound<'_, PyAny>>,
        in_place: Option<&Bound<'_, PyAny>>,
        overlap: Option<&Bound<'_, PyAny>>,
        scratch: Option<&Bound<'_, PyAny>>,
        order: Option<&Bound<'_, PyAny>>,
        strategy: Option<&Bound<'_, PyAny>>,
        budget: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyPlan> {
        let settings = SearchSettings::new(py, strategy, budget, threads)?;
        let options = self.options(py, settings, reuse, unread)?.with_order(self.order(py, settings, order)?);
        let data = self.with_kernels(py, Kernels::new(py, in_place, overlap, scratch)?)?;
        if let Some(ModelData { model, .. }) = &data.model {
            model.check_not_compiled().map_err(|error| invalid_input(py, &error))?;
        }
        let [align, max_buffer] = [("align", align), ("max_buffer", max_buffer)]
            .map(|(argument, value)| value.map(|value| number(argument, value)).transpose());
        let assigned = data.limited(py, align?, max_buffer?)?;
        let capacities = self.capacities(py, capacity)?;
        let mut watcher = SearchWatcher::new(py, progress)?;
        let planned = unlocked(py, || plan_graph_watched(&assigned, &options, &mut |now| watcher.watch(now)))?;
        let seconds = watcher.finish(py)?;
        let plan = planned.map_err(|error| invalid_input(py, &error))?;
        let made = self.plan_from(data, plan, seconds);
        let over = made.memory_plans().into_iter().find_map(|it| {
            let capacity = capacities.get(&it.name).copied().filter(|capacity| it.peak > *capacity)?;
            Some(Misfit { memory: it.name, needs: it.bound, capacity, proof: Proof::OfThisOrder })
        });
        match over {
            Some(misfit) => Err(misfit.error(py, made)),
            None => Ok(made),
        }
    }

    /// Return the graph made to need no more than `capacity`, with its plan and what was done: another order of the nodes, then chains
    /// of nodes in parts. If nothing that was found fits, it is `steeve.DoesNotFit`, whose `fitted` is the smallest that was reached.
    ///
    /// - `capacity`: the bytes that each memory has, or those of some by name: `{"CUDA0": 8 << 30}`.
    /// - `parts`: the most parts in which a chain is done; as many as it has rows by default. 1 leaves chains as they are.
    /// - `beside`: graphs that never run at the same time and share the buffers, such as that of a token beside that of a prompt.
    ///
    /// >>> import steeve, tempfile, pathlib
    /// >>> path = pathlib.Path(tempfile.mkdtemp()) / "net.graph"
    /// >>> text = "w = external f32[16,640]; v = external f32[640,16]; x = input f32[16,80]; up = mul_mat w x; "
    /// >>> _ = path.write_text(text + "act = silu up; down = mul_mat v act; y = add down x !output")
    /// >>> graph = steeve.read(path)
    /// >>> fitted = graph.fit(capacity=100_000)
    /// >>> graph.plan().peak, fitted.plan.peak
    /// (215040, 79360)
    /// >>> [step.action for step in fitted.steps]
    /// ['pack', 'in place', '80 rows in 3 parts: nodes 0 (up) to 2 (down)', 'plan']
    #[pyo3(signature = (*, capacity, parts=None, beside=None))]
    fn fit<'py>(
        &self,
        py: Python<'py>,
        capacity: &Bound<'py, PyAny>,
        parts: Option<&Bound<'py, PyAny>>,
        beside: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<PyFitted> {
        if self.data.is_model() {
            let what = "fit: for graphs: got a TFLite model".to_owned();
            return Err(exception(py, "InvalidInput", what, |_| Ok(())));
        }
        let capacities = self.capacities(py, Some(capacity))?;
        let request = FitRequest::new(py, &self.data.assigned, &capacities, parts, beside)?;
        request.fit(py, self, PlanOptions::default().with_unread(self.data.unread()))
    }

    /// Return the plan of a plan file (a path, or what `steeve.read` made of one), proven for this graph. Of a model, `in_place` and
    /// `overlap` are what it was planned with.
    #[pyo3(signature = (plan, *, in_place=None, overlap=None, scratch=None))]
    fn load(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, PyAny>,
        in_place: Option<&Bound<'_, PyAny>>,
        overlap: Option<&Bound<'_, PyAny>>,
        scratch: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyPlan> {
        let data = self.with_kernels(py, Kernels::new(py, in_place, overlap, scratch)?)?;
        let file = GivenPlan::of(py, plan)?.into_file(py)?;
        let start = std::time::Instant::now();
        let loaded = unlocked(py, || GraphPlan::from_file(file.file(), &data.assigned, MatchMemories::ByName))?;
        let plan = loaded.map_err(|fault| file.wrong(py, &fault))?;
        Ok(self.plan_from(data, plan, start.elapsed().as_secs_f64()).made_of([file.absolute().to_owned()]))
    }

    /// Check a plan file (a path, or what `steeve.read` made of one) for this graph. Return everything that is wrong with it.
    ///
    /// For a model, the record of another file of it (`.tflite`) can be checked, and without `plan` its own; `in_place` and
    /// `overlap` say which kernels run it.
    #[pyo3(signature = (plan=None, *, in_place=None, overlap=None, scratch=None))]
    fn check(
        &self,
        py: Python<'_>,
        plan: Option<&Bound<'_, PyAny>>,
        in_place: Option<&Bound<'_, PyAny>>,
        overlap: Option<&Bound<'_, PyAny>>,
        scratch: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<PyFault>> {
        let data = self.with_kernels(py, Kernels::new(py, in_place, overlap, scratch)?)?;
        let file = match plan.map(|plan| GivenPlan::of(py, plan)).transpose()? {
            Some(GivenPlan::File(file)) => *file,
            Some(GivenPlan::Record(record)) => return data.check_record(py, &record),
            None => match data.record(py)? {
                Some(record) => return data.check_record(py, &record),
                None => return Err(invalid_argument(py, "plan", None, "missing: the graph has no record of its own")),
            },
        };
        let checked = unlocked(py, || check_plan_file(file.file(), &data.assigned, MatchMemories::ByName).err())?;
        let number = |id: &TensorId| data.numbers.get(id).copied();
        let fault = |fault: &PlanFault| PyFault {
            kind: fault.kind().to_owned(),
            tensors: fault.tensors().iter().filter_map(number).collect(),
            message: crate::error::chain(fault),
        };
        Ok(checked.iter().flatten().map(fault).collect())
    }

    /// Where the record of a TFLite model places each tensor (None where the runtime decides); None if it has no record.
    #[getter]
    fn record<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some((record, it)) = self.data.record(py)?.zip(self.data.model.as_ref()) else { return Ok(None) };
        let placed = locked(py, || record.effective_offsets(&it.model))?.map_err(|error| invalid_input(py, &error))?;
        let by_index: HashMap<TensorIndex, Option<i64>> = it.model.tensors().zip(placed).collect();
        let offset = |id: &TensorId| match it.keyed.key(*id) {
            Some(TfliteKey::Tensor(index)) => by_index.get(&index).copied().flatten(),
            _ => None,
        };
        PyTuple::new(py, self.data.order.iter().map(offset).collect::<Vec<_>>()).map(Some)
    }

    fn __len__(&self) -> usize {
        self.data.order.len()
    }

    fn __repr__(&self) -> String {
        let (nodes, tensors) = (self.data.nodes(), self.data.order.len());
        format!("<steeve.Graph {:?}: {nodes} nodes, {tensors} tensors>", self.data.title)
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }
}

impl PyGraph {
    fn options(
        &self,
        py: Python<'_>,
        settings: SearchSettings,
        reuse: Option<&Bound<'_, PyAny>>,
        unread: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PlanOptions> {
        let mut options = PlanOptions::new(settings.for_graph(py)?);
        if let Some(found) = optional_text("reuse", reuse)? {
            let unknown = || {
                invalid_argument(
                    py,
                    "reuse",
                    None,
                    format!("unknown: expected 'more', 'ggml' or 'none', got {found:?}"),
                )
            };
            options = options.with_reuse(Reuse::from_name(&found).ok_or_else(unknown)?);
        }
        let of_ggml = [
            ("strategy", options.strategy == GraphStrategy::Ggml),
            ("reuse", reuse.is_some() && options.reuse == Reuse::Ggml),
        ];
        if let Some((argument, _)) = of_ggml.into_iter().find(|(_, is_given)| *is_given && self.data.is_model()) {
            return Err(invalid_argument(py, argument, None, "'ggml' is for graphs of ggml: got a TFLite model"));
        }
        let unread = match optional_text("unread", unread)? {
            None => self.data.unread(),
            Some(found) => Unread::from_name(&found).ok_or_else(|| {
                let what = format!("unknown: expected 'keep', 'free-inputs' or 'free', got {found:?}");
                invalid_argument(py, "unread", None, what)
            })?,
        };
        Ok(options.with_unread(unread))
    }

    /// Reads whether another order of the nodes may be tried.
    fn order(&self, py: Python<'_>, settings: SearchSettings, order: Option<&Bound<'_, PyAny>>) -> PyResult<Order> {
        let Some(found) = optional_text("order", order)? else { return Ok(Order::Keep) };
        let wrong = |what: String| invalid_argument(py, "order", None, what);
        let order = Order::from_name(&found)
            .ok_or_else(|| wrong(format!("unknown: expected 'keep' or 'best', got {found:?}")))?;
        if order == Order::Best && self.data.is_model() {
            return Err(wrong("'best' is for graphs: a TFLite model runs in the order of its file".to_owned()));
        }
        if order == Order::Best && settings.for_graph(py)? == GraphStrategy::Ggml {
            return Err(wrong("'best' is not for strategy='ggml', which keeps the order".to_owned()));
        }
        Ok(order)
    }

    /// Returns the graph under what is known of the kernels that run its model.
    fn with_kernels(&self, py: Python<'_>, kernels: Kernels) -> PyResult<Arc<GraphData>> {
        match &self.data.model {
            _ if !kernels.in_place && kernels.scratch.is_none() => Ok(self.data.clone()),
            Some(ModelData { model, .. }) => {
                let made = locked(py, || GraphData::of_model(py, model.clone(), kernels, self.data.title.clone()))?;
                made.map(Arc::new)
            }
            None => {
                let argument = match kernels {
                    Kernels { overlap: true, .. } => "overlap",
                    Kernels { in_place: true, .. } => "in_place",
                    _ => "scratch",
                };
                Err(invalid_argument(py, argument, None, "only for TFLite models, whose kernels are known"))
            }
        }
    }

    /// Reads one capacity for each memory, or those of some by name.
    fn capacities(&self, py: Python<'_>, capacity: Option<&Bound<'_, PyAny>>) -> PyResult<HashMap<String, u64>> {
        let Some(capacity) = capacity else { return Ok(HashMap::new()) };
        let names: Vec<&str> = self.data.assigned.memories().iter().map(|memory| memory.name.as_str()).collect();
        let Ok(by_name) = capacity.cast::<PyDict>() else {
            let bytes = number("capacity", capacity)?;
            return Ok(names.into_iter().map(|name| (name.to_owned(), bytes)).collect());
        };
        let mut capacities = HashMap::new();
        for (name, bytes) in by_name.iter() {
            let name = match name.is_instance_of::<PyString>() {
                true => text("capacity", &name)?,
                false => return Err(wrong_type("capacity", None, "names of memories as keys", &name)),
            };
            if !names.contains(&name.as_str()) {
                let what = format!("no such memory: expected one of {}, got {name:?}", names.join(", "));
                return Err(invalid_argument(py, "capacity", None, what));
            }
            capacities.insert(name, number("capacity", &bytes)?);
        }
        Ok(capacities)
    }
}
