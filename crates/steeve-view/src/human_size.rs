//! Formats sizes for people.

use std::cmp::Ordering;

use steeve_plan::Bytes;

/// Formats a size with two decimals and a unit: `1.50 KiB`.
///
/// ```
/// use steeve_plan::Bytes;
/// assert_eq!(steeve_view::human_size(Bytes(1536)), "1.50 KiB");
/// assert_eq!(steeve_view::human_size(Bytes(12)), "12 B");
/// ```
pub fn human_size(bytes: Bytes) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes.0 < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes.0 as f64 / 1024.0;
    let mut unit = 0;
    // 1023.995 would be printed as 1024.00.
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// Returns whether `after` is better than `before`, and the difference in words.
pub(crate) fn difference(before: Bytes, after: Bytes) -> (SizeChange, String) {
    let (change, bytes, word) = match after.0.cmp(&before.0) {
        Ordering::Less => (SizeChange::Less, before.0 - after.0, "less"),
        Ordering::Greater => (SizeChange::More, after.0 - before.0, "more"),
        Ordering::Equal => return (SizeChange::Same, "the same size".to_owned()),
    };
    let percent = match bytes as f64 * 100.0 / before.0 as f64 {
        _ if before.0 == 0 => String::new(),
        part if part < 0.05 => ", under 0.1 %".to_owned(),
        part => format!(", {part:.1} %"),
    };
    (change, format!("{} {word} ({bytes} bytes{percent})", human_size(Bytes(bytes))))
}

/// How the size of a plan compares with another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeChange {
    Less,
    More,
    Same,
}

#[cfg(test)]
mod tests {
    use super::{difference, human_size};
    use steeve_plan::Bytes;

    #[test]
    fn sizes_are_shown_with_three_digits_or_more() {
        let shown = |bytes| human_size(Bytes(bytes));
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1.00 KiB");
        assert_eq!(shown((1 << 20) - 1), "1.00 MiB");
        assert_eq!(shown(1 << 20), "1.00 MiB");
        assert_eq!(shown(u64::MAX), "16.00 EiB");
    }

    #[test]
    fn differences_are_told_in_bytes_and_parts() {
        let told = |before, after| difference(Bytes(before), Bytes(after)).1;
        assert_eq!(told(4096, 2048), "2.00 KiB less (2048 bytes, 50.0 %)");
        assert_eq!(told(1000, 1001), "1 B more (1 bytes, 0.1 %)");
        assert_eq!(told(100_000, 99_999), "1 B less (1 bytes, under 0.1 %)");
        assert_eq!(told(0, 8), "8 B more (8 bytes)");
        assert_eq!(told(8, 8), "the same size");
    }
}
