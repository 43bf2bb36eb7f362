//! Patterns for readers who can't tell the colours apart: the same as on the page, as squares of 8 by 8 pixels.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::legend::PATTERNS;

/// The marks of each pattern: rectangles, or parts of them where a slanting line leaves the square.
const MARKS: [&str; PATTERNS] = [
    "",
    "M8 0L0 8H2L8 2zM0 0H2L0 2z",
    "M1 1h1v1h-1zM5 1h1v1h-1zM1 5h1v1h-1zM5 5h1v1h-1z",
    "M0 1h8v1h-8zM0 5h8v1h-8z",
    "M0 0L8 8V6L2 0zM0 6L2 8H0z",
    "M1 0h1v8h-1zM5 0h1v8h-1z",
    "M3 0h1v8h-1zM0 3h3v1h-3zM4 3h4v1h-4z",
    "M0 0h4v4h-4zM4 4h4v4h-4z",
];

/// Returns the definitions of the patterns in use. Their names and contents are the same in all drawings, so several in
/// one page do not conflict.
pub(super) fn definitions(used: &BTreeSet<usize>) -> String {
    if used.is_empty() {
        return String::new();
    }
    let mut text = String::from("<defs>\n");
    for pattern in used {
        let _ = writeln!(
            text,
            "<pattern id=\"steeve-{pattern}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><path class=\"k\" d=\"{}\"/></pattern>",
            MARKS[pattern % PATTERNS]
        );
    }
    text.push_str("</defs>\n");
    text
}
