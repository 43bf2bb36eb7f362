//! Names as text that does no harm where it is put, and that fits there.

/// Text that does nothing to a terminal: control characters are written as Rust would.
///
/// ```
/// assert_eq!(steeve_view::printable("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
/// ```
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            printable.extend(letter.escape_debug());
        } else {
            printable.push(letter);
        }
    }
    printable
}

/// Returns a name that may hold anything as a sentence can bear it: printable, and of at most 40 letters.
///
/// ```
/// assert_eq!(steeve_view::short_name("kq\n"), "kq\\n");
/// assert_eq!(steeve_view::short_name(&"long".repeat(20)).chars().count(), 40);
/// ```
pub fn short_name(name: &str) -> String {
    const ROOM: usize = 40;
    shortened(&printable(name), ROOM)
}

/// Text that means nothing but itself in HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // No control character may stand in XML (but white space, which is not worth an exception), nor may these
            // two, which are no characters.
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Text that can't end a comment in C.
pub(crate) fn commented(text: &str) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    plain.replace("*/", "* /").replace("/*", "/ *")
}

/// As many letters as there is room for.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}
