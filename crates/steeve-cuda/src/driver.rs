//! The driver's objects, each with an owner: contexts, memory, streams, events, modules and captured graphs.
//!
//! Nothing here knows of tensors. Every call makes the context current in its thread as long as it takes, so that all of it
//! can be used from anywhere, also beside other users of the driver. Memory is given back
//! only after all work that was enqueued before is done, on any GPU: one may copy to and from the memory of another.

mod memory;
mod module;
mod stream;

use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys;
use steeve_device::DeviceError;

pub(crate) use memory::{DeviceBytes, PinnedBytes, is_pinned};
pub(crate) use module::{Function, Module};
pub(crate) use stream::{CapturedGraph, CudaEvent, Stream};

/// What the driver refused, in words.
#[derive(Clone, Debug)]
pub(crate) struct DriverError {
    pub(crate) call: &'static str,
    pub(crate) code: sys::CUresult,
}

impl DriverError {
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

impl From<DriverError> for String {
    fn from(fault: DriverError) -> Self {
        fault.to_string()
    }
}

impl fmt::Display for DriverError {
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

/// Calls the driver. Arguments are numbers, pointers to locals, and objects of the driver's that the caller owns; where that
/// is not enough for a call to be sound, the function around it is `unsafe` and says what is.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: as said above.
        let code = unsafe { sys::$name($($argument),*) };
        if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(DriverError { call: stringify!($name), code }) }
    }};
}

use call;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no driver, or how many GPUs there are.
pub(crate) fn count() -> Result<usize, String> {
    // SAFETY: only tries to load the library.
    if !unsafe { sys::is_culib_present() } {
        return Err("no driver: its library (libcuda) can't be loaded".into());
    }
    let (mut version, mut count) = (0, 0);
    call!(cuInit(0))?;
    // A newer driver has all that is called here, and a call that is missing could not be answered.
    call!(cuDriverGetVersion(&mut version))?;
    if version < LEAST_VERSION {
        let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
        return Err(format!("driver too old: expected CUDA {} or newer, got {}", text(LEAST_VERSION), text(version)));
    }
    call!(cuDeviceGetCount(&mut count))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// CUDA 12.0.
const LEAST_VERSION: i32 = 12_000;

/// An object of the driver's.
#[derive(Debug)]
struct DriverHandle<T>(*mut T);

impl<T> Clone for DriverHandle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DriverHandle<T> {}

// SAFETY: the driver's objects belong to no thread.
unsafe impl<T> Send for DriverHandle<T> {}
// SAFETY: the driver locks what it has to. What it does not, graphs that were captured, is used by `&mut` only.
unsafe impl<T> Sync for DriverHandle<T> {}

/// A GPU, with what the driver keeps for this process on it. There is one for each GPU in use.
pub(crate) struct Context {
    device: sys::CUdevice,
    raw: DriverHandle<sys::CUctx_st>,
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
    streams: Mutex<Vec<DriverHandle<sys::CUstream_st>>>,
}

/// The GPUs in use.
static CONTEXTS: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());

impl Context {
    /// Returns the context of the GPU of this number: one for all of its users.
    pub(crate) fn of(ordinal: usize) -> Result<Arc<Self>, DriverError> {
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

    fn new(device: sys::CUdevice) -> Result<Self, DriverError> {
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
            raw: DriverHandle(raw),
            product,
            arch: (major, minor),
            processors: u32::try_from(processors).unwrap_or(1).max(1),
            is_integrated,
            piece: if grows { memory::piece(device) } else { None },
            quiet: Mutex::new(()),
            streams: Mutex::default(),
        })
    }

    /// Returns this GPU as if it were another one: what runs there shares nothing with what runs here. It is never given back.
    #[cfg(test)]
    pub(crate) fn twin(&self) -> Arc<Self> {
        let mut raw = null_mut();
        call!(cuCtxCreate_v4(&mut raw, null_mut(), 0, self.device)).unwrap();
        let mut twin = Self::new(self.device).unwrap();
        twin.raw = DriverHandle(raw);
        let twin = Arc::new(twin);
        lock(&CONTEXTS).push(Arc::downgrade(&twin));
        std::mem::forget(Arc::clone(&twin));
        twin
    }

    /// Makes it the one that this thread works with, as long as the answer lives.
    pub(crate) fn enter(&self) -> Result<CurrentContext, DriverError> {
        let mut before = null_mut();
        call!(cuCtxGetCurrent(&mut before))?;
        let before = (before != self.raw.0).then_some(DriverHandle(before));
        if before.is_some() {
            call!(cuCtxSetCurrent(self.raw.0))?;
        }
        Ok(CurrentContext { before, _not_send: PhantomData })
    }

    /// Keeps other threads from capturing work and from taking or giving back memory, until the answer is dropped.
    pub(crate) fn quiet(&self) -> MutexGuard<'_, ()> {
        lock(&self.quiet)
    }

    /// Free and total bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DriverError> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        call!(cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Waits for all that is enqueued on any stream of this GPU. An error of that work is told to the one that waits for it.
    fn rest(&self) {
        if let Ok(_entered) = self.enter() {
            for stream in &*lock(&self.streams) {
                let _ = call!(cuStreamSynchronize(stream.0));
            }
        }
    }

    /// Waits for all that is enqueued on any GPU, and lets go of something that no work can be enqueued with any more. What
    /// can't be let go of is lost, like the device.
    fn let_go(&self, free: impl FnOnce() -> Result<(), DriverError>) {
        let all: Vec<_> = lock(&CONTEXTS).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|context| context.rest());
        if let Ok(_entered) = self.enter() {
            let _quiet = self.quiet();
            let _ = free();
        }
    }
}

/// The context of a GPU is the one that this thread works with. Then it is what it was before.
#[must_use]
pub(crate) struct CurrentContext {
    before: Option<DriverHandle<sys::CUctx_st>>,
    /// It belongs to the thread that has entered.
    _not_send: PhantomData<*const ()>,
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = call!(cuCtxSetCurrent(before.0));
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // All users of it are gone. A failure here means that the driver is gone too.
        let _ = call!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("product", &self.product).field("arch", &self.arch).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> sys::CUcontext {
        let mut raw = null_mut();
        call!(cuCtxGetCurrent(&mut raw)).unwrap();
        raw
    }

    /// Other users of the driver in this thread find it as it was.
    #[test]
    fn the_context_from_before_is_current_again() {
        if !count().is_ok_and(|count| count > 0) {
            return crate::skip("there is no GPU");
        }
        let context = Context::of(0).unwrap();
        let other = context.twin();
        for before in [other.raw.0, null_mut()] {
            call!(cuCtxSetCurrent(before)).unwrap();
            {
                let _entered = context.enter().unwrap();
                let _twice = context.enter().unwrap();
                assert_eq!(current(), context.raw.0);
            }
            assert_eq!(current(), before);
            let stream = Stream::new(&context).unwrap();
            let bytes = DeviceBytes::new(&context, 8 << 20).unwrap();
            stream.synchronise().unwrap();
            drop((stream, bytes));
            assert_eq!(current(), before);
        }
    }
}
