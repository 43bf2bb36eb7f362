//! Places tensors one behind another in an existing buffer.

use steeve_device::{Address, Bindings, Bytes, Offset, SharedBuffer};
use steeve_graph::{Context, Named, TensorId};

use crate::AllocError;

/// Places tensors one behind another in a buffer, the first at the first aligned address.
///
/// Nothing is freed: drop the allocator and start anew.
///
/// ```
/// use std::sync::Arc;
/// use steeve_runtime::TensorAllocator;
/// use steeve_device::{BufferType, HostMemory, SharedBuffer, Usage};
/// use steeve_graph::{Bytes, Context, DataType, Offset};
/// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new()); // aligned to 32
/// let buffer = SharedBuffer::allocate(&memory, Bytes(100), Usage::Any)?;
/// let mut context = Context::new();
/// let a = context.new_tensor(DataType::F32, &[10])?;
/// let b = context.new_tensor(DataType::F32, &[10])?;
///
/// let mut allocator = TensorAllocator::new(&buffer);
/// assert_eq!(allocator.alloc(&context, a)?.offset, Offset(0));
/// assert_eq!((allocator.offset(), allocator.remaining()), (Offset(64), Bytes(36)));
/// let error = allocator.alloc(&context, b).unwrap_err();
/// assert_eq!(error.to_string(), "tensor 1: does not fit into the buffer: needs 64 bytes, 36 left");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorAllocator {
    buffer: SharedBuffer,
    offset: Offset,
}

impl TensorAllocator {
    /// Creates an allocator that starts at the first aligned address of `buffer`.
    pub fn new(buffer: &SharedBuffer) -> Self {
        let mask = buffer.memory().align().get() - 1;
        let gap = buffer.address().wrapping_neg() & mask;
        Self { buffer: buffer.clone(), offset: Offset(gap.min(buffer.size().0)) }
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &SharedBuffer {
        &self.buffer
    }

    /// Returns the offset of the next tensor.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Returns how many bytes are left.
    pub fn remaining(&self) -> Bytes {
        Bytes(self.buffer.size().0 - self.offset.0)
    }

    /// Allocates the next bytes for `tensor`: the size that its memory says, rounded up to the alignment. Fails and changes
    /// nothing if the buffer is full.
    pub fn alloc(&mut self, context: &Context, tensor: TensorId) -> Result<Address<'_>, AllocError> {
        let named = |tensor| Named::new(tensor, context.names());
        if let Some(view) = context.tensor(tensor)?.view {
            return Err(AllocError::IsView { tensor: named(tensor), root: named(view.root) });
        }
        let memory = self.buffer.memory();
        let size = memory.alloc_size(context.tensors(), tensor);
        let full = |needed| AllocError::Full { tensor: named(tensor), needed, left: self.remaining() };
        let padded = memory.align().round_up(size).ok_or_else(|| full(size))?;
        if padded > self.remaining() {
            return Err(full(padded));
        }
        let offset = self.offset;
        let mut buffer = self.buffer.borrow_mut()?;
        if let Some(hook) = buffer.init_hook() {
            hook.init_tensor(context.tensors(), tensor, offset)?;
        }
        drop(buffer);
        self.offset = Offset(offset.0 + padded.0);
        Ok(Address { buffer: &self.buffer, offset, size })
    }

    /// Allocates the next bytes for `tensor` and binds it to them in `bindings`.
    pub fn bind(&mut self, context: &Context, tensor: TensorId, bindings: &mut Bindings) -> Result<(), AllocError> {
        let Address { buffer, offset, size } = self.alloc(context, tensor)?;
        Ok(bindings.bind(tensor, buffer, offset, size)?)
    }
}
