//! External tensors that share bytes. Which of them do is known from bindings alone, and a search for an order of nodes knows
//! no bindings: it keeps the order of what external roots that nodes write into have to do with each other, and takes it that
//! no other external tensor shares their bytes. Here that is found out.

use steeve_device::{Address, Bindings};
use steeve_graph::{Bytes, Graph, Id, TensorId};

/// Returns an external tensor that no node writes into, and one that shares bytes with it and is written into. Both lists are
/// sorted; `externals` has all of them. One pass over both, unless such tensors are near each other. Allocates nothing.
pub(crate) fn shared_bytes(
    graph: &Graph,
    externals: &[TensorId],
    changed: &[TensorId],
    bindings: &Bindings,
) -> Option<(TensorId, TensorId)> {
    let bound = |tensor: &TensorId| {
        // By number alone, as plans know tensors.
        let address = bindings.get(TensorId::from_index(tensor.index())?)?;
        let size = graph.tensor(*tensor).nbytes();
        (size > Bytes::ZERO).then_some(Address { size, ..address })
    };
    // Where written bytes are at all: caches mostly have buffers of their own.
    let mut written: Option<(u64, u64)> = None;
    for it in changed.iter().filter_map(bound) {
        let (start, end) = (it.number(), it.number().saturating_add(it.size.0));
        written = Some(written.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
    }
    let (first, last) = written?;
    for &read in externals.iter().filter(|tensor| changed.binary_search(tensor).is_err()) {
        let Some(it) = bound(&read).filter(|it| it.number() < last && first < it.number().saturating_add(it.size.0))
        else {
            continue;
        };
        if let Some(other) = changed.iter().find(|other| bound(other).is_some_and(|other| overlap(&it, &other))) {
            return Some((read, *other));
        }
    }
    None
}

fn overlap(one: &Address<'_>, other: &Address<'_>) -> bool {
    one.buffer.number() == other.buffer.number()
        && one.offset.0 < other.offset.0.saturating_add(other.size.0)
        && other.offset.0 < one.offset.0.saturating_add(one.size.0)
}
