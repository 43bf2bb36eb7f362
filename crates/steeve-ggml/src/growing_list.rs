//! A list that only grows, without a lock.
//!
//! A process may fork while another thread is in the middle of a call, and in the child that thread does not exist: to wait for
//! it would be to wait for ever. So no thread waits. Two threads may both make what both miss, and one of the two is dropped.
//!
//! ```text
//!   latest --> value, next --> value, next --> null
//! ```

use std::sync::atomic::{AtomicPtr, Ordering};

/// A list of values that stay where they are until the list is dropped.
pub(crate) struct GrowingList<T> {
    latest: AtomicPtr<ListNode<T>>,
}

struct ListNode<T> {
    value: T,
    /// Null, or the node that was the latest before.
    next: *mut ListNode<T>,
}

impl<T: Send + Sync> GrowingList<T> {
    pub(crate) const fn new() -> Self {
        Self { latest: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns all values, the latest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: null, or from a box that is not freed before the list is.
        let node = |node: *mut ListNode<T>| unsafe { node.as_ref() };
        let latest = node(self.latest.load(Ordering::Acquire));
        std::iter::successors(latest, move |it| node(it.next)).map(|it| &it.value)
    }

    /// Returns a value that `is` says yes to, and makes it first where there is none. Making it must do no harm if it is done
    /// twice.
    pub(crate) fn find_or_make(&self, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.iter().find(|value| is(value)) {
            return value;
        }
        let new = Box::into_raw(Box::new(ListNode { value: make(), next: std::ptr::null_mut() }));
        loop {
            let latest = self.latest.load(Ordering::Acquire);
            if let Some(value) = self.iter().find(|value| is(value)) {
                // SAFETY: made above, and seen by no other thread.
                drop(unsafe { Box::from_raw(new) });
                return value;
            }
            // SAFETY: as above.
            unsafe { (*new).next = latest };
            if self.latest.compare_exchange(latest, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // SAFETY: from a box that is not freed before the list is, and never changed again.
                return unsafe { &(*new).value };
            }
        }
    }

    /// Adds a value.
    pub(crate) fn add(&self, value: T) -> &T {
        self.find_or_make(|_| false, || value)
    }
}

impl<T> Drop for GrowingList<T> {
    fn drop(&mut self) {
        let mut node = *self.latest.get_mut();
        while !node.is_null() {
            // SAFETY: from a box, and freed once: the list has no other user any more.
            node = unsafe { Box::from_raw(node) }.next;
        }
    }
}

/// A value that is made when it is first asked for, without a lock.
pub(crate) struct OnceValue<T>(GrowingList<T>);

impl<T: Send + Sync> OnceValue<T> {
    pub(crate) const fn new() -> Self {
        Self(GrowingList::new())
    }

    /// Returns the value, and makes it first where there is none yet. Making it must do no harm if it is done twice.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.0.find_or_make(|_| true, make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_stays() {
        let cell = OnceValue::new();
        assert_eq!(*cell.get_or_make(|| vec![1]), [1]);
        assert_eq!(*cell.get_or_make(|| vec![2]), [1]);
        let cell = OnceValue::new();
        let seen = |number: usize| std::ptr::from_ref(cell.get_or_make(|| vec![number])).addr();
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || seen(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|value| *value == seen[0]));
    }

    #[test]
    fn what_all_threads_add_is_there_once() {
        let list = GrowingList::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..500).for_each(|number| {
                        assert_eq!(*list.find_or_make(|it| *it == number, || number), number);
                    });
                });
            }
        });
        let mut all: Vec<i32> = list.iter().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..500).collect::<Vec<i32>>());
    }
}
