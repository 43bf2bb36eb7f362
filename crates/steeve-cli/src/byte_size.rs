//! Sizes as people write them: `65536`, `64K`, `1.5GiB`; and as they read them: `1.50 GiB`.

use steeve_plan::{Align, Bytes, Clipped, UnitError};
use steeve_view::human_size;

/// Reads a number of bytes. `K`, `Ki` and `KiB` are 1024, `kB` is 1000, and so on up to exbibytes; capitals do not
/// matter. A fraction of a byte is dropped.
pub(crate) fn parse_bytes(text: &str) -> Result<Bytes, SizeError> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit = unit(suffix.trim()).ok_or_else(|| SizeError::Suffix { suffix: suffix.trim().to_owned() })?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let no_number = || SizeError::NoNumber { text: text.to_owned() };
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(no_number());
    }
    let too_large = || SizeError::TooLarge { text: text.to_owned() };
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // Fourteen digits are finer than a byte of a terabyte, and keep the product within 128 bits.
    let fraction = &fraction[..fraction.len().min(14)];
    let scale = 10u128.pow(fraction.len() as u32);
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| no_number())? };
    let bytes = u128::from(whole) * u128::from(unit) + part * u128::from(unit) / scale;
    u64::try_from(bytes).map(Bytes).map_err(|_| too_large())
}

/// Reads an alignment: a size that is a power of two.
pub(crate) fn parse_align(text: &str) -> Result<Align, SizeError> {
    Ok(Align::new(parse_bytes(text)?.0)?)
}

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    #[error(
        "not a size: expected a number with or without a unit, such as 65536, 64K or 1.5GiB, got {:?}",
        Clipped(text)
    )]
    NoNumber { text: String },
    #[error(
        "not a unit of size: expected K, M, G, T (powers of 1024), KiB, MiB, ... or kB, MB, ... (of 1000), got {:?}",
        Clipped(suffix)
    )]
    Suffix { suffix: String },
    #[error("size out of range: expected at most 2^64 - 1 bytes, got {}", Clipped(text))]
    TooLarge { text: String },
    #[error(transparent)]
    Unit(#[from] UnitError),
}

const PREFIXES: [char; 6] = ['k', 'm', 'g', 't', 'p', 'e'];

fn unit(suffix: &str) -> Option<u64> {
    let suffix = suffix.to_ascii_lowercase();
    let mut letters = suffix.chars();
    let Some(prefix) = letters.next() else { return Some(1) };
    let Some(power) = PREFIXES.iter().position(|letter| *letter == prefix) else {
        return (suffix == "b").then_some(1);
    };
    let base: u64 = match letters.as_str() {
        "" | "i" | "ib" => 1024,
        "b" => 1000,
        _ => return None,
    };
    Some(base.pow(power as u32 + 1))
}

/// How a table shows sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeStyle {
    /// Three digits and a unit.
    Human,
    /// Every byte.
    Exact,
}

impl SizeStyle {
    pub(crate) fn show(self, bytes: Bytes) -> String {
        match self {
            Self::Human => human_size(bytes),
            Self::Exact => bytes.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_align, parse_bytes};
    use steeve_plan::Bytes;

    #[test]
    fn sizes_are_read_with_and_without_a_suffix() {
        let sizes = [
            ("0", 0),
            ("65536", 65536),
            (" 64K ", 65536),
            ("64k", 65536),
            ("64 KiB", 65536),
            ("64kib", 65536),
            ("64Ki", 65536),
            ("64kB", 64000),
            ("12B", 12),
            ("1M", 1 << 20),
            ("1.5G", 3 << 29),
            ("0.5MiB", 1 << 19),
            ("2T", 2 << 40),
            ("15E", 15 << 60),
            ("0.3", 0),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1", "1.", ".5", "1.2.3", "1e6", "1 KiBi", "1X", "16E", "18446744073709551616", "٣"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_alignment_is_a_power_of_two() {
        assert_eq!(parse_align("4K").map(|align| align.get()), Ok(4096));
        assert!(parse_align("48").is_err() && parse_align("0").is_err());
    }
}
