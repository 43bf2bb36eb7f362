//! The lines that the drop-in appends to `STEEVE_REPORT`: a file that grows in, events out. `steeve-ggml` writes them, and says in
//! its `report` what each is.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;

/// The version of the lines that this program reads.
pub(super) const REPORT_VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ReportLine {
    pub(super) process: u32,
    #[serde(flatten)]
    pub(super) event: ReportEvent,
}

/// What a program did with its memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum ReportEvent {
    /// A graph allocator was made; if it is ggml's own, with the reason.
    Open { handle: String, owner: HandleOwner, why: Option<String>, ggml_version: String, memories: Vec<HandleMemory> },
    /// It planned a graph: the chunks that ggml's plan needs in each memory, where that is known, and its own bytes.
    Reserve { handle: String, outcome: ReserveOutcome, ggml: Option<Vec<Vec<u64>>>, steeve: Vec<u64> },
    /// It was freed.
    Close { handle: String },
    /// A buffer for the tensors of a context was made.
    Buffer {
        buffer: String,
        context: String,
        contents: ContextContents,
        bytes: u64,
        #[serde(flatten)]
        place: ReportedMemory,
    },
    /// The size of such a buffer was asked for.
    Size {
        context: String,
        contents: ContextContents,
        bytes: u64,
        #[serde(flatten)]
        place: ReportedMemory,
    },
    /// A buffer over memory of the program's was made.
    Mapped {
        buffer: String,
        bytes: u64,
        #[serde(flatten)]
        place: ReportedMemory,
    },
    /// A buffer was freed.
    Drop { buffer: String },
}

/// Which allocator is behind a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HandleOwner {
    Steeve,
    Ggml,
}

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReserveOutcome {
    /// There are buffers for it.
    Done,
    /// There was no memory for it.
    Failed,
    /// No allocator could do anything with the graph.
    Refused,
    /// Only sizes were asked for.
    Dry,
}

/// What the tensors of a context are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ContextContents {
    Weights,
    Caches,
    Other,
}

/// A memory of a graph allocator.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct HandleMemory {
    #[serde(flatten)]
    pub(super) place: ReportedMemory,
}

/// A buffer type of ggml's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct ReportedMemory {
    host: bool,
    device: Option<String>,
    memory: String,
}

impl ReportedMemory {
    /// Returns the device that has this memory: `CPU` for all memory of the host, whichever device pinned it.
    pub(super) fn device(&self) -> DeviceName {
        match (self.host, &self.device) {
            (true, _) => DeviceName { is_host: true, name: "CPU".to_owned() },
            (false, Some(device)) => DeviceName { is_host: false, name: device.clone() },
            (false, None) => DeviceName { is_host: false, name: self.memory.clone() },
        }
    }

    pub(super) fn memory(&self) -> &str {
        &self.memory
    }
}

/// The name of a device. The host sorts last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceName {
    is_host: bool,
    pub(super) name: String,
}

/// Reads what has been appended to a report since the last time.
pub(super) struct ReportReader<'a> {
    path: &'a Path,
    file: Option<File>,
    /// The beginning of a line that is not complete yet.
    rest: Vec<u8>,
}

impl<'a> ReportReader<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        Self { path, file: None, rest: Vec::new() }
    }

    /// Returns the new lines. A file that is not there yet has none.
    ///
    /// # Errors
    /// If the file can't be read, has lines of another version, which only a library of another version writes, or lines that
    /// are none.
    pub(super) fn read(&mut self) -> Result<Vec<ReportLine>, ReportError> {
        if self.file.is_none() {
            match File::open(self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(ReportError::Read(error)),
            }
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut self.rest).map_err(ReportError::Read)?;
        }
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse).collect()
    }
}

fn parse(line: &[u8]) -> Result<ReportLine, ReportError> {
    /// What a line of every version has.
    #[derive(Deserialize)]
    struct AnyLine {
        report: u32,
    }
    // Before all else: of another version nothing else need be as it is here.
    let AnyLine { report } = serde_json::from_slice(line).map_err(ReportError::Malformed)?;
    if report != REPORT_VERSION {
        return Err(ReportError::Version);
    }
    serde_json::from_slice(line).map_err(ReportError::Malformed)
}

/// Why a report can't be used.
#[derive(Debug)]
pub(super) enum ReportError {
    Read(io::Error),
    Version,
    Malformed(serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_version_is_called_another_version() {
        assert!(parse(br#"{"report":1,"process":7,"event":"drop","buffer":"0x1"}"#).is_ok());
        assert!(matches!(parse(br#"{"report":2,"anything":[]}"#), Err(ReportError::Version)));
        for line in [r#"{"report":1,"process":7}"#, r#"{"report":1,"process":7,"event":"dr"#, "{}", "no"] {
            assert!(matches!(parse(line.as_bytes()), Err(ReportError::Malformed(_))), "{line}");
        }
    }
}
