//! Memory of GPUs, and of the host for them.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Context, DriverError, call};

/// Memory of a GPU. Given back when no work uses it any more.
///
/// Large ones have more addresses than memory, so that they can grow in place.
#[derive(Debug)]
pub(crate) struct DeviceBytes {
    context: Arc<Context>,
    address: u64,
    len: u64,
    /// How many of its bytes have memory, and how many could have some; both are zero for memory that does not grow.
    mapped: u64,
    reserved: u64,
}

/// So many times its first size can be the size of memory that grows.
const MOST_GROWTH: u64 = 16;

impl DeviceBytes {
    /// Returns memory of `len` bytes, which are not zero in number.
    pub(crate) fn new(context: &Arc<Context>, len: u64) -> Result<Self, DriverError> {
        Self::with_room(context, len, len.saturating_mul(MOST_GROWTH))
    }

    /// Returns memory of `len` bytes with addresses for `room` bytes, if it is large enough to grow.
    pub(crate) fn with_room(context: &Arc<Context>, len: u64, room: u64) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        if let Some(piece) = context.piece.filter(|piece| len >= *piece)
            && let Some(mut grows) = Self::reserve(context, room, piece)
        {
            return grows.map(len).map(|()| grows);
        }
        let mut address = 0;
        let _quiet = context.quiet();
        call!(cuMemAlloc_v2(&mut address, usize::try_from(len).unwrap_or(usize::MAX)))?;
        Ok(Self { context: Arc::clone(context), address, len, mapped: 0, reserved: 0 })
    }

    /// Returns addresses for all memory of the GPU, which has none there until it [grows](Self::grow); `None` if there are no
    /// such addresses to be had.
    pub(crate) fn addresses(context: &Arc<Context>) -> Option<Self> {
        let (piece, _entered) = (context.piece?, context.enter().ok()?);
        let (_, total) = context.memory().ok()?;
        Self::reserve(context, total, piece)
    }

    /// Addresses without memory, if there are some to be had.
    fn reserve(context: &Arc<Context>, room: u64, piece: u64) -> Option<Self> {
        let reserved = room.checked_next_multiple_of(piece)?;
        let mut address = 0;
        call!(cuMemAddressReserve(&mut address, usize::try_from(reserved).ok()?, 0, 0, 0)).ok()?;
        Some(Self { context: Arc::clone(context), address, len: 0, mapped: 0, reserved })
    }

    /// Makes it at least as large, at the same address and with the same bytes; `false` if there is no room for that.
    pub(crate) fn grow(&mut self, len: u64) -> Result<bool, DriverError> {
        if len > self.reserved {
            return Ok(len <= self.len);
        }
        let _entered = self.context.enter()?;
        self.map(len).map(|()| true)
    }

    /// Gives memory to the first `len` bytes, as far as they have none.
    fn map(&mut self, len: u64) -> Result<(), DriverError> {
        let end = len.next_multiple_of(self.context.piece.unwrap_or(1)).min(self.reserved);
        if let Some(more) = end.checked_sub(self.mapped).filter(|more| *more > 0) {
            let (at, size, place) = (self.address + self.mapped, more as usize, properties(self.context.device));
            let mut memory = 0;
            let _quiet = self.context.quiet();
            call!(cuMemCreate(&mut memory, size, &place, 0))?;
            let access = sys::CUmemAccessDesc {
                location: place.location,
                flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            let mapped = call!(cuMemMap(at, size, 0, memory, 0));
            // It lives as long as it is mapped.
            let _ = call!(cuMemRelease(memory));
            mapped?;
            if let Err(fault) = call!(cuMemSetAccess(at, size, &access, 1)) {
                let _ = call!(cuMemUnmap(at, size));
                return Err(fault);
            }
            self.mapped = end;
        }
        self.len = self.len.max(len);
        Ok(())
    }

    /// Gives back the memory and the addresses of memory that grows.
    fn unmap(&self) -> Result<(), DriverError> {
        if self.mapped > 0 {
            call!(cuMemUnmap(self.address, self.mapped as usize))?;
        }
        call!(cuMemAddressFree(self.address, self.reserved as usize))
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        self.context.let_go(|| if self.reserved > 0 { self.unmap() } else { call!(cuMemFree_v2(self.address)) });
    }
}

/// What memory that grows is made of.
fn properties(device: sys::CUdevice) -> sys::CUmemAllocationProp {
    // SAFETY: a structure of numbers, for which zeros mean that nothing is asked for.
    let mut place: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    place.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    place.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    place.location.id = device;
    place
}

/// The size of its pieces.
pub(super) fn piece(device: sys::CUdevice) -> Option<u64> {
    let mut size = 0;
    let wish = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    call!(cuMemGetAllocationGranularity(&mut size, &properties(device), wish)).ok()?;
    Some(size as u64).filter(|size| *size > 0)
}

/// Memory of the host that stays where it is, so that a GPU can copy to and from it by itself.
pub(crate) struct PinnedBytes {
    context: Arc<Context>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory has one owner, like a `Box<[u8]>`.
unsafe impl Send for PinnedBytes {}
// SAFETY: shared access only reads, like a `Box<[u8]>`.
unsafe impl Sync for PinnedBytes {}

impl PinnedBytes {
    /// Zeroed. `len` is not zero.
    pub(crate) fn new(context: &Arc<Context>, len: usize) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        let mut start = null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        {
            let _quiet = context.quiet();
            call!(cuMemHostAlloc(&mut start, len, flags))?;
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(DriverError { call: "cuMemHostAlloc", code: sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY });
        };
        // SAFETY: the driver has just given us `len` bytes there.
        unsafe { start.as_ptr().write_bytes(0, len) };
        Ok(Self { context: Arc::clone(context), start, len })
    }

    /// The address as the GPU counts.
    pub(crate) fn device_address(&self) -> Result<u64, DriverError> {
        let (mut address, _entered) = (0, self.context.enter()?);
        call!(cuMemHostGetDevicePointer_v2(&mut address, self.start.as_ptr().cast::<c_void>(), 0))?;
        Ok(address)
    }

    /// Its first word, which a GPU may write at any event.
    pub(crate) fn word(&self) -> u64 {
        assert!(self.len >= 8, "there is no word");
        // SAFETY: it lies within, and is aligned to a page.
        unsafe { self.start.as_ptr().cast::<u64>().read_volatile() }
    }

    /// Writes that word, while no GPU does.
    pub(crate) fn set_word(&self, value: u64) {
        assert!(self.len >= 8, "there is no word");
        // SAFETY: it lies within, and is aligned to a page; it is only ever read and written as such.
        unsafe { self.start.as_ptr().cast::<u64>().write_volatile(value) }
    }
}

impl AsRef<[u8]> for PinnedBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: it owns `len` initialised bytes; schedulers order what GPUs write to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl AsMut<[u8]> for PinnedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        self.context.let_go(|| call!(cuMemFreeHost(self.start.as_ptr().cast::<c_void>())));
    }
}

impl fmt::Debug for PinnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Returns whether the host's memory at an address is pinned, so that copies from it are not done when they are enqueued.
pub(crate) fn is_pinned(context: &Context, address: *const u8) -> bool {
    let Ok(_entered) = context.enter() else { return false };
    let mut kind = 0u32;
    let mut which = sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut into = std::ptr::from_mut(&mut kind).cast::<c_void>();
    // This form has no error for memory that the driver does not know.
    let asked = call!(cuPointerGetAttributes(1, &mut which, &mut into, address.addr() as u64));
    asked.is_ok() && kind == sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST as u32
}
