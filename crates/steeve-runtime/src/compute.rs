//! Runs an allocated graph on a backend.

use steeve_device::{Backend, Prepared};

use crate::{AllocError, Allocation};

impl Allocation {
    /// Runs the whole graph on a backend and waits for it. All inputs must have been written.
    ///
    /// To run it again with other inputs, [`prepare`](Self::prepare) once.
    pub fn compute(&self, backend: &dyn Backend) -> Result<(), AllocError> {
        self.prepare(backend)?.run()
    }

    /// Prepares the graph to run on a backend, in the [order of its plan](Self::in_run_order): chooses kernels. Fails if a node is not supported.
    pub fn prepare<'a>(&'a self, backend: &'a dyn Backend) -> Result<Computation<'a>, AllocError> {
        let graph = self.in_run_order()?;
        let prepared = backend.prepare(&graph, 0..graph.nodes().len(), self)?;
        Ok(Computation { allocation: self, backend, prepared })
    }
}

/// A graph that is ready to run, any number of times.
#[derive(Debug)]
pub struct Computation<'a> {
    allocation: &'a Allocation,
    backend: &'a dyn Backend,
    prepared: Box<dyn Prepared>,
}

impl Computation<'_> {
    /// Runs the graph and waits for it. Inputs that the last run consumed must have been written again.
    pub fn run(&mut self) -> Result<(), AllocError> {
        let run = self.allocation.begin()?;
        let submitted = self.backend.submit(&mut *self.prepared);
        // Also when it failed: whatever was enqueued before must be done before the memory is used again.
        let done = self.backend.synchronise();
        submitted.and(done)?;
        run.finish();
        Ok(())
    }
}
