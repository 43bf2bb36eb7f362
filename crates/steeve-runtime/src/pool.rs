//! The buffers of a graph allocator: what they are, and how they grow.
//!
//! Each memory has some *chunks*, each one buffer. A memory that has no room for a plan is remade: it gets the chunks of the
//! plan, and no others. A chunk that has the right size already stays, one that is too small grows in place if its memory
//! can do that, and all others are freed before anything is made, so that old and new never exist together. If a buffer can't
//! be made, the chunks are left that stayed or have grown.

use std::sync::Arc;

use steeve_device::{BufferType, Bytes, SharedBuffer, Usage};
use steeve_graph::{BufferId, Id, IdVec, MemoryId, fit_buffers};

use crate::AllocError;
use crate::memories::Memories;
use crate::planned::PlannedGraph;

/// All buffers of an allocator, as chunks of memories.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// The chunks of each memory that shares no other's, in order.
    memories: Vec<MemoryChunks>,
    /// The index in `memories` of each memory: that of the first where several share one.
    number_of: IdVec<MemoryId, usize>,
    /// All buffers, for the handles; `None` while one is missing.
    buffers: Option<Arc<PoolBuffers>>,
}

/// The buffers of each memory, shared with the handles.
#[derive(Debug)]
pub(crate) struct PoolBuffers {
    pub(crate) memories: Vec<Vec<SharedBuffer>>,
    number_of: IdVec<MemoryId, usize>,
    /// Whether a buffer has a [hook](steeve_device::Buffer::init_hook) for its tensors.
    pub(crate) hooked: bool,
}

impl PoolBuffers {
    pub(crate) fn all(&self) -> impl Iterator<Item = &SharedBuffer> {
        self.memories.iter().flatten()
    }

    /// Returns the number of a memory, and its buffers.
    pub(crate) fn of(&self, memory: MemoryId) -> (usize, &[SharedBuffer]) {
        let number = self.number_of[memory];
        (number, &self.memories[number])
    }
}

/// The chunks of a memory.
#[derive(Debug)]
struct MemoryChunks {
    buffer_type: Arc<dyn BufferType>,
    chunks: Vec<Chunk>,
}

impl MemoryChunks {
    fn sizes(&self) -> Vec<Bytes> {
        self.chunks.iter().map(|chunk| chunk.size).collect()
    }

    /// Returns for each wanted size the index of the chunk that stays as it is, if there is one.
    fn staying(&self, wanted: &[Bytes]) -> Vec<Option<usize>> {
        let mut is_taken = vec![false; self.chunks.len()];
        let stays = |wanted: &Bytes| {
            let fits = |chunk: &Chunk| chunk.buffer.is_some() && (chunk.asked..=chunk.size).contains(wanted);
            let index = self.chunks.iter().zip(&is_taken).position(|(chunk, taken)| !taken && fits(chunk))?;
            is_taken[index] = true;
            Some(index)
        };
        wanted.iter().map(stays).collect()
    }

    /// Returns the chunks that do not stay as they are.
    fn leaving(&self, wanted: &[Bytes]) -> impl Iterator<Item = &Chunk> {
        let staying = self.staying(wanted);
        let leaves = move |(index, _): &(usize, &Chunk)| !staying.contains(&Some(*index));
        self.chunks.iter().enumerate().filter(leaves).map(|(_, chunk)| chunk)
    }

    /// Replaces the chunks by those that are wanted, without making any buffer. Those that stay have theirs, and so have
    /// those that may grow in place: the largest of the others, for whichever wants more.
    fn rearrange(&mut self, wanted: &[Bytes]) -> Result<(), AllocError> {
        let staying = self.staying(wanted);
        let mut old: Vec<Option<Chunk>> = std::mem::take(&mut self.chunks).into_iter().map(Some).collect();
        let mut chunks: Vec<Chunk> = staying
            .iter()
            .zip(wanted)
            .map(|(index, size)| index.and_then(|index| old[index].take()).unwrap_or_else(|| Chunk::missing(*size)))
            .collect();
        let mut others: Vec<Chunk> = old.into_iter().flatten().collect();
        others.sort_by_key(|chunk| chunk.size);
        let mut in_use = Ok(());
        for chunk in chunks.iter_mut().filter(|chunk| chunk.buffer.is_none()) {
            if let Some(index) = others.iter().rposition(|other| other.size < chunk.size && other.buffer.is_some()) {
                let other = others.remove(index);
                (chunk.buffer, chunk.hooked) = (other.buffer, other.hooked);
            }
        }
        for other in others {
            if let Some(Err(error)) = other.buffer.as_ref().map(SharedBuffer::release) {
                // What is in use after all stays.
                chunks.push(other);
                in_use = Err(error.into());
            }
        }
        self.chunks = chunks;
        in_use
    }

    /// Grows the chunks that are too small where their buffers can grow in place, and frees those buffers that can't.
    fn grow(&mut self) -> Result<(), AllocError> {
        for chunk in &mut self.chunks {
            let Some(buffer) = chunk.buffer.as_ref().filter(|buffer| buffer.size() < chunk.asked) else { continue };
            // Where that fails there may still be room for a new one, when this one is gone.
            if matches!(buffer.grow(chunk.asked), Ok(true)) {
                chunk.size = buffer.size();
                continue;
            }
            buffer.release()?;
            chunk.buffer = None;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Chunk {
    /// The requested bytes. The buffer may be larger, where a device rounds up.
    asked: Bytes,
    size: Bytes,
    buffer: Option<SharedBuffer>,
    /// Whether the buffer wants to see each tensor.
    hooked: bool,
}

impl Chunk {
    /// Takes the size of the buffer, if that did not grow.
    fn settle(&mut self) {
        if let Some(buffer) = &self.buffer {
            self.size = buffer.size();
            self.asked = self.asked.min(self.size);
        }
    }

    const fn missing(size: Bytes) -> Self {
        Self { asked: size, size, buffer: None, hooked: false }
    }
}

/// For each memory the index of the chunk of each buffer of a plan.
pub(crate) type ChunkMatches = Vec<Vec<usize>>;

/// For each memory the sizes of its chunks.
pub(crate) type ChunkSizes = Vec<Vec<Bytes>>;

/// For each memory the new sizes of its chunks; `None` if they stay.
pub(crate) type NewChunkSizes = Vec<Option<Vec<Bytes>>>;

/// Returns the index of the chunk of a buffer of a plan. Tensors of no bytes may be in buffers that do not exist: any will do.
pub(crate) fn chunk_of(chunks: &ChunkMatches, number: usize, buffer: BufferId) -> usize {
    chunks[number].get(buffer.index()).copied().unwrap_or(0)
}

/// Returns the sum of all sizes.
pub(crate) fn total(sizes: &[Bytes]) -> Bytes {
    Bytes(sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0)))
}

impl BufferPool {
    pub(crate) fn new(memories: &Memories) -> Self {
        let mut number_of: IdVec<MemoryId, usize> = IdVec::new();
        let mut chunks_of: Vec<MemoryChunks> = Vec::new();
        for (id, memory) in memories.planned().pairs() {
            let number = match memory.shared_with {
                Some(first) => number_of[first],
                None => {
                    let buffer_type = Arc::clone(memories.memory_type(id));
                    chunks_of.push(MemoryChunks { buffer_type, chunks: Vec::new() });
                    chunks_of.len() - 1
                }
            };
            number_of.push(number);
        }
        Self { memories: chunks_of, number_of, buffers: None }
    }

    /// Returns the sizes of all chunks, also of those whose buffer is missing.
    pub(crate) fn sizes(&self) -> ChunkSizes {
        self.memories.iter().map(MemoryChunks::sizes).collect()
    }

    /// Returns the chunk of each buffer of a plan; `None` if some are too small or too few.
    pub(crate) fn fit(&self, planned: &PlannedGraph) -> Option<ChunkMatches> {
        self.memories
            .iter()
            .zip(planned.needed())
            .map(|(memory, needed)| fit_buffers(&memory.sizes(), &needed))
            .collect()
    }

    /// Returns whether a memory has more bytes than are needed in it.
    pub(crate) fn has_more_than(&self, needed: &ChunkSizes) -> bool {
        self.memories.iter().zip(needed).any(|(memory, needed)| total(&memory.sizes()) > total(needed))
    }

    /// Returns the bytes that are allocated in a memory, without those of missing buffers.
    pub(crate) fn allocated(&self, memory: MemoryId) -> Bytes {
        let chunks = &self.memories[self.number_of[memory]].chunks;
        Bytes(chunks.iter().filter(|chunk| chunk.buffer.is_some()).map(|chunk| chunk.size.0).sum())
    }

    /// Returns whether the buffer is one of the pool.
    pub(crate) fn owns(&self, buffer: &SharedBuffer) -> bool {
        self.memories
            .iter()
            .flat_map(|memory| &memory.chunks)
            .filter_map(|it| it.buffer.as_ref())
            .any(|it| it.is_same(buffer))
    }

    /// Forgets buffers that were released from outside.
    fn drop_released(&mut self) {
        for chunk in self.memories.iter_mut().flat_map(|memory| &mut memory.chunks) {
            if chunk.buffer.as_ref().is_some_and(SharedBuffer::is_released) {
                chunk.buffer = None;
                self.buffers = None;
            }
        }
    }

    /// Returns all buffers, after allocating those that are missing.
    pub(crate) fn complete(&mut self) -> Result<&Arc<PoolBuffers>, AllocError> {
        self.drop_released();
        if self.buffers.is_none() {
            self.make()?;
        }
        let Self { memories, number_of, buffers } = self;
        Ok(buffers.get_or_insert_with(|| Arc::new(gather(memories, number_of))))
    }

    /// Returns whether [`remake`](Self::remake) may lose contents: more chunks alone take nothing from those that are there.
    pub(crate) fn must_replace(&self, wanted: &NewChunkSizes) -> bool {
        self.remade(wanted).any(|(memory, wanted)| memory.leaving(wanted).next().is_some())
    }

    /// Fails if a chunk that does not stay as it is is in use.
    pub(crate) fn check_free(&self, wanted: &NewChunkSizes) -> Result<(), AllocError> {
        for chunk in self.remade(wanted).flat_map(|(memory, wanted)| memory.leaving(wanted)) {
            if let Some(buffer) = &chunk.buffer {
                drop(buffer.borrow_mut()?);
            }
        }
        Ok(())
    }

    /// Returns the memories that are remade, with their new sizes.
    fn remade<'a>(&'a self, wanted: &'a NewChunkSizes) -> impl Iterator<Item = (&'a MemoryChunks, &'a [Bytes])> {
        self.memories.iter().zip(wanted).filter_map(|(memory, wanted)| Some((memory, wanted.as_deref()?)))
    }

    /// Gives memories the chunks that are wanted, and no others. If a buffer can't be made, the chunks are left that had
    /// the right size already or have grown.
    pub(crate) fn remake(&mut self, wanted: &NewChunkSizes) -> Result<(), AllocError> {
        self.buffers = None;
        let mut made = Ok(());
        // All are freed before any grows, and all grow before any is made.
        for (memory, wanted) in self.memories.iter_mut().zip(wanted) {
            if let Some(wanted) = wanted {
                made = made.and(memory.rearrange(wanted));
            }
        }
        for (memory, _) in self.memories.iter_mut().zip(wanted).filter(|(_, wanted)| wanted.is_some()) {
            made = made.and_then(|()| memory.grow());
        }
        made = made.and_then(|()| self.make());
        if made.is_err() {
            for (memory, _) in self.memories.iter_mut().zip(wanted).filter(|(_, wanted)| wanted.is_some()) {
                memory.chunks.retain(|chunk| chunk.buffer.is_some());
                memory.chunks.iter_mut().for_each(Chunk::settle);
            }
        }
        made
    }

    /// Makes the buffers that are missing; if one fails, those made before it go again.
    fn make(&mut self) -> Result<(), AllocError> {
        let mut made: Vec<(usize, usize, Chunk)> = Vec::new();
        for (number, memory) in self.memories.iter().enumerate() {
            for (index, chunk) in memory.chunks.iter().enumerate().filter(|(_, chunk)| chunk.buffer.is_none()) {
                let (asked, size) = (chunk.asked, chunk.size);
                let buffer = SharedBuffer::allocate(&memory.buffer_type, size, Usage::Compute).map_err(|error| {
                    let what = format!("chunk {index} of {}", memory.buffer_type.name());
                    AllocError::Buffer { what, size, error: error.into() }
                })?;
                let hooked = buffer.borrow_mut()?.init_hook().is_some();
                made.push((number, index, Chunk { asked, size: buffer.size(), buffer: Some(buffer), hooked }));
            }
        }
        for (number, index, chunk) in made {
            self.memories[number].chunks[index] = chunk;
        }
        Ok(())
    }
}

/// Frees all buffers, also those that handles still refer to. A run in another thread keeps its own until it ends.
impl Drop for BufferPool {
    fn drop(&mut self) {
        for chunk in self.memories.iter().flat_map(|memory| &memory.chunks) {
            if let Some(buffer) = &chunk.buffer {
                let _ = buffer.release();
            }
        }
    }
}

fn gather(memories: &[MemoryChunks], number_of: &IdVec<MemoryId, usize>) -> PoolBuffers {
    let hooked = memories.iter().flat_map(|memory| &memory.chunks).any(|chunk| chunk.hooked);
    let chunks = |memory: &MemoryChunks| memory.chunks.iter().filter_map(|chunk| chunk.buffer.clone()).collect();
    PoolBuffers { memories: memories.iter().map(chunks).collect(), number_of: number_of.clone(), hooked }
}
