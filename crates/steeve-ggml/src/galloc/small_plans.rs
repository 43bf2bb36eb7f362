//! Plans of their own for graphs that are far smaller than a plan that they fit.

use std::sync::Arc;

use steeve_graph::{Bytes, GraphStrategy, SizeClass};

use super::{Entry, Galloc, PLANS};
use crate::read::Lists;

/// A plan for smaller graphs of the same kind as another plan's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Small {
    /// The number of the other plan.
    of: u64,
    /// The bytes of the other plan's tensors.
    bytes: Bytes,
    class: SizeClass,
}

impl Galloc {
    /// Whether graphs that are far smaller than a plan get one of their own: in plain CPU memory, where pages that are not
    /// touched cost nothing, and where no one but the caller knows of plans.
    pub(super) fn has_small_plans(&self) -> bool {
        !self.is_as_ggml() && matches!(self.memories.is_host.as_slice(), [true])
    }

    /// Makes a plan of its own for a graph whose tensors have so many bytes, at the bottom of the buffers that there are, if
    /// that takes far fewer of them than the first entry: memory that is never touched is never resident. Otherwise the
    /// first entry stays what it is. What is resident already is worth no plan.
    ///
    /// # Safety
    /// A graph of this ggml's, which the first entry fits and is bound to.
    pub(super) unsafe fn plan_small(&mut self, lists: Lists<'_>, bytes: Bytes) {
        let Some(first) = self.entries.first() else { return };
        let (of, of_bytes) = first.small.map_or((first.number, first.pattern.bytes), |small| (small.of, small.bytes));
        let Some(class) = SizeClass::of(bytes, of_bytes).filter(|class| !first.not_worth_while.contains(*class)) else {
            return;
        };
        let small = Small { of, bytes: of_bytes, class };
        let kept = self.entries.iter().filter_map(|entry| entry.small).filter(|other| other.of == of);
        if !class.may_be_planned(kept.map(|other| other.class), PLANS - self.entries.len()) {
            return;
        }
        let (ids, shared) = (Arc::clone(&first.ids), first.peak());
        // A search may take its time once, for the largest graph.
        let strategy = GraphStrategy::Fast;
        // SAFETY: passed on.
        let made = unsafe { self.make_entry(lists, ids, strategy) }.ok();
        let made = made.filter(|entry| SizeClass::of(entry.peak(), shared).is_some());
        match made.and_then(|entry| Some((entry.fit(&self.parts, false)?, entry))) {
            Some((chunks, entry)) => {
                self.entries.retain(|outgrown| outgrown.small != Some(small));
                self.entries.insert(0, Entry { chunks: Some(chunks), small: Some(small), ..entry });
            }
            None => self.entries[0].not_worth_while.insert(class),
        }
    }

    /// Drops the entries whose work the first one can do. Plans for far smaller graphs are from now on beside the first.
    pub(super) fn drop_covered(&mut self) {
        let Some((first, others)) = self.entries.split_first_mut() else { return };
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
        self.entries.retain(|_| kept.next().unwrap_or(true));
    }
}

impl Entry {
    /// What a plan for smaller graphs is beside this one; `None` if it is not, has no buffers, or is not worth while.
    fn adopt(&self, other: &Self) -> Option<Small> {
        let is_small = other.small.is_some() && other.chunks.is_some() && self.small.is_none();
        let class = SizeClass::of(other.pattern.bytes, self.pattern.bytes).filter(|_| is_small)?;
        let small = Small { of: self.number, bytes: self.pattern.bytes, class };
        SizeClass::of(other.peak(), self.peak()).map(|_| small)
    }
}
