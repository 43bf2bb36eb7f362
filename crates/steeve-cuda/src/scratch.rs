//! Scratch memory of a stream: what is given back is used again by whatever is enqueued behind.

use std::sync::{Arc, Mutex, PoisonError};

use steeve_device::DeviceError;

use crate::driver::{Context, DeviceBytes};
use crate::memory::allocate;

/// Memory that no prepared nodes use.
#[derive(Debug)]
pub(crate) struct Pool {
    name: String,
    context: Arc<Context>,
    free: Mutex<Vec<DeviceBytes>>,
}

/// Memory comes in such pieces.
const PIECE: u64 = 1 << 20;

impl Pool {
    pub(crate) fn new(device: &str, context: &Arc<Context>) -> Self {
        Self { name: format!("{device}, for scratch memory,"), context: Arc::clone(context), free: Mutex::default() }
    }

    /// At least so many bytes, of what there is or new ones.
    pub(crate) fn lease(self: &Arc<Self>, bytes: u64) -> Result<Lease, DeviceError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = free.iter().enumerate().filter(|(_, it)| it.len() >= bytes).min_by_key(|(_, it)| it.len());
        let bytes = match fits.map(|(index, _)| index) {
            Some(index) => free.swap_remove(index),
            None => {
                // What is too small now is likely too small for ever.
                free.clear();
                allocate(&self.name, &self.context, bytes.next_multiple_of(PIECE))?
            }
        };
        Ok(Lease { pool: Arc::clone(self), bytes: Some(bytes) })
    }
}

/// Scratch memory until this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<Pool>,
    bytes: Option<DeviceBytes>,
}

impl Lease {
    pub(crate) fn address(&self) -> u64 {
        self.bytes.as_ref().map_or(0, DeviceBytes::address)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Whoever gets it next enqueues behind what still uses it: all is on one stream.
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.bytes.take());
    }
}
