//! Maps of ranges do what an array with a value for each byte does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;

use proptest::prelude::*;
use steeve_graph::IntervalMap;

const BYTES: usize = 40;

type Model = [Option<u8>; BYTES];

#[derive(Clone, Debug)]
enum Act {
    Insert(Range<u64>, u8),
    Remove(Range<u64>),
    /// Pieces with their values doubled, and gaps filled.
    Update(Range<u64>, u8),
    SplitAt(u64),
}

fn ranges() -> impl Strategy<Value = Range<u64>> {
    // Some are empty, and some end before they start.
    (0..BYTES as u64, 0..=BYTES as u64).prop_map(|(start, end)| start..end)
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (ranges(), 0..4u8).prop_map(|(range, value)| Act::Insert(range, value)),
        1 => ranges().prop_map(Act::Remove),
        2 => (ranges(), 0..4u8).prop_map(|(range, value)| Act::Update(range, value)),
        1 => (0..=BYTES as u64).prop_map(Act::SplitAt),
    ]
}

fn bytes(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end.max(range.start) as usize
}

/// Returns pieces as an array, after a check of their order and sizes.
fn spread<'a>(pieces: impl Iterator<Item = (Range<u64>, &'a u8)>, within: Range<u64>) -> Model {
    let (mut model, mut at) = ([None; BYTES], within.start);
    for (piece, value) in pieces {
        assert!(at <= piece.start && piece.start < piece.end && piece.end <= within.end, "{piece:?} at {at}");
        at = piece.end;
        model[bytes(&piece)].fill(Some(*value));
    }
    model
}

fn only(model: &Model, range: &Range<u64>) -> Model {
    let mut part = [None; BYTES];
    part[bytes(range)].copy_from_slice(&model[bytes(range)]);
    part
}

/// Acts on both in one way, and compares what the map says it found.
fn act(map: &mut IntervalMap<u8>, model: &mut Model, act: Act) {
    match act {
        Act::Insert(range, value) => {
            let mut old = Vec::new();
            map.replace(range.clone(), value, |piece, value| old.push((piece, value)));
            assert_eq!(
                spread(old.iter().map(|(piece, value)| (piece.clone(), value)), range.clone()),
                only(model, &range)
            );
            model[bytes(&range)].fill(Some(value));
        }
        Act::Remove(range) => {
            let mut old = Vec::new();
            map.remove(range.clone(), |piece, value| old.push((piece, value)));
            assert_eq!(
                spread(old.iter().map(|(piece, value)| (piece.clone(), value)), range.clone()),
                only(model, &range)
            );
            model[bytes(&range)].fill(None);
        }
        Act::Update(range, of_gaps) => {
            let mut at = range.start;
            map.update(range.clone(), &of_gaps, |piece, value| {
                assert_eq!(piece.start, at);
                at = piece.end;
                *value = value.wrapping_mul(2);
            });
            assert_eq!(at, range.end.max(range.start));
            model[bytes(&range)].iter_mut().for_each(|it| *it = Some(it.unwrap_or(of_gaps).wrapping_mul(2)));
        }
        Act::SplitAt(at) => {
            map.split_at(at);
            assert!(map.iter().all(|(piece, _)| piece.end <= at || at <= piece.start));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_map_is_an_array_of_bytes(
        list in proptest::collection::vec(acts(), 0..30),
        asked in proptest::collection::vec((ranges(), 0..4u8), 10),
    ) {
        let (mut map, mut model) = (IntervalMap::new(), [None; BYTES]);
        for it in list {
            act(&mut map, &mut model, it);
            assert_eq!(spread(map.iter(), 0..BYTES as u64), model);
        }
        assert_eq!(map.is_empty(), model.iter().all(Option::is_none));
        for (range, wanted) in asked {
            let part = &model[bytes(&range)];
            assert_eq!(spread(map.overlapping(range.clone()), range.clone()), only(&model, &range));
            assert_eq!(map.overlaps(range.clone()), part.iter().any(Option::is_some));
            let gap = part.iter().position(Option::is_none).map(|at| range.start + at as u64);
            assert_eq!(map.first_gap(range.clone()), gap);
            let other = part.iter().position(|it| *it != Some(wanted)).map(|at| (range.start + at as u64, part[at]));
            let found = map.first_other(range.clone(), |value| *value == wanted);
            assert_eq!(found.map(|(at, value)| (at, value.copied())), other);
        }
    }
}

#[test]
fn a_value_in_the_middle_cuts_a_piece_in_three() {
    let mut map = IntervalMap::new();
    map.insert(0..12, 'a');
    map.insert(4..8, 'b');
    assert_eq!(map.iter().collect::<Vec<_>>(), [(0..4, &'a'), (4..8, &'b'), (8..12, &'a')]);
}

#[test]
fn ranges_may_reach_the_last_byte() {
    let mut map = IntervalMap::new();
    map.insert(u64::MAX - 8..u64::MAX, ());
    assert!(map.overlaps(0..u64::MAX) && !map.overlaps(0..u64::MAX - 8));
    assert_eq!(map.first_gap(u64::MAX - 8..u64::MAX), None);
}
