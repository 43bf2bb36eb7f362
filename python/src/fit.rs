//! A graph and the bytes there are in, a graph and a plan within them out, and what was done for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use steeve_graph::{
    AssignedGraph, Bytes, DoesNotFit, FitError, FitOptions, FitStep, Fitted, MemoryId, PlanOptions, fit,
};

use crate::copies::Reduced;
use crate::error::{chain, exception, invalid_argument, invalid_input, unlocked, wrong_type};
use crate::graph::PyGraph;
use crate::numbers::number;
use crate::plan::PyPlan;

/// A graph that fits, its plan, and what was done. Nothing in it can be changed.
#[pyclass(frozen, module = "steeve", name = "Fitted")]
pub(crate) struct PyFitted {
    /// The graph: the given one, or one that computes the same in another order or in parts.
    #[pyo3(get)]
    graph: Py<PyGraph>,
    /// Its plan.
    #[pyo3(get)]
    plan: Py<PyPlan>,
    /// The plan of each graph beside it, which shares its buffers.
    #[pyo3(get)]
    beside: Py<PyTuple>,
    /// What was done, in order. The bytes of the last step are what is needed.
    #[pyo3(get)]
    steps: Py<PyTuple>,
}

#[pymethods]
impl PyFitted {
    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<steeve.Fitted: {} steps, peak={}>", self.steps.bind(py).len(), self.plan.get().peak())
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }
}

/// One of the things that were done so that a graph fits.
#[pyclass(frozen, module = "steeve", name = "FitStep")]
pub(crate) struct PyFitStep {
    /// What was done, in words.
    #[pyo3(get)]
    pub(crate) action: String,
    pub(crate) bytes: Vec<(String, u64)>,
    /// The bytes that are read again in each part but the first, by estimate: weights, keys and values.
    #[pyo3(get)]
    pub(crate) read_again: u64,
    /// How many more nodes compute something.
    #[pyo3(get)]
    pub(crate) more_nodes: u64,
}

#[pymethods]
impl PyFitStep {
    /// The bytes of each memory after it, by name; of a chain in parts, what is alive at most in it, by estimate.
    #[getter]
    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let bytes = PyDict::new(py);
        self.bytes.iter().try_for_each(|(memory, size)| bytes.set_item(memory, size))?;
        Ok(bytes)
    }

    fn __repr__(&self) -> String {
        let Self { action, bytes, read_again, more_nodes } = self;
        let bytes: Vec<String> = bytes.iter().map(|(memory, size)| format!("{memory:?}: {size}")).collect();
        let bytes = bytes.join(", ");
        format!("FitStep({action:?}, bytes={{{bytes}}}, read_again={read_again}, more_nodes={more_nodes})")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

impl PyFitStep {
    fn new(step: &FitStep, graph: &AssignedGraph) -> Self {
        let named = |(memory, bytes): &(MemoryId, Bytes)| (graph.memories()[*memory].name.clone(), bytes.0);
        Self {
            action: step.action.to_string(),
            bytes: step.bytes.iter().map(named).collect(),
            read_again: step.cost.weights.0,
            more_nodes: step.cost.launches,
        }
    }
}

/// What the arguments of `Graph.fit` say.
pub(crate) struct FitRequest<'py> {
    capacities: Vec<(MemoryId, Bytes)>,
    parts: Option<u64>,
    beside: Vec<Bound<'py, PyGraph>>,
}

impl<'py> FitRequest<'py> {
    /// Reads the arguments, capacities by the names of memories.
    pub(crate) fn new(
        py: Python<'py>,
        graph: &AssignedGraph,
        capacities: &HashMap<String, u64>,
        parts: Option<&Bound<'py, PyAny>>,
        beside: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let given = |memory: MemoryId| Some((memory, Bytes(*capacities.get(&graph.memories()[memory].name)?)));
        let capacities: Vec<_> = graph.owners().filter_map(given).collect();
        if capacities.is_empty() {
            return Err(invalid_argument(py, "capacity", None, "missing: expected the bytes of at least one memory"));
        }
        let parts = parts.map(|parts| number("parts", parts)).transpose()?;
        if parts == Some(0) {
            return Err(invalid_argument(py, "parts", None, "out of range: expected at least 1, got 0"));
        }
        let beside = beside.map_or_else(|| Ok(Vec::new()), |graphs| read_graphs("beside", graphs))?;
        if let Some(index) = beside.iter().position(|graph| graph.get().data().is_model()) {
            return Err(invalid_argument(py, "beside", Some(index), "fit is for graphs: got a TFLite model"));
        }
        Ok(Self { capacities, parts, beside })
    }

    /// Fits the graph.
    pub(crate) fn fit(self, py: Python<'py>, graph: &PyGraph, options: PlanOptions) -> PyResult<PyFitted> {
        let options = FitOptions::new(options);
        let options = self.parts.map_or(options, |parts| options.with_most_parts(parts));
        let beside: Vec<&AssignedGraph> = self.beside.iter().map(|it| it.get().data().assigned()).collect();
        let start = Instant::now();
        let found = unlocked(py, || fit(graph.data().assigned(), &beside, &self.capacities, &options))?;
        let seconds = start.elapsed().as_secs_f64();
        match found {
            Ok(fitted) => self.fitted(py, graph, fitted, seconds),
            Err(FitError::TooLarge(error)) => Err(self.misfit(py, graph, *error, seconds)),
            Err(error @ (FitError::Beside { graph, .. } | FitError::Memories { graph })) => {
                Err(invalid_argument(py, "beside", Some(graph), chain(&error)))
            }
            Err(error) => Err(invalid_input(py, &error)),
        }
    }

    fn fitted(&self, py: Python<'py>, graph: &PyGraph, fitted: Fitted, seconds: f64) -> PyResult<PyFitted> {
        let Fitted { graph: made, plan, beside, steps, .. } = fitted;
        let steps: Vec<PyFitStep> = steps.iter().map(|step| PyFitStep::new(step, &made)).collect();
        let beside =
            self.beside.iter().zip(beside).map(|(of, plan)| of.get().plan_from(of.get().data().clone(), plan, 0.0));
        let data = Arc::new(graph.data().with_assigned(made));
        let plan = graph.plan_from(data.clone(), plan, seconds).made_of(self.files());
        Ok(PyFitted {
            graph: Py::new(py, graph.with_data(data))?,
            plan: Py::new(py, plan)?,
            beside: PyTuple::new(py, beside.collect::<Vec<_>>())?.unbind(),
            steps: PyTuple::new(py, steps)?.unbind(),
        })
    }

    /// Returns the files of the graphs beside.
    fn files(&self) -> impl Iterator<Item = std::path::PathBuf> {
        self.beside.iter().filter_map(|graph| graph.get().file().cloned())
    }

    /// Returns the exception, with the smallest that was reached.
    fn misfit(&self, py: Python<'py>, graph: &PyGraph, error: DoesNotFit, seconds: f64) -> PyErr {
        let message = error.to_string();
        let DoesNotFit { name, capacity, needed, beside, smallest, .. } = error;
        let made = || {
            let fitted = self.fitted(py, graph, smallest, seconds)?;
            let largest = match beside {
                Some(index) => fitted.beside.bind(py).get_item(index)?.cast_into::<PyPlan>()?,
                None => fitted.plan.bind(py).clone(),
            };
            let alive = largest.get().at_peak_of(&name);
            Ok(exception(py, "DoesNotFit", message, |fields| {
                fields.set_item("memory", &name)?;
                fields.set_item("needs", needed.0)?;
                fields.set_item("capacity", capacity.0)?;
                fields.set_item("alive", PyTuple::new(py, alive)?)?;
                fields.set_item("plan", largest)?;
                fields.set_item("fitted", fitted)
            }))
        };
        made().unwrap_or_else(|error: PyErr| error)
    }
}

/// Reads graphs, one after the other.
fn read_graphs<'py>(argument: &str, graphs: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyGraph>>> {
    const EXPECTED: &str = "a sequence of graphs";
    let wrong = || wrong_type(argument, None, EXPECTED, graphs);
    if graphs.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let graph = |(index, item): (usize, PyResult<Bound<'py, PyAny>>)| {
        let item = item?;
        item.cast_into::<PyGraph>().map_err(|error| wrong_type(argument, Some(index), "a graph", &error.into_inner()))
    };
    graphs.try_iter().map_err(|_| wrong())?.enumerate().map(graph).collect()
}
