//! A graph as a file gives it, under the limits of the command line.

use std::cell::OnceCell;

use steeve_graph::recorded::{BackendNeeds, RecordedPlacement};
use steeve_graph::{
    AssignedGraph, Bytes, Fusion, Id, IdVec, Memory, MemoryId, RecordedGraph, TensorId, ggml_placement,
};

use crate::args::{LimitArgs, PlanningArgs};
use crate::error::{Error, ErrorChain};
use crate::plan_figures::sum;

/// A graph, what its file calls the tensors, and what ggml answered for it.
#[derive(Debug)]
pub(crate) struct GraphFile {
    /// The file as the user named it.
    pub(crate) file: String,
    pub(crate) assigned: AssignedGraph,
    /// The ids of the record; tensors of a text are counted from 0.
    ids: Option<IdVec<TensorId, Option<u64>>>,
    /// Whether nodes of each memory are computed by a CPU alone, where the record says so.
    hosts: IdVec<MemoryId, Option<bool>>,
    /// What was kept for the backend of each memory, where the record says so.
    needs: IdVec<MemoryId, Option<BackendNeeds>>,
    /// Whether it is planned as the drop-in would.
    pub(crate) as_drop_in: bool,
    /// ggml's own answer, as long as it is one to this question.
    answer: Option<RecordedPlacement>,
    ggml: OnceCell<IdVec<MemoryId, Option<Bytes>>>,
}

impl GraphFile {
    pub(crate) fn recorded(file: String, recorded: RecordedGraph) -> Self {
        let RecordedGraph { assigned, ids, placement: answer, hosts, needs, .. } = recorded;
        let ids = Some(ids);
        Self { file, assigned, ids, hosts, needs, as_drop_in: false, answer: Some(answer), ggml: OnceCell::new() }
    }

    pub(crate) fn text(file: String, assigned: AssignedGraph) -> Self {
        let (hosts, needs) = (IdVec::new(), IdVec::new());
        Self { file, assigned, ids: None, hosts, needs, as_drop_in: false, answer: None, ggml: OnceCell::new() }
    }

    /// Returns the graph with each memory as the drop-in takes it: as the drop-in has recorded it, or else by default. Nodes of host
    /// memory run one by one, and all others are taken for those of a backend that checks what it fuses. What a file does not say
    /// of that is taken from the names: `CPU` and `*_Host` are host memory.
    pub(crate) fn for_drop_in(self) -> Result<Self, Error> {
        let (hosts, needs) = (self.hosts.clone(), self.needs.clone());
        let graph = self.with_memories(|id, memory| {
            let by_name = memory.name == "CPU" || memory.name.ends_with("_Host");
            let is_host = hosts.get(id).copied().flatten().unwrap_or(by_name);
            let default = BackendNeeds { extra_lifetime: 0, fusion: if is_host { Fusion::None } else { Fusion::Kept } };
            let BackendNeeds { extra_lifetime, fusion } = needs.get(id).copied().flatten().unwrap_or(default);
            Memory { extra_lifetime, fusion, ..memory.clone() }
        })?;
        Ok(Self { as_drop_in: true, ..graph })
    }

    /// Returns this graph under the rules that the command line plans it by.
    pub(crate) fn planned_as(self, planning: &PlanningArgs) -> Result<Self, Error> {
        if planning.planned_as.is_some() { self.for_drop_in() } else { Ok(self) }
    }

    fn with_memories(self, change: impl Fn(MemoryId, &Memory) -> Memory) -> Result<Self, Error> {
        let memories: IdVec<MemoryId, Memory> =
            self.assigned.memories().pairs().map(|(id, memory)| change(id, memory)).collect();
        let (assignment, sizes) = (self.assigned.assignment().clone(), self.assigned.sizes().clone());
        match AssignedGraph::new(self.assigned.graph().clone(), memories, assignment, sizes) {
            Ok(assigned) => Ok(Self { assigned, ..self }),
            Err(error) => Err(Error::Place { file: self.file, why: ErrorChain(&error).to_string() }),
        }
    }

    /// Returns this graph under other limits. If these change a memory, ggml's recorded answer is dropped.
    pub(crate) fn limited(self, limits: &LimitArgs) -> Result<Self, Error> {
        if limits.pinned {
            let why = format!("{}: --pinned is for block lists: got a graph", self.file);
            return Err(Error::Usage(why));
        }
        let limited = |memory: &Memory| Memory {
            align: limits.align.map_or(memory.align, |align| align.max(memory.align)),
            max_buffer: limits.max_buffer.or(memory.max_buffer),
            ..memory.clone()
        };
        if self.assigned.memories().iter().all(|memory| limited(memory) == *memory) {
            return Ok(self);
        }
        let graph = self.with_memories(|_, memory| limited(memory))?;
        Ok(Self { answer: None, ggml: OnceCell::new(), ..graph })
    }

    /// Returns ggml's recorded places, if there are any.
    pub(crate) fn answer(&self) -> Option<&RecordedPlacement> {
        self.answer.as_ref()
    }

    /// Returns the bytes that ggml needs in a memory: recorded, or else simulated once.
    pub(crate) fn ggml(&self, memory: MemoryId) -> Option<Bytes> {
        let worked_out = || {
            let chunks = match &self.answer {
                Some(answer) => Some(answer.chunks.clone()),
                None => ggml_placement(&self.assigned).ok().map(|answer| answer.chunks),
            };
            let bytes = |memory| Some(sum(chunks.as_ref()?.get(memory)?.iter().copied()));
            self.assigned.memories().ids().map(bytes).collect()
        };
        self.ggml.get_or_init(worked_out).get(memory).copied().flatten()
    }

    /// Returns the memories that do not share another's, in order.
    pub(crate) fn owners(&self) -> impl Iterator<Item = MemoryId> {
        self.assigned.owners()
    }

    pub(crate) fn memory_name(&self, memory: MemoryId) -> &str {
        &self.assigned.memories()[memory].name
    }

    /// Returns the id of a tensor in its file; `None` for stand-ins for tensors that a record does not describe.
    pub(crate) fn id(&self, tensor: TensorId) -> Option<u64> {
        match &self.ids {
            Some(ids) => ids.get(tensor).copied().flatten(),
            None => Some(tensor.index() as u64),
        }
    }

    /// Returns the label of a tensor in a table: its name, or else its id.
    pub(crate) fn label(&self, tensor: TensorId) -> String {
        match (self.assigned.graph().name(tensor), self.id(tensor)) {
            ("", Some(id)) => format!("#{id}"),
            (name, _) => name.to_owned(),
        }
    }
}
