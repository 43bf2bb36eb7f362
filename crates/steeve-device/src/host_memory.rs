//! Memory of this process: the only file of this crate with `unsafe`.
//!
//! A [`HostBuffer`] is memory of its own (aligned, perhaps in huge pages), memory of an owner that the caller hands
//! over (a vector, a mapped file), or memory lent for a while. All accesses go through a [`Span`]: a start and a length
//! that have been proven to lie within the buffer, and that can't outlive the borrow they were made from.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};
use steeve_graph::{Align, Bytes, Offset};

use crate::{Buffer, BufferType, DeviceError, SharedBuffer, Usage};

/// Plain memory of this process.
///
/// ```
/// use steeve_device::{Align, BufferType, Bytes, HostMemory, Pages};
/// let memory = HostMemory::new().with_align(Align::new(128)?).with_pages(Pages::Huge);
/// let buffer = memory.allocate(Bytes(1 << 20))?;
/// assert_eq!(buffer.address() % 128, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostMemory {
    name: Box<str>,
    align: Align,
    pages: Pages,
}

/// The pages that memory is allocated in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// The allocator's own.
    #[default]
    Plain,
    /// Huge pages where the system has them, which saves address translation in large buffers.
    Huge,
}

impl HostMemory {
    /// Returns memory called `host` that aligns tensors to 32 bytes, as ggml does.
    pub fn new() -> Self {
        Self::named("host")
    }

    /// Returns memory called `name` that aligns tensors to 32 bytes, as ggml does.
    pub fn named(name: &str) -> Self {
        Self { name: name.into(), align: DEFAULT_ALIGN, pages: Pages::Plain }
    }

    /// Returns this memory with another alignment of tensors.
    #[must_use]
    pub fn with_align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    /// Returns this memory with other pages.
    #[must_use]
    pub fn with_pages(self, pages: Pages) -> Self {
        Self { pages, ..self }
    }
}

/// The alignment of ggml's CPU memory.
pub(crate) const DEFAULT_ALIGN: Align = match Align::new(32) {
    Ok(align) => align,
    Err(_) => Align::ONE,
};

impl Default for HostMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl BufferType for HostMemory {
    fn name(&self) -> &str {
        &self.name
    }

    fn align(&self) -> Align {
        self.align
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let out_of_memory = || DeviceError::OutOfMemory { memory: self.name.to_string(), asked: size, left: None };
        let len = usize::try_from(size.0).map_err(|_| out_of_memory())?;
        let align = usize::try_from(self.align.get()).map_err(|_| out_of_memory())?;
        let storage = match self.pages {
            // A mapping is aligned to a page, which is not enough for every alignment.
            Pages::Huge if len > 0 && align <= PAGE => HostStorage::Mapped(map_huge(len).ok_or_else(out_of_memory)?),
            Pages::Huge | Pages::Plain => HostStorage::Heap(HeapMemory::new(len, align).ok_or_else(out_of_memory)?),
        };
        Ok(Box::new(HostBuffer { name: self.name.clone(), storage }))
    }
}

/// The smallest page size of any supported system.
const PAGE: usize = 4096;

/// Maps anonymous memory and advises the system to back it with huge pages. Without huge pages it gets small ones.
fn map_huge(len: usize) -> Option<MmapMut> {
    let map = MmapMut::map_anon(len).ok()?;
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Some(map)
}

/// A piece of memory of this process.
pub struct HostBuffer {
    name: Box<str>,
    storage: HostStorage,
}

enum HostStorage {
    Heap(HeapMemory),
    Mapped(MmapMut),
    Readable(Box<dyn AsRef<[u8]> + Send + Sync>),
    Writable(Box<dyn OwnedBytes>),
    Lent(LentMemory),
}

/// Memory that can be read and written: two traits under one name, for a box.
trait OwnedBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + Sync> OwnedBytes for T {
    fn bytes(&self) -> &[u8] {
        self.as_ref()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut()
    }
}

impl HostBuffer {
    /// Wraps memory that can only be read: a mapped file, an `Arc<[u8]>`, a static.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use steeve_device::{Buffer, HostBuffer, Offset};
    /// let weights: Arc<[u8]> = vec![1, 2, 3, 4].into();
    /// let mut buffer = HostBuffer::read_only("weights", weights);
    /// let mut two = [0; 2];
    /// buffer.read(Offset(1), &mut two)?;
    /// assert_eq!(two, [2, 3]);
    /// assert_eq!(buffer.write(Offset(1), &two).unwrap_err().to_string(), "weights: read-only memory");
    /// # Ok::<(), steeve_device::DeviceError>(())
    /// ```
    pub fn read_only(name: &str, owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), storage: HostStorage::Readable(Box::new(owner)) }
    }

    /// Maps a file as memory that can only be read. Nothing is read before it is used, and the system may drop it again, since it
    /// can be read once more.
    ///
    /// The file must stay as it is while it is mapped. If it is changed, what is read may change with it; if it becomes shorter,
    /// the system ends the process (`SIGBUS`) when it reads what is no longer there. To replace a file, write a new one and rename
    /// it: the mapping then keeps the old one.
    ///
    /// # Errors
    ///
    /// If the system can't map it.
    pub fn map_file(name: &str, file: &File) -> io::Result<Self> {
        // SAFETY: the mapping can't be written through, and lives as long as the buffer. That no other process changes the file
        // meanwhile can't be proven by anybody: it is the one deliberate exception, as in other loaders of mapped files, and the
        // docs above and SECURITY.md say what follows.
        let map = unsafe { Mmap::map(file) }?;
        Ok(Self::read_only(name, map))
    }

    /// Wraps memory that the caller hands over: a `Vec<u8>`, a mapped file that is private or writable.
    pub fn owned(name: &str, owner: impl AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), storage: HostStorage::Writable(Box::new(owner)) }
    }

    /// Returns `size` bytes at `offset` for reading.
    pub fn span(&self, offset: Offset, size: Bytes) -> Result<Span<'_>, DeviceError> {
        let (start, len) = self.extent();
        let (at, size) = checked_range(&self.name, offset, size, len)?;
        // SAFETY: `checked_range` has proven that `at` is at most the length of the memory that starts at `start`.
        let start = unsafe { start.add(at) };
        Ok(Span { start, len: size, borrow: PhantomData })
    }

    /// Returns `size` bytes at `offset` for writing.
    pub fn span_mut(&mut self, offset: Offset, size: Bytes) -> Result<SpanMut<'_>, DeviceError> {
        self.storage.span_mut(&self.name, offset, size)
    }

    fn extent(&self) -> (NonNull<u8>, usize) {
        match &self.storage {
            HostStorage::Heap(own) => (own.start, own.len),
            HostStorage::Lent(lent) => (lent.start, lent.len),
            HostStorage::Mapped(map) => start_and_len(NonNull::from(&**map)),
            HostStorage::Readable(owner) => start_and_len(NonNull::from((**owner).as_ref())),
            HostStorage::Writable(owner) => start_and_len(NonNull::from(owner.bytes())),
        }
    }
}

impl HostStorage {
    fn span_mut(&mut self, name: &str, offset: Offset, size: Bytes) -> Result<SpanMut<'_>, DeviceError> {
        let (start, len) = match self {
            Self::Heap(own) => (own.start, own.len),
            Self::Lent(lent) => (lent.start, lent.len),
            Self::Mapped(map) => start_and_len(NonNull::from(&mut **map)),
            Self::Writable(owner) => start_and_len(NonNull::from(owner.bytes_mut())),
            Self::Readable(_) => return Err(DeviceError::ReadOnly { memory: name.into() }),
        };
        let (at, size) = checked_range(name, offset, size, len)?;
        // SAFETY: `checked_range` has proven that `at` is at most the length of the memory that starts at `start`.
        let start = unsafe { start.add(at) };
        Ok(SpanMut { start, len: size, borrow: PhantomData })
    }
}

fn start_and_len(bytes: NonNull<[u8]>) -> (NonNull<u8>, usize) {
    (bytes.cast(), bytes.len())
}

/// Returns `offset` and `size` as numbers, proven to lie within `room`.
fn checked_range(memory: &str, offset: Offset, size: Bytes, room: usize) -> Result<(usize, usize), DeviceError> {
    DeviceError::check_bounds(memory, offset, size, Bytes(room as u64))?;
    // Both are at most `room`.
    Ok((offset.0 as usize, size.0 as usize))
}

impl Buffer for HostBuffer {
    fn size(&self) -> Bytes {
        Bytes(self.extent().1 as u64)
    }

    fn address(&self) -> u64 {
        self.extent().0.addr().get() as u64
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        into.copy_from_slice(self.span(offset, Bytes(into.len() as u64))?.as_slice());
        Ok(())
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.span_mut(offset, Bytes(from.len() as u64))?.as_slice_mut().copy_from_slice(from);
        Ok(())
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        self.span_mut(offset, size)?.as_slice_mut().fill(byte);
        Ok(())
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        let room = self.extent().1;
        let (from, len) = checked_range(&self.name, from, size, room)?;
        let (to, _) = checked_range(&self.name, to, size, room)?;
        let mut all = self.span_mut(Offset(0), Bytes(room as u64))?;
        all.as_slice_mut().copy_within(from..from + len, to);
        Ok(())
    }

    fn copy_from(&mut self, to: Offset, source: &dyn Buffer, from: Offset, size: Bytes) -> Result<(), DeviceError> {
        let mut target = self.span_mut(to, size)?;
        // One copy, of whatever type the source is: it reads straight into this memory.
        source.read(from, target.as_slice_mut())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        match self.storage {
            // A `&mut HostBuffer` could be swapped for another, which would carry lent memory away from the handle that
            // releases it. So only `SpanMut::of` can tell what lent memory is.
            HostStorage::Lent(_) => &mut self.storage,
            HostStorage::Heap(_) | HostStorage::Mapped(_) | HostStorage::Readable(_) | HostStorage::Writable(_) => self,
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").field("name", &self.name).field("size", &self.size()).finish_non_exhaustive()
    }
}

/// A piece of host memory for reading, proven to lie within its buffer.
///
/// It can't outlive the buffer:
///
/// ```compile_fail,E0505
/// use steeve_device::{Bytes, HostBuffer, Offset};
/// let buffer = HostBuffer::owned("bytes", vec![1; 8]);
/// let span = buffer.span(Offset(0), Bytes(8)).unwrap();
/// drop(buffer);
/// span.as_slice();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    start: NonNull<u8>,
    len: usize,
    borrow: PhantomData<&'a [u8]>,
}

/// A piece of host memory for writing, proven to lie within its buffer.
///
/// There is one at a time, and no reader meanwhile:
///
/// ```compile_fail,E0502
/// use steeve_device::{Bytes, HostBuffer, Offset};
/// let mut buffer = HostBuffer::owned("bytes", vec![1; 8]);
/// let mut writing = buffer.span_mut(Offset(0), Bytes(4)).unwrap();
/// let reading = buffer.span(Offset(4), Bytes(4)).unwrap();
/// writing.as_slice_mut().copy_from_slice(reading.as_slice());
/// ```
#[derive(Debug)]
pub struct SpanMut<'a> {
    start: NonNull<u8>,
    len: usize,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a span is a `&[u8]` in all but name, which is `Send`.
unsafe impl Send for Span<'_> {}
// SAFETY: a span is a `&[u8]` in all but name, which is `Sync`.
unsafe impl Sync for Span<'_> {}
// SAFETY: a span for writing is a `&mut [u8]` in all but name, which is `Send`.
unsafe impl Send for SpanMut<'_> {}
// SAFETY: a shared `SpanMut` gives access to nothing but its start and length.
unsafe impl Sync for SpanMut<'_> {}

impl<'a> Span<'a> {
    /// Returns `size` bytes at `offset` of a buffer of this process; `None` if its memory is elsewhere.
    pub fn of(buffer: &'a dyn Buffer, offset: Offset, size: Bytes) -> Option<Result<Self, DeviceError>> {
        buffer.as_any().downcast_ref::<HostBuffer>().map(|host| host.span(offset, size))
    }

    /// Returns the first byte. It is valid for reads of the span's length while the borrow lasts.
    pub fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &'a [u8] {
        // SAFETY: the span lies within memory that is initialised, and the borrow it was made from lasts for 'a and
        // excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<'a> SpanMut<'a> {
    /// Returns `size` bytes at `offset` of a buffer of this process, also of one that is [lent](SharedBuffer::lend);
    /// `None` if its memory is elsewhere.
    ///
    /// ```
    /// use steeve_device::{Bytes, Offset, SharedBuffer, SpanMut};
    /// let mut mine = [0; 8];
    /// SharedBuffer::lend(&mut mine, |buffer| {
    ///     let mut running = buffer.borrow_mut()?;
    ///     let span = SpanMut::of(&mut *running, Offset(6), Bytes(2));
    ///     span.transpose().map(|span| span.map(|mut span| span.as_slice_mut().fill(7)))
    /// })?;
    /// assert_eq!(mine, [0, 0, 0, 0, 0, 0, 7, 7]);
    /// # Ok::<(), steeve_device::DeviceError>(())
    /// ```
    pub fn of(buffer: &'a mut dyn Buffer, offset: Offset, size: Bytes) -> Option<Result<Self, DeviceError>> {
        let any = buffer.as_any_mut();
        if any.is::<HostStorage>() {
            return any.downcast_mut::<HostStorage>().map(|storage| storage.span_mut(LENT, offset, size));
        }
        any.downcast_mut::<HostBuffer>().map(|host| host.span_mut(offset, size))
    }

    /// Returns the first byte. It is valid for reads and writes of the span's length while the borrow lasts.
    pub fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes.
    pub fn as_slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: the span lies within memory that is initialised, and the borrow it was made from lasts and excludes
        // all other accesses.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Memory of the global allocator, zeroed.
struct HeapMemory {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the memory has one owner, like a `Box<[u8]>`.
unsafe impl Send for HeapMemory {}
// SAFETY: shared access only reads, like a `Box<[u8]>`.
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    /// Allocates memory aligned to at least a cache line; `None` if there is none.
    fn new(len: usize, align: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len, align.max(64)).ok()?;
        if len == 0 {
            // No memory, but an address that is aligned.
            let start = NonNull::new(std::ptr::without_provenance_mut(layout.align()))?;
            return Some(Self { start, len, layout });
        }
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, len, layout })
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `new` got it from the allocator with this layout, and nothing else frees it.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// Implements [`SharedBuffer::lend`].
pub(crate) fn lend<R>(bytes: &mut [u8], act: impl FnOnce(&SharedBuffer) -> R) -> R {
    let memory = HostMemory::named(LENT).with_align(Align::ONE);
    let (start, len) = start_and_len(NonNull::from(bytes));
    let buffer =
        Box::new(HostBuffer { name: memory.name.clone(), storage: HostStorage::Lent(LentMemory { start, len }) });
    // The buffer can be reached through its handle alone: no code gets a `&mut HostBuffer` of it that could be moved
    // out of. `RevokeOnDrop` drops it before `bytes` is free again, also when `act` panics. So no `LentMemory` outlives
    // the borrow.
    let revoke = RevokeOnDrop(SharedBuffer::new(Arc::new(memory), buffer, Usage::Any));
    act(&revoke.0)
}

const LENT: &str = "lent memory";

/// Drops lent memory, after borrows in other threads have ended.
struct RevokeOnDrop(SharedBuffer);

impl Drop for RevokeOnDrop {
    fn drop(&mut self) {
        // A lock may panic instead of waiting for its own thread for ever. Readers would then read what is no longer
        // lent, so the process must not go on.
        let abort_on_unwind = AbortOnUnwind;
        self.0.wait_and_release();
        std::mem::forget(abort_on_unwind);
    }
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Memory of another owner, which [`lend`] keeps borrowed for as long as this exists.
struct LentMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is a `&mut [u8]` in all but name, which is `Send`.
unsafe impl Send for LentMemory {}
// SAFETY: shared access only reads, as with a `&mut [u8]`.
unsafe impl Sync for LentMemory {}
