//! Plans graphs, and keeps the buffers that they run in.

use std::sync::Arc;

use steeve_device::{Bindings, BufferType, Bytes, Offset, SharedBuffer};
use steeve_graph::{
    AssignedGraph, Assignment, Graph, GraphPlan, GraphStrategy, Id, MemoryId, MemoryPlan, Named, PlanMismatch,
    PlanOptions, SizeClass, TensorId, fit_buffers, plan_graph, share_buffers,
};

use crate::contents::Contents;
use crate::error::AtPeak;
use crate::memories::Memories;
use crate::planned::{Found, Planned, Plans, externals};
use crate::pool::{Buffers, Matching, Pool, Sizes, Wanted, chunk_of, total};
use crate::{AllocError, AllocOptions, Allocation, GraphRequest, Replan, SmallGraphs};

/// Plans graphs, owns the buffers that they run in, and tells where each tensor stands.
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
    pool: Pool,
    plans: Plans,
    contents: Arc<Contents>,
    /// The largest plan that a graph was allocated by since buffers were made. What it takes is resident.
    resident: Bytes,
}

impl GraphAllocator {
    /// Everything in one kind of memory.
    pub fn new(memory: &Arc<dyn BufferType>) -> Self {
        match Self::with_buffers([Arc::clone(memory)]) {
            Ok(allocator) => allocator,
            Err(error) => unreachable!("one buffer type is enough: {error}"),
        }
    }

    /// Several kinds of memory, which leafs and nodes are assigned to by their index. The same one twice is one memory.
    pub fn with_buffers(memories: impl IntoIterator<Item = Arc<dyn BufferType>>) -> Result<Self, AllocError> {
        let memories = Memories::new(memories.into_iter().collect())?;
        let pool = Pool::new(&memories);
        let (options, plans, contents) = (AllocOptions::new(), Plans::default(), Arc::default());
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

    /// Forgets all plans and gives all buffers back; the next `alloc` makes them again, as large as they must be then.
    /// Handles from before are stale.
    pub fn release(&mut self) -> Result<(), AllocError> {
        self.contents.lock().lose()?;
        self.plans = Plans::default();
        self.pool = Pool::new(&self.memories);
        Ok(())
    }

    /// The options.
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
    /// Handles from before stay valid, unless a buffer has to grow.
    pub fn reserve<'a>(&mut self, request: impl Into<GraphRequest<'a>>) -> Result<(), AllocError> {
        let request = request.into();
        let (graph, assignment) = (request.graph, request.assignment());
        let Self { memories, plans, .. } = self;
        let same = |planned: &Planned| *planned.plan.assigned().assignment() == *assignment;
        if plans.find(|planned| same(planned) && planned.accepts(graph, memories)).is_none() {
            match plans.without_buffers(|planned| same(planned) && planned.is_made_for(graph, memories)) {
                Some(planned) => self.use_plans(vec![planned])?,
                None => {
                    let plan = self.plan(request)?;
                    self.use_plans(vec![Arc::new(Planned::new(plan))])?;
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
        let plan = |request: GraphRequest<'_>| Ok(Arc::new(Planned::new(self.plan(request)?)));
        let plans = requests.into_iter().map(|request| plan(request.into())).collect::<Result<Vec<_>, AllocError>>()?;
        self.use_plans(plans)?;
        self.pool.complete()?;
        Ok(())
    }

    /// Reserves for a plan that exists already, perhaps read from a file. It must have been made for the same memories.
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
            return Err(AllocError::IgnoresHold { memory: memory.name.clone(), hold: memory.extra_lifetime });
        }
        let graph = assigned.graph();
        plan.fits_graph(graph, |tensor, memory| self.memories.size(graph, tensor, memory))
            .map_err(AllocError::PlanMisfit)?;
        self.use_plans(vec![Arc::new(Planned::new(plan))])?;
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
        let accepts = |planned: &Planned| planned.accepts(graph, memories);
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
        let same = |planned: &Planned| assignment.is_none_or(|asked| planned.plan.assigned().assignment() == asked);
        let found = match self.find(graph, same) {
            Some(found) => found,
            None => {
                // Before buffers are made anew, and contents are lost.
                self.check_bound(&externals(graph), graph, bindings)?;
                let planned = match assignment {
                    Some(assignment) => self.plan_again_as(graph, assignment)?,
                    None => self.plan_again(graph)?,
                };
                self.keep(planned)?
            }
        };
        self.place(found, graph, bindings)
    }

    /// A plan that there are buffers for and that may be used for `graph`, among those that `is` says yes to.
    fn find(&mut self, graph: &Graph, is: impl Fn(&Planned) -> bool) -> Option<Found> {
        let has_small_plans = self.has_small_plans();
        let Self { memories, plans, .. } = self;
        let accepts = |planned: &Planned| is(planned) && planned.accepts(graph, memories);
        if !has_small_plans {
            return plans.find(accepts);
        }
        match plans.find_close(accepts, |planned| planned.bytes_of(graph, memories), self.resident)? {
            (found, None) => Some(found),
            (found, Some(bytes)) => Some(self.plan_small(graph, &found.0, bytes).unwrap_or(found)),
        }
    }

    /// Whether graphs that are far smaller than a plan get one of their own.
    fn has_small_plans(&self) -> bool {
        self.options.small_graphs == SmallGraphs::OwnPlan && self.memories.is_single()
    }

    /// A plan of its own for a graph of so many bytes, which fits a far larger plan, where that is worth while.
    fn plan_small(&mut self, graph: &Graph, large: &Planned, bytes: Bytes) -> Option<Found> {
        let small = self.plans.small(bytes, self.options.plans)?;
        // A search may take its time once, for the largest graph.
        let mut options = self.options.plan;
        if matches!(options.strategy, GraphStrategy::Best(_)) {
            options.strategy = GraphStrategy::Fast;
        }
        let assignment = large.plan.assigned().assignment();
        let plan = self.plan_with(GraphRequest::from((graph, assignment)), &options).ok();
        let plan = plan.filter(|plan| SizeClass::of(plan.peak(), large.plan.peak()).is_some());
        let found = plan.and_then(|plan| self.plans.keep_small(Planned::new(plan), small.clone(), &self.pool));
        if found.is_none() {
            self.plans.forgo_small(&small);
        }
        found
    }

    /// A handle to a graph that is planned and has buffers.
    fn place(
        &mut self,
        (planned, chunks): Found,
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

    /// How many bytes are allocated for buffer `index`: 0 where nothing is, and for the second mention of a memory.
    pub fn buffer_size(&self, index: usize) -> Result<Bytes, AllocError> {
        let buffers = self.memories.planned().len();
        let memory = MemoryId::from_index(index).filter(|_| index < buffers);
        let memory = memory.ok_or(AllocError::BufferIndex { index, buffers })?;
        match self.memories.planned()[memory].shared_with {
            Some(_) => Ok(Bytes::ZERO),
            None => Ok(self.pool.allocated(memory)),
        }
    }

    /// Sets all bytes of all buffers, so that whoever reads what was never written sees it. All handles are stale.
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

    /// A plan for a graph for which there are no buffers: one that was made for it, or a new one where that is allowed, or
    /// one that it fits.
    fn plan_again(&self, graph: &Graph) -> Result<Arc<Planned>, AllocError> {
        let (single, memories) = (self.memories.is_single(), &self.memories);
        if let Some(planned) = self.plans.without_buffers(|planned| planned.is_made_for(graph, memories)) {
            return Ok(planned);
        }
        let assignment = match (self.options.replan, self.plans.latest()) {
            (Replan::OneMemory | Replan::Always, _) if single => Assignment::single(graph),
            (_, None) => return Err(AllocError::NothingReserved),
            (Replan::Always, Some(latest)) if is_as_long(latest, graph) => latest.plan.assigned().assignment().clone(),
            (_, Some(_)) => {
                let accepts = |planned: &Planned| planned.accepts(graph, memories);
                return self.plans.without_buffers(accepts).ok_or_else(|| self.not_reserved(graph));
            }
        };
        Ok(Arc::new(Planned::new(self.plan(GraphRequest::from((graph, &assignment)))?)))
    }

    /// A plan for a graph and an assignment for which there are no buffers: one that was made for them, or a new one where that
    /// is allowed, or one that they fit.
    fn plan_again_as(&self, graph: &Graph, assignment: &Assignment) -> Result<Arc<Planned>, AllocError> {
        let same = |planned: &Planned| planned.plan.assigned().assignment() == assignment;
        let made_for = |planned: &Planned| same(planned) && planned.is_made_for(graph, &self.memories);
        let accepts = |planned: &Planned| same(planned) && planned.accepts(graph, &self.memories);
        match (self.plans.without_buffers(made_for), self.options.replan) {
            (Some(planned), _) => Ok(planned),
            (None, Replan::Never) => self.plans.without_buffers(accepts).ok_or_else(|| self.not_reserved(graph)),
            (None, Replan::OneMemory | Replan::Always) => {
                Ok(Arc::new(Planned::new(self.plan(GraphRequest::from((graph, assignment)))?)))
            }
        }
    }

    /// What to say about a graph that no plan fits.
    fn not_reserved(&self, graph: &Graph) -> AllocError {
        let Some(latest) = self.plans.latest() else { return AllocError::NothingReserved };
        let size = |tensor, memory| self.memories.size(graph, tensor, memory);
        // If the plan fits after all, it is for other memories.
        let misfit = latest.plan.fits_graph(graph, size).err().unwrap_or(PlanMismatch::Memories);
        AllocError::NeedsReserve { misfit }
    }

    /// Makes the buffers that a plan needs, and keeps it as the latest.
    fn keep(&mut self, planned: Arc<Planned>) -> Result<Found, AllocError> {
        self.use_plans(vec![Arc::clone(&planned)])?;
        match self.plans.find(|latest| std::ptr::eq(latest, &*planned)) {
            Some(found) => Ok(found),
            None => unreachable!("the plan has just been kept, and its buffers made"),
        }
    }

    /// Makes the buffers that all of the plans need, and keeps those. All or nothing.
    ///
    /// A memory that has room for them keeps its buffers. Any other, and one above its budget, gets the buffers that the
    /// plans need and no more, so that it never has more bytes than ggml would: what it has from earlier graphs goes.
    fn use_plans(&mut self, plans: Vec<Arc<Planned>>) -> Result<(), AllocError> {
        let buffers = self.memories.planned().len();
        if let Some((&index, _)) = self.options.budgets.range(buffers..).next() {
            return Err(AllocError::BufferIndex { index, buffers });
        }
        let mut needed: Sizes = vec![Vec::new(); self.pool.sizes().len()];
        for planned in &plans {
            for (sizes, buffers) in needed.iter_mut().zip(planned.needed()) {
                share_buffers(sizes, &buffers);
            }
            self.check_budgets(&planned.plan, &needed)?;
        }
        self.make_buffers(needed)?;
        // What is reserved together is kept together.
        let most = self.options.plans.max(plans.len());
        for planned in plans {
            self.contents.lock().make_room(planned.plan.assigned().graph().tensors().len());
            self.plans.keep(planned, &self.pool, &self.memories, most);
        }
        Ok(())
    }

    /// Has each memory with too little room make the buffers that are needed instead of its own. If there is not enough
    /// memory, the others give back what they have beyond that, too.
    fn make_buffers(&mut self, needed: Sizes) -> Result<(), AllocError> {
        let wanted: Wanted = self
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
            let all: Wanted = needed.into_iter().map(Some).collect();
            // Where a run has begun meanwhile, the other memories stay as they are.
            if self.pool.check_free(&all).is_ok() && self.contents.lock().lose().is_ok() {
                made = self.pool.remake(&all);
            }
        }
        self.plans.match_chunks(&self.pool);
        made
    }

    /// What a memory may take, under whichever of its mentions that was said.
    fn budget(&self, owner: MemoryId) -> Option<Bytes> {
        let mentions = self.memories.planned().pairs().filter(|(id, it)| it.shared_with.unwrap_or(*id) == owner);
        mentions.filter_map(|(id, _)| self.options.budget(id.index())).min()
    }

    /// Every external tensor has memory, enough of it, and none that is planned for something else. Both lists are in
    /// order, so this is one walk.
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

    fn check_budgets(&self, plan: &GraphPlan, sizes: &Sizes) -> Result<(), AllocError> {
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

/// Handles that are still there are stale.
impl Drop for GraphAllocator {
    fn drop(&mut self) {
        let _ = self.contents.lock().lose();
    }
}

/// Whether an assignment for the plan's graph is one for `graph`.
fn is_as_long(planned: &Planned, graph: &Graph) -> bool {
    let old = planned.plan.assigned().graph();
    (old.nodes().len(), old.leafs().len()) == (graph.nodes().len(), graph.leafs().len())
}

/// The tensors that live when most bytes are live, the largest first.
fn at_peak(plan: &GraphPlan, it: &MemoryPlan) -> AtPeak {
    let names = plan.assigned().graph().names();
    let size = |block: &steeve_graph::BlockId| it.plan.problem().blocks()[*block].size;
    let mut blocks = it.plan.report().alive_at_bound;
    blocks.sort_by_key(|block| (std::cmp::Reverse(size(block)), *block));
    AtPeak(blocks.iter().map(|block| (Named::new(it.tensors[*block], names), size(block))).collect())
}

/// Shows every planned tensor of the graph to the buffer it stands in, if that wants to see it.
fn show_tensors(planned: &Planned, chunks: &Matching, buffers: &Buffers, graph: &Graph) -> Result<(), AllocError> {
    let mut by_buffer: Vec<(usize, usize, Offset, TensorId)> = Vec::new();
    // What was built after planning is none of the plan's.
    for tensor in graph.tensors().ids().take(planned.plan.assigned().graph().tensors().len()) {
        let Some(place) = planned.plan.place(graph.root(tensor)) else { continue };
        let (part, _) = buffers.of(place.memory);
        let chunk = chunk_of(chunks, part, place.buffer);
        by_buffer.push((part, chunk, Offset(place.offset.0 + graph.tensors().offset(tensor).0), tensor));
    }
    by_buffer.sort_by_key(|(part, chunk, ..)| (*part, *chunk));
    for run in by_buffer.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let Some(&(part, chunk, ..)) = run.first() else { continue };
        let mut buffer = buffers.parts[part][chunk].borrow_mut()?;
        let Some(hook) = buffer.init_hook() else { continue };
        for (_, _, offset, tensor) in run {
            hook.init_tensor(graph.tensors(), *tensor, *offset)?;
        }
    }
    Ok(())
}
