//! Places items one by one, each into a gap among those placed before. O(n) and the pairs that meet, with a sort for
//! each item.

use alloc::vec;
use alloc::vec::Vec;

use super::clearances::{Clearances, ForbiddenStarts};
use crate::greedy::GapFit;
use crate::{BufferId, Id, Offset, Place};

/// The buffers so far.
struct Buffers {
    limit: u64,
    /// How far each reaches, and its largest item.
    tops: Vec<(u64, u64)>,
    sum: u64,
}

impl Buffers {
    fn put(&mut self, place: Place, bytes: u64) {
        let index = place.buffer.index();
        if self.tops.len() <= index {
            self.tops.resize(index + 1, (0, 0));
        }
        let (top, largest) = &mut self.tops[index];
        let end = place.offset.0 + bytes;
        self.sum = self.sum.saturating_add(end.saturating_sub(*top));
        (*top, *largest) = ((*top).max(end), (*largest).max(bytes));
    }

    /// Returns by how much a buffer grows if an item ends there; `None` if that is above its limit.
    fn growth(&self, buffer: usize, end: u64, bytes: u64) -> Option<u64> {
        let (top, largest) = self.tops[buffer];
        (end <= self.limit.max(largest).max(bytes)).then(|| end.saturating_sub(top))
    }
}

/// At most this many buffers are tried for an item.
const MAX_BUFFERS_TRIED: usize = 64;

/// Places the items in an order, each in the buffer that grows least. Returns `None` if the buffers' sum does not stay
/// below `peak`.
pub(super) fn first_fit(
    clearances: &Clearances,
    order: &[u32],
    fit: GapFit,
    limit: Option<u64>,
    peak: u64,
) -> Option<Vec<Place>> {
    let mut places: Vec<Option<Place>> = vec![None; clearances.len()];
    let mut buffers = Buffers { limit: limit.unwrap_or(u64::MAX), tops: Vec::new(), sum: 0 };
    for (place, item) in places.iter_mut().zip(&clearances.items) {
        if let Some(pinned) = item.pinned {
            *place = Some(pinned);
            buffers.put(pinned, item.bytes);
        }
    }
    let mut forbidden = ForbiddenStarts::default();
    for index in order {
        if places[*index as usize].is_some() {
            continue;
        }
        let place = least_growth(clearances, *index, &places, fit, &buffers, &mut forbidden)?;
        places[*index as usize] = Some(place);
        buffers.put(place, clearances.items[*index as usize].bytes);
        if buffers.sum >= peak {
            return None;
        }
    }
    places.into_iter().collect()
}

/// Finds the place by which the buffers grow least; on a tie in the earlier one; in a new one if it fits into none.
fn least_growth(
    clearances: &Clearances,
    index: u32,
    places: &[Option<Place>],
    fit: GapFit,
    buffers: &Buffers,
    forbidden: &mut ForbiddenStarts,
) -> Option<Place> {
    let item = &clearances.items[index as usize];
    let mut found: Option<(u64, Place)> = None;
    let count = buffers.tops.len();
    for buffer in count.saturating_sub(MAX_BUFFERS_TRIED)..count {
        let id = BufferId::from_index(buffer)?;
        forbidden.clear();
        for neighbour in clearances.neighbours(index) {
            if let Some(place) = places[neighbour.item as usize]
                && place.buffer == id
            {
                forbidden.add(neighbour, place.offset.0);
            }
        }
        let offset = choose_gap(forbidden, item.align, u64::MAX - item.bytes, fit)?;
        if let Some(growth) = buffers.growth(buffer, offset + item.bytes, item.bytes)
            && found.is_none_or(|(least, _)| growth < least)
        {
            found = Some((growth, Place { buffer: id, offset: Offset(offset) }));
            if growth == 0 {
                break;
            }
        }
    }
    match found {
        Some((_, place)) => Some(place),
        None => Some(Place { buffer: BufferId::from_index(count)?, offset: Offset(0) }),
    }
}

/// Returns the lowest start in the gap that `fit` chooses.
fn choose_gap(forbidden: &mut ForbiddenStarts, align: u64, last: u64, fit: GapFit) -> Option<u64> {
    let mut best: Option<(u64, u64)> = None;
    forbidden.gaps(align, last, |low, high| {
        if best.is_none_or(|(slack, _)| high - low < slack) {
            best = Some((high - low, low));
        }
        fit == GapFit::Best
    });
    best.map(|(_, start)| start)
}
