//! The functions that programs call, under ggml's names.
//!
//! # Safety
//! All of them: as ggml's own. Handles come from `ggml_gallocr_new` or `_new_n`, graphs are ggml's, lists of ids are null or
//! have one number for each node or leaf.
// These are public to C, and the header is made from what is called public here.
#![allow(unreachable_pub)]

use std::ffi::{c_int, c_void};

use crate::drop_in_settings::settings;
use crate::gallocr_handle::{GallocrHandle, HandleTarget, ReserveRequest, catch_panic};
use crate::ggml_abi::{GgmlBufferType, GgmlGraph};
use crate::log::log_stderr;
use crate::usage_report;

/// Generates the body of a function that passes its return address on as a last argument: with it the caller's ggml is found
/// where the buffer type does not say which is meant.
#[cfg(all(any(not(feature = "whole"), test), target_arch = "x86_64"))]
macro_rules! with_caller {
    (new_of_one($($argument:ident),*)) => { std::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym new_of_one) };
    (new_of_some($($argument:ident),*)) => { std::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym new_of_some) };
}

#[cfg(all(any(not(feature = "whole"), test), target_arch = "aarch64"))]
macro_rules! with_caller {
    (new_of_one($($argument:ident),*)) => { std::arch::naked_asm!("mov x1, x30", "b {}", sym new_of_one) };
    (new_of_some($($argument:ident),*)) => { std::arch::naked_asm!("mov x2, x30", "b {}", sym new_of_some) };
}

#[cfg(any(all(feature = "whole", not(test)), not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
macro_rules! with_caller {
    ($function:ident($($argument:ident),*)) => {
        // SAFETY: passed on, without the caller.
        unsafe { $function($($argument,)* std::ptr::null()) }
    };
}

/// Makes an allocator for one buffer type. Null if ggml is not found.
///
/// # Safety
/// The buffer type is ggml's.
#[cfg_attr(all(any(not(feature = "whole"), test), any(target_arch = "x86_64", target_arch = "aarch64")), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_new(buft: GgmlBufferType) -> *mut GallocrHandle {
    with_caller!(new_of_one(buft))
}

/// Makes an allocator for several buffer types. Null if ggml is not found.
///
/// # Safety
/// So many buffer types of ggml's.
#[cfg_attr(all(any(not(feature = "whole"), test), any(target_arch = "x86_64", target_arch = "aarch64")), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_new_n(bufts: *mut GgmlBufferType, n_bufs: c_int) -> *mut GallocrHandle {
    with_caller!(new_of_some(bufts, n_bufs))
}

unsafe extern "C" fn new_of_one(buffer_type: GgmlBufferType, caller: *const c_void) -> *mut GallocrHandle {
    let mut types = [buffer_type];
    // SAFETY: one buffer type.
    unsafe { new_of_some(types.as_mut_ptr(), 1, caller) }
}

unsafe extern "C" fn new_of_some(
    types: *mut GgmlBufferType,
    count: c_int,
    caller: *const c_void,
) -> *mut GallocrHandle {
    let made = catch_panic(|| {
        let count = usize::try_from(count).ok().filter(|count| *count > 0 && !types.is_null())?;
        // SAFETY: so many buffer types, as promised.
        let types = unsafe { std::slice::from_raw_parts(types, count) }.to_vec();
        if let Some(index) = types.iter().position(|it| it.is_null()) {
            log_stderr!("buffer type {index} is null");
            return None;
        }
        #[cfg(any(not(feature = "whole"), test))]
        // SAFETY: buffer types of ggml's, as promised.
        let ggml = match unsafe { crate::find_ggml::ggml_of_buffer_type(types[0].cast(), caller) } {
            Ok(ggml) => ggml,
            Err(why) => {
                log_stderr!("{why}");
                return None;
            }
        };
        #[cfg(all(feature = "whole", not(test)))]
        let ggml = {
            let _ = caller;
            crate::linked_exports::linked()
        };
        // SAFETY: passed on.
        unsafe {
            let described = usage_report::describe_memories(ggml, &types);
            let (handle, why) = GallocrHandle::open(ggml, settings(), types);
            usage_report::report_open(handle, described, why);
            Some(handle)
        }
    });
    made.flatten().unwrap_or(std::ptr::null_mut())
}

/// Frees a handle and its buffers. Null is fine.
///
/// # Safety
/// A handle that is not in use, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_free(galloc: *mut GallocrHandle) {
    // SAFETY: passed on.
    catch_panic(|| unsafe {
        usage_report::report_close(galloc);
        GallocrHandle::free(galloc);
    });
}

/// Plans a graph and makes the buffers large enough for it. False if the device has no such memory.
///
/// # Safety
/// A handle, and a graph of ggml's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_reserve(galloc: *mut GallocrHandle, graph: *mut GgmlGraph) -> bool {
    // SAFETY: passed on.
    unsafe { reserve(galloc, graph, std::ptr::null(), std::ptr::null()) }
}

/// Plans a graph with a buffer number for each node and leaf (null: all in the first), and makes the buffers large enough.
///
/// False if the device has no such memory.
///
/// # Safety
/// A handle, a graph of ggml's, and as many numbers as it has nodes and leafs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_reserve_n(
    galloc: *mut GallocrHandle,
    graph: *mut GgmlGraph,
    node_buffer_ids: *const c_int,
    leaf_buffer_ids: *const c_int,
) -> bool {
    // SAFETY: passed on.
    unsafe { reserve(galloc, graph, node_buffer_ids, leaf_buffer_ids) }
}

/// Reserves. Not by way of the exported function: where ggml's own comes first in the order of symbols, that would be ggml's.
///
/// # Safety
/// As [`ggml_gallocr_reserve_n`].
unsafe fn reserve(
    galloc: *mut GallocrHandle,
    graph: *mut GgmlGraph,
    node_buffer_ids: *const c_int,
    leaf_buffer_ids: *const c_int,
) -> bool {
    // SAFETY: a handle, and the rest passed on.
    let answer = catch_panic(|| unsafe {
        match GallocrHandle::resolve(galloc)? {
            HandleTarget::Ours(handle) => {
                let request = ReserveRequest { graph, nodes: node_buffer_ids, leafs: leaf_buffer_ids };
                Some(usage_report::reserve_and_report(handle, request, |handle| handle.reserve(request)))
            }
            HandleTarget::Ggmls(ggml, handle) => {
                Some((ggml.ggml_gallocr_reserve_n)(handle, graph, node_buffer_ids, leaf_buffer_ids))
            }
        }
    });
    answer.flatten().unwrap_or(false)
}

/// Writes what a reserve would take for each buffer to `sizes`, and takes nothing.
///
/// # Safety
/// As `ggml_gallocr_reserve_n`; `sizes` has room for one number for each buffer type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_reserve_n_size(
    galloc: *mut GallocrHandle,
    graph: *mut GgmlGraph,
    node_buffer_ids: *const c_int,
    leaf_buffer_ids: *const c_int,
    sizes: *mut usize,
) {
    if sizes.is_null() {
        return;
    }
    // SAFETY: a handle, and the rest passed on.
    catch_panic(|| unsafe {
        match GallocrHandle::resolve(galloc) {
            Some(HandleTarget::Ours(handle)) => {
                let request = ReserveRequest { graph, nodes: node_buffer_ids, leafs: leaf_buffer_ids };
                // Nothing for a graph that is refused.
                let answer =
                    usage_report::size_and_report(handle, request).unwrap_or_else(|| vec![0; handle.types().len()]);
                sizes.copy_from_nonoverlapping(answer.as_ptr(), answer.len());
            }
            Some(HandleTarget::Ggmls(ggml, handle)) => {
                if let Some(reserve) = ggml.ggml_gallocr_reserve_n_size {
                    reserve(handle, graph, node_buffer_ids, leaf_buffer_ids, sizes);
                }
            }
            None => {}
        }
    });
}

/// Gives every tensor of a graph its address. False if that fails; with several buffers it must have been reserved.
///
/// # Safety
/// A handle, and a graph of ggml's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_alloc_graph(galloc: *mut GallocrHandle, graph: *mut GgmlGraph) -> bool {
    // SAFETY: a handle, and the rest passed on.
    let answer = catch_panic(|| unsafe {
        match GallocrHandle::resolve(galloc)? {
            // With several memories nothing is made here.
            HandleTarget::Ours(handle) if handle.types().len() > 1 => Some(handle.alloc(graph)),
            HandleTarget::Ours(handle) => {
                Some(usage_report::reserve_and_report(handle, ReserveRequest::of(graph), |handle| handle.alloc(graph)))
            }
            HandleTarget::Ggmls(ggml, handle) => Some((ggml.ggml_gallocr_alloc_graph)(handle, graph)),
        }
    });
    answer.flatten().unwrap_or(false)
}

/// Returns how many bytes are allocated for a buffer; 0 for one that shares another's memory.
///
/// # Safety
/// A handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_get_buffer_size(galloc: *mut GallocrHandle, buffer_id: c_int) -> usize {
    // SAFETY: a handle.
    let answer = catch_panic(|| unsafe {
        match GallocrHandle::resolve(galloc)? {
            HandleTarget::Ours(handle) => Some(handle.buffer_size(buffer_id)),
            HandleTarget::Ggmls(ggml, handle) => Some((ggml.ggml_gallocr_get_buffer_size)(handle, buffer_id)),
        }
    });
    answer.flatten().unwrap_or(0)
}
