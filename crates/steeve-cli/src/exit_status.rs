//! The exit status of the command.

use std::process::ExitCode;

/// The exit status of the command. Over several files the worst counts, so they are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExitStatus {
    /// Done.
    Success,
    /// Done, and the answer is no: it does not fit, or the plan does not hold.
    Negative,
    /// Bad usage or input.
    BadInput,
}

impl From<ExitStatus> for ExitCode {
    fn from(answer: ExitStatus) -> Self {
        Self::from(match answer {
            ExitStatus::Success => 0,
            ExitStatus::Negative => 1,
            ExitStatus::BadInput => 2,
        })
    }
}
