//! Everything that can go wrong in the command: `thing: what is wrong: expected, got`, with the cause as its source.

use std::error::Error as StdError;
use std::process::ExitStatus as ProgramStatus;
use std::time::Duration;
use std::{fmt, io};

use steeve_models::FileError;
use steeve_models::gguf::GgufError;
use steeve_models::onnx::OnnxError;
use steeve_models::tflite::TfliteError;
use steeve_plan::Clipped;
use steeve_plan::csv::TableError;
use steeve_plan::file::JsonError;

use crate::exit_status::ExitStatus;

/// Why a file, or the whole command, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("{file}: cannot read")]
    Read { file: String, source: io::Error },
    #[error("{file}: not a folder, as {folder} is: expected two files or two folders")]
    FolderAndFile { folder: String, file: String },
    #[error("{before}: no file name in common with {after}: expected two folders with files of equal names")]
    NothingInBoth { before: String, after: String },
    #[error("{file}: is a folder: expected a file")]
    Folder { file: String },
    #[error(
        "{file}: nothing to plan in this folder: expected a .csv, .json, .graph, .onnx, .tflite or .gguf, plain or .gz"
    )]
    EmptyFolder { file: String },
    #[error("{pattern}: no file matches this pattern")]
    NothingFits { pattern: String },
    #[error("{pattern}: invalid pattern: {why}")]
    Pattern { pattern: String, why: String },
    #[error("{0}; raise the limit with --max-input")]
    TooLarge(FileError),
    #[error(transparent)]
    File(FileError),
    #[error("{file}: cannot be used as a model")]
    Tflite { file: String, source: TfliteError },
    #[error("{file}: cannot be used as a model")]
    Gguf { file: String, source: Box<GgufError> },
    #[error("{file}: cannot be used as a model")]
    Onnx { file: String, source: Box<OnnxError> },
    #[error("{file}: {why}; give each a size, such as {example}")]
    FreeDims { file: String, why: String, example: String },
    #[error("{file}: not a TFLite model: expected one for {out}, got another file")]
    NotAModel { file: String, out: String },
    #[error("{file}: not a plan: got a graph; usage: steeve check GRAPH PLAN")]
    NotAPlan { file: String },
    #[error("{file}: not a graph or block list: got the plan of a graph; to check it: steeve check GRAPH {file}")]
    PlanOfGraph { file: String },
    #[error("{file}: plan of another kind: expected the plan of a {wanted} for {problem}, got the plan of a {found}")]
    OtherPlan { file: String, problem: String, found: &'static str, wanted: &'static str },
    #[error("{file}: invalid block list: {why}")]
    Block { file: String, why: String },
    #[error("{file}: invalid block list")]
    Table { file: String, source: TableError },
    #[error("{file}: the plan does not hold: {why}; no header written")]
    DoesNotHold { file: String, why: String },
    #[error("{file}: no plan to check: no block has an offset; {advice}")]
    NoOffsets { file: String, advice: &'static str },
    #[error("{file}: the pinned blocks do not hold: {why}; move them, or plan without --pinned")]
    Pinned { file: String, why: String },
    #[error("{file}: the blocks do not fit into 2^64 bytes")]
    AddressSpace { file: String },
    #[error("{file}: cannot be planned: {why}")]
    Place { file: String, why: String },
    #[error(
        "drop-in library: not found: expected {looked}; build it with cargo build --release -p steeve-ggml, or name it with --library or STEEVE_LIBRARY"
    )]
    NoLibrary { looked: String },
    #[error("{file}: not a shared library: expected {name}", name = crate::drop_in_library::NAME)]
    NotALibrary { file: String },
    #[error("{file}: cannot be preloaded: expected a path without spaces and colons")]
    LibraryPath { file: String },
    #[error("{folder}: cannot be used as the folder of recordings")]
    RecordFolder { folder: String, source: io::Error },
    #[error("{folder}: cannot be used as the folder of plans")]
    PlanFolder { folder: String, source: io::Error },
    #[error("{program}: program not found")]
    NoProgram { program: String },
    #[error("{program}: cannot be started")]
    Start { program: String, source: io::Error },
    #[error("{program}: failed before it planned a graph: {status}{printed}")]
    ProgramFailed { program: String, status: ProgramStatus, printed: ProgramOutput },
    #[error("{program}: ended without planning a graph through ggml; see docs/ggml.md, \"When nothing happens\"")]
    EndedWithoutPlan { program: String },
    #[error(
        "{program}: planned no graph through ggml within {timeout:?}; raise --timeout, or see docs/ggml.md, \"When nothing happens\""
    )]
    NothingPlanned { program: String, timeout: Duration },
    #[error(
        "{program}: ggml's allocator cannot be replaced: ggml is linked into {file}; use a build with shared libraries (docs/ggml.md)"
    )]
    GgmlInside { program: String, file: String },
    #[error(
        "{program}: the drop-in was not loaded: the program is linked statically, set-user-id, or made for another C library"
    )]
    NotPreloaded { program: String },
    #[error("{program}: graphs planned by ggml's own allocator: {}", Clipped(why))]
    GgmlsOwn { program: String, why: String },
    #[error("{program}: stopped by Ctrl-C before it planned a graph")]
    EstimateStopped { program: String },
    #[error("--capacity {memory}: no such memory: expected one of {memories}")]
    NoSuchMemory { memory: String, memories: String },
    #[error("{folder}: cannot be used for the drop-in's report (TMPDIR)")]
    ScratchFolder { folder: String, source: io::Error },
    #[error("drop-in's report: cannot read")]
    Report { source: io::Error },
    #[error(
        "drop-in's report: another version than this command reads; build steeve-cli and steeve-ggml from one source"
    )]
    ReportVersion,
    #[error("drop-in's report: damaged line")]
    ReportLine { source: JsonError },
    #[error("{file}: cannot write")]
    Write { file: String, source: io::Error },
    #[error("{file}: cannot write: no space left on its disk")]
    NoSpace { file: String },
    #[error("{file}: would overwrite the input {input}; name another file with -o")]
    OverInput { file: String, input: String },
    #[error("standard output: cannot write")]
    Output(#[source] io::Error),
}

impl From<FileError> for Error {
    /// Says what the command can do about it.
    fn from(error: FileError) -> Self {
        match error {
            FileError::TooLarge { .. } => Self::TooLarge(error),
            _ => Self::File(error),
        }
    }
}

impl Error {
    /// Returns the exit status of a command that fails with this.
    pub(crate) fn exit_status(&self) -> ExitStatus {
        match self {
            // The input is sound; there is just no plan.
            Self::DoesNotHold { .. } | Self::Pinned { .. } | Self::AddressSpace { .. } | Self::Place { .. } => {
                ExitStatus::Negative
            }
            _ => ExitStatus::BadInput,
        }
    }
}

/// An error with its causes, as one line: each is printed once, also where an error repeats its source in its own sentence.
pub(crate) struct ErrorChain<'a>(pub(crate) &'a (dyn StdError + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !last.contains(&text) {
                write!(f, ": {text}")?;
            }
            (last, source) = (text, cause.source());
        }
        Ok(())
    }
}

/// The last lines that a program printed, behind a message.
#[derive(Debug)]
pub(crate) struct ProgramOutput(pub(crate) Vec<String>);

impl fmt::Display for ProgramOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("; it printed nothing");
        }
        f.write_str("; its last lines:")?;
        self.0.iter().try_for_each(|line| write!(f, "\n  {}", Clipped(line)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use steeve_graph::{PlanFileError, text};
    use steeve_plan::InputLimit;
    use steeve_plan::csv;

    #[test]
    fn each_cause_is_printed_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}: broken")]
        struct Outer(&'static str, #[source] io::Error);
        let chain = |outer: &'static str| ErrorChain(&Outer(outer, io::Error::other("disk full"))).to_string();
        assert_eq!(chain("a"), "a: broken: disk full");
        assert_eq!(chain("disk full"), "disk full: broken");
    }

    #[test]
    fn no_message_repeats_its_source_and_none_ends_with_a_period() {
        let file = || "file".to_owned();
        let io = || io::Error::other("disk full");
        let json = || JsonError(serde_json::from_str::<u32>("{").unwrap_err());
        let (text, csv) =
            (text::read_within("y = neg x", InputLimit::DEFAULT), csv::read_within("a,b", InputLimit::DEFAULT));
        let errors = [
            Error::Read { file: file(), source: io() },
            Error::File(FileError::Gzip { file: file(), source: io() }),
            Error::File(FileError::Text { file: file(), source: Box::new(text.unwrap_err()) }),
            Error::File(FileError::Csv { file: file(), source: csv.unwrap_err() }),
            Error::File(FileError::Json { file: file(), source: json() }),
            Error::File(FileError::PlanFile {
                file: file(),
                source: PlanFileError::Schema { found: "other".to_owned() },
            }),
            Error::RecordFolder { folder: file(), source: io() },
            Error::PlanFolder { folder: file(), source: io() },
            Error::Start { program: file(), source: io() },
            Error::ScratchFolder { folder: file(), source: io() },
            Error::Report { source: io() },
            Error::ReportLine { source: json() },
            Error::Write { file: file(), source: io() },
            Error::Output(io()),
        ];
        for error in &errors {
            let (message, cause) = (error.to_string(), error.source().unwrap().to_string());
            assert!(!message.contains(&cause), "{message} repeats {cause}");
            let chain = ErrorChain(error).to_string();
            assert!(!chain.ends_with('.') && chain.starts_with(&format!("{message}: {cause}")), "{chain}");
        }
    }
}
