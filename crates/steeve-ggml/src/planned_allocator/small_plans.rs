//! Plans of their own for graphs that are far smaller than a plan that they fit.

use std::sync::Arc;

use steeve_graph::{Bytes, GraphStrategy, SizeClass};

use super::{KeptPlan, PLANS, PlannedAllocator};
use crate::read_graph::TensorLists;

/// A plan for smaller graphs of the same kind as another plan's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SmallPlan {
    /// The number of the other plan.
    of: u64,
    /// The bytes of the other plan's tensors.
    bytes: Bytes,
    class: SizeClass,
}

impl PlannedAllocator {
    /// Returns whether graphs that are far smaller than a plan get one of their own: in plain CPU memory, where pages that are not
    /// touched cost nothing, and where only the caller depends on plans.
    pub(super) fn allows_small_plans(&self) -> bool {
        !self.uses_ggml_layout() && matches!(self.memories.is_host.as_slice(), [true])
    }

    /// Makes a plan of its own for a graph whose tensors have so many bytes, at the bottom of the buffers that there are, if
    /// that takes far fewer of them than the first kept plan: memory that is never touched is never resident. Otherwise the
    /// first kept plan stays what it is. What is resident already is worth no plan.
    ///
    /// # Safety
    /// A graph of this ggml's, which the first kept plan fits and is bound to.
    pub(super) unsafe fn plan_small(&mut self, lists: TensorLists<'_>, bytes: Bytes) {
        let Some(first) = self.kept_plans.first() else { return };
        let (of, of_bytes) = first.small.map_or((first.number, first.pattern.bytes), |small| (small.of, small.bytes));
        let Some(class) = SizeClass::of(bytes, of_bytes).filter(|class| !first.not_worth_while.contains(*class)) else {
            return;
        };
        let small = SmallPlan { of, bytes: of_bytes, class };
        let kept = self.kept_plans.iter().filter_map(|kept_plan| kept_plan.small).filter(|other| other.of == of);
        if !class.may_be_planned(kept.map(|other| other.class), PLANS - self.kept_plans.len()) {
            return;
        }
        let (ids, shared) = (Arc::clone(&first.ids), first.peak());
        // A search may take its time once, for the largest graph.
        let strategy = GraphStrategy::Fast;
        // SAFETY: passed on.
        let made = unsafe { self.make_plan(lists, ids, strategy) }.ok();
        let made = made.filter(|kept_plan| SizeClass::of(kept_plan.peak(), shared).is_some());
        match made.and_then(|kept_plan| Some((kept_plan.fit(&self.buffer_sets, false)?, kept_plan))) {
            Some((chunks, kept_plan)) => {
                self.kept_plans.retain(|outgrown| outgrown.small != Some(small));
                self.kept_plans.insert(0, KeptPlan { chunks: Some(chunks), small: Some(small), ..kept_plan });
            }
            None => self.kept_plans[0].not_worth_while.insert(class),
        }
    }

    /// Drops the kept plans whose work the first one can do. Plans for far smaller graphs are from now on beside the first.
    pub(super) fn drop_covered(&mut self) {
        let Some((first, others)) = self.kept_plans.split_first_mut() else { return };
        let mut adopted: Vec<SizeClass> = Vec::new();
        let mut kept = vec![true];
        for old in others {
            let is_covered = old.ids == first.ids && first.pattern.covers(&old.pattern);
            let small = first.adopt(old).filter(|small| {
                !adopted.contains(&small.class) && small.class.may_be_planned(adopted.iter().copied(), 1)
            });
            if let Some(small) = small.filter(|_| is_covered) {
                adopted.push(small.class);
                old.small = Some(small);
            }
            kept.push(!is_covered || small.is_some());
        }
        let mut kept = kept.into_iter();
        self.kept_plans.retain(|_| kept.next().unwrap_or(true));
    }
}

impl KeptPlan {
    /// Returns the role of a plan for smaller graphs beside this one; `None` if it is not, has no buffers, or saves too little.
    fn adopt(&self, other: &Self) -> Option<SmallPlan> {
        let is_small = other.small.is_some() && other.chunks.is_some() && self.small.is_none();
        let class = SizeClass::of(other.pattern.bytes, self.pattern.bytes).filter(|_| is_small)?;
        let small = SmallPlan { of: self.number, bytes: self.pattern.bytes, class };
        SizeClass::of(other.peak(), self.peak()).map(|_| small)
    }
}
