//! A kind of memory, and a piece of it: what a device crate implements.
//!
//! All methods of a [`Buffer`] check bounds: an implementation is safe to call with any numbers. A read is `&self`, a write
//! `&mut self`; [`SharedBuffer`](crate::SharedBuffer) turns that into a flag at run time.

use std::any::Any;
use std::fmt::Debug;

use steeve_graph::{Align, Bytes, Fusion, Offset, TensorId, Tensors};

use crate::DeviceError;

/// What a buffer is for. A scheduler runs an operation where its weights are.
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

/// A kind of memory.
pub trait BufferType: Send + Sync + Debug {
    /// What to call it.
    fn name(&self) -> &str;

    /// What the offsets of tensors are multiples of; also of a buffer's address, unless its memory is the caller's.
    fn align(&self) -> Align;

    /// The largest buffer it gives out.
    fn max_size(&self) -> Option<Bytes> {
        None
    }

    /// Whether the host can read and write it where it stands.
    fn is_host(&self) -> bool;

    /// For how many nodes after its last reader a tensor must stay, because backends fuse or reorder nodes.
    fn hold(&self) -> u32 {
        0
    }

    /// Whether backends that compute here fuse nodes where addresses allow it, and what plans keep so that they can.
    fn fusion(&self) -> Fusion {
        Fusion::None
    }

    /// Who says that tensors take more bytes here than they span. `None` costs nothing.
    fn padding(&self) -> Option<&dyn Padding> {
        None
    }

    /// A buffer of at least `size` bytes.
    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError>;
}

impl dyn BufferType + '_ {
    /// The bytes that a tensor takes here: what it spans, or more.
    pub fn alloc_size(&self, tensors: &Tensors, tensor: TensorId) -> Bytes {
        let bytes = tensors.get(tensor).map_or(Bytes::ZERO, |it| it.nbytes());
        self.padding().map_or(bytes, |padding| padding.alloc_size(tensors, tensor).max(bytes))
    }
}

/// Kernels that want bytes behind a tensor, or scratch memory with it.
pub trait Padding {
    /// The bytes that `tensor` takes. Less than it spans counts as what it spans.
    fn alloc_size(&self, tensors: &Tensors, tensor: TensorId) -> Bytes;
}

/// A piece of memory.
pub trait Buffer: Send + Sync + Debug {
    /// Its size.
    fn size(&self) -> Bytes;

    /// The address of its first byte, as its device counts.
    fn address(&self) -> u64;

    /// Copies bytes out of it.
    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies bytes into it.
    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError>;

    /// Sets `size` bytes to `byte`.
    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError>;

    /// Copies from one place in it to another; the two may overlap.
    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError>;

    /// Copies out of another buffer, perhaps of another device. Goes through the host unless a device knows better.
    fn copy_from(&mut self, to: Offset, source: &dyn Buffer, from: Offset, size: Bytes) -> Result<(), DeviceError> {
        copy_through_host(self, to, source, from, size)
    }

    /// Sets all bytes to `byte`.
    fn clear(&mut self, byte: u8) -> Result<(), DeviceError> {
        self.fill(Offset(0), self.size(), byte)
    }

    /// Makes it at least as large where it stands: its address and its bytes stay. `false`, and nothing changes, if it can't
    /// be larger there. Nobody asks for less than it has.
    fn grow(&mut self, size: Bytes) -> Result<bool, DeviceError> {
        let _ = size;
        Ok(false)
    }

    /// Forgets what was set up for the tensors of the last graph.
    fn reset(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Who wants to see each tensor that is placed here. `None` costs nothing.
    fn init_hook(&mut self) -> Option<&mut dyn InitTensor> {
        None
    }

    /// For backends that know the type.
    fn as_any(&self) -> &dyn Any;

    /// For backends that know the type.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Sees each tensor that gets a place in a buffer.
pub trait InitTensor {
    /// `tensor` stands at `offset` from now on.
    fn init_tensor(&mut self, tensors: &Tensors, tensor: TensorId, offset: Offset) -> Result<(), DeviceError>;
}

/// How many bytes are on the way at a time.
const STAGE: u64 = 1 << 20;

/// Copies out of another buffer through a piece of host memory: what [`Buffer::copy_from`] does where a device knows no better.
/// Fails before anything is written if either side is too small.
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
