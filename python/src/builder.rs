//! A graph of the caller's own, tensor by tensor.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use steeve_graph::{Bytes, KeyedGraph, Memory, MemoryId, TensorGraph};

use crate::blocks::read_align;
use crate::error::{invalid_argument, invalid_input, unlocked, wrong_type};
use crate::graph::{GraphData, KnownNames, PyGraph};
use crate::numbers::number;
use crate::plan::ONLY_MEMORY;
use crate::text::{optional_text, text};

/// Builds a graph tensor by tensor, in the order in which it runs.
///
/// Tensors are referred to by the numbers that the methods return, or by their names. Only their bytes count, and what may be
/// overwritten; what operations compute does not.
///
/// >>> import steeve
/// >>> builder = steeve.GraphBuilder(align=64)
/// >>> x = builder.input("x", 4096)
/// >>> w = builder.external("w", 1 << 20)
/// >>> h = builder.node("h", 8192, [x, w], op="matmul")
/// >>> y = builder.node("y", 8192, [h], op="relu", overwrites=[h])
/// >>> builder.output(y)
/// >>> graph = builder.build("mlp")
/// >>> plan = graph.plan()
/// >>> plan.peak, plan.place("y") == plan.place("h"), plan.place("w")
/// (12288, True, None)
#[pyclass(module = "steeve", name = "GraphBuilder")]
#[derive(Clone)]
pub(crate) struct PyGraphBuilder {
    tensors: Vec<BuiltTensor>,
    names: HashMap<String, usize>,
    memories: Vec<Memory>,
}

/// A tensor as the caller described it. Tensors refer to others by number.
#[derive(Clone, Debug)]
struct BuiltTensor {
    name: String,
    size: u64,
    memory: MemoryId,
    kind: BuiltKind,
    op: String,
    sources: Vec<usize>,
    overwrites: Vec<usize>,
    overlaps: Vec<(usize, u64)>,
    more_results: Vec<usize>,
    /// The tensor that it is a view of, and where it starts in that.
    view_of: Option<(usize, u64)>,
    is_output: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BuiltKind {
    Input,
    External,
    Node,
    /// A result of a node beside its first.
    Result,
    View,
}

/// What was built, as the planner asks for it.
struct BuiltGraph<'a> {
    tensors: &'a [BuiltTensor],
    memories: &'a [Memory],
}

impl BuiltGraph<'_> {
    fn of_kind(&self, kind: BuiltKind) -> impl Iterator<Item = usize> {
        (0..self.tensors.len()).filter(move |index| self.tensors[*index].kind == kind)
    }
}

impl TensorGraph for BuiltGraph<'_> {
    type Key = usize;

    fn nodes(&self) -> impl Iterator<Item = usize> {
        self.of_kind(BuiltKind::Node)
    }

    fn sources(&self, node: usize) -> impl Iterator<Item = usize> {
        self.tensors[node].sources.iter().copied()
    }

    fn more_results(&self, node: usize) -> impl Iterator<Item = usize> {
        self.tensors[node].more_results.iter().copied()
    }

    fn size(&self, tensor: usize) -> Bytes {
        Bytes(self.tensors[tensor].size)
    }

    fn inputs(&self) -> impl Iterator<Item = usize> {
        self.of_kind(BuiltKind::Input)
    }

    fn outputs(&self) -> impl Iterator<Item = usize> {
        (0..self.tensors.len()).filter(|index| self.tensors[*index].is_output)
    }

    fn more_tensors(&self) -> impl Iterator<Item = usize> {
        self.of_kind(BuiltKind::External).chain(self.of_kind(BuiltKind::View))
    }

    fn is_external(&self, tensor: usize) -> bool {
        self.tensors[tensor].kind == BuiltKind::External
    }

    fn view_of(&self, tensor: usize) -> Option<(usize, Bytes)> {
        self.tensors[tensor].view_of.map(|(root, offset)| (root, Bytes(offset)))
    }

    fn may_overwrite(&self, node: usize, source: usize) -> bool {
        self.tensors[node].overwrites.contains(&source)
    }

    fn overlap(&self, node: usize, source: usize) -> Option<Bytes> {
        let found = self.tensors[node].overlaps.iter().find(|(overlapped, _)| *overlapped == source);
        found.map(|(_, distance)| Bytes(*distance))
    }

    fn name(&self, tensor: usize) -> String {
        self.tensors[tensor].name.clone()
    }

    fn op_name(&self, node: usize) -> &str {
        &self.tensors[node].op
    }

    fn memories(&self) -> Vec<Memory> {
        self.memories.to_vec()
    }

    fn memory(&self, tensor: usize) -> MemoryId {
        self.tensors[tensor].memory
    }
}

#[pymethods]
impl PyGraphBuilder {
    /// Creates a builder with one memory, in which offsets are multiples of `align`.
    #[new]
    #[pyo3(signature = (align=None, *, memory=None, max_buffer=None), text_signature = "(align=None, *, memory='memory', max_buffer=None)")]
    fn new(
        py: Python<'_>,
        align: Option<&Bound<'_, PyAny>>,
        memory: Option<&Bound<'_, PyAny>>,
        max_buffer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut builder = Self { tensors: Vec::new(), names: HashMap::new(), memories: Vec::new() };
        let name = optional_text("memory", memory)?.unwrap_or_else(|| ONLY_MEMORY.to_owned());
        builder.add_memory(py, name, align, max_buffer)?;
        Ok(builder)
    }

    /// Add a memory, such as a slower one or that of another device.
    #[pyo3(signature = (name, align=None, *, max_buffer=None))]
    fn memory(
        &mut self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        align: Option<&Bound<'_, PyAny>>,
        max_buffer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.add_memory(py, text("name", name)?, align, max_buffer)
    }

    /// Add a tensor that is written before the run, into planned memory. Return its number.
    #[pyo3(signature = (name, size, *, memory=None))]
    fn input(
        &mut self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        memory: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let tensor = self.tensor(py, name, size, memory, BuiltKind::Input)?;
        self.add(py, tensor)
    }

    /// Add a tensor whose memory the caller provides, such as weights or a cache. Return its number.
    #[pyo3(signature = (name, size))]
    fn external(&mut self, py: Python<'_>, name: &Bound<'_, PyAny>, size: &Bound<'_, PyAny>) -> PyResult<usize> {
        let tensor = self.tensor(py, name, size, None, BuiltKind::External)?;
        self.add(py, tensor)
    }

    /// Add a tensor that is computed from `sources`, after all nodes so far. Return its number; `results` have the next ones.
    ///
    /// `overwrites` are sources over which the kernel may write its result, `overlaps` says of sources by how many bytes the result
    /// must start below them to share bytes with them. `into` is a tensor into which it writes its result, from `offset` on, instead
    /// of memory of its own. `results` are name and size of what it computes beside itself.
    #[pyo3(signature = (name, size, sources, *, op=None, overwrites=None, overlaps=None, into=None, offset=None, results=None, memory=None), text_signature = "($self, name, size, sources, *, op='node', overwrites=None, overlaps=None, into=None, offset=None, results=None, memory=None)")]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of a Python function")]
    fn node(
        &mut self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        sources: &Bound<'_, PyAny>,
        op: Option<&Bound<'_, PyAny>>,
        overwrites: Option<&Bound<'_, PyAny>>,
        overlaps: Option<&Bound<'_, PyAny>>,
        into: Option<&Bound<'_, PyAny>>,
        offset: Option<&Bound<'_, PyAny>>,
        results: Option<&Bound<'_, PyAny>>,
        memory: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let mut node = self.tensor(py, name, size, memory, BuiltKind::Node)?;
        node.op = optional_text("op", op)?.unwrap_or_else(|| "node".to_owned());
        node.sources = self.find_all(py, "sources", sources)?;
        if let Some(overwrites) = overwrites {
            node.overwrites = self.find_all(py, "overwrites", overwrites)?;
        }
        let overlaps = overlaps.map(|it| {
            it.cast::<PyDict>().map_err(|_| wrong_type("overlaps", None, "a dict of sources and distances", it))
        });
        for (source, distance) in overlaps.transpose()?.into_iter().flatten() {
            node.overlaps.push((self.find(py, "overlaps", &source)?, number("overlaps", &distance)?));
        }
        let named = |(argument, tensors): (_, &Vec<usize>)| {
            let stranger = tensors.iter().find(|tensor| !node.sources.contains(tensor))?;
            let what = format!("{:?} is no source of {:?}", self.tensors[*stranger].name, node.name);
            Some(invalid_argument(py, argument, None, what))
        };
        let overlapped = node.overlaps.iter().map(|(source, _)| *source).collect();
        if let Some(error) = [("overwrites", &node.overwrites), ("overlaps", &overlapped)].into_iter().find_map(named) {
            return Err(error);
        }
        let start = offset.map(|offset| number("offset", offset)).transpose()?;
        node.view_of = match (into, start) {
            (Some(into), start) => Some((self.find(py, "into", into)?, start.unwrap_or(0))),
            (None, Some(_)) => return Err(invalid_argument(py, "offset", None, "only with into=")),
            (None, None) => None,
        };
        let results = self.results(py, results, node.memory)?;
        let first = self.tensors.len() + 1;
        node.more_results = (first..first + results.len()).collect();
        let mut together: Vec<&str> = results.iter().map(|result| result.name.as_str()).collect();
        together.push(&node.name);
        together.sort_unstable();
        if let Some(pair) = together.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid_argument(py, "results", None, format!("there is a tensor {:?} already", pair[0])));
        }
        if let Some(taken) = together.into_iter().find(|name| self.names.contains_key(*name)) {
            return Err(invalid_argument(py, "name", None, format!("there is a tensor {taken:?} already")));
        }
        let index = self.add(py, node)?;
        for result in results {
            self.add(py, result)?;
        }
        Ok(index)
    }

    /// Add a view: `size` bytes of `of`, from `offset` on. Return its number.
    #[pyo3(signature = (name, size, of, *, offset=None))]
    fn view(
        &mut self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        of: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let mut view = self.tensor(py, name, size, None, BuiltKind::View)?;
        let root = self.find(py, "of", of)?;
        view.memory = self.tensors[root].memory;
        view.view_of = Some((root, offset.map_or(Ok(0), |offset| number("offset", offset))?));
        self.add(py, view)
    }

    /// Mark tensors that are read after the run.
    #[pyo3(signature = (*tensors))]
    fn output(&mut self, py: Python<'_>, tensors: &Bound<'_, PyAny>) -> PyResult<()> {
        for index in self.find_all(py, "tensors", tensors)? {
            self.tensors[index].is_output = true;
        }
        Ok(())
    }

    /// Return the graph that was built, under a title for pictures. The builder can go on.
    #[pyo3(signature = (title=None), text_signature = "($self, title='graph')")]
    fn build(&self, py: Python<'_>, title: Option<&Bound<'_, PyAny>>) -> PyResult<PyGraph> {
        let title = optional_text("title", title)?.unwrap_or_else(|| "graph".to_owned());
        let graph = BuiltGraph { tensors: &self.tensors, memories: &self.memories };
        let data = unlocked(py, || KeyedGraph::new(&graph).map(|keyed| GraphData::of_keyed(&keyed, title)))?;
        data.map(|data| PyGraph::new(data, None)).map_err(|error| invalid_input(py, &error))
    }

    fn __len__(&self) -> usize {
        self.tensors.len()
    }

    fn __repr__(&self) -> String {
        let nodes = self.tensors.iter().filter(|tensor| tensor.kind == BuiltKind::Node).count();
        format!("<steeve.GraphBuilder: {nodes} nodes, {} tensors>", self.tensors.len())
    }

    fn __copy__(&self) -> Self {
        self.clone()
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.clone()
    }
}

impl PyGraphBuilder {
    fn add_memory(
        &mut self,
        py: Python<'_>,
        name: String,
        align: Option<&Bound<'_, PyAny>>,
        max_buffer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        const DEFAULT_ALIGN: u64 = 64;
        if self.memories.iter().any(|memory| memory.name == name) {
            return Err(invalid_argument(py, "name", None, format!("there is a memory {name:?} already")));
        }
        let align = read_align(py, align.map_or(Ok(DEFAULT_ALIGN), |align| number("align", align))?)?;
        let mut memory = Memory::new(name, align);
        memory.max_buffer = max_buffer.map(|bytes| number("max_buffer", bytes)).transpose()?.map(Bytes);
        if u16::try_from(self.memories.len()).is_err() {
            return Err(invalid_argument(py, "name", None, "too many memories: expected at most 65536"));
        }
        self.memories.push(memory);
        Ok(())
    }

    fn tensor(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        memory: Option<&Bound<'_, PyAny>>,
        kind: BuiltKind,
    ) -> PyResult<BuiltTensor> {
        let memory = match optional_text("memory", memory)? {
            None => MemoryId::FIRST,
            Some(name) => self.memory_named(&name).ok_or_else(|| {
                let known: Vec<&str> = self.memories.iter().map(|memory| memory.name.as_str()).collect();
                let what = format!("no such memory: expected one of {}, got {name:?}", known.join(", "));
                invalid_argument(py, "memory", None, what)
            })?,
        };
        Ok(BuiltTensor {
            name: text("name", name)?,
            size: number("size", size)?,
            memory,
            kind,
            op: String::new(),
            sources: Vec::new(),
            overwrites: Vec::new(),
            overlaps: Vec::new(),
            more_results: Vec::new(),
            view_of: None,
            is_output: false,
        })
    }

    fn memory_named(&self, name: &str) -> Option<MemoryId> {
        let position = self.memories.iter().position(|memory| memory.name == name)?;
        u16::try_from(position).ok().map(MemoryId::nth)
    }

    /// Reads names and sizes of results.
    fn results(
        &self,
        py: Python<'_>,
        results: Option<&Bound<'_, PyAny>>,
        memory: MemoryId,
    ) -> PyResult<Vec<BuiltTensor>> {
        let Some(results) = results else { return Ok(Vec::new()) };
        let wrong = |index, found: &Bound<'_, PyAny>| wrong_type("results", index, "pairs of name and size", found);
        let mut all = Vec::new();
        for (index, item) in results.try_iter().map_err(|_| wrong(None, results))?.enumerate() {
            let item = item?;
            let (name, size): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                item.extract().map_err(|_| wrong(Some(index), &item))?;
            all.push(BuiltTensor { memory, ..self.tensor(py, &name, &size, None, BuiltKind::Result)? });
        }
        Ok(all)
    }

    fn add(&mut self, py: Python<'_>, tensor: BuiltTensor) -> PyResult<usize> {
        let index = self.tensors.len();
        if self.names.contains_key(&tensor.name) {
            return Err(invalid_argument(py, "name", None, format!("there is a tensor {:?} already", tensor.name)));
        }
        self.names.insert(tensor.name.clone(), index);
        self.tensors.push(tensor);
        Ok(index)
    }

    fn find(&self, py: Python<'_>, argument: &str, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        let known = KnownNames {
            count: self.tensors.len(),
            by_name: |name: &str| self.names.get(name).copied(),
            // In a graph of it, what has no name is called by its number.
            name_of: |index: usize| match self.tensors[index].name.as_str() {
                "" => index.to_string(),
                name => name.to_owned(),
            },
        };
        known.find(py, argument, tensor)
    }

    fn find_all(&self, py: Python<'_>, argument: &str, tensors: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        const EXPECTED: &str = "a sequence of tensors, by number or name";
        if tensors.is_instance_of::<PyString>() {
            return Err(wrong_type(argument, None, EXPECTED, tensors));
        }
        let items = tensors.try_iter().map_err(|_| wrong_type(argument, None, EXPECTED, tensors))?;
        items.map(|tensor| self.find(py, argument, &tensor?)).collect()
    }
}
