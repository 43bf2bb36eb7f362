//! A graph of the caller's in, what ggml's own allocator would need for it out.
//!
//! That takes milliseconds, and a program with one memory allocates its graph anew for each token. So the answers for the last
//! few graphs are kept, each by a hash of everything that it depends on, which takes microseconds.

use steeve_graph::ggml_placement;

use crate::buffer_types::planned_memories;
use crate::drop_in_settings::settings;
use crate::gallocr_handle::ReserveRequest;
use crate::ggml_abi::{GgmlBufferType, GgmlTensor};
use crate::ggml_instance::GgmlInstance;
use crate::hash::WordHash;
use crate::read_graph::{BufferIds, GraphReadError, ReadPurpose, TensorLists, read};

/// The sizes of ggml's chunks in each memory; none in one that shares another's.
pub(crate) type ChunkSizes = Vec<Vec<u64>>;

/// The answers of one handle.
#[derive(Default)]
pub(crate) struct GgmlSimulations {
    /// With the hash of the graph, the latest last.
    kept: Vec<(u64, Result<ChunkSizes, GraphReadError>)>,
}

/// So many answers are kept: a program has a few graphs that take turns.
const MOST_KEPT: usize = 16;

impl GgmlSimulations {
    /// Returns the chunks of ggml's plan for a graph.
    ///
    /// # Errors
    /// If the graph, or this ggml, can't be read.
    ///
    /// # Safety
    /// Buffer types and a graph of this ggml's, with null or a number for each node and leaf.
    pub(crate) unsafe fn chunks(
        &mut self,
        ggml: &GgmlInstance,
        types: &[GgmlBufferType],
        request: ReserveRequest,
    ) -> Result<ChunkSizes, GraphReadError> {
        ggml.known().map_err(GraphReadError::Unsupported)?;
        // SAFETY: passed on; the structures are known.
        unsafe {
            let lists = TensorLists::of(request.graph)?;
            let ids = lists.ids(request.nodes, request.leafs);
            self.kept(fingerprint(lists, &ids), || simulate(ggml, types, lists, &ids))
        }
    }

    /// Returns the answer that is kept, or a new one, which is then kept.
    fn kept(
        &mut self,
        hash: u64,
        simulate: impl FnOnce() -> Result<ChunkSizes, GraphReadError>,
    ) -> Result<ChunkSizes, GraphReadError> {
        let (_, answer) = match self.kept.iter().position(|(kept, _)| *kept == hash) {
            Some(index) => self.kept.remove(index),
            None => (hash, simulate()),
        };
        if self.kept.len() == MOST_KEPT {
            self.kept.drain(..1);
        }
        self.kept.push((hash, answer.clone()));
        answer
    }
}

/// Simulates ggml's own allocator on a graph and returns the chunks it would need.
///
/// # Safety
/// As [`GgmlSimulations::chunks`].
unsafe fn simulate(
    ggml: &GgmlInstance,
    types: &[GgmlBufferType],
    lists: TensorLists<'_>,
    ids: &BufferIds,
) -> Result<ChunkSizes, GraphReadError> {
    let known = ggml.known().map_err(GraphReadError::Unsupported)?;
    // SAFETY: passed on.
    let graph = unsafe {
        let memories = planned_memories(known, settings(), types).map_err(GraphReadError::Unsupported)?;
        read(known, lists, &memories, ids, ReadPurpose::Plan { glu: false })?
    };
    let answer = ggml_placement(&graph.assigned).map_err(|error| GraphReadError::Unsupported(error.to_string()))?;
    let chunks = |memory| match graph.assigned.owner(memory) == memory {
        true => answer.chunks[memory].iter().map(|size| size.0).collect(),
        false => Vec::new(),
    };
    Ok(graph.assigned.memories().ids().map(chunks).collect())
}

/// Hashes what ggml's plan depends on: what each tensor is, which it reads, and whether it has an address, though not which.
/// A graph built elsewhere in memory, with equal distances between its tensors, has an equal hash.
///
/// # Safety
/// The lists are a graph of a known ggml's.
unsafe fn fingerprint(lists: TensorLists<'_>, ids: &BufferIds) -> u64 {
    let mut hash = WordHash::new();
    let origin = lists.nodes.first().or(lists.leafs.first()).map_or(0, |tensor| tensor.addr());
    let distance = |tensor: *mut GgmlTensor| match tensor.is_null() {
        true => u64::MAX,
        false => tensor.addr().wrapping_sub(origin) as u64,
    };
    for (tensors, ids) in [(lists.leafs, &ids.leafs), (lists.nodes, &ids.nodes)] {
        hash.add(tensors.len() as u64);
        for (pointer, id) in tensors.iter().zip(ids) {
            // SAFETY: a tensor of the graph; `TensorLists` has none that is null.
            let tensor = unsafe { &**pointer };
            hash.add(u64::from(*id as u32) << 32 | u64::from(tensor.op as u32));
            hash.add(u64::from(tensor.flags as u32) << 32 | u64::from(tensor.dtype as u32));
            hash.add(u64::from(tensor.is_placed()) << 32 | u64::from(tensor.op_params[0] as u32));
            tensor.ne.iter().for_each(|extent| hash.add(*extent as u64));
            tensor.nb.iter().for_each(|stride| hash.add(*stride as u64));
            hash.add(distance(*pointer));
            hash.add(distance(tensor.view_src));
            hash.add(tensor.view_offs as u64);
            tensor.src.iter().for_each(|source| hash.add(distance(*source)));
        }
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_simulated_once_as_long_as_it_is_kept() {
        let mut simulations = GgmlSimulations::default();
        let mut count = 0;
        let mut ask = |hash: u64| {
            let answer = simulations.kept(hash, || {
                count += 1;
                Ok(vec![vec![hash]])
            });
            assert_eq!(answer, Ok(vec![vec![hash]]));
            count
        };
        assert_eq!([ask(1), ask(1), ask(2), ask(1), ask(2)], [1, 1, 2, 2, 2]);
        assert_eq!((3..18).map(&mut ask).last(), Some(17));
        assert_eq!(ask(2), 17, "it was asked for later than the first");
        assert_eq!(ask(1), 18);
    }

    type Change<'a> = &'a dyn Fn(&mut [GgmlTensor; 3]);

    #[test]
    fn a_graph_is_told_by_what_it_is_and_not_by_where() {
        // SAFETY: numbers and pointers, all of which may be zero.
        let blank = || unsafe { std::mem::zeroed::<[GgmlTensor; 3]>() };
        let mut graphs = Vec::new();
        let mut hash = |change: Change<'_>| {
            let mut tensors = Box::new(blank());
            let start = tensors.as_mut_ptr();
            tensors[1].src[0] = start;
            tensors[2].src[1] = start.wrapping_add(1);
            change(&mut tensors);
            let pointers: Vec<*mut GgmlTensor> = (0..3).map(|index| start.wrapping_add(index)).collect();
            let ids = BufferIds { leafs: vec![0], nodes: vec![0; 2] };
            // SAFETY: three tensors, which live as long as this.
            let hash = unsafe { fingerprint(TensorLists { leafs: &pointers[..1], nodes: &pointers[1..] }, &ids) };
            // It stays, so that the next one is elsewhere.
            graphs.push(tensors);
            hash
        };
        let same = hash(&|_| {});
        assert_eq!(hash(&|_| {}), same);
        let changes: [Change<'_>; 6] = [
            &|tensors| tensors[1].ne[3] = 2,
            &|tensors| tensors[1].op = 1,
            &|tensors| tensors[0].flags = 1,
            &|tensors| tensors[0].data = std::ptr::dangling_mut(),
            &|tensors| tensors[2].src[1] = tensors[1].src[0],
            &|tensors| tensors[2].view_src = tensors[1].src[0],
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert_ne!(hash(change), same, "{index}");
        }
    }
}
