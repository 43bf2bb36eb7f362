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
    Align, AssignedGraph, Bytes, GraphPlan, GraphPlanError, Id, IdVec, Memory, MemoryId, PlanBesideGgml, PlanOptions,
    Reuse, plan_beside_ggml, replay, share_buffers,
};

use crate::abi::{self, Buffer, BufferType, USAGE_COMPUTE};
use crate::functions::Functions;
use crate::ggml::{Known, text};
use crate::log::say;
use crate::pattern::{Match, Pattern, Place, Target};
use crate::read::{Ids, Lists, Memories, Purpose, Unreadable, read};
use crate::record::record;
use crate::settings::Settings;

/// How many graphs' plans are kept.
const PLANS: usize = 16;

/// For how many nodes a source outlives its last reader in memory that is not plain CPU memory. Backends fuse chains of
/// nodes, and a fused one reads the sources of its first node when it writes the result of its last. Chains of ten and more
/// are common (the routers of experts), and ggml's matcher takes at most 31. Where that costs more than ggml's layout takes,
/// ggml's layout is used, which is what its backends are tested with.
const HOLD: u32 = 32;

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The graph makes no sense to anybody.
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

impl From<GraphPlanError> for Trouble {
    fn from(error: GraphPlanError) -> Self {
        Self::Beyond(error.to_string())
    }
}

/// An allocator that plans by itself.
pub(crate) struct Galloc {
    ggml: &'static Known,
    settings: &'static Settings,
    memories: Memories,
    parts: Vec<Part>,
    /// The plans that were used last, the latest first.
    entries: Vec<Entry>,
    /// How many entries there ever were.
    made: u64,
    /// Which memory leafs and nodes belong to since the last reserve.
    ids: Option<Arc<Ids>>,
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
    /// Told apart by this.
    number: u64,
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
        ggml: &'static Known,
        settings: &'static Settings,
        types: &[BufferType],
    ) -> Result<Self, String> {
        // SAFETY: passed on.
        let memories = unsafe { memories(&ggml.functions, settings, types) }?;
        let owners = memories.planned.pairs().filter(|(_, memory)| memory.shared_with.is_none());
        let part = |(memory, _): (MemoryId, &Memory)| {
            let buffer_type = memories.types[memory.index()];
            Part { memory, buffer_type, chunks: Vec::new() }
        };
        let parts = owners.map(part).collect();
        Ok(Self { ggml, settings, memories, parts, entries: Vec::new(), made: 0, ids: None })
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
            let latest = self.entries.first().map(|entry| entry.number);
            let is_found = self.find(lists);
            if self.memories.types.len() > 1 {
                // Only the caller knows who goes where. And where tensors move because another plan is used, it must first
                // wait for its devices, which ggml's scheduler does before it reserves.
                if !is_found || self.entries.first().map(|entry| entry.number) != latest {
                    return Ok(false);
                }
            } else if !is_found {
                self.plan(lists, lists.ids(std::ptr::null(), std::ptr::null()))?;
            }
            self.grow()?;
            self.assign();
        }
        Ok(true)
    }

    /// Whether a buffer is one of these.
    pub(crate) fn has_buffer(&self, buffer: Buffer) -> bool {
        self.parts.iter().flat_map(|part| &part.chunks).any(|chunk| chunk.buffer == buffer)
    }

    /// How many bytes the buffers of a memory have; none for one that shares another's.
    pub(crate) fn buffer_size(&self, index: usize) -> usize {
        let memory = MemoryId::from_index(index);
        let part = self.parts.iter().find(|part| Some(part.memory) == memory);
        let buffers = part.map(|part| part.chunks.as_slice()).unwrap_or_default().iter().map(|chunk| chunk.buffer);
        let get_size = self.ggml.functions.ggml_backend_buffer_get_size;
        // SAFETY: buffers that we have made.
        buffers.filter(|buffer| !buffer.is_null()).map(|buffer| unsafe { get_size(buffer) }).sum()
    }

    /// Makes the entry of this graph the first, from those that fit or anew, and binds the graph's tensors.
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
        let purpose = Purpose::Plan { glu: self.settings.more };
        // SAFETY: passed on.
        let graph = unsafe { read(self.ggml, lists, &self.memories, &ids, purpose) }?;
        // First of all: whatever goes wrong from here on can be looked into.
        if let Some(folder) = &self.settings.record {
            // SAFETY: passed on.
            unsafe { record(self.ggml, lists, &self.memories, &ids, folder) };
        }
        let plan = self.solve(&graph.assigned)?;
        // SAFETY: the tensors that were just read.
        let pattern = unsafe { Pattern::new(&graph, &plan, &self.memories) };
        self.made += 1;
        self.entries.insert(0, Entry { number: self.made, ids, pattern, plan, chunks: None });
        self.entries.truncate(PLANS);
        Ok(())
    }

    /// The plan for a graph: ours, or ggml's where that is smaller.
    fn solve(&self, graph: &AssignedGraph) -> Result<GraphPlan, Trouble> {
        let start = Instant::now();
        let reuse = if self.settings.more { Reuse::More } else { Reuse::Ggml };
        let options = PlanOptions::new(self.settings.strategy).with_reuse(reuse).with_unread(self.settings.unread);
        // Never worse: a memory with a hold may need more than ggml does, which has none. But never wrong either, and
        // where ggml frees what is still needed, its plan is no match.
        let PlanBesideGgml { plan, ggml, .. } = plan_beside_ggml(graph, &options)?;
        let planned = start.elapsed();
        if self.settings.check {
            replay(graph, &plan.places()).map_err(|faults| Trouble::Beyond(faults.to_string()))?;
        }
        if self.settings.log {
            let bound: u64 = plan.memories().iter().map(|it| it.at_least.0).sum();
            say!(
                "{} nodes in {}: ggml {}, steeve {}, bound {} bytes, {:.2} ms{}",
                graph.graph().nodes().len(),
                names(&self.memories),
                ggml.iter().map(|size| size.0).sum::<u64>(),
                plan.peak(),
                bound,
                planned.as_secs_f64() * 1e3,
                if self.settings.check { ", replayed" } else { "" },
            );
        }
        Ok(plan)
    }

    /// Makes the entry that fits the graph the first, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn find(&mut self, lists: Lists<'_>) -> bool {
        let Self { ggml, memories, entries, parts, ids, .. } = self;
        // With one memory there is nothing to be said about who goes where.
        let ids = ids.as_ref().filter(|_| memories.types.len() > 1);
        let fits = |entry: &mut Entry| {
            if ids.is_some_and(|ids| !Arc::ptr_eq(ids, &entry.ids)) {
                return false;
            }
            let Entry { pattern, chunks, .. } = entry;
            let placed = |place: Place| address(chunks.as_deref()?, parts, place);
            // SAFETY: passed on; the tensors have just been bound.
            unsafe {
                match pattern.compare(lists, placed) {
                    Match::Same => true,
                    // A plan that was never used may be far too large for this one.
                    Match::Reshaped if chunks.is_some() && pattern.has_room(ggml, memories) => {
                        pattern.expect_these_shapes();
                        true
                    }
                    Match::Reshaped | Match::Other => false,
                }
            }
        };
        let Some(index) = entries.iter_mut().position(fits) else { return false };
        entries[..=index].rotate_right(1);
        true
    }

    /// Makes the buffers large enough for the first entry.
    fn grow(&mut self) -> Result<(), Trouble> {
        let Some(entry) = self.entries.first() else { return Ok(()) };
        let is_there = |part: &Part| part.chunks.iter().all(|chunk| !chunk.buffer.is_null());
        if entry.chunks.is_some() && self.parts.iter().all(is_there) {
            return Ok(());
        }
        let mut chunks = Vec::with_capacity(self.parts.len());
        let mut wanted = Vec::with_capacity(self.parts.len());
        for (part, it) in self.parts.iter().zip(entry.plan.memories()) {
            let mut sizes: Vec<Bytes> = part.chunks.iter().map(|chunk| chunk.size).collect();
            let mut needed = it.plan.buffers().as_slice().to_vec();
            if needed.is_empty() {
                // As ggml, which has a buffer for each memory as soon as anything is reserved, if only of no bytes.
                needed.push(Bytes::ZERO);
            }
            chunks.push(share_buffers(&mut sizes, &needed));
            wanted.push(sizes);
        }
        self.make(&wanted)?;
        self.use_first(chunks);
        Ok(())
    }

    /// Makes every chunk at least as large as wanted. What has to grow is freed first.
    fn make(&mut self, wanted: &[Vec<Bytes>]) -> Result<(), Trouble> {
        let ggml = &self.ggml.functions;
        for (part, wanted) in self.parts.iter_mut().zip(wanted) {
            let growing = part.chunks.iter_mut().zip(wanted).filter(|(chunk, wanted)| chunk.size < **wanted);
            growing.for_each(|(chunk, _)| chunk.free(ggml));
        }
        self.parts.iter_mut().zip(wanted).try_for_each(|(part, wanted)| part.make(ggml, wanted))
    }

    /// The first entry is in use from now on. Others whose work it can do go.
    fn use_first(&mut self, chunks: Vec<Vec<usize>>) {
        let Some((first, others)) = self.entries.split_first_mut() else { return };
        first.chunks = Some(chunks);
        let is_covered = |old: &Entry| {
            let assigned = old.plan.assigned();
            old.ids == first.ids
                && first.plan.accepts(assigned.graph(), |tensor, memory| assigned.alloc_size(tensor, memory))
        };
        let kept: Vec<bool> = std::iter::once(true).chain(others.iter().map(|old| !is_covered(old))).collect();
        let mut kept = kept.into_iter();
        self.entries.retain(|_| kept.next().unwrap_or(true));
    }

    /// Gives the tensors bound to the first entry their addresses.
    ///
    /// # Safety
    /// The tensors have just been bound, their graph is still there, and the buffers are large enough.
    unsafe fn assign(&mut self) {
        let ggml = &self.ggml.functions;
        for chunk in self.parts.iter().flat_map(|part| &part.chunks) {
            // SAFETY: `grow` has made all of them.
            unsafe { (ggml.ggml_backend_buffer_reset)(chunk.buffer) };
        }
        let [Entry { pattern, chunks: Some(chunks), .. }, ..] = self.entries.as_slice() else { return };
        if !pattern.has_unplaced {
            return;
        }
        for &Target { number, root, place } in &pattern.targets {
            let pointer = pattern.tensors[number as usize];
            // SAFETY: a tensor of the graph, see above.
            let tensor = unsafe { &*pointer };
            match place {
                Place::View => {
                    // SAFETY: as above; a root stands before its views.
                    let root = unsafe { &*pattern.tensors[root as usize] };
                    // A root of no bytes may have a buffer and no address. ggml would fail over that.
                    if tensor.buffer.is_null() && !root.buffer.is_null() && !root.data.is_null() {
                        // SAFETY: as ggml does it: a view without a buffer whose root has one.
                        unsafe { (ggml.ggml_backend_view_init)(pointer) };
                    }
                }
                place @ Place::Planned { .. } => {
                    let Some((buffer, address)) = address(chunks, &self.parts, place) else { continue };
                    if !tensor.is_placed() {
                        // SAFETY: within the buffer, because the plan is proven and the chunk is as large as it says; the
                        // tensor has no address yet.
                        unsafe { (ggml.ggml_backend_tensor_alloc)(buffer, pointer, address as *mut _) };
                    }
                }
                Place::External | Place::Nowhere => {}
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

/// Buffer and address of a planned place, with the chunk of each buffer.
#[inline]
fn address(chunks: &[Vec<usize>], parts: &[Part], place: Place) -> Option<(Buffer, usize)> {
    let Place::Planned { part, buffer, offset, .. } = place else { return None };
    // Tensors of no bytes may stand in buffers that do not exist: the first will do.
    let chunks = chunks.get(part as usize)?;
    let chunk = chunks.get(buffer as usize).or_else(|| chunks.first())?;
    let chunk = parts[part as usize].chunks.get(*chunk)?;
    (!chunk.buffer.is_null()).then_some((chunk.buffer, chunk.base + offset as usize))
}

impl Part {
    /// Makes the chunks that are missing. A failure leaves the sizes as they were.
    fn make(&mut self, ggml: &Functions, wanted: &[Bytes]) -> Result<(), Trouble> {
        for (index, &size) in wanted.iter().enumerate() {
            let old = self.chunks.get(index);
            if old.is_some_and(|chunk| !chunk.buffer.is_null()) {
                continue;
            }
            let no_memory = || Trouble::NoMemory(self.no_memory(ggml, index, wanted));
            let bytes = usize::try_from(size.0).map_err(|_| no_memory())?;
            // SAFETY: a buffer type of the caller's.
            let buffer = unsafe { (ggml.ggml_backend_buft_alloc_buffer)(self.buffer_type, bytes) };
            if buffer.is_null() {
                return Err(no_memory());
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

    /// Names the memory and its total in ggml's words, and the buffer that could not be had where it is one of several.
    fn no_memory(&self, ggml: &Functions, index: usize, wanted: &[Bytes]) -> String {
        // SAFETY: a buffer type of the caller's.
        let name = unsafe { text((ggml.ggml_backend_buft_name)(self.buffer_type)) }.unwrap_or_default();
        let total = wanted.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0));
        let which = match wanted {
            [_] => String::new(),
            _ => format!(" (buffer {} of {}: {} bytes)", index + 1, wanted.len(), wanted[index]),
        };
        format!("failed to allocate {name} buffer of size {total}{which}")
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
