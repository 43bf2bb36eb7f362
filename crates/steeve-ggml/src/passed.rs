//! Functions of ggml's that are passed on to it as they are, so that a report knows of the buffers that a program makes beside
//! its graphs: weights, caches, mapped files. See [`crate::report`].
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

use crate::abi::{Buffer, BufferType, Context};
use crate::find::{ggml_called_by, ggml_of};
use crate::log::say;
use crate::report;

/// The body of a function that passes its return address on behind its arguments, as in [`exports`](crate::exports).
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
pub unsafe extern "C-unwind" fn ggml_backend_alloc_ctx_tensors_from_buft(ctx: Context, buft: BufferType) -> Buffer {
    with_caller!(alloc_context(ctx, buft))
}

/// How many bytes that would take.
///
/// # Safety
/// A context and a buffer type of ggml's.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ggml_backend_alloc_ctx_tensors_from_buft_size(ctx: Context, buft: BufferType) -> usize {
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
) -> Buffer {
    with_caller!(map(device, ptr, size, max_tensor_size))
}

/// Frees a buffer. Null is fine.
///
/// # Safety
/// A buffer of ggml's that is not in use, or null.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ggml_backend_buffer_free(buffer: Buffer) {
    with_caller!(free_buffer(buffer))
}

unsafe extern "C-unwind" fn alloc_context(context: Context, buffer_type: BufferType, caller: *const c_void) -> Buffer {
    // SAFETY: a buffer type of some ggml's.
    let Ok(ggml) = (unsafe { ggml_of(buffer_type.cast(), caller) }) else { return lost(std::ptr::null_mut()) };
    let Some(original) = ggml.passed.alloc_context else { return lost(std::ptr::null_mut()) };
    // SAFETY: passed on.
    unsafe {
        let buffer = original(context, buffer_type);
        report::allocated(ggml, context, buffer_type, buffer);
        buffer
    }
}

unsafe extern "C-unwind" fn size_of_context(context: Context, buffer_type: BufferType, caller: *const c_void) -> usize {
    // SAFETY: a buffer type of some ggml's.
    let Ok(ggml) = (unsafe { ggml_of(buffer_type.cast(), caller) }) else { return lost(0) };
    let Some(original) = ggml.passed.size_of_context else { return lost(0) };
    // SAFETY: passed on.
    unsafe {
        let bytes = original(context, buffer_type);
        report::sized(ggml, context, buffer_type, bytes);
        bytes
    }
}

unsafe extern "C-unwind" fn map(
    device: *mut c_void,
    memory: *mut c_void,
    size: usize,
    max_tensor_size: usize,
    caller: *const c_void,
) -> Buffer {
    let Some(ggml) = ggml_called_by(caller) else { return lost(std::ptr::null_mut()) };
    let Some(original) = ggml.passed.map else { return lost(std::ptr::null_mut()) };
    // SAFETY: passed on.
    unsafe {
        let buffer = original(device, memory, size, max_tensor_size);
        report::mapped(ggml, buffer);
        buffer
    }
}

unsafe extern "C-unwind" fn free_buffer(buffer: Buffer, caller: *const c_void) {
    if buffer.is_null() {
        return;
    }
    let Some(original) = ggml_called_by(caller).and_then(|ggml| ggml.passed.free_buffer) else { return lost(()) };
    report::dropped(buffer);
    // SAFETY: passed on.
    unsafe { original(buffer) };
}

/// The answer where ggml's own function is not to be found, which is said.
fn lost<R>(answer: R) -> R {
    say!("ggml can't be found: a function was called that should be passed on to it");
    answer
}
