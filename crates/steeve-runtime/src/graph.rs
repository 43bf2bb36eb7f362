//! Plans graphs, and keeps the buffers that they run in.

use std::sync::Arc;

use steeve_device::{Bindings, BufferType, Bytes, Offset, SharedBuffer};
use steeve_graph::{
    AssignedGraph, Assignment, Graph, GraphPlan, GraphStrategy, Id, MemoryId, MemoryPlan, Named, Order, PlanMismatch,
    PlanOptions, SizeClass, TensorId, fit_buffers, plan_graph, share_buffers,
};

use crate::contents::SharedContents;
use crate::error::AtPeak;
use crate::memories::Memories;
use crate::planned::{PlanCache, PlannedGraph, ReadyPlan, externals};
use crate::pool::{BufferPool, ChunkMatches, ChunkSizes, NewChunkSizes, PoolBuffers, chunk_of, total};
use crate::shared_externals::shared_bytes;
use crate::{AllocError, AllocOptions, Allocation, GraphRequest, Replan, SmallGraphs};

/// Plans graphs, owns the buffers that they run in, and returns the addresses of their tensors.
///
/// `reserve` a graph of the worst case; `alloc` every graph that is to run. An unchanged graph costs one pass over its
/// nodes; a graph that needs another plan or larger buffers gets them, where the allocator may.
///
/// ```
/// use std::sync::Arc;
/// use steeve_runtime::GraphAllocator;
/// use steeve_device::{Bindings, BufferType, HostMemory};
/// use steeve_graph::{Bytes, Context, DataType, Graph};
///
/// let build = |tokens: u64| -> Result<_, steeve_graph::GraphError> {
///     let mut context = Context::new();
///     let x = context.input(DataType::F32, &[256, tokens])?;
///     let h = context.sqr(x)?;
///     let y = context.neg(h)?;
///     context.set_output(y)?;
///     Ok((x, y, Graph::from_outputs(&context, &[y])?))
/// };
/// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
/// let mut allocator = GraphAllocator::new(&memory);
/// let (.., prompt) = build(512)?;
/// assert_eq!(allocator.required(&prompt)?, [Bytes(512 << 10)]); // nothing is allocated yet
/// assert_eq!(allocator.buffer_size(0)?, Bytes(0));
/// allocator.reserve(&prompt)?;
/// assert_eq!(allocator.buffer_size(0)?, Bytes(512 << 10));
///
/// let (x, _, token) = build(1)?;
/// let allocation = allocator.alloc(&token, &Bindings::new())?;
/// allocation.write(x, &[1.5f32; 256])?;
/// assert_eq!(allocator.buffer_size(0)?, Bytes(512 << 10)); // the plan of the larger graph fits
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GraphAllocator {
    memories: Memories,
    options: AllocOptions,
    pool: BufferPool,
    plans: PlanCache,
    contents: Arc<SharedContents>,
    /// The peak of the largest plan that was used since buffers were made: so many bytes are resident.
    resident: Bytes,
}

impl GraphAllocator {
    /// Creates an allocator with one kind of memory.
    pub fn new(memory: &Arc<dyn BufferType>) -> Self {
        match Self::with_buffers([Arc::clone(memory)]) {
            Ok(allocator) => allocator,
            Err(error) => unreachable!("one buffer type is enough: {error}"),
        }
    }

    /// Creates an allocator with several kinds of memory, to which leafs and nodes are assigned by index. One that is listed
    /// twice is one memory. Fails without any.
    pub fn with_buffers(memories: impl IntoIterator<Item = Arc<dyn BufferType>>) -> Result<Self, AllocError> {
        let memories = Memories::new(memories.into_iter().collect())?;
        let pool = BufferPool::new(&memories);
        let (options, plans, contents) = (AllocOptions::new(), PlanCache::default(), Arc::default());
        Ok(Self { memories, options, pool, plans, contents, resident: Bytes::ZERO })
    }

    /// Returns this allocator with other options, see [`set_options`](Self::set_options).
    #[must_use]
    pub fn with_options(mut self, options: AllocOptions) -> Self {
        self.set_options(options);
        self
    }

    /// Sets other options, such as a larger budget when memory has become free. Existing plans and buffers stay; the
    /// options are those of the next reservation.
    pub fn set_options(&mut self, options: AllocOptions) {
        self.options = options;
    }

    /// Forgets all plans and frees all buffers; the next `alloc` makes them again, as large as they must be then. Earlier
    /// handles become stale. Fails while a run is in progress.
    pub fn release(&mut self) -> Result<(), AllocError> {
        self.contents.lock().lose()?;
        self.plans = PlanCache::default();
        self.pool = BufferPool::new(&self.memories);
        Ok(())
    }

    /// Returns the options.
    pub fn options(&self) -> &AllocOptions {
        &self.options
    }

    /// Returns the bytes that each buffer needs for a graph, without allocating any. With several memories and no assignment
    /// everything is in the first.
    pub fn required<'a>(&self, request: impl Into<GraphRequest<'a>>) -> Result<Vec<Bytes>, AllocError> {
        let plan = self.plan(request.into())?;
        let mut sizes = vec![Bytes::ZERO; self.memories.planned().len()];
        for memory in plan.memories() {
            sizes[memory.memory.index()] = memory.plan.peak();
        }
        Ok(sizes)
    }

    /// Plans a graph and makes the buffers large enough for it. With several memories and no assignment everything is in the
    /// first; with an assignment a node that is written over a source is located with that source, also in another memory
    /// than its own, as with ggml.
    ///
    /// Earlier handles stay valid, unless a buffer has to grow.
    pub fn reserve<'a>(&mut self, request: impl Into<GraphRequest<'a>>) -> Result<(), AllocError> {
        let request = request.into();
        let (graph, assignment) = (request.graph, request.assignment());
        let Self { memories, plans, .. } = self;
        let same = |planned: &PlannedGraph| *planned.plan.assigned().assignment() == *assignment;
        if plans.find(|planned| same(planned) && planned.accepts(graph, memories)).is_none() {
            match plans.without_buffers(|planned| same(planned) && planned.is_made_for(graph, memories)) {
                Some(planned) => self.use_plans(vec![planned])?,
                None => {
                    let plan = self.plan(request)?;
                    self.use_plans(vec![Arc::new(PlannedGraph::new(plan))])?;
                }
            }
        }
        self.pool.complete()?;
        Ok(())
    }

    /// Plans several graphs, which never run at the same time, and makes the buffers large enough for each. All of them are
    /// reserved, or none.
    pub fn reserve_all<'a>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<GraphRequest<'a>>>,
    ) -> Result<(), AllocError> {
        let plan = |request: GraphRequest<'_>| Ok(Arc::new(PlannedGraph::new(self.plan(request)?)));
        let plans = requests.into_iter().map(|request| plan(request.into())).collect::<Result<Vec<_>, AllocError>>()?;
        self.use_plans(plans)?;
        self.pool.complete()?;
        Ok(())
    }

    /// Makes the buffers large enough for an existing plan, such as one from a file. Fails if it was made for other memories.
    pub fn reserve_planned(&mut self, plan: GraphPlan) -> Result<(), AllocError> {
        let assigned = plan.assigned();
        if assigned.memories() != self.memories.planned() {
            let names = |memories: &[steeve_graph::Memory]| {
                memories.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let (planned, own) = (names(assigned.memories().as_slice()), names(self.memories.planned().as_slice()));
            return Err(AllocError::OtherMemories { planned, own });
        }
        let unheld = plan.memories().iter().filter(|it| !it.keeps_extra_lifetime);
        let mut unheld =
            unheld.map(|it| &self.memories.planned()[it.memory]).filter(|memory| memory.extra_lifetime > 0);
        if let Some(memory) = unheld.next()
            && self.options.plan.strategy != GraphStrategy::Ggml
        {
            return Err(AllocError::NoExtraLifetime {
                memory: memory.name.clone(),
                extra_lifetime: memory.extra_lifetime,
            });
        }
        let graph = assigned.graph();
        plan.fits_graph(graph, |tensor, memory| self.memories.size(graph, tensor, memory))
            .map_err(AllocError::PlanMisfit)?;
        self.use_plans(vec![Arc::new(PlannedGraph::new(plan))])?;
        self.pool.complete()?;
        Ok(())
    }

    /// Returns a graph with all that planning needs: the allocator's memories, which of them each leaf and node belongs to, and
    /// the bytes that each tensor takes there. Its text is what `steeve plan` reads.
    pub fn assign<'a>(&self, request: impl Into<GraphRequest<'a>>) -> Result<AssignedGraph, AllocError> {
        let request = request.into();
        self.memories.assign(request.graph, request.assignment().into_owned())
    }

    /// Returns the kept plan that `alloc` would use for a graph now, to be looked at or saved. Until a small graph has been
    /// allocated by a plan of its own ([`SmallGraphs::OwnPlan`]), that is the larger plan that it fits.
    pub fn plan_of(&self, graph: &Graph) -> Option<&GraphPlan> {
        let memories = &self.memories;
        let accepts = |planned: &PlannedGraph| planned.accepts(graph, memories);
        let close = if self.has_small_plans() {
            self.plans.get_close(accepts, |planned| planned.bytes_of(graph, memories), self.resident)
        } else {
            None
        };
        close.or_else(|| self.plans.iter().find(|planned| accepts(planned))).map(|planned| &planned.plan)
    }

    /// Returns where the tensors of a graph are located; external tensors are located where `bindings` says.
    ///
    /// A plan that fits is used, and this is one pass over the graph that allocates nothing. Otherwise the graph is planned
    /// as [`Replan`] allows, and buffers grow where they must. With an assignment a plan fits only if it was made for that
    /// one, and what is not planned yet is, unless that is [never](Replan::Never) allowed. Buffers are reset.
    pub fn alloc<'a>(
        &mut self,
        request: impl Into<GraphRequest<'a>>,
        bindings: &Bindings,
    ) -> Result<Allocation, AllocError> {
        let GraphRequest { graph, assignment } = request.into();
        self.contents.lock().check_idle()?;
        let same = |planned: &PlannedGraph| {
            assignment.is_none_or(|asked| planned.plan.assigned().assignment() == asked)
                && planned.allows(graph, bindings)
        };
        let found = match self.find(graph, same) {
            Some(found) => found,
            None => {
                // Before buffers are made anew, and contents are lost.
                let (externals, changed) = externals(graph);
                self.check_bound(&externals, graph, bindings)?;
                let mut options = self.options.plan;
                if options.order == Order::Best && shared_bytes(graph, &externals, &changed, bindings).is_some() {
                    options.order = Order::Keep;
                }
                let allows = |planned: &PlannedGraph| planned.allows(graph, bindings);
                let planned = match assignment {
                    Some(assignment) => self.plan_again_as(graph, assignment, &options, allows)?,
                    None => self.plan_again(graph, &options, allows)?,
                };
                self.keep(planned)?
            }
        };
        self.place(found, graph, bindings)
    }

    /// Returns a plan that has buffers and accepts `graph`, among those for which `is` holds.
    fn find(&mut self, graph: &Graph, is: impl Fn(&PlannedGraph) -> bool) -> Option<ReadyPlan> {
        let has_small_plans = self.has_small_plans();
        let Self { memories, plans, .. } = self;
        let accepts = |planned: &PlannedGraph| is(planned) && planned.accepts(graph, memories);
        if !has_small_plans {
            return plans.find(accepts);
        }
        match plans.find_close(accepts, |planned| planned.bytes_of(graph, memories), self.resident)? {
            (found, None) => Some(found),
            (found, Some(bytes)) => Some(self.plan_small(graph, &found.0, bytes).unwrap_or(found)),
        }
    }

    /// Returns whether graphs that are far smaller than a plan get one of their own.
    fn has_small_plans(&self) -> bool {
        self.options.small_graphs == SmallGraphs::OwnPlan && self.memories.is_single()
    }

    /// Makes a plan for a graph of so many bytes, which fits a far larger plan, where that is worth while.
    fn plan_small(&mut self, graph: &Graph, large: &PlannedGraph, bytes: Bytes) -> Option<ReadyPlan> {
        let small = self.plans.small(bytes, self.options.plans)?;
        // A search may take its time once, for the largest graph.
        let mut options = self.options.plan;
        if matches!(options.strategy, GraphStrategy::Best(_)) {
            options.strategy = GraphStrategy::Fast;
        }
        let assignment = large.plan.assigned().assignment();
        let plan = self.plan_with(GraphRequest::from((graph, assignment)), &options).ok();
        let plan = plan.filter(|plan| SizeClass::of(plan.peak(), large.plan.peak()).is_some());
        let found = plan.and_then(|plan| self.plans.keep_small(PlannedGraph::new(plan), small.clone(), &self.pool));
        if found.is_none() {
            self.plans.forgo_small(&small);
        }
        found
    }

    /// Creates a handle to a graph that is planned and has buffers.
    fn place(
        &mut self,
        (planned, chunks): ReadyPlan,
        graph: &Graph,
        bindings: &Bindings,
    ) -> Result<Allocation, AllocError> {
        self.check_bound(&planned.externals, graph, bindings)?;
        self.resident = self.resident.max(planned.plan.peak());
        let buffers = Arc::clone(self.pool.complete()?);
        let handle = self.contents.lock().new_handle()?;
        for buffer in buffers.all() {
            buffer.borrow_mut()?.reset()?;
        }
        if buffers.hooked {
            show_tensors(&planned, &chunks, &buffers, graph)?;
        }
        let contents = Arc::clone(&self.contents);
        Ok(Allocation::new(graph.clone(), bindings.clone(), (planned, chunks), buffers, contents, handle))
    }

    /// Returns how many bytes are allocated for buffer `index`: 0 if none are, and for a memory that is listed a second time.
    pub fn buffer_size(&self, index: usize) -> Result<Bytes, AllocError> {
        let buffers = self.memories.planned().len();
        let memory = MemoryId::from_index(index).filter(|_| index < buffers);
        let memory = memory.ok_or(AllocError::BufferIndex { index, buffers })?;
        match self.memories.planned()[memory].shared_with {
            Some(_) => Ok(Bytes::ZERO),
            None => Ok(self.pool.allocated(memory)),
        }
    }

    /// Sets all bytes of all buffers, so that reads of what was never written show. All handles become stale.
    pub fn clear(&mut self, byte: u8) -> Result<(), AllocError> {
        let buffers = Arc::clone(self.pool.complete()?);
        self.contents.lock().lose()?;
        for buffer in buffers.all() {
            buffer.clear(byte)?;
        }
        Ok(())
    }

    fn plan(&self, request: GraphRequest<'_>) -> Result<GraphPlan, AllocError> {
        self.plan_with(request, &self.options.plan)
    }

    fn plan_with(&self, request: GraphRequest<'_>, options: &PlanOptions) -> Result<GraphPlan, AllocError> {
        Ok(plan_graph(&self.assign(request)?, options)?)
    }

    /// Returns a plan without buffers for a graph: one that was made for it, or a new one where that is allowed, or
    /// one that it fits.
    fn plan_again(
        &self,
        graph: &Graph,
        options: &PlanOptions,
        allows: impl Fn(&PlannedGraph) -> bool,
    ) -> Result<Arc<PlannedGraph>, AllocError> {
        let (single, memories) = (self.memories.is_single(), &self.memories);
        let made_for = |planned: &PlannedGraph| planned.is_made_for(graph, memories) && allows(planned);
        if let Some(planned) = self.plans.without_buffers(made_for) {
            return Ok(planned);
        }
        let assignment = match (self.options.replan, self.plans.latest()) {
            (Replan::OneMemory | Replan::Always, _) if single => Assignment::single(graph),
            (_, None) => return Err(AllocError::NothingReserved),
            (Replan::Always, Some(latest)) if is_as_long(latest, graph) => latest.plan.assigned().assignment().clone(),
            (_, Some(_)) => {
                let accepts = |planned: &PlannedGraph| planned.accepts(graph, memories) && allows(planned);
                return self.plans.without_buffers(accepts).ok_or_else(|| self.not_reserved(graph));
            }
        };
        Ok(Arc::new(PlannedGraph::new(self.plan_with(GraphRequest::from((graph, &assignment)), options)?)))
    }

    /// Returns a plan without buffers for a graph and an assignment: one that was made for them, or a new one where that
    /// is allowed, or one that they fit.
    fn plan_again_as(
        &self,
        graph: &Graph,
        assignment: &Assignment,
        options: &PlanOptions,
        allows: impl Fn(&PlannedGraph) -> bool,
    ) -> Result<Arc<PlannedGraph>, AllocError> {
        let same = |planned: &PlannedGraph| planned.plan.assigned().assignment() == assignment && allows(planned);
        let made_for = |planned: &PlannedGraph| same(planned) && planned.is_made_for(graph, &self.memories);
        let accepts = |planned: &PlannedGraph| same(planned) && planned.accepts(graph, &self.memories);
        match (self.plans.without_buffers(made_for), self.options.replan) {
            (Some(planned), _) => Ok(planned),
            (None, Replan::Never) => self.plans.without_buffers(accepts).ok_or_else(|| self.not_reserved(graph)),
            (None, Replan::OneMemory | Replan::Always) => {
                Ok(Arc::new(PlannedGraph::new(self.plan_with(GraphRequest::from((graph, assignment)), options)?)))
            }
        }
    }

    /// Returns the error for a graph that fits no plan.
    fn not_reserved(&self, graph: &Graph) -> AllocError {
        let Some(latest) = self.plans.latest() else { return AllocError::NothingReserved };
        let size = |tensor, memory| self.memories.size(graph, tensor, memory);
        // If the plan fits after all, it is for other memories.
        let misfit = latest.plan.fits_graph(graph, size).err().unwrap_or(PlanMismatch::Memories);
        AllocError::NeedsReserve { misfit }
    }

    /// Makes the buffers that a plan needs, and keeps it as the latest.
    fn keep(&mut self, planned: Arc<PlannedGraph>) -> Result<ReadyPlan, AllocError> {
        self.use_plans(vec![Arc::clone(&planned)])?;
        match self.plans.find(|latest| std::ptr::eq(latest, &*planned)) {
            Some(found) => Ok(found),
            None => unreachable!("the plan has just been kept, and its buffers made"),
        }
    }

    /// Makes the buffers that all of the plans need, and keeps these plans, or none if that fails.
    ///
    /// A memory that has room for them keeps its buffers. Any other, and one above its budget, gets the buffers that the
    /// plans need and no more, so that it never has more bytes than ggml would: what it has from earlier graphs goes.
    fn use_plans(&mut self, plans: Vec<Arc<PlannedGraph>>) -> Result<(), AllocError> {
        let buffers = self.memories.planned().len();
        if let Some((&index, _)) = self.options.budgets.range(buffers..).next() {
            return Err(AllocError::BufferIndex { index, buffers });
        }
        let mut needed: ChunkSizes = vec![Vec::new(); self.pool.sizes().len()];
        for planned in &plans {
            for (sizes, buffers) in needed.iter_mut().zip(planned.needed()) {
                share_buffers(sizes, &buffers);
            }
            self.check_budgets(&planned.plan, &needed)?;
        }
        self.make_buffers(needed)?;
        // Plans that are reserved together are kept together.
        let most = self.options.plans.max(plans.len());
        for planned in plans {
            self.contents.lock().make_room(planned.plan.assigned().graph().tensors().len());
            self.plans.keep(planned, &self.pool, &self.memories, most);
        }
        Ok(())
    }

    /// Replaces the buffers of each memory that has too little room by those that are needed. If there is not enough memory,
    /// the others are replaced too, which frees what they have beyond that.
    fn make_buffers(&mut self, needed: ChunkSizes) -> Result<(), AllocError> {
        let wanted: NewChunkSizes = self
            .memories
            .owners()
            .zip(needed.iter().zip(self.pool.sizes()))
            .map(|(owner, (needed, sizes))| {
                let is_within = self.budget(owner).is_none_or(|budget| total(&sizes) <= budget);
                let fits = fit_buffers(&sizes, needed).is_some() && is_within;
                (!fits).then(|| needed.clone())
            })
            .collect();
        if wanted.iter().all(Option::is_none) {
            return Ok(());
        }
        self.contents.lock().check_idle()?;
        self.pool.check_free(&wanted)?;
        if self.pool.must_replace(&wanted) {
            self.contents.lock().lose()?;
        }
        self.resident = Bytes::ZERO;
        let mut made = self.pool.remake(&wanted);
        if made.is_err() && self.pool.has_more_than(&needed) {
            let all: NewChunkSizes = needed.into_iter().map(Some).collect();
            // Where a run has begun meanwhile, the other memories stay as they are.
            if self.pool.check_free(&all).is_ok() && self.contents.lock().lose().is_ok() {
                made = self.pool.remake(&all);
            }
        }
        self.plans.match_chunks(&self.pool);
        made
    }

    /// Returns the budget of a memory: the smallest of those of its indices.
    fn budget(&self, owner: MemoryId) -> Option<Bytes> {
        let mentions = self.memories.planned().pairs().filter(|(id, it)| it.shared_with.unwrap_or(*id) == owner);
        mentions.filter_map(|(id, _)| self.options.budget(id.index())).min()
    }

    /// Fails if an external tensor has no memory, too little of it, or some that is planned for other tensors. Both lists are
    /// in order, so this is one pass.
    fn check_bound(&self, externals: &[TensorId], graph: &Graph, bindings: &Bindings) -> Result<(), AllocError> {
        let mut bound = bindings.iter().peekable();
        let mut known: Option<&SharedBuffer> = None;
        for &tensor in externals {
            let needed = graph.tensor(tensor).nbytes();
            let named = || Named::new(tensor, graph.names());
            while bound.next_if(|(other, _)| *other < tensor).is_some() {}
            let Some((other, address)) = bound.next_if(|(other, _)| *other == tensor) else {
                return Err(AllocError::Unbound { tensor: named() });
            };
            graph.tensors().find(other)?;
            if address.size < needed {
                return Err(AllocError::BoundTooSmall { tensor: named(), needed, bound: address.size });
            }
            if known.is_none_or(|known| !known.is_same(address.buffer)) {
                if self.pool.owns(address.buffer) {
                    return Err(AllocError::BoundToPlanned { tensor: named() });
                }
                known = Some(address.buffer);
            }
        }
        Ok(())
    }

    fn check_budgets(&self, plan: &GraphPlan, sizes: &ChunkSizes) -> Result<(), AllocError> {
        for (it, sizes) in plan.memories().iter().zip(sizes) {
            let Some(budget) = self.budget(it.memory) else { continue };
            let needed = total(sizes);
            if needed > budget {
                let (memory, index) = (self.memories.planned()[it.memory].name.clone(), it.memory.index());
                return Err(AllocError::OverBudget { memory, index, needed, budget, at_peak: at_peak(plan, it) });
            }
        }
        Ok(())
    }
}

/// Makes all handles stale.
impl Drop for GraphAllocator {
    fn drop(&mut self) {
        let _ = self.contents.lock().lose();
    }
}

/// Returns whether an assignment for the plan's graph is one for `graph`: they have as many nodes and leafs.
fn is_as_long(planned: &PlannedGraph, graph: &Graph) -> bool {
    let old = planned.plan.assigned().graph();
    (old.nodes().len(), old.leafs().len()) == (graph.nodes().len(), graph.leafs().len())
}

/// Returns the tensors that are live when most bytes are, the largest first.
fn at_peak(plan: &GraphPlan, it: &MemoryPlan) -> AtPeak {
    let names = plan.assigned().graph().names();
    let size = |block: &steeve_graph::BlockId| it.plan.problem().blocks()[*block].size;
    let mut blocks = it.plan.report().alive_at_bound;
    blocks.sort_by_key(|block| (std::cmp::Reverse(size(block)), *block));
    AtPeak(blocks.iter().map(|block| (Named::new(it.tensors[*block], names), size(block))).collect())
}

/// Calls the [hook](steeve_device::Buffer::init_hook) of each buffer that has one for all planned tensors in it.
fn show_tensors(
    planned: &PlannedGraph,
    chunks: &ChunkMatches,
    buffers: &PoolBuffers,
    graph: &Graph,
) -> Result<(), AllocError> {
    let mut by_buffer: Vec<(usize, usize, Offset, TensorId)> = Vec::new();
    // Tensors that were built after planning are not in the plan.
    for tensor in graph.tensors().ids().take(planned.plan.assigned().graph().tensors().len()) {
        let Some(place) = planned.plan.place(graph.root(tensor)) else { continue };
        let (number, _) = buffers.of(place.memory);
        let chunk = chunk_of(chunks, number, place.buffer);
        by_buffer.push((number, chunk, Offset(place.offset.0 + graph.tensors().offset(tensor).0), tensor));
    }
    by_buffer.sort_by_key(|(number, chunk, ..)| (*number, *chunk));
    for run in by_buffer.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let Some(&(number, chunk, ..)) = run.first() else { continue };
        let mut buffer = buffers.memories[number][chunk].borrow_mut()?;
        let Some(hook) = buffer.init_hook() else { continue };
        for (_, _, offset, tensor) in run {
            hook.init_tensor(graph.tensors(), *tensor, *offset)?;
        }
    }
    Ok(())
}
