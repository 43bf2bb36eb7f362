//! Plan files of graphs, which hold for a graph alone.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use steeve_graph::{PlanFault, PlanFile};
use steeve_models::FileContent;
use steeve_models::tflite::HeadRecord;
use steeve_view::{PageStyle, Picture, PlanMap, SvgStyle, page, svg};

use crate::error::{chain, invalid_argument, invalid_file, locked, wrong_type};
use crate::plan::in_notebook;
use crate::read::{read_content, short_name};

/// The plan of a graph as a file claims it. `Graph.load` proves it, `Graph.check` says what is wrong.
#[pyclass(frozen, module = "steeve", name = "PlanFile")]
#[derive(Clone)]
pub(crate) struct PyPlanFile {
    file: PlanFile,
    path: String,
    /// Where it is, whatever the working folder is later.
    absolute: PathBuf,
}

/// A plan as an argument.
pub(crate) enum GivenPlan {
    File(Box<PyPlanFile>),
    /// The record in a TFLite model.
    Record(HeadRecord),
}

impl GivenPlan {
    /// Takes a plan file that was read, or reads a path.
    pub(crate) fn of(py: Python<'_>, plan: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(file) = plan.cast::<PyPlanFile>() {
            return Ok(Self::File(Box::new(file.get().clone())));
        }
        let path: PathBuf =
            plan.extract().map_err(|_| wrong_type("plan", None, "a path or what steeve.read made of one", plan))?;
        let name = path.display().to_string();
        match read_content(py, &path, None)? {
            FileContent::Plan(file) => Ok(Self::File(Box::new(PyPlanFile::new(*file, &path)))),
            FileContent::Tflite(model) => match HeadRecord::of(&model) {
                Ok(Some(record)) => Ok(Self::Record(record)),
                Ok(None) => Err(invalid_file(py, &name, format!("{name}: a model without the record of a plan"))),
                Err(error) => Err(invalid_file(py, &name, format!("{name}: {error}"))),
            },
            _ => Err(invalid_file(py, &name, format!("{name}: not the plan of a graph: expected a plan file"))),
        }
    }

    /// Returns the plan file; a record is refused.
    pub(crate) fn into_file(self, py: Python<'_>) -> PyResult<PyPlanFile> {
        match self {
            Self::File(file) => Ok(*file),
            Self::Record(_) => Err(invalid_argument(
                py,
                "plan",
                None,
                "the record of a model can only be checked: expected a plan file",
            )),
        }
    }
}

impl PyPlanFile {
    pub(crate) fn new(file: PlanFile, path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { file, path: path.display().to_string(), absolute }
    }

    /// Returns where the file is.
    pub(crate) fn absolute(&self) -> &Path {
        &self.absolute
    }

    pub(crate) fn file(&self) -> &PlanFile {
        &self.file
    }

    /// Returns the exception for a file that is no plan of a graph.
    pub(crate) fn wrong(&self, py: Python<'_>, fault: &PlanFault) -> PyErr {
        invalid_file(py, &self.path, format!("{}: the plan does not hold: {}", self.path, chain(fault)))
    }

    fn picture(&self) -> Picture {
        Picture::of(short_name(&self.path), PlanMap::of_file(self.file.strategy.clone(), &self.file))
    }
}

#[pymethods]
impl PyPlanFile {
    /// The strategy that made the plan.
    #[getter]
    fn strategy(&self) -> &str {
        &self.file.strategy
    }

    /// The bytes that the file says the plan needs.
    #[getter]
    fn peak(&self) -> u64 {
        let own = self.file.memories.iter().filter(|memory| memory.shared_with.is_none());
        own.fold(0u64, |sum, memory| sum.saturating_add(memory.peak.0))
    }

    /// Return what the file claims as a picture.
    fn svg(&self, py: Python<'_>) -> PyResult<String> {
        locked(py, || svg(&self.picture(), &SvgStyle::default()))
    }

    /// Return what the file claims as one page that needs no network.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        locked(py, || page(&self.picture(), &PageStyle::default()))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        self.svg(py).map(|svg| in_notebook(&svg))
    }

    fn __repr__(&self) -> String {
        format!("<steeve.PlanFile {:?}: peak={}, unproven>", short_name(&self.path), self.peak())
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }
}
