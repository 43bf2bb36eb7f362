//! Elements that are copied, perhaps into another type: nothing is rounded but for that.

use super::call::{Call, Element, Exact};

/// Elements in order, whatever the shapes.
pub(super) fn copy(call: &Call<'_>) -> Exact {
    let values = call.source(0).values.clone();
    Exact { slack: vec![0.0; values.len()], values }
}

pub(super) fn repeat(call: &Call<'_>) -> Exact {
    let a = call.source(0);
    call.each(|index| Element::exact(a.wrapped(index)))
}

pub(super) fn concat(call: &Call<'_>) -> Exact {
    let (a, b, dim) = (call.source(0), call.source(1), call.count(0));
    call.each(|mut index| {
        if index[dim] < a.ne[dim] {
            return Element::exact(a.at(index));
        }
        index[dim] -= a.ne[dim];
        Element::exact(b.at(index))
    })
}

/// `a[i0, ids[i1, i2, i3], i2, i3]`
pub(super) fn get_rows(call: &Call<'_>) -> Exact {
    let (a, ids) = (call.source(0), call.source(1));
    call.each(|[i0, i1, i2, i3]| Element::exact(a.at([i0, ids.at([i1, i2, i3, 0]) as usize, i2, i3])))
}
