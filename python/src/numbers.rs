//! Sequences and buffers of whole numbers in, vectors out. One pass.

use pyo3::buffer::{ElementType, PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFrozenSet, PyMemoryView, PySet, PyString};

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
    read_each(argument, value, |index, number| number_or_none(py, argument, index, number))
}

/// Reads an item of a sequence: a number from 0 to 2^64 - 1, where `None` and -1 are none.
pub(crate) fn optional_number(argument: &str, index: usize, value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    number_or_none(value.py(), argument, index, given_number(argument, Some(index), value)?)
}

fn number_or_none(py: Python<'_>, argument: &str, index: usize, number: GivenNumber) -> PyResult<Option<u64>> {
    match number {
        None | Some(-1) => Ok(None),
        Some(it) => u64::try_from(it).map(Some).map_err(|_| out_of_range(py, argument, index, number)),
    }
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

/// Reads how many of something there are.
pub(crate) fn count(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let found = number(argument, value)?;
    usize::try_from(found).map_err(|_| {
        let what = format!("out of range: expected 0 to {}, got {found}", usize::MAX);
        invalid_argument(value.py(), argument, None, what)
    })
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
    if let Ok(buffer) = PyUntypedBuffer::get(value)
        && let Some(all) = read_buffer(argument, value, buffer, &each)?
    {
        return Ok(all);
    }
    let items = value.try_iter().map_err(|_| wrong_type(argument, None, EXPECTED, value))?;
    // A length is what the caller claims: for more items than these there is room when they come.
    const PIECE: usize = 1 << 16;
    let mut all = Vec::with_capacity(value.len().unwrap_or(0).min(PIECE));
    for (index, item) in items.enumerate() {
        if index % PIECE == 0 {
            // What never ends ends with Ctrl-C, or where there is no memory for it.
            value.py().check_signals()?;
        }
        all.try_reserve(1).map_err(|_| PyMemoryError::new_err(format!("{argument}: no memory for so many items")))?;
        all.push(each(index, given_number(argument, Some(index), &item?)?)?);
    }
    Ok(all)
}

/// Reads the items of a buffer, whatever width and byte order they have; `None` where they are objects, to be read one by one.
fn read_buffer<T>(
    argument: &str,
    value: &Bound<'_, PyAny>,
    buffer: PyUntypedBuffer,
    each: impl Fn(usize, GivenNumber) -> PyResult<T>,
) -> PyResult<Option<Vec<T>>> {
    let py = value.py();
    if buffer.dimensions() != 1 {
        let what = format!("wrong shape: expected one dimension, got {}", buffer.dimensions());
        return Err(invalid_argument(py, argument, None, what));
    }
    if buffer.shape().contains(&0) {
        // Nothing in it is of a wrong type: an empty array of NumPy is one of floats unless it is told otherwise.
        return Ok(Some(Vec::new()));
    }
    let Some(item) = ItemFormat::new(&buffer) else {
        if buffer.format().to_bytes() == b"O" {
            return Ok(None);
        }
        let found = format!("a buffer of format {:?}", buffer.format().to_string_lossy());
        return Err(PyTypeError::new_err(format!("{argument}: wrong type: expected whole numbers, got {found}")));
    };
    macro_rules! items {
        ($type:ty) => {{
            let items: Vec<$type> = if item.is_native {
                let typed: PyBuffer<$type> = buffer.into_typed()?;
                typed.to_vec(py)?
            } else {
                let bytes = PyMemoryView::from(value)?.call_method0("tobytes")?;
                let (items, _) = bytes.cast::<PyBytes>()?.as_bytes().as_chunks();
                let number = if item.is_big_endian { <$type>::from_be_bytes } else { <$type>::from_le_bytes };
                items.iter().map(|item| number(*item)).collect()
            };
            items.into_iter().enumerate().map(|(index, item)| each(index, Some(item.into()))).collect()
        }};
    }
    let all: PyResult<Vec<T>> = match (item.is_signed, buffer.item_size()) {
        (true, 1) => items!(i8),
        (true, 2) => items!(i16),
        (true, 4) => items!(i32),
        (true, _) => items!(i64),
        (false, 1) => items!(u8),
        (false, 2) => items!(u16),
        (false, 4) => items!(u32),
        (false, _) => items!(u64),
    };
    all.map(Some)
}

/// How the whole numbers of a buffer are to be read.
struct ItemFormat {
    is_signed: bool,
    is_big_endian: bool,
    /// Whether they can be read in place: in the byte order of this machine, and aligned.
    is_native: bool,
}

impl ItemFormat {
    /// Reads a format of Python's module `struct`; `None` unless it is one of whole numbers of 1, 2, 4 or 8 bytes.
    fn new(buffer: &PyUntypedBuffer) -> Option<Self> {
        const IS_BIG: bool = cfg!(target_endian = "big");
        let format = buffer.format().to_bytes();
        let is_big_endian = match format {
            [b'>' | b'!', _] => true,
            [b'<', _] => false,
            _ => IS_BIG,
        };
        let (is_signed, bytes) = match ElementType::from_format(buffer.format()) {
            // A character is no number.
            _ if format.last() == Some(&b'c') => return None,
            ElementType::SignedInteger { bytes } => (true, bytes),
            ElementType::UnsignedInteger { bytes } => (false, bytes),
            _ => return None,
        };
        let is_known = matches!(bytes, 1 | 2 | 4 | 8) && bytes == buffer.item_size();
        // Whoever says which byte order it is may have the one of this machine; what reads in place takes no such word.
        let is_native = !matches!(format.first(), Some(b'<' | b'>' | b'!'));
        is_known.then(|| Self {
            is_signed,
            is_big_endian,
            is_native: is_native && (buffer.buf_ptr() as usize).is_multiple_of(bytes),
        })
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
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
                // Python does not write out what has thousands of digits.
                let bits = || value.call_method0("bit_length").map(|bits| format!("a number of {bits} bits"));
                let found = value.str().map(|it| it.to_string()).or_else(|_| bits())?;
                let what = format!("out of range: expected 0 to 2^64 - 1, got {found}");
                return Err(invalid_argument(py, argument, index, what));
            }
            Err(_) => {}
        }
    }
    Err(wrong_type(argument, index, "a whole number", value))
}
