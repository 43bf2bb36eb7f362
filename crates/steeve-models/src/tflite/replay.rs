//! Executes the loops of kernels whose result shares bytes with an operand, at the planned addresses. O(what they read), and no more
//! than [`MOST_EVENTS`] at each of them.
//!
//! It knows neither live ranges nor distances: every write marks its bytes, and no byte that is marked may be read any more.

use std::fmt;
use std::ops::Range;

use steeve_graph::TensorGraph;

use super::graph::{TfliteGraph, TfliteKey};
use super::kernels::Operand;
use super::model::{Operator, TensorIndex};
use super::sizes::{TensorKind, byte_count};
use super::walk::{Walk, WalkEvent};

/// The most reads and writes of one operator that are executed, some seconds of them: a few bytes of a file can say that a window as
/// large as its image moves over all of it.
const MOST_EVENTS: i64 = 1 << 30;

/// An operator that reads what its own result has overwritten, or of which that can't be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlapFault {
    /// The operator.
    pub operator: String,
    /// The operand.
    pub source: String,
    /// The result.
    pub result: String,
    /// The byte of the head that is read too late; `None` if the order in which the kernel reads and writes is not known, or too
    /// long to be executed.
    pub byte: Option<i64>,
    /// How many bytes of the result were written by then.
    pub written: i64,
}

impl fmt::Display for OverlapFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operator, source, result, byte, written } = self;
        match byte {
            Some(byte) => write!(
                out,
                "{operator}: byte {byte} of {source} is read after {result} has overwritten it, with {written} bytes written"
            ),
            None => write!(
                out,
                "{operator}: {source} and {result} share bytes, and the kernel's order is not known or takes over {MOST_EVENTS} steps"
            ),
        }
    }
}

impl TfliteGraph<'_> {
    /// Executes the loops of all operators whose result shares bytes with an operand, and returns those that read a byte which
    /// they have overwritten. The kernels are TensorFlow Lite Micro's reference kernels. `offsets` are those of a
    /// [`RecordReport`](super::RecordReport).
    ///
    /// ```
    /// use steeve_models::tflite::{GraphOptions, Model, SmallModel, TfliteGraph};
    ///
    /// let model = Model::read(SmallModel::chain(&[64, 64]).to_bytes())?;
    /// let graph = TfliteGraph::new(&model, GraphOptions::default())?;
    /// assert!(graph.replay_overlaps(&[Some(16), Some(0)]).is_empty());
    /// let faults = graph.replay_overlaps(&[Some(0), Some(16)]);
    /// assert_eq!(
    ///     faults[0].to_string(),
    ///     "operator 0 (RELU): byte 16 of t0 is read after t1 has overwritten it, with 16 bytes written",
    /// );
    /// # Ok::<(), steeve_models::tflite::TfliteError>(())
    /// ```
    pub fn replay_overlaps(&self, offsets: &[Option<i64>]) -> Vec<OverlapFault> {
        let mut faults = Vec::new();
        for (number, step) in self.program.steps.iter().enumerate() {
            // An accelerator runs in an order that its compiler knows.
            let Some(op) = step.operator(self.model).filter(|op| !self.model.is_accelerated(op)) else { continue };
            for output in &op.outputs {
                let result = TensorIndex::new(step.subgraph, *output);
                for (slot, input) in op.inputs.iter().enumerate().filter(|(slot, _)| self.model.is_read(op, *slot)) {
                    let Some(source) = input.map(|input| TensorIndex::new(step.subgraph, input)) else { continue };
                    let fault = self.replay_pair(offsets, op, slot, source, result);
                    faults.extend(fault.map(|(byte, written)| OverlapFault {
                        operator: self.describe_step(number + 1),
                        source: self.name(TfliteKey::Tensor(source)),
                        result: self.name(TfliteKey::Tensor(result)),
                        byte,
                        written,
                    }));
                }
            }
        }
        faults
    }

    /// Returns the bytes of the head that a tensor really uses.
    fn bytes_at(&self, offsets: &[Option<i64>], tensor: TensorIndex) -> Option<Range<i64>> {
        let position = self.flat.of(tensor);
        let TensorKind::Planned(_) = self.kinds[position] else { return None };
        let bytes = i64::try_from(byte_count(tensor, self.model.tensor(tensor)?).ok()?).ok()?;
        let start = (*offsets.get(position)?)?;
        Some(start..start.checked_add(bytes)?)
    }

    fn replay_pair(
        &self,
        offsets: &[Option<i64>],
        op: &Operator,
        slot: usize,
        source: TensorIndex,
        result: TensorIndex,
    ) -> Option<(Option<i64>, i64)> {
        let (read, written) = (self.bytes_at(offsets, source)?, self.bytes_at(offsets, result)?);
        // A tensor that is read and computed by one operator has its bytes in any plan.
        if source == result || read.start >= written.end || written.start >= read.end {
            return None;
        }
        let operand = Operand::new(self.model, source.subgraph, op, slot);
        if operand.moves_no_bytes() && read == written {
            return None;
        }
        match operand.walk().filter(|walk| walk.events() <= MOST_EVENTS) {
            Some(walk) => first_late_read(&walk, read.start, written.start).map(|(byte, count)| (Some(byte), count)),
            None => Some((None, 0)),
        }
    }
}

/// Returns the first byte that is read after it was written, and how many bytes were written by then.
fn first_late_read(walk: &Walk, source: i64, result: i64) -> Option<(i64, i64)> {
    // The bytes that are written: ranges that do not touch.
    let mut written: Vec<Range<i64>> = Vec::new();
    let (mut count, mut found) = (0, None);
    walk.run(&mut |event| match event {
        WalkEvent::Read(range) => {
            let range = source + range.start..source + range.end;
            let late = written.iter().find(|it| it.start < range.end && range.start < it.end);
            found = found.or(late.map(|it| (it.start.max(range.start), count)));
        }
        WalkEvent::Write(range) => {
            count += range.end - range.start;
            let range = result + range.start..result + range.end;
            match written.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => written.push(range),
            }
        }
    });
    found
}
