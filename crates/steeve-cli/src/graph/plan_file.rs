//! The plan of a graph as a file (`-o plan.json`, `-o plan.csv`), and its claims back from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steeve_graph::{Bytes, GraphPlan, Hold, Id, IdVec, MemoryPlan, Offset, Reuse, TensorId};
use steeve_plan::csv::Table;
use steeve_plan::{BlockId, Lifetime, Step};

use super::file::GraphFile;
use super::solve::{SolvedGraph, reuse_name};
use crate::error::Error;
use crate::json::{MemoryEntry, VERSION, entries};

/// A plan to be written.
pub(crate) struct GraphPlanFile<'a> {
    pub(crate) graph: &'a GraphFile,
    pub(crate) solved: &'a SolvedGraph,
}

impl GraphPlanFile<'_> {
    /// A block list with offsets. It has room for one memory only.
    pub(crate) fn csv(&self) -> Result<String, Error> {
        let used: Vec<&MemoryPlan> =
            self.solved.plan.memories().iter().filter(|it| !it.plan.places().is_empty()).collect();
        let file = self.graph.file.clone();
        let memory = match used.as_slice() {
            [memory] => memory,
            _ => {
                let why = format!(
                    "{file}: has tensors in {} memories, and a CSV holds the blocks of one; write a .json instead",
                    used.len()
                );
                return Err(Error::Usage(why));
            }
        };
        let table = Table::of_plan(&memory.plan, unique_names(self.graph, memory));
        table.map(|table| table.to_string()).map_err(|source| Error::Table { file, source })
    }

    /// One object, without the end of its line.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (plan, figures) = (&self.solved.plan, &self.solved.figures);
        serde_json::to_string(&PlanFile {
            version: VERSION,
            file: &self.graph.file,
            strategy: figures.strategy,
            // The one that the plan keeps to: whoever checks it must allow what it does.
            reuse: reuse_name(plan.options().reuse),
            status: figures.status(),
            buffers: entries(figures),
            tensors: tensor_entries(self.graph, plan),
        })
    }
}

/// Names that several blocks have get the tensor's id as well.
fn unique_names(graph: &GraphFile, memory: &MemoryPlan) -> IdVec<BlockId, String> {
    let labels: Vec<String> = memory.tensors.iter().map(|tensor| graph.label(*tensor)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for label in &labels {
        *counts.entry(label).or_default() += 1;
    }
    let name = |(tensor, label): (&TensorId, &String)| match (counts.get(label.as_str()), graph.id(*tensor)) {
        (Some(2..), Some(id)) => format!("{label}#{id}"),
        _ => label.clone(),
    };
    memory.tensors.iter().zip(&labels).map(name).collect()
}

/// What `-o plan.json` holds.
#[derive(Debug, Serialize)]
struct PlanFile<'a> {
    version: u32,
    file: &'a str,
    strategy: &'static str,
    reuse: &'static str,
    status: &'static str,
    buffers: Vec<MemoryEntry<'a>>,
    tensors: Vec<TensorEntry<'a>>,
}

/// One tensor of a plan file.
#[derive(Debug, Serialize)]
struct TensorEntry<'a> {
    id: u64,
    name: &'a str,
    /// An index into `buffers`: which memory.
    buffer: usize,
    chunk: usize,
    offset: Offset,
    size: Bytes,
    first: i64,
    last: i64,
    op: String,
    r#type: String,
}

/// Every tensor with bytes of its own, also where it took them over; no views.
fn tensor_entries<'a>(graph: &'a GraphFile, plan: &GraphPlan) -> Vec<TensorEntry<'a>> {
    let entry = |tensor: TensorId| {
        let (memory, block) = plan.block(tensor)?;
        let place = plan.place(tensor)?;
        let (first, last) = nodes_of(memory.plan.problem().blocks()[block].life);
        Some(TensorEntry {
            id: graph.id(tensor)?,
            name: graph.assigned.graph().name(tensor),
            buffer: plan.memories().iter().position(|it| it.memory == memory.memory)?,
            chunk: place.buffer.index(),
            offset: place.offset,
            size: place.size,
            first,
            last,
            op: graph.operation(tensor),
            r#type: graph.assigned.graph().tensor(tensor).layout.to_string(),
        })
    };
    graph.placed().into_iter().filter_map(entry).collect()
}

/// The node that runs at a step; -1 is before the run.
pub(crate) fn node_of(step: Step) -> i64 {
    i64::try_from(step.0).unwrap_or(i64::MAX) - 1
}

/// The first and the last node of a lifetime, both inclusive.
pub(crate) fn nodes_of(life: Lifetime) -> (i64, i64) {
    (node_of(life.start()), node_of(life.end()) - 1)
}

/// What a plan file claims. Nobody has checked it, and its figures do not count.
#[derive(Debug)]
pub(crate) struct TensorPlan {
    pub(crate) file: String,
    pub(crate) reuse: Reuse,
    /// ggml knows no backends that read late, and its plans are not held to them.
    pub(crate) hold: Hold,
    pub(crate) buffers: Vec<BufferClaim>,
    pub(crate) tensors: Vec<TensorClaim>,
}

/// A memory as a plan file describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct BufferClaim {
    pub(crate) name: String,
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) lower_bound: Option<Bytes>,
}

/// A tensor as a plan file describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct TensorClaim {
    pub(crate) id: u64,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) buffer: usize,
    pub(crate) chunk: usize,
    pub(crate) offset: Offset,
    pub(crate) size: Bytes,
    /// The nodes at which it is there, what makes it, and its type and shape: for pictures alone.
    pub(crate) first: Option<i64>,
    pub(crate) last: Option<i64>,
    #[serde(default)]
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) r#type: String,
}

#[derive(Deserialize)]
struct Unchecked {
    #[serde(default)]
    strategy: String,
    #[serde(default)]
    reuse: ReuseClaim,
    buffers: Vec<BufferClaim>,
    tensors: Vec<TensorClaim>,
}

/// The reuse that a plan claims to keep to.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReuseClaim {
    Ggml,
    #[default]
    More,
    None,
}

impl TensorPlan {
    pub(crate) fn read(file: String, text: &str) -> Result<Self, Error> {
        let Unchecked { strategy, reuse, buffers, tensors } = match serde_json::from_str(text) {
            Ok(unchecked) => unchecked,
            Err(source) => return Err(Error::Json { file, source }),
        };
        let reuse = match reuse {
            ReuseClaim::Ggml => Reuse::Ggml,
            ReuseClaim::More => Reuse::More,
            ReuseClaim::None => Reuse::None,
        };
        let hold = if strategy == "ggml" { Hold::Ignored } else { Hold::Kept };
        Ok(Self { file, reuse, hold, buffers, tensors })
    }
}
