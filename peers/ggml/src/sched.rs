//! ggml's scheduler over one mirrored graph, on devices that compute nothing.
//!
//! It splits the graph each time, and writes its copies into the sources of the nodes. [`GgmlSched::fresh`] is the only
//! door to it, so it never sees a copy or an address of an earlier run.

use std::ffi::c_int;
use std::ptr::NonNull;

use llama_cpp_sys_2::{
    GGML_BACKEND_BUFFER_USAGE_ANY, GGML_BACKEND_BUFFER_USAGE_WEIGHTS, ggml_backend_buffer_free,
    ggml_backend_buffer_set_usage, ggml_backend_buffer_t, ggml_backend_buft_alloc_buffer, ggml_backend_sched,
    ggml_backend_sched_alloc_graph, ggml_backend_sched_free, ggml_backend_sched_get_n_splits, ggml_backend_sched_new,
    ggml_backend_sched_reserve, ggml_backend_sched_reset, ggml_nbytes,
};
use steeve_graph::{AssignedGraph, Bytes, Memory, MemoryId};

use crate::device::{FakeDevice, Kind};
use crate::ggml::GgmlError;
use crate::memory::{FakeMemory, Sizes};
use crate::mirror::{ClampRule, Mirror};
use crate::spread::{Holds, Spread};

/// The most backends that ggml's scheduler takes.
const MOST_DEVICES: usize = 16;

/// A graph in ggml, and a scheduler for it.
///
/// ```
/// use peer_ggml::{GgmlSched, Spread};
/// use steeve_graph::AssignedGraph;
/// let graph: AssignedGraph = "x = input f32[64]; a = external f32[64,64]; b = external f32[64,64]; \
///                             y = mul_mat a x; z = mul_mat b y !output".parse()?;
/// let mut ggml = GgmlSched::new(&graph, Spread { devices: 2, parts: 2 })?;
/// let cut = ggml.fresh().alloc()?.cut();
/// assert_eq!((cut.splits, cut.copies, cut.copied.0), (2, 1, 256));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GgmlSched {
    // In the order in which they must go: buffers need their memories.
    scheduler: Scheduler,
    mirror: Mirror,
    _buffers: Vec<[Buffer; 2]>,
    _devices: Vec<FakeDevice>,
    _memories: Vec<FakeMemory>,
}

/// A graph as a program has just built it.
pub struct FreshSched<'a>(&'a mut GgmlSched);

/// A graph that is split, and whose tensors have their addresses.
pub struct Split<'a>(&'a GgmlSched);

/// Into what a graph was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Runs of nodes on one device.
    pub splits: usize,
    /// Copies of tensors, or of parts of them, in the memories of other devices.
    pub copies: usize,
    /// Their bytes.
    pub copied: Bytes,
}

impl GgmlSched {
    /// Mirrors a graph, puts its external tensors where `spread` says, and makes a scheduler.
    pub fn new(assigned: &AssignedGraph, spread: Spread) -> Result<Self, GgmlError> {
        let mut mirror = Mirror::new(assigned, ClampRule::Linked)?;
        let count = spread.devices.clamp(1, MOST_DEVICES);
        let spread = Spread { devices: count, ..spread };
        let memory = Memory::new("fake", assigned.memories()[MemoryId::FIRST].align);
        let memories: Vec<_> = (0..count).map(|_| FakeMemory::new(&memory, 0, Sizes::Spans)).collect();
        let kind = |index| if index + 1 == count { Kind::Processor } else { Kind::Gpu };
        let devices: Vec<_> =
            memories.iter().enumerate().map(|(index, memory)| FakeDevice::new(kind(index), memory)).collect();
        let buffers: Vec<_> = memories
            .iter()
            .map(|memory| [Holds::Weights, Holds::State].map(|holds| Buffer::new(memory, holds)))
            .collect();
        for home in spread.homes(assigned.graph()) {
            let [weights, state] = &buffers[home.device];
            let buffer = match home.holds {
                Holds::Weights => weights,
                Holds::State => state,
            };
            mirror.stand_in(home.tensor, buffer.0);
        }
        // Its table is then as full as that of a program that knows its graphs: between a quarter and a half.
        let size = 2 * assigned.graph().tensors().len().max(1);
        let scheduler = Scheduler::new(&devices, &memories, size).ok_or(GgmlError::NoContext)?;
        Ok(Self { scheduler, mirror, _buffers: buffers, _devices: devices, _memories: memories })
    }

    /// The graph as if it had just been built. O(edges).
    pub fn fresh(&mut self) -> FreshSched<'_> {
        self.mirror.forget_copies();
        self.mirror.forget_places();
        FreshSched(self)
    }
}

impl<'a> FreshSched<'a> {
    /// `ggml_backend_sched_reset` and `ggml_backend_sched_reserve`: splits the graph, plans it and makes buffers.
    pub fn reserve(self) -> Result<(), GgmlError> {
        let (scheduler, graph) = (self.0.scheduler.as_ptr(), self.0.mirror.graph());
        // SAFETY: the scheduler's table has room for all tensors of the graph, whose external ones are in memory that
        // one of the devices reads; and each of them runs everything.
        let done = unsafe {
            ggml_backend_sched_reset(scheduler);
            ggml_backend_sched_reserve(scheduler, graph)
        };
        if done { Ok(()) } else { Err(GgmlError::Refused("reserve")) }
    }

    /// `ggml_backend_sched_reset` and `ggml_backend_sched_alloc_graph`: splits the graph, and gives each tensor its address.
    pub fn alloc(self) -> Result<Split<'a>, GgmlError> {
        let (scheduler, graph) = (self.0.scheduler.as_ptr(), self.0.mirror.graph());
        // SAFETY: as for `reserve`.
        let done = unsafe {
            ggml_backend_sched_reset(scheduler);
            ggml_backend_sched_alloc_graph(scheduler, graph)
        };
        if done { Ok(Split(self.0)) } else { Err(GgmlError::Refused("allocate")) }
    }
}

impl Split<'_> {
    /// Counts splits and copies.
    pub fn cut(&self) -> Cut {
        let copies = self.0.mirror.copies();
        // SAFETY: the copies live until the scheduler splits again, which nobody can make it do meanwhile.
        let size = |copy: &*mut _| unsafe { ggml_nbytes(*copy) } as u64;
        // SAFETY: it only reads a number, which is not negative.
        let splits = unsafe { ggml_backend_sched_get_n_splits(self.0.scheduler.as_ptr()) } as usize;
        Cut { splits, copies: copies.len(), copied: Bytes(copies.iter().map(size).sum()) }
    }
}

/// A scheduler of ggml's.
struct Scheduler(NonNull<ggml_backend_sched>);

impl Scheduler {
    /// Devices and memories must live as long as the scheduler is used.
    fn new(devices: &[FakeDevice], memories: &[FakeMemory], graph_size: usize) -> Option<Self> {
        let mut backends: Vec<_> = devices.iter().map(FakeDevice::as_ptr).collect();
        let mut types: Vec<_> = memories.iter().map(FakeMemory::as_ptr).collect();
        let count = c_int::try_from(backends.len()).ok()?;
        let (backends, types) = (backends.as_mut_ptr(), types.as_mut_ptr());
        // SAFETY: both lists have `count` entries and are copied; each device reads its memory, and the last is a processor.
        let made = unsafe { ggml_backend_sched_new(backends, types, count, graph_size, false, false) };
        NonNull::new(made).map(Self)
    }

    fn as_ptr(&self) -> *mut ggml_backend_sched {
        self.0.as_ptr()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: it is freed only here.
        unsafe { ggml_backend_sched_free(self.0.as_ptr()) };
    }
}

/// Memory of the caller's, with room for everything.
struct Buffer(ggml_backend_buffer_t);

impl Buffer {
    /// The memory must live as long as the buffer.
    fn new(memory: &FakeMemory, holds: Holds) -> Self {
        let usage = match holds {
            Holds::Weights => GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
            Holds::State => GGML_BACKEND_BUFFER_USAGE_ANY,
        };
        // SAFETY: the buffer type lives long enough, and gives a buffer.
        unsafe {
            let buffer = ggml_backend_buft_alloc_buffer(memory.as_ptr(), usize::MAX >> 1);
            ggml_backend_buffer_set_usage(buffer, usage);
            Self(buffer)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it is freed only here.
        unsafe { ggml_backend_buffer_free(self.0) };
    }
}
