//! Actions with the bytes they read and write in, who must wait for whom out.
//!
//! Each *stream* does its actions in order: the host is one, and each worker that lags behind the host another. All that is
//! known about order is in the bytes: two actions that touch the same ones, and not both only to read, must stay in their
//! order, whether the bytes are planned memory that is used for one tensor after another, a cache of the caller's, or the
//! same tensor in the next run. For this, as many runs as there are copies in turn, and one more, are played through on
//! ranges of bytes that remember who wrote them last and who has read them since:
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

/// The host's own stream. Whatever is enqueued later comes after what it has done, so nobody ever waits for it.
pub(crate) const HOST: usize = 0;

/// Some bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) buffer: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The bytes that an action touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) reads: Vec<Extent>,
    pub(crate) writes: Vec<Extent>,
}

impl Touched {
    /// Sorts, and joins what overlaps or touches.
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

/// Wait for an action of another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// How many runs ago it was; 0 for the same run.
    pub(crate) back: usize,
    /// Which of the actions.
    pub(crate) action: usize,
}

/// What an action is to the order: its stream, and the bytes it touches in each turn.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) stream: usize,
    pub(crate) touched: Vec<Touched>,
}

/// What each action has to wait for, at most one action of each stream.
pub(crate) fn waits(steps: &[Step], streams: usize, turns: usize) -> Vec<Vec<Wait>> {
    let mut waits = vec![Vec::new(); steps.len()];
    if streams <= 1 {
        return waits;
    }
    let mut past = Past::default();
    for run in 0..=turns {
        for (action, step) in steps.iter().enumerate() {
            let Some(touched) = step.touched.get(run % turns) else { continue };
            let mark = Mark { stream: step.stream, run, action };
            let mut found: Vec<Option<Mark>> = vec![None; streams];
            let mut meet = |other: Mark| {
                if other.stream != step.stream && other.stream != HOST {
                    let latest = &mut found[other.stream];
                    *latest = (*latest).max(Some(other));
                }
            };
            touched.reads.iter().for_each(|extent| past.read(*extent, mark, &mut meet));
            touched.writes.iter().for_each(|extent| past.write(*extent, mark, &mut meet));
            if run == turns {
                let wait = |it: &Mark| Wait { back: run - it.run, action: it.action };
                waits[action] = found.iter().flatten().map(wait).collect();
            }
        }
    }
    waits
}

/// An action of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    run: usize,
    action: usize,
    stream: usize,
}

/// The bytes of each buffer. What is in no range has never been touched.
#[derive(Debug, Default)]
struct Past(BTreeMap<usize, IntervalMap<Happened>>);

#[derive(Clone, Debug, Default)]
struct Happened {
    writer: Option<Mark>,
    /// Those who have read since, the latest of each stream.
    readers: Vec<Mark>,
}

impl Past {
    fn read(&mut self, extent: Extent, mark: Mark, meet: &mut impl FnMut(Mark)) {
        let bytes = self.0.entry(extent.buffer).or_default();
        bytes.update(extent.start..extent.end, &Happened::default(), |_, happened| {
            happened.writer.iter().for_each(|writer| meet(*writer));
            happened.readers.retain(|reader| reader.stream != mark.stream);
            happened.readers.push(mark);
        });
    }

    fn write(&mut self, extent: Extent, mark: Mark, meet: &mut impl FnMut(Mark)) {
        let bytes = self.0.entry(extent.buffer).or_default();
        let written = Happened { writer: Some(mark), readers: Vec::new() };
        bytes.replace(extent.start..extent.end, written, |_, happened| {
            happened.writer.iter().chain(&happened.readers).for_each(|other| meet(*other));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: usize = 1;
    const NPU: usize = 2;

    fn bytes(start: u64, end: u64) -> Extent {
        Extent { buffer: 0, start, end }
    }

    fn step(stream: usize, reads: &[Extent], writes: &[Extent]) -> Step {
        Step { stream, touched: vec![Touched { reads: reads.to_vec(), writes: writes.to_vec() }] }
    }

    #[test]
    fn a_reader_waits_for_the_writer_and_the_next_writer_for_the_reader() {
        let steps = [step(GPU, &[], &[bytes(0, 64)]), step(NPU, &[bytes(32, 40)], &[])];
        let waits = waits(&steps, 3, 1);
        assert_eq!(waits[0], [Wait { back: 1, action: 1 }]);
        assert_eq!(waits[1], [Wait { back: 0, action: 0 }]);
    }

    #[test]
    fn nobody_waits_for_the_host_or_for_himself() {
        let steps = [
            step(HOST, &[], &[bytes(0, 8)]),
            step(GPU, &[bytes(0, 8)], &[bytes(8, 16)]),
            step(GPU, &[bytes(8, 16)], &[]),
        ];
        let waits = waits(&steps, 2, 1);
        assert_eq!(waits, [vec![Wait { back: 1, action: 1 }], vec![], vec![]]);
    }

    #[test]
    fn bytes_that_are_used_in_turn_are_waited_for_as_many_runs_back() {
        let slots = |slot: u64| bytes(slot * 8, slot * 8 + 8);
        let touched = |write: bool| {
            let one = |slot| match write {
                true => Touched { reads: vec![], writes: vec![slots(slot)] },
                false => Touched { reads: vec![slots(slot)], writes: vec![] },
            };
            (0..3).map(one).collect()
        };
        let steps = [Step { stream: HOST, touched: touched(true) }, Step { stream: GPU, touched: touched(false) }];
        assert_eq!(waits(&steps, 2, 3), [vec![Wait { back: 3, action: 1 }], vec![]]);
    }

    #[test]
    fn ranges_next_to_each_other_have_nothing_to_do_with_each_other() {
        let steps = [step(GPU, &[], &[bytes(0, 64)]), step(NPU, &[], &[bytes(64, 128)])];
        assert_eq!(waits(&steps, 3, 1), [vec![], vec![]]);
    }

    #[test]
    fn extents_are_joined() {
        let mut touched =
            Touched { reads: vec![bytes(8, 16), bytes(0, 8), bytes(4, 6), bytes(20, 20)], writes: vec![] };
        touched.tidy();
        assert_eq!(touched.reads, [bytes(0, 16)]);
    }
}
