//! The calls of devices, in the order of the host's calls.
//!
//! Stream [`HOST`] is the host itself, with all backends that work at once; each asynchronous backend has one of its
//! own.

use std::fmt;
use std::ops::Range;

/// The stream of the host.
pub const HOST: usize = 0;

/// All that happened.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The names of the streams. The host is the first.
    pub streams: Vec<String>,
    /// The names of the memories that the buffers are in.
    pub buffers: Vec<String>,
    /// The calls.
    pub entries: Vec<TraceEntry>,
}

/// Something that was done.
#[derive(Clone, Debug)]
pub struct TraceEntry {
    /// The stream that does it.
    pub stream: usize,
    /// The action.
    pub what: TraceAction,
    /// The bytes that it touches.
    pub accesses: Vec<Access>,
}

/// An action of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceAction {
    /// A run of these nodes, of the graph that was given to `prepare`.
    Submit(Range<usize>),
    /// A copy by a backend.
    Copy,
    /// A write by a backend.
    Write,
    /// A read by a backend.
    Read,
    /// An access to a buffer past all backends: `read`, `write`, `fill`, `copy`, or `free` for a buffer that is given
    /// back.
    Touch(&'static str),
    /// An event with a number of its own is recorded.
    Record(usize),
    /// The stream waits for an event; the host waits itself.
    Wait(usize),
    /// The host waits for all that is enqueued on a stream.
    Join(usize),
}

/// Some bytes of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which one.
    pub buffer: usize,
    /// Which bytes; at least one.
    pub range: Range<u64>,
    /// The kind of access.
    pub kind: AccessKind,
}

/// A kind of access to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessKind {
    /// They are read.
    Read,
    /// They are written.
    Write,
}

impl Trace {
    /// Returns how many entries satisfy a condition.
    pub fn count(&self, is_such: impl Fn(&TraceEntry) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_such(entry)).count()
    }

    /// The stream of this name: that of the first such backend.
    pub fn stream(&self, name: &str) -> Option<usize> {
        self.streams.iter().position(|stream| stream == name)
    }

    /// An entry in words: `entry 7, gpu0 runs nodes 2..5`.
    pub fn title(&self, index: usize) -> String {
        let TraceEntry { stream, what, .. } = &self.entries[index];
        let name = |stream: usize| self.streams.get(stream).map_or("?", String::as_str);
        let act = match what {
            TraceAction::Submit(nodes) => format!("runs nodes {nodes:?}"),
            TraceAction::Copy => String::from("copies"),
            TraceAction::Write => String::from("writes"),
            TraceAction::Read => String::from("reads"),
            TraceAction::Touch(how) => format!("itself does a {how}"),
            TraceAction::Record(event) => format!("records event {event}"),
            TraceAction::Wait(event) => format!("waits for event {event}"),
            TraceAction::Join(stream) => format!("waits for all of stream {stream} ({})", name(*stream)),
        };
        format!("entry {index}, stream {stream} ({}) {act}", name(*stream))
    }

    /// A buffer in words: `buffer 3 (gpu0)`.
    pub fn buffer(&self, buffer: usize) -> String {
        format!("buffer {buffer} ({})", self.buffers.get(buffer).map_or("?", String::as_str))
    }
}

/// One line for each entry, with the bytes behind it.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries.iter().enumerate() {
            write!(f, "{}", self.title(index))?;
            for Access { buffer, range, kind } in &entry.accesses {
                let verb = if *kind == AccessKind::Read { "reads" } else { "writes" };
                write!(f, "; {verb} {}..{} of {}", range.start, range.end, self.buffer(*buffer))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Merges adjacent ranges: the same bytes in as few ranges as there are, in order.
pub(super) fn merged(mut accesses: Vec<Access>) -> Vec<Access> {
    accesses.retain(|access| access.range.start < access.range.end);
    accesses.sort_by_key(|access| (access.kind, access.buffer, access.range.start));
    let mut result: Vec<Access> = Vec::new();
    for access in accesses {
        match result.last_mut() {
            Some(last)
                if (last.kind, last.buffer) == (access.kind, access.buffer) && access.range.start <= last.range.end =>
            {
                last.range.end = last.range.end.max(access.range.end);
            }
            _ => result.push(access),
        }
    }
    result
}
