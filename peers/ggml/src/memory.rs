//! One buffer type per memory of a graph, with its alignment, limit and sizes, and no memory behind it.
//!
//! Every buffer starts at the same address, far away from anything, and is only counted. ggml computes addresses from
//! it and reads none of them.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_void};
use std::ptr;

use llama_cpp_sys_2::{ggml_backend_buffer_t, ggml_backend_buffer_type_t, ggml_nbytes, ggml_tensor};
use steeve_graph::Memory;

use crate::abi::{BufferFunctions, BufferType, ggml_backend_buffer_init};

/// Where every buffer starts. A multiple of every alignment that a device could ask for.
const BASE: usize = 1 << 44;

/// Whether some tensor takes more bytes in a memory than it spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// None does: ggml computes sizes by itself, as for its CPU.
    Spans,
    /// `ggml_tensor::extra` points to the sizes of the tensor, one for each memory.
    Rows,
}

/// A buffer type whose buffers are addresses only.
pub(crate) struct FakeMemory {
    body: Box<UnsafeCell<Body>>,
}

/// What ggml sees starts at the same address as what it does not, so that its functions find the rest.
#[repr(C)]
struct Body {
    buffer_type: BufferType,
    align: usize,
    max_size: usize,
    /// Which of the sizes of a tensor is meant.
    index: usize,
}

impl FakeMemory {
    pub(crate) fn new(memory: &Memory, index: usize, sizes: Sizes) -> Self {
        let buffer_type = BufferType {
            get_name: name,
            alloc_buffer,
            alloc_buffer_n: None,
            get_alignment: alignment,
            get_max_size: memory.max_buffer.map(|_| max_size as _),
            get_alloc_size: match sizes {
                Sizes::Spans => None,
                Sizes::Rows => Some(alloc_size),
            },
            get_alloc_size_n: None,
            is_host: None,
            device: ptr::null_mut(),
            context: ptr::null_mut(),
        };
        let max_size = memory.max_buffer.map_or(usize::MAX, |max| bytes(max.0));
        let body = Body { buffer_type, align: bytes(memory.align.get()), max_size, index };
        Self { body: Box::new(UnsafeCell::new(body)) }
    }

    /// The buffer type, as long as `self` lives.
    pub(crate) fn as_ptr(&self) -> ggml_backend_buffer_type_t {
        self.body.get().cast()
    }
}

/// A size as ggml counts it. There is no other than 64-bit memory here.
pub(crate) const fn bytes(size: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>(), "ggml's layouts are those of 64-bit machines") };
    size as usize
}

/// An address of which only the number matters.
pub(crate) const fn fake(address: usize) -> *mut c_void {
    ptr::without_provenance_mut(address)
}

extern "C" fn name(_: ggml_backend_buffer_type_t) -> *const c_char {
    c"fake".as_ptr()
}

extern "C" fn base(_: ggml_backend_buffer_t) -> *mut c_void {
    fake(BASE)
}

unsafe extern "C" fn alloc_buffer(buffer_type: ggml_backend_buffer_type_t, size: usize) -> ggml_backend_buffer_t {
    let functions = BufferFunctions { free_buffer: None, get_base: Some(base), others: [None; 9] };
    // SAFETY: ggml copies the functions and keeps `buffer_type`, which whoever makes buffers keeps alive.
    unsafe { ggml_backend_buffer_init(buffer_type, functions, ptr::null_mut(), size) }
}

unsafe extern "C" fn alignment(buffer_type: ggml_backend_buffer_type_t) -> usize {
    // SAFETY: only `FakeMemory` hands out this function, so what it is called with points to the `Body` of one.
    unsafe { (*buffer_type.cast::<Body>()).align }
}

unsafe extern "C" fn max_size(buffer_type: ggml_backend_buffer_type_t) -> usize {
    // SAFETY: as for `alignment`.
    unsafe { (*buffer_type.cast::<Body>()).max_size }
}

unsafe extern "C" fn alloc_size(buffer_type: ggml_backend_buffer_type_t, tensor: *const ggml_tensor) -> usize {
    // SAFETY: as for `alignment`.
    let index = unsafe { (*buffer_type.cast::<Body>()).index };
    // SAFETY: ggml calls with a tensor of the graph it was given.
    let sizes = unsafe { (*tensor).extra }.cast::<usize>();
    if sizes.is_null() {
        // SAFETY: as above.
        return unsafe { ggml_nbytes(tensor) };
    }
    // SAFETY: a mirrored tensor's `extra` is null or points to one size for each memory.
    unsafe { *sizes.add(index) }
}

#[cfg(test)]
mod tests {
    use llama_cpp_sys_2::{
        ggml_backend_buffer_free, ggml_backend_buffer_get_alignment, ggml_backend_buffer_get_base,
        ggml_backend_buffer_get_max_size, ggml_backend_buffer_get_size, ggml_backend_buffer_is_host,
        ggml_backend_buft_alloc_buffer,
    };
    use steeve_graph::{Align, Bytes};

    use super::*;

    #[test]
    fn the_layouts_are_ggmls() {
        let memory = Memory { max_buffer: Some(Bytes(1 << 20)), ..Memory::new("m", Align::new(128).unwrap()) };
        let memory = FakeMemory::new(&memory, 0, Sizes::Spans);
        // SAFETY: the buffer type lives to the end of the test, and the buffer is freed once.
        unsafe {
            let buffer = ggml_backend_buft_alloc_buffer(memory.as_ptr(), 4096);
            assert_eq!(ggml_backend_buffer_get_size(buffer), 4096);
            assert_eq!(ggml_backend_buffer_get_base(buffer).addr(), BASE);
            assert_eq!(ggml_backend_buffer_get_alignment(buffer), 128);
            assert_eq!(ggml_backend_buffer_get_max_size(buffer), 1 << 20);
            assert!(!ggml_backend_buffer_is_host(buffer));
            ggml_backend_buffer_free(buffer);
        }
    }
}
