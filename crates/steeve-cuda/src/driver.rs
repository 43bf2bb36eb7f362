//! The driver's objects, each with an owner: contexts, memory, streams, events, modules and captured graphs.
//!
//! Nothing here knows of tensors. Every call makes the context current in its thread first, so that all of it can be used
//! from anywhere. Memory is given back only after all work that was enqueued before is done, on any GPU: one may copy to and
//! from the memory of another.

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys;
use steeve_device::DeviceError;

/// What the driver refused, in words.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) call: &'static str,
    pub(crate) code: sys::CUresult,
}

impl Fault {
    /// There is no such kernel.
    pub(crate) fn missing() -> Self {
        Self { call: "cuModuleGetFunction", code: sys::CUresult::CUDA_ERROR_NOT_FOUND }
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    pub(crate) fn on(self, device: &str) -> DeviceError {
        DeviceError::Failed { device: device.into(), why: self.to_string() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a static string, or none.
        let known = unsafe { sys::cuGetErrorString(self.code, &mut text) } == sys::CUresult::CUDA_SUCCESS;
        if known && !text.is_null() {
            // SAFETY: a static string of the driver's.
            let text = unsafe { CStr::from_ptr(text) };
            return write!(f, "{}: {}", self.call, text.to_string_lossy());
        }
        write!(f, "{}: error {:?}", self.call, self.code)
    }
}

/// Calls the driver.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: whoever wrote the call has seen to its arguments; each has an owner that outlives the call.
        let code = unsafe { sys::$name($($argument),*) };
        if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(Fault { call: stringify!($name), code }) }
    }};
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no driver, or how many GPUs there are.
pub(crate) fn count() -> Result<usize, String> {
    // SAFETY: only tries to load the library.
    if !unsafe { sys::is_culib_present() } {
        return Err("the driver's library (libcuda) can't be loaded".into());
    }
    let mut count = 0;
    call!(cuInit(0)).map_err(|fault| fault.to_string())?;
    call!(cuDeviceGetCount(&mut count)).map_err(|fault| fault.to_string())?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A GPU, with what the driver keeps for this process on it. There is one for each GPU in use.
pub(crate) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
    pub(crate) product: String,
    /// Compute capability.
    pub(crate) arch: (i32, i32),
    pub(crate) processors: u32,
    /// It shares the host's memory.
    pub(crate) is_integrated: bool,
    /// Memory that can grow comes in pieces of so many bytes; `None` if there is no such memory.
    piece: Option<u64>,
    /// Held while work is captured and while memory is taken and given back, which must not meet.
    quiet: Mutex<()>,
    /// All streams that work runs on.
    streams: Mutex<Vec<RawStream>>,
}

/// A stream in the list of those that are waited for.
struct RawStream(sys::CUstream);

// SAFETY: the driver's objects belong to no thread.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Send for Context {}
// SAFETY: the driver locks what it has to.
unsafe impl Sync for Context {}

/// The GPUs in use.
static CONTEXTS: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());

impl Context {
    /// The GPU of this number, the same as long as anybody has it.
    pub(crate) fn of(ordinal: usize) -> Result<Arc<Self>, Fault> {
        let mut device = 0;
        call!(cuDeviceGet(&mut device, i32::try_from(ordinal).unwrap_or(i32::MAX)))?;
        let mut known = lock(&CONTEXTS);
        if let Some(context) = known.iter().filter_map(Weak::upgrade).find(|context| context.device == device) {
            return Ok(context);
        }
        let context = Arc::new(Self::new(device)?);
        known.retain(|context| context.strong_count() > 0);
        known.push(Arc::downgrade(&context));
        Ok(context)
    }

    fn new(device: sys::CUdevice) -> Result<Self, Fault> {
        let mut name = [0; 256];
        call!(cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
        // SAFETY: the driver ends the name with a zero, and the last byte is one.
        let product = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        use sys::CUdevice_attribute_enum as Attribute;
        let attribute = |which: Attribute| {
            let mut value = 0;
            call!(cuDeviceGetAttribute(&mut value, which, device)).map(|()| value)
        };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let is_integrated = attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0;
        let grows = attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0;
        let mut raw = null_mut();
        call!(cuDevicePrimaryCtxRetain(&mut raw, device))?;
        Ok(Self {
            device,
            raw,
            product,
            arch: (major, minor),
            processors: u32::try_from(processors).unwrap_or(1).max(1),
            is_integrated,
            piece: if grows { piece(device) } else { None },
            quiet: Mutex::new(()),
            streams: Mutex::default(),
        })
    }

    /// The same GPU as if it were another one: what runs there shares nothing with what runs here. It is never given back.
    #[cfg(test)]
    pub(crate) fn twin(&self) -> Arc<Self> {
        let mut raw = null_mut();
        call!(cuCtxCreate_v4(&mut raw, null_mut(), 0, self.device)).unwrap();
        let mut twin = Self::new(self.device).unwrap();
        twin.raw = raw;
        let twin = Arc::new(twin);
        lock(&CONTEXTS).push(Arc::downgrade(&twin));
        std::mem::forget(Arc::clone(&twin));
        twin
    }

    /// Makes it the one that this thread works with.
    fn enter(&self) -> Result<(), Fault> {
        call!(cuCtxSetCurrent(self.raw))
    }

    /// Free and total bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Fault> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        call!(cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Waits for all that is enqueued on any stream of this GPU. An error of that work is told to whoever waits for it.
    fn rest(&self) {
        if self.enter().is_ok() {
            for stream in &*lock(&self.streams) {
                let _ = call!(cuStreamSynchronize(stream.0));
            }
        }
    }

    /// Waits for all that is enqueued on any GPU, and lets go of something that nobody can enqueue work with any more. What
    /// can't be let go of is lost, like the device.
    fn let_go(&self, free: impl FnOnce() -> Result<(), Fault>) {
        let all: Vec<_> = lock(&CONTEXTS).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|context| context.rest());
        if self.enter().is_ok() {
            let _quiet = lock(&self.quiet);
            let _ = free();
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Whoever used it is gone. A failure here means that the driver is gone too.
        let _ = call!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("product", &self.product).field("arch", &self.arch).finish_non_exhaustive()
    }
}

/// Memory of a GPU. Given back when nobody works with it any more.
///
/// Large ones have more addresses than memory, so that they can grow where they stand.
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
    /// Of `len` bytes, which are not zero in number.
    pub(crate) fn new(context: &Arc<Context>, len: u64) -> Result<Self, Fault> {
        context.enter()?;
        if let Some(piece) = context.piece.filter(|piece| len >= *piece)
            && let Some(mut grows) = Self::reserve(context, len, piece)
        {
            return grows.map(len).map(|()| grows);
        }
        let mut address = 0;
        let _quiet = lock(&context.quiet);
        call!(cuMemAlloc_v2(&mut address, usize::try_from(len).unwrap_or(usize::MAX)))?;
        Ok(Self { context: Arc::clone(context), address, len, mapped: 0, reserved: 0 })
    }

    /// Addresses without memory, if there are some to be had.
    fn reserve(context: &Arc<Context>, len: u64, piece: u64) -> Option<Self> {
        let reserved = len.checked_mul(MOST_GROWTH)?.checked_next_multiple_of(piece)?;
        let mut address = 0;
        call!(cuMemAddressReserve(&mut address, usize::try_from(reserved).ok()?, 0, 0, 0)).ok()?;
        Some(Self { context: Arc::clone(context), address, len: 0, mapped: 0, reserved })
    }

    /// Makes it at least as large, at the same address and with the same bytes; `false` if there is no room for that.
    pub(crate) fn grow(&mut self, len: u64) -> Result<bool, Fault> {
        if len > self.reserved {
            return Ok(len <= self.len);
        }
        self.context.enter()?;
        self.map(len).map(|()| true)
    }

    /// Gives memory to the first `len` bytes, as far as they have none.
    fn map(&mut self, len: u64) -> Result<(), Fault> {
        let end = len.next_multiple_of(self.context.piece.unwrap_or(1)).min(self.reserved);
        if let Some(more) = end.checked_sub(self.mapped).filter(|more| *more > 0) {
            let (at, size, place) = (self.address + self.mapped, more as usize, properties(self.context.device));
            let mut memory = 0;
            let _quiet = lock(&self.context.quiet);
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
    fn unmap(&self) -> Result<(), Fault> {
        if self.mapped > 0 {
            call!(cuMemUnmap(self.address, self.mapped as usize))?;
        }
        call!(cuMemAddressFree(self.address, self.reserved as usize))
    }

    /// The context is current in this thread from here on.
    pub(crate) fn enter(&self) -> Result<(), Fault> {
        self.context.enter()
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
fn piece(device: sys::CUdevice) -> Option<u64> {
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
    pub(crate) fn new(context: &Arc<Context>, len: usize) -> Result<Self, Fault> {
        context.enter()?;
        let mut start = null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        {
            let _quiet = lock(&context.quiet);
            call!(cuMemHostAlloc(&mut start, len, flags))?;
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(Fault { call: "cuMemHostAlloc", code: sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY });
        };
        // SAFETY: the driver has just given us `len` bytes there.
        unsafe { start.as_ptr().write_bytes(0, len) };
        Ok(Self { context: Arc::clone(context), start, len })
    }

    /// The address as the GPU counts.
    pub(crate) fn device_address(&self) -> Result<u64, Fault> {
        let mut address = 0;
        call!(cuMemHostGetDevicePointer_v2(&mut address, self.start.as_ptr().cast::<c_void>(), 0))?;
        Ok(address)
    }

    /// A word that a GPU may write at any moment.
    pub(crate) fn word(&self, index: usize) -> u64 {
        assert!((index + 1) * 8 <= self.len, "there is no word {index}");
        // SAFETY: it lies within, and is aligned to a page.
        unsafe { self.start.as_ptr().cast::<u64>().add(index).read_volatile() }
    }

    /// Writes a word, while no GPU does.
    pub(crate) fn set_word(&self, index: usize, value: u64) {
        assert!((index + 1) * 8 <= self.len, "there is no word {index}");
        // SAFETY: it lies within, and is aligned to a page; words are only ever read and written as such.
        unsafe { self.start.as_ptr().cast::<u64>().add(index).write_volatile(value) }
    }
}

impl AsRef<[u8]> for PinnedBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: it owns `len` initialised bytes; who lets a GPU write them meanwhile is for schedulers to order.
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

/// Work in order.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

// SAFETY: the driver's objects belong to no thread.
unsafe impl Send for Stream {}
// SAFETY: the driver locks what it has to.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Fault> {
        let stream = Self::unwatched(context)?;
        lock(&context.streams).push(RawStream(stream.raw));
        Ok(stream)
    }

    /// One that nobody waits for who gives memory back, because nothing ever runs on it: waiting would end what is being
    /// captured there.
    pub(crate) fn unwatched(context: &Arc<Context>) -> Result<Self, Fault> {
        context.enter()?;
        let mut raw = null_mut();
        call!(cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// The context is current in this thread from here on.
    pub(crate) fn enter(&self) -> Result<(), Fault> {
        self.context.enter()
    }

    pub(crate) fn synchronise(&self) -> Result<(), Fault> {
        self.enter()?;
        call!(cuStreamSynchronize(self.raw))
    }

    /// Enqueues a copy within the memory of GPUs; the two sides are apart.
    ///
    /// # Safety
    /// Both ranges are memory of GPUs, and stay so until the copy is done.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, size: u64) -> Result<(), Fault> {
        self.enter()?;
        call!(cuMemcpyDtoDAsync_v2(to, from, size as usize, self.raw))
    }

    /// The same between two GPUs, or within one.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn copy_between(
        &self,
        to: u64,
        target: &Context,
        from: u64,
        source: &Context,
        size: u64,
    ) -> Result<(), Fault> {
        if std::ptr::eq(target, source) {
            // SAFETY: as promised.
            return unsafe { self.copy(to, from, size) };
        }
        self.enter()?;
        call!(cuMemcpyPeerAsync(to, target.raw, from, source.raw, size as usize, self.raw))
    }

    /// Enqueues a copy from the host.
    ///
    /// # Safety
    /// The target is memory of a GPU, and the source can be read; both until the copy is done.
    pub(crate) unsafe fn upload(&self, to: u64, from: *const u8, size: u64) -> Result<(), Fault> {
        self.enter()?;
        call!(cuMemcpyHtoDAsync_v2(to, from.cast::<c_void>(), size as usize, self.raw))
    }

    /// Enqueues a copy to the host.
    ///
    /// # Safety
    /// The source is memory of a GPU, and the target can be written; both until the copy is done.
    pub(crate) unsafe fn download(&self, to: *mut u8, from: u64, size: u64) -> Result<(), Fault> {
        self.enter()?;
        call!(cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), from, size as usize, self.raw))
    }

    /// Enqueues setting bytes.
    ///
    /// # Safety
    /// They are memory of a GPU, and stay so until they are set.
    pub(crate) unsafe fn fill(&self, to: u64, size: u64, byte: u8) -> Result<(), Fault> {
        self.enter()?;
        call!(cuMemsetD8Async(to, byte, size as usize, self.raw))
    }

    /// Enqueues a kernel with one parameter, a structure. It may be there before what is ahead of it is done, if it is
    /// `early`.
    ///
    /// # Safety
    /// `parameter` is the structure that the kernel was compiled with, and all memory that the kernel reaches through it
    /// is memory of the GPU, and stays so until it is done. A kernel that is early waits by itself.
    pub(crate) unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        parameter: *const c_void,
        early: bool,
    ) -> Result<(), Fault> {
        let (mut parameters, [x, y, z]) = ([parameter.cast_mut()], grid);
        let (parameters, none) = (parameters.as_mut_ptr(), null_mut());
        if !early {
            return call!(cuLaunchKernel(function.0, x, y, z, block, 1, 1, shared, self.raw, parameters, none));
        }
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: self.raw,
            attrs: &mut attribute,
            numAttrs: 1,
        };
        call!(cuLaunchKernelEx(&config, function.0, parameters, none))
    }

    /// An event that happens when all that was enqueued so far is done.
    pub(crate) fn record(&self) -> Result<Moment, Fault> {
        self.enter()?;
        let mut raw = null_mut();
        call!(cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32))?;
        let moment = Moment { context: Arc::clone(&self.context), raw };
        call!(cuEventRecord(raw, self.raw))?;
        Ok(moment)
    }

    /// What is enqueued from now on waits for the event, which may be of another GPU.
    pub(crate) fn wait(&self, moment: &Moment) -> Result<(), Fault> {
        self.enter()?;
        call!(cuStreamWaitEvent(self.raw, moment.raw, 0))
    }

    /// Captures what `enqueue` enqueues here instead of running it.
    pub(crate) fn capture<E: From<Fault>>(&self, enqueue: impl FnOnce() -> Result<(), E>) -> Result<Captured, E> {
        self.enter()?;
        let _quiet = lock(&self.context.quiet);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        call!(cuStreamBeginCapture_v2(self.raw, mode))?;
        let enqueued = enqueue();
        let mut graph = null_mut();
        let ended = call!(cuStreamEndCapture(self.raw, &mut graph));
        let mut exec = null_mut();
        let made = match (enqueued, ended) {
            (Ok(()), Ok(())) => call!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)).map_err(E::from),
            (Err(error), _) => Err(error),
            (_, Err(fault)) => Err(fault.into()),
        };
        if !graph.is_null() {
            let _ = call!(cuGraphDestroy(graph));
        }
        made?;
        Ok(Captured { context: Arc::clone(&self.context), raw: exec })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Whoever frees memory meanwhile waits for this stream as long as it is in the list.
        let entered = self.enter().is_ok();
        if entered {
            let _ = call!(cuStreamSynchronize(self.raw));
        }
        lock(&self.context.streams).retain(|stream| stream.0 != self.raw);
        if entered {
            let _ = call!(cuStreamDestroy_v2(self.raw));
        }
    }
}

/// Whether the host's memory at an address is pinned, so that copies from it are not done when they are enqueued.
pub(crate) fn is_pinned(address: *const u8) -> bool {
    let mut kind = 0u32;
    let mut which = sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut into = std::ptr::from_mut(&mut kind).cast::<c_void>();
    // This form has no error for memory that the driver does not know.
    let asked = call!(cuPointerGetAttributes(1, &mut which, &mut into, address.addr() as u64));
    asked.is_ok() && kind == sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST as u32
}

/// A moment in a stream.
#[derive(Debug)]
pub(crate) struct Moment {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: the driver's objects belong to no thread.
unsafe impl Send for Moment {}
// SAFETY: the driver locks what it has to.
unsafe impl Sync for Moment {}

impl Moment {
    /// Waits until it has happened.
    pub(crate) fn synchronise(&self) -> Result<(), Fault> {
        self.context.enter()?;
        call!(cuEventSynchronize(self.raw))
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            let _ = call!(cuEventDestroy_v2(self.raw));
        }
    }
}

/// Work that was captured, to be run with one launch.
#[derive(Debug)]
pub(crate) struct Captured {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
}

// SAFETY: the driver's objects belong to no thread.
unsafe impl Send for Captured {}

impl Captured {
    /// Enqueues all of it.
    ///
    /// # Safety
    /// All memory that was there when it was captured is still there, and stays until it is done.
    pub(crate) unsafe fn launch(&self, stream: &Stream) -> Result<(), Fault> {
        stream.enter()?;
        call!(cuGraphLaunch(self.raw, stream.raw))
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            let _ = call!(cuGraphExecDestroy(self.raw));
        }
    }
}

/// Kernels in the memory of a GPU.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: the driver's objects belong to no thread.
unsafe impl Send for Module {}
// SAFETY: the driver locks what it has to.
unsafe impl Sync for Module {}

/// A kernel of a module that is still loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: the driver's objects belong to no thread.
unsafe impl Send for Function {}
// SAFETY: the driver locks what it has to.
unsafe impl Sync for Function {}

impl Module {
    /// Loads what a compiler has made for this GPU.
    pub(crate) fn load(context: &Arc<Context>, image: &[u8]) -> Result<Self, Fault> {
        context.enter()?;
        let mut raw = null_mut();
        call!(cuModuleLoadData(&mut raw, image.as_ptr().cast::<c_void>()))?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    pub(crate) fn function(&self, name: &str) -> Result<Function, Fault> {
        self.context.enter()?;
        let name = CString::new(name).map_err(|_| Fault::missing())?;
        let mut raw = null_mut();
        call!(cuModuleGetFunction(&mut raw, self.raw, name.as_ptr()))?;
        Ok(Function(raw))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.let_go(|| call!(cuModuleUnload(self.raw)));
    }
}
