//! The bytes of every root, as if each had memory of its own.

use steeve_graph::{Id, Layout, Op, TensorId, Tensors};

use super::element_codec::{decode, encode, sizes};
use super::evaluate::{Array, NodeCall, evaluate};

/// The bytes of each root. A root that has not been written is full of `0xFF`.
#[derive(Clone, Debug, Default)]
pub struct EvalMemory {
    roots: Vec<Vec<u8>>,
}

impl EvalMemory {
    /// The elements of a tensor, in order.
    pub fn read(&self, tensors: &Tensors, id: TensorId) -> Vec<f64> {
        let dtype = tensors[id].layout.dtype();
        self.bytes(tensors, id).chunks(dtype.block_bytes() as usize).flat_map(|block| decode(dtype, block)).collect()
    }

    /// Rounds values to the tensor's type and stores them.
    pub fn write(&mut self, tensors: &Tensors, id: TensorId, values: &[f64]) {
        let dtype = tensors[id].layout.dtype();
        let blocks = values.chunks(dtype.block_len() as usize).flat_map(|block| encode(dtype, block));
        self.set_bytes(tensors, id, &blocks.collect::<Vec<u8>>());
    }

    /// The bytes of a tensor without gaps.
    pub fn bytes(&self, tensors: &Tensors, id: TensorId) -> Vec<u8> {
        let (root, start) = (tensors.root(id), tensors.offset(id).get() as usize);
        let layout = tensors[id].layout;
        match self.roots.get(root.index()) {
            Some(bytes) if !bytes.is_empty() => pack(&layout, &bytes[start..]),
            _ => vec![0xFF; layout.block_offsets().count() * layout.dtype().block_bytes() as usize],
        }
    }

    /// Stores the bytes of a tensor, given without gaps.
    pub fn set_bytes(&mut self, tensors: &Tensors, id: TensorId, packed: &[u8]) {
        let (root, start) = (tensors.root(id), tensors.offset(id).get() as usize);
        if self.roots.len() <= root.index() {
            self.roots.resize(root.index() + 1, Vec::new());
        }
        let bytes = &mut self.roots[root.index()];
        bytes.resize(tensors[root].nbytes().get() as usize, 0xFF);
        let size = tensors[id].layout.dtype().block_bytes() as usize;
        for (at, block) in tensors[id].layout.block_offsets().zip(packed.chunks(size)) {
            let at = at as usize;
            bytes[start + at..][..size].copy_from_slice(block);
        }
    }

    /// Forgets all but the first tensors, as a context does that is rewound.
    pub fn truncate(&mut self, tensors: usize) {
        self.roots.truncate(tensors);
    }

    /// Returns the call of a node with the sources as they are now.
    pub fn call<'a>(&self, tensors: &'a Tensors, node: TensorId) -> NodeCall<'a> {
        let array = |id: TensorId| {
            let layout = tensors[id].layout;
            let (dtype, ne, bytes) = (layout.dtype(), layout.ne().map(|n| n as usize), self.bytes(tensors, id));
            let blocks = || bytes.chunks(dtype.block_bytes() as usize);
            let (values, sizes) = (blocks().flat_map(|it| decode(dtype, it)), blocks().flat_map(|it| sizes(dtype, it)));
            Array { dtype, ne, values: values.collect(), sizes: sizes.collect() }
        };
        let sources = tensors.sources(node).iter().map(|source| source.map(array)).collect();
        NodeCall { op: tensors[node].op, params: tensors.params(node), sources, result: tensors[node].layout }
    }

    /// Runs a node: its exact values, rounded when they are stored.
    pub fn step(&mut self, tensors: &Tensors, node: TensorId) {
        match tensors[node].op {
            op if op.writes_nothing() => {}
            Op::SetRows => self.set_rows(tensors, node),
            _ => {
                let exact = evaluate(&self.call(tensors, node));
                self.write(tensors, node, &exact.values);
            }
        }
    }

    /// Only the rows that are named are written: storing the others again would round them again.
    fn set_rows(&mut self, tensors: &Tensors, node: TensorId) {
        let call = self.call(tensors, node);
        let (rows, ids, dtype) = (call.source(0), call.source(1), call.result.dtype());
        let mut bytes = self.bytes(tensors, node);
        let [n0, n1, n2, n3] = rows.ne;
        let row_bytes = n0 / dtype.block_len() as usize * dtype.block_bytes() as usize;
        let target_rows = call.result.ne()[1] as usize;
        for (i3, i2, i1) in (0..n3).flat_map(|i3| (0..n2).flat_map(move |i2| (0..n1).map(move |i1| (i3, i2, i1)))) {
            let id = ids.at([i1, i2 % ids.ne[1], i3 % ids.ne[2], 0]) as usize;
            assert!(id < target_rows, "row {id} does not exist");
            let row: Vec<f64> = (0..n0).map(|i0| rows.at([i0, i1, i2, i3])).collect();
            let stored = row.chunks(dtype.block_len() as usize).flat_map(|block| encode(dtype, block));
            let start = ((i3 * n2 + i2) * target_rows + id) * row_bytes;
            bytes[start..start + row_bytes].copy_from_slice(&stored.collect::<Vec<u8>>());
        }
        self.set_bytes(tensors, node, &bytes);
    }
}

/// The bytes of a tensor without gaps, from those that it spans.
pub fn pack(layout: &Layout, spanned: &[u8]) -> Vec<u8> {
    let size = layout.dtype().block_bytes() as usize;
    layout.block_offsets().flat_map(|at| &spanned[at as usize..][..size]).copied().collect()
}
