//! The graph allocator behind ggml's handle: plans, buffers, addresses.
//!
//! ```text
//!   reserve     graph --read--> planned --grow--> buffers
//!   alloc       graph --compare with the plans there are--> addresses        (one pass, if one fits)
//! ```
//!
//! Whatever goes wrong in here ends with ggml's own allocator, if that can be reached.

mod buffer_set;
mod small_plans;

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use steeve_graph::{
    AssignedGraph, Bytes, GraphPlan, GraphPlanError, GraphStrategy, Id, IdVec, Memory, MemoryId, PlanOptions, Reuse,
    SizeClass, SizeClasses, plan_beside_ggml, replay,
};

use self::buffer_set::{BufferSet, total};
use self::small_plans::SmallPlan;
use crate::buffer_types::planned_memories;
use crate::drop_in_settings::DropInSettings;
use crate::ggml_abi::{self, GgmlBuffer, GgmlBufferType};
use crate::ggml_instance::KnownGgml;
use crate::graph_pattern::{AddressTarget, GraphMatch, GraphPattern, TensorPlace};
use crate::log::log_stderr;
use crate::plan_folder::{self, SolvedPlan};
use crate::read_graph::{BufferIds, GraphReadError, PlannedMemories, ReadPurpose, TensorLists, read};
use crate::record_graph::record;

/// The most plans that are kept.
const PLANS: usize = 16;

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum AllocFailure {
    /// The graph is malformed: ggml itself would fail over it.
    Malformed(String),
    /// The graph can't be planned here, but perhaps by ggml.
    Unplannable(String),
    /// The device has no such memory.
    OutOfMemory(String),
}

impl From<GraphReadError> for AllocFailure {
    fn from(unreadable: GraphReadError) -> Self {
        match unreadable {
            GraphReadError::Malformed(why) => Self::Malformed(why),
            GraphReadError::Unsupported(why) => Self::Unplannable(why),
        }
    }
}

impl From<GraphPlanError> for AllocFailure {
    fn from(error: GraphPlanError) -> Self {
        Self::Unplannable(error.to_string())
    }
}

/// An allocator that plans by itself.
pub(crate) struct PlannedAllocator {
    ggml: &'static KnownGgml,
    settings: &'static DropInSettings,
    memories: PlannedMemories,
    buffer_sets: Vec<BufferSet>,
    /// The plans that were used last, the latest first.
    kept_plans: Vec<KeptPlan>,
    /// How many plans were made so far.
    plans_made: u64,
    /// The largest plan that a graph was allocated by since buffers were made. What it takes is resident.
    resident: Bytes,
    /// Which memory leafs and nodes belong to since the last reserve.
    ids: Option<Arc<BufferIds>>,
}

/// The result of looking a graph up among the kept plans. The plan that is found is in front, and its tensors are bound to the graph's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanLookup {
    /// No plan can be used.
    Nothing,
    /// A plan to be used.
    Plan,
    /// A plan that can be used and is far larger than the graph, whose tensors have so many bytes.
    OversizedPlan(Bytes),
}

/// The call that a graph is looked up among the kept plans for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupPurpose {
    Reserve,
    Alloc,
}

/// A plan and the graph it was made for, as far as it takes to use it: the graph plan itself would take more memory than that.
struct KeptPlan {
    /// Told apart by this.
    number: u64,
    ids: Arc<BufferIds>,
    pattern: GraphPattern,
    /// The sizes of the plan's buffers in each memory.
    needed: Vec<Vec<Bytes>>,
    /// For each memory the chunk of each of the plan's buffers. `None` while the chunks that exist are too small or too few.
    chunks: Option<Vec<Vec<usize>>>,
    /// Whether it is a plan for smaller graphs than another's.
    small: Option<SmallPlan>,
    /// Which smaller graphs a plan of their own is not worth while for.
    not_worth_while: SizeClasses,
}

impl PlannedAllocator {
    /// Makes an allocator without plans and buffers. Fails if a buffer type can't be planned for.
    ///
    /// # Safety
    /// The buffer types are this ggml's and live as long as the answer.
    pub(crate) unsafe fn new(
        ggml: &'static KnownGgml,
        settings: &'static DropInSettings,
        types: &[GgmlBufferType],
    ) -> Result<Self, String> {
        // SAFETY: passed on.
        let memories = unsafe { planned_memories(ggml, settings, types) }?;
        let owners = memories.planned.pairs().filter(|(_, memory)| memory.shared_with.is_none());
        let buffer_set = |(memory, _): (MemoryId, &Memory)| {
            let buffer_type = memories.types[memory.index()];
            BufferSet { memory, buffer_type, chunks: Vec::new() }
        };
        let buffer_sets = owners.map(buffer_set).collect();
        Ok(Self {
            ggml,
            settings,
            memories,
            buffer_sets,
            kept_plans: Vec::new(),
            plans_made: 0,
            resident: Bytes::ZERO,
            ids: None,
        })
    }

    /// Plans a graph and makes the buffers large enough.
    ///
    /// # Safety
    /// A graph of this ggml's, and null or one number for each leaf and node.
    pub(crate) unsafe fn reserve(
        &mut self,
        graph: *const ggml_abi::GgmlGraph,
        node_ids: *const c_int,
        leaf_ids: *const c_int,
    ) -> Result<(), AllocFailure> {
        // SAFETY: passed on.
        unsafe {
            let lists = TensorLists::of(graph)?;
            self.plan(lists, lists.ids(node_ids, leaf_ids))?;
        }
        self.grow()
    }

    /// Plans a graph, and returns what a reserve would take for each buffer.
    ///
    /// # Safety
    /// As [`reserve`](Self::reserve).
    pub(crate) unsafe fn reserve_size(
        &mut self,
        graph: *const ggml_abi::GgmlGraph,
        node_ids: *const c_int,
        leaf_ids: *const c_int,
    ) -> Result<Vec<usize>, AllocFailure> {
        // SAFETY: passed on.
        unsafe {
            let lists = TensorLists::of(graph)?;
            self.plan(lists, lists.ids(node_ids, leaf_ids))?;
        }
        let needed = self.kept_plans.first().map(|kept_plan| kept_plan.needed.as_slice()).unwrap_or_default();
        let size = |memory: MemoryId| {
            let owner = self.memories.planned[memory].shared_with.unwrap_or(memory);
            let mut buffer_sets = self.buffer_sets.iter().zip(needed);
            buffer_sets
                .find(|(buffer_set, _)| buffer_set.memory == owner)
                .map_or(0, |(_, needed)| total(needed) as usize)
        };
        Ok(self.memories.planned.ids().map(size).collect())
    }

    /// Gives every tensor its address. `false` if it must be reserved first.
    ///
    /// # Safety
    /// A graph of this ggml's.
    pub(crate) unsafe fn alloc(&mut self, graph: *const ggml_abi::GgmlGraph) -> Result<bool, AllocFailure> {
        // SAFETY: passed on.
        unsafe {
            let lists = TensorLists::of(graph)?;
            match self.find_plan(lists, LookupPurpose::Alloc) {
                PlanLookup::Plan => {}
                PlanLookup::OversizedPlan(bytes) => self.plan_small(lists, bytes),
                // Only the caller knows which memory each tensor belongs to. And where tensors move because another plan is used, it must first
                // wait for its devices, which ggml's scheduler does before it reserves.
                PlanLookup::Nothing if self.memories.types.len() > 1 => return Ok(false),
                PlanLookup::Nothing => {
                    let ids = self.shared_ids(lists.ids(std::ptr::null(), std::ptr::null()));
                    self.add_plan(lists, ids)?;
                }
            }
            self.grow()?;
            self.assign();
        }
        Ok(true)
    }

    /// Returns whether a buffer is one of this allocator's.
    pub(crate) fn has_buffer(&self, buffer: GgmlBuffer) -> bool {
        self.buffer_sets.iter().flat_map(|buffer_set| &buffer_set.chunks).any(|chunk| chunk.buffer == buffer)
    }

    /// Returns how many bytes the buffers of a memory have; 0 for one that shares another's.
    pub(crate) fn buffer_size(&self, index: usize) -> usize {
        let memory = MemoryId::from_index(index);
        let buffer_set = self.buffer_sets.iter().find(|buffer_set| Some(buffer_set.memory) == memory);
        let buffers = buffer_set
            .map(|buffer_set| buffer_set.chunks.as_slice())
            .unwrap_or_default()
            .iter()
            .map(|chunk| chunk.buffer);
        let get_size = self.ggml.functions.ggml_backend_buffer_get_size;
        // SAFETY: buffers that we have made.
        buffers.map(|buffer| unsafe { get_size(buffer) }).sum()
    }

    /// Finds or makes the plan of a graph that is to be reserved, moves it to the front, and binds the graph's tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn plan(&mut self, lists: TensorLists<'_>, ids: BufferIds) -> Result<(), AllocFailure> {
        let ids = self.shared_ids(ids);
        self.ids = Some(Arc::clone(&ids));
        // SAFETY: passed on.
        unsafe {
            match self.find_plan(lists, LookupPurpose::Reserve) {
                PlanLookup::Plan | PlanLookup::OversizedPlan(_) => Ok(()),
                PlanLookup::Nothing => self.add_plan(lists, ids),
            }
        }
    }

    /// Returns these ids, shared with a kept plan that has equal ones.
    fn shared_ids(&self, ids: BufferIds) -> Arc<BufferIds> {
        match self.kept_plans.iter().find(|kept_plan| *kept_plan.ids == ids) {
            Some(kept_plan) => Arc::clone(&kept_plan.ids),
            None => Arc::new(ids),
        }
    }

    /// Plans a graph that no kept plan fits, puts its plan in front, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn add_plan(&mut self, lists: TensorLists<'_>, ids: Arc<BufferIds>) -> Result<(), AllocFailure> {
        // SAFETY: passed on.
        let kept_plan = unsafe { self.make_plan(lists, ids, self.settings.strategy) }?;
        self.kept_plans.insert(0, kept_plan);
        if self.kept_plans.len() > PLANS {
            // What serves smaller graphs goes first: there is another plan that serves them.
            let small = self.kept_plans.iter().rposition(|kept_plan| kept_plan.small.is_some());
            self.kept_plans.remove(small.unwrap_or(PLANS));
        }
        Ok(())
    }

    /// Plans a graph, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn make_plan(
        &mut self,
        lists: TensorLists<'_>,
        ids: Arc<BufferIds>,
        strategy: GraphStrategy,
    ) -> Result<KeptPlan, AllocFailure> {
        let purpose = ReadPurpose::Plan { glu: self.settings.reuse_more };
        // SAFETY: passed on.
        let graph = unsafe { read(self.ggml, lists, &self.memories, &ids, purpose) }?;
        // First of all: whatever goes wrong from here on can be looked into.
        if let Some(folder) = &self.settings.record_folder {
            // SAFETY: passed on.
            unsafe { record(self.ggml, lists, &self.memories, &ids, folder) };
        }
        let plan = self.solve(&graph.assigned, strategy)?;
        // SAFETY: the tensors that were just read.
        let pattern = unsafe { GraphPattern::new(&graph, &plan, &self.memories) };
        self.plans_made += 1;
        let needed = sizes(&plan);
        Ok(KeptPlan {
            number: self.plans_made,
            ids,
            pattern,
            needed,
            chunks: None,
            small: None,
            not_worth_while: SizeClasses::default(),
        })
    }

    /// Plans a graph: returns our plan, or ggml's where that is smaller, or the one that an earlier search left in the folder of plans.
    fn solve(&self, graph: &AssignedGraph, strategy: GraphStrategy) -> Result<GraphPlan, AllocFailure> {
        let start = Instant::now();
        let reuse = if self.settings.reuse_more { Reuse::Extended } else { Reuse::Ggml };
        let options = PlanOptions::new(strategy).with_reuse(reuse).with_unread(self.settings.unread);
        // Never worse than ggml's in any memory, and never wrong either.
        let folder = self.settings.plan_folder.as_deref();
        let SolvedPlan { plan, ggml, origin } = plan_folder::solve(folder, graph, &options, plan_beside_ggml)?;
        let planned = start.elapsed();
        if self.settings.replay_plans {
            replay(graph, &plan.places()).map_err(|faults| AllocFailure::Unplannable(faults.to_string()))?;
        }
        if self.settings.log {
            log_stderr!(
                "{} nodes in {}: {}, {:.2} ms{}{}",
                graph.graph().nodes().len(),
                names(&self.memories),
                figures(&plan, &ggml, &self.memories),
                planned.as_secs_f64() * 1e3,
                origin.note(),
                if self.settings.replay_plans { ", replayed" } else { "" },
            );
        }
        Ok(plan)
    }

    /// Moves the kept plan that fits the graph to the front, and binds its tensors. A plan that the buffers have room for is
    /// preferred, so that none is made anew without need. One that they have no room for must be this very graph's: the
    /// plan of a larger graph would take more than ggml does. To allocate in several memories, only what was reserved last
    /// will do.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn find_plan(&mut self, lists: TensorLists<'_>, purpose: LookupPurpose) -> PlanLookup {
        let (ggml_layout, has_small) = (self.uses_ggml_layout(), self.allows_small_plans());
        let only_first = purpose == LookupPurpose::Alloc && self.memories.types.len() > 1;
        let count = if only_first { self.kept_plans.len().min(1) } else { self.kept_plans.len() };
        let mut oversized: Option<(Bytes, usize, Bytes)> = None;
        for (is_backed, index) in (0..count).map(|index| (true, index)).chain((0..count).map(|index| (false, index))) {
            if !is_backed && (oversized.is_some() || only_first) {
                break;
            }
            if self.kept_plans[index].chunks.is_some() != is_backed {
                continue;
            }
            // ggml plans at each reserve, and knows the latest plan alone.
            let may_be_smaller = is_backed && !(ggml_layout && (purpose == LookupPurpose::Reserve || index > 0));
            // SAFETY: passed on.
            let verdict = unsafe { self.bind_tensors(lists, index) };
            let KeptPlan { pattern, .. } = &mut self.kept_plans[index];
            let room = match verdict {
                GraphMatch::Other => None,
                // SAFETY: passed on; the tensors have just been bound.
                _ if !may_be_smaller => unsafe { pattern.is_planned_graph(verdict) }.then_some(pattern.bytes),
                GraphMatch::Same => Some(pattern.expected_bytes),
                // SAFETY: as above.
                GraphMatch::Reshaped => unsafe { pattern.has_room(self.ggml, &self.memories) },
            };
            let (Some(bytes), has) = (room, pattern.bytes) else { continue };
            if !has_small || SizeClass::of(bytes, has).is_none() || self.kept_plans[index].peak() <= self.resident {
                if verdict == GraphMatch::Reshaped {
                    // SAFETY: as above.
                    unsafe { self.kept_plans[index].pattern.expect_these_shapes(bytes) };
                }
                self.kept_plans[..=index].rotate_right(1);
                return PlanLookup::Plan;
            }
            if oversized.is_none_or(|(least, ..)| has < least) {
                oversized = Some((has, index, bytes));
            }
        }
        let Some((_, index, bytes)) = oversized else { return PlanLookup::Nothing };
        self.kept_plans[..=index].rotate_right(1);
        PlanLookup::OversizedPlan(bytes)
    }

    /// Compares a graph with a kept plan's, and binds its tensors.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn bind_tensors(&mut self, lists: TensorLists<'_>, index: usize) -> GraphMatch {
        let Self { memories, kept_plans, buffer_sets, ids, .. } = self;
        let KeptPlan { ids: planned, pattern, chunks, .. } = &mut kept_plans[index];
        // With one memory there is nothing to assign.
        if memories.types.len() > 1 && ids.as_ref().is_some_and(|ids| !Arc::ptr_eq(ids, planned)) {
            return GraphMatch::Other;
        }
        // SAFETY: passed on.
        unsafe { pattern.compare(lists, |place| address(chunks.as_deref()?, buffer_sets, place)) }
    }

    /// Returns whether plans and buffers are to be as with ggml, to the byte.
    fn uses_ggml_layout(&self) -> bool {
        self.settings.strategy == GraphStrategy::Ggml
    }

    /// Gives the first kept plan the buffers that its plan needs, by ggml's rule: a memory that has no room for the plan gives
    /// all its buffers back, and gets those of the plan; one that has room keeps what it has. So a memory whose buffers
    /// are made anew has as many bytes as its plan, which are never more than ggml has then.
    ///
    /// If there is not enough memory, the others give back what they have beyond the plan, too. If that does not help, there
    /// are no buffers at all, and the next graph gets what it needs.
    fn grow(&mut self) -> Result<(), AllocFailure> {
        let Some(kept_plan) = self.kept_plans.first() else { return Ok(()) };
        if kept_plan.chunks.is_some() {
            return Ok(());
        }
        let needed = kept_plan.needed.clone();
        let (ggml_layout, ggml) = (self.uses_ggml_layout(), &self.ggml.functions);
        let mut plans_made = self.buffer_sets.iter_mut().zip(&needed).try_for_each(|(buffer_set, needed)| {
            match buffer_set.fit(needed, ggml_layout) {
                Some(_) => Ok(()),
                None => {
                    self.resident = Bytes::ZERO;
                    buffer_set.make(ggml, needed)
                }
            }
        });
        // ggml leaves the other memories as they are.
        if plans_made.is_err() && !ggml_layout {
            let helps =
                self.buffer_sets.iter().zip(&needed).any(|(buffer_set, needed)| buffer_set.total() > total(needed));
            self.buffer_sets.iter_mut().for_each(|buffer_set| buffer_set.free(ggml));
            if helps {
                plans_made = self
                    .buffer_sets
                    .iter_mut()
                    .zip(&needed)
                    .try_for_each(|(buffer_set, needed)| buffer_set.make(ggml, needed));
            }
            if plans_made.is_err() {
                self.buffer_sets.iter_mut().for_each(|buffer_set| buffer_set.free(ggml));
            }
        }
        self.match_chunks();
        plans_made?;
        self.drop_covered();
        Ok(())
    }

    /// Finds out which plans the buffers have room for.
    fn match_chunks(&mut self) {
        let ggml_layout = self.uses_ggml_layout();
        for kept_plan in &mut self.kept_plans {
            kept_plan.chunks = kept_plan.fit(&self.buffer_sets, ggml_layout);
        }
    }

    /// Gives the tensors bound to the first kept plan their addresses.
    ///
    /// # Safety
    /// The tensors have just been bound, their graph is still there, and the buffers are large enough.
    unsafe fn assign(&mut self) {
        let ggml = &self.ggml.functions;
        for chunk in self.buffer_sets.iter().flat_map(|buffer_set| &buffer_set.chunks) {
            // SAFETY: `grow` has made all of them.
            unsafe { (ggml.ggml_backend_buffer_reset)(chunk.buffer) };
        }
        let [kept_plan @ KeptPlan { pattern, chunks: Some(chunks), .. }, ..] = self.kept_plans.as_slice() else {
            return;
        };
        self.resident = self.resident.max(kept_plan.peak());
        if !pattern.has_unplaced {
            return;
        }
        for &AddressTarget { number, root, place } in &pattern.targets {
            let pointer = pattern.tensors[number as usize];
            // SAFETY: a tensor of the graph, see above.
            let tensor = unsafe { &*pointer };
            match place {
                TensorPlace::View => {
                    // SAFETY: as above; a root comes before its views.
                    let root = unsafe { &*pattern.tensors[root as usize] };
                    // A root of no bytes may have a buffer and no address. ggml would fail over that.
                    if tensor.buffer.is_null() && !root.buffer.is_null() && !root.data.is_null() {
                        // SAFETY: as ggml does it: a view without a buffer whose root has one.
                        unsafe { (ggml.ggml_backend_view_init)(pointer) };
                    }
                }
                place @ TensorPlace::Planned { .. } => {
                    let Some((buffer, address)) = address(chunks, &self.buffer_sets, place) else { continue };
                    if !tensor.is_placed() {
                        // SAFETY: within the buffer, because the plan is proven and the chunk is as large as it says; the
                        // tensor has no address yet.
                        unsafe { (ggml.ggml_backend_tensor_alloc)(buffer, pointer, address as *mut _) };
                    }
                }
                TensorPlace::External | TensorPlace::Nowhere => {}
            }
        }
    }
}

/// Gives all buffers back. ggml outlives the handle, as the caller of [`PlannedAllocator::new`] has promised.
impl Drop for PlannedAllocator {
    fn drop(&mut self) {
        self.buffer_sets.iter_mut().for_each(|buffer_set| buffer_set.free(&self.ggml.functions));
    }
}

impl KeptPlan {
    /// Returns the bytes of all buffers of the plan.
    fn peak(&self) -> Bytes {
        Bytes(self.needed.iter().map(|needed| total(needed)).fold(0, u64::saturating_add))
    }

    /// Returns for each memory the chunk of each of the plan's buffers; `None` if some are missing or too small.
    fn fit(&self, buffer_sets: &[BufferSet], ggml_layout: bool) -> Option<Vec<Vec<usize>>> {
        buffer_sets.iter().zip(&self.needed).map(|(buffer_set, needed)| buffer_set.fit(needed, ggml_layout)).collect()
    }
}

/// Returns the buffer sizes that a plan needs in each memory.
fn sizes(plan: &GraphPlan) -> Vec<Vec<Bytes>> {
    let needed = plan.memories().iter().map(|it| match it.plan.buffers().as_slice() {
        // As ggml, which has a buffer for each memory as soon as anything is reserved, if only of no bytes.
        [] => vec![Bytes::ZERO],
        buffers => buffers.to_vec(),
    });
    needed.collect()
}

/// Returns buffer and address of a planned place, given the chunk of each buffer.
#[inline]
fn address(chunks: &[Vec<usize>], buffer_sets: &[BufferSet], place: TensorPlace) -> Option<(GgmlBuffer, usize)> {
    let TensorPlace::Planned { buffer_set, buffer, offset, .. } = place else { return None };
    // Tensors of no bytes may be in buffers that do not exist: the first will do.
    let chunks = chunks.get(buffer_set as usize)?;
    let chunk = chunks.get(buffer as usize).or_else(|| chunks.first())?;
    let chunk = buffer_sets[buffer_set as usize].chunks.get(*chunk)?;
    Some((chunk.buffer, chunk.base + offset as usize))
}

/// Formats the bytes of ggml's plan, of ours and of the bound; with several memories, of each of them, too.
fn figures(plan: &GraphPlan, ggml: &IdVec<MemoryId, Bytes>, memories: &PlannedMemories) -> String {
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

fn names(memories: &PlannedMemories) -> String {
    let names: Vec<&str> = memories.planned.iter().map(|memory| memory.name.as_str()).collect();
    names.join("+")
}
