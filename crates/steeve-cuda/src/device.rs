//! GPUs as devices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use steeve_device::{Backend, BufferType, Bytes, Device, DeviceError, DeviceKind, MemoryInfo, is_large_product};
use steeve_graph::{Graph, TensorId};

use crate::backend::CudaBackend;
use crate::command::LoadedKernels;
use crate::command_list::GpuProfile;
use crate::custom::{self, CallShape, CudaKernel, CustomFunction, CustomKernels, FunctionKey};
use crate::driver::{self, Context, Module, lock};
use crate::launches::{Capture, Counters, Launches};
use crate::memory::{CudaMemory, PinnedMemory};
use crate::prepared::supports;
use crate::{blas, compile};

/// A GPU of NVIDIA's.
///
/// ```
/// use std::sync::Arc;
/// use steeve_cuda::CudaDevice;
/// use steeve_device::{Device, Registry};
/// let mut registry = Registry::new();
/// match CudaDevice::all() {
///     Ok(devices) => devices.into_iter().for_each(|device| registry.register(Arc::new(device))),
///     Err(why) => println!("no GPU: {why}"),
/// }
/// for device in registry.devices() {
///     println!("{}: {}, {} bytes", device.name(), device.description(), device.memory().total);
/// }
/// ```
#[derive(Debug)]
pub struct CudaDevice {
    core: Arc<Core>,
    capture: Capture,
    counters: Arc<Counters>,
    custom: CustomKernels,
    types: [Arc<dyn BufferType>; 1],
}

/// What all users of a GPU share.
#[derive(Debug)]
pub(crate) struct Core {
    ordinal: usize,
    pub(crate) name: Arc<str>,
    pub(crate) context: Arc<Context>,
    pub(crate) memory: Arc<dyn BufferType>,
    host: Arc<dyn BufferType>,
    kernels: Mutex<Option<Arc<LoadedKernels>>>,
    /// The compiled kernels of callers.
    custom: Mutex<BTreeMap<FunctionKey, Arc<CustomFunction>>>,
    /// Why there is no cuBLAS, if there is none; nothing before it was first asked.
    blas: Mutex<Option<Result<(), String>>>,
}

/// The GPUs in use, each of which is shared by its users.
static CORES: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

impl Core {
    fn of(ordinal: usize) -> Result<Arc<Self>, DeviceError> {
        let mut cores = lock(&CORES);
        if let Some(core) = cores.iter().filter_map(Weak::upgrade).find(|core| core.ordinal == ordinal) {
            return Ok(core);
        }
        let name = format!("CUDA{ordinal}");
        let context = Context::of(ordinal).map_err(|fault| fault.on(&name))?;
        let core = Arc::new(Self::new(ordinal, name.into(), context)?);
        cores.retain(|core| core.strong_count() > 0);
        cores.push(Arc::downgrade(&core));
        Ok(core)
    }

    fn new(ordinal: usize, name: Arc<str>, context: Arc<Context>) -> Result<Self, DeviceError> {
        let memory = CudaMemory::new(Arc::clone(&name), &context).map_err(|fault| fault.on(&name))?;
        let host = PinnedMemory::new(format!("{name}_Host").into(), &context);
        Ok(Self {
            ordinal,
            name,
            context,
            memory: Arc::new(memory),
            host: Arc::new(host),
            kernels: Mutex::default(),
            custom: Mutex::default(),
            blas: Mutex::default(),
        })
    }

    /// All kernels, compiled and loaded when they are first asked for.
    pub(crate) fn kernels(&self) -> Result<Arc<LoadedKernels>, DeviceError> {
        let mut kernels = lock(&self.kernels);
        if let Some(kernels) = &*kernels {
            return Ok(Arc::clone(kernels));
        }
        let fail = |why: String| DeviceError::Failed { device: self.name.to_string(), why };
        let load = |code: &[u8]| Module::load(&self.context, code).map_err(|fault| fault.to_string());
        let loaded = compile::load(self.context.arch, &load).map_err(fail)?;
        let made = Arc::new(LoadedKernels::new(loaded).map_err(|fault| fault.on(&self.name))?);
        *kernels = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Returns the function of a caller's kernel for a call, compiled and loaded when it is first asked for.
    pub(crate) fn custom_function(&self, kernel: &CudaKernel, call: CallShape) -> Result<Arc<CustomFunction>, String> {
        let (key, source) = kernel.key(call);
        if let Some(known) = lock(&self.custom).get(&key) {
            return Ok(Arc::clone(known));
        }
        // Not under the lock, since the compiler takes a while.
        let load = |code: &[u8]| Module::load(&self.context, code).map_err(|fault| fault.to_string());
        let module = compile::load_custom(self.context.arch, &kernel.text(call), &load)?;
        let function = module.function(custom::ENTRY).map_err(|fault| fault.to_string())?;
        let made = Arc::new(CustomFunction { function, _module: module, _source: source });
        Ok(Arc::clone(lock(&self.custom).entry(key).or_insert(made)))
    }

    pub(crate) fn machine(&self) -> GpuProfile {
        let has_blas = self.blas().is_ok();
        GpuProfile {
            arch: 10 * self.context.arch.0 + self.context.arch.1,
            processors: self.context.processors as usize,
            has_blas,
        }
    }

    /// Returns an error that says why if there is no cuBLAS.
    fn blas(&self) -> Result<(), String> {
        let missing = || String::from("its library (libcublas) can't be loaded");
        let known = &mut *lock(&self.blas);
        known.get_or_insert_with(|| if blas::is_there() { Ok(()) } else { Err(missing()) }).clone()
    }

    /// The library is installed and does not work: its products are made without it from now on.
    pub(crate) fn do_without_blas(&self, why: String) {
        *lock(&self.blas) = Some(Err(why));
    }

    /// Returns whether memory is that of a GPU in use, this one or another.
    pub(crate) fn is_peer(&self, memory: &Arc<dyn BufferType>) -> bool {
        lock(&CORES).iter().filter_map(Weak::upgrade).any(|core| Arc::ptr_eq(&core.memory, memory))
    }
}

impl CudaDevice {
    /// All GPUs of this machine that can be used; an error that says what is missing if there is no driver, or if there are
    /// some and none of them works.
    ///
    /// Further calls return the same GPUs: their memory and kernels are shared, while the way in which they
    /// [capture](Self::with_capture) and what they [count](Self::launches) is each one's own.
    pub fn all() -> Result<Vec<Self>, DeviceError> {
        let mut failed = None;
        let mut devices = Vec::new();
        for device in Self::each()? {
            match device {
                Ok(device) => devices.push(device),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if devices.is_empty() => Err(error),
            _ => Ok(devices),
        }
    }

    /// Each GPU of this machine, or why it can't be used; an error if there is no driver.
    pub fn each() -> Result<Vec<Result<Self, DeviceError>>, DeviceError> {
        let fail = |why: String| DeviceError::Failed { device: "CUDA".into(), why };
        let count = driver::count().map_err(fail)?;
        Ok((0..count).map(|ordinal| Core::of(ordinal).map(Self::new)).collect())
    }

    /// Why products of matrices are made without cuBLAS, much more slowly; nothing if they are not.
    pub fn why_no_cublas(&self) -> Option<String> {
        self.core.blas().err()
    }

    fn new(core: Arc<Core>) -> Self {
        let types = [Arc::clone(&core.memory)];
        Self { core, capture: Capture::default(), counters: Arc::default(), custom: CustomKernels::default(), types }
    }

    /// Returns this GPU with another moment at which its backends capture work.
    #[must_use]
    pub fn with_capture(self, capture: Capture) -> Self {
        Self { capture, ..self }
    }

    /// Adds a kernel for a caller's own operation to all backends of this device; one for an operation of the same name is
    /// replaced.
    #[must_use]
    pub fn with_kernel(mut self, kernel: CudaKernel) -> Self {
        self.custom.insert(kernel);
        self
    }

    /// Memory of the host that this GPU copies to and from by itself; plain memory where there is no more of it. The
    /// processor computes in it like in any other.
    pub fn host_memory(&self) -> &Arc<dyn BufferType> {
        &self.core.host
    }

    /// How the backends of this device have launched work so far.
    ///
    /// ```
    /// # fn main() -> Result<(), steeve_device::DeviceError> {
    /// # let Ok(devices) = steeve_cuda::CudaDevice::all() else { return Ok(()) };
    /// for device in devices {
    ///     let launches = device.launches();
    ///     println!("{} runs in one launch each, {} kernel by kernel", launches.whole, launches.apart);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn launches(&self) -> Launches {
        self.counters.get()
    }

    /// Compute capability: major, minor.
    pub fn architecture(&self) -> (i32, i32) {
        self.core.context.arch
    }

    /// Compiles the kernels, or loads them from the cache, so that the first backend does not have to.
    pub fn warm_up(&self) -> Result<(), DeviceError> {
        self.core.kernels().map(drop)
    }
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        &self.core.name
    }

    fn description(&self) -> &str {
        &self.core.context.product
    }

    fn kind(&self) -> DeviceKind {
        if self.core.context.is_integrated { DeviceKind::IntegratedGpu } else { DeviceKind::Gpu }
    }

    fn memory(&self) -> MemoryInfo {
        let (free, total) = self.core.context.memory().unwrap_or_default();
        MemoryInfo { free: Bytes(free), total: Bytes(total) }
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn host_memory(&self) -> Option<&Arc<dyn BufferType>> {
        Some(&self.core.host)
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        supports(&self.core.name, self.core.machine(), &self.custom, graph, node)
    }

    /// A product with many columns is worth more than the copy of its weights.
    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        is_large_product(graph, node)
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        Ok(Box::new(CudaBackend::new(&self.core, self.capture, &self.counters, &self.custom)?))
    }
}

#[cfg(test)]
mod tests {
    use steeve_device::{Offset, SharedBuffer, Usage};

    use super::*;

    /// A GPU and itself as another one.
    fn two() -> Option<(CudaDevice, CudaDevice)> {
        let Some(device) = CudaDevice::all().ok().and_then(|devices| devices.into_iter().next()) else {
            crate::skip("there is no GPU");
            return None;
        };
        let twin = Core::new(1000, "Twin".into(), device.core.context.twin()).unwrap();
        let twin = Arc::new(twin);
        lock(&CORES).push(Arc::downgrade(&twin));
        Some((device, CudaDevice::new(twin)))
    }

    fn buffer(device: &CudaDevice, size: u64) -> SharedBuffer {
        SharedBuffer::allocate(&device.types[0], Bytes(size), Usage::Any).unwrap()
    }

    const SIZE: u64 = 64 << 20;

    #[test]
    fn copies_go_from_one_gpu_to_another_and_wait_for_each_other() {
        let Some((device, twin)) = two() else { return };
        let (one, other) = (device.backend().unwrap(), twin.backend().unwrap());
        let ([a, b, c], d) = ([&device, &twin, &twin].map(|it| buffer(it, SIZE)), buffer(&device, SIZE));
        assert!(one.can_copy(&twin.types[0], &device.types[0]) && other.can_copy(&device.types[0], &twin.types[0]));
        for round in 0..5u8 {
            let sent: Vec<u8> = (0..SIZE).map(|i| (i as u8).wrapping_mul(13).wrapping_add(round)).collect();
            one.write(&a, Offset(0), &sent).unwrap();
            one.copy((&b, Offset(0)), (&a, Offset(0)), Bytes(SIZE)).unwrap();
            other.wait(&*one.record().unwrap()).unwrap();
            other.copy((&c, Offset(0)), (&b, Offset(0)), Bytes(SIZE)).unwrap();
            other.copy((&d, Offset(0)), (&c, Offset(0)), Bytes(SIZE)).unwrap();
            one.wait(&*other.record().unwrap()).unwrap();
            let mut got = vec![0; SIZE as usize];
            one.read(&d, Offset(0), &mut got).unwrap();
            assert!(got == sent, "round {round}");
        }
    }

    /// Memory of one GPU, and of the host, that another GPU still copies to is not given away.
    #[test]
    fn what_another_gpu_still_copies_to_is_not_given_back() {
        let Some((device, twin)) = two() else { return };
        let one = device.backend().unwrap();
        let from = buffer(&device, SIZE);
        from.clear(1).unwrap();
        for memory in [&twin.types[0], twin.host_memory()] {
            for _ in 0..5 {
                let to = SharedBuffer::allocate(memory, Bytes(SIZE), Usage::Any).unwrap();
                for _ in 0..100 {
                    one.copy((&to, Offset(0)), (&from, Offset(0)), Bytes(SIZE)).unwrap();
                }
                drop(to);
                let next = SharedBuffer::allocate(memory, Bytes(SIZE), Usage::Any).unwrap();
                next.clear(0x55).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                let mut seen = vec![0; SIZE as usize];
                next.read(Offset(0), &mut seen).unwrap();
                assert!(seen.iter().all(|byte| *byte == 0x55), "a copy still wrote to {}", memory.name());
            }
        }
    }
}
