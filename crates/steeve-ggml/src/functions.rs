//! ggml's functions that the drop-in calls, as tables of one ggml in the process.

#[cfg(any(not(feature = "whole"), test))]
use std::ffi::CStr;
use std::ffi::{c_char, c_int, c_void};

use crate::abi::{Buffer, BufferType, Context, Graph, InitParams, Original, Tensor};

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

            /// Those that the linker finds.
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
    Functions
    required {
        ggml_backend_buft_get_alignment: fn(BufferType) -> usize;
        ggml_backend_buft_get_max_size: fn(BufferType) -> usize;
        ggml_backend_buft_get_alloc_size: fn(BufferType, *const Tensor) -> usize;
        ggml_backend_buft_alloc_buffer: fn(BufferType, usize) -> Buffer;
        ggml_backend_buft_name: fn(BufferType) -> *const c_char;
        ggml_backend_buffer_get_base: fn(Buffer) -> *mut c_void;
        ggml_backend_buffer_get_size: fn(Buffer) -> usize;
        ggml_backend_buffer_reset: fn(Buffer);
        ggml_backend_buffer_set_usage: fn(Buffer, c_int);
        ggml_backend_buffer_free: fn(Buffer);
        ggml_backend_tensor_alloc: fn(Buffer, *mut Tensor, *mut c_void) -> c_int;
        ggml_backend_view_init: fn(*mut Tensor) -> c_int;
        ggml_type_name: fn(c_int) -> *const c_char;
        ggml_op_name: fn(c_int) -> *const c_char;
        ggml_op_desc: fn(*const Tensor) -> *const c_char;
        ggml_init: fn(InitParams) -> Context;
        ggml_free: fn(Context);
        ggml_new_tensor_2d: fn(Context, c_int, i64, i64) -> *mut Tensor;
        ggml_view_1d: fn(Context, *mut Tensor, i64, usize) -> *mut Tensor;
        ggml_add: fn(Context, *mut Tensor, *mut Tensor) -> *mut Tensor;
        ggml_set_input: fn(*mut Tensor);
        ggml_set_output: fn(*mut Tensor);
        ggml_set_name: fn(*mut Tensor, *const c_char) -> *mut Tensor;
        ggml_new_graph: fn(Context) -> *mut Graph;
        ggml_build_forward_expand: fn(*mut Graph, *mut Tensor);
    }
    expected {
        ggml_version: fn() -> *const c_char;
        ggml_backend_buft_is_host: fn(BufferType) -> bool;
        ggml_backend_buft_get_device: fn(BufferType) -> *mut c_void;
        ggml_backend_dev_type: fn(*mut c_void) -> c_int;
        ggml_backend_dev_backend_reg: fn(*mut c_void) -> *mut c_void;
        ggml_backend_reg_name: fn(*mut c_void) -> *const c_char;
    }
    optional {
        ggml_op_can_inplace: fn(c_int) -> bool;
        ggml_backend_buft_is_meta: fn(BufferType) -> bool;
    }
}

functions! {
    /// ggml's own graph allocator.
    Originals
    required {
        ggml_gallocr_new_n: fn(*mut BufferType, c_int) -> Original;
        ggml_gallocr_free: fn(Original);
        ggml_gallocr_reserve_n: fn(Original, *mut Graph, *const c_int, *const c_int) -> bool;
        ggml_gallocr_alloc_graph: fn(Original, *mut Graph) -> bool;
        ggml_gallocr_get_buffer_size: fn(Original, c_int) -> usize;
    }
    expected {}
    optional {
        ggml_gallocr_reserve_n_size: fn(Original, *mut Graph, *const c_int, *const c_int, *mut usize);
    }
}

/// What [`passed`](crate::passed) passes on, and what a report asks beside that. Some versions have them; what ggml's own throws
/// passes through.
#[derive(Clone, Copy, Default)]
#[cfg_attr(all(feature = "whole", not(test)), allow(dead_code))]
pub(crate) struct Passed {
    pub(crate) alloc_context: Option<AllocContext>,
    pub(crate) size_of_context: Option<SizeOfContext>,
    pub(crate) map: Option<Map>,
    pub(crate) free_buffer: Option<FreeBuffer>,
    pub(crate) type_of_buffer: Option<TypeOfBuffer>,
    pub(crate) name_of_device: Option<NameOfDevice>,
    pub(crate) first_tensor: Option<FirstTensor>,
    pub(crate) next_tensor: Option<NextTensor>,
}

type AllocContext = unsafe extern "C-unwind" fn(Context, BufferType) -> Buffer;
type SizeOfContext = unsafe extern "C-unwind" fn(Context, BufferType) -> usize;
type Map = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize, usize) -> Buffer;
type FreeBuffer = unsafe extern "C-unwind" fn(Buffer);
type TypeOfBuffer = unsafe extern "C" fn(Buffer) -> BufferType;
type NameOfDevice = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FirstTensor = unsafe extern "C" fn(Context) -> *mut Tensor;
type NextTensor = unsafe extern "C" fn(Context, *mut Tensor) -> *mut Tensor;

#[cfg(any(not(feature = "whole"), test))]
impl Passed {
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
            map: find!(c"ggml_backend_dev_buffer_from_host_ptr" as Map),
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
