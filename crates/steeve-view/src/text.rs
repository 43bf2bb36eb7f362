//! Escapes and shortens names for where they are shown.

/// Returns text that is safe for a terminal: control characters are escaped as in Rust.
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

/// Returns a name for use in a sentence: printable, and of at most 40 characters.
///
/// ```
/// assert_eq!(steeve_view::short_name("kq\n"), "kq\\n");
/// assert_eq!(steeve_view::short_name(&"long".repeat(20)).chars().count(), 40);
/// ```
pub fn short_name(name: &str) -> String {
    const ROOM: usize = 40;
    shortened(&printable(name), ROOM)
}

/// Escapes text for HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // No control character is allowed in XML (but white space, which is not worth an exception), nor are these
            // two, which are no characters.
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Returns text that can't end a comment in C.
pub(crate) fn commented(text: &str) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    plain.replace("*/", "* /").replace("/*", "/ *")
}

/// Cuts text to as many characters as there is room for.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}
