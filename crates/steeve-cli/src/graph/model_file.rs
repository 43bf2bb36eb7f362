//! A TFLite model as the command plans it: its graph, the runtime's own plan, and the record of a plan.
//!
//! ```text
//!   bytes --read--> ModelFile --with_kernels--> ModelFile --keyed--> GraphFile --solve--> plan
//!                       |-- tflm: what TensorFlow Lite Micro does by itself                 |
//!                       |-- record: the plan that is in the file           planned <--------'
//! ```

use std::sync::Arc;

use steeve_graph::{
    AssignedGraph, Bytes, GraphPlan, GraphStrategy, Id, KeyedGraph, Offset, PlanFile, PlanOptions, Reuse, TensorId,
    Unread, plan_graph,
};
use steeve_models::tflite::{
    GraphOptions, HeadPlan, HeadRecord, KernelSet, Model, RecordFault, RecordReport, TensorIndex, TfliteError,
    TfliteGraph, TfliteKey, reference_scratch, tflm_placement, uniform_scratch,
};
use steeve_view::PlanMap;

use crate::args::{KernelArgs, KernelSetName};
use crate::check_fault::CheckFault;
use crate::error::{Error, ErrorChain};
use crate::existing_plan::ExistingPlan;
use crate::plan_figures::EnginePlanner;

/// A model, and what is assumed of the kernels that run it.
#[derive(Debug)]
pub(crate) struct ModelFile {
    file: String,
    model: Arc<Model>,
    options: GraphOptions,
    keyed: KeyedGraph<TfliteKey>,
}

impl ModelFile {
    pub(crate) fn new(file: String, model: Model) -> Result<Self, Error> {
        let scratch = reference_scratch(&model);
        Self::with_options(file, Arc::new(model), GraphOptions::default().with_scratch(scratch))
    }

    fn with_options(file: String, model: Arc<Model>, options: GraphOptions) -> Result<Self, Error> {
        let keyed = match TfliteGraph::new(&model, options.clone()) {
            Ok(graph) => KeyedGraph::new(&graph),
            Err(source) => return Err(Error::Tflite { file, source }),
        };
        match keyed {
            Ok(keyed) => Ok(Self { file, model, options, keyed }),
            Err(error) => Err(Error::Place { file, why: ErrorChain(&error).to_string() }),
        }
    }

    /// Returns the model under what the command line says of its kernels.
    pub(crate) fn with_kernels(&self, kernels: &KernelArgs) -> Result<Self, Error> {
        let set = |name: Option<KernelSetName>| match name {
            Some(KernelSetName::TflmReference) => KernelSet::TflmReference,
            None => KernelSet::Any,
        };
        let mut scratch = reference_scratch(&self.model);
        scratch.extend(uniform_scratch(&self.model, kernels.scratch.map_or(0, |bytes| bytes.0)));
        let options = GraphOptions::default()
            .with_in_place(set(kernels.in_place.or(kernels.overlap)))
            .with_overlap(set(kernels.overlap))
            .with_scratch(scratch);
        Self::with_options(self.file.clone(), self.model.clone(), options)
    }

    /// Returns the model's graph, for one memory: the head of the arena.
    pub(crate) fn assigned(&self) -> &AssignedGraph {
        self.keyed.assigned()
    }

    fn graph(&self) -> Result<TfliteGraph<'_>, Error> {
        self.result(TfliteGraph::new(&self.model, self.options.clone()))
    }

    fn result<T>(&self, result: Result<T, TfliteError>) -> Result<T, Error> {
        result.map_err(|source| Error::Tflite { file: self.file.clone(), source })
    }

    /// Returns the bytes of the head that any plan takes for tensors that nothing uses.
    pub(crate) fn unused_bytes(&self) -> Bytes {
        Bytes(self.graph().map_or(0, |graph| graph.unused_bytes()))
    }

    /// Returns the bytes of the head that TensorFlow Lite Micro allocates by itself.
    pub(crate) fn tflm_head(&self) -> Option<Bytes> {
        tflm_placement(&self.model, None, &self.options.scratch).ok().map(|placement| Bytes(placement.head))
    }

    /// Returns TensorFlow Lite Micro's own plan as a map, without buffers of kernels.
    pub(crate) fn tflm_map(&self) -> Option<PlanMap> {
        let placement = tflm_placement(&self.model, None, &[]).ok()?;
        self.map_of(EnginePlanner::Tflm.name(), placement.head, &placement.offsets)
    }

    /// Returns the plan that is in the file; `None` if there is none. It is wrong if it holds for no kernels that are known, and an
    /// error if the runtime would not load it.
    pub(crate) fn recorded_plan(&self, name: &str) -> Result<Option<ExistingPlan>, Error> {
        let Some(record) = self.record()? else { return Ok(None) };
        let placement = self.result(tflm_placement(&self.model, Some(&record), &[]))?;
        let Some(map) = self.map_of(name, placement.head, &placement.offsets) else { return Ok(None) };
        let known =
            GraphOptions::default().with_in_place(KernelSet::TflmReference).with_overlap(KernelSet::TflmReference);
        let graph = self.result(TfliteGraph::new(&self.model, known))?;
        let faults = self.result(graph.check_record(&record))?.faults;
        Ok(Some(ExistingPlan { map, wrong: ExistingPlan::sentence(faults.iter().map(RecordFault::to_string)) }))
    }

    /// Draws offsets of tensors, in the order of the model's, as the plan that they are.
    fn map_of(&self, name: &str, head: u64, offsets: &[Option<i64>]) -> Option<PlanMap> {
        let graph = TfliteGraph::new(&self.model, GraphOptions::default()).ok()?;
        let keyed = KeyedGraph::new(&graph).ok()?;
        let options = PlanOptions::new(GraphStrategy::Fast).with_reuse(Reuse::None).with_unread(Unread::Free);
        let mut file: PlanFile = plan_graph(keyed.assigned(), &options).ok()?.to_file();
        let offset_of: Vec<(TensorIndex, Option<i64>)> = self.model.tensors().zip(offsets.iter().copied()).collect();
        for memory in &mut file.memories {
            memory.buffers = vec![Bytes(head)];
            memory.peak = Bytes(head);
            for block in &mut memory.blocks {
                let id = TensorId::from_index(block.tensor.as_ref()?.id as usize)?;
                let Some(TfliteKey::Tensor(index)) = keyed.key(id) else { continue };
                let placed = offset_of.binary_search_by_key(&index, |it| it.0).ok().and_then(|it| offset_of[it].1);
                block.offset = Offset(placed.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0));
            }
        }
        let mut map = PlanMap::of_file(name, &file);
        self.describe_with(&keyed, &mut map);
        Some(map)
    }

    /// Writes the types and shapes of the model into a map of one of its plans.
    pub(crate) fn describe(&self, map: &mut PlanMap) {
        self.describe_with(&self.keyed, map);
    }

    fn describe_with(&self, keyed: &KeyedGraph<TfliteKey>, map: &mut PlanMap) {
        for tile in map.memories.iter_mut().flat_map(|memory| &mut memory.tiles) {
            let key = tile.id.and_then(|id| keyed.key(TensorId::from_index(id as usize)?));
            if let Some(layout) = key.and_then(|key| self.layout(key)) {
                tile.layout = layout;
            }
        }
    }

    /// Returns type and shape of a tensor as TensorFlow writes them.
    fn layout(&self, key: TfliteKey) -> Option<String> {
        let TfliteKey::Tensor(index) = key else { return None };
        let tensor = self.model.tensor(index)?;
        let shape: Vec<String> = tensor.shape.iter().map(i32::to_string).collect();
        Some(format!("{}[{}]", tensor.data_type.name().to_lowercase(), shape.join(",")))
    }

    /// Returns the number of a tensor in the file, counted through all subgraphs.
    pub(crate) fn id(&self, tensor: TensorId) -> Option<u64> {
        match self.keyed.key(tensor)? {
            TfliteKey::Tensor(index) => self.model.tensors().position(|it| it == index).map(|it| it as u64),
            _ => None,
        }
    }

    /// Runs the kernels' reads and writes byte by byte where a plan lets a result and a source overlap. Returns what is read too late.
    pub(crate) fn overlap_faults(&self, plan: &GraphPlan) -> Result<Vec<CheckFault>, Error> {
        let offset = |index| plan.place(self.keyed.number(TfliteKey::Tensor(index))?).map(|place| place.offset.0);
        let offsets: Vec<Option<i64>> =
            self.model.tensors().map(|index| offset(index).and_then(|it| i64::try_from(it).ok())).collect();
        self.replay_overlaps(&offsets)
    }

    /// Runs the kernels' reads and writes byte by byte where a result and a source overlap at these offsets, in the order of the
    /// model's tensors.
    fn replay_overlaps(&self, offsets: &[Option<i64>]) -> Result<Vec<CheckFault>, Error> {
        let faults = self.graph()?.replay_overlaps(offsets);
        Ok(faults.iter().map(|fault| CheckFault::new("overlap", fault.to_string())).collect())
    }

    /// Returns the record of a plan.
    pub(crate) fn head_plan(&self, plan: &GraphPlan) -> Result<HeadPlan, Error> {
        if plan.memories().iter().any(|it| it.plan.buffers().len() > 1) {
            let why = format!("{}: the head is one buffer: leave out --max-buffer", self.file);
            return Err(Error::Usage(why));
        }
        let offset = |key| plan.place(self.keyed.number(key)?).map(|place| place.offset);
        let head = self.graph()?.head_plan(offset);
        self.result(head)
    }

    /// Returns the file with the record of a plan.
    pub(crate) fn with_record(&self, record: &HeadRecord) -> Result<Vec<u8>, Error> {
        self.result(self.model.with_record(record))
    }

    /// Returns the record that is in the file.
    pub(crate) fn record(&self) -> Result<Option<HeadRecord>, Error> {
        self.result(HeadRecord::of(&self.model))
    }

    /// Judges a record for this model. Where no fault is found, the kernels' reads and writes are run as well.
    pub(crate) fn judge(&self, record: &HeadRecord) -> Result<(RecordReport, Vec<CheckFault>), Error> {
        let report = self.result(self.graph()?.check_record(record))?;
        let faults = match report.faults.as_slice() {
            [] => self.replay_overlaps(&report.offsets)?,
            faults => faults.iter().map(|fault| self.record_fault(fault)).collect(),
        };
        Ok((report, faults))
    }

    /// Refuses a model that no plan can be made for, as its operators have their addresses in them.
    pub(crate) fn check_not_compiled(&self) -> Result<(), Error> {
        self.result(self.model.check_not_compiled())
    }

    /// Returns the option that says of which kernels a plan can be right that is wrong for others.
    pub(crate) fn kernels_that_allow(
        &self,
        is_right: impl Fn(&Self) -> Result<bool, Error>,
    ) -> Result<Option<&'static str>, Error> {
        let reference = Some(KernelSetName::TflmReference);
        let in_place = KernelArgs { in_place: reference, ..KernelArgs::default() };
        let overlap = KernelArgs { overlap: reference, ..KernelArgs::default() };
        for (kernels, option) in [(in_place, "--in-place tflm-reference"), (overlap, "--overlap tflm-reference")] {
            if is_right(&self.with_kernels(&kernels)?)? {
                return Ok(Some(option));
            }
        }
        Ok(None)
    }

    /// Returns a fault of a record with the numbers of its tensors.
    fn record_fault(&self, fault: &RecordFault) -> CheckFault {
        let number = |index: &TensorIndex| self.model.tensors().position(|it| it == *index).map(|it| it as u64);
        CheckFault::of_tensors(fault.kind(), fault.tensors().iter().map(number), fault.to_string())
    }
}

/// What the bytes of a head do not have in them.
pub(crate) const BESIDE_HEAD: &str = "buffers of optimised kernels come on top, see --scratch";

/// Says how large the head is with a record.
pub(crate) fn describe_head(head: &HeadPlan) -> String {
    let HeadPlan { head: bytes, tflm_head, .. } = head;
    let beside = BESIDE_HEAD;
    if head.is_tflm {
        return format!(
            "no plan of ours is smaller: TensorFlow Lite Micro plans its {tflm_head} bytes itself; {beside}"
        );
    }
    let online = match head.online {
        0 => String::new(),
        1 => " (1 tensor placed by the runtime itself)".to_owned(),
        count => format!(" ({count} tensors placed by the runtime itself)"),
    };
    format!("head of {bytes} bytes, {tflm_head} without a plan{online}; {beside}")
}
