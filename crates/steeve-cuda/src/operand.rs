//! Tensors in memory of the GPU, and numbers as CUDA counts.

use steeve_device::Shape;

/// CUDA runs on machines of 64 bits only, so no number is lost on its way to a kernel.
const _: () = assert!(usize::BITS == u64::BITS);

/// Returns a number as kernels count steps and sizes: one of 2^63 or above is negative.
pub(crate) const fn signed(number: usize) -> i64 {
    number.cast_signed() as i64
}

/// Returns a number as addresses and counts of threads are given to CUDA.
pub(crate) const fn unsigned(number: usize) -> u64 {
    number as u64
}

/// A tensor in memory of the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) address: u64,
    pub(crate) shape: Shape,
}

impl Operand {
    /// Returns the address of the byte at this distance from the first.
    pub(crate) fn at(&self, offset: usize) -> u64 {
        self.address + unsigned(offset)
    }

    /// Returns whether the first byte is at a multiple of `align`.
    pub(crate) fn starts_at(&self, align: usize) -> bool {
        self.address.is_multiple_of(unsigned(align))
    }

    /// Returns whether each row starts at a multiple of `align`.
    pub(crate) fn is_aligned(&self, align: usize) -> bool {
        self.starts_at(align) && self.shape.nb[1..].iter().all(|step| step.is_multiple_of(align))
    }

    /// Returns whether each element can be read at once.
    pub(crate) fn is_at_its_unit(&self) -> bool {
        let unit = self.shape.unit();
        self.starts_at(unit) && self.shape.nb.iter().all(|step| step.is_multiple_of(unit))
    }

    /// Returns the operand with a shape that counts blocks.
    pub(crate) fn in_blocks(self) -> Result<Self, String> {
        let refuse = || format!("rows of {}: expected whole blocks without gaps", self.shape.dtype);
        Ok(Self { shape: self.shape.in_blocks().ok_or_else(refuse)?, ..self })
    }
}
