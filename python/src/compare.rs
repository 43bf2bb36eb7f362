//! Two plans in, what is different out.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use steeve_view::{MemoryChange, PageStyle, Picture, PlanMap, SvgStyle, changes, human_size, page, svg};

use crate::copies::Reduced;
use crate::error::locked;
use crate::plan::in_notebook;

/// Two plans compared: by how many bytes, and which tensors.
#[pyclass(frozen, module = "steeve", name = "Comparison")]
pub(crate) struct Comparison {
    changes: Vec<MemoryChange>,
    picture: Picture,
    before: u64,
    after: u64,
}

/// A tensor that takes more or fewer bytes at the fullest step after than before.
#[pyclass(frozen, module = "steeve", name = "Change")]
pub(crate) struct PyChange {
    /// How it has changed: 'came', 'went', 'grew', 'shrank', 'entered' or 'left' the fullest step.
    #[pyo3(get)]
    pub(crate) kind: String,
    /// Its name.
    #[pyo3(get)]
    pub(crate) name: String,
    /// The name of its memory.
    #[pyo3(get)]
    pub(crate) memory: String,
    /// Its bytes at the fullest step before.
    #[pyo3(get)]
    pub(crate) before: u64,
    /// Its bytes at the fullest step after.
    #[pyo3(get)]
    pub(crate) after: u64,
}

#[pymethods]
impl PyChange {
    fn __repr__(&self) -> String {
        let Self { kind, name, memory, before, after } = self;
        format!("Change({kind:?}, {name:?}, memory={memory:?}, before={before}, after={after})")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

impl Comparison {
    pub(crate) fn new(before: &PlanMap, after: &PlanMap, before_title: &str, after_title: &str) -> Self {
        let changes = changes(before, after);
        let title = if before_title == after_title {
            before_title.to_owned()
        } else {
            format!("{before_title}, {after_title}")
        };
        let [old, new] = [(before, "before"), (after, "after")].map(|(map, name)| {
            let mut map = map.clone();
            name.clone_into(&mut map.name);
            map
        });
        let (before, after) = (before.peak().0, after.peak().0);
        Self { changes, picture: Picture::of_two(title, old, new), before, after }
    }
}

#[pymethods]
impl Comparison {
    /// The bytes of the first plan.
    #[getter]
    fn before(&self) -> u64 {
        self.before
    }

    /// The bytes of the second plan.
    #[getter]
    fn after(&self) -> u64 {
        self.after
    }

    /// How many bytes more the second plan takes; below 0 if it takes fewer.
    #[getter]
    fn difference(&self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }

    /// The tensors that take more or fewer bytes at the fullest steps, the largest difference first in each memory.
    #[getter]
    fn changes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let all = self.changes.iter().flat_map(|memory| {
            memory.changes.iter().map(|it| PyChange {
                kind: it.change.word().to_owned(),
                name: it.name.clone(),
                memory: memory.name.clone(),
                before: it.bytes.before.0,
                after: it.bytes.after.0,
            })
        });
        PyTuple::new(py, all.collect::<Vec<PyChange>>())
    }

    /// Return both plans beside each other as a picture.
    fn svg(&self, py: Python<'_>) -> PyResult<String> {
        locked(py, || svg(&self.picture, &SvgStyle::default()))
    }

    /// Return both plans beside each other as one page that needs no network.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        locked(py, || page(&self.picture, &PageStyle::default()))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        self.svg(py).map(|svg| in_notebook(&svg))
    }

    fn __repr__(&self) -> String {
        let (before, after) = (human_size(self.before.into()), human_size(self.after.into()));
        format!("<steeve.Comparison: {before} before, {after} after, {:+} bytes>", self.difference())
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }
}
