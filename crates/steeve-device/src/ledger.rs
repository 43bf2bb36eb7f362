//! A count of allocated bytes, for devices without a driver that counts them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use steeve_graph::Bytes;

use crate::{DeviceError, MemoryInfo, MemorySpec};

/// Counts the bytes and buffers that a device has allocated. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<LedgerState>);

#[derive(Debug, Default)]
struct LedgerState {
    live: Mutex<LiveBuffers>,
    /// The number of requests, those that failed among them.
    asked: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LiveBuffers {
    bytes: u64,
    peak: u64,
    buffers: u64,
}

impl Ledger {
    /// Returns the bytes of all buffers that exist.
    pub fn live(&self) -> Bytes {
        Bytes(self.with(|live| live.bytes))
    }

    /// Returns the largest number of bytes that existed at a time.
    pub fn peak(&self) -> Bytes {
        Bytes(self.with(|live| live.peak))
    }

    /// Returns the number of buffers that exist.
    pub fn buffers(&self) -> u64 {
        self.with(|live| live.buffers)
    }

    /// Returns the number of requests for a buffer, those that failed among them.
    pub fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Counts a request. Returns its number, from 0.
    pub(crate) fn ask(&self) -> u64 {
        self.0.asked.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters a buffer of `size` bytes.
    ///
    /// # Errors
    ///
    /// If the memory has a limit that does not allow it.
    pub(crate) fn enter(&self, spec: &MemorySpec, size: Bytes) -> Result<LedgerEntry, DeviceError> {
        self.take(spec, size, size)?;
        self.with(|live| live.buffers += 1);
        Ok(LedgerEntry { ledger: self.clone(), size })
    }

    /// Counts `more` bytes of a buffer that has `size` bytes with them.
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

    /// Returns the memory of a device with `capacity` bytes.
    pub(crate) fn info(&self, capacity: Option<Bytes>) -> MemoryInfo {
        let total = capacity.unwrap_or(Bytes(u64::MAX));
        MemoryInfo { free: Bytes(total.0.saturating_sub(self.live().0)), total }
    }

    fn with<R>(&self, act: impl FnOnce(&mut LiveBuffers) -> R) -> R {
        act(&mut self.0.live.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes that count as allocated until this is dropped.
#[derive(Debug)]
pub(crate) struct LedgerEntry {
    ledger: Ledger,
    size: Bytes,
}

impl LedgerEntry {
    /// Counts the buffer with `size` bytes from now on.
    ///
    /// # Errors
    ///
    /// If the memory has a limit that does not allow it.
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
