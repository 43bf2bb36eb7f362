//! Units in, an order of them in which each is done just before it is waited for: what a graph makes long before it is read is
//! made late. O(edges).

use alloc::vec;
use alloc::vec::Vec;

use steeve_plan::{Id, IdVec};

use super::model::{OrderModel, UnitId};

/// Returns the units, run by run: before each that nothing waits for, in the order of the graph, what it waits for.
pub(super) fn post_order(model: &OrderModel) -> Vec<UnitId> {
    let mut is_done: IdVec<UnitId, bool> = model.units.iter().map(|_| false).collect::<Vec<_>>().into();
    let ids: Vec<UnitId> = model.units.ids().collect();
    let mut order = Vec::with_capacity(ids.len());
    // A unit, and how many of those that it waits for have been looked at.
    let mut path: Vec<(UnitId, usize)> = vec![];
    for run in &model.runs {
        let is_last = |unit: &UnitId| !model.after(*unit).iter().any(|later| run.contains(&later.index()));
        for unit in ids[run.clone()].iter().copied().filter(is_last) {
            path.push((unit, 0));
            while let Some((unit, looked_at)) = path.last_mut() {
                match model.before(*unit).get(*looked_at) {
                    Some(earlier) => {
                        *looked_at += 1;
                        // Those of other runs are done.
                        if run.contains(&earlier.index()) && !is_done[*earlier] {
                            path.push((*earlier, 0));
                        }
                    }
                    None => {
                        debug_assert!(!is_done[*unit], "what a unit waits for does not wait for it");
                        is_done[*unit] = true;
                        order.push(*unit);
                        path.pop();
                    }
                }
            }
        }
    }
    order
}
