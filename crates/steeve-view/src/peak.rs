//! Lists what is alive at the fullest step of a memory, and why.

use steeve_plan::{Bytes, Step};

use crate::text::short_name;
use crate::{LastUse, MemoryMap, PlanMap, StepUnit, Tile};

impl MemoryMap {
    /// Returns the tiles that are alive at the fullest step, the one that occupies most bytes first; none where nothing is
    /// ever alive. O(n log n).
    ///
    /// ```
    /// use steeve_plan::{Bytes, Strategy, csv, plan};
    /// use steeve_view::PlanMap;
    /// let table = csv::read("id,lower,upper,size\nconv,0,3,4096\nrelu,3,5,1024\nskip,0,5,64\n")?;
    /// let map = PlanMap::of_blocks("fast", "memory", &plan(table.problem()?, &Strategy::Fast)?, table.ids());
    /// let names: Vec<&str> = map.memories[0].alive_at_peak().iter().map(|it| it.name.as_str()).collect();
    /// assert_eq!(names, ["conv", "skip"]);
    /// assert_eq!(map.memories[0].live_at_peak(), Bytes(4160));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alive_at_peak(&self) -> Vec<&Tile> {
        self.fullest.map(|step| self.alive_at(step)).unwrap_or_default()
    }

    /// Returns the bytes that tiles occupy at the fullest step, each rounded up to its alignment. O(n log n).
    pub fn live_at_peak(&self) -> Bytes {
        Bytes(self.alive_at_peak().iter().fold(0, |sum: u64, tile| sum.saturating_add(tile.occupied.0)))
    }

    /// Returns the bytes that two tiles have at once at the fullest step: those of a result that overlaps a source while that is
    /// read. O(n log n).
    ///
    /// ```
    /// use steeve_plan::{Bytes, Strategy, csv, plan};
    /// use steeve_view::PlanMap;
    /// let table = csv::read("id,lower,upper,size,overlaps,distance\nx,0,2,64,,\ny,1,3,128,x,80\n")?;
    /// let map = PlanMap::of_blocks("fast", "memory", &plan(table.problem()?, &Strategy::Fast)?, table.ids());
    /// let memory = &map.memories[0];
    /// assert_eq!((memory.live_at_peak(), memory.shared_at_peak()), (Bytes(64 + 128), Bytes(48)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared_at_peak(&self) -> Bytes {
        let range = |tile: &&Tile| (tile.buffer, tile.offset.0, tile.offset.0.saturating_add(tile.occupied.0));
        let mut ranges: Vec<_> = self.alive_at_peak().iter().map(range).collect();
        ranges.sort_unstable();
        let (mut shared, mut reached) = (0u64, (0, 0));
        for (buffer, start, end) in ranges {
            let before = if reached.0 == buffer { reached.1 } else { 0 };
            shared = shared.saturating_add(before.min(end).saturating_sub(start));
            reached = (buffer, before.max(end));
        }
        Bytes(shared)
    }
}

impl PlanMap {
    /// Returns the name of a step in a sentence: `before the run`, `node 3 (kq-0)`, `step 4`.
    pub fn step_called(&self, step: Step) -> String {
        match (self.unit, step.0.checked_sub(1)) {
            (StepUnit::Node, Some(node)) => self.node_called(usize::try_from(node).unwrap_or(usize::MAX)),
            _ => self.unit.named(step),
        }
    }

    /// Returns a node by its number, and by its name where the map knows it: `node 12 (kq-0)`.
    pub fn node_called(&self, node: usize) -> String {
        match self.nodes.get(node) {
            Some((name, _)) if !name.is_empty() => format!("node {node} ({})", short_name(name)),
            _ => format!("node {node}"),
        }
    }

    /// Returns why a tensor is alive for as long as it is: `last read by node 12 (kq-0)`, `kept as output`; nothing where
    /// nothing is known.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
    /// use steeve_view::PlanMap;
    /// let graph: AssignedGraph = "x = input f32[64]; kq-0 = silu x; y = add kq-0 x !output".parse()?;
    /// let map = PlanMap::of_graph("steeve", &plan_graph(&graph, &PlanOptions::default())?);
    /// assert_eq!(map.why_alive(&map.memories[0].tiles[0]), "last read by node 1 (y)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn why_alive(&self, tile: &Tile) -> String {
        match tile.last_use {
            LastUse::Read { node } => format!("last read by {}", self.node_called(node)),
            other => other.to_string(),
        }
    }
}
