//! One ggml in the process: its functions, and what has been found out about it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Arguments;
use std::sync::atomic::{AtomicU64, Ordering};

use steeve_graph::DataType;

use crate::abi_check::check_abi;
use crate::drop_in_settings::settings;
use crate::function_tables::{ForwardedFunctions, GgmlFunctions, OriginalFunctions};
use crate::ggml_abi::GgmlTensor;
use crate::growing_list::OnceValue;
use crate::hash::fnv_1a;
use crate::loaded_object::base_of;
use crate::log::{self, LogFunction, LogLevel};

/// One ggml.
pub(crate) struct GgmlInstance {
    /// The functions that we call, or the name of one that is missing.
    functions: Result<GgmlFunctions, &'static str>,
    /// Its own allocator, where that can be reached.
    pub(crate) originals: Option<OriginalFunctions>,
    /// Its log function, where it has one.
    log: Option<LogFunction>,
    known: OnceValue<Result<KnownGgml, String>>,
    /// Its functions that are passed on.
    pub(crate) forwarded: ForwardedFunctions,
    /// Hashes of what has been said once about it; 0 where there is room for more.
    said: [AtomicU64; MOST_SAID],
}

/// A ggml whose structures have the known layout.
pub(crate) struct KnownGgml {
    pub(crate) functions: GgmlFunctions,
    /// Each operation at its number.
    operations: Vec<GgmlOperation>,
    /// The data types that it calls as we do.
    types: Vec<DataType>,
}

/// What ggml says about one of its operations.
#[derive(Clone, Debug)]
pub(crate) struct GgmlOperation {
    pub(crate) name: Box<str>,
    /// Whether its planner lets it take the place of a source; `None` if it does not say.
    pub(crate) in_place: Option<bool>,
}

/// So many different things are said once. There are not many kinds of reasons.
const MOST_SAID: usize = 32;

/// There are about a hundred operations. Numbers above this are not asked for.
const MOST_OPERATIONS: c_int = 1000;

/// There are about forty data types.
const MOST_TYPES: c_int = 100;

/// There are about forty kinds of unary operations, and fewer of gated ones.
const MOST_KINDS: i32 = 100;

impl GgmlInstance {
    pub(crate) fn new(
        functions: Result<GgmlFunctions, &'static str>,
        originals: Option<OriginalFunctions>,
        log: Option<LogFunction>,
    ) -> Self {
        Self {
            functions,
            originals,
            log,
            known: OnceValue::new(),
            forwarded: ForwardedFunctions::default(),
            said: [const { AtomicU64::new(0) }; MOST_SAID],
        }
    }

    /// Returns the functions that are called, if ggml has them all. The layout of its structures need not be known for that.
    pub(crate) fn functions(&self) -> Option<&GgmlFunctions> {
        self.functions.as_ref().ok()
    }

    /// Sets the functions that are passed on to it.
    #[cfg(any(not(feature = "whole"), test))]
    pub(crate) fn with_forwarded(self, forwarded: ForwardedFunctions) -> Self {
        Self { forwarded, ..self }
    }

    /// Returns this ggml if its structures are known and its own calls can be taken over; else why not. Checked once.
    pub(crate) fn known(&self) -> Result<&KnownGgml, String> {
        let look = || {
            #[cfg(any(not(feature = "whole"), test))]
            self.originals.as_ref().map_or(Ok(()), replaceable)?;
            let functions = self.functions.map_err(|name| format!("ggml has no function {name}"))?;
            check_abi(&functions)?;
            Ok(KnownGgml { functions, operations: operations(&functions), types: types(&functions) })
        };
        self.known.get_or_make(look).as_ref().map_err(String::clone)
    }

    /// Logs a line through its log function, or to stderr with `STEEVE_LOG`.
    pub(crate) fn log(&self, level: LogLevel, what: Arguments<'_>) {
        log::log(self.log.filter(|_| !settings().log), level, what);
    }

    /// Logs a line unless one of its kind has been logged.
    pub(crate) fn log_once(&self, kind: &str, level: LogLevel, what: Arguments<'_>) {
        // Never 0.
        let hash = fnv_1a(kind.as_bytes()) | 1;
        for slot in &self.said {
            match slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return self.log(level, what),
                Err(other) if other == hash => return,
                Err(_) => {}
            }
        }
        // So many kinds of trouble are worth a line each time.
        self.log(level, what);
    }
}

impl KnownGgml {
    pub(crate) fn version(&self) -> String {
        // SAFETY: a function without arguments that answers a string of ggml's own.
        let version = self.functions.ggml_version.and_then(|version| unsafe { text(version()) });
        version.unwrap_or_else(|| "of an unknown version".into())
    }

    /// Returns the three numbers of its version; `None` if it does not say.
    pub(crate) fn version_numbers(&self) -> Option<[u32; 3]> {
        version_numbers(&self.version())
    }

    /// Returns name and nature of an operation; `None` for an unknown number.
    pub(crate) fn operation(&self, op: c_int) -> Option<&GgmlOperation> {
        self.operations.get(usize::try_from(op).ok()?)
    }

    /// Returns the data type with this number, if ggml and this library agree on it.
    pub(crate) fn data_type(&self, number: c_int) -> Option<DataType> {
        let dtype = DataType::from_ggml_id(u32::try_from(number).ok()?)?;
        self.types.contains(&dtype).then_some(dtype)
    }

    /// Returns whether ggml has a name for the data type with this number.
    pub(crate) fn has_type(&self, number: c_int) -> bool {
        (0..MOST_TYPES).contains(&number) && type_name(&self.functions, number).is_some_and(|name| !name.is_empty())
    }

    /// Returns the kind of a unary or gated operation, as ggml calls it.
    ///
    /// # Safety
    /// The tensor is one of this ggml's, with such an operation.
    pub(crate) unsafe fn kind(&self, tensor: *const GgmlTensor) -> Option<String> {
        // SAFETY: as promised.
        let kind = unsafe { (*tensor).op_params[0] };
        if !(0..MOST_KINDS).contains(&kind) {
            return None;
        }
        let ggml = self.functions.ggml_op_desc;
        // SAFETY: as promised. ggml does not look whether it has such a kind; the answer is checked.
        unsafe { own_text(ggml(tensor), ggml as *const c_void) }
    }
}

/// Parses the numbers of a version such as 0.9.4 or 0.21.0-dirty.
fn version_numbers(version: &str) -> Option<[u32; 3]> {
    let digits = |text: &str| text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    let mut numbers = version.splitn(3, '.').map(|text| text[..digits(text)].parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// Checks that calls of ggml's allocator from inside its own object can be taken over. Its scheduler is in there, and calls all
/// of these: were only some of them bound inside, ggml's own functions would get a handle of ours.
#[cfg(any(not(feature = "whole"), test))]
fn replaceable(ggml: &OriginalFunctions) -> Result<(), String> {
    use crate::interposable_calls::bound_inside;
    let mut names = vec![
        c"ggml_gallocr_reserve_n",
        c"ggml_gallocr_alloc_graph",
        c"ggml_gallocr_get_buffer_size",
        c"ggml_gallocr_free",
    ];
    if ggml.ggml_gallocr_reserve_n_size.is_some() {
        names.push(c"ggml_gallocr_reserve_n_size");
    }
    let address = ggml.ggml_gallocr_reserve_n as *const c_void;
    let file = || {
        let info = crate::loaded_object::info_of(address);
        // SAFETY: the loader keeps the name as long as the object is loaded.
        info.and_then(|info| unsafe { text(info.dli_fname) }).unwrap_or_else(|| "its object".into())
    };
    match bound_inside(address, &names) {
        Ok(None) => Ok(()),
        Ok(Some(name)) => Err(format!(
            "ggml's allocator cannot be replaced: {} calls it directly (no relocation for {})",
            file(),
            name.to_string_lossy()
        )),
        Err(why) => Err(format!("ggml's allocator cannot be replaced: {}: {why}", file())),
    }
}

/// Returns all operations that ggml has a name for. It has no function that returns how many there are, and does not check whether
/// it has the one that it is asked for: so they are asked for in order, until the answer is no name.
fn operations(ggml: &GgmlFunctions) -> Vec<GgmlOperation> {
    let is_name = |name: &String| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let operation = |op: c_int| {
        let function = ggml.ggml_op_name;
        // SAFETY: the number of an operation, or the one behind the last.
        let name = unsafe { own_text(function(op), function as *const c_void) }.filter(is_name)?;
        // SAFETY: an operation's number.
        let in_place = ggml.ggml_op_can_inplace.map(|can| unsafe { can(op) });
        Some(GgmlOperation { name: name.into(), in_place })
    };
    (0..MOST_OPERATIONS).map_while(operation).collect()
}

/// Returns the data types that have the same name here and in ggml: a number means nothing by itself.
fn types(ggml: &GgmlFunctions) -> Vec<DataType> {
    let is_known =
        |dtype: &DataType| type_name(ggml, dtype.ggml_id() as c_int).is_some_and(|name| name == dtype.name());
    DataType::ALL.iter().copied().filter(is_known).collect()
}

fn type_name(ggml: &GgmlFunctions, number: c_int) -> Option<String> {
    let function = ggml.ggml_type_name;
    // SAFETY: ggml does not look whether it has such a type; what it finds behind its last is checked.
    unsafe { own_text(function(number), function as *const c_void) }
}

/// Copies a C string of ggml's; `None` for null.
///
/// # Safety
/// Null, or a C string that outlives the call.
pub(crate) unsafe fn text(string: *const c_char) -> Option<String> {
    // SAFETY: as promised.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
}

/// Copies a constant string, if it lies in the same loaded object as the function that returned it, and is short.
///
/// # Safety
/// Any number, if the loader can say where it points to; otherwise as [`text`].
unsafe fn own_text(string: *const c_char, function: *const c_void) -> Option<String> {
    const LONGEST: usize = 64;
    if string.is_null() || base_of(string.cast()) != base_of(function) {
        return None;
    }
    let mut bytes = Vec::new();
    for index in 0..LONGEST {
        let at = string.wrapping_add(index);
        // Beyond the end of the object there may be nothing to read.
        if index > 0 && at.addr().is_multiple_of(4096) && base_of(at.cast()) != base_of(function) {
            return None;
        }
        // SAFETY: within the object, as just seen, or within a string.
        match unsafe { *at } as u8 {
            0 => return String::from_utf8(bytes).ok(),
            byte => bytes.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::version_numbers;

    #[test]
    fn a_version_is_three_numbers() {
        assert_eq!(version_numbers("0.9.4"), Some([0, 9, 4]));
        assert_eq!(version_numbers("0.21.0-dirty"), Some([0, 21, 0]));
        for other in ["", "of an unknown version", "0.9", "1.x.2", "99999999999.0.0"] {
            assert_eq!(version_numbers(other), None, "{other}");
        }
    }
}
