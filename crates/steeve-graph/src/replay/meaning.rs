//! What a graph means: which write each node reads, byte for byte, in the caller's order of nodes and with every root in memory
//! of its own. A plan that runs in another order is held to it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::tags::{WriterTag, WriterTags};
use crate::{NodeOrder, TensorId};

/// Bytes of a root and what wrote them last, in pieces as long as possible.
pub(super) type WrittenPieces = Vec<(Range<u64>, WriterTag)>;

/// What each node reads, and what each root has at the end. Nodes are known by their positions in the caller's order.
#[derive(Default)]
pub(super) struct GraphMeaning {
    reads: BTreeMap<(usize, TensorId), WrittenPieces>,
    ends: BTreeMap<TensorId, WrittenPieces>,
}

impl GraphMeaning {
    /// Notes that the node at a position reads a source with these contents.
    pub(super) fn note_read(&mut self, position: usize, source: TensorId, pieces: WrittenPieces) {
        self.reads.insert((position, source), pieces);
    }

    /// Notes the contents of all roots after the run.
    pub(super) fn note_ends(&mut self, isolated: &BTreeMap<TensorId, WriterTags>) {
        self.ends = isolated.iter().map(|(root, tags)| (*root, pieces(tags, 0..u64::MAX))).collect();
    }

    /// Returns the first byte at which the node at a position reads something else, with what it should read.
    pub(super) fn other_read(
        &self,
        position: usize,
        source: TensorId,
        found: &WrittenPieces,
    ) -> Option<(u64, Option<WriterTag>)> {
        first_other(self.reads.get(&(position, source)), found)
    }

    /// Returns the first byte at which a root has other contents after the run, with those that it should have.
    pub(super) fn other_end(&self, root: TensorId, found: &WrittenPieces) -> Option<(u64, Option<WriterTag>)> {
        first_other(self.ends.get(&root), found)
    }
}

/// Returns the contents of a range, where they have been written.
pub(super) fn pieces(tags: &WriterTags, range: Range<u64>) -> WrittenPieces {
    let mut found: WrittenPieces = Vec::new();
    for (piece, tag) in tags.overlapping(range) {
        match found.last_mut() {
            Some((last, by)) if by == tag && last.end == piece.start => last.end = piece.end,
            _ => found.push((piece, *tag)),
        }
    }
    found
}

/// Returns pieces with the caller's positions of nodes, from those in the order in which they run.
pub(super) fn in_callers_order(mut pieces: WrittenPieces, order: &NodeOrder) -> WrittenPieces {
    for (_, tag) in &mut pieces {
        if let WriterTag::Node(place) = tag {
            *place = order.positions().get(*place).map_or(*place, |position| *position as usize);
        }
    }
    pieces
}

/// Returns where two lists of pieces differ first, with what the first has there.
fn first_other(wanted: Option<&WrittenPieces>, found: &WrittenPieces) -> Option<(u64, Option<WriterTag>)> {
    let wanted = wanted.map(Vec::as_slice).unwrap_or_default();
    let differs = wanted.iter().zip(found).find(|(wanted, found)| wanted != found);
    match (differs, wanted.len().cmp(&found.len())) {
        (Some((wanted, found)), _) if wanted.0.start > found.0.start => Some((found.0.start, None)),
        (Some((wanted, found)), _) if wanted.1 == found.1 && wanted.0.start == found.0.start => {
            // The longer one goes on where the other one ends.
            let end = wanted.0.end.min(found.0.end);
            Some((end, Some(wanted.1).filter(|_| wanted.0.end > end)))
        }
        (Some((wanted, _)), _) => Some((wanted.0.start, Some(wanted.1))),
        (None, core::cmp::Ordering::Equal) => None,
        (None, core::cmp::Ordering::Greater) => wanted.get(found.len()).map(|(range, tag)| (range.start, Some(*tag))),
        (None, core::cmp::Ordering::Less) => found.get(wanted.len()).map(|(range, _)| (range.start, None)),
    }
}
