//! When our allocator may plan again after a graph that it could not plan.
//!
//! ```text
//!   ours --graph beyond ours--> ggml's own --graph that ours can plan--> ours
//! ```
//!
//! To go back means that ggml's own buffers are freed. That is safe where no tensor of the new graph is in one of them, and it
//! is worth while where the two do not take turns: each change makes all buffers anew. To find out costs a plan, so what
//! looks like a graph that could not be planned is not tried again.

use crate::ggml_abi::{GgmlBuffer, GgmlGraph, GgmlTensor};
use crate::read_graph::TensorLists;

/// So many graphs that ours could not plan are remembered.
const GRAPHS: usize = 8;

/// Ours has come back for nothing if it was replaced again after fewer calls than this.
const FEW_CALLS: u32 = 8;

/// So often in a row it may come back for nothing before it waits.
const PATIENCE: u32 = 4;

/// At most 2^6 calls are left to ggml's own while ours waits.
const LONGEST_WAIT: u32 = 6;

/// What has been seen of graphs that ours could not plan.
#[derive(Default)]
pub(crate) struct FallbackHistory {
    /// What they looked like, the latest last.
    unplannable: Vec<u64>,
    /// The buffers in which ggml's own has placed tensors.
    buffers: Vec<GgmlBuffer>,
    /// The calls that ours has served since it came back.
    served: u32,
    /// How often in a row it came back for nothing.
    useless_returns: u32,
    /// The calls that are left to ggml's own before ours is tried again.
    wait: u32,
}

impl FallbackHistory {
    /// Notes that our allocator has served a call.
    pub(crate) fn served(&mut self) {
        self.served = self.served.saturating_add(1);
    }

    /// Notes a graph that our allocator could not plan.
    ///
    /// # Safety
    /// Null, or a graph of ggml's.
    pub(crate) unsafe fn note_unplannable(&mut self, graph: *const GgmlGraph) {
        // SAFETY: passed on.
        let Some(look) = (unsafe { graph_signature(graph) }) else { return };
        if !self.unplannable.contains(&look) {
            if self.unplannable.len() == GRAPHS {
                self.unplannable.remove(0);
            }
            self.unplannable.push(look);
        }
    }

    /// Notes that ggml's own allocator is used from now on, and how long ours waits.
    pub(crate) fn switch_to_fallback(&mut self) {
        self.useless_returns = if self.served < FEW_CALLS { self.useless_returns.saturating_add(1) } else { 0 };
        self.wait = match self.useless_returns.checked_sub(PATIENCE + 1) {
            None => 0,
            Some(more) => 2 << more.min(LONGEST_WAIT - 1),
        };
    }

    /// Notes that our allocator is used again, and that ggml's own buffers are gone.
    pub(crate) fn return_to_own(&mut self) {
        self.served = 0;
        self.buffers.clear();
    }

    /// Returns whether our allocator is to be tried with this graph while ggml's own is in use.
    ///
    /// # Safety
    /// Null, or a graph of ggml's.
    pub(crate) unsafe fn may_return_to_own(&mut self, graph: *const GgmlGraph) -> bool {
        if self.wait > 0 {
            self.wait -= 1;
            return false;
        }
        // SAFETY: passed on.
        unsafe {
            if graph_signature(graph).is_some_and(|look| self.unplannable.contains(&look)) {
                return false;
            }
            !buffers_of(graph).iter().any(|buffer| self.buffers.contains(buffer))
        }
    }

    /// Notes in which buffers ggml's own has placed tensors, by what is new after its `act`.
    ///
    /// # Safety
    /// Null, or a graph of ggml's.
    pub(crate) unsafe fn note_buffers<R>(&mut self, graph: *const GgmlGraph, act: impl FnOnce() -> R) -> R {
        // SAFETY: passed on.
        let before = unsafe { buffers_of(graph) };
        let answer = act();
        // SAFETY: passed on.
        for buffer in unsafe { buffers_of(graph) } {
            if !before.contains(&buffer) && !self.buffers.contains(&buffer) {
                self.buffers.push(buffer);
            }
        }
        answer
    }
}

/// Returns a hash of the types, shapes, operations, flags and views of a graph's tensors. Two graphs with equal hashes by
/// chance, or that differ in their edges alone, are both left to ggml's own.
///
/// # Safety
/// Null, or a graph of ggml's.
unsafe fn graph_signature(graph: *const GgmlGraph) -> Option<u64> {
    // SAFETY: passed on.
    let lists = unsafe { TensorLists::of(graph) }.ok()?;
    let mut look = lists.leafs.len() as u64;
    let mut mix = |number: u64| look = (look ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    for &pointer in lists.leafs.iter().chain(lists.nodes) {
        // SAFETY: the lists have no null in them.
        let tensor = unsafe { &*pointer };
        mix(tensor.dtype as u64 | (tensor.op as u64) << 32);
        mix(tensor.flags as u64 | (tensor.op_params[0] as u64) << 32);
        tensor.ne.iter().for_each(|ne| mix(*ne as u64));
        tensor.nb.iter().for_each(|nb| mix(*nb as u64));
        mix(tensor.view_offs as u64 ^ u64::from(tensor.view_src.is_null()) << 63);
    }
    Some(look)
}

/// Returns the buffers in which tensors of a graph are placed, each once. There are a few.
///
/// # Safety
/// Null, or a graph of ggml's.
pub(crate) unsafe fn buffers_of(graph: *const GgmlGraph) -> Vec<GgmlBuffer> {
    let mut buffers: Vec<GgmlBuffer> = Vec::new();
    // SAFETY: passed on.
    let Ok(lists) = (unsafe { TensorLists::of(graph) }) else { return buffers };
    let mut note = |tensor: &GgmlTensor| {
        if !tensor.buffer.is_null() && !buffers.contains(&tensor.buffer) {
            buffers.push(tensor.buffer);
        }
    };
    for &pointer in lists.leafs.iter().chain(lists.nodes) {
        // SAFETY: the lists have no null in them, and a source is null or a tensor of ggml's.
        unsafe {
            note(&*pointer);
            (*pointer).src.iter().filter_map(|source| source.as_ref()).for_each(&mut note);
        }
    }
    buffers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_for_nothing_waits_longer_each_time() {
        let mut history = FallbackHistory::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            history.served();
            history.switch_to_fallback();
            waits.push(history.wait);
            history.return_to_own();
        }
        assert_eq!(waits, [0, 0, 0, 0, 2, 4, 8, 16, 32, 64, 64, 64]);
        (0..FEW_CALLS).for_each(|_| history.served());
        history.switch_to_fallback();
        assert_eq!(history.wait, 0);
    }

    #[test]
    fn while_ours_waits_calls_are_counted() {
        let mut history = FallbackHistory { wait: 2, ..FallbackHistory::default() };
        // SAFETY: no graph at all.
        let mut tried = || unsafe { history.may_return_to_own(std::ptr::null()) };
        assert_eq!([tried(), tried(), tried(), tried()], [false, false, true, true]);
    }
}
