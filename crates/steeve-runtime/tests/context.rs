//! Laws of memory for all tensors of a context.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use graphs::{context, device, memory, spec, tensor};
use proptest::prelude::*;
use steeve_device::{
    Backend, Bindings, BufferType, Bytes, DeviceError, DiscreteDevice, Locate, NullDevice, Offset, Prepared,
    SharedBuffer, Usage,
};
use steeve_graph::{Align, Context, DataType, ErrorChain, Graph, Id, TensorId};
use steeve_runtime::{
    AllocError, GraphAllocator, allocate_context, allocate_context_on, allocate_rest_of_context, context_size,
};

fn id(index: usize) -> TensorId {
    TensorId::from_index(index).unwrap()
}

/// "index@buffer:offset" for each tensor, buffers numbered as they come.
fn places(bindings: &Bindings) -> String {
    let buffers = bindings.buffers();
    let number = |buffer: &SharedBuffer| buffers.iter().position(|other| other.is_same(buffer)).unwrap();
    let place = |(tensor, address): (TensorId, steeve_device::Address<'_>)| {
        format!("{tensor}@{}:{}", number(address.buffer), address.offset)
    };
    bindings.iter().map(place).collect::<Vec<_>>().join(" ")
}

#[test]
fn all_tensors_stand_in_one_buffer_where_it_may_be_as_large() {
    let mut context = context("a = leaf f32[10]; b = external f32[1]; c = input f16[64]; d = sqr a");
    let device = device(32);
    assert_eq!(context_size(&context, &memory(&device)), Ok(Bytes(64 + 32 + 128 + 64)));
    assert_eq!(device.ledger().asked(), 0);
    let bindings = allocate_context(&mut context, &memory(&device)).unwrap();
    assert_eq!(places(&bindings), "0@0:0 1@0:64 2@0:96 3@0:224");
    assert_eq!((device.ledger().live(), device.ledger().buffers()), (Bytes(288), 1));
    assert!(context.tensors().iter().all(|tensor| tensor.external));
}

#[test]
fn a_buffer_is_closed_where_the_next_tensor_would_pass_the_largest_size() {
    let text = "a = leaf i8[30]; b = leaf i8[40]; c = leaf i8[60]; d = leaf i8[64]; e = leaf i8[1]";
    let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(100)));
    let mut context = context(text);
    assert_eq!(context_size(&context, &memory(&device)), Ok(Bytes(32 + 40 + 64 + 64 + 8)));
    let bindings = allocate_context(&mut context, &memory(&device)).unwrap();
    assert_eq!(places(&bindings), "0@0:0 1@0:32 2@1:0 3@2:0 4@2:64");
    assert_eq!((device.ledger().live(), device.ledger().buffers()), (Bytes(208), 3));
}

#[test]
fn more_than_sixteen_buffers_are_no_problem() {
    let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(64)));
    let mut context = Context::new();
    let all: Vec<TensorId> = (0..40).map(|_| context.new_tensor(DataType::F32, &[16]).unwrap()).collect();
    let bindings = allocate_context(&mut context, &memory(&device)).unwrap();
    assert_eq!((bindings.buffers().len(), device.ledger().buffers()), (40, 40));
    assert!(all.iter().all(|tensor| bindings.get(*tensor).is_some()));
}

#[test]
fn a_tensor_above_the_largest_size_is_asked_for_alone_and_refused_by_the_device() {
    let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(64)));
    let mut context = context("a = leaf i8[8]; big = leaf i8[100]; c = leaf i8[8]");
    let error = allocate_context(&mut context, &memory(&device)).unwrap_err();
    assert_eq!(
        ErrorChain(&error).to_string(),
        "1 tensor of a context: allocation failed: requested 104 bytes: gpu: buffer too large: expected at most 64 bytes, got 104"
    );
    assert_eq!(device.ledger().live(), Bytes(0));
}

#[test]
fn views_stand_where_their_roots_do() {
    let mut context = Context::new();
    let view_first = context.new_tensor(DataType::F32, &[4, 4]).unwrap();
    let row = context.view_1d(view_first, 4, Bytes(32)).unwrap();
    let root = context.external(DataType::F32, &[8]).unwrap();
    let part = context.view_1d(root, 2, Bytes(8)).unwrap();
    let of_part = context.view_1d(part, 1, Bytes(4)).unwrap();
    let bindings = allocate_context(&mut context, &memory(&device(1))).unwrap();
    for (view, root, offset) in [(row, view_first, 32), (part, root, 8), (of_part, root, 12)] {
        let (view, root) = (bindings.get(view).unwrap(), bindings.get(root).unwrap());
        assert!(view.buffer.is_same(root.buffer));
        assert_eq!(view.offset.0 - root.offset.0, offset);
    }
}

#[test]
fn buffers_see_roots_and_views() {
    let mut context = Context::new();
    let root = context.new_tensor(DataType::F32, &[8]).unwrap();
    let part = context.view_1d(root, 2, Bytes(8)).unwrap();
    let other = context.new_tensor(DataType::F32, &[8]).unwrap();
    let device = device(32).with_init_hook();
    allocate_context(&mut context, &memory(&device)).unwrap();
    assert_eq!(device.seen(), [(root, Offset(0)), (other, Offset(32)), (part, Offset(8))]);
}

#[test]
fn placed_tensors_are_left_alone() {
    let mut context = context("a = leaf f32[8]; b = leaf f32[8]; c = leaf f32[8]");
    let view = context.view_1d(id(1), 2, Bytes(4)).unwrap();
    let (first, second) = (device(32), device(32));
    let mine = SharedBuffer::allocate(&memory(&first), Bytes(128), Usage::Weights).unwrap();
    let mut placed = Bindings::new();
    placed.bind(id(1), &mine, Offset(64), Bytes(32)).unwrap();
    let bindings = allocate_rest_of_context(&mut context, &memory(&second), &placed).unwrap();
    assert_eq!(second.ledger().live(), Bytes(64));
    let there = bindings.get(id(1)).unwrap();
    assert!(there.buffer.is_same(&mine) && there.offset == Offset(64));
    let view = bindings.get(view).unwrap();
    assert!(view.buffer.is_same(&mine) && view.offset == Offset(68));
    // Once more: all are placed.
    let asked = second.ledger().asked();
    let again = allocate_rest_of_context(&mut context, &memory(&second), &bindings).unwrap();
    assert_eq!((places(&again), second.ledger().asked()), (places(&bindings), asked));
}

#[test]
fn a_view_that_is_placed_elsewhere_stays_there() {
    let mut context = context("a = leaf f32[8]");
    let view = context.view_1d(id(0), 2, Bytes(4)).unwrap();
    let device = device(32);
    let mine = SharedBuffer::allocate(&memory(&device), Bytes(8), Usage::Any).unwrap();
    let mut placed = Bindings::new();
    placed.bind(view, &mine, Offset(0), Bytes(8)).unwrap();
    let bindings = allocate_rest_of_context(&mut context, &memory(&device), &placed).unwrap();
    assert!(bindings.get(view).unwrap().buffer.is_same(&mine));
    assert!(!bindings.get(id(0)).unwrap().buffer.is_same(&mine));
}

#[test]
fn a_view_beyond_what_its_root_was_given_is_an_error() {
    let mut context = context("a = leaf f32[8]");
    context.view_1d(id(0), 4, Bytes(16)).unwrap();
    let device = device(32);
    let mine = SharedBuffer::allocate(&memory(&device), Bytes(64), Usage::Any).unwrap();
    let mut placed = Bindings::new();
    placed.bind(id(0), &mine, Offset(0), Bytes(16)).unwrap();
    let error = allocate_rest_of_context(&mut context, &memory(&device), &placed).unwrap_err();
    assert_eq!(error.to_string(), "tensor 0 (a): bound to too little memory: expected at least 32 bytes, got 16");
}

#[test]
fn nothing_to_do_is_no_error() {
    let device = device(32);
    let mut context = Context::new();
    assert_eq!(context_size(&context, &memory(&device)), Ok(Bytes(0)));
    assert!(allocate_context(&mut context, &memory(&device)).unwrap().is_empty());
    assert_eq!(device.ledger().asked(), 0);
}

#[test]
fn tensors_of_no_bytes_have_a_place_all_the_same() {
    let device = device(32);
    let mut context = context("a = leaf f32[0]; b = leaf f32[4,0]");
    let bindings = allocate_context(&mut context, &memory(&device)).unwrap();
    assert_eq!(places(&bindings), "0@0:0 1@0:0");
    assert_eq!(device.ledger().live(), Bytes(0));
}

#[test]
fn a_failure_at_any_buffer_frees_what_it_made_and_changes_nothing() {
    let text = "a = leaf i8[60]; b = leaf i8[60]; c = leaf i8[60]; d = leaf i8[60]";
    for fail in 0..4 {
        let device = DiscreteDevice::new(spec(8).with_max_size(Bytes(64)));
        let mut context = context(text);
        device.faults().fail_after(fail);
        let error = allocate_context(&mut context, &memory(&device)).unwrap_err();
        assert!(matches!(&error, AllocError::Buffer { size: Bytes(64), .. }), "{error}");
        assert_eq!((device.ledger().live(), device.ledger().buffers()), (Bytes(0), 0));
        assert!(context.tensors().iter().all(|tensor| !tensor.external));
        assert!(allocate_context(&mut context, &memory(&device)).is_ok());
    }
}

#[test]
fn sizes_beyond_the_address_space_are_an_error() {
    let mut context = Context::new();
    context.new_tensor(DataType::I8, &[1 << 63]).unwrap();
    let second = context.new_tensor(DataType::I8, &[1 << 63]).unwrap();
    context.set_name(second, "second").unwrap();
    let memory = memory(&NullDevice::new(spec(8)));
    let error = context_size(&context, &memory).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tensor 1 (second): passes the end of the address space: needs 9223372036854775808 bytes"
    );
    assert!(allocate_context(&mut context, &memory).is_err());
}

#[test]
fn a_graph_uses_such_tensors_where_they_stand() {
    let mut context = context("w = leaf f32[8,8]; bias = leaf f32[8]");
    let (w, bias) = (id(0), id(1));
    let device = device(32);
    let bindings = allocate_context(&mut context, &memory(&device)).unwrap();
    let x = context.input(DataType::F32, &[8]).unwrap();
    let y = context.mul_mat(w, x).unwrap();
    let z = context.add(y, bias).unwrap();
    context.set_output(z).unwrap();
    let graph = Graph::from_outputs(&context, &[z]).unwrap();
    let mut allocator = GraphAllocator::new(&memory(&device));
    let allocation = allocator.alloc(&graph, &bindings).unwrap();
    for weight in [w, bias] {
        let (there, bound) = (allocation.address(weight).unwrap(), bindings.get(weight).unwrap());
        assert!(there.buffer.is_same(bound.buffer) && there.offset == bound.offset);
    }
    allocation.write(bias, &[2.0f32; 8]).unwrap();
    assert_eq!(allocation.read::<f32>(bias).unwrap(), [2.0; 8]);
    assert_eq!(tensor(&graph, "bias"), bias);
}

#[test]
fn a_backend_says_which_memory() {
    let device = device(64);
    let mut context = context("a = leaf f32[10]");
    let bindings = allocate_context_on(&mut context, &Idle(memory(&device))).unwrap();
    assert_eq!(device.ledger().live(), Bytes(64));
    assert!(bindings.get(id(0)).is_some());
}

/// A backend that has memory and computes nothing.
#[derive(Debug)]
struct Idle(Arc<dyn BufferType>);

impl Backend for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn buffer_type(&self) -> Arc<dyn BufferType> {
        Arc::clone(&self.0)
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        Err(DeviceError::unsupported("idle", graph, node, "it computes nothing"))
    }

    fn prepare(&self, graph: &Graph, nodes: Range<usize>, _: &dyn Locate) -> Result<Box<dyn Prepared>, DeviceError> {
        self.supports(graph, graph.nodes()[nodes.start])?;
        Ok(Box::new(Nothing))
    }

    fn submit(&self, _: &mut dyn Prepared) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[derive(Debug)]
struct Nothing;

impl Prepared for Nothing {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

proptest! {
    #[test]
    fn no_two_roots_share_a_byte_no_buffer_is_too_large_and_the_size_is_as_told(
        sizes in prop::collection::vec(0u64..120, 1..60), align in 0u32..7, padding in 0u32..7, max in 128u64..400,
    ) {
        let spec = spec(1 << align).with_max_size(Bytes(max)).with_padding(Align::new(1 << padding).unwrap());
        let device = DiscreteDevice::new(spec);
        let mut context = Context::new();
        for size in &sizes {
            context.new_tensor(DataType::I8, &[*size]).unwrap();
        }
        let told = context_size(&context, &memory(&device)).unwrap();
        let bindings = allocate_context(&mut context, &memory(&device)).unwrap();
        prop_assert_eq!(device.ledger().live(), told);
        let mut spans = Vec::new();
        for (tensor, address) in bindings.iter() {
            prop_assert!(address.size.0 >= sizes[tensor.index()]);
            prop_assert!(address.offset.0 % (1 << align) == 0);
            prop_assert!(address.offset.0 + address.size.0 <= address.buffer.size().0);
            spans.push((address.number(), address.number() + address.size.0));
        }
        prop_assert_eq!(spans.len(), sizes.len());
        spans.retain(|(start, end)| start < end);
        spans.sort_unstable();
        prop_assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
}
