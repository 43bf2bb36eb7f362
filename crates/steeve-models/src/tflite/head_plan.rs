//! Planned offsets in, the record for the runtime out, with what the runtime makes of it. O(tensors^2).

use std::collections::BTreeSet;

use steeve_graph::Offset;

use super::error::TfliteError;
use super::graph::{TfliteGraph, TfliteKey};
use super::greedy::tflm_placement;
use super::program::StepKind;
use super::record::{HeadRecord, RecordClasses};
use super::sizes::TensorKind;

/// A record, and the head that the runtime allocates with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadPlan {
    /// The record to write into the file.
    pub record: HeadRecord,
    /// The bytes of the head with the record.
    pub head: u64,
    /// The bytes of the head without any record.
    pub tflm_head: u64,
    /// How many tensors the runtime places itself, around those that the record places.
    pub online: usize,
    /// Whether the record leaves everything to the runtime, because a plan would take more, or would not be right.
    pub is_tflm: bool,
}

impl TfliteGraph<'_> {
    /// Makes the record of a plan, by where it locates each tensor of the head.
    ///
    /// Scratch buffers of the options are placed as the runtime does, around the record. Where a model has several subgraphs, a
    /// tensor whose place the runtime would look up elsewhere (see [`HeadRecord`]) is left to the runtime. A plan
    /// with which the runtime would take more bytes than by itself is not used.
    ///
    /// # Errors
    ///
    /// If an offset is not a multiple of 16 below 2^31, or operators have been compiled for an accelerator, with the addresses of
    /// the record that the file has.
    pub fn head_plan(&self, place: impl Fn(TfliteKey) -> Option<Offset>) -> Result<HeadPlan, TfliteError> {
        self.model.check_not_compiled()?;
        let lives = self.lives();
        let wish = |(position, tensor)| match (self.kinds[position], lives[position]) {
            (TensorKind::Planned(_), Some(_)) => place(TfliteKey::Tensor(tensor)).map(|offset| offset.0),
            // No operator touches it: any place will do, and the runtime would make room for all of these together.
            (TensorKind::Planned(_), None) => Some(0),
            _ => None,
        };
        let wishes: Vec<Option<u64>> = self.model.tensors().enumerate().map(wish).collect();
        let record = self.reconcile(&wishes)?;
        let tflm_head = tflm_placement(self.model, None, &self.options.scratch)?.head;
        let report = self.check_record(&record)?;
        let planned = self.kinds.iter().filter(|kind| matches!(kind, TensorKind::Planned(_))).count();
        match report.head {
            Some(head) if report.faults.is_empty() && head <= tflm_head => {
                let placed = record.effective_offsets(self.model)?;
                let fixed =
                    placed.iter().zip(&self.kinds).filter(|(at, kind)| at.is_some() && kind.planned().is_some());
                let online = planned - fixed.count();
                Ok(HeadPlan { record, head, tflm_head, online, is_tflm: false })
            }
            _ => {
                let record = HeadRecord::new(self.model, &vec![None; wishes.len()])?;
                Ok(HeadPlan { record, head: tflm_head, tflm_head, online: planned, is_tflm: true })
            }
        }
    }

    /// Returns the bytes of the head that the runtime allocates in any plan for tensors that nothing uses: those of the largest one,
    /// as a record may locate all of them at the same place.
    pub fn unused_bytes(&self) -> u64 {
        let lives = self.lives();
        let unused = self.kinds.iter().zip(&lives).filter(|(_, life)| life.is_none());
        unused.filter_map(|(kind, _)| kind.planned()).max().unwrap_or(0)
    }

    /// Makes a record that is right however it is read: tensors that share a position have one offset, or none.
    fn reconcile(&self, wishes: &[Option<u64>]) -> Result<HeadRecord, TfliteError> {
        let is_used =
            |position: usize| matches!(self.kinds[position], TensorKind::Planned(_) | TensorKind::Variable(_));
        let classes = RecordClasses::new(self.model, is_used);
        let mut offsets: Vec<Option<u64>> = vec![None; wishes.len()];
        for position in (0..wishes.len()).rev().filter(|position| wishes[*position].is_some()) {
            offsets[classes.first[position]] = wishes[position];
        }
        // What the plan has not placed, such as a variable, must not be placed by what another tensor has at its position.
        let unplaced = (0..wishes.len()).filter(|position| is_used(*position) && wishes[*position].is_none());
        let mut online: BTreeSet<usize> = unplaced.map(|position| classes.first[position]).collect();
        loop {
            let offset = |first: &usize| if online.contains(first) { None } else { offsets[*first] };
            let all: Vec<Option<u64>> = classes.first.iter().map(offset).collect();
            let signed =
                |position: usize| all[position].filter(|_| is_used(position)).and_then(|it| i64::try_from(it).ok());
            let placed: Vec<Option<i64>> = (0..all.len()).map(signed).collect();
            let before = online.len();
            for pair in self.overlaps(&placed) {
                let both = [pair.first, pair.second].map(|tensor| self.flat.of(tensor));
                let forced = both.iter().filter(|position| all[**position] != wishes[**position]);
                online.extend(forced.map(|position| classes.first[*position]));
            }
            if online.len() == before {
                return HeadRecord::new(self.model, &all);
            }
        }
    }

    /// Returns what errors call a step: an operator, or what happens to a subgraph.
    pub(crate) fn describe_step(&self, step: usize) -> String {
        let Some(it) = step.checked_sub(1).and_then(|step| self.program.steps.get(step)) else {
            return if step == 0 { "the start".into() } else { "the end".into() };
        };
        let subgraph = if it.subgraph == 0 { String::new() } else { format!(" of subgraph {}", it.subgraph) };
        let name = |index: usize| {
            let op = self.model.subgraphs[it.subgraph].operators.get(index);
            op.map_or("", |op| self.model.op_name(op))
        };
        match it.kind {
            StepKind::Operator(index) => format!("operator {index} ({}){subgraph}", name(index)),
            StepKind::CallEnd(index) => format!("the end of operator {index} ({}){subgraph}", name(index)),
            StepKind::Start => format!("the start of subgraph {}", it.subgraph),
            StepKind::End => format!("the end of subgraph {}", it.subgraph),
            StepKind::Again => format!("another call of subgraph {}", it.subgraph),
        }
    }
}
