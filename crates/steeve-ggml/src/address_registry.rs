//! A lock-free map from addresses to values: which handles exist, and whether each is ours or ggml's own; which buffers were
//! reported. Every call looks its handle up, and a process may fork while another thread is inside.
//!
//! ```text
//!   address --hash--> bucket: block of 4 slots, then those of a list that only grows
//!                     slot: address, value; free where the address is 0
//! ```
//!
//! Blocks are never freed. A handle that is freed by one thread while another uses it is the caller's mistake, so the value of
//! a slot whose address has been seen does not change meanwhile.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::function_tables::OriginalFunctions;
use crate::growing_list::GrowingList;

/// The allocator that a handle belongs to.
#[derive(Clone, Copy)]
pub(crate) enum HandleOwner {
    Us,
    Ggml(&'static OriginalFunctions),
}

/// The handles of the process.
pub(crate) static HANDLES: AddressRegistry<HandleOwner> = AddressRegistry::new();

/// What a registry has for each address: nothing, or something that lives for ever.
pub(crate) trait RegistryValue: Copy {
    type Target: 'static;

    fn new(target: Option<&'static Self::Target>) -> Self;

    fn target(self) -> Option<&'static Self::Target>;
}

impl RegistryValue for HandleOwner {
    type Target = OriginalFunctions;

    fn new(originals: Option<&'static OriginalFunctions>) -> Self {
        originals.map_or(Self::Us, Self::Ggml)
    }

    fn target(self) -> Option<&'static OriginalFunctions> {
        match self {
            Self::Us => None,
            Self::Ggml(originals) => Some(originals),
        }
    }
}

/// For a set of addresses.
impl RegistryValue for () {
    type Target = ();

    fn new(_: Option<&'static ()>) -> Self {}

    fn target(self) -> Option<&'static ()> {
        None
    }
}

const BUCKETS: usize = 64;
const SLOTS: usize = 4;

/// Nothing has these addresses.
const FREE: usize = 0;
const TAKEN: usize = 1;

/// A value for each of some addresses.
pub(crate) struct AddressRegistry<V: RegistryValue> {
    buckets: [RegistryBucket<V>; BUCKETS],
}

/// Slots, the first of them at hand.
struct RegistryBucket<V: RegistryValue> {
    first: [RegistrySlot<V>; SLOTS],
    more: GrowingList<[RegistrySlot<V>; SLOTS]>,
}

struct RegistrySlot<V: RegistryValue> {
    address: AtomicUsize,
    /// The value's target; null for none.
    target: AtomicPtr<V::Target>,
}

impl<V: RegistryValue> RegistrySlot<V> {
    const fn new() -> Self {
        Self { address: AtomicUsize::new(FREE), target: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

impl<V: RegistryValue> AddressRegistry<V> {
    pub(crate) const fn new() -> Self {
        Self { buckets: [const { RegistryBucket::new() }; BUCKETS] }
    }

    /// Adds an address, or changes the value of one that was freed behind our back.
    pub(crate) fn insert(&self, address: usize, value: V) {
        let target = value.target().map_or(std::ptr::null_mut(), |target| std::ptr::from_ref(target).cast_mut());
        let slot = match self.find(address) {
            Some(slot) => slot,
            None => self.take(address),
        };
        slot.target.store(target, Ordering::Relaxed);
        slot.address.store(address, Ordering::Release);
    }

    /// Returns the value of an address; `None` for one that was never added, or has been removed.
    pub(crate) fn get(&self, address: usize) -> Option<V> {
        let target = self.find(address)?.target.load(Ordering::Relaxed);
        // SAFETY: null, or from a reference that lives for ever.
        Some(V::new(unsafe { target.as_ref() }))
    }

    /// Removes an address and returns its value.
    pub(crate) fn remove(&self, address: usize) -> Option<V> {
        let value = self.get(address)?;
        self.find(address)?.address.store(FREE, Ordering::Release);
        Some(value)
    }

    fn find(&self, address: usize) -> Option<&RegistrySlot<V>> {
        if address == FREE || address == TAKEN {
            return None;
        }
        self.bucket(address).slots().find(|slot| slot.address.load(Ordering::Acquire) == address)
    }

    /// Takes a slot that no other thread has. If the process forks before it is filled, the child has one slot less.
    fn take(&self, address: usize) -> &RegistrySlot<V> {
        let is_taken = |slot: &&RegistrySlot<V>| {
            slot.address.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let bucket = self.bucket(address);
        loop {
            if let Some(slot) = bucket.slots().find(is_taken) {
                return slot;
            }
            bucket.more.add([const { RegistrySlot::new() }; SLOTS]);
        }
    }

    fn bucket(&self, address: usize) -> &RegistryBucket<V> {
        // Handles come from malloc, in steps of 16.
        &self.buckets[(address >> 4 ^ address >> 12) % BUCKETS]
    }
}

impl<V: RegistryValue> RegistryBucket<V> {
    const fn new() -> Self {
        Self { first: [const { RegistrySlot::new() }; SLOTS], more: GrowingList::new() }
    }

    fn slots(&self) -> impl Iterator<Item = &RegistrySlot<V>> {
        self.first.iter().chain(self.more.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_until_it_is_removed() {
        let registry = AddressRegistry::new();
        assert!(registry.get(0).is_none() && registry.get(1).is_none() && registry.remove(0).is_none());
        // Far more than there are slots, some of them in the same bucket.
        let handles: Vec<usize> = (1..2000).map(|number| number * 48).collect();
        for round in 0..3 {
            handles.iter().for_each(|handle| registry.insert(*handle, HandleOwner::Us));
            assert!(handles.iter().all(|handle| matches!(registry.get(*handle), Some(HandleOwner::Us))), "{round}");
            assert!(registry.get(7).is_none());
            assert!(handles.iter().all(|handle| registry.remove(*handle).is_some()));
            assert!(handles.iter().all(|handle| registry.get(*handle).is_none() && registry.remove(*handle).is_none()));
        }
        let blocks: usize = registry.buckets.iter().map(|bucket| 1 + bucket.more.iter().count()).sum();
        assert!(blocks <= handles.len() / 2, "slots are used again: {blocks} blocks");
    }

    #[test]
    fn threads_do_not_take_each_others_slots() {
        static SHARED: AddressRegistry<HandleOwner> = AddressRegistry::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let handle = 64 * (1 + thread + 4 * (round % 32));
                        SHARED.insert(handle, HandleOwner::Us);
                        assert!(SHARED.get(handle).is_some());
                        assert!(SHARED.remove(handle).is_some() && SHARED.get(handle).is_none());
                    }
                });
            }
        });
    }
}
