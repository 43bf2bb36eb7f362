//! The plan of a graph as a file (`-o plan.json`, `-o plan.csv`), and its claims back from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steeve_graph::{Bytes, GraphPlan, Id, IdVec, MemoryPlan, Offset, Reuse, TensorId, Unread};
use steeve_plan::csv::Table;
use steeve_plan::{Align, BlockId, Lifetime, Step};

use super::file::GraphFile;
use super::solve::{SolvedGraph, reuse_name, unread_name};
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
        let mut buffers = entries(figures);
        for (buffer, memory) in buffers.iter_mut().zip(plan.memories()) {
            buffer.alignment = Some(self.graph.assigned.memories()[memory.memory].align);
            buffer.keeps_hold = memory.keeps_hold || figures.strategy == "ggml";
        }
        serde_json::to_string(&PlanFile {
            version: VERSION,
            file: &self.graph.file,
            strategy: figures.strategy,
            // The one that the plan keeps to: whoever checks it must allow what it does.
            reuse: reuse_name(plan.options().reuse),
            unread: unread_name(plan.options().unread),
            planned_as: self.graph.as_drop_in.then_some(DROP_IN),
            status: figures.status(),
            buffers,
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

/// What a plan file calls the rules of the drop-in.
const DROP_IN: &str = "drop-in";

/// What `-o plan.json` holds.
#[derive(Debug, Serialize)]
struct PlanFile<'a> {
    version: u32,
    file: &'a str,
    strategy: &'static str,
    reuse: &'static str,
    unread: &'static str,
    /// Whose rules it was planned by.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    planned_as: Option<&'static str>,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flags: Vec<&'static str>,
    /// The tensor whose bytes it was given at once, for the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<u64>,
    /// The tensor whose bytes it takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    views: Vec<ViewEntry<'a>>,
}

/// A tensor within the bytes of another.
#[derive(Debug, Serialize)]
struct ViewEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    name: &'a str,
    offset: Offset,
    size: Bytes,
}

/// The views of each tensor with bytes of its own.
fn view_entries<'a>(graph: &'a GraphFile, plan: &GraphPlan) -> BTreeMap<TensorId, Vec<ViewEntry<'a>>> {
    let it = graph.assigned.graph();
    let mut views: BTreeMap<TensorId, Vec<ViewEntry<'a>>> = BTreeMap::new();
    for view in it.tensors().ids().filter(|tensor| it.tensor(*tensor).is_view()) {
        let Some(place) = plan.place(view) else { continue };
        let (id, name) = (graph.id(view), it.name(view));
        views.entry(it.root(view)).or_default().push(ViewEntry { id, name, offset: place.offset, size: place.size });
    }
    views
}

/// Every tensor with bytes of its own, also where it took them over, with its views.
fn tensor_entries<'a>(graph: &'a GraphFile, plan: &GraphPlan) -> Vec<TensorEntry<'a>> {
    let mut views = view_entries(graph, plan);
    let entry = |tensor: TensorId| {
        let (memory, block) = plan.block(tensor)?;
        let place = plan.place(tensor)?;
        let it = memory.plan.problem().blocks()[block];
        let (first, last) = nodes_of(it.life);
        let owner = memory.tensors[block];
        let is_owner = owner == tensor;
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
            flags: graph.assigned.graph().tensor(tensor).flags.names().collect(),
            within: if is_owner { None } else { graph.id(owner) },
            follows: it.follows.filter(|_| is_owner).and_then(|before| graph.id(memory.tensors[before])),
            views: views.remove(&tensor).unwrap_or_default(),
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
    pub(crate) unread: Unread,
    /// ggml knows no backends that read late, and its plans are not held to them.
    pub(crate) keeps_hold: bool,
    /// Whether it was planned as the drop-in does, and is held to that.
    pub(crate) as_drop_in: bool,
    pub(crate) buffers: Vec<BufferClaim>,
    pub(crate) tensors: Vec<TensorClaim>,
}

/// A memory as a plan file describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct BufferClaim {
    pub(crate) name: String,
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) lower_bound: Option<Bytes>,
    /// Older files do not say.
    pub(crate) alignment: Option<Align>,
    /// Whether live ranges are extended as the memory asks. False where a plan as the drop-in makes it has ggml's layout.
    #[serde(default = "yes")]
    pub(crate) keeps_hold: bool,
}

fn yes() -> bool {
    true
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
    /// The nodes at which it is there, what makes it, its type and shape, and all that follows: for pictures and headers
    /// alone.
    pub(crate) first: Option<i64>,
    pub(crate) last: Option<i64>,
    #[serde(default)]
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) r#type: String,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    pub(crate) within: Option<u64>,
    pub(crate) follows: Option<u64>,
    #[serde(default)]
    pub(crate) views: Vec<ViewClaim>,
}

/// A view as a plan file describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct ViewClaim {
    pub(crate) id: Option<u64>,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) offset: Offset,
    pub(crate) size: Bytes,
}

#[derive(Deserialize)]
struct Unchecked {
    #[serde(default)]
    strategy: String,
    #[serde(default)]
    reuse: ReuseClaim,
    #[serde(default)]
    unread: UnreadClaim,
    #[serde(rename = "as", default)]
    planned_as: Option<String>,
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

/// How long a plan claims to keep what no node reads. Older files do not say, and keep it.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum UnreadClaim {
    #[default]
    Keep,
    FreeInputs,
    Free,
}

impl TensorPlan {
    pub(crate) fn read(file: String, text: &str) -> Result<Self, Error> {
        let Unchecked { strategy, reuse, unread, planned_as, buffers, tensors } = match serde_json::from_str(text) {
            Ok(unchecked) => unchecked,
            Err(source) => return Err(Error::Json { file, source }),
        };
        let reuse = match reuse {
            ReuseClaim::Ggml => Reuse::Ggml,
            ReuseClaim::More => Reuse::More,
            ReuseClaim::None => Reuse::None,
        };
        let unread = match unread {
            UnreadClaim::Keep => Unread::Keep,
            UnreadClaim::FreeInputs => Unread::FreeInputs,
            UnreadClaim::Free => Unread::Free,
        };
        let (keeps_hold, as_drop_in) = (strategy != "ggml", planned_as.as_deref() == Some(DROP_IN));
        Ok(Self { file, reuse, unread, keeps_hold, as_drop_in, buffers, tensors })
    }
}
