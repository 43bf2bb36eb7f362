//! The rest of ggml's allocator, for programs that link the static library: tensors one behind another in a buffer, and all
//! tensors of a context.
//!
//! With this the static library can replace ggml's own object file. ggml's other functions are found by the linker.
//!
//! # Safety
//! All of them: as ggml's own. Where ggml ends the process, these answer a status or null, and say why.
// These are public to C, and the header is made from what is called public here. It is made from this file alone: so each
// item says again that it belongs to the feature.
#![allow(unreachable_pub)]

use std::ffi::{c_int, c_void};
use std::ops::Range;

use steeve_graph::Tensors;

use crate::function_tables::GgmlFunctions;
use crate::gallocr_handle::catch_panic;
use crate::ggml_abi::{
    ALLOC_FAILED, FAILED, GgmlBackend, GgmlBuffer, GgmlBufferType, GgmlContext, GgmlTensor, SUCCESS,
};
use crate::ggml_instance::{GgmlInstance, text};
use crate::growing_list::OnceValue;
use crate::log::LogLevel;
use crate::read_graph::name;

unsafe extern "C" {
    fn ggml_get_first_tensor(context: GgmlContext) -> *mut GgmlTensor;
    fn ggml_get_next_tensor(context: GgmlContext, tensor: *mut GgmlTensor) -> *mut GgmlTensor;
    fn ggml_backend_buffer_get_alignment(buffer: GgmlBuffer) -> usize;
    fn ggml_backend_buffer_get_alloc_size(buffer: GgmlBuffer, tensor: *const GgmlTensor) -> usize;
    fn ggml_backend_multi_buffer_alloc_buffer(buffers: *mut GgmlBuffer, count: usize) -> GgmlBuffer;
    fn ggml_backend_get_default_buffer_type(backend: GgmlBackend) -> GgmlBufferType;
}

/// Returns the ggml that this library is linked with.
pub(crate) fn linked() -> &'static GgmlInstance {
    static LINKED: OnceValue<GgmlInstance> = OnceValue::new();
    LINKED.get_or_make(|| GgmlInstance::new(Ok(GgmlFunctions::linked()), None, Some(crate::log::linked())))
}

fn functions() -> &'static GgmlFunctions {
    static FUNCTIONS: OnceValue<GgmlFunctions> = OnceValue::new();
    FUNCTIONS.get_or_make(GgmlFunctions::linked)
}

/// One line in ggml's log.
macro_rules! log_error {
    ($($what:tt)*) => { linked().log(LogLevel::Error, format_args!($($what)*)) };
}

/// Allocates tensors one behind another in a buffer that it does not own.
#[cfg(feature = "whole")]
#[repr(C)]
pub struct TensorAllocator {
    buffer: GgmlBuffer,
    base: *mut c_void,
    alignment: usize,
    offset: usize,
}

/// Makes a tensor allocator at the first aligned byte of a buffer.
///
/// # Safety
/// A buffer of ggml's.
#[cfg(feature = "whole")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_tallocr_new(buffer: GgmlBuffer) -> TensorAllocator {
    // SAFETY: as promised.
    let (base, alignment) =
        unsafe { ((functions().ggml_backend_buffer_get_base)(buffer), ggml_backend_buffer_get_alignment(buffer)) };
    let aligned = base.addr().checked_next_multiple_of(alignment.max(1)).unwrap_or(usize::MAX);
    TensorAllocator { buffer, base, alignment, offset: aligned - base.addr() }
}

/// Gives a tensor the next bytes of the buffer. Where there are too few, the status says so and nothing changes.
///
/// # Safety
/// An allocator, and a tensor of ggml's.
#[cfg(feature = "whole")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_tallocr_alloc(talloc: *mut TensorAllocator, tensor: *mut GgmlTensor) -> c_int {
    // SAFETY: null, or as promised.
    let (Some(talloc), Some(given)) = (unsafe { (talloc.as_mut(), tensor.as_ref()) }) else { return FAILED };
    // SAFETY: as promised.
    let title = || unsafe { name(tensor) };
    if given.is_placed() || !given.view_src.is_null() {
        log_error!("tensor {}: already allocated", title());
        return FAILED;
    }
    // SAFETY: as promised.
    let (bytes, size) = unsafe {
        let bytes = ggml_backend_buffer_get_alloc_size(talloc.buffer, tensor);
        (bytes, (functions().ggml_backend_buffer_get_size)(talloc.buffer))
    };
    let padded = bytes.checked_next_multiple_of(talloc.alignment.max(1));
    let Some(end) = padded.and_then(|bytes| talloc.offset.checked_add(bytes)).filter(|end| *end <= size) else {
        let left = size.saturating_sub(talloc.offset);
        log_error!(
            "tensor {}: out of memory: {bytes} bytes requested, aligned to {}, {left} available",
            title(),
            talloc.alignment
        );
        return ALLOC_FAILED;
    };
    let address = talloc.base.wrapping_byte_add(talloc.offset);
    talloc.offset = end;
    // SAFETY: within the buffer, as just seen, and the tensor has no address yet.
    unsafe { (functions().ggml_backend_tensor_alloc)(talloc.buffer, tensor, address) }
}

/// Returns how many bytes the tensors of a context take that have no memory yet.
///
/// # Safety
/// A context and a buffer type of ggml's.
#[cfg(feature = "whole")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_backend_alloc_ctx_tensors_from_buft_size(
    ctx: GgmlContext,
    buft: GgmlBufferType,
) -> usize {
    // SAFETY: passed on.
    let context_buffers = catch_panic(|| unsafe { context_buffers(buft, &tensors(ctx)) }).flatten().unwrap_or_default();
    context_buffers.iter().fold(0, |sum: usize, context_buffer| sum.saturating_add(context_buffer.bytes))
}

/// Gives all tensors of a context memory that have none. Null if there are none, or if that fails: then nothing changes.
///
/// # Safety
/// A context and a buffer type of ggml's.
#[cfg(feature = "whole")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_backend_alloc_ctx_tensors_from_buft(
    ctx: GgmlContext,
    buft: GgmlBufferType,
) -> GgmlBuffer {
    // SAFETY: passed on.
    let made = catch_panic(|| unsafe {
        let tensors = tensors(ctx);
        allocate_buffers(buft, &tensors, &context_buffers(buft, &tensors)?)
    });
    made.flatten().unwrap_or(std::ptr::null_mut())
}

/// Allocates the tensors of a context that have no memory, in the default memory of a backend.
///
/// Null if there are none, or if that fails: then nothing changes.
///
/// # Safety
/// A context and a backend of ggml's.
#[cfg(feature = "whole")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_backend_alloc_ctx_tensors(ctx: GgmlContext, backend: GgmlBackend) -> GgmlBuffer {
    // SAFETY: passed on.
    unsafe { ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_get_default_buffer_type(backend)) }
}

/// Returns whether the planner lets an operation run in place of one of its sources.
#[cfg(feature = "whole")]
#[unsafe(no_mangle)]
pub extern "C" fn ggml_op_can_inplace(op: c_int) -> bool {
    let can = catch_panic(|| {
        let operation = linked().known().ok()?.operation(op)?;
        Some(Tensors::default().op(&operation.name, None).ok()?.ggml_in_place())
    });
    can.flatten().unwrap_or(false)
}

/// Lists the tensors of a context.
///
/// # Safety
/// A context of ggml's, or null.
unsafe fn tensors(context: GgmlContext) -> Vec<*mut GgmlTensor> {
    if context.is_null() {
        return Vec::new();
    }
    // SAFETY: as promised.
    let first = unsafe { ggml_get_first_tensor(context) };
    let some = |tensor: *mut GgmlTensor| (!tensor.is_null()).then_some(tensor);
    // SAFETY: as promised, and a tensor of it.
    std::iter::successors(some(first), |tensor| some(unsafe { ggml_get_next_tensor(context, *tensor) })).collect()
}

/// One buffer of a context, and the range of tensors in it.
struct ContextBuffer {
    bytes: usize,
    tensors: Range<usize>,
}

/// Cuts the tensors into buffers: a new one where the next tensor would pass the largest there is. `None` if they have more
/// bytes than can be counted.
///
/// # Safety
/// A buffer type of ggml's or null, and tensors of the same ggml's.
unsafe fn context_buffers(buffer_type: GgmlBufferType, tensors: &[*mut GgmlTensor]) -> Option<Vec<ContextBuffer>> {
    if buffer_type.is_null() {
        return None;
    }
    let ggml = functions();
    // SAFETY: as promised.
    let (alignment, max_size) = unsafe {
        ((ggml.ggml_backend_buft_get_alignment)(buffer_type), (ggml.ggml_backend_buft_get_max_size)(buffer_type))
    };
    let mut context_buffers = Vec::new();
    let mut context_buffer = ContextBuffer { bytes: 0, tensors: 0..0 };
    for (index, &tensor) in tensors.iter().enumerate() {
        // SAFETY: as promised.
        let bytes = match unsafe { needs_memory(tensor) } {
            false => 0,
            // SAFETY: as promised.
            true => unsafe { (ggml.ggml_backend_buft_get_alloc_size)(buffer_type, tensor) },
        };
        let Some(bytes) = bytes.checked_next_multiple_of(alignment.max(1)) else {
            // SAFETY: as promised.
            log_error!("tensor {}: too large: {bytes} bytes", unsafe { name(tensor) });
            return None;
        };
        let sum = context_buffer.bytes.checked_add(bytes).filter(|sum| *sum <= max_size);
        context_buffer = match sum {
            Some(sum) => ContextBuffer { bytes: sum, tensors: context_buffer.tensors.start..index + 1 },
            None if context_buffer.bytes == 0 => {
                ContextBuffer { bytes, tensors: context_buffer.tensors.start..index + 1 }
            }
            None => {
                context_buffers.push(context_buffer);
                ContextBuffer { bytes, tensors: index..index + 1 }
            }
        };
    }
    if context_buffer.bytes > 0 {
        context_buffers.push(context_buffer);
    }
    Some(context_buffers)
}

/// Makes the buffers and puts the tensors into them. A failure takes everything back.
///
/// # Safety
/// As [`context_buffers`], which come from there.
unsafe fn allocate_buffers(
    buffer_type: GgmlBufferType,
    tensors: &[*mut GgmlTensor],
    context_buffers: &[ContextBuffer],
) -> Option<GgmlBuffer> {
    let ggml = functions();
    let mut made: Vec<GgmlBuffer> = Vec::with_capacity(context_buffers.len());
    let mut placed: Vec<*mut GgmlTensor> = Vec::new();
    let mut all_is_well = true;
    for context_buffer in context_buffers {
        // SAFETY: as promised.
        let buffer = unsafe { (ggml.ggml_backend_buft_alloc_buffer)(buffer_type, context_buffer.bytes) };
        if buffer.is_null() {
            // SAFETY: a string of ggml's, for a buffer type of the caller's.
            let name = unsafe { text((ggml.ggml_backend_buft_name)(buffer_type)) }.unwrap_or_default();
            log_error!("failed to allocate {name} buffer of size {}", context_buffer.bytes);
            all_is_well = false;
            break;
        }
        made.push(buffer);
        // SAFETY: the buffer that was just made, and tensors as promised.
        all_is_well = unsafe { place_tensors(buffer, &tensors[context_buffer.tensors.clone()], &mut placed) };
        if !all_is_well {
            break;
        }
    }
    if all_is_well {
        let buffer = match made.as_mut_slice() {
            [] => return None,
            [only] => *only,
            // SAFETY: buffers of ggml's, which the new one owns.
            several => unsafe { ggml_backend_multi_buffer_alloc_buffer(several.as_mut_ptr(), several.len()) },
        };
        if !buffer.is_null() {
            return Some(buffer);
        }
    }
    for tensor in placed {
        // SAFETY: tensors that were given memory here.
        unsafe { ((*tensor).buffer, (*tensor).data) = (std::ptr::null_mut(), std::ptr::null_mut()) };
    }
    for buffer in made {
        // SAFETY: made here, and freed once.
        unsafe { (ggml.ggml_backend_buffer_free)(buffer) };
    }
    None
}

/// Gives all tensors memory: in the buffer, or for views at their sources. False, and a log line, if one fails.
///
/// # Safety
/// A buffer with room, and tensors of ggml's.
unsafe fn place_tensors(buffer: GgmlBuffer, tensors: &[*mut GgmlTensor], placed: &mut Vec<*mut GgmlTensor>) -> bool {
    // SAFETY: passed on.
    let mut allocator = unsafe { ggml_tallocr_new(buffer) };
    for &tensor in tensors {
        // SAFETY: passed on.
        let status = unsafe {
            if needs_memory(tensor) {
                placed.push(tensor);
                ggml_tallocr_alloc(&mut allocator, tensor)
            } else if is_view_of_memory(tensor) {
                placed.push(tensor);
                (functions().ggml_backend_view_init)(tensor)
            } else {
                SUCCESS
            }
        };
        if status != SUCCESS {
            // SAFETY: passed on.
            log_error!("tensor {}: initialisation failed: status {status}", unsafe { name(tensor) });
            return false;
        }
    }
    true
}

/// Returns whether a tensor is neither allocated nor a view.
///
/// # Safety
/// A tensor of ggml's.
unsafe fn needs_memory(tensor: *const GgmlTensor) -> bool {
    // SAFETY: as promised.
    let tensor = unsafe { &*tensor };
    !tensor.is_placed() && tensor.view_src.is_null()
}

/// Returns whether a tensor is a view without a buffer of a tensor that has one.
///
/// # Safety
/// A tensor of ggml's.
unsafe fn is_view_of_memory(tensor: *const GgmlTensor) -> bool {
    // SAFETY: as promised.
    unsafe {
        let root = (*tensor).view_src.as_ref();
        (*tensor).buffer.is_null() && root.is_some_and(|root| !root.buffer.is_null() && !root.data.is_null())
    }
}
