//! GPUs as devices.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use steeve_device::{Backend, BufferType, Bytes, Device, DeviceError, DeviceKind, MemoryInfo};
use steeve_graph::{Graph, Op, TensorId};

use crate::act::Kernels;
use crate::backend::CudaBackend;
use crate::driver::{self, Context, Module};
use crate::memory::{CudaMemory, PinnedMemory};
use crate::recipe::Machine;
use crate::run::{Capture, supports};
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
    types: [Arc<dyn BufferType>; 1],
    host: Arc<dyn BufferType>,
}

/// What a device shares with its backends.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) name: Arc<str>,
    pub(crate) context: Arc<Context>,
    pub(crate) memory: Arc<dyn BufferType>,
    kernels: OnceLock<Result<Kernels, DeviceError>>,
    has_blas: OnceLock<bool>,
    /// The memories of all GPUs that were found together.
    peers: Arc<Mutex<Vec<Weak<dyn BufferType>>>>,
}

impl Core {
    /// All kernels, compiled and loaded when they are first asked for.
    pub(crate) fn kernels(&self) -> Result<&Kernels, DeviceError> {
        let fail = |why: String| DeviceError::Failed { device: self.name.to_string(), why };
        let made = self.kernels.get_or_init(|| {
            let code = compile::machine_code(self.context.arch).map_err(fail)?;
            let modules = code.iter().map(|code| Module::load(&self.context, code)).collect::<Result<Vec<_>, _>>();
            modules.and_then(Kernels::new).map_err(|fault| fault.on(&self.name))
        });
        made.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn machine(&self) -> Machine {
        let has_blas = *self.has_blas.get_or_init(blas::is_there);
        Machine { processors: self.context.processors, has_blas, arch: self.context.arch }
    }

    /// Whether memory is that of another GPU.
    pub(crate) fn is_peer(&self, memory: &Arc<dyn BufferType>) -> bool {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.iter().any(|peer| std::ptr::addr_eq(peer.as_ptr(), Arc::as_ptr(memory)))
    }
}

impl CudaDevice {
    /// All GPUs of this machine that can be used; an error that says what is missing if there is no driver, or if there are
    /// some and none of them works.
    pub fn all() -> Result<Vec<Self>, DeviceError> {
        let fail = |why: String| DeviceError::Failed { device: "CUDA".into(), why };
        let (count, peers) = (driver::count().map_err(fail)?, Arc::default());
        let (mut devices, mut failed) = (Vec::new(), None);
        for ordinal in 0..count {
            match Self::new(ordinal, &peers) {
                Ok(device) => devices.push(device),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if devices.is_empty() => Err(error),
            _ => Ok(devices),
        }
    }

    fn new(ordinal: usize, peers: &Arc<Mutex<Vec<Weak<dyn BufferType>>>>) -> Result<Self, DeviceError> {
        let name: Arc<str> = format!("CUDA{ordinal}").into();
        let context = Context::new(ordinal).map_err(|fault| fault.on(&name))?;
        let memory = CudaMemory::new(Arc::clone(&name), &context).map_err(|fault| fault.on(&name))?;
        let memory: Arc<dyn BufferType> = Arc::new(memory);
        peers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&memory));
        let host: Arc<dyn BufferType> = Arc::new(PinnedMemory::new(format!("{name}_Host").into(), &context));
        let core = Core {
            name,
            context,
            memory: Arc::clone(&memory),
            kernels: OnceLock::new(),
            has_blas: OnceLock::new(),
            peers: Arc::clone(peers),
        };
        Ok(Self { core: Arc::new(core), capture: Capture::default(), types: [memory], host })
    }

    /// The same with another moment at which its backends capture work.
    #[must_use]
    pub fn with_capture(self, capture: Capture) -> Self {
        Self { capture, ..self }
    }

    /// Memory of the host that this GPU copies to and from by itself; plain memory where there is no more of it. The
    /// processor computes in it like in any other.
    pub fn host_memory(&self) -> &Arc<dyn BufferType> {
        &self.host
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
        DeviceKind::Gpu
    }

    fn memory(&self) -> MemoryInfo {
        let (free, total) = self.core.context.memory().unwrap_or_default();
        MemoryInfo { free: Bytes(free), total: Bytes(total) }
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        supports(&self.core.name, self.core.machine(), graph, node)
    }

    /// A product with many columns is worth more than the copy of its weights.
    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        const MANY: u64 = 32;
        let columns = |dim: usize| graph.tensor(node).layout.ne()[dim];
        match graph.tensor(node).op {
            Op::MulMat => columns(1) >= MANY,
            Op::MulMatId => columns(2) >= MANY,
            _ => false,
        }
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        Ok(Box::new(CudaBackend::new(&self.core, self.capture)?))
    }
}
