//! Which graphs get a plan of their own although they fit the plan of a larger graph.
//!
//! A graph that is far smaller than a plan leaves most of the buffer unused, but its tensors are spread over all of it. With a
//! plan of its own it stays at the bottom of the same buffer, and what is above is never touched. How much smaller a graph
//! is than the plan is counted in powers of four, so that there are a few plans however many sizes there are:
//!
//! ```text
//!   bytes of the graph's tensors, of the plan's
//!   1/1        1/4            1/16           1/64
//!    | shared   | class 1      | class 2      | ...       one plan for each class, as large as the largest graph in it
//! ```

use steeve_plan::Bytes;

/// How many times as large as a graph a plan may be before the graph gets one of its own.
const FACTOR: u64 = 4;

/// How many plans for smaller graphs there are beside a plan.
const MOST_PLANS: usize = 4;

/// The power of four by which a graph is smaller than a plan that it fits. Allocators keep at most one plan for all graphs of a
/// class.
///
/// ```
/// use steeve_graph::{Bytes, SizeClass};
/// assert_eq!(SizeClass::of(Bytes(1024), Bytes(4096)), None); // shares the plan
/// let class = SizeClass::of(Bytes(1000), Bytes(4096)).ok_or("far smaller")?;
/// assert_eq!(SizeClass::of(Bytes(300), Bytes(4096)), Some(class));
/// assert_ne!(SizeClass::of(Bytes(8), Bytes(4096)), Some(class));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass(u32);

impl SizeClass {
    /// Returns the class of a graph that takes less than a quarter of what a plan does; `None` for a larger one. Both are
    /// measured in the same way, such as by the bytes of all tensors.
    pub fn of(graph: Bytes, plan: Bytes) -> Option<Self> {
        let is_far_smaller = graph.0 < plan.0 / FACTOR;
        is_far_smaller.then(|| Self((plan.0 / graph.0.max(1)).ilog(FACTOR)))
    }

    /// Returns whether a plan for this class may be made where there are plans for the classes `kept` beside the same plan, and
    /// so many places are free: it replaces that of its own class, or is one of a few.
    pub fn may_be_planned(self, kept: impl IntoIterator<Item = Self>, free: usize) -> bool {
        let (mut count, mut is_kept) = (0, false);
        for class in kept {
            count += 1;
            is_kept |= class == self;
        }
        is_kept || (free > 0 && count < MOST_PLANS)
    }
}

/// A set of size classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClasses(u32);

impl SizeClasses {
    /// Returns whether the class is in the set.
    pub fn contains(self, class: SizeClass) -> bool {
        self.0 >> class.0 & 1 == 1
    }

    /// Adds a class to the set.
    pub fn insert(&mut self, class: SizeClass) {
        self.0 |= 1 << class.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_four_and_all_sizes_have_one() {
        let class = |graph: u64, plan: u64| SizeClass::of(Bytes(graph), Bytes(plan));
        assert_eq!([class(0, 0), class(0, 3), class(16, 64), class(64, 16)], [None; 4]);
        assert_eq!([class(15, 64), class(5, 64), class(4, 64), class(1, 64)].map(|it| it.unwrap().0), [1, 1, 2, 3]);
        let mut classes = SizeClasses::default();
        let smallest = class(0, u64::MAX).unwrap();
        assert!(!classes.contains(smallest));
        classes.insert(smallest);
        assert!(classes.contains(smallest) && !classes.contains(class(1, 8).unwrap()));
    }

    #[test]
    fn there_are_a_few_plans_and_one_for_each_class() {
        let classes = [1, 2, 3, 4].map(SizeClass);
        assert!(SizeClass(5).may_be_planned(classes[..3].iter().copied(), 1));
        assert!(!SizeClass(5).may_be_planned(classes[..3].iter().copied(), 0));
        assert!(!SizeClass(5).may_be_planned(classes, 1));
        assert!(SizeClass(4).may_be_planned(classes, 0));
    }
}
