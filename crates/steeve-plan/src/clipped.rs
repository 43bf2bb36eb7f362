//! Text of any length as error messages show it: whole if short, else its beginning.

use core::fmt;

/// Shows a text of any length in a message: up to 200 bytes as it is, of a longer one the beginning and how much is left
/// out.
///
/// Names in a file may be as long as the file. Errors carry them whole, as evidence, and show them with this.
///
/// ```
/// use steeve_plan::Clipped;
/// assert_eq!(Clipped("blk.0.attn_q").to_string(), "blk.0.attn_q");
/// let long = Clipped(&"n".repeat(5000)).to_string();
/// assert!(long.starts_with("nnn") && long.ends_with("n... (4840 bytes left out)"));
/// // The debug form is in quotes, and escapes what can't be printed.
/// assert_eq!(format!("{:?}", Clipped("a\tb")), r#""a\tb""#);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Clipped<'a>(pub &'a str);

impl<'a> Clipped<'a> {
    /// The longest text that is shown whole, in bytes.
    pub const WHOLE: usize = 200;

    /// What is shown of a text that is not shown whole, at most.
    const SHOWN: usize = 160;

    /// Returns the part that is shown, and how many bytes come after it.
    pub fn parts(self) -> (&'a str, usize) {
        let Self(text) = self;
        if text.len() <= Self::WHOLE {
            return (text, 0);
        }
        let end = (0..=Self::SHOWN).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let shown = &text[..end];
        (shown, text.len() - shown.len())
    }
}

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (shown, 0) => f.write_str(shown),
            (shown, left_out) => write!(f, "{shown}... ({left_out} bytes left out)"),
        }
    }
}

impl fmt::Debug for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (shown, 0) => write!(f, "\"{}\"", shown.escape_debug()),
            (shown, left_out) => write!(f, "\"{}...\" ({left_out} bytes left out)", shown.escape_debug()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use proptest::prelude::*;

    use super::Clipped;

    proptest! {
        #[test]
        fn the_beginning_and_the_rest_are_the_text(text in "\\PC{0,300}") {
            let (shown, left_out) = Clipped(&text).parts();
            prop_assert!(text.starts_with(shown));
            prop_assert_eq!(shown.len() + left_out, text.len());
            prop_assert_eq!(left_out == 0, text.len() <= Clipped::WHOLE);
            prop_assert!(Clipped(&text).to_string().len() < Clipped::WHOLE + 40);
        }

        #[test]
        fn letters_of_any_width_are_cut_between_each_other(width in 1usize..5, count in 0usize..400) {
            let text: String = core::iter::repeat_n(['a', 'é', '€', '🚢'][width - 1], count).collect();
            let (shown, left_out) = Clipped(&text).parts();
            prop_assert_eq!((shown.len() + left_out, shown.len() % width), (text.len(), 0));
        }
    }
}
