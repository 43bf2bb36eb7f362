//! Reserves memory by plan files, so that a program starts without planning.

use steeve_graph::{GraphPlan, MatchMemories, PlanFault, PlanFile};

use crate::{AllocError, GraphAllocator, GraphRequest, PlanFileFault};

impl GraphAllocator {
    /// Reserves by a plan file that `steeve plan -o` or [`GraphPlan::to_json`] has written, without planning. Whatever the
    /// file says is checked against the graph.
    ///
    /// The graph is planned offline from its text, which [`assign`](Self::assign) returns:
    ///
    /// ```text
    /// steeve plan --strategy best model.graph -o plan.json
    /// ```
    ///
    /// ```
    /// use std::sync::Arc;
    /// use steeve_device::{BufferType, HostMemory};
    /// use steeve_graph::{AssignedGraph, Graph, PlanOptions, plan_graph};
    /// use steeve_runtime::GraphAllocator;
    /// # let graph: AssignedGraph = "x = input f32[64]; y = sqr x !output".parse()?;
    /// # let graph: Graph = graph.into_graph();
    /// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    /// let mut allocator = GraphAllocator::new(&memory);
    /// let text = allocator.assign(&graph)?.to_string(); // into model.graph
    ///
    /// // What the command does.
    /// let json = plan_graph(&text.parse()?, &PlanOptions::default())?.to_json();
    ///
    /// allocator.load_plan(&graph, &json)?;
    /// assert_eq!(allocator.buffer_size(0)?.get(), 256);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`read_plan`](Self::read_plan) and [`reserve_planned`](Self::reserve_planned).
    pub fn load_plan<'a>(&mut self, request: impl Into<GraphRequest<'a>>, json: &str) -> Result<(), AllocError> {
        self.reserve_planned(self.read_plan(request, json, MatchMemories::ByName)?)
    }

    /// Reads a plan file for a graph without reserving anything, for [`reserve_planned`](Self::reserve_planned). Its memories are
    /// matched with the allocator's by name or by order.
    ///
    /// # Errors
    ///
    /// [`AllocError::PlanFile`] if the file is no plan, or none of this graph, with the [`PlanFault`] as its source;
    /// [`AllocError::PlanFileUnread`] if the plan frees more of what no node reads than
    /// [the options](crate::AllocOptions::with_plan) of this allocator say.
    pub fn read_plan<'a>(
        &self,
        request: impl Into<GraphRequest<'a>>,
        json: &str,
        by: MatchMemories,
    ) -> Result<GraphPlan, AllocError> {
        let assigned = self.assign(request)?;
        let refused = |fault: PlanFault| AllocError::PlanFile(PlanFileFault::new(fault));
        let file = PlanFile::from_json(json).map_err(|error| refused(error.into()))?;
        let plan = GraphPlan::from_file(&file, &assigned, by).map_err(refused)?;
        let (freed, kept) = (plan.options().unread, self.options().plan.unread);
        if freed > kept {
            return Err(AllocError::PlanFileUnread { freed: freed.name(), kept: kept.name() });
        }
        Ok(plan)
    }
}
