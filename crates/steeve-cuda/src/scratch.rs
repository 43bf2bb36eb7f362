//! Scratch memory of a stream. All that is prepared for it shares one piece, because one runs behind another.

use std::sync::{Arc, Mutex};

use steeve_device::DeviceError;

use crate::driver::{Context, DeviceBytes, lock};
use crate::memory::{out_of_memory, said};

/// Memory whose contents nobody counts on from node to node.
#[derive(Debug)]
pub(crate) struct Scratch {
    name: String,
    context: Arc<Context>,
    latest: Mutex<Option<ScratchMemory>>,
}

/// A piece of it. It may grow, and stays where it is for as long as somebody holds it.
pub(crate) type ScratchMemory = Arc<Mutex<DeviceBytes>>;

/// The first piece has so many bytes at least.
const LEAST: u64 = 2 << 20;

impl Scratch {
    pub(crate) fn new(device: &str, context: &Arc<Context>) -> Self {
        let name = format!("{device}, for scratch memory,");
        Self { name, context: Arc::clone(context), latest: Mutex::default() }
    }

    /// Returns the address of the latest piece, which later ones have as long as it can grow; 0 if there is none.
    pub(crate) fn address(&self) -> u64 {
        lock(&self.latest).as_ref().map_or(0, |piece| lock(piece).address())
    }

    /// A piece of at least so many bytes, and its address.
    pub(crate) fn share(&self, bytes: u64) -> Result<(ScratchMemory, u64), DeviceError> {
        let mut latest = lock(&self.latest);
        if let Some(piece) = &*latest {
            let mut own = lock(piece);
            if own.grow(bytes).map_err(|fault| said(fault, &self.name, &self.context, bytes))? {
                return Ok((Arc::clone(piece), own.address()));
            }
        }
        // Who holds the one before keeps it.
        *latest = None;
        let (_, total) = self.context.memory().map_err(|fault| fault.on(&self.name))?;
        if bytes > total {
            return Err(out_of_memory(&self.name, &self.context, bytes));
        }
        let made = DeviceBytes::with_room(&self.context, bytes.max(LEAST), total);
        let made = made.map_err(|fault| said(fault, &self.name, &self.context, bytes))?;
        let address = made.address();
        let piece = latest.insert(Arc::new(Mutex::new(made)));
        Ok((Arc::clone(piece), address))
    }
}
