//! Elements that are copied, perhaps into another type: nothing is rounded but for that.

use super::evaluate::{BoundedValue, ExpectedValues, NodeCall};

/// Elements in order, whatever the shapes.
pub(super) fn copy(call: &NodeCall<'_>) -> ExpectedValues {
    let values = call.source(0).values.clone();
    ExpectedValues { slack: vec![0.0; values.len()], values }
}

pub(super) fn repeat(call: &NodeCall<'_>) -> ExpectedValues {
    let a = call.source(0);
    call.each(|index| BoundedValue::exact(a.wrapped(index)))
}

pub(super) fn concat(call: &NodeCall<'_>) -> ExpectedValues {
    let (a, b, dim) = (call.source(0), call.source(1), call.count(0));
    call.each(|mut index| {
        if index[dim] < a.ne[dim] {
            return BoundedValue::exact(a.at(index));
        }
        index[dim] -= a.ne[dim];
        BoundedValue::exact(b.at(index))
    })
}

/// `a[i0, ids[i1, i2, i3], i2, i3]`
pub(super) fn get_rows(call: &NodeCall<'_>) -> ExpectedValues {
    let (a, ids) = (call.source(0), call.source(1));
    call.each(|[i0, i1, i2, i3]| BoundedValue::exact(a.at([i0, ids.at([i1, i2, i3, 0]) as usize, i2, i3])))
}
