//! The buffers of an allocator, in ggml's memory.

use steeve_graph::{Bytes, MemoryId, fit_buffers};

use super::AllocFailure;
use crate::function_tables::GgmlFunctions;
use crate::ggml_abi::{GgmlBuffer, GgmlBufferType, USAGE_COMPUTE};
use crate::ggml_instance::text;

/// The buffers of one memory: one for each chunk of the plan that they were made for, as large as that, or none.
pub(super) struct BufferSet {
    pub(super) memory: MemoryId,
    pub(super) buffer_type: GgmlBufferType,
    pub(super) chunks: Vec<BufferChunk>,
}

/// One buffer.
pub(super) struct BufferChunk {
    size: Bytes,
    pub(super) buffer: GgmlBuffer,
    pub(super) base: usize,
}

impl BufferSet {
    /// Returns the chunk for each buffer of a plan; `None` if one is missing or too small. ggml compares them one by one.
    pub(super) fn fit(&self, needed: &[Bytes], ggml_layout: bool) -> Option<Vec<usize>> {
        let sizes: Vec<Bytes> = self.chunks.iter().map(|chunk| chunk.size).collect();
        if ggml_layout {
            let fits = sizes.len() >= needed.len() && needed.iter().zip(&sizes).all(|(needed, size)| needed <= size);
            return fits.then(|| (0..needed.len()).collect());
        }
        fit_buffers(&sizes, needed)
    }

    /// Returns the bytes of all buffers.
    pub(super) fn total(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.size.0).sum()
    }

    /// Gives all buffers back and makes those that are needed. If one of them can't be had, there are none.
    pub(super) fn make(&mut self, ggml: &GgmlFunctions, needed: &[Bytes]) -> Result<(), AllocFailure> {
        self.free(ggml);
        for (index, &size) in needed.iter().enumerate() {
            let bytes = usize::try_from(size.0).unwrap_or(usize::MAX);
            // SAFETY: a buffer type of the caller's.
            let buffer = unsafe { (ggml.ggml_backend_buft_alloc_buffer)(self.buffer_type, bytes) };
            if buffer.is_null() {
                self.free(ggml);
                return Err(AllocFailure::OutOfMemory(self.no_memory(ggml, index, needed)));
            }
            // SAFETY: a buffer that was just made.
            let (base, size) = unsafe {
                (ggml.ggml_backend_buffer_set_usage)(buffer, USAGE_COMPUTE);
                let base = if bytes == 0 { 0 } else { (ggml.ggml_backend_buffer_get_base)(buffer).addr() };
                // Some backends round up. ggml knows, and so has room for more.
                (base, size.max(Bytes((ggml.ggml_backend_buffer_get_size)(buffer) as u64)))
            };
            self.chunks.push(BufferChunk { size, buffer, base });
        }
        Ok(())
    }

    pub(super) fn free(&mut self, ggml: &GgmlFunctions) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: ours, and drained before it is freed, so never freed twice.
            unsafe { (ggml.ggml_backend_buffer_free)(chunk.buffer) };
        }
    }

    /// Formats the failure in ggml's words: the memory and its total, and the buffer that failed where it is one of several.
    fn no_memory(&self, ggml: &GgmlFunctions, index: usize, wanted: &[Bytes]) -> String {
        // SAFETY: a buffer type of the caller's.
        let name = unsafe { text((ggml.ggml_backend_buft_name)(self.buffer_type)) }.unwrap_or_default();
        let total = total(wanted);
        let which = match wanted {
            [_] => String::new(),
            _ => format!(" (buffer {} of {}: {} bytes)", index + 1, wanted.len(), wanted[index]),
        };
        format!("failed to allocate {name} buffer of size {total}{which}")
    }
}

pub(super) fn total(sizes: &[Bytes]) -> u64 {
    sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0))
}
