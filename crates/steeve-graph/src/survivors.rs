//! Plan in, which tensors still have their contents after a run out. O(n log n).
//!
//! A tensor survives if no later write is located on its bytes. The last write decides, and that is known from the
//! order of nodes alone, without live ranges.
//!
//! ```text
//!   written at 1   [ a ]              lost: c overwrites its end
//!   written at 2         [ b ]        survives
//!   written at 3      [ c]            survives
//! ```

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::{BufferId, Id};

use crate::{Graph, GraphPlan, IntervalMap, MemoryId, Op, TensorId};

/// Which tensors keep their contents until the end of a run, see [`GraphPlan::survivors`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivors(Vec<bool>);

impl Survivors {
    /// Returns whether `tensor` still has its contents after a run; of a view, whether its root has.
    pub fn contains(&self, tensor: TensorId) -> bool {
        self.0.get(tensor.index()).copied().unwrap_or(false)
    }
}

impl GraphPlan {
    /// Returns which tensors still have their contents after a run: outputs, and whatever happens not to be
    /// overwritten. External tensors are among them; what the graph never touches is not.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
    /// let graph: AssignedGraph = "x = input f32[64]; a = sqr x; b = neg a; c = add a b !output".parse()?;
    /// let survivors = plan_graph(&graph, &PlanOptions::default())?.survivors();
    /// let (x, c) = (graph.graph().leafs()[0], graph.graph().nodes()[2]);
    /// assert!(survivors.contains(c));
    /// assert!(!survivors.contains(x)); // `a` is written over it
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn survivors(&self) -> Survivors {
        let graph = self.in_run_order().graph();
        let written = last_writes(graph);
        let mut roots: Vec<TensorId> = graph.tensors().ids().filter(|id| self.block(*id).is_some()).collect();
        roots.sort_by_key(|root| core::cmp::Reverse(written[root.index()]));
        // The bytes that later writes cover.
        let mut taken = BTreeMap::<(MemoryId, BufferId), IntervalMap<()>>::new();
        let mut intact = vec![false; graph.tensors().len()];
        for root in roots {
            let Some(place) = self.place(root) else { continue };
            let range = place.offset.0..place.offset.0.saturating_add(place.size.0);
            let taken = taken.entry((place.memory, place.buffer)).or_default();
            intact[root.index()] = !taken.overlaps(range.clone());
            taken.insert(range, ());
        }
        let survives = |root: TensorId| graph.tensor(root).external || intact[root.index()];
        Survivors(graph.tensors().ids().map(|id| survives(graph.root(id))).collect())
    }
}

/// Returns for each root the step of the last node that writes it, itself or through a view; 0 if that is the caller.
fn last_writes(graph: &Graph) -> Vec<usize> {
    let mut written = vec![0; graph.tensors().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        // What has bytes of its own and no operation is filled from outside at its turn: a copy of the scheduler's.
        let it = graph.tensor(*node);
        if !it.op.writes_nothing() || (it.op == Op::None && it.is_planned()) {
            written[graph.root(*node).index()] = index + 1;
        }
    }
    written
}
