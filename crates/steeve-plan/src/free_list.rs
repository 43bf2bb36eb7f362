//! ggml's free list: finds free ranges in a buffer, and chooses one by ggml's rules.
//!
//! Allocates sizes one after the other, without knowledge of later ones. A memory is a list of *chunks* (buffers, in
//! terms of a plan), each with its free ranges in the order of their offsets:
//!
//! ```text
//!   chunk 0   [used][ free ][used][free][used][ free ... to the limit of the chunk )
//!                                             ^ the last range is only taken when no other fits
//! ```
//!
//! The rules, their ties included, are those of ggml's allocator, so that its plans can be made to the byte. O(ranges)
//! per call.

use alloc::vec::Vec;

use crate::{Align, BufferId, Bytes, Id, Offset, Place};

/// The free ranges of one memory.
///
/// ```
/// use steeve_plan::{Align, Bytes, FreeList, Offset, Place};
/// let mut free = FreeList::new(Align::new(32)?, None);
/// let first = free.take(Bytes(100)).unwrap();
/// let second = free.take(Bytes(10)).unwrap();
/// assert_eq!(second, Place::first(Offset(128)));
/// free.release(first, Bytes(100));
/// assert_eq!(free.take(Bytes(64)), Some(Place::first(Offset(0))));
/// assert_eq!(free.chunks().collect::<Vec<_>>(), [Bytes(160)]);
/// # Ok::<(), steeve_plan::UnitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FreeList {
    align: Align,
    limit: u64,
    /// The last of this many chunks has no limit.
    max_chunks: usize,
    chunks: Vec<FreeListChunk>,
}

/// ggml opens at most this many chunks; the last of them has no limit.
const MAX_CHUNKS: usize = 16;

/// The end of a chunk without a limit. Far above any real size, and far from overflow.
const NO_LIMIT: u64 = u64::MAX / 2;

/// One chunk of a memory.
#[derive(Clone, Debug)]
struct FreeListChunk {
    /// In the order of their offsets. Ranges of no bytes may be among them: freeing a tensor of no bytes leaves one.
    free: Vec<FreeRange>,
    /// The highest end ever used.
    peak: u64,
}

/// Free bytes of a chunk.
#[derive(Clone, Copy, Debug)]
struct FreeRange {
    start: u64,
    size: u64,
}

impl FreeRange {
    fn end(self) -> u64 {
        self.start + self.size
    }
}

impl FreeList {
    /// Creates an empty memory that rounds sizes up to `align` and opens chunks of at most `limit` bytes.
    pub fn new(align: Align, limit: Option<Bytes>) -> Self {
        Self {
            align,
            limit: limit.map_or(NO_LIMIT, |limit| limit.0.min(NO_LIMIT)),
            max_chunks: MAX_CHUNKS,
            chunks: Vec::new(),
        }
    }

    /// Returns this free list without a limit on the number of chunks, so that only a single block above the limit
    /// makes a chunk exceed it.
    #[must_use]
    pub fn with_any_number_of_chunks(mut self) -> Self {
        self.max_chunks = usize::MAX;
        self
    }

    /// Allocates `size` bytes. Returns `None`, and changes nothing, if the address space has no room. O(ranges).
    pub fn take(&mut self, size: Bytes) -> Option<Place> {
        let size = self.align.round_up(size)?.0;
        let (chunk, range) = match self.choose(size) {
            Some(found) => found,
            None => (self.open(size)?, 0),
        };
        let it = &mut self.chunks[chunk];
        let start = it.free[range].start;
        it.free[range].start += size;
        it.free[range].size -= size;
        if it.free[range].size == 0 {
            it.free.remove(range);
        }
        it.peak = it.peak.max(start + size);
        Some(Place { buffer: BufferId::from_index(chunk)?, offset: Offset(start) })
    }

    /// Frees the `size` bytes at `place`. A range that [`take`](Self::take) never returned is ignored where its chunk
    /// does not exist, and free twice where it does: this type keeps no record of what is used. O(ranges).
    pub fn release(&mut self, place: Place, size: Bytes) {
        let Some(size) = self.align.round_up(size) else {
            return;
        };
        let Some(chunk) = self.chunks.get_mut(place.buffer.index()) else {
            return;
        };
        let (start, size) = (place.offset.0, size.0);
        let Some(end) = start.checked_add(size) else {
            return;
        };
        let free = &mut chunk.free;
        for index in 0..free.len() {
            let range = free[index];
            if range.end() == start {
                free[index].size += size;
                if let Some(next) = free.get(index + 1).copied()
                    && next.start == end
                {
                    free[index].size += next.size;
                    free.remove(index + 1);
                }
                return;
            }
            if end == range.start {
                free[index] = FreeRange { start, size: size + range.size };
                if index > 0 && free[index - 1].end() == start {
                    free[index - 1].size += free[index].size;
                    free.remove(index);
                }
                return;
            }
        }
        let index = free.iter().position(|range| start <= range.start).unwrap_or(free.len());
        free.insert(index, FreeRange { start, size });
    }

    /// Returns the most bytes ever used of each chunk, which is how large the buffers must be.
    pub fn chunks(&self) -> impl Iterator<Item = Bytes> {
        self.chunks.iter().map(|chunk| Bytes(chunk.peak))
    }

    /// Returns how many free ranges there are, which is what a call scans.
    pub(crate) fn ranges(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.free.len()).sum()
    }

    /// Returns the sum over the chunks, at most 2^64 - 1.
    pub fn total(&self) -> Bytes {
        Bytes(self.chunks.iter().fold(0, |sum: u64, chunk| sum.saturating_add(chunk.peak)))
    }

    /// Chooses the smallest range that fits, among all but the last of each chunk; else the last range of the chunk
    /// that grows least.
    fn choose(&self, size: u64) -> Option<(usize, usize)> {
        let mut found = None;
        for (index, chunk) in self.chunks.iter().enumerate() {
            let inner = chunk.free.split_last().map_or(&[][..], |(_, inner)| inner);
            let mut least = u64::MAX;
            for (range, it) in inner.iter().enumerate() {
                // On a tie the later range, and a later chunk before an earlier one.
                if it.size >= size && it.size <= least {
                    least = it.size;
                    found = Some((index, range));
                }
            }
        }
        found.or_else(|| self.choose_last(size))
    }

    fn choose_last(&self, size: u64) -> Option<(usize, usize)> {
        let mut found = None;
        // Below 0 by how much the chunk has to grow, else how much it has to spare.
        let mut best = i128::MIN;
        for (index, chunk) in self.chunks.iter().enumerate() {
            let Some((last, inner)) = chunk.free.split_last() else {
                continue;
            };
            let spare = i128::from(chunk.peak) - i128::from(last.start) - i128::from(size);
            let grows_less = best < 0 && spare > best;
            let spares_less = spare >= 0 && spare < best;
            if last.size >= size && (grows_less || spares_less) {
                best = spare;
                found = Some((index, inner.len()));
            }
        }
        found
    }

    fn open(&mut self, size: u64) -> Option<usize> {
        let index = self.chunks.len();
        let room = if index + 1 >= self.max_chunks { NO_LIMIT } else { size.max(self.limit) };
        // Without a limit the last chunk takes all that comes, up to the end of the address space.
        if index >= self.max_chunks || size > room {
            return None;
        }
        self.chunks.push(FreeListChunk { free: Vec::from([FreeRange { start: 0, size: room }]), peak: 0 });
        Some(index)
    }
}
