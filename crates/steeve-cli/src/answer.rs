//! What the command says with its exit status, and how it says on the error stream what went wrong.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::error::Error;

/// Over several files the worst answer counts, so they are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// Done.
    Yes,
    /// Done, and the answer is no: it does not fit, or the plan does not hold.
    No,
    /// Bad usage or input.
    Bad,
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> Self {
        Self::from(match answer {
            Answer::Yes => 0,
            Answer::No => 1,
            Answer::Bad => 2,
        })
    }
}

/// Says what went wrong and what that means for the exit status.
pub(crate) fn report(error: &Error) -> Answer {
    say(Tone::Error, error);
    error.answer()
}

/// How a message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Something failed.
    Error,
    /// Something is worth knowing.
    Note,
}

/// One line on the error stream. If even that is closed there is nobody to tell.
pub(crate) fn say(tone: Tone, message: impl fmt::Display) {
    let (word, colour) = match tone {
        Tone::Error => ("error", "\x1b[1;31m"),
        Tone::Note => ("note", "\x1b[1;36m"),
    };
    let mut stderr = io::stderr().lock();
    let _ = if stderr.is_terminal() && colours_allowed() {
        writeln!(stderr, "{colour}{word}:\x1b[0m {message}")
    } else {
        writeln!(stderr, "{word}: {message}")
    };
}

/// See <https://no-color.org>: any value but the empty one forbids colours.
pub(crate) fn colours_allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
