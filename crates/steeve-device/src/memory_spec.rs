//! The properties of a memory that no hardware defines.

use steeve_graph::{Align, Bytes, Fusion, TensorId, Tensors};

use crate::{BufferType, Padding};

/// The properties of a memory: of a device that is planned for, or of a test device.
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
    /// The name.
    pub name: String,
    /// The alignment of the offsets of tensors.
    pub align: Align,
    /// The size of the largest buffer.
    pub max_size: Option<Bytes>,
    /// The bytes of all buffers together.
    pub capacity: Option<Bytes>,
    /// The number of nodes for which a tensor is kept after its last reader.
    pub hold: u32,
    /// What plans keep for backends that fuse nodes.
    pub fusion: Fusion,
    /// The multiple to which sizes of tensors are rounded up, beyond the alignment of their offsets.
    pub padding: Option<Align>,
    /// Whether buffers can grow in place.
    pub grows: bool,
}

impl MemorySpec {
    /// Returns unlimited memory that aligns tensors to 32 bytes.
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

    /// Returns the properties of an existing type of memory, without its padding.
    pub fn like(memory: &dyn BufferType) -> Self {
        let (align, max_size) = (memory.align(), memory.max_size());
        Self { align, max_size, hold: memory.hold(), fusion: memory.fusion(), ..Self::new(memory.name()) }
    }

    /// Returns these properties with another alignment of offsets.
    #[must_use]
    pub fn with_align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    /// Returns these properties with a largest buffer.
    #[must_use]
    pub fn with_max_size(self, max_size: Bytes) -> Self {
        Self { max_size: Some(max_size), ..self }
    }

    /// Returns these properties with a limit on all buffers together.
    #[must_use]
    pub fn with_capacity(self, capacity: Bytes) -> Self {
        Self { capacity: Some(capacity), ..self }
    }

    /// Returns these properties with a number of nodes for which tensors are kept after their last reader.
    #[must_use]
    pub fn with_hold(self, hold: u32) -> Self {
        Self { hold, ..self }
    }

    /// Sets what plans keep for backends that fuse nodes.
    #[must_use]
    pub fn with_fusion(self, fusion: Fusion) -> Self {
        Self { fusion, ..self }
    }

    /// Returns these properties with sizes of tensors rounded up to a multiple of `padding`.
    #[must_use]
    pub fn with_padding(self, padding: Align) -> Self {
        Self { padding: Some(padding), ..self }
    }

    /// Returns these properties with buffers that can grow in place.
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
