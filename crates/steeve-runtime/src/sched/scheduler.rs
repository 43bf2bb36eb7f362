//! Schedules, allocates and computes graphs on several devices.

use std::sync::Arc;

use crate::{AllocError, AllocOptions, GraphAllocator, Replan, RunGuard};
use steeve_device::{Bindings, Bytes, Device};
use steeve_graph::{
    AssignedGraph, Assignment, Graph, GraphPlan, GraphStrategy, Id, MemoryId, Named, Order, PlanOptions, Reuse,
    TensorId, best_order,
};

use crate::sched::alias_check::check_no_alias;
use crate::sched::assign::{PinnedTensors, assign};
use crate::sched::build_schedule::build_schedule;
use crate::sched::execution_plan::ExecutionPlan;
use crate::sched::job::Job;
use crate::sched::placement_facts::{PlacementFacts, is_external};
use crate::sched::schedule::Schedule;
use crate::sched::split_graph::split_graph;
use crate::sched::vector_clock::VectorClock;
use crate::sched::worker::{Worker, WorkerId, Workers};
use crate::sched::{SchedError, SchedOptions, TensorLocations};

/// Spreads graphs over several devices, allocates their memory, and computes them.
///
/// Devices come in order of priority, the processor last. Weights decide: an operation runs on the device that has its
/// weight, operations between two such operations stay with them, and whatever a device can't read is copied for it.
/// Every decision has a reason ([`Schedule::why`]). The caller's graph is not changed, and the same graph again costs
/// neither a split nor a plan.
///
/// ```
/// use std::sync::Arc;
/// use steeve_cpu::CpuDevice;
/// use steeve_device::{Bindings, Device};
/// use steeve_graph::{Context, DataType, Graph};
/// use steeve_runtime::sched::Scheduler;
///
/// let mut context = Context::new();
/// let x = context.input(DataType::F32, &[3])?;
/// let y = context.sqr(x)?;
/// context.set_output(y)?;
/// let graph = Graph::from_outputs(&context, &[y])?;
///
/// let processor: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1));
/// let mut scheduler = Scheduler::new([processor])?; // faster devices go before it
/// let job = scheduler.alloc(&graph, &Bindings::new())?;
/// job.write(x, &[1.0f32, 2.0, 3.0])?;
/// scheduler.compute(&job)?;
/// assert_eq!(job.read::<f32>(y)?, [1.0, 4.0, 9.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scheduler {
    workers: Workers,
    options: SchedOptions,
    /// Shared, so that jobs that were scheduled with other pins stay usable.
    pins: Arc<PinnedTensors>,
    allocator: GraphAllocator,
    /// The graphs that were scheduled last, the latest first.
    cache: Vec<CachedSchedule>,
    in_flight: Option<InFlightRun>,
}

/// A cached schedule, and what it was made for.
#[derive(Debug)]
struct CachedSchedule {
    graph: Graph,
    locations: TensorLocations,
    /// The bindings that were last seen to have these locations.
    bindings: Bindings,
    pins: Arc<PinnedTensors>,
    schedule: Arc<Schedule>,
    execution: Option<ExecutionPlan>,
}

/// Runs of a job that have not been waited for yet.
#[derive(Debug)]
struct InFlightRun {
    job: Job,
    run: RunGuard,
    clock: VectorClock,
}

impl Scheduler {
    /// Creates a scheduler with a stream of work on each of the devices, by priority, the processor last. The processor
    /// keeps its results in [memory](Device::host_memory) that another of the devices copies to and from by itself, if
    /// there is any; [`with_workers`](Self::with_workers) leaves that to the caller.
    pub fn new(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<Self, SchedError> {
        Self::with_host_memory(devices, Worker::new)
    }

    /// Creates a scheduler that plans but does not compute. The devices may be stand-ins for absent ones.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use steeve_device::{Device, NullDevice, Usage};
    /// use steeve_graph::{Bytes, Context, DataType, Graph};
    /// use steeve_runtime::sched::{TensorLocations, Scheduler};
    ///
    /// let device = |name: &str| -> Arc<dyn Device> { Arc::new(NullDevice::new(name).as_if_it_computed()) };
    /// let (gpu, cpu) = (device("gpu"), device("cpu"));
    /// let mut context = Context::new();
    /// let weight = context.external(DataType::F16, &[4096, 4096])?;
    /// let x = context.input(DataType::F32, &[4096, 8])?;
    /// let y = context.mul_mat(weight, x)?;
    /// let graph = Graph::from_outputs(&context, &[y])?;
    /// let mut locations = TensorLocations::new();
    /// locations.put(weight, &gpu.buffer_types()[0], Usage::Weights);
    ///
    /// let scheduler = Scheduler::for_planning([gpu, cpu])?;
    /// // The input is on the processor, and copied to where the weight is.
    /// assert_eq!(scheduler.required(&graph, &locations)?, [Bytes(256 << 10), Bytes(128 << 10)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_planning(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<Self, SchedError> {
        Self::with_host_memory(devices, Worker::for_planning)
    }

    /// Creates workers; those on the host keep results in memory that another device copies to and from by itself, if
    /// there is any.
    fn with_host_memory(
        devices: impl IntoIterator<Item = Arc<dyn Device>>,
        worker: impl Fn(&Arc<dyn Device>) -> Result<Worker, SchedError>,
    ) -> Result<Self, SchedError> {
        let devices: Vec<_> = devices.into_iter().collect();
        let host = devices.iter().find_map(|device| device.host_memory());
        let on_host = |worker: Worker| match host {
            Some(host) if worker.memory().is_host() && worker.device().reads(host) => worker.with_memory(host),
            _ => worker,
        };
        Self::with_workers(devices.iter().map(|device| worker(device).map(on_host)).collect::<Result<Vec<_>, _>>()?)
    }

    /// Creates a scheduler of existing workers, by priority, the processor last. Fails without any.
    pub fn with_workers(workers: impl IntoIterator<Item = Worker>) -> Result<Self, SchedError> {
        let workers: Workers = workers.into_iter().collect();
        if workers.is_empty() {
            return Err(SchedError::NoWorker);
        }
        let allocator = GraphAllocator::with_buffers(workers.iter().map(|worker| Arc::clone(worker.memory())))?;
        let (options, pins, cache) = (SchedOptions::new(), Arc::default(), Vec::new());
        let mut scheduler = Self { workers, options, pins, allocator, cache, in_flight: None };
        scheduler.apply_options();
        Ok(scheduler)
    }

    /// Returns this scheduler with other options, for one that has done nothing yet; see
    /// [`set_options`](Self::set_options).
    #[must_use]
    pub fn with_options(mut self, options: SchedOptions) -> Self {
        // The error of work in flight is not needed here.
        let _ = self.set_options(options);
        self
    }

    /// Sets other options. Waits for work in flight and returns its error; drops plans and buffers, because they were
    /// made by other rules, and jobs with them.
    pub fn set_options(&mut self, options: SchedOptions) -> Result<(), SchedError> {
        let done = self.synchronise();
        self.cache.clear();
        self.options = options;
        self.apply_options();
        self.allocator.release()?;
        done
    }

    fn apply_options(&mut self) {
        let SchedOptions { plan, graphs, budgets, .. } = &self.options;
        // Schedules are made in the order in which they run.
        let plan = plan.with_order(Order::Keep);
        let options = AllocOptions::new().with_plan(plan).with_replan(Replan::Always).with_plans(*graphs);
        let options = budgets.iter().fold(options, |options, (worker, bytes)| options.with_budget(*worker, *bytes));
        self.allocator.set_options(options);
    }

    /// Returns the options.
    pub fn options(&self) -> &SchedOptions {
        &self.options
    }

    /// Returns the workers, in order of priority.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = (WorkerId, &Worker)> {
        self.workers.pairs()
    }

    /// Finds the first worker with this name.
    pub fn worker(&self, name: &str) -> Option<WorkerId> {
        self.workers.pairs().find(|(_, worker)| worker.name() == name).map(|(id, _)| id)
    }

    /// Pins the tensor with this id to `worker`, in every graph that is scheduled, whatever context it is from, until
    /// [`unpin`](Self::unpin) or [`reset`](Self::reset). Existing jobs do not change. A worker that can't run it is an
    /// error when the graph is scheduled. A view is located in its root, so the root is what is pinned.
    pub fn pin(&mut self, tensor: TensorId, worker: WorkerId) -> Result<(), SchedError> {
        if worker.index() >= self.workers.len() {
            return Err(SchedError::UnknownWorker { index: worker.index(), workers: self.workers.len() });
        }
        // Identified by number, whatever its origin.
        let tensor = TensorId::from_index(tensor.index()).unwrap_or(tensor);
        Arc::make_mut(&mut self.pins).insert(tensor, worker);
        Ok(())
    }

    /// Removes a pin.
    pub fn unpin(&mut self, tensor: TensorId) {
        if self.pins.contains_key(&tensor) {
            Arc::make_mut(&mut self.pins).remove(&tensor);
        }
    }

    /// Returns the schedule of a graph, without planning or allocating anything. `locations` are those of external
    /// tensors: bindings, or [`TensorLocations`].
    pub fn schedule(&self, graph: &Graph, locations: impl Into<TensorLocations>) -> Result<Arc<Schedule>, SchedError> {
        self.cached_or_new(graph, &locations.into())
    }

    /// Returns the bytes that each worker's buffers need for a graph, without allocating any. Memory that workers share
    /// is counted for the first of them.
    pub fn required(&self, graph: &Graph, locations: impl Into<TensorLocations>) -> Result<Vec<Bytes>, SchedError> {
        let schedule = self.cached_or_new(graph, &locations.into())?;
        Ok(self.allocator.required((schedule.graph(), schedule.assignment()))?)
    }

    /// Makes the buffers large enough for a graph. Waits for work in flight.
    pub fn reserve(&mut self, graph: &Graph, locations: impl Into<TensorLocations>) -> Result<(), SchedError> {
        self.synchronise()?;
        let schedule = self.cache_schedule(graph, locations.into())?;
        let reserved = self.allocator.reserve((schedule.graph(), schedule.assignment()));
        reserved.map_err(|error| self.explain(error))?;
        self.check_result_memory(&schedule)
    }

    /// Makes the buffers large enough for a graph by a plan file, without planning. The file was made by `steeve plan
    /// -o` from the text of [`assign`](Self::assign), or from a [plan](Self::plan_of); its memories are matched by name
    /// or by order. Waits for work in flight.
    #[cfg(feature = "json")]
    pub fn load_plan(
        &mut self,
        graph: &Graph,
        locations: impl Into<TensorLocations>,
        json: &str,
        by: steeve_graph::MatchMemories,
    ) -> Result<(), SchedError> {
        self.synchronise()?;
        let locations = locations.into();
        let schedule = self.cached_or_new(graph, &locations)?;
        let plan = self.allocator.read_plan((schedule.graph(), schedule.assignment()), json, by)?;
        if plan.order().is_some() {
            return Err(SchedError::PlanOrder);
        }
        check_results_in_own_memory(&plan, &schedule)?;
        self.cache_schedule(graph, locations)?;
        self.allocator.reserve_planned(plan).map_err(|error| self.explain(error))
    }

    /// Returns a graph as it is planned: with the copies between workers, and the memory of each leaf and node. `steeve
    /// plan` reads its text.
    pub fn assign(&self, graph: &Graph, locations: impl Into<TensorLocations>) -> Result<AssignedGraph, SchedError> {
        let schedule = self.cached_or_new(graph, &locations.into())?;
        Ok(self.allocator.assign((schedule.graph(), schedule.assignment()))?)
    }

    /// Makes the buffers large enough for each of several graphs, which never run at the same time. All of them are
    /// reserved, or none.
    pub fn reserve_all<'a, H: Into<TensorLocations>>(
        &mut self,
        graphs: impl IntoIterator<Item = (&'a Graph, H)>,
    ) -> Result<(), SchedError> {
        self.synchronise()?;
        let graphs: Vec<(&Graph, TensorLocations)> =
            graphs.into_iter().map(|(graph, locations)| (graph, locations.into())).collect();
        // Graphs that are reserved together are cached together.
        self.options.graphs = self.options.graphs.max(graphs.len());
        self.apply_options();
        let schedules = graphs.into_iter().map(|(graph, locations)| self.cache_schedule(graph, locations));
        let schedules = schedules.collect::<Result<Vec<_>, _>>()?;
        let all = schedules.iter().map(|it| (it.graph(), it.assignment()));
        self.allocator.reserve_all(all).map_err(|error| self.explain(error))?;
        schedules.iter().try_for_each(|schedule| self.check_result_memory(schedule))
    }

    /// Allocates a graph. A graph that is the same as before costs neither a split nor a plan; another one is
    /// scheduled, planned if no plan fits, and buffers grow where they must.
    ///
    /// Names do not count: a graph that differs from one before by names alone has the schedule of that one.
    ///
    /// Bindings that were passed before are not checked again: after a change of a buffer's usage
    /// ([`set_usage`](steeve_device::SharedBuffer::set_usage)), call [`reset`](Self::reset).
    ///
    /// Waits for work in flight, unless copies are used [in turn](SchedOptions::with_pipeline_depth) and nothing has changed.
    pub fn alloc(&mut self, graph: &Graph, bindings: &Bindings) -> Result<Job, SchedError> {
        for (tensor, _) in bindings.iter() {
            is_external(graph, tensor)?;
        }
        let stands =
            |cached: &CachedSchedule| cached.bindings.is_same(bindings) || cached.locations.match_bindings(bindings);
        let same = |cached: &CachedSchedule| {
            Arc::ptr_eq(&cached.pins, &self.pins) && stands(cached) && cached.graph.is_like(graph)
        };
        let schedule = match self.cache.iter().position(same) {
            Some(index) => {
                self.cache[..=index].rotate_right(1);
                Arc::clone(&self.cache[0].schedule)
            }
            None => {
                // Work in flight may have to be evicted for it.
                self.synchronise()?;
                self.cache_schedule(graph, bindings.into())?
            }
        };
        if !self.cache[0].bindings.is_same(bindings) {
            check_no_alias(schedule.graph(), bindings)?;
            self.cache[0].bindings = bindings.clone();
        }
        if let Some(InFlightRun { job, .. }) = &self.in_flight {
            let is_same = Arc::ptr_eq(&job.schedule, &schedule) && job.allocation.is_bound_by(bindings);
            if is_same && schedule.pipeline_depth() > 1 {
                return Ok(Job { graph: graph.clone(), ..job.clone() });
            }
            self.synchronise()?;
        }
        let allocation = self.allocator.alloc((schedule.graph(), schedule.assignment()), bindings);
        let allocation = allocation.map_err(|error| self.explain(error))?;
        self.check_result_memory(&schedule)?;
        Ok(Job { graph: graph.clone(), schedule, allocation })
    }

    /// Computes a job and waits for it. All inputs must have been written.
    pub fn compute(&mut self, job: &Job) -> Result<(), SchedError> {
        self.submit(job)?;
        self.synchronise()
    }

    /// Starts to compute a job. May return before it is done; [`synchronise`](Self::synchronise) waits for it, and until then
    /// its results can't be read.
    ///
    /// With copies [in turn](SchedOptions::with_pipeline_depth) the inputs can be written for the next run at once, and the same job
    /// submitted again behind itself. Any other job waits first.
    pub fn submit(&mut self, job: &Job) -> Result<(), SchedError> {
        let index = self.index_of(job)?;
        if self.in_flight.as_ref().is_some_and(|in_flight| !in_flight.job.allocation.is_same(&job.allocation)) {
            self.synchronise()?;
        }
        let CachedSchedule { schedule, execution, .. } = &mut self.cache[index];
        let execution = match execution.take().filter(|execution| execution.is_for(&job.allocation)) {
            Some(ready) => execution.insert(ready),
            None => execution.insert(ExecutionPlan::new(schedule, &job.allocation, &self.workers)?),
        };
        match &self.in_flight {
            Some(in_flight) => in_flight.run.restart()?,
            None => {
                let (run, clock) = (job.allocation.begin()?, execution.clock());
                self.in_flight = Some(InFlightRun { job: job.clone(), run, clock });
            }
        }
        let Some(in_flight) = &mut self.in_flight else { unreachable!("it has just been started") };
        if let Err(error) = execution.submit(schedule, &self.workers, &mut in_flight.clock) {
            self.abandon();
            return Err(error);
        }
        if schedule.pipeline_depth() > 1 {
            in_flight.run.hand_back_inputs();
        }
        Ok(())
    }

    /// Waits for everything that was submitted. If some of it failed, results are lost, but the scheduler stays usable.
    pub fn synchronise(&mut self) -> Result<(), SchedError> {
        let done = self.synchronise_workers();
        if let (Some(in_flight), Ok(())) = (self.in_flight.take(), &done) {
            in_flight.run.finish();
        }
        done
    }

    /// Forgets all graphs and pins. Buffers stay. Waits for work in flight.
    pub fn reset(&mut self) -> Result<(), SchedError> {
        let done = self.synchronise();
        self.pins = Arc::default();
        self.cache.clear();
        done
    }

    /// Frees all buffers, and forgets what is planned; the next graph allocates them again, as large as they must be
    /// then. Jobs become stale. Waits for work in flight.
    pub fn release(&mut self) -> Result<(), SchedError> {
        self.synchronise()?;
        Ok(self.allocator.release()?)
    }

    /// Returns how many bytes are allocated for a worker's buffers; memory that workers share is counted for the first
    /// of them.
    pub fn buffer_size(&self, worker: WorkerId) -> Result<Bytes, SchedError> {
        self.allocator.buffer_size(worker.index()).map_err(|error| self.explain(error))
    }

    /// Returns the plan of an allocated graph.
    pub fn plan_of(&self, job: &Job) -> Option<&GraphPlan> {
        self.allocator.plan_of(job.schedule.graph())
    }

    pub(crate) fn workers_list(&self) -> &Workers {
        &self.workers
    }

    /// Finds the cached schedule of a job. Fails if it was evicted.
    pub(crate) fn index_of(&self, job: &Job) -> Result<usize, SchedError> {
        let is_it = |cached: &CachedSchedule| Arc::ptr_eq(&cached.schedule, &job.schedule);
        self.cache.iter().position(is_it).ok_or(SchedError::UnknownJob)
    }

    /// Waits for all workers. Returns the first error.
    pub(crate) fn synchronise_workers(&self) -> Result<(), SchedError> {
        let mut done = Ok(());
        for worker in self.workers.iter() {
            if let Ok(backend) = worker.backend() {
                done = done.and(backend.synchronise().map_err(SchedError::from));
            }
        }
        done
    }

    /// Waits for whatever was enqueued before something failed, and gives up its results.
    pub(crate) fn abandon(&mut self) {
        let _ = self.synchronise_workers();
        self.in_flight = None;
    }

    /// Converts an allocator's error to one about workers.
    fn explain(&self, error: AllocError) -> SchedError {
        match error {
            AllocError::OverBudget { index, needed, budget, at_peak, .. } => {
                let worker = self.workers.iter().nth(index).map_or("?", Worker::name).into();
                SchedError::OverBudget { worker, needed, budget, at_peak }
            }
            AllocError::BufferIndex { index, buffers } => SchedError::UnknownWorker { index, workers: buffers },
            other => other.into(),
        }
    }

    /// Checks that results are in the memories of their workers; otherwise readers may not reach them. Only ggml's
    /// reuse places them elsewhere.
    fn check_result_memory(&self, schedule: &Schedule) -> Result<(), SchedError> {
        let PlanOptions { strategy, reuse, .. } = self.options.plan;
        if strategy != GraphStrategy::Ggml && reuse != Reuse::Ggml {
            return Ok(());
        }
        self.allocator.plan_of(schedule.graph()).map_or(Ok(()), |plan| check_results_in_own_memory(plan, schedule))
    }

    /// Finds the cached schedule of a graph. Names count, because people read them.
    fn find(&self, graph: &Graph, locations: &TensorLocations) -> Option<usize> {
        let same = |cached: &CachedSchedule| {
            Arc::ptr_eq(&cached.pins, &self.pins) && cached.locations == *locations && cached.graph == *graph
        };
        self.cache.iter().position(same)
    }

    fn cached_or_new(&self, graph: &Graph, locations: &TensorLocations) -> Result<Arc<Schedule>, SchedError> {
        match self.find(graph, locations) {
            Some(index) => Ok(Arc::clone(&self.cache[index].schedule)),
            None => Ok(Arc::new(self.make_schedule(graph, locations)?)),
        }
    }

    /// Schedules a graph, in another order of its nodes where [the options](SchedOptions::with_plan) ask for that and all
    /// memories need no more, and together enough less.
    fn make_schedule(&self, graph: &Graph, locations: &TensorLocations) -> Result<Schedule, SchedError> {
        let own = self.schedule_in_order(graph, locations)?;
        let plan = &self.options.plan;
        if plan.order == Order::Keep || plan.strategy == GraphStrategy::Ggml {
            return Ok(own);
        }
        let Some(ordered) = self.best_order(graph, locations)? else { return Ok(own) };
        let best = self.schedule_in_order(&ordered, locations)?;
        // Where a node is computed may depend on its neighbours, and other devices may make other bits.
        let of_tensors = |schedule: &Schedule| -> Vec<Option<WorkerId>> {
            schedule.workers.iter().map(|worker| worker.map(|(worker, _)| worker)).collect()
        };
        let needed = |schedule: &Schedule| self.allocator.required((schedule.graph(), schedule.assignment()));
        let (before, after) = (needed(&own)?, needed(&best)?);
        let sum = |sizes: &[Bytes]| Bytes(sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0)));
        let is_better = of_tensors(&own) == of_tensors(&best)
            && before.iter().zip(&after).all(|(before, after)| after <= before)
            && plan.order_search.is_worth_while(sum(&before), sum(&after));
        Ok(if is_better { best } else { own })
    }

    /// Returns a graph in the best order that is found if each node stays with its worker; `None` if that is its own.
    fn best_order(&self, graph: &Graph, locations: &TensorLocations) -> Result<Option<Graph>, SchedError> {
        let facts = PlacementFacts::new(graph, &self.workers, locations)?;
        let assigned = assign(&facts, &self.pins, self.options.offload)?;
        let memory = |tensor| {
            let worker = assigned.memory_owner(&facts, tensor);
            worker.and_then(|worker| MemoryId::from_index(worker.index())).unwrap_or(MemoryId::FIRST)
        };
        let assignment = Assignment::by(graph, memory);
        let assigned = self.allocator.assign((graph, &assignment))?;
        let found = best_order(&assigned, &self.options.plan, &self.options.plan.order_search);
        match found.order.is_own() {
            true => Ok(None),
            false => Ok(Some(found.order.apply_to(graph)?)),
        }
    }

    fn schedule_in_order(&self, graph: &Graph, locations: &TensorLocations) -> Result<Schedule, SchedError> {
        let facts = PlacementFacts::new(graph, &self.workers, locations)?;
        let assigned = assign(&facts, &self.pins, self.options.offload)?;
        let pipeline_depth = self.options.pipeline_depth;
        let splits = split_graph(&facts, &assigned, pipeline_depth > 1);
        Ok(build_schedule(&facts, &assigned, &splits, pipeline_depth)?)
    }

    /// Returns the schedule of a graph, and makes it the most recent of the cache.
    fn cache_schedule(&mut self, graph: &Graph, locations: TensorLocations) -> Result<Arc<Schedule>, SchedError> {
        match self.find(graph, &locations) {
            Some(index) => self.cache[..=index].rotate_right(1),
            None => {
                let schedule = Arc::new(self.make_schedule(graph, &locations)?);
                let (graph, bindings, pins) = (graph.clone(), Bindings::new(), Arc::clone(&self.pins));
                self.cache.insert(0, CachedSchedule { graph, locations, bindings, pins, schedule, execution: None });
                self.cache.truncate(self.options.graphs);
            }
        }
        Ok(Arc::clone(&self.cache[0].schedule))
    }
}

/// Waits for all work, which must not use memory that is freed.
impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.synchronise();
    }
}

/// Fails if a node is computed in the memory of another worker than its own.
fn check_results_in_own_memory(plan: &GraphPlan, schedule: &Schedule) -> Result<(), SchedError> {
    match plan.aliased_across_memories() {
        Some(node) => Err(SchedError::ResultInWrongMemory { node: Named::new(node, schedule.graph().names()) }),
        None => Ok(()),
    }
}
