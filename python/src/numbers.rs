//! Sequences and buffers of whole numbers in, vectors out. One pass.

use pyo3::buffer::{ElementType, PyBuffer, PyUntypedBuffer};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFrozenSet, PySet, PyString};

use crate::error::{invalid_argument, wrong_type};

/// A number as it was given: `None`, or one that may be out of range.
type GivenNumber = Option<i128>;

/// Reads numbers from 0 to 2^64 - 1.
pub(crate) fn numbers(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let py = value.py();
    read_each(argument, value, |index, number| match number.map(u64::try_from) {
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => Err(out_of_range(py, argument, index, number)),
        None => Err(invalid_argument(py, argument, Some(index), "missing: expected a number, got None")),
    })
}

/// Reads numbers from 0 to 2^64 - 1, where `None` and -1 are none.
pub(crate) fn optional_numbers(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Option<u64>>> {
    let py = value.py();
    read_each(argument, value, |index, number| match number {
        None | Some(-1) => Ok(None),
        Some(it) => u64::try_from(it).map(Some).map_err(|_| out_of_range(py, argument, index, number)),
    })
}

/// Reads one number from 0 to 2^64 - 1.
pub(crate) fn number(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = value.py();
    let found = given_number(argument, None, value)?;
    let out_of_range = || {
        let found = found.map_or_else(|| "None".to_owned(), |it| it.to_string());
        invalid_argument(py, argument, None, format!("out of range: expected 0 to 2^64 - 1, got {found}"))
    };
    found.and_then(|it| u64::try_from(it).ok()).ok_or_else(out_of_range)
}

/// Refuses a sequence of another length than that of `first`.
pub(crate) fn check_length(py: Python<'_>, argument: &str, found: usize, first: &str, expected: usize) -> PyResult<()> {
    if found == expected {
        return Ok(());
    }
    let what = format!("wrong length: expected {expected} as in {first}, got {found}");
    Err(invalid_argument(py, argument, None, what))
}

fn out_of_range(py: Python<'_>, argument: &str, index: usize, number: GivenNumber) -> PyErr {
    let found = number.map_or_else(|| "None".to_owned(), |it| it.to_string());
    invalid_argument(py, argument, Some(index), format!("out of range: expected 0 to 2^64 - 1, got {found}"))
}

fn read_each<T>(
    argument: &str,
    value: &Bound<'_, PyAny>,
    each: impl Fn(usize, GivenNumber) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    const EXPECTED: &str = "a sequence or a buffer of whole numbers";
    let is_no_sequence = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyDict>()
        || value.is_instance_of::<PySet>()
        || value.is_instance_of::<PyFrozenSet>();
    if is_no_sequence {
        return Err(wrong_type(argument, None, EXPECTED, value));
    }
    if let Ok(buffer) = PyUntypedBuffer::get(value) {
        return read_buffer(argument, value, buffer, each);
    }
    let items = value.try_iter().map_err(|_| wrong_type(argument, None, EXPECTED, value))?;
    let mut all = Vec::with_capacity(value.len().unwrap_or(0));
    for (index, item) in items.enumerate() {
        all.push(each(index, given_number(argument, Some(index), &item?)?)?);
    }
    Ok(all)
}

/// Reads the items of a buffer, whatever width they have.
fn read_buffer<T>(
    argument: &str,
    value: &Bound<'_, PyAny>,
    buffer: PyUntypedBuffer,
    each: impl Fn(usize, GivenNumber) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let py = value.py();
    if buffer.dimensions() != 1 {
        let what = format!("wrong shape: expected one dimension, got {}", buffer.dimensions());
        return Err(invalid_argument(py, argument, None, what));
    }
    let element = ElementType::from_format(buffer.format());
    macro_rules! items {
        ($type:ty) => {{
            let typed: PyBuffer<$type> = buffer.into_typed()?;
            let items = typed.to_vec(py)?;
            items.into_iter().enumerate().map(|(index, item)| each(index, Some(i128::from(item)))).collect()
        }};
    }
    match element {
        ElementType::SignedInteger { bytes: 1 } => items!(i8),
        ElementType::SignedInteger { bytes: 2 } => items!(i16),
        ElementType::SignedInteger { bytes: 4 } => items!(i32),
        ElementType::SignedInteger { bytes: 8 } => items!(i64),
        ElementType::UnsignedInteger { bytes: 1 } => items!(u8),
        ElementType::UnsignedInteger { bytes: 2 } => items!(u16),
        ElementType::UnsignedInteger { bytes: 4 } => items!(u32),
        ElementType::UnsignedInteger { bytes: 8 } => items!(u64),
        _ => {
            let found = format!("a buffer of format {:?}", buffer.format().to_string_lossy());
            let what = format!("{argument}: wrong type: expected whole numbers, got {found}");
            Err(pyo3::exceptions::PyTypeError::new_err(what))
        }
    }
}

/// Reads one number, as an index would be: no float is one.
fn given_number(argument: &str, index: Option<usize>, value: &Bound<'_, PyAny>) -> PyResult<GivenNumber> {
    if value.is_none() {
        return Ok(None);
    }
    if !value.is_instance_of::<PyBool>() {
        // The short way first: most numbers are small, and none is negative.
        if let Ok(number) = value.extract::<u64>() {
            return Ok(Some(i128::from(number)));
        }
        let py = value.py();
        match value.extract::<i128>() {
            Ok(number) => return Ok(Some(number)),
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(py) => {
                let what = format!("out of range: expected 0 to 2^64 - 1, got {}", value.str()?);
                return Err(invalid_argument(py, argument, index, what));
            }
            Err(_) => {}
        }
    }
    Err(wrong_type(argument, index, "a whole number", value))
}
