//! Laws of the linear allocator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use std::sync::Arc;

use graphs::{context, device, memory, spec};
use proptest::prelude::*;
use steeve_device::{
    Bindings, BufferType, Bytes, DeviceError, DiscreteDevice, HostBuffer, HostMemory, Offset, SharedBuffer, Usage,
};
use steeve_graph::{Align, Context, DataType, GraphError, Id, TensorId};
use steeve_runtime::{AllocError, TensorAllocator};

fn buffer(device: &DiscreteDevice, size: u64) -> SharedBuffer {
    SharedBuffer::allocate(&memory(device), Bytes(size), Usage::Any).unwrap()
}

fn id(index: usize) -> TensorId {
    TensorId::from_index(index).unwrap()
}

#[test]
fn tensors_stand_one_behind_another_at_aligned_offsets() {
    let context = context("a = leaf f32[10]; b = leaf i8[1]; c = leaf f32[16]");
    let buffer = buffer(&device(64), 256);
    let mut allocator = TensorAllocator::new(&buffer);
    assert_eq!((allocator.offset(), allocator.remaining()), (Offset(0), Bytes(256)));
    for (index, (offset, left)) in [(0, 192), (64, 128), (128, 64)].into_iter().enumerate() {
        let address = allocator.alloc(&context, id(index)).unwrap();
        assert_eq!((address.offset, address.number() % 64), (Offset(offset), 0));
        assert!(address.buffer.is_same(&buffer));
        assert_eq!(allocator.remaining(), Bytes(left));
    }
    assert_eq!(allocator.offset(), Offset(192));
}

#[test]
fn the_first_tensor_stands_at_the_first_aligned_address() {
    let context = context("a = leaf i8[64]");
    // The caller's memory starts where it likes.
    let bytes = vec![0; 256];
    let start = bytes.as_ptr() as u64;
    let wide: Arc<dyn BufferType> = Arc::new(HostMemory::new().with_align(Align::new(128).unwrap()));
    let buffer = SharedBuffer::new(wide, Box::new(HostBuffer::owned("mine", bytes)), Usage::Any);
    let mut allocator = TensorAllocator::new(&buffer);
    let gap = start.wrapping_neg() % 128;
    assert_eq!((allocator.offset(), allocator.remaining()), (Offset(gap), Bytes(256 - gap)));
    assert_eq!(allocator.alloc(&context, id(0)).unwrap().number() % 128, 0);
}

#[test]
fn a_buffer_that_ends_before_its_first_aligned_address_is_full() {
    let context = context("a = leaf i8[1]");
    // Of two neighbouring bytes at most one is aligned.
    let bytes: Arc<[u8]> = vec![0; 3].into();
    let wide: Arc<dyn BufferType> = Arc::new(HostMemory::new().with_align(Align::new(1 << 20).unwrap()));
    let buffer = SharedBuffer::new(wide, Box::new(HostBuffer::read_only("three", bytes)), Usage::Any);
    let mut allocator = TensorAllocator::new(&buffer);
    assert_eq!(allocator.remaining(), Bytes(0));
    assert!(matches!(allocator.alloc(&context, id(0)), Err(AllocError::Full { left: Bytes(0), .. })));
}

#[test]
fn a_full_buffer_is_an_error_with_tensor_needed_and_left_and_changes_nothing() {
    let context = context("a = leaf f32[10]; big = leaf f32[100]; c = leaf f32[2]");
    let buffer = buffer(&device(32), 128);
    let mut allocator = TensorAllocator::new(&buffer);
    allocator.alloc(&context, id(0)).unwrap();
    let error = allocator.alloc(&context, id(1)).unwrap_err();
    assert_eq!(error.to_string(), "tensor 1 (big): does not fit into the buffer: needs 416 bytes, 64 left");
    assert_eq!((allocator.offset(), allocator.remaining()), (Offset(64), Bytes(64)));
    // Smaller ones still fit.
    assert_eq!(allocator.alloc(&context, id(2)).unwrap().offset, Offset(64));
    let mut bindings = Bindings::new();
    assert!(allocator.bind(&context, id(1), &mut bindings).is_err());
    assert!(bindings.is_empty());
}

#[test]
fn padding_counts() {
    let context = context("a = leaf f32[1]; b = leaf f32[1]");
    let device = DiscreteDevice::new(spec(16).with_padding(Align::new(256).unwrap()));
    let buffer = buffer(&device, 300);
    let mut allocator = TensorAllocator::new(&buffer);
    assert_eq!(allocator.alloc(&context, id(0)).unwrap().size, Bytes(256));
    let error = allocator.alloc(&context, id(1)).unwrap_err();
    assert!(matches!(error, AllocError::Full { needed: Bytes(256), left: Bytes(44), .. }));
}

#[test]
fn views_and_unknown_tensors_are_refused() {
    let mut context = Context::new();
    let root = context.new_tensor(DataType::F32, &[8]).unwrap();
    let view = context.view_1d(root, 4, Bytes(16)).unwrap();
    let buffer = buffer(&device(1), 64);
    let mut allocator = TensorAllocator::new(&buffer);
    let error = allocator.alloc(&context, view).unwrap_err();
    assert_eq!(error.to_string(), "tensor 1: view without memory of its own: allocate tensor 0 instead");
    assert!(matches!(allocator.alloc(&context, id(7)), Err(AllocError::Graph(GraphError::Unknown { .. }))));
    assert_eq!(allocator.offset(), Offset(0));
}

#[test]
fn a_tensor_of_no_bytes_gets_an_address_and_takes_nothing() {
    let context = context("a = leaf f32[0]; b = leaf f32[4]");
    let buffer = buffer(&device(16), 16);
    let mut allocator = TensorAllocator::new(&buffer);
    assert_eq!(allocator.alloc(&context, id(0)).unwrap().offset, Offset(0));
    assert_eq!(allocator.alloc(&context, id(1)).unwrap().offset, Offset(0));
    // Even at the very end.
    assert_eq!(allocator.alloc(&context, id(0)).unwrap().offset, Offset(16));
    assert_eq!(allocator.remaining(), Bytes(0));
}

#[test]
fn the_buffer_sees_each_tensor_that_is_placed_in_it() {
    let context = context("a = leaf f32[3]; big = leaf f32[99]; c = leaf f32[3]");
    let device = device(32).with_init_hook();
    let buffer = buffer(&device, 64);
    let mut allocator = TensorAllocator::new(&buffer);
    allocator.alloc(&context, id(0)).unwrap();
    allocator.alloc(&context, id(1)).unwrap_err();
    allocator.alloc(&context, id(2)).unwrap();
    assert_eq!(device.seen(), [(id(0), Offset(0)), (id(2), Offset(32))]);
}

#[test]
fn memory_that_is_in_use_or_given_back_is_an_error_that_changes_nothing() {
    let context = context("a = leaf f32[3]");
    let buffer = buffer(&device(32), 64);
    let mut allocator = TensorAllocator::new(&buffer);
    let running = buffer.borrow_mut().unwrap();
    let error = allocator.alloc(&context, id(0)).unwrap_err();
    assert!(matches!(error, AllocError::Device(DeviceError::InUse { .. })));
    drop(running);
    assert_eq!(allocator.offset(), Offset(0));
    buffer.release().unwrap();
    let error = allocator.alloc(&context, id(0)).unwrap_err();
    assert!(matches!(error, AllocError::Device(DeviceError::Released { .. })));
}

#[test]
fn a_size_near_the_end_of_the_address_space_is_full_and_no_overflow() {
    let mut context = Context::new();
    let huge = context.new_tensor(DataType::I8, &[u64::MAX]).unwrap();
    let buffer = buffer(&device(64), 64);
    let error = TensorAllocator::new(&buffer).alloc(&context, huge).unwrap_err();
    assert!(matches!(error, AllocError::Full { needed: Bytes(u64::MAX), left: Bytes(64), .. }));
}

proptest! {
    #[test]
    fn no_two_tensors_share_a_byte_and_none_passes_the_end(
        sizes in prop::collection::vec(0u64..200, 1..40), room in 0u64..3000, align in 0u32..8,
    ) {
        let mut context = Context::new();
        let ids: Vec<TensorId> =
            sizes.iter().map(|size| context.new_tensor(DataType::I8, &[*size]).unwrap()).collect();
        let device = device(1 << align);
        let buffer = buffer(&device, room);
        let mut allocator = TensorAllocator::new(&buffer);
        let mut end = 0;
        for tensor in ids {
            let before = (allocator.offset(), allocator.remaining());
            match allocator.alloc(&context, tensor) {
                Ok(address) => {
                    prop_assert!(address.offset.0 >= end && address.offset.0 % (1 << align) == 0);
                    end = address.offset.0 + address.size.0;
                    prop_assert!(end <= room);
                }
                Err(AllocError::Full { needed, left, .. }) => {
                    prop_assert!(needed > left && left == before.1);
                    prop_assert_eq!((allocator.offset(), allocator.remaining()), before);
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
