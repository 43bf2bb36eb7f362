//! steeve's side of the scheduler: the same devices, memories and external tensors as ggml's.

use std::sync::Arc;

use steeve_device::{Bindings, Device, DeviceError, MemorySpec, NullDevice, Offset, SharedBuffer, Usage};
use steeve_graph::{AssignedGraph, Bytes, Graph, MemoryId};
use steeve_runtime::sched::Scheduler;

use crate::ours::OurError;
use crate::sched::Cut;
use crate::spread::{Holds, Home, Spread};

/// A scheduler, and memory for what is external.
pub struct OurSched {
    devices: Vec<Arc<dyn Device>>,
    scheduler: Scheduler,
    bindings: Bindings,
}

impl OurSched {
    /// A scheduler over devices that compute nothing, with external tensors where `spread` says.
    pub fn new(assigned: &AssignedGraph, spread: Spread) -> Result<Self, OurError> {
        let align = assigned.memories()[MemoryId::FIRST].align;
        let device = |index| -> Arc<dyn Device> {
            let memory = MemorySpec::new(format!("device {index}")).with_align(align);
            Arc::new(NullDevice::new(memory).as_if_it_computed())
        };
        let devices: Vec<_> = (0..spread.devices.max(1)).map(device).collect();
        let bindings = bindings(assigned.graph(), &spread.homes(assigned.graph()), &devices)?;
        Ok(Self { scheduler: Scheduler::for_planning(devices.clone())?, devices, bindings })
    }

    /// Forgets everything, buffers too.
    pub fn forget(&mut self) -> Result<(), OurError> {
        self.scheduler = Scheduler::for_planning(self.devices.clone())?;
        Ok(())
    }

    /// Schedules and plans a graph, proves the plan, and makes buffers.
    pub fn reserve(&mut self, graph: &Graph) -> Result<(), OurError> {
        Ok(self.scheduler.reserve(graph, &self.bindings)?)
    }

    /// Gives a graph its memory.
    pub fn alloc(&mut self, graph: &Graph) -> Result<(), OurError> {
        self.scheduler.alloc(graph, &self.bindings)?;
        Ok(())
    }

    /// Into what a graph is cut.
    pub fn cut(&self, graph: &Graph) -> Result<Cut, OurError> {
        let schedule = self.scheduler.schedule(graph, &self.bindings)?;
        Ok(Cut { splits: schedule.splits().len(), copies: schedule.copies().len(), copied: schedule.copied() })
    }
}

/// Every external tensor in a large buffer of its device: one for weights, one for what nodes write.
fn bindings(graph: &Graph, homes: &[Home], devices: &[Arc<dyn Device>]) -> Result<Bindings, DeviceError> {
    let all = homes.iter().fold(0u64, |sum, home| sum.saturating_add(graph.tensor(home.tensor).nbytes().0));
    let mut bindings = Bindings::new();
    for (index, device) in devices.iter().enumerate() {
        for (holds, usage) in [(Holds::Weights, Usage::Weights), (Holds::State, Usage::Any)] {
            let buffer = SharedBuffer::allocate(&device.buffer_types()[0], Bytes(all), usage)?;
            let mut offset = 0;
            for home in homes.iter().filter(|home| (home.device, home.holds) == (index, holds)) {
                let size = graph.tensor(home.tensor).nbytes();
                bindings.bind(home.tensor, &buffer, Offset(offset), size)?;
                offset += size.0;
            }
        }
    }
    Ok(bindings)
}
