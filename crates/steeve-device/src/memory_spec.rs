//! What a memory is like, where no hardware says so.

use steeve_graph::{Align, Bytes, Fusion, TensorId, Tensors};

use crate::{BufferType, Padding};

/// The figures of a memory: of a device that is planned for, or of one that is made up for a test.
///
/// ```
/// use steeve_device::{Align, Bytes, MemorySpec};
/// let gpu = MemorySpec::new("gpu").with_align(Align::new(256)?).with_max_size(Bytes(1 << 30)).with_hold(3);
/// assert_eq!(gpu.name, "gpu");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySpec {
    /// What to call it.
    pub name: String,
    /// What the offsets of tensors are multiples of.
    pub align: Align,
    /// The largest buffer.
    pub max_size: Option<Bytes>,
    /// How many bytes there are in all.
    pub capacity: Option<Bytes>,
    /// For how many nodes after its last reader a tensor must stay.
    pub hold: u32,
    /// What plans keep for backends that fuse nodes.
    pub fusion: Fusion,
    /// What the sizes of tensors are rounded up to, beyond the alignment of their offsets.
    pub padding: Option<Align>,
    /// Whether buffers can be made larger where they stand.
    pub grows: bool,
}

impl MemorySpec {
    /// Unlimited memory in which tensors stand at multiples of 32 bytes.
    pub fn new(name: impl Into<String>) -> Self {
        let align = crate::host_memory::DEFAULT_ALIGN;
        Self {
            name: name.into(),
            align,
            max_size: None,
            capacity: None,
            hold: 0,
            fusion: Fusion::None,
            padding: None,
            grows: false,
        }
    }

    /// The figures of an existing kind of memory, but for what it pads.
    pub fn like(memory: &dyn BufferType) -> Self {
        let (align, max_size) = (memory.align(), memory.max_size());
        Self { align, max_size, hold: memory.hold(), fusion: memory.fusion(), ..Self::new(memory.name()) }
    }

    /// The same with another alignment of offsets.
    #[must_use]
    pub fn with_align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    /// The same with a largest buffer.
    #[must_use]
    pub fn with_max_size(self, max_size: Bytes) -> Self {
        Self { max_size: Some(max_size), ..self }
    }

    /// The same with a limit on all buffers together.
    #[must_use]
    pub fn with_capacity(self, capacity: Bytes) -> Self {
        Self { capacity: Some(capacity), ..self }
    }

    /// The same with a hold.
    #[must_use]
    pub fn with_hold(self, hold: u32) -> Self {
        Self { hold, ..self }
    }

    /// Sets what plans keep for backends that fuse nodes.
    #[must_use]
    pub fn with_fusion(self, fusion: Fusion) -> Self {
        Self { fusion, ..self }
    }

    /// The same with sizes of tensors rounded up.
    #[must_use]
    pub fn with_padding(self, padding: Align) -> Self {
        Self { padding: Some(padding), ..self }
    }

    /// The same with buffers that can be made larger where they stand.
    #[must_use]
    pub fn with_growth(self) -> Self {
        Self { grows: true, ..self }
    }

    pub(crate) fn as_padding(&self) -> Option<&dyn Padding> {
        self.padding.is_some().then_some(self as &dyn Padding)
    }
}

impl From<&str> for MemorySpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl Padding for MemorySpec {
    fn alloc_size(&self, tensors: &Tensors, tensor: TensorId) -> Bytes {
        let bytes = tensors.get(tensor).map_or(Bytes::ZERO, |it| it.nbytes());
        self.padding.and_then(|padding| padding.round_up(bytes)).unwrap_or(bytes)
    }
}
