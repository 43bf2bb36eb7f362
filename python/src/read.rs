//! A file in, whatever it holds: a graph, blocks, or the plan of a graph.

use std::path::Path;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyMapping;
use steeve_graph::InputLimit;
use steeve_models::gguf::{ModelMemory, SessionSize};
use steeve_models::onnx::{DimSizes, OnnxError, OnnxGraph};
use steeve_models::{FileContent, FileReader};
use steeve_plan::Bytes;

use crate::blocks::PyBlocks;
use crate::error::{file_error, invalid_argument, invalid_input, locked, unlocked, wrong_type};
use crate::graph::{GraphData, Kernels, PyGraph};
use crate::numbers::number;
use crate::plan_file::PyPlanFile;
use crate::text;

/// Read a file that can be planned, plain or gzip.
///
/// - A model (`.tflite`; `.onnx`; `.gguf`, of which the header alone is read), a recorded ggml graph or a graph as text is a `steeve.Graph`.
/// - A block list (CSV), or the plan file of one, is `steeve.Blocks`.
/// - The plan file of a graph is a `steeve.PlanFile`, which a graph can `load` or `check`.
///
/// `dims` has the size of each dimension that an ONNX model leaves free, by name, as in `dims={"batch": 1}`; an error lists
/// those that are left.
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
#[pyo3(signature = (path, *, dims=None, max_bytes=None))]
pub(crate) fn read<'py>(
    py: Python<'py>,
    path: &Bound<'py, PyAny>,
    dims: Option<&Bound<'py, PyAny>>,
    max_bytes: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let path = text::path("path", path)?;
    let max_bytes = max_bytes.map(|bytes| number("max_bytes", bytes)).transpose()?;
    let dims = dims.map(|dims| dim_sizes(py, dims)).transpose()?;
    let content = read_content(py, &path, max_bytes)?;
    if let (Some(dims), false) = (&dims, matches!(content, FileContent::Onnx(_)))
        && !dims.is_empty()
    {
        return Err(invalid_argument(py, "dims", None, "for ONNX models: got another file"));
    }
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
        FileContent::Onnx(model) => {
            let dims = dims.unwrap_or_default();
            let made = unlocked(py, || {
                let graph = OnnxGraph::new(&model, &dims)?;
                graph.check_dims(&dims).map(|()| graph)
            })?;
            let made = made.map_err(|error| match error {
                OnnxError::FreeDims { .. } | OnnxError::UnknownDim { .. } => {
                    invalid_argument(py, "dims", None, format!("{error}{}", example(&error)))
                }
                error => invalid_input(py, &error),
            })?;
            graph(locked(py, || GraphData::of_onnx(py, &made, title))??)
        }
        FileContent::Gguf(header) => {
            let planned = unlocked(py, || ModelMemory::plan(&header, SessionSize::usual(&header)?, 0))?;
            let prompt = planned.map_err(|error| invalid_input(py, &error))?.prompt;
            graph(locked(py, || GraphData::of_graph(prompt, title))?)
        }
        FileContent::Plan(file) => Ok(Bound::new(py, PyPlanFile::new(*file, &path))?.into_any()),
    }
}

/// Reads the sizes of dimensions by name.
fn dim_sizes(py: Python<'_>, dims: &Bound<'_, PyAny>) -> PyResult<DimSizes> {
    let wrong = || wrong_type("dims", None, "a dict of sizes by name", dims);
    let mapping = dims.cast::<PyMapping>().map_err(|_| wrong())?;
    let mut sizes = Vec::new();
    for item in mapping.items()?.iter() {
        let (name, size): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        sizes.push((text::text("dims", &name)?, number("dims", &size)?));
    }
    DimSizes::new(sizes).map_err(|error| invalid_argument(py, "dims", None, error))
}

/// Says what to give for the dimensions that are left.
fn example(error: &OnnxError) -> String {
    let OnnxError::FreeDims { free } = error else { return String::new() };
    let sizes: Vec<String> = free.iter().map(|dim| format!("{:?}: {}", dim.name, dim.example())).collect();
    format!("; give each a size, such as dims={{{}}}", sizes.join(", "))
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
