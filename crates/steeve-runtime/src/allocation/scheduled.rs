//! What the scheduler does with an allocation and no caller could: its contracts are about how the graph was planned and
//! what is enqueued.

use std::sync::Arc;

use steeve_device::Bindings;
use steeve_graph::TensorId;

use super::{Allocation, RunGuard};
use crate::contents::RunPhase;
use crate::element::{packed_size, zeroed};
use crate::{AllocError, Element};

impl Allocation {
    /// Returns whether all tensors have the same addresses in `other`, of the same graph: what was prepared for one can
    /// run in the other.
    pub(crate) fn has_addresses_of(&self, other: &Self) -> bool {
        self.graph.is_same(&other.graph)
            && Arc::ptr_eq(&self.planned, &other.planned)
            && Arc::ptr_eq(&self.buffers, &other.buffers)
            && self.bindings.is_same(&other.bindings)
    }

    /// Returns whether it was allocated with these bindings, or a clone of them.
    pub(crate) fn is_bound_by(&self, bindings: &Bindings) -> bool {
        self.bindings.is_same(bindings)
    }
}

impl RunGuard {
    /// Allows the inputs to be written for the next run, but for those that nodes write into. Everything that reads them
    /// must have been computed, or copied, and the graph must have been planned so that nothing else is ever placed there.
    pub(crate) fn hand_back_inputs(&self) {
        self.allocation.contents.lock().phase = RunPhase::Running { open: true };
    }

    /// Starts the run once more, enqueued behind itself. Fails unless every input has been written and keeps its contents
    /// through a run.
    pub(crate) fn restart(&self) -> Result<(), AllocError> {
        let Allocation { planned, contents, .. } = &self.allocation;
        let lost = |source: &&TensorId| self.allocation.has_bytes(**source) && !planned.survivors().contains(**source);
        if let Some(tensor) = planned.required.iter().find(lost) {
            return Err(AllocError::Consumed { tensor: self.allocation.named(*tensor) });
        }
        let mut state = contents.lock();
        state.check(self.allocation.handle)?;
        self.allocation.check_written(&state)?;
        state.phase = RunPhase::Running { open: false };
        Ok(())
    }

    /// Reads the bytes of a tensor without gaps while the run is in progress. Nothing may be enqueued that writes them.
    pub(crate) fn peek_bytes(&self, tensor: TensorId) -> Result<Vec<u8>, AllocError> {
        let allocation = &self.allocation;
        let address = allocation.address(tensor)?;
        let mut data = zeroed(packed_size(allocation.layout(tensor)?))?;
        allocation.transfer_out(tensor, &*address.buffer.borrow()?, &mut data)?;
        Ok(data)
    }

    /// Reads the elements of a tensor while the run is in progress, see [`peek_bytes`](Self::peek_bytes).
    pub(crate) fn peek<T: Element>(&self, tensor: TensorId) -> Result<Vec<T>, AllocError> {
        let allocation = &self.allocation;
        let mut data = zeroed(allocation.layout_of::<T>(tensor)?.elements())?;
        let address = allocation.address(tensor)?;
        allocation.transfer_out(tensor, &*address.buffer.borrow()?, bytemuck::cast_slice_mut(&mut data))?;
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use steeve_device::{BufferType, HostMemory};
    use steeve_graph::{Context, DataType, Graph, GraphError};

    use super::*;
    use crate::GraphAllocator;

    fn graph() -> (Graph, TensorId) {
        let mut context = Context::new();
        let x = context.input(DataType::F32, &[4]).unwrap();
        let y = context.neg(x).unwrap();
        context.set_output(y).unwrap();
        (Graph::from_outputs(&context, &[y]).unwrap(), x)
    }

    fn is_foreign<T: std::fmt::Debug>(answer: Result<T, AllocError>) -> bool {
        matches!(answer, Err(AllocError::Graph(GraphError::Foreign { .. })))
    }

    #[test]
    fn peeking_takes_ids_of_its_own_graph_alone() {
        let ((one, x), (_, other)) = (graph(), graph());
        let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        let mut allocator = GraphAllocator::new(&memory);
        let allocation = allocator.alloc(&one, &Bindings::new()).unwrap();
        allocation.write(x, &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let run = allocation.begin().unwrap();
        assert_eq!(run.peek::<f32>(x), Ok(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(run.peek_bytes(x), Ok(bytemuck::cast_slice(&[1.0f32, 2.0, 3.0, 4.0]).to_vec()));
        assert!(is_foreign(run.peek::<f32>(other)) && is_foreign(run.peek_bytes(other)));
    }

    #[test]
    fn inputs_that_are_handed_back_can_be_written_and_the_run_restarted_if_they_survive() {
        let mut context = Context::new();
        let x = context.input(DataType::F32, &[1]).unwrap();
        let k = context.input(DataType::F32, &[1]).unwrap();
        let y = context.add(x, k).unwrap();
        context.keep(k).unwrap();
        context.set_output(y).unwrap();
        let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        for kept in [false, true] {
            if kept {
                context.keep(x).unwrap();
            }
            let graph = Graph::from_outputs(&context, &[y]).unwrap();
            let mut allocator = GraphAllocator::new(&memory);
            let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
            allocation.write(x, &[1.0f32]).unwrap();
            allocation.write(k, &[2.0f32]).unwrap();
            let run = allocation.begin().unwrap();
            assert_eq!(allocation.write(k, &[3.0f32]), Err(AllocError::Running));
            run.hand_back_inputs();
            allocation.write(k, &[3.0f32]).unwrap();
            assert_eq!(run.restart().is_ok(), kept);
            assert_eq!(allocation.write(k, &[4.0f32]).is_ok(), !kept, "only a run that was restarted takes them again");
        }
    }

    #[test]
    fn addresses_are_those_of_the_same_graph_plan_buffers_and_bindings() {
        let (graph, _) = graph();
        let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        let mut allocator = GraphAllocator::new(&memory);
        let bindings = Bindings::new();
        let one = allocator.alloc(&graph, &bindings).unwrap();
        let other = allocator.alloc(&graph, &bindings).unwrap();
        assert!(one.has_addresses_of(&other) && !one.is_same(&other) && one.is_same(&one.clone()));
        assert!(one.is_bound_by(&bindings) && one.is_bound_by(&bindings.clone()));
        allocator.release().unwrap();
        assert!(!one.has_addresses_of(&allocator.alloc(&graph, &bindings).unwrap()));
    }
}
