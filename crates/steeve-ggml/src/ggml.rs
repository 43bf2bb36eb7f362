//! One ggml in the process: its functions, and what has been found out about it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::Tensor;
use crate::functions::Functions;
use crate::handshake::handshake;

/// One ggml.
pub(crate) struct Ggml {
    pub(crate) functions: Functions,
    /// Whether its structures are the ones we know; if not, why.
    checked: OnceLock<Result<(), String>>,
    operations: Mutex<BTreeMap<c_int, Operation>>,
}

/// What ggml says about one of its operations.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) name: Box<str>,
    /// Whether its planner lets it take the place of a source; `None` if it does not say.
    pub(crate) in_place: Option<bool>,
}

/// There are about a hundred operations. Far beyond is no operation.
const MOST_OPERATIONS: c_int = 1000;

impl Ggml {
    pub(crate) fn new(functions: Functions) -> Self {
        Self { functions, checked: OnceLock::new(), operations: Mutex::default() }
    }

    /// Whether these are its functions.
    pub(crate) fn is(&self, functions: &Functions) -> bool {
        std::ptr::fn_addr_eq(self.functions.ggml_backend_buft_get_alignment, functions.ggml_backend_buft_get_alignment)
    }

    /// Whether its structures are the ones we know. Looked at once.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.checked.get_or_init(|| handshake(&self.functions)).clone()
    }

    pub(crate) fn version(&self) -> String {
        // SAFETY: a function without arguments that answers a string of ggml's own.
        let version = self.functions.ggml_version.and_then(|version| unsafe { text(version()) });
        version.unwrap_or_else(|| "of an unknown version".into())
    }

    /// Name and nature of an operation that stands in a graph; `None` for a number that can't be one.
    pub(crate) fn operation(&self, op: c_int) -> Option<Operation> {
        if !(0..MOST_OPERATIONS).contains(&op) {
            return None;
        }
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = operations.get(&op) {
            return Some(known.clone());
        }
        // SAFETY: the number stands in a tensor that ggml made, so it is one of its operations.
        let name = unsafe { text((self.functions.ggml_op_name)(op)) }?;
        // SAFETY: as above.
        let in_place = self.functions.ggml_op_can_inplace.map(|can| unsafe { can(op) });
        let operation = Operation { name: name.into(), in_place };
        operations.insert(op, operation.clone());
        Some(operation)
    }

    /// The kind of a unary or gated operation, as ggml calls it; otherwise the operation's name again.
    ///
    /// # Safety
    /// The tensor is one of this ggml's.
    pub(crate) unsafe fn kind(&self, tensor: *const Tensor) -> String {
        // SAFETY: as promised.
        unsafe { text((self.functions.ggml_op_desc)(tensor)) }.unwrap_or_default()
    }
}

/// A string of ggml's.
///
/// # Safety
/// Null, or a C string that outlives the call.
pub(crate) unsafe fn text(string: *const c_char) -> Option<String> {
    // SAFETY: as promised.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
}
