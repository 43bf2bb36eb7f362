//! Values of ranges of bytes: what wrote them last, what has read them since, whether they are in use.
//!
//! The map has disjoint, non-empty *pieces*, each with one value; bytes in no piece are a *gap*. An operation on a
//! range cuts the pieces that cross its ends, so it touches exactly that range:
//!
//! ```text
//!   before           [ a          ]        [ b      ]
//!   insert(c)                 [ c               ]
//!   after            [ a     ][ c               ][ b]
//! ```
//!
//! O(log pieces) for each operation and each piece within its range. Neighbours with equal values are not joined.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// A map from disjoint ranges to values.
///
/// ```
/// use steeve_graph::IntervalMap;
/// let mut writers = IntervalMap::new();
/// writers.insert(0..64, "a");
/// writers.insert(32..128, "b");
/// let pieces: Vec<_> = writers.overlapping(16..256).collect();
/// assert_eq!(pieces, [(16..32, &"a"), (32..128, &"b")]);
/// assert_eq!(writers.first_gap(16..256), Some(128));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalMap<T> {
    by_start: BTreeMap<u64, Piece<T>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece<T> {
    end: u64,
    value: T,
}

impl<T> Default for IntervalMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> IntervalMap<T> {
    /// Returns a map without pieces.
    pub const fn new() -> Self {
        Self { by_start: BTreeMap::new() }
    }

    /// Returns whether no byte has a value.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Returns all pieces by their start.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, &T)> {
        self.by_start.iter().map(|(&start, piece)| (start..piece.end, &piece.value))
    }

    /// Returns the pieces that share a byte with `range`, cut to it, by their start.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &T)> + use<'_, T> {
        let Range { start, end } = range;
        let before = self.by_start.range(..start).next_back();
        let within = self.by_start.range(start..end.max(start));
        let cut = move |(&from, piece): (&u64, &Piece<T>)| start.max(from)..end.min(piece.end);
        before.into_iter().chain(within).map(move |it| (cut(it), &it.1.value)).filter(|(piece, _)| !piece.is_empty())
    }

    /// Returns whether a byte of `range` has a value.
    pub fn overlaps(&self, range: Range<u64>) -> bool {
        // Pieces are disjoint, so the last one that starts before the end is the last to end.
        let last = self.by_start.range(..range.end).next_back();
        !range.is_empty() && last.is_some_and(|(_, piece)| range.start < piece.end)
    }

    /// Returns the first byte of `range` that has no value.
    pub fn first_gap(&self, range: Range<u64>) -> Option<u64> {
        self.first_other(range, |_| true).map(|(at, _)| at)
    }

    /// Returns the first byte of `range` whose value is not as `expected`, with that value; a gap is never as expected.
    pub fn first_other(&self, range: Range<u64>, expected: impl Fn(&T) -> bool) -> Option<(u64, Option<&T>)> {
        let mut at = range.start;
        for (piece, value) in self.overlapping(range.clone()) {
            if at < piece.start {
                break;
            }
            if !expected(value) {
                return Some((piece.start, Some(value)));
            }
            at = piece.end;
        }
        (at < range.end).then_some((at, None))
    }
}

impl<T: Clone> IntervalMap<T> {
    /// Gives `range` the value `value`, whatever it had before.
    pub fn insert(&mut self, range: Range<u64>, value: T) {
        self.replace(range, value, |_, _| {});
    }

    /// Gives `range` the value `value`, and passes the pieces that it had before to `old`, by their start.
    pub fn replace(&mut self, range: Range<u64>, value: T, old: impl FnMut(Range<u64>, T)) {
        self.remove(range.clone(), old);
        if !range.is_empty() {
            self.by_start.insert(range.start, Piece { end: range.end, value });
        }
    }

    /// Makes `range` a gap, and passes the pieces that it had before to `old`, by their start.
    pub fn remove(&mut self, range: Range<u64>, mut old: impl FnMut(Range<u64>, T)) {
        self.split_around(&range);
        while !range.is_empty()
            && let Some((&start, _)) = self.by_start.range(range.clone()).next()
            && let Some(piece) = self.by_start.remove(&start)
        {
            old(start..piece.end, piece.value);
        }
    }

    /// Calls `change` for pieces that make up exactly `range`, by their start. Gaps become pieces with the value `of_gaps`
    /// first.
    pub fn update(&mut self, range: Range<u64>, of_gaps: &T, mut change: impl FnMut(Range<u64>, &mut T)) {
        if range.is_empty() {
            return;
        }
        self.split_around(&range);
        let (mut gaps, mut at) = (Vec::new(), range.start);
        for (&start, piece) in self.by_start.range(range.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            at = piece.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            self.by_start.insert(gap.start, Piece { end: gap.end, value: of_gaps.clone() });
        }
        for (&start, piece) in self.by_start.range_mut(range) {
            change(start..piece.end, &mut piece.value);
        }
    }

    /// Cuts the piece that lies on both sides of `at`, if there is one. Both halves have its value.
    pub fn split_at(&mut self, at: u64) {
        if let Some((_, piece)) = self.by_start.range_mut(..at).next_back()
            && at < piece.end
        {
            let behind = piece.clone();
            piece.end = at;
            self.by_start.insert(at, behind);
        }
    }

    /// Cuts the pieces that cross the ends of a range; an empty range has none.
    fn split_around(&mut self, range: &Range<u64>) {
        if !range.is_empty() {
            self.split_at(range.start);
            self.split_at(range.end);
        }
    }
}
