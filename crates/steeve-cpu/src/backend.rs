//! The processor as a device.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use steeve_device::{
    Backend, BufferType, Bytes, Device, DeviceError, DeviceKind, HostMemory, Locate, MemoryInfo, Prepared,
};
use steeve_graph::{Graph, TensorId};

use crate::cancel::Cancel;
use crate::custom::{CpuKernel, CustomKernels};
use crate::pool::Pool;
use crate::run::{CpuPrepared, GraphRun, Observed, Observer, kernel_of, prepare};
use crate::timings::Timings;

const NAME: &str = "CPU";

/// Runs graphs on the processor. Each call does its work before it returns.
///
/// ```
/// use steeve_runtime::GraphAllocator;
/// use steeve_cpu::CpuBackend;
/// use steeve_device::{Backend, Bindings};
/// use steeve_graph::{Context, DataType, Graph};
///
/// let mut context = Context::new();
/// let x = context.input(DataType::F32, &[3])?;
/// let y = context.sqr(x)?;
/// context.set_output(y)?;
/// let graph = Graph::from_outputs(&context, &[y])?;
///
/// let backend = CpuBackend::new(2);
/// let mut allocator = GraphAllocator::new(&backend.buffer_type());
/// let allocation = allocator.alloc(&graph, &Bindings::new())?;
/// allocation.write(x, &[1.0f32, 2.0, 3.0])?;
/// allocation.compute(&backend)?;
/// assert_eq!(allocation.read::<f32>(y)?, [1.0, 4.0, 9.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CpuBackend {
    pool: Pool,
    memory: Arc<dyn BufferType>,
    cancel: Cancel,
    observer: Mutex<Option<Arc<Mutex<Box<Observer>>>>>,
    timings: Mutex<Option<Timings>>,
    custom: CustomKernels,
}

impl CpuBackend {
    /// Returns a backend with `threads` threads, at least one; the caller's is one of them. They are spawned now and
    /// kept.
    pub fn new(threads: usize) -> Self {
        Self::with(threads, Arc::new(HostMemory::named(NAME)), CustomKernels::default())
    }

    /// Adds a kernel for a caller's own operation; one for an operation of the same name is replaced.
    pub fn with_kernel(mut self, kernel: CpuKernel) -> Self {
        self.custom.insert(kernel);
        self
    }

    fn with(threads: usize, memory: Arc<dyn BufferType>, custom: CustomKernels) -> Self {
        let pool = Pool::new(threads);
        let (cancel, observer, timings) = (Cancel::default(), Mutex::default(), Mutex::default());
        Self { pool, memory, cancel, observer, timings, custom }
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Returns the handle that cancels its runs.
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Calls `observer` with the result of each node that computes something, in order; `Break` ends the run. The
    /// observer must not run graphs on this backend itself.
    pub fn observe(&self, observer: impl FnMut(&Observed<'_>) -> ControlFlow<()> + Send + 'static) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(Mutex::new(Box::new(observer))));
    }

    /// Removes the observer.
    pub fn stop_observing(&self) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Measures each node that computes something, in all runs from now on.
    pub fn measure(&self) {
        *self.timings.lock().unwrap_or_else(PoisonError::into_inner) = Some(Timings::default());
    }

    /// Stops measuring.
    pub fn stop_measuring(&self) {
        *self.timings.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns how long the nodes of the last run took; `None` unless they are [measured](Self::measure).
    pub fn timings(&self) -> Option<Timings> {
        self.timings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for CpuBackend {
    /// Returns a backend with as many threads as the machine has cores.
    fn default() -> Self {
        Self::new(cores())
    }
}

impl std::fmt::Debug for CpuBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuBackend").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn buffer_type(&self) -> Arc<dyn BufferType> {
        Arc::clone(&self.memory)
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        kernel_of(NAME, graph, node, &self.custom).map(drop)
    }

    fn prepare(
        &self,
        graph: &Graph,
        nodes: Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError> {
        Ok(Box::new(prepare(NAME, graph, nodes, tensors, &self.custom)?))
    }

    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError> {
        let Some(prepared) = prepared.as_any_mut().downcast_mut::<CpuPrepared>() else {
            let why = "wrong backend: expected nodes prepared by this backend".into();
            return Err(DeviceError::Failed { device: NAME.into(), why });
        };
        // During the run only the observer stays locked, which may call this backend.
        let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut observing = match observer.as_ref().map(|observer| observer.try_lock()) {
            Some(Err(TryLockError::WouldBlock)) => {
                let why = "observer busy: another run must end first".into();
                return Err(DeviceError::Failed { device: NAME.into(), why });
            }
            Some(Err(TryLockError::Poisoned(poisoned))) => Some(poisoned.into_inner()),
            Some(Ok(observing)) => Some(observing),
            None => None,
        };
        let is_measured = self.timings.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let mut timings = is_measured.then(Timings::default);
        let (pool, cancel) = (&self.pool, &self.cancel);
        let observer = observing.as_mut().map(|observer| &mut ***observer as &mut Observer);
        let done = GraphRun { name: NAME, pool, cancel, observer, timings: timings.as_mut() }.run(prepared);
        let mut measured = self.timings.lock().unwrap_or_else(PoisonError::into_inner);
        if measured.is_some() && timings.is_some() {
            *measured = timings;
        }
        done
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The processor and its memory.
///
/// ```
/// use std::sync::Arc;
/// use steeve_cpu::CpuDevice;
/// use steeve_device::{Device, DeviceKind, Registry};
/// let mut registry = Registry::new();
/// registry.register(Arc::new(CpuDevice::new()));
/// assert_eq!(registry.best().map(|device| device.kind()), Some(DeviceKind::Cpu));
/// ```
#[derive(Debug)]
pub struct CpuDevice {
    threads: usize,
    types: [Arc<dyn BufferType>; 1],
    custom: CustomKernels,
}

impl CpuDevice {
    /// Returns a device whose backends have as many threads as the machine has cores.
    pub fn new() -> Self {
        Self::with_threads(cores())
    }

    /// Returns a device whose backends have `threads` threads.
    pub fn with_threads(threads: usize) -> Self {
        Self { threads, types: [Arc::new(HostMemory::named(NAME))], custom: CustomKernels::default() }
    }

    /// Adds a kernel for a caller's own operation to each backend that this device makes; one for an operation of the same
    /// name is replaced.
    pub fn with_kernel(mut self, kernel: CpuKernel) -> Self {
        self.custom.insert(kernel);
        self
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for CpuDevice {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        "the processor"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn memory(&self) -> MemoryInfo {
        memory_info().unwrap_or_default()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn reads(&self, memory: &Arc<dyn BufferType>) -> bool {
        memory.is_host()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        kernel_of(NAME, graph, node, &self.custom).map(drop)
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        Ok(Box::new(CpuBackend::with(self.threads, Arc::clone(&self.types[0]), self.custom.clone())))
    }
}

/// Returns what the system reports about its memory; `None` where it does not.
fn memory_info() -> Option<MemoryInfo> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().find_map(|word| word.parse::<u64>().ok())
    };
    Some(MemoryInfo { free: Bytes(line("MemAvailable:")? << 10), total: Bytes(line("MemTotal:")? << 10) })
}
