//! Tensors in memory as kernels see them: raw pointers, proven once to lie within what is borrowed.
//!
//! A `&[T]` and a `&mut [T]` over the same bytes would be undefined, and a result may well stand on a source. So elements
//! and rows are copied in and out, and references to planned memory are made for as long as a row is copied, or to sources
//! of operations that never run in place.

use std::marker::PhantomData;

use steeve_device::Shape;

/// A tensor in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorPtr<'a> {
    start: *mut u8,
    pub(crate) shape: &'a Shape,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a pointer to memory that is borrowed for 'a, with a shape. Who reads and writes it when is for the kernels, which
// are told so.
unsafe impl Send for TensorPtr<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorPtr<'_> {}

impl<'a> TensorPtr<'a> {
    /// # Safety
    /// `start` and the `shape.bytes` behind it are memory that is borrowed for 'a; for writing, if it will be written.
    pub(crate) unsafe fn new(start: *mut u8, shape: &'a Shape) -> Self {
        Self { start, shape, borrow: PhantomData }
    }

    /// The byte at `offset`.
    ///
    /// # Safety
    /// Within the tensor.
    pub(crate) unsafe fn at(self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: as promised.
        unsafe { self.start.add(offset) }
    }

    /// An element by its position in bytes. It may stand at any address.
    ///
    /// # Safety
    /// Within the tensor, whose bytes at that place are a `T`.
    pub(crate) unsafe fn read<T: Copy>(self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: as promised.
        unsafe { self.start.add(offset).cast::<T>().read_unaligned() }
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Safety
    /// Within the tensor, and nobody writes them while they are looked at.
    pub(crate) unsafe fn bytes(self, offset: usize, len: usize) -> &'a [u8] {
        debug_assert!(offset + len <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: as promised.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), len) }
    }

    /// `len` bytes from `offset` on, to be written.
    ///
    /// # Safety
    /// Within the tensor, which is the result of the node that runs, and nobody else looks at them meanwhile.
    pub(crate) unsafe fn bytes_mut(self, offset: usize, len: usize) -> &'a mut [u8] {
        debug_assert!(offset + len <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: as promised.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), len) }
    }

    /// Writes an element by its position in bytes.
    ///
    /// # Safety
    /// Within the tensor, which is the result of the node that runs.
    pub(crate) unsafe fn write<T: Copy>(self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: as promised.
        unsafe { self.start.add(offset).cast::<T>().write_unaligned(value) }
    }
}

/// Memory of a node, which some of its units fill before the others read it. It starts at a multiple of 64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeScratch<'a> {
    start: *mut u8,
    bytes: usize,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a pointer to memory that is borrowed for 'a. Who reads and writes it when is for the kernels.
unsafe impl Send for NodeScratch<'_> {}
// SAFETY: as above.
unsafe impl Sync for NodeScratch<'_> {}

impl<'a> NodeScratch<'a> {
    pub(crate) fn new(lines: &'a mut [CacheLine]) -> Self {
        Self { start: lines.as_mut_ptr().cast(), bytes: size_of_val(lines), borrow: PhantomData }
    }

    /// `count` elements from the byte at `offset` on.
    ///
    /// # Safety
    /// They lie within, `offset` is a multiple of their alignment, every bit pattern is one of them, and nobody writes them
    /// while they are looked at.
    pub(crate) unsafe fn read<T>(self, offset: usize, count: usize) -> &'a [T] {
        debug_assert!(offset + count * size_of::<T>() <= self.bytes, "{offset} lies outside of {} bytes", self.bytes);
        // SAFETY: as promised; all of it has been written, with zeros at least.
        unsafe { std::slice::from_raw_parts(self.start.add(offset).cast(), count) }
    }

    /// `count` elements from the byte at `offset` on, to be written.
    ///
    /// # Safety
    /// As for [`read`](Self::read), and nobody else looks at them meanwhile.
    pub(crate) unsafe fn write<T>(self, offset: usize, count: usize) -> &'a mut [T] {
        debug_assert!(offset + count * size_of::<T>() <= self.bytes, "{offset} lies outside of {} bytes", self.bytes);
        // SAFETY: as promised; all of it has been written, with zeros at least.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset).cast(), count) }
    }
}

/// What a [`NodeScratch`] is made of.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLine(pub(crate) [u8; 64]);
