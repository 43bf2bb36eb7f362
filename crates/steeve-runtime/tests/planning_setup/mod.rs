//! Devices that only plan, and graphs on them: all as text, decisions out as text.
//!
//! ```text
//!   gpu lacks rope reads cpu        devices, the most wanted first: what it can't run, which other memories it reads,
//!   npu shares gpu offloads add     whose memory it computes in, what it wants although its weight is in host memory,
//!   cpu host in ram                 that its own memory is the host's, and what that is called if not as the device
//!   memory disk host                a memory that is no device's own
//!
//!   w1 = external f32[8,8] @gpu     the graph's own form; @ says where an external tensor is located (else on the first),
//!   x = input 8                     and one whose name begins with a w is a weight
//!
//!   x@cpu y@gpu                     the worker of each: planned leafs, then nodes
//!   gpu[x w1: y z] cpu[z: u]        splits: what is copied, then what is computed
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use steeve_device::{
    Align, Backend, Buffer, BufferType, Bytes, Device, DeviceError, DeviceKind, Ledger, MemoryInfo, MemorySpec,
    NullDevice, Padding, TensorId, Usage,
};
use steeve_graph::{AllocSizes, AssignedGraph, Graph, Id, Memory, MemoryId};
use steeve_runtime::sched::{
    SchedError, SchedOptions, Schedule, Scheduler, Split, TensorCopy, TensorLocations, WorkerId,
};

/// A scheduler on devices that only plan, a graph, and where its external tensors are located.
#[derive(Debug)]
pub(crate) struct PlanningSetup {
    pub(crate) scheduler: Scheduler,
    pub(crate) graph: Graph,
    pub(crate) locations: TensorLocations,
    /// What the locations say.
    pub(crate) memory_of: BTreeMap<TensorId, Arc<dyn BufferType>>,
    pub(crate) pins: BTreeMap<TensorId, WorkerId>,
    pub(crate) devices: Vec<Arc<PlanningDevice>>,
    pub(crate) memories: Memories,
}

/// In the order of the text.
type Memories = Vec<Arc<dyn BufferType>>;

impl PlanningSetup {
    pub(crate) fn new(devices: &str, graph: &str) -> Self {
        let (devices, memories) = parse_devices(devices);
        let shown = devices.iter().map(|device| -> Arc<dyn Device> { Arc::<PlanningDevice>::clone(device) });
        let scheduler = Scheduler::for_planning(shown).unwrap();
        let (locations, memory_of, pins) = (TensorLocations::new(), BTreeMap::new(), BTreeMap::new());
        let (graph, placed) = parse_graph(graph, &memories);
        let mut setup = Self { scheduler, graph, locations, memory_of, pins, devices, memories };
        placed.into_iter().for_each(|(tensor, memory, usage)| setup.put(tensor, memory, usage));
        setup
    }

    pub(crate) fn with(self, options: SchedOptions) -> Self {
        Self { scheduler: self.scheduler.with_options(options), ..self }
    }

    /// Pins tensors: `y@gpu z@cpu`.
    pub(crate) fn pin(mut self, pins: &str) -> Self {
        for pin in pins.split_whitespace() {
            let (tensor, worker) = pin.split_once('@').unwrap();
            self.pin_id(self.id(tensor), self.worker(worker));
        }
        self
    }

    pub(crate) fn pin_id(&mut self, tensor: TensorId, worker: WorkerId) {
        self.scheduler.pin(tensor, worker).unwrap();
        self.pins.insert(tensor, worker);
    }

    /// Puts an external tensor into the memory with this number.
    pub(crate) fn put(&mut self, tensor: TensorId, memory: usize, usage: Usage) {
        self.locations.put(tensor, &self.memories[memory], usage);
        self.memory_of.insert(tensor, Arc::clone(&self.memories[memory]));
    }

    /// Parses another graph on the same devices.
    pub(crate) fn another(&self, graph: &str) -> (Graph, TensorLocations) {
        let (graph, placed) = parse_graph(graph, &self.memories);
        let mut locations = TensorLocations::new();
        placed.into_iter().for_each(|(tensor, memory, usage)| locations.put(tensor, &self.memories[memory], usage));
        (graph, locations)
    }

    pub(crate) fn id(&self, name: &str) -> TensorId {
        let found = self.graph.tensors().ids().find(|id| self.graph.name(*id) == name);
        found.unwrap_or_else(|| panic!("there is no tensor {name}"))
    }

    pub(crate) fn worker(&self, name: &str) -> WorkerId {
        self.scheduler.worker(name).unwrap_or_else(|| panic!("there is no worker {name}"))
    }

    pub(crate) fn try_schedule(&self) -> Result<Arc<Schedule>, SchedError> {
        self.scheduler.schedule(&self.graph, &self.locations)
    }

    pub(crate) fn schedule(&self) -> Arc<Schedule> {
        self.try_schedule().unwrap()
    }

    /// Returns the error of a graph that can't be scheduled.
    pub(crate) fn refusal(&self) -> String {
        let error = self.try_schedule().unwrap_err();
        let sources = std::iter::successors(std::error::Error::source(&error), |error| error.source());
        sources.fold(error.to_string(), |chain, source| format!("{chain}: {source}"))
    }

    pub(crate) fn places(&self) -> String {
        let schedule = self.schedule();
        let listed = self.graph.leafs().iter().chain(self.graph.nodes()).copied();
        let shown = listed.filter(|tensor| self.graph.tensor(*tensor).is_planned() || computes(&self.graph, *tensor));
        let place = |tensor| {
            let worker = schedule.worker(tensor).map_or("nowhere", |worker| &schedule.worker_names()[worker]);
            format!("{}@{worker}", self.graph.name(tensor))
        };
        shown.map(place).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn splits(&self) -> String {
        let schedule = self.schedule();
        schedule.splits().iter().map(|split| self.split(&schedule, split)).collect::<Vec<_>>().join(" ")
    }

    fn split(&self, schedule: &Schedule, split: &Split) -> String {
        let worker = &schedule.worker_names()[split.worker];
        let nodes = schedule.graph().nodes()[split.nodes.clone()].iter().filter(|node| computes(&self.graph, **node));
        let nodes = nodes.map(|node| self.graph.name(*node)).collect::<Vec<_>>().join(" ");
        let copies = schedule.copies()[split.copies.clone()].iter().map(|copy| self.copy(copy));
        match copies.collect::<Vec<_>>().join(" ").as_str() {
            "" => format!("{worker}[{nodes}]"),
            copies => format!("{worker}[{copies}: {nodes}]"),
        }
    }

    /// Returns the name of the root, which of its bytes if not all, and how many in turn if several.
    fn copy(&self, copy: &TensorCopy) -> String {
        let mut text = String::from(self.graph.name(copy.root));
        if copy.size < self.graph.tensor(copy.root).nbytes() {
            text += &format!("[{}..{}]", copy.start, copy.start.0 + copy.size.0);
        }
        if copy.tensors.len() > 1 {
            text += &format!("#{}", copy.tensors.len());
        }
        text
    }

    pub(crate) fn why(&self, tensor: &str) -> String {
        self.schedule().why(self.id(tensor)).unwrap_or_else(|| panic!("no reason for {tensor}"))
    }

    /// Returns the required bytes per worker.
    pub(crate) fn required(&self) -> Vec<u64> {
        self.scheduler.required(&self.graph, &self.locations).unwrap().iter().map(|bytes| bytes.0).collect()
    }

    pub(crate) fn reserve(&mut self) -> Result<(), SchedError> {
        self.scheduler.reserve(&self.graph, &self.locations)
    }

    /// Returns what the scheduler says it has allocated for each worker.
    pub(crate) fn allocated(&self) -> Vec<u64> {
        let ids = self.scheduler.workers().map(|(id, _)| id);
        ids.map(|id| self.scheduler.buffer_size(id).unwrap().0).collect()
    }

    /// Returns how often any memory was asked for a buffer.
    pub(crate) fn asked(&self) -> u64 {
        self.devices.iter().map(|device| device.ledger.asked()).sum()
    }

    /// Returns the scheduled graph with the memories of the workers, as a planner sees it.
    pub(crate) fn assigned(&self, schedule: &Schedule) -> AssignedGraph {
        let own: Vec<&Arc<dyn BufferType>> = self.devices.iter().map(|device| &device.types[0]).collect();
        let memory = |(index, memory): (usize, &&Arc<dyn BufferType>)| {
            let first = own.iter().position(|other| Arc::ptr_eq(other, memory)).filter(|first| *first < index);
            let shared_with = first.and_then(MemoryId::from_index);
            Memory { shared_with, ..Memory::new(memory.name(), memory.align()) }
        };
        let memories: Vec<Memory> = own.iter().enumerate().map(memory).collect();
        let sizes = AllocSizes::new(memories.len());
        AssignedGraph::new(schedule.graph().clone(), memories, schedule.assignment().clone(), sizes).unwrap()
    }
}

/// Returns whether a listed tensor computes something.
pub(crate) fn computes(graph: &Graph, tensor: TensorId) -> bool {
    !graph.tensor(tensor).op.writes_nothing()
}

/// Returns the operation of a tensor, as texts write it.
pub(crate) fn op(graph: &Graph, tensor: TensorId) -> String {
    graph.tensors().op_title(graph.tensor(tensor).op).to_ascii_lowercase()
}

/// A device that could compute, if only it were there.
#[derive(Debug)]
pub(crate) struct PlanningDevice {
    name: String,
    types: Vec<Arc<dyn BufferType>>,
    lacks: Vec<String>,
    offloads: Vec<String>,
    /// The names of other memories that it reads and writes.
    reads: Vec<String>,
    ledger: Ledger,
}

impl PlanningDevice {
    /// Its own memory.
    pub(crate) fn own(&self) -> &Arc<dyn BufferType> {
        &self.types[0]
    }
}

impl Device for PlanningDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Planning
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo::default()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn reads(&self, memory: &Arc<dyn BufferType>) -> bool {
        Arc::ptr_eq(memory, &self.types[0]) || self.reads.iter().any(|name| name == memory.name())
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        match self.lacks.contains(&op(graph, node)) {
            true => Err(DeviceError::unsupported(&self.name, graph, node, "it is not built for that")),
            false => Ok(()),
        }
    }

    fn offloads(&self, graph: &Graph, node: TensorId) -> bool {
        self.offloads.contains(&op(graph, node))
    }

    fn backend(&self) -> Result<Box<dyn Backend>, DeviceError> {
        Err(DeviceError::Failed { device: self.name.clone(), why: "it is not there".into() })
    }
}

/// Memory that only counts. Tensors may be at any byte, so that sums are easy to see.
#[derive(Debug)]
struct CountingMemory {
    counted: Arc<dyn BufferType>,
    is_host: bool,
}

impl BufferType for CountingMemory {
    fn name(&self) -> &str {
        self.counted.name()
    }

    fn align(&self) -> Align {
        self.counted.align()
    }

    fn max_size(&self) -> Option<Bytes> {
        self.counted.max_size()
    }

    fn is_host(&self) -> bool {
        self.is_host
    }

    fn padding(&self) -> Option<&dyn Padding> {
        self.counted.padding()
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        self.counted.allocate(size)
    }
}

fn parse_devices(text: &str) -> (Vec<Arc<PlanningDevice>>, Memories) {
    let (mut devices, mut memories) = (Vec::new(), Memories::new());
    for line in text.split([';', '\n']) {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let is_device = first != "memory";
        let name = if is_device { first } else { words.next().unwrap() };
        // What follows each of these words.
        let mut said: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut clause = "";
        for word in words {
            match word {
                "lacks" | "offloads" | "reads" | "shares" | "in" | "host" => clause = word,
                _ => said.entry(clause).or_default().push(word.into()),
            }
            said.entry(clause).or_default();
        }
        let called = said.get("in").map_or(name, |names| &names[0]);
        let counter = NullDevice::new(MemorySpec::new(called).with_align(Align::ONE));
        let counted = Arc::clone(&counter.buffer_types()[0]);
        let memory: Arc<dyn BufferType> = match said.get("shares") {
            Some(shared) => Arc::clone(memories.iter().find(|memory| memory.name() == shared[0]).unwrap()),
            None => Arc::new(CountingMemory { counted, is_host: said.contains_key("host") }),
        };
        if !said.contains_key("shares") {
            memories.push(Arc::clone(&memory));
        }
        if is_device {
            let [lacks, offloads, reads] =
                ["lacks", "offloads", "reads"].map(|word| said.remove(word).unwrap_or_default());
            let (name, types, ledger) = (name.into(), vec![memory], counter.ledger().clone());
            devices.push(Arc::new(PlanningDevice { name, types, lacks, offloads, reads, ledger }));
        }
    }
    (devices, memories)
}

/// Parses a graph, and in which memory each external tensor is located.
fn parse_graph(text: &str, memories: &Memories) -> (Graph, Vec<(TensorId, usize, Usage)>) {
    let known: String = memories.iter().map(|memory| format!("memory {};", memory.name())).collect();
    let assigned: AssignedGraph = format!("{known}\n{text}").parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (graph, assignment) = (assigned.graph(), assigned.assignment());
    let listed = graph.leafs().iter().zip(&assignment.leafs).chain(graph.nodes().iter().zip(&assignment.nodes));
    let said: BTreeMap<TensorId, MemoryId> = listed.map(|(tensor, memory)| (*tensor, *memory)).collect();
    let external = graph.tensors().ids().filter(|tensor| graph.tensor(*tensor).external);
    let placed = external.map(|tensor| {
        let usage = if graph.name(tensor).starts_with('w') { Usage::Weights } else { Usage::Any };
        (tensor, said.get(&tensor).map_or(0, |memory| memory.index()), usage)
    });
    let placed = placed.collect();
    (assigned.into_graph(), placed)
}
