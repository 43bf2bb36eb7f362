//! Functions of ggml's that are passed on to it as they are, so that a report knows of the buffers that a program makes beside
//! its graphs: weights, caches, mapped files. See [`crate::usage_report`].
//!
//! ```text
//!   program --> ours --> ggml's own
//!                 \--> a line in the report, if the environment asks for one
//! ```
//!
//! # Safety
//! All of them: as ggml's own. What ggml's own throws passes through.
// These are public to C.
#![allow(unreachable_pub)]

use std::ffi::c_void;

use crate::find_ggml::{ggml_called_by, ggml_of_buffer_type};
use crate::ggml_abi::{GgmlBuffer, GgmlBufferType, GgmlContext};
use crate::log::log_stderr;
use crate::usage_report;

/// The body of a function that passes its return address on behind its arguments, as in [`gallocr_exports`](crate::gallocr_exports).
#[cfg(target_arch = "x86_64")]
macro_rules! with_caller {
    (free_buffer($($argument:ident),*)) => { std::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym free_buffer) };
    (map($($argument:ident),*)) => { std::arch::naked_asm!("mov r8, [rsp]", "jmp {}", sym map) };
    ($function:ident($($argument:ident),*)) => { std::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym $function) };
}

#[cfg(target_arch = "aarch64")]
macro_rules! with_caller {
    (free_buffer($($argument:ident),*)) => { std::arch::naked_asm!("mov x1, x30", "b {}", sym free_buffer) };
    (map($($argument:ident),*)) => { std::arch::naked_asm!("mov x4, x30", "b {}", sym map) };
    ($function:ident($($argument:ident),*)) => { std::arch::naked_asm!("mov x2, x30", "b {}", sym $function) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! with_caller {
    ($function:ident($($argument:ident),*)) => {
        // SAFETY: passed on, without the caller.
        unsafe { $function($($argument,)* std::ptr::null()) }
    };
}

/// Gives all tensors of a context memory, as ggml does.
///
/// # Safety
/// A context and a buffer type of ggml's.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ggml_backend_alloc_ctx_tensors_from_buft(
    ctx: GgmlContext,
    buft: GgmlBufferType,
) -> GgmlBuffer {
    with_caller!(alloc_context(ctx, buft))
}

/// Returns how many bytes the tensors of a context would take, as ggml does.
///
/// # Safety
/// A context and a buffer type of ggml's.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ggml_backend_alloc_ctx_tensors_from_buft_size(
    ctx: GgmlContext,
    buft: GgmlBufferType,
) -> usize {
    with_caller!(size_of_context(ctx, buft))
}

/// Makes a buffer over memory of the program's.
///
/// # Safety
/// A device of ggml's, and so many bytes of memory.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ggml_backend_dev_buffer_from_host_ptr(
    device: *mut c_void,
    ptr: *mut c_void,
    size: usize,
    max_tensor_size: usize,
) -> GgmlBuffer {
    with_caller!(map(device, ptr, size, max_tensor_size))
}

/// Frees a buffer. Null is fine.
///
/// # Safety
/// A buffer of ggml's that is not in use, or null.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ggml_backend_buffer_free(buffer: GgmlBuffer) {
    with_caller!(free_buffer(buffer))
}

unsafe extern "C-unwind" fn alloc_context(
    context: GgmlContext,
    buffer_type: GgmlBufferType,
    caller: *const c_void,
) -> GgmlBuffer {
    // SAFETY: a buffer type of some ggml's.
    let Ok(ggml) = (unsafe { ggml_of_buffer_type(buffer_type.cast(), caller) }) else {
        return log_missing_ggml(std::ptr::null_mut());
    };
    let Some(original) = ggml.forwarded.alloc_context else { return log_missing_ggml(std::ptr::null_mut()) };
    // SAFETY: passed on.
    unsafe {
        let buffer = original(context, buffer_type);
        usage_report::report_context_buffer(ggml, context, buffer_type, buffer);
        buffer
    }
}

unsafe extern "C-unwind" fn size_of_context(
    context: GgmlContext,
    buffer_type: GgmlBufferType,
    caller: *const c_void,
) -> usize {
    // SAFETY: a buffer type of some ggml's.
    let Ok(ggml) = (unsafe { ggml_of_buffer_type(buffer_type.cast(), caller) }) else { return log_missing_ggml(0) };
    let Some(original) = ggml.forwarded.size_of_context else { return log_missing_ggml(0) };
    // SAFETY: passed on.
    unsafe {
        let bytes = original(context, buffer_type);
        usage_report::report_context_size(ggml, context, buffer_type, bytes);
        bytes
    }
}

unsafe extern "C-unwind" fn map(
    device: *mut c_void,
    memory: *mut c_void,
    size: usize,
    max_tensor_size: usize,
    caller: *const c_void,
) -> GgmlBuffer {
    let Some(ggml) = ggml_called_by(caller) else { return log_missing_ggml(std::ptr::null_mut()) };
    let Some(original) = ggml.forwarded.map_host_memory else { return log_missing_ggml(std::ptr::null_mut()) };
    // SAFETY: passed on.
    unsafe {
        let buffer = original(device, memory, size, max_tensor_size);
        usage_report::report_mapped_buffer(ggml, buffer);
        buffer
    }
}

unsafe extern "C-unwind" fn free_buffer(buffer: GgmlBuffer, caller: *const c_void) {
    if buffer.is_null() {
        return;
    }
    let Some(original) = ggml_called_by(caller).and_then(|ggml| ggml.forwarded.free_buffer) else {
        return log_missing_ggml(());
    };
    usage_report::report_dropped_buffer(buffer);
    // SAFETY: passed on.
    unsafe { original(buffer) };
}

/// Returns `answer` and logs that ggml's own function was not found.
fn log_missing_ggml<R>(answer: R) -> R {
    log_stderr!("ggml: not found: a call cannot be forwarded to it");
    answer
}
