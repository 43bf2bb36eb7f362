//! A type of memory, and a piece of it: the traits that a device crate implements.
//!
//! All methods of a [`Buffer`] check bounds: an implementation is safe to call with any numbers. A read takes `&self`,
//! a write `&mut self`; [`SharedBuffer`](crate::SharedBuffer) turns that into a borrow flag at run time.

use std::any::Any;
use std::fmt::Debug;

use steeve_graph::{Align, Bytes, Fusion, Offset, TensorId, Tensors};

use crate::DeviceError;

/// What a buffer is used for. A scheduler runs an operation where its weights are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Usage {
    /// Anything.
    #[default]
    Any,
    /// Weights, which are read by many runs.
    Weights,
    /// The intermediate results of a run.
    Compute,
}

/// A type of memory.
pub trait BufferType: Send + Sync + Debug {
    /// Returns the name.
    fn name(&self) -> &str;

    /// Returns the alignment of the offsets of tensors; also of a buffer's address, unless the caller provides its
    /// memory.
    fn align(&self) -> Align;

    /// Returns the size of the largest buffer, if there is a limit.
    fn max_size(&self) -> Option<Bytes> {
        None
    }

    /// Returns whether the host can read and write it directly.
    fn is_host(&self) -> bool;

    /// Returns the number of nodes for which a tensor is kept after its last reader, because backends fuse or reorder
    /// nodes.
    fn hold(&self) -> u32 {
        0
    }

    /// Returns whether backends that compute here fuse nodes where addresses allow it, and what plans keep so that they
    /// can.
    fn fusion(&self) -> Fusion {
        Fusion::None
    }

    /// Returns the rule by which tensors take more bytes here than they span. `None` costs nothing.
    fn padding(&self) -> Option<&dyn Padding> {
        None
    }

    /// Allocates a buffer of at least `size` bytes.
    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError>;
}

impl dyn BufferType + '_ {
    /// Returns the bytes that a tensor takes here: what it spans, or more.
    pub fn alloc_size(&self, tensors: &Tensors, tensor: TensorId) -> Bytes {
        let bytes = tensors.get(tensor).map_or(Bytes::ZERO, |it| it.nbytes());
        self.padding().map_or(bytes, |padding| padding.alloc_size(tensors, tensor).max(bytes))
    }
}

/// A rule for kernels that need bytes behind a tensor, or scratch memory with it.
pub trait Padding {
    /// Returns the bytes that `tensor` takes. Less than it spans counts as what it spans.
    fn alloc_size(&self, tensors: &Tensors, tensor: TensorId) -> Bytes;
}

/// A piece of memory.
pub trait Buffer: Send + Sync + Debug {
    /// Returns the size.
    fn size(&self) -> Bytes;

    /// Returns the address of the first byte, as the device counts.
    fn address(&self) -> u64;

    /// Copies bytes out of the buffer.
    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies bytes into the buffer.
    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError>;

    /// Sets `size` bytes to `byte`.
    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError>;

    /// Copies from one range of the buffer to another; the two may overlap.
    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError>;

    /// Copies out of another buffer, perhaps of another device. Goes through the host unless a device has a shorter
    /// way.
    fn copy_from(&mut self, to: Offset, source: &dyn Buffer, from: Offset, size: Bytes) -> Result<(), DeviceError> {
        copy_through_host(self, to, source, from, size)
    }

    /// Sets all bytes to `byte`.
    fn clear(&mut self, byte: u8) -> Result<(), DeviceError> {
        self.fill(Offset(0), self.size(), byte)
    }

    /// Grows the buffer in place to at least `size` bytes, which are no fewer than it has: address and bytes stay.
    /// Returns `false`, and changes nothing, if it can't.
    fn grow(&mut self, size: Bytes) -> Result<bool, DeviceError> {
        let _ = size;
        Ok(false)
    }

    /// Drops what was set up for the tensors of the last graph.
    fn reset(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Returns the hook to call for each tensor that is placed here. `None` costs nothing.
    fn init_hook(&mut self) -> Option<&mut dyn InitTensor> {
        None
    }

    /// Returns the value itself, for backends that know the type.
    fn as_any(&self) -> &dyn Any;

    /// Returns the value itself, for backends that know the type.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A hook that is called for each tensor that is placed in a buffer.
pub trait InitTensor {
    /// Sets up `tensor`, which is located at `offset` from now on.
    fn init_tensor(&mut self, tensors: &Tensors, tensor: TensorId, offset: Offset) -> Result<(), DeviceError>;
}

/// The bytes that are copied at a time.
const STAGE: u64 = 1 << 20;

/// Copies out of another buffer through host memory: the default of [`Buffer::copy_from`].
///
/// # Errors
///
/// If either range is out of bounds, before anything is written; or if a transfer fails.
pub fn copy_through_host<B: Buffer + ?Sized>(
    target: &mut B,
    to: Offset,
    source: &dyn Buffer,
    from: Offset,
    size: Bytes,
) -> Result<(), DeviceError> {
    // An empty transfer at the far end proves the bounds of both sides. An end beyond 2^64 - 1 is beyond any buffer.
    let end = |start: Offset| start.checked_add(size).unwrap_or(Offset(u64::MAX));
    let whole = |offset: Offset| {
        move |error| match error {
            DeviceError::Outside { memory, room, .. } => DeviceError::Outside { memory, offset, size, room },
            other => other,
        }
    };
    source.read(end(from), &mut []).map_err(whole(from))?;
    target.write(end(to), &[]).map_err(whole(to))?;
    let mut stage = vec![0; STAGE.min(size.0) as usize];
    let mut done = 0;
    while done < size.0 {
        let piece = &mut stage[..STAGE.min(size.0 - done) as usize];
        source.read(Offset(from.0 + done), piece)?;
        target.write(Offset(to.0 + done), piece)?;
        done += piece.len() as u64;
    }
    Ok(())
}
