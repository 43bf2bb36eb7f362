//! A file in, whatever it holds: a graph, blocks, or the plan of a graph.

use std::path::Path;
use std::sync::Arc;

use pyo3::prelude::*;
use steeve_graph::InputLimit;
use steeve_models::gguf::{ModelMemory, SessionSize};
use steeve_models::{FileContent, FileReader};
use steeve_plan::Bytes;

use crate::blocks::PyBlocks;
use crate::error::{file_error, invalid_input, locked, unlocked};
use crate::graph::{GraphData, Kernels, PyGraph};
use crate::numbers::number;
use crate::plan_file::PyPlanFile;
use crate::text;

/// Read a file that can be planned, plain or gzip.
///
/// - A model (`.tflite`; `.gguf`, of which the header alone is read), a recorded ggml graph or a graph as text is a `steeve.Graph`.
/// - A block list (CSV), or the plan file of one, is `steeve.Blocks`.
/// - The plan file of a graph is a `steeve.PlanFile`, which a graph can `load` or `check`.
///
/// What a file is, its content says. `max_bytes` is the most that is read of it, unpacked (256 MiB by default).
///
/// >>> import steeve, tempfile, pathlib
/// >>> path = pathlib.Path(tempfile.mkdtemp()) / "net.graph"
/// >>> _ = path.write_text("x = input f32[64,32]; h = silu x; y = add h x !output")
/// >>> graph = steeve.read(path)
/// >>> graph
/// <steeve.Graph "net.graph": 2 nodes, 3 tensors>
/// >>> graph.plan().peak
/// 16384
#[pyfunction]
#[pyo3(signature = (path, *, max_bytes=None))]
pub(crate) fn read<'py>(
    py: Python<'py>,
    path: &Bound<'py, PyAny>,
    max_bytes: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let path = text::path("path", path)?;
    let max_bytes = max_bytes.map(|bytes| number("max_bytes", bytes)).transpose()?;
    let content = read_content(py, &path, max_bytes)?;
    let name = path.display().to_string();
    let title = short_name(&name);
    // The working folder may be another one when something is written.
    let file = Some(std::path::absolute(&path).unwrap_or_else(|_| path.clone()));
    let graph = |data| Ok(Bound::new(py, PyGraph::new(data, file.clone()))?.into_any());
    match content {
        FileContent::Blocks(table, _) => Ok(Bound::new(py, PyBlocks::new(table, title, file.clone()))?.into_any()),
        FileContent::Text(assigned) => graph(locked(py, || GraphData::of_graph(*assigned, title))?),
        FileContent::Recorded(recorded) => graph(locked(py, || GraphData::of_recorded(*recorded, title))?),
        FileContent::Tflite(model) => {
            graph(locked(py, || GraphData::of_model(py, Arc::new(*model), Kernels::default(), title))??)
        }
        FileContent::Gguf(header) => {
            let planned = unlocked(py, || ModelMemory::plan(&header, SessionSize::usual(&header)?, 0))?;
            let prompt = planned.map_err(|error| invalid_input(py, &error))?.prompt;
            graph(locked(py, || GraphData::of_graph(prompt, title))?)
        }
        FileContent::Plan(file) => Ok(Bound::new(py, PyPlanFile::new(*file, name))?.into_any()),
    }
}

/// Reads a file of at most so many bytes, without the interpreter's lock.
pub(crate) fn read_content(py: Python<'_>, path: &Path, max_bytes: Option<u64>) -> PyResult<FileContent> {
    let limit = max_bytes.map_or(InputLimit::DEFAULT, |bytes| InputLimit::new(Bytes(bytes)));
    let read = unlocked(py, || FileReader::open(path)?.content(limit))?;
    read.map_err(|error| file_error(py, &path.display().to_string(), &error))
}

/// Returns the last part of a path.
pub(crate) fn short_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}
