//! A record in, what is wrong with it out: the runtime checks nothing of it. O(tensors * tensors alive together).

use std::fmt;

use steeve_graph::TensorGraph;

use super::error::TfliteError;
use super::graph::{TfliteGraph, TfliteKey};
use super::greedy::tflm_placement;
use super::model::TensorIndex;
use super::names::BuiltinOp;
use super::program::ProgramStep;
use super::record::HeadRecord;
use super::sizes::{HEAD_ALIGN, TensorKind};

/// Something wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFault {
    /// The record has another number of tensors than the file: the runtime does not load it.
    Count {
        /// The tensors of the file.
        expected: usize,
        /// Those of the record.
        got: usize,
    },
    /// An offset is neither -1 nor a place in the head.
    Negative {
        /// The tensor.
        tensor: TensorIndex,
        /// Its name.
        name: String,
        /// The offset.
        offset: i64,
    },
    /// An offset is not a multiple of 16.
    Misaligned {
        /// The tensor.
        tensor: TensorIndex,
        /// Its name.
        name: String,
        /// The offset.
        offset: i64,
    },
    /// Two tensors share bytes while both are needed.
    Overlap {
        /// The tensor that is there first.
        tensor: TensorIndex,
        /// Its name.
        name: String,
        /// The one that overwrites it.
        other: TensorIndex,
        /// Its name.
        other_name: String,
        /// The first byte of the head that both have.
        byte: i64,
        /// The step at which both are needed.
        step: String,
    },
    /// The runtime takes a tensor to be elsewhere than the format says, since it looks up tensors of later subgraphs at the
    /// positions of the first one's.
    TwoReadings {
        /// The tensor.
        tensor: TensorIndex,
        /// Its name.
        name: String,
        /// Where the runtime takes it to be.
        runtime: i64,
        /// Where the format says it is.
        format: i64,
    },
}

impl RecordFault {
    /// Returns one word for it, which does not change.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Count { .. } => "count",
            Self::Negative { .. } => "outside",
            Self::Misaligned { .. } => "misaligned",
            Self::Overlap { .. } => "overlap",
            Self::TwoReadings { .. } => "two-readings",
        }
    }

    /// Returns the tensors that it is about.
    pub fn tensors(&self) -> Vec<TensorIndex> {
        match *self {
            Self::Count { .. } => Vec::new(),
            Self::Overlap { tensor, other, .. } => vec![tensor, other],
            Self::Negative { tensor, .. } | Self::Misaligned { tensor, .. } | Self::TwoReadings { tensor, .. } => {
                vec![tensor]
            }
        }
    }
}

impl fmt::Display for RecordFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { expected, got } => {
                write!(out, "record: wrong number of tensors: expected {expected}, got {got}")
            }
            Self::Negative { tensor, name, offset } => {
                write!(out, "record: tensor {tensor} ({name}): negative offset: expected -1 or more, got {offset}")
            }
            Self::Misaligned { tensor, name, offset } => {
                write!(
                    out,
                    "record: tensor {tensor} ({name}): misaligned: expected a multiple of {HEAD_ALIGN}, got {offset}"
                )
            }
            Self::Overlap { tensor, name, other, other_name, byte, step } => write!(
                out,
                "record: tensors {tensor} ({name}) and {other} ({other_name}) share byte {byte} while both are needed, at {step}"
            ),
            Self::TwoReadings { tensor, name, runtime, format } => write!(
                out,
                "record: tensor {tensor} ({name}) is at {runtime} for the runtime, which looks up tensors of all subgraphs from \
                 the start, and at {format} as the format says"
            ),
        }
    }
}

/// What a record does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordReport {
    /// What is wrong with it; empty if the model computes what it should.
    pub faults: Vec<RecordFault>,
    /// The bytes of the head that the runtime allocates; `None` if it does not load the file.
    pub head: Option<u64>,
    /// Where each tensor is, in the order of [`Model::tensors`](super::Model::tensors).
    pub offsets: Vec<Option<i64>>,
}

/// When a tensor needs its bytes: from one step to another, both inclusive. Step 0 is before the first of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl TfliteGraph<'_> {
    /// Judges a record that this or another program has made for the model: what the runtime would do with it, and whether
    /// any tensor is overwritten while it is needed. What kernels may do is what the options of the graph say.
    ///
    /// ```
    /// use steeve_models::tflite::{GraphOptions, HeadRecord, Model, SmallModel, TfliteGraph};
    ///
    /// let model = Model::read(SmallModel::chain(&[64, 32, 16]).to_bytes())?;
    /// let graph = TfliteGraph::new(&model, GraphOptions::default())?;
    /// let wrong = HeadRecord::new(&model, &[Some(0), Some(48), Some(0)])?;
    /// let report = graph.check_record(&wrong)?;
    /// assert_eq!(
    ///     report.faults[0].to_string(),
    ///     "record: tensors 0 (t0) and 1 (t1) share byte 48 while both are needed, at operator 0 (RELU)",
    /// );
    /// # Ok::<(), steeve_models::tflite::TfliteError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the model can't be planned.
    pub fn check_record(&self, record: &HeadRecord) -> Result<RecordReport, TfliteError> {
        let (expected, got) = (self.model.tensor_count(), record.offsets.len());
        if expected != got {
            let faults = vec![RecordFault::Count { expected, got }];
            return Ok(RecordReport { faults, head: None, offsets: vec![None; expected] });
        }
        let mut faults = self.check_offsets(record)?;
        let placement = tflm_placement(self.model, Some(record), &self.options.scratch)?;
        faults.extend(self.overlaps(&placement.offsets).into_iter().map(|it| self.overlap_fault(it)));
        Ok(RecordReport { faults, head: Some(placement.head), offsets: placement.offsets })
    }

    /// Checks the offsets one by one.
    fn check_offsets(&self, record: &HeadRecord) -> Result<Vec<RecordFault>, TfliteError> {
        let mut faults = Vec::new();
        let (runtime, format) = (record.effective_offsets(self.model)?, record.documented_offsets());
        let align = i64::try_from(HEAD_ALIGN).unwrap_or(1);
        for (position, tensor) in self.model.tensors().enumerate() {
            if !matches!(self.kinds[position], TensorKind::Planned(_) | TensorKind::Variable(_)) {
                continue;
            }
            let name = || self.name(TfliteKey::Tensor(tensor));
            if runtime[position] != format[position] {
                let (runtime, format) = (runtime[position].unwrap_or(-1), format[position].unwrap_or(-1));
                faults.push(RecordFault::TwoReadings { tensor, name: name(), runtime, format });
            }
            match runtime[position] {
                Some(offset) if offset < 0 => faults.push(RecordFault::Negative { tensor, name: name(), offset }),
                Some(offset) if offset % align != 0 => {
                    faults.push(RecordFault::Misaligned { tensor, name: name(), offset })
                }
                _ => {}
            }
        }
        Ok(faults)
    }

    /// Returns when each tensor needs its bytes; `None` for those that no step uses. A variable needs them always.
    pub(crate) fn lives(&self) -> Vec<Option<Life>> {
        let mut lives: Vec<Option<Life>> = vec![None; self.flat.len()];
        let end = self.program.steps.len() + 1;
        let mut use_at = |tensor: TensorIndex, step: usize| {
            let life = lives[self.flat.of(tensor)].get_or_insert(Life { first: step, last: step });
            life.last = life.last.max(step);
        };
        self.program.inputs.iter().for_each(|input| use_at(*input, 0));
        for (number, step) in self.program.steps.iter().enumerate() {
            let reads = step.reads.iter().filter(|tensor| !self.is_shape_alone(step, **tensor));
            step.results.iter().chain(reads).for_each(|tensor| use_at(*tensor, number + 1));
        }
        self.program.outputs.iter().for_each(|output| use_at(*output, end));
        for (life, kind) in lives.iter_mut().zip(&self.kinds) {
            match kind {
                TensorKind::Planned(_) => {}
                TensorKind::Variable(_) => *life = Some(Life { first: 0, last: end }),
                TensorKind::Constant(_) | TensorKind::Empty => *life = None,
            }
        }
        lives
    }

    /// Returns pairs of tensors that share bytes while both are needed, though no kernel allows it: the one that is there first
    /// comes first. At most one pair for each second tensor. What an accelerator plans itself is not looked into.
    pub(crate) fn overlaps(&self, offsets: &[Option<i64>]) -> Vec<Overlap> {
        let (lives, tensors): (_, Vec<TensorIndex>) = (self.lives(), self.model.tensors().collect());
        let arenas = self.model.accelerator_arenas();
        let placed = |position: usize| {
            if arenas.contains(&tensors[position]) {
                return None;
            }
            let size = match self.kinds[position] {
                TensorKind::Planned(size) | TensorKind::Variable(size) => i64::try_from(size).ok()?,
                _ => return None,
            };
            let (life, offset) = (lives[position]?, offsets[position]?);
            Some(Placed { tensor: tensors[position], life, offset, end: offset.saturating_add(size) })
        };
        let mut all: Vec<Placed> = (0..tensors.len()).filter_map(placed).collect();
        all.sort_by_key(|it| (it.life.first, it.tensor));
        let mut alive: Vec<Placed> = Vec::new();
        let mut found = Vec::new();
        for it in all {
            alive.retain(|other| other.life.last >= it.life.first);
            let fault =
                alive.iter().find(|other| other.offset < it.end && it.offset < other.end && !self.allows(other, &it));
            if let Some(other) = fault {
                found.push(Overlap {
                    first: other.tensor,
                    second: it.tensor,
                    byte: other.offset.max(it.offset),
                    step: it.life.first,
                });
            }
            alive.push(it);
        }
        found
    }

    /// Returns whether a step names a tensor only as the shape of a `RESHAPE`. No kernel reads that, as the result has its shape
    /// from the file, and compilers count on it.
    fn is_shape_alone(&self, step: &ProgramStep, tensor: TensorIndex) -> bool {
        let op = step.operator(self.model).filter(|op| self.model.builtin(op) == BuiltinOp::RESHAPE);
        let Some(op) = op else { return false };
        let mut slots = (0..op.inputs.len()).filter(|slot| op.inputs[*slot] == Some(tensor.tensor));
        let is_operand = tensor.subgraph == step.subgraph && op.inputs.contains(&Some(tensor.tensor));
        is_operand && slots.all(|slot| !self.model.is_read(op, slot)) && !op.outputs.contains(&tensor.tensor)
    }

    /// Returns whether a kernel allows that `result` shares bytes with `source`, which it reads.
    fn allows(&self, source: &Placed, result: &Placed) -> bool {
        let born = result.life.first;
        if source.life.last != born || source.life.first == born || born == 0 {
            return false;
        }
        // Its compiler has ordered what it reads and writes.
        if self.program.steps[born - 1].operator(self.model).is_some_and(|op| self.model.is_accelerated(op)) {
            return self.program.steps[born - 1].reads.contains(&source.tensor);
        }
        let (node, read) = (TfliteKey::Tensor(result.tensor), TfliteKey::Tensor(source.tensor));
        if self.program.steps[born - 1].results.first() != Some(&result.tensor) {
            return false;
        }
        let in_place = source.offset == result.offset && result.end <= source.end && self.kernel_overwrites(node, read);
        let distance = self.kernel_overlap(node, read).and_then(|bytes| i64::try_from(bytes).ok());
        in_place || distance.is_some_and(|distance| source.offset.saturating_sub(result.offset) >= distance)
    }

    fn overlap_fault(&self, it: Overlap) -> RecordFault {
        let name = |tensor| self.name(TfliteKey::Tensor(tensor));
        RecordFault::Overlap {
            tensor: it.first,
            name: name(it.first),
            other: it.second,
            other_name: name(it.second),
            byte: it.byte,
            step: self.describe_step(it.step),
        }
    }
}

/// Two tensors that share bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    pub(crate) first: TensorIndex,
    pub(crate) second: TensorIndex,
    byte: i64,
    step: usize,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    tensor: TensorIndex,
    life: Life,
    offset: i64,
    end: i64,
}
