//! The graph allocator behind ggml's handle: plans, buffers, addresses.
//!
//! ```text
//!   reserve     graph --read--> planned --grow--> buffers
//!   alloc       graph --compare with the plans there are--> addresses        (one pass, if one fits)
//! ```
//!
//! Whatever goes wrong in here ends with ggml's own allocator, if that can be reached.

mod buffers;
mod small_plans;

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use steeve_graph::{
    AssignedGraph, Bytes, GraphPlan, GraphPlanError, GraphStrategy, Id, IdVec, Memory, MemoryId, PlanOptions, Reuse,
    SizeClass, SizeClasses, plan_beside_ggml, replay,
};

use self::buffers::{Part, total};
use self::small_plans::Small;
use crate::abi::{self, Buffer, BufferType};
use crate::devices::memories;
use crate::ggml::Known;
use crate::log::say;
use crate::pattern::{Match, Pattern, Place, Target};
use crate::plan_folder::{self, SolvedPlan};
use crate::read::{Ids, Lists, Memories, Purpose, Unreadable, read};
use crate::record::record;
use crate::settings::Settings;

/// How many graphs' plans are kept.
const PLANS: usize = 16;

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
        Self::Beyond(steeve_graph::ErrorChain(&error).to_string())
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
    /// The largest plan that a graph was allocated by since buffers were made. What it takes is resident.
    resident: Bytes,
    /// Which memory leafs and nodes belong to since the last reserve.
    ids: Option<Arc<Ids>>,
}

/// What the kept plans have for a graph. The entry that is found is the first, and its tensors are bound to the graph's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// No plan can be used.
    Nothing,
    /// A plan to be used.
    Plan,
    /// A plan that can be used and is far larger than the graph, whose tensors have so many bytes.
    LoosePlan(Bytes),
}

/// What a graph is looked for among the kept plans for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Reserve,
    Alloc,
}

/// A plan and the graph it was made for, as far as it takes to use it: the graph plan itself would take more memory than that.
struct Entry {
    /// Told apart by this.
    number: u64,
    ids: Arc<Ids>,
    pattern: Pattern,
    /// The sizes of the plan's buffers in each part.
    needed: Vec<Vec<Bytes>>,
    /// For each part the chunk of each of the plan's buffers. `None` while the chunks that exist are too small or too few.
    chunks: Option<Vec<Vec<usize>>>,
    /// Whether it is a plan for smaller graphs than another's.
    small: Option<Small>,
    /// Which smaller graphs a plan of their own is not worth while for.
    not_worth_while: SizeClasses,
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
        let memories = unsafe { memories(ggml, settings, types) }?;
        let owners = memories.planned.pairs().filter(|(_, memory)| memory.shared_with.is_none());
        let part = |(memory, _): (MemoryId, &Memory)| {
            let buffer_type = memories.types[memory.index()];
            Part { memory, buffer_type, chunks: Vec::new() }
        };
        let parts = owners.map(part).collect();
        Ok(Self { ggml, settings, memories, parts, entries: Vec::new(), made: 0, resident: Bytes::ZERO, ids: None })
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
        let needed = self.entries.first().map(|entry| entry.needed.as_slice()).unwrap_or_default();
        let size = |memory: MemoryId| {
            let owner = self.memories.planned[memory].shared_with.unwrap_or(memory);
            let mut parts = self.parts.iter().zip(needed);
            parts.find(|(part, _)| part.memory == owner).map_or(0, |(_, needed)| total(needed) as usize)
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
            match self.find(lists, Call::Alloc) {
                Found::Plan => {}
                Found::LoosePlan(bytes) => self.plan_small(lists, bytes),
                // Only the caller knows who goes where. And where tensors move because another plan is used, it must first
                // wait for its devices, which ggml's scheduler does before it reserves.
                Found::Nothing if self.memories.types.len() > 1 => return Ok(false),
                Found::Nothing => {
                    let ids = self.known_ids(lists.ids(std::ptr::null(), std::ptr::null()));
                    self.add(lists, ids)?;
                }
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
        buffers.map(|buffer| unsafe { get_size(buffer) }).sum()
    }

    /// Makes the entry of a graph that is to be reserved the first, from those that fit or anew, and binds the graph's tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn plan(&mut self, lists: Lists<'_>, ids: Ids) -> Result<(), Trouble> {
        let ids = self.known_ids(ids);
        self.ids = Some(Arc::clone(&ids));
        // SAFETY: passed on.
        unsafe {
            match self.find(lists, Call::Reserve) {
                Found::Plan | Found::LoosePlan(_) => Ok(()),
                Found::Nothing => self.add(lists, ids),
            }
        }
    }

    /// Returns these ids, shared with an entry that has equal ones.
    fn known_ids(&self, ids: Ids) -> Arc<Ids> {
        match self.entries.iter().find(|entry| *entry.ids == ids) {
            Some(entry) => Arc::clone(&entry.ids),
            None => Arc::new(ids),
        }
    }

    /// Plans a graph that no entry fits, makes its entry the first, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn add(&mut self, lists: Lists<'_>, ids: Arc<Ids>) -> Result<(), Trouble> {
        // SAFETY: passed on.
        let entry = unsafe { self.make_entry(lists, ids, self.settings.strategy) }?;
        self.entries.insert(0, entry);
        if self.entries.len() > PLANS {
            // What serves smaller graphs goes first: there is another plan that serves them.
            let small = self.entries.iter().rposition(|entry| entry.small.is_some());
            self.entries.remove(small.unwrap_or(PLANS));
        }
        Ok(())
    }

    /// Plans a graph, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn make_entry(
        &mut self,
        lists: Lists<'_>,
        ids: Arc<Ids>,
        strategy: GraphStrategy,
    ) -> Result<Entry, Trouble> {
        let purpose = Purpose::Plan { glu: self.settings.more };
        // SAFETY: passed on.
        let graph = unsafe { read(self.ggml, lists, &self.memories, &ids, purpose) }?;
        // First of all: whatever goes wrong from here on can be looked into.
        if let Some(folder) = &self.settings.record {
            // SAFETY: passed on.
            unsafe { record(self.ggml, lists, &self.memories, &ids, folder) };
        }
        let plan = self.solve(&graph.assigned, strategy)?;
        // SAFETY: the tensors that were just read.
        let pattern = unsafe { Pattern::new(&graph, &plan, &self.memories) };
        self.made += 1;
        let needed = sizes(&plan);
        Ok(Entry {
            number: self.made,
            ids,
            pattern,
            needed,
            chunks: None,
            small: None,
            not_worth_while: SizeClasses::default(),
        })
    }

    /// The plan for a graph: ours, or ggml's where that is smaller; or the one that was found earlier, from the folder of plans.
    fn solve(&self, graph: &AssignedGraph, strategy: GraphStrategy) -> Result<GraphPlan, Trouble> {
        let start = Instant::now();
        let reuse = if self.settings.more { Reuse::Extended } else { Reuse::Ggml };
        let options = PlanOptions::new(strategy).with_reuse(reuse).with_unread(self.settings.unread);
        // Never worse than ggml's in any memory, and never wrong either.
        let folder = self.settings.plans.as_deref();
        let SolvedPlan { plan, ggml, origin } = plan_folder::solve(folder, graph, &options, plan_beside_ggml)?;
        let planned = start.elapsed();
        if self.settings.check {
            replay(graph, &plan.places()).map_err(|faults| Trouble::Beyond(faults.to_string()))?;
        }
        if self.settings.log {
            say!(
                "{} nodes in {}: {}, {:.2} ms{}{}",
                graph.graph().nodes().len(),
                names(&self.memories),
                figures(&plan, &ggml, &self.memories),
                planned.as_secs_f64() * 1e3,
                origin.note(),
                if self.settings.check { ", replayed" } else { "" },
            );
        }
        Ok(plan)
    }

    /// Makes the entry that fits the graph the first, and binds its tensors. An entry whose plan the buffers have room for is
    /// preferred, so that none is made anew without need. One that they have no room for must be this very graph's: the
    /// plan of a larger graph would take more than ggml does. To allocate in several memories, only what was reserved last
    /// will do.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn find(&mut self, lists: Lists<'_>, call: Call) -> Found {
        let (as_ggml, has_small) = (self.is_as_ggml(), self.has_small_plans());
        let only_first = call == Call::Alloc && self.memories.types.len() > 1;
        let count = if only_first { self.entries.len().min(1) } else { self.entries.len() };
        let mut loose: Option<(Bytes, usize, Bytes)> = None;
        for (is_backed, index) in (0..count).map(|index| (true, index)).chain((0..count).map(|index| (false, index))) {
            if !is_backed && (loose.is_some() || only_first) {
                break;
            }
            if self.entries[index].chunks.is_some() != is_backed {
                continue;
            }
            // ggml plans at each reserve, and knows the latest plan alone.
            let may_be_smaller = is_backed && !(as_ggml && (call == Call::Reserve || index > 0));
            // SAFETY: passed on.
            let verdict = unsafe { self.bind(lists, index) };
            let Entry { pattern, .. } = &mut self.entries[index];
            let room = match verdict {
                Match::Other => None,
                // SAFETY: passed on; the tensors have just been bound.
                _ if !may_be_smaller => unsafe { pattern.is_planned_graph(verdict) }.then_some(pattern.bytes),
                Match::Same => Some(pattern.expected_bytes),
                // SAFETY: as above.
                Match::Reshaped => unsafe { pattern.has_room(self.ggml, &self.memories) },
            };
            let (Some(bytes), has) = (room, pattern.bytes) else { continue };
            if !has_small || SizeClass::of(bytes, has).is_none() || self.entries[index].peak() <= self.resident {
                if verdict == Match::Reshaped {
                    // SAFETY: as above.
                    unsafe { self.entries[index].pattern.expect_these_shapes(bytes) };
                }
                self.entries[..=index].rotate_right(1);
                return Found::Plan;
            }
            if loose.is_none_or(|(least, ..)| has < least) {
                loose = Some((has, index, bytes));
            }
        }
        let Some((_, index, bytes)) = loose else { return Found::Nothing };
        self.entries[..=index].rotate_right(1);
        Found::LoosePlan(bytes)
    }

    /// Compares a graph with an entry's, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn bind(&mut self, lists: Lists<'_>, index: usize) -> Match {
        let Self { memories, entries, parts, ids, .. } = self;
        let Entry { ids: planned, pattern, chunks, .. } = &mut entries[index];
        // With one memory there is nothing to assign.
        if memories.types.len() > 1 && ids.as_ref().is_some_and(|ids| !Arc::ptr_eq(ids, planned)) {
            return Match::Other;
        }
        // SAFETY: passed on.
        unsafe { pattern.compare(lists, |place| address(chunks.as_deref()?, parts, place)) }
    }

    /// Whether everything is to be as with ggml, to the byte.
    fn is_as_ggml(&self) -> bool {
        self.settings.strategy == GraphStrategy::Ggml
    }

    /// Gives the first entry the buffers that its plan needs, by ggml's rule: a memory that has no room for the plan gives
    /// all its buffers back, and gets those of the plan; one that has room keeps what it has. So a memory whose buffers
    /// are made anew has as many bytes as its plan, which are never more than ggml has then.
    ///
    /// If there is not enough memory, the others give back what they have beyond the plan, too. If that does not help, there
    /// are no buffers at all, and the next graph gets what it needs.
    fn grow(&mut self) -> Result<(), Trouble> {
        let Some(entry) = self.entries.first() else { return Ok(()) };
        if entry.chunks.is_some() {
            return Ok(());
        }
        let needed = entry.needed.clone();
        let (as_ggml, ggml) = (self.is_as_ggml(), &self.ggml.functions);
        let mut made =
            self.parts.iter_mut().zip(&needed).try_for_each(|(part, needed)| match part.fit(needed, as_ggml) {
                Some(_) => Ok(()),
                None => {
                    self.resident = Bytes::ZERO;
                    part.make(ggml, needed)
                }
            });
        // ggml leaves the other memories as they are.
        if made.is_err() && !as_ggml {
            let helps = self.parts.iter().zip(&needed).any(|(part, needed)| part.total() > total(needed));
            self.parts.iter_mut().for_each(|part| part.free(ggml));
            if helps {
                made = self.parts.iter_mut().zip(&needed).try_for_each(|(part, needed)| part.make(ggml, needed));
            }
            if made.is_err() {
                self.parts.iter_mut().for_each(|part| part.free(ggml));
            }
        }
        self.match_chunks();
        made?;
        self.drop_covered();
        Ok(())
    }

    /// Finds out which plans the buffers have room for.
    fn match_chunks(&mut self) {
        let as_ggml = self.is_as_ggml();
        for entry in &mut self.entries {
            entry.chunks = entry.fit(&self.parts, as_ggml);
        }
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
        let [entry @ Entry { pattern, chunks: Some(chunks), .. }, ..] = self.entries.as_slice() else { return };
        self.resident = self.resident.max(entry.peak());
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

/// Gives all buffers back. ggml outlives the handle, as the caller of [`Galloc::new`] has promised.
impl Drop for Galloc {
    fn drop(&mut self) {
        self.parts.iter_mut().for_each(|part| part.free(&self.ggml.functions));
    }
}

impl Entry {
    /// The bytes of all buffers of the plan.
    fn peak(&self) -> Bytes {
        Bytes(self.needed.iter().map(|needed| total(needed)).fold(0, u64::saturating_add))
    }

    /// For each part the chunk of each of the plan's buffers; `None` if some are missing or too small.
    fn fit(&self, parts: &[Part], as_ggml: bool) -> Option<Vec<Vec<usize>>> {
        parts.iter().zip(&self.needed).map(|(part, needed)| part.fit(needed, as_ggml)).collect()
    }
}

/// What a plan needs in each memory.
fn sizes(plan: &GraphPlan) -> Vec<Vec<Bytes>> {
    let needed = plan.memories().iter().map(|it| match it.plan.buffers().as_slice() {
        // As ggml, which has a buffer for each memory as soon as anything is reserved, if only of no bytes.
        [] => vec![Bytes::ZERO],
        buffers => buffers.to_vec(),
    });
    needed.collect()
}

/// Buffer and address of a planned place, with the chunk of each buffer.
#[inline]
fn address(chunks: &[Vec<usize>], parts: &[Part], place: Place) -> Option<(Buffer, usize)> {
    let Place::Planned { part, buffer, offset, .. } = place else { return None };
    // Tensors of no bytes may stand in buffers that do not exist: the first will do.
    let chunks = chunks.get(part as usize)?;
    let chunk = chunks.get(buffer as usize).or_else(|| chunks.first())?;
    let chunk = parts[part as usize].chunks.get(*chunk)?;
    Some((chunk.buffer, chunk.base + offset as usize))
}

/// The bytes of ggml's plan, of ours and of the bound; with several memories, of each of them, too.
fn figures(plan: &GraphPlan, ggml: &IdVec<MemoryId, Bytes>, memories: &Memories) -> String {
    let one = |ggml: u64, ours: u64, bound: u64| format!("ggml {ggml}, steeve {ours}, bound {bound}");
    let sum = |bytes: &mut dyn Iterator<Item = Bytes>| bytes.fold(0, |sum: u64, it| sum.saturating_add(it.0));
    let bound = sum(&mut plan.memories().iter().map(|it| it.at_least));
    let all = one(sum(&mut ggml.iter().copied()), plan.peak().0, bound);
    if plan.memories().len() < 2 {
        return format!("{all} bytes");
    }
    let each = plan.memories().iter().map(|it| {
        let figures = one(ggml[it.memory].0, it.plan.peak().0, it.at_least.0);
        format!("{} {figures}", memories.planned[it.memory].name)
    });
    format!("{all} bytes ({})", each.collect::<Vec<_>>().join("; "))
}

fn names(memories: &Memories) -> String {
    let names: Vec<&str> = memories.planned.iter().map(|memory| memory.name.as_str()).collect();
    names.join("+")
}
