//! Several graphs in one set of buffers: a prompt graph and a token graph, say.
//!
//! They never run at the same time, so each has a plan of its own, and each buffer is as large as the largest need.

use alloc::vec::Vec;

use steeve_plan::Bytes;

use crate::{AssignedGraph, GraphPlan, GraphPlanError, MemoryId, PlanOptions, plan_graph};

/// Plans for several graphs that share their buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlansTogether {
    /// A plan for each graph, in order.
    pub plans: Vec<GraphPlan>,
    /// For each memory that does not share another's, the size of each buffer.
    pub buffers: Vec<(MemoryId, Vec<Bytes>)>,
}

impl PlansTogether {
    /// Returns the bytes of all buffers.
    pub fn peak(&self) -> Bytes {
        let sizes = self.buffers.iter().flat_map(|(_, sizes)| sizes);
        Bytes(sizes.fold(0, |sum: u64, size| sum.saturating_add(size.0)))
    }
}

/// Why graphs can't be planned together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TogetherError {
    /// One of them has no plan.
    #[error("graph {graph}: no plan")]
    Plan {
        /// Which one, from 0.
        graph: usize,
        /// The cause.
        #[source]
        error: GraphPlanError,
    },
    /// Two of them are assigned to different memories.
    #[error("graph {graph}: can't share buffers: expected the memories of graph 0, got others")]
    Memories {
        /// Which one, from 0.
        graph: usize,
    },
}

/// Plans several graphs for one set of buffers.
///
/// ```
/// use steeve_graph::{AssignedGraph, Bytes, PlanOptions, plan_together};
/// let prompt: AssignedGraph = "x = input f32[512]; y = sqr x !output".parse()?;
/// let token: AssignedGraph = "x = input f32[1]; y = sqr x; z = neg y !output".parse()?;
/// let together = plan_together(&[&prompt, &token], &PlanOptions::default())?;
/// assert_eq!(together.peak(), Bytes(2048));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If one of the graphs has no plan, or they are assigned to different memories.
pub fn plan_together(graphs: &[&AssignedGraph], options: &PlanOptions) -> Result<PlansTogether, TogetherError> {
    let mut plans: Vec<GraphPlan> = Vec::with_capacity(graphs.len());
    let mut buffers: Vec<(MemoryId, Vec<Bytes>)> = Vec::new();
    for (graph, assigned) in graphs.iter().enumerate() {
        if plans.first().is_some_and(|first| first.assigned().memories() != assigned.memories()) {
            return Err(TogetherError::Memories { graph });
        }
        let plan = plan_graph(assigned, options).map_err(|error| TogetherError::Plan { graph, error })?;
        if buffers.is_empty() {
            buffers = plan.memories().iter().map(|it| (it.memory, Vec::new())).collect();
        }
        for ((_, sizes), it) in buffers.iter_mut().zip(plan.memories()) {
            grow(sizes, it.plan.buffers().as_slice());
        }
        plans.push(plan);
    }
    Ok(PlansTogether { plans, buffers })
}

/// Makes each buffer at least as large as needed, and adds new ones where there are more.
fn grow(sizes: &mut Vec<Bytes>, needed: &[Bytes]) {
    for (size, needed) in sizes.iter_mut().zip(needed) {
        *size = (*size).max(*needed);
    }
    let known = sizes.len().min(needed.len());
    sizes.extend_from_slice(&needed[known..]);
}

/// Gives each buffer of a plan one of the buffers there are: the largest to the largest, so that little has to grow.
/// Answers which, and enters into `sizes` what they must have.
///
/// ```
/// use steeve_graph::{Bytes, share_buffers};
/// let mut sizes = vec![Bytes(100), Bytes(50)];
/// assert_eq!(share_buffers(&mut sizes, &[Bytes(60), Bytes(90)]), [1, 0]);
/// assert_eq!(sizes, [Bytes(100), Bytes(60)]);
/// ```
pub fn share_buffers(sizes: &mut Vec<Bytes>, needed: &[Bytes]) -> Vec<usize> {
    if sizes.len() < needed.len() {
        sizes.resize(needed.len(), Bytes::ZERO);
    }
    let by_size = |sizes: &[Bytes]| {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|index| core::cmp::Reverse(sizes[*index]));
        order
    };
    let mut shared = alloc::vec![0; needed.len()];
    for (buffer, chunk) in by_size(needed).into_iter().zip(by_size(sizes)) {
        shared[buffer] = chunk;
        sizes[chunk] = sizes[chunk].max(needed[buffer]);
    }
    shared
}

/// Assigns each buffer of a plan to one of the buffers that exist, the largest to the largest. Returns `None` if there are too
/// few or one of them is too small; then no other assignment fits either.
///
/// ```
/// use steeve_graph::{Bytes, fit_buffers};
/// let sizes = [Bytes(100), Bytes(50)];
/// assert_eq!(fit_buffers(&sizes, &[Bytes(40), Bytes(90)]), Some(vec![1, 0]));
/// assert_eq!(fit_buffers(&sizes, &[Bytes(60), Bytes(60)]), None);
/// ```
pub fn fit_buffers(sizes: &[Bytes], needed: &[Bytes]) -> Option<Vec<usize>> {
    if sizes.len() < needed.len() {
        return None;
    }
    let mut grown = sizes.to_vec();
    let shared = share_buffers(&mut grown, needed);
    (grown == sizes).then_some(shared)
}
