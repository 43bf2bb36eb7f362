//! Results as JSON, one line each (`--json`).

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use steeve_models::gguf::DeviceMemory;
use steeve_models::onnx::Weights;
use steeve_plan::Bytes;

use crate::error::Error;
use crate::graph::LanguageNeeds;
use crate::plan_figures::{EnginePlanner, MemoryFigures, ModelFigures, PlanFigures};

/// The version of all our forms. A reader refuses any other.
pub(crate) const JSON_VERSION: u32 = 1;

/// What `--json` prints for one file.
#[derive(Debug, Serialize)]
pub(crate) struct ResultLine<'a> {
    version: u32,
    file: &'a str,
    strategy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reuse: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<&'static str>,
    /// How many nodes run elsewhere than in the graph's own order.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved: Option<usize>,
    status: &'static str,
    plan_us: u64,
    buffers: Vec<ResultMemory<'a>>,
    #[serde(flatten)]
    model: Option<ResultModel<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<DeviceNeeds<'a>>,
}

/// What is said of an ONNX model.
#[derive(Debug, Serialize)]
struct ResultModel<'a> {
    dims: BTreeMap<&'a str, u64>,
    weights: ResultWeights,
}

/// The bytes of constants, which are not planned.
#[derive(Debug, Serialize)]
struct ResultWeights {
    stored: u64,
    beside: u64,
    computed: u64,
}

impl<'a> ResultModel<'a> {
    fn new(model: &'a ModelFigures) -> Self {
        let Weights { stored, beside, computed, .. } = model.weights;
        let dims = model.dims.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        Self { dims, weights: ResultWeights { stored, beside, computed } }
    }
}

/// What a language model takes of a device.
#[derive(Debug, Serialize)]
struct DeviceNeeds<'a> {
    device: &'a str,
    weights: Bytes,
    caches: Bytes,
    compute: Bytes,
    total: Bytes,
}

impl<'a> ResultLine<'a> {
    pub(crate) fn new(file: &'a str, figures: &'a PlanFigures) -> Self {
        Self {
            version: JSON_VERSION,
            file,
            strategy: figures.strategy,
            reuse: figures.reuse,
            unread: figures.unread,
            moved: figures.moved,
            status: figures.status(),
            plan_us: u64::try_from(figures.time.as_micros()).unwrap_or(u64::MAX),
            buffers: memory_entries(figures),
            model: figures.model.as_deref().map(ResultModel::new),
            devices: Vec::new(),
        }
    }

    /// Adds what a language model takes of each device.
    pub(crate) fn with_needs(self, needs: Option<&'a LanguageNeeds>) -> Self {
        let devices = needs.into_iter().flat_map(|needs| &needs.devices);
        let entry = |it: &'a DeviceMemory| DeviceNeeds {
            device: &it.name,
            weights: it.weights,
            caches: it.caches,
            compute: it.compute,
            total: it.total(),
        };
        Self { devices: devices.map(entry).collect(), ..self }
    }
}

/// One memory of a result.
#[derive(Debug, Serialize)]
struct ResultMemory<'a> {
    name: &'a str,
    blocks: usize,
    peak: Bytes,
    lower_bound: Bytes,
    optimal: bool,
    chunks: &'a [Bytes],
    #[serde(flatten)]
    engine: EngineBytes,
}

/// What the engine's own plan takes of a memory, under the engine's name.
#[derive(Debug, Serialize)]
pub(crate) struct EngineBytes {
    #[serde(skip_serializing_if = "Option::is_none")]
    ggml: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tflm: Option<Bytes>,
}

impl EngineBytes {
    pub(crate) fn new(engine: EnginePlanner, bytes: Option<Bytes>) -> Self {
        let of = |it| bytes.filter(|_| engine == it);
        Self { ggml: of(EnginePlanner::Ggml), tflm: of(EnginePlanner::Tflm) }
    }
}

/// Returns the memories of a result, in their order.
fn memory_entries(figures: &PlanFigures) -> Vec<ResultMemory<'_>> {
    figures.memories.iter().map(|memory| ResultMemory::new(figures.engine, memory)).collect()
}

impl<'a> ResultMemory<'a> {
    fn new(engine: EnginePlanner, memory: &'a MemoryFigures) -> Self {
        Self {
            name: &memory.name,
            blocks: memory.blocks,
            peak: memory.peak,
            lower_bound: memory.at_least,
            optimal: memory.is_optimal(),
            chunks: &memory.chunks,
            engine: EngineBytes::new(engine, memory.engine),
        }
    }
}

/// Prints one line of JSON and flushes it.
pub(crate) fn print_line(stdout: &mut dyn Write, line: &impl Serialize) -> Result<(), Error> {
    serde_json::to_writer(&mut *stdout, line).map_err(|error| Error::Output(error.into()))?;
    writeln!(stdout).and_then(|()| stdout.flush()).map_err(Error::Output)
}
