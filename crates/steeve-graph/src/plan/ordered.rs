//! Plans in another order of the nodes, where that saves enough.

use super::{GraphPlan, GraphPlanError, LazySimulation, Order, PlanOptions, SearchWatcher, planned};
use crate::{AssignedGraph, FoundOrder, NodeOrder, best_order};

/// The order that a plan runs in, and the graph in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunOrder {
    pub(crate) order: NodeOrder,
    pub(crate) assigned: AssignedGraph,
}

/// Returns the best order that is found, and the graph in it; `None` if that is the graph's own, or it is not wanted.
pub(crate) fn other_order(
    assigned: &AssignedGraph,
    options: &PlanOptions,
    is_wanted: impl FnOnce(&FoundOrder) -> bool,
) -> Option<RunOrder> {
    let found = best_order(assigned, options, &options.order_search);
    if found.order.is_own() || !is_wanted(&found) {
        return None;
    }
    match found.order.apply(assigned) {
        Ok(assigned) => Some(RunOrder { order: found.order, assigned }),
        Err(error) => unreachable!("the search made an order that reads what is not written: {error}"),
    }
}

/// Returns the plan of the best order that is found, if [`Order::Best`] is asked for and it takes less than `own`, the plan of
/// the caller's order, by as much as is asked for and no more in any memory. `own` otherwise.
pub(super) fn in_best_order(
    assigned: &AssignedGraph,
    own: GraphPlan,
    options: &PlanOptions,
    watch: &mut SearchWatcher<'_>,
) -> Result<GraphPlan, GraphPlanError> {
    if options.order == Order::Keep {
        return Ok(own);
    }
    let search = &options.order_search;
    let saves = |found: &FoundOrder| {
        let (live, least) = found.peaks();
        search.is_worth_while(live, least)
    };
    let Some(run) = other_order(assigned, options, saves) else { return Ok(own) };
    let plan = planned(&LazySimulation::new(&run.assigned), options, watch)?;
    let no_worse = plan.memories.iter().zip(&own.memories).all(|(it, own)| it.plan.peak() <= own.plan.peak());
    if !no_worse || !search.is_worth_while(own.peak(), plan.peak()) {
        return Ok(own);
    }
    Ok(GraphPlan { assigned: assigned.clone(), run: Some(run.into()), options: *options, ..plan })
}

impl GraphPlan {
    /// Returns the order in which the nodes run, where it is not the caller's.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, Order, PlanOptions, plan_graph, replay};
    /// let graph: AssignedGraph = "
    ///     x = input f32[64]
    ///     wide = repeat f32[4096] x
    ///     a = repeat f32[4096] x
    ///     b = sum_rows a
    ///     y = add f32[4096] wide b !output
    /// "
    /// .parse()?;
    /// let plan = plan_graph(&graph, &PlanOptions::default().with_order(Order::Best))?;
    /// assert_eq!(plan.order().unwrap().positions(), [1, 2, 0, 3]);
    /// replay(&graph, &plan.places())?; // every node reads what it reads in the graph's own order
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn order(&self) -> Option<&NodeOrder> {
        self.run.as_ref().map(|run| &run.order)
    }

    /// Returns the graph with its nodes in the order in which they run: that of live ranges, in which node `n` runs at step
    /// `n + 1`. It is [`assigned`](Self::assigned) unless there is another [`order`](Self::order).
    pub fn in_run_order(&self) -> &AssignedGraph {
        self.run.as_ref().map_or(&self.assigned, |run| &run.assigned)
    }
}
