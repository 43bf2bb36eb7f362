//! Runs small graphs at addresses and on threads that must not matter, and reads tensors the slow way.

#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(dead_code, reason = "each test uses its part")]

use half::{bf16, f16};
use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, Bytes, DeviceError, HostMemory, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Graph, Id, Layout, TensorId};
pub(crate) use steeve_testkit::formats;

/// A context whose leafs have data.
pub(crate) struct FilledContext {
    pub(crate) context: Context,
    data: Vec<(TensorId, Vec<u8>)>,
    state: u64,
}

impl FilledContext {
    pub(crate) fn new(seed: u64) -> Self {
        Self { context: Context::new(), data: Vec::new(), state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % bound
    }

    /// A number between -1 and 1 with few digits, so that it is the same in every type.
    pub(crate) fn number(&mut self) -> f32 {
        (self.below(257) as f32 - 128.0) / 128.0
    }

    /// One of them.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A leaf with numbers. Blocks get random bytes and a small scale.
    pub(crate) fn leaf(&mut self, dtype: DataType, shape: &[u64]) -> TensorId {
        let tensor = self.context.external(dtype, shape).unwrap();
        let layout = self.context.tensor(tensor).unwrap().layout;
        let bytes = match dtype {
            _ if dtype.is_quantised() => {
                let count = (layout.elements() / dtype.block_len()) as usize;
                formats::random_blocks(dtype, count, 1.0, || self.below(256) as u8)
            }
            _ => (0..layout.elements()).flat_map(|_| encode(dtype, f64::from(self.number()) * scale(dtype))).collect(),
        };
        self.data.push((tensor, bytes));
        tensor
    }

    /// A leaf with these numbers.
    pub(crate) fn given(&mut self, dtype: DataType, shape: &[u64], numbers: &[f64]) -> TensorId {
        let tensor = self.context.external(dtype, shape).unwrap();
        self.data.push((tensor, numbers.iter().flat_map(|number| encode(dtype, *number)).collect()));
        tensor
    }

    /// A leaf with these bytes.
    pub(crate) fn blocks(&mut self, dtype: DataType, shape: &[u64], bytes: Vec<u8>) -> TensorId {
        let tensor = self.context.external(dtype, shape).unwrap();
        self.data.push((tensor, bytes));
        tensor
    }

    /// A tensor with gaps or in another order, of the shape that is asked for.
    pub(crate) fn strided(&mut self, dtype: DataType, shape: [u64; 4]) -> TensorId {
        let blocks = dtype.block_len();
        match self.below(4) {
            _ if shape.contains(&0) => self.leaf(dtype, &shape),
            0 => self.leaf(dtype, &shape),
            1 => {
                // Rows with gaps, at an offset.
                let leaf = self.leaf(dtype, &[shape[0] + 2 * blocks, shape[1] + 1, shape[2], shape[3]]);
                let nb = self.layout(leaf).nb();
                self.context.view_4d(leaf, shape, [nb[1], nb[2], nb[3]], Bytes(nb[0] + nb[1])).unwrap()
            }
            2 => {
                // Heads before tokens.
                let leaf = self.leaf(dtype, &[shape[0], shape[2], shape[1], shape[3]]);
                self.context.permute(leaf, [0, 2, 1, 3]).unwrap()
            }
            _ if blocks > 1 => self.leaf(dtype, &shape),
            _ => {
                let leaf = self.leaf(dtype, &[shape[1], shape[0], shape[2], shape[3]]);
                self.context.transpose(leaf).unwrap()
            }
        }
    }

    pub(crate) fn layout(&self, tensor: TensorId) -> Layout {
        self.context.tensor(tensor).unwrap().layout
    }

    /// Returns what a tensor that no node computes holds, in order.
    pub(crate) fn values(&self, tensor: TensorId) -> Vec<f64> {
        let tensors = self.context.tensors();
        let root = tensors.root(tensor);
        let (_, bytes) = self.data.iter().find(|(id, _)| *id == root).unwrap();
        read(&self.layout(tensor), &bytes[tensors.offset(tensor).0 as usize..])
    }

    /// Runs with that many threads; roots are `shift` bytes behind a multiple of 64.
    pub(crate) fn run(&self, outputs: &[TensorId], threads: usize, shift: u64) -> Result<Vec<Vec<u8>>, DeviceError> {
        let graph = Graph::from_outputs(&self.context, outputs).unwrap();
        let (tensors, backend) = (self.context.tensors(), CpuBackend::new(threads));
        let (mut end, mut starts) = (0, Vec::new());
        for id in tensors.ids() {
            starts.push(end + shift);
            if !tensors[id].is_view() {
                end += shift + tensors[id].nbytes().0;
                end = end.next_multiple_of(64);
            }
        }
        let memory: std::sync::Arc<dyn steeve_device::BufferType> = std::sync::Arc::new(HostMemory::new());
        let buffer = SharedBuffer::allocate(&memory, Bytes(end + 64), Usage::Compute)?;
        // Bytes that no kernel writes show.
        buffer.clear(0xff)?;
        let mut bindings = Bindings::new();
        for id in tensors.ids() {
            let start = starts[tensors.root(id).index()] + tensors.offset(id).0;
            bindings.bind(id, &buffer, Offset(start), tensors[id].nbytes())?;
        }
        for (id, bytes) in &self.data {
            buffer.write(Offset(starts[id.index()]), bytes)?;
        }
        let mut prepared = backend.prepare(&graph, 0..graph.nodes().len(), &bindings)?;
        backend.submit(&mut *prepared)?;
        let read = |&id: &TensorId| {
            let address = bindings.get(id).unwrap();
            let mut bytes = vec![0; address.size.0 as usize];
            buffer.read(address.offset, &mut bytes).map(|()| bytes)
        };
        outputs.iter().map(read).collect()
    }

    /// The result, which is the same to the bit for every number of threads and at every address.
    pub(crate) fn result(&self, output: TensorId) -> Vec<f64> {
        let layout = self.layout(output);
        let first = self.run(&[output], 1, 0).unwrap().remove(0);
        let numbers = read(&layout, &first);
        for (threads, shift) in [(2, 0), (3, 4), (1, 1), (2, 34)] {
            let again = self.run(&[output], threads, shift).unwrap().remove(0);
            let same = read(&layout, &again).iter().zip(&numbers).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{threads} threads, {shift} bytes on: another result of {layout}");
        }
        numbers
    }

    /// Why it can't be run.
    pub(crate) fn refusal(&self, output: TensorId) -> String {
        self.run(&[output], 2, 0).unwrap_err().to_string()
    }
}

fn scale(dtype: DataType) -> f64 {
    match dtype {
        _ if dtype.is_integer() => 100.0,
        _ => 1.0,
    }
}

/// One element as bytes.
pub(crate) fn encode(dtype: DataType, x: f64) -> Vec<u8> {
    match dtype {
        DataType::F32 => (x as f32).to_ne_bytes().into(),
        DataType::F16 => f16::from_f64(x).to_ne_bytes().into(),
        DataType::Bf16 => bf16::from_f64(x).to_ne_bytes().into(),
        DataType::F64 => x.to_ne_bytes().into(),
        DataType::I8 => (x as i8).to_ne_bytes().into(),
        DataType::I16 => (x as i16).to_ne_bytes().into(),
        DataType::I32 => (x as i32).to_ne_bytes().into(),
        DataType::I64 => (x as i64).to_ne_bytes().into(),
        _ => panic!("no {dtype}"),
    }
}

/// All elements in order, one at a time.
pub(crate) fn read(layout: &Layout, bytes: &[u8]) -> Vec<f64> {
    let block = |at: u64| {
        let elements = 0..layout.dtype().block_len() as usize;
        elements.map(move |within| element(layout.dtype(), &bytes[at as usize..], within))
    };
    layout.block_offsets().flat_map(block).collect()
}

fn element(dtype: DataType, at: &[u8], within: usize) -> f64 {
    let two = || [at[0], at[1]];
    let four = || [at[0], at[1], at[2], at[3]];
    let eight = || std::array::from_fn(|i| at[i]);
    match dtype {
        DataType::F32 => f32::from_ne_bytes(four()).into(),
        DataType::F16 => f16::from_ne_bytes(two()).to_f64(),
        DataType::Bf16 => bf16::from_ne_bytes(two()).to_f64(),
        DataType::F64 => f64::from_ne_bytes(eight()),
        DataType::I8 => at[0].cast_signed().into(),
        DataType::I16 => i16::from_ne_bytes(two()).into(),
        DataType::I32 => i32::from_ne_bytes(four()).into(),
        DataType::I64 => i64::from_ne_bytes(eight()) as f64,
        _ => formats::parts(dtype, at, within).unwrap_or_else(|| panic!("no {dtype}")).value(),
    }
}

/// Both are the same but for rounding, which grows with what was added up.
pub(crate) fn assert_close(ours: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(ours.len(), wanted.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(wanted).enumerate() {
        let near = (a - b).abs() <= tolerance * b.abs().max(1.0) || (a.is_nan() && b.is_nan()) || a == b;
        assert!(near, "{what}: element {i} is {a}, not {b}");
    }
}
