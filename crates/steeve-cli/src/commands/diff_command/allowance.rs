//! How much larger the second may be (`--allow 1%`, `--allow 64K`).

use steeve_plan::{Bytes, Clipped};
use steeve_view::BytesChange;

use crate::byte_size::parse_bytes;

/// How much a memory may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// By a part of what it took before.
    Part { billionths: u64 },
    /// By so many bytes.
    Size(Bytes),
}

impl Allowance {
    /// Not at all.
    pub(crate) const NONE: Self = Self::Size(Bytes::ZERO);

    /// Returns the number of bytes by which a memory of this size may grow.
    pub(crate) fn of(self, before: Bytes) -> Bytes {
        match self {
            Self::Size(bytes) => bytes,
            Self::Part { billionths } => {
                let bytes = u128::from(before.0) * u128::from(billionths) / 1_000_000_000;
                Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        }
    }

    pub(crate) fn allows(self, change: BytesChange) -> bool {
        change.growth() <= self.of(change.before)
    }
}

/// Reads a percentage or a size.
pub(crate) fn parse_allowance(text: &str) -> Result<Allowance, String> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return parse_bytes(text).map(Allowance::Size).map_err(|error| error.to_string());
    };
    billionths(percent.trim()).map(|billionths| Allowance::Part { billionths }).ok_or_else(|| {
        format!("not a percentage: expected a number and a percent sign, such as 1% or 0.5%, got {:?}", Clipped(text))
    })
}

/// Parses a percentage to billionths, rounding down; `None` if it is not a number.
fn billionths(percent: &str) -> Option<u64> {
    const DIGITS: usize = 7;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(DIGITS).collect();
    whole.parse::<u64>().ok()?.checked_mul(10u64.pow(DIGITS as u32))?.checked_add(fraction.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_exact_and_a_size_is_one_as_everywhere() {
        let of = |text: &str, before: u64| parse_allowance(text).map(|it| it.of(Bytes(before)).0);
        assert_eq!(of("1%", 1000), Ok(10));
        assert_eq!(of("0.1 %", 1999), Ok(1));
        assert_eq!(of("0%", u64::MAX), Ok(0));
        assert_eq!(of("100%", u64::MAX), Ok(u64::MAX));
        assert_eq!(of("33.3333333333%", 1_000_000_000), Ok(333_333_333));
        assert_eq!(of("64K", 1), Ok(65536));
        for text in ["", "%", "1.%", ".5%", "-1%", "1e3%", "x%", "99999999999999999999%", "1X"] {
            assert!(parse_allowance(text).is_err(), "{text}");
        }
    }
}
