//! A limit on the text a reader accepts, so that a wrong or hostile file is an error and does not exhaust memory.
//!
//! Every reader of this workspace that takes a whole text (block lists, graphs as text, recorded graphs, saved plans)
//! checks its length against an [`InputLimit`] before anything else. O(1).

use crate::Bytes;

/// The most bytes of unpacked text that a reader accepts.
///
/// ```
/// use steeve_plan::{Bytes, InputLimit, csv};
/// let text = "id,lower,upper,size\nconv,0,3,4096\n";
/// assert!(csv::read(text).is_ok());
/// let error = csv::read_within(text, InputLimit::new(Bytes(16))).unwrap_err();
/// assert_eq!(error.to_string(), "input too large: at most 16 bytes are read, got 34");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputLimit(Bytes);

impl InputLimit {
    /// The limit of every reader that is not given another: 256 MiB. The largest recorded graph known has 1.7 MB.
    pub const DEFAULT: Self = Self(Bytes(256 << 20));

    /// Returns a limit of this many bytes.
    pub const fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Returns the most bytes that are read.
    pub const fn bytes(self) -> Bytes {
        self.0
    }

    /// Checks the length of an input, in bytes. Fails if it is above the limit.
    pub const fn check(self, length: usize) -> Result<(), InputTooLarge> {
        let bytes = Bytes(length as u64);
        if bytes.0 > self.0.0 { Err(InputTooLarge { bytes, limit: self.0 }) } else { Ok(()) }
    }
}

/// Returns [`InputLimit::DEFAULT`].
impl Default for InputLimit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An input that is longer than its reader accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("input too large: at most {limit} bytes are read, got {bytes}")]
pub struct InputTooLarge {
    /// The length of the input.
    pub bytes: Bytes,
    /// The most that is read.
    pub limit: Bytes,
}

#[cfg(test)]
mod tests {
    use super::{InputLimit, InputTooLarge};
    use crate::Bytes;

    #[test]
    fn just_the_limit_is_read_and_one_byte_more_is_not() {
        for limit in [0u64, 1, 17, 256 << 20] {
            let (within, bytes) = (InputLimit::new(Bytes(limit)), limit + 1);
            assert_eq!(within.check(limit as usize), Ok(()));
            let above = InputTooLarge { bytes: Bytes(bytes), limit: Bytes(limit) };
            assert_eq!(within.check(bytes as usize), Err(above));
        }
        assert_eq!(InputLimit::new(Bytes(u64::MAX)).check(usize::MAX), Ok(()));
    }
}
