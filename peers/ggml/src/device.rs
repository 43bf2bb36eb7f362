//! Devices that run every operation and compute nothing: what `NullDevice::as_if_it_computed` is on our side.

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::ptr;

use llama_cpp_sys_2::{
    GGML_BACKEND_DEVICE_TYPE_CPU, GGML_BACKEND_DEVICE_TYPE_GPU, ggml_backend_buffer_type_t, ggml_backend_dev_t,
    ggml_backend_dev_type, ggml_backend_t, ggml_tensor,
};

use crate::abi::{Backend, Device};
use crate::memory::FakeMemory;

/// What ggml takes a device for. The last one of a scheduler must be the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gpu,
    Processor,
}

/// A device that reads one memory only, and a stream of work on it.
pub(crate) struct FakeDevice {
    // The backend points to the device, so neither may move.
    backend: Box<UnsafeCell<Backend>>,
    _device: Box<UnsafeCell<Device>>,
}

impl FakeDevice {
    /// The memory must live as long as the device is asked about it.
    pub(crate) fn new(kind: Kind, memory: &FakeMemory) -> Self {
        let device = Box::new(UnsafeCell::new(Device {
            about: [None; 3],
            get_type: match kind {
                Kind::Gpu => gpu,
                Kind::Processor => processor,
            },
            makers: [None; 5],
            supports_op,
            supports_buft,
            offload_op: None,
            events: [None; 3],
            reg: ptr::null_mut(),
            context: memory.as_ptr().cast(),
        }));
        let backend = Backend {
            guid: ptr::null_mut(),
            get_name: name,
            others: [None; 15],
            device: device.get().cast(),
            context: ptr::null_mut(),
        };
        Self { backend: Box::new(UnsafeCell::new(backend)), _device: device }
    }

    /// The stream of work, as long as `self` lives.
    pub(crate) fn as_ptr(&self) -> ggml_backend_t {
        self.backend.get().cast()
    }
}

extern "C" fn name(_: ggml_backend_t) -> *const c_char {
    c"fake".as_ptr()
}

extern "C" fn gpu(_: ggml_backend_dev_t) -> ggml_backend_dev_type {
    GGML_BACKEND_DEVICE_TYPE_GPU
}

extern "C" fn processor(_: ggml_backend_dev_t) -> ggml_backend_dev_type {
    GGML_BACKEND_DEVICE_TYPE_CPU
}

extern "C" fn supports_op(_: ggml_backend_dev_t, _: *const ggml_tensor) -> bool {
    true
}

unsafe extern "C" fn supports_buft(device: ggml_backend_dev_t, buffer_type: ggml_backend_buffer_type_t) -> bool {
    // SAFETY: only `FakeDevice` hands out this function, so what it is called with is the `Device` of one.
    let own = unsafe { (*device.cast::<Device>()).context };
    own == buffer_type.cast()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use llama_cpp_sys_2::{
        ggml_backend_dev_type, ggml_backend_get_device, ggml_backend_name, ggml_backend_offload_op,
        ggml_backend_supports_buft, ggml_backend_supports_op,
    };
    use steeve_graph::{Align, Memory};

    use super::*;
    use crate::memory::Sizes;

    #[test]
    fn the_layouts_are_ggmls() {
        let [own, other] =
            ["own", "other"].map(|name| FakeMemory::new(&Memory::new(name, Align::ONE), 0, Sizes::Spans));
        let device = FakeDevice::new(Kind::Processor, &own);
        // SAFETY: the device and the memories live to the end of the test, and nobody looks at the tensor.
        unsafe {
            let backend = device.as_ptr();
            assert_eq!(CStr::from_ptr(ggml_backend_name(backend)), c"fake");
            assert_eq!(ggml_backend_dev_type(ggml_backend_get_device(backend)), GGML_BACKEND_DEVICE_TYPE_CPU);
            assert!(ggml_backend_supports_op(backend, ptr::null()));
            assert!(!ggml_backend_offload_op(backend, ptr::null()));
            assert!(ggml_backend_supports_buft(backend, own.as_ptr()));
            assert!(!ggml_backend_supports_buft(backend, other.as_ptr()));
        }
    }
}
