//! The output of `steeve check` for each plan: sentences, or one JSON object (`--json`).

use std::io::{ErrorKind, Write};

use serde::Serialize;
use steeve_plan::Bytes;
use steeve_view::printable;

use crate::check_fault::CheckFault;
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::json_lines::{EngineBytes, JSON_VERSION, print_line};
use crate::verbosity::Verbosity;

/// How many faults are told as sentences; `--json` lists all of them.
const SHOWN: usize = 50;

/// Writes verdicts to the output, as sentences or JSON.
pub(crate) struct CheckOutput<'a> {
    pub(crate) stdout: &'a mut dyn Write,
    pub(crate) verbosity: Verbosity,
    pub(crate) format: CheckFormat,
    /// The file with the graph or the block list.
    pub(crate) problem: &'a str,
}

/// How a verdict is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckFormat {
    /// For people.
    Sentences,
    /// For programs.
    Json,
}

/// Which plan a verdict is about.
pub(crate) struct PlanTitle<'a> {
    pub(crate) file: &'a str,
    /// In a sentence.
    pub(crate) plan: &'a str,
    pub(crate) kind: PlanKind,
}

/// Where a plan comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlanKind {
    /// It is in a file.
    Given,
    /// It was made just now.
    Ours,
    /// It was recorded with the graph.
    Ggml,
}

/// What `--json` prints for one plan.
#[derive(Serialize)]
struct CheckLine<'a> {
    version: u32,
    file: &'a str,
    problem: &'a str,
    plan: PlanKind,
    holds: bool,
    faults: &'a [CheckFault],
    /// None of a plan in which anything is wrong but its size: its figures mean nothing.
    buffers: Vec<CheckedMemory>,
}

/// One memory of a plan that holds, with the words of `plan --json`.
#[derive(Debug, Serialize)]
pub(crate) struct CheckedMemory {
    pub(crate) name: String,
    pub(crate) peak: Bytes,
    /// What every plan with our in-place decisions for this reuse needs, where the plan is not below that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lower_bound: Option<Bytes>,
    pub(crate) optimal: bool,
    pub(crate) chunks: Vec<Bytes>,
    #[serde(flatten)]
    pub(crate) engine: EngineBytes,
}

impl CheckOutput<'_> {
    /// Says that a plan holds, and how good it is; the figures are made only where they are shown.
    pub(crate) fn holds(
        &mut self,
        title: &PlanTitle<'_>,
        sentence: &str,
        memories: impl FnOnce() -> Result<Vec<CheckedMemory>, Error>,
    ) -> Result<ExitStatus, Error> {
        let PlanTitle { file, plan, .. } = title;
        match self.format {
            CheckFormat::Json => self.print_check_line(title, &[], memories()?)?,
            CheckFormat::Sentences => {
                writeln!(self.stdout, "{file}: {plan} holds: {sentence}").map_err(Error::Output)?;
            }
        }
        Ok(ExitStatus::Success)
    }

    /// Says everything that is wrong, and a last sentence on the error stream.
    pub(crate) fn does_not_hold(&mut self, title: &PlanTitle<'_>, wrong: &[CheckFault]) -> Result<ExitStatus, Error> {
        let things = match wrong.len() {
            1 => "1 fault".to_owned(),
            count => format!("{count} faults"),
        };
        let PlanTitle { file, plan, .. } = title;
        let problem = self.problem;
        let last = format!("{file}: {plan} does not hold for {problem}: {things}");
        self.print_faults(title, wrong, || Ok(Vec::new()), &last)
    }

    /// Says which memories of a plan that holds are above their capacity, and a last sentence on the error stream.
    pub(crate) fn does_not_fit(
        &mut self,
        title: &PlanTitle<'_>,
        over: &[CheckFault],
        memories: impl FnOnce() -> Result<Vec<CheckedMemory>, Error>,
    ) -> Result<ExitStatus, Error> {
        let things = match over.len() {
            1 => "1 memory".to_owned(),
            count => format!("{count} memories"),
        };
        let PlanTitle { file, plan, .. } = title;
        let last = format!("{file}: {plan} holds but does not fit: {things} above --capacity");
        self.print_faults(title, over, memories, &last)
    }

    fn print_faults(
        &mut self,
        title: &PlanTitle<'_>,
        wrong: &[CheckFault],
        memories: impl FnOnce() -> Result<Vec<CheckedMemory>, Error>,
        last: &str,
    ) -> Result<ExitStatus, Error> {
        let file = title.file;
        let told = match self.format {
            CheckFormat::Json => self.print_check_line(title, wrong, memories()?),
            CheckFormat::Sentences => {
                let more = wrong.len().saturating_sub(SHOWN);
                let more = (more > 0).then(|| format!("{file}: and {more} more, which --json lists"));
                let sentences =
                    wrong.iter().take(SHOWN).map(|fault| printable(&format!("{file}: {}", fault.message())));
                let mut sentences = sentences.chain(more);
                sentences.try_for_each(|sentence| writeln!(self.stdout, "{sentence}").map_err(Error::Output))
            }
        };
        match told {
            Ok(()) => {}
            // The reader has closed the output; the answer stays the same.
            Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitStatus::Negative),
            Err(error) => return Err(error),
        }
        self.verbosity.error(last);
        Ok(ExitStatus::Negative)
    }

    fn print_check_line(
        &mut self,
        title: &PlanTitle<'_>,
        faults: &[CheckFault],
        buffers: Vec<CheckedMemory>,
    ) -> Result<(), Error> {
        let PlanTitle { file, kind, .. } = *title;
        let (holds, problem) = (faults.is_empty(), self.problem);
        print_line(self.stdout, &CheckLine { version: JSON_VERSION, file, problem, plan: kind, holds, faults, buffers })
    }
}
