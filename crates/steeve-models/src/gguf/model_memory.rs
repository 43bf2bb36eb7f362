//! What a model takes of each device, from its header alone: nothing of its data is read, and nothing is allocated.

use std::sync::Arc;

use steeve_device::{Align, BufferType, Device, MemorySpec, NullDevice, Usage};
use steeve_graph::{AssignedGraph, Bytes, Context};
use steeve_runtime::sched::{Scheduler, TensorLocations};

use super::error::GgufError;
use super::header::GgufHeader;
use super::language_model::{LanguageModel, ModelTensor, SessionSize};

/// What a model takes of each device.
///
/// ```
/// use steeve_graph::InputLimit;
/// use steeve_models::gguf::{Architecture, GgufHeader, ModelMemory, SessionSize, SmallGguf};
/// let file = SmallGguf::language_model(Architecture::Llama, 1).to_bytes();
/// let header = GgufHeader::read(file.as_slice(), InputLimit::DEFAULT)?;
/// let memory = ModelMemory::plan(&header, SessionSize::new(64, 16), 0)?;
/// assert_eq!(memory.devices[0].weights, header.weights());
/// # Ok::<(), steeve_models::gguf::GgufError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModelMemory {
    /// The devices, by priority: the GPU, if layers are there, and the processor last.
    pub devices: Vec<DeviceMemory>,
    /// The graph of the largest batch of a prompt, as it is planned: with copies between devices, and a memory for each node.
    pub prompt: AssignedGraph,
}

/// What a model takes of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The name of the device.
    pub name: String,
    /// The bytes of its weights. On the processor they are those of the mapped file.
    pub weights: Bytes,
    /// The bytes of keys and values.
    pub caches: Bytes,
    /// The bytes of the buffer in which graphs are computed, the largest of prompt and token.
    pub compute: Bytes,
}

impl DeviceMemory {
    /// Returns all bytes, saturating.
    pub fn total(&self) -> Bytes {
        Bytes(self.weights.0.saturating_add(self.caches.0).saturating_add(self.compute.0))
    }
}

/// The names of the devices that are planned for.
const NAMES: [&str; 2] = ["CUDA0", "CPU"];

impl ModelMemory {
    /// Plans the model of a header, with the last `layers_on_gpu` layers on a GPU, as the example `generate` runs it.
    ///
    /// # Errors
    ///
    /// If the header's model can't be built, see [`LanguageModel::new`].
    pub fn plan(header: &GgufHeader, size: SessionSize, layers_on_gpu: u64) -> Result<Self, GgufError> {
        let mut context = Context::new();
        let model = LanguageModel::new(&mut context, header, size)?;
        let (mut devices, mut figures) = (Vec::new(), Vec::new());
        if layers_on_gpu > 0 {
            devices.push(planning_gpu());
        }
        devices.push(planning_processor(layers_on_gpu > 0));
        let mut locations = TensorLocations::new();
        for device in &devices {
            let memory = &device.buffer_types()[0];
            let is_here = |tensor: &&ModelTensor| {
                let on_gpu = model.is_on_gpu(tensor, layers_on_gpu);
                on_gpu != memory.is_host()
            };
            let mut found = DeviceMemory {
                name: device.name().to_owned(),
                weights: Bytes::ZERO,
                caches: Bytes::ZERO,
                compute: Bytes::ZERO,
            };
            for tensor in model.tensors().iter().filter(is_here) {
                let usage = if tensor.is_cache() { Usage::Any } else { Usage::Weights };
                locations.put(tensor.id, memory, usage);
                let sum = if tensor.is_cache() { &mut found.caches } else { &mut found.weights };
                sum.0 = sum.0.saturating_add(bytes_in(&context, tensor, memory));
            }
            figures.push(found);
        }
        let scheduler = Scheduler::for_planning(devices)?;
        let (mark, mut prompt) = (context.mark(), None);
        for shape in model.largest_shapes() {
            let step = model.step(&mut context, shape)?;
            context.rewind(mark)?;
            for (found, bytes) in figures.iter_mut().zip(scheduler.required(&step.graph, &locations)?) {
                found.compute = found.compute.max(bytes);
            }
            if prompt.is_none() {
                prompt = Some(scheduler.assign(&step.graph, &locations)?);
            }
        }
        let Some(prompt) = prompt else { unreachable!("there are two shapes") };
        Ok(Self { devices: figures, prompt })
    }
}

/// Returns the bytes of a tensor: in the file, or in a buffer of its own.
fn bytes_in(context: &Context, tensor: &ModelTensor, memory: &Arc<dyn BufferType>) -> u64 {
    let bytes = memory.alloc_size(context.tensors(), tensor.id).0;
    // Caches of the processor are in plain memory, also where its results are in memory that a GPU copies from.
    let align = match (memory.is_host(), tensor.is_cache()) {
        (true, true) => MemorySpec::new(NAMES[1]).align.get(),
        (true, false) => 1,
        (false, _) => memory.align().get(),
    };
    bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

/// Returns a stand-in for a GPU as `steeve-cuda` has it.
fn planning_gpu() -> Arc<dyn Device> {
    let spec = MemorySpec::new(NAMES[0]).with_align(GPU_ALIGN);
    Arc::new(NullDevice::new(spec).as_if_it_computed().with_offload())
}

/// Returns a stand-in for the processor, whose results are in memory that the GPU copies from where there is one.
fn planning_processor(beside_gpu: bool) -> Arc<dyn Device> {
    let spec = MemorySpec::new(NAMES[1]);
    let spec = if beside_gpu { spec.with_align(GPU_ALIGN) } else { spec };
    Arc::new(NullDevice::new(spec).as_if_it_computed().in_host_memory())
}

/// The alignment of tensors for a GPU.
const GPU_ALIGN: Align = match Align::new(256) {
    Ok(align) => align,
    Err(_) => Align::ONE,
};
