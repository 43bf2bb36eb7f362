//! A value that is made when it is first asked for, without a lock.
//!
//! A process may fork while another thread is in the middle of making it, and in the child that thread does not exist: to
//! wait for it would be to wait for ever. So no thread waits. Two threads that come first may both make it, and one of the two is
//! dropped.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A cell that is filled once.
pub(crate) struct FirstWins<T>(AtomicPtr<T>);

impl<T: Send + Sync> FirstWins<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the value, and makes it first where there is none yet. Making it must do no harm if it is done twice.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        let mut value = self.0.load(Ordering::Acquire);
        if value.is_null() {
            let made = Box::into_raw(Box::new(make()));
            value = match self.0.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                Err(first) => {
                    // SAFETY: made above, and seen by no other thread.
                    drop(unsafe { Box::from_raw(made) });
                    first
                }
            };
        }
        // SAFETY: from a box, and not freed before the cell is.
        unsafe { &*value }
    }
}

impl<T> Drop for FirstWins<T> {
    fn drop(&mut self) {
        let value = *self.0.get_mut();
        if !value.is_null() {
            // SAFETY: from a box, and freed once: the cell has no other user any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_stays() {
        let cell = FirstWins::new();
        assert_eq!(*cell.get_or_make(|| vec![1]), [1]);
        assert_eq!(*cell.get_or_make(|| vec![2]), [1]);
        let cell = FirstWins::new();
        let seen = |number: usize| std::ptr::from_ref(cell.get_or_make(|| vec![number])).addr();
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || seen(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|value| *value == seen[0]));
    }
}
