//! Bytes with the tag of who wrote them last.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::TensorId;

/// Who wrote a byte last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Caller(TensorId),
    Node(usize),
}

/// Disjoint ranges of bytes, each with the tag of who wrote it last.
#[derive(Clone, Debug, Default)]
pub(super) struct Tags {
    /// By start: end and tag.
    pieces: BTreeMap<u64, (u64, Tag)>,
}

impl Tags {
    pub(super) fn write(&mut self, range: Range<u64>, tag: Tag) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let covered: Vec<u64> = self.pieces.range(range.clone()).map(|(start, _)| *start).collect();
        for start in covered {
            self.pieces.remove(&start);
        }
        self.pieces.insert(range.start, (range.end, tag));
    }

    /// Makes sure that no piece crosses `at`.
    fn split(&mut self, at: u64) {
        if let Some((start, (end, tag))) = self.pieces.range_mut(..at).next_back()
            && at < *end
        {
            let (start, old, tag) = (*start, *end, *tag);
            self.pieces.insert(start, (at, tag));
            self.pieces.insert(at, (old, tag));
        }
    }

    /// The pieces within a range, cut to it.
    pub(super) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Tag)> + use<'_> {
        let before = self.pieces.range(..range.start).next_back();
        let (first, last) = (range.start, range.end);
        let cut = move |(start, (end, tag)): (&u64, &(u64, Tag))| (first.max(*start)..last.min(*end), *tag);
        before.into_iter().chain(self.pieces.range(range)).map(cut).filter(|(piece, _)| !piece.is_empty())
    }

    /// The first byte of a range whose tag is not `tag`, with its tag.
    pub(super) fn first_other(&self, range: Range<u64>, tag: Tag) -> Option<(u64, Option<Tag>)> {
        let mut at = range.start;
        for (piece, found) in self.pieces(range.clone()) {
            if at < piece.start {
                return Some((at, None));
            }
            if found != tag {
                return Some((piece.start, Some(found)));
            }
            at = piece.end;
        }
        (at < range.end).then_some((at, None))
    }
}
