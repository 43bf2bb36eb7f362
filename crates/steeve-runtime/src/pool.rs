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
use crate::planned::Planned;

/// All buffers of an allocator.
#[derive(Debug)]
pub(crate) struct Pool {
    /// One part for each memory that shares no other's, in order.
    parts: Vec<Part>,
    /// The part of each memory.
    part_of: IdVec<MemoryId, usize>,
    /// The same buffers, for the handles; `None` while one is missing.
    buffers: Option<Arc<Buffers>>,
}

/// The buffers of each part.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) parts: Vec<Vec<SharedBuffer>>,
    part_of: IdVec<MemoryId, usize>,
    /// Whether some buffer wants to see each tensor.
    pub(crate) hooked: bool,
}

impl Buffers {
    pub(crate) fn all(&self) -> impl Iterator<Item = &SharedBuffer> {
        self.parts.iter().flatten()
    }

    /// The part of a memory, and its buffers.
    pub(crate) fn of(&self, memory: MemoryId) -> (usize, &[SharedBuffer]) {
        let part = self.part_of[memory];
        (part, &self.parts[part])
    }
}

#[derive(Debug)]
struct Part {
    memory: Arc<dyn BufferType>,
    chunks: Vec<Chunk>,
}

impl Part {
    fn sizes(&self) -> Vec<Bytes> {
        self.chunks.iter().map(|chunk| chunk.size).collect()
    }

    /// For each wanted size the chunk that stays as it is, if there is one.
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

    /// The chunks that do not stay as they are.
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

    /// Has the chunks grow that are too small, where they can; else their buffers go.
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
    /// What the buffer was made for. It may be larger, where a device rounds up.
    asked: Bytes,
    size: Bytes,
    buffer: Option<SharedBuffer>,
    /// Whether the buffer wants to see each tensor.
    hooked: bool,
}

impl Chunk {
    /// Has the size that its buffer has, if that did not grow.
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

/// For each part the chunk of each buffer of a plan.
pub(crate) type Matching = Vec<Vec<usize>>;

/// For each part the sizes of its chunks.
pub(crate) type Sizes = Vec<Vec<Bytes>>;

/// For each part that is remade the sizes that its chunks get.
pub(crate) type Wanted = Vec<Option<Vec<Bytes>>>;

/// The chunk of a buffer of a plan. Tensors of no bytes may be in buffers that do not exist: any will do.
pub(crate) fn chunk_of(chunks: &Matching, part: usize, buffer: BufferId) -> usize {
    chunks[part].get(buffer.index()).copied().unwrap_or(0)
}

/// The sum of all sizes.
pub(crate) fn total(sizes: &[Bytes]) -> Bytes {
    Bytes(sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0)))
}

impl Pool {
    pub(crate) fn new(memories: &Memories) -> Self {
        let mut part_of: IdVec<MemoryId, usize> = IdVec::new();
        let mut parts = Vec::new();
        for (id, memory) in memories.planned().pairs() {
            let part = match memory.shared_with {
                Some(first) => part_of[first],
                None => {
                    parts.push(Part { memory: Arc::clone(memories.memory_type(id)), chunks: Vec::new() });
                    parts.len() - 1
                }
            };
            part_of.push(part);
        }
        Self { parts, part_of, buffers: None }
    }

    /// The sizes now, also of chunks whose buffer is missing.
    pub(crate) fn sizes(&self) -> Sizes {
        self.parts.iter().map(Part::sizes).collect()
    }

    /// The chunk of each buffer of a plan; `None` if some are too small or too few.
    pub(crate) fn fit(&self, planned: &Planned) -> Option<Matching> {
        self.parts.iter().zip(planned.needed()).map(|(part, needed)| fit_buffers(&part.sizes(), &needed)).collect()
    }

    /// Whether some part has more bytes than are needed in it.
    pub(crate) fn has_more_than(&self, needed: &Sizes) -> bool {
        self.parts.iter().zip(needed).any(|(part, needed)| total(&part.sizes()) > total(needed))
    }

    /// The bytes that really are allocated in a memory.
    pub(crate) fn allocated(&self, memory: MemoryId) -> Bytes {
        let chunks = &self.parts[self.part_of[memory]].chunks;
        Bytes(chunks.iter().filter(|chunk| chunk.buffer.is_some()).map(|chunk| chunk.size.0).sum())
    }

    /// Whether it is one of these.
    pub(crate) fn owns(&self, buffer: &SharedBuffer) -> bool {
        self.parts.iter().flat_map(|part| &part.chunks).filter_map(|it| it.buffer.as_ref()).any(|it| it.is_same(buffer))
    }

    /// Forgets buffers whose memory somebody has given back.
    fn drop_released(&mut self) {
        for chunk in self.parts.iter_mut().flat_map(|part| &mut part.chunks) {
            if chunk.buffer.as_ref().is_some_and(SharedBuffer::is_released) {
                chunk.buffer = None;
                self.buffers = None;
            }
        }
    }

    /// All buffers, made where they are missing.
    pub(crate) fn complete(&mut self) -> Result<&Arc<Buffers>, AllocError> {
        self.drop_released();
        if self.buffers.is_none() {
            self.make()?;
        }
        let Self { parts, part_of, buffers } = self;
        Ok(buffers.get_or_insert_with(|| Arc::new(gather(parts, part_of))))
    }

    /// Whether [`remake`](Self::remake) may lose contents: more chunks alone take nothing from those that are there.
    pub(crate) fn must_replace(&self, wanted: &Wanted) -> bool {
        self.remade(wanted).any(|(part, wanted)| part.leaving(wanted).next().is_some())
    }

    /// Fails if a chunk that does not stay as it is is in use.
    pub(crate) fn check_free(&self, wanted: &Wanted) -> Result<(), AllocError> {
        for chunk in self.remade(wanted).flat_map(|(part, wanted)| part.leaving(wanted)) {
            if let Some(buffer) = &chunk.buffer {
                drop(buffer.borrow_mut()?);
            }
        }
        Ok(())
    }

    /// The parts that are remade, with their new sizes.
    fn remade<'a>(&'a self, wanted: &'a Wanted) -> impl Iterator<Item = (&'a Part, &'a [Bytes])> {
        self.parts.iter().zip(wanted).filter_map(|(part, wanted)| Some((part, wanted.as_deref()?)))
    }

    /// Gives parts the chunks that are wanted, and no others. If a buffer can't be made, the chunks are left that had
    /// the right size already or have grown.
    pub(crate) fn remake(&mut self, wanted: &Wanted) -> Result<(), AllocError> {
        self.buffers = None;
        let mut made = Ok(());
        // All are freed before any grows, and all grow before any is made.
        for (part, wanted) in self.parts.iter_mut().zip(wanted) {
            if let Some(wanted) = wanted {
                made = made.and(part.rearrange(wanted));
            }
        }
        for (part, _) in self.parts.iter_mut().zip(wanted).filter(|(_, wanted)| wanted.is_some()) {
            made = made.and_then(|()| part.grow());
        }
        made = made.and_then(|()| self.make());
        if made.is_err() {
            for (part, _) in self.parts.iter_mut().zip(wanted).filter(|(_, wanted)| wanted.is_some()) {
                part.chunks.retain(|chunk| chunk.buffer.is_some());
                part.chunks.iter_mut().for_each(Chunk::settle);
            }
        }
        made
    }

    /// Makes the buffers that are missing; if one fails, those made before it go again.
    fn make(&mut self) -> Result<(), AllocError> {
        let mut made: Vec<(usize, usize, Chunk)> = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            for (index, chunk) in part.chunks.iter().enumerate().filter(|(_, chunk)| chunk.buffer.is_none()) {
                let (asked, size) = (chunk.asked, chunk.size);
                let buffer = SharedBuffer::allocate(&part.memory, size, Usage::Compute).map_err(|error| {
                    let what = format!("chunk {index} of {}", part.memory.name());
                    AllocError::Buffer { what, size, error: error.into() }
                })?;
                let hooked = buffer.borrow_mut()?.init_hook().is_some();
                made.push((number, index, Chunk { asked, size: buffer.size(), buffer: Some(buffer), hooked }));
            }
        }
        for (part, index, chunk) in made {
            self.parts[part].chunks[index] = chunk;
        }
        Ok(())
    }
}

/// The allocator owns its buffers: what handles still hold is empty from now on. A run in another thread keeps its own
/// until it ends.
impl Drop for Pool {
    fn drop(&mut self) {
        for chunk in self.parts.iter().flat_map(|part| &part.chunks) {
            if let Some(buffer) = &chunk.buffer {
                let _ = buffer.release();
            }
        }
    }
}

fn gather(parts: &[Part], part_of: &IdVec<MemoryId, usize>) -> Buffers {
    let hooked = parts.iter().flat_map(|part| &part.chunks).any(|chunk| chunk.hooked);
    let chunks = |part: &Part| part.chunks.iter().filter_map(|chunk| chunk.buffer.clone()).collect();
    Buffers { parts: parts.iter().map(chunks).collect(), part_of: part_of.clone(), hooked }
}
