//! Checks that external tensors that nodes write do not alias others: a copy is known to be out of date when a node
//! writes the very tensor that was copied.

use steeve_device::Bindings;
use steeve_graph::{Bytes, Graph, Named, TensorId};

use crate::sched::SchedError;

/// The bytes of an external tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BoundRange {
    buffer: usize,
    start: u64,
    end: u64,
    tensor: TensorId,
}

/// Fails if an external tensor that a node writes shares bytes with another one. O(n log n).
pub(crate) fn check_no_alias(graph: &Graph, bindings: &Bindings) -> Result<(), SchedError> {
    let computing = graph.nodes().iter().filter(|node| !graph.tensor(**node).op.writes_nothing());
    let written = computing.map(|node| graph.root(*node)).filter(|root| graph.tensor(*root).external);
    let mut written: Vec<TensorId> = written.collect();
    if written.is_empty() {
        return Ok(());
    }
    written.sort_unstable();
    let place = |(tensor, it): (TensorId, steeve_device::Address<'_>)| {
        let size = graph.tensors().get(tensor).filter(|it| it.external).map(|it| it.nbytes())?;
        let (buffer, start) = (it.buffer.number(), it.offset.0);
        (size > Bytes::ZERO).then_some(BoundRange { buffer, start, end: start.saturating_add(size.0), tensor })
    };
    let mut places: Vec<BoundRange> = bindings.iter().filter_map(place).collect();
    places.sort_unstable();
    // Of the tensors before, the one that reaches furthest, among all and among those that are written.
    let (mut furthest, mut furthest_written): (Option<BoundRange>, Option<BoundRange>) = (None, None);
    for it in places {
        let is_written = written.binary_search(&it.tensor).is_ok();
        let before = if is_written { furthest } else { furthest_written };
        if let Some(other) = before.filter(|other| other.buffer == it.buffer && other.end > it.start) {
            let [one, other] = [it, other].map(|it| Named::new(it.tensor, graph.names()));
            return Err(SchedError::Overlap { one, other });
        }
        let reaches_further = |last: &BoundRange| last.buffer != it.buffer || last.end < it.end;
        if furthest.as_ref().is_none_or(reaches_further) {
            furthest = Some(it);
        }
        if is_written && furthest_written.as_ref().is_none_or(reaches_further) {
            furthest_written = Some(it);
        }
    }
    Ok(())
}
