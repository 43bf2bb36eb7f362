//! ggml's structures in memory, as far as they are read. Unchanged since ggml 0.9.4; [`check_abi`](crate::abi_check)
//! makes sure of it at run time.

use std::ffi::{c_char, c_int, c_void};

/// A buffer type, a buffer, a backend, a context: never looked into, but for the two words that a buffer type begins with.
#[repr(C)]
pub(crate) struct OpaqueStruct {
    _private: [u8; 0],
}

/// `ggml_backend_buffer_type_t`
pub(crate) type GgmlBufferType = *mut OpaqueStruct;
/// `ggml_backend_buffer_t`
pub(crate) type GgmlBuffer = *mut OpaqueStruct;
/// `ggml_backend_t`
#[cfg(all(feature = "whole", not(test)))]
pub(crate) type GgmlBackend = *mut OpaqueStruct;
/// `ggml_context *`
pub(crate) type GgmlContext = *mut OpaqueStruct;
/// `ggml_gallocr_t` of ggml's own
pub(crate) type OriginalHandle = *mut OpaqueStruct;

pub(crate) const MAX_SOURCES: usize = 10;
pub(crate) const OP_PARAMS: usize = 16;
pub(crate) const NAME_BYTES: usize = 64;

/// `ggml_tensor` up to its name. What follows is not the same everywhere, so a tensor is only ever used behind a pointer.
#[repr(C)]
pub(crate) struct GgmlTensor {
    pub(crate) dtype: c_int,
    pub(crate) buffer: GgmlBuffer,
    pub(crate) ne: [i64; 4],
    pub(crate) nb: [usize; 4],
    pub(crate) op: c_int,
    pub(crate) op_params: [i32; OP_PARAMS],
    pub(crate) flags: i32,
    pub(crate) src: [*mut GgmlTensor; MAX_SOURCES],
    pub(crate) view_src: *mut GgmlTensor,
    pub(crate) view_offs: usize,
    pub(crate) data: *mut c_void,
    pub(crate) name: [c_char; NAME_BYTES],
}

/// `ggml_cgraph` up to its leafs.
#[repr(C)]
pub(crate) struct GgmlGraph {
    pub(crate) size: c_int,
    pub(crate) n_nodes: c_int,
    pub(crate) n_leafs: c_int,
    pub(crate) nodes: *mut *mut GgmlTensor,
    pub(crate) grads: *mut *mut GgmlTensor,
    pub(crate) grad_accs: *mut *mut GgmlTensor,
    pub(crate) leafs: *mut *mut GgmlTensor,
}

/// `ggml_init_params`
#[repr(C)]
pub(crate) struct GgmlInitParams {
    pub(crate) mem_size: usize,
    pub(crate) mem_buffer: *mut c_void,
    pub(crate) no_alloc: bool,
}

/// `GGML_STATUS_SUCCESS`, and what else functions answer.
#[cfg(all(feature = "whole", not(test)))]
pub(crate) const SUCCESS: c_int = 0;
#[cfg(all(feature = "whole", not(test)))]
pub(crate) const FAILED: c_int = -1;
#[cfg(all(feature = "whole", not(test)))]
pub(crate) const ALLOC_FAILED: c_int = -2;

/// `GGML_BACKEND_BUFFER_USAGE_COMPUTE`
pub(crate) const USAGE_COMPUTE: c_int = 2;

impl GgmlTensor {
    /// Returns whether the tensor has been given memory. Views have none of their own.
    pub(crate) fn is_placed(&self) -> bool {
        !self.data.is_null() || !self.buffer.is_null()
    }
}
