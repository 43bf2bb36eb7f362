//! Reads and writes tensors that have memory of their own, before or without any graph.

use steeve_device::{Address, Bindings};
use steeve_graph::{Context, Layout, Named, TensorId};

use crate::element::{check_span, read_packed, write_packed, zeroed};
use crate::{AllocError, Element};

/// Writes all elements of a bound tensor, in order whatever its strides.
///
/// ```
/// use std::sync::Arc;
/// use steeve_runtime::{allocate_context, read_tensor, write_tensor};
/// use steeve_device::{BufferType, HostMemory};
/// use steeve_graph::{Context, DataType};
/// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
/// let mut context = Context::new();
/// let weight = context.external(DataType::F32, &[2, 2])?;
/// let bindings = allocate_context(&mut context, &memory)?;
/// write_tensor(&context, &bindings, weight, &[1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(read_tensor::<f32>(&context, &bindings, weight)?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_tensor<T: Element>(
    context: &Context,
    bindings: &Bindings,
    tensor: TensorId,
    data: &[T],
) -> Result<(), AllocError> {
    let (address, layout) = find::<T>(context, bindings, tensor)?;
    if layout.elements() != data.len() as u64 {
        let (wanted, given) = (layout.elements(), data.len() as u64);
        let tensor = Named::new(tensor, context.names());
        return Err(AllocError::Length { tensor, unit: "elements", wanted, given });
    }
    write_packed(&mut *address.buffer.borrow_mut()?, address.offset, layout, bytemuck::cast_slice(data))
}

/// Reads all elements of a bound tensor, in order whatever its strides.
pub fn read_tensor<T: Element>(context: &Context, bindings: &Bindings, tensor: TensorId) -> Result<Vec<T>, AllocError> {
    let (address, layout) = find::<T>(context, bindings, tensor)?;
    let buffer = address.buffer.borrow()?;
    let mut data = zeroed(layout.elements())?;
    read_packed(&*buffer, address.offset, layout, bytemuck::cast_slice_mut(&mut data))?;
    Ok(data)
}

/// Returns the address and the layout of a tensor. Fails if its elements are not of type `T`, or its memory is too small.
fn find<'a, T: Element>(
    context: &'a Context,
    bindings: &'a Bindings,
    tensor: TensorId,
) -> Result<(Address<'a>, &'a Layout), AllocError> {
    let layout = &context.tensor(tensor)?.layout;
    let named = || Named::new(tensor, context.names());
    if layout.dtype() != T::TYPE {
        return Err(AllocError::ElementType { tensor: named(), dtype: layout.dtype(), given: T::TYPE });
    }
    check_span(layout, named)?;
    let address = bindings.get(tensor).ok_or_else(|| AllocError::Unbound { tensor: named() })?;
    if address.size < layout.nbytes() {
        return Err(AllocError::BoundTooSmall { tensor: named(), needed: layout.nbytes(), bound: address.size });
    }
    Ok((address, layout))
}
