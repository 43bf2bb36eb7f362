//! Structures and functions that ggml 0.26 keeps in its private headers.
//!
//! The bindings of `llama-cpp-sys-2` have everything else. Buffer types changed between 0.25 and 0.26, so the crate's
//! version is pinned; `the_layouts_are_ggmls` asks ggml whether it reads what is written here.

use std::ffi::{c_char, c_int, c_void};

use llama_cpp_sys_2::{
    ggml_backend_buffer_t, ggml_backend_buffer_type_t, ggml_backend_dev_t, ggml_backend_dev_type, ggml_backend_t,
    ggml_op, ggml_tensor,
};

/// The start of `ggml_cgraph`, as far as the allocator reads it.
#[repr(C)]
pub(crate) struct Graph {
    pub(crate) size: c_int,
    pub(crate) n_nodes: c_int,
    pub(crate) n_leafs: c_int,
    pub(crate) nodes: *mut *mut ggml_tensor,
    pub(crate) grads: *mut *mut ggml_tensor,
    pub(crate) grad_accs: *mut *mut ggml_tensor,
    pub(crate) leafs: *mut *mut ggml_tensor,
}

/// `ggml_backend_buffer_type`: its functions, and what they are given.
#[repr(C)]
pub(crate) struct BufferType {
    pub(crate) get_name: extern "C" fn(ggml_backend_buffer_type_t) -> *const c_char,
    pub(crate) alloc_buffer: unsafe extern "C" fn(ggml_backend_buffer_type_t, usize) -> ggml_backend_buffer_t,
    pub(crate) alloc_buffer_n:
        Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, *mut *mut ggml_tensor, c_int) -> ggml_backend_buffer_t>,
    pub(crate) get_alignment: unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize,
    pub(crate) get_max_size: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize>,
    pub(crate) get_alloc_size: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, *const ggml_tensor) -> usize>,
    pub(crate) get_alloc_size_n:
        Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, *mut *mut ggml_tensor, c_int) -> usize>,
    pub(crate) is_host: Option<extern "C" fn(ggml_backend_buffer_type_t) -> bool>,
    pub(crate) device: *mut c_void,
    pub(crate) context: *mut c_void,
}

/// `ggml_backend_buffer_i`. Only the base is needed to plan; the others would touch memory.
#[repr(C)]
pub(crate) struct BufferFunctions {
    pub(crate) free_buffer: Option<extern "C" fn(ggml_backend_buffer_t)>,
    pub(crate) get_base: Option<extern "C" fn(ggml_backend_buffer_t) -> *mut c_void>,
    /// `init_tensor`, `memset_tensor`, `set_tensor`, `get_tensor`, `set_tensor_2d`, `get_tensor_2d`, `cpy_tensor`,
    /// `clear` and `reset`.
    pub(crate) others: [Option<extern "C" fn()>; 9],
}

/// `ggml_backend_device`: what the scheduler asks, and what it is answered with. Nobody calls the functions between.
#[repr(C)]
pub(crate) struct Device {
    /// `get_name`, `get_description` and `get_memory`.
    pub(crate) about: [Option<extern "C" fn()>; 3],
    pub(crate) get_type: extern "C" fn(ggml_backend_dev_t) -> ggml_backend_dev_type,
    /// `get_props`, `init_backend`, `get_buffer_type`, `get_host_buffer_type` and `buffer_from_host_ptr`.
    pub(crate) makers: [Option<extern "C" fn()>; 5],
    pub(crate) supports_op: extern "C" fn(ggml_backend_dev_t, *const ggml_tensor) -> bool,
    pub(crate) supports_buft: unsafe extern "C" fn(ggml_backend_dev_t, ggml_backend_buffer_type_t) -> bool,
    pub(crate) offload_op: Option<extern "C" fn(ggml_backend_dev_t, *const ggml_tensor) -> bool>,
    /// `event_new`, `event_free` and `event_synchronize`.
    pub(crate) events: [Option<extern "C" fn()>; 3],
    pub(crate) reg: *mut c_void,
    pub(crate) context: *mut c_void,
}

/// `ggml_backend`: a stream of work on a device.
#[repr(C)]
pub(crate) struct Backend {
    pub(crate) guid: *mut c_void,
    pub(crate) get_name: extern "C" fn(ggml_backend_t) -> *const c_char,
    /// `free`, five that transfer, `synchronize`, four for plans, `graph_compute`, two for events and `graph_optimize`:
    /// none is needed to schedule.
    pub(crate) others: [Option<extern "C" fn()>; 15],
    pub(crate) device: ggml_backend_dev_t,
    pub(crate) context: *mut c_void,
}

unsafe extern "C" {
    pub(crate) fn ggml_backend_buffer_init(
        buffer_type: ggml_backend_buffer_type_t,
        functions: BufferFunctions,
        context: *mut c_void,
        size: usize,
    ) -> ggml_backend_buffer_t;

    /// Whether a buffer type may ask for more bytes than the result of this operation has.
    pub(crate) safe fn ggml_op_alloc_size_may_expand(op: ggml_op) -> bool;
}
