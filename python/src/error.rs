//! Errors as Python's exceptions. Those with fields are classes of `steeve._errors`; messages are the library's own.

use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use steeve_graph::ErrorChain;
use steeve_models::FileError;

/// Makes an exception of a class of `steeve._errors`, with fields.
pub(crate) fn exception<'py>(
    py: Python<'py>,
    class: &str,
    message: String,
    fill: impl FnOnce(&Bound<'py, PyDict>) -> PyResult<()>,
) -> PyErr {
    let made = || {
        let fields = PyDict::new(py);
        fill(&fields)?;
        let class = py.import("steeve._errors")?.getattr(class)?;
        class.call((message,), Some(&fields))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for an argument whose value is wrong.
pub(crate) fn invalid_argument(py: Python<'_>, argument: &str, index: Option<usize>, what: impl ToString) -> PyErr {
    let name = index.map_or_else(|| argument.to_owned(), |index| format!("{argument}[{index}]"));
    exception(py, "InvalidArgument", format!("{name}: {}", what.to_string()), |fields| {
        fields.set_item("argument", argument)?;
        fields.set_item("index", index)
    })
}

/// Returns the exception for an argument whose type is wrong.
pub(crate) fn wrong_type(argument: &str, index: Option<usize>, expected: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let name = index.map_or_else(|| argument.to_owned(), |index| format!("{argument}[{index}]"));
    PyTypeError::new_err(format!("{name}: wrong type: expected {expected}, got {}", type_name(found)))
}

/// Returns the name of an object's type.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an unknown type".to_owned(), |name| name.to_string())
}

/// Returns the exception for an input that can't be planned as it is.
pub(crate) fn invalid_input(py: Python<'_>, error: &(dyn Error + 'static)) -> PyErr {
    exception(py, "InvalidInput", chain(error), |_| Ok(()))
}

/// Returns the exception for a file: one of the system's where the system refused it.
pub(crate) fn file_error(py: Python<'_>, path: &str, error: &FileError) -> PyErr {
    match error {
        FileError::Read { source, .. } => system_error(py, path, source),
        FileError::Folder { .. } => io::Error::new(io::ErrorKind::IsADirectory, error.to_string()).into(),
        FileError::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
        FileError::TooLarge { .. } => invalid_file(py, path, format!("{error}; raise the limit with max_bytes")),
        _ => invalid_file(py, path, chain(error)),
    }
}

/// Returns Python's own exception for an error of the system: `FileNotFoundError` and its kin, with number and path.
pub(crate) fn system_error(py: Python<'_>, path: &str, error: &io::Error) -> PyErr {
    let Some(number) = error.raw_os_error() else {
        return io::Error::new(error.kind(), format!("{path}: {error}")).into();
    };
    let made = || {
        let text = py.import("os")?.call_method1("strerror", (number,))?;
        py.import("builtins")?.getattr("OSError")?.call1((number, text, path))
    };
    made().map_or_else(|error: PyErr| error, PyErr::from_value)
}

/// Returns the exception for a file with something wrong in it.
pub(crate) fn invalid_file(py: Python<'_>, path: &str, message: String) -> PyErr {
    exception(py, "InvalidFile", message, |fields| fields.set_item("path", path))
}

/// Returns an error with its causes as one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    ErrorChain(error).to_string()
}

/// Does work without the interpreter's lock. A panic, which is a bug of this library, is an exception.
pub(crate) fn unlocked<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| internal(py, &*panic))
}

/// Does work with the interpreter's lock. A panic, which is a bug of this library, is an exception.
pub(crate) fn locked<T>(py: Python<'_>, work: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| internal(py, &*panic))
}

fn internal(py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    exception(py, "InternalError", format!("steeve: internal error, please report it: {text}"), |_| Ok(()))
}
