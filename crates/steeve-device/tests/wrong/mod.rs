//! Memories and devices that are wrong in one way each.

mod device;
mod memory;

pub(crate) use device::{DeviceFault, WrongDevice};
pub(crate) use memory::{Fault, MAX, Wrong};
