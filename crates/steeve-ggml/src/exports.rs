//! The functions that programs call, under ggml's names.
//!
//! # Safety
//! All of them: as ggml's own. Handles come from `ggml_gallocr_new` or `_new_n`, graphs are ggml's, lists of ids are null or
//! have one number for each node or leaf.

use std::ffi::{c_int, c_void};

use crate::abi::{BufferType, Graph};
use crate::handle::{Handle, catch};
use crate::settings::settings;
use crate::say;

/// A handle for one buffer type.
///
/// # Safety
/// See the module.
#[cfg(all(not(feature = "whole"), target_arch = "x86_64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_new(buffer_type: BufferType) -> *mut Handle {
    // The return address says who called, and with that which ggml is meant.
    std::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym new_called_from)
}

/// A handle for several buffer types.
///
/// # Safety
/// See the module.
#[cfg(all(not(feature = "whole"), target_arch = "x86_64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_new_n(types: *mut BufferType, count: c_int) -> *mut Handle {
    std::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym new_n_called_from)
}

/// A handle for one buffer type.
///
/// # Safety
/// See the module.
#[cfg(all(not(feature = "whole"), target_arch = "aarch64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_new(buffer_type: BufferType) -> *mut Handle {
    std::arch::naked_asm!("mov x1, x30", "b {}", sym new_called_from)
}

/// A handle for several buffer types.
///
/// # Safety
/// See the module.
#[cfg(all(not(feature = "whole"), target_arch = "aarch64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_new_n(types: *mut BufferType, count: c_int) -> *mut Handle {
    std::arch::naked_asm!("mov x2, x30", "b {}", sym new_n_called_from)
}

/// A handle for one buffer type.
///
/// # Safety
/// See the module.
#[cfg(any(feature = "whole", not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_new(buffer_type: BufferType) -> *mut Handle {
    // SAFETY: passed on. Without the caller, the buffer type says which ggml is meant.
    unsafe { new_called_from(buffer_type, std::ptr::null()) }
}

/// A handle for several buffer types.
///
/// # Safety
/// See the module.
#[cfg(any(feature = "whole", not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_new_n(types: *mut BufferType, count: c_int) -> *mut Handle {
    // SAFETY: passed on.
    unsafe { new_n_called_from(types, count, std::ptr::null()) }
}

unsafe extern "C" fn new_called_from(buffer_type: BufferType, caller: *const c_void) -> *mut Handle {
    let mut types = [buffer_type];
    // SAFETY: one buffer type.
    unsafe { new_n_called_from(types.as_mut_ptr(), 1, caller) }
}

unsafe extern "C" fn new_n_called_from(types: *mut BufferType, count: c_int, caller: *const c_void) -> *mut Handle {
    let made = catch(|| {
        let count = usize::try_from(count).ok().filter(|count| *count > 0 && !types.is_null())?;
        // SAFETY: so many buffer types, as promised.
        let types = unsafe { std::slice::from_raw_parts(types, count) }.to_vec();
        let first = types.first().copied().unwrap_or(std::ptr::null_mut());
        #[cfg(not(feature = "whole"))]
        let ggml = match crate::find::ggml_of(caller, first.cast()) {
            Ok(ggml) => ggml,
            Err(why) => {
                say!("{why}");
                return None;
            }
        };
        #[cfg(feature = "whole")]
        let ggml = {
            let _ = (caller, first);
            crate::whole::linked()
        };
        // SAFETY: passed on.
        Some(Box::into_raw(Box::new(unsafe { Handle::new(ggml, settings(), types) })))
    });
    made.flatten().unwrap_or(std::ptr::null_mut())
}

/// Frees a handle and its buffers. Null is fine.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_free(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: a handle of ours that the caller will not use again.
        catch(|| drop(unsafe { Box::from_raw(handle) }));
    }
}

/// Plans a graph and makes the buffers large enough for it.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_reserve(handle: *mut Handle, graph: *mut Graph) -> bool {
    // SAFETY: passed on.
    unsafe { ggml_gallocr_reserve_n(handle, graph, std::ptr::null(), std::ptr::null()) }
}

/// The same with the buffer of each node and leaf.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_reserve_n(
    handle: *mut Handle,
    graph: *mut Graph,
    node_buffer_ids: *const c_int,
    leaf_buffer_ids: *const c_int,
) -> bool {
    // SAFETY: a handle of ours, and the rest passed on.
    unsafe { handle.as_mut().is_some_and(|handle| handle.reserve(graph, node_buffer_ids, leaf_buffer_ids)) }
}

/// What a reserve would take, for each buffer.
///
/// # Safety
/// See the module; `sizes` has room for one number for each buffer type.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_reserve_n_size(
    handle: *mut Handle,
    graph: *mut Graph,
    node_buffer_ids: *const c_int,
    leaf_buffer_ids: *const c_int,
    sizes: *mut usize,
) {
    // SAFETY: a handle of ours, and the rest passed on.
    if let Some(handle) = unsafe { handle.as_mut() }.filter(|_| !sizes.is_null()) {
        // SAFETY: as above.
        unsafe { handle.reserve_size(graph, node_buffer_ids, leaf_buffer_ids, sizes) };
    }
}

/// Gives every tensor of a graph its address.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_alloc_graph(handle: *mut Handle, graph: *mut Graph) -> bool {
    // SAFETY: a handle of ours, and the rest passed on.
    unsafe { handle.as_mut().is_some_and(|handle| handle.alloc(graph)) }
}

/// How many bytes are allocated for a buffer.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ggml_gallocr_get_buffer_size(handle: *mut Handle, buffer_id: c_int) -> usize {
    // SAFETY: a handle of ours.
    unsafe { handle.as_mut() }.map_or(0, |handle| handle.buffer_size(buffer_id))
}
