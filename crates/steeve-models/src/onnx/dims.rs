//! Sizes that a caller gives for the dimensions that a file leaves free.

use std::collections::BTreeMap;

use super::error::OnnxError;

/// How large the free dimensions of a model are, by name.
///
/// ```
/// use steeve_models::onnx::DimSizes;
///
/// let dims = DimSizes::new([("past".to_owned(), 16), ("sequence".to_owned(), 4)])?;
/// assert_eq!(dims.get("past + sequence"), Some(20));
/// assert_eq!(dims.get("batch"), None);
/// # Ok::<(), steeve_models::onnx::OnnxError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DimSizes {
    sizes: BTreeMap<String, u64>,
}

impl DimSizes {
    /// Takes sizes by name.
    ///
    /// # Errors
    ///
    /// If a name is there twice, with different sizes, or a size is larger than a model can name.
    pub fn new(sizes: impl IntoIterator<Item = (String, u64)>) -> Result<Self, OnnxError> {
        let mut known = Self::default();
        for (name, size) in sizes {
            if i64::try_from(size).is_err() {
                return Err(OnnxError::DimRange { name, size });
            }
            if let Some(first) = known.sizes.insert(name.clone(), size).filter(|first| *first != size) {
                return Err(OnnxError::DimTwice { name, first, second: size });
            }
        }
        Ok(known)
    }

    /// Returns whether no size is given.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Returns the names and sizes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sizes.iter().map(|(name, size)| (name.as_str(), *size))
    }

    /// Returns the size of a dimension: the one that is given for its name, or what its name amounts to, where that is an
    /// expression of others, such as `past + sequence` or `2*batch`.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.sizes
            .get(name)
            .copied()
            .or_else(|| Expression::of(name, &mut |word| self.sizes.get(word).copied()).whole())
    }

    /// Calls `used` with each given name that the size of a dimension is made of.
    pub(crate) fn names_in(&self, name: &str, used: &mut dyn FnMut(&str)) {
        if self.sizes.contains_key(name) {
            used(name);
        } else {
            let mut size_of = |word: &str| {
                used(word);
                self.sizes.get(word).copied()
            };
            Expression::of(name, &mut size_of).whole();
        }
    }

    /// Returns the names without a size that a dimension is made of: its own, or those in it if it is an expression of others. A
    /// hyphen inside a word is part of it.
    pub(crate) fn missing(&self, name: &str) -> Vec<String> {
        let mut missing = Vec::new();
        let mut size_of = |word: &str| match self.sizes.get(word) {
            Some(size) => Some(*size),
            None => {
                missing.push(word.to_owned());
                Some(1)
            }
        };
        let has_hyphen = name.split(" - ").any(|part| part.contains('-'));
        let mut expression = Expression::of(name, &mut size_of);
        let is_whole = expression.sum().is_some() && expression.rest.is_empty();
        if has_hyphen || !is_whole || missing.is_empty() { vec![name.to_owned()] } else { missing }
    }
}

/// How deep brackets may be nested: the expressions are those that exporters write, and others are names.
const MOST_NESTED: u32 = 50;

/// What is left of an expression.
struct Expression<'a, 'u> {
    rest: &'a str,
    depth: u32,
    /// Returns the size of a name.
    size_of: &'u mut dyn FnMut(&str) -> Option<u64>,
}

impl<'a, 'u> Expression<'a, 'u> {
    fn of(text: &'a str, size_of: &'u mut dyn FnMut(&str) -> Option<u64>) -> Self {
        Self { rest: text.trim(), depth: 0, size_of }
    }

    fn whole(&mut self) -> Option<u64> {
        let value = self.sum()?;
        // Models have no larger ones.
        let value = i64::try_from(value).ok().filter(|_| self.rest.is_empty());
        value.and_then(|value| u64::try_from(value).ok())
    }

    fn take(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Option<i128> {
        let mut value = self.product()?;
        loop {
            if self.take("+") {
                value = value.checked_add(self.product()?)?;
            } else if self.take("-") {
                value = value.checked_sub(self.product()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<i128> {
        let mut value = self.atom()?;
        loop {
            if self.take("*") {
                value = value.checked_mul(self.atom()?)?;
            } else if self.take("//") || self.take("/") {
                let by = self.atom()?;
                // Rounded down, as dimensions are.
                value = if by > 0 { value.div_euclid(by) } else { return None };
            } else {
                return Some(value);
            }
        }
    }

    fn atom(&mut self) -> Option<i128> {
        self.depth += 1;
        if self.depth > MOST_NESTED {
            return None;
        }
        let value = self.bracket_or_word();
        self.depth -= 1;
        value
    }

    fn bracket_or_word(&mut self) -> Option<i128> {
        if self.take("(") || self.take("floor(") {
            let value = self.sum()?;
            return self.take(")").then_some(value);
        }
        let ends = |it: char| !(it.is_alphanumeric() || "_.".contains(it));
        let length = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest.trim_start();
        if word.starts_with(|it: char| it.is_ascii_digit()) {
            return word.parse().ok();
        }
        if word.is_empty() {
            return None;
        }
        (self.size_of)(word).map(i128::from)
    }
}

#[cfg(test)]
mod tests {
    use super::DimSizes;

    #[test]
    fn names_are_looked_up_and_expressions_computed() {
        let dims = DimSizes::new(
            [("n", 4), ("past", i64::MAX.unsigned_abs()), ("a-b", 7), ("x.1", 3)].map(|(name, it)| (name.into(), it)),
        );
        let dims = dims.unwrap();
        for (text, size) in [
            ("n", Some(4)),
            ("a-b", Some(7)),
            ("2*n + 1", Some(9)),
            ("(n + 1)/2", Some(2)),
            ("floor(n/3)", Some(1)),
            ("x.1*n", Some(12)),
            ("n - 5", None),
            ("past + 1", None),
            ("past * past * past", None),
            ("n/0", None),
            ("m", None),
            ("n m", None),
            ("", None),
            ("9", Some(9)),
        ] {
            assert_eq!(dims.get(text), size, "{text}");
        }
        assert_eq!(dims.get(&"(".repeat(100_000)), None);
    }

    #[test]
    fn an_expression_lacks_the_names_in_it() {
        let dims = DimSizes::new([("past".to_owned(), 16)]).unwrap();
        for (text, missing) in [
            ("past + sequence", &["sequence"][..]),
            ("2*batch", &["batch"]),
            ("a/(b - 1)", &["a/(b - 1)"]),
            ("a - 1", &["a"]),
            ("batch-size", &["batch-size"]),
            ("two words", &["two words"]),
            ("", &[""]),
            ("past", &["past"]),
        ] {
            assert_eq!(dims.missing(text), missing, "{text}");
        }
    }

    #[test]
    fn a_name_has_one_size() {
        assert!(DimSizes::new([("n".to_owned(), 1), ("n".to_owned(), 2)]).is_err());
        assert!(DimSizes::new([("n".to_owned(), 1), ("n".to_owned(), 1)]).is_ok());
        assert!(DimSizes::new([("n".to_owned(), i64::MAX.unsigned_abs() + 1)]).is_err());
    }
}
