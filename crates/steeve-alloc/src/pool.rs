//! The buffers of a graph allocator: what they are, and how they grow.
//!
//! Each memory has some *chunks*, each one buffer. A chunk never shrinks. It grows where it stands, if its memory can do
//! that; else its buffer is freed first and made anew, so that old and new never exist together. If that fails, the chunk
//! keeps its old size and has no buffer until [`Pool::complete`] makes one.

use std::sync::Arc;

use steeve_device::{BufferType, Bytes, SharedBuffer, Usage};
use steeve_graph::{IdVec, MemoryId};

use crate::AllocError;
use crate::memories::Memories;

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
    /// The chunks that are smaller than wanted.
    fn growing(&self, wanted: &[Bytes]) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().zip(wanted).filter(|(chunk, wanted)| **wanted > chunk.size).map(|(chunk, _)| chunk)
    }

    fn growing_mut(&mut self, wanted: &[Bytes]) -> impl Iterator<Item = (&mut Chunk, Bytes)> {
        let chunks = self.chunks.iter_mut().zip(wanted.iter().copied());
        chunks.filter(|(chunk, wanted)| *wanted > chunk.size)
    }
}

#[derive(Clone, Debug)]
struct Chunk {
    size: Bytes,
    buffer: Option<SharedBuffer>,
    /// Whether the buffer wants to see each tensor.
    hooked: bool,
}

/// For each part the chunk of each buffer of a plan.
pub(crate) type Matching = Vec<Vec<usize>>;

/// For each part the sizes that its chunks should have.
pub(crate) type Sizes = Vec<Vec<Bytes>>;

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
        self.parts.iter().map(|part| part.chunks.iter().map(|chunk| chunk.size).collect()).collect()
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
            self.make(&self.sizes())?;
        }
        let Self { parts, part_of, buffers } = self;
        Ok(buffers.get_or_insert_with(|| Arc::new(gather(parts, part_of))))
    }

    /// Whether there are fewer or smaller chunks than `wanted`.
    pub(crate) fn must_grow(&self, wanted: &Sizes) -> bool {
        let lacks = |(part, wanted): (&Part, &Vec<Bytes>)| part.chunks.len() < wanted.len();
        self.parts.iter().zip(wanted).any(lacks) || self.must_replace(wanted)
    }

    /// Whether [`grow`](Self::grow) may lose contents: more chunks alone take nothing from those that are there.
    pub(crate) fn must_replace(&self, wanted: &Sizes) -> bool {
        self.parts.iter().zip(wanted).any(|(part, wanted)| part.growing(wanted).next().is_some())
    }

    /// Fails if a chunk that has to grow is in use.
    pub(crate) fn check_free(&self, wanted: &Sizes) -> Result<(), AllocError> {
        for chunk in self.parts.iter().zip(wanted).flat_map(|(part, wanted)| part.growing(wanted)) {
            if let Some(buffer) = &chunk.buffer {
                drop(buffer.borrow_mut()?);
            }
        }
        Ok(())
    }

    /// Makes every chunk at least as large as `wanted`. If that fails, those that have not grown where they stand have their
    /// old sizes and no buffer.
    pub(crate) fn grow(&mut self, wanted: &Sizes) -> Result<(), AllocError> {
        self.buffers = None;
        for (part, wanted) in self.parts.iter_mut().zip(wanted) {
            for (chunk, size) in part.growing_mut(wanted) {
                if let Some(buffer) = &chunk.buffer {
                    // Where that fails there may still be room for a new one, when this one is gone.
                    if matches!(buffer.grow(size), Ok(true)) {
                        chunk.size = buffer.size();
                        continue;
                    }
                    // What is in use after all stays.
                    buffer.release()?;
                }
                chunk.buffer = None;
            }
        }
        self.make(wanted)
    }

    /// Makes the buffers that are missing, at the sizes that are wanted; if one fails, those made before it go again.
    fn make(&mut self, wanted: &Sizes) -> Result<(), AllocError> {
        let mut made: Vec<(usize, usize, Chunk)> = Vec::new();
        for (number, (part, wanted)) in self.parts.iter().zip(wanted).enumerate() {
            for (index, &size) in wanted.iter().enumerate() {
                let chunk = part.chunks.get(index);
                if chunk.is_some_and(|chunk| chunk.buffer.is_some()) {
                    continue;
                }
                let size = chunk.map_or(size, |chunk| chunk.size.max(size));
                let buffer = SharedBuffer::allocate(&part.memory, size, Usage::Compute).map_err(|error| {
                    let what = format!("chunk {index} of {}", part.memory.name());
                    AllocError::Buffer { what, size, error: error.into() }
                })?;
                let hooked = buffer.borrow_mut()?.init_hook().is_some();
                made.push((number, index, Chunk { size: buffer.size(), buffer: Some(buffer), hooked }));
            }
        }
        for (part, index, chunk) in made {
            let chunks = &mut self.parts[part].chunks;
            match chunks.get_mut(index) {
                Some(old) => *old = chunk,
                // They come in order, so this is the next one.
                None => chunks.push(chunk),
            }
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
