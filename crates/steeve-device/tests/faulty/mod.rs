//! Memories and devices that are wrong in one way each.

mod device;
mod memory;

pub(crate) use device::{DeviceFault, FaultyDevice};
pub(crate) use memory::{FaultyMemory, MAX, MemoryFault};
