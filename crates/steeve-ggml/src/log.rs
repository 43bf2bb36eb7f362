//! What the library says: one line that begins with `steeve: `, through ggml's log function where that is known, else on
//! stderr.
//!
//! What is wrong belongs where the program collects what is wrong with ggml, and to the level that the program has set. Not so
//! what the user has asked for with `STEEVE_LOG` or `STEEVE_RECORD`: many programs drop all but warnings of ggml's, some drop
//! everything, and then the one sign that the library is there would be missing. With `STEEVE_LOG=1` all lines go to stderr,
//! so that they can be read in order.

use std::ffi::{CString, c_char, c_int};
use std::fmt::Arguments;

/// `ggml_log_internal`, which takes a format and hands the text to the program's log callback.
pub(crate) type LogFunction = unsafe extern "C" fn(c_int, *const c_char, ...);

/// Returns the log function that the linker finds.
#[cfg(all(feature = "whole", not(test)))]
pub(crate) fn linked() -> LogFunction {
    unsafe extern "C" {
        fn ggml_log_internal(level: c_int, format: *const c_char, ...);
    }
    ggml_log_internal
}

/// `ggml_log_level`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Warning = 3,
    Error = 4,
}

/// One line on stderr. Failing to say something is no failure.
macro_rules! log_stderr {
    ($($what:tt)*) => { $crate::log::write_stderr(format_args!($($what)*)) };
}
pub(crate) use log_stderr;

/// Writes a line to stderr, in one piece and without a lock: lines of several threads are not mixed, and a child that was forked
/// while another thread wrote one does not wait for it.
pub(crate) fn write_stderr(what: Arguments<'_>) {
    let line = format!("steeve: {what}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: so many bytes of ours.
        let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = &rest[written.min(rest.len())..],
            _ => return,
        }
    }
}

/// Hands a line to ggml's log function; to stderr where there is none.
pub(crate) fn log(function: Option<LogFunction>, level: LogLevel, what: Arguments<'_>) {
    let line = CString::new(format!("steeve: {what}\n"));
    match (function, line) {
        // SAFETY: ggml's own function, with a format and the string that it asks for.
        (Some(function), Ok(line)) => unsafe { function(level as c_int, c"%s".as_ptr(), line.as_ptr()) },
        _ => write_stderr(what),
    }
}

/// Returns a message without what differs each time: numbers, and names in brackets.
pub(crate) fn message_kind(why: &str) -> String {
    let mut depth = 0u32;
    let mut kind = String::with_capacity(why.len());
    for letter in why.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth > 0 || letter.is_ascii_digit() => {}
            _ => kind.push(letter),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_one_kind_differ_in_numbers_and_names() {
        let kind = message_kind("tensor 2 (cache (view)): unknown data type 36");
        assert_eq!(kind, message_kind("tensor 917 (blk.3): unknown data type 41"));
        assert_ne!(kind, message_kind("tensor 2 (): unknown operation 36"));
    }
}
