//! Reads and writes the elements of tensors without the gaps between them.

use steeve_device::{Buffer, Bytes, DeviceError, Offset};
use steeve_graph::{Layout, Named};

use crate::AllocError;

/// Returns a list of zeros. Fails if the host has no memory for it.
pub(crate) fn zeroed<T: bytemuck::Pod>(len: u64) -> Result<Vec<T>, AllocError> {
    let asked = Bytes(len.saturating_mul(size_of::<T>() as u64));
    let out_of_memory = || DeviceError::OutOfMemory { memory: "this process".into(), asked, left: None };
    let len = usize::try_from(len).map_err(|_| out_of_memory())?;
    // Pages of zeros that are not touched cost nothing.
    Ok(bytemuck::allocation::try_zeroed_vec(len).map_err(|()| out_of_memory())?)
}

/// Returns the number of bytes of a tensor without gaps: those of all its [runs](Layout::runs).
pub(crate) fn packed_size(layout: &Layout) -> u64 {
    let (ne, dtype) = (layout.ne(), layout.dtype());
    let blocks = [ne[0] / dtype.block_len(), ne[1], ne[2], ne[3]];
    blocks.iter().fold(dtype.block_bytes(), |product, count| product.saturating_mul(*count))
}

/// Fails unless all elements lie within the bytes that the layout says it spans. Strides below the size of a block do not.
pub(crate) fn check_span(layout: &Layout, tensor: impl FnOnce() -> Named) -> Result<(), AllocError> {
    let (wanted, given) = (end_of_runs(layout), layout.nbytes().0);
    if wanted > given {
        return Err(AllocError::Length { tensor: tensor(), unit: "bytes", wanted, given });
    }
    Ok(())
}

/// Above this many bytes a tensor that is mostly gaps is moved run by run.
const SPARSE: u64 = 1 << 20;

fn is_sparse(layout: &Layout) -> bool {
    layout.nbytes().0 > SPARSE && layout.nbytes().0 / 4 > packed_size(layout)
}

/// Reads a tensor without its gaps. The layout has been [checked](check_span).
pub(crate) fn read_packed(buffer: &dyn Buffer, at: Offset, layout: &Layout, data: &mut [u8]) -> Result<(), AllocError> {
    if layout.is_contiguous() {
        return Ok(buffer.read(at, data)?);
    }
    let (starts, len) = layout.runs();
    let pieces = starts.zip(data.chunks_exact_mut(len.max(1) as usize));
    if is_sparse(layout) {
        for (start, piece) in pieces {
            buffer.read(Offset(at.0 + start), piece)?;
        }
        return Ok(());
    }
    let mut all: Vec<u8> = zeroed(layout.nbytes().0)?;
    buffer.read(at, &mut all)?;
    pieces.for_each(|(start, piece)| piece.copy_from_slice(&all[start as usize..][..len as usize]));
    Ok(())
}

/// Writes a tensor around its gaps, which belong to other tensors and keep their bytes. The layout has been
/// [checked](check_span).
pub(crate) fn write_packed(
    buffer: &mut dyn Buffer,
    at: Offset,
    layout: &Layout,
    data: &[u8],
) -> Result<(), AllocError> {
    if layout.is_contiguous() {
        return Ok(buffer.write(at, data)?);
    }
    let (starts, len) = layout.runs();
    let pieces = starts.zip(data.chunks_exact(len.max(1) as usize));
    if is_sparse(layout) {
        for (start, piece) in pieces {
            buffer.write(Offset(at.0 + start), piece)?;
        }
        return Ok(());
    }
    let mut all: Vec<u8> = zeroed(layout.nbytes().0)?;
    buffer.read(at, &mut all)?;
    pieces.for_each(|(start, piece)| all[start as usize..][..len as usize].copy_from_slice(piece));
    Ok(buffer.write(at, &all)?)
}

/// Returns the end of the last of the [runs](Layout::runs).
fn end_of_runs(layout: &Layout) -> u64 {
    let (ne, nb, dtype) = (layout.ne(), layout.nb(), layout.dtype());
    let blocks = [ne[0] / dtype.block_len(), ne[1], ne[2], ne[3]];
    if blocks.contains(&0) {
        return 0;
    }
    // Within a row without gaps blocks are as far apart as they are long, whatever the stride says of a single one.
    let first = if layout.has_contiguous_rows() { dtype.block_bytes() } else { nb[0] };
    let steps = blocks.iter().zip([first, nb[1], nb[2], nb[3]]);
    steps.fold(dtype.block_bytes(), |end, (count, stride)| end.saturating_add((count - 1).saturating_mul(stride)))
}
