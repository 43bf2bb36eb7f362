//! A proven plan as Python sees it: figures, places, pictures, files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use steeve_graph::{GraphPlan, PlanFile};
use steeve_models::tflite::HeadPlan;
use steeve_models::{FileIdentity, write_atomically};
use steeve_plan::csv::Table;
use steeve_plan::{BlockId, Bytes, Id, IdVec, Plan};
use steeve_view::{HeaderStyle, MemoryMap, PageStyle, Picture, PlanMap, SvgStyle, header, page, svg};

use crate::compare::Comparison;
use crate::copies::{Reduced, reduce_plan};
use crate::error::{invalid_argument, invalid_input, locked, system_error, wrong_type};
use crate::graph::{GraphData, KnownNames};
use crate::text::{self, optional_text};

/// The name of the only memory of a block list.
pub(crate) const ONLY_MEMORY: &str = "memory";

/// What was planned.
pub(crate) enum Planned {
    Blocks { plan: Plan, names: BlockNames, at_least: Bytes, strategy: String },
    Graph { plan: GraphPlan, graph: Arc<GraphData> },
}

/// What blocks are called: numbers unless the caller has names. Most plans of an exporter are never shown.
#[derive(Clone)]
pub(crate) struct BlockNames(Option<IdVec<BlockId, String>>);

impl BlockNames {
    pub(crate) fn new(names: Option<IdVec<BlockId, String>>) -> Self {
        Self(names)
    }

    /// Returns the names that the caller has given.
    pub(crate) fn given(&self) -> Option<&[String]> {
        self.0.as_ref().map(IdVec::as_slice)
    }

    /// Returns the name of each of `count` blocks.
    fn all(&self, count: usize) -> IdVec<BlockId, String> {
        self.0.clone().unwrap_or_else(|| (0..count).map(|index| index.to_string()).collect())
    }

    /// Returns the name that the caller has given to a block; nothing if there is none.
    fn of(&self, index: usize) -> &str {
        self.given().and_then(|names| names.get(index)).map_or("", String::as_str)
    }

    /// Finds a block by its name.
    fn find(&self, count: usize, name: &str) -> Option<usize> {
        match &self.0 {
            Some(names) => names.iter().position(|it| it == name),
            None => name.parse().ok().filter(|index| *index < count),
        }
    }
}

/// A proven plan: where each block or tensor is located. Nothing in it can be changed.
///
/// It comes from `steeve.plan`, `Blocks.plan`, `Graph.plan` or `Graph.load`. In a notebook it is shown as a picture: width is
/// lifetime, height is size, vertical position is offset.
///
/// >>> import steeve
/// >>> steeve.plan([0, 1], [2, 3], [1000, 500], names=["conv", "relu"])
/// <steeve.Plan of 2 blocks: peak=1500, optimal, ... s>
#[pyclass(frozen, module = "steeve", name = "Plan")]
pub(crate) struct PyPlan {
    planned: Planned,
    title: String,
    seconds: f64,
    /// The files that it was made of, which it must not be written over.
    inputs: Vec<PathBuf>,
    map: OnceLock<PlanMap>,
    places: PyOnceLock<Py<PyTuple>>,
    offsets: PyOnceLock<Py<PyTuple>>,
    /// The record for the runtime, if it is the plan of a TFLite model.
    head: PyOnceLock<Option<HeadPlan>>,
}

/// The location of a block or tensor.
#[pyclass(frozen, module = "steeve", name = "Place", eq, hash)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PyPlace {
    /// The name of its memory.
    #[pyo3(get)]
    pub(crate) memory: String,
    /// Which of the memory's buffers, from 0.
    #[pyo3(get)]
    pub(crate) buffer: usize,
    /// How far from the start of the buffer.
    #[pyo3(get)]
    pub(crate) offset: u64,
    /// The bytes that it may use there.
    #[pyo3(get)]
    pub(crate) size: u64,
}

#[pymethods]
impl PyPlace {
    fn __repr__(&self) -> String {
        let Self { memory, buffer, offset, size } = self;
        format!("Place(memory={memory:?}, buffer={buffer}, offset={offset}, size={size})")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

/// What is alive at the fullest step of a memory.
#[pyclass(frozen, module = "steeve", name = "Alive")]
pub(crate) struct PyAlive {
    /// Its name.
    #[pyo3(get)]
    pub(crate) name: String,
    /// The name of its memory.
    #[pyo3(get)]
    pub(crate) memory: String,
    /// Its bytes.
    #[pyo3(get)]
    pub(crate) size: u64,
    /// How far it is from the start of its buffer.
    #[pyo3(get)]
    pub(crate) offset: u64,
    /// The first step at which it is alive.
    #[pyo3(get)]
    pub(crate) lower: u64,
    /// The first step at which it is not alive any more.
    #[pyo3(get)]
    pub(crate) upper: u64,
    /// What makes it, for the tensor of a graph; else ''.
    #[pyo3(get)]
    pub(crate) op: String,
    /// What needs it last, for the tensor of a graph; else ''.
    #[pyo3(get)]
    pub(crate) why: String,
}

#[pymethods]
impl PyAlive {
    fn __repr__(&self) -> String {
        let Self { name, memory, size, offset, lower, upper, .. } = self;
        let (op, why) = (part("op", &self.op), part("why", &self.why));
        format!("Alive({name:?}, memory={memory:?}, size={size}, offset={offset}, steps={lower}..{upper}{op}{why})")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

/// Formats a part of a representation that may be empty.
fn part(field: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(", {field}={value:?}") }
}

/// The plan of one memory.
#[pyclass(frozen, module = "steeve", name = "MemoryPlan")]
pub(crate) struct PyMemoryPlan {
    /// Its name.
    #[pyo3(get)]
    pub(crate) name: String,
    /// The bytes of all its buffers.
    #[pyo3(get)]
    pub(crate) peak: u64,
    /// No plan of it is smaller than this.
    #[pyo3(get)]
    pub(crate) bound: u64,
    /// The size of each buffer.
    pub(crate) buffers: Vec<u64>,
}

#[pymethods]
impl PyMemoryPlan {
    /// The size of each buffer.
    #[getter]
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.buffers)
    }

    fn __repr__(&self) -> String {
        let Self { name, peak, bound, buffers } = self;
        format!("MemoryPlan({name:?}, peak={peak}, bound={bound}, buffers={buffers:?})")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

impl PyPlan {
    pub(crate) fn new(planned: Planned, title: String, seconds: f64) -> Self {
        let (map, places, offsets) = (OnceLock::new(), PyOnceLock::new(), PyOnceLock::new());
        Self { planned, title, seconds, inputs: Vec::new(), map, places, offsets, head: PyOnceLock::new() }
    }

    /// Notes the files that the plan was made of, beside those that are noted.
    pub(crate) fn made_of(mut self, inputs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.inputs.extend(inputs);
        self
    }

    /// Refuses to write over a file that the plan was made of, however the two are spelled.
    fn check_inputs(&self, py: Python<'_>, path: &Path) -> PyResult<()> {
        let Some(own) = FileIdentity::of_path(path) else { return Ok(()) };
        match self.inputs.iter().find(|input| FileIdentity::of_path(input).as_ref() == Some(&own)) {
            Some(input) => {
                let (path, input) = (path.display(), input.display());
                let what = format!("{path} would overwrite {input}, which the plan was made of: expected another file");
                Err(invalid_argument(py, "path", None, what))
            }
            None => Ok(()),
        }
    }

    /// Returns the plan as it is drawn and compared.
    pub(crate) fn map(&self) -> &PlanMap {
        self.map.get_or_init(|| match &self.planned {
            Planned::Blocks { plan, names, at_least, .. } => {
                let names = names.all(plan.places().len());
                let mut map = PlanMap::of_blocks("steeve", ONLY_MEMORY, plan, &names);
                map.memories.iter_mut().for_each(|memory| memory.bound = *at_least);
                map
            }
            Planned::Graph { plan, graph } => graph.map(plan),
        })
    }

    fn picture(&self) -> Picture {
        Picture::of(self.title.clone(), self.map().clone())
    }

    /// Returns what is alive at the fullest step of a memory.
    fn alive(&self, memory: &MemoryMap) -> Vec<PyAlive> {
        let alive = memory.alive_at_peak().into_iter().map(|tile| {
            let why = match &self.planned {
                Planned::Blocks { .. } => String::new(),
                Planned::Graph { .. } => self.map().why_alive(tile),
            };
            PyAlive {
                name: tile.name.clone(),
                memory: memory.name.clone(),
                size: tile.size.0,
                offset: tile.offset.0,
                lower: tile.life.start().0,
                upper: tile.life.end().0,
                op: tile.operation.clone(),
                why,
            }
        });
        alive.collect()
    }

    fn place_list(&self) -> Vec<Option<PyPlace>> {
        match &self.planned {
            Planned::Blocks { plan, .. } => {
                let place = |(id, block): (BlockId, &steeve_plan::Block)| {
                    let place = plan.place(id);
                    let memory = ONLY_MEMORY.to_owned();
                    Some(PyPlace { memory, buffer: place.buffer.index(), offset: place.offset.0, size: block.size.0 })
                };
                plan.problem().blocks().pairs().map(place).collect()
            }
            Planned::Graph { plan, graph } => {
                let place = |id| {
                    let place = plan.place(id)?;
                    Some(PyPlace {
                        memory: plan.assigned().memories()[place.memory].name.clone(),
                        buffer: place.buffer.index(),
                        offset: place.offset.0,
                        size: place.size.0,
                    })
                };
                graph.order().iter().map(|id| place(*id)).collect()
            }
        }
    }

    /// Returns the plan as a plan file.
    fn plan_file(&self) -> PlanFile {
        let mut file = match &self.planned {
            Planned::Blocks { plan, names, at_least, strategy } => {
                PlanFile::of_blocks(strategy, plan, &names.all(plan.places().len()), *at_least)
            }
            Planned::Graph { plan, .. } => plan.to_file(),
        };
        file.source = Some(self.title.clone());
        self.map().describe(&mut file);
        file
    }

    fn runs_in_another_order(&self) -> bool {
        matches!(&self.planned, Planned::Graph { plan, .. } if plan.order().is_some())
    }

    /// Returns what a file with this ending holds.
    fn content(&self, py: Python<'_>, path: &str) -> PyResult<Vec<u8>> {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending).to_lowercase();
        match ending.as_str() {
            "json" => Ok((self.plan_file().to_json() + "\n").into_bytes()),
            "csv" => self.csv(py).map(String::into_bytes),
            "svg" => Ok(svg(&self.picture(), &SvgStyle::default()).into_bytes()),
            "html" | "htm" => Ok(page(&self.picture(), &PageStyle::default()).into_bytes()),
            "h" if self.runs_in_another_order() => {
                let what = "a C header has no order of the nodes: plan with order='keep'";
                Err(invalid_argument(py, "path", None, what))
            }
            "h" => Ok(header(self.map(), &HeaderStyle::of_file(&self.title)).into_bytes()),
            "tflite" => self.planned_model(py),
            _ => {
                let what = format!("unknown file type: expected .json, .csv, .html, .svg, .h or .tflite, got {path:?}");
                Err(invalid_argument(py, "path", None, what))
            }
        }
    }

    /// Returns the record for the runtime, made once; `None` unless this is the plan of a TFLite model.
    fn head(&self, py: Python<'_>) -> PyResult<Option<&HeadPlan>> {
        let Planned::Graph { plan, graph } = &self.planned else { return Ok(None) };
        self.head.get_or_try_init(py, || graph.head_plan(py, plan)).map(Option::as_ref)
    }

    /// Returns the model with the record of this plan.
    fn planned_model(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let expected = match (&self.planned, self.head(py)?) {
            (Planned::Graph { graph, .. }, Some(head)) => match graph.model_with(py, &head.record)? {
                Some(bytes) => return Ok(bytes),
                None => ".json, .html, .svg or .h",
            },
            (Planned::Graph { .. }, None) => ".json, .html, .svg or .h",
            (Planned::Blocks { .. }, _) => ".json, .csv, .html, .svg or .h",
        };
        Err(invalid_argument(py, "path", None, format!("not the plan of a TFLite model: expected {expected}")))
    }

    fn csv(&self, py: Python<'_>) -> PyResult<String> {
        match &self.planned {
            Planned::Blocks { plan, names, .. } => {
                let table = Table::of_plan(plan, names.all(plan.places().len()));
                table.map(|table| table.to_string()).map_err(|error| invalid_input(py, &error))
            }
            Planned::Graph { .. } => {
                Err(invalid_argument(py, "path", None, "CSV is for blocks: expected .json, .html, .svg, .h or .tflite"))
            }
        }
    }
}

#[pymethods]
impl PyPlan {
    /// The bytes that the plan needs: those of all buffers.
    #[getter]
    pub(crate) fn peak(&self) -> u64 {
        match &self.planned {
            Planned::Blocks { plan, .. } => plan.peak().0,
            Planned::Graph { plan, graph } => plan.peak().0.max(graph.unused_bytes()),
        }
    }

    /// No plan of the same blocks is smaller than this; for a graph, none with the same order and in-place results.
    #[getter]
    fn bound(&self) -> u64 {
        match &self.planned {
            Planned::Blocks { at_least, .. } => at_least.0,
            Planned::Graph { .. } => self.memory_plans().iter().fold(0, |sum, memory| memory.bound.saturating_add(sum)),
        }
    }

    /// Whether no plan of the same blocks is smaller; for a graph, none with the same order and in-place results.
    #[getter]
    fn optimal(&self) -> bool {
        self.peak() == self.bound()
    }

    /// The seconds that planning took, the proof included.
    #[getter]
    fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The offset of each block, or of each tensor of the graph (None for one without a place, such as weights).
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let made = self.offsets.get_or_try_init(py, || {
            let offsets: Vec<Option<u64>> = match &self.planned {
                Planned::Blocks { plan, .. } => plan.places().iter().map(|place| Some(place.offset.0)).collect(),
                Planned::Graph { .. } => {
                    locked(py, || self.place_list().into_iter().map(|place| Some(place?.offset)).collect())?
                }
            };
            PyTuple::new(py, offsets).map(Bound::unbind)
        })?;
        Ok(made.bind(py).clone())
    }

    /// The place of each block, or of each tensor of the graph (None for one without a place, such as weights).
    #[getter]
    fn places<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let made = self
            .places
            .get_or_try_init(py, || PyTuple::new(py, locked(py, || self.place_list())?).map(Bound::unbind))?;
        Ok(made.bind(py).clone())
    }

    /// The size of each buffer to allocate, memory by memory.
    #[getter]
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let sizes = self.memory_plans().into_iter().flat_map(|memory| memory.buffers);
        PyTuple::new(py, sizes.collect::<Vec<u64>>())
    }

    /// The plan of each memory.
    #[getter]
    fn memories<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.memory_plans())
    }

    /// The number of each node in the order in which they must run; None where that is the order of the graph. A node with several
    /// results is there once, by its first.
    ///
    /// >>> import steeve
    /// >>> builder = steeve.GraphBuilder()
    /// >>> x = builder.input("x", 64)
    /// >>> wide, a = builder.node("wide", 4096, [x]), builder.node("a", 4096, [x])
    /// >>> b = builder.node("b", 64, [a])
    /// >>> builder.output(builder.node("y", 64, [wide, b]))
    /// >>> graph = builder.build()
    /// >>> plan = graph.plan(order="best")
    /// >>> graph.plan().peak, plan.peak
    /// (8256, 4224)
    /// >>> [graph.tensors[number].name for number in plan.order]
    /// ['a', 'b', 'wide', 'y']
    #[getter]
    fn order<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let order = match &self.planned {
            Planned::Blocks { .. } => None,
            Planned::Graph { plan, graph } => locked(py, || graph.run_order(plan))?,
        };
        order.map(|order| PyTuple::new(py, order)).transpose()
    }

    /// The bytes of the head of the arena with this plan and without, as TensorFlow Lite Micro allocates it; None unless this is
    /// the plan of a TFLite model.
    #[getter]
    fn tflm_head<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, u64)>> {
        Ok(self.head(py)?.map(|it| (it.head, it.tflm_head)))
    }

    /// Return where a block or tensor is located, by its number or name; None for one without a place, such as weights.
    ///
    /// >>> import steeve
    /// >>> steeve.plan([0, 1], [2, 3], [1000, 500], names=["conv", "relu"]).place("relu")
    /// Place(memory="memory", buffer=0, offset=1000, size=500)
    fn place<'py>(&self, py: Python<'py>, tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let index = match &self.planned {
            Planned::Blocks { plan, names, .. } => {
                let count = plan.places().len();
                let known = KnownNames {
                    count,
                    by_name: |name: &str| names.find(count, name),
                    name_of: |index: usize| names.of(index).to_owned(),
                };
                known.find(py, "tensor", tensor)?
            }
            Planned::Graph { graph, .. } => graph.find(py, "tensor", tensor)?,
        };
        self.places(py)?.get_item(index)
    }

    /// Return what is alive at the fullest step, the largest first: the reason why no plan is smaller. Of one memory, or of all.
    ///
    /// >>> import steeve
    /// >>> plan = steeve.plan([0, 1, 3], [2, 3, 4], [1000, 500, 100], names=["conv", "relu", "out"])
    /// >>> [(it.name, it.size) for it in plan.at_peak()]
    /// [('conv', 1000), ('relu', 500)]
    #[pyo3(signature = (memory=None))]
    fn at_peak(&self, py: Python<'_>, memory: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PyAlive>> {
        let map = locked(py, || self.map())?;
        match optional_text("memory", memory)? {
            None => locked(py, || map.memories.iter().flat_map(|memory| self.alive(memory)).collect()),
            Some(name) => match map.memory(&name) {
                Some(memory) => locked(py, || self.alive(memory)),
                None => {
                    let known: Vec<&str> = map.memories.iter().map(|memory| memory.name.as_str()).collect();
                    let what = format!("no such memory: expected one of {}, got {name:?}", known.join(", "));
                    Err(invalid_argument(py, "memory", None, what))
                }
            },
        }
    }

    /// Compare this plan with another one: by how many bytes, and which tensors. This is before, `other` is after.
    ///
    /// >>> import steeve
    /// >>> before = steeve.plan([0, 1], [2, 3], [1000, 500], names=["conv", "relu"])
    /// >>> after = steeve.plan([0, 1], [2, 3], [1000, 900], names=["conv", "relu"])
    /// >>> comparison = before.compare(after)
    /// >>> comparison.difference, comparison.changes
    /// (400, (Change("grew", "relu", memory="memory", before=500, after=900),))
    fn compare(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Comparison> {
        let other = other.cast::<Self>().map_err(|_| wrong_type("other", None, "a steeve.Plan", other))?.get();
        locked(py, || Comparison::new(self.map(), other.map(), &self.title, &other.title))
    }

    /// Write the plan to a file, as its name ends: .json (a plan file), .csv (blocks), .html (a page), .svg, .h (a C header) or
    /// .tflite (the model with its plan). Never over a file that was read for it.
    ///
    /// >>> import steeve, tempfile, pathlib
    /// >>> path = pathlib.Path(tempfile.mkdtemp()) / "plan.csv"
    /// >>> steeve.plan([0, 1], [2, 3], [1000, 500]).save(path)
    /// >>> print(path.read_text(), end="")
    /// id,lower,upper,size,offset
    /// 0,0,2,1000,0
    /// 1,1,3,500,1000
    fn save(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let path = text::path("path", path)?;
        self.check_inputs(py, &path)?;
        let bytes = locked(py, || self.content(py, &path.to_string_lossy()))??;
        write_atomically(&path, &bytes).map_err(|error| system_error(py, &path.display().to_string(), &error))
    }

    /// Return the plan as a picture: width is lifetime, height is size, vertical position is offset.
    fn svg(&self, py: Python<'_>) -> PyResult<String> {
        locked(py, || svg(&self.picture(), &SvgStyle::default()))
    }

    /// Return the plan as one page that needs no network: zoom, search, what is alive when.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        locked(py, || page(&self.picture(), &PageStyle::default()))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        self.svg(py).map(|svg| in_notebook(&svg))
    }

    fn __len__(&self) -> usize {
        match &self.planned {
            Planned::Blocks { plan, .. } => plan.places().len(),
            Planned::Graph { graph, .. } => graph.order().len(),
        }
    }

    fn __repr__(&self) -> String {
        let (peak, bound, seconds) = (self.peak(), self.bound(), self.seconds);
        let what = match &self.planned {
            Planned::Blocks { plan, .. } => format!("{} blocks", plan.places().len()),
            Planned::Graph { graph, .. } => format!("{} nodes", graph.nodes()),
        };
        let quality = if self.optimal() { "optimal".to_owned() } else { format!("bound={bound}") };
        format!("<steeve.Plan of {what}: peak={peak}, {quality}, {seconds:.4} s>")
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        match &self.planned {
            Planned::Blocks { plan, names, at_least, strategy } => {
                reduce_plan(py, plan, (names, &self.title), (strategy, *at_least, self.seconds))
            }
            Planned::Graph { .. } => Err(PyTypeError::new_err(
                "plan: the plan of a graph can't be pickled: save it as a plan file (.json), and load that with the graph",
            )),
        }
    }
}

impl PyPlan {
    /// Returns the plan of each memory, tensors that nothing uses included.
    pub(crate) fn memory_plans(&self) -> Vec<PyMemoryPlan> {
        let sizes = |plan: &Plan| plan.buffers().iter().map(|size| size.0).collect();
        match &self.planned {
            Planned::Blocks { plan, at_least, .. } => vec![PyMemoryPlan {
                name: ONLY_MEMORY.to_owned(),
                peak: plan.peak().0,
                bound: at_least.0,
                buffers: sizes(plan),
            }],
            Planned::Graph { plan, graph } => {
                let unused = graph.unused_bytes();
                let memory = |it: &steeve_graph::MemoryPlan| PyMemoryPlan {
                    name: plan.assigned().memories()[it.memory].name.clone(),
                    peak: it.plan.peak().0.max(unused),
                    bound: it.at_least.0.max(unused),
                    buffers: if unused > it.plan.peak().0 { vec![unused] } else { sizes(&it.plan) },
                };
                plan.memories().iter().map(memory).collect()
            }
        }
    }
}

/// Fits a drawing into the width of a notebook's cell.
pub(crate) fn in_notebook(svg: &str) -> String {
    // Narrower cells get a smaller picture.
    let fitted = svg.replacen("<svg ", "<svg style=\"max-width:100%;height:auto\" ", 1);
    format!("<div style=\"max-width:1000px\">{fitted}</div>")
}

impl PyPlan {
    /// Returns what is alive at the fullest step of one memory.
    pub(crate) fn at_peak_of(&self, memory: &str) -> Vec<PyAlive> {
        self.map().memory(memory).map(|memory| self.alive(memory)).unwrap_or_default()
    }

    /// Returns the bytes of one memory.
    pub(crate) fn peak_of(&self, memory: &str) -> u64 {
        self.memory_plans().iter().find(|it| it.name == memory).map_or(0, |it| it.peak)
    }
}
