//! A graph as a file gives it, under the limits of the command line.

use std::cell::OnceCell;

use steeve_graph::recorded::{BackendNeeds, RecordedPlacement};
use steeve_graph::{
    AssignedGraph, Bytes, Fusion, Id, IdVec, Memory, MemoryId, RecordedGraph, TensorId, Unread, ggml_placement,
};

use super::language_file::LanguageFile;
use super::model_file::ModelFile;
use super::onnx_file::OnnxFile;
use crate::args::{KernelArgs, LanguageArgs, LimitArgs, PlanningArgs};
use crate::error::{Error, ErrorChain};
use crate::plan_figures::{EnginePlanner, sum};

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
    engine_bytes: OnceCell<IdVec<MemoryId, Option<Bytes>>>,
    /// The TFLite model that it is the graph of.
    model: Option<Box<ModelFile>>,
    /// The ONNX model that it is the graph of.
    onnx: Option<Box<OnnxFile>>,
    /// The language model that it is a graph of.
    language: Option<Box<LanguageFile>>,
}

impl GraphFile {
    pub(crate) fn recorded(file: String, recorded: RecordedGraph) -> Self {
        let RecordedGraph { assigned, ids, placement: answer, hosts, needs, .. } = recorded;
        Self { ids: Some(ids), hosts, needs, answer: Some(answer), ..Self::text(file, assigned) }
    }

    pub(crate) fn text(file: String, assigned: AssignedGraph) -> Self {
        Self {
            file,
            assigned,
            ids: None,
            hosts: IdVec::new(),
            needs: IdVec::new(),
            as_drop_in: false,
            answer: None,
            engine_bytes: OnceCell::new(),
            model: None,
            onnx: None,
            language: None,
        }
    }

    pub(crate) fn of_model(file: String, model: ModelFile) -> Self {
        let assigned = model.assigned().clone();
        Self { model: Some(Box::new(model)), ..Self::text(file, assigned) }
    }

    pub(crate) fn of_onnx(file: String, onnx: OnnxFile) -> Self {
        let assigned = onnx.assigned().clone();
        Self { onnx: Some(Box::new(onnx)), ..Self::text(file, assigned) }
    }

    /// Returns the ONNX model that it is the graph of.
    pub(crate) fn onnx(&self) -> Option<&OnnxFile> {
        self.onnx.as_deref()
    }

    pub(crate) fn of_language_model(file: String, model: LanguageFile) -> Self {
        let assigned = model.memory().prompt.clone();
        Self { language: Some(Box::new(model)), ..Self::text(file, assigned) }
    }

    /// Returns the language model that it is a graph of; `None` for all others.
    pub(crate) fn language_model(&self) -> Option<&LanguageFile> {
        self.language.as_deref()
    }

    /// Returns the kind of model that it is the graph of, with an article; `None` for a recorded or written graph.
    pub(crate) fn model_kind(&self) -> Option<&'static str> {
        match (&self.model, &self.onnx, &self.language) {
            (Some(_), ..) => Some("a TFLite model"),
            (None, Some(_), _) => Some("an ONNX model"),
            (None, None, Some(_)) => Some("a GGUF model"),
            (None, None, None) => None,
        }
    }

    /// Returns the graph of a language model for the size that the command line asks for.
    pub(crate) fn sized(self, args: &LanguageArgs) -> Result<Self, Error> {
        match &self.language {
            Some(model) if !args.given().is_empty() => {
                Ok(Self::of_language_model(self.file.clone(), model.with_size(args)?))
            }
            Some(_) => Ok(self),
            None => args.reject_for(&self.file, self.model_kind().unwrap_or("a graph")).map(|()| self),
        }
    }

    /// Returns the TFLite model that it is the graph of; `None` for any other graph.
    pub(crate) fn model(&self) -> Option<&ModelFile> {
        self.model.as_deref()
    }

    /// Returns what becomes of tensors that no node reads, if the command line does not say: in a model only outputs are read.
    pub(crate) fn unread(&self) -> Unread {
        if self.model_kind().is_some() { Unread::Free } else { Unread::default() }
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
        if let Some(kind) = self.model_kind() {
            planning.reject_for_model(&self.file, kind)?;
        }
        match &self.model {
            Some(_) => self.with_kernels(&planning.kernels),
            None => {
                planning.kernels.reject_for(&self.file, self.model_kind().unwrap_or("a graph"))?;
                if planning.planned_as.is_some() { self.for_drop_in() } else { Ok(self) }
            }
        }
    }

    /// Returns this graph, of a model, under what is said of the model's kernels, within its memories of now.
    pub(crate) fn with_kernels(&self, kernels: &KernelArgs) -> Result<Self, Error> {
        let memories = self.assigned.memories();
        let model = match &self.model {
            Some(model) => model.with_kernels(kernels)?,
            None => return Err(Error::NotAModel { file: self.file.clone(), out: "--overlap".to_owned() }),
        };
        Self::of_model(self.file.clone(), model).with_memories(|id, _| memories[id].clone())
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
        Ok(Self { answer: None, engine_bytes: OnceCell::new(), ..graph })
    }

    /// Returns ggml's recorded places, if there are any.
    pub(crate) fn answer(&self) -> Option<&RecordedPlacement> {
        self.answer.as_ref()
    }

    /// Returns whose own plan of this graph ours is compared with.
    pub(crate) fn engine(&self) -> EnginePlanner {
        if self.model.is_some() { EnginePlanner::Tflm } else { EnginePlanner::Ggml }
    }

    /// Returns the bytes that the engine's own plan needs in a memory: recorded, or else simulated once.
    pub(crate) fn engine_bytes(&self, memory: MemoryId) -> Option<Bytes> {
        if let Some(model) = &self.model {
            return model.tflm_head();
        }
        // No runtime plans these models in a way that ours could be compared with.
        if self.onnx.is_some() {
            return None;
        }
        let worked_out = || {
            let chunks = match &self.answer {
                Some(answer) => Some(answer.chunks.clone()),
                None => ggml_placement(&self.assigned).ok().map(|answer| answer.chunks),
            };
            let bytes = |memory| Some(sum(chunks.as_ref()?.get(memory)?.iter().copied()));
            self.assigned.memories().ids().map(bytes).collect()
        };
        self.engine_bytes.get_or_init(worked_out).get(memory).copied().flatten()
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
        if let Some(model) = &self.model {
            return model.id(tensor);
        }
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
