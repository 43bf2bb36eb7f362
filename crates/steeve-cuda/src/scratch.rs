//! Scratch memory of a stream. All nodes that are prepared for it share the same, since they run one behind another.

use std::sync::{Arc, Mutex};

use steeve_device::DeviceError;

use crate::driver::{Context, DeviceBytes, lock};
use crate::memory::{out_of_memory, said};

/// Memory whose contents last for one node.
#[derive(Debug)]
pub(crate) struct Scratch {
    name: String,
    context: Arc<Context>,
    latest: Mutex<Option<ScratchMemory>>,
}

/// The memory of some prepared nodes. It may grow, and keeps its address as long as any of them exists.
pub(crate) type ScratchMemory = Arc<Mutex<DeviceBytes>>;

/// The least bytes of it.
const LEAST: u64 = 2 << 20;

impl Scratch {
    pub(crate) fn new(device: &str, context: &Arc<Context>) -> Self {
        let name = format!("{device}, for scratch memory,");
        Self { name, context: Arc::clone(context), latest: Mutex::default() }
    }

    /// Returns the address that [`share`](Self::share) is most likely to return. The first time it reserves addresses, which
    /// takes no memory, so that nodes need not be lowered again for memory that is made when they are known; 0 if it can't.
    pub(crate) fn address(&self) -> u64 {
        let mut latest = lock(&self.latest);
        if latest.is_none() {
            *latest = DeviceBytes::addresses(&self.context).map(|own| Arc::new(Mutex::new(own)));
        }
        latest.as_ref().map_or(0, |memory| lock(memory).address())
    }

    /// Returns memory of at least so many bytes, and its address.
    pub(crate) fn share(&self, bytes: u64) -> Result<(ScratchMemory, u64), DeviceError> {
        let bytes = bytes.max(LEAST);
        let mut latest = lock(&self.latest);
        if let Some(memory) = &*latest {
            let mut own = lock(memory);
            if own.grow(bytes).map_err(|fault| said(fault, &self.name, &self.context, bytes))? {
                return Ok((Arc::clone(memory), own.address()));
            }
        }
        // The nodes that use the one before keep it.
        *latest = None;
        let (_, total) = self.context.memory().map_err(|fault| fault.on(&self.name))?;
        if bytes > total {
            return Err(out_of_memory(&self.name, &self.context, bytes));
        }
        let made = DeviceBytes::with_room(&self.context, bytes, total);
        let made = made.map_err(|fault| said(fault, &self.name, &self.context, bytes))?;
        let address = made.address();
        let memory = latest.insert(Arc::new(Mutex::new(made)));
        Ok((Arc::clone(memory), address))
    }
}
