//! Memory of each GPU there is grows in place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;

use gpu::{alone, assert_captured, devices};
use steeve_cuda::{Capture, CudaDevice};
use steeve_device::{Backend, Bindings, Bytes, Device, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Graph, TensorId};
use steeve_runtime::{Allocation, GraphAllocator};

const MIB: u64 = 1 << 20;

/// GPUs whose backends capture what they prepare.
fn capturing() -> impl Iterator<Item = CudaDevice> {
    devices().into_iter().map(|device| device.with_capture(Capture::AtOnce))
}

fn bytes_of(count: u64, number: impl Fn(u64) -> f32) -> Vec<u8> {
    (0..count).flat_map(|i| number(i).to_le_bytes()).collect()
}

fn read(backend: &dyn Backend, buffer: &SharedBuffer, offset: u64, size: u64) -> Vec<u8> {
    let mut seen = vec![0; size as usize];
    backend.read(buffer, Offset(offset), &mut seen).unwrap();
    seen
}

#[test]
fn a_buffer_keeps_its_address_and_bytes_and_what_was_captured_in_it() {
    let _alone = alone();
    for device in capturing() {
        let backend = device.backend().unwrap();
        let buffer = SharedBuffer::allocate(&backend.buffer_type(), Bytes(4 * MIB), Usage::Any).unwrap();
        let address = buffer.address();
        // A mebibyte each.
        let mut context = Context::new();
        let count = MIB / 4;
        let x = context.external(DataType::F32, &[count]).unwrap();
        let y = context.scale_bias(x, 2.0, 1.0).unwrap();
        let z = context.add(y, x).unwrap();
        let graph = Graph::from_outputs(&context, &[z]).unwrap();
        let mut bindings = Bindings::new();
        for (place, id) in (0..).zip([x, y, z]) {
            bindings.bind(id, &buffer, Offset(place * MIB), Bytes(MIB)).unwrap();
        }
        let mut prepared = backend.prepare(&graph, 0..2, &bindings).unwrap();
        let mut run = |first: u64| {
            let number = |i: u64| ((first + i) % 1000) as f32;
            backend.write(&buffer, Offset(0), &bytes_of(count, number)).unwrap();
            backend.submit(&mut *prepared).unwrap();
            let made = read(&*backend, &buffer, 2 * MIB, MIB);
            assert!(made == bytes_of(count, |i| 3.0 * number(i) + 1.0), "with {first} at the start");
        };
        let end = bytes_of(count, |i| i as f32);
        buffer.write(Offset(3 * MIB), &end).unwrap();
        run(1);
        let before = read(&*backend, &buffer, 0, 4 * MIB);
        assert!(buffer.grow(Bytes(40 * MIB)).unwrap(), "{} can't grow where it stands", device.name());
        assert_eq!(buffer.address(), address);
        assert!(buffer.size() >= Bytes(40 * MIB), "{}", buffer.size());
        assert!(read(&*backend, &buffer, 0, 4 * MIB) == before);
        // The new bytes are bytes like the others, also across the seam.
        for place in [3 * MIB + MIB / 2, 39 * MIB] {
            backend.write(&buffer, Offset(place), &end).unwrap();
            assert!(read(&*backend, &buffer, place, MIB) == end, "at {place}");
        }
        run(2);
        let launches = device.launches();
        assert_eq!((launches.captured, launches.whole, launches.apart), (1, 2, 0), "{launches:?}");
    }
}

/// A chain of matrices of so many mebibytes.
struct Chain {
    graph: Graph,
    input: TensorId,
    output: TensorId,
}

impl Chain {
    fn new(size: u64) -> Self {
        let mut context = Context::new();
        let input = context.input(DataType::F32, &[1024, size * MIB / 4096]).unwrap();
        let doubled = context.scale_bias(input, 2.0, 0.0).unwrap();
        let turned = context.transpose(doubled).unwrap();
        let turned = context.cont(turned).unwrap();
        let output = context.scale_bias(turned, 1.0, 1.0).unwrap();
        context.set_output(output).unwrap();
        Self { graph: Graph::from_outputs(&context, &[output]).unwrap(), input, output }
    }

    /// The buffer that all of it is in.
    fn buffer<'a>(&self, allocation: &'a Allocation) -> &'a SharedBuffer {
        allocation.address(self.input).unwrap().buffer
    }

    fn prove(&self, backend: &dyn Backend, allocation: &Allocation) {
        let [_, rows, ..] = self.graph.tensor(self.input).layout.ne();
        let number = |column: u64, row: u64| ((7 * column + row) % 1000) as f32;
        allocation.write_bytes(self.input, &bytes_of(1024 * rows, |i| number(i % 1024, i / 1024))).unwrap();
        allocation.compute(backend).unwrap();
        let wanted = bytes_of(1024 * rows, |i| 2.0 * number(i / rows, i % rows) + 1.0);
        assert!(allocation.read_bytes(self.output).unwrap() == wanted, "{rows} rows");
    }
}

#[test]
fn a_larger_graph_stands_where_the_smaller_one_did() {
    let _alone = alone();
    for device in capturing() {
        let backend = device.backend().unwrap();
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let (small, large) = (Chain::new(4), Chain::new(20));
        let allocation = allocator.alloc(&small.graph, &Bindings::new()).unwrap();
        small.prove(&*backend, &allocation);
        let (buffer, size) = (small.buffer(&allocation).clone(), allocator.buffer_size(0).unwrap());
        let address = buffer.address();
        for chain in [&large, &small] {
            let allocation = allocator.alloc(&chain.graph, &Bindings::new()).unwrap();
            let now = chain.buffer(&allocation);
            assert!(now.is_same(&buffer) && now.address() == address, "there is another buffer");
            assert!(allocator.buffer_size(0).unwrap() >= Bytes(5 * size.get()));
            chain.prove(&*backend, &allocation);
        }
        assert_captured(&device);
    }
}

/// A product of blocks with many columns, which are decoded into scratch memory of `2 * rows * rows` bytes.
struct Decoded {
    graph: Graph,
    bindings: Bindings,
    result: SharedBuffer,
}

impl Decoded {
    fn new(backend: &dyn Backend, rows: u64) -> Self {
        let mut context = Context::new();
        let weights = context.external(DataType::Q8_0, &[rows, rows]).unwrap();
        let x = context.external(DataType::F32, &[rows, 16]).unwrap();
        let y = context.mul_mat(weights, x).unwrap();
        let graph = Graph::from_outputs(&context, &[y]).unwrap();
        let (mut bindings, mut buffers) = (Bindings::new(), Vec::new());
        for id in [weights, x, y] {
            let size = context.tensor(id).unwrap().nbytes();
            let buffer = SharedBuffer::allocate(&backend.buffer_type(), size, Usage::Any).unwrap();
            bindings.bind(id, &buffer, Offset(0), size).unwrap();
            buffers.push(buffer);
        }
        // Scales of 0x3c3c, a little above one, and quants of 60.
        buffers[0].clear(0x3c).unwrap();
        buffers[1].write(Offset(0), &bytes_of(16 * rows, |i| (i % 7) as f32)).unwrap();
        Self { graph, bindings, result: buffers.remove(2) }
    }

    fn result(&self, backend: &dyn Backend) -> Vec<u8> {
        read(backend, &self.result, 0, self.result.size().get())
    }
}

/// All that is prepared for a stream shares one scratch memory: what was captured first goes on when more of it is needed.
#[test]
fn scratch_memory_grows_behind_what_was_captured() {
    let _alone = alone();
    for device in capturing() {
        let (backend, fresh) = (device.backend().unwrap(), device.backend().unwrap());
        let (small, large) = (Decoded::new(&*backend, 1024), Decoded::new(&*backend, 8192));
        let wanted = [&small, &large].map(|it| {
            let mut alone = fresh.prepare(&it.graph, 0..1, &it.bindings).unwrap();
            fresh.submit(&mut *alone).unwrap();
            let wanted = it.result(&*fresh);
            it.result.clear(0).unwrap();
            wanted
        });
        let mut one = backend.prepare(&small.graph, 0..1, &small.bindings).unwrap();
        backend.submit(&mut *one).unwrap();
        assert!(small.result(&*backend) == wanted[0]);
        let mut other = backend.prepare(&large.graph, 0..1, &large.bindings).unwrap();
        for _ in 0..3 {
            backend.submit(&mut *one).unwrap();
            backend.submit(&mut *other).unwrap();
        }
        assert!(small.result(&*backend) == wanted[0] && large.result(&*backend) == wanted[1]);
        drop(other);
        backend.submit(&mut *one).unwrap();
        assert!(small.result(&*backend) == wanted[0]);
        assert_captured(&device);
    }
}
