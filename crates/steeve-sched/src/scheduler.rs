//! Graphs in, results out, on several devices.

use std::sync::Arc;

use steeve_alloc::{AllocError, AllocOptions, GraphAllocator, Replan, Run};
use steeve_device::{Bindings, Bytes, Device};
use steeve_graph::{
    AssignedGraph, Graph, GraphPlan, GraphStrategy, Id, MatchMemories, Named, PlanOptions, Reuse, TensorId,
};

use crate::apart::check_apart;
use crate::assign::{Pins, assign};
use crate::build::build;
use crate::clock::Clock;
use crate::cut::cut;
use crate::ground::{Ground, is_external};
use crate::job::Job;
use crate::program::Program;
use crate::schedule::Schedule;
use crate::worker::{Worker, WorkerId, Workers};
use crate::{Homes, SchedError, SchedOptions};

/// Spreads graphs over several devices, allocates their memory, and computes them.
///
/// Devices come in order of priority, the processor last. Weights decide: an operation runs where its weight stands, what is
/// between two such operations stays with them, and whatever a device can't read is copied for it. Every decision has a
/// reason ([`Schedule::why`]). The caller's graph is not changed, and the same graph again costs neither a split nor a plan.
///
/// ```
/// use std::sync::Arc;
/// use steeve_cpu::CpuDevice;
/// use steeve_device::{Bindings, Device};
/// use steeve_graph::{Context, DataType, Graph};
/// use steeve_sched::Scheduler;
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
    /// Jobs that were scheduled by other pins stay usable.
    pins: Arc<Pins>,
    allocator: GraphAllocator,
    /// The graphs that were scheduled last, the latest first.
    known: Vec<Known>,
    flight: Option<Flight>,
}

/// A graph that has been scheduled.
#[derive(Debug)]
struct Known {
    graph: Graph,
    homes: Homes,
    /// The bindings that were last seen to have these homes.
    bindings: Bindings,
    pins: Arc<Pins>,
    schedule: Arc<Schedule>,
    program: Option<Program>,
}

/// Runs of a job that nobody has waited for yet.
#[derive(Debug)]
struct Flight {
    job: Job,
    run: Run,
    clock: Clock,
}

impl Scheduler {
    /// A stream of work on each of the devices, the most wanted first, the processor last. The processor keeps its results in
    /// [memory](Device::host_memory) that another of the devices copies to and from by itself, if there is such;
    /// [`with_workers`](Self::with_workers) leaves that to the caller.
    pub fn new(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<Self, SchedError> {
        Self::with_host_memory(devices, Worker::new)
    }

    /// The same without any stream of work: everything can be found out, and nothing computed. The devices may be stand-ins
    /// for those that are not there.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use steeve_device::{Device, NullDevice, Usage};
    /// use steeve_graph::{Bytes, Context, DataType, Graph};
    /// use steeve_sched::{Homes, Scheduler};
    ///
    /// let device = |name: &str| -> Arc<dyn Device> { Arc::new(NullDevice::new(name).as_if_it_computed()) };
    /// let (gpu, cpu) = (device("gpu"), device("cpu"));
    /// let mut context = Context::new();
    /// let weight = context.external(DataType::F16, &[4096, 4096])?;
    /// let x = context.input(DataType::F32, &[4096, 8])?;
    /// let y = context.mul_mat(weight, x)?;
    /// let graph = Graph::from_outputs(&context, &[y])?;
    /// let mut homes = Homes::new();
    /// homes.put(weight, &gpu.buffer_types()[0], Usage::Weights);
    ///
    /// let scheduler = Scheduler::for_planning([gpu, cpu])?;
    /// // The input is on the processor, and copied to where the weight is.
    /// assert_eq!(scheduler.required(&graph, &homes)?, [Bytes(256 << 10), Bytes(128 << 10)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_planning(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<Self, SchedError> {
        Self::with_host_memory(devices, Worker::for_planning)
    }

    /// Who computes on the host keeps results where another device copies to and from by itself, if one of them can.
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

    /// Workers that exist already, the most wanted first, the processor last.
    pub fn with_workers(workers: impl IntoIterator<Item = Worker>) -> Result<Self, SchedError> {
        let workers: Workers = workers.into_iter().collect();
        if workers.is_empty() {
            return Err(SchedError::NoWorker);
        }
        let allocator = GraphAllocator::with_buffers(workers.iter().map(|worker| Arc::clone(worker.memory())))?;
        let (options, pins, known) = (SchedOptions::new(), Arc::default(), Vec::new());
        let mut scheduler = Self { workers, options, pins, allocator, known, flight: None };
        scheduler.tell_allocator();
        Ok(scheduler)
    }

    /// The same with other options, for a scheduler that has done nothing yet; see [`set_options`](Self::set_options).
    #[must_use]
    pub fn with_options(mut self, options: SchedOptions) -> Self {
        // Of work in flight nobody will ask.
        let _ = self.set_options(options);
        self
    }

    /// Other options from now on. Work in flight is waited for, whose error is the answer; plans and buffers are given up,
    /// because they were made by other rules, and jobs with them.
    pub fn set_options(&mut self, options: SchedOptions) -> Result<(), SchedError> {
        let done = self.synchronise();
        self.known.clear();
        self.options = options;
        self.tell_allocator();
        self.allocator.release()?;
        done
    }

    fn tell_allocator(&mut self) {
        let SchedOptions { plan, graphs, budgets, .. } = &self.options;
        let options = AllocOptions::new().with_plan(*plan).with_replan(Replan::Always).with_plans(*graphs);
        let options = budgets.iter().fold(options, |options, (worker, bytes)| options.with_budget(*worker, *bytes));
        self.allocator.set_options(options);
    }

    /// The options.
    pub fn options(&self) -> &SchedOptions {
        &self.options
    }

    /// The workers, in order of priority.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = (WorkerId, &Worker)> {
        self.workers.pairs()
    }

    /// The first worker of that name.
    pub fn worker(&self, name: &str) -> Option<WorkerId> {
        self.workers.pairs().find(|(_, worker)| worker.name() == name).map(|(id, _)| id)
    }

    /// From now on the tensor with this id is on `worker`, in every graph that is scheduled, whatever context it is from, until
    /// [`unpin`](Self::unpin) or [`reset`](Self::reset). Jobs that exist stay as they are. A worker that can't run it is an
    /// error when the graph is scheduled. A view stands where its root does, so that is what is pinned.
    pub fn pin(&mut self, tensor: TensorId, worker: WorkerId) -> Result<(), SchedError> {
        if worker.index() >= self.workers.len() {
            return Err(SchedError::UnknownWorker { index: worker.index(), workers: self.workers.len() });
        }
        // By number, wherever it comes from.
        let tensor = TensorId::from_index(tensor.index()).unwrap_or(tensor);
        Arc::make_mut(&mut self.pins).insert(tensor, worker);
        Ok(())
    }

    /// Takes a pin back.
    pub fn unpin(&mut self, tensor: TensorId) {
        if self.pins.contains_key(&tensor) {
            Arc::make_mut(&mut self.pins).remove(&tensor);
        }
    }

    /// Who does what, without planning or allocating anything. `homes` says where external tensors stand: bindings, or
    /// [`Homes`].
    pub fn schedule(&self, graph: &Graph, homes: impl Into<Homes>) -> Result<Arc<Schedule>, SchedError> {
        self.find_or_make(graph, &homes.into())
    }

    /// The bytes that each worker's buffers need for a graph, without allocating any. What workers share is counted for the
    /// first of them.
    pub fn required(&self, graph: &Graph, homes: impl Into<Homes>) -> Result<Vec<Bytes>, SchedError> {
        let schedule = self.find_or_make(graph, &homes.into())?;
        Ok(self.allocator.required((schedule.graph(), schedule.assignment()))?)
    }

    /// Makes the buffers large enough for a graph. Waits for work in flight.
    pub fn reserve(&mut self, graph: &Graph, homes: impl Into<Homes>) -> Result<(), SchedError> {
        self.synchronise()?;
        let schedule = self.remember(graph, homes.into())?;
        let reserved = self.allocator.reserve((schedule.graph(), schedule.assignment()));
        reserved.map_err(|error| self.explain(error))?;
        self.check_home(&schedule)
    }

    /// Makes the buffers large enough for a graph by a plan file, without planning. The file is one that `steeve plan -o` has made
    /// from the text of [`assign`](Self::assign), or that of a [plan](Self::plan_of); its memories are matched by name or by
    /// order. Waits for work in flight.
    pub fn load_plan(
        &mut self,
        graph: &Graph,
        homes: impl Into<Homes>,
        json: &str,
        by: MatchMemories,
    ) -> Result<(), SchedError> {
        self.synchronise()?;
        let homes = homes.into();
        let schedule = self.find_or_make(graph, &homes)?;
        let plan = self.allocator.read_plan((schedule.graph(), schedule.assignment()), json, by)?;
        at_home(&plan, &schedule)?;
        self.remember(graph, homes)?;
        self.allocator.reserve_planned(plan).map_err(|error| self.explain(error))
    }

    /// Returns a graph as it is planned: with the copies between workers, and the memory of each leaf and node. Its text is what
    /// `steeve plan` reads.
    pub fn assign(&self, graph: &Graph, homes: impl Into<Homes>) -> Result<AssignedGraph, SchedError> {
        let schedule = self.find_or_make(graph, &homes.into())?;
        Ok(self.allocator.assign((schedule.graph(), schedule.assignment()))?)
    }

    /// Makes the buffers large enough for each of several graphs, which never run at the same time. All of them are
    /// reserved, or none.
    pub fn reserve_all<'a, H: Into<Homes>>(
        &mut self,
        graphs: impl IntoIterator<Item = (&'a Graph, H)>,
    ) -> Result<(), SchedError> {
        self.synchronise()?;
        let graphs: Vec<(&Graph, Homes)> = graphs.into_iter().map(|(graph, homes)| (graph, homes.into())).collect();
        // What is reserved together is remembered together.
        self.options.graphs = self.options.graphs.max(graphs.len());
        self.tell_allocator();
        let schedules = graphs.into_iter().map(|(graph, homes)| self.remember(graph, homes));
        let schedules = schedules.collect::<Result<Vec<_>, _>>()?;
        let all = schedules.iter().map(|it| (it.graph(), it.assignment()));
        self.allocator.reserve_all(all).map_err(|error| self.explain(error))?;
        schedules.iter().try_for_each(|schedule| self.check_home(schedule))
    }

    /// Gives a graph its memory. A graph that is the same as before costs neither a split nor a plan; another one is
    /// scheduled, planned if no plan fits, and buffers grow where they must.
    ///
    /// Names do not count: a graph that differs from one before by names alone has the schedule of that one.
    ///
    /// Bindings that were given before are not looked at again: who changes what a buffer is for
    /// ([`set_usage`](steeve_device::SharedBuffer::set_usage)) has to [`reset`](Self::reset).
    ///
    /// Waits for work in flight, unless copies are used [in turn](SchedOptions::with_turns) and nothing has changed.
    pub fn alloc(&mut self, graph: &Graph, bindings: &Bindings) -> Result<Job, SchedError> {
        for (tensor, _) in bindings.iter() {
            is_external(graph, tensor)?;
        }
        let stands = |known: &Known| known.bindings.is_same(bindings) || known.homes.are_those_of(bindings);
        let same = |known: &Known| Arc::ptr_eq(&known.pins, &self.pins) && stands(known) && known.graph.is_like(graph);
        let schedule = match self.known.iter().position(same) {
            Some(index) => {
                self.known[..=index].rotate_right(1);
                Arc::clone(&self.known[0].schedule)
            }
            None => {
                // Something that is in flight may have to be forgotten for it.
                self.synchronise()?;
                self.remember(graph, bindings.into())?
            }
        };
        if !self.known[0].bindings.is_same(bindings) {
            check_apart(schedule.graph(), bindings)?;
            self.known[0].bindings = bindings.clone();
        }
        if let Some(Flight { job, .. }) = &self.flight {
            let is_same = Arc::ptr_eq(&job.schedule, &schedule) && job.allocation.is_bound_by(bindings);
            if is_same && schedule.turns() > 1 {
                return Ok(Job { graph: graph.clone(), ..job.clone() });
            }
            self.synchronise()?;
        }
        let allocation = self.allocator.alloc((schedule.graph(), schedule.assignment()), bindings);
        let allocation = allocation.map_err(|error| self.explain(error))?;
        self.check_home(&schedule)?;
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
    /// With copies [in turn](SchedOptions::with_turns) the inputs can be written for the next run at once, and the same job
    /// submitted again behind itself. Any other job waits first.
    pub fn submit(&mut self, job: &Job) -> Result<(), SchedError> {
        let index = self.index_of(job)?;
        if self.flight.as_ref().is_some_and(|flight| !flight.job.allocation.is_same(&job.allocation)) {
            self.synchronise()?;
        }
        let Known { schedule, program, .. } = &mut self.known[index];
        let program = match program.take().filter(|program| program.is_for(&job.allocation)) {
            Some(ready) => program.insert(ready),
            None => program.insert(Program::new(schedule, &job.allocation, &self.workers)?),
        };
        match &self.flight {
            Some(flight) => flight.run.again()?,
            None => {
                let (run, clock) = (job.allocation.begin()?, program.clock());
                self.flight = Some(Flight { job: job.clone(), run, clock });
            }
        }
        let Some(flight) = &mut self.flight else { unreachable!("it has just been started") };
        if let Err(error) = program.submit(schedule, &self.workers, &mut flight.clock) {
            self.abandon();
            return Err(error);
        }
        if schedule.turns() > 1 {
            flight.run.hand_back_inputs();
        }
        Ok(())
    }

    /// Waits for everything that was submitted. If some of it failed, results are lost, and the scheduler can be used again.
    pub fn synchronise(&mut self) -> Result<(), SchedError> {
        let done = self.settle();
        if let (Some(flight), Ok(())) = (self.flight.take(), &done) {
            flight.run.finish();
        }
        done
    }

    /// Forgets all graphs and pins. Buffers stay. Waits for work in flight.
    pub fn reset(&mut self) -> Result<(), SchedError> {
        let done = self.synchronise();
        self.pins = Arc::default();
        self.known.clear();
        done
    }

    /// Gives all buffers back, and forgets what is planned; the next graph makes them again, as large as they must be then.
    /// Jobs are stale. Waits for work in flight.
    pub fn release(&mut self) -> Result<(), SchedError> {
        self.synchronise()?;
        Ok(self.allocator.release()?)
    }

    /// How many bytes are allocated for a worker's buffers; what workers share is counted for the first of them.
    pub fn buffer_size(&self, worker: WorkerId) -> Result<Bytes, SchedError> {
        self.allocator.buffer_size(worker.index()).map_err(|error| self.explain(error))
    }

    /// The plan of a graph that was allocated, to be looked at.
    pub fn plan_of(&self, job: &Job) -> Option<&GraphPlan> {
        self.allocator.plan_of(job.schedule.graph())
    }

    pub(crate) fn workers_list(&self) -> &Workers {
        &self.workers
    }

    /// Where a job's graph is among those that are known.
    pub(crate) fn index_of(&self, job: &Job) -> Result<usize, SchedError> {
        let is_it = |known: &Known| Arc::ptr_eq(&known.schedule, &job.schedule);
        self.known.iter().position(is_it).ok_or(SchedError::UnknownJob)
    }

    /// Waits for all workers, and says what went wrong first.
    pub(crate) fn settle(&self) -> Result<(), SchedError> {
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
        let _ = self.settle();
        self.flight = None;
    }

    /// An allocator's error in terms of workers.
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

    /// Results stand in the memories of their workers, or their readers may not find them. Only ggml's reuse does otherwise.
    fn check_home(&self, schedule: &Schedule) -> Result<(), SchedError> {
        let PlanOptions { strategy, reuse, .. } = self.options.plan;
        if strategy != GraphStrategy::Ggml && reuse != Reuse::Ggml {
            return Ok(());
        }
        self.allocator.plan_of(schedule.graph()).map_or(Ok(()), |plan| at_home(plan, schedule))
    }

    /// With its names, because people look at it.
    fn find(&self, graph: &Graph, homes: &Homes) -> Option<usize> {
        let same =
            |known: &Known| Arc::ptr_eq(&known.pins, &self.pins) && known.homes == *homes && known.graph == *graph;
        self.known.iter().position(same)
    }

    fn find_or_make(&self, graph: &Graph, homes: &Homes) -> Result<Arc<Schedule>, SchedError> {
        match self.find(graph, homes) {
            Some(index) => Ok(Arc::clone(&self.known[index].schedule)),
            None => Ok(Arc::new(self.make(graph, homes)?)),
        }
    }

    fn make(&self, graph: &Graph, homes: &Homes) -> Result<Schedule, SchedError> {
        let ground = Ground::new(graph, &self.workers, homes)?;
        let assigned = assign(&ground, &self.pins, self.options.offload)?;
        let turns = self.options.turns;
        let pieces = cut(&ground, &assigned, turns > 1);
        Ok(build(&ground, &assigned, &pieces, turns)?)
    }

    /// The schedule of a graph, as the latest from now on.
    fn remember(&mut self, graph: &Graph, homes: Homes) -> Result<Arc<Schedule>, SchedError> {
        match self.find(graph, &homes) {
            Some(index) => self.known[..=index].rotate_right(1),
            None => {
                let schedule = Arc::new(self.make(graph, &homes)?);
                let (graph, bindings, pins) = (graph.clone(), Bindings::new(), Arc::clone(&self.pins));
                self.known.insert(0, Known { graph, homes, bindings, pins, schedule, program: None });
                self.known.truncate(self.options.graphs);
            }
        }
        Ok(Arc::clone(&self.known[0].schedule))
    }
}

/// Nobody may work in memory that is gone.
impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.synchronise();
    }
}

/// Fails if a node is computed in the memory of another worker than its own.
fn at_home(plan: &GraphPlan, schedule: &Schedule) -> Result<(), SchedError> {
    match plan.away_from_home() {
        Some(node) => Err(SchedError::AwayFromHome { node: Named::new(node, schedule.graph().names()) }),
        None => Ok(()),
    }
}
