//! The functions that programs call, under ggml's names.
//!
//! # Safety
//! All of them: as ggml's own. Handles come from `ggml_gallocr_new` or `_new_n`, graphs are ggml's, lists of ids are null or
//! have one number for each node or leaf.
// These are public to C, and the header is made from what is called public here.
#![allow(unreachable_pub)]

use std::ffi::{c_int, c_void};

use crate::abi::{BufferType, Graph};
use crate::handle::{Handle, Request, Whose, catch};
use crate::log::say;
use crate::report;
use crate::settings::settings;

/// The body of a function that passes its return address on behind its arguments: it says who called, and with that which
/// ggml is meant where the buffer type does not.
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

/// A handle for one buffer type. Null if ggml can't be found.
///
/// # Safety
/// The buffer type is ggml's.
#[cfg_attr(all(any(not(feature = "whole"), test), any(target_arch = "x86_64", target_arch = "aarch64")), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_new(buft: BufferType) -> *mut Handle {
    with_caller!(new_of_one(buft))
}

/// A handle for several buffer types. Null if ggml can't be found.
///
/// # Safety
/// So many buffer types of ggml's.
#[cfg_attr(all(any(not(feature = "whole"), test), any(target_arch = "x86_64", target_arch = "aarch64")), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_new_n(bufts: *mut BufferType, n_bufs: c_int) -> *mut Handle {
    with_caller!(new_of_some(bufts, n_bufs))
}

unsafe extern "C" fn new_of_one(buffer_type: BufferType, caller: *const c_void) -> *mut Handle {
    let mut types = [buffer_type];
    // SAFETY: one buffer type.
    unsafe { new_of_some(types.as_mut_ptr(), 1, caller) }
}

unsafe extern "C" fn new_of_some(types: *mut BufferType, count: c_int, caller: *const c_void) -> *mut Handle {
    let made = catch(|| {
        let count = usize::try_from(count).ok().filter(|count| *count > 0 && !types.is_null())?;
        // SAFETY: so many buffer types, as promised.
        let types = unsafe { std::slice::from_raw_parts(types, count) }.to_vec();
        if let Some(index) = types.iter().position(|it| it.is_null()) {
            say!("buffer type {index} is null");
            return None;
        }
        #[cfg(any(not(feature = "whole"), test))]
        // SAFETY: buffer types of ggml's, as promised.
        let ggml = match unsafe { crate::find::ggml_of(types[0].cast(), caller) } {
            Ok(ggml) => ggml,
            Err(why) => {
                say!("{why}");
                return None;
            }
        };
        #[cfg(all(feature = "whole", not(test)))]
        let ggml = {
            let _ = caller;
            crate::whole::linked()
        };
        // SAFETY: passed on.
        unsafe {
            let described = report::describe(ggml, &types);
            let (handle, why) = Handle::open(ggml, settings(), types);
            report::opened(handle, described, why);
            Some(handle)
        }
    });
    made.flatten().unwrap_or(std::ptr::null_mut())
}

/// Frees a handle and its buffers. Null is fine.
///
/// # Safety
/// A handle that nobody uses any more, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_free(galloc: *mut Handle) {
    // SAFETY: passed on.
    catch(|| unsafe {
        report::closed(galloc);
        Handle::free(galloc);
    });
}

/// Plans a graph and makes the buffers large enough for it. False if the device has no such memory.
///
/// # Safety
/// A handle, and a graph of ggml's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_reserve(galloc: *mut Handle, graph: *mut Graph) -> bool {
    // SAFETY: passed on.
    unsafe { reserve(galloc, graph, std::ptr::null(), std::ptr::null()) }
}

/// The same with the number of the buffer for each node and each leaf; null means that all are in the first.
///
/// # Safety
/// A handle, a graph of ggml's, and as many numbers as it has nodes and leafs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_reserve_n(
    galloc: *mut Handle,
    graph: *mut Graph,
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
    galloc: *mut Handle,
    graph: *mut Graph,
    node_buffer_ids: *const c_int,
    leaf_buffer_ids: *const c_int,
) -> bool {
    // SAFETY: a handle, and the rest passed on.
    let answer = catch(|| unsafe {
        match Handle::whose(galloc)? {
            Whose::Ours(handle) => {
                let request = Request { graph, nodes: node_buffer_ids, leafs: leaf_buffer_ids };
                Some(report::reserving(handle, request, |handle| handle.reserve(request)))
            }
            Whose::Ggmls(ggml, handle) => {
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
    galloc: *mut Handle,
    graph: *mut Graph,
    node_buffer_ids: *const c_int,
    leaf_buffer_ids: *const c_int,
    sizes: *mut usize,
) {
    if sizes.is_null() {
        return;
    }
    // SAFETY: a handle, and the rest passed on.
    catch(|| unsafe {
        match Handle::whose(galloc) {
            Some(Whose::Ours(handle)) => {
                let request = Request { graph, nodes: node_buffer_ids, leafs: leaf_buffer_ids };
                // Nothing for a graph that is refused.
                let answer = report::sizing(handle, request).unwrap_or_else(|| vec![0; handle.types().len()]);
                sizes.copy_from_nonoverlapping(answer.as_ptr(), answer.len());
            }
            Some(Whose::Ggmls(ggml, handle)) => {
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
pub unsafe extern "C" fn ggml_gallocr_alloc_graph(galloc: *mut Handle, graph: *mut Graph) -> bool {
    // SAFETY: a handle, and the rest passed on.
    let answer = catch(|| unsafe {
        match Handle::whose(galloc)? {
            // With several memories nothing is made here.
            Whose::Ours(handle) if handle.types().len() > 1 => Some(handle.alloc(graph)),
            Whose::Ours(handle) => Some(report::reserving(handle, Request::of(graph), |handle| handle.alloc(graph))),
            Whose::Ggmls(ggml, handle) => Some((ggml.ggml_gallocr_alloc_graph)(handle, graph)),
        }
    });
    answer.flatten().unwrap_or(false)
}

/// How many bytes are allocated for a buffer; 0 for one that shares the memory of an earlier one.
///
/// # Safety
/// A handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_gallocr_get_buffer_size(galloc: *mut Handle, buffer_id: c_int) -> usize {
    // SAFETY: a handle.
    let answer = catch(|| unsafe {
        match Handle::whose(galloc)? {
            Whose::Ours(handle) => Some(handle.buffer_size(buffer_id)),
            Whose::Ggmls(ggml, handle) => Some((ggml.ggml_gallocr_get_buffer_size)(handle, buffer_id)),
        }
    });
    answer.flatten().unwrap_or(0)
}
