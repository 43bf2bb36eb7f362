//! Derives the waits between streams from the bytes that actions read and write.
//!
//! Each *stream* runs its actions in order: the host is one, and each asynchronous worker another. The order follows
//! from the bytes alone: two actions that touch the same ones, and not both only to read, must keep their order,
//! whether the bytes are planned memory that is used for one tensor after another, a cache of the caller's, or the same
//! tensor in the next run. To find these hazards, as many runs as there are pipelined copies, and one more, are
//! simulated on ranges of bytes that record their last writer and the readers since:
//!
//! ```text
//!    buffer 0   0 ........ 64 ............. 256
//!    writer        gpu, run 0, action 3     host, run 1, action 0
//!    readers       cpu, run 0, action 5     -
//! ```
//!
//! O(ranges * log) for each run.

use std::collections::BTreeMap;

use steeve_graph::IntervalMap;

/// The host's own stream. Whatever is enqueued later comes after what the host has done, so no stream ever waits for
/// it.
pub(crate) const HOST: usize = 0;

/// Some bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteRange {
    pub(crate) buffer: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The bytes that an action touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessedBytes {
    pub(crate) reads: Vec<ByteRange>,
    pub(crate) writes: Vec<ByteRange>,
}

impl AccessedBytes {
    /// Sorts the ranges, and joins those that overlap or touch.
    pub(crate) fn tidy(&mut self) {
        for list in [&mut self.reads, &mut self.writes] {
            list.retain(|extent| extent.start < extent.end);
            list.sort_unstable();
            list.dedup_by(|later, earlier| {
                let joins = later.buffer == earlier.buffer && later.start <= earlier.end;
                if joins {
                    earlier.end = earlier.end.max(later.end);
                }
                joins
            });
        }
    }
}

/// A wait for an action of another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamWait {
    /// How many runs ago it was; 0 for the same run.
    pub(crate) back: usize,
    /// Which of the actions.
    pub(crate) action: usize,
}

/// The stream of an action, and the bytes it touches in each pipeline slot.
#[derive(Clone, Debug)]
pub(crate) struct ActionAccess {
    pub(crate) stream: usize,
    pub(crate) touched: Vec<AccessedBytes>,
}

/// Computes what each action has to wait for, at most one action of each other stream. O(ranges * log) for each run.
pub(crate) fn find_waits(steps: &[ActionAccess], streams: usize, pipeline_depth: usize) -> Vec<Vec<StreamWait>> {
    let mut waits = vec![Vec::new(); steps.len()];
    if streams <= 1 {
        return waits;
    }
    let mut history = AccessHistory::default();
    for run in 0..=pipeline_depth {
        for (action, step) in steps.iter().enumerate() {
            let Some(touched) = step.touched.get(run % pipeline_depth) else { continue };
            let action_ref = ActionRef { stream: step.stream, run, action };
            let mut found: Vec<Option<ActionRef>> = vec![None; streams];
            let mut meet = |other: ActionRef| {
                if other.stream != step.stream && other.stream != HOST {
                    let latest = &mut found[other.stream];
                    *latest = (*latest).max(Some(other));
                }
            };
            touched.reads.iter().for_each(|extent| history.read(*extent, action_ref, &mut meet));
            touched.writes.iter().for_each(|extent| history.write(*extent, action_ref, &mut meet));
            if run == pipeline_depth {
                let wait = |it: &ActionRef| StreamWait { back: run - it.run, action: it.action };
                waits[action] = found.iter().flatten().map(wait).collect();
            }
        }
    }
    waits
}

/// An action of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ActionRef {
    run: usize,
    action: usize,
    stream: usize,
}

/// The history of the bytes of each buffer. A byte in no range has never been touched.
#[derive(Debug, Default)]
struct AccessHistory(BTreeMap<usize, IntervalMap<RangeHistory>>);

#[derive(Clone, Debug, Default)]
struct RangeHistory {
    writer: Option<ActionRef>,
    /// The readers since then, the latest of each stream.
    readers: Vec<ActionRef>,
}

impl AccessHistory {
    fn read(&mut self, extent: ByteRange, action_ref: ActionRef, meet: &mut impl FnMut(ActionRef)) {
        let bytes = self.0.entry(extent.buffer).or_default();
        bytes.update(extent.start..extent.end, &RangeHistory::default(), |_, range| {
            range.writer.iter().for_each(|writer| meet(*writer));
            range.readers.retain(|reader| reader.stream != action_ref.stream);
            range.readers.push(action_ref);
        });
    }

    fn write(&mut self, extent: ByteRange, action_ref: ActionRef, meet: &mut impl FnMut(ActionRef)) {
        let bytes = self.0.entry(extent.buffer).or_default();
        let written = RangeHistory { writer: Some(action_ref), readers: Vec::new() };
        bytes.replace(extent.start..extent.end, written, |_, range| {
            range.writer.iter().chain(&range.readers).for_each(|other| meet(*other));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: usize = 1;
    const NPU: usize = 2;

    fn bytes(start: u64, end: u64) -> ByteRange {
        ByteRange { buffer: 0, start, end }
    }

    fn step(stream: usize, reads: &[ByteRange], writes: &[ByteRange]) -> ActionAccess {
        ActionAccess { stream, touched: vec![AccessedBytes { reads: reads.to_vec(), writes: writes.to_vec() }] }
    }

    #[test]
    fn a_reader_waits_for_the_writer_and_the_next_writer_for_the_reader() {
        let steps = [step(GPU, &[], &[bytes(0, 64)]), step(NPU, &[bytes(32, 40)], &[])];
        let waits = find_waits(&steps, 3, 1);
        assert_eq!(waits[0], [StreamWait { back: 1, action: 1 }]);
        assert_eq!(waits[1], [StreamWait { back: 0, action: 0 }]);
    }

    #[test]
    fn nobody_waits_for_the_host_or_for_himself() {
        let steps = [
            step(HOST, &[], &[bytes(0, 8)]),
            step(GPU, &[bytes(0, 8)], &[bytes(8, 16)]),
            step(GPU, &[bytes(8, 16)], &[]),
        ];
        let waits = find_waits(&steps, 2, 1);
        assert_eq!(waits, [vec![StreamWait { back: 1, action: 1 }], vec![], vec![]]);
    }

    #[test]
    fn bytes_that_are_used_in_turn_are_waited_for_as_many_runs_back() {
        let slots = |slot: u64| bytes(slot * 8, slot * 8 + 8);
        let touched = |write: bool| {
            let one = |slot| match write {
                true => AccessedBytes { reads: vec![], writes: vec![slots(slot)] },
                false => AccessedBytes { reads: vec![slots(slot)], writes: vec![] },
            };
            (0..3).map(one).collect()
        };
        let steps = [
            ActionAccess { stream: HOST, touched: touched(true) },
            ActionAccess { stream: GPU, touched: touched(false) },
        ];
        assert_eq!(find_waits(&steps, 2, 3), [vec![StreamWait { back: 3, action: 1 }], vec![]]);
    }

    #[test]
    fn ranges_next_to_each_other_have_nothing_to_do_with_each_other() {
        let steps = [step(GPU, &[], &[bytes(0, 64)]), step(NPU, &[], &[bytes(64, 128)])];
        assert_eq!(find_waits(&steps, 3, 1), [vec![], vec![]]);
    }

    #[test]
    fn extents_are_joined() {
        let mut touched =
            AccessedBytes { reads: vec![bytes(8, 16), bytes(0, 8), bytes(4, 6), bytes(20, 20)], writes: vec![] };
        touched.tidy();
        assert_eq!(touched.reads, [bytes(0, 16)]);
    }
}
