//! A folder of plans: what one process has searched for, or `steeve plan -o FOLDER/` has, later ones read.
//!
//! ```text
//!   graph --exact fingerprint--> FOLDER/01ab...ef.json.gz --unpack, prove, compare with ggml's plan--> plan
//!                                      | missing, or refused
//!                                      +--> plan --> temporary file in FOLDER --rename--> FOLDER/01ab...ef.json.gz
//! ```
//!
//! Nothing in the folder is trusted: a plan is proven for the very graph, as one that was made just now is, and held to what
//! this process plans with. Whatever else is in its place, the graph is planned. Files appear as a whole, so processes may share a
//! folder; two that plan the same graph at once both write its plan, and either will do.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use steeve_graph::file::DROP_IN;
use steeve_graph::{
    AssignedGraph, Bytes, GgmlPlacement, GraphPlan, GraphPlanError, GraphStrategy, Id, IdVec, InputLimit, MemoryId,
    MemoryPlan, PlanBesideGgml, PlanOptions, Reuse, ggml_placement,
};

use crate::record_graph::temporary_file;

/// A plan for a graph, what ggml's allocator takes for the same graph, and where the plan came from.
pub(crate) struct SolvedPlan {
    pub(crate) plan: GraphPlan,
    /// The bytes of all of ggml's chunks in each memory.
    pub(crate) ggml: IdVec<MemoryId, Bytes>,
    pub(crate) origin: PlanOrigin,
}

/// Where a plan came from, and where it went. As text, what is added to the line about the plan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlanOrigin {
    /// It was made, and there is no folder.
    Made,
    /// It was read from this file.
    Read(PathBuf),
    /// It was made and written to this file, in place of one that was refused for this reason.
    Written(PathBuf, Option<String>),
    /// It was made, and not written for this reason.
    NotWritten(PathBuf, String),
}

impl fmt::Display for PlanOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made => Ok(()),
            Self::Read(file) => write!(f, ", read from {}", file.display()),
            Self::Written(file, None) => write!(f, ", written to {}", file.display()),
            Self::Written(file, Some(why)) => {
                write!(f, ", written to {} in place of a file that was refused: {why}", file.display())
            }
            Self::NotWritten(file, why) => write!(f, ", not written to {}: {why}", file.display()),
        }
    }
}

impl PlanOrigin {
    /// Returns what is added to the line about the plan. That plans can't be written is said once in a process.
    pub(crate) fn note(&self) -> String {
        static SAID: AtomicBool = AtomicBool::new(false);
        match self {
            Self::NotWritten(..) if SAID.swap(true, Ordering::Relaxed) => String::new(),
            origin => origin.to_string(),
        }
    }
}

/// Returns the plan that the folder has for a graph; else the one that `plan` makes, which is then written there. With a strategy
/// other than `best` the folder is left alone: other plans are made sooner than read.
pub(crate) fn solve(
    folder: Option<&Path>,
    graph: &AssignedGraph,
    options: &PlanOptions,
    plan: impl FnOnce(&AssignedGraph, &PlanOptions) -> Result<PlanBesideGgml, GraphPlanError>,
) -> Result<SolvedPlan, GraphPlanError> {
    if let Some(folder) = folder.filter(|_| matches!(options.strategy, GraphStrategy::Best(_))) {
        return solve_in(folder, graph, options, plan);
    }
    let PlanBesideGgml { plan, ggml, .. } = plan(graph, options)?;
    Ok(SolvedPlan { plan, ggml, origin: PlanOrigin::Made })
}

/// Solves with a folder. Cold, so that its code is apart from that which every process touches.
#[cold]
#[inline(never)]
fn solve_in(
    folder: &Path,
    graph: &AssignedGraph,
    options: &PlanOptions,
    plan: impl FnOnce(&AssignedGraph, &PlanOptions) -> Result<PlanBesideGgml, GraphPlanError>,
) -> Result<SolvedPlan, GraphPlanError> {
    let file = folder.join(graph.plan_file_name(options));
    // What ggml can't plan is an error in any case.
    let answer = ggml_placement(graph)?;
    let refused = match read_plan(&file, graph, options, &answer) {
        Ok(Some(plan)) => {
            let ggml = answer.chunks.iter().map(|chunks| sum(chunks)).collect();
            return Ok(SolvedPlan { plan, ggml, origin: PlanOrigin::Read(file) });
        }
        Ok(None) => None,
        // One line, whatever a file says.
        Err(why) => Some(why.replace(char::is_control, " ")),
    };
    let PlanBesideGgml { plan, ggml, .. } = plan(graph, options)?;
    // What would be refused when it is read is not worth writing.
    let mut written = plan.to_file();
    written.planned_as = Some(DROP_IN.to_owned());
    let text = written.to_json();
    let too_long = || limit(graph).check(text.len()).err().map(|error| error.to_string());
    let written = match refusal(&plan, options, &answer).or_else(too_long) {
        Some(why) => Err(why),
        None => write_plan(&file, &text).map_err(|error| error.to_string()),
    };
    let origin = match (written, refused) {
        (Ok(()), refused) => PlanOrigin::Written(file, refused),
        (Err(why), None) => PlanOrigin::NotWritten(file, why),
        (Err(why), Some(refused)) => {
            PlanOrigin::NotWritten(file, format!("{why} (the file there was refused: {refused})"))
        }
    };
    Ok(SolvedPlan { plan, ggml, origin })
}

/// Reads and proves the plan of a file; nothing if there is no file. Fails with the reason why it is not used.
fn read_plan(
    file: &Path,
    graph: &AssignedGraph,
    options: &PlanOptions,
    answer: &GgmlPlacement,
) -> Result<Option<GraphPlan>, String> {
    let limit = limit(graph);
    let text = match unpacked(file, limit) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    limit.check(text.len()).map_err(|error| error.to_string())?;
    let plan = GraphPlan::from_json(&text, graph).map_err(|error| error.to_string())?;
    match refusal(&plan, options, answer) {
        Some(why) => Err(why),
        None => Ok(Some(plan)),
    }
}

/// Returns far more than any plan of a graph takes as text, and far less than a file can be unpacked to.
fn limit(graph: &AssignedGraph) -> InputLimit {
    const LEAST: u64 = 1 << 16;
    const OF_TENSOR: u64 = 1 << 10;
    let tensors = graph.graph().tensors().len() as u64;
    let bytes = Bytes(LEAST.saturating_add(tensors.saturating_mul(OF_TENSOR)));
    InputLimit::DEFAULT.min(InputLimit::new(bytes))
}

/// Unpacks a regular file, up to one byte above the limit. Never waits for what is no regular file.
fn unpacked(file: &Path, limit: InputLimit) -> io::Result<String> {
    // To open a pipe without this is to wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    GzDecoder::new(file).take(limit.bytes().0.saturating_add(1)).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns why this process would not use a plan; `None` if it would. The plan itself is proven.
fn refusal(plan: &GraphPlan, options: &PlanOptions, answer: &GgmlPlacement) -> Option<String> {
    let made = plan.options();
    if !matches!(made.strategy, GraphStrategy::Best(_)) {
        return Some(format!("strategy: expected best, got {}", made.strategy.name()));
    }
    // Where more reuse makes a plan larger, ggml's is used.
    if made.reuse != options.reuse && (made.reuse, options.reuse) != (Reuse::Ggml, Reuse::Extended) {
        return Some(format!("reuse: expected {}, got {}", options.reuse.name(), made.reuse.name()));
    }
    if made.unread != options.unread {
        return Some(format!("unread: expected {}, got {}", options.unread.name(), made.unread.name()));
    }
    if plan.order().is_some() {
        return Some("node order: expected the program's own, got another one".to_owned());
    }
    let graph = plan.assigned();
    let name = |it: &MemoryPlan| graph.memories()[it.memory].name.as_str();
    let is_larger = |it: &&MemoryPlan| is_larger(graph, it, &answer.chunks[it.memory]);
    if let Some(it) = plan.memories().iter().find(is_larger) {
        let (ours, theirs) = (it.plan.peak(), sum(&answer.chunks[it.memory]));
        return Some(format!(
            "memory {}: larger than ggml's plan: expected at most {theirs} bytes, got {ours}",
            name(it)
        ));
    }
    let holds_nothing = |it: &&MemoryPlan| !it.keeps_extra_lifetime && !is_ggmls(plan, it, answer);
    let it = plan.memories().iter().find(holds_nothing)?;
    Some(format!("memory {}: the layout is not ggml's, and keeps nothing for the backend", name(it)))
}

/// Returns whether the plan of a memory takes more than ggml's, or has a buffer that is larger than the device's limit and than
/// any of ggml's.
fn is_larger(graph: &AssignedGraph, it: &MemoryPlan, chunks: &[Bytes]) -> bool {
    let ours = it.plan.buffers().iter().copied().max().unwrap_or_default();
    let theirs = chunks.iter().copied().max().unwrap_or_default();
    let limit = graph.memories()[it.memory].max_buffer.unwrap_or(ours);
    it.plan.peak() > sum(chunks) || ours > limit.max(theirs)
}

/// Returns whether every tensor of a memory is where ggml allocates it.
fn is_ggmls(plan: &GraphPlan, it: &MemoryPlan, answer: &GgmlPlacement) -> bool {
    it.tensors.iter().all(|tensor| {
        let ours = plan.place(*tensor).map(|place| (place.buffer, place.offset));
        let theirs = answer.places.as_slice().get(tensor.index()).copied().flatten();
        ours.is_some() && ours == theirs.map(|it| (it.place.buffer, it.place.offset))
    })
}

/// Writes the text of a plan under its name, as a whole. The folder is made, if the one around it is there.
fn write_plan(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let (path, temporary_file) = match temporary_file(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Another process may have been quicker.
            let made = std::fs::create_dir(folder);
            temporary_file(folder).map_err(|error| made.err().unwrap_or(error))?
        }
        made => made?,
    };
    let written = pack(temporary_file, text).and_then(|()| std::fs::rename(&path, file));
    if written.is_err() {
        // If even that fails, the file stays; its name says that it is temporary.
        let _ = std::fs::remove_file(&path);
    }
    written
}

/// Compresses a text into a file, without a sync: a file that is lost half-way is refused, and a search is cheaper than a disk.
fn pack(file: File, text: &str) -> io::Result<()> {
    let mut writer = GzEncoder::new(file, Compression::default());
    writer.write_all(text.as_bytes())?;
    writer.finish().map(drop)
}

fn sum(chunks: &[Bytes]) -> Bytes {
    Bytes(chunks.iter().fold(0, |sum: u64, chunk| sum.saturating_add(chunk.0)))
}

#[cfg(test)]
mod tests;
