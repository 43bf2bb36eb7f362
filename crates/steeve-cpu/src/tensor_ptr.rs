//! Tensors in memory as kernels access them: raw pointers, proven once to lie within what is borrowed.
//!
//! A `&[T]` and a `&mut [T]` over the same bytes would be undefined, and a result may have the memory of a source. So
//! elements and rows are copied in and out, and references to planned memory are made for as long as a row is copied,
//! or to sources of operations that never run in place.

use std::marker::PhantomData;

use steeve_device::Shape;

/// A tensor in borrowed memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorPtr<'a> {
    start: *mut u8,
    pub(crate) shape: &'a Shape,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a pointer to memory that is borrowed for 'a, with a shape. The kernels order reads and writes, as the
// contracts of the unsafe methods demand.
unsafe impl Send for TensorPtr<'_> {}
// SAFETY: the kernels order reads and writes, as for `Send`.
unsafe impl Sync for TensorPtr<'_> {}

impl<'a> TensorPtr<'a> {
    /// # Safety
    /// `start` and the `shape.bytes` behind it are memory that is borrowed for 'a; for writing, if it will be written.
    pub(crate) unsafe fn new(start: *mut u8, shape: &'a Shape) -> Self {
        Self { start, shape, borrow: PhantomData }
    }

    /// Returns the address of the byte at `offset`.
    ///
    /// # Safety
    /// The byte lies within the tensor, or is its end.
    pub(crate) unsafe fn at(self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: the caller promises that the byte lies within the tensor.
        unsafe { self.start.add(offset) }
    }

    /// Reads the element at `offset` bytes. It may be at any address.
    ///
    /// # Safety
    /// The element lies within the tensor, and its bytes are a `T`.
    pub(crate) unsafe fn read<T: Copy>(self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: the caller promises that the element lies within the tensor and is a `T`.
        unsafe { self.start.add(offset).cast::<T>().read_unaligned() }
    }

    /// Returns `len` bytes from `offset` on.
    ///
    /// # Safety
    /// They lie within the tensor, and are not written while the slice is in use.
    pub(crate) unsafe fn bytes(self, offset: usize, len: usize) -> &'a [u8] {
        debug_assert!(offset + len <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: the caller promises that the bytes lie within the tensor and are not written.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), len) }
    }

    /// Returns `len` bytes from `offset` on, to be written.
    ///
    /// # Safety
    /// They lie within the tensor, which is the result of the node that runs, and are not accessed in another way while
    /// the slice is in use.
    pub(crate) unsafe fn bytes_mut(self, offset: usize, len: usize) -> &'a mut [u8] {
        debug_assert!(offset + len <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: the caller promises that the bytes lie within the tensor and are not accessed in another way.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), len) }
    }

    /// Writes an element at `offset` bytes.
    ///
    /// # Safety
    /// The element lies within the tensor, which is the result of the node that runs.
    pub(crate) unsafe fn write<T: Copy>(self, offset: usize, value: T) {
        debug_assert!(offset + size_of::<T>() <= self.shape.bytes, "{offset} lies outside of {:?}", self.shape);
        // SAFETY: the caller promises that the element lies within the tensor.
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

// SAFETY: a pointer to memory that is borrowed for 'a. The kernels order reads and writes, as the contracts of the
// unsafe methods demand.
unsafe impl Send for NodeScratch<'_> {}
// SAFETY: the kernels order reads and writes, as for `Send`.
unsafe impl Sync for NodeScratch<'_> {}

impl<'a> NodeScratch<'a> {
    pub(crate) fn new(lines: &'a mut [CacheLine]) -> Self {
        Self { start: lines.as_mut_ptr().cast(), bytes: size_of_val(lines), borrow: PhantomData }
    }

    /// Returns `count` elements from the byte at `offset` on.
    ///
    /// # Safety
    /// They lie within the memory, `offset` is a multiple of their alignment, every bit pattern is one of them, and
    /// they are not written while the slice is in use.
    pub(crate) unsafe fn read<T>(self, offset: usize, count: usize) -> &'a [T] {
        debug_assert!(offset + count * size_of::<T>() <= self.bytes, "{offset} lies outside of {} bytes", self.bytes);
        // SAFETY: as the caller promises; all of it has been written, with zeros at least.
        unsafe { std::slice::from_raw_parts(self.start.add(offset).cast(), count) }
    }

    /// Returns `count` elements from the byte at `offset` on, to be written.
    ///
    /// # Safety
    /// They are as for [`read`](Self::read), and are not accessed in another way while the slice is in use.
    pub(crate) unsafe fn write<T>(self, offset: usize, count: usize) -> &'a mut [T] {
        debug_assert!(offset + count * size_of::<T>() <= self.bytes, "{offset} lies outside of {} bytes", self.bytes);
        // SAFETY: as the caller promises; all of it has been written, with zeros at least.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset).cast(), count) }
    }
}

/// The unit of a [`NodeScratch`]: aligned, and written at least with zeros.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLine(pub(crate) [u8; 64]);
