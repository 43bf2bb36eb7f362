//! ggml's functions that the drop-in calls, as tables of one ggml in the process.

#[cfg(any(not(feature = "whole"), test))]
use std::ffi::CStr;
use std::ffi::{c_char, c_int, c_void};

use crate::ggml_abi::{GgmlBuffer, GgmlBufferType, GgmlContext, GgmlGraph, GgmlInitParams, GgmlTensor, OriginalHandle};

macro_rules! functions {
    // Required: there is no table without. Expected: every ggml since 0.9.4 has them, but a table can do without. Optional: some
    // versions have them.
    (
        $(#[$doc:meta])* $table:ident
        required { $($required:ident: fn($($required_arg:ty),*) $(-> $required_ret:ty)?;)* }
        expected { $($expected:ident: fn($($expected_arg:ty),*) $(-> $expected_ret:ty)?;)* }
        optional { $($optional:ident: fn($($optional_arg:ty),*) $(-> $optional_ret:ty)?;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $required: unsafe extern "C" fn($($required_arg),*) $(-> $required_ret)?,)*
            $(pub(crate) $expected: Option<unsafe extern "C" fn($($expected_arg),*) $(-> $expected_ret)?>,)*
            $(pub(crate) $optional: Option<unsafe extern "C" fn($($optional_arg),*) $(-> $optional_ret)?>,)*
        }

        impl $table {
            /// Asks `find` for each by its name. `Err` is the name of the first that must be there and is not.
            #[cfg(any(not(feature = "whole"), test))]
            pub(crate) fn find(find: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    $($required: {
                        let found = find(c_name(concat!(stringify!($required), "\0")));
                        if found.is_null() {
                            return Err(stringify!($required));
                        }
                        // SAFETY: a function of this name has this signature in every ggml since 0.9.4.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($required_arg),*) $(-> $required_ret)?>(found)
                        }
                    },)*
                    $($expected: {
                        let found = find(c_name(concat!(stringify!($expected), "\0")));
                        // SAFETY: as above; a null pointer is `None`.
                        unsafe {
                            std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($expected_arg),*) $(-> $expected_ret)?>>(found)
                        }
                    },)*
                    $($optional: {
                        let found = find(c_name(concat!(stringify!($optional), "\0")));
                        // SAFETY: as above; a null pointer is `None`.
                        unsafe {
                            std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($optional_arg),*) $(-> $optional_ret)?>>(found)
                        }
                    },)*
                })
            }

            /// Returns the functions that the linker finds.
            #[cfg(all(feature = "whole", not(test)))]
            #[allow(dead_code)]
            pub(crate) fn linked() -> Self {
                mod linked {
                    use super::*;
                    unsafe extern "C" {
                        $(pub(super) fn $required($(_: $required_arg),*) $(-> $required_ret)?;)*
                        $(pub(super) fn $expected($(_: $expected_arg),*) $(-> $expected_ret)?;)*
                    }
                }
                Self { $($required: linked::$required,)* $($expected: Some(linked::$expected),)* $($optional: None,)* }
            }
        }
    };
}

functions! {
    /// What plans and buffers need.
    GgmlFunctions
    required {
        ggml_backend_buft_get_alignment: fn(GgmlBufferType) -> usize;
        ggml_backend_buft_get_max_size: fn(GgmlBufferType) -> usize;
        ggml_backend_buft_get_alloc_size: fn(GgmlBufferType, *const GgmlTensor) -> usize;
        ggml_backend_buft_alloc_buffer: fn(GgmlBufferType, usize) -> GgmlBuffer;
        ggml_backend_buft_name: fn(GgmlBufferType) -> *const c_char;
        ggml_backend_buffer_get_base: fn(GgmlBuffer) -> *mut c_void;
        ggml_backend_buffer_get_size: fn(GgmlBuffer) -> usize;
        ggml_backend_buffer_reset: fn(GgmlBuffer);
        ggml_backend_buffer_set_usage: fn(GgmlBuffer, c_int);
        ggml_backend_buffer_free: fn(GgmlBuffer);
        ggml_backend_tensor_alloc: fn(GgmlBuffer, *mut GgmlTensor, *mut c_void) -> c_int;
        ggml_backend_view_init: fn(*mut GgmlTensor) -> c_int;
        ggml_type_name: fn(c_int) -> *const c_char;
        ggml_op_name: fn(c_int) -> *const c_char;
        ggml_op_desc: fn(*const GgmlTensor) -> *const c_char;
        ggml_init: fn(GgmlInitParams) -> GgmlContext;
        ggml_free: fn(GgmlContext);
        ggml_new_tensor_2d: fn(GgmlContext, c_int, i64, i64) -> *mut GgmlTensor;
        ggml_view_1d: fn(GgmlContext, *mut GgmlTensor, i64, usize) -> *mut GgmlTensor;
        ggml_add: fn(GgmlContext, *mut GgmlTensor, *mut GgmlTensor) -> *mut GgmlTensor;
        ggml_set_input: fn(*mut GgmlTensor);
        ggml_set_output: fn(*mut GgmlTensor);
        ggml_set_name: fn(*mut GgmlTensor, *const c_char) -> *mut GgmlTensor;
        ggml_new_graph: fn(GgmlContext) -> *mut GgmlGraph;
        ggml_build_forward_expand: fn(*mut GgmlGraph, *mut GgmlTensor);
    }
    expected {
        ggml_version: fn() -> *const c_char;
        ggml_backend_buft_is_host: fn(GgmlBufferType) -> bool;
        ggml_backend_buft_get_device: fn(GgmlBufferType) -> *mut c_void;
        ggml_backend_dev_type: fn(*mut c_void) -> c_int;
        ggml_backend_dev_backend_reg: fn(*mut c_void) -> *mut c_void;
        ggml_backend_reg_name: fn(*mut c_void) -> *const c_char;
    }
    optional {
        ggml_op_can_inplace: fn(c_int) -> bool;
        ggml_backend_buft_is_meta: fn(GgmlBufferType) -> bool;
    }
}

functions! {
    /// ggml's own graph allocator.
    OriginalFunctions
    required {
        ggml_gallocr_new_n: fn(*mut GgmlBufferType, c_int) -> OriginalHandle;
        ggml_gallocr_free: fn(OriginalHandle);
        ggml_gallocr_reserve_n: fn(OriginalHandle, *mut GgmlGraph, *const c_int, *const c_int) -> bool;
        ggml_gallocr_alloc_graph: fn(OriginalHandle, *mut GgmlGraph) -> bool;
        ggml_gallocr_get_buffer_size: fn(OriginalHandle, c_int) -> usize;
    }
    expected {}
    optional {
        ggml_gallocr_reserve_n_size: fn(OriginalHandle, *mut GgmlGraph, *const c_int, *const c_int, *mut usize);
    }
}

/// What [`forwarded_functions`](crate::forwarded_functions) passes on, and what a report asks beside that. Some versions have them; what ggml's own throws
/// passes through.
#[derive(Clone, Copy, Default)]
#[cfg_attr(all(feature = "whole", not(test)), allow(dead_code))]
pub(crate) struct ForwardedFunctions {
    pub(crate) alloc_context: Option<AllocContext>,
    pub(crate) size_of_context: Option<SizeOfContext>,
    pub(crate) map_host_memory: Option<MapHostMemory>,
    pub(crate) free_buffer: Option<FreeBuffer>,
    pub(crate) type_of_buffer: Option<TypeOfBuffer>,
    pub(crate) name_of_device: Option<NameOfDevice>,
    pub(crate) first_tensor: Option<FirstTensor>,
    pub(crate) next_tensor: Option<NextTensor>,
}

type AllocContext = unsafe extern "C-unwind" fn(GgmlContext, GgmlBufferType) -> GgmlBuffer;
type SizeOfContext = unsafe extern "C-unwind" fn(GgmlContext, GgmlBufferType) -> usize;
type MapHostMemory = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize, usize) -> GgmlBuffer;
type FreeBuffer = unsafe extern "C-unwind" fn(GgmlBuffer);
type TypeOfBuffer = unsafe extern "C" fn(GgmlBuffer) -> GgmlBufferType;
type NameOfDevice = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FirstTensor = unsafe extern "C" fn(GgmlContext) -> *mut GgmlTensor;
type NextTensor = unsafe extern "C" fn(GgmlContext, *mut GgmlTensor) -> *mut GgmlTensor;

#[cfg(any(not(feature = "whole"), test))]
impl ForwardedFunctions {
    /// Asks `find` for each by its name.
    pub(crate) fn find(find: impl Fn(&CStr) -> *mut c_void) -> Self {
        macro_rules! find {
            ($name:literal as $signature:ty) => {
                // SAFETY: a function of this name has this signature in every ggml that has it; a null pointer is `None`.
                unsafe { std::mem::transmute::<*mut c_void, Option<$signature>>(find($name)) }
            };
        }
        Self {
            alloc_context: find!(c"ggml_backend_alloc_ctx_tensors_from_buft" as AllocContext),
            size_of_context: find!(c"ggml_backend_alloc_ctx_tensors_from_buft_size" as SizeOfContext),
            map_host_memory: find!(c"ggml_backend_dev_buffer_from_host_ptr" as MapHostMemory),
            free_buffer: find!(c"ggml_backend_buffer_free" as FreeBuffer),
            type_of_buffer: find!(c"ggml_backend_buffer_get_type" as TypeOfBuffer),
            name_of_device: find!(c"ggml_backend_dev_name" as NameOfDevice),
            first_tensor: find!(c"ggml_get_first_tensor" as FirstTensor),
            next_tensor: find!(c"ggml_get_next_tensor" as NextTensor),
        }
    }
}

#[cfg(any(not(feature = "whole"), test))]
fn c_name(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c"")
}
