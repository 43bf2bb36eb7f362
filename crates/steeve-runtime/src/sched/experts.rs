//! Finds the experts of a mixture that are requested, so that the others need not be copied.

use std::ops::Range;

use crate::sched::SchedError;
use crate::sched::execution_plan::PipelineSlot;
use crate::sched::schedule::TensorCopy;

/// The part of a copy that is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedExperts {
    All,
    /// These bytes, counted from the start of the copy.
    Ranges(Vec<Range<u64>>),
}

/// Reads the tensors of expert ids. If an id is out of range, all experts are copied: the kernel reports the error.
pub(crate) fn requested_experts(copy: &TensorCopy, tensors: &PipelineSlot<'_>) -> Result<RequestedExperts, SchedError> {
    let graph = tensors.schedule.graph();
    let weight = &graph.tensor(copy.root).layout;
    let (experts, stride) = (weight.ne()[2], weight.nb()[2]);
    let mut is_asked = vec![false; usize::try_from(experts).unwrap_or(0)];
    for &ids in &copy.ids {
        let layout = &graph.tensor(ids).layout;
        let address = tensors.address(ids)?;
        let Ok(size) = usize::try_from(layout.nbytes().0) else { return Ok(RequestedExperts::All) };
        let mut bytes = vec![0; size];
        address.buffer.read(address.offset, &mut bytes)?;
        let ([n0, n1, n2, n3], nb) = (layout.ne(), layout.nb());
        let rows = (0..n3).flat_map(|i3| (0..n2).flat_map(move |i2| (0..n1).map(move |i1| (i1, i2, i3))));
        for (i1, i2, i3) in rows {
            for i0 in 0..n0 {
                let at = (i0 * nb[0] + i1 * nb[1] + i2 * nb[2] + i3 * nb[3]) as usize;
                let Some(Ok(four)) = bytes.get(at..at + 4).map(<[u8; 4]>::try_from) else {
                    return Ok(RequestedExperts::All);
                };
                let expert = usize::try_from(i32::from_ne_bytes(four)).ok();
                match expert.and_then(|expert| is_asked.get_mut(expert)) {
                    Some(is_asked) => *is_asked = true,
                    None => return Ok(RequestedExperts::All),
                }
            }
        }
    }
    let mut parts: Vec<Range<u64>> = Vec::new();
    for (expert, _) in (0u64..).zip(&is_asked).filter(|(_, is_asked)| **is_asked) {
        let (start, end) = (expert * stride, (expert + 1) * stride);
        match parts.last_mut().filter(|part| part.end == start) {
            Some(part) => part.end = end,
            None => parts.push(start..end),
        }
    }
    Ok(RequestedExperts::Ranges(parts))
}
