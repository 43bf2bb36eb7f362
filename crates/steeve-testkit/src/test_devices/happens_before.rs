//! Trace in, all conflicts out that nothing orders.
//!
//! The order of the host's calls is the meaning of a program. So of every two accesses to the same byte, one of them a
//! write, the one that was called for first must happen before the other: in the same stream, or by events, by the host
//! that waits for a stream, or by the host that enqueues after what it did itself.
//!
//! Vector clocks (Fidge, Mattern, 1988): a stream counts its entries, and knows of each other stream up to which entry
//! that is behind it. In each piece of a buffer the last reader and the last writer of each stream are kept: if the
//! last one is ordered, so are those before it. O(entries * streams * pieces touched * log pieces).

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use steeve_graph::IntervalMap;

use super::trace::{Access, AccessKind, HOST, Trace, TraceAction, TraceEntry};

/// Two entries that touch the same bytes, and nothing orders them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The entry that was called for first: of those in its stream that conflict, the last.
    pub earlier: usize,
    /// The other.
    pub later: usize,
    /// The buffer.
    pub buffer: usize,
    /// The bytes.
    pub range: Range<u64>,
    /// The hazard.
    pub hazard: Hazard,
    text: String,
}

/// The hazard if the later of two entries comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hazard {
    /// It reads what is not there yet.
    ReadAfterWrite,
    /// It overwrites what is still to be read.
    WriteAfterRead,
    /// It is overwritten by what is older.
    WriteAfterWrite,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// All conflicts that nothing orders, by the later entry. None is as it should be.
pub fn happens_before(trace: &Trace) -> Vec<Violation> {
    let mut judge = RaceChecker {
        trace,
        clocks: vec![vec![0; trace.streams.len()]; trace.streams.len()],
        events: HashMap::new(),
        bytes: HashMap::new(),
        found: Vec::new(),
    };
    for (index, entry) in trace.entries.iter().enumerate() {
        judge.advance(entry);
        for access in &entry.accesses {
            judge.judge(index, access);
        }
    }
    judge.found
}

/// For each stream, up to which of its entries everything has happened.
type VectorClock = Vec<u64>;

struct RaceChecker<'a> {
    trace: &'a Trace,
    clocks: Vec<VectorClock>,
    events: HashMap<usize, VectorClock>,
    /// By buffer. Bytes that nothing has touched are in no piece.
    bytes: HashMap<usize, IntervalMap<LastAccesses>>,
    found: Vec<Violation>,
}

impl RaceChecker<'_> {
    /// Returns the clock of the entry's stream when the entry happens.
    fn advance(&mut self, entry: &TraceEntry) {
        let stream = entry.stream;
        if stream != HOST {
            // Whatever the host has done or waited for before it enqueued this.
            let host = self.clocks[HOST].clone();
            join(&mut self.clocks[stream], &host);
        }
        self.clocks[stream][stream] += 1;
        match &entry.what {
            TraceAction::Record(event) => {
                self.events.insert(*event, self.clocks[stream].clone());
            }
            TraceAction::Wait(event) => {
                if let Some(then) = self.events.get(event) {
                    join(&mut self.clocks[stream], then);
                }
            }
            TraceAction::Join(other) => {
                let other = self.clocks[*other].clone();
                join(&mut self.clocks[stream], &other);
            }
            TraceAction::Submit(_)
            | TraceAction::Copy
            | TraceAction::Write
            | TraceAction::Read
            | TraceAction::Touch(_) => {}
        }
    }

    fn judge(&mut self, index: usize, access: &Access) {
        let stream = self.trace.entries[index].stream;
        let clock = &self.clocks[stream];
        let pieces = self.bytes.entry(access.buffer).or_default();
        let untouched = LastAccesses { read: vec![None; clock.len()], written: vec![None; clock.len()] };
        let first = self.found.len();
        let found = &mut self.found;
        pieces.update(access.range.clone(), &untouched, |range, piece| {
            let mut check = |before: &[Option<PastAccess>], hazard: Hazard| {
                for (stream, seen) in before.iter().enumerate() {
                    let Some(seen) = seen.filter(|seen| clock[stream] < seen.time) else { continue };
                    let (earlier, later, buffer, range) = (seen.entry, index, access.buffer, range.clone());
                    found.push(Violation { earlier, later, buffer, range, hazard, text: String::new() });
                }
            };
            match access.kind {
                AccessKind::Read => check(&piece.written, Hazard::ReadAfterWrite),
                AccessKind::Write => {
                    check(&piece.read, Hazard::WriteAfterRead);
                    check(&piece.written, Hazard::WriteAfterWrite);
                }
            }
            let seen = Some(PastAccess { time: clock[stream], entry: index });
            match access.kind {
                AccessKind::Read => piece.read[stream] = seen,
                AccessKind::Write => piece.written[stream] = seen,
            }
        });
        let found = self.found.split_off(first);
        self.found
            .extend(joined(found).map(|violation| Violation { text: words(self.trace, &violation), ..violation }));
    }
}

fn join(clock: &mut VectorClock, other: &VectorClock) {
    for (time, other) in clock.iter_mut().zip(other) {
        *time = (*time).max(*other);
    }
}

/// Neighbours that are the same but for the bytes are one.
fn joined(mut found: Vec<Violation>) -> impl Iterator<Item = Violation> {
    found.sort_by_key(|it| (it.hazard, it.earlier, it.range.start));
    let mut result: Vec<Violation> = Vec::new();
    for violation in found {
        match result.last_mut() {
            Some(last)
                if (last.hazard, last.earlier, last.range.end)
                    == (violation.hazard, violation.earlier, violation.range.start) =>
            {
                last.range.end = violation.range.end;
            }
            _ => result.push(violation),
        }
    }
    result.into_iter()
}

fn words(trace: &Trace, violation: &Violation) -> String {
    let Violation { earlier, later, buffer, range: Range { start, end }, hazard, .. } = violation;
    let (did, does) = match hazard {
        Hazard::ReadAfterWrite => ("writes", "reads"),
        Hazard::WriteAfterRead => ("reads", "writes"),
        Hazard::WriteAfterWrite => ("writes", "writes"),
    };
    let (buffer, earlier, later) = (trace.buffer(*buffer), trace.title(*earlier), trace.title(*later));
    format!(
        "{hazard:?} in bytes {start}..{end} of {buffer}: {earlier}, and {did} them; {later}, and {does} them; \
         nothing orders the two"
    )
}

/// The last accesses to a piece of a buffer, by stream.
#[derive(Clone, Debug)]
struct LastAccesses {
    read: Vec<Option<PastAccess>>,
    written: Vec<Option<PastAccess>>,
}

#[derive(Clone, Copy, Debug)]
struct PastAccess {
    time: u64,
    entry: usize,
}
