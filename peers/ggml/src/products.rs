//! The same matrix products by ggml's CPU backend and by ours, on the same bytes, with one thread each.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use llama_cpp_sys_2::{
    GGML_STATUS_SUCCESS, ggml_backend, ggml_backend_alloc_ctx_tensors, ggml_backend_buffer, ggml_backend_buffer_free,
    ggml_backend_cpu_init, ggml_backend_cpu_set_n_threads, ggml_backend_free, ggml_backend_graph_compute,
    ggml_backend_tensor_get, ggml_backend_tensor_set, ggml_build_forward_expand, ggml_cgraph, ggml_context, ggml_free,
    ggml_graph_overhead, ggml_init, ggml_init_params, ggml_mul_mat, ggml_new_graph, ggml_new_tensor_2d,
    ggml_quantize_chunk, ggml_tensor, ggml_tensor_overhead, ggml_type,
};
use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, BufferType, DeviceError, HostMemory, Prepared, SharedBuffer, Usage};
use steeve_graph::{Bytes, Context, DataType, Graph, GraphError, Offset, TensorId};

use crate::ggml::GgmlError;

/// Products of several weights `[k, m]` with one input `[k, n]`. Several, so that none is still in a cache.
#[derive(Clone, Copy, Debug)]
pub struct Products {
    /// The type of the weights.
    pub dtype: DataType,
    /// How long rows are.
    pub k: usize,
    /// How many rows the weights have.
    pub m: usize,
    /// How many rows the input has.
    pub n: usize,
    /// How many weights there are.
    pub count: usize,
}

/// What both sides are given.
#[derive(Clone, Debug)]
pub struct Numbers {
    weights: Vec<u8>,
    input: Vec<f32>,
}

impl Products {
    /// Random weights, rounded by ggml, and a random input.
    pub fn numbers(&self) -> Numbers {
        let mut state = 1u64;
        let mut random = |count: usize| -> Vec<f32> {
            let next = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 24) as f32 - 0.5
            };
            (0..count).map(next).collect()
        };
        let (rows, input) = (random(self.k * self.m), random(self.k * self.n));
        let mut weights = vec![0; self.weight_bytes()];
        // SAFETY: so many rows, whole blocks, and room for them; no importance is given.
        unsafe {
            let (from, to) = (rows.as_ptr(), weights.as_mut_ptr().cast());
            ggml_quantize_chunk(self.number(), from, to, 0, self.m as i64, self.k as i64, ptr::null());
        }
        Numbers { weights, input }
    }

    fn weight_bytes(&self) -> usize {
        self.k * self.m / self.dtype.block_len() as usize * self.dtype.block_bytes() as usize
    }

    fn number(&self) -> ggml_type {
        self.dtype.ggml_id() as ggml_type
    }
}

/// ggml's side.
pub struct GgmlProducts {
    context: NonNull<ggml_context>,
    graph: *mut ggml_cgraph,
    buffer: NonNull<ggml_backend_buffer>,
    backend: NonNull<ggml_backend>,
    results: Vec<*mut ggml_tensor>,
    length: usize,
}

impl GgmlProducts {
    /// A graph with its numbers.
    pub fn new(products: &Products, numbers: &Numbers) -> Result<Self, GgmlError> {
        let Products { k, m, n, count, .. } = *products;
        // SAFETY: tensors are made in a context that has room for them, as are their buffer and a graph; all are kept
        // until they are freed in `drop`. What is written into a tensor has its size.
        unsafe {
            let mem_size = ggml_tensor_overhead() * (2 * count + 1) + ggml_graph_overhead();
            let context = ggml_init(ggml_init_params { mem_size, mem_buffer: ptr::null_mut(), no_alloc: true });
            let context = NonNull::new(context).ok_or(GgmlError::NoContext)?;
            let matrix = |number: u32, rows: usize| {
                ggml_new_tensor_2d(context.as_ptr(), number as ggml_type, k as i64, rows as i64)
            };
            let input = matrix(DataType::F32.ggml_id(), n);
            let graph = ggml_new_graph(context.as_ptr());
            let weights: Vec<_> = (0..count).map(|_| matrix(products.dtype.ggml_id(), m)).collect();
            let mut results = Vec::new();
            for weight in &weights {
                let result = ggml_mul_mat(context.as_ptr(), *weight, input);
                ggml_build_forward_expand(graph, result);
                results.push(result);
            }
            let backend = NonNull::new(ggml_backend_cpu_init()).ok_or(GgmlError::NoContext)?;
            ggml_backend_cpu_set_n_threads(backend.as_ptr(), 1 as c_int);
            let buffer = ggml_backend_alloc_ctx_tensors(context.as_ptr(), backend.as_ptr());
            let buffer = NonNull::new(buffer).ok_or(GgmlError::NoContext)?;
            let set = |tensor, from: *const c_void, size| ggml_backend_tensor_set(tensor, from, 0, size);
            set(input, numbers.input.as_ptr().cast(), size_of_val(&*numbers.input));
            weights.iter().for_each(|it| set(*it, numbers.weights.as_ptr().cast(), numbers.weights.len()));
            Ok(Self { context, graph, buffer, backend, results, length: m * n })
        }
    }

    /// Computes all products.
    pub fn run(&mut self) -> Result<(), GgmlError> {
        // SAFETY: the graph and its tensors are there.
        let status = unsafe { ggml_backend_graph_compute(self.backend.as_ptr(), self.graph) };
        if status == GGML_STATUS_SUCCESS { Ok(()) } else { Err(GgmlError::Refused("compute")) }
    }

    /// The last product.
    pub fn result(&self) -> Vec<f32> {
        let mut result = vec![0.0f32; self.length];
        if let Some(last) = self.results.last() {
            // SAFETY: a tensor of so many elements, that has memory.
            unsafe { ggml_backend_tensor_get(*last, result.as_mut_ptr().cast(), 0, 4 * self.length) };
        }
        result
    }
}

impl Drop for GgmlProducts {
    fn drop(&mut self) {
        // SAFETY: each is freed once, the buffer before its backend.
        unsafe {
            ggml_backend_buffer_free(self.buffer.as_ptr());
            ggml_backend_free(self.backend.as_ptr());
            ggml_free(self.context.as_ptr());
        }
    }
}

/// Our side.
pub struct OurProducts {
    backend: CpuBackend,
    prepared: Box<dyn Prepared>,
    buffer: SharedBuffer,
    result: Offset,
    length: usize,
}

/// Why our side did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OurProductError {
    /// The device's.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The graph could not be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl OurProducts {
    /// A graph with its numbers, every tensor in one buffer.
    pub fn new(products: &Products, numbers: &Numbers) -> Result<Self, OurProductError> {
        let Products { k, m, n, count, dtype } = *products;
        let mut context = Context::new();
        let input = context.external(DataType::F32, &[k as u64, n as u64])?;
        let weights: Vec<TensorId> =
            (0..count).map(|_| context.external(dtype, &[k as u64, m as u64])).collect::<Result<_, _>>()?;
        let results: Vec<TensorId> = weights.iter().map(|it| context.mul_mat(*it, input)).collect::<Result<_, _>>()?;
        let graph = Graph::from_outputs(&context, &results)?;
        let (mut bindings, mut end) = (Bindings::new(), 0);
        let all: Vec<TensorId> = [input].into_iter().chain(weights).chain(results).collect();
        let mut places = Vec::new();
        for id in &all {
            let size = context.tensor(*id)?.nbytes();
            places.push((Offset(end), size));
            end += size.0.next_multiple_of(64);
        }
        let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        let buffer = SharedBuffer::allocate(&memory, Bytes(end), Usage::Compute)?;
        for (id, (offset, size)) in all.iter().zip(&places) {
            bindings.bind(*id, &buffer, *offset, *size)?;
        }
        let floats: Vec<u8> = numbers.input.iter().flat_map(|x| x.to_ne_bytes()).collect();
        buffer.write(places[0].0, &floats)?;
        for (offset, _) in &places[1..=count] {
            buffer.write(*offset, &numbers.weights)?;
        }
        let backend = CpuBackend::new(1);
        let prepared = backend.prepare(&graph, 0..graph.nodes().len(), &bindings)?;
        Ok(Self { backend, prepared, buffer, result: places[2 * count].0, length: m * n })
    }

    /// Computes all products.
    pub fn run(&mut self) -> Result<(), OurProductError> {
        Ok(self.backend.submit(&mut *self.prepared)?)
    }

    /// The last product.
    pub fn result(&self) -> Result<Vec<f32>, OurProductError> {
        let mut bytes = vec![0; 4 * self.length];
        self.buffer.read(self.result, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect())
    }
}
