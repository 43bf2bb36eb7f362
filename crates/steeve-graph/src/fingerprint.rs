//! Graph in, a number out by which its plan is found. O(edges).
//!
//! ```text
//!   fingerprint         edges, view roots, flags, external tensors, assignment        a plan of one may fit the other
//!   exact_fingerprint   the same, shapes, allocation sizes, memories, reuse, unread   a plan of one is a plan of the other
//! ```
//!
//! Operations are part of neither. A plan that is loaded is derived from the very graph and proven for it, in-place
//! aliases included, so a number that misses a difference costs a refusal and nothing else; and readers of one graph
//! may know its operations by different names. Memories are counted in the order in which leafs and nodes first use
//! them, so that their order in the list does not matter.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use steeve_plan::{Bytes, Id};

use crate::{AssignedGraph, Graph, MemoryId, PlanOptions, TensorId};

/// A number that graphs share if a plan of one may fit the other: everything but operations and sizes. Others share it by chance
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

impl core::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl AssignedGraph {
    /// Returns the fingerprint of edges, view roots, flags, external memory and assignment.
    ///
    /// ```
    /// use steeve_graph::AssignedGraph;
    /// let graph = |text: &str| text.parse::<AssignedGraph>().unwrap();
    /// let one = graph("a = input f32[4]; b = sqr a; c = neg a; d = add b c !output");
    /// let small = graph("a = input f32[2]; b = sqr a; c = neg a; d = add b c !output");
    /// let other = graph("a = input f32[4]; b = sqr a; c = neg b; d = add b c !output");
    /// assert_eq!(one.fingerprint(), small.fingerprint());
    /// assert_ne!(one.fingerprint(), other.fingerprint());
    /// ```
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = GraphHasher::new();
        hash.structure(self, &UsedMemories::of(self));
        hash.finish()
    }

    /// Returns the fingerprint of the graph with everything else that its plan depends on: the shape of each tensor within planned
    /// memory, its allocation size in each memory in use, those memories themselves, and reuse and unread of `options`. Not the
    /// strategy and its budget, which decide how good a plan is.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, PlanOptions, Unread};
    /// let graph = |text: &str| text.parse::<AssignedGraph>().unwrap();
    /// let one = graph("a = input f32[4]; b = sqr a !output");
    /// let small = graph("a = input f32[2]; b = sqr a !output");
    /// let options = PlanOptions::default();
    /// assert_ne!(one.exact_fingerprint(&options), small.exact_fingerprint(&options));
    /// assert_ne!(one.exact_fingerprint(&options), one.exact_fingerprint(&options.with_unread(Unread::Keep)));
    /// ```
    pub fn exact_fingerprint(&self, options: &PlanOptions) -> Fingerprint {
        let mut hash = GraphHasher::new();
        let memories = UsedMemories::of(self);
        hash.structure(self, &memories);
        memories.ids.iter().for_each(|memory| hash.memory(self, &memories, *memory));
        let tensors = self.graph().tensors();
        for (id, tensor) in tensors.pairs() {
            if tensors.is_external(id) {
                continue;
            }
            hash.add(id.index() as u64);
            hash.add(u64::from(tensors.permitted_slots(id)));
            tensors.permitted_overlaps(id).for_each(|(slot, distance)| {
                hash.add(slot as u64);
                hash.add(distance.0);
            });
            tensors.own_result_slots(id).for_each(|slot| hash.add(!(slot as u64)));
            tensor.layout.ne().into_iter().chain(tensor.layout.nb()).for_each(|word| hash.add(word));
            match tensor.view {
                Some(view) => [view.offset, tensor.nbytes()].into_iter().for_each(|bytes| hash.add(bytes.0)),
                None => memories.ids.iter().for_each(|memory| hash.add(self.alloc_size(id, *memory).0)),
            }
        }
        hash.text(options.reuse.name());
        hash.text(options.unread.name());
        hash.finish()
    }

    /// Returns the name of the file with this graph's plan in a folder of plans: its exact fingerprint, and `.json.gz`.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, PlanOptions};
    /// let graph: AssignedGraph = "a = input f32[4]; b = sqr a !output".parse()?;
    /// let name = graph.plan_file_name(&PlanOptions::default());
    /// assert!(name.len() == 32 + 8 && name.ends_with(".json.gz"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan_file_name(&self, options: &PlanOptions) -> String {
        format!("{}.json.gz", self.exact_fingerprint(options))
    }
}

/// The memories that leafs and nodes belong to, in the order in which they first do.
struct UsedMemories {
    ids: Vec<MemoryId>,
    /// The position of each memory in `ids`.
    positions: Vec<Option<u32>>,
}

impl UsedMemories {
    fn of(assigned: &AssignedGraph) -> Self {
        let assignment = assigned.assignment();
        let mut used = Self { ids: Vec::new(), positions: vec![None; assigned.memories().len()] };
        for memory in assignment.leafs.iter().chain(&assignment.nodes) {
            if used.positions[memory.index()].is_none() {
                used.positions[memory.index()] = Some(used.ids.len() as u32);
                used.ids.push(*memory);
            }
        }
        used
    }

    fn position(&self, memory: MemoryId) -> u64 {
        self.positions[memory.index()].map_or(u64::MAX, u64::from)
    }
}

/// Two independent streams of multiply and rotate, so that the result has 128 bits.
struct GraphHasher(u64, u64);

impl GraphHasher {
    fn new() -> Self {
        Self(0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        self.1 = (self.1.rotate_left(31) ^ word).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    }

    fn text(&mut self, text: &str) {
        self.add(text.len() as u64);
        text.bytes().for_each(|byte| self.add(u64::from(byte)));
    }

    fn structure(&mut self, assigned: &AssignedGraph, used: &UsedMemories) {
        let (graph, assignment) = (assigned.graph(), assigned.assignment());
        for (list, memories) in [(graph.leafs(), &assignment.leafs), (graph.nodes(), &assignment.nodes)] {
            self.add(list.len() as u64);
            for (tensor, memory) in list.iter().zip(memories) {
                self.add(used.position(*memory));
                self.tensor(graph, *tensor);
            }
        }
    }

    fn tensor(&mut self, graph: &Graph, id: TensorId) {
        let tensor = graph.tensor(id);
        let tensors = graph.tensors();
        self.add(id.index() as u64);
        let root = tensor.view.map_or(0, |view| view.root.index() as u64 + 1);
        self.add(root << 16 | u64::from(tensor.flags.bits()) << 1 | u64::from(tensor.external));
        self.add(graph.sources(id).len() as u64);
        for source in graph.sources(id) {
            let external = source.is_some_and(|source| tensors.is_external(source));
            let number = source.map_or(0, |source| source.index() as u64 + 1);
            self.add(number << 1 | u64::from(external));
        }
    }

    fn memory(&mut self, assigned: &AssignedGraph, used: &UsedMemories, id: MemoryId) {
        let memory = &assigned.memories()[id];
        self.text(&memory.name);
        self.add(memory.align.get());
        // No buffer has no bytes.
        self.add(memory.max_buffer.unwrap_or(Bytes::ZERO).0);
        self.add(u64::from(memory.max_buffer.is_some()));
        self.add(u64::from(memory.extra_lifetime));
        self.text(memory.fusion.name());
        // The first in use that is the same memory under another id.
        let same = |other: &&MemoryId| assigned.owner(**other) == assigned.owner(id);
        self.add(used.ids.iter().find(same).map_or(u64::MAX, |first| used.position(*first)));
    }

    fn finish(mut self) -> Fingerprint {
        self.add(0x5354_4545_5645);
        Fingerprint(u128::from(self.0) << 64 | u128::from(self.1))
    }
}
