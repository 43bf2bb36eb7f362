//! Which handles there are, and whether each is ours or ggml's own. Without a lock: every call looks its handle up, and a
//! process may fork while another thread is inside.
//!
//! ```text
//!   address --hash--> bucket: block of 4 slots, then those of a list that only grows
//!                     slot: address, owner; free where the address is 0
//! ```
//!
//! Blocks are never freed. A handle that is freed by one thread while another uses it is the caller's mistake, so the owner of
//! a slot whose address has been seen does not change meanwhile.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::functions::Originals;
use crate::growing_list::GrowingList;

/// Whose handle it is.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    Us,
    Ggml(&'static Originals),
}

/// The handles of the process.
pub(crate) static HANDLES: Registry = Registry::new();

const BUCKETS: usize = 64;
const SLOTS: usize = 4;

/// No handle has these addresses.
const FREE: usize = 0;
const TAKEN: usize = 1;

pub(crate) struct Registry {
    buckets: [Bucket; BUCKETS],
}

/// Slots, the first of them at hand.
struct Bucket {
    first: [Slot; SLOTS],
    more: GrowingList<[Slot; SLOTS]>,
}

struct Slot {
    handle: AtomicUsize,
    /// Null for ours.
    owner: AtomicPtr<Originals>,
}

impl Slot {
    const fn new() -> Self {
        Self { handle: AtomicUsize::new(FREE), owner: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self { buckets: [const { Bucket::new() }; BUCKETS] }
    }

    /// Adds a handle, or changes the owner of one that was freed behind our back.
    pub(crate) fn insert(&self, handle: usize, owner: Owner) {
        let owner = match owner {
            Owner::Us => std::ptr::null_mut(),
            Owner::Ggml(originals) => std::ptr::from_ref(originals).cast_mut(),
        };
        let slot = match self.find(handle) {
            Some(slot) => slot,
            None => self.take(handle),
        };
        slot.owner.store(owner, Ordering::Relaxed);
        slot.handle.store(handle, Ordering::Release);
    }

    /// Returns the owner of a handle; `None` for one that was never added, or has been removed.
    pub(crate) fn owner(&self, handle: usize) -> Option<Owner> {
        let owner = self.find(handle)?.owner.load(Ordering::Relaxed);
        // SAFETY: null, or from a reference that lives for ever.
        Some(unsafe { owner.as_ref() }.map_or(Owner::Us, Owner::Ggml))
    }

    /// Removes a handle and returns whose it was.
    pub(crate) fn remove(&self, handle: usize) -> Option<Owner> {
        let owner = self.owner(handle)?;
        self.find(handle)?.handle.store(FREE, Ordering::Release);
        Some(owner)
    }

    fn find(&self, handle: usize) -> Option<&Slot> {
        if handle == FREE || handle == TAKEN {
            return None;
        }
        self.bucket(handle).slots().find(|slot| slot.handle.load(Ordering::Acquire) == handle)
    }

    /// A slot that no other thread has. If the process forks before it is filled, the child has one slot less.
    fn take(&self, handle: usize) -> &Slot {
        let is_taken =
            |slot: &&Slot| slot.handle.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let bucket = self.bucket(handle);
        loop {
            if let Some(slot) = bucket.slots().find(is_taken) {
                return slot;
            }
            bucket.more.add([const { Slot::new() }; SLOTS]);
        }
    }

    fn bucket(&self, handle: usize) -> &Bucket {
        // Handles come from malloc, in steps of 16.
        &self.buckets[(handle >> 4 ^ handle >> 12) % BUCKETS]
    }
}

impl Bucket {
    const fn new() -> Self {
        Self { first: [const { Slot::new() }; SLOTS], more: GrowingList::new() }
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.first.iter().chain(self.more.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_until_it_is_removed() {
        let registry = Registry::new();
        assert!(registry.owner(0).is_none() && registry.owner(1).is_none() && registry.remove(0).is_none());
        // Far more than there are slots, some of them in the same bucket.
        let handles: Vec<usize> = (1..2000).map(|number| number * 48).collect();
        for round in 0..3 {
            handles.iter().for_each(|handle| registry.insert(*handle, Owner::Us));
            assert!(handles.iter().all(|handle| matches!(registry.owner(*handle), Some(Owner::Us))), "{round}");
            assert!(registry.owner(7).is_none());
            assert!(handles.iter().all(|handle| registry.remove(*handle).is_some()));
            assert!(
                handles.iter().all(|handle| registry.owner(*handle).is_none() && registry.remove(*handle).is_none())
            );
        }
        let blocks: usize = registry.buckets.iter().map(|bucket| 1 + bucket.more.iter().count()).sum();
        assert!(blocks <= handles.len() / 2, "slots are used again: {blocks} blocks");
    }

    #[test]
    fn threads_do_not_take_each_others_slots() {
        static SHARED: Registry = Registry::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let handle = 64 * (1 + thread + 4 * (round % 32));
                        SHARED.insert(handle, Owner::Us);
                        assert!(SHARED.owner(handle).is_some());
                        assert!(SHARED.remove(handle).is_some() && SHARED.owner(handle).is_none());
                    }
                });
            }
        });
    }
}
