//! The graph allocator behind ggml's handle: plans, buffers, addresses.
//!
//! ```text
//!   reserve     graph --read--> planned --grow--> buffers
//!   alloc       graph --compare with the plans there are--> addresses        (one pass, if one fits)
//! ```
//!
//! Whatever goes wrong in here ends with ggml's own allocator, if that can be reached.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use steeve_graph::{
    Align, Bytes, GraphPlan, GraphStrategy, Id, IdVec, Memory, MemoryId, PlanOptions, Reuse, ggml_answer, plan_graph,
    replay, share_buffers,
};

use crate::abi::{self, Buffer, BufferType, Tensor, USAGE_COMPUTE};
use crate::functions::Functions;
use crate::ggml::{Ggml, text};
use crate::pattern::{Match, Pattern, Place};
use crate::read::{Ids, Lists, Memories, Purpose, Unreadable, read};
use crate::record::record;
use crate::say;
use crate::settings::Settings;

/// How many graphs' plans are kept.
const PLANS: usize = 16;

/// For how many nodes a source outlives its last reader in memory that is not plain CPU memory: about as many as the
/// longest chains that backends fuse.
const HOLD: u32 = 8;

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The graph makes no sense.
    Malformed(String),
    /// We can't, but ggml may.
    Beyond(String),
    /// The device has no such memory.
    NoMemory(String),
}

impl From<Unreadable> for Trouble {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Malformed(why) => Self::Malformed(why),
            Unreadable::Unknown(why) => Self::Beyond(why),
        }
    }
}

/// An allocator that plans by itself.
pub(crate) struct Galloc {
    ggml: &'static Ggml,
    settings: &'static Settings,
    memories: Memories,
    parts: Vec<Part>,
    /// The plans that were used last, the latest first.
    entries: Vec<Entry>,
    /// Which memory leafs and nodes belong to since the last reserve.
    ids: Option<Arc<Ids>>,
    bound: Vec<*mut Tensor>,
}

/// The buffers of one memory.
struct Part {
    memory: MemoryId,
    buffer_type: BufferType,
    chunks: Vec<Chunk>,
}

/// One buffer, or none after it could not be made.
struct Chunk {
    size: Bytes,
    buffer: Buffer,
    base: usize,
}

/// A plan and the graph it was made for.
struct Entry {
    ids: Arc<Ids>,
    pattern: Pattern,
    plan: GraphPlan,
    /// For each part the chunk of each buffer, once there are chunks.
    chunks: Option<Vec<Vec<usize>>>,
}

impl Galloc {
    /// # Safety
    /// The buffer types are this ggml's and live as long as the answer.
    pub(crate) unsafe fn new(
        ggml: &'static Ggml,
        settings: &'static Settings,
        types: &[BufferType],
    ) -> Result<Self, String> {
        ggml.check()?;
        // SAFETY: passed on.
        let memories = unsafe { memories(&ggml.functions, settings, types) }?;
        let owners = memories.planned.pairs().filter(|(_, memory)| memory.shared_with.is_none());
        let part = |(memory, _): (MemoryId, &Memory)| {
            let buffer_type = memories.types[memory.index()];
            Part { memory, buffer_type, chunks: Vec::new() }
        };
        let parts = owners.map(part).collect();
        Ok(Self { ggml, settings, memories, parts, entries: Vec::new(), ids: None, bound: Vec::new() })
    }

    /// Plans a graph and makes the buffers large enough.
    ///
    /// # Safety
    /// A graph of this ggml's, and null or one number for each leaf and node.
    pub(crate) unsafe fn reserve(
        &mut self,
        graph: *const abi::Graph,
        node_ids: *const c_int,
        leaf_ids: *const c_int,
    ) -> Result<(), Trouble> {
        // SAFETY: passed on.
        unsafe {
            let lists = Lists::of(graph)?;
            self.plan(lists, lists.ids(node_ids, leaf_ids))?;
        }
        self.grow()
    }

    /// Plans a graph, and says what a reserve would take for each buffer.
    ///
    /// # Safety
    /// As [`reserve`](Self::reserve).
    pub(crate) unsafe fn reserve_size(
        &mut self,
        graph: *const abi::Graph,
        node_ids: *const c_int,
        leaf_ids: *const c_int,
    ) -> Result<Vec<usize>, Trouble> {
        // SAFETY: passed on.
        unsafe {
            let lists = Lists::of(graph)?;
            self.plan(lists, lists.ids(node_ids, leaf_ids))?;
        }
        let plan = self.entries.first().map(|entry| entry.plan.memories()).unwrap_or_default();
        let size = |memory: MemoryId| {
            let owner = self.memories.planned[memory].shared_with.unwrap_or(memory);
            plan.iter().find(|it| it.memory == owner).map_or(0, |it| it.plan.peak().0 as usize)
        };
        Ok(self.memories.planned.ids().map(size).collect())
    }

    /// Gives every tensor its address. `false` if it must be reserved first.
    ///
    /// # Safety
    /// A graph of this ggml's.
    pub(crate) unsafe fn alloc(&mut self, graph: *const abi::Graph) -> Result<bool, Trouble> {
        // SAFETY: passed on.
        unsafe {
            let lists = Lists::of(graph)?;
            if self.find(lists) {
                self.grow()?;
                if self.assign() {
                    return Ok(true);
                }
                // One tensor under two numbers: not the planned graph after all. It is planned as what it is.
                self.entries.remove(0);
            }
            // With several memories only the caller knows who goes where.
            if self.parts.len() > 1 {
                return Ok(false);
            }
            self.plan(lists, lists.ids(std::ptr::null(), std::ptr::null()))?;
            self.grow()?;
            if !self.find(lists) || !self.assign() {
                return Err(Trouble::Beyond("a plan does not fit its own graph".into()));
            }
        }
        Ok(true)
    }

    /// How many bytes the buffers of a memory have; none for one that shares another's.
    pub(crate) fn buffer_size(&self, index: usize) -> usize {
        let memory = MemoryId::from_index(index);
        let part = self.parts.iter().find(|part| Some(part.memory) == memory);
        let chunks = part.map(|part| part.chunks.as_slice()).unwrap_or_default();
        chunks.iter().filter(|chunk| !chunk.buffer.is_null()).map(|chunk| chunk.size.0 as usize).sum()
    }

    /// How many memories there are.
    pub(crate) fn memories(&self) -> usize {
        self.memories.types.len()
    }

    /// Ggml's own layout from now on, for want of ggml's own allocator.
    pub(crate) fn only_ggml(&mut self, settings: &'static Settings) {
        self.settings = settings;
        self.entries.clear();
    }

    /// Makes the entry of this graph the first, from those that fit or anew.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn plan(&mut self, lists: Lists<'_>, ids: Ids) -> Result<(), Trouble> {
        let ids = match self.entries.iter().find(|entry| *entry.ids == ids) {
            Some(entry) => Arc::clone(&entry.ids),
            None => Arc::new(ids),
        };
        self.ids = Some(Arc::clone(&ids));
        // SAFETY: passed on.
        if unsafe { self.find(lists) } {
            return Ok(());
        }
        let start = Instant::now();
        let purpose = Purpose::Plan { glu: self.settings.more };
        // SAFETY: passed on.
        let graph = unsafe { read(self.ggml, lists, &self.memories, &ids, purpose) }?;
        let beyond = |error: &dyn std::fmt::Display| Trouble::Beyond(error.to_string());
        let reuse = if self.settings.more { Reuse::More } else { Reuse::Ggml };
        let options = PlanOptions::new(self.settings.strategy).with_reuse(reuse);
        let plan = plan_graph(&graph.assigned, &options).map_err(|error| beyond(&error))?;
        let theirs = ggml_answer(&graph.assigned).map_err(|error| beyond(&error))?;
        let totals: IdVec<MemoryId, u64> =
            theirs.chunks.iter().map(|chunks| chunks.iter().map(|size| size.0).sum()).collect();
        // Never worse. A memory with a hold may need more than ggml does, which has none.
        let is_worse = plan.memories().iter().any(|it| it.plan.peak().0 > totals[it.memory]);
        let as_ggml = || plan_graph(&graph.assigned, &PlanOptions::new(GraphStrategy::Ggml));
        let plan = if is_worse { as_ggml().unwrap_or(plan) } else { plan };
        let planned = start.elapsed();
        if self.settings.check {
            replay(&graph.assigned, &plan.places()).map_err(|faults| beyond(&faults))?;
        }
        if self.settings.log {
            let bound: u64 = plan.memories().iter().map(|it| it.at_least.0).sum();
            say!(
                "{} nodes in {}: ggml {}, steeve {}, bound {} bytes, {:.2} ms{}",
                lists.nodes.len(),
                names(&self.memories),
                totals.iter().sum::<u64>(),
                plan.peak(),
                bound,
                planned.as_secs_f64() * 1e3,
                if self.settings.check { ", replayed" } else { "" },
            );
        }
        if let Some(folder) = &self.settings.record {
            // SAFETY: passed on.
            unsafe { record(self.ggml, lists, &self.memories, &ids, folder) };
        }
        // SAFETY: the tensors that were just read.
        let pattern = unsafe { Pattern::new(&graph, &plan) };
        self.keep(Entry { ids, pattern, plan, chunks: None });
        Ok(())
    }

    /// Keeps an entry as the first. Those whose work it can do go, and so does the last if there are too many.
    fn keep(&mut self, entry: Entry) {
        self.entries.retain(|old| {
            let assigned = old.plan.assigned();
            let size = |tensor, memory| assigned.alloc_size(tensor, memory);
            !(old.ids == entry.ids && entry.plan.accepts(assigned.graph(), size))
        });
        self.entries.insert(0, entry);
        self.entries.truncate(PLANS);
    }

    /// Makes the entry that fits the graph the first, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn find(&mut self, lists: Lists<'_>) -> bool {
        let Self { entries, bound, parts, ids, .. } = self;
        let fits = |entry: &Entry| {
            if ids.as_ref().is_some_and(|ids| !Arc::ptr_eq(ids, &entry.ids)) {
                return false;
            }
            let placed = |place: Place| entry.address(parts, place).map_or(0, |(_, address)| address);
            // SAFETY: passed on; `bound` has just been filled.
            unsafe {
                match entry.pattern.compare(lists, bound, placed) {
                    Match::Same => true,
                    Match::Reshaped => entry.pattern.has_room(&self.ggml.functions, &self.memories, bound),
                    Match::Other => false,
                }
            }
        };
        let Some(index) = entries.iter().position(fits) else { return false };
        entries[..=index].rotate_right(1);
        true
    }

    /// Makes the buffers large enough for the first entry. What has to grow is freed first.
    fn grow(&mut self) -> Result<(), Trouble> {
        let Some(entry) = self.entries.first_mut() else { return Ok(()) };
        let is_there = |part: &Part| part.chunks.iter().all(|chunk| !chunk.buffer.is_null());
        if entry.chunks.is_some() && self.parts.iter().all(is_there) {
            return Ok(());
        }
        let mut matching = Vec::with_capacity(self.parts.len());
        let mut wanted = Vec::with_capacity(self.parts.len());
        for (part, it) in self.parts.iter().zip(entry.plan.memories()) {
            let mut sizes: Vec<Bytes> = part.chunks.iter().map(|chunk| chunk.size).collect();
            let mut needed = it.plan.buffers().as_slice().to_vec();
            if needed.is_empty() {
                // As ggml, which has a buffer for each memory as soon as anything is reserved, if only of no bytes.
                needed.push(Bytes::ZERO);
            }
            matching.push(share_buffers(&mut sizes, &needed));
            wanted.push(sizes);
        }
        let ggml = &self.ggml.functions;
        for (part, wanted) in self.parts.iter_mut().zip(&wanted) {
            part.chunks.iter_mut().zip(wanted).filter(|(chunk, wanted)| chunk.size < **wanted).for_each(|(chunk, _)| {
                chunk.free(ggml);
            });
        }
        for (part, wanted) in self.parts.iter_mut().zip(&wanted) {
            part.make(ggml, wanted)?;
        }
        entry.chunks = Some(matching);
        Ok(())
    }

    /// Gives the tensors bound to the first entry their addresses. `false` if one tensor would have two.
    ///
    /// # Safety
    /// The tensors have just been bound, and their graph is still there.
    unsafe fn assign(&mut self) -> bool {
        let ggml = &self.ggml.functions;
        for chunk in self.parts.iter().flat_map(|part| &part.chunks) {
            // SAFETY: `grow` has made all of them.
            unsafe { (ggml.ggml_backend_buffer_reset)(chunk.buffer) };
        }
        let Some(entry) = self.entries.first() else { return false };
        for (done, &number) in entry.pattern.order.iter().enumerate() {
            let pointer = self.bound[number as usize];
            // SAFETY: a tensor of the graph, see above.
            let tensor = unsafe { &*pointer };
            match entry.pattern.place(number) {
                Place::View => {
                    // SAFETY: as above; a root stands before its views.
                    let root_is_placed = unsafe { !(*self.bound[entry.pattern.root(number) as usize]).buffer.is_null() };
                    if tensor.buffer.is_null() && root_is_placed {
                        // SAFETY: as ggml does it: a view without a buffer whose root has one.
                        unsafe { (ggml.ggml_backend_view_init)(pointer) };
                    }
                }
                place @ Place::Planned { .. } => {
                    let Some((buffer, address)) = entry.address(&self.parts, place) else { continue };
                    if !tensor.is_placed() {
                        // SAFETY: within the buffer, because the plan is proven and the chunk is as large as it says; the
                        // tensor has no address yet.
                        unsafe { (ggml.ggml_backend_tensor_alloc)(buffer, pointer, address as *mut _) };
                    } else if tensor.data.addr() != address {
                        // SAFETY: those that were given addresses in this loop, and perhaps some that had theirs.
                        unsafe { self.take_back(done) };
                        return false;
                    }
                }
                Place::External | Place::Nowhere => {}
            }
        }
        true
    }

    /// Makes tensors of ours unplaced again.
    ///
    /// # Safety
    /// As [`assign`](Self::assign).
    unsafe fn take_back(&self, count: usize) {
        let Some(entry) = self.entries.first() else { return };
        for &number in &entry.pattern.order[..count] {
            if matches!(entry.pattern.place(number), Place::View | Place::Planned { .. }) {
                let pointer = self.bound[number as usize];
                // SAFETY: a tensor of the graph, see above.
                let tensor = unsafe { &mut *pointer };
                (tensor.data, tensor.buffer) = (std::ptr::null_mut(), std::ptr::null_mut());
            }
        }
    }
}

/// # Safety is kept by [`Galloc::new`]'s caller: ggml outlives the handle.
impl Drop for Galloc {
    fn drop(&mut self) {
        for part in &mut self.parts {
            part.chunks.iter_mut().for_each(|chunk| chunk.free(&self.ggml.functions));
        }
    }
}

impl Entry {
    /// Buffer and address of a planned place.
    #[inline]
    fn address(&self, parts: &[Part], place: Place) -> Option<(Buffer, usize)> {
        let Place::Planned { part, buffer, offset, .. } = place else { return None };
        // Tensors of no bytes may stand in buffers that do not exist: the first will do.
        let chunks = self.chunks.as_ref()?.get(part as usize)?;
        let chunk = chunks.get(buffer as usize).or_else(|| chunks.first())?;
        let chunk = parts[part as usize].chunks.get(*chunk)?;
        (!chunk.buffer.is_null()).then_some((chunk.buffer, chunk.base + offset as usize))
    }
}

impl Part {
    /// Makes the chunks that are missing. A failure leaves the sizes as they were.
    fn make(&mut self, ggml: &Functions, wanted: &[Bytes]) -> Result<(), Trouble> {
        for (index, &size) in wanted.iter().enumerate() {
            let old = self.chunks.get(index);
            if old.is_some_and(|chunk| !chunk.buffer.is_null()) {
                continue;
            }
            let bytes = usize::try_from(size.0).map_err(|_| Trouble::NoMemory(format!("{size} bytes")))?;
            // SAFETY: a buffer type of the caller's.
            let buffer = unsafe { (ggml.ggml_backend_buft_alloc_buffer)(self.buffer_type, bytes) };
            if buffer.is_null() {
                return Err(Trouble::NoMemory(format!("a buffer of {size} bytes could not be allocated")));
            }
            // SAFETY: a buffer that was just made.
            let base = unsafe {
                (ggml.ggml_backend_buffer_set_usage)(buffer, USAGE_COMPUTE);
                if bytes == 0 { 0 } else { (ggml.ggml_backend_buffer_get_base)(buffer).addr() }
            };
            let chunk = Chunk { size, buffer, base };
            match self.chunks.get_mut(index) {
                Some(old) => *old = chunk,
                None => self.chunks.push(chunk),
            }
        }
        Ok(())
    }
}

impl Chunk {
    fn free(&mut self, ggml: &Functions) {
        let buffer = std::mem::replace(&mut self.buffer, std::ptr::null_mut());
        if !buffer.is_null() {
            // SAFETY: ours, and nobody frees it twice.
            unsafe { (ggml.ggml_backend_buffer_free)(buffer) };
        }
    }
}

/// # Safety
/// The buffer types are this ggml's.
unsafe fn memories(ggml: &Functions, settings: &Settings, types: &[BufferType]) -> Result<Memories, String> {
    let mut planned: IdVec<MemoryId, Memory> = IdVec::new();
    let mut is_cpu = Vec::with_capacity(types.len());
    for (index, &buffer_type) in types.iter().enumerate() {
        if buffer_type.is_null() {
            return Err(format!("buffer type {index} is null"));
        }
        // SAFETY: as promised.
        let (name, align, max_size, is_meta) = unsafe {
            (
                text((ggml.ggml_backend_buft_name)(buffer_type)).unwrap_or_default(),
                (ggml.ggml_backend_buft_get_alignment)(buffer_type),
                (ggml.ggml_backend_buft_get_max_size)(buffer_type),
                ggml.ggml_backend_buft_is_meta.is_some_and(|is_meta| is_meta(buffer_type)),
            )
        };
        if is_meta {
            return Err(format!("{name} spans several devices"));
        }
        let align = Align::new(align as u64).map_err(|error| format!("{name}: {error}"))?;
        let first = types.iter().position(|other| *other == buffer_type).filter(|first| *first < index);
        is_cpu.push(name == "CPU");
        planned.push(Memory {
            max_buffer: (max_size != usize::MAX).then_some(Bytes(max_size as u64)),
            hold: settings.hold.unwrap_or(if name == "CPU" { 0 } else { HOLD }),
            shared_with: first.and_then(MemoryId::from_index),
            ..Memory::new(name, align)
        });
    }
    Ok(Memories { types: types.to_vec(), planned, is_cpu })
}

fn names(memories: &Memories) -> String {
    let names: Vec<&str> = memories.planned.iter().map(|memory| memory.name.as_str()).collect();
    names.join("+")
}
