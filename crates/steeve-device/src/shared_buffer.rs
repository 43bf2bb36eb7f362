//! A cheap handle of a buffer, with one borrow flag.
//!
//! A transfer or a run borrows the buffer once, for reading or for writing; a conflicting borrow is an error instead of
//! torn data, and no call waits. The owner can release the memory: other handles then return
//! [`Released`](DeviceError::Released).

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use steeve_graph::{Bytes, Offset};

use crate::{Buffer, BufferType, DeviceError, HostBuffer, HostMemory, Usage};

/// A buffer with several handles. Clones are handles of the same buffer.
///
/// ```
/// use std::sync::Arc;
/// use steeve_device::{BufferType, Bytes, DeviceError, HostMemory, Offset, SharedBuffer, Usage};
/// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
/// let buffer = SharedBuffer::allocate(&memory, Bytes(64), Usage::Compute)?;
/// let other = buffer.clone();
/// {
///     let running = buffer.borrow_mut()?;
///     assert!(matches!(other.write(Offset(0), &[1]), Err(DeviceError::InUse { .. })));
///     assert_eq!(running.size(), Bytes(64));
/// }
/// other.write(Offset(0), &[1])?;
/// buffer.release()?;
/// assert!(matches!(other.write(Offset(0), &[1]), Err(DeviceError::Released { .. })));
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Clone)]
pub struct SharedBuffer(Arc<SharedState>);

struct SharedState {
    memory: Arc<dyn BufferType>,
    /// The size, which may grow.
    size: AtomicU64,
    address: u64,
    usage: AtomicU8,
    /// `None` once the memory has been released. Never locked by waiting, except at the end of [`SharedBuffer::lend`].
    buffer: RwLock<Option<Box<dyn Buffer>>>,
}

impl SharedBuffer {
    /// Allocates a buffer of exactly this type.
    ///
    /// # Errors
    ///
    /// If there is no memory, or the buffer has not the size and alignment that its type promises.
    pub fn allocate(memory: &Arc<dyn BufferType>, size: Bytes, usage: Usage) -> Result<Self, DeviceError> {
        let buffer = memory.allocate(size)?;
        let broken = |promised: String, given: String| {
            Err(DeviceError::Broken { memory: memory.name().into(), promised, given })
        };
        if buffer.size() < size {
            return broken(format!("a buffer of {size} bytes"), format!("{} bytes", buffer.size()));
        }
        if !memory.align().accepts(Offset(buffer.address())) {
            return broken(
                format!("buffers at multiples of {}", memory.align()),
                format!("one at address {:#x}", buffer.address()),
            );
        }
        Ok(Self::new(Arc::clone(memory), buffer, usage))
    }

    /// Wraps an existing buffer.
    pub fn new(memory: Arc<dyn BufferType>, buffer: Box<dyn Buffer>, usage: Usage) -> Self {
        let (size, address) = (AtomicU64::new(buffer.size().0), buffer.address());
        let (usage, buffer) = (AtomicU8::new(number(usage)), RwLock::new(Some(buffer)));
        Self(Arc::new(SharedState { memory, size, address, usage, buffer }))
    }

    /// Wraps read-only memory that has an owner: a mapped file, an `Arc<[u8]>`, a static.
    ///
    /// ```
    /// use steeve_device::{Offset, SharedBuffer, Usage};
    /// let file: &'static [u8] = b"GGUF and so on";
    /// let weights = SharedBuffer::read_only("model.gguf", file, Usage::Weights);
    /// let mut start = [0; 4];
    /// weights.read(Offset(0), &mut start)?;
    /// assert_eq!(&start, b"GGUF");
    /// assert!(weights.write(Offset(0), &start).is_err());
    /// # Ok::<(), steeve_device::DeviceError>(())
    /// ```
    pub fn read_only(name: &str, owner: impl AsRef<[u8]> + Send + Sync + 'static, usage: Usage) -> Self {
        Self::new(Arc::new(HostMemory::named(name)), Box::new(HostBuffer::read_only(name, owner)), usage)
    }

    /// Maps a file as read-only memory, see [`HostBuffer::map_file`], which says what must not happen to the file meanwhile.
    ///
    /// # Errors
    ///
    /// If the system can't map it.
    pub fn map_file(name: &str, file: &File, usage: Usage) -> io::Result<Self> {
        let buffer = HostBuffer::map_file(name, file)?;
        Ok(Self::new(Arc::new(HostMemory::named(name)), Box::new(buffer), usage))
    }

    /// Wraps memory that the caller hands over: a `Vec<u8>`, a mapped file that is private or writable.
    pub fn owned(name: &str, owner: impl AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static, usage: Usage) -> Self {
        Self::new(Arc::new(HostMemory::named(name)), Box::new(HostBuffer::owned(name, owner)), usage)
    }

    /// Lends memory of the caller for as long as `act` runs. Handles that outlive it return [`DeviceError::Released`].
    /// Waits at the end for borrows in other threads, for ever if one was leaked.
    ///
    /// Offsets of tensors are aligned by address, so the slice may start anywhere.
    ///
    /// ```
    /// use steeve_device::{Offset, SharedBuffer};
    /// let mut mine = vec![0; 100];
    /// let kept = SharedBuffer::lend(&mut mine, |buffer| {
    ///     buffer.write(Offset(99), &[7]).map(|()| buffer.clone())
    /// })?;
    /// assert_eq!(mine[99], 7);
    /// assert!(kept.write(Offset(99), &[7]).is_err());
    /// # Ok::<(), steeve_device::DeviceError>(())
    /// ```
    pub fn lend<R>(bytes: &mut [u8], act: impl FnOnce(&Self) -> R) -> R {
        crate::host_memory::lend(bytes, act)
    }

    /// Checks that `size` bytes at `offset` lie within this buffer.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Outside`] if they do not.
    pub fn check_bounds(&self, offset: Offset, size: Bytes) -> Result<(), DeviceError> {
        DeviceError::check_bounds(self.memory().name(), offset, size, self.size())
    }

    /// Returns the type of memory.
    pub fn memory(&self) -> &Arc<dyn BufferType> {
        &self.0.memory
    }

    /// Returns the size.
    pub fn size(&self) -> Bytes {
        Bytes(self.0.size.load(Ordering::Relaxed))
    }

    /// Returns the address of the first byte, as the device counts.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Returns what the buffer is used for.
    pub fn usage(&self) -> Usage {
        match self.0.usage.load(Ordering::Relaxed) {
            1 => Usage::Weights,
            2 => Usage::Compute,
            _ => Usage::Any,
        }
    }

    /// Sets what the buffer is used for.
    pub fn set_usage(&self, usage: Usage) {
        self.0.usage.store(number(usage), Ordering::Relaxed);
    }

    /// Returns a number that no other buffer has as long as this one is held.
    pub fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns whether both are handles of one buffer.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Borrows the buffer for reading, along with other readers.
    pub fn borrow(&self) -> Result<BufferReadGuard<'_>, DeviceError> {
        let guard = match self.0.buffer.try_read() {
            Ok(guard) => guard,
            // A panic during a write leaves the bytes half written, but still valid.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(self.in_use()),
        };
        if guard.is_some() { Ok(BufferReadGuard(guard)) } else { Err(self.released()) }
    }

    /// Borrows the buffer for writing, alone.
    pub fn borrow_mut(&self) -> Result<BufferWriteGuard<'_>, DeviceError> {
        let guard = self.lock()?;
        if guard.is_some() { Ok(BufferWriteGuard(guard)) } else { Err(self.released()) }
    }

    /// Returns whether the memory has been released.
    pub fn is_released(&self) -> bool {
        matches!(self.borrow(), Err(DeviceError::Released { .. }))
    }

    /// Releases the memory at once, also for all other handles. Does nothing if it was released before.
    ///
    /// # Errors
    ///
    /// If the buffer is borrowed.
    pub fn release(&self) -> Result<(), DeviceError> {
        *self.lock()? = None;
        Ok(())
    }

    /// Grows the buffer in place to at least `size` bytes. Returns `false` if its memory can't. Its address and bytes
    /// stay, and all handles see the new size.
    ///
    /// ```
    /// use steeve_device::{Bytes, Device, DiscreteDevice, MemorySpec, Offset, SharedBuffer, Usage};
    /// let device = DiscreteDevice::new(MemorySpec::new("gpu").with_growth());
    /// let buffer = SharedBuffer::allocate(&device.buffer_types()[0], Bytes(64), Usage::Compute)?;
    /// buffer.write(Offset(63), &[7])?;
    /// assert!(buffer.grow(Bytes(100))?);
    /// assert_eq!(buffer.size(), Bytes(100));
    /// # Ok::<(), steeve_device::DeviceError>(())
    /// ```
    pub fn grow(&self, size: Bytes) -> Result<bool, DeviceError> {
        let mut buffer = self.borrow_mut()?;
        if size <= buffer.size() {
            return Ok(true);
        }
        if !buffer.grow(size)? {
            return Ok(false);
        }
        let (grown, address) = (buffer.size(), buffer.address());
        if grown < size || address != self.0.address {
            let promised = format!("{size} bytes at address {:#x}", self.0.address);
            let given = format!("{grown} bytes at address {address:#x}");
            return Err(DeviceError::Broken { memory: self.0.memory.name().into(), promised, given });
        }
        self.0.size.store(grown.0, Ordering::Relaxed);
        Ok(true)
    }

    /// Copies bytes out of the buffer.
    pub fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        self.borrow()?.read(offset, into)
    }

    /// Copies bytes into the buffer.
    pub fn write(&self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.borrow_mut()?.write(offset, from)
    }

    /// Sets `size` bytes to `byte`.
    pub fn fill(&self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        self.borrow_mut()?.fill(offset, size, byte)
    }

    /// Sets all bytes to `byte`.
    pub fn clear(&self, byte: u8) -> Result<(), DeviceError> {
        self.borrow_mut()?.clear(byte)
    }

    /// Copies out of another buffer or out of this one, by the shortest way the devices know.
    pub fn copy_from(&self, to: Offset, source: &Self, from: Offset, size: Bytes) -> Result<(), DeviceError> {
        if self.is_same(source) {
            return self.borrow_mut()?.copy_within(from, to, size);
        }
        let source = source.borrow()?;
        self.borrow_mut()?.copy_from(to, &*source, from, size)
    }

    /// Releases the memory as soon as no borrow is left.
    pub(crate) fn wait_and_release(&self) {
        match self.0.buffer.write() {
            Ok(mut guard) => *guard = None,
            Err(poisoned) => *poisoned.into_inner() = None,
        }
    }

    fn lock(&self) -> Result<RwLockWriteGuard<'_, Option<Box<dyn Buffer>>>, DeviceError> {
        match self.0.buffer.try_write() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(self.in_use()),
        }
    }

    fn in_use(&self) -> DeviceError {
        DeviceError::InUse { memory: self.0.memory.name().into(), size: self.size() }
    }

    fn released(&self) -> DeviceError {
        DeviceError::Released { memory: self.0.memory.name().into(), size: self.size() }
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.0.memory.name();
        f.debug_struct("SharedBuffer").field("memory", &memory).field("size", &self.size()).finish_non_exhaustive()
    }
}

fn number(usage: Usage) -> u8 {
    match usage {
        Usage::Any => 0,
        Usage::Weights => 1,
        Usage::Compute => 2,
    }
}

/// A buffer borrowed for reading.
#[derive(Debug)]
pub struct BufferReadGuard<'a>(RwLockReadGuard<'a, Option<Box<dyn Buffer>>>);

impl Deref for BufferReadGuard<'_> {
    type Target = dyn Buffer;

    fn deref(&self) -> &Self::Target {
        match &*self.0 {
            Some(buffer) => &**buffer,
            None => unreachable!("a released buffer can't be borrowed"),
        }
    }
}

/// A buffer borrowed for writing.
#[derive(Debug)]
pub struct BufferWriteGuard<'a>(RwLockWriteGuard<'a, Option<Box<dyn Buffer>>>);

impl Deref for BufferWriteGuard<'_> {
    type Target = dyn Buffer;

    fn deref(&self) -> &Self::Target {
        match &*self.0 {
            Some(buffer) => &**buffer,
            None => unreachable!("a released buffer can't be borrowed"),
        }
    }
}

impl DerefMut for BufferWriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut *self.0 {
            Some(buffer) => &mut **buffer,
            None => unreachable!("a released buffer can't be borrowed"),
        }
    }
}
