//! Buffer types in, memories as the planner sees them out: which is plain CPU memory, and what the backends of the others need.
//!
//! Outside plain CPU memory backends fuse nodes. Those in the table compare addresses before they do, so plans keep ggml's own
//! guarantees and what it takes to lose no fusion ([`Fusion::Kept`]). All others get the long hold, which costs so much that ggml's
//! layout is mostly used: with that, at least, they were tested.

use std::ffi::{c_int, c_void};

use steeve_graph::{Align, Bytes, Fusion, Id, IdVec, Memory, MemoryId};

use crate::drop_in_settings::DropInSettings;
use crate::function_tables::GgmlFunctions;
use crate::ggml_abi::GgmlBufferType;
use crate::ggml_instance::{KnownGgml, text};
use crate::read_graph::PlannedMemories;

/// For how many nodes a source outlives its last reader where nothing is known of a backend. ggml's matcher takes at most 31.
const LONG_HOLD: u32 = 32;

/// Backends by the names of their registries, and the first version of ggml in which they check every group that they fuse. Of
/// what is behind an RPC server nothing can be seen, so it is taken for a GPU of the same version.
const CHECKING: [(&str, [u32; 3]); 7] = [
    ("CUDA", [0, 10, 0]),
    ("ROCm", [0, 10, 0]),
    ("MUSA", [0, 10, 0]),
    ("Vulkan", [0, 9, 8]),
    ("Metal", [0, 9, 4]),
    ("MTL", [0, 9, 4]),
    ("RPC", [0, 10, 0]),
];

/// Those that run nodes on several streams where the environment asks for it, which has a race of ggml's own.
const WITH_STREAMS: [&str; 3] = ["CUDA", "ROCm", "MUSA"];

/// ggml's numbers for kinds of devices. Those above differ from version to version.
const DEVICE_CPU: c_int = 0;
const DEVICE_GPU: c_int = 1;

/// Returns the memories that the planner sees for some buffer types. Fails for one that is null, has no valid alignment, or spans
/// several devices.
///
/// # Safety
/// The buffer types are this ggml's.
pub(crate) unsafe fn planned_memories(
    ggml: &KnownGgml,
    settings: &DropInSettings,
    types: &[GgmlBufferType],
) -> Result<PlannedMemories, String> {
    let (functions, version) = (&ggml.functions, ggml.version_numbers());
    let mut planned: IdVec<MemoryId, Memory> = IdVec::new();
    let (mut pads_nothing, mut is_host) = (Vec::with_capacity(types.len()), Vec::with_capacity(types.len()));
    for (index, &buffer_type) in types.iter().enumerate() {
        if buffer_type.is_null() {
            return Err(format!("buffer type {index} is null"));
        }
        // SAFETY: as promised.
        let (name, align, max_size, is_meta, device) = unsafe {
            (
                text((functions.ggml_backend_buft_name)(buffer_type)).unwrap_or_default(),
                (functions.ggml_backend_buft_get_alignment)(buffer_type),
                (functions.ggml_backend_buft_get_max_size)(buffer_type),
                functions.ggml_backend_buft_is_meta.is_some_and(|is_meta| is_meta(buffer_type)),
                BufferTypeDevice::of(functions, buffer_type),
            )
        };
        if is_meta {
            return Err(format!("{name} spans several devices"));
        }
        let align = Align::new(align as u64).map_err(|error| format!("{name}: {error}"))?;
        let first = types.iter().position(|other| *other == buffer_type).filter(|first| *first < index);
        let host = name == "CPU" || device.is_plain_host();
        let (hold, fusion) = match settings.hold {
            Some(hold) if host => (hold, Fusion::None),
            Some(hold) => (hold, Fusion::Checked),
            None if host => (0, Fusion::None),
            None if checks_before_fusing(&device.registry, version, settings.cuda_streams) => (0, Fusion::Kept),
            None => (LONG_HOLD, Fusion::Checked),
        };
        pads_nothing.push(name == "CPU");
        is_host.push(host);
        planned.push(Memory {
            max_buffer: (max_size != usize::MAX).then_some(Bytes(max_size as u64)),
            extra_lifetime: hold,
            fusion,
            shared_with: first.and_then(MemoryId::from_index),
            ..Memory::new(name, align)
        });
    }
    Ok(PlannedMemories { types: types.to_vec(), planned, pads_nothing, is_host })
}

/// Returns whether a backend compares addresses before it fuses nodes.
fn checks_before_fusing(registry: &str, version: Option<[u32; 3]>, cuda_streams: bool) -> bool {
    let is_called = |name: &str| match registry.strip_prefix(name) {
        // An RPC server may be named behind it.
        Some(rest) => !rest.starts_with(|next: char| next.is_alphanumeric()),
        None => false,
    };
    let known = CHECKING.iter().find(|(name, _)| is_called(name));
    let streams = cuda_streams && WITH_STREAMS.into_iter().any(is_called);
    known.is_some_and(|(_, since)| version.is_some_and(|version| version >= *since)) && !streams
}

/// What a buffer type says about its device.
#[derive(Debug)]
pub(crate) struct BufferTypeDevice {
    /// ggml's own, which lives as long as ggml; `None` if there is none.
    pub(crate) pointer: Option<*mut c_void>,
    /// Whether the buffer type is memory of the host.
    pub(crate) is_host: bool,
    /// ggml's number for its kind.
    kind: Option<c_int>,
    /// The name of its backend's registry; empty if that is not known.
    registry: String,
}

impl BufferTypeDevice {
    /// Asks ggml for the device of a buffer type.
    ///
    /// # Safety
    /// A buffer type of this ggml's.
    pub(crate) unsafe fn of(ggml: &GgmlFunctions, buffer_type: GgmlBufferType) -> Self {
        // SAFETY: as promised; devices and registries live as long as ggml.
        unsafe {
            let is_host = ggml.ggml_backend_buft_is_host.is_some_and(|is_host| is_host(buffer_type));
            let pointer =
                ggml.ggml_backend_buft_get_device.map(|device| device(buffer_type)).filter(|it| !it.is_null());
            let kind = pointer.and_then(|device| Some(ggml.ggml_backend_dev_type?(device)));
            let registry = pointer
                .and_then(|device| Some(ggml.ggml_backend_dev_backend_reg?(device)))
                .filter(|registry: &*mut c_void| !registry.is_null())
                .and_then(|registry| text(ggml.ggml_backend_reg_name?(registry)));
            Self { pointer, is_host, kind, registry: registry.unwrap_or_default() }
        }
    }

    /// Returns whether the device is a processor.
    pub(crate) fn is_cpu(&self) -> bool {
        self.kind == Some(DEVICE_CPU)
    }

    /// Returns whether nodes are computed there by a CPU alone: host memory of a CPU, or of a discrete GPU. An integrated GPU
    /// computes in its host memory, and others may.
    fn is_plain_host(&self) -> bool {
        self.is_host && matches!(self.kind, Some(DEVICE_CPU | DEVICE_GPU))
    }
}

#[cfg(test)]
mod tests {
    use super::checks_before_fusing;

    #[test]
    fn backends_are_trusted_from_the_version_on_that_checks() {
        for (registry, version, trusted) in [
            ("CUDA", Some([0, 10, 0]), true),
            ("CUDA", Some([0, 9, 11]), false),
            ("ROCm", Some([1, 0, 0]), true),
            ("Vulkan", Some([0, 9, 8]), true),
            ("Vulkan", Some([0, 9, 7]), false),
            ("Metal", Some([0, 9, 4]), true),
            ("RPC", Some([0, 21, 0]), true),
            ("RPC[127.0.0.1:50052]", Some([0, 21, 0]), true),
            ("RPCs", Some([0, 21, 0]), false),
            ("CUDA", None, false),
            ("SYCL", Some([0, 21, 0]), false),
            ("", Some([0, 21, 0]), false),
        ] {
            assert_eq!(checks_before_fusing(registry, version, false), trusted, "{registry} {version:?}");
        }
        assert!(!checks_before_fusing("CUDA", Some([0, 21, 0]), true));
        assert!(checks_before_fusing("Vulkan", Some([0, 21, 0]), true));
    }
}
