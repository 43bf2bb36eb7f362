//! Text and paths in, as Rust has them. What is wrong with one names the argument.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{invalid_argument, wrong_type};

/// Reads text.
pub(crate) fn text(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    text_of(argument, None, value)
}

/// Reads text that may be missing.
pub(crate) fn optional_text(argument: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    value.map(|value| text(argument, value)).transpose()
}

/// Reads an item of a sequence of texts.
pub(crate) fn text_of(argument: &str, index: Option<usize>, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let found = value.cast::<PyString>().map_err(|_| wrong_type(argument, index, "str", value))?;
    found.to_str().map(str::to_owned).map_err(|_| {
        let shown = found.repr().map_or_else(|_| "it".to_owned(), |it| it.to_string());
        let what = format!("not text: expected characters that UTF-8 can encode, got a surrogate in {shown}");
        invalid_argument(value.py(), argument, index, what)
    })
}

/// Reads the path of a file.
pub(crate) fn path(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    value.extract().map_err(|error: PyErr| match error.is_instance_of::<pyo3::exceptions::PyTypeError>(value.py()) {
        true => wrong_type(argument, None, "a path", value),
        false => error,
    })
}
