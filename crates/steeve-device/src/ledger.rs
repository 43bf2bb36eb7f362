//! Who has how many bytes: what devices without a driver that counts keep themselves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use steeve_graph::Bytes;

use crate::{DeviceError, MemoryInfo, MemorySpec};

/// Counts the bytes and buffers that a device has given out. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<LedgerState>);

#[derive(Debug, Default)]
struct LedgerState {
    live: Mutex<LiveBuffers>,
    /// How often memory was asked for, also in vain.
    asked: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LiveBuffers {
    bytes: u64,
    peak: u64,
    buffers: u64,
}

impl Ledger {
    /// The bytes of all buffers that exist.
    pub fn live(&self) -> Bytes {
        Bytes(self.with(|live| live.bytes))
    }

    /// The most bytes there ever were at a time.
    pub fn peak(&self) -> Bytes {
        Bytes(self.with(|live| live.peak))
    }

    /// How many buffers exist.
    pub fn buffers(&self) -> u64 {
        self.with(|live| live.buffers)
    }

    /// How often a buffer was asked for, also in vain.
    pub fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Counts a request; answers its number, from 0.
    pub(crate) fn ask(&self) -> u64 {
        self.0.asked.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters a buffer of `size` bytes, unless the memory has a limit that says no.
    pub(crate) fn enter(&self, spec: &MemorySpec, size: Bytes) -> Result<LedgerEntry, DeviceError> {
        self.take(spec, size, size)?;
        self.with(|live| live.buffers += 1);
        Ok(LedgerEntry { ledger: self.clone(), size })
    }

    /// Counts `more` bytes of a buffer that has `size` with them.
    fn take(&self, spec: &MemorySpec, size: Bytes, more: Bytes) -> Result<(), DeviceError> {
        let memory = || spec.name.clone();
        if let Some(max) = spec.max_size.filter(|max| size > *max) {
            return Err(DeviceError::TooLarge { memory: memory(), asked: size, max });
        }
        self.with(|live| {
            let left = Bytes(spec.capacity.map_or(u64::MAX, Bytes::get).saturating_sub(live.bytes));
            if more > left {
                return Err(DeviceError::OutOfMemory { memory: memory(), asked: more, left: Some(left) });
            }
            live.bytes += more.0;
            live.peak = live.peak.max(live.bytes);
            Ok(())
        })
    }

    /// What is free of `capacity`.
    pub(crate) fn info(&self, capacity: Option<Bytes>) -> MemoryInfo {
        let total = capacity.unwrap_or(Bytes(u64::MAX));
        MemoryInfo { free: Bytes(total.0.saturating_sub(self.live().0)), total }
    }

    fn with<R>(&self, act: impl FnOnce(&mut LiveBuffers) -> R) -> R {
        act(&mut self.0.live.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes that count as given out until this is dropped.
#[derive(Debug)]
pub(crate) struct LedgerEntry {
    ledger: Ledger,
    size: Bytes,
}

impl LedgerEntry {
    /// The buffer has more bytes from now on, unless the memory has a limit that says no.
    pub(crate) fn grow(&mut self, spec: &MemorySpec, size: Bytes) -> Result<(), DeviceError> {
        self.ledger.take(spec, size, Bytes(size.0.saturating_sub(self.size.0)))?;
        self.size = self.size.max(size);
        Ok(())
    }
}

impl Drop for LedgerEntry {
    fn drop(&mut self) {
        self.ledger.with(|live| {
            live.bytes -= self.size.0;
            live.buffers -= 1;
        });
    }
}
