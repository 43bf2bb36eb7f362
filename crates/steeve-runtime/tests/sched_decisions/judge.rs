//! A checker of schedules that shares no code with the scheduler.

use super::*;

/// Holds a schedule to what a schedule is, by the caller's graph alone.
pub(crate) fn judge(setup: PlanningSetup, turns: usize, planned: PlanOptions) {
    let mut setup = setup.with(SchedOptions::new().with_pipeline_depth(turns).with_plan(planned));
    let before = setup.graph.clone();
    let schedule = setup.schedule();
    let assigned = setup.assigned(&schedule);
    let plan = plan_graph(&assigned, &planned).unwrap();
    replay(&assigned, &plan.places()).unwrap_or_else(|faults| panic!("{faults}\n{schedule}\n{before}"));
    ScheduleChecker::new(&setup, &schedule, &plan).whole(turns);
    // What is required is what is planned, and what is allocated.
    let mut peaks = vec![0; setup.devices.len()];
    plan.memories().iter().for_each(|memory| peaks[memory.memory.index()] = memory.plan.peak().0);
    assert_eq!((setup.required(), setup.asked()), (peaks.clone(), 0));
    setup.reserve().unwrap();
    assert_eq!(setup.allocated(), peaks);
    assert!(setup.graph.is_same(&before));
    assert_eq!(setup.schedule().to_string(), schedule.to_string());
}

pub(crate) struct ScheduleChecker<'a> {
    setup: &'a PlanningSetup,
    schedule: &'a Schedule,
    plan: &'a GraphPlan,
    /// How often each root has been written so far.
    writes: Vec<usize>,
    made: Vec<CopyRecord>,
}

/// A copy that has been made.
struct CopyRecord {
    copy: usize,
    split: usize,
    /// How often the root had been written then.
    writes: usize,
}

impl<'a> ScheduleChecker<'a> {
    pub(crate) fn new(setup: &'a PlanningSetup, schedule: &'a Schedule, plan: &'a GraphPlan) -> Self {
        let writes = vec![0; schedule.graph().tensors().len()];
        Self { setup, schedule, plan, writes, made: Vec::new() }
    }

    fn whole(&mut self, turns: usize) {
        let (setup, schedule) = (self.setup, self.schedule);
        let nodes = schedule.graph().nodes();
        let (mut seen, mut end, mut copies) = (Vec::<TensorId>::new(), 0, 0);
        for (number, split) in schedule.splits().iter().enumerate() {
            assert!(split.nodes.start >= end && split.copies.start == copies, "splits are in order");
            for copy in split.copies.clone() {
                let it = &schedule.copies()[copy];
                let each = if it.is_weight { 1 } else { turns };
                assert_eq!((it.tensors.len(), it.to), (each, split.worker));
                let between = &nodes[end..split.nodes.start];
                assert!(it.tensors.iter().all(|copy| between.contains(copy)), "copies are made before their split");
                self.copied(copy, number);
            }
            for &node in nodes[split.nodes.clone()].iter().filter(|node| computes(&setup.graph, **node)) {
                self.ran(node, split.worker);
            }
            seen.extend(&nodes[split.nodes.clone()]);
            (end, copies) = (split.nodes.end, split.copies.end);
        }
        assert_eq!(copies, schedule.copies().len());
        if !schedule.splits().is_empty() {
            assert_eq!(seen, setup.graph.nodes(), "the splits are the nodes in their order");
        }
        let planned = setup.graph.leafs().iter().filter(|leaf| setup.graph.tensor(**leaf).is_planned());
        let computing = setup.graph.nodes().iter().filter(|node| computes(&setup.graph, **node));
        for &tensor in planned.chain(computing) {
            let worker = schedule.worker(tensor).unwrap();
            assert!(schedule.why(tensor).is_some_and(|why| !why.is_empty()));
            // Nothing moves away from where it was pinned.
            let pinned = setup.pins.get(&tensor);
            assert!(pinned.is_none_or(|pinned| *pinned == worker || setup.graph.tensor(tensor).external));
        }
    }

    /// Returns whether the reason for a tensor's worker is true.
    pub(crate) fn explains(&self, tensor: TensorId) -> bool {
        let (graph, schedule) = (&self.setup.graph, self.schedule);
        let (by, root) = (schedule.worker(tensor).unwrap(), graph.root(tensor));
        let is_last = by.index() + 1 == self.setup.devices.len();
        match schedule.reason(tensor).unwrap() {
            AssignReason::Pinned => self.setup.pins.keys().any(|pin| graph.root(*pin) == root),
            AssignReason::Placed { root } => self.reads(by, root),
            AssignReason::Input => graph.tensor(root).flags.is_input() && is_last,
            AssignReason::Weight { weight } => self.reads(by, graph.root(weight)),
            AssignReason::Offloaded { weight } => self.setup.memory_of[&graph.root(weight)].is_host(),
            AssignReason::Neighbour { node } => {
                // A later stage may have moved the neighbour, whose own reason says from where.
                let was_there = match schedule.reason(node) {
                    Some(AssignReason::Upgraded { from } | AssignReason::Boundary { from }) => from == by,
                    _ => false,
                };
                schedule.worker(node) == Some(by) || was_there
            }
            AssignReason::Reader { node } => schedule.worker(node) == Some(by),
            AssignReason::Sources { readable, of } => readable <= of,
            AssignReason::Upgraded { from } => by < from && Arc::ptr_eq(self.own(by), self.own(from)),
            AssignReason::Unread => is_last,
            _ => schedule.why(tensor).is_some(),
        }
    }

    fn copied(&mut self, copy: usize, split: usize) {
        let it = &self.schedule.copies()[copy];
        let graph = self.schedule.graph();
        assert!(!self.reads(it.to, it.root), "{} is copied for someone who reads it", graph.name(it.root));
        let range = |copy: usize| {
            let it = &self.schedule.copies()[copy];
            it.start.0..it.start.0 + it.size.0
        };
        let new = range(copy);
        for made in &self.made {
            let (other, old) = (&self.schedule.copies()[made.copy], range(made.copy));
            if other.root != it.root || made.writes != self.writes[it.root.index()] {
                continue;
            }
            let overlaps = old.start < new.end && new.start < old.end;
            assert!(made.split != split || !overlaps, "bytes are copied twice for a split\n{}", self.schedule);
            let same = Arc::ptr_eq(self.own(other.to), self.own(it.to));
            let covers = old.start <= new.start && new.end <= old.end && !new.is_empty();
            assert!(it.is_weight || !same || !covers, "bytes are copied that are there\n{}", self.schedule);
        }
        for &copy in &it.tensors {
            assert_eq!(graph.tensor(copy).op, Op::Dup);
            assert_eq!(graph.tensor(copy).nbytes(), it.size);
            assert!(
                graph.sources(copy).iter().flatten().any(|source| graph.root(*source) == it.root),
                "it lives so long"
            );
            let place = self.plan.place(copy).unwrap();
            assert!(Arc::ptr_eq(self.own(worker(place.memory.index())), self.own(it.to)));
        }
        self.made.push(CopyRecord { copy, split, writes: self.writes[it.root.index()] });
    }

    fn ran(&mut self, node: TensorId, by: WorkerId) {
        let (before, after) = (&self.setup.graph, self.schedule.graph());
        let said = || format!("{} on {}\n{}\n{before}", after.name(node), by.index(), self.schedule);
        assert_eq!(self.schedule.worker(node), Some(by));
        assert!(self.setup.devices[by.index()].supports(before, node).is_ok(), "{}", said());
        assert!(self.reads(by, after.root(node)), "it does not reach what it writes: {}", said());
        for (source, now) in before.sources(node).iter().zip(after.sources(node)) {
            let (Some(source), Some(now)) = (*source, *now) else { continue };
            assert!(self.reads(by, after.root(now)), "it can't read {}: {}", after.name(now), said());
            if source == now {
                continue;
            }
            // A copy: of the right root, at the right bytes, and not older than the root.
            assert_eq!(before.tensor(source).layout, after.tensor(now).layout);
            let is_it = |made: &&CopyRecord| self.schedule.copies()[made.copy].tensors[0] == after.root(now);
            let made =
                self.made.iter().find(is_it).unwrap_or_else(|| panic!("a copy that is not made yet: {}", said()));
            let copy = &self.schedule.copies()[made.copy];
            assert_eq!(copy.root, before.root(source));
            assert_eq!(copy.start.0 + after.tensors().offset(now).0, before.tensors().offset(source).0);
            assert_eq!(made.writes, self.writes[copy.root.index()], "a copy that is out of date: {}", said());
        }
        self.writes[before.root(node).index()] += 1;
    }

    /// Returns whether a worker reads and writes a root where it is actually located, even if its bytes come from
    /// another tensor.
    fn reads(&self, worker_id: WorkerId, root: TensorId) -> bool {
        let memory = match self.plan.place(root) {
            Some(place) => self.own(worker(place.memory.index())),
            None => &self.setup.memory_of[&root],
        };
        self.setup.devices[worker_id.index()].reads(memory)
    }

    fn own(&self, worker: WorkerId) -> &'a Arc<dyn BufferType> {
        self.setup.devices[worker.index()].own()
    }
}
