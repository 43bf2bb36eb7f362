//! Laws of elements: types, lengths, and tensors with gaps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "every test uses some of it")]
mod graphs;
#[allow(dead_code, reason = "every test uses some of it")]
mod world;

use graphs::{context, graph, memory, tensor};
use half::{bf16, f16};
use steeve_device::{Bindings, Bytes, DeviceError, DiscreteDevice};
use steeve_graph::{Context, CustomOp, DataType, Graph, Id, Layout, Op, Tensor, TensorId, View};
use steeve_runtime::{AllocError, GraphAllocator};
use world::World;

#[test]
fn types_and_lengths_must_be_right() {
    let world = World::new("x = input f32[2]; q = input q8_0[64]; y = custom f32[2] x q !output");
    let (x, q) = (world.id("x"), world.id("q"));
    let allocation = &world.allocation;
    let message = |error: AllocError| error.to_string();
    assert_eq!(
        allocation.write(x, &[1i32, 2]).map_err(message),
        Err("tensor 0 (x): wrong element type: expected f32, got i32".into())
    );
    assert_eq!(
        allocation.write(x, &[1f32]).map_err(message),
        Err("tensor 0 (x): wrong length: expected 2 elements, got 1".into())
    );
    assert_eq!(
        allocation.write_bytes(x, &[0; 9]).map_err(message),
        Err("tensor 0 (x): wrong length: expected 8 bytes, got 9".into())
    );
    assert_eq!(
        allocation.write_bytes(q, &[0; 64]).map_err(message),
        Err("tensor 1 (q): wrong length: expected 68 bytes, got 64".into())
    );
    assert_eq!(
        allocation.write(q, &[0i8; 64]).map_err(message),
        Err("tensor 1 (q): wrong element type: expected q8_0, got i8".into())
    );
    assert!(matches!(allocation.write_raw_bytes(x, &[0; 7]), Err(AllocError::Length { .. })));
    allocation.write(x, &[1f32, 2.0]).unwrap();
    let mut three = [0f32; 3];
    assert!(matches!(allocation.read_into(x, &mut three), Err(AllocError::Length { wanted: 2, given: 3, .. })));
    assert!(matches!(allocation.read::<f64>(x), Err(AllocError::ElementType { .. })));
    allocation.read_into(x, &mut three[..2]).unwrap();
    assert_eq!(three, [1.0, 2.0, 0.0]);
}

#[test]
fn every_plain_type_is_read_as_it_was_written() {
    let text = "a = input f64[2]; b = input f16[2]; c = input bf16[2]; d = input i8[2]; e = input i16[2]
                f = input i32[2]; g = input i64[2]; y = custom f32[1] a b c d e f g !output";
    let world = World::new(text);
    macro_rules! check {
        ($name:literal, $data:expr) => {{
            let (id, data) = (world.id($name), $data);
            world.allocation.write(id, &data).unwrap();
            let mut back = data;
            back.reverse();
            world.allocation.read_into(id, &mut back).unwrap();
            assert_eq!(back, data);
            assert_eq!(world.allocation.read_bytes(id).unwrap(), bytemuck::cast_slice::<_, u8>(&data));
        }};
    }
    check!("a", [1.5f64, -2.5]);
    check!("b", [f16::from_f32(1.5), f16::from_f32(-2.5)]);
    check!("c", [bf16::from_f32(1.5), bf16::from_f32(-2.5)]);
    check!("d", [1i8, -2]);
    check!("e", [1i16, -2]);
    check!("f", [1i32, -2]);
    check!("g", [1i64, -2]);
}

#[test]
fn quantised_tensors_are_read_and_written_as_bytes() {
    let world = World::new("q = input q4_K[512,2]; y = custom f32[1] q !output");
    let data: Vec<u8> = (0..576u32).map(|byte| (byte * 7) as u8).collect();
    world.allocation.write_bytes(world.id("q"), &data).unwrap();
    assert_eq!(world.allocation.read_bytes(world.id("q")).unwrap(), data);
}

/// A table of four rows of three, written in full, and views of it.
const TABLE: &str = "
    t = input f32[3,4]
    column = view f32[1,4]{4,12,48,48}+4 t
    odd = view f32[3,2]{4,24,48,48}+12 t
    turned = transpose t
    low = view f32[3,2]+0 t
    all = reshape f32[12] t
    y = custom f32[1] column odd turned low all !output";

#[test]
fn views_with_gaps_are_read_in_the_order_of_their_elements() {
    let world = World::new(TABLE);
    let table: Vec<f32> = (0..12).map(|number| number as f32).collect();
    world.write("t", &table).unwrap();
    assert_eq!(world.read("column"), Ok(vec![1.0, 4.0, 7.0, 10.0]));
    assert_eq!(world.read("odd"), Ok(vec![3.0, 4.0, 5.0, 9.0, 10.0, 11.0]));
    assert_eq!(world.read("turned"), Ok(vec![0.0, 3.0, 6.0, 9.0, 1.0, 4.0, 7.0, 10.0, 2.0, 5.0, 8.0, 11.0]));
    assert_eq!(world.read("low"), Ok(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(world.read("all"), Ok(table));
    let bytes = world.allocation.read_bytes(world.id("column")).unwrap();
    assert_eq!(bytes, bytemuck::cast_slice::<f32, u8>(&[1.0, 4.0, 7.0, 10.0]));
}

#[test]
fn writing_a_view_keeps_the_bytes_in_its_gaps() {
    let world = World::new(TABLE);
    world.write("t", &[0.0; 12]).unwrap();
    world.write("column", &[1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(world.read("t"), Ok(vec![0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 4.0, 0.0]));
    world.write("odd", &[9.0; 6]).unwrap();
    assert_eq!(world.read("t"), Ok(vec![0.0, 1.0, 0.0, 9.0, 9.0, 9.0, 0.0, 3.0, 0.0, 9.0, 9.0, 9.0]));
    let twelve: Vec<f32> = (0..12).map(|number| number as f32).collect();
    world.write("turned", &twelve).unwrap();
    assert_eq!(world.read("turned"), Ok(twelve));
    assert_eq!(world.read("column"), Ok(vec![4.0, 5.0, 6.0, 7.0]));
}

#[test]
fn a_part_of_an_input_is_not_the_whole_of_it() {
    let world = World::new(TABLE);
    let error = "tensor 1 (column): part of tensor 0 (t), which is not written yet: write all of it first";
    assert_eq!(world.write("column", &[0.0; 4]), Err(error.into()));
    assert!(world.write("low", &[0.0; 6]).is_err());
    assert_eq!(world.read("column"), Err("tensor 1 (column): not written yet".into()));
    // A view that is all of it will do.
    world.write("all", &[5.0; 12]).unwrap();
    assert_eq!(world.read("t"), Ok(vec![5.0; 12]));
    world.run().unwrap();
}

#[test]
fn rows_of_quantised_views_are_whole_blocks() {
    let text = "q = input q8_0[64,3]; v = view q8_0[32,3]{34,68,204,204}+34 q; y = custom f32[1] v !output";
    let world = World::new(text);
    let data: Vec<u8> = (0..204).collect();
    world.allocation.write_bytes(world.id("q"), &data).unwrap();
    let part = world.allocation.read_bytes(world.id("v")).unwrap();
    let expected: Vec<u8> = (34..68).chain(102..136).chain(170..204).collect();
    assert_eq!(part, expected);
    world.allocation.write_bytes(world.id("v"), &[255; 102]).unwrap();
    let all = world.allocation.read_bytes(world.id("q")).unwrap();
    assert_eq!((&all[..34], &all[34..68], &all[68..102]), (&data[..34], &[255; 34][..], &data[68..102]));
}

#[test]
fn empty_tensors_are_read_and_written_and_need_not_be() {
    let world = World::new("x = input f32[0]; e = input f32[3,0,2]; z = input f32[2]; y = custom f32[2] x e z !output");
    world.write("z", &[1.0, 2.0]).unwrap();
    world.run().unwrap();
    world.write("x", &[]).unwrap();
    assert_eq!(world.read("x"), Ok(vec![]));
    world.write("e", &[]).unwrap();
    assert_eq!(world.read("e"), Ok(vec![]));
}

#[test]
fn strides_that_leave_the_tensor_are_an_error_and_no_panic() {
    // One block of 34 bytes with a stride of none, which says that it spans no byte at all.
    let odd = Layout::new(DataType::Q8_0, [32, 3, 1, 1], [0, 0, 0, 0]).unwrap();
    assert_eq!(odd.nbytes(), Bytes(0));
    let mut context = Context::new();
    let root = context.input(DataType::I8, &[16]).unwrap();
    let view = Tensor { op: Op::View, view: Some(View { root, offset: Bytes(8) }), ..Tensor::new(odd) };
    let view = context.add_tensor(view, &[Some(root)], &[]).unwrap();
    let y = context
        .custom_shaped(&CustomOp::new("F"), Layout::contiguous(DataType::F32, &[2]).unwrap(), &[view], &[])
        .unwrap();
    let world = World::with(Graph::from_outputs(&context, &[y]).unwrap(), &Bindings::new());
    world.allocation.write(root, &[1i8; 16]).unwrap();
    assert!(matches!(world.allocation.read_bytes(view), Err(AllocError::Length { .. })));
    assert!(matches!(world.allocation.write_bytes(view, &[0; 102]), Err(AllocError::Length { .. })));
    assert_eq!(world.allocation.read::<i8>(root).unwrap(), [1; 16]);
}

#[test]
fn more_elements_than_this_process_can_hold_are_an_error_and_no_panic() {
    // One element, said to be there 2^60 times.
    let many = Layout::new(DataType::F32, [1 << 60, 1, 1, 1], [0, 4, 4, 4]).unwrap();
    let mut context = Context::new();
    let root = context.input(DataType::F32, &[1]).unwrap();
    let view = Tensor { op: Op::View, view: Some(View { root, offset: Bytes(0) }), ..Tensor::new(many) };
    let view = context.add_tensor(view, &[Some(root)], &[]).unwrap();
    let y = context
        .custom_shaped(&CustomOp::new("F"), Layout::contiguous(DataType::F32, &[2]).unwrap(), &[view], &[])
        .unwrap();
    let world = World::with(Graph::from_outputs(&context, &[y]).unwrap(), &Bindings::new());
    world.allocation.write(root, &[1.0f32]).unwrap();
    let no_room = |error| matches!(error, AllocError::Device(DeviceError::OutOfMemory { .. }));
    assert!(world.allocation.read::<f32>(view).is_err_and(no_room));
    assert!(world.allocation.raw_bytes(view).is_err_and(no_room));
}

#[test]
fn padding_belongs_to_the_tensor_that_has_it() {
    let spec = graphs::spec(16).with_padding(steeve_graph::Align::new(64).unwrap());
    let graph = graph("x = input f32[3]; y = custom f32[20] x !output");
    let mut allocator = GraphAllocator::new(&memory(&DiscreteDevice::new(spec)));
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    assert_eq!(allocation.address(tensor(&graph, "x")).unwrap().size, Bytes(64));
    assert_eq!(allocation.address(tensor(&graph, "y")).unwrap().size, Bytes(128));
    assert_eq!(allocator.buffer_size(0), Ok(Bytes(192)));
}

#[test]
fn a_view_that_only_the_table_has_is_read_through_its_root() {
    let mut context = context("x = input f32[4]; y = neg x !output");
    let x = TensorId::from_index(0).unwrap();
    let half = context.view_1d(x, 2, Bytes(8)).unwrap();
    let graph = Graph::from_outputs(&context, &[TensorId::from_index(1).unwrap()]).unwrap();
    let world = World::with(graph, &Bindings::new());
    world.write("x", &[1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(world.allocation.read::<f32>(half).unwrap(), [3.0, 4.0]);
}
