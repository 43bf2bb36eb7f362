//! Allocates all tensors of a context: weights, caches, whatever outlives a graph.
//!
//! Tensors are placed in the order in which they were built, in as many buffers as the largest size of a buffer demands:
//!
//! ```text
//!   max_size |      |         |
//!   buffer 0 [ a ][b ][ c ]        d does not fit behind c
//!   buffer 1 [   d   ][e ]
//!   buffer 2 [     f (larger than max_size)     ]
//! ```

use std::sync::Arc;

use steeve_device::{Backend, Bindings, BufferType, Bytes, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, Named, TensorId};

use crate::{AllocError, TensorAllocator};

/// Allocates all tensors of a context, views after their roots. From then on they are external: graphs use them at these
/// addresses. A failure frees what was allocated and changes nothing. A context without tensors has no bindings.
///
/// Call it when the weights and caches are built and before anything else is: all tensors means all, inputs and results of
/// operations too. A second call allocates all of them once more; [`allocate_rest_of_context`] leaves alone what is placed
/// already.
///
/// ```
/// use std::sync::Arc;
/// use steeve_runtime::{allocate_context, context_size};
/// use steeve_device::{BufferType, HostMemory};
/// use steeve_graph::{Bytes, Context, DataType};
/// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
/// let mut context = Context::new();
/// let weight = context.external(DataType::F16, &[64, 64])?;
/// let row = context.view_1d(weight, 64, Bytes(128))?;
/// assert_eq!(context_size(&context, &memory)?, Bytes(8192));
/// let bindings = allocate_context(&mut context, &memory)?;
/// let (whole, part) = (bindings.get(weight).unwrap(), bindings.get(row).unwrap());
/// assert_eq!(part.offset.0 - whole.offset.0, 128);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn allocate_context(context: &mut Context, memory: &Arc<dyn BufferType>) -> Result<Bindings, AllocError> {
    allocate_rest_of_context(context, memory, &Bindings::new())
}

/// Allocates all tensors of a context in the memory that a backend computes in, as [`allocate_context`] does.
pub fn allocate_context_on(context: &mut Context, backend: &dyn Backend) -> Result<Bindings, AllocError> {
    allocate_context(context, &backend.buffer_type())
}

/// Allocates all tensors of a context that are not `placed` yet, as [`allocate_context`] does: for callers that put some
/// tensors elsewhere first, such as weights of another device or in mapped files. Returns `placed` with the others added.
///
/// # Errors
///
/// If `placed` has a tensor of another context, and as for [`allocate_context`].
pub fn allocate_rest_of_context(
    context: &mut Context,
    memory: &Arc<dyn BufferType>,
    placed: &Bindings,
) -> Result<Bindings, AllocError> {
    for (tensor, _) in placed.iter() {
        context.tensors().find_if_there(tensor)?;
    }
    let buffers = split_into_buffers(context, memory, placed)?;
    let mut bindings = placed.clone();
    for BufferTensors { tensors, size } in &buffers {
        let buffer = SharedBuffer::allocate(memory, *size, Usage::Any).map_err(|error| {
            let plural = if tensors.len() == 1 { "" } else { "s" };
            let what = format!("{} tensor{plural} of a context", tensors.len());
            AllocError::Buffer { what, size: *size, error: error.into() }
        })?;
        let mut allocator = TensorAllocator::new(&buffer);
        for tensor in tensors {
            allocator.bind(context, *tensor, &mut bindings)?;
        }
    }
    bind_views(context, &mut bindings)?;
    for tensor in buffers.iter().flat_map(|it| &it.tensors) {
        context.set_external(*tensor)?;
    }
    Ok(bindings)
}

/// Returns the bytes that [`allocate_context`] would take, without allocating any.
pub fn context_size(context: &Context, memory: &Arc<dyn BufferType>) -> Result<Bytes, AllocError> {
    let buffers = split_into_buffers(context, memory, &Bindings::new())?;
    Ok(Bytes(buffers.iter().map(|it| it.size.0).sum()))
}

/// The tensors of one buffer, in order, and its size.
struct BufferTensors {
    tensors: Vec<TensorId>,
    size: Bytes,
}

/// Splits the tensors, in order, where the next one would pass the largest buffer. All sizes together stay below 2^64.
/// Tensors of no bytes need an empty buffer if there is no other, because they need an address.
fn split_into_buffers(
    context: &Context,
    memory: &Arc<dyn BufferType>,
    placed: &Bindings,
) -> Result<Vec<BufferTensors>, AllocError> {
    let tensors = context.tensors();
    let max_size = memory.max_size().unwrap_or(Bytes(u64::MAX));
    let (mut buffers, mut total): (Vec<BufferTensors>, u64) = (Vec::new(), 0);
    for (id, _) in tensors.pairs().filter(|(id, it)| !it.is_view() && placed.get(*id).is_none()) {
        let size = memory.alloc_size(tensors, id);
        let padded = memory.align().round_up(size);
        let Some((padded, sum)) = padded.and_then(|padded| Some((padded, total.checked_add(padded.0)?))) else {
            return Err(AllocError::AddressSpace { tensor: Named::new(id, context.names()), size });
        };
        total = sum;
        match buffers.last_mut() {
            Some(last) if padded.0 <= max_size.0.saturating_sub(last.size.0) => {
                last.tensors.push(id);
                last.size.0 += padded.0;
            }
            _ => buffers.push(BufferTensors { tensors: vec![id], size: padded }),
        }
    }
    Ok(buffers)
}

/// Binds the views that have no address yet although their roots do.
fn bind_views(context: &Context, bindings: &mut Bindings) -> Result<(), AllocError> {
    for (id, tensor) in context.tensors().pairs() {
        let Some(view) = tensor.view.filter(|_| bindings.get(id).is_none()) else { continue };
        let Some(root) = bindings.get(view.root) else { continue };
        let needed = view.offset.checked_add(tensor.nbytes()).unwrap_or(Bytes(u64::MAX));
        if needed > root.size {
            let tensor = Named::new(view.root, context.names());
            return Err(AllocError::BoundTooSmall { tensor, needed, bound: root.size });
        }
        let (buffer, offset) = (root.buffer.clone(), Offset(root.offset.0 + view.offset.0));
        if let Some(hook) = buffer.borrow_mut()?.init_hook() {
            hook.init_tensor(context.tensors(), id, offset)?;
        }
        bindings.bind(id, &buffer, offset, tensor.nbytes())?;
    }
    Ok(())
}
