//! Errors, notes and details on the error stream, and how many of them `--quiet` and `--verbose` let through.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use steeve_view::printable;

use crate::error::{Error, ErrorChain};
use crate::exit_status::ExitStatus;

/// How much is said beside the answer itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Errors alone.
    Quiet,
    /// Errors, notes, and progress of long work on a terminal.
    #[default]
    Normal,
    /// Errors, notes, progress, and what is being done.
    Verbose,
}

impl Verbosity {
    /// Prints an error with its causes and returns the exit status for it.
    pub(crate) fn report(self, error: &Error) -> ExitStatus {
        self.error(ErrorChain(error));
        error.exit_status()
    }

    /// Prints an error.
    pub(crate) fn error(self, message: impl fmt::Display) {
        print_message(Severity::Error, message);
    }

    /// Prints a note, unless quiet.
    pub(crate) fn note(self, message: impl fmt::Display) {
        if self != Self::Quiet {
            print_message(Severity::Note, message);
        }
    }

    /// Prints a detail, if verbose.
    pub(crate) fn detail(self, message: impl FnOnce() -> String) {
        if self == Self::Verbose {
            print_message(Severity::Detail, message());
        }
    }

    /// Returns whether long work shows its progress.
    pub(crate) fn shows_progress(self) -> bool {
        self != Self::Quiet && io::stderr().is_terminal()
    }
}

/// How a message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Error,
    Note,
    Detail,
}

/// Prints one message to the error stream. If that is closed, the message is lost.
fn print_message(severity: Severity, message: impl fmt::Display) {
    let (word, colour) = match severity {
        Severity::Error => ("error", "\x1b[1;31m"),
        Severity::Note => ("note", "\x1b[1;36m"),
        Severity::Detail => ("detail", "\x1b[2m"),
    };
    // Names of files and tensors may hold anything. (Only our own messages have several lines.)
    let message = message.to_string().split('\n').map(printable_line).collect::<Vec<_>>().join("\n");
    let mut stderr = io::stderr().lock();
    let _ = if stderr.is_terminal() && colours_allowed() {
        writeln!(stderr, "{colour}{word}:\x1b[0m {message}")
    } else {
        writeln!(stderr, "{word}: {message}")
    };
}

/// Escapes and shortens one line of a message. Names are clipped where they are put into a sentence; whatever is still too long,
/// such as a path through many folders, loses its middle.
fn printable_line(line: &str) -> String {
    const WHOLE: usize = 1400;
    const KEPT: usize = 600;
    if line.len() <= WHOLE {
        return printable(line);
    }
    let boundary = |at: &usize| line.is_char_boundary(*at);
    let start = (0..=KEPT).rev().find(boundary).unwrap_or(0);
    let end = (line.len() - KEPT..line.len()).find(boundary).unwrap_or(line.len());
    format!("{}... ({} bytes left out) ...{}", printable(&line[..start]), end - start, printable(&line[end..]))
}

/// Returns whether colours may be used: not if `NO_COLOR` has any value but the empty one (<https://no-color.org>), nor on a
/// terminal that calls itself dumb.
pub(crate) fn colours_allowed() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !dumb && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
